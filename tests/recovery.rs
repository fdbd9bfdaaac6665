//! What is found broken at a start: each a recovery without anybody's help, or a typed error that says what to do. Never
//! a hang.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use nix::sys::signal::Signal;
use tt_client::connect::{Client, Settings};
use tt_tests::home::send;
use tt_tests::{NOBODY, Running, home, run};

#[test]
fn a_killed_daemon_is_replaced_by_the_next_command_again_and_again() {
    let home = home!();
    let mut before = home.start();
    for _ in 0..20 {
        home.kill_daemon();
        assert!(home.paths().socket.exists(), "a killed daemon leaves its socket behind");
        home.run(&["whoami"]).ok();
        let after = home.daemon().unwrap();
        assert_ne!(after, before);
        before = after;
    }
}

#[test]
fn a_daemon_killed_under_many_callers_keeps_none_of_them_from_an_answer() {
    let home = home!();
    home.start();
    let all: Vec<Running> = (0..20).map(|_| Running::start(&mut home.tt(&["whoami"]))).collect();
    send(home.daemon().unwrap(), Signal::SIGKILL);
    for tt in all {
        tt.finish().ok();
    }
}

#[test]
fn a_stale_socket_and_a_stale_lock_are_no_obstacle() {
    let home = home!();
    home.make_data_dir();
    drop(UnixListener::bind(home.paths().socket).unwrap());
    std::fs::write(home.paths().lock(), "999999\nand more that nobody wrote\n").unwrap();
    std::fs::write(home.paths().start_lock(), "999999\n").unwrap();
    home.run(&["--no-autostart", "whoami"]).refused_in_text(4, "tt daemon start");
    home.run(&["whoami"]).ok();
    let lock = std::fs::read_to_string(home.paths().lock()).unwrap();
    assert_eq!(lock, format!("{}\n", home.daemon().unwrap()));
}

