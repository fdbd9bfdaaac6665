//! Looks at processes that may hang: the files of a process in trouble can keep their reader waiting for as long as the trouble
//! lasts. Looks have threads of their own and are waited for only so long. A process is looked at by one thread at a time, so
//! that one in trouble costs one thread; those who ask about it as well wait elsewhere, and are soon told that it cannot be seen.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, oneshot};
use tt_proto::hello::Anchor;

use super::threads::Threads;
use super::{ControllingTerminal, Exit, Process, Processes};

/// How long a look is waited for, in parts: see [`Patience`].
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
const PART: Duration = Duration::from_millis(100);
const PARTS: u32 = 10;

/// How many parts more a look is waited for while nothing shows that a process hangs: the machine may be so busy that the look
/// has had no turn. All in all it is shorter than the deadline of a client.
const MORE_PARTS: u32 = 70;

/// How long a thread waits for another one that looks at the same process. A look takes microseconds.
const TURN_TIMEOUT: Duration = Duration::from_millis(10);

/// The most looks at once. Each may have a file open, for which descriptors are reserved.
const MAX_LOOKS: usize = 16;

/// The most looks that wait for a thread.
const MAX_WAITING: usize = 1024;

/// A look that did not end in time. It proves nothing about the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a look at a process does not end")]
pub struct LookTimeout {
    /// The process that hangs; none if so many do that nothing more is looked at.
    pub pid: Option<u32>,
}

/// A process table whose looks are bounded. Nobody who has it can look in another way. Cheap to clone.
#[derive(Clone)]
pub struct Looks(Arc<Inner>);

struct Inner {
    processes: Arc<dyn Processes>,
    threads: Threads,
    /// The processes that are looked at, and since when.
    in_progress: Mutex<HashMap<u32, Instant>>,
    /// Told when a look has ended.
    ended: Condvar,
    ended_async: Notify,
}

impl std::fmt::Debug for Looks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looks").field("in_progress", &self.0.lock()).finish()
    }
}

impl Looks {
    pub fn new(processes: Arc<dyn Processes>) -> Self {
        Self(Arc::new(Inner {
            processes,
            threads: Threads::new("look", MAX_LOOKS, MAX_WAITING),
            in_progress: Mutex::default(),
            ended: Condvar::new(),
            ended_async: Notify::new(),
        }))
    }

    /// Names this machine and this pid namespace.
    pub fn host_id(&self) -> String {
        self.0.processes.host_id()
    }

    pub fn machine_id(&self) -> String {
        self.0.processes.machine_id()
    }

    pub fn earlier_host_ids(&self) -> Vec<String> {
        self.0.processes.earlier_host_ids()
    }

    /// Names a process that was seen.
    pub fn anchor(&self, process: &Process) -> Anchor {
        self.0.processes.anchor(process)
    }

    /// Whether it is proven that there is no such process.
    pub async fn is_gone(&self, pid: u32) -> bool {
        let found = self.run(move |processes| processes.started_at(pid)).await;
        found.is_ok_and(|found| found.is_err_and(|e| e.kind() == io::ErrorKind::NotFound))
    }

    /// Whether it is proven that a process has ended, also if another one has its pid now.
    pub async fn has_ended(&self, process: &Anchor) -> bool {
        let pid = process.pid;
        match self.run(move |processes| processes.started_at(pid)).await {
            Ok(Ok(started_at)) => started_at != process.process_started_at,
            Ok(Err(e)) => e.kind() == io::ErrorKind::NotFound,
            Err(LookTimeout { .. }) => false,
        }
    }

