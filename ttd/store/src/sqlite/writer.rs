//! The one thread that writes.
//!
//! Units of work queue; the thread takes all that wait, runs each in one transaction, commits once, and only then answers.
//! So load makes a commit cheaper for each, not slower. The transaction begins with the first unit that has something to
//! write: a batch of refusals and looks costs none.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;
use tt_proto::event::Event;
use tt_proto::policy::Policy;
use tt_proto::{Error, ErrorCode, RoomId, WallTime};
use tt_rules::{Decision, Needs, Room, Rows};

use super::files::Files;
use super::room_cache::RoomCache;
use super::room_paths::RoomPaths;
use super::{
    checkpoint, contents, deliveries, events, idempotency, is_locked, notes, query_failed, reminders, rooms, search,
    sessions, space,
};
use crate::{Clock, Loaded, Location, Maintenance, UnitOfWork, room_not_found};

/// The most units in one transaction, so that the first of a burst does not wait for the last.
const MAX_BATCH: usize = 512;

/// How often a unit is run again because another program wrote to the database at the same moment.
const MAX_RERUNS: usize = 5;

/// The queue of the writer thread.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Mutex<Option<Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

enum Job {
    Unit(Box<dyn UnitOfWork>),
    Maintenance(Maintenance, oneshot::Sender<Result<(), Error>>),
}

impl Writer {
    pub(super) fn start(
        connection: Connection,
        clock: Arc<dyn Clock>,
        policy: Policy,
        paths: Arc<RoomPaths>,
        files: Arc<Files>,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = channel();
        checkpoint::take_over(&connection);
        let thread = WriterThread {
            connection,
            clock,
            policy,
            paths,
            files,
            cache: RoomCache::default(),
            in_transaction: false,
            data_version: None,
        };
        let serve = move || {
            // A process without its writer would look well and never write again.
            if catch_unwind(AssertUnwindSafe(|| thread.serve(&jobs))).is_err() {
                tracing::error!("the writer thread panicked; the process ends");
                std::process::abort();
            }
        };
        let thread = std::thread::Builder::new().name("writer".into()).spawn(serve)?;
        Ok(Self { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)) })
    }

    pub(super) fn submit(&self, unit: Box<dyn UnitOfWork>) {
        if let Err(Job::Unit(unit)) = self.send(Job::Unit(unit)) {
            unit.failed(closed());
        }
    }

    pub(super) fn maintain(&self, task: Maintenance) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        if let Err(Job::Maintenance(_, reply)) = self.send(Job::Maintenance(task, reply)) {
            let _ = reply.send(Err(closed()));
        }
        answer
    }

    fn send(&self, job: Job) -> Result<(), Job> {
        match self.queue.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(queue) => queue.send(job).map_err(|unsent| unsent.0),
            None => Err(job),
        }
    }

    /// Lets the thread finish what is queued and waits for it.
    pub(super) fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the writer thread panicked");
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorCode::DaemonUnreachable, "the daemon is stopping").hint("try again")
}

fn panicked() -> Error {
    Error::new(ErrorCode::StorageUnavailable, "a command failed inside the daemon and was rolled back")
        .hint("look at `tt daemon logs` and report what it says")
}

/// Everything the writer thread owns.
struct WriterThread {
    connection: Connection,
    clock: Arc<dyn Clock>,
    policy: Policy,
    paths: Arc<RoomPaths>,
    files: Arc<Files>,
    cache: RoomCache,
    in_transaction: bool,
    /// Changes when another program writes to the database.
    data_version: Option<i64>,
}

/// What became of a unit, provided that its transaction commits.
enum Outcome {
    Done { created: Option<(RoomId, std::path::PathBuf)>, deleted: Option<RoomId> },
    Refused(Error),
    Repeated(String),
}

/// Why a unit could not be run to its end.
enum Interruption {
    /// Another program changed the database after the room was read.
    Changed,
    /// The transaction cannot begin or end. Running a unit again would fail in the same way.
    Unavailable(Error),
    Failed(Error),
}

impl Interruption {
    fn into_error(self) -> Error {
        match self {
            Interruption::Unavailable(e) | Interruption::Failed(e) => e,
            Interruption::Changed => {
                Error::new(ErrorCode::StorageUnavailable, "another program keeps changing the database")
                    .hint("try again")
            }
        }
    }
}

