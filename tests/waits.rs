//! `tt wait`, the one receive loop an agent needs: turns, messages, joins and leaves, through restarts of the daemon.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tt_client::connect::Settings;
use tt_proto::ErrorCode;
use tt_proto::requests::{DaemonStatus, LeaveRoom, SendMessage, WaitForEvents, WaitForTurn};
use tt_tests::home::send;
use tt_tests::{Home, LIMIT, Member, Running, block_on, home, run};

fn tt(home: &Home, agent: &str, args: &[&str]) -> Value {
    run::finish(&mut home.tt_as(agent, args)).ok().json()
}

/// Starts `tt wait` and returns once the daemon has it.
fn wait(home: &Home, agent: &str, args: &[&str]) -> Running {
    let running = Running::start(&mut home.tt_as(agent, &[&["wait"], args].concat()));
    until_waiting(home, 1);
    running
}

/// Asks until this many wait. Not a member: nobody hears of it.
#[track_caller]
fn until_waiting(home: &Home, count: usize) {
    block_on(async {
        let mut asker = tt_client::connect::Client::connect(home.settings_of("asker")).await.unwrap();
        let started = Instant::now();
        loop {
            let waiters = asker.call(DaemonStatus {}).await.unwrap().waiters;
            if waiters >= count {
                return;
            }
            assert!(started.elapsed() < LIMIT, "{waiters} wait, not {count}");
        }
    });
}

/// A member that has been told who came before it began.
fn caught_up(home: &Home, agent: &str) {
    block_on(async {
        let mut member = Member::join(home, agent).await;
        member
            .call(|room_id| WaitForTurn {
                room_id,
                max_wait_ms: Some(0),
                park: Some(true),
                include_events: Some(true),
                ..Default::default()
            })
            .await;
    });
}

fn types(answer: &Value) -> Vec<&str> {
    answer["events"].as_array().unwrap().iter().map(|event| event["event_type"].as_str().unwrap()).collect()
}

#[test]
fn messages_joins_and_leaves_end_a_wait_with_what_happened() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    tt(&home, "holder", &["try"]);
    caught_up(&home, "waiter");
    let waiting = wait(&home, "waiter", &[]);
    tt(&home, "holder", &["msg", "send", "waiter", "a question"]);
    let answer = waiting.finish().ok().json();
    assert_eq!((answer["status"].as_str(), types(&answer)), (Some("events"), vec!["message_sent"]));
    assert_eq!(answer["events"][0]["payload"]["body"], "a question");
    assert_eq!(answer["cursor_event_seq"], answer["events"][0]["event_seq"]);

    let waiting = wait(&home, "waiter", &["--joins"]);
    tt(&home, "guest", &["join"]);
    let answer = waiting.finish().ok().json();
    assert_eq!((answer["status"].as_str(), types(&answer)), (Some("events"), vec!["member_joined"]));
    let waiting = wait(&home, "waiter", &["--joins"]);
    tt(&home, "guest", &["leave"]);
    let answer = waiting.finish().ok().json();
    assert_eq!((answer["status"].as_str(), types(&answer)), (Some("events"), vec!["member_left"]));

    // What was said between two waits ends the next one at once, and nothing is told twice.
    tt(&home, "holder", &["msg", "send", "room", "between"]);
    assert_eq!(types(&tt(&home, "waiter", &["wait"])), ["message_sent"]);
    let nothing = run::finish(&mut home.tt_as("waiter", &["wait", "--timeout", "1ms"]));
    assert_eq!(nothing.code, Some(5), "{nothing:?}");
    let nothing = nothing.json();
    assert_eq!((nothing["status"].as_str(), types(&nothing)), (Some("timeout"), vec![]));
    assert_eq!((&nothing["holder"], &nothing["place"]), (&"holder".into(), &1.into()));
    assert!(nothing["since"].is_string() && nothing["hint"].as_str().unwrap().contains("tt wait"), "{nothing}");
    assert_eq!(run::finish(&mut home.tt_as("waiter", &["msg", "recv"])).ok().stdout, "");
}

