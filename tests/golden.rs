//! The wire, pinned: every method with an answer and its typical errors, every event type and every error code, as JSON.
//!
//! A daemon in this process is driven with raw JSON, so that the files in `tests/golden/` hold what other programs see, and
//! not what our own types make of it. The wording of messages and hints is free. After an intended change:
//!
//! ```text
//! ACCEPT_GOLDEN=1 cargo test --test golden && git diff tests/golden
//! ```
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tt_proto::ErrorCode;
use tt_tests::golden::{Caller, Recorder};
use tt_tests::{Cast, Home, InProcess, LIMIT, Wire, home};
use ttd::clock::Clock;

/// Every method, with the parameters it cannot do without.
const METHODS: &[(&str, &[&str])] = &[
    ("hello", &["hello"]),
    ("whoami", &[]),
    ("daemon_status", &[]),
    ("daemon_stop", &[]),
    ("join_path", &["context_path"]),
    ("leave_room", &["room_id"]),
    ("kick_member", &["room_id", "target_agent_id"]),
    ("list_rooms", &[]),
    ("get_room_state", &["room_id"]),
    ("resolve_member", &["room_id", "name"]),
    ("set_room_policy", &["room_id", "policy"]),
    ("get_room_events", &["room_id"]),
    ("wait_for_events", &["room_id"]),
    ("subscribe_events", &["room_id"]),
    ("unsubscribe_events", &["subscription"]),
    ("send_message", &["room_id", "body"]),
    ("list_inbox", &[]),
    ("take_messages", &["room_id", "surface"]),
    ("return_messages", &["room_id", "event_seqs"]),
    ("confirm_messages", &["room_id", "surface", "event_seqs"]),
    ("wait_for_turn", &["room_id"]),
    ("heartbeat", &["room_id", "lease_id", "expected_turn_id"]),
    ("release_stick", &["room_id", "lease_id", "expected_turn_id", "handoff"]),
    ("pass_stick", &["room_id", "lease_id", "expected_turn_id", "to_agent_id", "handoff"]),
    ("takeover_stick", &["room_id", "expected_turn_id", "reason"]),
    ("add_note", &["room_id", "body"]),
    ("list_notes", &["room_id"]),
    ("resolve_note", &["room_id", "note_id"]),
];

const EVENT_TYPES: &[&str] = &[
    "claim",
    "release",
    "pass",
    "takeover",
    "close",
    "kick",
    "message_sent",
    "member_joined",
    "member_left",
    "note_added",
    "note_resolved",
    "reservation_expired",
];

/// Where exchanges that belong to no method are kept.
const OTHER: &str = "protocol";

const ABSENT_ID: &str = "0190b0a0-0000-7000-8000-000000000000";

#[test]
fn the_wire_is_what_the_golden_files_say() {
    let recorder = Script::new(home!()).run();
    let all: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
    let missing: Vec<&str> = all.iter().copied().filter(|name| !recorder.answered_methods().contains(name)).collect();
    assert!(missing.is_empty(), "methods without a recorded answer: {missing:?}");
    let missing: Vec<&str> =
        EVENT_TYPES.iter().copied().filter(|name| !recorder.event_types().contains(name)).collect();
    assert!(missing.is_empty(), "event types without a recorded event: {missing:?}");
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    recorder.check(&dir, ErrorCode::ALL.iter().map(|code| code.as_str()));
}

/// A daemon, the callers that have said hello to it, and what was recorded.
struct Script {
    recorder: Recorder,
    home: Home,
    clock: Clock,
    cast: Arc<Cast>,
    daemon: InProcess,
}

impl Script {
    fn new(home: Home) -> Self {
        let cast = Arc::new(Cast::default());
        let mut options = home.options();
        options.processes = cast.clone();
        let clock = options.clock.clone();
        Self { recorder: Recorder::default(), daemon: InProcess::start(options), clock, cast, home }
    }

    fn run(mut self) -> Recorder {
        self.greetings();
        self.malformed_requests();
        self.rooms();
        self.messages();
        self.listening_recipient();
        self.notes();
        self.events();
        self.turns();
        self.takeovers();
        self.departures();
        self.missing_parameters();
        self.stopping();
        self.closed_room();
        self.recorder
    }

    fn connect(&self) -> Caller {
        Caller::connect(&self.home.paths().socket)
    }

    /// A connection that has said hello as this agent. The process of an agent is the player of its last letter.
    fn agent(&self, agent_id: &str) -> Caller {
        let mut caller = self.connect();
        caller.send("hello", Some(json!({"hello": greeting(agent_id)})));
        let answer = caller.receive();
        assert_eq!(answer["result"]["identity"]["agent_id"], agent_id, "{answer}");
        caller
    }

