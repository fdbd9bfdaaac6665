//! Daemons in different pid namespaces, one after the other, on one database: a pid of one means nothing in the other, and nobody
//! is declared dead for it. And a daemon with few descriptors.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::process::Command;

use serde_json::Value;
use tt_tests::{Home, Running, Wire, home, not_run, run};

/// A shell in a pid namespace of its own, with a `/proc` of its own. None where that is not permitted.
fn sandbox(home: &Home, script: &str) -> Option<Command> {
    let wrap = |script: &str| {
        let mut command = home.command("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"]).arg(home.tt_path());
        command.current_dir(home.workspace());
        command
    };
    match wrap("exit 0").output() {
        Ok(output) if output.status.success() => Some(wrap(script)),
        _ => {
            not_run("daemons in different pid namespaces", "unshare is not permitted here");
            None
        }
    }
}

fn liveness(state: &Value, harness: &str) -> (String, String) {
    let members = state["members"].as_array().unwrap();
    let is_its = |member: &&Value| member["agent_id"].as_str().is_some_and(|id| id.split(':').next() == Some(harness));
    let member = members.iter().find(is_its).unwrap_or_else(|| panic!("{state}"));
    // What is as usual is left out.
    let word = |field: &str, usual: &str| member[field].as_str().unwrap_or(usual).to_owned();
    (word("status", "active"), word("liveness", "alive"))
}

/// Joins as a harness that lives on: the shell is the process that the harness names as its own.
const JOIN: &str = "CLAUDECODE=1 CLAUDE_CODE_SESSION_ID=s CLAUDE_PID=$$ \"$1\" join >/dev/null && CLAUDECODE=1 \
    CLAUDE_CODE_SESSION_ID=s CLAUDE_PID=$$ \"$1\" try >/dev/null && echo joined; read -r end";

#[test]
fn a_holder_in_another_pid_namespace_is_not_declared_dead() {
    let home = home!();
    let Some(mut look) = sandbox(&home, "\"$1\" state --json; exit") else { return };
    let mut shell = home.command("sh");
    shell.args(["-c", JOIN, "sh"]).arg(home.tt_path()).current_dir(home.workspace());
    let mut holder = Running::spawn(shell.stdin(std::process::Stdio::piped()));
    let _input = holder.stdin();
    home.until_member("claude");
    let here = run::finish(home.tt(&["state", "--json"]).current_dir(home.workspace())).ok().json();
    assert_eq!(liveness(&here, "claude"), ("active".into(), "alive".into()), "{here}");
    // A daemon in another namespace, where this pid is nobody's.
    home.kill_daemon();
    let there = run::finish(&mut look).ok().json();
    assert_eq!(liveness(&there, "claude"), ("active".into(), "unknown".into()), "{there}");
    home.wait_until_gone();
    // And back: the process lives, and is seen to.
    let here = run::finish(home.tt(&["state", "--json"]).current_dir(home.workspace())).ok().json();
    assert_eq!(liveness(&here, "claude"), ("active".into(), "alive".into()), "{here}");
}

#[test]
fn a_member_of_a_sandbox_is_not_declared_dead_by_a_daemon_outside() {
    let home = home!();
    let Some(mut join) = sandbox(&home, &JOIN.replace("; read -r end", "; exit")) else { return };
    assert!(run::finish(&mut join).ok().stdout.contains("joined"));
    home.wait_until_gone();
    let here = run::finish(home.tt(&["state", "--json"]).current_dir(home.workspace())).ok().json();
    assert_eq!(liveness(&here, "claude"), ("active".into(), "unknown".into()), "{here}");
}

#[test]
fn a_session_that_is_resumed_where_its_process_cannot_be_seen_is_not_gone_for_the_next_daemon() {
    let home = home!();
    let Some(mut elsewhere) = sandbox(&home, "\"$1\" state >/dev/null 2>&1; read -r end") else { return };
    let run_session = || {
        let mut shell = home.command("sh");
        shell.args(["-c", &JOIN.replace("; read -r end", ""), "sh"]).arg(home.tt_path());
        assert!(run::finish(shell.current_dir(home.workspace())).ok().stdout.contains("joined"));
    };
    run_session();
    home.kill_daemon();
    // A daemon in another namespace, and the session in another process.
    let mut elsewhere = Running::spawn(elsewhere.stdin(std::process::Stdio::piped()));
    home.wait_for(&elsewhere);
    run_session();
    drop(elsewhere.stdin());
    elsewhere.finish();
    home.wait_until_gone();
    // This one sees that the first process has ended, and knows of no other.
    let here = run::finish(home.tt(&["state", "--json"]).current_dir(home.workspace())).ok().json();
    assert_eq!(liveness(&here, "claude"), ("active".into(), "unknown".into()), "{here}");
}

#[test]
fn with_few_descriptors_members_are_still_seen_and_newcomers_served() {
    let home = home!();
    home.make_data_dir();
    let mut limited = home.command("sh");
    limited.args(["-c", "ulimit -n 100; exec \"$0\""]).arg(home.ttd_path());
    let daemon = Running::start(&mut limited);
    home.wait_for(&daemon);
    let socket = home.paths().socket;
    // More than it can have.
    let mut open: Vec<Wire> = (0..200).filter_map(|_| Wire::try_connect(&socket).ok()).collect();
    let mut shell = home.command("sh");
    shell.args(["-c", JOIN, "sh"]).arg(home.tt_path()).current_dir(home.workspace());
    let mut holder = Running::spawn(shell.stdin(std::process::Stdio::piped()));
    let _input = holder.stdin();
    home.until_member("claude");
    open.extend((0..200).filter_map(|_| Wire::try_connect(&socket).ok()));
    let state = run::finish(home.tt(&["state", "--json"]).current_dir(home.workspace())).ok().json();
    assert_eq!(liveness(&state, "claude"), ("active".into(), "alive".into()), "{state}");
    assert!(!home.log().contains("accept:") && !home.log().contains("os error 24"), "{}", home.log());
}
