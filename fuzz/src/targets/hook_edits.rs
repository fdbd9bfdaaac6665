//! What a harness tells a hook of a tool that is about to change files: the paths that the daemon is asked about.

use crate::generate::{json, json_string, object, text};
use crate::{Random, Target, Verdict, ensure};

pub(super) struct HookEdits;

/// Tools of all harnesses, and one that is none.
const TOOLS: &[&str] = &[
    "Edit",
    "Write",
    "NotebookEdit",
    "apply_patch",
    "Bash",
    "replace",
    "write_file",
    "run_shell_command",
    "edit",
    "patch",
    "x",
];

const LINES: &[&str] = &[
    "*** Begin Patch",
    "*** Update File: ",
    "*** Add File: ",
    "*** Delete File: ",
    "*** Move to: ",
    "*** End Patch",
    "apply_patch <<'EOF'",
    "cd x && apply_patch <<EOF",
    "+",
];

impl Target for HookEdits {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let count = random.below(12);
        let mut lines = Vec::new();
        for _ in 0..count {
            let line = random.pick(LINES);
            lines.push(if line.ends_with(' ') { format!("{line}{}", text(random)) } else { line.to_owned() });
        }
        let patch = lines.join("\n");
        let value = match random.below(4) {
            0 => json(random, 3),
            1 => json_string(&patch),
            2 => {
                let keys = ["file_path", "notebook_path", "filePath", "command", "patchText", "input"];
                let field = (random.pick(&keys), json_string(&text(random)));
                object(random, &[field])
            }
            _ => format!(r#"{{"command":{},"patchText":{}}}"#, json_string(&patch), json_string(&patch)),
        };
        let fields = [
            ("session_id", json_string("s")),
            ("cwd", json_string(&text(random))),
            ("tool_name", json_string(random.pick(TOOLS))),
            ("tool_input", value),
        ];
        object(random, &fields).into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let mut found = false;
        for harness in tt_harness::ALL {
            let Ok(edits) = tt_client::fuzz::reported_edits(harness, input) else { continue };
            ensure!(edits.len() <= 64, "{} paths are named", edits.len());
            for path in &edits {
                ensure!(!path.is_empty() && !path.contains('\0'), "{path:?} is no path");
            }
            let again = tt_client::fuzz::reported_edits(harness, input);
            ensure!(again.as_ref() == Ok(&edits), "{} names {edits:?} and then {again:?}", harness.name);
            found |= !edits.is_empty();
        }
        Ok(if found { Verdict::Accepted } else { Verdict::Refused })
    }
}
