//! Our commands in the hook file of a harness: one group for each event, beside the groups of other tools, whose order
//! stays.

use serde_json::{Value, json};
use tt_harness::{Harness, HookEvent, HookFile};

use super::json::{Document, Malformed};

/// The key of the object that has one list of groups for each event.
pub(super) const SECTION: &str = "hooks";

/// Adds our group to every event, replaces those of another version, and removes those of events that are no longer used.
pub(super) fn set(text: &Document, harness: &Harness, file: &HookFile, program: &str) -> Result<String, Malformed> {
    let Some(present) = text.get(&[SECTION])? else {
        let lists =
            file.events.iter().map(|event| format!("  {:?}: [{}]", event.name, group(harness, file, event, program)));
        return text.set(&[SECTION], &format!("{{\n{}\n}}", lists.collect::<Vec<_>>().join(",\n")));
    };
    let Some(mut section) = text.section(SECTION)? else { return Ok(text.unchanged()) };
    let ours = |group: &Value| is_ours(group, harness);
    for name in present.as_object().into_iter().flat_map(|events| events.keys()) {
        if !file.events.iter().any(|event| event.name == name) && has_group(&present, name, ours) {
            section.remove_elements(name, false, ours)?;
        }
    }
    for event in file.events {
        let group = group(harness, file, event, program);
        let wanted: Option<Value> = serde_json::from_str(&group).ok();
        if has_group(&present, event.name, |group| Some(group) == wanted.as_ref()) {
            continue;
        }
        if has_group(&present, event.name, ours) {
            // The list stays, so that the new group takes the place of the old one in it.
            section.remove_elements(event.name, true, ours)?;
        }
        section.append(event.name, &group)?;
    }
    section.finish(true)
}

/// Removes our groups. Lists and the section that are empty then are removed as well, unless `was`, the text from before the
/// first install, has them.
pub(super) fn unset(text: &Document, harness: &Harness, was: Option<&Document>) -> Result<String, Malformed> {
    let before = was.and_then(|was| was.get(&[SECTION]).ok().flatten());
    let Some(present) = text.get(&[SECTION])?.filter(Value::is_object) else { return Ok(text.unchanged()) };
    let Some(mut section) = text.section(SECTION)? else { return Ok(text.unchanged()) };
    let ours = |group: &Value| is_ours(group, harness);
    for name in present.as_object().into_iter().flat_map(|events| events.keys()) {
        if has_group(&present, name, ours) {
            let keep_list = before.as_ref().is_some_and(|before| before.get(name).is_some());
            section.remove_elements(name, keep_list, ours)?;
        }
    }
    section.finish(before.is_some())
}

/// Whether any of our groups is in the file, of this version or another.
pub(super) fn is_set(text: &Document, harness: &Harness) -> bool {
    let Ok(Some(present)) = text.get(&[SECTION]) else { return false };
    let mut names = present.as_object().into_iter().flat_map(|events| events.keys());
    names.any(|name| has_group(&present, name, |group| is_ours(group, harness)))
}

/// The position of our group in the list of each event that has one.
pub(super) fn positions(
    text: &Document,
    harness: &Harness,
    file: &'static HookFile,
) -> Vec<(&'static HookEvent, usize)> {
    let Ok(Some(present)) = text.get(&[SECTION]) else { return Vec::new() };
    let position = |event: &'static HookEvent| {
        let groups = present.get(event.name)?.as_array()?;
        Some((event, groups.iter().position(|group| is_ours(group, harness))?))
    };
    file.events.iter().filter_map(position).collect()
}

/// The shell line that the harness runs. It succeeds whatever happens, also if `tt` is no longer there or is an older one: to
/// some harnesses a hook that fails is a refusal.
pub(super) fn command(harness: &Harness, event: &HookEvent, program: &str) -> String {
    let program = format!("'{}'", program.replace('\'', r"'\''"));
    format!("test -x {program} && {program}{}{}{IGNORE_FAILURE}", mark(harness), event.meaning)
}

const IGNORE_FAILURE: &str = " || true";

/// What every version of our command has between the program and the event.
fn mark(harness: &Harness) -> String {
    format!(" hook --harness {} ", harness.name)
}