    /// Looks at processes. If one of them cannot be seen in time there is no result, whatever was seen of the others. The look
    /// begins again if another one was at the same process.
    pub async fn run<T: Send + 'static>(
        &self,
        look: impl Fn(&dyn Processes) -> T + Send + Sync + 'static,
    ) -> Result<T, LookTimeout> {
        let (look, mut patience) = (Arc::new(look), Patience::new());
        loop {
            let (sender, mut found) = oneshot::channel();
            let looking_at = self.start(look.clone(), |found| drop(sender.send(found)))?;
            let found = loop {
                let hangs = || self.0.hangs(pid(&looking_at));
                let left = patience.left(hangs).ok_or_else(|| timed_out(&looking_at))?;
                if let Ok(found) = tokio::time::timeout(left, &mut found).await {
                    break found;
                }
            };
            match found {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(Busy(pid))) => self.0.wait_until_free(pid, &mut patience).await?,
                Err(_) => return Err(timed_out(&looking_at)),
            }
        }
    }

    /// Looks at processes, for a caller that may block.
    pub fn run_blocking<T: Send + 'static>(
        &self,
        look: impl Fn(&dyn Processes) -> T + Send + Sync + 'static,
    ) -> Result<T, LookTimeout> {
        let (look, mut patience) = (Arc::new(look), Patience::new());
        loop {
            let (sender, found) = mpsc::channel();
            let looking_at = self.start(look.clone(), move |found| drop(sender.send(found)))?;
            let found = loop {
                // Everybody waits for a caller that blocks.
                let left = patience.left(|| true).ok_or_else(|| timed_out(&looking_at))?;
                match found.recv_timeout(left) {
                    Err(RecvTimeoutError::Timeout) => {}
                    found => break found,
                }
            };
            match found {
                Ok(Ok(found)) => return Ok(found),
                Ok(Err(Busy(pid))) => self.0.block_until_free(pid, &mut patience)?,
                Err(_) => return Err(timed_out(&looking_at)),
            }
        }
    }

    /// Starts a look. Returns where it notes the process that it looks at.
    fn start<T>(
        &self,
        look: Arc<impl Fn(&dyn Processes) -> T + Send + Sync + 'static>,
        done: impl FnOnce(Result<T, Busy>) + Send + 'static,
    ) -> Result<Arc<AtomicU32>, LookTimeout> {
        let looking_at = Arc::new(AtomicU32::new(0));
        let table = BoundedTable { inner: self.0.clone(), looking_at: looking_at.clone(), busy: AtomicU32::new(0) };
        let started = self.0.threads.start(move || {
            let found = look(&table);
            done(pid(&table.busy).map_or(Ok(found), |pid| Err(Busy(pid))));
        });
        if started { Ok(looking_at) } else { Err(LookTimeout { pid: None }) }
    }
}

/// A process that another look is at.
struct Busy(u32);

/// How long a look is still waited for. It is counted in parts, so that time in which this process stood still (it was stopped,
/// or the machine was busy) counts as one of them: the look stood still as well.
struct Patience {
    parts: u32,
    more_parts: u32,
    part_ends: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { parts: PARTS, more_parts: MORE_PARTS, part_ends: Instant::now() + PART }
    }

    /// How long to wait before asking again; none if that was long enough, and a process hangs.
    fn left(&mut self, hangs: impl FnOnce() -> bool) -> Option<Duration> {
        let left = self.part_ends.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        self.parts = self.parts.saturating_sub(1);
        if self.parts == 0 && self.more_parts > 0 && !hangs() {
            (self.parts, self.more_parts) = (1, self.more_parts - 1);
        }
        self.part_ends = Instant::now() + PART;
        (self.parts > 0).then_some(PART)
    }

    /// How long to wait for the end of a look that began at this time. One that has taken long hangs, unless it shows within one
    /// part more that it only stood still.
    fn left_for(&mut self, since: Instant) -> Option<Duration> {
        let hangs = since.elapsed() >= LOOK_TIMEOUT;
        if hangs {
            self.parts = self.parts.min(2);
        }
        self.left(|| hangs)
    }
}

