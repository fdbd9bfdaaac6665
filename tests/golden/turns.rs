//! Turns: waiting, releasing, passing, taking over; and members who go or are made to go.

use std::time::Duration;

use serde_json::{Value, json};
use tt_tests::golden::Caller;

use super::{ABSENT_ID, Script, player};

impl Script {
    pub(super) fn turns(&mut self) {
        let (mut a, room_id) = self.member("claude:a", "turns");
        let (mut b, _) = self.member("claude:b", "turns");
        let mut stranger = self.agent("claude:s");
        let rec = &mut self.recorder;
        let wait = "wait_for_turn";
        let now = json!({"room_id": room_id, "max_wait_ms": 0, "park": null, "claim": true, "include_events": null});
        let turn = rec.succeeds(&mut a, "an idle room", wait, now.clone());
        assert_eq!(turn["reason"], "open_claim", "{turn}");
        rec.succeeds(&mut a, "already the holder", wait, now.clone());
        let nulls = json!({"room_id": room_id, "max_wait_ms": 0, "park": null, "claim": null, "include_events": null});
        rec.succeeds(&mut b, "another holds it, nulls", wait, nulls);
        let news = json!({"room_id": room_id, "max_wait_ms": 0, "park": true, "include_events": true});
        a.send("send_message", Some(json!({"room_id": room_id, "body": "soon", "to_agent_id": "claude:b"})));
        a.receive();
        rec.succeeds(&mut b, "parked, with events", wait, news);
        let park = json!({"room_id": room_id, "park": true});
        rec.fails(&mut a, "park_requires_release", "the holder parks", wait, park);
        let both = json!({"room_id": room_id, "park": true, "claim": true});
        rec.fails(&mut a, "invalid_input", "park and claim", wait, both);
        rec.fails(&mut stranger, "unknown_member", "no member", wait, now);
        rec.fails(&mut a, "room_not_found", "no such room", wait, json!({"room_id": ABSENT_ID}));
        rec.succeeds(&mut a, "held", "get_room_state", json!({"room_id": room_id}));
        rec.succeeds(&mut b, "held by another", "get_room_state", json!({"room_id": room_id}));
        rec.succeeds(&mut a, "held", "list_rooms", json!({"context_path": self.home.path().join("turns")}));

        let (lease, turn_id) = (&turn["lease_id"], &turn["turn_id"]);
        let of_turn = |lease: &Value, turn_id: i64| {
            json!({"room_id": room_id, "lease_id": lease, "expected_turn_id": turn_id, "to_agent_id": "claude:b",
                "handoff": {"status": "half done", "next_action": "the other half", "artifacts":
                    [{"path": "src/lib.rs", "lines": [1, 2], "role": "edit", "note": "new"}], "more": {"x": 1}}})
        };
        let turn_number = turn_id.as_i64().unwrap();
        for method in ["heartbeat", "release_stick", "pass_stick"] {
            rec.fails(&mut a, "stale_lease", "another lease", method, of_turn(&json!(ABSENT_ID), turn_number));
            rec.fails(&mut a, "turn_mismatch", "another turn", method, of_turn(lease, 99));
            rec.fails(&mut b, "stale_lease", "not the holder", method, of_turn(lease, turn_number));
            rec.fails(&mut stranger, "unknown_member", "no member", method, of_turn(lease, turn_number));
            let mut absent = of_turn(lease, turn_number);
            absent["room_id"] = ABSENT_ID.into();
            rec.fails(&mut a, "room_not_found", "no such room", method, absent);
            if method == "heartbeat" {
                continue;
            }
            for (case, handoff) in [
                ("an empty status", json!({"status": "", "next_action": "go on"})),
                ("no next_action", json!({"status": "done"})),
                ("not an object", json!("done")),
            ] {
                let mut params = of_turn(lease, turn_number);
                params["handoff"] = handoff;
                rec.fails(&mut a, "invalid_handoff", case, method, params);
            }
        }
        let beat = json!({"room_id": room_id, "lease_id": lease, "expected_turn_id": turn_id});
        rec.succeeds(&mut a, "the holder", "heartbeat", beat);
        for (code, case, to) in
            [("unknown_target", "to nobody", "claude:z"), ("unknown_target", "to someone who is no member", "claude:s")]
        {
            let mut params = of_turn(lease, turn_number);
            params["to_agent_id"] = to.into();
            rec.fails(&mut a, code, case, "pass_stick", params);
        }
        let mut to_self = of_turn(lease, turn_number);
        to_self["to_agent_id"] = "claude:a".into();
        let answer = rec.exchange(&mut a, "to oneself", "pass_stick", Some(to_self));
        assert!(answer["error"].is_object(), "{answer}");

        // One of two waits is refused, and then the other one is known to be waiting.
        let long = json!({"room_id": room_id, "max_wait_ms": 60_000});
        let request = b.send(wait, Some(long.clone()));
        b.send(wait, Some(long));
        let refusal = b.receive();
        assert_eq!(refusal["error"]["data"]["error"], "duplicate_listener", "{refusal}");
        rec.keep(wait, "duplicate_listener: a second wait", request.clone(), &refusal);
        rec.succeeds(&mut a, "somebody waits", "get_room_state", json!({"room_id": room_id}));
        let mut release = of_turn(lease, turn_number);
        release["idempotency_key"] = "release".into();
        release.as_object_mut().unwrap().remove("to_agent_id");
        rec.succeeds(&mut a, "to the one who waits", "release_stick", release.clone());
        rec.succeeds(&mut a, "the same key again", "release_stick", release);
        let turn = b.receive();
        rec.keep(wait, "after waiting", request, &turn);
        let turn = &turn["result"];
        assert_eq!(turn["status"], "your_turn", "{turn}");

        let mut pass = of_turn(&turn["lease_id"], turn["turn_id"].as_i64().unwrap());
        pass["to_agent_id"] = "claude:a".into();
        pass["idempotency_key"] = Value::Null;
        rec.succeeds(&mut b, "to a member that does not wait", "pass_stick", pass);
        rec.succeeds(&mut b, "reserved", "get_room_state", json!({"room_id": room_id}));
        rec.succeeds(&mut b, "reserved", "list_rooms", json!({"context_path": self.home.path().join("turns")}));
        let now = json!({"room_id": room_id, "max_wait_ms": 0});
        let turn = rec.succeeds(&mut a, "passed", wait, now);
        assert_eq!(turn["reason"], "direct_pass", "{turn}");
        let mut release = of_turn(&turn["lease_id"], turn["turn_id"].as_i64().unwrap());
        release["idempotency_key"] = Value::Null;
        rec.succeeds(&mut a, "nobody waits, null", "release_stick", release);
    }