#[test]
fn a_turn_brings_the_messages_with_it() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    tt(&home, "holder", &["try"]);
    caught_up(&home, "waiter");
    tt(&home, "holder", &["msg", "send", "waiter", "read this first"]);
    tt(&home, "holder", &["pass", "waiter", "--status", "done", "--next-action", "review"]);
    let answer = tt(&home, "waiter", &["wait"]);
    assert_eq!(
        (answer["status"].as_str(), answer["handoff"]["next_action"].as_str()),
        (Some("your_turn"), Some("review"))
    );
    assert_eq!(types(&answer), ["message_sent"]);
    assert_eq!(run::finish(&mut home.tt_as("waiter", &["msg", "recv"])).ok().stdout, "", "handed over");
}

#[test]
fn a_wait_for_the_turn_alone_leaves_the_inbox_as_it_is() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    tt(&home, "holder", &["try"]);
    caught_up(&home, "waiter");
    tt(&home, "holder", &["msg", "send", "waiter", "later"]);
    let answer = run::finish(&mut home.tt_as("waiter", &["wait", "--no-events", "--timeout", "1ms"])).json();
    assert_eq!(answer["unread"], 1, "the answer says what waits");
    assert_eq!((answer["status"].as_str(), answer.get("events")), (Some("timeout"), None));
    assert_eq!(run::finish(&mut home.tt_as("waiter", &["msg", "recv"])).ok().stdout.lines().count(), 1);
}

#[test]
fn restarts_of_the_daemon_are_not_noticed_by_a_wait_and_what_happened_meanwhile_is_told() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    tt(&home, "holder", &["try"]);
    caught_up(&home, "waiter");
    let waiting = wait(&home, "waiter", &[]);
    for _ in 0..3 {
        send(home.daemon().unwrap(), Signal::SIGKILL);
        // The waiter brings the next daemon up by itself.
        until_waiting(&home, 1);
        assert!(!waiting.ended_within(Duration::ZERO));
    }
    tt(&home, "holder", &["msg", "send", "waiter", "still there?"]);
    assert_eq!(types(&waiting.finish().ok().json()), ["message_sent"]);

    // Somebody joins while the waiter is away: stopped, it cannot come back before.
    let waiting = wait(&home, "waiter", &["--joins"]);
    tt_tests::process::freeze(waiting.pid());
    send(home.daemon().unwrap(), Signal::SIGKILL);
    home.wait_until_gone();
    tt(&home, "guest", &["join"]);
    waiting.signal(Signal::SIGCONT);
    let answer = waiting.finish().ok().json();
    assert_eq!((answer["status"].as_str(), types(&answer)), (Some("events"), vec!["member_joined"]));

    let waiting = wait(&home, "waiter", &[]);
    home.run(&["daemon", "restart"]).ok();
    tt(&home, "holder", &["pass", "waiter", "--status", "done", "--next-action", "review"]);
    assert_eq!(waiting.finish().ok().json()["status"], "your_turn");
}

#[test]
fn a_wait_outlives_more_restarts_than_one_call_has_patience_for() {
    let patience = Duration::from_secs(2);
    let home = home!();
    let (told, answer) = mpsc::channel();
    let mut watcher = block_on(async {
        let settings = Settings { deadline: patience, ..home.settings_of("watcher") };
        Member::join_as(&home, settings).await
    });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            block_on(async {
                let wait = |room_id| {
                    let types = Some(tt_proto::filter::OneOrMany::One("message_sent".into()));
                    WaitForEvents { room_id, after_event_seq: Some(0), event_type: types, ..Default::default() }
                };
                told.send(watcher.try_call(wait).await)
            })
        });
        for _ in 0..2 {
            send(home.daemon().unwrap(), Signal::SIGKILL);
            // Longer than a call may be cut for; nothing has happened that it could have been told.
            let early = answer.recv_timeout(patience + patience / 10);
            assert!(early.is_err(), "{early:?}");
        }
        block_on(async { Member::join(&home, "writer").await.say(None, "at last").await });
        assert_eq!(answer.recv_timeout(tt_tests::LIMIT).unwrap().unwrap().events.len(), 1);
    });
}

