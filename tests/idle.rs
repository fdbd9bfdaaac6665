//! A daemon at rest does nothing: no polling, no timer but the next real deadline, no thread that wakes to find no work.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tt_proto::requests::{AddReminder, CancelReminder, DaemonStatus};
use tt_tests::member::fresh_key;
use tt_tests::{Home, LIMIT, Member, Running, block_on, home, process, run};

const FOLLOWERS: usize = 10;
const WAITERS: usize = 3;
const SESSIONS: usize = 20;

/// The time over which nothing may happen, and the one after which the daemon is taken to have come to rest.
const WINDOW: Duration = Duration::from_secs(10);
/// Longer than the daemon waits before it adds new events to its full-text index, which it does once.
const A_MOMENT: Duration = Duration::from_secs(3);

#[test]
fn a_daemon_with_sessions_followers_and_waiters_and_nothing_to_tell_them_takes_no_time_and_never_wakes() {
    let home = home!();
    let started = Instant::now();
    let daemon = home.start();
    let mut processes: Vec<Running> = Vec::new();
    for n in 0..FOLLOWERS {
        run::finish(&mut home.tt_as(&format!("follower:{n}"), &["join"])).ok();
    }
    for n in 0..WAITERS {
        run::finish(&mut home.tt_as(&format!("waiter:{n}"), &["join"])).ok();
    }
    for n in 0..WAITERS {
        let waiter = format!("waiter:{n}");
        processes.push(Running::start(&mut home.tt_as(&waiter, &["wait", "--park"])));
    }
    for n in 0..FOLLOWERS {
        processes.push(Running::start(&mut home.tt_as(&format!("follower:{n}"), &["msg", "recv", "--follow"])));
    }
    let sessions = start_sessions(&home);
    wait_until_all_are_there(&home);
    loop {
        come_to_rest(daemon, &processes);
        let before = process::threads(daemon);
        pass(WINDOW, &processes);
        let after = process::threads(daemon);
        assert!(before.len() >= 3, "{before:?}");
        if before == after {
            break;
        }
        // Presence is written down once, a minute after it changed. Only on a slow machine does that fall into a window.
        let age = started.elapsed();
        assert!(age > Duration::from_secs(55) && age < LIMIT * 2, "the daemon does not rest: {before:#?}\n{after:#?}");
    }
    assert!(sessions.iter().all(|session| !session.ended_within(Duration::ZERO)), "a session ended");
}

/// Members and the reminders that each sets: 10,000 timers in all.
const PLANNERS: usize = 10;
const REMINDERS: usize = 1000;

/// What the timers may cost in memory, in KiB.
const TIMERS_KIB: u64 = 4 * 1024;

#[test]
fn ten_thousand_timers_that_are_not_due_cost_a_daemon_at_rest_no_wake_and_little_memory() {
    let home = home!();
    let daemon = home.start();
    let started = Instant::now();
    // A daemon that has seen as much traffic, and has none of it to remember.
    block_on(plan(&home, true));
    let before = process::memory(daemon).unwrap_or_default();
    block_on(plan(&home, false));
    loop {
        come_to_rest(daemon, &[]);
        let then = process::threads(daemon);
        pass(WINDOW, &[]);
        let now = process::threads(daemon);
        if then == now {
            break;
        }
        let age = started.elapsed();
        assert!(age > Duration::from_secs(55) && age < LIMIT * 2, "the daemon does not rest: {then:#?}\n{now:#?}");
    }
    let after = process::memory(daemon).unwrap_or_default();
    println!("{before} KiB before, {after} KiB after");
    assert!(before > 0 && after < before + TIMERS_KIB, "{before} KiB before, {after} KiB after");
}

