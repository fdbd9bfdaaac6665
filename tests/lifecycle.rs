//! The sixteen lines of the daemon's life, each a bug someone shipped. The number before a test is the line in
//! `docs/architecture.md` that it holds. Line 3 is in `hostile.rs`, line 10 in `versions.rs`; what goes wrong at a start is in
//! `recovery.rs`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tt_client::connect::{Client, HttpClient, Settings};
use tt_proto::paths::{Environment, Paths};
use tt_proto::requests::{DaemonStatus, DaemonStatusAnswer, JoinPath, WaitForTurn, Whoami};
use tt_proto::{Error, ErrorCode};
use tt_tests::home::send;
use tt_tests::{Home, InProcess, LIMIT, Member, Running, block_on, home, process, run};

/// Long enough for a daemon that leaves too early to be caught at it.
const A_WHILE: Duration = Duration::from_millis(300);

fn settings(home: &Home) -> Settings {
    let mut settings = Settings::from_environment(home.environment()).unwrap();
    settings.daemon = Some(home.ttd_path().to_owned());
    settings
}

// 1
#[test]
fn a_cron_job_an_ssh_session_and_a_desktop_meet_the_same_daemon() {
    let home = home!();
    let pid = home.start();
    let ambient =
        [("XDG_RUNTIME_DIR", "/run/user/0"), ("TMPDIR", "/var/tmp"), ("SSH_CONNECTION", "x"), ("DISPLAY", ":0")];
    for (name, value) in ambient {
        let mut tt = home.tt(&["--no-autostart", "daemon", "status", "--json"]);
        let status = run::finish(tt.env(name, value).current_dir("/")).ok().json();
        assert_eq!(status["pid"], pid, "{name}");
    }
}

// 1
#[test]
fn a_data_directory_too_long_for_a_socket_address_still_has_one_daemon() {
    let home = home!();
    // Reached through a symlink and not there yet: both ends must still agree on the hash in the socket's name.
    let real = home.path().join("r".repeat(100));
    std::fs::create_dir(&real).unwrap();
    symlink(&real, home.path().join("link")).unwrap();
    let data_dir = home.path().join("link/not/there/yet");
    let env = [("HOME", home.path().as_os_str()), ("TALKING_STICK_DATA_DIR", data_dir.as_os_str())];
    let first = Paths::resolve(&Environment::of(env)).unwrap();
    let tt = |args: &[&str]| run::finish(home.tt(args).env("TALKING_STICK_DATA_DIR", &data_dir));
    let whoami = tt(&["whoami"]);
    let status = tt(&["daemon", "status", "--json"]);
    let stopped = tt(&["daemon", "stop"]);
    let socket_dir = first.socket_dir().to_owned();
    assert!(socket_dir.parent() == Some(Path::new("/tmp")) && socket_dir.to_str().unwrap().contains("talking-stick-"));
    let _ = std::fs::remove_dir(socket_dir);
    whoami.ok();
    stopped.ok();
    assert_eq!(status.ok().json()["socket"], first.socket.to_str().unwrap());
    assert_eq!(Paths::resolve(&Environment::of(env)).unwrap(), first);
}

// 1
#[test]
fn a_socket_named_by_the_variable_is_used() {
    let home = home!();
    let dir = home.path().join("elsewhere");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    let socket = dir.join("s");
    run::finish(home.tt(&["whoami"]).env("TALKING_STICK_SOCKET", &socket)).ok();
    assert!(socket.exists() && !home.paths().socket.exists());
    let status = run::finish(home.tt(&["daemon", "status", "--json"]).env("TALKING_STICK_SOCKET", &socket)).ok();
    assert_eq!(status.json()["pid"], home.daemon().unwrap());
}

