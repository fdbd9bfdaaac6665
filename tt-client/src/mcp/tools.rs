//! The tools: when to use them, and which parameters of the daemon's methods they offer. Names and types come from the
//! methods themselves, and the list a model is shown and the check of what it sent are made from the same table.
//!
//! Every session of every harness pays for this list, so the descriptions are short.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Map, Value, json};
use tt_proto::requests::{
    AddNote, Field, GetRoomEvents, GetRoomState, Heartbeat, JoinPath, JsonType, KickMember, LeaveRoom, ListNotes,
    ListRooms, Method, PassStick, ReleaseStick, Reply, Request, ResolveNote, SendMessage, TakeoverStick, WaitForEvents,
    WaitForTurn,
};
use tt_proto::{Error, ErrorCode};

/// The parameters that a session need not repeat: the room is that of its directory, and the turn the one it was last told
/// that it holds.
pub(super) const ASSUMED: [&str; 4] = ["room_id", "lease_id", "expected_turn_id", "context_path"];

/// What a tool does to the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    /// A command: it may change something, and carries a key so that repeating it changes nothing more.
    Write,
    /// A command that is safe to repeat as it is.
    Repeatable,
    /// It takes as long as the caller waits.
    Wait,
}

/// One tool: a method of the daemon, and the part of its parameters that a model is offered.
pub(crate) struct ToolSpec {
    pub name: &'static str,
    pub kind: Kind,
    description: &'static str,
    parameters: &'static [Parameter],
    /// The method's own list of fields.
    fields: &'static [Field],
    /// The properties of the answer, where a program must choose by them.
    output: fn() -> Option<Value>,
    /// Reads the arguments as the method's request and writes them again.
    check: fn(Value) -> Result<Value, serde_json::Error>,
}

/// A field of the method that the tool offers, and what a model is told about it.
struct Parameter {
    name: &'static str,
    /// Empty if the name is enough.
    description: &'static str,
}

/// Makes the list of tools: `Kind Request(field = "description", ...) "description" => { properties of the answer };`.
macro_rules! tools {
    ($($kind:ident $request:ident($($field:ident $(= $about:literal)?),*) $description:literal $(=> $output:tt)?;)+) => {
        pub(super) const ALL: &[ToolSpec] = &[$({
            // A parameter that the request does not have is an error of the compiler.
            const _: fn(&$request) = |request| { $(let _ = &request.$field;)* };

            fn output() -> Option<Value> {
                let output: Vec<Value> = vec![$(json!($output))?];
                output.into_iter().next()
            }

            ToolSpec {
                name: $request::NAME,
                kind: Kind::$kind,
                description: $description,
                parameters: &[$(Parameter { name: stringify!($field), description: concat!($($about)?) },)*],
                fields: $request::FIELDS,
                output,
                check: |arguments| serde_json::from_value::<$request>(arguments).and_then(serde_json::to_value),
            }
        },)+];
    };
}

