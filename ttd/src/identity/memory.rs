//! Remembers the arguments of the processes above callers, so that they are read once: each caller has the same few processes
//! above it.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tt_proto::Error;
use tt_proto::hello::{Identity, Step};

use super::harness::INTERPRETERS;
use super::{Caller, derive, explain};
use crate::liveness::{Exit, Process, Processes};

/// Derives an identity and remembers the arguments read for it.
pub fn derive_and_remember(caller: &Caller<'_>, processes: &dyn Processes, memory: &Memory) -> Result<Identity, Error> {
    derive(caller, &Remembering { processes, memory })
}

/// Returns every step of the derivation, for `tt whoami --explain`.
pub fn explain_and_remember(
    caller: &Caller<'_>,
    processes: &dyn Processes,
    memory: &Memory,
) -> Result<Vec<Step>, Error> {
    explain(caller, &Remembering { processes, memory })
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
}

impl Processes for Remembering<'_> {
    fn get(&self, pid: u32) -> io::Result<Process> {
        self.processes.get(pid)
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        self.memory.recall(process).unwrap_or_else(|| {
            let arguments = self.processes.arguments(process);
            self.memory.remember(process, &arguments);
            arguments
        })
    }

    fn cwd(&self, pid: u32) -> Option<PathBuf> {
        self.processes.cwd(pid)
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

    fn open(&self, pid: u32) -> io::Result<Exit> {
        self.processes.open(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Table, chain, signals};
    use super::*;

    /// A process table that notes whose arguments are read.
    struct Noting {
        table: Table,
        read: Mutex<Vec<u32>>,
    }

    impl Processes for Noting {
        fn get(&self, pid: u32) -> io::Result<Process> {
            self.table.get(pid)
        }

        fn arguments(&self, process: &Process) -> Vec<String> {
            self.read.lock().unwrap().push(process.pid);
            self.table.arguments(process)
        }

        fn host_id(&self) -> String {
            self.table.host_id()
        }

        fn open(&self, pid: u32) -> io::Result<Exit> {
            self.table.open(pid)
        }
    }

    /// The processes whose arguments are read to identify a caller, the first time and the next.
    fn read(names: &[&str], pairs: &[(&str, &str)]) -> [Vec<u32>; 2] {
        let (table, pid) = chain(names);
        let caller = Caller { pid: Some(pid), user: "alice", signals: &signals(pairs) };
        let (table, memory) = (Noting { table, read: Mutex::default() }, Memory::default());
        [(); 2].map(|()| {
            derive_and_remember(&caller, &table, &memory).unwrap();
            let mut read = std::mem::take(&mut *table.read.lock().unwrap());
            read.sort_unstable();
            read.dedup();
            read
        })
    }

    #[test]
    fn arguments_are_read_once_and_only_where_they_decide() {
        let none: [Vec<u32>; 2] = Default::default();
        assert_eq!(read(&["bash", "tt"], &[]), none);
        assert_eq!(read(&["node x", "bash", "tt"], &[("TT_HARNESS_AGENT_ID", "a:b")]), none);
        let claude = [("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1")];
        assert_eq!(read(&["bash", "claude", "zsh", "tt"], &claude), [vec![100, 102], vec![]], "zsh may run anything");
        let gemini = [("GEMINI_CLI", "1")];
        let all = [vec![100, 101, 102], vec![]];
        assert_eq!(read(&["bash", "node /usr/bin/gemini", "bash", "tt"], &gemini), all);
    }

    #[test]
    fn the_shells_below_a_harness_that_names_its_process_are_not_read() {
        let named = [("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s1"), ("CLAUDE_PID", "101")];
        assert_eq!(read(&["bash", "claude", "zsh -c tt", "tt"], &named), [vec![100], vec![]]);
    }

    #[test]
    fn arguments_are_remembered_for_one_program_in_one_process() {
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
}
