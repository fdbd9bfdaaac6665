//! What happens without a command: deadlines pass, processes end, presence is stored, old rooms are deleted.

use std::collections::HashSet;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;
use tt_proto::session::SessionStatus;
use tt_proto::{AgentId, Error, ErrorCode, RoomId, WallTime};
use tt_rules::{Command, Due, GiveBackCause, TimerKey};
use tt_store::Maintenance;

use crate::engine::Engine;
use crate::sessions::Sessions;
use crate::sessions::session::SessionKey;

/// How soon a timer whose command could not be saved is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How many commands of timers wait for their commit at once.
const MAX_TIMERS_AT_ONCE: usize = 256;

/// The longest pause before sessions that could not be stored are tried again.
const MAX_SAVE_RETRY_DELAY: Duration = Duration::from_secs(30);

/// How long a daemon that stops tries to store the sessions again, and the pause between. Those who stop it wait meanwhile.
const LAST_SAVES_LIMIT: Duration = Duration::from_secs(1);
const LAST_SAVE_DELAY: Duration = Duration::from_millis(200);

/// How long the answer of a request is kept for a repeated one.
const ANSWER_TTL: Duration = Duration::from_secs(60 * 60);

/// How many steps of giving back space follow one another. The rest waits for the next clean-up.
const MAX_RECLAIM_STEPS: usize = 256;
/// How many events are added to the full-text index at once, and the pause before the next, so that no caller waits long for
/// the writer.
const INDEX_STEP: usize = 100;
const INDEX_PAUSE: Duration = Duration::from_millis(20);

/// Events are added to the index once there was none for this long, or when the first has waited for so long.
const INDEX_QUIET: Duration = Duration::from_secs(2);
const INDEX_LATEST: Duration = Duration::from_secs(30);

/// Runs until it is cancelled.
pub async fn run(
    engine: Engine,
    sessions: Sessions,
    mut exits: UnboundedReceiver<Anchor>,
    mut changes: UnboundedReceiver<AgentId>,
) {
    let timers = async {
        loop {
            let due = engine.timers().next(engine.clock()).await;
            run_timers(&engine, due).await;
        }
    };
    let (departed, departures) = mpsc::unbounded_channel();
    let exits = async {
        while let Some(anchor) = exits.recv().await {
            for agent_id in sessions.agents_in(&anchor) {
                let _ = departed.send(Departure::Agent(agent_id));
            }
            let _ = departed.send(Departure::Process(anchor));
        }
        std::future::pending::<()>().await;
    };
    let changes = async {
        while let Some(agent_id) = changes.recv().await {
            look_at_its_stick(&engine, &sessions, &agent_id).await;
            release_what_was_forgotten(&engine, &sessions, &agent_id).await;
            let _ = departed.send(Departure::Agent(agent_id));
        }
        std::future::pending::<()>().await;
    };
    let presence = async {
        loop {
            engine.presence().changed().await;
            store_presence(&engine).await;
            clean_up(&engine).await;
            forget_sessions(&engine, &sessions).await;
        }
    };
    let catch_up = async {
        catch_up(&engine).await;
        std::future::pending::<()>().await;
    };
    let departures = notice_departures(&engine, departures);
    let saves = keep_sessions_saved(&engine, &sessions);
    tokio::join!(timers, exits, changes, departures, saves, presence, catch_up, index_events(&engine));
}

/// Fills the full-text index behind the answers: once nothing has been added for a while, or when much has been added since.
async fn index_events(engine: &Engine) {
    loop {
        let has_more = engine.read(|reader| reader.has_unindexed_events()).await;
        if has_more.inspect_err(|e| tracing::error!("the full-text index: {e}")).unwrap_or(false) {
            let indexed = maintain(engine, Maintenance::IndexEvents { limit: INDEX_STEP }).await;
            // A disk that is full or fails is not asked again at once.
            let pause = if indexed.is_ok() { INDEX_PAUSE } else { INDEX_LATEST };
            log_failure("the full-text index", indexed);
            tokio::time::sleep(pause).await;
            continue;
        }
        engine.appended().await;
        let latest = tokio::time::Instant::now() + INDEX_LATEST;
        while tokio::time::timeout(INDEX_QUIET, engine.appended()).await.is_ok() && tokio::time::Instant::now() < latest
        {
        }
    }
}

