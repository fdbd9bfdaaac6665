//! `tt hook` never disturbs the session that runs it: whatever happens it is silent, succeeds and ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use tt_proto::session::SessionEvent;
use tt_tests::run::Finished;
use tt_tests::{Harness, Home, LIMIT, Running, home, process, run};

const INPUT: &str = r#"{"session_id":"s-1","cwd":"/","hook_event_name":"UserPromptSubmit","prompt":"hello"}"#;

/// `tt hook`, as a session of Claude Code whose process is this test.
fn hook(home: &Home, args: &[&str]) -> Command {
    let mut command = home.tt(&["hook"]);
    command.args(args).env("CLAUDECODE", "1").env("CLAUDE_PID", std::process::id().to_string());
    command
}

/// Runs a hook to its end with this input.
#[track_caller]
fn run_hook(home: &Home, args: &[&str], input: &[u8]) -> Finished {
    let path = home.path().join("input");
    fs::write(&path, input).unwrap();
    Running::spawn(hook(home, args).stdin(File::open(path).unwrap())).finish()
}

#[track_caller]
fn silent(finished: &Finished) {
    let said = (finished.code, finished.stdout.as_str(), finished.stderr.as_str());
    assert_eq!(said, (Some(0), "", ""), "{finished:?}");
}

const PROMPT: [&str; 3] = ["--harness", "claude", "prompt"];

fn explain(home: &Home) -> String {
    let mut whoami = home.tt(&["whoami", "--explain", "--json"]);
    whoami.env("CLAUDECODE", "1").env("CLAUDE_PID", std::process::id().to_string());
    run::finish(whoami.env("CLAUDE_CODE_SESSION_ID", "s-1")).ok().stdout
}

fn log(home: &Home) -> String {
    fs::read_to_string(home.paths().data_dir.join("hooks.log")).unwrap_or_default()
}

#[test]
fn what_a_hook_reports_is_evidence() {
    let home = home!();
    home.start();
    silent(&run_hook(&home, &PROMPT, INPUT.as_bytes()));
    assert_eq!(log(&home), "");
    let explained = explain(&home);
    assert!(explained.contains("busy") && explained.contains("hook says prompt"), "{explained}");
    silent(&run_hook(&home, &["--harness", "claude", "turn_ended"], INPUT.as_bytes()));
    assert!(explain(&home).contains("hook says turn_ended"), "{}", explain(&home));
}

/// `claude -p --resume` beside the session that it resumes: both name the same session, and only one of them ends.
#[test]
fn a_run_beside_a_living_session_ends_alone() {
    let home = home!();
    home.start();
    silent(&run_hook(&home, &["--harness", "claude", "session_started"], INPUT.as_bytes()));
    let script = "#!/bin/sh\nfor event in session_started prompt turn_ended session_ended; do\n\
        echo '{\"session_id\":\"s-1\",\"source\":\"resume\"}' | \"$1\" hook --harness claude $event || exit\ndone\n";
    let beside = Harness::new(&home, "claude").env("CLAUDECODE", "1").script(&home.script("beside", script));
    silent(&beside.tt);
    assert_ne!(beside.pid, std::process::id());
    let sessions = home.run(&["sessions", "--all", "--json"]).ok().json();
    let session = &sessions["sessions"][0];
    assert_eq!((&session["pid"], &session["liveness"]), (&std::process::id().into(), &"alive".into()), "{sessions}");
}

#[test]
fn without_a_daemon_it_is_silent_and_only_the_start_of_a_session_starts_one() {
    let home = home!();
    silent(&run_hook(&home, &PROMPT, INPUT.as_bytes()));
    assert_eq!(home.daemon(), None);
    let started = Instant::now();
    while home.daemon().is_none() {
        assert!(started.elapsed() < LIMIT, "no daemon: {}", log(&home));
        silent(&run_hook(&home, &["--harness", "claude", "session_started"], INPUT.as_bytes()));
    }
    home.kill_daemon();
    silent(&run_hook(&home, &PROMPT, INPUT.as_bytes()));
    assert_eq!(home.daemon(), None, "the socket of a killed daemon starts none either");
}

#[test]
fn a_daemon_that_stands_still_delays_nothing_and_is_in_the_log() {
    let home = home!();
    let daemon = home.start();
    process::freeze(daemon);
    let finished = run_hook(&home, &PROMPT, INPUT.as_bytes());
    let started = run_hook(&home, &["--harness", "claude", "session_started"], INPUT.as_bytes());
    tt_tests::home::send(daemon, Signal::SIGCONT);
    silent(&finished);
    silent(&started);
    assert_eq!(log(&home).lines().count(), 2, "{}", log(&home));
}

