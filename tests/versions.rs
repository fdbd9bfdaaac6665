//! Two versions on one machine: the newer client replaces an older daemon once, and nobody fights. Lifecycle line 10.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tt_client::connect::{Client, Settings};
use tt_proto::requests::Whoami;
use tt_proto::{ErrorCode, PROTOCOL, VERSION};
use tt_tests::{Home, InProcess, LIMIT, Lines, Running, block_on, home, process};

fn settings(home: &Home) -> Settings {
    let mut settings = Settings::from_environment(home.environment()).unwrap();
    settings.daemon = Some(home.ttd_path().to_owned());
    settings
}

fn in_process(home: &Home, version: &str) -> InProcess {
    let mut options = home.options();
    options.version = version.to_owned();
    InProcess::start(options)
}

#[test]
fn a_newer_client_replaces_an_older_daemon_once() {
    let home = home!();
    let old = in_process(&home, "0.0.1");
    home.run(&["whoami"]).ok();
    assert!(old.ended_within(LIMIT), "the older daemon is still there");
    let new = home.daemon().unwrap();
    assert_ne!(new, std::process::id());
    for _ in 0..5 {
        home.run(&["whoami"]).ok();
        assert_eq!(home.daemon(), Some(new), "replaced again");
    }
    assert_eq!(home.status()["version"], VERSION);
}

/// An older daemon in a process of its own: this very program, running the test below.
fn old_daemon(home: &Home) -> Running {
    let old = Running::start(&mut old_daemon_command(home));
    home.wait_for(&old);
    old
}

fn old_daemon_command(home: &Home) -> Command {
    let mut command: Command = home.command(std::env::current_exe().unwrap());
    command.args(["--exact", "versions::plays_an_older_daemon", "--ignored", "--nocapture"]);
    command
}

#[test]
#[ignore = "run by other tests as a daemon of version 0.0.1"]
fn plays_an_older_daemon() {
    let home = std::env::var_os("HOME").unwrap();
    let env = tt_proto::paths::Environment::of([("HOME", home)]);
    let mut options = ttd::lifecycle::Options::from_environment(&env).unwrap();
    options.version = "0.0.1".into();
    let daemon = InProcess::start(options);
    // Signals end a daemon in order, as the program does.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut terminate = {
        let _inside = runtime.enter();
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap()
    };
    let stopper = daemon.stopper();
    runtime.spawn(async move {
        terminate.recv().await;
        stopper.stop();
    });
    assert!(daemon.ended_within(LIMIT));
    // The process goes on for as long as its input does.
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn stopping_waits_until_the_process_has_ended_and_not_only_for_its_lock() {
    let home = home!();
    let mut command = old_daemon_command(&home);
    let mut old = Running::spawn(command.stdin(std::process::Stdio::piped()));
    let input = old.stdin();
    home.wait_for(&old);
    let stop = Running::start(&mut home.tt(&["--json", "daemon", "stop"]));
    home.wait_until_gone();
    assert!(!stop.ended_within(std::time::Duration::from_millis(500)), "the process still runs");
    drop(input);
    assert_eq!(stop.finish().ok().json()["status"], "stopped");
    old.finish().ok();
}

#[test]
fn many_newer_clients_at_once_replace_an_older_daemon_without_getting_in_each_others_way() {
    let home = home!();
    let old = old_daemon(&home);
    let all: Vec<Running> = (0..20).map(|_| Running::start(&mut home.tt(&["whoami"]))).collect();
    for tt in all {
        tt.finish().ok();
    }
    old.finish().ok();
    assert_eq!(home.log().lines().filter(|line| line.contains(" ready ")).count(), 1, "{}", home.log());
}

#[test]
fn an_older_daemon_that_stands_still_is_reported_not_fought() {
    let home = home!();
    let old = old_daemon(&home);
    process::freeze(old.pid());
    let error =
        block_on(Client::connect(Settings { deadline: std::time::Duration::from_millis(300), ..settings(&home) }))
            .unwrap_err();
    assert!(error.hint.contains("tt daemon restart"), "{error:?}");
    assert_eq!(home.daemon(), Some(old.pid()));
}

#[test]
fn an_older_client_works_with_a_newer_daemon_and_lets_it_be() {
    let home = home!();
    let pid = home.start();
    block_on(async {
        let mut client = Client::connect(Settings { version: "0.0.1".into(), ..settings(&home) }).await.unwrap();
        client.call(Whoami::default()).await.unwrap();
        assert_eq!((client.welcome().pid, client.welcome().version.as_str()), (pid, VERSION));
    });
    assert_eq!(home.daemon(), Some(pid));

    let newer = home!();
    let daemon = in_process(&newer, "99.0.0");
    newer.run(&["whoami"]).ok();
    assert_eq!(newer.status()["version"], "99.0.0");
    assert!(!daemon.ended_within(std::time::Duration::ZERO));
}

