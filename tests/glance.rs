//! What is seen at a glance: the log page by page, the state of the room in few bytes, unread messages, hints and completions.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use serde_json::Value;
use tt_tests::{Finished, Home, Lines, Running, block_on, home, run};

fn tt(home: &Home, agent: &str, args: &[&str]) -> Value {
    run::finish(&mut home.tt_as(agent, args)).ok().json()
}

fn text(home: &Home, agent: &str, args: &[&str]) -> String {
    run::finish(&mut home.tt_as(agent, &[args, &["--text"]].concat())).ok().stdout
}

fn any(home: &Home, agent: &str, args: &[&str]) -> Finished {
    run::finish(&mut home.tt_as(agent, args))
}

fn bodies(page: &Value) -> Vec<&str> {
    page["events"].as_array().unwrap().iter().filter_map(|event| event["payload"]["body"].as_str()).collect()
}

#[test]
fn the_log_shows_the_newest_and_finds_the_rest_by_page_time_and_words() {
    let home = home!();
    tt(&home, "a", &["join"]);
    for n in 0..60 {
        tt(&home, "a", &["send", "a", &format!("message {n} about the cart{n}")]);
    }
    let page = tt(&home, "a", &["events"]);
    assert_eq!((bodies(&page).len(), &page["earlier"]), (50, &11.into()));
    assert!(bodies(&page)[49].starts_with("message 59 "), "in order");
    let first = page["events"][0]["event_seq"].to_string();
    let shown = text(&home, "a", &["log"]);
    assert!(shown.starts_with(&format!("11 earlier: tt events --before {first}\n")), "{shown}");
    let before = tt(&home, "a", &["events", "--before", &first, "--limit", "3"]);
    assert_eq!((bodies(&before).len(), &before["earlier"]), (3, &8.into()));
    let id = page["events"][0]["event_id"].as_str().unwrap();
    let whole = tt(&home, "a", &["events", "--limit", "100"]);
    let ids: Vec<&str> =
        whole["events"].as_array().unwrap().iter().map(|event| event["event_id"].as_str().unwrap()).collect();
    let is_unique = |length: &usize| ids.iter().filter(|other| other.starts_with(&id[..*length])).count() == 1;
    let unique = (1..=id.len()).find(is_unique).unwrap();
    for enough in [id, &id[..unique]] {
        assert_eq!(tt(&home, "a", &["events", "--before", enough, "--limit", "3"]), before, "by its id");
    }
    let too_short = any(&home, "a", &["events", "--before", &id[..unique - 1]]).refused(3);
    assert_eq!(too_short["error"], "unknown_target", "{too_short}");
    assert_eq!(bodies(&tt(&home, "a", &["events", "--grep", "CART7"])), ["message 7 about the cart7"]);
    assert_eq!(bodies(&tt(&home, "a", &["events", "--grep", "normal"])).len(), 0, "nobody wrote that");
    // What is shown beside a page is asked for with the same words, and the pages of both directions have an end.
    let found = tt(&home, "a", &["log", "--grep", "cart1", "--limit", "2"])["events"][0]["event_seq"].to_string();
    let shown = text(&home, "a", &["log", "--grep", "cart1", "--from", "a", "--limit", "2"]);
    assert!(shown.starts_with(&format!("9 earlier: tt events --from a --grep cart1 --before {found}\n")), "{shown}");
    let since = "2026-01-01T00:00:00.000Z";
    let shown = text(&home, "a", &["events", "--path", ".", "--since", since, "--limit", "1"]);
    assert!(shown.contains(&format!("tt events --path . --since {since} --before ")), "{shown}");
    let last = whole["events"].as_array().unwrap().last().unwrap()["event_seq"].as_i64().unwrap();
    let page = |after: i64| tt(&home, "a", &["events", "--after", &after.to_string(), "--limit", "2"]);
    assert_eq!((bodies(&page(last - 3)).len(), &page(last - 3)["more"]), (2, &true.into()));
    assert_eq!((bodies(&page(last - 2)).len(), page(last - 2).get("more")), (2, None));
    let shown = text(&home, "a", &["events", "--after", &(last - 3).to_string(), "--limit", "2"]);
    assert!(shown.ends_with(&format!("there are later ones: tt events --after {}\n", last - 1)), "{shown}");
    assert_eq!(bodies(&tt(&home, "a", &["events", "--since", "1h", "--limit", "2"])).len(), 2);
    assert_eq!(bodies(&tt(&home, "a", &["events", "--since", "2999-01-01T00:00:00Z"])).len(), 0);
    assert_eq!(any(&home, "a", &["events", "--after", "99999"]).refused(3)["error"], "invalid_cursor");
}