// 2
#[test]
fn a_directory_that_others_could_have_a_hand_in_is_refused_with_the_remedy() {
    let open = home!();
    let dir = open.make_data_dir();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o750)).unwrap();
    refused_by_both_ends(&open, "chmod 700");

    let linked = home!();
    let dir = linked.make_data_dir();
    std::fs::rename(&dir, linked.path().join("moved")).unwrap();
    symlink(linked.path().join("moved"), &dir).unwrap();
    refused_by_both_ends(&linked, "replace it by a directory");

    if !tt_tests::is_root() {
        return tt_tests::not_run("a data directory of another owner is refused", "only root can give one away");
    }
    let foreign = home!();
    std::os::unix::fs::chown(foreign.make_data_dir(), Some(tt_tests::NOBODY), None).unwrap();
    // It is not ours, so nothing about it is to be changed.
    refused_by_both_ends(&foreign, "set TALKING_STICK_DATA_DIR to a directory of yours");
}

// 2
#[test]
fn a_directory_opened_to_others_under_a_running_daemon_is_refused_as_well() {
    let home = home!();
    let pid = home.start();
    let mode = |mode| std::fs::set_permissions(home.paths().data_dir, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o777);
    let error = home.run(&["--json", "whoami"]).refused(4);
    assert!(error["hint"].as_str().unwrap().contains("chmod 700"), "{error}");
    mode(0o700);
    home.run(&["--no-autostart", "whoami"]).ok();
    assert_eq!(home.daemon(), Some(pid));
}

fn refused_by_both_ends(home: &Home, remedy: &str) {
    let error = home.run(&["--json", "whoami"]).refused(4);
    assert_eq!(error["error"], "storage_unavailable");
    assert!(error["hint"].as_str().unwrap().contains(remedy), "{error}");
    let ttd = run::finish(&mut home.ttd());
    assert!(ttd.code == Some(1) && ttd.stderr.contains(remedy), "{ttd:?}");
}

// 2, 13
#[test]
fn everything_in_the_data_directory_is_private() {
    let home = home!();
    // A generous umask must not open anything.
    let mut shell = home.command("/bin/sh");
    run::finish(shell.args(["-c", "umask 000; \"$1\" whoami", "sh"]).arg(home.tt_path())).ok();
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = home.paths().data_dir;
    assert_eq!(mode(&dir), 0o700);
    let names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert_eq!(mode(&name), 0o600, "{name:?}");
    }
}

// 4
#[test]
fn the_lock_and_not_the_pid_in_it_says_whether_a_daemon_lives() {
    let home = home!();
    home.make_data_dir();
    // A lock file left behind, naming a process that has nothing to do with it.
    let innocent = Running::spawn(Command::new("cat").stdin(std::process::Stdio::piped()));
    let lock = home.paths().lock();
    std::fs::write(&lock, format!("{}\n", innocent.pid())).unwrap();
    let inode = std::fs::metadata(&lock).unwrap().ino();
    assert_eq!(home.status()["status"], "not_running");
    assert_eq!(home.run(&["--json", "daemon", "stop"]).ok().json()["status"], "not_running");
    let pid = home.start();
    assert_ne!(pid, innocent.pid());
    home.run(&["daemon", "stop"]).ok();
    assert!(!innocent.ended_within(Duration::ZERO), "an innocent process was ended");
    assert_eq!(std::fs::metadata(&lock).unwrap().ino(), inode, "the lock file must never be replaced");
}

// 4, 12
#[test]
fn looking_at_the_lock_is_not_mistaken_for_holding_it() {
    let home = home!();
    home.make_data_dir();
    let innocent = Running::spawn(Command::new("cat").stdin(std::process::Stdio::piped()));
    std::fs::write(home.paths().lock(), format!("{}\n", innocent.pid())).unwrap();
    // What a client does while it looks, held still.
    let looking = std::fs::File::open(home.paths().lock()).unwrap();
    looking.lock_shared().unwrap();
    assert_eq!(home.status()["status"], "not_running");
    assert_eq!(home.run(&["--json", "daemon", "stop"]).ok().json()["status"], "not_running");
    assert!(!innocent.ended_within(Duration::ZERO), "an innocent process was ended");
}

