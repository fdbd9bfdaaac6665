//! `tt msg recv` as the child of somebody who reads its lines: what `docs/receive-contract.md` promises.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::io::{BufRead, BufReader, PipeReader};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tt_client::connect::Settings;
use tt_proto::ErrorCode;
use tt_proto::requests::{ConfirmMessages, GetRoomState, ReturnMessages, TakeMessages};
use tt_tests::relay::Act;
use tt_tests::{Finished, Home, InProcess, LIMIT, Lines, Member, Relay, Running, block_on, home, process, run};

/// Long enough for fifty of them to fill any pipe.
const LONG: usize = 4000;

/// Starts a command whose standard output is a pipe in the test's hands.
fn piped(command: &mut Command) -> (Running, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    (Running::writing_to(command, writer), reader)
}

fn follow(home: &Home, agent: &str) -> (Running, PipeReader) {
    piped(&mut home.tt_as(agent, &["msg", "recv", "--follow"]))
}

/// The same, for a test that may say much before it has begun.
fn follow_all(home: &Home, agent: &str) -> (Running, PipeReader) {
    piped(&mut home.tt_as(agent, &["msg", "recv", "--follow", "--max-replay", "1000000"]))
}

/// A follower of the reader's inbox whose pipe is full: it has taken what was there and stands still in a write.
fn stalled(home: &Home) -> (Running, PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let probe = writer.try_clone().unwrap();
    let follower = Running::writing_to(&mut home.tt_as("reader", &["msg", "recv", "--follow"]), writer);
    run::wait_until_full(&probe);
    (follower, reader)
}

fn tt(home: &Home, agent: &str, args: &[&str]) -> Finished {
    run::finish(&mut home.tt_as(agent, args)).ok()
}

/// Everybody is there, and this much has been said to the reader. Returns the numbers.
fn told(home: &Home, count: usize, length: usize) -> Vec<i64> {
    block_on(async {
        Member::join(home, "reader").await;
        let mut writer = Member::join(home, "writer").await;
        let mut seqs = Vec::new();
        for n in 0..count {
            seqs.push(writer.say(Some("reader"), &format!("{n:0length$}")).await.event_seq);
        }
        seqs
    })
}

fn say(home: &Home, body: &str) -> i64 {
    block_on(async { Member::join(home, "writer").await.say(Some("reader"), body).await.event_seq })
}

fn seq(line: &Value) -> i64 {
    line["event_seq"].as_i64().unwrap_or_else(|| panic!("{line}"))
}

/// What one call of `tt msg recv` hands over.
fn received(home: &Home, args: &[&str]) -> Vec<i64> {
    let args = [&["msg", "recv"], args].concat();
    tt(home, "reader", &args).stdout.lines().map(|line| seq(&serde_json::from_str(line).unwrap())).collect()
}

fn first_line(reader: PipeReader) -> (BufReader<PipeReader>, Value) {
    // One line at a time: what is not read stays in the pipe.
    let mut reader = BufReader::with_capacity(1, reader);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    (reader, serde_json::from_str(&line).unwrap())
}

fn cursor(finished: &Finished) -> i64 {
    let line: Value = serde_json::from_str(&finished.stderr).unwrap_or_else(|e| panic!("{e}: {finished:?}"));
    line["cursor_event_seq"].as_i64().unwrap()
}

#[test]
fn without_a_flag_it_hands_over_what_is_there_once() {
    let home = home!();
    let seqs = told(&home, 3, 1);
    assert_eq!(received(&home, &["--max-replay", "10"]), seqs);
    assert_eq!(received(&home, &[]), [0_i64; 0], "handed over already");
    assert_eq!(received(&home, &["--after", "0"]), seqs, "the log keeps them");
}

#[test]
fn a_reader_that_closes_ends_it_quietly_and_what_was_not_written_waits() {
    let home = home!();
    let seqs = told(&home, 45, LONG);
    let (follower, reader) = stalled(&home);
    let (reader, first) = first_line(reader);
    assert_eq!(seq(&first), seqs[0]);
    drop(reader);
    let finished = follower.finish().ok();
    assert_eq!(finished.stderr, "");
    let rest = received(&home, &[]);
    assert!(!rest.is_empty() && seqs.ends_with(&rest), "{rest:?} of {seqs:?}");
}