#[test]
fn a_wait_whose_reader_is_gone_leaves_its_messages_in_the_inbox() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    tt(&home, "holder", &["try"]);
    caught_up(&home, "waiter");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let waiting = Running::writing_to(&mut home.tt_as("waiter", &["wait"]), writer);
    until_waiting(&home, 1);
    tt(&home, "holder", &["msg", "send", "waiter", "hello?"]);
    assert_eq!(waiting.finish().ok().stderr, "");
    assert_eq!(run::finish(&mut home.tt_as("waiter", &["msg", "recv"])).ok().stdout.lines().count(), 1);
}

#[test]
fn a_member_removed_while_it_waits_is_told_so() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    caught_up(&home, "waiter");
    let waiting = wait(&home, "waiter", &["--park"]);
    tt(&home, "holder", &["kick", "waiter", "--force"]);
    let told = waiting.finish();
    assert_eq!((told.code, told.json()["status"].as_str()), (Some(3), Some("removed")));
    assert_eq!((&told.json()["kicked_by"], told.json().get("kick_reason")), (&"holder".into(), None));

    tt(&home, "waiter", &["join"]);
    let waiting = wait(&home, "waiter", &["--park", "--text"]);
    tt(&home, "holder", &["kick", "waiter", "--force", "--reason", "it loops\u{1b}[2J"]);
    let told = waiting.finish();
    assert_eq!(told.code, Some(3), "{told:?}");
    assert!(told.stdout.starts_with("holder kicked you from this room: it loops\\u{1b}[2J\n"), "{told:?}");
    // A command that waits for the stick is told as well, and does not run.
    tt(&home, "waiter", &["join"]);
    tt(&home, "holder", &["try"]);
    let waiting = Running::start(&mut home.tt_as("waiter", &["run", "--", "touch", "ran"]));
    until_waiting(&home, 1);
    tt(&home, "holder", &["kick", "waiter", "--force", "--reason", "it loops"]);
    let refused = waiting.finish().refused(3);
    assert_eq!(refused["error"], "kicked");
    assert!(refused["message"].as_str().unwrap().contains("it loops"), "{refused}");
    assert!(!home.workspace().join("ran").exists());
}

#[test]
fn joins_and_leaves_do_not_end_a_wait_and_come_with_its_answer_once() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    tt(&home, "holder", &["try"]);
    tt(&home, "waiter", &["join"]);
    let waiting = wait(&home, "waiter", &[]);
    tt(&home, "guest", &["join"]);
    tt(&home, "guest", &["msg", "send", "waiter", "hello"]);
    let answer = waiting.finish().ok().json();
    assert_eq!(types(&answer), ["message_sent", "member_joined"]);
    // Coming back is a new beginning: what happened before is no news.
    tt(&home, "waiter", &["leave"]);
    tt(&home, "guest", &["leave"]);
    tt(&home, "waiter", &["join"]);
    let later = run::finish(&mut home.tt_as("waiter", &["wait", "--timeout", "1ms"])).json();
    assert_eq!(types(&later), Vec::<&str>::new());
}

#[test]
fn a_join_is_kept_through_the_calls_of_a_long_wait_and_ends_none_of_them() {
    let home = home!();
    let config = home.paths().config_dir;
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[policy]\nwait_max = \"10ms\"\n").unwrap();
    tt(&home, "holder", &["join"]);
    tt(&home, "holder", &["try"]);
    caught_up(&home, "waiter");
    // The first call of many brings the joins.
    tt(&home, "guest", &["join"]);
    let told = run::finish(&mut home.tt_as("waiter", &["wait", "--timeout", "200ms"]));
    let answer = told.json();
    assert_eq!(
        (told.code, answer["status"].as_str(), types(&answer)),
        (Some(5), Some("timeout"), vec!["member_joined"])
    );
    tt(&home, "guest", &["leave"]);
    let waiting = wait(&home, "waiter", &[]);
    tt(&home, "holder", &["msg", "send", "waiter", "a question"]);
    let answer = waiting.finish().ok().json();
    assert_eq!((answer["status"].as_str(), types(&answer)), (Some("events"), vec!["message_sent", "member_left"]));
}

