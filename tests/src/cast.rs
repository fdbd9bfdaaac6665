//! Processes that exist only on paper: members of an in-process daemon can then die at a word.

use std::collections::BTreeSet;

use tokio::sync::watch;
use ttd::liveness::{Exit, Kernel, Process, Processes};

/// No pid of a real machine is this large.
const FIRST: u32 = 5_000_000;

/// How many there are above every caller.
const PLAYERS: u32 = 32;

/// The machine's processes, and above every process of this machine a row of players. A client that names one of them as
/// its harness (`CLAUDECODE=1`, `CLAUDE_PID=<pid>`) lives as long as that player.
#[derive(Debug)]
pub struct Cast {
    dead: watch::Sender<BTreeSet<u32>>,
    kernel: Kernel,
}

impl Default for Cast {
    fn default() -> Self {
        Self { dead: watch::Sender::new(BTreeSet::new()), kernel: Kernel::new() }
    }
}

impl Cast {
    /// The pid of a player.
    pub fn player(number: usize) -> u32 {
        FIRST + u32::try_from(number).unwrap_or(0) % PLAYERS
    }

    /// Ends a player.
    pub fn kill(&self, pid: u32) {
        self.dead.send_modify(|dead| {
            dead.insert(pid);
        });
    }

    fn play(pid: u32) -> Process {
        Process {
            pid,
            parent: pid + 1,
            session: pid,
            started_at: "the beginning".into(),
            name: "player".into(),
            arguments_at: None,
        }
    }
}

impl Processes for Cast {
    fn get(&self, pid: u32) -> std::io::Result<Process> {
        if (FIRST..FIRST + PLAYERS).contains(&pid) {
            let alive = (!self.dead.borrow().contains(&pid)).then(|| Self::play(pid));
            return alive.ok_or_else(|| std::io::ErrorKind::NotFound.into());
        }
        // Nobody's shell is watched: whoever names no player lives where nobody can see it.
        self.kernel.get(pid).map(|process| Process { session: process.pid, ..process })
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        self.kernel.arguments(process)
    }

    fn host_id(&self) -> String {
        self.kernel.host_id()
    }

    fn machine_id(&self) -> String {
        self.kernel.machine_id()
    }

    fn earlier_host_ids(&self) -> Vec<String> {
        self.kernel.earlier_host_ids()
    }

    fn open(&self, pid: u32) -> std::io::Result<Exit> {
        self.get(pid)?;
        let mut dead = self.dead.subscribe();
        Ok(Box::pin(async move {
            let _ = dead.wait_for(|dead| dead.contains(&pid)).await;
            Ok(())
        }))
    }

    fn lineage(&self, pid: u32) -> Box<dyn Iterator<Item = Process> + '_> {
        let players = (FIRST..FIRST + PLAYERS).filter_map(|player| self.get(player).ok());
        Box::new(self.get(pid).ok().into_iter().chain(players))
    }
}
