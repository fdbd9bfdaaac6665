//! The tools: their names, when to use them, and what they take. One table makes the list a model is shown and the check
//! of what it sent, so that the two cannot differ.
//!
//! Every session of every harness pays for this list, so the words are few.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tt_proto::filter::OneOrMany;
use tt_proto::{Error, ErrorCode};

/// What a tool does to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    /// A command: it may change something, and carries a key so that repeating it changes nothing more.
    Write,
    /// A command that is safe to repeat as it is.
    Repeatable,
    /// It may take as long as the caller's patience.
    Wait,
}

/// One tool, named as the daemon's method is.
pub(super) struct ToolSpec {
    pub name: &'static str,
    pub kind: Kind,
    description: &'static str,
    schema: fn() -> JsonObject,
    /// The answer, where a program must choose by it.
    output: fn() -> Option<Value>,
    check: fn(Value) -> Result<Value, serde_json::Error>,
}

/// A type that a tool may take.
trait Argument {
    const REQUIRED: bool = true;
    fn schema() -> Value;
}

macro_rules! arguments_of_type {
    ($($type:ty = $schema:tt;)+) => {$(
        impl Argument for $type {
            fn schema() -> Value {
                json!($schema)
            }
        }
    )+};
}

/// The handoff, passed on as it came; the daemon reads it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
struct Handoff(Map<String, Value>);

arguments_of_type! {
    String = { "type": "string" };
    bool = { "type": "boolean" };
    i64 = { "type": "integer" };
    u64 = { "type": "integer" };
    // One word is taken too, but not every model provider understands a schema with two types.
    OneOrMany = { "type": "array", "items": { "type": "string" } };
    Handoff = { "type": "object", "required": ["status", "next_action"] };
}

impl<T: Argument> Argument for Option<T> {
    const REQUIRED: bool = false;

    fn schema() -> Value {
        T::schema()
    }
}

macro_rules! tools {
    ($($kind:ident $name:ident($($argument:ident: $type:ty $(= $about:literal)?),*) $description:literal $(=> $output:tt)?;)+) => {
        pub(super) const ALL: &[ToolSpec] = &[$({
            /// What this tool takes.
            #[derive(Debug, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            struct Arguments {
                $(#[serde(skip_serializing_if = "is_absent")] $argument: $type,)*
            }

            fn schema() -> JsonObject {
                let (mut properties, mut required) = (Map::new(), Vec::<&str>::new());
                $(
                    let property = <$type>::schema();
                    $(let property = described(property, $about);)?
                    properties.insert(stringify!($argument).to_owned(), property);
                    if <$type>::REQUIRED {
                        required.push(stringify!($argument));
                    }
                )*
                object(properties, &mut required)
            }

            fn output() -> Option<Value> {
                let output: Vec<Value> = vec![$(json!($output))?];
                output.into_iter().next()
            }

            fn check(arguments: Value) -> Result<Value, serde_json::Error> {
                serde_json::from_value::<Arguments>(arguments).and_then(serde_json::to_value)
            }

            ToolSpec { name: stringify!($name), kind: Kind::$kind, description: $description, schema, output, check }
        },)+];
    };
}

tools! {
    Write join_path(context_path: String = "any path in the workspace", force_new: Option<bool>, display_name: Option<String>)
        "Become a member of a workspace's room. Call once before working in a repository that other agents or people share; \
         gives the room_id that the other tools take."
        => { "room_id": { "type": "string" }, "agent_id": { "type": "string" }, "members": { "type": "array" } };
    Read list_rooms(context_path: Option<String>)
        "All rooms, or the one a path belongs to. Use to see whether a workspace is shared before joining.";
    Read get_room_state(room_id: String)
        "Who holds the stick, who waits, the handoffs, whether a takeover is possible. Use to look without waiting.";
    Wait wait_for_turn(room_id: String, max_wait_ms: Option<u64> = "at most and by default 48000; 0 tries once", park: Option<bool> = "stay listed, take no turn", claim: Option<bool> = "take an idle room even when alone", include_events: Option<bool> = "end early for messages, joins and leaves (default true)")
        "Get the stick before you change files. status your_turn brings turn_id, lease_id and the previous holder's handoff; \
         not_yet: call again; takeover_available: ask or decide, then takeover_stick."
        => {
            "status": { "enum": ["your_turn", "not_yet", "takeover_available", "closed", "removed"] },
            "turn_id": { "type": "integer" }, "lease_id": { "type": "string" }, "handoff": { "type": "object" }
        };
    Repeatable heartbeat(room_id: String, lease_id: String, expected_turn_id: i64)
        "Keep your turn during long work without other calls, every few minutes.";
    Write release_stick(room_id: String, lease_id: String, expected_turn_id: i64, handoff: Handoff = "status, next_action; also artifacts [{path, lines: [from, to], role: examine|review|edit|context|output, note}], open_questions [], do_not []")
        "End your turn as soon as you stop changing files. The handoff tells whoever is next where the work stands.";
    Write pass_stick(room_id: String, lease_id: String, expected_turn_id: i64, to_agent_id: String, handoff: Handoff)
        "End your turn in favour of one member. Use when that one must be next; otherwise release_stick.";
    Write takeover_stick(room_id: String, expected_turn_id: i64, reason: String, operator_override: Option<bool> = "only when a person told you to")
        "Take the stick from a holder who is gone or silent. Use only after takeover_available; then read get_room_events."
        => { "status": { "enum": ["your_turn"] }, "turn_id": { "type": "integer" }, "lease_id": { "type": "string" } };
    Write send_message(room_id: String, body: String, to: Option<String> = "name, start of an id, or room", to_agent_id: Option<String>, delivery_hint: Option<String> = "normal|important|interrupt; interrupt sparingly")
        "Say something to a member, or to all, at any time. Everyone can read it and it grants nothing.";
    Wait wait_for_events(room_id: String, after_event_seq: Option<i64>, limit: Option<u64>, event_type: Option<OneOrMany>, from_agent_id: Option<String>, target_agent_id: Option<String> = "self, any or an agent id", max_wait_ms: Option<u64>)
        "Watch the room without waiting for a turn. For your own turn or messages use wait_for_turn.";
    Read get_room_events(room_id: String, after_event_seq: Option<i64>, limit: Option<u64>, event_type: Option<OneOrMany>, from_agent_id: Option<String>, target_agent_id: Option<String>)
        "Read the log: what happened before you came, or before a takeover.";
    Write add_note(room_id: String, body: String, turn_id: Option<i64>)
        "Leave a remark that stays until resolved and disturbs nobody, such as a bug seen while it is not your turn.";
    Read list_notes(room_id: String, after_note_id: Option<String>, include_resolved: Option<bool>, limit: Option<u64>)
        "Read open notes, for instance at the start of a turn.";
    Write resolve_note(room_id: String, note_id: String)
        "Mark a note as dealt with.";
    Write kick_member(room_id: String, target_agent_id: String, force: Option<bool>, reason: Option<String>)
        "Remove a member whose process is gone. force only when a person told you to.";
    Write leave_room(room_id: String)
        "Stop being a member when you are done here. Release the stick first.";
}