    pub(super) fn takeovers(&mut self) {
        let (mut a, room_id) = self.member("claude:a", "takeovers");
        let (mut b, _) = self.member("claude:b", "takeovers");
        let (mut c, _) = self.member("claude:c", "takeovers");
        let mut stranger = self.agent("claude:s");
        let rec = &mut self.recorder;
        let (wait, takeover) = ("wait_for_turn", "takeover_stick");
        let claim = json!({"room_id": room_id, "max_wait_ms": 0, "claim": true});
        let take =
            |turn_id: &Value, reason: &str| json!({"room_id": room_id, "expected_turn_id": turn_id, "reason": reason});
        let answer = rec.exchange(&mut b, "an idle room", takeover, Some(take(&json!(0), "why not")));
        assert!(answer["error"].is_object(), "{answer}");
        let turn = rec.succeeds(&mut a, "in a room of three", wait, claim);
        let held = &turn["turn_id"];
        rec.fails(&mut b, "takeover_not_available", "the holder is there", takeover, take(held, "stuck"));
        rec.fails(&mut b, "turn_mismatch", "another turn", takeover, take(&json!(99), "stuck"));
        rec.fails(&mut stranger, "unknown_member", "no member", takeover, take(held, "stuck"));
        let answer = rec.exchange(&mut b, "a blank reason", takeover, Some(take(held, " ")));
        assert!(answer["error"].is_object(), "{answer}");
        let absent = json!({"room_id": ABSENT_ID, "expected_turn_id": 0, "reason": "stuck"});
        rec.fails(&mut b, "room_not_found", "no such room", takeover, absent);
        let pass = json!({
            "room_id": room_id, "lease_id": turn["lease_id"], "expected_turn_id": held, "to_agent_id": "claude:b",
            "handoff": {"status": "half done", "next_action": "the other half"}
        });
        rec.succeeds(&mut a, "in a room of three", "pass_stick", pass);

        let expiry = json!({
            "room_id": room_id, "after_event_seq": 0, "event_type": "reservation_expired", "target_agent_id": "any"
        });
        let request = c.send("wait_for_events", Some(expiry));
        self.clock.advance(Duration::from_secs(20 * 60 + 1));
        let answer = c.receive();
        rec.keep("wait_for_events", "after waiting", request, &answer);
        rec.fails(&mut a, "takeover_ineligible", "by the one who passed it", takeover, take(held, "stuck"));
        let now = json!({"room_id": room_id, "max_wait_ms": 0});
        let offer = rec.succeeds(&mut c, "a reservation ran out", wait, now);
        assert_eq!(offer["status"], "takeover_available", "{offer}");
        rec.succeeds(&mut c, "a reservation ran out", "get_room_state", json!({"room_id": room_id}));
        let mut keyed = take(held, "it does not answer");
        keyed["idempotency_key"] = "takeover".into();
        let taken = rec.succeeds(&mut c, "a reservation ran out", takeover, keyed.clone());
        rec.succeeds(&mut c, "the same key again", takeover, keyed);

        let mut by_operator = take(&taken["turn_id"], "a person says so");
        by_operator["operator_override"] = true.into();
        by_operator["idempotency_key"] = Value::Null;
        let taken = rec.succeeds(&mut a, "by an operator", takeover, by_operator);
        let request = b.send(wait, Some(json!({"room_id": room_id, "max_wait_ms": 60_000})));
        self.cast.kill(player("claude:a"));
        let answer = b.receive();
        assert_eq!(answer["result"]["status"], "takeover_available", "{answer}");
        rec.keep(wait, "the holder's process ended", request, &answer);
        await_exit(&mut c, &room_id);
        rec.succeeds(&mut b, "the holder's process ended", "get_room_state", json!({"room_id": room_id}));
        let mut nulls = take(&taken["turn_id"], "its process ended");
        nulls["operator_override"] = Value::Null;
        nulls["idempotency_key"] = Value::Null;
        rec.succeeds(&mut b, "the holder's process ended, nulls", takeover, nulls);
    }

