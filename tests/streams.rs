//! Streams of events: nothing lost, nothing out of order, nothing twice, whoever joins, leaves, stalls, comes back or is
//! killed; and whoever only looks on changes nothing.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tt_client::connect::Client;
use tt_proto::WallTime;
use tt_proto::event::{Event, EventType};
use tt_proto::filter::OneOrMany;
use tt_proto::requests::{
    ConfirmMessages, EventItem, GetRoomEvents, RoomState, SendMessage, Sent, SubscribeEvents, WaitForEvents,
    WaitForTurn,
};
use tt_tests::home::send;
use tt_tests::member::fresh_key;
use tt_tests::{Home, InProcess, LIMIT, Lines, Member, Running, Wire, block_on, home, process, run};

const KILLS: usize = 20;
/// What is acknowledged between two kills, at least.
const BETWEEN_KILLS: usize = 12;
const LAST: &str = "this was the last message";

fn body(event: &Event) -> String {
    let payload: Value = serde_json::from_str(event.payload.as_ref().unwrap().as_str()).unwrap();
    payload["body"].as_str().unwrap().to_owned()
}

fn is_last(event: &Event) -> bool {
    event.event_type == EventType::MessageSent && body(event) == LAST
}

/// Collects a stream as its reader sees it, dropping what it has had already.
#[derive(Default)]
struct Stream {
    events: Vec<Event>,
    ids: HashSet<String>,
    cursor: i64,
}

impl Stream {
    /// Takes an item of one subscription, whose numbers may only go up.
    fn take(&mut self, item: EventItem, last_seq: &mut i64) -> bool {
        let Some(event) = item.event else { return false };
        assert!(event.event_seq > *last_seq, "{} came after {last_seq}", event.event_seq);
        assert_eq!(item.cursor_event_seq, event.event_seq);
        (*last_seq, self.cursor) = (event.event_seq, event.event_seq);
        let last = is_last(&event);
        if self.ids.insert(event.event_id.to_string()) {
            self.events.push(event);
        }
        last
    }

    /// Reads until the last message, coming back by cursor whenever the stream breaks off, and leaving it by itself after
    /// every `stay` items.
    async fn follow(mut self, home: &Home, agent: &str, stay: usize) -> Vec<Event> {
        let mut member = Member::join(home, agent).await;
        loop {
            let cursor = self.cursor;
            let subscribe = |room_id| SubscribeEvents {
                room_id,
                after_event_seq: Some(cursor),
                target_agent_id: Some("any".into()),
                ..Default::default()
            };
            let mut items = member.subscribe(subscribe).await;
            let mut last_seq = cursor;
            let mut taken = 0;
            while let Some(Ok(item)) = items.next().await {
                if self.take(item, &mut last_seq) {
                    return self.events;
                }
                taken += 1;
                if taken == stay {
                    break;
                }
            }
        }
    }
}

/// Says one thing after another as fast as it is acknowledged.
async fn write_on(
    home: &Home,
    agent: &str,
    to: Option<&str>,
    on: &AtomicBool,
    said: Sender<()>,
) -> Vec<(String, Sent)> {
    let mut member = Member::join(home, agent).await;
    let mut acknowledged = Vec::new();
    while on.load(Ordering::Acquire) {
        let body = format!("{agent} {}", acknowledged.len());
        let sent = member.say(to, &body).await;
        acknowledged.push((body, sent));
        let _ = said.send(());
    }
    acknowledged
}

/// A follower as a process, and the lines it wrote so far.
fn follower(home: &Home, agent: &str) -> (Running, Lines) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = home.tt_as(agent, &["msg", "recv", "--follow", "--max-replay", "1000000"]);
    (Running::writing_to(&mut command, writer), Lines::of(reader))
}