#[test]
fn json_for_agents_is_small_however_many_have_left() {
    let home = home!();
    block_on(home.come_and_go(20, home.workspace()));
    for agent in ["claude:1a2b3c4d", "codex:5c11d1e8", "gemini:77aa01fe", "opencode:9b8c7d6e", "human:alice"] {
        tt(&home, agent, &["join"]);
    }
    let joined = any(&home, "codex:0f1e2d3c", &["join"]).ok();
    assert_eq!(joined.json()["room_id"], "here");
    assert!(!joined.stdout.contains("null"), "{}", joined.stdout);
    assert!(joined.stdout.len() < 1024, "{} bytes: {}", joined.stdout.len(), joined.stdout);
    tt(&home, "claude:1a2b3c4d", &["try"]);
    tt(&home, "codex:5c11d1e8", &["send", "human:alice", "hello"]);
    let state = any(&home, "claude:1a2b3c4d", &["state"]).ok();
    assert_eq!(state.json()["room"]["room_id"], "here");
    assert!(state.stdout.len() < 1024, "{} bytes: {}", state.stdout.len(), state.stdout);
    assert_eq!(state.json()["members"][0]["activity"], "working");
}

#[test]
fn a_join_says_how_much_waits_and_how_much_of_it_interrupts() {
    let home = home!();
    let joined = tt(&home, "a", &["join"]);
    assert_eq!((joined.get("unread"), joined.get("interrupts")), (None, None));
    tt(&home, "b", &["join"]);
    tt(&home, "b", &["send", "a", "hello"]);
    tt(&home, "b", &["send", "a", "stop", "--interrupt"]);
    tt(&home, "a", &["leave"]);
    let back = tt(&home, "a", &["join"]);
    assert_eq!((&back["unread"], &back["interrupts"]), (&2.into(), &1.into()), "{back}");
    // A room that is made now has nothing, whatever waits in the one around it.
    std::fs::create_dir(home.workspace().join("inner")).unwrap();
    let inner = tt(&home, "a", &["join", "inner", "--force-new"]);
    assert_eq!((&inner["joined_existing_room"], inner.get("unread")), (&false.into(), None), "{inner}");
}

#[test]
fn rooms_are_listed_with_a_mark_for_this_one_and_what_waits_in_each() {
    let home = home!();
    tt(&home, "a", &["join"]);
    tt(&home, "b", &["join"]);
    tt(&home, "a", &["notes", "add", "-m", "look at this"]);
    tt(&home, "b", &["send", "a", "-m", "hello", "--interrupt"]);
    let rooms = tt(&home, "a", &["list"])["rooms"].clone();
    assert_eq!((&rooms[0]["room_id"], &rooms[0]["unread"]), (&"here".into(), &1.into()));
    let list = text(&home, "a", &["list"]);
    assert!(list.contains("  here\n") && list.contains("1 unread, 1 interrupt"), "{list}");
    let state = text(&home, "a", &["state"]);
    assert!(state.contains("1 open note: tt notes list") && state.contains("1 unread: tt msg recv"), "{state}");
    let note = tt(&home, "a", &["notes", "list"])["notes"][0]["note_id"].as_str().unwrap().to_owned();
    tt(&home, "a", &["notes", "resolve", &note[..6]]);
}

#[test]
fn hints_say_what_this_caller_can_do() {
    let home = home!();
    tt(&home, "a", &["join"]);
    tt(&home, "b", &["join"]);
    tt(&home, "a", &["try"]);
    // A person, by its own account.
    let mut person = home.tt(&["take", "--reason", "mine", "--json"]);
    let refused = run::finish(person.current_dir(home.workspace())).refused(3);
    assert!(refused["hint"].as_str().unwrap().contains("--operator"), "{refused}");
    let agent = any(&home, "b", &["take", "--reason", "mine"]).refused(3);
    assert!(!agent["hint"].as_str().unwrap().contains("--operator"), "{agent}");
    tt(&home, "a", &["pass", "b", "-m", "done", "-n", "go on"]);
    let reserved = any(&home, "a", &["release", "-m", "s", "-n", "n"]).refused(3);
    assert!(reserved["message"].as_str().unwrap().contains("reserved for b"), "{reserved}");
    assert_eq!(any(&home, "a", &["send", "b", " \n"]).refused(3)["error"], "invalid_body");
}

#[test]
fn completions_know_members_rooms_notes_and_event_types() {
    let home = home!();
    tt(&home, "claude:1", &["join", "--name", "claude"]);
    tt(&home, "codex:1", &["join", "--name", "codex"]);
    let note = tt(&home, "codex:1", &["notes", "add", "flaky test"])["note_id"].as_str().unwrap().to_owned();
    let complete = |words: &[&str]| any(&home, "claude:1", &[&["complete", "--"], words].concat()).ok().stdout;
    assert_eq!(complete(&["kick", "co"]), "codex\tidle\n");
    assert_eq!(complete(&["msg", "send", "r"]), "room\n");
    assert!(complete(&["notes", "resolve", ""]).starts_with(&note[..8]));
    let reminder = tt(&home, "claude:1", &["remind", "1h", "look at CI"])["reminder_id"].as_str().unwrap().to_owned();
    assert_eq!(complete(&["remind", "cancel", ""]), format!("{}\tlook at CI\n", &reminder[..8]));
    assert_eq!(complete(&["remind", "1h", "look", "--to", "co"]), "codex\tidle\n");
    for command in ["ask", "inbox", "peek"] {
        assert_eq!(complete(&[command, "co"]), "codex\tidle\n", "{command}");
    }
    assert_eq!(complete(&["events", "--event", "claim,rel"]), "claim,release\n");
    assert!(complete(&["state", ""]).contains(home.workspace().canonicalize().unwrap().to_str().unwrap()));
    assert_eq!(complete(&["ki"]), "", "the script knows the commands");
    for (shell, hook) in [("bash", "_tt_or_ask"), ("zsh", "_tt_ask"), ("fish", "tt complete")] {
        assert!(home.run(&["completions", shell]).ok().stdout.contains(hook), "{shell}");
    }
}

