//! Notes, the log and subscriptions to it.

use serde_json::{Value, json};

use super::{ABSENT_ID, Script};

impl Script {
    pub(super) fn notes(&mut self) {
        let (mut a, room_id) = self.member("claude:a", "notes");
        let mut stranger = self.agent("claude:s");
        let rec = &mut self.recorder;
        a.send("wait_for_turn", Some(json!({"room_id": room_id, "max_wait_ms": 0, "claim": true})));
        let turn_id = a.receive()["result"]["turn_id"].clone();
        let nulls = json!({"room_id": room_id, "body": "first", "turn_id": null, "idempotency_key": null});
        let first = rec.succeeds(&mut a, "nulls", "add_note", nulls);
        // Notes are listed by their time.
        self.clock.turn_wall(1000);
        let keyed = json!({"room_id": room_id, "body": "second", "turn_id": turn_id, "idempotency_key": "note"});
        rec.succeeds(&mut a, "about a turn", "add_note", keyed.clone());
        rec.succeeds(&mut a, "the same key again", "add_note", keyed);
        let add = |body: &str| json!({"room_id": room_id, "body": body});
        rec.fails(&mut a, "invalid_body", "blank", "add_note", add(" \n"));
        rec.fails(&mut a, "body_too_large", "16385 bytes", "add_note", add(&"x".repeat(16 * 1024 + 1)));
        let future = json!({"room_id": room_id, "body": "x", "turn_id": 99});
        rec.fails(&mut a, "invalid_turn_id", "a turn that never was", "add_note", future);
        rec.fails(&mut stranger, "unknown_member", "no member", "add_note", add("x"));
        let absent = json!({"room_id": ABSENT_ID, "body": "x"});
        rec.fails(&mut a, "room_not_found", "no such room", "add_note", absent);

        let note_id = first["note_id"].clone();
        let resolve = json!({"room_id": room_id, "note_id": note_id, "idempotency_key": null});
        rec.succeeds(&mut a, "null", "resolve_note", resolve.clone());
        rec.succeeds(&mut a, "again", "resolve_note", resolve);
        let unknown = json!({"room_id": room_id, "note_id": ABSENT_ID});
        let answer = rec.exchange(&mut a, "an unknown note", "resolve_note", Some(unknown));
        assert!(answer["error"].is_object(), "{answer}");
        let list = json!({"room_id": room_id, "after_note_id": null, "include_resolved": null, "limit": null});
        rec.succeeds(&mut a, "open ones, nulls", "list_notes", list);
        let all = json!({"room_id": room_id, "include_resolved": true, "limit": 1});
        rec.succeeds(&mut a, "the first of all", "list_notes", all);
        let rest = json!({"room_id": room_id, "include_resolved": true, "after_note_id": note_id});
        rec.succeeds(&mut a, "those after one", "list_notes", rest);
        let unknown = json!({"room_id": room_id, "after_note_id": ABSENT_ID});
        let answer = rec.exchange(&mut a, "after an unknown note", "list_notes", Some(unknown));
        assert!(answer["error"].is_object(), "{answer}");
        rec.fails(&mut a, "room_not_found", "no such room", "list_notes", json!({"room_id": ABSENT_ID}));
        rec.succeeds(&mut a, "a room with notes", "get_room_events", json!({"room_id": room_id}));
    }

    pub(super) fn events(&mut self) {
        let (mut a, room_id) = self.member("claude:a", "log");
        let rec = &mut self.recorder;
        let nulls = json!({
            "room_id": room_id, "after_event_seq": null, "limit": null, "event_type": null, "from_agent_id": null,
            "target_agent_id": null
        });
        let log = rec.succeeds(&mut a, "everything, nulls", "get_room_events", nulls.clone());
        let cursor = log["cursor_event_seq"].clone();
        rec.succeeds(&mut a, "nothing new, nulls", "wait_for_events", {
            let mut params = nulls;
            params["max_wait_ms"] = 0.into();
            params
        });
        for method in ["get_room_events", "wait_for_events", "subscribe_events"] {
            let with = |key: &str, value: Value| json!({"room_id": room_id, (key): value});
            let mut fails = |code, case, params| {
                rec.fails(&mut a, code, case, method, params);
            };
            fails("invalid_cursor", "a negative cursor", with("after_event_seq", json!(-1)));
            fails("invalid_event_type_filter", "an unknown type", with("event_type", json!("gossip")));
            fails("invalid_event_type_filter", "an empty list", with("event_type", json!([])));
            fails("invalid_input", "a target that is no id", with("target_agent_id", json!("no spaces, please")));
            fails("room_not_found", "no such room", json!({"room_id": ABSENT_ID}));
        }
        let mut filter = json!({
            "room_id": room_id, "after_event_seq": 0, "limit": 1, "event_type": "member_joined",
            "from_agent_id": "claude:a", "target_agent_id": "any"
        });
        rec.succeeds(&mut a, "every filter", "get_room_events", filter.clone());
        filter["max_wait_ms"] = 60_000.into();
        filter["event_type"] = json!(["member_joined", "claim"]);
        rec.succeeds(&mut a, "every filter, a list of types", "wait_for_events", filter);
        self.subscriptions(&room_id, &cursor);
    }

    fn subscriptions(&mut self, room_id: &Value, cursor: &Value) {
        const SUBSCRIBE: &str = "subscribe_events";
        let mut follower = self.agent("claude:f");
        let (mut a, _) = self.member("claude:a", "log");
        let rec = &mut self.recorder;
        let params = json!({
            "room_id": room_id, "after_event_seq": 0, "event_type": null, "from_agent_id": null,
            "target_agent_id": null
        });
        let id = rec.succeeds(&mut follower, "from the beginning, nulls", SUBSCRIBE, params);
        rec.keep_item(SUBSCRIBE, "an event of the past", &follower.receive());
        a.send("add_note", Some(json!({"room_id": room_id, "body": "not for the follower"})));
        a.receive();
        a.send("send_message", Some(json!({"room_id": room_id, "body": "for everyone"})));
        a.receive();
        rec.keep_item(SUBSCRIBE, "a message as it is sent", &follower.receive());
        let end = "unsubscribe_events";
        let ended = rec.exchange(&mut follower, "its own subscription", end, Some(json!([id])));
        assert_eq!(ended["result"], true);
        let ended = rec.exchange(&mut follower, "no subscription", end, Some(json!([id])));
        assert_eq!(ended["result"], false);
        let only = json!({"room_id": room_id, "after_event_seq": cursor, "event_type": ["note_added"],
            "from_agent_id": "claude:a", "target_agent_id": "any"});
        rec.succeeds(&mut follower, "every filter", SUBSCRIBE, only);
        rec.keep_item(SUBSCRIBE, "what the filters let through", &follower.receive());
        a.send("delete_room", Some(json!({"room_id": room_id})));
        assert_eq!(a.receive()["result"]["room_id"], *room_id);
        rec.keep_item(SUBSCRIBE, "the room is deleted", &follower.receive());
    }
}