#[test]
fn twenty_kills_of_the_daemon_cost_nobody_an_event_and_nobody_sees_one_twice() {
    let home = home!();
    home.workspace();
    // Everybody is a member before the first message, so that each one is addressed to them.
    let on = AtomicBool::new(true);
    let (said, heard) = mpsc::channel();
    let (steady, mut unsteady) = block_on(async {
        for agent in ["steady", "killed", "writer:1", "writer:2", "writer:3", "reader:1", "reader:2", "reader:3"] {
            Member::join(&home, agent).await;
        }
        (follower(&home, "steady"), vec![follower(&home, "killed")])
    });
    let (streams, acknowledged, last) = std::thread::scope(|scope| {
        let readers = [("reader:1", usize::MAX), ("reader:2", 7), ("reader:3", 1)].map(|(agent, stay)| {
            scope.spawn({
                let home = &home;
                move || block_on(Stream::default().follow(home, agent, stay))
            })
        });
        let writers =
            [("writer:1", None), ("writer:2", Some("steady")), ("writer:3", Some("killed"))].map(|(agent, to)| {
                scope.spawn({
                    let (home, on, said) = (&home, &on, said.clone());
                    move || block_on(write_on(home, agent, to, on, said))
                })
            });
        for _ in 0..KILLS {
            // More than one for each writer: some come from the daemon that runs now.
            let _ = heard.try_iter().count();
            for _ in 0..BETWEEN_KILLS {
                assert_eq!(heard.recv_timeout(LIMIT), Ok(()), "the writers gave up");
            }
            assert!(!writers.iter().any(|writer| writer.is_finished()), "a writer gave up");
            // The follower goes first, so that what it held goes back to a daemon that lives; then the daemon.
            unsteady.last().unwrap().0.signal(Signal::SIGKILL);
            unsteady.push(follower(&home, "killed"));
            send(home.daemon().unwrap(), Signal::SIGKILL);
        }
        on.store(false, Ordering::Release);
        let acknowledged: Vec<Vec<(String, Sent)>> = writers.map(|writer| writer.join().unwrap()).into();
        let last = block_on(async { Member::join(&home, "writer:1").await.say(None, LAST).await });
        (readers.map(|reader| reader.join().unwrap()), acknowledged, last)
    });

    let log = block_on(async { Member::join(&home, "writer:1").await.log(0).await });
    let end = log.iter().position(|event| event.event_seq == last.event_seq).unwrap();
    for (reader, stream) in streams.iter().enumerate() {
        assert_eq!(stream.as_slice(), &log[..=end], "reader {reader}");
    }
    let said: Vec<&(String, Sent)> = acknowledged.iter().flatten().collect();
    assert!(said.len() >= KILLS * BETWEEN_KILLS);
    let messages: BTreeMap<i64, &Event> =
        log.iter().filter(|event| event.event_type == EventType::MessageSent).map(|e| (e.event_seq, e)).collect();
    for (text, sent) in &said {
        let event = messages.get(&sent.event_seq).unwrap_or_else(|| panic!("{text:?} was acknowledged and is lost"));
        assert_eq!((&event.event_id, &body(event)), (&sent.event_id, text));
    }
    assert_eq!(messages.len(), said.len() + 1, "a message repeated after a lost connection was said twice");

    let to = |agent: &str| -> Vec<i64> {
        let mine = |event: &&&Event| event.to_agent_id.as_ref().is_none_or(|to| to.as_str() == agent);
        messages.values().filter(mine).map(|event| event.event_seq).collect()
    };
    assert_eq!(read_to_the_end(&steady.1), to("steady"), "a follower that lives gets each message once, in order");
    // A follower that was killed may have shown what it could not confirm any more; the next one shows it again.
    let mut first_shown_by: BTreeMap<i64, usize> = BTreeMap::new();
    let alive = unsteady.len() - 1;
    for (nth, (running, lines)) in unsteady.into_iter().enumerate() {
        let seqs = if nth == alive { read_to_the_end(&lines) } else { seqs_of(&lines.all()) };
        assert_eq!(seqs.iter().collect::<BTreeSet<_>>().len(), seqs.len(), "follower {nth} showed a message twice");
        assert!(seqs.is_sorted(), "follower {nth}: {seqs:?}");
        for seq in seqs {
            first_shown_by.entry(seq).or_insert(nth);
        }
        drop(running);
    }
    assert_eq!(first_shown_by.keys().copied().collect::<Vec<_>>(), to("killed"));
}

