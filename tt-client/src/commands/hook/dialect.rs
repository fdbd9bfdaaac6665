//! What a hook prints, as each harness wants it. The facts are in `tt_harness`; a key that a harness does not know may void all of the
//! output.

use serde::Serialize;
use tt_harness::{Harness, Hold, HookEvent, Hooks, Refuse, Speaks};
use tt_proto::requests::Say;

/// What the event before a tool means, in the words of the protocol.
const BEFORE_TOOL: &str = "tool_started";

/// The way in which one run of a hook can speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Context {
        event_name: &'static str,
    },
    Hold {
        event_name: &'static str,
        by: Hold,
    },
    /// To our own plugin, which tells its harness.
    Plugin,
}

#[derive(Serialize)]
struct ContextOutput<'a> {
    #[serde(rename = "hookSpecificOutput")]
    specific: SpecificOutput<'a>,
}

#[derive(Serialize)]
struct SpecificOutput<'a> {
    #[serde(rename = "hookEventName")]
    event_name: &'a str,
    #[serde(rename = "additionalContext")]
    context: &'a str,
}

#[derive(Serialize)]
struct HoldOutput<'a> {
    decision: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct PluginOutput<'a> {
    text: &'a str,
    holds: bool,
}

#[derive(Serialize)]
struct PermissionOutput<'a> {
    #[serde(rename = "hookSpecificOutput")]
    specific: PermissionDecision<'a>,
}

#[derive(Serialize)]
struct PermissionDecision<'a> {
    #[serde(rename = "hookEventName")]
    event_name: &'a str,
    #[serde(rename = "permissionDecision")]
    decision: &'a str,
    #[serde(rename = "permissionDecisionReason")]
    reason: &'a str,
}

#[derive(Serialize)]
struct PluginRefusal<'a> {
    refusal: &'a str,
}

/// The way in which one run of a hook can keep a tool from running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    event_name: &'static str,
    by: Refuse,
}

impl Refusal {
    /// None if nothing that is printed at this event keeps a tool from running.
    pub(super) fn of(harness: &Harness, event_name: Option<&str>, meaning: &str, asks: bool) -> Option<Self> {
        let by = harness.speech.refuse;
        if meaning != BEFORE_TOOL {
            return None;
        }
        match &harness.hooks {
            Hooks::Plugin(_) => asks.then_some(Self { event_name: "", by }),
            Hooks::File(file) => {
                let event =
                    file.events.iter().find(|event| Some(event.name) == event_name && event.meaning == meaning)?;
                Some(Self { event_name: event.name, by })
            }
        }
    }

    /// What the hook prints.
    pub(super) fn output(self, reason: &str) -> Option<String> {
        let json = match self.by {
            Refuse::Permission => {
                let specific = PermissionDecision { event_name: self.event_name, decision: "deny", reason };
                serde_json::to_string(&PermissionOutput { specific })
            }
            Refuse::Decision(decision) => serde_json::to_string(&HoldOutput { decision, reason }),
            Refuse::Plugin => serde_json::to_string(&PluginRefusal { refusal: reason }),
        };
        json.ok()
    }
}

impl Dialect {
    /// How a hook can speak that the harness runs for this event of its own. `asks`: our plugin can hand over text at this
    /// moment.
    pub(super) fn of(harness: &Harness, event_name: Option<&str>, meaning: &str, asks: bool) -> Option<Self> {
        let file = match &harness.hooks {
            Hooks::Plugin(_) => return asks.then_some(Self::Plugin),
            Hooks::File(file) => file,
        };
        // The line in the settings may be of another version, and then it is another event's.
        let is_it = |event: &&HookEvent| Some(event.name) == event_name && event.meaning == meaning;
        let event = file.events.iter().find(is_it)?;
        match event.speaks {
            Speaks::Nothing => None,
            Speaks::Context => Some(Self::Context { event_name: event.name }),
            Speaks::Hold => Some(Self::Hold { event_name: event.name, by: harness.speech.hold }),
        }
    }

