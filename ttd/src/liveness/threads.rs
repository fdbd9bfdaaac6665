//! A few threads for work that may never end. They are started when they are needed and sleep when they are not.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs from a queue. They end when this is dropped, each after its job.
pub(super) struct Threads {
    name: &'static str,
    max_threads: usize,
    max_waiting: usize,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Threads {
    /// At most so many threads, and at most so many jobs that wait for one.
    pub(super) fn new(name: &'static str, max_threads: usize, max_waiting: usize) -> Self {
        Self { name, max_threads, max_waiting, shared: Arc::default() }
    }

    /// Runs a job on one of the threads. Returns false if too many wait already.
    pub(super) fn start(&self, job: impl FnOnce() + Send + 'static) -> bool {
        let mut queue = self.shared.lock();
        if queue.jobs.len() >= self.max_waiting {
            return false;
        }
        queue.jobs.push_back(Box::new(job));
        if queue.idle < queue.jobs.len() && queue.threads < self.max_threads {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new().name(self.name.into()).spawn(move || shared.work());
            queue.threads += usize::from(started.is_ok());
        }
        self.shared.changed.notify_one();
        queue.threads > 0
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next_job() {
            // What waits for the job notices that it has ended. The thread is needed for the next one.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    }

    /// The next job; none when there will be no more.
    fn next_job(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