// 5
#[test]
fn a_daemon_removes_its_own_socket_and_nobody_elses() {
    let home = home!();
    home.start();
    home.run(&["daemon", "stop"]).ok();
    assert!(!home.paths().socket.exists(), "its own socket must go");

    let pid = home.start();
    let socket = home.paths().socket;
    std::fs::remove_file(&socket).unwrap();
    std::fs::write(&socket, "somebody else's").unwrap();
    send(pid, Signal::SIGTERM);
    home.wait_until_gone();
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "somebody else's");
}

// 6
#[test]
fn fifty_clients_at_once_on_a_cold_machine_get_one_daemon_and_fifty_answers() {
    let home = home!();
    // Counts how often it is started, and is the daemon otherwise.
    let ttd = home.ttd_path().display();
    let counted = home.script("counted", &format!("#!/bin/sh\necho >> \"$HOME/starts\"\nexec '{ttd}' \"$@\"\n"));
    let tt = || Running::start(home.tt(&["whoami", "--json"]).env("TALKING_STICK_DAEMON", &counted));
    let all: Vec<Running> = (0..50).map(|_| tt()).collect();
    for tt in all {
        tt.finish().ok();
    }
    assert_eq!(std::fs::read_to_string(home.path().join("starts")).unwrap(), "\n", "one start, the others waited");
    assert_eq!(home.log().lines().filter(|line| line.contains(" ready ")).count(), 1, "{}", home.log());
    assert_eq!(home.status()["pid"], home.daemon().unwrap());
}

// 6
#[test]
fn starting_a_daemon_that_runs_is_success() {
    let home = home!();
    let pid = home.start();
    assert_eq!(home.start(), pid);
    // Two daemons started past the clients' start lock: the second finds the first and leaves in peace.
    run::finish(home.ttd().arg("--detached")).ok();
    run::finish(&mut home.ttd()).ok();
    assert_eq!(home.daemon(), Some(pid));
}

// 7
#[test]
fn a_daemon_that_dies_while_starting_is_told_apart_from_a_slow_one_and_the_log_is_named() {
    let home = home!();
    let log = home.paths().log().display().to_string();
    for (name, text) in [
        ("silent", "#!/bin/sh\nexit 3\n"),
        ("loud", "#!/bin/sh\necho 'loud: no such luck' >&2\nexit 1\n"),
        ("garbled", "#!/bin/sh\necho 'what is this'\n"),
        ("half", "#!/bin/sh\nprintf '{\"ready\":{\"pid\":1,'\n"),
        ("killed", "#!/bin/sh\nkill -9 $$\n"),
    ] {
        let script = home.script(name, text);
        let error = run::finish(home.tt(&["--json", "whoami"]).env("TALKING_STICK_DAEMON", script)).refused(4);
        assert_eq!(error["error"], "daemon_unreachable", "{name}");
        assert_eq!(error["log"], log, "{name}: {error}");
        assert!(error["message"].as_str().unwrap().contains("died while starting"), "{name}: {error}");
    }
    assert!(home.log().contains("no such luck"), "what it said goes to the log");
    home.run(&["whoami"]).ok();
}

// 7
#[test]
fn a_daemon_that_says_ready_and_is_not_there_does_not_keep_the_client_for_ever() {
    let home = home!();
    let liar = home.script("liar", "#!/bin/sh\necho '{\"ready\":{\"pid\":1,\"already_running\":false}}'\n");
    let error = block_on(async {
        let settings = Settings { daemon: Some(liar), deadline: Duration::from_millis(300), ..settings(&home) };
        Client::connect(settings).await.unwrap_err()
    });
    assert_eq!(error.code, ErrorCode::DaemonUnreachable);
}

// 7
#[test]
fn the_reason_a_start_failed_travels_over_the_pipe() {
    let home = home!();
    std::fs::create_dir(home.make_data_dir().join("rooms.sqlite")).unwrap();
    let error = home.run(&["--json", "whoami"]).refused(4);
    assert_eq!(error["error"], "storage_unavailable");
    assert!(error["message"].as_str().unwrap().contains("rooms.sqlite"), "{error}");
    assert_eq!(error["log"], home.paths().log().to_str().unwrap());
}