tools! {
    Write JoinPath(context_path = "any path in it; default: your directory", force_new, display_name)
        "Become a member of a workspace's room. Call once before working in a repository that other agents or people share. \
         In all tools room_id may be left out: the room of your directory."
        => { "room_id": { "type": "string" }, "agent_id": { "type": "string" }, "members": { "type": "array" } };
    Read ListRooms(context_path, after_path = "the last canonical_path, where the answer has more", limit)
        "All rooms, or the one a path belongs to. Use to see whether a workspace is shared before joining.";
    Read GetRoomState(room_id)
        "Who holds the stick, who waits, the handoffs, whether a takeover is possible. Use to look without waiting.";
    Wait WaitForTurn(room_id, max_wait_ms = "at most and by default 48000; 0 tries once", park = "stay listed, take no turn", claim = "take an idle room even when alone", include_events = "bring messages, and end for them (default true)", joins = "end for joins and leaves too")
        "Get the stick before you change files. status your_turn brings turn_id, lease_id and the previous holder's handoff; \
         not_yet: call again; takeover_available: ask or decide, then takeover_stick."
        => {
            "status": { "enum": ["your_turn", "not_yet", "takeover_available", "closed", "removed"] },
            "turn_id": { "type": "integer" }, "lease_id": { "type": "string" }, "handoff": { "type": "object" }
        };
    Repeatable Heartbeat(room_id, lease_id, expected_turn_id)
        "Keep your turn during long work without other calls, every few minutes.";
    Write ReleaseStick(room_id, lease_id, expected_turn_id, handoff = "status, next_action; also artifacts [{path, lines: [from, to], role: examine|review|edit|context|output, note}], open_questions [], do_not []")
        "End your turn as soon as you stop changing files. lease_id and expected_turn_id: only if it is not your last turn. The handoff tells the next holder the state of the work.";
    Write PassStick(room_id, lease_id, expected_turn_id, to_agent_id, handoff)
        "End your turn in favour of one member. Use when that one must be next; otherwise release_stick.";
    Write TakeoverStick(room_id, expected_turn_id, reason, operator_override = "only when a person told you to")
        "Take the stick from a holder who is gone or silent. Use only after takeover_available; then read get_room_events."
        => { "status": { "enum": ["your_turn"] }, "turn_id": { "type": "integer" }, "lease_id": { "type": "string" } };
    Write SendMessage(room_id, body, to = "name, start of an id, or room", to_agent_id, delivery_hint = "idle (after its turn)|normal|important|interrupt; interrupt sparingly", expects_reply = "it is a question", wait_ms = "of a question: wait for the answer, at most 48000", timeout_ms)
        "Send a message to a member, or to all, at any time. Everyone can read it and it grants nothing. The answer to a question, or word that none came, is in an inbox, at the latest after timeout_ms (5 min).";
    Write Reply(room_id, event_seq, body)
        "Answer a message. Answer every one that has reply_with.";
    Wait WaitForEvents(room_id, after_event_seq, limit, event_type, from_agent_id, target_agent_id = "self, any or an agent id", max_wait_ms)
        "Watch the room without waiting for a turn. For your own turn or messages use wait_for_turn.";
    Read GetRoomEvents(room_id, after_event_seq, before_event_seq, limit, event_type, from_agent_id, target_agent_id, since, grep = "words in it")
        "Read the log, by default the newest 50: what happened before you came, or before a takeover.";
    Write AddNote(room_id, body, turn_id)
        "Leave a remark that stays until resolved and disturbs nobody, such as a bug seen while it is not your turn.";
    Read ListNotes(room_id, after_note_id, include_resolved, limit)
        "Read open notes, for instance at the start of a turn.";
    Write ResolveNote(room_id, note_id)
        "Mark a note as dealt with.";
    Write KickMember(room_id, target_agent_id, force, reason)
        "Remove a member whose process is gone. force only when a person told you to.";
    Write LeaveRoom(room_id)
        "Stop being a member when you are done here. Release the stick first.";
}

/// A type as JSON Schema has it.
fn schema_of(json_type: JsonType) -> Value {
    match json_type {
        JsonType::String => json!({ "type": "string" }),
        JsonType::Boolean => json!({ "type": "boolean" }),
        JsonType::Integer => json!({ "type": "integer" }),
        JsonType::Integers => json!({ "type": "array", "items": { "type": "integer" } }),
        // A single string is accepted too, but not every model provider understands a schema with two types.
        JsonType::Strings => json!({ "type": "array", "items": { "type": "string" } }),
        JsonType::Object => json!({ "type": "object" }),
        JsonType::Handoff => json!({ "type": "object", "required": ["status", "next_action"] }),
    }
}

