//! What the use of a tool means to the guard: which files it changes. The tools of each harness are data of `tt_harness`.

use std::collections::HashMap;

use serde_json::value::RawValue;
use tt_harness::{EditedPaths, GuardedTools};

/// How many files of one edit are looked at.
const MAX_EDITED_PATHS: usize = 64;

/// The names of the programs that apply a patch in the form of Codex, and how such a patch begins.
const PATCH_PROGRAMS: &[&str] = &["apply_patch", "applypatch"];
const PATCH_BEGINS: &str = "*** Begin Patch";

/// How the lines of a patch begin that name a file.
const PATCH_FILES: &[&str] = &["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];

/// What the use of a tool means to the guard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ToolUse {
    /// It changes these files, named as the tool names them.
    Edit(Vec<String>),
    /// A command, which may change anything.
    Shell,
    Other,
}

/// What the use of a tool means, as far as its input can be read.
pub(super) fn read(tools: &GuardedTools, tool: &str, input: Option<&RawValue>) -> ToolUse {
    if let Some(edit) = tools.edits.iter().find(|edit| edit.name == tool) {
        let paths = input.map(|input| edited(&edit.paths, input)).unwrap_or_default();
        return if paths.is_empty() { ToolUse::Other } else { ToolUse::Edit(paths) };
    }
    let (shell, key) = tools.shell;
    if tool != shell {
        return ToolUse::Other;
    }
    let command = input.and_then(|input| text_at(input, key)).filter(|command| runs_patch(command));
    match command.map(|command| paths_in_patch(&command)) {
        Some(paths) if !paths.is_empty() => ToolUse::Edit(paths),
        _ => ToolUse::Shell,
    }
}

fn edited(paths: &EditedPaths, input: &RawValue) -> Vec<String> {
    match paths {
        EditedPaths::Key(key) => text_at(input, key).filter(|path| !path.is_empty()).into_iter().collect(),
        EditedPaths::Patch(keys) => {
            let patch = keys.iter().find_map(|key| text_at(input, key));
            let patch = patch.or_else(|| serde_json::from_str(input.get()).ok());
            patch.map(|patch: String| paths_in_patch(&patch)).unwrap_or_default()
        }
    }
}

/// The text under a key of an object. What is under the others is not looked at.
fn text_at(input: &RawValue, key: &str) -> Option<String> {
    let object: HashMap<String, &RawValue> = serde_json::from_str(input.get()).ok()?;
    serde_json::from_str(object.get(key)?.get()).ok()
}

/// Whether a shell command applies a patch that it contains.
fn runs_patch(command: &str) -> bool {
    let begins = |part: &str| {
        let part = part.trim_start();
        PATCH_PROGRAMS.iter().any(|program| {
            part.strip_prefix(program).is_some_and(|rest| rest.starts_with(|c: char| c.is_whitespace() || c == '<'))
        })
    };
    command.contains(PATCH_BEGINS) && command.split(['\n', ';', '&', '|', '(']).any(begins)
}

/// The files that a patch names.
fn paths_in_patch(patch: &str) -> Vec<String> {
    let path = |line: &str| {
        let line = line.trim();
        PATCH_FILES.iter().find_map(|begins| line.strip_prefix(begins)).map(|path| path.trim().to_owned())
    };
    let mut paths: Vec<String> = Vec::new();
    for path in patch.lines().filter_map(path).filter(|path| !path.is_empty()) {
        if paths.len() < MAX_EDITED_PATHS && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(harness: &str, tool: &str, input: &Value) -> ToolUse {
        let input = serde_json::value::to_raw_value(input).unwrap();
        super::read(&tt_harness::by_name(harness).unwrap().tools, tool, Some(&input))
    }

    fn edit(paths: &[&str]) -> ToolUse {
        ToolUse::Edit(paths.iter().map(|path| (*path).to_owned()).collect())
    }

    const PATCH: &str = "*** Begin Patch\n*** Update File: src/a b.rs\n*** Move to: src/c.rs\n@@\n-x\n+*** y\n*** Add File: ü.txt\n+z\n\
        *** Delete File: old\n*** Delete File: old\n*** End Patch";

    #[test]
    fn every_edit_tool_names_its_files() {
        let files = edit(&["src/a b.rs", "src/c.rs", "ü.txt", "old"]);
        for (harness, tool, input, expected) in [
            ("claude", "Edit", json!({"file_path": "/w/a", "old_string": "x"}), edit(&["/w/a"])),
            ("claude", "Write", json!({"file_path": "/w/a"}), edit(&["/w/a"])),
            ("claude", "MultiEdit", json!({"file_path": "/w/a"}), edit(&["/w/a"])),
            ("claude", "NotebookEdit", json!({"notebook_path": "/w/a.ipynb"}), edit(&["/w/a.ipynb"])),
            ("codex", "apply_patch", json!({"command": PATCH}), files.clone()),
            ("codex", "apply_patch", json!({"input": PATCH}), files.clone()),
            ("codex", "apply_patch", json!(PATCH), files.clone()),
            ("codex", "Bash", json!({"command": format!("cd x && apply_patch <<'EOF'\n{PATCH}\nEOF")}), files.clone()),
            ("codex", "Bash", json!({"command": format!("apply_patch<<EOF\n{PATCH}\nEOF\n")}), files.clone()),
            ("claude", "Bash", json!({"command": format!("applypatch <<E\n{PATCH}\nE")}), files.clone()),
            ("gemini", "replace", json!({"file_path": "a"}), edit(&["a"])),
            ("gemini", "write_file", json!({"file_path": "a"}), edit(&["a"])),
            ("opencode", "edit", json!({"filePath": "a"}), edit(&["a"])),
            ("opencode", "write", json!({"filePath": "a"}), edit(&["a"])),
            ("opencode", "patch", json!({"patchText": PATCH}), files.clone()),
        ] {
            assert_eq!(read(harness, tool, &input), expected, "{harness} {tool} {input}");
        }
    }

    #[test]
    fn a_command_is_no_edit_unless_it_applies_a_patch_of_its_own() {
        for command in
            ["cargo test", "sed -i s/a/b/ x", "apply_patch < file", "", "grep '*** Begin Patch' apply_patch.rs"]
        {
            assert_eq!(read("codex", "Bash", &json!({"command": command})), ToolUse::Shell, "{command}");
        }
        let in_a_text = format!("cat > notes <<E\nuse apply_patch like so:\n{PATCH}\nE");
        assert_eq!(read("codex", "Bash", &json!({"command": in_a_text})), ToolUse::Shell);
    }

    #[test]
    fn what_cannot_be_read_is_left_alone() {
        for (tool, input) in [
            ("Edit", json!({})),
            ("Edit", json!({"file_path": 7})),
            ("Edit", json!({"file_path": ""})),
            ("Edit", json!(null)),
            ("Read", json!({"file_path": "/w/a"})),
            ("mcp__x__Edit", json!({"file_path": "/w/a"})),
        ] {
            assert_eq!(read("claude", tool, &input), ToolUse::Other, "{tool} {input}");
        }
        assert_eq!(read("claude", "Bash", &json!(null)), ToolUse::Shell);
        let many: String = (0..1000).map(|n| format!("*** Add File: {n}\n")).collect();
        let ToolUse::Edit(paths) = read("codex", "apply_patch", &json!({"command": many})) else { panic!() };
        assert_eq!(paths.len(), MAX_EDITED_PATHS);
    }
}