// 7
#[tokio::test]
async fn a_daemon_that_never_gets_ready_is_given_up_on() {
    let home = home!();
    // It hangs on a pipe that this test holds open, and ends with it.
    let fifo = home.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let held = std::fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let hung = home.script("hung", &format!("#!/bin/sh\nexec cat '{}'\n", fifo.display()));
    let start_timeout = Duration::from_millis(50);
    let settings = Settings { daemon: Some(hung), start_timeout, ..settings(&home) };
    let error = Client::connect(settings).await.unwrap_err();
    drop(held);
    assert_eq!(error.code, ErrorCode::DaemonUnreachable);
    assert!(error.message.contains("not ready"), "{error}");
    assert_eq!(error.details["log"], home.paths().log().to_str().unwrap());
}

// 8
#[test]
fn nothing_is_started_where_autostart_is_off() {
    let home = home!();
    let error = home.run(&["--json", "--no-autostart", "whoami"]).refused(4);
    assert_eq!(error["error"], "daemon_unreachable");
    let error = run::finish(home.tt(&["--json", "whoami"]).env("TT_NO_AUTOSTART", "1")).refused(4);
    assert!(error["hint"].as_str().unwrap().contains("tt daemon start"), "{error}");
    assert!(!home.paths().data_dir.exists());
    run::finish(home.tt(&["whoami"]).env("TT_NO_AUTOSTART", "0")).ok();
}

// 8
#[tokio::test]
async fn a_daemon_that_takes_its_time_is_busy_and_gets_no_rival() {
    let home = home!();
    home.make_data_dir();
    let listener = UnixListener::bind(home.paths().socket).unwrap();
    let settings = Settings { deadline: Duration::from_millis(200), ..settings(&home) };
    // It lets us in and says nothing.
    let error = Client::connect(settings.clone()).await.unwrap_err();
    assert!(error.message.contains("did not answer") && error.hint.contains("tt daemon restart"), "{error:?}");
    assert_eq!(error.details["log"], home.paths().log().to_str().unwrap());
    // It does not even let us in: its queue is full.
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let error = Client::connect(settings.clone()).await.unwrap_err();
    assert!(error.message.contains("did not answer"), "{error:?}");
    // A first call is made in one attempt, which has the whole deadline.
    let error = HttpClient::connect_and_call(settings, &Whoami::default()).unwrap_err();
    assert!(error.message.contains("did not answer"), "{error:?}");
    // A caller that was told "busy" left nothing behind that the daemon would carry out later.
    listener.set_nonblocking(true).unwrap();
    let mut accepted = 0;
    while let Ok((mut queued, _)) = listener.accept() {
        accepted += 1;
        let mut asked = String::new();
        queued.set_read_timeout(Some(LIMIT)).unwrap();
        queued.read_to_string(&mut asked).unwrap();
        assert!(!asked.contains("whoami"), "{asked}");
    }
    assert!(accepted > 0, "nobody tried to connect");
    assert!(!home.paths().lock().exists(), "a second daemon was started");
}

// 8, 12
#[test]
fn a_slow_start_is_not_held_against_the_daemon_that_then_answers() {
    let home = home!();
    let go = home.path().join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let text = format!("#!/bin/sh\nread -r go <'{}'\nexec '{}' \"$@\"\n", go.display(), home.ttd_path().display());
    let slow = home.script("slow", &text);
    block_on(async {
        let deadline = Duration::from_secs(2);
        let settings = Settings { daemon: Some(slow), deadline, ..settings(&home) };
        let mut connecting = std::pin::pin!(Client::connect(settings));
        // The start alone takes longer than any answer may.
        let early = tokio::time::timeout(deadline, &mut connecting).await;
        assert!(early.is_err(), "{early:?}");
        std::fs::write(&go, "go\n").unwrap();
        connecting.await.unwrap();
    });
}

