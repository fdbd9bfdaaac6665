//! A whole daemon inside the test, with options no program has; and processes that hang.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ttd::lifecycle::{Daemon, Options, Stopper};
use ttd::liveness::{Kernel, Process, Processes};

use crate::LIMIT;

/// A daemon on a thread of this process. Dropping it stops it.
#[derive(Debug)]
pub struct InProcess {
    stopper: Stopper,
    ended: Receiver<()>,
}

impl InProcess {
    /// Starts a daemon that serves until it is stopped.
    #[track_caller]
    pub fn start(options: Options) -> Self {
        let daemon = Daemon::start(options, listenfd::ListenFd::empty());
        let daemon = daemon.unwrap_or_else(|e| panic!("{e}: {}", e.hint)).unwrap_or_else(|| panic!("one runs already"));
        let stopper = daemon.stopper();
        // The one that the program has, with few threads: what blocks them is noticed.
        let runtime = ttd::runtime().unwrap_or_else(|e| panic!("no runtime: {e}"));
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || {
            let served = runtime.block_on(daemon.serve());
            drop(runtime);
            if served.is_ok() {
                let _ = sender.send(());
            }
        });
        Self { stopper, ended }
    }

    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// A handle to stop it from elsewhere.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Whether it ended in order, waiting for that no longer than `limit`.
    pub fn ended_within(&self, limit: Duration) -> bool {
        match self.ended.recv_timeout(limit) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => panic!("the daemon ended with an error"),
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.stop();
        let _ = self.ended.recv_timeout(LIMIT);
    }
}

/// The machine's processes, of which some hang: a look at one of them does not end before it is mended.
#[derive(Debug, Default)]
pub struct Hanging {
    pids: Mutex<BTreeSet<u32>>,
    /// Those of which only what is in their memory cannot be seen: arguments and variables.
    memories: Mutex<BTreeSet<u32>>,
    mended: Condvar,
    memory_mended: Condvar,
    /// Those that somebody looks at and that hang.
    looked_at: Mutex<BTreeSet<u32>>,
    look_began: Condvar,
    kernel: Kernel,
}

impl Hanging {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn hang(&self, pid: u32) {
        self.pids.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
    }

    pub fn hang_memory(&self, pid: u32) {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
    }

    /// Waits until a look at this process hangs.
    #[track_caller]
    pub fn until_looked_at(&self, pid: u32) {
        let looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.look_began.wait_timeout_while(looked_at, LIMIT, |looked_at| !looked_at.contains(&pid));
        assert!(!waited.unwrap_or_else(PoisonError::into_inner).1.timed_out(), "nobody looks at {pid}");
    }

    fn begin(&self, pid: u32) {
        self.looked_at.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
        self.look_began.notify_all();
    }

    pub fn mend(&self, pid: u32) {
        for hung in [&self.pids, &self.memories] {
            hung.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
        }
        self.mended.notify_all();
        self.memory_mended.notify_all();
    }

    fn look(&self, pid: u32) -> &Kernel {
        let pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        if pids.contains(&pid) {
            self.begin(pid);
        }
        drop(self.mended.wait_while(pids, |pids| pids.contains(&pid)));
        &self.kernel
    }

    fn look_into_memory(&self, pid: u32) -> &Kernel {
        let pids = self.memories.lock().unwrap_or_else(PoisonError::into_inner);
        if pids.contains(&pid) {
            self.begin(pid);
        }
        drop(self.memory_mended.wait_while(pids, |pids| pids.contains(&pid)));
        self.look(pid)
    }
}

impl Processes for Hanging {
    fn get(&self, pid: u32) -> std::io::Result<Process> {
        self.look(pid).get(pid)
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        self.look_into_memory(process.pid).arguments(process)
    }

    fn cwd(&self, pid: u32) -> Option<PathBuf> {
        self.look(pid).cwd(pid)
    }

    fn variable(&self, pid: u32, name: &str) -> Option<OsString> {
        self.look_into_memory(pid).variable(pid, name)
    }

    fn has_terminal(&self, pid: u32) -> Option<bool> {
        self.look(pid).has_terminal(pid)
    }

    fn shares_namespace(&self, pid: u32) -> bool {
        self.look(pid).shares_namespace(pid)
    }

    fn host_id(&self) -> String {
        self.kernel.host_id()
    }

    fn open(&self, pid: u32) -> std::io::Result<ttd::liveness::Exit> {
        self.look(pid).open(pid)
    }
}