#[test]
fn every_answer_about_a_room_tells_an_agent_what_waits_there_and_how_much_of_it_interrupts() {
    let home = home!();
    tt(&home, "a", &["join"]);
    tt(&home, "b", &["join"]);
    tt(&home, "b", &["send", "a", "hello"]);
    tt(&home, "b", &["send", "a", "stop", "--interrupt"]);
    let note = tt(&home, "b", &["notes", "add", "flaky test"])["note_id"].as_str().unwrap().to_owned();
    let calls: &[&[&str]] = &[
        &["join"],
        &["state"],
        &["status"],
        &["events"],
        &["try"],
        &["heartbeat"],
        &["send", "b", "hello"],
        &["notes", "add", "another"],
        &["notes", "list"],
        &["notes", "resolve", &note],
        &["release", "-m", "done", "-n", "go on"],
        &["wait", "--timeout", "1ms", "--no-events"],
    ];
    for args in calls {
        // A wait whose time runs out says so with its exit status.
        let answer = any(&home, "a", args).json();
        assert_eq!((&answer["unread"], &answer["interrupts"]), (&2.into(), &1.into()), "{args:?}: {answer}");
    }
    // They are still there, and with the last of them gone nothing is said.
    assert_eq!(any(&home, "a", &["recv"]).ok().stdout.lines().count(), 2);
    for args in calls.iter().filter(|args| matches!(args[0], "join" | "state" | "status" | "events")) {
        let answer = tt(&home, "a", args);
        assert_eq!((answer.get("unread"), answer.get("interrupts")), (None, None), "{args:?}: {answer}");
    }
}

#[test]
fn the_log_is_followed_whole_or_narrowed_to_what_concerns_the_caller() {
    let home = home!();
    for agent in ["a", "b", "c"] {
        tt(&home, agent, &["join"]);
    }
    let after = tt(&home, "a", &["state"])["cursor_event_seq"].to_string();
    tt(&home, "b", &["send", "c", "not for a"]);
    tt(&home, "b", &["send", "a", "for a"]);
    let followed = |target: &[&str]| -> Vec<String> {
        let (reader, writer) = std::io::pipe().unwrap();
        let args = [&["events", "--follow", "--event", "message_sent", "--after", &after], target].concat();
        let follower = Running::writing_to(&mut home.tt_as("a", &args), writer);
        let lines = Lines::of(reader);
        let mut bodies = Vec::new();
        while bodies.last().is_none_or(|body| body != "for a") {
            bodies.push(lines.json()["payload"]["body"].as_str().unwrap().to_owned());
        }
        drop(follower);
        bodies
    };
    assert_eq!(followed(&[]), ["not for a", "for a"]);
    assert_eq!(followed(&["--target", "self"]), ["for a"]);
}

#[test]
fn what_was_withdrawn_or_expired_is_in_the_log_with_its_mark_and_is_no_message() {
    let home = home!();
    for agent in ["a", "b", "human:alice"] {
        tt(&home, agent, &["join"]);
    }
    let after = tt(&home, "a", &["state"])["cursor_event_seq"].to_string();
    let send = |to: &str, body: &str| tt(&home, "a", &["send", to, body])["event_seq"].as_i64().unwrap();
    for to in ["b", "human:alice"] {
        let withdrawn = send(to, "taken back").to_string();
        tt(&home, "a", &["msg", "withdraw", &withdrawn]);
    }
    // The reader of a log, and a person, who reads it too, go past them to what is still a message.
    for (who, to) in [("b", "b"), ("human:alice", "human:alice")] {
        send(to, "still to be read");
        let read = text(&home, who, &["recv", "--after", &after]);
        assert!(read.contains("still to be read") && !read.contains("taken back"), "{read}");
        let waited = text(&home, who, &["recv", "--wait", "--after", &after]);
        assert!(waited.contains("still to be read") && !waited.contains("taken back"), "{waited}");
    }
    let page = tt(&home, "b", &["events", "--after", &after]);
    let marks: Vec<&str> =
        page["undelivered"].as_array().unwrap().iter().map(|mark| mark["state"].as_str().unwrap()).collect();
    assert_eq!((bodies(&page).len(), marks), (4, vec!["withdrawn"; 2]));
    let shown = text(&home, "b", &["events", "--after", &after]);
    assert_eq!(shown.matches("[withdrawn]").count(), 2, "{shown}");
}
