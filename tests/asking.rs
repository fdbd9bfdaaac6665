//! `tt ask` and `tt reply`: every question ends, whatever becomes of the one who was asked, of the asker and of the daemon.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tt_tests::{Home, LIMIT, Running, home, run};

fn tt(home: &Home, agent: &str, args: &[&str]) -> Value {
    run::finish(&mut home.tt_as(agent, args)).ok().json()
}

/// A room of two.
fn two(home: &Home) {
    tt(home, "asker", &["join"]);
    tt(home, "asked", &["join"]);
}

/// Starts `tt ask`, and returns it with the number of the question once that is in the inbox of the one who was asked.
fn ask(home: &Home, args: &[&str]) -> (Running, i64) {
    let running = Running::start(&mut home.tt_as("asker", &[&["ask", "asked", "why?"], args].concat()));
    (running, until_asked(home, "asked"))
}

#[track_caller]
fn until_asked(home: &Home, who: &str) -> i64 {
    let started = Instant::now();
    loop {
        let questions = tt(home, who, &["inbox", "--questions"]);
        if let Some(question) = questions["deliveries"].get(0) {
            return question["event_seq"].as_i64().unwrap();
        }
        assert!(started.elapsed() < LIMIT, "nobody asks {who}");
    }
}

fn state_of(home: &Home, question: i64) -> Value {
    tt(home, "asker", &["msg", "status", &question.to_string()])["recipients"][0].clone()
}

#[test]
fn an_answer_ends_the_wait_and_both_sides_see_it() {
    let home = home!();
    two(&home);
    let (asking, question) = ask(&home, &[]);
    let seen = tt(&home, "asked", &["recv"]);
    assert_eq!((&seen["payload"]["expects_reply"], &seen["event_seq"]), (&json!(true), &json!(question)));
    assert_eq!(state_of(&home, question)["state"], "delivered");
    let replied = tt(&home, "asked", &["reply", &question.to_string(), "because"]);
    let told = asking.finish().ok().json();
    assert_eq!((&told["status"], &told["event_seq"]), (&json!("answered"), &json!(question)));
    assert_eq!(told["events"][0]["payload"]["body"], "because");
    let state = state_of(&home, question);
    assert_eq!((&state["state"], &state["answered_by"]), (&json!("answered"), &replied["event_seq"]));
    assert_eq!(tt(&home, "asked", &["inbox", "--questions"]), json!({"deliveries": []}));
    assert_eq!(tt(&home, "asker", &["inbox"]), json!({"deliveries": []}), "the answer was shown by the wait, once");
}

#[test]
fn a_question_that_nobody_answers_ends_in_time_and_a_late_answer_is_marked() {
    let home = home!();
    two(&home);
    let (asking, question) = ask(&home, &["--timeout", "1500ms"]);
    tt(&home, "asked", &["recv"]);
    let told = asking.finish();
    assert_eq!((told.code, &told.json()["status"]), (Some(5), &json!("not_answered")), "{told:?}");
    assert_eq!(state_of(&home, question)["is_over"], true);
    tt(&home, "asked", &["reply", &question.to_string(), "because"]);
    let state = state_of(&home, question);
    assert_eq!((&state["state"], &state["is_late"]), (&json!("answered"), &json!(true)));
    assert_eq!(tt(&home, "asker", &["recv"])["payload"]["body"], "because", "it is in the inbox of the asker");

    let told = run::finish(&mut home.tt_as("asker", &["ask", "asked", "and now?", "--timeout", "300ms"]));
    assert_eq!((told.code, &told.json()["status"]), (Some(5), &json!("expired")), "nobody was handed it: {told:?}");
    assert_eq!(run::finish(&mut home.tt_as("asked", &["recv"])).ok().stdout, "", "and nobody is any more");
}

#[test]
fn two_that_ask_each_other_do_not_wait_for_each_other() {
    let home = home!();
    two(&home);
    let (asking, question) = ask(&home, &[]);
    let back = Running::start(&mut home.tt_as("asked", &["ask", "asker", "which one?"]));
    let told = asking.finish();
    assert_eq!((told.code, &told.json()["status"]), (Some(5), &json!("asked_back")), "{told:?}");
    let asked = told.json()["events"][0]["event_seq"].to_string();
    assert_eq!(state_of(&home, question)["state"], "pending", "the first question stays open");
    tt(&home, "asker", &["reply", &asked, "the second"]);
    assert_eq!(back.finish().ok().json()["status"], "answered", "who asks last waits for one that is free again");
}

