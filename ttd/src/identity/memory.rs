//! Remembers the arguments of the processes above callers. Arguments are read from the memory of their process, which can
//! block the reader; remembered arguments are available immediately.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use tt_proto::hello::{Identity, Step};
use tt_proto::{Error, ErrorCode};

use super::harness::INTERPRETERS;
use super::{Caller, derive, explain};
use crate::liveness::{Exit, Looks, Process, Processes};

/// Derives an identity and remembers the arguments read for it. May block.
pub fn derive_and_remember(caller: &Caller<'_>, looks: &Looks, memory: &Memory) -> Result<Identity, Error> {
    reading(looks, memory, |processes| derive(caller, processes))
}

/// Returns every step of the derivation, for `tt whoami --explain`. May block.
pub fn explain_and_remember(caller: &Caller<'_>, looks: &Looks, memory: &Memory) -> Result<Vec<Step>, Error> {
    reading(looks, memory, |processes| explain(caller, processes))
}

/// Derives something from a process table whose arguments are read. Fails if a process keeps its arguments from being read:
/// without them the caller might be taken for somebody else.
fn reading<T>(
    looks: &Looks,
    memory: &Memory,
    derive: impl FnOnce(&dyn Processes) -> Result<T, Error>,
) -> Result<T, Error> {
    let table = Remembering { processes: looks.processes(), memory, looks: Some(looks), missing: AtomicU32::new(0) };
    let derived = derive(&table);
    match table.missing() {
        None => derived,
        Some(pid) => {
            let message =
                format!("process {pid}, above the caller, hangs and cannot be read, so it is not known who is calling");
            Err(Error::new(ErrorCode::AgentIdRequired, message)
                .hint(format!("end or mend process {pid}"))
                .detail("pid", pid))
        }
    }
}

/// Derives an identity without blocking. None if that needs the arguments of a process that are not remembered.
pub fn derive_at_once(
    caller: &Caller<'_>,
    processes: &dyn Processes,
    memory: &Memory,
) -> Option<Result<Identity, Error>> {
    let at_once = Remembering { processes, memory, looks: None, missing: AtomicU32::new(0) };
    let identity = derive(caller, &at_once);
    at_once.missing().is_none().then_some(identity)
}

/// How many processes are remembered. Beyond that all are forgotten, and read again when they are needed.
const MAX_PROCESSES: usize = 256;

/// The longest arguments that are remembered, in bytes for each process.
const MAX_ARGUMENT_BYTES: usize = 4096;

/// The arguments of processes, by pid.
#[derive(Debug, Default)]
pub struct Memory(Mutex<HashMap<u32, (Process, Vec<String>)>>);

impl Memory {
    /// The arguments of this process, if they are remembered and it still runs the same program.
    fn recall(&self, process: &Process) -> Option<Vec<String>> {
        let memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, arguments) = memory.get(&process.pid)?;
        let same = known.started_at == process.started_at
            && known.name == process.name
            && known.arguments_at == process.arguments_at;
        same.then(|| arguments.clone())
    }

    fn remember(&self, process: &Process, arguments: &[String]) {
        // Every process has arguments, so none means that they could not be read. And where the kernel does not tell their
        // address, a script that replaces another one in the same process would go unnoticed.
        let unsure = process.arguments_at.is_none() && INTERPRETERS.contains(&process.name.as_str());
        let bytes: usize = arguments.iter().map(String::len).sum();
        if bytes == 0 || bytes > MAX_ARGUMENT_BYTES || unsure {
            return;
        }
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if memory.len() >= MAX_PROCESSES {
            memory.clear();
        }
        memory.insert(process.pid, (process.clone(), arguments.to_owned()));
    }
}

/// A process table that takes arguments from memory, or adds them to it.
struct Remembering<'a> {
    processes: &'a dyn Processes,
    memory: &'a Memory,
    /// None if the caller must not block.
    looks: Option<&'a Looks>,
    /// The process whose arguments were needed and could not be had; 0 for none.
    missing: AtomicU32,
}

impl Remembering<'_> {
    fn missing(&self) -> Option<u32> {
        Some(self.missing.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }

    fn read(&self, process: &Process) -> io::Result<Vec<String>> {
        if let Some(arguments) = self.memory.recall(process) {
            return Ok(arguments);
        }
        let looks = self.looks.ok_or(io::ErrorKind::WouldBlock)?;
        let arguments = looks.arguments(process)?;
        self.memory.remember(process, &arguments);
        Ok(arguments)
    }
}

impl Processes for Remembering<'_> {
    fn get(&self, pid: u32) -> io::Result<Process> {
        self.processes.get(pid)
    }

    /// Ends early once arguments are missing, since the result is discarded then.
    fn lineage(&self, pid: u32) -> Box<dyn Iterator<Item = Process> + '_> {
        let mut lineage = self.processes.lineage(pid);
        Box::new(std::iter::from_fn(move || if self.missing().is_some() { None } else { lineage.next() }))
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        self.read(process).unwrap_or_else(|_| {
            self.missing.store(process.pid, Ordering::Relaxed);
            Vec::new()
        })
    }

    fn shares_namespace(&self, pid: u32) -> bool {
        self.processes.shares_namespace(pid)
    }

    fn machine_id(&self) -> String {
        self.processes.machine_id()
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
    use std::sync::Arc;

    use super::super::tests::{chain, signals};
    use super::*;

    #[test]
    fn only_unremembered_arguments_block() {
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
    fn arguments_are_remembered_for_one_program_in_one_process() {
        let (table, pid) = chain(&["bash", "node /usr/bin/gemini", "tt"]);
        let (process, arguments) = table.0[&101].clone();
        let caller = Caller { pid: Some(pid), user: "alice", signals: &signals(&[("GEMINI_CLI", "1")]) };
        let memory = Memory::default();
        derive_and_remember(&caller, &Looks::new(Arc::new(table)), &memory).unwrap();
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
        assert!(memory.recall(&Process { parent: 1, ..process.clone() }).is_some(), "its parent may change");
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
    fn the_shells_below_a_harness_that_names_its_process_are_not_read() {
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
