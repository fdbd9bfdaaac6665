//! Processes whose files hang: nobody but those who depend on them notices.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tt_proto::ErrorCode;
use tt_proto::requests::{GetRoomState, WaitForTurn};
use tt_tests::scene::code;
use tt_tests::{Hanging, Home, InProcess, Lines, Member, Running, block_on, home};

/// Waits for the word to go, then makes many calls at once and waits for them.
const CALLERS: &str = "read go; for n in $(seq 20); do \"$@\" & done; wait";

/// A process of Claude Code in one conversation: at each word it calls `tt`, and says what came of it.
const CLAUDE: &str = "while read -r go; do CLAUDECODE=1 CLAUDE_CODE_SESSION_ID=\"$2\" CLAUDE_PID=$$ \"$1\" --json --no-autostart whoami; done";

/// A daemon that sees these processes.
fn daemon(home: &Home) -> (InProcess, Arc<Hanging>) {
    let processes = Hanging::new();
    let mut options = home.options();
    options.processes = processes.clone();
    (InProcess::start(options), processes)
}

/// A daemon that sees these processes and never gives up a look: who waits for one that hangs waits until the process is mended.
fn patient_daemon(home: &Home) -> (InProcess, Arc<Hanging>) {
    let processes = Hanging::new();
    let mut options = home.options();
    options.processes = processes.clone();
    options.look_timeout = Duration::MAX;
    (InProcess::start(options), processes)
}

/// Waits until a look at a process hangs.
async fn until_looked_at(processes: &Arc<Hanging>, pid: u32) {
    let processes = processes.clone();
    tokio::task::spawn_blocking(move || processes.until_looked_at(pid)).await.unwrap();
}

/// Everybody else is served: those whose processes must be looked at, and those who are there already.
async fn serves_others(home: &Home, member: &mut Member) {
    for _ in 0..3 {
        home.run(&["--no-autostart", "whoami"]).ok();
        member.say(None, "still here").await;
        member.call(|room_id| GetRoomState { room_id, ..Default::default() }).await;
    }
}

#[test]
fn callers_below_a_process_that_hangs_are_told_so_and_delay_nobody_else() {
    let home = home!();
    let (_daemon, processes) = daemon(&home);
    let mut shell = home.command("sh");
    // Who is calling depends on everything above it.
    shell.args(["-c", CALLERS, "sh"]).arg(home.tt_path()).args(["--json", "--no-autostart", "whoami"]);
    let mut shell = Running::spawn(shell.env("TT_HARNESS_EXPORT", "1").stdin(Stdio::piped()));
    let (pid, mut go) = (shell.pid(), shell.stdin().unwrap());
    block_on(async {
        let mut member = Member::join(&home, "a").await;
        processes.hang(pid);
        go.write_all(b"go\n").unwrap();
        serves_others(&home, &mut member).await;
        let told = tokio::task::spawn_blocking(move || shell.finish()).await.unwrap();
        let refusals: Vec<serde_json::Value> = told
            .stderr
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        assert_eq!((refusals.len(), told.stdout.as_str()), (20, ""), "{told:?}");
        for refusal in refusals {
            assert_eq!((&refusal["error"], &refusal["pid"]), (&"agent_id_required".into(), &pid.into()), "{refusal}");
        }
        // It hangs for ever, and still nobody else notices.
        serves_others(&home, &mut member).await;
        processes.mend(pid);
    });
}

#[test]
fn others_are_answered_before_the_look_at_a_caller_that_hangs_has_ended() {
    let home = home!();
    let (_daemon, processes) = patient_daemon(&home);
    let mut shell = home.command("sh");
    shell.args(["-c", CALLERS, "sh"]).arg(home.tt_path()).args(["--json", "--no-autostart", "whoami"]);
    let mut shell = Running::spawn(shell.env("TT_HARNESS_EXPORT", "1").stdin(Stdio::piped()));
    let (pid, mut go) = (shell.pid(), shell.stdin().unwrap());
    block_on(async {
        let mut member = Member::join(&home, "a").await;
        processes.hang(pid);
        go.write_all(b"go\n").unwrap();
        until_looked_at(&processes, pid).await;
        serves_others(&home, &mut member).await;
        // Only now can the look end, and with it the calls that depend on it.
        processes.mend(pid);
        tokio::task::spawn_blocking(move || shell.finish()).await.unwrap();
        serves_others(&home, &mut member).await;
    });
}