fn is_absent<T: Serialize>(value: &T) -> bool {
    serde_json::to_value(value).is_ok_and(|value| value.is_null())
}

fn described(mut schema: Value, about: &str) -> Value {
    schema["description"] = about.into();
    schema
}

fn object(properties: Map<String, Value>, required: &mut Vec<&str>) -> JsonObject {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties.into());
    if !required.is_empty() {
        schema.insert("required".into(), std::mem::take(required).into());
    }
    schema
}

impl ToolSpec {
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|tool| tool.name == name)
    }

    /// What a model is shown of this tool.
    pub(super) fn listed(&self) -> Tool {
        let read_only = matches!(self.name, "wait_for_events") || self.kind == Kind::Read;
        let mut annotations = ToolAnnotations::new();
        annotations.read_only_hint = Some(read_only);
        if !read_only {
            annotations.destructive_hint = Some(self.name == "kick_member");
        }
        annotations.open_world_hint = Some(false);
        let mut tool = Tool::new(self.name, self.description, (self.schema)()).with_annotations(annotations);
        // Nothing is required: some clients hold a refusal to the schema of the answer and would hide it.
        let schema = |properties| json!({ "type": "object", "properties": properties }).as_object().cloned();
        tool.output_schema = (self.output)().and_then(schema).map(Arc::new);
        tool
    }

    /// What the caller sent, if it is what this tool takes.
    pub(super) fn arguments(&self, sent: JsonObject) -> Result<Map<String, Value>, Error> {
        let bad = |what: String| {
            let schema = (self.schema)();
            let names: Vec<&str> =
                schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
            Error::new(ErrorCode::InvalidInput, format!("{}: {what}", self.name)).hint(format!(
                "{} takes {}; required: {}",
                self.name,
                names.join(", "),
                schema.get("required").unwrap_or(&Value::Null)
            ))
        };
        // A model that writes null means that it leaves the argument out.
        let sent: Map<String, Value> = sent.into_iter().filter(|(_, value)| !value.is_null()).collect();
        match (self.check)(Value::Object(sent)) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(_) => Err(bad("the arguments are no object".into())),
            Err(e) => Err(bad(e.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_costs_a_session_less_than_six_kilobytes() {
        let shown: Vec<Value> = ALL
            .iter()
            .map(ToolSpec::listed)
            .map(|tool| json!({"name": tool.name, "description": tool.description, "inputSchema": *tool.input_schema}))
            .collect();
        let size = serde_json::to_string(&shown).unwrap().len();
        assert!(size < 6 * 1024, "{size} bytes");
    }

    #[test]
    fn what_a_tool_does_not_take_is_refused_by_name() {
        let tool = ToolSpec::named("heartbeat").unwrap();
        let check = |sent: Value| tool.arguments(sent.as_object().unwrap().clone());
        let good = json!({"room_id": "r", "lease_id": "l", "expected_turn_id": 1});
        assert_eq!(Value::Object(check(good.clone()).unwrap()), good);
        for (field, value) in [("lease", json!("l")), ("expected_turn_id", json!("1")), ("room_id", json!(null))] {
            let mut bad = good.clone();
            bad[field] = value;
            let error = check(bad).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidInput);
            assert!(error.message.contains(field) || error.message.contains("invalid type"), "{error:?}");
            assert!(error.hint.contains("lease_id"), "{error:?}");
        }
    }

    #[test]
    fn a_handoff_passes_through_as_it_was_written() {
        let tool = ToolSpec::named("release_stick").unwrap();
        let text = r#"{"room_id":"r","lease_id":"l","expected_turn_id":1,"handoff":{"z":[1.50,null],"status":"s","next_action":"n","a":{"q":true}}}"#;
        let sent: JsonObject = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&tool.arguments(sent).unwrap()).unwrap(), text.replace("1.50", "1.5"));
    }

    #[test]
    fn absent_and_null_are_the_same() {
        let tool = ToolSpec::named("list_rooms").unwrap();
        let sent: JsonObject = serde_json::from_str(r#"{"context_path":null}"#).unwrap();
        assert!(tool.arguments(sent).unwrap().is_empty());
    }
}
