//! Where a session takes messages that the daemon brings by itself, as far as its harness offers that. What is known of it from
//! earlier only says whether it is worth a look; everything is looked up again before each use, because a socket, a pid and a
//! file may belong to somebody else by then.

use std::path::PathBuf;

use tt_harness::{Harness, SessionServer};
use tt_proto::AgentId;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;
use tt_proto::session::SessionStatus;

use super::evidence::ServerSays;
use super::{Sessions, files};
use crate::engine::MemberProcesses;
use crate::identity;
use crate::liveness::{LookTimeout, Process, Processes};

/// How many transcripts of one session are looked at.
const MAX_TRANSCRIPTS: usize = 8;

/// Where a session takes messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inbox {
    /// Its process listens on a socket of its own. `status`: what the file of the process says that it does at this moment.
    Process { socket: PathBuf, process: Anchor, session_id: String, status: Option<SessionStatus> },
    /// The daemon of its harness takes them. `terminals`: how many terminals are connected to that, at most; none if that
    /// cannot be told.
    Server { socket: PathBuf, server: Anchor, session_id: String, terminals: Option<usize> },
}

/// What has to be looked at to find it.
enum Place {
    File { processes: Vec<Anchor> },
    Server(Anchor),
}

impl Sessions {
    /// Whether an agent's session takes messages, as far as is known without a look.
    pub fn takes_messages(&self, agent_id: &AgentId) -> bool {
        self.place(agent_id).is_some()
    }

    /// Looks up where an agent's session takes messages at this moment.
    pub async fn inbox(&self, agent_id: &AgentId) -> Option<Inbox> {
        let (harness, session_id, place) = self.place(agent_id)?;
        let this = self.clone();
        let look = move || match place {
            Place::File { processes } => {
                processes.into_iter().find_map(|process| this.process_inbox(harness, process, &session_id).ok()?)
            }
            Place::Server(server) => this.server_inbox(harness, server, session_id).ok()?,
        };
        tokio::task::spawn_blocking(look).await.ok()?
    }

    /// The files in which the conversation of an agent's session may be written: the one that a hook named, else those of its name
    /// where its harness keeps them. May block.
    pub fn transcripts(&self, agent_id: &AgentId) -> Vec<PathBuf> {
        let found = self.lock().of_agent(agent_id).map(|session| {
            let processes = session.processes.iter().map(|process| process.pid).collect::<Vec<u32>>();
            (session.key.clone(), session.transcript_path.clone(), processes)
        });
        let Some((key, named, processes)) = found else { return Vec::new() };
        if let Some(path) = named {
            return vec![path.into()];
        }
        let Some(harness) = tt_harness::by_name(&key.harness) else { return Vec::new() };
        let Some(facts) = &harness.session_files else { return Vec::new() };
        let name = format!("{}.jsonl", key.session_id);
        // A name with a slash would lead elsewhere.
        if name.contains('/') {
            return Vec::new();
        }
        let dirs = processes.into_iter().filter_map(|pid| self.config_dir(harness, pid).ok()?);
        let projects = dirs.filter_map(|dir| std::fs::read_dir(dir.join(facts.transcripts)).ok()).flatten();
        let paths = projects.filter_map(|project| Some(project.ok()?.path().join(&name)));
        paths.filter(|path| path.is_file()).take(MAX_TRANSCRIPTS).collect()
    }

    fn place(&self, agent_id: &AgentId) -> Option<(&'static Harness, String, Place)> {
        let now = self.now().lease;
        let alive = |anchor: &Anchor| self.0.watch.liveness(anchor);
        let registry = self.lock();
        let session = registry.of_agent(agent_id)?;
        if session.is_left() || session.verdict(&alive, now).liveness == Liveness::Gone {
            return None;
        }
        let harness = tt_harness::by_name(&session.key.harness)?;
        let runs = |anchor: &&Anchor| alive(anchor) == Liveness::Alive;
        let place = match &session.server {
            Some(server) => {
                let is_open = session.server_says == ServerSays::Open && runs(&server);
                is_open.then(|| Place::Server(server.clone()))?
            }
            None => {
                session.inbox.as_ref()?;
                let processes: Vec<Anchor> = session.processes.iter().filter(runs).cloned().collect();
                (!processes.is_empty()).then_some(Place::File { processes })?
            }
        };
        Some((harness, session.key.session_id.clone(), place))
    }