#[test]
fn every_hook_is_silent_and_succeeds_whatever_became_of_the_daemon() {
    let run_all = |home: &Home| {
        for event in SessionEvent::ALL {
            silent(&run_hook(home, &["--harness", "claude", event.as_str()], INPUT.as_bytes()));
        }
    };
    let home = home!();
    let daemon = home.start();
    run_all(&home);
    let database = rusqlite::Connection::open(home.paths().data_dir.join("rooms.sqlite")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON sessions BEGIN SELECT RAISE(FAIL, 'the disk is full'); END";
    database.execute_batch(refuse).unwrap();
    run_all(&home);
    process::freeze(daemon);
    let before = log(&home).lines().count();
    run_all(&home);
    assert_eq!(log(&home).lines().count() - before, SessionEvent::ALL.len(), "{}", log(&home));
    tt_tests::home::send(daemon, Signal::SIGCONT);
    for is_absent in [false, true] {
        home.kill_daemon();
        if is_absent {
            fs::remove_file(home.paths().socket).unwrap();
        }
        for event in SessionEvent::ALL.iter().filter(|event| **event != SessionEvent::SessionStarted) {
            silent(&run_hook(&home, &["--harness", "claude", event.as_str()], INPUT.as_bytes()));
            assert_eq!(home.daemon(), None, "{event:?} starts none");
        }
        let started = Instant::now();
        while home.daemon().is_none() {
            assert!(started.elapsed() < LIMIT, "the start of a session started none: {}", log(&home));
            silent(&run_hook(&home, &["--harness", "claude", "session_started"], INPUT.as_bytes()));
        }
    }
}

#[test]
fn a_full_disk_is_not_told_to_the_session() {
    let home = home!();
    home.start();
    let log = home.paths().data_dir.join("hooks.log");
    std::os::unix::fs::symlink("/dev/full", &log).unwrap();
    silent(&run_hook(&home, &PROMPT, b"{"));
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    silent(&run_hook(&home, &PROMPT, b"{"));
    fs::remove_dir(&log).unwrap();
    fs::write(&log, "x".repeat(300 * 1024)).unwrap();
    silent(&run_hook(&home, &PROMPT, b"{"));
    assert!(fs::metadata(&log).unwrap().len() < 1024, "a long log begins anew");
}

#[test]
fn input_of_any_kind_is_survived() {
    let home = home!();
    home.start();
    let huge = format!(r#"{{"session_id":"s-1","tool_response":"{}"}}"#, "x".repeat(20_000_000));
    let deep = format!(r#"{{"session_id":"s-1","x":{}"#, "[".repeat(100_000));
    let long = format!(r#"{{"session_id":"{}"}}"#, "s".repeat(100_000));
    let inputs: Vec<&[u8]> = vec![
        b"",
        b"\n",
        b"{",
        b"{}",
        b"null",
        b"[1]",
        br#"{"session_id":7}"#,
        br#"{"session_id":"s-1","source":{"another":"version"}}"#,
        br#"{"session_id":"s-1","unknown":{"key":[]}}"#,
        b"\xff\xfe\x00",
        huge.as_bytes(),
        deep.as_bytes(),
        long.as_bytes(),
    ];
    for input in inputs {
        silent(&run_hook(&home, &PROMPT, input));
    }
    let whoami = home.run(&["whoami", "--json"]).ok().json();
    assert!(whoami["agent_id"].is_string(), "the daemon goes on: {whoami}");
}

/// A harness that forgets to close its end, or stops in the middle.
#[test]
fn input_that_never_ends_does_not_keep_it() {
    let home = home!();
    home.start();
    for begun in ["", r#"{"session_id":"s-1","#, INPUT] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(begun.as_bytes()).unwrap();
        let mut command = hook(&home, &PROMPT);
        command.stdin(Stdio::from(reader));
        silent(&Running::spawn(&mut command).finish());
        drop(writer);
    }
    assert!(explain(&home).contains("hook says prompt"), "a whole object is enough");
}

#[test]
fn a_line_of_another_version_is_no_error() {
    let home = home!();
    let lines: [&[&str]; 8] = [
        &[],
        &["prompt"],
        &["--harness", "claude"],
        &["--harness", "other", "prompt"],
        &["--harness", "claude", "an_event_to_come"],
        &["--harness", "claude", "--flag-to-come", "prompt"],
        &["--harness", "claude", "prompt", "--flag-to-come=7", "more"],
        &["--harness"],
    ];
    for line in lines {
        silent(&run_hook(&home, line, INPUT.as_bytes()));
    }
    let mut nowhere = hook(&home, &PROMPT);
    silent(&Running::start(nowhere.env_remove("HOME")).finish());
    let help = home.run(&["hook", "--help"]).ok();
    assert!(help.stdout.contains("Usage"), "{help:?}");
}