impl From<Error> for Interruption {
    fn from(e: Error) -> Self {
        Interruption::Failed(e)
    }
}

impl WriterThread {
    fn serve(mut self, jobs: &Receiver<Job>) {
        self.look_for_changes();
        while let Ok(first) = jobs.recv() {
            let mut units = Vec::new();
            let mut tasks = Vec::new();
            for job in std::iter::once(first).chain(jobs.try_iter().take(MAX_BATCH - 1)) {
                match job {
                    Job::Unit(unit) => units.push(unit),
                    Job::Maintenance(task, reply) => tasks.push((task, reply)),
                }
            }
            self.run_batch(units);
            for (task, reply) in tasks {
                // The caller may have gone away; what was committed stays.
                let _ = reply.send(self.run_maintenance(&task));
            }
            checkpoint::run_if_due(&self.connection);
        }
        checkpoint::run_at_close(&self.connection);
    }

    /// Runs units in one transaction. If that fails, each is run again in a transaction of its own, so that one that cannot
    /// be saved does not fail its neighbours.
    fn run_batch(&mut self, mut units: Vec<Box<dyn UnitOfWork>>) {
        let failure = match self.attempt(&mut units) {
            Ok(outcomes) => return self.finish(units.into_iter().zip(outcomes)),
            Err(Interruption::Failed(e)) if units.len() > 1 => e,
            Err(interruption) => {
                let e = interruption.into_error();
                return units.into_iter().for_each(|unit| unit.failed(e.clone()));
            }
        };
        tracing::warn!(units = units.len(), "a transaction failed, and each unit is run again: {failure}");
        for unit in units {
            let mut alone = vec![unit];
            match self.attempt(&mut alone) {
                Ok(outcomes) => self.finish(alone.into_iter().zip(outcomes)),
                Err(e) => {
                    let e = e.into_error();
                    alone.into_iter().for_each(|unit| unit.failed(e.clone()));
                }
            }
        }
    }

    /// Answers committed units, in their order.
    fn finish(&self, units: impl Iterator<Item = (Box<dyn UnitOfWork>, Outcome)>) {
        for (unit, outcome) in units {
            match outcome {
                Outcome::Done { created, deleted } => {
                    created.into_iter().for_each(|(room_id, path)| self.paths.add(path, room_id));
                    deleted.iter().for_each(|room_id| self.paths.remove(room_id));
                    unit.committed();
                }
                Outcome::Refused(error) => unit.failed(error),
                Outcome::Repeated(answer) => unit.repeated(answer),
            }
        }
    }

