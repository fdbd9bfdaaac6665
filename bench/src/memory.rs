//! What the daemon costs while nothing happens: memory, wake-ups, CPU.

use std::time::Duration;

use tt_proto::requests::{DaemonStatus, WaitForTurn};

use crate::messages::many_writers;
use crate::scratch::{Player, Scratch};
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

const FOLLOWERS: usize = 10;
const WAITERS: usize = 3;

/// Followers and waiters that nothing happens for.
pub(crate) async fn idle(effort: Effort) -> Fallible<Vec<Row>> {
    let scratch = Scratch::serving().await?;
    let (client, room) = scratch.member("bench:holder").await?;
    client
        .rpc()
        .call(WaitForTurn { room_id: room.clone(), max_wait_ms: Some(0), claim: Some(true), ..Default::default() })
        .await?;
    let mut players = Vec::new();
    for n in 0..FOLLOWERS + WAITERS {
        let agent = format!("bench:idle-{n}");
        scratch.member(&agent).await?;
        let args: &[&str] = if n < FOLLOWERS { &["msg", "recv", "--follow"] } else { &["wait", "--no-events"] };
        players.push(Player::spawn(scratch.tt(&agent, args)?)?);
    }
    loop {
        let status = client.rpc().call(DaemonStatus {}).await?;
        if status.waiters >= WAITERS && status.connections > players.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Threads that only helped to get here may go; what stays is what a user has.
    // Longer than the pause after which new events are added to the full-text index, once.
    let settle = Duration::from_secs(if effort.quick { 5 } else { 12 });
    tokio::time::sleep(settle).await;
    let pid = scratch.daemon_pid()?;
    let (switches, ticks) = (context_switches(pid)?, cpu_ticks(pid)?);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (switches, ticks) = (context_switches(pid)?.saturating_sub(switches), cpu_ticks(pid)? - ticks);
    let what = |of: &str| format!("idle 10 s, {FOLLOWERS} followers and {WAITERS} waiters: {of}");
    let row = |name: &str, of: &str, value: u64| Row::number(name, &what(of), "", value as f64, 1, Target::Most(0.0));
    Ok(vec![row("idle-switches", "context switches", switches), row("idle-ticks", "CPU ticks", ticks)])
}

/// The daemon's resident memory, in three states.
pub(crate) async fn resident(effort: Effort) -> Fallible<Vec<Row>> {
    let scratch = Scratch::serving().await?;
    let pid = scratch.daemon_pid()?;
    let row = |name: &str, what: &str, most: f64| -> Fallible<Row> {
        Ok(Row::number(name, what, "MiB", resident_mib(pid)?, 1, Target::Most(most)))
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    let mut rows = vec![row("memory-empty", "daemon memory, empty", 12.0)?];
    let (client, room) = scratch.member("bench:host").await?;
    let mut subscribers = scratch.player("bench:subscriber", &["subscribe", room.as_str(), "100"])?;
    subscribers.line()?;
    rows.push(row("memory-100", "daemon memory, 100 subscribers", 25.0)?);
    drop(subscribers);
    let sends = effort.of(1_000_000, 20_000);
    let mut writers = many_writers(&scratch)?;
    writers.tell(&sends.to_string())?;
    writers.line()?;
    drop((writers, client));
    rows.push(row("memory-sends", &format!("daemon memory, after {sends} sends"), 30.0)?);
    Ok(rows)
}

/// All threads of a process together.
fn context_switches(pid: u32) -> Fallible<u64> {
    let mut sum = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = std::fs::read_to_string(thread?.path().join("status"))?;
        sum += status
            .lines()
            .filter(|line| line.contains("ctxt_switches"))
            .filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
            .sum::<u64>();
    }
    Ok(sum)
}

/// Time spent in user mode and in the kernel; fields 14 and 15 of proc_pid_stat(5).
fn cpu_ticks(pid: u32) -> Fallible<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    Ok(after_name.split_ascii_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum())
}

pub(crate) fn resident_mib(pid: u32) -> Fallible<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).ok_or("no VmRSS")?;
    let kib: f64 = line.split_ascii_whitespace().nth(1).ok_or("no VmRSS")?.parse()?;
    Ok(kib / 1024.0)
}
