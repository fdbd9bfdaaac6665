//! What happens without a command: deadlines pass, processes end, presence is stored, old rooms are deleted.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;
use tt_proto::{Error, ErrorCode, RoomId, WallTime};
use tt_rules::{Command, Due, TimerKey};
use tt_store::Maintenance;

use crate::engine::Engine;

/// How soon a timer whose command could not be saved is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

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
pub async fn run(engine: Engine, mut exits: UnboundedReceiver<Anchor>) {
    let timers = async {
        loop {
            for key in engine.timers().next(engine.clock()).await {
                run_timer(&engine, key).await;
            }
        }
    };
    let exits = async {
        while let Some(anchor) = exits.recv().await {
            process_ended(&engine, anchor).await;
        }
        std::future::pending::<()>().await;
    };
    let presence = async {
        loop {
            engine.presence().changed().await;
            store_presence(&engine).await;
            clean_up(&engine).await;
        }
    };
    let catch_up = async {
        catch_up(&engine).await;
        std::future::pending::<()>().await;
    };
    tokio::join!(timers, exits, presence, catch_up, index_events(&engine));
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

/// Runs the command of a timer that is due.
pub async fn run_timer(engine: &Engine, key: TimerKey) {
    let (room_id, command) = match &key {
        TimerKey::Room(room_id) => (room_id, Command::Tick),
        TimerKey::Delivery(room_id, event_seq) => (room_id, Command::ExpireMessage { event_seq: *event_seq }),
    };
    let done = engine.run_system_command(room_id, command).await;
    // Nobody else will ask again.
    if done.as_ref().is_err_and(|e| e.code != ErrorCode::RoomNotFound) {
        let now = engine.clock().now();
        let due = match key {
            TimerKey::Room(_) => Due::Lease(now.lease + RETRY_DELAY),
            TimerKey::Delivery(..) => Due::Deadline(now.deadline + RETRY_DELAY),
        };
        engine.timers().set(key, Some(due));
    }
    log_failure("a timer", done);
}

async fn process_ended(engine: &Engine, anchor: Anchor) {
    let found = engine.read(move |reader| reader.rooms_of_process(&anchor)).await;
    for room_id in found.inspect_err(|e| tracing::error!("the end of a process: {e}")).unwrap_or_default() {
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
    let found = engine.read(|reader| Ok((reader.rooms_with_timers()?, reader.expiring()?))).await;
    let (rooms, expiring) = found.inspect_err(|e| tracing::error!("catching up: {e}")).unwrap_or_default();
    for (room_id, event_seq, at) in expiring {
        engine.timers().set(TimerKey::Delivery(room_id, event_seq), Some(Due::Deadline(at)));
    }
    for room_id in rooms {
        run_timer(engine, TimerKey::Room(room_id)).await;
    }
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