// 9
#[cfg(target_os = "linux")]
#[test]
fn the_daemon_keeps_nothing_of_whoever_started_it() {
    let home = home!();
    let secret = home.path().join("secret");
    std::fs::write(&secret, "s").unwrap();
    let mut shell = home.command("/bin/bash");
    shell.args(["-c", "exec 9<\"$2\" 17>&1; \"$1\" whoami; exit $?", "bash"]).arg(home.tt_path()).arg(&secret);
    shell.env("AWS_SECRET_ACCESS_KEY", "secret").env("CLAUDECODE", "1").env("TT_HARNESS_AGENT_ID", "claude:x");
    shell.env("LANG", "C.UTF-8").env("LD_LIBRARY_PATH", "/nowhere");
    // The end of this shell's output is itself the proof that the daemon does not hold it open.
    run::finish(&mut shell).ok();
    let pid = home.daemon().unwrap();

    let kernel = ttd::liveness::Kernel::new();
    let daemon = ttd::liveness::Processes::get(&kernel, pid).unwrap();
    assert_eq!(daemon.session, pid, "a session of its own");
    assert_eq!(process::working_directory(pid).unwrap(), Path::new("/"));

    let open = process::descriptors(pid);
    assert_eq!(open[&0], Path::new("/dev/null"));
    assert_eq!(open[&1], Path::new("/dev/null"));
    assert_eq!(open[&2], home.paths().log());
    let data_dir = home.paths().data_dir;
    for (fd, target) in open.iter().filter(|(fd, _)| **fd > 2) {
        let text = target.to_str().unwrap();
        let own = target.starts_with(&data_dir) || text.starts_with("socket:") || text.starts_with("anon_inode:");
        assert!(own, "descriptor {fd} leads to {text}");
    }

    let names: Vec<String> = process::environment(pid).into_keys().collect();
    assert_eq!(names, ["HOME", "LANG", "PATH", "TALKING_STICK_DATA_DIR"]);
}

// 11
#[test]
fn a_call_on_a_connection_that_was_cut_is_made_again_on_the_next_daemon() {
    let home = home!();
    block_on(async {
        let mut client = Client::connect(settings(&home)).await.unwrap();
        let before = client.welcome().pid;
        home.kill_daemon();
        let whoami = client.call(Whoami::default()).await.unwrap();
        assert_eq!(whoami.identity, client.welcome().identity);
        assert_ne!(client.welcome().pid, before);
    });
}

/// What the daemon of a first call answers before the connection is cut: so many pieces of it, and then so many bytes.
fn cut_once(home: &Home, pieces: usize, bytes: usize) -> std::path::PathBuf {
    let dir = home.path().join(format!("cut-{pieces}-{bytes}"));
    std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
    let (socket, daemon) = (dir.join("sock"), home.paths().socket);
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for (count, client) in listener.incoming().enumerate() {
            let (mut client, mut daemon) = (client.unwrap(), UnixStream::connect(&daemon).unwrap());
            let (mut asking, mut asked) = (client.try_clone().unwrap(), daemon.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut asking, &mut asked));
            std::thread::spawn(move || {
                let mut buffer = [0; 65536];
                for piece in 0.. {
                    let Ok(length @ 1..) = daemon.read(&mut buffer) else { break };
                    let last = count == 0 && piece == pieces;
                    let shown = if last { bytes.min(length) } else { length };
                    if client.write_all(&buffer[..shown]).is_err() || last {
                        break;
                    }
                }
                let _ = (client.shutdown(Shutdown::Both), daemon.shutdown(Shutdown::Both));
            });
        }
    });
    socket
}

// 11
#[test]
fn a_first_call_that_is_cut_off_anywhere_is_carried_out_once() {
    let home = home!();
    home.run(&["join"]).ok();
    let cuts = [(0, 0), (0, 40), (1, 0), (1, 40), (1, 200)];
    for (sent, (pieces, bytes)) in cuts.into_iter().enumerate() {
        let socket = cut_once(&home, pieces, bytes);
        let mut send = home.tt(&["msg", "send", "room", "hello"]);
        run::finish(send.env("TALKING_STICK_SOCKET", socket)).ok();
        let log = home.run(&["--json", "events"]).ok().stdout;
        assert_eq!(log.matches("message_sent").count(), sent + 1, "cut after {pieces} and {bytes}: {log}");
    }
}

