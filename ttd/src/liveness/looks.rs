//! Looks at processes that may hang: the files of a process in trouble can keep their reader waiting for as long as the trouble
//! lasts. Each look has a thread of its own and is waited for only so long, so that such a process costs one thread and delays
//! nobody for long.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use super::{Process, Processes};

/// How long a look is waited for.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// The most processes whose looks hang. Beyond that nothing is looked at until one of them ends.
const MAX_STUCK: usize = 16;

/// A process table whose slow looks are bounded. Cheap to clone.
#[derive(Clone)]
pub struct Looks {
    processes: Arc<dyn Processes>,
    /// The processes at which a look hangs. They are not looked at again before it ends.
    stuck: Arc<Mutex<HashSet<u32>>>,
}

impl std::fmt::Debug for Looks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looks").field("stuck", &self.lock()).finish()
    }
}

impl Looks {
    pub fn new(processes: Arc<dyn Processes>) -> Self {
        Self { processes, stuck: Arc::default() }
    }

    /// The table itself, for what does not hang.
    pub fn processes(&self) -> &dyn Processes {
        self.processes.as_ref()
    }

    /// The arguments of a process, from its memory. `TimedOut` if they cannot be had now.
    pub fn arguments(&self, process: &Process) -> io::Result<Vec<String>> {
        let process = process.clone();
        self.run(process.pid, move |processes| Ok(processes.arguments(&process)))
    }

    /// Whether it is proven that there is no such process.
    pub fn is_gone(&self, pid: u32) -> bool {
        let found = self.run(pid, move |processes| processes.started_at(pid));
        found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }

    /// Looks at a process. `TimedOut` if that hangs, or if an earlier look at it still does.
    pub fn run<T: Send + 'static>(
        &self,
        pid: u32,
        look: impl FnOnce(&dyn Processes) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let stuck = self.lock();
        if stuck.contains(&pid) || stuck.len() >= MAX_STUCK {
            return Err(io::ErrorKind::TimedOut.into());
        }
        drop(stuck);
        let (sender, found) = mpsc::channel();
        let this = self.clone();
        std::thread::Builder::new().name("look".into()).spawn(move || {
            let result = look(this.processes.as_ref());
            // Under the lock, so that a waiter either gets the result or is the first to note that there is none.
            let mut stuck = this.lock();
            let _ = sender.send(result);
            stuck.remove(&pid);
        })?;
        if let Ok(result) = found.recv_timeout(LOOK_TIMEOUT) {
            return result;
        }
        let mut stuck = self.lock();
        found.try_recv().unwrap_or_else(|_| {
            stuck.insert(pid);
            tracing::warn!(pid, "a process cannot be looked at: its files in /proc hang");
            Err(io::ErrorKind::TimedOut.into())
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<u32>> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::Kernel;
    use super::*;

    #[test]
    fn a_process_that_hangs_is_waited_for_once_and_keeps_no_other_from_being_seen() {
        let looks = Looks::new(Arc::new(Kernel::new()));
        let (free, gate) = mpsc::channel::<()>();
        let hangs = looks.run(7, move |_| {
            let _ = gate.recv();
            Ok(())
        });
        assert_eq!(hangs.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // No thread is started for it again, and others are seen.
        assert_eq!(looks.run(7, |_| Ok(())).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(!looks.is_gone(std::process::id()));
        // Once its look has ended it is looked at again.
        drop(free);
        let give_up = Instant::now() + Duration::from_secs(60);
        while looks.run(7, |_| Ok(())).is_err() {
            assert!(Instant::now() < give_up, "it stays stuck");
        }
    }

    #[test]
    fn processes_that_hang_cost_a_limited_number_of_threads() {
        let looks = Looks::new(Arc::new(Kernel::new()));
        looks.lock().extend(1000..1000 + MAX_STUCK as u32);
        let refused = looks.run(7, |_| -> io::Result<()> { panic!("no more threads") });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
