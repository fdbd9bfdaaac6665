//! Which processes of members are alive. The kernel reports the end of a process; nothing polls for it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::mpsc;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;

use super::{Exit, Looks, Processes};
use crate::engine::MemberProcesses;

/// The most processes that are remembered. One that was forgotten is looked up again.
const MAX_REMEMBERED: usize = 4096;

/// The processes watched so far, and what became of them.
#[derive(Clone)]
pub struct Watch(Arc<Inner>);

struct Inner {
    looks: Looks,
    host_id: String,
    earlier_host_ids: Vec<String>,
    known: Mutex<HashMap<Anchor, Liveness>>,
    exited: mpsc::UnboundedSender<Anchor>,
    runtime: tokio::runtime::Handle,
    /// Each watched process takes a descriptor.
    max_watched: usize,
    watched: AtomicUsize,
    /// Whether it was logged that a process cannot be watched.
    warned: AtomicBool,
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
    pub fn new(looks: Looks, max_watched: usize) -> (Self, mpsc::UnboundedReceiver<Anchor>) {
        let (exited, reports) = mpsc::unbounded_channel();
        let inner = Inner {
            host_id: looks.host_id(),
            earlier_host_ids: looks.earlier_host_ids(),
            looks,
            known: Mutex::default(),
            exited,
            runtime: tokio::runtime::Handle::current(),
            max_watched,
            watched: AtomicUsize::new(0),
            warned: AtomicBool::new(false),
        };
        (Self(Arc::new(inner)), reports)
    }

    /// Whether a process is alive. One that is seen alive for the first time is watched from then on. What is not known for
    /// sure is not remembered.
    fn current(&self, anchor: &Anchor) -> Liveness {
        if let Some(known) = self.lock().get(anchor) {
            return *known;
        }
        let (liveness, exit) = self.look(anchor);
        match exit {
            Some(exit) => self.wait_for_exit(anchor, exit),
            None if liveness == Liveness::Gone => self.remember(anchor, liveness),
            None => {}
        }
        liveness
    }

    fn remember(&self, anchor: &Anchor, liveness: Liveness) {
        let mut known = self.lock();
        if known.len() >= MAX_REMEMBERED {
            known.retain(|_, liveness| *liveness == Liveness::Alive);
        }
        known.insert(anchor.clone(), liveness);
    }

    /// Looks at a process, and opens it for watching if it is alive.
    fn look(&self, anchor: &Anchor) -> (Liveness, Option<Exit>) {
        let own = anchor.host_id == self.0.host_id;
        if !own && !self.0.earlier_host_ids.contains(&anchor.host_id) {
            return (Liveness::Unknown, None);
        }
        let (pid, runtime) = (anchor.pid, self.0.runtime.clone());
        let look = move |processes: &dyn Processes| {
            let _inside = runtime.enter();
            // Opened first: if the start time is right after that, what was opened is this process and no later one.
            let exit = processes.open(pid);
            processes.started_at(pid).map(|started_at| (started_at, exit))
        };
        match self.0.looks.run_blocking(look) {
            Ok(Ok((started_at, exit))) if started_at == anchor.process_started_at => {
                (Liveness::Alive, exit.map_err(|e| self.warn(pid, &e)).ok())
            }
            // Only a start time we wrote ourselves can prove that the pid belongs to another process now.
            Ok(Ok(_)) if own => (Liveness::Gone, None),
            Ok(Ok(_)) => (Liveness::Unknown, None),
            Ok(Err(e)) if e.kind() == io::ErrorKind::NotFound => (Liveness::Gone, None),
            Ok(Err(e)) => {
                self.warn(pid, &e);
                (Liveness::Unknown, None)
            }
            Err(e) => {
                self.warn(pid, &io::Error::other(e));
                (Liveness::Unknown, None)
            }
        }
    }

    /// Reports the end of a process. If too many are watched already, each look at it is a new one.
    fn wait_for_exit(&self, anchor: &Anchor, exit: Exit) {
        let taken = self.0.watched.fetch_update(Ordering::AcqRel, Ordering::Acquire, |watched| {
            (watched < self.0.max_watched).then_some(watched + 1)
        });
        if taken.is_err() {
            return self.warn(anchor.pid, &io::Error::other("too many are watched already"));
        }
        self.remember(anchor, Liveness::Alive);
        let (this, anchor) = (self.clone(), anchor.clone());
        self.0.runtime.spawn(async move {
            let ended = exit.await;
            this.0.watched.fetch_sub(1, Ordering::AcqRel);
            match ended {
                Ok(()) => {
                    this.remember(&anchor, Liveness::Gone);
                    let _ = this.0.exited.send(anchor);
                }
                Err(e) => {
                    this.warn(anchor.pid, &e);
                    this.lock().remove(&anchor);
                }
            }
        });
    }

