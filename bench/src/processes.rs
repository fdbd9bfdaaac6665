//! Whole processes: what a person or an agent waits for when it runs `tt`.

use std::process::{Command, Stdio};

use tt_client::connect::Wire;

use crate::limits::{BODY, spawn};
use crate::samples::{Samples, now};
use crate::scratch::{Player, Scratch};
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

/// Rounds that do not count.
const WARM_UP: usize = 10;

/// A daemon with two members, one of whom is about to send.
async fn two_members() -> Fallible<Scratch> {
    let scratch = Scratch::serving().await?;
    scratch.member("bench:sender", Wire::Short).await?;
    scratch.member("bench:reader", Wire::Short).await?;
    Ok(scratch)
}

fn send(scratch: &Scratch) -> Fallible<Command> {
    let mut command = scratch.tt("bench:sender", &["msg", "send", "bench:reader", BODY])?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

/// `tt msg send` from its start to its end.
pub(crate) async fn whole_send(effort: Effort) -> Fallible<Vec<Row>> {
    let scratch = two_members().await?;
    let (mut whole, mut spawned) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + effort.of(500, 150) {
        let mut limit = Samples::default();
        spawn(&scratch, &mut limit)?;
        let mut command = send(&scratch)?;
        let from = now();
        let ended = command.status()?;
        let until = now();
        if !ended.success() {
            return Err(format!("tt msg send: {ended}").into());
        }
        if round >= WARM_UP {
            spawned.extend(limit);
            whole.add(from, until);
        }
    }
    let row = Row::times("tt-send", "tt msg send, whole process", &whole, Target::MostTimes(4.0));
    // A time says as much about the machine as about us, and this one is near its target: no reason to fail a quick run.
    let time = Row::times("tt-send-time", "tt msg send, as a time", &whole, Target::Most(3_000.0));
    let time = if effort.quick { None } else { Some(time) };
    Ok([row.against("/bin/true p50", spawned.p50())].into_iter().chain(time).collect())
}

/// `tt msg send` from its start to the line that another member's `tt msg recv --follow` prints.
pub(crate) async fn line(effort: Effort) -> Fallible<Row> {
    let scratch = two_members().await?;
    let mut follower = Player::spawn(scratch.tt("bench:reader", &["msg", "recv", "--follow", "--json"])?)?;
    let (mut lines, mut spawned) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + effort.of(500, 150) {
        let mut limit = Samples::default();
        spawn(&scratch, &mut limit)?;
        let mut command = send(&scratch)?;
        let from = now();
        let mut child = command.spawn()?;
        follower.line()?;
        let printed = now();
        child.wait()?;
        if round >= WARM_UP {
            spawned.extend(limit);
            lines.add(from, printed);
        }
    }
    let what = "exec(tt msg send) to the line on tt msg recv --follow";
    Ok(Row::times("tt-line", what, &lines, Target::MostTimes(4.0)).against("/bin/true p50", spawned.p50()))
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