    /// The socket that the file of a process names, if the process is in this session. May block.
    fn process_inbox(
        &self,
        harness: &'static Harness,
        process: Anchor,
        session_id: &str,
    ) -> Result<Option<Inbox>, LookTimeout> {
        let Some(facts) = &harness.session_files else { return Ok(None) };
        let Some(dir) = self.config_dir(harness, process.pid)?.map(|dir| dir.join(facts.dir)) else { return Ok(None) };
        let path = dir.join(format!("{}.json", process.pid));
        let record = files::read(facts, &path, &process.process_started_at, &self.now());
        let record = record.filter(|record| record.session_id == session_id);
        let Some(record) = record else { return Ok(None) };
        let (status, session_id) = (record.status, session_id.to_owned());
        Ok(record.inbox.map(|socket| Inbox::Process { socket, process, session_id, status }))
    }

    /// The socket of a harness's daemon. May block.
    fn server_inbox(
        &self,
        harness: &'static Harness,
        server: Anchor,
        session_id: String,
    ) -> Result<Option<Inbox>, LookTimeout> {
        let Some(facts) = &harness.server else { return Ok(None) };
        let dir = self.config_dir(harness, server.pid)?;
        // It may be a link to a place with a shorter name, since the name of a socket has few bytes.
        let Some(socket) = dir.as_ref().and_then(|dir| dir.join(facts.socket).canonicalize().ok()) else {
            return Ok(None);
        };
        let terminals = self.0.looks.run_blocking(move |processes| programs_in_terminals(harness, processes))?;
        let in_dir = |pid: &u32| self.config_dir(harness, *pid).is_ok_and(|other| other == dir);
        let terminals = terminals.map(|pids| pids.iter().filter(|pid| in_dir(pid)).count());
        Ok(Some(Inbox::Server { socket, server, session_id, terminals }))
    }
}

/// The processes of a harness that a person works with, and that leave their sessions to its daemon: those in a terminal that
/// run no command of the harness. None if the processes cannot be listed.
fn programs_in_terminals(harness: &'static Harness, processes: &dyn Processes) -> Option<Vec<u32>> {
    let server = harness.server.as_ref()?;
    let is_one = |process: &Process| {
        process.has_terminal
            && identity::harness_of(process, processes) == Some(harness)
            // A launcher that is a script has the same arguments as the program it starts.
            && process.name == harness.program
            && !runs_alone(server, &processes.arguments(process))
    };
    let pids = processes.pids()?;
    Some(pids.into_iter().filter(|pid| processes.get(*pid).is_ok_and(|process| is_one(&process))).collect())
}

/// Whether a program was started so that it has nothing to do with the daemon of its harness. When in doubt it has not: one terminal
/// too many could make a session seem watched that is not.
fn runs_alone(server: &SessionServer, arguments: &[String]) -> bool {
    let mut arguments = arguments.iter().skip(1).map(String::as_str);
    let is_other = |argument: &str| {
        let words = argument.split(['=', ',']).collect::<Vec<&str>>();
        server.other_arguments.iter().any(|other| words.contains(other))
    };
    let is_command = |argument: &str| {
        // A prompt has spaces, as a rule.
        let is_word = !argument.is_empty() && !argument.starts_with('-') && !argument.contains(' ');
        is_word && !server.terminal_commands.contains(&argument)
    };
    arguments.clone().any(is_other) || arguments.next().is_some_and(is_command)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_program_with_a_command_of_its_own_is_no_terminal_of_the_daemon() {
        let server = tt_harness::by_name("codex").unwrap().server.as_ref().unwrap();
        let runs_alone = |words: &[&str]| {
            let words: Vec<String> = ["codex"].iter().chain(words).map(|word| (*word).to_owned()).collect();
            super::runs_alone(server, &words)
        };
        for words in [
            &["exec", "hello"][..],
            &["-m", "x", "exec", "hello"],
            &["--remote", "unix://x"],
            &["--remote=unix://x"],
            &["app-server", "--listen", "unix://"],
            &["--disable", "daemon_auto_start"],
            &["--disable=daemon_auto_start"],
            &["login"],
        ] {
            assert!(runs_alone(words), "{words:?}");
        }
        for words in [&[][..], &["resume", "01a1"], &["--model", "x"], &["fork"], &["fix the parser"]] {
            assert!(!runs_alone(words), "{words:?}");
        }
    }
}
