//! How far messages have come, questions and reminders.

use std::time::Duration;

use serde_json::{Value, json};
use tt_tests::golden::Caller;

use super::{ABSENT_ID, Script};

impl Script {
    pub(super) fn deliveries(&mut self) {
        let (mut a, room_id) = self.member("claude:a", "deliveries");
        let (mut b, _) = self.member("claude:b", "deliveries");
        let with = |fields: Value| {
            let mut params = json!({"room_id": room_id});
            params.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
            params
        };
        let mut follower = self.agent("claude:b");
        let rec = &mut self.recorder;
        let subscribe = with(json!({"target_agent_id": "any"}));
        let id = rec.succeeds(&mut follower, "all of the room", "subscribe_deliveries", subscribe);
        let absent = json!({"room_id": ABSENT_ID});
        rec.fails(&mut follower, "room_not_found", "no such room", "subscribe_deliveries", absent.clone());

        let full = with(json!({
            "body": "shall I?", "to_agent_id": "claude:b", "reply_to": null, "expects_reply": true, "timeout_ms": 60_000,
            "notify_on_delivery": true, "notify_after_ms": 30_000, "delivery_hint": "idle"
        }));
        let question = rec.succeeds(&mut a, "a question, every field", "send_message", full);
        let seq = question["event_seq"].clone();
        rec.succeeds(&mut b, "to the caller", "list_waiting", with(json!({})));
        let list = with(json!({"to": "room", "questions": true, "limit": 1}));
        rec.succeeds(&mut a, "questions to anybody", "list_waiting", list);
        rec.fails(&mut a, "unknown_recipient", "an unknown name", "list_waiting", with(json!({"to": "zzzz"})));
        let take = with(json!({"surface": "recv"}));
        rec.succeeds(&mut b, "a question", "take_messages", take.clone());
        let confirm = with(json!({"surface": "recv", "event_seqs": [seq]}));
        rec.succeeds(&mut b, "a question", "confirm_messages", confirm);
        rec.keep_item("subscribe_deliveries", "handed over", &follower.receive());
        rec.succeeds(&mut a, "a notice", "take_messages", take.clone());
        let about = with(json!({"event_seq": seq}));
        rec.succeeds(&mut a, "handed over", "get_message_status", about.clone());
        let answer = with(json!({"event_seq": seq, "body": "yes", "idempotency_key": null}));
        rec.succeeds(&mut b, "to a question", "reply", answer);
        rec.keep_item("subscribe_deliveries", "answered", &follower.receive());
        let only = with(json!({"surface": "wait", "about": seq}));
        rec.succeeds(&mut a, "what concerns a question", "take_messages", only);
        rec.succeeds(&mut a, "answered", "get_message_status", about);
        let page = with(json!({"before": null, "limit": 10}));
        rec.succeeds(&mut a, "nulls", "list_sent", page);

        // Its time runs out before it is handed over.
        let short = with(json!({"body": "quick?", "to": "claude:b", "expects_reply": true, "timeout_ms": 1000}));
        let lost = rec.succeeds(&mut a, "a question for a second", "send_message", short);
        self.clock.advance(Duration::from_secs(2));
        rec.keep_item("subscribe_deliveries", "expired", &follower.receive());
        let late = with(json!({"event_seq": lost["event_seq"], "body": "too late"}));
        rec.succeeds(&mut b, "to a question that expired", "reply", late);
        let ended = rec.exchange(&mut follower, "its own", "unsubscribe_deliveries", Some(json!([id])));
        assert_eq!(ended["result"], true);
        self.refused_deliveries(&mut a, &mut b, &room_id, &seq);
        self.withdrawals(&mut a, &room_id);
        self.reminders(&mut a, &mut b, &room_id);
    }