    pub(super) fn departures(&mut self) {
        let (mut d, room_id) = self.member("claude:d", "departures");
        let (mut e, _) = self.member("claude:e", "departures");
        let (mut f, _) = self.member("claude:f", "departures");
        let mut stranger = self.agent("claude:s");
        let rec = &mut self.recorder;
        let kick = |target: &str| json!({"room_id": room_id, "target_agent_id": target});
        rec.fails(&mut d, "cannot_kick_self", "oneself", "kick_member", kick("claude:d"));
        rec.fails(&mut d, "unknown_target", "nobody", "kick_member", kick("claude:z"));
        rec.fails(&mut d, "target_active", "a member that is there", "kick_member", kick("claude:e"));
        rec.fails(&mut stranger, "unknown_member", "no member", "kick_member", kick("claude:e"));
        let absent = json!({"room_id": ABSENT_ID, "target_agent_id": "claude:e"});
        rec.fails(&mut d, "room_not_found", "no such room", "kick_member", absent);
        let claim = json!({"room_id": room_id, "max_wait_ms": 0, "claim": true});
        e.send("wait_for_turn", Some(claim));
        e.receive();
        let waiting = json!({"room_id": room_id, "max_wait_ms": 60_000, "park": true});
        let request = f.send("wait_for_turn", Some(waiting.clone()));
        f.send("wait_for_turn", Some(waiting));
        assert!(f.receive()["error"].is_object());
        let mut forced = kick("claude:f");
        forced.as_object_mut().unwrap().extend(
            json!({"force": true, "reason": "it sleeps", "idempotency_key": "kick"}).as_object().cloned().unwrap(),
        );
        rec.succeeds(&mut d, "one who waits, by force", "kick_member", forced.clone());
        rec.succeeds(&mut d, "the same key again", "kick_member", forced);
        let mut nulls = kick("claude:e");
        nulls
            .as_object_mut()
            .unwrap()
            .extend(json!({"force": true, "reason": null, "idempotency_key": null}).as_object().cloned().unwrap());
        rec.succeeds(&mut d, "the holder, nulls", "kick_member", nulls);
        let removed = f.receive();
        assert_eq!(removed["result"]["status"], "removed", "{removed}");
        rec.keep("wait_for_turn", "kicked while waiting", request, &removed);
        rec.fails(&mut f, "kicked", "one who was kicked", "add_note", json!({"room_id": room_id, "body": "x"}));
        rec.fails(&mut stranger, "room_in_use", "others are there", "delete_room", json!({"room_id": room_id}));
        let state =
            rec.succeeds(&mut d, "a room with one who was kicked", "get_room_state", json!({"room_id": room_id}));
        let rename = json!({"context_path": state["room"]["canonical_path"], "display_name": "reviewer"});
        rec.succeeds(&mut d, "another name", "join_path", rename);
        let gone = json!({"room_id": room_id, "to": "claude:f", "body": "where are you?"});
        rec.succeeds(&mut d, "to one who was kicked", "send_message", gone);

        let guard = |action: &str| json!({"context_path": state["room"]["canonical_path"], "action": action});
        rec.succeeds(&mut d, "nobody else is there", "check_guard", guard("commit"));
        rec.fails(&mut d, "invalid_input", "another action", "check_guard", guard("dance"));
        let (mut g, _) = self.member("claude:g", "departures");
        let rec = &mut self.recorder;
        rec.succeeds(&mut g, "nobody has the stick", "check_guard", guard("push"));
        g.send("wait_for_turn", Some(json!({"room_id": room_id, "max_wait_ms": 0, "claim": true})));
        g.receive();
        let mut nulls = guard("commit");
        nulls
            .as_object_mut()
            .unwrap()
            .extend(json!({"process": null, "is_overridden": null}).as_object().cloned().unwrap());
        rec.succeeds(&mut d, "another has the stick, nulls", "check_guard", nulls.clone());
        nulls["is_overridden"] = true.into();
        rec.succeeds(&mut d, "in any case", "check_guard", nulls);
        let rec = &mut self.recorder;
        let leave = json!({"room_id": room_id, "idempotency_key": "leave"});
        rec.succeeds(&mut g, "others stay", "leave_room", leave.clone());
        rec.succeeds(&mut g, "the same key again", "leave_room", leave);
        rec.fails(&mut stranger, "unknown_member", "no member", "leave_room", json!({"room_id": room_id}));
        let log = json!({"room_id": room_id, "limit": 1000});
        rec.succeeds(&mut d, "who came and went", "get_room_events", log);
        let nulls = json!({"room_id": room_id, "idempotency_key": null});
        rec.succeeds(&mut d, "the last one, null", "leave_room", nulls);
        rec.fails(&mut d, "unknown_member", "one who left", "leave_room", json!({"room_id": room_id}));
        rec.succeeds(
            &mut d,
            "sizes",
            "list_rooms",
            json!({"context_path": state["room"]["canonical_path"], "sizes": true}),
        );
        let delete = json!({"room_id": room_id, "idempotency_key": "delete"});
        rec.succeeds(&mut d, "a dormant room", "delete_room", delete.clone());
        rec.succeeds(&mut d, "the same key again", "delete_room", delete);
        rec.fails(&mut d, "room_not_found", "no such room", "leave_room", json!({"room_id": room_id}));
        let log = json!({"room_id": self.member("claude:b", "takeovers").1, "limit": 1000});
        let mut reader = self.agent("claude:b");
        self.recorder.succeeds(&mut reader, "a room with takeovers", "get_room_events", log);
        let log = json!({"room_id": self.member("claude:b", "turns").1, "limit": 1000});
        await_exit(&mut reader, &log["room_id"]);
        self.recorder.succeeds(&mut reader, "a room with turns", "get_room_events", log);
    }
}

/// Waits until the room's log says that the process of `claude:a` has ended.
fn await_exit(caller: &mut Caller, room_id: &Value) {
    let exit = json!({
        "room_id": room_id, "after_event_seq": 0, "event_type": "member_left", "from_agent_id": "claude:a",
        "target_agent_id": "any"
    });
    caller.send("wait_for_events", Some(exit));
    assert_eq!(caller.receive()["result"]["events"][0]["reason"], "process_exited");
}