    /// What the hook prints. None if this cannot be said in this way.
    pub(super) fn output(self, say: &Say) -> Option<String> {
        let text = say.text.as_str();
        let json = match self {
            Self::Context { .. } if say.holds => return None,
            Self::Hold { .. } if !say.holds => return None,
            Self::Context { event_name } | Self::Hold { event_name, by: Hold::Context } => {
                serde_json::to_string(&ContextOutput { specific: SpecificOutput { event_name, context: text } })
            }
            Self::Hold { by: Hold::Decision(word), .. } => {
                serde_json::to_string(&HoldOutput { decision: word, reason: text })
            }
            Self::Plugin => serde_json::to_string(&PluginOutput { text, holds: say.holds }),
        };
        json.ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn dialect(harness: &str, event_name: &str, meaning: &str) -> Option<Dialect> {
        Dialect::of(tt_harness::by_name(harness).unwrap(), Some(event_name), meaning, true)
    }

    fn say(holds: bool) -> Say {
        Say { text: "x\n\"y\"".into(), holds, messages: Vec::new() }
    }

    fn output(dialect: Dialect, holds: bool) -> Option<Value> {
        dialect.output(&say(holds)).map(|json| serde_json::from_str(&json).unwrap())
    }

    #[test]
    fn each_harness_is_told_in_its_own_words_and_with_no_other_key() {
        for (harness, event, meaning) in [
            ("claude", "SessionStart", "session_started"),
            ("claude", "PreToolUse", "tool_started"),
            ("claude", "PostToolUseFailure", "tool_ended"),
            ("codex", "UserPromptSubmit", "prompt"),
            ("codex", "PostToolUse", "tool_ended"),
            ("gemini", "BeforeAgent", "prompt"),
            ("gemini", "AfterTool", "tool_ended"),
        ] {
            let dialect = dialect(harness, event, meaning).unwrap();
            let expected = json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": "x\n\"y\""}});
            assert_eq!(output(dialect, false), Some(expected), "{harness} {event}");
            assert_eq!(output(dialect, true), None, "{harness} {event} ends no turn");
        }
        for (harness, event, expected) in [
            (
                "claude",
                "Stop",
                json!({"hookSpecificOutput": {"hookEventName": "Stop", "additionalContext": "x\n\"y\""}}),
            ),
            ("codex", "Stop", json!({"decision": "block", "reason": "x\n\"y\""})),
            ("gemini", "AfterAgent", json!({"decision": "deny", "reason": "x\n\"y\""})),
        ] {
            let dialect = dialect(harness, event, "turn_ended").unwrap();
            assert_eq!(output(dialect, true), Some(expected), "{harness}");
            assert_eq!(output(dialect, false), None, "{harness}");
        }
        let plugin = dialect("opencode", "", "tool_ended").unwrap();
        assert_eq!(output(plugin, true), Some(json!({"text": "x\n\"y\"", "holds": true})));
    }

    #[test]
    fn each_harness_is_refused_a_tool_in_its_own_words_and_at_no_other_moment() {
        let permission = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny",
            "permissionDecisionReason": "no\n\"x\""}});
        for (harness, event, expected) in [
            ("claude", "PreToolUse", permission.clone()),
            ("codex", "PreToolUse", permission),
            ("gemini", "BeforeTool", json!({"decision": "deny", "reason": "no\n\"x\""})),
            ("opencode", "", json!({"refusal": "no\n\"x\""})),
        ] {
            let harness = tt_harness::by_name(harness).unwrap();
            let refusal = |event: &str, meaning: &str| Refusal::of(harness, Some(event), meaning, true);
            let output = refusal(event, "tool_started").unwrap().output("no\n\"x\"").unwrap();
            assert_eq!(serde_json::from_str::<Value>(&output).unwrap(), expected, "{}", harness.name);
            assert_eq!(refusal("PostToolUse", "tool_ended"), None, "{}", harness.name);
        }
        let claude = tt_harness::by_name("claude").unwrap();
        assert_eq!(Refusal::of(claude, Some("PostToolUse"), "tool_started", true), None, "a line of another version");
        let opencode = tt_harness::by_name("opencode").unwrap();
        assert_eq!(Refusal::of(opencode, None, "tool_started", false), None, "the plugin does not wait for it");
    }

    #[test]
    fn an_event_that_cannot_speak_or_is_not_known_says_nothing() {
        for (harness, event, meaning) in [
            ("claude", "SessionEnd", "session_ended"),
            ("claude", "PermissionRequest", "permission_asked"),
            ("claude", "SubagentStop", "subagent_ended"),
            ("claude", "Stop", "prompt"),
            ("claude", "Another", "tool_ended"),
            ("codex", "Interrupt", "interrupted"),
            ("gemini", "BeforeTool", "tool_started"),
            ("gemini", "Notification", "permission_asked"),
        ] {
            assert_eq!(dialect(harness, event, meaning), None, "{harness} {event}");
        }
        let opencode = tt_harness::by_name("opencode").unwrap();
        assert_eq!(Dialect::of(opencode, None, "tool_ended", false), None, "the plugin cannot at this moment");
        let claude = tt_harness::by_name("claude").unwrap();
        assert_eq!(Dialect::of(claude, None, "tool_ended", true), None);
    }
}