/// 0 is no process.
fn pid(stored: &AtomicU32) -> Option<u32> {
    Some(stored.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
}

fn timed_out(looking_at: &AtomicU32) -> LookTimeout {
    let pid = pid(looking_at);
    tracing::warn!(pid, "a process cannot be looked at: its files in /proc hang");
    LookTimeout { pid }
}

impl Inner {
    /// Waits until no look is at a process, and is the next one. None if the one before takes longer than this.
    fn wait_for_turn(&self, pid: u32, longest: Duration) -> Option<Looking<'_>> {
        let mut in_progress = self.lock();
        while let Some(since) = in_progress.get(&pid) {
            let left = longest.checked_sub(since.elapsed())?;
            in_progress = self.ended.wait_timeout(in_progress, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        in_progress.insert(pid, Instant::now());
        Some(Looking { inner: self, pid })
    }

    /// Whether it is a process that keeps a look from ending: the one that it is at, or, before it has begun, so many that no
    /// thread is left.
    fn hangs(&self, looking_at: Option<u32>) -> bool {
        let in_progress = self.lock();
        let hangs = |since: &&Instant| since.elapsed() >= LOOK_TIMEOUT;
        match looking_at {
            Some(pid) => in_progress.get(&pid).as_ref().is_some_and(hangs),
            None => in_progress.values().filter(hangs).count() >= MAX_LOOKS,
        }
    }

    /// Waits until no look is at a process, without a thread.
    async fn wait_until_free(&self, pid: u32, patience: &mut Patience) -> Result<(), LookTimeout> {
        loop {
            let ended = self.ended_async.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            let Some(since) = self.lock().get(&pid).copied() else { return Ok(()) };
            let left = patience.left_for(since).ok_or(LookTimeout { pid: Some(pid) })?;
            let _ = tokio::time::timeout(left, ended).await;
        }
    }

    fn block_until_free(&self, pid: u32, patience: &mut Patience) -> Result<(), LookTimeout> {
        let mut in_progress = self.lock();
        while let Some(since) = in_progress.get(&pid) {
            let left = patience.left_for(*since).ok_or(LookTimeout { pid: Some(pid) })?;
            in_progress = self.ended.wait_timeout(in_progress, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Instant>> {
        self.in_progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A look at one process, for as long as this lives.
struct Looking<'a> {
    inner: &'a Inner,
    pid: u32,
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.inner.lock().remove(&self.pid);
        self.inner.ended.notify_all();
        self.inner.ended_async.notify_waiters();
    }
}

/// The process table as one look sees it.
struct BoundedTable {
    inner: Arc<Inner>,
    looking_at: Arc<AtomicU32>,
    /// A process that could not be seen because another look is at it.
    busy: AtomicU32,
}

impl BoundedTable {
    fn look<T>(&self, pid: u32, look: impl FnOnce(&dyn Processes) -> T) -> io::Result<T> {
        self.looking_at.store(pid, Ordering::Relaxed);
        let Some(_looking) = self.inner.wait_for_turn(pid, TURN_TIMEOUT) else {
            self.busy.store(pid, Ordering::Relaxed);
            return Err(io::ErrorKind::TimedOut.into());
        };
        Ok(look(self.inner.processes.as_ref()))
    }
}

impl Processes for BoundedTable {
    fn get(&self, pid: u32) -> io::Result<Process> {
        self.look(pid, |processes| processes.get(pid))?
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        self.look(process.pid, |processes| processes.arguments(process)).unwrap_or_default()
    }

    fn cwd(&self, pid: u32) -> Option<PathBuf> {
        self.look(pid, |processes| processes.cwd(pid)).ok().flatten()
    }

    fn variable(&self, pid: u32, name: &str) -> Option<OsString> {
        self.look(pid, |processes| processes.variable(pid, name)).ok().flatten()
    }

    fn has_terminal(&self, pid: u32) -> Option<bool> {
        self.look(pid, |processes| processes.has_terminal(pid)).ok().flatten()
    }

    fn terminal(&self, pid: u32) -> Option<ControllingTerminal> {
        self.look(pid, |processes| processes.terminal(pid)).ok().flatten()
    }

    fn pids(&self) -> Option<Vec<u32>> {
        self.inner.processes.pids()
    }

    fn started_at(&self, pid: u32) -> io::Result<String> {
        self.look(pid, |processes| processes.started_at(pid))?
    }

    fn shares_namespace(&self, pid: u32) -> bool {
        self.look(pid, |processes| processes.shares_namespace(pid)).unwrap_or(false)
    }

    fn host_id(&self) -> String {
        self.inner.processes.host_id()
    }

    fn machine_id(&self) -> String {
        self.inner.processes.machine_id()
    }

    fn earlier_host_ids(&self) -> Vec<String> {
        self.inner.processes.earlier_host_ids()
    }

    fn open(&self, pid: u32) -> io::Result<Exit> {
        self.look(pid, |processes| processes.open(pid))?
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    use super::*;

    /// A machine on which some processes hang until they are mended.
    #[derive(Default)]
    struct Machine {
        hung: Mutex<BTreeSet<u32>>,
        mended: Condvar,
        looks: Mutex<HashMap<u32, usize>>,
    }

    impl Machine {
        fn with(hung: impl IntoIterator<Item = u32>) -> Arc<Self> {
            Arc::new(Self { hung: Mutex::new(hung.into_iter().collect()), ..Self::default() })
        }

        fn mend(&self) {
            self.hung.lock().unwrap().clear();
            self.mended.notify_all();
        }
    }

    impl Processes for Machine {
        fn get(&self, pid: u32) -> io::Result<Process> {
            *self.looks.lock().unwrap().entry(pid).or_default() += 1;
            let hung = self.hung.lock().unwrap();
            drop(self.mended.wait_while(hung, |hung| hung.contains(&pid)).unwrap());
            let (started_at, name) = ("then".to_owned(), "p".to_owned());
            Ok(Process { pid, parent: 0, session: 1, started_at, name, arguments_at: None, has_terminal: false })
        }

        fn arguments(&self, _: &Process) -> Vec<String> {
            Vec::new()
        }

        fn host_id(&self) -> String {
            "here".into()
        }

        fn open(&self, _pid: u32) -> io::Result<Exit> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    async fn look(looks: &Looks, pid: u32) -> Result<u32, LookTimeout> {
        looks.run(move |processes| processes.get(pid).map_or(0, |process| process.pid)).await
    }

    /// Looks that begin at the same time.
    async fn look_at_all(looks: &Looks, pids: impl Iterator<Item = u32>) -> Vec<Result<u32, LookTimeout>> {
        let looks: Vec<_> = pids
            .map(|pid| {
                let looks = looks.clone();
                tokio::spawn(async move { look(&looks, pid).await })
            })
            .collect();
        let mut found = Vec::new();
        for look in looks {
            found.push(look.await.unwrap());
        }
        found
    }

    #[tokio::test]
    async fn a_process_that_hangs_costs_one_thread_and_keeps_no_other_from_being_seen() {
        let machine = Machine::with([7]);
        let looks = Looks::new(machine.clone());
        let found = look_at_all(&looks, (0..100).map(|_| 7)).await;
        assert!(found.iter().all(|found| *found == Err(LookTimeout { pid: Some(7) })), "{found:?}");
        assert_eq!(machine.looks.lock().unwrap()[&7], 1, "the others waited for this one");
        assert_eq!(look(&looks, 8).await, Ok(8));
        assert!(!looks.is_gone(7).await);
        // A look at several has no result if one of them hangs.
        let both = looks.run_blocking(|processes| (processes.get(8).is_ok(), processes.get(7).is_ok()));
        assert_eq!(both, Err(LookTimeout { pid: Some(7) }));
        machine.mend();
        let give_up = Instant::now() + Duration::from_secs(60);
        while look(&looks, 7).await != Ok(7) {
            assert!(Instant::now() < give_up, "it is never seen again");
        }
    }

    /// The daemon and its looks stand still together (SIGSTOP), and go on together.
    #[tokio::test]
    async fn time_in_which_the_daemon_stood_still_is_not_taken_for_a_process_that_hangs() {
        let machine = Machine::with([7]);
        let looks = Looks::new(machine.clone());
        let first = tokio::spawn({
            let looks = looks.clone();
            async move { look(&looks, 7).await }
        });
        while machine.looks.lock().unwrap().get(&7).is_none() {
            tokio::task::yield_now().await;
        }
        let second = tokio::spawn({
            let looks = looks.clone();
            async move { look(&looks, 7).await }
        });
        tokio::task::yield_now().await;
        let (_nobody, nothing) = mpsc::channel::<()>();
        nothing.recv_timeout(LOOK_TIMEOUT + PART).unwrap_err();
        // Due after everything that became due in the meantime.
        tokio::time::sleep(Duration::from_millis(1)).await;
        machine.mend();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(7), Ok(7)));
    }

    #[tokio::test]
    async fn a_look_that_has_had_no_turn_is_waited_for_while_nothing_hangs() {
        let looks = Looks::new(Machine::with([]));
        // As on a machine that is too busy to run the threads: each is at work, and at no process.
        let turns = Arc::new(Barrier::new(MAX_LOOKS + 1));
        for _ in 0..MAX_LOOKS {
            let turns = turns.clone();
            assert!(looks.0.threads.start(move || {
                turns.wait();
                turns.wait();
            }));
        }
        turns.wait();
        let waiting = tokio::spawn({
            let looks = looks.clone();
            async move { look(&looks, 7).await }
        });
        tokio::time::sleep(LOOK_TIMEOUT + 2 * PART).await;
        assert!(!waiting.is_finished(), "it was refused");
        turns.wait();
        assert_eq!(waiting.await.unwrap(), Ok(7));
    }

    #[tokio::test]
    async fn many_processes_that_hang_cost_a_limited_number_of_threads() {
        let many = 1000..1000 + 2 * MAX_LOOKS as u32;
        let machine = Machine::with(many.clone());
        let looks = Looks::new(machine.clone());
        let found = look_at_all(&looks, many).await;
        assert!(found.iter().all(Result::is_err), "{found:?}");
        assert_eq!(machine.looks.lock().unwrap().len(), MAX_LOOKS);
        assert_eq!(look(&looks, 7).await, Err(LookTimeout { pid: None }), "nothing is looked at any more");
        machine.mend();
        assert_eq!(look(&looks, 7).await, Ok(7));
    }
}
