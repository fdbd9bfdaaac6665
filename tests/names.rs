//! What people type when they mean a member, and what becomes of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use serde_json::{Value, json};
use tt_tests::{Home, Member, block_on, home, run};

const ME: &str = "claude:1a2b3c4d";
const ALICE: &str = "human:alice";
const FIRST: &str = "codex:5c11d1e8";
const SECOND: &str = "codex:9f00aa11";
const ABSENT: &str = "gemini:00000001";

/// A room with two of one name, one of another, and one who left.
fn room() -> Home {
    let home = home!();
    for (agent, name) in [(ME, "claude"), (ALICE, "Alice"), (FIRST, "codex"), (SECOND, "codex"), (ABSENT, "gemini")] {
        run::finish(&mut home.tt_as(agent, &["join", "--name", name])).ok();
    }
    run::finish(&mut home.tt_as(ABSENT, &["leave"])).ok();
    home
}

fn send(home: &Home, words: &[&str]) -> tt_tests::Finished {
    run::finish(&mut home.tt_as(ME, &[&["msg", "send"], words].concat()))
}

fn recipients(sent: &Value) -> Vec<&str> {
    sent["recipients"].as_array().unwrap().iter().map(|r| r["agent_id"].as_str().unwrap()).collect()
}

#[test]
fn every_way_to_name_a_member_finds_the_one_that_is_meant() {
    let home = room();
    for (name, expected) in [
        (FIRST, vec![FIRST]),
        ("codex:9", vec![SECOND]),
        ("alice", vec![ALICE]),
        ("ALICE", vec![ALICE]),
        ("human:", vec![ALICE]),
        (ABSENT, vec![ABSENT]),
        (ME, vec![ME]),
        ("claude", vec![ME]),
        ("room", vec![ALICE, FIRST, SECOND]),
    ] {
        let sent = send(&home, &[name, "hello"]).ok().json();
        let mut found = recipients(&sent);
        found.sort_unstable();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(found, expected, "{name}");
        assert!(sent["recipients"].as_array().unwrap().iter().all(|r| r["state"] == "pending"), "{sent}");
        assert!(sent["event_seq"].is_i64() && sent["event_id"].is_string() && sent["created_at"].is_string(), "{sent}");
    }
    // What was said to oneself comes back, what was said to everyone does not; and whoever returns finds what was said to it.
    let own = run::finish(&mut home.tt_as(ME, &["msg", "recv"])).ok();
    assert_eq!(own.stdout.lines().count(), 2, "{}", own.stdout);
    let absent = run::finish(&mut home.tt_as(ABSENT, &["msg", "recv"])).ok();
    assert_eq!(absent.stdout.lines().count(), 1, "{}", absent.stdout);
}

#[test]
fn a_name_that_means_nobody_or_too_many_is_refused_with_a_way_on() {
    let home = room();
    let error = send(&home, &["codex", "which of you?"]).refused(3);
    assert_eq!(error["error"], "ambiguous_recipient");
    assert_eq!(error["candidates"], json!([FIRST, SECOND]));
    let error = send(&home, &["aliec", "hello"]).refused(3);
    assert_eq!(error["error"], "unknown_recipient");
    assert!(error["hint"].as_str().unwrap().contains(ALICE), "{error}");
    for nobody in ["zebra", "", "gemini", "human:bob", "Codex:5c11d1e8"] {
        let error = send(&home, &[nobody, "hello"]).refused(3);
        assert_eq!(error["error"], "unknown_recipient", "{nobody:?}");
    }
    let sent = block_on(async {
        let mut me = Member::join(&home, ME).await;
        me.log(0).await.iter().filter(|e| e.event_type == tt_proto::event::EventType::MessageSent).count()
    });
    assert_eq!(sent, 0, "a refusal says nothing");
}

#[test]
fn flags_before_and_after_the_words_mean_the_same() {
    let home = room();
    let mut bodies = Vec::new();
    for words in [
        &["alice", "--interrupt", "two words"][..],
        &["alice", "two", "words", "--interrupt"],
        &["--interrupt", "alice", "two", "words"],
        &["alice", "two", "--interrupt", "words"],
        &["alice", "two words", "--interrupt", "--path", "."],
    ] {
        send(&home, words).ok();
        bodies.push(words);
    }
    send(&home, &["alice", "--important", "--", "--interrupt"]).ok();
    let shown = run::finish(&mut home.tt_as(ALICE, &["msg", "recv"])).ok();
    let payloads: Vec<Value> =
        shown.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["payload"].clone()).collect();
    for (payload, words) in payloads.iter().zip(&bodies) {
        assert_eq!(*payload, json!({"body": "two words", "delivery_hint": "interrupt"}), "{words:?}");
    }
    assert_eq!(payloads[bodies.len()], json!({"body": "--interrupt", "delivery_hint": "important"}));
}