/// Runs the commands of timers that are due, many at once: they share commits, and the last of them is not late by the time of
/// all the others. What is due of a message is done for all of its recipients by one command.
pub async fn run_timers(engine: &Engine, mut due: Vec<TimerKey>) {
    let mut messages = HashSet::new();
    due.retain(|key| match key {
        TimerKey::Delivery(room_id, event_seq, _) => messages.insert((room_id.clone(), *event_seq)),
        TimerKey::Room(_) | TimerKey::Reminder(..) => true,
    });
    let mut due = due.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < MAX_TIMERS_AT_ONCE
            && let Some(key) = due.next()
        {
            let engine = engine.clone();
            running.spawn(async move { run_timer(&engine, key).await });
        }
        if running.join_next().await.is_none() {
            return;
        }
    }
}

/// Runs the command of a timer that is due.
async fn run_timer(engine: &Engine, key: TimerKey) {
    let (room_id, command) = match &key {
        TimerKey::Room(room_id) => (room_id, Command::Tick),
        TimerKey::Delivery(room_id, event_seq, _) => (room_id, Command::DeliveryDue { event_seq: *event_seq }),
        TimerKey::Reminder(room_id, reminder_id) => {
            (room_id, Command::ReminderDue { reminder_id: reminder_id.clone() })
        }
    };
    let done = engine.run_system_command(room_id, command).await;
    // Nobody else will ask again.
    if done.as_ref().is_err_and(|e| e.code != ErrorCode::RoomNotFound) {
        let now = engine.clock().now();
        let due = match key {
            TimerKey::Room(_) => Due::Lease(now.lease + RETRY_DELAY),
            TimerKey::Delivery(..) | TimerKey::Reminder(..) => Due::Deadline(now.deadline + RETRY_DELAY),
        };
        engine.timers().set(key, Some(due));
    }
    log_failure("a timer", done);
}

/// Somebody who may have gone.
#[derive(Debug, Clone)]
pub enum Departure {
    /// A process ended, and with it the members that are anchored to it.
    Process(Anchor),
    /// The evidence of a member's session changed, and with it perhaps whether it lives.
    Agent(AgentId),
}

/// Lets the rooms of those who may have gone look again. If their rooms cannot be read now, they are read later.
pub async fn notice_departures(engine: &Engine, mut departures: UnboundedReceiver<Departure>) {
    let mut unread: Vec<Departure> = Vec::new();
    let mut retry_at = tokio::time::Instant::now();
    loop {
        let batch = tokio::select! {
            departed = departures.recv() => match departed {
                Some(departed) => vec![departed],
                None => return,
            },
            () = tokio::time::sleep_until(retry_at), if !unread.is_empty() => std::mem::take(&mut unread),
        };
        for departure in batch {
            match rooms_of(engine, departure.clone()).await {
                Ok(rooms) => look_again(engine, rooms).await,
                Err(e) => {
                    tracing::error!("a departure: {e}");
                    retry_at = tokio::time::Instant::now() + RETRY_DELAY;
                    unread.push(departure);
                }
            }
        }
    }
}

/// Gives back what an agent was given for its turn, if that was broken off.
async fn look_at_its_stick(engine: &Engine, sessions: &Sessions, agent_id: &AgentId) {
    let is_idle = || sessions.status_of(agent_id).is_some_and(|status| status.status == SessionStatus::Idle);
    if !is_idle() {
        return;
    }
    let given_back = async {
        let turns = turns_of(engine, agent_id).await?;
        // Still: it works again before it is given another turn.
        if is_idle() { give_back(engine, agent_id, &turns, GiveBackCause::BrokenOff).await } else { Ok(()) }
    };
    log_failure("the end of a turn", given_back.await);
}

/// Releases the stick of an agent whose conversation went on to another one that was not told of it.
async fn release_what_was_forgotten(engine: &Engine, sessions: &Sessions, agent_id: &AgentId) {
    if !sessions.has_forgotten(agent_id) {
        return;
    }
    let _alone = sessions.tells_alone().await;
    if !sessions.has_forgotten(agent_id) {
        return;
    }
    let released = async {
        let turns = turns_of(engine, agent_id).await?;
        give_back(engine, agent_id, &turns, GiveBackCause::Forgotten).await
    };
    let released = released.await;
    match &released {
        Ok(()) => sessions.settle_untold(agent_id),
        Err(_) => sessions.look_again_later(agent_id.clone()),
    }
    log_failure("a turn that was forgotten", released);
}

/// The turns that an agent has, each with its room.
pub async fn turns_of(engine: &Engine, agent_id: &AgentId) -> Result<Vec<(RoomId, i64)>, Error> {
    let agent = agent_id.clone();
    engine.read(move |reader| reader.turns_held_by(&agent)).await
}

