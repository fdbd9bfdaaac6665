//! What an actor plays on: its identity, its dice, its journal, and the real programs.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Fallible;
use crate::dice::Dice;
use crate::journal::{Fact, Journal};
use crate::world::Places;

/// A command that takes longer hangs. Calls have a deadline of ten seconds, and a fault lasts less than five.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// How long to look away from a process or a file that is not ready.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Stage {
    pub places: Places,
    /// The actor and the number of the process that plays it: `agent-1.3`.
    pub name: String,
    pub dice: Dice,
    pub journal: Journal,
    /// The members that messages are sent to.
    pub members: Vec<String>,
    /// The environment of the actor's programs.
    pub variables: Vec<(OsString, OsString)>,
    over: Arc<AtomicBool>,
    outputs: usize,
    sent: u64,
}

/// How a command of `tt` ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The answer, if it succeeded.
    pub(crate) fn json(&self) -> Option<Value> {
        self.status.success().then(|| serde_json::from_str(&self.stdout).ok()).flatten()
    }
}

impl Stage {
    pub(crate) fn new(places: Places, name: String, seed: u64, variables: Vec<(OsString, OsString)>) -> Fallible<Self> {
        let journal = Journal::create(&places.journals().join(format!("{name}.jsonl")))?;
        let (dice, over) = (Dice::new(seed, &name), Arc::default());
        let members = Vec::new();
        Ok(Self { places, name, dice, journal, members, variables, over, outputs: 0, sent: 0 })
    }

    /// Ends the play when the standard input of this process ends.
    pub(crate) fn end_with_input(&self) {
        let over = self.over.clone();
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            over.store(true, Ordering::Relaxed);
        });
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn write(&mut self, fact: Fact) -> Fallible<()> {
        self.journal.write(fact)
    }

    /// A body that tells its sender and its place among the sender's messages.
    pub(crate) fn next_body(&mut self) -> String {
        self.sent += 1;
        let padding = if self.dice.one_in(20) { self.dice.between(1000, 3500) } else { self.dice.between(0, 60) };
        format!("{} #{} {}", self.name, self.sent, "x".repeat(usize::try_from(padding).unwrap_or(0)))
    }

    /// A member to send to; none means everyone.
    pub(crate) fn someone(&mut self) -> Option<String> {
        let members = u64::try_from(self.members.len()).unwrap_or(0);
        let index = usize::try_from(self.dice.between(0, members + 1)).unwrap_or(0);
        self.members.get(index).cloned()
    }

    /// `tt`, as this actor.
    pub(crate) fn tt(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.places.tt());
        command
            .args(args)
            .env_clear()
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.places.workspace());
        command
    }

    /// A file for the output of a command. It stays when the command and this process are killed.
    pub(crate) fn output(&mut self, kind: &str) -> Fallible<(File, PathBuf)> {
        self.outputs += 1;
        let path = self.places.outputs().join(format!("{}.{}.{kind}", self.name, self.outputs));
        Ok((File::create(&path)?, path))
    }

    /// Runs `tt` to its end. With a kind, its output is kept for the checks.
    pub(crate) fn run(&mut self, args: &[&str], kind: Option<&str>) -> Fallible<Ended> {
        let (stdout, path) = self.output(kind.unwrap_or("out"))?;
        let errors = path.with_extension("err");
        let mut command = self.tt(args);
        command.stdin(Stdio::null()).stdout(stdout).stderr(File::create(&errors)?);
        let mut child = command.spawn()?;
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if started.elapsed() > COMMAND_LIMIT {
                let stack = std::fs::read_to_string(format!("/proc/{}/wchan", child.id())).unwrap_or_default();
                let what = format!("tt {} hangs for {COMMAND_LIMIT:?} ({stack})", args.join(" "));
                self.write(Fact::Broken { what })?;
                child.kill()?;
                break child.wait()?;
            }
            std::thread::sleep(PAUSE);
        };
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        let ended = Ended { status, stdout: read(&path), stderr: read(&errors) };
        let _ = std::fs::remove_file(errors);
        if kind.is_none() {
            let _ = std::fs::remove_file(path);
        }
        self.judge(args, &ended)?;
        Ok(ended)
    }

    /// A command succeeds, is refused with an error that says why, or was killed by a fault.
    fn judge(&mut self, args: &[&str], ended: &Ended) -> Fallible<()> {
        use std::os::unix::process::ExitStatusExt;
        let call = format!("tt {}", args.iter().take(2).copied().collect::<Vec<_>>().join(" "));
        match (ended.status.code(), ended.status.signal()) {
            (Some(0), _) | (_, Some(9)) => Ok(()),
            // Without the stick: the answer says why. A wait also ends so when its member was removed.
            (Some(5), _) if matches!(args.first(), Some(&"try" | &"wait")) => Ok(()),
            (Some(3), _) if args.first() == Some(&"wait") && ended.stderr.is_empty() => Ok(()),
            (Some(1 | 3 | 4), _) => {
                let error: Option<Value> = ended.stderr.lines().find_map(|line| serde_json::from_str(line).ok());
                match error.as_ref().and_then(|error| error["error"].as_str()) {
                    Some(code) => self.refused(&call, code, &ended.stderr),
                    None => self.write(Fact::Broken { what: format!("{call}: {}", ended.stderr) }),
                }
            }
            _ => self.write(Fact::Broken { what: format!("{call} ended with {}: {}", ended.status, ended.stderr) }),
        }
    }

    /// A refusal that an actor must expect, or a broken promise.
    pub(crate) fn refused(&mut self, call: &str, code: &str, error: &str) -> Fallible<()> {
        const EXPECTED: &[&str] = &[
            "daemon_unreachable",
            "storage_unavailable",
            "stale_lease",
            "turn_mismatch",
            "takeover_not_available",
            "takeover_ineligible",
            // The daemon has not yet noticed the end of the connection on which the message was taken.
            "message_held",
            // The stick cannot be passed to a member whose process was killed and is not back yet.
            "unknown_target",
            // Nor is such a member asked anything. That it is taken for gone wrongly shows in how often its process ended.
            "unknown_recipient",
            "duplicate_listener",
            "outcome_unknown",
            "overloaded",
        ];
        if EXPECTED.contains(&code) {
            return self.write(Fact::Failed { call: call.to_owned(), code: code.to_owned() });
        }
        self.write(Fact::Broken { what: format!("{call} was refused: {error}") })
    }
}