#[test]
fn something_else_in_the_sockets_place_is_named_and_left_alone() {
    let directory = home!();
    directory.make_data_dir();
    std::fs::create_dir(directory.paths().socket).unwrap();
    let error = directory.run(&["--json", "whoami"]).refused(4);
    assert_eq!(error["error"], "storage_unavailable");
    assert!(error["message"].as_str().unwrap().contains("is a directory"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("mv "), "{error}");

    let file = home!();
    file.make_data_dir();
    std::fs::write(file.paths().socket, "precious").unwrap();
    let error = file.run(&["--json", "whoami"]).refused(4);
    assert!(error["message"].as_str().unwrap().contains("not a socket"), "{error}");
    assert_eq!(std::fs::read_to_string(file.paths().socket).unwrap(), "precious");
    std::fs::remove_file(file.paths().socket).unwrap();
    file.run(&["whoami"]).ok();
}

#[test]
fn a_socket_that_was_deleted_under_the_daemon_is_a_clear_error_and_restart_mends_it() {
    let home = home!();
    let pid = home.start();
    std::fs::remove_file(home.paths().socket).unwrap();
    let error = home.run(&["--json", "whoami"]).refused(4);
    assert_eq!(error["error"], "daemon_unreachable");
    assert!(error["message"].as_str().unwrap().contains(&pid.to_string()), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("tt daemon restart"), "{error}");
    let status = home.run(&["--json", "daemon", "restart"]).ok().json();
    assert_ne!(status["pid"], pid);
    home.run(&["whoami"]).ok();
}

#[test]
fn a_data_directory_that_cannot_be_written_is_a_typed_error() {
    let home = home!();
    // Root may write anywhere, so there somebody else tries.
    let tt = home.for_everyone(home.tt_path());
    home.for_everyone(home.ttd_path());
    let data_dir = home.path().join("data");
    std::fs::create_dir(&data_dir).unwrap();
    std::fs::set_permissions(&data_dir, std::fs::Permissions::from_mode(0o500)).unwrap();
    let other = |command: &mut std::process::Command| {
        if tt_tests::is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        run::finish(command.args(["--json", "whoami"])).refused(4)
    };
    if tt_tests::is_root() {
        std::os::unix::fs::chown(&data_dir, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let error = other(home.command(&tt).env("TALKING_STICK_DATA_DIR", &data_dir));
    assert_eq!(error["error"], "storage_unavailable");
    assert!(error["hint"].as_str().unwrap().contains("writable"), "{error}");
    let error = other(home.command(&tt).env("TALKING_STICK_DATA_DIR", data_dir.join("below")));
    assert_eq!(error["error"], "storage_unavailable");
    assert!(error["hint"].as_str().unwrap().contains("TALKING_STICK_DATA_DIR"), "{error}");
}

/// Fills a small disk of its own, leaving a few pages, and calls; then makes room and calls again.
#[cfg(target_os = "linux")]
const FULL_DISK: &str = r#"
tt=$1 data=$2
for pages in 0 1 2 3 5 8 13 21 34 55; do
  mount -t tmpfs -o size=1m,mode=700 none "$data" || exit 77
  echo mounted
  dd if=/dev/zero of="$data/filler" bs=4096 2>/dev/null
  truncate -s -$((pages * 4096)) "$data/filler"
  timeout 60 "$tt" --json whoami >"$HOME/out" 2>"$HOME/err"
  echo "full $pages $? $(cat "$HOME/out" "$HOME/err")"
  "$tt" daemon stop >/dev/null 2>&1
  rm "$data/filler"
  timeout 60 "$tt" --json whoami >"$HOME/out" 2>"$HOME/err"
  echo "room $pages $? $(cat "$HOME/out" "$HOME/err")"
  "$tt" daemon stop >/dev/null 2>&1
  umount "$data" || exit 78
done
"#;

/// Fills the disk under a daemon at work, and frees it again.
#[cfg(target_os = "linux")]
const DISK_FILLS_UP: &str = r#"
tt=$1 data=$2
mount -t tmpfs -o size=4m,mode=700 none "$data" || exit 77
echo mounted
"$tt" --json join >/dev/null || exit 1
"$tt" --json msg send room before >"$HOME/out" || exit 1
pid=$("$tt" --json daemon status | sed 's/.*"pid":\([0-9]*\).*/\1/')
hook() {
  echo '{"session_id":"s-1","hook_event_name":"'"$2"'","tool_name":"Read"}' |
    CLAUDECODE=1 CLAUDE_PID=$$ timeout 60 "$tt" hook --harness claude "$1" 2>&1
}
hook session_started SessionStart
# To the last byte, also of the file that is open for the log.
dd if=/dev/zero of="$data/filler" bs=4k >/dev/null 2>&1
dd if=/dev/zero of="$data/rest" bs=1 count=8192 >/dev/null 2>&1
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
  timeout 60 "$tt" --json msg send room "$(printf '%04000d' $n)" >"$HOME/out" 2>"$HOME/err"
  echo "full $? $(cat "$HOME/out" "$HOME/err")"
done
# What each has to say is stored: another conversation, a process that leaves one, an end.
for event in session_started:SessionStart prompt:UserPromptSubmit tool_started:PreToolUse tool_ended:PostToolUse \
    turn_ended:Stop session_ended:SessionEnd; do
  said=$(hook ${event%:*} ${event#*:})
  echo "hook $? $event $said"
done
rm "$data/filler" "$data/rest"
timeout 60 "$tt" --json msg send room after >"$HOME/out" 2>"$HOME/err"
echo "room $? $(cat "$HOME/out" "$HOME/err")"
echo "pid $pid $("$tt" --json daemon status | sed 's/.*"pid":\([0-9]*\).*/\1/')"
"$tt" daemon stop >/dev/null 2>&1
umount "$data" || exit 78
"#;

#[cfg(target_os = "linux")]
#[test]
fn a_daemon_whose_disk_was_full_writes_again_once_there_is_room() {
    let home = home!();
    let data_dir = home.make_data_dir();
    let mut unshare = home.command("unshare");
    unshare.arg(if tt_tests::is_root() { "-m" } else { "-Urm" });
    let played = run::finish(unshare.args(["sh", "-c", DISK_FILLS_UP, "sh"]).arg(home.tt_path()).arg(&data_dir));
    if !played.stdout.starts_with("mounted\n") {
        return tt_tests::not_run("a disk that fills up", &format!("no private mount here: {}", played.stderr.trim()));
    }
    assert_eq!(played.code, Some(0), "{played:?}");
    let lines: Vec<Vec<&str>> = played.stdout.lines().map(|line| line.splitn(3, ' ').collect()).collect();
    let refused = lines.iter().filter(|line| line[0] == "full" && line[2].contains("storage_unavailable")).count();
    assert!(refused >= 3, "the disk was never full: {played:?}");
    let hooks: Vec<_> = lines.iter().filter(|line| line[0] == "hook").collect();
    let is_silent =
        |line: &&Vec<&str>| line[1] == "0" && line[2].split_once(' ').is_some_and(|(_, said)| said.is_empty());
    assert!(hooks.len() == 6 && hooks.iter().all(is_silent), "every hook is silent and succeeds: {played:?}");
    let room = lines.iter().find(|line| line[0] == "room").unwrap();
    assert_eq!(room[1], "0", "with space back the next command works: {played:?}");
    let pids = lines.iter().find(|line| line[0] == "pid").unwrap();
    assert_eq!(pids[1], pids[2], "the daemon survived: {played:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_typed_error_and_room_on_it_the_cure() {
    let home = home!();
    let data_dir = home.make_data_dir();
    let mut unshare = home.command("unshare");
    unshare.arg(if tt_tests::is_root() { "-m" } else { "-Urm" });
    let played = run::finish(unshare.args(["sh", "-c", FULL_DISK, "sh"]).arg(home.tt_path()).arg(&data_dir));
    if !played.stdout.starts_with("mounted\n") {
        return tt_tests::not_run("a full disk", &format!("no private mount here: {}", played.stderr.trim()));
    }
    assert_eq!(played.code, Some(0), "{played:?}");
    let lines = played.stdout.lines().filter(|line| *line != "mounted");
    let lines: Vec<Vec<&str>> = lines.map(|line| line.splitn(4, ' ').collect()).collect();
    assert_eq!(lines.len(), 20, "{played:?}");
    for line in lines {
        let answer: serde_json::Value = serde_json::from_str(line[3]).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        match (line[0], line[2]) {
            (_, "0") => assert!(answer["agent_id"].is_string(), "{line:?}"),
            ("full", "4") => {
                assert_eq!(answer["error"], "storage_unavailable", "{line:?}");
                assert!(answer["hint"].as_str().unwrap().contains("disk"), "{line:?}");
            }
            _ => panic!("{line:?}"),
        }
    }
    let refused = played.stdout.lines().filter(|line| line.starts_with("full") && line.contains("storage")).count();
    assert!(refused >= 3, "the disk was never full: {}", played.stdout);
}

/// The write-ahead log is never made longer in advance, so a limit on the size of files does not end the daemon.
#[cfg(target_os = "linux")]
#[test]
fn the_write_ahead_log_has_nothing_but_frames_under_a_limit_on_file_size() {
    let home = home!();
    let script = "ulimit -f 900; \"$1\" join && \"$1\" msg send room one && \"$1\" msg send room two";
    run::finish(home.command("bash").args(["-c", script, "bash"]).arg(home.tt_path())).ok();
    assert_eq!(home.log().lines().filter(|line| line.contains(" ready ")).count(), 1, "{}", home.log());
    let length = std::fs::metadata(home.paths().data_dir.join("rooms.sqlite-wal")).unwrap().len();
    assert_eq!((length - 32) % (4096 + 24), 0, "nothing but frames in {length} bytes");
}

#[tokio::test]
async fn a_client_stuck_while_starting_the_daemon_is_named_to_the_next() {
    let home = home!();
    home.make_data_dir();
    let stuck = File::create(home.paths().start_lock()).unwrap();
    std::fs::write(home.paths().start_lock(), "4711\n").unwrap();
    stuck.lock().unwrap();
    let mut settings = Settings::from_environment(home.environment()).unwrap();
    settings.daemon = Some(home.ttd_path().to_owned());
    settings.start_timeout = Duration::from_millis(50);
    let error = Client::connect(settings.clone()).await.unwrap_err();
    assert_eq!(error.code, tt_proto::ErrorCode::DaemonUnreachable);
    assert!(error.message.contains("4711") && error.hint.contains("kill -9 4711"), "{error:?}");
    // On a full disk it could not write its pid.
    for unsigned in ["", "\n", "half"] {
        std::fs::write(home.paths().start_lock(), unsigned).unwrap();
        let error = Client::connect(settings.clone()).await.unwrap_err();
        assert_eq!(error.code, tt_proto::ErrorCode::DaemonUnreachable);
        assert!(error.message.ends_with("stays locked by another process"), "{error:?}");
        assert!(!error.hint.contains("kill") && error.hint.contains("pgrep"), "{error:?}");
    }
    assert!(!home.paths().lock().exists(), "a second daemon was started past the lock");
}

#[test]
fn a_client_that_ends_while_starting_the_daemon_hinders_nobody() {
    let home = home!();
    for _ in 0..10 {
        let tt = Running::start(&mut home.tt(&["whoami"]));
        tt.signal(Signal::SIGKILL);
        drop(tt);
    }
    home.run(&["whoami"]).ok();
}

#[test]
fn a_database_we_must_not_touch_is_refused_and_stays_as_it_is() {
    let garbage = home!();
    let file = garbage.make_data_dir().join("rooms.sqlite");
    std::fs::write(&file, "somebody's notes ".repeat(500)).unwrap();
    let before = std::fs::read(&file).unwrap();
    let error = garbage.run(&["--json", "whoami"]).refused(4);
    assert_eq!(error["error"], "storage_unavailable");
    assert_eq!(std::fs::read(&file).unwrap(), before);

    let future = home!();
    future.run(&["whoami"]).ok();
    future.run(&["daemon", "stop"]).ok();
    let file = future.paths().database();
    let insert = "INSERT INTO schema_migrations VALUES (99999, 'later', '2026-01-01T00:00:00.000Z')";
    rusqlite::Connection::open(&file).unwrap().execute(insert, []).unwrap();
    let before = std::fs::read(&file).unwrap();
    let error = future.run(&["--json", "whoami"]).refused(4);
    assert_eq!((error["error"].as_str(), error["migration"].as_i64()), (Some("schema_too_new"), Some(99999)));
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn a_network_filesystem_is_refused_by_the_daemon_itself() {
    let home = home!();
    let mut options = home.options();
    options.filesystem = |_| tt_proto::filesystem::Filesystem::Network("nfs");
    let error = ttd::lifecycle::Daemon::start(options, listenfd::ListenFd::empty()).unwrap_err();
    assert_eq!(error.code, tt_proto::ErrorCode::StorageUnavailable);
    assert!(error.message.contains("nfs"), "{error}");
    assert_eq!(home.daemon(), None);
}