#[test]
fn a_reader_that_closes_while_nothing_happens_is_noticed_too() {
    let home = home!();
    told(&home, 0, 0);
    for args in [&["msg", "recv", "--follow"][..], &["msg", "recv", "--wait"], &["events", "--follow"]] {
        let (follower, reader) = piped(&mut home.tt_as("reader", args));
        drop(reader);
        assert_eq!(follower.finish().ok().stderr, "", "{args:?}");
    }
    let seq = say(&home, "is anybody there?");
    assert_eq!(received(&home, &[]), [seq]);
}

#[test]
fn each_signal_ends_it_in_order_and_says_how_far_it_came() {
    let home = home!();
    told(&home, 0, 0);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let (follower, reader) = follow(&home, "reader");
        let sent = say(&home, "hello");
        let (mut reader, line) = first_line(reader);
        assert_eq!(seq(&line), sent);
        follower.signal(signal);
        let finished = follower.finish().ok();
        assert_eq!(cursor(&finished), sent, "{signal}");
        assert_eq!(reader.read_line(&mut String::new()).unwrap(), 0);
        assert_eq!(received(&home, &[]), [0_i64; 0], "{signal}: what was shown is not shown again");
    }
}

#[test]
fn a_signal_is_heard_while_the_reader_stalls_and_only_what_was_not_written_waits() {
    let home = home!();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let seqs = told(&home, 45, LONG);
        let (follower, reader) = stalled(&home);
        follower.signal(signal);
        let finished = follower.finish().ok();
        let cursor = cursor(&finished);
        let written: Vec<i64> = Lines::of(reader).all().iter().map(seq).collect();
        let waiting = received(&home, &[]);
        assert_eq!(waiting, seqs.iter().copied().filter(|seq| *seq > cursor).collect::<Vec<_>>(), "{signal}");
        assert_eq!(written, seqs.iter().copied().filter(|seq| *seq <= cursor).collect::<Vec<_>>(), "{signal}");
        assert!(!written.is_empty() && !waiting.is_empty(), "{signal}: {written:?} {waiting:?}");
    }
}

#[test]
fn a_reader_that_stalls_under_load_holds_nobody_up_and_catches_up() {
    const MESSAGES: usize = 2400;
    const WRITERS: usize = 8;
    let home = home!();
    let daemon = home.start();
    told(&home, 0, 0);
    block_on(async { Member::join(&home, "other").await });
    let (stalled, stalled_reader) = follow_all(&home, "reader");
    let (other, other_reader) = follow_all(&home, "other");
    let (stalled_log, stalled_log_reader) =
        piped(&mut home.tt_as("reader", &["events", "--follow", "--after", "0", "--event", "message_sent"]));
    let before = process::memory(daemon).unwrap();
    let other_lines = Lines::of(other_reader);
    let (mut seqs, others) = std::thread::scope(|scope| {
        let home = &home;
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                scope.spawn(move || {
                    block_on(async {
                        let mut writer = Member::join(home, &format!("writer:{n}")).await;
                        let mut seqs = Vec::new();
                        for _ in 0..MESSAGES / WRITERS {
                            seqs.push(writer.say(None, &"x".repeat(1000)).await.event_seq);
                        }
                        seqs
                    })
                })
            })
            .collect();
        // All of them, while nobody reads from the other two.
        let others: Vec<i64> = (0..MESSAGES).map(|_| seq(&other_lines.json())).collect();
        let seqs: Vec<i64> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        (seqs, others)
    });
    seqs.sort_unstable();
    assert_eq!(others, seqs);
    let grown = process::memory(daemon).unwrap().saturating_sub(before);
    assert!(grown < 24 * 1024, "the daemon grew by {grown} KiB");
    for reader in [stalled_reader, stalled_log_reader] {
        let lines = Lines::of(reader);
        assert_eq!((0..MESSAGES).map(|_| seq(&lines.json())).collect::<Vec<_>>(), seqs, "it catches up, in order");
    }
    for follower in [stalled, other, stalled_log] {
        follower.signal(Signal::SIGTERM);
        assert_eq!(cursor(&follower.finish().ok()), *seqs.last().unwrap());
    }
}