    /// Runs units and commits what they wrote. On an error nothing was kept.
    fn attempt(&mut self, units: &mut [Box<dyn UnitOfWork>]) -> Result<Vec<Outcome>, Interruption> {
        // A unit with a key keeps its answer, so it writes: then the lock comes first, and every read is in its transaction.
        // Without one, what is kept in memory must not be out of date either.
        if units.iter().any(|unit| unit.key().is_some()) {
            match self.begin() {
                Ok(()) | Err(Interruption::Changed) => {}
                Err(e) => return Err(e),
            }
        } else {
            self.look_for_changes();
        }
        let ran: Result<Vec<Outcome>, Interruption> = units.iter_mut().map(|unit| self.run(unit.as_mut())).collect();
        let committed = ran.and_then(|outcomes| {
            if self.in_transaction {
                self.execute("COMMIT").map_err(Interruption::Unavailable)?;
            }
            // Whatever is answered now must be in the database that the next daemon opens.
            self.files.check().map_err(Interruption::Unavailable)?;
            Ok(outcomes)
        });
        if let Err(Interruption::Failed(e) | Interruption::Unavailable(e)) = &committed {
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("ROLLBACK");
            }
            self.cache.clear();
            tracing::error!("nothing was committed: {e}");
        }
        self.in_transaction = false;
        committed
    }

    fn run(&mut self, unit: &mut dyn UnitOfWork) -> Result<Outcome, Interruption> {
        for _ in 0..MAX_RERUNS {
            // A unit that panics is rolled back with its neighbours, which are then run again without it.
            let ran = catch_unwind(AssertUnwindSafe(|| self.run_once(unit)));
            match ran.unwrap_or_else(|_| Err(Interruption::Failed(panicked()))) {
                Err(Interruption::Changed) => {}
                done => return done,
            }
        }
        Err(Interruption::Changed)
    }

    fn run_once(&mut self, unit: &mut dyn UnitOfWork) -> Result<Outcome, Interruption> {
        if let Some(key) = unit.key()
            && let Some(earlier) = idempotency::find(&self.connection, key)?
        {
            return Ok(earlier.map_or_else(Outcome::Refused, Outcome::Repeated));
        }
        let mut existing = HashMap::new();
        for path in unit.candidates() {
            if let Some(room_id) = rooms::at_path(&self.connection, &path)? {
                existing.insert(path, room_id);
            }
        }
        let location = unit.locate(&existing);
        let (mut before, from_disk) = match &location {
            Location::Existing(room_id) => match self.load(room_id)? {
                Some(found) => found,
                None => return Ok(Outcome::Refused(room_not_found(room_id))),
            },
            Location::New { room_id, path } => (Room::new(room_id.clone(), path, self.policy.clone()), true),
        };
        let rows = self.rows(&before.room_id, &unit.needs())?;
        let now = self.clock.now();
        let loaded = Loaded { room: &mut before, rows, from_disk, now };
        let mut decision = match unit.decide(loaded) {
            Ok(decision) => decision,
            Err(refusal) => {
                if matches!(location, Location::Existing(_)) {
                    self.cache.put(before);
                }
                return Ok(Outcome::Refused(refusal));
            }
        };
        let created = match location {
            Location::New { room_id, path } => Some((room_id, path)),
            Location::Existing(_) => None,
        };
        let events = if created.is_some() || rooms::has_changes(&before, &decision) || unit.key().is_some() {
            self.begin()?;
            self.save(&before, &decision, created.is_some(), now.wall)?
        } else {
            Vec::new()
        };
        decision.room.saved(events.iter().map(|event| event.event_seq));
        let answer = unit.answer(&mut decision, &events)?;
        if let (Some(key), Some(answer)) = (unit.key(), answer) {
            idempotency::keep(&self.connection, key, &answer, now.lease)?;
        }
        let deleted = decision.room.deleted.then(|| decision.room.room_id.clone());
        self.cache.put(decision.room);
        Ok(Outcome::Done { created, deleted })
    }

    fn load(&mut self, room_id: &RoomId) -> Result<Option<(Room, bool)>, Error> {
        if let Some(room) = self.cache.take(room_id) {
            return Ok(Some((room, false)));
        }
        Ok(rooms::load(&self.connection, room_id, &self.policy)?.map(|room| (room, true)))
    }

    fn rows(&self, room_id: &RoomId, needs: &Needs) -> Result<Rows, Error> {
        let connection = &self.connection;
        let mut rows = Rows::default();
        match needs {
            Needs::Nothing => {}
            Needs::Inbox { recipient, from, about, mid_turn, limit } => {
                let which = deliveries::Which { from: from.as_ref(), about: *about, mid_turn: *mid_turn };
                rows.deliveries = deliveries::inbox(connection, room_id, recipient, which, *limit)?;
            }
            Needs::Deliveries { recipient, event_seqs } => {
                rows.deliveries = deliveries::open_among(connection, room_id, recipient, event_seqs)?;
            }
            Needs::Message { event_seq } => {
                rows.message = deliveries::message(connection, room_id, *event_seq)?;
                rows.deliveries = deliveries::of_message(connection, room_id, *event_seq)?;
            }
            Needs::RepliedTo { event_seq, recipient } => {
                rows.message = deliveries::message(connection, room_id, *event_seq)?;
                rows.deliveries = deliveries::of_recipient(connection, room_id, *event_seq, recipient)?;
            }
            Needs::Questions => rows.deliveries = deliveries::questions(connection, room_id)?,
            Needs::ReminderCount(agent_id) => rows.reminder_count = reminders::count(connection, room_id, agent_id)?,
            Needs::Reminder(reminder_id) => rows.reminder = reminders::get(connection, room_id, reminder_id)?,
            Needs::Note(note_id) => rows.note = notes::get(connection, room_id, note_id)?,
            Needs::PolicyOverrides => rows.policy_overrides = rooms::policy_overrides(connection, room_id)?,
            Needs::Overview => rows.overview = Some(rooms::overview(connection, room_id)?),
            Needs::Contents => rows.has_contents = contents::exist(connection, room_id)?,
        }
        Ok(rows)
    }

    /// Begins the transaction, unless a unit before this one did.
    fn begin(&mut self) -> Result<(), Interruption> {
        if self.in_transaction {
            return Ok(());
        }
        self.execute("BEGIN IMMEDIATE").map_err(Interruption::Unavailable)?;
        self.in_transaction = true;
        // What was read before the lock may be out of date.
        if self.look_for_changes() { Err(Interruption::Changed) } else { Ok(()) }
    }

    /// Drops what is kept in memory if another program wrote to the database. Returns whether one did.
    fn look_for_changes(&mut self) -> bool {
        let version = self.connection.prepare_cached("PRAGMA data_version");
        let version = version.and_then(|mut s| s.query_row([], |row| row.get::<_, i64>(0))).ok();
        if version.is_some() && version == self.data_version {
            return false;
        }
        self.data_version = version;
        self.cache.clear();
        self.paths.reload(rooms::paths(&self.connection));
        true
    }

    fn save(
        &self,
        before: &Room,
        decision: &Decision,
        created: bool,
        wall: WallTime,
    ) -> Result<Vec<Arc<Event>>, Error> {
        let (connection, room_id) = (&self.connection, &decision.room.room_id);
        if decision.room.deleted {
            rooms::delete(connection, room_id)?;
            return Ok(Vec::new());
        }
        if created {
            rooms::create(connection, &decision.room, wall)?;
        }
        let mut appended = Vec::with_capacity(decision.room.events.len());
        for draft in &decision.room.events {
            appended.push(Arc::new(events::append(connection, room_id, draft, wall)?));
        }
        rooms::save(connection, before, &decision.room, &appended, wall)?;
        for opened in &decision.opened {
            deliveries::open(connection, &appended[opened.event], opened)?;
        }
        for change in &decision.changed {
            deliveries::change(connection, change, &appended)?;
        }
        if let Some(change) = &decision.note {
            notes::save(connection, change)?;
        }
        if let Some(change) = &decision.reminder {
            reminders::save(connection, room_id, change)?;
        }
        if let Some(overrides) = &decision.policy_overrides {
            rooms::set_policy(connection, room_id, overrides)?;
        }
        Ok(appended)
    }

    fn run_maintenance(&mut self, task: &Maintenance) -> Result<(), Error> {
        let connection = &self.connection;
        let begun = match task {
            Maintenance::Presence { seen, waited } if seen.is_empty() && waited.is_empty() => return Ok(()),
            Maintenance::ReclaimSpace => {
                space::reclaim(connection)?;
                checkpoint::run_now(connection);
                return Ok(());
            }
            _ => connection.unchecked_transaction().map_err(query_failed)?,
        };
        match task {
            Maintenance::Presence { seen, waited } => rooms::save_presence(connection, seen, waited)?,
            Maintenance::ForgetAnswers { before } => idempotency::forget(connection, *before)?,
            Maintenance::ReclaimSpace => {}
            Maintenance::IndexEvents { limit } => search::index_next(connection, *limit)?,
            Maintenance::SaveSessions(changed) => {
                changed.iter().try_for_each(|session| sessions::save(connection, session))?;
            }
            Maintenance::ForgetSession { harness, session_id } => sessions::forget(connection, harness, session_id)?,
        }
        begun.commit().map_err(query_failed)?;
        self.files.check()
    }

    fn execute(&self, sql: &str) -> Result<(), Error> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        match done {
            Ok(_) => Ok(()),
            Err(e) if sql == "COMMIT" => Err(commit_failed(e)),
            Err(e) => Err(query_failed(e)),
        }
    }
}

/// A full disk or an I/O error makes SQLite roll back the whole transaction by itself. After an I/O error it may be in the log
/// all the same, whole: then it is there after a crash, unless the next commit has replaced it.
fn commit_failed(e: rusqlite::Error) -> Error {
    if is_locked(&e) {
        return query_failed(e);
    }
    if e.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull) {
        return Error::new(ErrorCode::StorageUnavailable, "the disk refused the write; nothing of it was kept")
            .hint("free space on the disk of the data directory, then try again");
    }
    Error::new(ErrorCode::OutcomeUnknown, format!("the disk failed in the middle of the write ({e})"))
}

#[cfg(test)]
mod tests;