    /// Says once that a process cannot be watched, and not again for each look.
    fn warn(&self, pid: u32, e: &io::Error) {
        if !self.0.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(pid, "cannot watch a process; only time-outs will tell when it and others like it end: {e}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Anchor, Liveness>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI32;

    use super::super::{Kernel, LOOK_TIMEOUT, Process};
    use super::*;

    /// A machine with one process, which can be looked at only as long as no error is set.
    #[derive(Default)]
    struct Machine {
        errno: AtomicI32,
        opens: AtomicUsize,
    }

    impl Machine {
        fn fail(&self) -> io::Result<()> {
            match self.errno.load(Ordering::Relaxed) {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    impl Processes for Machine {
        fn get(&self, pid: u32) -> io::Result<Process> {
            self.fail()?;
            let (started_at, name) = ("then".to_owned(), "p".to_owned());
            Ok(Process { pid, parent: 1, session: 1, started_at, name, arguments_at: None, has_terminal: false })
        }

        fn arguments(&self, _: &Process) -> Vec<String> {
            Vec::new()
        }

        fn host_id(&self) -> String {
            "here".into()
        }

        fn open(&self, _pid: u32) -> io::Result<Exit> {
            self.fail()?;
            self.opens.fetch_add(1, Ordering::Relaxed);
            Ok(Box::pin(std::future::pending()))
        }
    }

    fn anchor(host_id: &str, pid: u32, started_at: &str) -> Anchor {
        Anchor { host_id: host_id.into(), pid, process_started_at: started_at.into() }
    }

    #[tokio::test]
    async fn only_proof_makes_a_process_gone() {
        let machine = Arc::new(Machine::default());
        let (watch, _reports) = Watch::new(Looks::new(machine.clone(), LOOK_TIMEOUT), 10);
        for errno in [libc::EMFILE, libc::ENFILE, libc::EPERM, libc::EACCES, libc::EIO, libc::ENOMEM, libc::EINVAL] {
            machine.errno.store(errno, Ordering::Relaxed);
            assert_eq!(watch.liveness(&anchor("here", 7, "then")), Liveness::Unknown, "{errno}");
        }
        for elsewhere in ["there", ""] {
            assert_eq!(watch.liveness(&anchor(elsewhere, 7, "before")), Liveness::Unknown, "{elsewhere}");
        }
        // What could not be seen is looked at again.
        machine.errno.store(0, Ordering::Relaxed);
        assert_eq!(watch.liveness(&anchor("here", 7, "then")), Liveness::Alive);
        assert_eq!(watch.liveness(&anchor("here", 7, "before")), Liveness::Gone, "the pid is another process's now");
        machine.errno.store(libc::ENOENT, Ordering::Relaxed);
        assert_eq!(watch.liveness(&anchor("here", 8, "then")), Liveness::Gone);
        assert_eq!(watch.liveness(&anchor("here", 7, "then")), Liveness::Alive, "it is watched");
    }

    #[tokio::test]
    async fn no_more_processes_are_watched_than_there_are_descriptors_for() {
        let machine = Arc::new(Machine::default());
        let (watch, _reports) = Watch::new(Looks::new(machine.clone(), LOOK_TIMEOUT), 2);
        for pid in [1, 2, 3, 3, 1, 2] {
            assert_eq!(watch.liveness(&anchor("here", pid, "then")), Liveness::Alive);
        }
        assert_eq!(machine.opens.load(Ordering::Relaxed), 4, "the third is looked at each time");
        assert_eq!(watch.lock().len(), 2);
    }

    /// A process whose main thread ends at once, and which ends when its input does.
    #[cfg(target_os = "linux")]
    const WITHOUT_MAIN_THREAD: &str = r#"
        #include <pthread.h>
        #include <unistd.h>
        static void *read_input(void *unused) {
            char byte;
            write(1, "up", 2);
            while (read(0, &byte, 1) > 0) {}
            return unused;
        }
        int main(void) {
            pthread_t thread;
            pthread_create(&thread, 0, read_input, 0);
            pthread_exit(0);
        }
    "#;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_process_whose_main_thread_ended_lives_until_its_last_thread_ends() {
        use std::io::{Read, Write};
        use std::process::{Command, Stdio};
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("threads");
        let mut compile = Command::new("cc");
        compile.args(["-x", "c", "-", "-pthread", "-o"]).arg(&program).stdin(Stdio::piped());
        let mut compiler = compile.spawn().expect("a C compiler, which the build needs as well");
        compiler.stdin.take().unwrap().write_all(WITHOUT_MAIN_THREAD.as_bytes()).unwrap();
        assert!(compiler.wait().unwrap().success());
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 2]).unwrap();
        let main_thread = format!("/proc/{0}/task/{0}/stat", child.id());
        while !std::fs::read_to_string(&main_thread).unwrap().contains(") Z ") {
            tokio::task::yield_now().await;
        }
        let kernel = Kernel::new();
        let anchor = kernel.anchor(&kernel.get(child.id()).unwrap());
        let (watch, mut reports) = Watch::new(Looks::new(Arc::new(kernel), LOOK_TIMEOUT), 10);
        assert_eq!(watch.liveness(&anchor), Liveness::Alive);
        drop(child.stdin.take());
        assert_eq!(reports.recv().await.as_ref(), Some(&anchor));
        assert_eq!(watch.liveness(&anchor), Liveness::Gone);
        // Nobody has collected it yet.
        let (fresh, _reports) = Watch::new(Looks::new(Arc::new(Kernel::new()), LOOK_TIMEOUT), 10);
        assert_eq!(fresh.liveness(&anchor), Liveness::Gone);
        child.wait().unwrap();
    }
}
