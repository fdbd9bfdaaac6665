//! What the processes above our callers were started with, as far as it was read before. It lies in their own memory, and one
//! in trouble can keep whoever reads it waiting; what is remembered can be had at once.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tt_proto::Error;
use tt_proto::hello::Identity;

use super::harness::INTERPRETERS;
use super::{Caller, derive};
use crate::liveness::{Exit, Process, Processes};

/// Derives an identity for whoever may wait, remembering what was found out on the way.
pub fn derive_and_remember(caller: &Caller<'_>, processes: &dyn Processes, memory: &Memory) -> Result<Identity, Error> {
    derive(caller, &Remembering { processes, memory, missing: None })
}

/// The same where it can be had at once. None where it depends on what lies in the memory of a process and was not read
/// before: that may keep whoever asks waiting.
pub fn derive_at_once(
    caller: &Caller<'_>,
    processes: &dyn Processes,
    memory: &Memory,
) -> Option<Result<Identity, Error>> {
    let at_once = Remembering { processes, memory, missing: Some(AtomicBool::new(false)) };
    let identity = derive(caller, &at_once);
    (!at_once.is_missing_something()).then_some(identity)
}

/// More processes than this are not above callers at once, and none that matters was started with more bytes than that. What
/// is forgotten is read again when it is needed.
const REMEMBERED: usize = 256;
const REMEMBERED_BYTES: usize = 4096;

/// What processes were started with.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<u32, (Process, Vec<String>)>>);

impl Memory {
    /// What was read of this process, if it runs the same program still.
    fn recall(&self, process: &Process) -> Option<Vec<String>> {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, arguments) = memory.get(&process.pid)?;
        let same = known.started_at == process.started_at
            && known.name == process.name
            && known.arguments_at == process.arguments_at;
        same.then(|| arguments.clone())
    }

    fn remember(&self, process: &Process, arguments: &[String]) {
        // Nobody was started with nothing: it could not be read. And where the kernel does not say where they lie, one script
        // that takes the place of another cannot be told from it.
        let unsure = process.arguments_at.is_none() && INTERPRETERS.contains(&process.name.as_str());
        let bytes: usize = arguments.iter().map(String::len).sum();
        if bytes == 0 || bytes > REMEMBERED_BYTES || unsure {
            return;
        }
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= REMEMBERED {
            memory.clear();
        }
        memory.insert(process.pid, (process.clone(), arguments.to_owned()));
    }
}

/// Processes, and what is remembered of them.
struct Remembering<'a> {
    processes: &'a dyn Processes,
    memory: &'a Memory,
    /// For whoever does not wait: whether something is not remembered.
    missing: Option<AtomicBool>,
}

impl Remembering<'_> {
    fn is_missing_something(&self) -> bool {
        self.missing.as_ref().is_some_and(|missing| missing.load(Ordering::Relaxed))
    }
}

impl Processes for Remembering<'_> {
    fn get(&self, pid: u32) -> Option<Process> {
        self.processes.get(pid)
    }

    /// No further once something is missing anyway.
    fn lineage(&self, pid: u32) -> Box<dyn Iterator<Item = Process> + '_> {
        let mut lineage = self.processes.lineage(pid);
        Box::new(std::iter::from_fn(move || if self.is_missing_something() { None } else { lineage.next() }))
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        if let Some(missing) = &self.missing {
            return self.memory.recall(process).unwrap_or_else(|| {
                missing.store(true, Ordering::Relaxed);
                Vec::new()
            });
        }
        let arguments = self.processes.arguments(process);
        self.memory.remember(process, &arguments);
        arguments
    }

    fn host_id(&self) -> String {
        self.processes.host_id()
    }

    fn open(&self, pid: u32) -> std::io::Result<Exit> {
        self.processes.open(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{chain, signals};
    use super::*;

    #[test]
    fn only_what_lies_in_the_memory_of_a_process_has_to_be_waited_for() {
        let at_once = |names: &[&str], pairs: &[(&str, &str)]| {
            let (table, pid) = chain(names);
            let caller = Caller { pid: Some(pid), user: "alice", signals: &signals(pairs) };
            derive_at_once(&caller, &table, &Memory::default()).is_some()
        };
        assert!(at_once(&["bash", "tt"], &[]));
        assert!(at_once(&["node x", "bash", "tt"], &[("TT_HARNESS_AGENT_ID", "a:b")]));
        let claude = [("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1")];
        assert!(!at_once(&["bash", "claude", "zsh", "tt"], &claude), "zsh may run anything");
        assert!(!at_once(&["bash", "node /usr/bin/gemini", "bash", "tt"], &[("GEMINI_CLI", "1")]));
    }

    #[test]
    fn what_is_remembered_is_of_the_same_program_in_the_same_process() {
        let (table, pid) = chain(&["bash", "node /usr/bin/gemini", "tt"]);
        let (process, arguments) = table.0[&101].clone();
        let caller = Caller { pid: Some(pid), user: "alice", signals: &signals(&[("GEMINI_CLI", "1")]) };
        let memory = Memory::default();
        derive_and_remember(&caller, &table, &memory).unwrap();
        assert_eq!(memory.recall(&process), Some(arguments));
        for other in [
            Process { started_at: "later".into(), ..process.clone() },
            Process { name: "renamed".into(), ..process.clone() },
            Process { arguments_at: Some((1, 2)), ..process.clone() },
            Process { arguments_at: None, ..process.clone() },
            Process { pid: 7, ..process.clone() },
        ] {
            assert_eq!(memory.recall(&other), None, "{other:?}");
        }
        assert!(memory.recall(&Process { parent: 1, ..process.clone() }).is_some(), "whoever is its parent now");
        let hidden = Process { pid: 8, arguments_at: None, ..process.clone() };
        let (unread, long) = (Process { pid: 9, ..process.clone() }, Process { pid: 10, ..process });
        memory.remember(&hidden, &["node".into(), "x".into()]);
        memory.remember(&unread, &[]);
        memory.remember(&long, &["node".into(), "x".repeat(5000)]);
        assert_eq!([hidden.clone(), unread, long].map(|process| memory.recall(&process)), [None, None, None]);
        let init = Process { name: "init".into(), ..hidden };
        memory.remember(&init, &["/sbin/init".into()]);
        assert!(memory.recall(&init).is_some());
    }

    #[test]
    fn the_shells_below_a_harness_that_named_its_process_are_not_asked() {
        let (table, pid) = chain(&["bash", "claude", "zsh -c tt", "tt"]);
        let named = [("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1"), ("CLAUDE_PID", "101")];
        let caller = Caller { pid: Some(pid), user: "alice", signals: &signals(&named) };
        let memory = Memory::default();
        let (bash, arguments) = &table.0[&100];
        memory.remember(bash, arguments);
        let identity = derive_at_once(&caller, &table, &memory).unwrap().unwrap();
        assert_eq!(identity.anchor.as_ref().map(|anchor| anchor.pid), Some(101));
        assert_eq!(derive(&caller, &table).unwrap(), identity);
    }
}