#[test]
fn an_asker_is_told_at_once_that_the_one_it_asked_left() {
    let home = home!();
    two(&home);
    let (asking, _) = ask(&home, &["--timeout", "1h"]);
    tt(&home, "asked", &["leave"]);
    let told = asking.finish();
    assert_eq!((told.code, &told.json()["status"]), (Some(5), &json!("recipient_gone")), "{told:?}");
    let refused = run::finish(&mut home.tt_as("asker", &["ask", "asked", "still there?"]));
    assert_eq!(refused.code, Some(3), "nobody waits for somebody who has left: {refused:?}");
    tt(&home, "asked", &["join"]);
    let (asking, question) = ask(&home, &["--timeout", "1h"]);
    tt(&home, "asker", &["kick", "asked", "--force", "--reason", "it loops"]);
    let told = asking.finish();
    assert_eq!((told.code, &told.json()["status"]), (Some(5), &json!("recipient_gone")), "removed: {told:?}");
    assert_eq!(state_of(&home, question)["waits"]["because"], "removed");
    tt(&home, "asked", &["join"]);
    let seen = run::finish(&mut home.tt_as("asked", &["recv"])).ok().stdout;
    let seen: Vec<Value> = seen.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(seen.iter().any(|event| event["event_seq"] == question), "what was sent before waited: {seen:?}");
    let notice = &seen[seen.len() - 1]["payload"];
    assert_eq!(notice["notice"], "kicked", "{seen:?}");
    assert!(notice["body"].as_str().is_some_and(|body| body.contains("it loops")), "{notice}");
}

#[test]
fn an_answer_that_another_surface_was_handed_ends_the_wait_all_the_same() {
    let home = home!();
    two(&home);
    let (asking, question) = ask(&home, &["--timeout", "1h"]);
    let follower = Running::start(&mut home.tt_as("asker", &["recv", "--follow"]));
    tt(&home, "asked", &["reply", &question.to_string(), "because"]);
    let told = asking.finish().ok().json();
    assert_eq!((&told["status"], &told["events"][0]["payload"]["body"]), (&json!("answered"), &json!("because")));
    drop(follower);
    let (asking, question) = ask(&home, &["--timeout", "1h"]);
    tt(&home, "asker", &["msg", "withdraw", &question.to_string()]);
    let told = asking.finish();
    assert_eq!((told.code, &told.json()["status"]), (Some(5), &json!("withdrawn")), "{told:?}");
}

#[test]
fn an_asker_that_went_away_finds_what_became_of_its_question() {
    let home = home!();
    two(&home);
    let (asking, question) = ask(&home, &["--timeout", "1h"]);
    asking.signal(Signal::SIGKILL);
    asking.finish();
    tt(&home, "asked", &["reply", &question.to_string(), "because"]);
    assert_eq!(tt(&home, "asker", &["recv"])["payload"]["body"], "because");
    let sent = tt(&home, "asker", &["ask", "asked", "later", "--no-wait", "--timeout", "200ms"]);
    let notice = tt(&home, "asker", &["recv", "--wait"]);
    assert_eq!((&notice["payload"]["notice"], &notice["payload"]["about"]), (&json!("expired"), &sent["event_seq"]));
}

#[test]
fn the_end_of_a_daemon_loses_no_question() {
    let home = home!();
    two(&home);
    let (asking, question) = ask(&home, &["--timeout", "1h"]);
    let sent = tt(&home, "asker", &["ask", "asked", "soon over", "--no-wait", "--timeout", "1s"]);
    tt(&home, "asker", &["remind", "1s", "look at CI"]);
    home.kill_daemon();
    tt(&home, "asked", &["reply", &question.to_string(), "because"]);
    assert_eq!(asking.finish().ok().json()["status"], "answered", "the wait goes on with the next daemon");
    let mut found = Vec::new();
    while found.len() < 2 {
        let lines = run::finish(&mut home.tt_as("asker", &["recv", "--wait"])).ok().stdout;
        found.extend(lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["payload"].clone()));
    }
    let notice = found.iter().find(|payload| payload.get("notice").is_some()).unwrap();
    assert_eq!((&notice["notice"], &notice["about"]), (&json!("expired"), &sent["event_seq"]));
    assert!(found.iter().any(|payload| payload["body"] == "look at CI"), "{found:?}");
}