#[test]
fn exit_codes_tell_wrong_usage_from_a_refusal() {
    let home = room();
    for wrong in [
        &["alice"][..],
        &[],
        &["alice", "x", "--interrupt", "--important"],
        &["alice", "x", "--stdin"],
        &["alice", "x", "--loud"],
    ] {
        let finished = send(&home, wrong);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{wrong:?}: {finished:?}");
    }
    for wrong in [&["--wait", "--follow"][..], &["--after", "x"], &["--timeout", "soon"], &["--max-replay", "-1"]] {
        let finished = run::finish(&mut home.tt_as(ME, &[&["msg", "recv"], wrong].concat()));
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{wrong:?}: {finished:?}");
    }
    assert_eq!(
        run::finish(&mut home.tt_as(ME, &["msg", "recv", "--from", "zebra"])).refused(3)["error"],
        "unknown_recipient"
    );
    let nowhere = run::finish(home.tt_as(ME, &["msg", "send", "room", "x"]).current_dir("/")).refused(3);
    assert_eq!(nowhere["error"], "room_not_found");
}

#[test]
fn whoever_speaks_without_having_joined_joins_first() {
    let home = room();
    let sent = run::finish(&mut home.tt_as("new:comer", &["msg", "send", "alice", "hello"])).ok().json();
    assert_eq!(recipients(&sent), [ALICE]);
    let state = block_on(async { Member::join(&home, ME).await.state().await });
    assert!(state.members.iter().any(|m| m.agent_id.as_str() == "new:comer"));
}

#[test]
fn a_member_is_shown_by_its_name_however_many_came_and_went_before() {
    let home = room();
    let database = rusqlite::Connection::open(home.paths().database()).unwrap();
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         INSERT INTO room_events (event_id, room_id, turn_id, event_type, from_agent_id, created_at, payload_json)
         SELECT 'old-' || i, room_id, 0, event_type, 'old:' || i, created_at, payload_json
         FROM n, room_events WHERE event_type = 'member_joined' AND from_agent_id = 'gemini:00000001'";
    assert_eq!(database.execute(many, []).unwrap(), 1000);
    drop(database);
    run::finish(&mut home.tt_as(FIRST, &["join", "--name", "reviewer"])).ok();
    run::finish(&mut home.tt_as(FIRST, &["msg", "send", "room", "hello"])).ok();
    let shown = run::finish(home.tt(&["events", "--limit", "1"]).current_dir(home.workspace())).ok();
    assert!(shown.stdout.contains("reviewer"), "{}", shown.stdout);
}

#[test]
fn a_text_may_be_a_flag_wherever_one_is_sent() {
    let home = room();
    let tt = |agent: &str, args: &[&str]| run::finish(&mut home.tt_as(agent, args)).ok().json();
    let seq = tt(ME, &["ask", "alice", "-m", "keep the old column?", "--no-wait"])["event_seq"].to_string();
    tt(ALICE, &["reply", &seq, "-m", "yes"]);
    tt(ME, &["send", "alice", "-m", "good"]);
    tt(ME, &["notes", "add", "-m", "the cart rounds twice"]);
    let reminder = tt(ME, &["remind", "1h", "-m", "look at CI"]);
    assert_eq!(reminder["body"], "look at CI");
    let page = tt(ME, &["events", "--event", "message_sent"]);
    let bodies: Vec<&str> =
        page["events"].as_array().unwrap().iter().map(|event| event["payload"]["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["keep the old column?", "yes", "good"]);
    for twice in
        [&["ask", "alice", "x", "-m", "y"][..], &["reply", "1", "x", "-m", "y"], &["remind", "1h", "x", "-m", "y"]]
    {
        assert_eq!(run::finish(&mut home.tt_as(ME, twice)).code, Some(2), "{twice:?}");
    }
}
