//! Whole processes: what a person or an agent waits for when it runs `tt`.

use std::process::Stdio;

use crate::limits::{BODY, spawn};
use crate::samples::{Samples, now};
use crate::scratch::{Player, Scratch};
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

/// `tt msg send` from its start to its end, and to the line that another member's `tt msg recv --follow` prints.
pub(crate) async fn send_and_line(effort: Effort) -> Fallible<Vec<Row>> {
    let (alone, followed) = (Scratch::serving().await?, Scratch::serving().await?);
    for scratch in [&alone, &followed] {
        scratch.member("bench:sender").await?;
        scratch.member("bench:reader").await?;
    }
    let mut follower = Player::spawn(followed.tt("bench:reader", &["msg", "recv", "--follow", "--json"])?)?;
    let send = |scratch: &Scratch| -> Fallible<_> {
        let mut command = scratch.tt("bench:sender", &["msg", "send", "bench:reader", BODY])?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Ok(command)
    };
    let (mut whole, mut lines, mut spawned) = (Samples::default(), Samples::default(), Samples::default());
    let warm_up = 10;
    for round in 0..warm_up + effort.of(500, 150) {
        let mut limit = Samples::default();
        spawn(&alone, &mut limit)?;
        let mut command = send(&alone)?;
        let from = now();
        let ended = command.status()?;
        let until = now();
        if !ended.success() {
            return Err(format!("tt msg send: {ended}").into());
        }
        let mut command = send(&followed)?;
        let started = now();
        let mut child = command.spawn()?;
        follower.line()?;
        let printed = now();
        child.wait()?;
        if round >= warm_up {
            spawned.extend(limit);
            whole.add(from, until);
            lines.add(started, printed);
        }
    }
    let send = Row::times("tt-send", "tt msg send, whole process", &whole, Target::MostTimes(4.0));
    // A time says as much about the machine as about us, and this one is near its target: no reason to fail a quick run.
    let time = Row::times("tt-send-time", "tt msg send, as a time", &whole, Target::Most(3_000.0));
    let time = if effort.quick { None } else { Some(time) };
    let line =
        Row::times("tt-line", "exec(tt msg send) to the line on tt msg recv --follow", &lines, Target::MostTimes(4.0));
    let rows = [send.against("/bin/true p50", spawned.p50()), line.against("/bin/true p50", spawned.p50())];
    Ok(rows.into_iter().chain(time).collect())
}

/// No daemon and no database yet, to the end of the first `tt`.
pub(crate) async fn cold(effort: Effort) -> Fallible<Row> {
    let mut samples = Samples::default();
    for _ in 0..effort.of(60, 15) {
        let scratch = Scratch::new()?;
        let mut command = scratch.tt("bench:first", &["list"])?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let from = now();
        let ended = command.status()?;
        let until = now();
        let stopped = scratch.tt("bench:first", &["daemon", "stop"])?.stdout(Stdio::null()).status()?;
        if !ended.success() || !stopped.success() {
            return Err(format!("tt list: {ended}, tt daemon stop: {stopped}").into());
        }
        samples.add(from, until);
    }
    Ok(Row::times("cold", "cold: no daemon, no database, to the first answer", &samples, Target::Most(60_000.0)))
}