#[test]
fn a_member_alone_with_a_free_stick_is_told_how_to_take_it_and_waits_on() {
    let home = home!();
    tt(&home, "waiter", &["join"]);
    let alone = run::finish(&mut home.tt_as("waiter", &["wait", "--timeout", "1ms"]));
    assert_eq!(alone.code, Some(5));
    assert!(alone.stderr.contains("tt try takes it"), "{alone:?}");
    assert_eq!(run::finish(&mut home.tt_as("waiter", &["try"])).code, Some(0));
    tt(&home, "other", &["join"]);
    let other = run::finish(&mut home.tt_as("other", &["try"]));
    assert_eq!((other.code, other.json()["status"].as_str()), (Some(5), Some("not_yet")));
}

#[test]
fn one_wait_brings_at_most_ten_messages_the_most_urgent_first() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    tt(&home, "waiter", &["join"]);
    for n in 0..12 {
        tt(&home, "holder", &["send", "waiter", &format!("message {n}")]);
    }
    tt(&home, "holder", &["send", "waiter", "--important", "soon"]);
    tt(&home, "holder", &["send", "waiter", "--interrupt", "stop"]);
    let state = tt(&home, "waiter", &["state"]);
    assert_eq!((&state["unread"], &state["interrupts"]), (&14.into(), &1.into()));
    let answer = tt(&home, "waiter", &["wait"]);
    let bodies: Vec<&str> =
        answer["events"].as_array().unwrap().iter().map(|e| e["payload"]["body"].as_str().unwrap()).collect();
    assert_eq!((bodies.len(), &bodies[..3], &answer["more"]), (10, &["stop", "soon", "message 0"][..], &4.into()));
    let rest = tt(&home, "waiter", &["wait"]);
    assert_eq!((types(&rest).len(), rest.get("more")), (4, None));
    assert_eq!(tt(&home, "waiter", &["state"]).get("unread"), None);
    // Bytes count as well, and the longest message still comes.
    for _ in 0..5 {
        tt(&home, "holder", &["send", "waiter", &"x".repeat(3000)]);
    }
    let long = tt(&home, "waiter", &["wait"]);
    assert_eq!((types(&long).len(), &long["more"]), (2, &3.into()));
}

#[test]
fn a_command_runs_with_the_stick_and_leaves_a_handoff_however_it_ends() {
    let home = home!();
    tt(&home, "runner", &["join"]);
    let pending = |home: &Home| tt(home, "runner", &["state"])["pending_handoff"].clone();
    let ran = run::finish(&mut home.tt_as("runner", &["run", "-m", "built", "--", "sh", "-c", "echo out; exit 7"]));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(7), "out\n"), "{ran:?}");
    let status = pending(&home)["status"].as_str().unwrap().to_owned();
    assert!(status.starts_with("built\n") && status.contains("exit status 7"), "{status}");
    let missing = run::finish(&mut home.tt_as("runner", &["run", "--", "no-such-program"]));
    assert_eq!(missing.code, Some(127));
    let running = Running::start(&mut home.tt_as("runner", &["run", "--", "sh", "-c", "touch started; exec sleep 60"]));
    let started = Instant::now();
    // Told to end before that, it has nothing to report but that the command was not started.
    while !home.workspace().join("started").exists() {
        assert!(started.elapsed() < LIMIT);
    }
    running.signal(Signal::SIGTERM);
    assert_eq!(running.finish().code, Some(143));
    let status = pending(&home)["status"].as_str().unwrap().to_owned();
    assert!(status.contains("sleep 60") && status.contains("SIGTERM"), "{status}");
    // A stick that was held before is kept.
    tt(&home, "runner", &["try"]);
    run::finish(&mut home.tt_as("runner", &["run", "--", "true"])).ok();
    assert_eq!(tt(&home, "runner", &["state"])["room"]["owner"], "runner");
}

