//! The wire, pinned: every method with an answer and its typical errors, every event type and every error code, as JSON.
//!
//! A daemon in this process is driven with raw JSON, so that the files in `tests/golden/` hold what other programs see, and
//! not what our own types make of it. The wording of messages and hints is free. After an intended change:
//!
//! ```text
//! ACCEPT_GOLDEN=1 cargo test --test golden && git diff tests/golden
//! ```
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod deliveries;
mod events;
mod messages;
mod rooms;
mod sessions;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tt_proto::ErrorCode;
use tt_proto::event::EventType;
use tt_proto::requests::{Field, METHODS, STREAMS};
use tt_tests::golden::{Caller, Recorder};
use tt_tests::{Cast, Home, InProcess, LIMIT, Wire, home};
use ttd::clock::Clock;

/// Every method by name, with the parameters it cannot do without.
fn methods() -> Vec<(&'static str, Vec<&'static str>)> {
    let required = |fields: &'static [Field]| -> Vec<&'static str> {
        fields.iter().filter(|field| field.required).map(|field| field.name).collect()
    };
    let methods = METHODS.iter().map(|method| (method.name, required(method.fields)));
    let streams = STREAMS
        .iter()
        .flat_map(|stream| [(stream.subscribe, required(stream.fields)), (stream.unsubscribe, vec!["subscription"])]);
    methods.chain(streams).collect()
}

/// Where exchanges that belong to no method are kept.
const OTHER: &str = "protocol";

const ABSENT_ID: &str = "0190b0a0-0000-7000-8000-000000000000";

#[test]
fn the_wire_is_what_the_golden_files_say() {
    let recorder = Script::new(home!()).run();
    let all = methods().into_iter().map(|(name, _)| name);
    let missing: Vec<&str> = all.filter(|name| !recorder.answered_methods().contains(name)).collect();
    assert!(missing.is_empty(), "methods without a recorded answer: {missing:?}");
    let all = EventType::ALL.iter().map(|event_type| event_type.as_str());
    let missing: Vec<&str> = all.filter(|name| !recorder.event_types().contains(name)).collect();
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
        self.deliveries();
        self.notes();
        self.events();
        self.turns();
        self.takeovers();
        self.departures();
        self.sessions();
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
        for (method, required) in methods() {
            if method == "daemon_stop" {
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