/// Gives these turns of an agent back, as far as the cause asks for that.
pub async fn give_back(
    engine: &Engine,
    agent_id: &AgentId,
    turns: &[(RoomId, i64)],
    cause: GiveBackCause,
) -> Result<(), Error> {
    for (room_id, turn_id) in turns {
        let command = Command::GiveBack { agent_id: agent_id.clone(), turn_id: *turn_id, cause };
        engine.run_system_command(room_id, command).await?;
    }
    Ok(())
}

async fn rooms_of(engine: &Engine, departure: Departure) -> Result<Vec<RoomId>, Error> {
    engine
        .read(move |reader| match &departure {
            Departure::Process(anchor) => reader.rooms_of_process(anchor),
            Departure::Agent(agent_id) => reader.rooms_of_agent(agent_id),
        })
        .await
}

/// Lets rooms notice which of their members have gone.
async fn look_again(engine: &Engine, rooms: Vec<RoomId>) {
    for room_id in rooms {
        let done = engine.run_system_command(&room_id, Command::ProcessExited).await;
        if done.as_ref().is_err_and(|e| e.code != ErrorCode::RoomNotFound) {
            // The timer's own command notices processes that ended as well.
            let due = Due::Lease(engine.clock().now().lease + RETRY_DELAY);
            engine.timers().set(TimerKey::Room(room_id), Some(due));
        }
        log_failure("the end of a process", done);
    }
}

/// What happened while no daemon ran: processes that ended, deadlines that passed, rooms that were left alone.
async fn catch_up(engine: &Engine) {
    // Nobody else sets these timers.
    let (rooms, deliveries, reminders) = loop {
        let found =
            engine.read(|reader| Ok((reader.rooms_with_timers()?, reader.due_deliveries()?, reader.due_reminders()?)));
        match found.await {
            Ok(found) => break found,
            Err(e) => tracing::error!("catching up: {e}"),
        }
        tokio::time::sleep(RETRY_DELAY).await;
    };
    for (room_id, event_seq, recipient, at) in deliveries {
        engine.timers().set_if_unset(TimerKey::Delivery(room_id, event_seq, recipient), Due::Deadline(at));
    }
    for (room_id, reminder_id, at) in reminders {
        engine.timers().set_if_unset(TimerKey::Reminder(room_id, reminder_id), Due::Deadline(at));
    }
    run_timers(engine, rooms.into_iter().map(TimerKey::Room).collect()).await;
    clean_up(engine).await;
}

/// Forgets the answers of old requests, deletes rooms that were left alone, and gives their space back.
async fn clean_up(engine: &Engine) {
    let now = engine.clock().now();
    log_failure(
        "forgetting old answers",
        maintain(engine, Maintenance::ForgetAnswers { before: now.lease - ANSWER_TTL }).await,
    );
    // The earlier of two clocks, so that a wall clock that is set deletes no room.
    let before = now.wall.min(WallTime::from_millis(now.lease.as_millis()));
    let policy = engine.policy().clone();
    let untouched: Result<Vec<RoomId>, Error> =
        engine.read(move |reader| reader.untouched_rooms(&policy, before)).await;
    for room_id in untouched.inspect_err(|e| tracing::error!("cleaning up: {e}")).unwrap_or_default() {
        log_failure("deleting a room", engine.run_system_command(&room_id, Command::Purge).await);
    }
    log_failure("giving back space", reclaim_space(engine).await);
}

/// Makes the database smaller where much was deleted. Between two steps others have their turn.
async fn reclaim_space(engine: &Engine) -> Result<(), Error> {
    for _ in 0..MAX_RECLAIM_STEPS {
        if !engine.read(|reader| reader.has_free_space()).await? {
            break;
        }
        maintain(engine, Maintenance::ReclaimSpace).await?;
    }
    Ok(())
}

/// Forgets the sessions that ended long ago and are a member of no room.
async fn forget_sessions(engine: &Engine, sessions: &Sessions) {
    for (key, agent_id) in sessions.forgettable() {
        let rooms = engine.read(move |reader| reader.rooms_of_agent(&agent_id)).await;
        if rooms.is_ok_and(|rooms| rooms.is_empty()) {
            let erase = async |key: SessionKey| {
                let forget = Maintenance::ForgetSession { harness: key.harness, session_id: key.session_id };
                maintain(engine, forget).await
            };
            log_failure("forgetting a session", sessions.forget(key, erase).await);
        }
    }
}