    fn directory(&self, name: &str) -> PathBuf {
        let dir = self.home.path().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// An agent in the room of a directory, and the room's id.
    fn member(&self, agent_id: &str, directory: &str) -> (Caller, Value) {
        let mut caller = self.agent(agent_id);
        caller.send("join_path", Some(json!({"context_path": self.directory(directory)})));
        let answer = caller.receive();
        assert!(answer["result"]["room_id"].is_string(), "{answer}");
        let room_id = answer["result"]["room_id"].clone();
        (caller, room_id)
    }

    fn greetings(&mut self) {
        let dir = self.directory("greetings");
        let mut caller = self.connect();
        let rec = &mut self.recorder;
        rec.fails(&mut caller, "agent_id_required", "before hello", "whoami", json!({}));
        rec.fails(&mut caller, "agent_id_required", "before hello", "get_room_state", json!({"room_id": ABSENT_ID}));
        let mut other = greeting("claude:a");
        other["protocol"] = 99.into();
        rec.fails(&mut caller, "protocol_mismatch", "a newer protocol", "hello", json!({"hello": other}));
        let mut bad = greeting("claude:a");
        bad["signals"]["env"]["TT_HARNESS_AGENT_ID"] = "no spaces, please".into();
        rec.fails(&mut caller, "invalid_input", "an id that is none", "hello", json!({"hello": bad}));
        let mut full = greeting("claude:a");
        full["context_path"] = json!(dir);
        full["signals"]["client_info"] = "claude-code".into();
        full["signals"]["session_id"] = "7".into();
        rec.succeeds(&mut caller, "all fields, a path without a room", "hello", json!({"hello": full}));
        rec.fails(&mut caller, "room_not_found", "here, without a room", "get_room_state", json!({"room_id": "here"}));
        let another = greeting("claude:b");
        rec.fails(&mut caller, "invalid_input", "another identity", "hello", json!({"hello": another}));
        rec.succeeds(&mut caller, "with a process", "whoami", json!({}));
        rec.succeeds(&mut caller, "explained", "whoami", json!({"explain": true}));
        rec.succeeds(&mut caller, "null", "whoami", json!({"explain": null}));
        rec.succeeds(&mut caller, "an unknown parameter", "whoami", json!({"colour": "red"}));
        rec.succeeds(&mut caller, "empty", "daemon_status", json!({}));
        let (_, _) = self.member("claude:a", "greetings");
        let rec = &mut self.recorder;
        let mut caller = Caller::connect(&self.home.paths().socket);
        let mut here = greeting("claude:a");
        here["context_path"] = json!(dir);
        here["cwd"] = json!(dir);
        rec.succeeds(&mut caller, "a path with a room", "hello", json!({"hello": here}));
        rec.succeeds(&mut caller, "here", "get_room_state", json!({"room_id": "here"}));
        let mut caller = Caller::connect(&self.home.paths().socket);
        let least = json!({"protocol": 1, "version": "0.0.0", "signals": {"env": {"TT_HARNESS_AGENT_ID": "plain"}}});
        rec.succeeds(&mut caller, "no process, least fields", "hello", json!({"hello": least}));
        rec.succeeds(&mut caller, "without a process", "whoami", json!({}));
        rec.fails(&mut caller, "invalid_input", "here, without a path", "get_room_state", json!({"room_id": "here"}));
        self.batches(&dir);
    }

    /// A short command sends its greeting and its call in one HTTP request.
    fn batches(&mut self, dir: &Path) {
        let mut hello = greeting("claude:a");
        hello["context_path"] = json!(dir);
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "hello", "params": {"hello": hello}});
        let send = json!({"jsonrpc": "2.0", "id": 1, "method": "send_message", "params": {
            "room_id": "here", "body": "to nobody", "to_agent_id": null, "to": null, "delivery_hint": null,
            "idempotency_key": "batch"
        }});
        let leave = json!({"jsonrpc": "2.0", "id": 1, "method": "get_room_state", "params": {"room_id": ABSENT_ID}});
        let cases = [
            ("hello and a call", json!([hello, send])),
            ("hello and a call that fails", json!([hello, leave])),
            ("a call before hello", json!([send, hello])),
            ("three calls", json!([hello, send, send])),
            ("no call", json!([])),
            ("one call by itself", hello.clone()),
        ];
        for (case, request) in cases {
            let answer = Wire::connect(&self.home.paths().socket).post(&request.to_string());
            self.recorder.keep(OTHER, &format!("HTTP: {case}"), request, &answer);
        }
    }

    fn malformed_requests(&mut self) {
        let mut caller = self.agent("claude:a");
        let rec = &mut self.recorder;
        let request = caller.send("grow_wings", Some(json!({})));
        rec.keep(OTHER, "an unknown method", request, &caller.receive());
        for (case, text) in [
            ("not JSON", "{\"jsonrpc\": "),
            ("not a request", "7"),
            ("no version", r#"{"id": 1, "method": "whoami"}"#),
            ("no method", r#"{"jsonrpc": "2.0", "id": 1}"#),
        ] {
            caller.send_text(text);
            let answer = caller.receive();
            rec.keep(OTHER, case, Value::String(text.into()), &answer);
        }
    }

    /// Each method without its parameters, in every way in which they can be left out, or with the wrong kind of value.
    fn missing_parameters(&mut self) {
        let mut caller = self.agent("claude:a");
        for (method, required) in METHODS {
            if *method == "daemon_stop" {
                continue;
            }
            let rec = &mut self.recorder;
            rec.exchange(&mut caller, "no parameters", method, None);
            rec.exchange(&mut caller, "null parameters", method, Some(Value::Null));
            if let Some(first) = required.first() {
                rec.exchange(&mut caller, "empty parameters", method, Some(json!({})));
                rec.exchange(&mut caller, "a wrong type", method, Some(json!({(*first): [7]})));
            }
        }
    }

    fn rooms(&mut self) {
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
            "idle_room_ttl_ms": 604_800_000, "wait_max_ms": 110_000
        });
        rec.succeeds(&mut a, "every key", "set_room_policy", policy(all));
        rec.succeeds(&mut a, "one key, null for another", "set_room_policy", policy(json!({"claim_ttl_ms": null})));
        rec.exchange(&mut a, "an unknown key", "set_room_policy", Some(policy(json!({"claim_tll_ms": 1}))));
        rec.exchange(&mut a, "zero", "set_room_policy", Some(policy(json!({"wait_max_ms": 0}))));
        rec.fails(&mut stranger, "unknown_member", "no member", "set_room_policy", policy(json!({})));
        let nowhere = json!({"room_id": ABSENT_ID, "policy": {}});
        rec.fails(&mut a, "room_not_found", "no such room", "set_room_policy", nowhere);
    }

    fn messages(&mut self) {
        let (mut a, room_id) = self.member("claude:a", "mail");
        let (mut b, _) = self.member("claude:b", "mail");
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

        let skipped = json!({"skipped": 1, "from_seq": first["event_seq"], "to_seq": first["event_seq"]});
        let confirm = |surface: &str, room_id: &Value| {
            json!({
                "room_id": room_id, "surface": surface, "event_seqs": [last["event_seq"]], "skipped": skipped,
                "from_agent_id": null
            })
        };
        rec.succeeds(&mut b, "one shown, one skipped", "confirm_messages", confirm("recv", &room_id));
        rec.succeeds(&mut b, "again", "confirm_messages", confirm("recv", &room_id));
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
    fn listening_recipient(&mut self) {
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

    fn notes(&mut self) {
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

    fn events(&mut self) {
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
        a.send("leave_room", Some(json!({"room_id": room_id})));
        assert_eq!(a.receive()["result"]["status"], "room_deleted");
        rec.keep_item(SUBSCRIBE, "the room is deleted", &follower.receive());
    }

    fn turns(&mut self) {
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

    fn takeovers(&mut self) {
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

    fn departures(&mut self) {
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
        let mut forced = kick("claude:e");
        forced.as_object_mut().unwrap().extend(
            json!({"force": true, "reason": "it sleeps", "idempotency_key": "kick"}).as_object().cloned().unwrap(),
        );
        rec.succeeds(&mut d, "the holder, by force", "kick_member", forced.clone());
        rec.succeeds(&mut d, "the same key again", "kick_member", forced);
        let mut nulls = kick("claude:f");
        nulls
            .as_object_mut()
            .unwrap()
            .extend(json!({"force": true, "reason": null, "idempotency_key": null}).as_object().cloned().unwrap());
        rec.succeeds(&mut d, "one who waits, nulls", "kick_member", nulls);
        let removed = f.receive();
        assert_eq!(removed["result"]["status"], "removed", "{removed}");
        rec.keep("wait_for_turn", "kicked while waiting", request, &removed);
        let gone = json!({"room_id": room_id, "to": "claude:f", "body": "where are you?"});
        rec.succeeds(&mut d, "to one who was kicked", "send_message", gone);

        let (mut g, _) = self.member("claude:g", "departures");
        let rec = &mut self.recorder;
        let leave = json!({"room_id": room_id, "idempotency_key": "leave"});
        rec.succeeds(&mut g, "others stay", "leave_room", leave.clone());
        rec.succeeds(&mut g, "the same key again", "leave_room", leave);
        rec.fails(&mut stranger, "unknown_member", "no member", "leave_room", json!({"room_id": room_id}));
        let log = json!({"room_id": room_id, "limit": 1000});
        rec.succeeds(&mut d, "who came and went", "get_room_events", log);
        let nulls = json!({"room_id": room_id, "idempotency_key": null});
        rec.succeeds(&mut d, "the last one, null", "leave_room", nulls);
        rec.fails(&mut d, "room_not_found", "no such room", "leave_room", json!({"room_id": room_id}));
        let log = json!({"room_id": self.member("claude:b", "takeovers").1, "limit": 1000});
        let mut reader = self.agent("claude:b");
        self.recorder.succeeds(&mut reader, "a room with takeovers", "get_room_events", log);
        let log = json!({"room_id": self.member("claude:b", "turns").1, "limit": 1000});
        await_exit(&mut reader, &log["room_id"]);
        self.recorder.succeeds(&mut reader, "a room with turns", "get_room_events", log);
    }

    /// What callers that wait are told when the daemon stops.
    fn stopping(&mut self) {
        let (mut follower, room_id) = self.member("claude:h", "stopping");
        let (mut waiter, _) = self.member("claude:i", "stopping");
        let rec = &mut self.recorder;
        let here = json!({"room_id": room_id});
        rec.succeeds(&mut follower, "until the daemon stops", "subscribe_events", here);
        let wait = json!({"room_id": room_id, "max_wait_ms": 60_000, "park": true});
        let request = waiter.send("wait_for_turn", Some(wait.clone()));
        waiter.send("wait_for_turn", Some(wait));
        assert_eq!(waiter.receive()["error"]["data"]["error"], "duplicate_listener");
        let mut caller = self.agent("claude:j");
        let rec = &mut self.recorder;
        rec.succeeds(&mut caller, "empty", "daemon_stop", json!({}));
        let refusal = waiter.receive();
        assert_eq!(refusal["error"]["data"]["error"], "daemon_unreachable", "{refusal}");
        rec.keep("wait_for_turn", "daemon_unreachable: the daemon stops", request, &refusal);
        // The connection may be closed before this item is written, so it is checked here and has no place in the files.
        if let Some(item) = follower.receive_unless_closed() {
            assert_eq!(item["params"]["result"]["resync"], json!({"reason": "stopping"}), "{item}");
        }
        assert!(self.daemon.ended_within(LIMIT));
    }

    /// Rooms are closed by 0.1.x alone.
    fn closed_room(&mut self) {
        let database = rusqlite::Connection::open(self.home.paths().database()).unwrap();
        let room_id: String = database
            .query_row("SELECT room_id FROM path_rooms WHERE canonical_path LIKE '%/stopping'", [], |row| row.get(0))
            .unwrap();
        database.execute("UPDATE path_rooms SET state = 'closed' WHERE room_id = ?1", [&room_id]).unwrap();
        let close =
            "INSERT INTO room_events (event_id, room_id, turn_id, event_type, from_agent_id, reason, created_at)
            VALUES (?1, ?2, 0, 'close', 'claude:h', 'done', '2026-01-01T00:00:00.000Z')";
        database.execute(close, [ABSENT_ID, &room_id]).unwrap();
        drop(database);
        let mut options = self.home.options();
        options.processes = self.cast.clone();
        self.daemon = InProcess::start(options);
        let mut caller = self.agent("claude:h");
        let rec = &mut self.recorder;
        let case = "a closed room";
        let path = json!({"context_path": self.home.path().join("stopping")});
        rec.fails(&mut caller, "room_closed", case, "join_path", path);
        let send = json!({"room_id": room_id, "body": "x"});
        rec.fails(&mut caller, "room_closed", case, "send_message", send.clone());
        rec.fails(&mut caller, "room_closed", case, "add_note", send);
        rec.succeeds(&mut caller, case, "wait_for_turn", json!({"room_id": room_id}));
        rec.succeeds(&mut caller, case, "get_room_state", json!({"room_id": room_id}));
        rec.succeeds(&mut caller, case, "get_room_events", json!({"room_id": room_id, "event_type": "close"}));
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

fn greeting(agent_id: &str) -> Value {
    json!({
        "protocol": tt_proto::PROTOCOL,
        "version": tt_proto::VERSION,
        "capabilities": ["rooms"],
        "signals": {"env": {
            "TT_HARNESS_AGENT_ID": agent_id, "CLAUDECODE": "1", "CLAUDE_PID": player(agent_id).to_string()
        }},
        "cwd": null,
        "context_path": null
    })
}

/// The process of an agent, by its last letter.
fn player(agent_id: &str) -> u32 {
    Cast::player(usize::from(agent_id.bytes().last().unwrap() - b'a'))
}
