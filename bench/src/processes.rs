//! Whole processes: what a person or an agent waits for when it runs `tt`.

use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

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
    scratch.http_member("bench:sender")?;
    scratch.http_member("bench:reader")?;
    Ok(scratch)
}

const SEND: [&str; 4] = ["msg", "send", "bench:reader", BODY];

/// Runs a program to its end, silently, and adds how long that took.
fn sample(mut command: Command, samples: &mut Samples) -> Fallible<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let from = now();
    let ended = command.status()?;
    let until = now();
    if !ended.success() {
        return Err(format!("{command:?}: {ended}").into());
    }
    samples.add(from, until);
    Ok(())
}

/// `tt msg send` from its start to its end: by somebody whose name is given, and by a session of a harness.
pub(crate) async fn whole_send(effort: Effort) -> Fallible<Vec<Row>> {
    let scratch = two_members().await?;
    let [mut named, mut claude, mut spawned] = [(); 3].map(|()| Samples::default());
    sample(scratch.tt_in_claude(&["join"])?, &mut Samples::default())?;
    for round in 0..WARM_UP + effort.of(500, 100) {
        if round == WARM_UP {
            [named, claude, spawned] = [(); 3].map(|()| Samples::default());
        }
        spawn(&scratch, &mut spawned)?;
        sample(scratch.tt("bench:sender", &SEND)?, &mut named)?;
        sample(scratch.tt_in_claude(&SEND)?, &mut claude)?;
    }
    let mut rows = Vec::new();
    for (name, what, samples) in
        [("tt-send", "tt msg send", &named), ("tt-send-claude", "tt msg send by a session of Claude Code", &claude)]
    {
        let row = Row::times(name, &format!("{what}, whole process"), samples, Target::MostTimes(3.3));
        rows.push(row.against("/bin/true p50", spawned.p50()));
        // A time says as much about the machine as about us, and this one is near its target: no reason to fail a quick run.
        if !effort.quick {
            let name = format!("{name}-time");
            rows.push(Row::times(&name, &format!("{what}, as a time"), samples, Target::Most(3_000.0)));
        }
    }
    Ok(rows)
}

/// A prompt that asks a daemon which does not answer.
pub(crate) async fn mute_prompt(effort: Effort) -> Fallible<Row> {
    let scratch = two_members().await?;
    let daemon = Pid::from_raw(i32::try_from(scratch.daemon_pid()?)?);
    let mut samples = Samples::default();
    kill(daemon, Signal::SIGSTOP)?;
    let sampled = (0..effort.of(200, 40))
        .try_for_each(|_| sample(scratch.tt("bench:sender", &["status", "--prompt"])?, &mut samples));
    kill(daemon, Signal::SIGCONT)?;
    sampled?;
    let what = "tt status --prompt, whole process, with a daemon that does not answer";
    Ok(Row::times("prompt-mute", what, &samples, Target::Most(5_000.0)))
}

/// `tt msg send` from its start to the line that another member's `tt msg recv --follow` prints.
pub(crate) async fn line(effort: Effort) -> Fallible<Row> {
    let scratch = two_members().await?;
    let mut follower = Player::spawn(scratch.tt("bench:reader", &["msg", "recv", "--follow", "--json"])?)?;
    let (mut lines, mut spawned) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + effort.of(500, 150) {
        let mut limit = Samples::default();
        spawn(&scratch, &mut limit)?;
        let mut command = scratch.tt("bench:sender", &SEND)?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
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
