//! Processes that exist only on paper: members of an in-process daemon can then die at a word.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

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
    /// The player that leads the session of every real process, as a shell leads that of a terminal.
    terminal: AtomicU32,
    /// What the players above every caller are.
    harness: Mutex<Option<&'static str>>,
}

impl Default for Cast {
    fn default() -> Self {
        Self {
            dead: watch::Sender::new(BTreeSet::new()),
            kernel: Kernel::new(),
            terminal: AtomicU32::new(0),
            harness: Mutex::new(None),
        }
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

    /// From now on callers sit at the terminal of this player.
    pub fn sit_at(&self, pid: u32) {
        self.terminal.store(pid, Ordering::SeqCst);
    }

    /// From now on the players are processes of this harness.
    pub fn play_harness(&self, name: Option<&'static str>) {
        *self.harness.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// The first player from this one on that lives; 0 if there is none.
    fn next_alive(&self, from: u32) -> u32 {
        let dead = self.dead.borrow();
        (from..FIRST + PLAYERS).find(|pid| !dead.contains(pid)).unwrap_or(0)
    }

    fn play(&self, pid: u32) -> Process {
        let harness = *self.harness.lock().unwrap_or_else(PoisonError::into_inner);
        Process {
            pid,
            parent: self.next_alive(pid + 1),
            session: pid,
            has_terminal: false,
            started_at: "the beginning".into(),
            name: harness.unwrap_or("player").into(),
            arguments_at: None,
        }
    }
}

impl Processes for Cast {
    fn get(&self, pid: u32) -> std::io::Result<Process> {
        if (FIRST..FIRST + PLAYERS).contains(&pid) {
            let is_dead = self.dead.borrow().contains(&pid);
            let alive = (!is_dead).then(|| self.play(pid));
            return alive.ok_or_else(|| std::io::ErrorKind::NotFound.into());
        }
        // Nobody's shell is watched: whoever names no player lives where nobody can see it.
        let terminal = self.terminal.load(Ordering::SeqCst);
        let session = if terminal == 0 { pid } else { terminal };
        let parent = self.next_alive(FIRST);
        self.kernel.get(pid).map(|process| Process { parent, session, has_terminal: terminal != 0, ..process })
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
}