#[test]
fn others_are_answered_before_the_look_at_a_wait_that_hangs_has_ended() {
    let home = home!();
    let (_daemon, processes) = patient_daemon(&home);
    block_on(async {
        let mut member = Member::join(&home, "a").await;
        let again = Member::join(&home, "w").await;
        member.claim().await;
        let waiting = Running::start(&mut home.tt_as("w", &["wait", "--no-events"]));
        member.until(|state| state.members.iter().any(|member| member.waiting)).await;
        processes.hang(waiting.pid());
        let wait = WaitForTurn { room_id: again.room.clone(), max_wait_ms: Some(60_000), ..Default::default() };
        let others = async {
            until_looked_at(&processes, waiting.pid()).await;
            serves_others(&home, &mut member).await;
            processes.mend(waiting.pid());
        };
        let (second, ()) = tokio::join!(again.rpc().call(wait), others);
        assert_eq!(code(second), ErrorCode::DuplicateListener, "the first one lives");
    });
}

#[test]
fn others_are_answered_before_the_looks_at_sessions_that_hang_have_ended() {
    let home = home!();
    let (_daemon, processes) = patient_daemon(&home);
    let mut sessions: Vec<_> = (0..10).map(|n| claude(&home, &format!("s-{n}"))).collect();
    let first = sessions[0].0.pid();
    block_on(async {
        let mut member = Member::join(&home, "a").await;
        for (process, _, go) in &mut sessions {
            processes.hang_memory(process.pid());
            go.write_all(b"go\n").unwrap();
            // The others may have to wait for the first one.
            if process.pid() == first {
                until_looked_at(&processes, first).await;
            }
        }
        serves_others(&home, &mut member).await;
        for (process, ..) in &sessions {
            processes.mend(process.pid());
        }
    });
}

#[test]
fn a_wait_whose_process_hangs_keeps_its_place_and_delays_nobody_else() {
    let home = home!();
    let (_daemon, processes) = daemon(&home);
    block_on(async {
        let mut member = Member::join(&home, "a").await;
        let again = Member::join(&home, "w").await;
        member.claim().await;
        let waiting = Running::start(&mut home.tt_as("w", &["wait", "--no-events"]));
        member.until(|state| state.members.iter().any(|member| member.waiting)).await;
        processes.hang(waiting.pid());
        let wait = WaitForTurn { room_id: again.room.clone(), max_wait_ms: Some(60_000), ..Default::default() };
        let second = again.rpc().call(wait);
        let (second, ()) = tokio::join!(second, serves_others(&home, &mut member));
        assert_eq!(code(second), ErrorCode::DuplicateListener, "it may well be alive");
        processes.mend(waiting.pid());
    });
}

/// Starts a process of Claude Code.
fn claude(home: &Home, session: &str) -> (Running, Lines, std::process::ChildStdin) {
    let (lines, writer) = std::io::pipe().unwrap();
    let mut shell = home.command("sh");
    shell.args(["-c", CLAUDE, "sh"]).arg(home.tt_path()).arg(session).stdin(Stdio::piped());
    let mut shell = Running::talking_to(&mut shell, writer);
    let go = shell.stdin().unwrap();
    (shell, Lines::of(lines), go)
}

#[test]
fn a_conversation_of_which_another_process_hangs_goes_on_and_delays_nobody_else() {
    let home = home!();
    let (_daemon, processes) = daemon(&home);
    let (first, first_lines, mut go) = claude(&home, "s");
    go.write_all(b"go\n").unwrap();
    let agent = first_lines.json()["agent_id"].clone();
    processes.hang(first.pid());
    let (_second, second_lines, mut go) = claude(&home, "s");
    block_on(async {
        let mut member = Member::join(&home, "a").await;
        go.write_all(b"go\n").unwrap();
        serves_others(&home, &mut member).await;
        // Whether the first one has ended cannot be told, so it is not said to have.
        let second = tokio::task::spawn_blocking(move || second_lines.json()).await.unwrap();
        assert_eq!((&second["agent_id"], &second["anchor"]["pid"]), (&agent, &first.pid().into()), "{second}");
        serves_others(&home, &mut member).await;
        processes.mend(first.pid());
    });
}

#[test]
fn sessions_whose_variables_cannot_be_read_leave_the_disk_to_others() {
    let home = home!();
    let (_daemon, processes) = daemon(&home);
    // More than the daemon has threads for the disk.
    let mut sessions: Vec<_> = (0..10).map(|n| claude(&home, &format!("s-{n}"))).collect();
    for (process, ..) in &sessions {
        processes.hang_memory(process.pid());
    }
    for (process, lines, go) in &mut sessions {
        go.write_all(b"go\n").unwrap();
        let told = lines.json();
        assert_eq!(told["anchor"]["pid"], process.pid(), "{told}");
    }
    // Where a path leads, only the disk can tell.
    let directory = home.path().join("elsewhere");
    std::fs::create_dir_all(&directory).unwrap();
    tt_tests::run::finish(home.tt(&["--no-autostart", "join"]).current_dir(directory)).ok();
    for (process, ..) in &sessions {
        processes.mend(process.pid());
    }
}