#[test]
fn an_upgrade_of_the_daemon_in_the_middle_is_not_noticed() {
    let home = home!();
    let old = InProcess::start(home.options());
    told(&home, 0, 0);
    let (follower, reader) = follow(&home, "reader");
    let lines = Lines::of(reader);
    let before = say(&home, "to the old one");
    assert_eq!(seq(&lines.json()), before);
    let newer = Settings { version: "99.0.0".into(), ..home.settings_of("writer") };
    let after = block_on(async { Member::join_as(&home, newer).await.say(Some("reader"), "to the new one").await });
    assert!(old.ended_within(LIMIT));
    assert_ne!(home.daemon(), Some(std::process::id()));
    assert_eq!(seq(&lines.json()), after.event_seq);
    assert!(!follower.ended_within(Duration::ZERO));
    follower.signal(Signal::SIGTERM);
    assert_eq!(cursor(&follower.finish().ok()), after.event_seq);
    assert_eq!(lines.next(), None, "nothing twice");
}

#[test]
fn too_much_to_replay_is_skipped_and_stays_in_the_log() {
    let home = home!();
    let seqs = told(&home, 12, 1);
    let shown = tt(&home, "reader", &["msg", "recv", "--max-replay", "5"]);
    let lines: Vec<Value> = shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], json!({"skipped": 7, "from_seq": seqs[0], "to_seq": seqs[6]}));
    assert_eq!(lines[1..].iter().map(seq).collect::<Vec<_>>(), seqs[7..]);
    assert_eq!(received(&home, &[]), [0_i64; 0], "what was skipped is not handed over again");
    let after = (seqs[0] - 1).to_string();
    assert_eq!(received(&home, &["--after", &after]), seqs, "but it can be read");
    assert_eq!(received(&home, &["--after", &seqs[10].to_string()]), seqs[11..]);

    // Fifty by default, and as many as are said to whoever stays.
    let seqs = told(&home, 51, 1);
    let (follower, reader) = follow(&home, "reader");
    let lines = Lines::of(reader);
    assert_eq!(lines.json(), json!({"skipped": 1, "from_seq": seqs[0], "to_seq": seqs[0]}));
    (0..50).for_each(|n| assert_eq!(seq(&lines.json()), seqs[n + 1]));
    process::freeze(follower.pid());
    let seqs = told(&home, 60, 1);
    follower.signal(Signal::SIGCONT);
    seqs.iter().for_each(|expected| assert_eq!(seq(&lines.json()), *expected));
}

#[test]
fn what_another_surface_holds_is_not_skipped_over() {
    let home = home!();
    let seqs = told(&home, 20, 1);
    block_on(async {
        // A surface that has taken some in the middle and shown none of them.
        let mut first = Member::join(&home, "reader").await;
        let mut other = Member::join(&home, "reader").await;
        let held = other.take(0).await.events;
        assert_eq!(held.len(), 20);
        let back = |seqs: Vec<i64>| move |room_id| ReturnMessages { room_id, event_seqs: seqs };
        let returned = other.call(back([&seqs[..4], &seqs[8..]].concat())).await.returned;
        assert_eq!(returned, 16);
        let shown = tt(&home, "reader", &["msg", "recv", "--max-replay", "5"]);
        let lines: Vec<Value> = shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({"skipped": 11, "from_seq": seqs[0], "to_seq": seqs[14]}));
        assert_eq!(lines[1..].iter().map(seq).collect::<Vec<_>>(), seqs[15..]);

        // Nobody confirms or returns them for it.
        let confirm = |seqs: &[i64]| {
            let event_seqs = seqs.to_vec();
            |room_id| ConfirmMessages { room_id, surface: "recv".into(), event_seqs }
        };
        let refused = first.try_call(confirm(&seqs)).await.unwrap_err();
        assert_eq!((refused.code, &refused.details["event_seqs"]), (ErrorCode::MessageHeld, &json!(seqs[4..8])));
        let refused = first.try_call(back(seqs[..5].to_vec())).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::MessageHeld);
        assert_eq!(first.unread().await, 4, "and nothing was changed");
        // What was delivered is confirmed again by anyone; what it holds, by the surface itself.
        assert_eq!(first.call(confirm(&seqs[..4])).await.confirmed, 0);
        assert_eq!(other.call(confirm(&seqs[4..6])).await.confirmed, 2);
        assert_eq!(other.call(confirm(&seqs[4..6])).await.confirmed, 0);
        drop(other);
        let left: Vec<i64> = first.take(LIMIT.as_millis() as u64).await.events.iter().map(|e| e.event_seq).collect();
        assert_eq!(left, seqs[6..8], "a surface that ended showed nobody these");
    });
}

