//! The guard in the hooks of git: real commits and pushes, in a repository with hooks of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::json;
use tt_tests::run::Finished;
use tt_tests::{Home, home, process, run};

use crate::speaking::{Claude, say, two_members};

/// `git` in this directory, as a person.
fn git(home: &Home, dir: &Path, args: &[&str]) -> Command {
    let mut command = home.command("git");
    command.args(["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]);
    command.args(args).current_dir(dir).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_EDITOR", "true");
    command
}

/// Lets a command run in a session of Claude Code.
fn as_agent(command: &mut Command) -> &mut Command {
    command
        .env("CLAUDECODE", "1")
        .env("CLAUDE_PID", std::process::id().to_string())
        .env("CLAUDE_CODE_SESSION_ID", "s-1")
}

/// A repository in the workspace of two members, in which something can be committed.
fn repository(home: &Home) -> PathBuf {
    let workspace = home.workspace();
    run::finish(&mut git(home, &workspace, &["init", "-q"])).ok();
    change(home, &workspace);
    run::finish(&mut git(home, &workspace, &["commit", "-qm", "first"])).ok();
    workspace
}

fn change(home: &Home, dir: &Path) {
    fs::write(dir.join("file"), format!("{:?}", Instant::now())).unwrap();
    run::finish(&mut git(home, dir, &["add", "file"])).ok();
}

fn commit(home: &Home, dir: &Path) -> Command {
    git(home, dir, &["commit", "-qm", "more"])
}

fn free(home: &Home) {
    let began = Instant::now();
    while !say(home, &["state", "--json"]).json()["room"]["owner"].is_null() {
        assert!(began.elapsed() < tt_tests::LIMIT, "the stick is not free again");
    }
}

#[track_caller]
fn refused(finished: &Finished) {
    assert_ne!(finished.code, Some(0), "{finished:?}");
    assert!(finished.stderr.contains("it is not your turn") && finished.stderr.contains("tt wait"), "{finished:?}");
}

#[test]
fn git_refuses_an_agent_that_does_not_hold_the_stick_and_warns_a_person() {
    let home = home!();
    let claude = Claude { home: &home, session: "s-1" };
    two_members(&claude);
    let dir = repository(&home);
    let installed = run::finish(home.tt(&["guard", "install"]).current_dir(&dir)).ok();
    assert!(installed.stdout.contains("pre-commit: installed") && installed.stdout.contains("pre-push: installed"));
    say(&home, &["try"]);
    change(&home, &dir);
    let no = run::finish(as_agent(&mut commit(&home, &dir)));
    refused(&no);
    assert!(no.stderr.contains("\"codex\" holds the stick"), "{no:?}");
    let forced = run::finish(as_agent(&mut commit(&home, &dir)).env("TT_GUARD", "off")).ok();
    assert!(forced.stderr.contains("recorded"), "{forced:?}");
    let log = say(&home, &["events", "--event", "guard_overridden", "--target", "any", "--json"]).json();
    assert_eq!(log["events"][0]["reason"], "commit", "{log}");
    assert!(say(&home, &["msg", "recv", "--json"]).stdout.contains("guard_overridden"), "its holder is told");
    change(&home, &dir);
    let warned = run::finish(&mut commit(&home, &dir)).ok();
    assert!(warned.stderr.contains("although it is not your turn"), "{warned:?}");
    let remote = home.path().join("remote.git");
    run::finish(&mut git(&home, &dir, &["init", "-q", "--bare", remote.to_str().unwrap()])).ok();
    let push = || git(&home, &dir, &["push", "-q", remote.to_str().unwrap(), "HEAD:refs/heads/x"]);
    refused(&run::finish(as_agent(&mut push())));
    say(&home, &["release", "--status", "s", "--next-action", "n"]);
    run::finish(as_agent(&mut push())).ok();
    // Nobody answers, and git goes on.
    home.kill_daemon();
    change(&home, &dir);
    run::finish(as_agent(&mut commit(&home, &dir))).ok();
}

#[test]
fn a_commit_while_nobody_has_the_stick_has_it_for_as_long_as_it_takes() {
    let home = home!();
    let claude = Claude { home: &home, session: "s-1" };
    let me = two_members(&claude);
    let dir = repository(&home);
    run::finish(home.tt(&["guard", "install"]).current_dir(&dir)).ok();
    let seen = home.path().join("seen");
    let hook =
        format!("#!/bin/sh\n{} state --json --path {} > {}\n", home.tt_path().display(), dir.display(), seen.display());
    fs::rename(home.script("commit-msg", &hook), dir.join(".git/hooks/commit-msg")).unwrap();
    for broken_off in [false, true] {
        change(&home, &dir);
        let mut commit = commit(&home, &dir);
        if broken_off {
            commit = git(&home, &dir, &["commit", "-q"]);
            commit.env("GIT_EDITOR", "false");
        }
        let _ = fs::remove_file(&seen);
        let done = run::finish(as_agent(&mut commit));
        assert_eq!(done.code == Some(0), !broken_off, "{done:?}");
        if !broken_off {
            let during: serde_json::Value = serde_json::from_slice(&fs::read(&seen).unwrap()).unwrap();
            assert_eq!((&during["room"]["owner"], &during["by_guard"]), (&json!(me), &json!(true)), "{during}");
        }
        free(&home);
    }
    let log = say(&home, &["events", "--event", "release", "--target", "any", "--json"]).json();
    assert_eq!(log["events"][0]["reason"], "committed", "{log}");
}

#[test]
fn a_hook_that_was_there_runs_with_its_arguments_its_input_and_its_status() {
    let home = home!();
    let claude = Claude { home: &home, session: "s-1" };
    two_members(&claude);
    let dir = repository(&home);
    let (seen, remote) = (home.path().join("seen"), home.path().join("remote.git"));
    run::finish(&mut git(&home, &dir, &["init", "-q", "--bare", remote.to_str().unwrap()])).ok();
    let hooks = home.path().join("their hooks");
    fs::create_dir_all(&hooks).unwrap();
    run::finish(&mut git(&home, &dir, &["config", "core.hooksPath", hooks.to_str().unwrap()])).ok();
    let worktree = home.path().join("worktree");
    run::finish(&mut git(&home, &dir, &["worktree", "add", "-q", worktree.to_str().unwrap()])).ok();
    let script = |shell: &str| format!("#!{shell}\n(echo \"$0 $*\"; cat) > '{}'\nexit 7\n", seen.display());
    for shell in ["/bin/sh", "/usr/bin/env -S sh -e"] {
        let text = script(shell);
        fs::rename(home.script("pre-push", &text), hooks.join("pre-push")).unwrap();
        let installed = run::finish(home.tt(&["guard", "install"]).current_dir(&worktree)).ok();
        assert!(installed.stdout.contains("their hooks/pre-push: our line"), "{installed:?}");
        for from in [&dir, &worktree] {
            let _ = fs::remove_file(&seen);
            let url = remote.to_str().unwrap();
            let push = run::finish(as_agent(&mut git(&home, from, &["push", "-q", url, "HEAD:refs/heads/y"])));
            assert_ne!(push.code, Some(0), "its status counts: {push:?}");
            let heard = fs::read_to_string(&seen).unwrap();
            assert!(heard.lines().next().unwrap().ends_with(&format!("pre-push {url} {url}")), "{heard}");
            assert!(heard.contains("refs/heads/y"), "its input: {heard}");
        }
        run::finish(home.tt(&["guard", "uninstall"]).current_dir(&dir)).ok();
        assert_eq!(fs::read_to_string(hooks.join("pre-push")).unwrap(), text);
        assert_eq!(fs::read_dir(&hooks).unwrap().count(), 1, "nothing else is left");
    }
}

/// A daemon that begins its answer and never ends it.
fn begin_to_answer(listener: &UnixListener) {
    for stream in listener.incoming().map_while(Result::ok) {
        let mut asked = [0; 4096];
        let _ = (&stream).read(&mut asked);
        let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n[{\"jsonrpc\":\"2.0\",");
        // Kept open, as long as the other end is.
        let _ = (&stream).read_to_end(&mut Vec::new());
    }
}

#[test]
fn git_goes_on_when_the_daemon_stands_still_or_hangs_in_the_middle_of_its_answer() {
    let home = home!();
    let claude = Claude { home: &home, session: "s-1" };
    two_members(&claude);
    say(&home, &["try"]);
    let check = |code: i32| {
        let mut check = home.tt(&["guard", "check", "commit", "1"]);
        let done = run::finish(as_agent(&mut check).current_dir(home.workspace()));
        assert_eq!((done.code, done.stderr.is_empty()), (Some(code), code == 0), "{done:?}");
    };
    check(1);
    let daemon = home.daemon().unwrap();
    process::freeze(daemon);
    check(0);
    tt_tests::home::send(daemon, Signal::SIGCONT);
    check(1);
    home.kill_daemon();
    fs::remove_file(home.paths().socket).unwrap();
    let listener = UnixListener::bind(home.paths().socket).unwrap();
    std::thread::spawn(move || begin_to_answer(&listener));
    // `ttbench` measures that it is two seconds at most.
    check(0);
}
