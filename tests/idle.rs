//! A daemon at rest does nothing: no polling, no timer but the next real deadline, no thread that wakes to find no work.
#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use tt_proto::requests::DaemonStatus;
use tt_tests::{Home, LIMIT, Member, Running, block_on, home, process, run};

const FOLLOWERS: usize = 10;
const WAITERS: usize = 3;

/// The time over which nothing may happen, and the one after which the daemon is taken to have come to rest.
const WINDOW: Duration = Duration::from_secs(10);
/// Longer than the daemon waits before it adds new events to its full-text index, which it does once.
const A_MOMENT: Duration = Duration::from_secs(3);

#[test]
fn a_daemon_with_followers_and_waiters_and_nothing_to_tell_them_takes_no_time_and_never_wakes() {
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
    wait_until_all_are_there(&home);
    loop {
        come_to_rest(daemon, &processes);
        let before = process::threads(daemon);
        pass(WINDOW, &processes);
        let after = process::threads(daemon);
        assert!(before.len() >= 3, "{before:?}");
        if before == after {
            return;
        }
        // Presence is written down once, a minute after it changed. Only on a slow machine does that fall into a window.
        let age = started.elapsed();
        assert!(age > Duration::from_secs(55) && age < LIMIT * 2, "the daemon does not rest: {before:#?}\n{after:#?}");
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
    assert!(!processes[0].ended_within(time), "a wait ended");
    assert!(processes.iter().all(|process| !process.ended_within(Duration::ZERO)), "a wait or a follower ended");
}