/// Puts copies of a message into the log and the inbox, as if it had been sent again and again.
fn copy_message(home: &Home, event_seq: i64, count: usize) {
    let database = rusqlite::Connection::open(home.paths().database()).unwrap();
    let copies = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
         INSERT INTO room_events (event_id, room_id, turn_id, event_type, from_agent_id, to_agent_id, created_at, payload_json)
         SELECT 'copy-{event_seq}-' || i, room_id, turn_id, event_type, from_agent_id, to_agent_id, created_at, payload_json
         FROM n, room_events WHERE event_seq = {event_seq};
         INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id, delivery_hint)
         SELECT e.event_seq, d.recipient_agent_id, d.room_id, d.from_agent_id, d.delivery_hint FROM room_events e, deliveries d
         WHERE e.event_id LIKE 'copy-{event_seq}-%' AND d.event_seq = {event_seq};"
    );
    database.execute_batch(&copies).unwrap();
}

#[test]
fn more_than_one_confirmation_can_list_is_skipped_in_several_steps() {
    let home = home!();
    let first = told(&home, 1, 1)[0];
    copy_message(&home, first, 10_100);
    let shown = tt(&home, "reader", &["msg", "recv", "--max-replay", "5"]);
    let lines: Vec<Value> = shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let skipped: Vec<&Value> = lines.iter().map(|line| &line["skipped"]).take(3).collect();
    assert_eq!((skipped, lines.len()), (vec![&json!(10_000), &json!(96), &Value::Null], 7));
    assert_eq!(seq(&lines[6]), first + 10_100);
    assert_eq!(received(&home, &[]), [0_i64; 0], "and all of it is confirmed");
}

/// A person that joined, and a member that writes to it.
fn person(home: &Home) -> (String, impl Fn(&[&str]) -> Command) {
    let workspace = home.workspace();
    let joined = run::finish(home.tt(&["join", "--json"]).current_dir(&workspace)).ok().json();
    let tt = move |args: &[&str]| {
        let mut command = home.tt(args);
        command.arg("--json").current_dir(&workspace);
        command
    };
    (joined["agent_id"].as_str().unwrap().to_owned(), tt)
}

fn write(home: &Home, to: &str, args: &[&str]) -> i64 {
    tt(home, "writer", &[&["msg", "send", to], args].concat()).json()["event_seq"].as_i64().unwrap()
}

#[test]
fn a_person_with_very_many_unread_is_shown_the_newest_and_every_interrupt() {
    let home = home!();
    let (me, tt) = person(&home);
    let interrupt = write(&home, &me, &["--interrupt", "stop"]);
    let first = write(&home, &me, &["hello"]);
    copy_message(&home, first, 10_100);
    let shown = run::finish(&mut tt(&["msg", "recv", "--max-replay", "5"])).ok();
    let lines: Vec<Value> = shown.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let skipped: Vec<&Value> = lines.iter().map(|line| &line["skipped"]).take(3).collect();
    assert_eq!(skipped, [&json!(10_000), &json!(97), &Value::Null]);
    let messages: Vec<i64> = lines[2..].iter().map(seq).collect();
    assert_eq!((messages[0], messages.len(), messages[4]), (interrupt, 5, first + 10_100));
    assert_eq!(run::finish(&mut tt(&["msg", "recv"])).ok().stdout, "", "and all of it is confirmed");
}