impl ToolSpec {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|tool| tool.name == name)
    }

    /// The offered parameters with what the method says of each.
    fn offered(&self) -> impl Iterator<Item = (&'static Parameter, &'static Field)> {
        let field = |parameter: &Parameter| self.fields.iter().find(|field| field.name == parameter.name);
        self.parameters.iter().filter_map(move |parameter| Some((parameter, field(parameter)?)))
    }

    fn required(&self) -> Vec<&'static str> {
        let required = self.offered().filter(|(_, field)| field.required && !ASSUMED.contains(&field.name));
        required.map(|(_, field)| field.name).collect()
    }

    fn schema(&self) -> JsonObject {
        let mut properties = Map::new();
        for (parameter, field) in self.offered() {
            let mut property = schema_of(field.json_type);
            if !parameter.description.is_empty() {
                property["description"] = parameter.description.into();
            }
            properties.insert(field.name.to_owned(), property);
        }
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), properties.into());
        let required = self.required();
        if !required.is_empty() {
            schema.insert("required".into(), required.into());
        }
        schema
    }

    /// The tool as a model is shown it.
    pub(super) fn listed(&self) -> Tool {
        let read_only = self.name == WaitForEvents::NAME || self.kind == Kind::Read;
        let mut annotations = ToolAnnotations::new();
        annotations.read_only_hint = Some(read_only);
        if !read_only {
            annotations.destructive_hint = Some(self.name == KickMember::NAME);
        }
        annotations.open_world_hint = Some(false);
        let mut tool = Tool::new(self.name, self.description, self.schema()).with_annotations(annotations);
        // Nothing is required: some clients hold a refusal to the schema of the answer and would hide it.
        let schema = |properties| json!({ "type": "object", "properties": properties }).as_object().cloned();
        tool.output_schema = (self.output)().and_then(schema).map(Arc::new);
        tool
    }

    /// Whether a parameter must be filled in: the tool takes it, and the call left it out.
    pub(super) fn lacks(&self, name: &str, arguments: &Map<String, Value>) -> bool {
        self.offered().any(|(_, field)| field.required && field.name == name) && !arguments.contains_key(name)
    }

    fn bad(&self, what: &str) -> Error {
        let names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name).collect();
        let required = self.required();
        let required = if required.is_empty() { Value::Null } else { required.into() };
        Error::new(ErrorCode::InvalidInput, format!("{}: {what}", self.name)).hint(format!(
            "{} takes {}; required: {required}",
            self.name,
            names.join(", ")
        ))
    }

    /// Checks the names in a call. A model that writes null means that it leaves the argument out.
    pub(crate) fn named_arguments(&self, sent: JsonObject) -> Result<Map<String, Value>, Error> {
        let sent: Map<String, Value> = sent.into_iter().filter(|(_, value)| !value.is_null()).collect();
        for (name, value) in &sent {
            let (_, field) = self
                .offered()
                .find(|(parameter, _)| parameter.name == name)
                .ok_or_else(|| self.bad(&format!("unknown field `{name}`")))?;
            if field.json_type == JsonType::Handoff && !value.is_object() {
                return Err(self.bad(&format!("invalid type: {name} is not an object")));
            }
        }
        Ok(sent)
    }

    /// Checks the arguments of a call, with what was left out filled in, and returns them as the daemon expects them.
    pub(crate) fn arguments(&self, filled: Map<String, Value>) -> Result<Map<String, Value>, Error> {
        match (self.check)(Value::Object(filled)) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(_) => Err(self.bad("the arguments are not an object")),
            Err(e) => Err(self.bad(&e.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_costs_a_session_less_than_six_and_a_half_kilobytes() {
        let shown: Vec<Value> = ALL
            .iter()
            .map(ToolSpec::listed)
            .map(|tool| json!({"name": tool.name, "description": tool.description, "inputSchema": *tool.input_schema}))
            .collect();
        let size = serde_json::to_string(&shown).unwrap().len();
        assert!(size < 6656, "{size} bytes");
    }

    #[test]
    fn what_a_tool_does_not_take_is_refused_by_name() {
        let tool = ToolSpec::named("heartbeat").unwrap();
        let check = |sent: Value| tool.arguments(tool.named_arguments(sent.as_object().unwrap().clone())?);
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
    fn the_room_and_the_turn_may_be_left_out_everywhere() {
        for tool in ALL {
            assert!(tool.required().iter().all(|name| !ASSUMED.contains(name)), "{}", tool.name);
        }
        let tool = ToolSpec::named("heartbeat").unwrap();
        let sent = json!({"room_id": "r"}).as_object().unwrap().clone();
        assert!(tool.lacks("lease_id", &sent) && !tool.lacks("room_id", &sent) && !tool.lacks("context_path", &sent));
    }

    #[test]
    fn absent_and_null_are_the_same() {
        let tool = ToolSpec::named("list_rooms").unwrap();
        let sent: JsonObject = serde_json::from_str(r#"{"context_path":null}"#).unwrap();
        assert!(tool.named_arguments(sent).unwrap().is_empty());
    }
}
