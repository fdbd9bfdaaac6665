//! The arguments of MCP tools as a model writes them.

use tt_client::fuzz;
use tt_proto::ErrorCode;
use tt_proto::requests::{JsonType, METHODS};

use crate::generate::{json, json_string, object, text};
use crate::{Random, Target, Verdict, ensure};

pub(super) struct ToolArguments;

/// The parameters of a method, each with a value of the right kind.
pub(super) fn parameters(random: &mut Random, method: &str) -> Vec<(&'static str, String)> {
    let fields = METHODS.iter().find(|info| info.name == method).map_or(&[][..], |info| info.fields);
    let value = |field: &tt_proto::requests::Field, random: &mut Random| match (field.name, field.json_type) {
        ("room_id", _) if !random.one_in(8) => "\"@room\"".into(),
        ("context_path", _) if !random.one_in(8) => {
            json_string(random.pick(&["@home/a", "@home/b", "@home/c/src", ".", "/", "@home/none", "@home/a/.."]))
        }
        ("lease_id", _) if !random.one_in(4) => "\"@lease\"".into(),
        ("expected_turn_id", _) if !random.one_in(4) => "\"@turn\"".into(),
        ("max_wait_ms", _) => "0".into(),
        ("surface", _) => (random.pick(&["\"recv\"", "\"wait\"", "\"tool_response\"", "\"x\""])).into(),
        ("to" | "name", _) => json_string(random.pick(&["room", "codex", "claude:1", "@agent", ""])),
        (_, JsonType::String) if random.one_in(3) => json_string(random.pick(&["@agent", "self", "any", "normal"])),
        (_, JsonType::String) => json_string(&text(random)),
        (_, JsonType::Boolean) => (random.pick(&["true", "false"])).into(),
        (_, JsonType::Integer) => (random.number() as i64 >> random.below(64)).to_string(),
        (_, JsonType::Integers) => format!("[{}]", random.below(100)),
        (_, JsonType::Strings) => (random.pick(&["\"claim\"", "[\"claim\",\"pass\"]", "[]"])).into(),
        (_, JsonType::Object) => json(random, 2),
        (_, JsonType::Handoff) => r#"{"status":"s","next_action":"n"}"#.into(),
    };
    fields.iter().map(|field| (field.name, value(field, random))).collect()
}

impl Target for ToolArguments {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let name = random.pick(&fuzz::tool_names());
        let parameters = parameters(random, name);
        format!("{name}\n{}", object(random, &parameters)).into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let text = String::from_utf8_lossy(input);
        let (name, arguments) = text.split_once('\n').unwrap_or((&text, "{}"));
        let Ok(serde_json::Value::Object(arguments)) = serde_json::from_str(arguments) else {
            return Ok(Verdict::Refused);
        };
        match fuzz::tool_arguments(name, arguments.clone()) {
            Ok(checked) => {
                ensure!(
                    checked.keys().all(|key| arguments.contains_key(key)),
                    "{checked:?} is more than {arguments:?}"
                );
                let again = fuzz::tool_arguments(name, checked.clone()).map_err(|e| format!("{checked:?}: {e}"))?;
                ensure!(again == checked, "{checked:?} is read as {again:?}");
                Ok(Verdict::Accepted)
            }
            Err(e) => {
                ensure!(e.code == ErrorCode::InvalidInput && !e.message.is_empty() && !e.hint.is_empty(), "{e:?}");
                Ok(Verdict::Refused)
            }
        }
    }
}