fn group(harness: &Harness, file: &HookFile, event: &HookEvent, program: &str) -> String {
    let command = Value::from(command(harness, event, program));
    let name = if file.names_commands { format!("\"name\": {:?}, ", super::NAME) } else { String::new() };
    let timeout = event.timeout.unwrap_or(file.timeout);
    format!(r#"{{ "hooks": [{{ {name}"type": "command", "command": {command}, "timeout": {timeout} }}] }}"#)
}

fn has_group(section: &Value, event: &str, is: impl Fn(&Value) -> bool) -> bool {
    section.get(event).and_then(Value::as_array).is_some_and(|groups| groups.iter().any(is))
}

/// Whether a group holds nothing but a command of ours. One to which the user added something is theirs.
fn is_ours(group: &Value, harness: &Harness) -> bool {
    let mark = mark(harness);
    let ours = |hook: &Value| {
        let command = hook.get("command").and_then(Value::as_str).unwrap_or_default();
        let line = command.strip_prefix("test -x ").and_then(|line| line.strip_suffix(IGNORE_FAILURE));
        line.and_then(|line| line.rsplit_once(&mark)).is_some_and(|(_, event)| !event.contains(' '))
    };
    let hooks = group.get("hooks").and_then(Value::as_array);
    group.as_object().is_some_and(|group| group.len() == 1)
        && hooks.is_some_and(|hooks| !hooks.is_empty() && hooks.iter().all(ours))
}

/// The normal form of a hook over which Codex makes the hash that its user trusts.
pub(super) fn trusted_form(harness: &Harness, file: &HookFile, event: &HookEvent, program: &str) -> Value {
    json!({
        "event_name": snake_case(event.name),
        "hooks": [{
            "async": false,
            "command": command(harness, event, program),
            "timeout": event.timeout.unwrap_or(file.timeout),
            "type": "command",
        }],
    })
}

/// `PreToolUse` as `pre_tool_use`.
pub(super) fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use tt_harness::Hooks;

    use super::*;

    fn set(text: &str, harness: &Harness, file: &HookFile, program: &str) -> Result<String, Malformed> {
        super::set(&Document::parse(text)?, harness, file, program)
    }

    fn unset(text: &str, harness: &Harness, was: &str) -> Result<String, Malformed> {
        super::unset(&Document::parse(text)?, harness, Document::parse(was).ok().as_ref())
    }

    fn is_set(text: &str, harness: &Harness) -> bool {
        super::is_set(&Document::parse(text).unwrap(), harness)
    }

    fn positions(text: &str, harness: &Harness, file: &'static HookFile) -> Vec<(&'static HookEvent, usize)> {
        super::positions(&Document::parse(text).unwrap(), harness, file)
    }

    fn hooks(name: &str) -> (&'static Harness, &'static HookFile) {
        let harness = tt_harness::by_name(name).unwrap();
        let Hooks::File(file) = &harness.hooks else { panic!("{name} has no hook file") };
        (harness, file)
    }

    #[test]
    fn hooks_come_and_go_and_those_of_others_keep_their_place() {
        let theirs = r#"{"type":"command","command":"lint"}"#;
        for name in ["claude", "codex", "gemini"] {
            let (harness, file) = hooks(name);
            let first = file.events[1].name;
            let shapes = [
                String::new(),
                "{}".to_owned(),
                "{\n  \"a\": 1\n}\n".to_owned(),
                "{\n\t\"hooks\": {}\n}\n".to_owned(),
                format!("{{\n  \"hooks\": {{\n    \"{first}\": []\n  }}\n}}"),
                format!("{{\"hooks\":{{\"{first}\":[{{\"matcher\":\"x\",\"hooks\":[{theirs}]}}]}},\"z\":0}}"),
                format!(
                    "{{\n  // mine\n  \"hooks\": {{\n    \"{first}\": [\n      {{ \"hooks\": [{theirs}] }}, // lint\n    ],\n  }},\n}}\n"
                ),
            ];
            for shape in shapes {
                let with = set(&shape, harness, file, "/opt/it's/tt").unwrap();
                assert!(is_set(&with, harness), "{with}");
                assert_eq!(set(&with, harness, file, "/opt/it's/tt").unwrap(), with, "a second time changes nothing");
                assert_eq!(positions(&with, harness, file).len(), file.events.len());
                let moved = set(&with, harness, file, "/elsewhere/tt").unwrap();
                assert!(!moved.contains("/opt/") && positions(&moved, harness, file).len() == file.events.len());
                if shape.contains("lint") {
                    let section = Document::parse(&moved).unwrap().get(&[SECTION]).unwrap().unwrap();
                    assert_eq!(section[first][0]["hooks"][0]["command"], "lint", "{moved}");
                    assert_eq!(section[first].as_array().unwrap().len(), 2);
                }
                let without = unset(&moved, harness, &shape).unwrap();
                let value = |text: &str| serde_json::from_str::<Value>(text).ok();
                assert!(
                    !is_set(&without, harness)
                        && value(&without).is_none_or(|now| Some(now) == value(&shape) || shape.is_empty()),
                    "{shape:?} {without}"
                );
            }
        }
    }

    #[test]
    fn an_event_of_an_older_version_is_cleaned_up() {
        let (harness, file) = hooks("claude");
        let old = group(harness, file, &file.events[0], "/tt");
        let text = format!("{{ \"hooks\": {{ \"OldEvent\": [{old}], \"PreToolUse\": [{old}] }} }}");
        let with = set(&text, harness, file, "/tt").unwrap();
        assert!(!with.contains("OldEvent"), "{with}");
        assert_eq!(positions(&with, harness, file).len(), file.events.len());
    }

    #[test]
    fn what_is_no_list_or_object_is_refused() {
        let (harness, file) = hooks("claude");
        for value in ["1", "[]", "\"x\"", "null", "{\"PreToolUse\": {}}", "{\"PreToolUse\": 7}"] {
            let text = format!("{{\"hooks\": {value}}}");
            assert!(set(&text, harness, file, "/tt").is_err(), "{text}");
        }
    }

    #[test]
    fn a_group_that_the_user_added_to_is_theirs() {
        let (harness, file) = hooks("claude");
        let mut ours: Value = serde_json::from_str(&group(harness, file, &file.events[0], "/tt")).unwrap();
        assert!(is_ours(&ours, harness));
        assert!(!is_ours(&ours, hooks("codex").0), "that of another harness");
        ours["hooks"].as_array_mut().unwrap().push(json!({"type": "command", "command": "mine"}));
        assert!(!is_ours(&ours, harness));
    }

    #[test]
    fn the_line_is_quiet_without_the_program_and_survives_quotes() {
        let (harness, file) = hooks("codex");
        let line = command(harness, &file.events[0], "/no/such/it's tt");
        assert_eq!(
            line,
            r"test -x '/no/such/it'\''s tt' && '/no/such/it'\''s tt' hook --harness codex session_started || true"
        );
        let run = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        assert!(run.status.success() && run.stdout.is_empty() && run.stderr.is_empty(), "{run:?}");
    }

    #[test]
    fn names_of_events_as_codex_writes_them_in_its_settings() {
        assert_eq!(snake_case("PreToolUse"), "pre_tool_use");
        assert_eq!(snake_case("Stop"), "stop");
    }
}