#[test]
fn a_person_that_follows_is_shown_each_message_once_whatever_its_urgency() {
    let home = home!();
    let (me, tt) = person(&home);
    let old = write(&home, &me, &["hello"]);
    copy_message(&home, old, 49);
    let urgent = write(&home, &me, &["--important", "soon"]);
    copy_message(&home, urgent, 249);
    let (follower, reader) = piped(&mut tt(&["msg", "recv", "--follow", "--max-replay", "1000"]));
    let lines = Lines::of(reader);
    let mut shown: Vec<i64> = (0..300).map(|_| seq(&lines.json())).collect();
    let new = write(&home, &me, &["one more"]);
    assert_eq!(seq(&lines.json()), new);
    shown.sort_unstable();
    assert_eq!(shown, (old..old + 50).chain(urgent..urgent + 250).collect::<Vec<_>>());
    follower.signal(Signal::SIGTERM);
    follower.finish().ok();
}

#[test]
fn nothing_to_replay_at_all_skips_everything_and_goes_on() {
    let home = home!();
    let seqs = told(&home, 2, 1);
    let (follower, reader) = piped(&mut home.tt_as("reader", &["msg", "recv", "--follow", "--max-replay", "0"]));
    let lines = Lines::of(reader);
    assert_eq!(lines.json(), json!({"skipped": 2, "from_seq": seqs[0], "to_seq": seqs[1]}));
    let new = say(&home, "new");
    assert_eq!(seq(&lines.json()), new);
    follower.signal(Signal::SIGTERM);
    follower.finish().ok();
    // Over the wire such a take must not wait for more.
    let seqs = told(&home, 1, 1);
    block_on(async {
        let mut reader = Member::join(&home, "reader").await;
        let taken = reader
            .call(|room_id| TakeMessages {
                room_id,
                surface: "recv".into(),
                max_replay: Some(0),
                max_wait_ms: Some(60_000),
                ..Default::default()
            })
            .await;
        assert_eq!(taken.skipped.unwrap().from_seq, seqs[0]);
        assert_eq!(taken.events, []);
    });
}

#[test]
fn waiting_ends_with_the_next_batch_or_in_silence_when_its_time_is_up() {
    let home = home!();
    told(&home, 0, 0);
    for args in [&["msg", "recv", "--wait", "--timeout", "1ms"][..], &["msg", "recv", "--follow", "--timeout", "1ms"]] {
        assert_eq!(tt(&home, "reader", args).stdout, "", "{args:?}");
    }
    let (waiting, reader) = piped(&mut home.tt_as("reader", &["msg", "recv", "--wait"]));
    let sent = say(&home, "wake up");
    assert_eq!(Lines::of(reader).all().iter().map(seq).collect::<Vec<_>>(), [sent]);
    waiting.finish().ok();
    let sent = say(&home, "there already");
    assert_eq!(received(&home, &["--wait"]), [sent], "it does not wait for what is there");
    // The same off the log, for whoever keeps a cursor of its own.
    let after = sent.to_string();
    assert_eq!(received(&home, &["--wait", "--after", &after, "--timeout", "1ms"]), [0_i64; 0]);
    let (waiting, reader) = piped(&mut home.tt_as("reader", &["msg", "recv", "--wait", "--after", &after]));
    let next = say(&home, "next");
    assert_eq!(Lines::of(reader).all().iter().map(seq).collect::<Vec<_>>(), [next], "one event a line");
    waiting.finish().ok();
    assert_eq!(received(&home, &[]), [next], "reading the log is not delivery");
}

#[test]
fn from_one_sender_leaves_the_others_in_the_inbox() {
    let home = home!();
    told(&home, 0, 0);
    let (one, two) = block_on(async {
        let mut other = Member::join(&home, "somebody").await;
        let one = other.say(Some("reader"), "one").await.event_seq;
        (one, Member::join(&home, "writer").await.say(Some("reader"), "two").await.event_seq)
    });
    assert_eq!(received(&home, &["--from", "writer"]), [two]);
    assert_eq!(received(&home, &["--from", "writer"]), [0_i64; 0]);
    let (follower, reader) = piped(&mut home.tt_as("reader", &["msg", "recv", "--follow", "--from", "writer"]));
    let lines = Lines::of(reader);
    let three = say(&home, "three");
    assert_eq!(seq(&lines.json()), three);
    follower.signal(Signal::SIGINT);
    follower.finish().ok();
    assert_eq!(received(&home, &["--after", "0", "--from", "somebody"]), [one]);
    assert_eq!(received(&home, &[]), [one]);
}

