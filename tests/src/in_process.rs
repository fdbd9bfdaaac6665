//! A whole daemon inside the test, with options no program has; and a gate that holds its calls under way.

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
        // Calls held at a gate keep a worker each; the others must go on.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
        let runtime = runtime.unwrap_or_else(|e| panic!("no runtime: {e}"));
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

/// The machine's processes behind a gate: while it is shut, every call that asks who is calling stays under way.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    kernel: Kernel,
}

#[derive(Debug, Default)]
struct State {
    shut: bool,
    waiting: usize,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn shut(&self) {
        self.set(true);
    }

    pub fn open(&self) {
        self.set(false);
    }

    fn set(&self, shut: bool) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).shut = shut;
        self.changed.notify_all();
    }

    /// Waits until a call has come to the gate.
    #[track_caller]
    pub fn wait_for_a_call(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(state, LIMIT, |state| state.waiting == 0);
        assert!(!waited.unwrap_or_else(PoisonError::into_inner).1.timed_out(), "no call came");
    }
}

impl Processes for Gate {
    fn get(&self, pid: u32) -> std::io::Result<Process> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting += 1;
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(state, LIMIT, |state| state.shut);
        waited.unwrap_or_else(PoisonError::into_inner).0.waiting -= 1;
        self.kernel.get(pid)
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        self.kernel.arguments(process)
    }

    fn host_id(&self) -> String {
        self.kernel.host_id()
    }

    fn open(&self, pid: u32) -> std::io::Result<ttd::liveness::Exit> {
        self.kernel.open(pid)
    }
}