    fn refused_deliveries(&mut self, a: &mut Caller, b: &mut Caller, room_id: &Value, question: &Value) {
        let rec = &mut self.recorder;
        let mut fails = |caller: &mut Caller, code, case, fields: Value| {
            let mut params = json!({"room_id": room_id, "body": "hello"});
            params.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
            rec.fails(caller, code, case, "send_message", params);
        };
        fails(b, "unknown_message", "a reply to what never was", json!({"reply_to": 999_999}));
        fails(b, "unknown_message", "a reply to a negative number", json!({"reply_to": -1}));
        fails(a, "not_a_recipient", "a reply to a message for another", json!({"reply_to": question}));
        let named = json!({"reply_to": question, "to": "claude:a"});
        fails(b, "invalid_input", "a reply with a recipient", named);
        fails(a, "invalid_input", "a question to oneself", json!({"to_agent_id": "claude:a", "expects_reply": true}));
        fails(a, "invalid_input", "no time at all", json!({"timeout_ms": 0}));
        fails(a, "invalid_input", "a time that never comes", json!({"notify_after_ms": u64::MAX}));
        fails(a, "invalid_input", "a wait for no answer", json!({"wait_ms": 1000}));
        let unknown = json!({"room_id": room_id, "event_seq": 999_999});
        rec.fails(a, "unknown_message", "no such message", "get_message_status", unknown.clone());
        rec.fails(a, "unknown_message", "no such message", "withdraw_message", unknown);
        let gone = json!({"room_id": room_id, "event_seq": 999_999, "body": "x"});
        rec.fails(a, "unknown_message", "no such message", "reply", gone);
        for method in ["list_waiting", "list_sent", "set_quiet", "list_reminders"] {
            rec.fails(a, "room_not_found", "no such room", method, json!({"room_id": ABSENT_ID}));
        }
        let never = json!({"room_id": room_id, "for_ms": u64::MAX});
        rec.fails(a, "invalid_input", "for ever", "set_quiet", never);
        let while_ = json!({"room_id": room_id, "for_ms": 60_000, "idempotency_key": null});
        rec.succeeds(a, "for a minute", "set_quiet", while_);
        rec.succeeds(a, "no longer", "set_quiet", json!({"room_id": room_id}));
    }

    fn withdrawals(&mut self, a: &mut Caller, room_id: &Value) {
        let rec = &mut self.recorder;
        let send = json!({"room_id": room_id, "body": "oh no", "to_agent_id": "claude:b", "timeout_ms": 60_000});
        let sent = rec.succeeds(a, "with a deadline", "send_message", send);
        let back = json!({"room_id": room_id, "event_seq": sent["event_seq"], "idempotency_key": null});
        rec.succeeds(a, "before it was handed over", "withdraw_message", back.clone());
        rec.succeeds(a, "again", "withdraw_message", back.clone());
        let (mut b, _) = self.member("claude:b", "deliveries");
        let rec = &mut self.recorder;
        rec.fails(&mut b, "invalid_input", "another's", "withdraw_message", back.clone());
        let seq = sent["event_seq"].as_i64().unwrap();
        let mut first = back;
        // The question that was answered.
        a.send("list_sent", Some(json!({"room_id": room_id})));
        let list = a.receive();
        let all = list["result"]["deliveries"].as_array().unwrap();
        let is_answered = |delivery: &&Value| delivery["recipient"]["state"] == "answered";
        let answered = all.iter().find(is_answered).unwrap()["event_seq"].clone();
        assert!(answered.as_i64().unwrap() < seq);
        first["event_seq"] = answered;
        let rec = &mut self.recorder;
        rec.fails(a, "already_delivered", "after it was answered", "withdraw_message", first);
    }

    fn reminders(&mut self, a: &mut Caller, b: &mut Caller, room_id: &Value) {
        let rec = &mut self.recorder;
        let add = |fields: Value| {
            let mut params = json!({"room_id": room_id, "body": "look at CI", "in_ms": 60_000});
            params.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
            params
        };
        let full = add(json!({"to": "claude:b", "every_ms": 60_000, "times": 3, "idempotency_key": null}));
        let series = rec.succeeds(a, "a series for another", "add_reminder", full);
        rec.succeeds(a, "once", "add_reminder", add(json!({})));
        rec.fails(a, "invalid_input", "for ever", "add_reminder", add(json!({"every_ms": 60_000})));
        rec.fails(a, "invalid_input", "every second", "add_reminder", add(json!({"every_ms": 1000, "times": 9})));
        rec.fails(a, "invalid_body", "blank", "add_reminder", add(json!({"body": " "})));
        rec.fails(a, "unknown_recipient", "an unknown name", "add_reminder", add(json!({"to": "zzzz"})));
        rec.succeeds(b, "those for the caller", "list_reminders", json!({"room_id": room_id}));
        let cancel = json!({"room_id": room_id, "reminder_id": series["reminder_id"], "idempotency_key": null});
        rec.succeeds(b, "of another, for the caller", "cancel_reminder", cancel.clone());
        rec.fails(b, "unknown_reminder", "again", "cancel_reminder", cancel);
    }
}