/// Stores the sessions that changed.
pub async fn save_sessions(engine: &Engine, sessions: &Sessions) -> Result<(), Error> {
    sessions.save(|changed| maintain(engine, Maintenance::SaveSessions(changed))).await
}

/// Stores sessions when they change. Those that cannot be stored are tried again, with a pause that grows.
async fn keep_sessions_saved(engine: &Engine, sessions: &Sessions) {
    loop {
        sessions.unsaved_added().await;
        let mut pause = RETRY_DELAY;
        while let Err(e) = save_sessions(engine, sessions).await {
            tracing::error!("storing sessions: {e}");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_SAVE_RETRY_DELAY);
        }
    }
}

/// Stores the sessions before the daemon stops: what is not stored now is lost.
pub async fn save_sessions_at_last(engine: &Engine, sessions: &Sessions) {
    let give_up = tokio::time::Instant::now() + LAST_SAVES_LIMIT;
    while let Err(e) = save_sessions(engine, sessions).await {
        tracing::error!("storing sessions before the end: {e}");
        if tokio::time::Instant::now() + LAST_SAVE_DELAY > give_up {
            return;
        }
        tokio::time::sleep(LAST_SAVE_DELAY).await;
    }
}

/// Stores who was seen when.
pub async fn store_presence(engine: &Engine) {
    let unstored = engine.presence().take_unstored();
    let task = Maintenance::Presence { seen: unstored.seen, waited: unstored.waited };
    log_failure("storing presence", maintain(engine, task).await);
}

/// Runs maintenance and waits for its commit.
pub async fn maintain(engine: &Engine, task: Maintenance) -> Result<(), Error> {
    let stopping = || Error::new(ErrorCode::DaemonUnreachable, "the daemon is stopping");
    engine.store().maintain(task).await.unwrap_or_else(|_| Err(stopping()))
}

/// Whether a live member holds the stick in some room, or has it reserved.
pub async fn anyone_holds(engine: &Engine) -> bool {
    let this = engine.clone();
    let held = engine.read(move |reader| {
        for room_id in reader.rooms_in_use()? {
            let room = this.current_room(reader, &room_id)?;
            if room.held_by().is_some_and(|member| member.liveness != Liveness::Gone) {
                return Ok(true);
            }
        }
        Ok(false)
    });
    held.await.unwrap_or(true)
}

