//! Joining, finding and setting up rooms.

use serde_json::{Value, json};

use super::{ABSENT_ID, Script};

impl Script {
    pub(super) fn rooms(&mut self) {
        let (work, inner) = (self.directory("work"), self.directory("work/inner"));
        let (mut a, mut b) = (self.agent("claude:a"), self.agent("claude:b"));
        let mut stranger = self.agent("claude:s");
        let rec = &mut self.recorder;
        let absent = || json!({"room_id": ABSENT_ID});
        let first = json!({
            "context_path": work, "force_new": false, "display_name": "Ada", "idempotency_key": "join"
        });
        let joined = rec.succeeds(&mut a, "a new room", "join_path", first.clone());
        let room_id = joined["room_id"].clone();
        rec.succeeds(&mut a, "the same key again", "join_path", first);
        let nulls = json!({"context_path": work, "force_new": null, "display_name": null, "idempotency_key": null});
        rec.succeeds(&mut b, "a room that is there, nulls", "join_path", nulls);
        let new = json!({"context_path": inner, "force_new": true});
        rec.succeeds(&mut b, "a new room below another", "join_path", new);
        let nowhere = json!({"context_path": "/nowhere/at/all"});
        rec.fails(&mut a, "invalid_input", "a path that does not exist", "join_path", nowhere.clone());
        rec.exchange(&mut a, "an empty path", "join_path", Some(json!({"context_path": ""})));
        let long = json!({"context_path": work, "display_name": "x".repeat(2000)});
        rec.exchange(&mut a, "a display name that is too long", "join_path", Some(long));

        rec.succeeds(&mut a, "one path", "list_rooms", json!({"context_path": work}));
        rec.succeeds(&mut a, "null", "list_rooms", json!({"context_path": null}));
        rec.fails(&mut a, "invalid_input", "a path that does not exist", "list_rooms", nowhere);

        rec.succeeds(&mut a, "an idle room", "get_room_state", json!({"room_id": room_id}));
        rec.succeeds(&mut stranger, "by someone who is no member", "get_room_state", json!({"room_id": room_id}));
        rec.fails(&mut a, "room_not_found", "no such room", "get_room_state", absent());
        rec.exchange(&mut a, "an empty room id", "get_room_state", Some(json!({"room_id": ""})));

        let resolve = |name: &str| json!({"room_id": room_id, "name": name});
        rec.succeeds(&mut a, "a display name", "resolve_member", resolve("ada"));
        rec.succeeds(&mut a, "an agent id", "resolve_member", resolve("claude:b"));
        rec.fails(&mut a, "ambiguous_recipient", "the beginning of two ids", "resolve_member", resolve("claude:"));
        rec.fails(&mut a, "unknown_recipient", "nobody", "resolve_member", resolve("zzzzzzzz"));
        rec.fails(&mut a, "unknown_recipient", "nearly somebody", "resolve_member", resolve("claude:d"));
        let nowhere = json!({"room_id": ABSENT_ID, "name": "ada"});
        rec.fails(&mut a, "room_not_found", "no such room", "resolve_member", nowhere);

        let policy = |policy: Value| json!({"room_id": room_id, "policy": policy});
        let all = json!({
            "owner_lease_ttl_ms": 2_700_000, "owner_activity_ttl_ms": 2_700_000, "heartbeat_interval_ms": 300_000,
            "claim_ttl_ms": 1_200_000, "presence_ttl_ms": 14_400_000, "waiter_grace_ms": 10_000,
            "idle_room_ttl_ms": 604_800_000, "wait_max_ms": 110_000, "ask_expiry_ms": 300_000, "message_timeout_ms": 0,
            "busy_doubt_ms": 600_000, "confirm_within_ms": 10_000, "pull_grace_ms": 45_000, "agents_may_break": false, "max_batch": 10, "max_wakes": 20, "ways": "all", "guard": "enforce"
        });
        rec.succeeds(&mut a, "every key", "set_room_policy", policy(all));
        rec.succeeds(&mut a, "one key, null for another", "set_room_policy", policy(json!({"claim_ttl_ms": null})));
        rec.exchange(&mut a, "an unknown key", "set_room_policy", Some(policy(json!({"claim_tll_ms": 1}))));
        rec.exchange(&mut a, "an unknown way", "set_room_policy", Some(policy(json!({"ways": "telepathy"}))));
        rec.exchange(&mut a, "zero", "set_room_policy", Some(policy(json!({"wait_max_ms": 0}))));
        rec.fails(&mut stranger, "unknown_member", "no member", "set_room_policy", policy(json!({})));
        let nowhere = json!({"room_id": ABSENT_ID, "policy": {}});
        rec.fails(&mut a, "room_not_found", "no such room", "set_room_policy", nowhere);
    }
}