/// Lets members set reminders, all at once, and cancel them again.
async fn plan(home: &Home, cancels: bool) {
    let all = tokio::task::LocalSet::new();
    let mut planning = Vec::new();
    for n in 0..PLANNERS {
        let planner = Member::join(home, &format!("planner:{n}")).await;
        planning.push(all.spawn_local(set_reminders(planner, cancels)));
    }
    all.run_until(async {
        for done in planning {
            done.await.unwrap_or_else(|e| panic!("{e}"));
        }
    })
    .await;
}

async fn set_reminders(mut planner: Member, cancels: bool) {
    for n in 0..REMINDERS {
        let key = fresh_key();
        let remind = |room_id| AddReminder {
            room_id,
            body: format!("look at {n}"),
            in_ms: 3_600_000,
            idempotency_key: key.clone(),
            ..Default::default()
        };
        let reminder_id = planner.call(remind).await.reminder_id;
        if cancels {
            let key = fresh_key();
            let cancel =
                |room_id| CancelReminder { room_id, reminder_id: reminder_id.clone(), idempotency_key: key.clone() };
            planner.call(cancel).await;
        }
    }
}

/// Asks until every process is in its wait. The question itself is a call too.
fn wait_until_all_are_there(home: &Home) {
    block_on(async {
        let mut asker = Member::join(home, "follower:0").await;
        let give_up = Instant::now() + LIMIT / 2;
        loop {
            let status = asker.call(|_| DaemonStatus {}).await;
            if status.calls == FOLLOWERS + WAITERS + 1 && status.waiters == WAITERS {
                return;
            }
            assert!(Instant::now() < give_up, "{status:?}");
        }
    });
}

/// Plays Claude Code: a hook reports its session and `tt` joins, and then it waits for its user. A hook gives up soon where a machine
/// is busy, so it is asked until the daemon knows.
const HARNESS: &str = "#!/bin/sh\nexport CLAUDECODE=1 CLAUDE_PID=$$ CLAUDE_CODE_SESSION_ID=$1\n\"$2\" join >/dev/null\n\
    until \"$2\" sessions --json | grep -q \"$1\\\".*prompt\"; do\n\
    echo \"{\\\"session_id\\\":\\\"$1\\\"}\" | \"$2\" hook --harness claude prompt\ndone\nread -r end\n";

/// Starts sessions, each in a process of its own, whose files are watched.
fn start_sessions(home: &Home) -> Vec<Running> {
    std::fs::create_dir_all(home.path().join(".claude/sessions")).unwrap_or_else(|e| panic!("{e}"));
    let harness = home.script("harness/claude", HARNESS);
    let start = |n: usize| {
        let mut command = home.command(&harness);
        command.arg(format!("session-{n}.")).arg(home.tt_path()).current_dir(home.workspace());
        Running::spawn(command.stdin(std::process::Stdio::piped()))
    };
    let sessions: Vec<Running> = (0..SESSIONS).map(start).collect();
    let started = Instant::now();
    loop {
        let known = home.run(&["sessions", "--json"]).ok().json();
        let alive = |session: &&serde_json::Value| session["liveness"] == "alive" && session["status"] == "busy";
        let living = known["sessions"].as_array().into_iter().flatten().filter(alive);
        let pids: BTreeSet<u64> = living.filter_map(|session| session["pid"].as_u64()).collect();
        if pids.len() == SESSIONS {
            return sessions;
        }
        assert!(started.elapsed() < LIMIT, "{} sessions live: {known}", pids.len());
    }
}

/// Returns when nothing has happened for a moment.
fn come_to_rest(daemon: u32, processes: &[Running]) {
    let mut last = process::threads(daemon);
    loop {
        pass(A_MOMENT, processes);
        let now = process::threads(daemon);
        if now == last {
            return;
        }
        last = now;
    }
}

/// Lets time pass: nobody has a reason to end.
fn pass(time: Duration, processes: &[Running]) {
    match processes.first() {
        Some(first) => assert!(!first.ended_within(time), "a wait ended"),
        None => std::thread::sleep(time),
    }
    assert!(processes.iter().all(|process| !process.ended_within(Duration::ZERO)), "a wait or a follower ended");
}