fn seqs_of(lines: &[Value]) -> Vec<i64> {
    lines.iter().map(|line| line["event_seq"].as_i64().unwrap_or_else(|| panic!("{line}"))).collect()
}

/// What a follower shows up to the last message.
fn read_to_the_end(lines: &Lines) -> Vec<i64> {
    let mut all = Vec::new();
    loop {
        let line = lines.json();
        all.push(line["event_seq"].as_i64().unwrap_or_else(|| panic!("{line}")));
        if line["payload"]["body"] == LAST {
            return all;
        }
    }
}

/// A subscription made of bytes, so that the test decides when they are read.
struct RawSubscription(Wire);

impl RawSubscription {
    fn start(home: &Home, room_id: &str, agent: &str) -> Self {
        let mut wire = Wire::upgraded(&home.paths().socket);
        let hello = json!({"protocol": tt_proto::PROTOCOL, "version": tt_proto::VERSION, "capabilities": [],
            "signals": {"env": {"TT_HARNESS_AGENT_ID": agent}}, "cwd": null});
        wire.text(&json!({"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"hello": hello}}).to_string());
        let answer = wire.answer();
        assert!(answer.contains("\"result\""), "{answer}");
        let params = json!({"room_id": room_id, "after_event_seq": 0, "target_agent_id": "any"});
        wire.text(&json!({"jsonrpc": "2.0", "id": 2, "method": "subscribe_events", "params": params}).to_string());
        Self(wire)
    }

    fn event(&mut self) -> Event {
        loop {
            let message: Value = serde_json::from_str(&self.0.answer()).unwrap();
            if message["method"] == "event" {
                let item: EventItem = serde_json::from_value(message["params"]["result"].clone()).unwrap();
                return item.event.unwrap();
            }
        }
    }
}

#[test]
fn a_subscriber_that_stalls_costs_the_daemon_little_holds_nobody_up_and_misses_nothing() {
    const MESSAGES: usize = 3000;
    let home = home!();
    let daemon = home.start();
    let text = "x".repeat(1000);
    let mut room_id = String::new();
    block_on(async {
        room_id = Member::join(&home, "writer").await.room.to_string();
    });
    let mut stalled = RawSubscription::start(&home, &room_id, "stalled");
    assert_eq!(stalled.event().event_type, EventType::MemberJoined, "it is live");
    let before = process::memory(daemon).unwrap();
    std::thread::scope(|scope| {
        let home = &home;
        // Another one reads along at full speed; it only ends when it has had everything, the stalled one having had nothing.
        let reader = scope.spawn(move || block_on(Stream::default().follow(home, "reader", usize::MAX)));
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let text = text.clone();
                scope.spawn(move || {
                    block_on(async {
                        let mut writer = Member::join(home, &format!("writer:{n}")).await;
                        for _ in 0..MESSAGES / 8 {
                            writer.say(None, &text).await;
                        }
                    })
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        block_on(async { Member::join(home, "writer").await.say(None, LAST).await });
        reader.join().unwrap();
    });
    let grown = process::memory(daemon).unwrap().saturating_sub(before);
    // What it missed came to three megabytes and more; what is kept for it is a socket buffer and 64 + 256 events.
    assert!(grown < 24 * 1024, "the daemon grew by {grown} KiB");
    let log = block_on(async { Member::join(&home, "writer").await.log(0).await });
    let mut seen = vec![log[0].clone()];
    while !is_last(seen.last().unwrap()) {
        seen.push(stalled.event());
    }
    assert_eq!(seen.len(), log.iter().position(is_last).unwrap() + 1);
    assert!(seen.iter().zip(&log).all(|(seen, logged)| seen == logged));
}

#[test]
fn a_key_means_one_message_across_a_kill() {
    let home = home!();
    block_on(async {
        let mut member = Member::join(&home, "a").await;
        let key = fresh_key();
        let say =
            |room_id| SendMessage { room_id, body: "once".into(), idempotency_key: key.clone(), ..Default::default() };
        let first = member.call(say).await;
        home.kill_daemon();
        assert_eq!(member.call(say).await, first);
        let mut again = Member::join(&home, "a").await;
        assert_eq!(again.call(say).await, first, "on another connection too");
        let log = again.log(0).await;
        assert_eq!(log.iter().filter(|event| event.event_type == EventType::MessageSent).count(), 1);
        // The key is its owner's: another agent's message under the same key is its own.
        let mut other = Member::join(&home, "b").await;
        assert_ne!(other.call(say).await.event_seq, first.event_seq);
    });
}

#[test]
fn looking_on_changes_nothing() {
    let home = home!();
    let options = home.options();
    let clock = options.clock.clone();
    let _daemon = InProcess::start(options);
    block_on(async {
        let mut holder = Member::join(&home, "holder").await;
        let mut looker = Member::join(&home, "looker").await;
        holder
            .call(|room_id| WaitForTurn { room_id, max_wait_ms: Some(0), claim: Some(true), ..Default::default() })
            .await;
        looker
            .call(|room_id| WaitForTurn { room_id, max_wait_ms: Some(0), park: Some(true), ..Default::default() })
            .await;
        for member in [&mut looker, &mut holder] {
            member.say(Some("looker"), "unread").await;
            member.say(Some("holder"), "unread").await;
        }
        let witness = Member::join(&home, "witness").await;
        // From here on a sign of life would show as a later time.
        clock.advance(Duration::from_secs(60));
        let before = comparable(witness.state().await);
        // Both the holder, whose lease any activity would extend, and a member in the queue, each on a new connection too.
        for agent in ["holder", "looker"] {
            let mut client = Client::connect(home.settings_of(agent)).await.unwrap();
            for member in [&mut client, if agent == "holder" { &mut holder.client } else { &mut looker.client }] {
                let room = || witness.room.clone();
                let types = || Some(OneOrMany::One("message_sent".into()));
                member.call(GetRoomEvents { room_id: room(), ..Default::default() }).await.unwrap();
                let wait = |after_event_seq, max_wait_ms| WaitForEvents {
                    room_id: room(),
                    after_event_seq,
                    event_type: types(),
                    max_wait_ms,
                    ..Default::default()
                };
                assert!(!member.call(wait(Some(0), None)).await.unwrap().events.is_empty());
                assert!(member.call(wait(None, Some(1))).await.unwrap().events.is_empty());
                let subscribe = SubscribeEvents {
                    room_id: room(),
                    after_event_seq: Some(0),
                    target_agent_id: Some("any".into()),
                    ..Default::default()
                };
                let mut items = member.subscribe(subscribe).await.unwrap();
                assert!(items.next().await.unwrap().unwrap().event.is_some());
            }
        }
        let after = comparable(witness.state().await);
        assert_eq!(after.0, before.0);
        for (after, before) in after.1.iter().zip(&before.1) {
            assert!(after.since(*before) < Duration::from_secs(30), "{after} after {before}");
        }
    });
}

/// A state, and the times in it that a sign of life would change. They are times of day, reckoned anew for each answer and
/// so a millisecond apart.
fn comparable(mut state: RoomState) -> (RoomState, Vec<WallTime>) {
    let mut times = vec![state.room.lease_expires_at.take().unwrap()];
    for member in &mut state.members {
        times.extend(member.last_seen_at);
        member.last_seen_at = None;
    }
    (state, times)
}

#[test]
fn the_filters_mean_the_same_in_pages_waits_and_subscriptions() {
    let home = home!();
    let seed = 0x5eed;
    let room_id = block_on(async {
        let mut options = home.options();
        options.idle_exit = None;
        let daemon = InProcess::start(options);
        let member = Member::join(&home, "a").await;
        daemon.stop();
        assert!(daemon.ended_within(LIMIT));
        member.room
    });
    fill_log(&home, room_id.as_str(), seed);
    let _daemon = InProcess::start(home.options());
    block_on(async {
        let mut me = Member::join(&home, "a").await;
        let log = me.log(0).await;
        assert!(log.len() > 100);
        let some = log[log.len() / 2].event_seq;
        let mut random = Random(seed);
        for round in 0..120 {
            let types: Option<Vec<&str>> = match random.below(3) {
                0 => None,
                1 => Some(vec![EventType::ALL[random.below(12)].as_str()]),
                _ => Some((0..=random.below(4)).map(|_| EventType::ALL[random.below(12)].as_str()).collect()),
            };
            let target = ["self", "any", "a", "b", "nobody"][random.below(5)];
            let from = [None, Some("a"), Some("b"), Some("nobody")][random.below(4)];
            let after = [0, some, log[log.len() - 1].event_seq][random.below(3)];
            let limit = [None, Some(1), Some(3), Some(1000)][random.below(4)];
            let fits = |event: &&Event| event.event_seq > after && plainly_fits(event, types.as_deref(), target, from);
            let all: Vec<&Event> = log.iter().filter(fits).collect();
            let expected: Vec<&Event> = all.iter().copied().take(limit.unwrap_or(100)).collect();
            let cursor = expected.last().map_or(after, |event| event.event_seq);
            let event_type = || match &types {
                Some(types) if types.len() == 1 && round % 2 == 0 => Some(OneOrMany::One(types[0].to_owned())),
                Some(types) => Some(OneOrMany::Many(types.iter().map(|t| (*t).to_owned()).collect())),
                None => None,
            };
            let from = || from.map(tt_proto::AgentId::trusted);
            let target_id = || Some(target.to_owned());
            let context = format!("{types:?} {target} {:?} after {after} limit {limit:?}", from());
            let page = me
                .call(|room_id| GetRoomEvents {
                    room_id,
                    after_event_seq: Some(after),
                    limit,
                    event_type: event_type(),
                    from_agent_id: from(),
                    target_agent_id: target_id(),
                    ..Default::default()
                })
                .await;
            assert_eq!(
                (page.events.iter().collect::<Vec<_>>(), page.cursor_event_seq),
                (expected.clone(), cursor),
                "{context}"
            );
            let wait = |room_id| WaitForEvents {
                room_id,
                after_event_seq: Some(after),
                limit,
                event_type: event_type(),
                from_agent_id: from(),
                target_agent_id: target_id(),
                max_wait_ms: Some(0),
                ..Default::default()
            };
            assert_eq!(me.call(wait).await, page, "{context}");
            if all.is_empty() {
                continue;
            }
            let subscribe = |room_id| SubscribeEvents {
                room_id,
                after_event_seq: Some(after),
                event_type: event_type(),
                from_agent_id: from(),
                target_agent_id: target_id(),
                ..Default::default()
            };
            let mut items = me.subscribe(subscribe).await;
            for expected in all {
                let item = items.next().await.unwrap().unwrap();
                assert_eq!(
                    (item.event.as_ref(), item.cursor_event_seq),
                    (Some(expected), expected.event_seq),
                    "{context}"
                );
            }
            items.unsubscribe().await.unwrap();
        }
    });
}

/// The filter, written down once more from the protocol.
fn plainly_fits(event: &Event, types: Option<&[&str]>, target: &str, from: Option<&str>) -> bool {
    let sender = event.from_agent_id.as_ref().map(|agent| agent.as_str());
    let recipient = event.to_agent_id.as_ref().map(|agent| agent.as_str());
    if types.is_some_and(|types| !types.contains(&event.event_type.as_str()))
        || from.is_some_and(|from| sender != Some(from))
    {
        return false;
    }
    let mine = |agent: Option<&str>| agent == Some("a");
    match (target, event.event_type) {
        ("any", _) => true,
        ("self", EventType::MessageSent) if recipient.is_none() => !mine(sender),
        ("self", EventType::MessageSent) => mine(recipient),
        ("self", EventType::MemberJoined | EventType::MemberLeft | EventType::MemberRenamed) => true,
        ("self", _) => mine(sender) || mine(recipient),
        (agent, _) => recipient == Some(agent),
    }
}

/// Enough chance for a test, and the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// Writes a log of every type between anybody, as no order of calls would.
fn fill_log(home: &Home, room_id: &str, seed: u64) {
    let mut random = Random(seed);
    let database = rusqlite::Connection::open(home.paths().database()).unwrap();
    let agents = [None, Some("a"), Some("b"), Some("c")];
    for n in 0..150 {
        let event_type = EventType::ALL[random.below(12)].as_str();
        let payload = (event_type == "message_sent").then_some(r#"{"body":"hi","delivery_hint":"normal"}"#);
        let (from, to) = (agents[random.below(4)], agents[random.below(4)]);
        database
            .execute(
                "INSERT INTO room_events (event_id, room_id, turn_id, event_type, from_agent_id, to_agent_id, created_at, payload_json)
                 VALUES (?1, ?2, 0, ?3, ?4, ?5, '2026-11-16T01:02:03.456Z', ?6)",
                rusqlite::params![format!("event-{n}"), room_id, event_type, from, to, payload],
            )
            .unwrap();
    }
}

#[test]
fn a_page_of_the_longest_events_fits_into_an_answer() {
    let home = home!();
    let room_id = block_on(async { Member::join(&home, "a").await.room });
    home.kill_daemon();
    let database = rusqlite::Connection::open(home.paths().database()).unwrap();
    let handoff = json!({"status": "s".repeat(900_000), "next_action": "n"}).to_string();
    for n in 0..40 {
        let insert =
            "INSERT INTO room_events (event_id, room_id, turn_id, event_type, from_agent_id, handoff_json, created_at)
                      VALUES (?1, ?2, 1, 'release', 'a', ?3, '2026-11-16T01:02:03.456Z')";
        database.execute(insert, rusqlite::params![format!("long-{n}"), room_id.as_str(), handoff]).unwrap();
    }
    drop(database);
    block_on(async {
        let mut member = Member::join(&home, "a").await;
        assert_eq!(member.log(0).await.iter().filter(|event| event.handoff.is_some()).count(), 40);
        let subscribe = |room_id| SubscribeEvents {
            room_id,
            after_event_seq: Some(0),
            event_type: Some(OneOrMany::One("release".into())),
            target_agent_id: Some("any".into()),
            ..Default::default()
        };
        let mut items = member.subscribe(subscribe).await;
        for _ in 0..40 {
            assert!(items.next().await.unwrap().unwrap().event.is_some());
        }
    });
}

#[test]
fn following_the_log_survives_a_restart_and_ends_with_its_cursor() {
    let home = home!();
    block_on(async { Member::join(&home, "a").await });
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = home.tt_as("a", &["events", "--follow", "--target", "any", "--after", "0"]);
    let follower = Running::writing_to(&mut command, writer);
    let lines = Lines::of(reader);
    assert_eq!(lines.json()["event_type"], "member_joined");
    for n in 0..3 {
        send(home.daemon().unwrap(), Signal::SIGKILL);
        let text = format!("number {n}");
        let sent = run::finish(&mut home.tt_as("b", &["msg", "send", "room", &text])).ok().json();
        let shown =
            std::iter::from_fn(|| Some(lines.json())).find(|line| line["event_type"] == "message_sent").unwrap();
        assert_eq!((&shown["event_seq"], &shown["payload"]["body"]), (&sent["event_seq"], &json!(text)));
    }
    let newest = block_on(async { Member::join(&home, "a").await.log(0).await }).last().unwrap().event_seq;
    follower.signal(Signal::SIGTERM);
    let finished = follower.finish().ok();
    assert_eq!(serde_json::from_str::<Value>(&finished.stderr).unwrap(), json!({"cursor_event_seq": newest}));
    assert!(lines.silent());
}

/// A daemon can be killed, and the next one as well, before it is ready.
#[test]
fn a_follower_survives_daemons_that_are_killed_while_they_start() {
    let home = home!();
    block_on(async { Member::join(&home, "a").await });
    let (killed, real) = (home.path().join("killed"), home.ttd_path().display());
    let text = format!(
        "#!/bin/sh\nif [ \"$(wc -l < '{0}')\" -lt 5 ]; then echo x >> '{0}'; kill -9 $$; fi\nexec '{real}' \"$@\"\n",
        killed.display()
    );
    std::fs::write(&killed, "").unwrap();
    let script = home.script("killed-at-first", &text);
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = home.tt_as("a", &["events", "--follow", "--target", "any", "--after", "0"]);
    let follower = Running::writing_to(command.env("TALKING_STICK_DAEMON", script), writer);
    let lines = Lines::of(reader);
    assert_eq!(lines.json()["event_type"], "member_joined");
    home.kill_daemon();
    // The follower alone brings it back.
    home.wait_for(&follower);
    assert_eq!(std::fs::read_to_string(&killed).unwrap().lines().count(), 5, "five were killed");
    run::finish(&mut home.tt_as("b", &["--no-autostart", "msg", "send", "room", "still here"])).ok();
    let shown = std::iter::from_fn(|| Some(lines.json())).find(|line| line["event_type"] == "message_sent").unwrap();
    assert_eq!(shown["payload"]["body"], "still here");
}

#[test]
fn a_follower_outlives_a_restart_though_its_directory_is_gone() {
    let home = home!();
    let dir = home.path().join("worktree");
    std::fs::create_dir(&dir).unwrap();
    let path = dir.to_str().unwrap();
    run::finish(&mut home.tt_as("a", &["join", "--force-new", path])).ok();
    let (reader, writer) = std::io::pipe().unwrap();
    let args = ["events", "--follow", "--target", "any", "--after", "0", "--path", path];
    let _follower = Running::writing_to(&mut home.tt_as("a", &args), writer);
    let lines = Lines::of(reader);
    assert_eq!(lines.json()["room_id"], "here");
    let listed = run::finish(&mut home.tt_as("a", &["list", path])).ok().json();
    let room: tt_proto::RoomId = listed["rooms"][0]["room_id"].as_str().unwrap().to_owned().into();
    std::fs::remove_dir(&dir).unwrap();
    send(home.daemon().unwrap(), Signal::SIGKILL);
    block_on(async {
        let mut a = Member::join(&home, "a").await;
        let say = |_| SendMessage { room_id: room.clone(), body: "still here".into(), ..Default::default() };
        a.call(say).await;
    });
    let shown = std::iter::from_fn(|| Some(lines.json())).find(|line| line["event_type"] == "message_sent").unwrap();
    assert_eq!(shown["payload"]["body"], "still here");
}

/// Two surfaces of one member, racing for the same inbox: each message goes to one of them.
#[test]
fn two_surfaces_that_race_never_show_the_same_message() {
    const MESSAGES: usize = 400;
    let home = home!();
    let _daemon = InProcess::start(home.options());
    let shown = Arc::new(Mutex::new(Vec::new()));
    let done = AtomicBool::new(false);
    block_on(async { Member::join(&home, "reader").await });
    std::thread::scope(|scope| {
        let (home, shown, done) = (&home, &shown, &done);
        for _ in 0..4 {
            scope.spawn(move || {
                block_on(async {
                    let mut surface = Member::join(home, "reader").await;
                    loop {
                        let last_round = done.load(Ordering::Acquire);
                        let taken: Vec<i64> =
                            surface.take(0).await.events.iter().map(|event| event.event_seq).collect();
                        shown.lock().unwrap().extend(taken.iter().copied());
                        let confirm =
                            |room_id| ConfirmMessages { room_id, surface: "recv".into(), event_seqs: taken.clone() };
                        let confirmed = surface.call(confirm).await.confirmed;
                        assert_eq!(confirmed, taken.len(), "somebody else had shown one of {taken:?} before");
                        if last_round && taken.is_empty() {
                            return;
                        }
                    }
                })
            });
        }
        block_on(async {
            let mut writer = Member::join(home, "writer").await;
            for n in 0..MESSAGES {
                writer.say(Some("reader"), &n.to_string()).await;
            }
        });
        done.store(true, Ordering::Release);
    });
    let mut shown = shown.lock().unwrap().clone();
    shown.sort_unstable();
    let count = shown.len();
    shown.dedup();
    assert_eq!((count, shown.len()), (MESSAGES, MESSAGES));
}