#[test]
fn a_surface_that_is_killed_gives_back_what_it_held_at_once() {
    let home = home!();
    let seqs = told(&home, 45, LONG);
    let (follower, _reader) = stalled(&home);
    block_on(async {
        let mut second = Member::join(&home, "reader").await;
        assert_eq!(second.take(0).await.events, [], "nobody else may have them now");
        assert_eq!(second.unread().await, seqs.len());
        let waits = second.take(60_000);
        follower.signal(Signal::SIGKILL);
        let taken = waits.await;
        assert_eq!(taken.events.iter().map(|event| event.event_seq).collect::<Vec<_>>(), seqs);
    });
    // The second one ended as well, without a word.
    assert_eq!(received(&home, &[]), seqs);
}

#[test]
fn a_follower_of_someone_who_left_ends_and_does_not_bring_it_back() {
    let home = home!();
    for end in [&["leave"][..], &["kick", "reader", "--force"]] {
        told(&home, 0, 0);
        let (follower, reader) = follow(&home, "reader");
        say(&home, "you are listening");
        let (_reader, _) = first_line(reader);
        tt(&home, if end[0] == "leave" { "reader" } else { "writer" }, end);
        let finished = follower.finish();
        assert_eq!(finished.code, Some(3), "{finished:?}");
        let error: Value = serde_json::from_str(&finished.stderr).unwrap();
        assert_eq!(error["error"], if end[0] == "leave" { "unknown_member" } else { "kicked" });
        let everybody = |room_id| GetRoomState { room_id, all: Some(true) };
        let members = block_on(async { Member::join(&home, "writer").await.call(everybody).await }).members;
        assert!(
            members.iter().any(|m| m.agent_id.as_str() == "reader" && m.status.as_str() != "active"),
            "{members:?}"
        );
    }
}

#[test]
fn what_an_earlier_connection_of_its_own_still_holds_is_confirmed_all_the_same() {
    // Most commands are refused once; a second of refusals is not too long.
    for (args, refusals) in [
        (&["msg", "recv"][..], 60),
        (&["msg", "recv", "--wait"], 1),
        (&["msg", "recv", "--follow", "--timeout", "0s"], 1),
        (&["wait", "--timeout", "0s"], 1),
    ] {
        let home = home!();
        told(&home, 0, 0);
        let sent = say(&home, "needle");
        // The connection is cut after the message has come over it, and the daemon does not notice before it has refused the
        // confirmation on the next one.
        let (is_cut, refused, seen) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
        let reached = refused.clone();
        let count = |heard: &[u8], text: &[u8]| heard.windows(text.len()).filter(|seen| *seen == text).count();
        let relay = Relay::start(
            &home,
            || true,
            move |heard| {
                if count(heard, b"needle") > 0 && is_cut.swap(1, Ordering::SeqCst) == 0 {
                    return Act::CutClient;
                }
                // Each refusal is an answer of its own.
                let held = count(heard, b"message_held");
                if held > seen.swap(held, Ordering::SeqCst) && refused.fetch_add(1, Ordering::SeqCst) + 1 == refusals {
                    return Act::EndCut;
                }
                Act::GoOn
            },
        );
        let shown = run::finish(home.tt_as("reader", args).env("TALKING_STICK_SOCKET", &relay.socket)).ok();
        assert_eq!(shown.stdout.matches("needle").count(), 1, "{args:?}: {shown:?}");
        assert!(reached.load(Ordering::SeqCst) >= refusals, "{args:?}: the confirmation was not refused");
        assert_eq!(received(&home, &[]), [0_i64; 0], "{args:?} shows {sent} again");
    }
}
