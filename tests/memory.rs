//! What clients can make the daemon keep in memory: whatever they ask for and do not read, it stays small, and gives back what
//! it took when they are gone.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use tt_proto::handoff::RawJson;
use tt_proto::requests::{DeleteRoom, ReleaseStick, WaitForTurn};
use tt_proto::turn::WaitStatus;
use tt_tests::member::fresh_key;
use tt_tests::{Home, LIMIT, Member, Wire, block_on, home, process};

/// The most memory of a daemon, in KiB, whatever its clients do.
const MOST: u64 = 64 * 1024;

/// How much larger than before a daemon may be, in KiB, once such a client has left.
const KEPT: u64 = 12 * 1024;

/// A daemon and the room in its database, whose log has a page as long as one can be.
struct Scene {
    home: Home,
    daemon: u32,
    room: String,
    /// The events of the log.
    events: usize,
    before: u64,
}

impl Scene {
    fn new() -> Self {
        let home = home!();
        let daemon = home.start();
        let (room, events) = block_on(fill(&home));
        Self { before: process::memory(daemon).unwrap(), home, daemon, room, events }
    }

    fn socket(&self) -> PathBuf {
        self.home.paths().socket
    }

    fn greeted(&self, agent: &str) -> Wire {
        greeted(&self.home, agent)
    }

    /// The daemon still serves others, and never had more memory than it may.
    #[track_caller]
    fn is_small(&self) {
        self.home.run(&["--no-autostart", "whoami"]).ok();
        assert_eq!(self.home.daemon(), Some(self.daemon));
        let peak = process::peak_memory(self.daemon).unwrap();
        assert!(peak < MOST, "{peak} KiB");
    }

    /// The memory is given back once the clients have gone.
    #[track_caller]
    fn is_back(&self) {
        let started = Instant::now();
        while process::memory(self.daemon).unwrap() > self.before + KEPT {
            let now = process::memory(self.daemon).unwrap();
            assert!(started.elapsed() < LIMIT, "{} KiB before and {now} KiB after", self.before);
            self.home.run(&["--no-autostart", "whoami"]).ok();
        }
    }
}

/// A connection that was greeted.
fn greeted(home: &Home, agent: &str) -> Wire {
    let mut wire = Wire::upgraded(&home.paths().socket);
    let signals = json!({ "env": { "TT_HARNESS_AGENT_ID": agent } });
    wire.text(&call("hello", json!({ "hello": { "protocol": 1, "version": "0", "signals": signals } })));
    assert!(wire.answer().contains("\"result\""));
    wire
}