#[test]
fn a_wait_that_joins_reports_no_old_news() {
    let home = home!();
    let member = tt(&home, "holder", &["join"]);
    assert_eq!(member["agent_id"], "holder");
    block_on(async {
        // More changes than one answer reports.
        home.come_and_go(60, home.workspace()).await;
        let settings = Settings {
            context_path: Some(home.workspace().display().to_string()),
            joins: true,
            ..home.settings_of("newcomer")
        };
        let mut newcomer = tt_client::connect::Client::connect(settings).await.unwrap();
        let wait = WaitForTurn {
            room_id: newcomer.welcome().room_id.clone().unwrap(),
            max_wait_ms: Some(0),
            park: Some(true),
            include_events: Some(true),
            ..Default::default()
        };
        let told = newcomer.call(wait.clone()).await.unwrap();
        assert_eq!(told.events.unwrap(), [], "it came after all of that");
        home.come_and_go(1, home.workspace()).await;
        let told = newcomer.call(wait).await.unwrap();
        assert_eq!(told.events.unwrap().len(), 2, "a join and a leave since then");
    });
}

#[test]
fn a_turn_that_the_caller_took_itself_while_tt_run_waited_is_kept() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    tt(&home, "holder", &["try"]);
    tt(&home, "runner", &["join"]);
    let waiting = Running::start(&mut home.tt_as("runner", &["run", "--", "touch", "ran"]));
    until_waiting(&home, 1);
    let turn = tt(&home, "runner", &["take", "--operator", "--reason", "a person told me to"])["turn_id"].clone();
    waiting.finish().ok();
    assert!(home.workspace().join("ran").exists());
    let room = tt(&home, "runner", &["state"])["room"].clone();
    assert_eq!((&room["owner"], &room["turn_id"]), (&"runner".into(), &turn), "{room}");
}

#[test]
fn a_refused_command_makes_nobody_a_member_and_one_that_succeeds_does() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    let members = || tt(&home, "holder", &["state"])["members"].as_array().unwrap().len();
    let refused = run::finish(&mut home.tt_as("stranger", &["msg", "recv", "--from", "nobody"])).refused(3);
    assert_eq!((refused["error"].as_str(), members()), (Some("unknown_recipient"), 1), "{refused}");
    run::finish(&mut home.tt_as("stranger", &["run", "--", "true"])).ok();
    assert_eq!(members(), 2);
    let told = run::finish(&mut home.tt_as("reader", &["msg", "recv", "--text"])).ok();
    assert!(told.stderr.starts_with("joined "), "{told:?}");
    assert_eq!(members(), 3);
}

#[test]
fn a_connection_joins_by_the_one_call_it_is_told_to_and_only_if_that_succeeds() {
    let home = home!();
    tt(&home, "holder", &["join"]);
    block_on(async {
        let context_path = Some(home.workspace().display().to_string());
        let settings = Settings { context_path, ..home.settings_of("stranger") };
        let mut stranger = tt_client::connect::Client::connect(settings).await.unwrap();
        let room_id = stranger.welcome().room_id.clone().unwrap();
        let say = |to: &str| SendMessage {
            room_id: room_id.clone(),
            body: "hello".into(),
            to: Some(to.into()),
            ..Default::default()
        };
        let is_member = || tt(&home, "holder", &["state"])["members"].as_array().unwrap().len() == 2;
        assert_eq!(stranger.call(say("holder")).await.unwrap_err().code, ErrorCode::UnknownMember);
        assert_eq!(stranger.call_and_join(say("nobody")).await.unwrap_err().code, ErrorCode::UnknownRecipient);
        assert!(!is_member(), "it was refused");
        stranger.call_and_join(say("holder")).await.unwrap();
        assert!(is_member());
        stranger.call(LeaveRoom { room_id: room_id.clone(), ..Default::default() }).await.unwrap();
        assert_eq!(stranger.call(say("holder")).await.unwrap_err().code, ErrorCode::UnknownMember, "it left");
        assert!(!is_member());
    });
}
