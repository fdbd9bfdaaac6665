//! Which processes of members are alive. The kernel reports the end of a process; nothing polls for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;

use super::Processes;
use crate::engine::MemberProcesses;

/// The most processes that are remembered. One that was forgotten is looked up again.
const MAX_REMEMBERED: usize = 4096;

/// The processes watched so far, and what became of them.
#[derive(Clone)]
pub struct Watch(Arc<Inner>);

struct Inner {
    processes: Arc<dyn Processes>,
    host_names: [String; 2],
    known: Mutex<HashMap<Anchor, Liveness>>,
    exited: mpsc::UnboundedSender<Anchor>,
    runtime: tokio::runtime::Handle,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("known", &self.lock().len()).finish()
    }
}

impl MemberProcesses for Watch {
    fn liveness(&self, anchor: &Anchor) -> Liveness {
        self.current(anchor)
    }

    fn watch(&self, anchor: &Anchor) {
        if self.current(anchor) == Liveness::Gone {
            let _ = self.0.exited.send(anchor.clone());
        }
    }
}

impl Watch {
    /// A watch that reports each process that ends on the channel. Must be made inside the runtime.
    pub fn new(processes: Arc<dyn Processes>) -> (Self, mpsc::UnboundedReceiver<Anchor>) {
        let (exited, reports) = mpsc::unbounded_channel();
        // 0.1.x wrote the plain name of the machine.
        let name = nix::unistd::gethostname().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let host_names = [processes.host_id(), name];
        let runtime = tokio::runtime::Handle::current();
        let inner = Inner { processes, host_names, known: Mutex::default(), exited, runtime };
        (Self(Arc::new(inner)), reports)
    }

    /// Whether a process is alive. One that is seen alive for the first time is watched from then on.
    fn current(&self, anchor: &Anchor) -> Liveness {
        if let Some(known) = self.lock().get(anchor) {
            return *known;
        }
        let liveness = self.look(anchor);
        let mut known = self.lock();
        if known.len() >= MAX_REMEMBERED {
            known.retain(|_, liveness| *liveness == Liveness::Alive);
        }
        if liveness != Liveness::Unknown {
            known.insert(anchor.clone(), liveness);
        }
        drop(known);
        if liveness == Liveness::Alive {
            self.wait_for_exit(anchor.clone());
        }
        liveness
    }

    fn look(&self, anchor: &Anchor) -> Liveness {
        let here = anchor.host_id.is_empty() || self.0.host_names.contains(&anchor.host_id);
        if !here {
            return Liveness::Unknown;
        }
        match self.0.processes.started_at(anchor.pid) {
            None => Liveness::Gone,
            Some(started_at) if started_at == anchor.process_started_at => Liveness::Alive,
            // Only a start time we wrote ourselves can prove that the pid belongs to another process now.
            Some(_) if anchor.host_id == self.0.host_names[0] => Liveness::Gone,
            Some(_) => Liveness::Unknown,
        }
    }

    fn wait_for_exit(&self, anchor: Anchor) {
        let this = self.clone();
        self.0.runtime.spawn(async move {
            match this.0.processes.open(anchor.pid) {
                Ok(exit) => {
                    // Between the look and the opening the pid may have gone to another process.
                    let same = this.0.processes.started_at(anchor.pid).as_ref() == Some(&anchor.process_started_at);
                    if same && exit.await.is_err() {
                        tracing::warn!(
                            pid = anchor.pid,
                            "cannot watch a process; only time-outs will tell when it ends"
                        );
                        this.lock().insert(anchor, Liveness::Unknown);
                        return;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => {
                    tracing::warn!(pid = anchor.pid, "cannot watch a process: {e}");
                    this.lock().insert(anchor, Liveness::Unknown);
                    return;
                }
            }
            this.lock().insert(anchor.clone(), Liveness::Gone);
            let _ = this.0.exited.send(anchor);
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Anchor, Liveness>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