fn call(method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Messages that nearly fill a page, then handoffs as long as they may be.
async fn fill(home: &Home) -> (String, usize) {
    let mut a = Member::join(home, "a").await;
    for _ in 0..60 {
        a.say(None, &"x".repeat(4096)).await;
    }
    for _ in 0..12 {
        let turn = a.claim().await;
        let handoff = json!({ "status": "s", "next_action": "n", "more": "x".repeat(65_000) }).to_string();
        let handoff = RawJson::parse(handoff).unwrap();
        let release = |room_id| ReleaseStick {
            room_id,
            lease_id: turn.lease.clone(),
            expected_turn_id: turn.id,
            handoff,
            idempotency_key: fresh_key(),
        };
        a.call(release).await;
    }
    (a.room.to_string(), a.log(0).await.len())
}

#[test]
fn pages_that_nobody_reads_are_made_one_at_a_time() {
    const PAGES: usize = 300;
    let scene = Scene::new();
    let mut wire = scene.greeted("b");
    let params = json!({ "room_id": scene.room, "after_event_seq": 0, "limit": 1000, "target_agent_id": "any" });
    let request = call("get_room_events", params);
    let mut sender = wire.second();
    let sending = std::thread::spawn(move || (0..PAGES).all(|_| sender.text(&request)));
    // The first page has come, and the daemon is at the others.
    let first = wire.answer();
    assert!(first.len() > 200_000, "{}", first.len());
    for _ in 0..10 {
        scene.is_small();
    }
    for _ in 1..PAGES {
        assert_eq!(wire.answer().len(), first.len());
    }
    assert!(sending.join().unwrap());
    scene.is_small();
    drop(wire);
    scene.is_back();
}

#[test]
fn subscriptions_that_nobody_reads_stand_still() {
    const SUBSCRIPTIONS: usize = 32;
    let scene = Scene::new();
    let mut wire = scene.greeted("b");
    let params = json!({ "room_id": scene.room, "after_event_seq": 0, "target_agent_id": "any" });
    for _ in 0..SUBSCRIPTIONS {
        assert!(wire.text(&call("subscribe_events", params.clone())));
    }
    let mut events = 0;
    let mut accepted = 0;
    while accepted < SUBSCRIPTIONS {
        match wire.answer() {
            event if event.contains("\"method\":\"event\"") => events += 1,
            answer => accepted += usize::from(answer.contains("\"result\"")),
        }
    }
    for _ in 0..10 {
        scene.is_small();
    }
    while events < SUBSCRIPTIONS * scene.events {
        assert!(wire.answer().contains("\"method\":\"event\""));
        events += 1;
    }
    scene.is_small();
    drop(wire);
    scene.is_back();
}

#[test]
fn many_connections_with_many_subscriptions_are_bounded_together() {
    let scene = Scene::new();
    let params = json!({ "room_id": scene.room, "after_event_seq": 0, "target_agent_id": "any" });
    let subscribe = call("subscribe_events", params);
    let mut open = Vec::new();
    for n in 0..400 {
        let mut wire = scene.greeted(&format!("b:{n}"));
        for _ in 0..32 {
            wire.text(&subscribe);
        }
        open.push(wire);
        if n % 40 == 0 {
            scene.is_small();
        }
    }
    // What a follower of good behaviour has to do with it: nothing.
    let read = scene.home.tt_as("a", &["events", "--limit", "1", "--json"]).output().unwrap();
    assert!(read.status.success(), "{read:?}");
    scene.is_small();
    drop(open);
    scene.is_back();
}

#[test]
fn large_greetings_are_read_a_few_at_a_time() {
    let scene = Scene::new();
    let socket = scene.socket();
    let greet = |n: usize| {
        let socket = socket.clone();
        std::thread::spawn(move || {
            let mut wire = Wire::upgraded(&socket);
            let padding = "x".repeat(1_000_000);
            // What is kept of a greeting has a limit; what is not known is not kept and does no harm.
            let (hello, expected) = if n.is_multiple_of(2) {
                (json!({ "protocol": 1, "version": "0", "signals": { "env": { "X": padding } } }), "invalid_input")
            } else {
                (json!({ "protocol": 1, "version": "0", "unknown": padding }), "\"result\"")
            };
            assert!(wire.text(&call("hello", json!({ "hello": hello }))));
            let answer = wire.answer();
            assert!(answer.contains(expected), "{}", answer.chars().take(200).collect::<String>());
            wire
        })
    };
    let greetings: Vec<_> = (0..500).map(greet).collect();
    scene.is_small();
    let open: Vec<Wire> = greetings.into_iter().map(|greeting| greeting.join().unwrap()).collect();
    scene.is_small();
    drop(open);
    scene.is_back();
}

#[test]
fn refused_calls_about_rooms_that_do_not_exist_leave_nothing() {
    const CALLS: usize = 100_000;
    // So few that the subscriptions among them are never too many.
    const AT_ONCE: usize = 40;
    let home = home!();
    home.start();
    let remembered = || home.status()["remembered"].as_u64().unwrap();
    let mut wire = greeted(&home, "b");
    let before = remembered();
    let request = |n: usize| {
        // As long as an id may be.
        let room_id = format!("{n:0256}");
        match n % 4 {
            0 => call("wait_for_turn", json!({ "room_id": room_id, "include_events": true, "joins": true })),
            1 => call("wait_for_events", json!({ "room_id": room_id })),
            2 => call("subscribe_events", json!({ "room_id": room_id })),
            _ => call("take_messages", json!({ "room_id": room_id, "surface": "recv", "max_wait_ms": 1000 })),
        }
    };
    for some in 0..CALLS / AT_ONCE {
        assert!((0..AT_ONCE).all(|n| wire.text(&request(some * AT_ONCE + n))));
        for _ in 0..AT_ONCE {
            let answer = wire.answer();
            assert!(answer.contains("room_not_found"), "{answer}");
        }
    }
    assert_eq!(remembered(), before);
}

#[test]
fn nothing_is_kept_of_a_room_that_was_deleted() {
    let home = home!();
    home.start();
    let remembered = || home.status()["remembered"].as_u64().unwrap();
    let before = remembered();
    block_on(async {
        for n in 0..20 {
            let path = home.path().join(format!("room {n}"));
            std::fs::create_dir(&path).unwrap();
            let member = Member::join_at(home.settings_of("a"), path.to_str().unwrap()).await;
            // It is told who joined and left, up to here.
            let wait = WaitForTurn {
                room_id: member.room.clone(),
                include_events: Some(true),
                max_wait_ms: Some(0),
                ..Default::default()
            };
            member.rpc().call(wait).await.unwrap();
            assert!(remembered() > before);
            let wait = WaitForTurn { room_id: member.room.clone(), max_wait_ms: Some(60_000), ..Default::default() };
            let delete_once_it_waits = async {
                while !member.state().await.members.iter().any(|member| member.waiting) {}
                member.rpc().call(DeleteRoom { room_id: member.room.clone(), idempotency_key: None }).await.unwrap();
            };
            let (ended, ()) = tokio::join!(member.rpc().call(wait), delete_once_it_waits);
            assert_eq!(ended.unwrap().status, WaitStatus::Removed);
        }
    });
    assert_eq!(remembered(), before);
}