// 11
#[test]
fn a_call_that_was_answered_is_never_made_again_however_odd_the_answer() {
    let home = home!();
    block_on(async {
        let mut client = Client::connect(settings(&home)).await.unwrap();
        let calls = std::cell::Cell::new(0);
        let odd = client.repeat_within(LIMIT, async |_| {
            calls.set(calls.get() + 1);
            let odd = serde_json::from_str::<u8>("{}").unwrap_err();
            Err::<(), _>(jsonrpsee::core::ClientError::ParseError(odd))
        });
        assert_eq!(odd.await.unwrap_err().code, ErrorCode::ProtocolMismatch);
        assert_eq!(calls.get(), 1);
    });
}

// 12
#[test]
fn a_daemon_that_stands_still_is_reported_in_time_and_restarted() {
    let home = home!();
    let pid = home.start();
    process::freeze(pid);
    let error = home.run(&["--json", "whoami"]).refused(4);
    assert_eq!(error["error"], "daemon_unreachable");
    assert!(error["hint"].as_str().unwrap().contains("tt daemon restart"), "{error}");
    let status = home.run(&["--json", "daemon", "restart"]).ok().json();
    assert_ne!(status["pid"], pid);
    home.run(&["whoami"]).ok();
}

// 12
#[test]
fn restarting_from_many_terminals_at_once_leaves_one_daemon_and_no_error() {
    let home = home!();
    home.start();
    let all: Vec<Running> = (0..8).map(|_| Running::start(&mut home.tt(&["daemon", "restart"]))).collect();
    for restart in all {
        restart.finish().ok();
    }
    assert_eq!(home.status()["pid"], home.daemon().unwrap());
}

// 13
#[test]
fn the_log_is_there_from_the_first_start_and_can_be_read() {
    let home = home!();
    let error = home.run(&["--json", "daemon", "logs"]).refused(1);
    assert!(error["hint"].as_str().unwrap().contains("tt daemon start"), "{error}");
    let pid = home.start();
    let logs = home.run(&["daemon", "logs"]).ok().stdout;
    assert!(logs.contains(" ready "), "{logs}");
    send(pid, Signal::SIGTERM);
    home.wait_until_gone();
    let last = home.run(&["daemon", "logs", "-n", "1"]).ok().stdout;
    assert!(last.lines().count() == 1 && last.contains("stopped"), "{last}");
}

// 14
#[test]
fn sigterm_leaves_everything_in_order() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let home = home!();
        let daemon = Running::start(&mut home.ttd());
        home.wait_for(&daemon);
        daemon.signal(signal);
        let ended = daemon.finish().ok();
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""));
        let paths = home.paths();
        assert!(!paths.socket.exists() && home.daemon().is_none());
        let log = std::fs::metadata(paths.data_dir.join("rooms.sqlite-wal")).map_or(0, |meta| meta.len());
        assert_eq!(log, 0, "the write-ahead log was not folded in");
        assert!(home.log().contains("stopped"));
    }
}

// 14
#[test]
fn a_signal_in_the_instant_of_being_ready_ends_it_in_order_too() {
    for _ in 0..10 {
        let home = home!();
        let mut starter = home.command("/bin/sh");
        // The line of readiness, and at once the signal.
        let script =
            "{ \"$1\" --detached; echo $? >&2; } | { read -r line; pid=${line#*pid\\\":}; kill ${pid%%[,\\}]*}; }";
        let ended = run::finish(starter.arg("-c").arg(script).arg("sh").arg(home.ttd_path()));
        assert_eq!(ended.stderr.trim(), "0", "{ended:?}");
        assert!(!home.paths().socket.exists());
    }
}

/// Asks the daemon about itself until it is so.
async fn until_status(client: &mut Client, so: impl Fn(&DaemonStatusAnswer) -> bool) -> Result<(), Error> {
    let give_up = Instant::now() + LIMIT;
    while !so(&client.call(DaemonStatus {}).await?) {
        assert!(Instant::now() < give_up, "it stays as it is");
    }
    Ok(())
}

