//! Messages and the inbox.

use serde_json::{Value, json};
use tt_tests::golden::Caller;

use super::{ABSENT_ID, Script};

impl Script {
    pub(super) fn messages(&mut self) {
        let (mut a, room_id) = self.member("claude:a", "mail");
        let (mut b, _) = self.member("claude:b", "mail");
        let (mut b2, _) = self.member("claude:b", "mail");
        let mut stranger = self.agent("claude:s");
        let rec = &mut self.recorder;
        let send = |fields: Value| {
            let mut params = json!({"room_id": room_id, "body": "hello"});
            params.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
            params
        };
        let nulls = json!({"to_agent_id": null, "to": null, "delivery_hint": null, "idempotency_key": null});
        let first = rec.succeeds(&mut a, "to everyone, nulls", "send_message", send(nulls));
        let keyed = send(json!({"to_agent_id": "claude:b", "delivery_hint": "interrupt", "idempotency_key": "send"}));
        rec.succeeds(&mut a, "to an agent id", "send_message", keyed.clone());
        rec.succeeds(&mut a, "the same key again", "send_message", keyed);
        let other = send(json!({"to_agent_id": "claude:b", "idempotency_key": "send"}));
        rec.fails(&mut a, "invalid_input", "the same key for another message", "send_message", other);
        let last = rec.succeeds(&mut a, "to a name", "send_message", send(json!({"to": "claude:b"})));
        rec.succeeds(&mut a, "to the room", "send_message", send(json!({"to": "room"})));
        let mut fails = |caller: &mut Caller, code, case, fields| {
            rec.fails(caller, code, case, "send_message", send(fields));
        };
        fails(&mut a, "invalid_body", "nothing", json!({"body": ""}));
        fails(&mut a, "message_too_large", "4097 bytes", json!({"body": "x".repeat(4097)}));
        fails(&mut a, "invalid_delivery_hint", "an unknown hint", json!({"delivery_hint": "now"}));
        fails(&mut a, "invalid_input", "two recipients", json!({"to": "b", "to_agent_id": "claude:b"}));
        fails(&mut a, "unknown_recipient", "an unknown name", json!({"to": "zzzzzzzz"}));
        fails(&mut a, "unknown_recipient", "an unknown id", json!({"to_agent_id": "claude:z"}));
        fails(&mut a, "ambiguous_recipient", "two members", json!({"to": "claude"}));
        fails(&mut stranger, "unknown_member", "no member", json!({}));
        fails(&mut a, "room_not_found", "no such room", json!({"room_id": ABSENT_ID}));

        rec.succeeds(&mut b, "four messages", "list_inbox", json!({}));
        rec.succeeds(&mut stranger, "nothing", "list_inbox", json!({}));

        let take = |fields: Value| {
            let mut params = json!({"room_id": room_id, "surface": "recv"});
            params.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
            params
        };
        let one = take(json!({"limit": 1, "max_replay": 3, "max_wait_ms": 0, "from_agent_id": "claude:a"}));
        let taken = rec.succeeds(&mut b, "one, with some skipped and more to come", "take_messages", one);
        let seqs: Vec<Value> = taken["events"].as_array().unwrap().iter().map(|e| e["event_seq"].clone()).collect();
        let back = json!({"room_id": room_id, "event_seqs": seqs});
        rec.succeeds(&mut b, "what was taken", "return_messages", back.clone());
        rec.succeeds(&mut b, "nothing any more", "return_messages", back);
        let nulls = take(json!({"from_agent_id": null, "max_replay": null, "limit": null, "max_wait_ms": null}));
        rec.succeeds(&mut b, "all, nulls", "take_messages", nulls);
        rec.succeeds(&mut b, "nothing left", "take_messages", take(json!({})));
        rec.fails(&mut b, "invalid_input", "an unknown surface", "take_messages", take(json!({"surface": "dream"})));
        rec.fails(&mut stranger, "unknown_member", "no member", "take_messages", take(json!({})));
        rec.fails(&mut b, "room_not_found", "no such room", "take_messages", take(json!({"room_id": ABSENT_ID})));

        let confirm = |surface: &str, room_id: &Value| json!({"room_id": room_id, "surface": surface, "event_seqs": [first["event_seq"], last["event_seq"]]});
        let held = confirm("recv", &room_id);
        rec.fails(&mut b2, "message_held", "taken by another connection", "confirm_messages", held);
        let held = json!({"room_id": room_id, "event_seqs": [first["event_seq"]]});
        rec.fails(&mut b2, "message_held", "taken by another connection", "return_messages", held);
        rec.succeeds(&mut b, "one shown, one skipped", "confirm_messages", confirm("recv", &room_id));
        rec.succeeds(&mut b2, "again", "confirm_messages", confirm("recv", &room_id));
        let least = json!({"room_id": room_id, "surface": "follow", "event_seqs": []});
        rec.succeeds(&mut b, "none", "confirm_messages", least);
        rec.fails(&mut b, "invalid_input", "an unknown surface", "confirm_messages", confirm("dream", &room_id));
        let absent = json!(ABSENT_ID);
        rec.exchange(&mut b, "no such room", "confirm_messages", Some(confirm("recv", &absent)));
        rec.exchange(&mut stranger, "no member", "confirm_messages", Some(confirm("recv", &room_id)));
        let absent = json!({"room_id": ABSENT_ID, "event_seqs": [1]});
        rec.exchange(&mut b, "no such room", "return_messages", Some(absent));
        let own = json!({"room_id": room_id, "event_seqs": [last["event_seq"]]});
        rec.exchange(&mut stranger, "no member", "return_messages", Some(own));
    }

    /// A recipient that listens is named with its surface.
    pub(super) fn listening_recipient(&mut self) {
        let (mut a, room_id) = self.member("claude:a", "listening");
        let (mut b, _) = self.member("claude:b", "listening");
        let send = json!({"room_id": room_id, "body": "are you there?", "to_agent_id": "claude:b"});
        // No answer tells that a take has begun to listen. Where the message came first, the take ends with it, and the
        // next round tries again.
        loop {
            let take = json!({"room_id": room_id, "surface": "follow", "max_wait_ms": 60_000});
            let take = b.send("take_messages", Some(take));
            let request = a.send("send_message", Some(send.clone()));
            let answer = a.receive();
            let taken = b.receive();
            let event = &taken["result"]["events"][0];
            assert_eq!(event["payload"]["body"], send["body"], "{taken}");
            if answer["result"]["recipients"][0]["surface"] == "follow" {
                self.recorder.keep("send_message", "to a member that listens", request, &answer);
                self.recorder.keep("take_messages", "after waiting", take, &taken);
                return;
            }
        }
    }
}