#[test]
fn a_reply_to_what_is_not_mine_and_a_question_to_myself_change_nothing() {
    let home = home!();
    two(&home);
    tt(&home, "third", &["join"]);
    let sent = tt(&home, "asker", &["send", "asked", "hi"])["event_seq"].to_string();
    let code = |agent: &str, args: &[&str]| run::finish(&mut home.tt_as(agent, args)).refused(3)["error"].clone();
    assert_eq!(code("third", &["reply", &sent, "me too"]), "not_a_recipient");
    assert_eq!(code("third", &["reply", "99999", "x"]), "unknown_message");
    assert_eq!(code("asker", &["ask", "asker", "x"]), "invalid_input");
    assert_eq!(code("third", &["msg", "withdraw", &sent]), "invalid_input");
    assert_eq!(code("asker", &["remind", "5m", "x", "--every", "1s", "--times", "3"]), "invalid_input");
    assert_eq!(code("asker", &["remind", "cancel", "nonsense"]), "unknown_reminder");
    assert_eq!(code("asker", &["msg", "status", "99999"]), "unknown_message");
    let ahead = [
        &["ask", "asked", "x", "--timeout", "-5m"][..],
        &["ask", "asked", "x", "--timeout", "0s"],
        &["send", "asked", "x", "--notify-after", "-1s"],
        &["send", "asked", "x", "--timeout", "1000d"],
        &["remind", "0s", "x"],
        &["remind", "5m", "x", "--every", "-1m", "--times", "2"],
    ];
    for args in ahead {
        let wrong = run::finish(&mut home.tt_as("asker", args));
        assert!(wrong.code == Some(2) && wrong.stderr.contains("invalid value"), "{args:?}: {wrong:?}");
    }
    assert_eq!(tt(&home, "asker", &["remind", "list"])["reminders"], json!([]));
    let before = tt(&home, "asker", &["events", "--event", "message_sent"]);
    assert_eq!(before["events"].as_array().map(Vec::len), Some(1), "{before}");
}

#[test]
fn a_person_that_asks_is_told_at_once_what_happens_to_the_question() {
    let home = home!();
    two(&home);
    let told = run::finish(&mut home.tt_as("asker", &["--text", "ask", "asked", "why?", "--timeout", "300ms"]));
    assert!(told.stderr.contains("sent to asked (nothing is known") && told.stderr.contains("waiting"), "{told:?}");
    let told = run::finish(&mut home.tt_as("asker", &["ask", "asked", "why?", "--timeout", "300ms"]));
    assert_eq!(told.stderr, "", "an agent reads one answer");
}

#[test]
fn several_open_questions_are_shown_together_each_with_its_own_answer() {
    let home = home!();
    two(&home);
    tt(&home, "third", &["join"]);
    let ask = |who: &str, what: &str| tt(&home, who, &["ask", "asked", what, "--no-wait"])["event_seq"].clone();
    let (first, second) = (ask("asker", "why?"), ask("third", "when?"));
    let shown = run::finish(&mut home.tt_as("asked", &["recv", "--text"])).ok().stdout;
    for question in [&first, &second] {
        assert!(shown.contains(&format!("tt reply {question} ")), "no way to answer {question} in {shown}");
    }
    let open = || {
        let questions = tt(&home, "asked", &["inbox", "--questions"]);
        let list = questions["deliveries"].as_array().into_iter().flatten();
        list.map(|question| question["event_seq"].clone()).collect::<Vec<Value>>()
    };
    assert_eq!(open().len(), 2, "they are open until they are answered, shown or not");
    tt(&home, "asked", &["reply", &second.to_string(), "tomorrow"]);
    assert_eq!(open(), [first]);
    assert_eq!(tt(&home, "third", &["recv"])["payload"]["reply_to"], second);
    assert_eq!(run::finish(&mut home.tt_as("asker", &["recv"])).ok().stdout, "", "the other question has no answer");
}
