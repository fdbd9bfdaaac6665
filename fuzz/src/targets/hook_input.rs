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
        let mut input = object(random, &fields);
        if random.one_in(3) {
            input.push_str(&text(random));
        }
        input.into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
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
