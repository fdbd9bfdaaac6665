//! What a harness gives a hook on standard input.

use crate::generate::{json, json_string, object, text};
use crate::{Random, Target, Verdict, ensure};

pub(super) struct HookInput;

impl Target for HookInput {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let fields = [
            ("session_id", json_string(&text(random))),
            ("hook_event_name", json_string(random.pick(&["Stop", "PreToolUse", "SessionStart"]))),
            ("tool_response", json(random, 3)),
            ("cwd", json_string(&text(random))),
        ];
        // What one harness or another adds.
        let added: [(&str, String); 11] = [
            ("transcript_path", json_string(&text(random))),
            ("source", json_string(random.pick(&["startup", "resume", "clear", "compact", ""]))),
            ("reason", json_string(&text(random))),
            ("tool_name", json_string(&text(random))),
            ("tool_use_id", json_string(&text(random))),
            ("agent_id", json_string(&text(random))),
            ("notification_type", json_string(random.pick(&["ToolPermission", "idle"]))),
            ("timestamp", json(random, 0)),
            ("at", json_string(random.pick(&["2026-11-16T01:02:03.456Z", "9999999-01-01T00:00:00Z", ""]))),
            ("previous_session_id", json_string(&text(random))),
            ("can_speak", json(random, 0)),
        ];
        let first = random.below(added.len());
        let count = random.below(added.len() - first + 1);
        let fields: Vec<_> = fields.into_iter().chain(added.into_iter().skip(first).take(count)).collect();
        let mut input = object(random, &fields);
        if random.one_in(3) {
            input.push_str(&text(random));
        }
        input.into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let reported = tt_client::fuzz::reported_session(input);
        if let Ok(reported) = &reported {
            let read = tt_client::fuzz::hook_session(input);
            ensure!(read.as_ref() == Ok(reported), "`tt hook` reads {reported:?}, and `tt --hook` {read:?}");
        }
        match tt_client::fuzz::hook_session(input) {
            Ok(session) => {
                ensure!(!session.is_empty(), "a session without a name");
                Ok(Verdict::Accepted)
            }
            Err(e) => {
                ensure!(!e.message.is_empty() && !e.hint.is_empty(), "{e:?}");
                Ok(Verdict::Refused)
            }
        }
    }
}