fn log_failure(what: &str, result: Result<(), Error>) {
    match result {
        // A room that was deleted in the meantime has no timers.
        Err(e) if e.code != ErrorCode::RoomNotFound => tracing::error!("{what}: {e}"),
        Ok(()) | Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::{Notify, oneshot, watch};
    use tt_proto::policy::Policy;
    use tt_proto::session::SessionEvent;
    use tt_rules::testing;
    use tt_store::sqlite::SqliteStore;
    use tt_store::{Reader, Store, StoredSession, UnitOfWork};

    use super::*;
    use crate::clock::Clock;
    use crate::engine::CommandContext;
    use crate::engine::tests::Alive;
    use crate::liveness::{Kernel, LOOK_TIMEOUT, Looks, Watch};
    use crate::sessions::registry::Report;
    use crate::workspace::{Directory, Workspace};

    /// A store whose next reads and whose next maintenance fail, and which tells when a command is given.
    #[derive(Debug)]
    struct FailingStore {
        store: SqliteStore,
        failures: AtomicUsize,
        maintenance_failures: AtomicUsize,
        submitted: Notify,
    }

    impl FailingStore {
        fn open(dir: &Path, clock: &Clock) -> Arc<Self> {
            let (file, policy) = (dir.join("rooms.sqlite"), Policy::default());
            let store = SqliteStore::open_volatile(&file, Arc::new(clock.clone()), policy).unwrap();
            let [failures, maintenance_failures] = [0, 0].map(AtomicUsize::new);
            Arc::new(Self { store, failures, maintenance_failures, submitted: Notify::new() })
        }
    }

    fn fails(left: &AtomicUsize) -> bool {
        left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    fn disk_failed() -> Error {
        Error::new(ErrorCode::StorageUnavailable, "the disk fails")
    }

    impl Store for FailingStore {
        fn submit(&self, unit: Box<dyn UnitOfWork>) {
            self.submitted.notify_one();
            self.store.submit(unit);
        }

        fn maintain(&self, task: Maintenance) -> oneshot::Receiver<Result<(), Error>> {
            if fails(&self.maintenance_failures) {
                let (reply, answer) = oneshot::channel();
                reply.send(Err(disk_failed())).unwrap();
                return answer;
            }
            self.store.maintain(task)
        }

        fn reader(&self) -> Result<Box<dyn Reader + '_>, Error> {
            if fails(&self.failures) { Err(disk_failed()) } else { self.store.reader() }
        }

        fn known_room_at(&self, paths: &mut dyn Iterator<Item = &Path>) -> Option<RoomId> {
            self.store.known_room_at(paths)
        }

        fn check(&self) -> Result<(), Error> {
            self.store.check()
        }

        fn lost(&self) -> watch::Receiver<Option<Error>> {
            self.store.lost()
        }

        fn close(&self) {
            self.store.close();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_departure_whose_rooms_could_not_be_read_is_noticed_later() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::new();
        let store = FailingStore::open(dir.path(), &clock);
        let engine = Engine::new(store.clone(), clock, Arc::new(Alive), Policy::default());
        let workspace = Workspace::of(Directory::find(dir.path(), None).unwrap());
        let context = CommandContext { caller: testing::caller("a", 1), key: None };
        engine.join(context, workspace, true, None, |_| ()).await.unwrap();
        store.submitted.notified().await;
        store.failures.store(2, Ordering::SeqCst);
        let (departed, departures) = mpsc::unbounded_channel();
        departed.send(Departure::Agent(AgentId::trusted("a"))).unwrap();
        tokio::select! {
            () = notice_departures(&engine, departures) => unreachable!("there may be more"),
            () = store.submitted.notified() => {}
            () = tokio::time::sleep(Duration::from_secs(3600)) => panic!("the departure was forgotten"),
        }
    }

    /// A session of which a hook has told, and which is not stored yet.
    fn unsaved_session(clock: &Clock) -> Sessions {
        let looks = Looks::new(Arc::new(Kernel::new()), LOOK_TIMEOUT);
        let (watch, _exits) = Watch::new(looks.clone(), 10);
        let (sessions, _changes) = Sessions::new(watch, looks, clock.clone(), "someone".into(), None);
        let mut identity = testing::caller("a", 1).identity;
        identity.harness = Some("claude".into());
        sessions.report(&identity, "s-1", &Report::of(SessionEvent::SessionStarted, clock.now().lease), None);
        sessions
    }

    fn stored(store: &FailingStore) -> Vec<String> {
        store.store.reader().unwrap().sessions().unwrap().into_iter().map(|session| session.session_id).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_could_not_be_stored_are_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::new();
        let store = FailingStore::open(dir.path(), &clock);
        let engine = Engine::new(store.clone(), clock.clone(), Arc::new(Alive), Policy::default());
        let sessions = unsaved_session(&clock);
        store.maintenance_failures.store(7, Ordering::SeqCst);
        let saved = async {
            while sessions.has_unsaved() {
                tokio::time::sleep(RETRY_DELAY).await;
            }
        };
        tokio::select! {
            () = keep_sessions_saved(&engine, &sessions) => unreachable!("there may be more"),
            done = tokio::time::timeout(Duration::from_secs(3600), saved) => done.unwrap(),
        }
        assert_eq!(stored(&store), ["s-1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_daemon_that_stops_stores_what_could_not_be_stored_and_what_was_broken_off() {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::new();
        let store = FailingStore::open(dir.path(), &clock);
        let engine = Engine::new(store.clone(), clock.clone(), Arc::new(Alive), Policy::default());
        let sessions = unsaved_session(&clock);
        // As when the task that stores them is ended in the middle.
        let never = |_| std::future::pending();
        tokio::time::timeout(RETRY_DELAY, sessions.save(never)).await.unwrap_err();
        store.maintenance_failures.store(4, Ordering::SeqCst);
        save_sessions_at_last(&engine, &sessions).await;
        assert_eq!(stored(&store), ["s-1"]);
        assert!(!sessions.has_unsaved());
    }

    #[tokio::test]
    async fn a_session_that_changes_while_it_is_stored_is_stored_again() {
        let clock = Clock::new();
        let sessions = unsaved_session(&clock);
        let mut identity = testing::caller("a", 1).identity;
        identity.harness = Some("claude".into());
        let change = async |rows: Vec<StoredSession>| {
            assert_eq!(rows.len(), 1);
            sessions.report(&identity, "s-1", &Report::of(SessionEvent::SessionEnded, clock.now().lease), None);
            Ok(())
        };
        sessions.save(change).await.unwrap();
        assert!(sessions.has_unsaved());
    }
}
