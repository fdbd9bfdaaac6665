//! What a session need not say: which room, and which turn. The room is that of its directory; the turn is the one it was
//! last told that it holds. The daemon refuses that turn if it was lost since.

use std::cell::RefCell;
use std::collections::HashMap;

use serde_json::{Map, Value};
use tt_proto::requests::{GetRoomState, LeaveRoom, Method, PassStick, ReleaseStick, TakeoverStick};
use tt_proto::room::nobody_joined;
use tt_proto::{Error, ErrorCode, RoomId};

use super::tools::ToolSpec;
use crate::connect::Client;

/// The turns that sessions were told they hold, by agent and room.
#[derive(Debug, Default)]
pub(super) struct HeldTurns(RefCell<HashMap<(String, String), HeldTurn>>);

#[derive(Debug, Clone, PartialEq)]
struct HeldTurn {
    lease_id: String,
    turn_id: i64,
}

impl HeldTurns {
    /// Fills in the room and the turn that a call left out.
    pub(super) async fn fill_in(
        &self,
        client: &mut Client,
        tool: &ToolSpec,
        arguments: &mut Map<String, Value>,
    ) -> Result<(), Error> {
        if tool.lacks("context_path", arguments) {
            arguments.insert("context_path".into(), ".".into());
        }
        if tool.lacks("room_id", arguments) {
            arguments.insert("room_id".into(), RoomId::HERE.into());
        }
        if arguments.get("room_id").and_then(Value::as_str) == Some(RoomId::HERE) {
            let here = client.welcome().room_id.clone().ok_or_else(|| nobody_joined("."))?;
            arguments.insert("room_id".into(), here.as_str().into());
        }
        let (no_lease, no_turn) = (tool.lacks("lease_id", arguments), tool.lacks("expected_turn_id", arguments));
        if !no_lease && !no_turn {
            return Ok(());
        }
        let room = arguments.get("room_id").and_then(Value::as_str).unwrap_or_default().to_owned();
        if tool.name == TakeoverStick::NAME {
            // The turn to take over is the current one.
            let state = client.call(GetRoomState { room_id: room.into(), ..Default::default() }).await?;
            arguments.insert("expected_turn_id".into(), state.room.turn_id.into());
            return Ok(());
        }
        let held = self.0.borrow().get(&key(client, &room)).cloned().ok_or_else(|| {
            Error::new(ErrorCode::StaleLease, "this session was not told that it holds the stick")
                .hint("get a turn first: tt wait; or give lease_id and expected_turn_id")
        })?;
        if no_lease {
            arguments.insert("lease_id".into(), held.lease_id.into());
        }
        if no_turn {
            arguments.insert("expected_turn_id".into(), held.turn_id.into());
        }
        Ok(())
    }

    /// Remembers the turn that an answer tells of, and forgets one that was given away.
    pub(super) fn learn(&self, client: &Client, tool: &ToolSpec, arguments: &Map<String, Value>, answer: &Value) {
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let room =
            arguments.get("room_id").and_then(Value::as_str).map(str::to_owned).or_else(|| text(answer, "room_id"));
        let Some(room) = room else { return };
        let key = key(client, &room);
        if [ReleaseStick::NAME, PassStick::NAME, LeaveRoom::NAME].contains(&tool.name) {
            self.0.borrow_mut().remove(&key);
            return;
        }
        // The answer of a wait or a takeover, of a look at the room, of a join.
        for value in [Some(answer), answer.get("room"), answer.get("room_state")].into_iter().flatten() {
            if let (Some(lease_id), Some(turn_id)) =
                (text(value, "lease_id"), value.get("turn_id").and_then(Value::as_i64))
            {
                self.0.borrow_mut().insert(key.clone(), HeldTurn { lease_id, turn_id });
            }
        }
    }
}

fn key(client: &Client, room: &str) -> (String, String) {
    (client.welcome().identity.agent_id.to_string(), room.to_owned())
}

/// Calls the room of the session's directory `here`, as its tools may.
pub(super) fn name_room_here(client: &Client, answer: &mut Value) {
    if let Some(here) = &client.welcome().room_id {
        replace(answer, here.as_str());
    }
}

fn replace(value: &mut Value, here: &str) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match name.as_str() {
                    "room_id" if field.as_str() == Some(here) => *field = RoomId::HERE.into(),
                    // What members wrote is passed on as it is.
                    "handoff" | "pending_handoff" | "current_handoff" | "payload" => {}
                    _ => replace(field, here),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace(item, here)),
        _ => {}
    }
}

/// Commands that hints name, and the tools that do the same. Longer ones first.
const TOOLS: [(&str, &str); 21] = [
    ("the arguments against --help", "the arguments against the schema of the tool"),
    ("tt kick --force", "kick_member with force"),
    ("tt notes list --all", "list_notes with include_resolved"),
    ("tt notes list", "list_notes"),
    ("tt take --operator --reason \"…\"", "takeover_stick with operator_override"),
    ("tt take --reason \"…\"", "takeover_stick"),
    ("tt msg send", "send_message to"),
    ("tt msg recv", "any tool"),
    ("tt events --event message_sent", "get_room_events with event_type message_sent"),
    ("tt reply", "reply"),
    ("tt events --json", "get_room_events"),
    ("tt events", "get_room_events"),
    ("tt release", "release_stick"),
    ("tt join", "join_path"),
    ("tt leave", "leave_room"),
    ("tt state", "get_room_state"),
    ("tt list", "list_rooms"),
    ("tt wait", "wait_for_turn"),
    ("tt try", "wait_for_turn with claim"),
    ("--reason \"…\"", "reason"),
    ("--force", "force"),
];

/// A hint that names tools in the place of commands. What only a command can do stays.
pub(super) fn hint_for_tools(hint: &str) -> String {
    TOOLS.iter().fold(hint.to_owned(), |hint, (command, tool)| {
        hint.replace(&format!("`{command}`"), tool).replace(command, tool)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hints_name_tools_and_not_the_commands_that_do_the_same() {
        for code in ErrorCode::ALL {
            let hint = hint_for_tools(code.default_hint());
            let others = hint.replace("tt daemon", "").replace("versions of tt", "").replace("version of tt", "");
            assert!(!others.contains("tt ") || others.contains("tt and ttd"), "{code}: {hint}");
            assert!(!hint.replace("(--follow)", "").contains("--"), "{code}: {hint}");
        }
        assert_eq!(hint_for_tools("wait for your turn: tt wait"), "wait for your turn: wait_for_turn");
        assert_eq!(hint_for_tools("see who is there with `tt state`"), "see who is there with get_room_state");
    }

    #[test]
    fn the_room_is_here_but_not_in_what_members_wrote() {
        let mut answer =
            json!({"room": {"room_id": "r"}, "rooms": [{"room_id": "other"}], "handoff": {"room_id": "r"}});
        replace(&mut answer, "r");
        assert_eq!(
            answer,
            json!({"room": {"room_id": "here"}, "rooms": [{"room_id": "other"}], "handoff": {"room_id": "r"}})
        );
    }
}