/// A first call goes out with the greeting, so the older daemon has carried it out before anyone knows how old it is.
#[test]
fn what_an_older_daemon_was_asked_in_the_same_breath_is_done_once() {
    let home = home!();
    home.run(&["join"]).ok();
    home.run(&["daemon", "stop"]).ok();
    let daemon = in_process(&home, "0.0.1");
    home.run(&["msg", "send", "room", "hello"]).ok();
    assert!(daemon.ended_within(LIMIT));
    assert_eq!(home.status()["version"], VERSION);
    let log = home.run(&["--json", "events"]).ok().stdout;
    assert_eq!(log.matches("message_sent").count(), 1, "{log}");
}

#[test]
fn a_client_whose_own_daemon_is_the_one_that_runs_does_not_restart_it_for_ever() {
    let home = home!();
    let pid = home.start();
    // A newer tt beside an older ttd: half an upgrade.
    let newer = Settings { version: "99.0.0".into(), ..settings(&home) };
    for _ in 0..3 {
        let client = block_on(Client::connect(newer.clone())).unwrap();
        assert_eq!(client.welcome().pid, pid);
    }
    assert_eq!(home.log().lines().filter(|line| line.contains(" ready ")).count(), 1);
}

#[test]
fn a_supervised_daemon_is_the_supervisors_to_restart() {
    let home = home!();
    let mut options = home.options();
    (options.version, options.supervised) = ("0.0.1".into(), true);
    let daemon = InProcess::start(options);
    home.run(&["whoami"]).ok();
    assert_eq!(home.status()["version"], "0.0.1");
    assert!(!daemon.ended_within(std::time::Duration::ZERO));
}

#[test]
fn a_client_that_may_not_start_a_daemon_does_not_replace_one() {
    let home = home!();
    let _daemon = in_process(&home, "0.0.1");
    home.run(&["--no-autostart", "whoami"]).ok();
    assert_eq!(home.status()["version"], "0.0.1");
}

#[test]
fn a_protocol_that_is_no_longer_spoken_is_refused_with_the_remedy() {
    let home = home!();
    let pid = home.start();
    let ancient = Settings { protocol: 0, version: "0.0.1".into(), ..settings(&home) };
    let error = block_on(Client::connect(ancient)).unwrap_err();
    assert_eq!(error.code, ErrorCode::ProtocolMismatch);
    assert!(error.hint.contains(&format!("install tt {VERSION}")), "{error:?}");
    assert_eq!(error.details["daemon_protocol"], PROTOCOL);
    assert_eq!(home.daemon(), Some(pid));

    let strict = home!();
    let mut options = strict.options();
    (options.min_protocol, options.version) = (PROTOCOL + 1, "99.0.0".into());
    let _daemon = InProcess::start(options);
    for command in ["whoami", "state"] {
        let error = strict.run(&["--json", command]).refused(3);
        assert_eq!(error["error"], "protocol_mismatch", "{command}");
    }
}

#[test]
fn a_daemon_too_old_to_understand_the_client_is_replaced_once_and_then_reported() {
    let home = home!();
    let pid = home.start();
    // Another program of the same build. No daemon of this build speaks the protocol, so the replacement refuses as well.
    let other = home.path().join("ttd");
    std::fs::copy(home.ttd_path(), &other).unwrap();
    let future = Settings { protocol: PROTOCOL + 1, version: "99.0.0".into(), daemon: Some(other), ..settings(&home) };
    for _ in 0..3 {
        let error = block_on(Client::connect(future.clone())).unwrap_err();
        assert_eq!(error.code, ErrorCode::ProtocolMismatch);
        assert!(!error.hint.is_empty());
        assert_ne!(home.daemon(), Some(pid));
    }
    assert_eq!(home.log().lines().filter(|line| line.contains(" ready ")).count(), 2, "{}", home.log());
}

#[test]
fn the_handshake_says_what_both_ends_can_do() {
    let home = home!();
    let client = block_on(Client::connect(settings(&home))).unwrap();
    let welcome = client.welcome();
    assert_eq!((welcome.protocol, welcome.version.as_str()), (PROTOCOL, VERSION));
    assert!(welcome.capabilities.iter().any(|name| name == "messages"), "{welcome:?}");
    assert_eq!(welcome.program.as_ref().unwrap().path, home.ttd_path().to_str().unwrap());
    assert_eq!(welcome.log, home.paths().log().to_str().unwrap());
    assert_eq!(Some(welcome.pid), home.daemon());
}

/// What the daemon says, and what a newer one might say instead. They are equally long, so that no length has to be changed.
struct Difference {
    known: &'static [u8],
    newer: &'static [u8],
}

/// Leaves are events of a type that nobody knows yet.
const NEWER_TYPE: Difference =
    Difference { known: b"\"event_type\":\"member_left\"", newer: b"\"event_type\":\"member_flew\"" };

