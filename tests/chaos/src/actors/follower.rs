//! A member whose messages are written by `tt msg recv --follow`, beside `tt events --follow`, which writes everything. Both
//! run on through the ends and starts of the daemon.

use std::process::{Child, Stdio};
use std::time::Duration;

use super::{Actor, person};
use crate::Fallible;
use crate::journal::Fact;
use crate::stage::Stage;

#[derive(Debug)]
pub(crate) struct Follower;

impl Actor for Follower {
    fn kind(&self) -> &'static str {
        "follower"
    }

    fn count(&self) -> usize {
        2
    }

    fn play(&self, stage: &mut Stage) -> Fallible<()> {
        while !stage.is_over() && !stage.run(&["join", "--json"], None)?.status.success() {}
        const INBOX: &[&str] = &["msg", "recv", "--follow", "--json", "--max-replay", "100000"];
        const LOG: &[&str] = &["events", "--follow", "--json", "--target", "any"];
        let mut children = [(INBOX, "follow", None), (LOG, "events", None)];
        while !stage.is_over() {
            for (args, kind, child) in &mut children {
                keep_running(stage, args, kind, child)?;
            }
            if stage.dice.one_in(3) {
                person::send(stage)?;
            }
            std::thread::sleep(Duration::from_millis(stage.dice.between(50, 300)));
        }
        for (_, _, child) in &mut children {
            end(child)?;
        }
        Ok(())
    }
}

/// Starts the command again if it was killed. It must not end by itself while the daemon comes and goes.
fn keep_running(stage: &mut Stage, args: &[&str], kind: &str, child: &mut Option<(Child, String)>) -> Fallible<()> {
    use std::os::unix::process::ExitStatusExt;
    if let Some((running, errors)) = child {
        let Some(status) = running.try_wait()? else { return Ok(()) };
        let said = std::fs::read_to_string(&*errors).unwrap_or_default();
        if status.signal() != Some(9) {
            let call = format!("tt {}", args.join(" "));
            let error: Option<serde_json::Value> = said.lines().find_map(|line| serde_json::from_str(line).ok());
            match error.as_ref().and_then(|error| error["error"].as_str()) {
                Some(code) => stage.refused(&call, code, &said)?,
                None => stage.write(Fact::Broken { what: format!("{call} ended with {status}: {said}") })?,
            }
        }
    }
    let (stdout, path) = stage.output(kind)?;
    let errors = path.with_extension("err");
    let mut command = stage.tt(args);
    command.stdin(Stdio::null()).stdout(stdout).stderr(std::fs::File::create(&errors)?);
    *child = Some((command.spawn()?, errors.display().to_string()));
    Ok(())
}

/// Ends the command as a harness does.
fn end(child: &mut Option<(Child, String)>) -> Fallible<()> {
    if let Some((mut running, _)) = child.take() {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(running.id())?);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        running.wait()?;
    }
    Ok(())
}