// 14
#[tokio::test(flavor = "multi_thread")]
async fn a_call_under_way_is_finished_and_no_new_one_is_let_in() {
    let home = home!();
    let daemon = InProcess::start(home.options());
    let mut idle = Client::connect(settings(&home)).await.unwrap();
    let member = Member::join(&home, "a").await;
    // While somebody else writes to the database, no write of the daemon ends.
    let other = rusqlite::Connection::open(home.paths().database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let call = tokio::spawn(async move { member.note("after all").await });
    until_status(&mut idle, |status| status.calls == 2).await.unwrap();
    daemon.stop();
    // An idle connection is closed once the listener is.
    tokio::time::timeout(LIMIT, idle.rpc().on_disconnect()).await.unwrap();
    assert!(!home.paths().socket.exists());
    let settings = Settings { autostart: false, ..settings(&home) };
    let error = Client::connect(settings).await.unwrap_err();
    assert!(error.message.contains("no daemon is running"), "{error}");
    assert!(!daemon.ended_within(Duration::ZERO), "it left with a call under way");
    other.execute_batch("ROLLBACK").unwrap();
    call.await.unwrap().unwrap();
    assert!(daemon.ended_within(LIMIT));
    assert_eq!(home.daemon(), None, "the lock is free");
}

// 15
#[test]
fn a_daemon_with_nothing_to_do_leaves_and_the_next_command_brings_it_back() {
    let home = home!();
    let tt = |args: &[&str]| run::finish(home.tt(args).env("TALKING_STICK_IDLE_EXIT", "50ms"));
    for _ in 0..3 {
        tt(&["whoami"]).ok();
        home.wait_until_gone();
        assert!(!home.paths().socket.exists());
    }
    let bad = run::finish(home.tt(&["--json", "whoami"]).env("TALKING_STICK_IDLE_EXIT", "soon")).refused(3);
    assert_eq!(bad["error"], "invalid_input");
}

// 15
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_stays_while_something_is_under_way() {
    let home = home!();
    let mut options = home.options();
    options.idle_exit = Some(Duration::from_millis(50));
    let path = home.workspace().display().to_string();
    // It leaves whenever nothing is under way, also between two of these calls.
    let wait = async || -> Result<tokio::task::JoinHandle<()>, Error> {
        let settings = Settings { autostart: false, ..home.settings_of("a") };
        let (mut client, mut asker) = (Client::connect(settings.clone()).await?, Client::connect(settings).await?);
        let joined = client.call(JoinPath { context_path: path.clone(), ..Default::default() }).await?;
        let wait = WaitForTurn { room_id: joined.room_id, max_wait_ms: Some(60_000), ..Default::default() };
        let waiting = tokio::spawn(async move { drop(client.rpc().call(wait).await) });
        until_status(&mut asker, |status| status.waiters == 1).await?;
        Ok(waiting)
    };
    let (daemon, waiting) = loop {
        let daemon = InProcess::start(options.clone());
        if let Ok(waiting) = wait().await {
            break (daemon, waiting);
        }
    };
    let daemon = tokio::task::spawn_blocking(move || {
        assert!(!daemon.ended_within(A_WHILE), "it left with a call under way");
        daemon
    });
    let daemon = daemon.await.unwrap();
    waiting.abort();
    assert!(daemon.ended_within(LIMIT), "it stayed with nothing to do");
}

// 15
#[test]
fn a_supervised_daemon_never_leaves_by_itself() {
    let home = home!();
    let mut options = home.options();
    options.supervised = true;
    options.idle_exit = Some(Duration::from_millis(1));
    let daemon = InProcess::start(options);
    assert!(!daemon.ended_within(A_WHILE));
    let foreground = home!();
    let daemon = Running::start(foreground.ttd().env("TALKING_STICK_IDLE_EXIT", "1ms"));
    foreground.wait_for(&daemon);
    assert!(!daemon.ended_within(A_WHILE));
    assert_eq!(foreground.status()["supervised"], true);
}

/// `ttd` with a listening socket as systemd passes it: descriptor 3.
fn activated(home: &Home, listener: &UnixListener) -> Running {
    let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$ exec \"$1\"";
    let mut shell = home.command("/bin/sh");
    shell.env("TALKING_STICK_IDLE_EXIT", "50ms").args(["-c", script, "sh"]).arg(home.ttd_path());
    Running::spawn(shell.stdin(std::os::fd::OwnedFd::from(listener.try_clone().unwrap())))
}

// 16
#[cfg(target_os = "linux")]
#[test]
fn a_passed_socket_is_served_kept_and_never_unlinked() {
    let home = home!();
    home.make_data_dir();
    let socket = home.paths().socket;
    let listener = UnixListener::bind(&socket).unwrap();
    let inode = std::fs::metadata(&socket).unwrap().ino();
    let daemon = activated(&home, &listener);
    assert_eq!(home.run(&["--no-autostart", "daemon", "status", "--json"]).ok().json()["pid"], daemon.pid());
    assert!(!daemon.ended_within(A_WHILE), "systemd decides when it ends");
    assert_eq!(home.status()["supervised"], true);
    home.run(&["daemon", "stop"]).ok();
    daemon.finish().ok();
    assert_eq!(std::fs::metadata(&socket).unwrap().ino(), inode);
    // Who comes now waits in systemd's queue for the next one.
    let waiting = Running::start(&mut home.tt(&["whoami"]));
    let next = activated(&home, &listener);
    waiting.finish().ok();
    assert_eq!(home.status()["pid"], next.pid());
}

// 16
#[cfg(target_os = "linux")]
#[test]
fn systemd_takes_over_from_a_daemon_that_a_client_started() {
    let home = home!();
    let before = home.start();
    // What systemd does when the socket unit is started: its own socket in place of whatever is there.
    let socket = home.paths().socket;
    std::fs::remove_file(&socket).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let daemon = activated(&home, &listener);
    let status = home.run(&["--no-autostart", "daemon", "status", "--json"]).ok().json();
    assert_eq!(status["pid"], daemon.pid());
    assert_ne!(status["pid"], before);
}

// 16
#[cfg(target_os = "linux")]
#[test]
fn systemds_own_activation_works() {
    let activate = "/usr/bin/systemd-socket-activate";
    if !Path::new(activate).exists() {
        return tt_tests::not_run("activation by systemd-socket-activate", "it is not installed");
    }
    let home = home!();
    home.make_data_dir();
    let socket = home.paths().socket;
    let mut command = home.command("/bin/sh");
    // Its first line tells that it listens.
    let script = "exec \"$1\" -l \"$2\" -E HOME \"$3\" 2>&1";
    command.args(["-c", script, "sh", activate]).arg(&socket).arg(home.ttd_path());
    command.stdout(std::process::Stdio::piped()).stdin(std::process::Stdio::null());
    let mut daemon = command.spawn().unwrap();
    let mut lines = std::io::BufReader::new(daemon.stdout.take().unwrap());
    let listening = tt_tests::within(LIMIT, move || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
        (line, lines)
    });
    let status = home.run(&["--no-autostart", "daemon", "status", "--json"]);
    send(daemon.id(), Signal::SIGTERM);
    let ended = tt_tests::within(LIMIT, move || daemon.wait().unwrap());
    let (line, _) = listening.unwrap();
    assert!(line.contains("Listening"), "{line}");
    assert_eq!(status.ok().json()["supervised"], true);
    assert!(ended.unwrap().success());
    assert!(socket.exists(), "the socket is systemd's");
}

#[test]
fn the_kit_cleans_up_after_itself() {
    let home = home!();
    let pid = home.start();
    let dir = home.path().to_owned();
    drop(home);
    assert!(!dir.exists());
    // It has let go of its lock, and is about to end.
    let give_up = Instant::now() + LIMIT;
    let look = || ttd::liveness::Processes::get(&ttd::liveness::Kernel::new(), pid);
    while look().is_ok_and(|process| process.name == "ttd") {
        assert!(Instant::now() < give_up, "a daemon was left behind");
    }
}