/// The items of a stream lack the cursor.
const NEWER_CURSOR: Difference = Difference { known: b"\"cursor_event_seq\":", newer: b"\"cursor_event_key\":" };

/// A socket through which the daemon looks like a newer one.
fn newer_daemon(home: &Home, difference: &'static Difference) -> PathBuf {
    assert_eq!(difference.known.len(), difference.newer.len());
    let dir = home.path().join("newer");
    std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    let (socket, daemon) = (dir.join("ttd.sock"), home.paths().socket);
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, daemon) = (client.unwrap(), UnixStream::connect(&daemon).unwrap());
            let (requests, to_daemon) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
            thread::spawn(move || forward(requests, to_daemon, |bytes| bytes.len()));
            thread::spawn(move || forward(daemon, client, |bytes| difference.apply(bytes)));
        }
    });
    socket
}

/// Forwards what is read until it ends. `ready` tells how much of it may go on; the rest waits for more.
fn forward(mut from: UnixStream, mut to: UnixStream, ready: impl Fn(&mut [u8]) -> usize) {
    let (mut held, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(length @ 1..) = from.read(&mut piece) {
        held.extend_from_slice(&piece[..length]);
        let length = ready(&mut held);
        if to.write_all(&held[..length]).is_err() {
            break;
        }
        held.drain(..length);
    }
    let _ = to.shutdown(Shutdown::Both);
}

impl Difference {
    fn apply(&self, bytes: &mut [u8]) -> usize {
        let Self { known, newer } = *self;
        while let Some(at) = bytes.windows(known.len()).position(|seen| seen == known) {
            bytes[at..at + newer.len()].copy_from_slice(newer);
        }
        // An end that may be the beginning of what is replaced waits for its rest.
        let cut = (1..known.len()).rev().find(|length| bytes.ends_with(&known[..*length]));
        bytes.len() - cut.unwrap_or(0)
    }
}

fn follow(home: &Home, socket: &Path, args: &[&str]) -> (Running, Lines) {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = home.tt_as("a", args);
    command.env("TALKING_STICK_SOCKET", socket);
    (Running::writing_to(&mut command, writer), Lines::of(reader))
}

#[test]
fn an_event_of_a_type_that_only_a_newer_daemon_knows_is_shown_and_passed() {
    let home = home!();
    for agent in ["a", "b"] {
        home.tt_as(agent, &["join"]).output().unwrap();
    }
    let socket = newer_daemon(&home, &NEWER_TYPE);
    let from_the_start = ["events", "--follow", "--target", "any", "--after", "0"];
    let (_json, lines) = follow(&home, &socket, &from_the_start);
    let (_text, text) = follow(&home, &socket, &[&["--text"], &from_the_start[..]].concat());
    for args in [&["leave"][..], &["join"], &["msg", "send", "a", "still here"]] {
        tt_tests::run::finish(&mut home.tt_as("b", args)).ok();
    }
    let seen: Vec<_> = std::iter::repeat_with(|| lines.json()).take(5).collect();
    let types: Vec<&str> = seen.iter().map(|event| event["event_type"].as_str().unwrap()).collect();
    assert_eq!(types, ["member_joined", "member_joined", "unknown", "member_joined", "message_sent"]);
    assert_eq!((&seen[2]["from_agent_id"], &seen[2]["reason"]), (&"b".into(), &"left".into()), "{}", seen[2]);
    let seqs: Vec<i64> = seen.iter().map(|event| event["event_seq"].as_i64().unwrap()).collect();
    assert!(seqs.is_sorted_by(|one, next| one < next), "each once, in order: {seqs:?}");
    let shown: Vec<String> = std::iter::repeat_with(|| text.next().unwrap()).take(6).collect();
    assert!(shown[2].contains("does not know") && shown[5].contains("still here"), "{shown:?}");
    // A wait that is told of it goes on as well, and so does a look at the log.
    tt_tests::run::finish(&mut home.tt_as("b", &["leave"])).ok();
    let (log, page) = follow(&home, &socket, &["events", "--target", "any"]);
    log.finish().ok();
    assert_eq!(page.json()["events"][2]["event_type"], "unknown");
    let (wait, answer) = follow(&home, &socket, &["wait", "--timeout", "0s"]);
    wait.finish();
    let answer = answer.json();
    assert!(answer["events"].as_array().unwrap().iter().any(|event| event["event_type"] == "unknown"), "{answer}");
}

#[test]
fn a_follower_that_cannot_read_an_event_says_so_and_ends() {
    let home = home!();
    home.tt_as("a", &["join"]).output().unwrap();
    let socket = newer_daemon(&home, &NEWER_CURSOR);
    let (follower, lines) =
        follow(&home, &socket, &["--json", "events", "--follow", "--target", "any", "--after", "0"]);
    let finished = follower.finish();
    assert_ne!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stderr.contains("could not be read"), "{finished:?}");
    assert!(lines.silent());
}
