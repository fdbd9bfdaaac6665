//! One command on one room, from end to end: load it, let a rule decide, write what changed, and after the commit tell
//! those whom it concerns.
//!
//! This is the only way a room changes. The rule runs on the writer thread, between the load and the write, so that no
//! two commands can ever decide on the same state.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::UnboundedReceiver;
use tt_proto::event::{Event, EventType};
use tt_proto::hello::{Anchor, Identity};
use tt_proto::policy::Policy;
use tt_proto::room::Liveness;
use tt_proto::turn::{Wait, WaitStatus};
use tt_proto::{AgentId, Error, ErrorCode, LeaseId, RoomId, WallTime};

use crate::clock::Clock;
use crate::hub::{Hub, News, WRITE_BEHIND};
use crate::liveness::Watch;
use crate::place::{RoomMap, Surroundings};
use crate::stick::resolution::Resolution;
use crate::stick::{Grant, Moment, Room, Waiting, membership, turn};
use crate::store::kept::Kept;
use crate::store::rooms::Live;
use crate::store::{Store, idempotency, rooms};

/// How long after a failure time is looked at again.
const AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Rooms(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    hub: Hub,
    clock: Clock,
    watch: Watch,
    policy: Policy,
    began: WallTime,
    kept: Kept,
    map: RoomMap,
}

/// What a command left to be told once it is committed.
#[derive(Debug)]
struct Aftermath {
    room_id: RoomId,
    told: Vec<(AgentId, Wait)>,
    deadline: Option<WallTime>,
    events: Vec<Event>,
    /// Whose inboxes there is news for.
    recipients: Vec<AgentId>,
    /// The processes that stand for members from now on.
    anchors: Vec<Anchor>,
    /// Where the room is, if it is new.
    created: Option<PathBuf>,
    deleted: bool,
    /// The room as it is now, to be kept.
    room: Option<Room>,
}

/// Who commands, and the key under which a repeated command is recognised.
#[derive(Debug, Clone)]
pub struct Commander {
    pub identity: Identity,
    pub idempotency_key: Option<String>,
}

impl Rooms {
    pub fn new(store: Store, clock: Clock, watch: Watch, policy: Policy) -> Self {
        let (began, hub, kept, map) = (clock.now(), Hub::default(), Kept::default(), RoomMap::default());
        Self(Arc::new(Inner { store, hub, clock, watch, policy, began, kept, map }))
    }

    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub fn hub(&self) -> &Hub {
        &self.0.hub
    }

    pub fn map(&self) -> &RoomMap {
        &self.0.map
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Notes a sign of life. Costs no disk.
    pub fn seen(&self, agent: &AgentId) {
        self.0.hub.presence.seen(agent, self.0.clock.now());
    }

    /// Runs a member's command. `rule` decides and may make the command's grant; `answer` makes the reply of what it
    /// decided, the room as it is then, and the events that were appended.
    pub async fn command<X, T>(
        &self,
        room_id: &RoomId,
        by: Commander,
        rule: impl FnOnce(&mut Room, &Moment, &Connection) -> Result<(X, Option<Grant>), Error> + Send + 'static,
        answer: impl FnOnce(X, &Room, &[Event]) -> T + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.command_with(room_id, by, rule, |decided, room, events, _| Ok(answer(decided, room, events))).await
    }

    /// The same for a command whose reply needs more rows written or read, in the same transaction.
    pub async fn command_with<X, T>(
        &self,
        room_id: &RoomId,
        by: Commander,
        rule: impl FnOnce(&mut Room, &Moment, &Connection) -> Result<(X, Option<Grant>), Error> + Send + 'static,
        answer: impl FnOnce(X, &Room, &[Event], &Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let (this, room_id) = (self.clone(), room_id.clone());
        self.write(move |connection, aftermath| {
            let wall = this.0.clock.wall();
            let Commander { identity, idempotency_key } = by;
            idempotency::once(connection, &identity.agent_id, idempotency_key.as_deref(), wall, || {
                this.execute(connection, &room_id, Some(&identity), aftermath, rule, answer)
            })
        })
        .await
    }

    /// Runs a command that no member gave: time passed, or a process ended.
    async fn happen(
        &self,
        room_id: &RoomId,
        rule: impl FnOnce(&mut Room, &Moment) + Send + 'static,
    ) -> Result<(), Error> {
        let (this, room_id) = (self.clone(), room_id.clone());
        self.write(move |connection, aftermath| {
            let rule = |room: &mut Room, moment: &Moment, _: &Connection| {
                rule(room, moment);
                Ok(((), None))
            };
            this.execute(connection, &room_id, None, aftermath, rule, |(), _, _, _| Ok(()))
        })
        .await
    }

    /// Makes the caller a member of the room its path belongs to, creating that room if there is none.
    pub async fn join<T>(
        &self,
        by: Commander,
        around: Surroundings,
        force_new: bool,
        display_name: Option<String>,
        answer: impl FnOnce(Resolution, &Room, &[Event], &Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let this = self.clone();
        self.write(move |connection, aftermath| {
            let wall = this.0.clock.wall();
            let Commander { identity, idempotency_key } = by;
            idempotency::once(connection, &identity.agent_id, idempotency_key.as_deref(), wall, || {
                let resolution = around.resolve(connection, force_new);
                let (room_id, created) = match rooms::at_path(connection, &resolution.path)? {
                    Some(room_id) => (room_id, None),
                    None => {
                        let room_id = rooms::create(connection, &resolution.path.to_string_lossy(), wall)?;
                        (room_id, Some(resolution.path.clone()))
                    }
                };
                let rule = |room: &mut Room, moment: &Moment, _: &Connection| {
                    membership::join(room, &identity, display_name.as_deref(), moment)?;
                    Ok(((), None))
                };
                let answer = |(), room: &Room, events: &[Event], connection: &Connection| {
                    answer(resolution, room, events, connection)
                };
                let joined = this.execute(connection, &room_id, None, aftermath, rule, answer)?;
                aftermath.iter_mut().for_each(|aftermath| aftermath.created = created.clone());
                Ok(joined)
            })
        })
        .await
    }

    /// Load, decide, write. On the writer thread.
    fn execute<X, T>(
        &self,
        connection: &Connection,
        room_id: &RoomId,
        caller: Option<&Identity>,
        aftermath: &mut Option<Aftermath>,
        rule: impl FnOnce(&mut Room, &Moment, &Connection) -> Result<(X, Option<Grant>), Error>,
        answer: impl FnOnce(X, &Room, &[Event], &Connection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let inner = &self.0;
        let moment = Moment { now: inner.clock.now(), fresh_lease: LeaseId::fresh() };
        let rule = |room: &mut Room, moment: &Moment| rule(room, moment, connection);
        let before = match inner.kept.take(room_id, inner.store.epoch()) {
            Some(mut room) => {
                rooms::enliven(&mut room, self);
                room
            }
            None => rooms::load(connection, room_id, self)?,
        };
        let decision = decide(connection, before, caller, &moment, inner.clock.wall(), rule)?;
        let after = &decision.after;
        let reply = answer(decision.decided, after, &decision.events, connection)?;
        let told = told(&decision.before, after, decision.grant.as_ref(), moment.now);
        *aftermath = Some(Aftermath {
            room_id: room_id.clone(),
            told: told.into_iter().map(|(agent, wait)| (agent, for_people(wait, &inner.clock))).collect(),
            deadline: next_deadline(after, moment.now),
            recipients: recipients(after, &decision.events),
            anchors: new_anchors(&decision.before, after),
            created: None,
            deleted: after.deleted,
            events: decision.events,
            room: Some(decision.after),
        });
        Ok(reply)
    }

    /// Runs a write and, once it is committed, tells the hub what came of it. Commits are told in their order.
    async fn write<T, F>(&self, command: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection, &mut Option<Aftermath>) -> Result<T, Error> + Send + 'static,
    {
        let (this, keeping) = (self.clone(), self.clone());
        let command = move |connection: &Connection| {
            let mut aftermath = None;
            keeping.0.map.follow(keeping.0.store.epoch(), || rooms::paths(connection));
            let answer = command(connection, &mut aftermath)?;
            // From here on nothing but the transaction as a whole can fail.
            if let Some(room) = aftermath.as_mut().and_then(|aftermath| aftermath.room.take()) {
                keeping.0.kept.put(room, keeping.0.store.epoch());
            }
            Ok((answer, aftermath))
        };
        let after = move |(_, aftermath): &mut (T, Option<Aftermath>)| {
            if let Some(aftermath) = aftermath.take() {
                this.publish(aftermath);
            }
        };
        self.0.store.write_then(command, after).await.map(|(answer, _)| answer)
    }

    fn publish(&self, aftermath: Aftermath) {
        let hub = &self.0.hub;
        if let Some(path) = aftermath.created {
            self.0.map.add(path, aftermath.room_id.clone());
        }
        if aftermath.deleted {
            self.0.map.remove(&aftermath.room_id);
        }
        hub.deadlines.set(&aftermath.room_id, aftermath.deadline);
        // Only now: what ends before the commit would be looked for in vain.
        aftermath.anchors.iter().for_each(|anchor| self.0.watch.begin(anchor));
        for (agent, answer) in aftermath.told {
            hub.waiters.tell(&aftermath.room_id, &agent, answer);
        }
        for agent in aftermath.recipients {
            hub.inbox.arrived(&(aftermath.room_id.clone(), agent));
        }
        let deleted = aftermath.deleted.then_some(News::Deleted);
        let news = aftermath.events.into_iter().map(|event| News::Event(Arc::new(event))).chain(deleted);
        hub.subscribers.publish(&aftermath.room_id, news);
    }

    /// Looks at a room without changing it, as it is after the last commit.
    pub async fn look<T: Send + 'static>(
        &self,
        room_id: &RoomId,
        view: impl FnOnce(&Room, &Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (this, room_id) = (self.clone(), room_id.clone());
        self.0.store.read(move |connection| view(&rooms::load(connection, &room_id, &this)?, connection)).await
    }

    /// Keeps the promises that time makes: deadlines, exits of processes, presence written behind. Never returns.
    pub async fn run(self, mut exits: UnboundedReceiver<Anchor>) {
        let deadlines = async {
            loop {
                for room_id in self.0.hub.deadlines.next(&self.0.clock).await {
                    self.tick(&room_id).await;
                }
            }
        };
        let exits = async {
            while let Some(anchor) = exits.recv().await {
                self.process_ended(anchor).await;
            }
            std::future::pending::<()>().await;
        };
        let write_behind = async {
            loop {
                self.0.hub.presence.changed().await;
                self.write_presence().await;
                self.tidy_up().await;
            }
        };
        let catch_up = async {
            self.catch_up().await;
            std::future::pending::<()>().await;
        };
        tokio::join!(deadlines, exits, write_behind, catch_up);
    }

    /// What happened while no daemon ran: processes that ended, deadlines that passed, rooms nobody came back to.
    async fn catch_up(&self) {
        let found = self.0.store.read(move |connection| {
            let mut found = rooms::inhabited(connection)?;
            found.extend(rooms::engaged(connection)?);
            found.sort();
            found.dedup();
            Ok(found)
        });
        for room_id in found.await.inspect_err(|e| tracing::error!("catching up: {e}")).unwrap_or_default() {
            self.tick(&room_id).await;
        }
        self.tidy_up().await;
    }

    /// Forgets what nobody will ask for again: old answers, and rooms left alone.
    async fn tidy_up(&self) {
        let wall = self.0.clock.wall();
        let forget = self.0.store.write(move |connection| idempotency::forget(connection, wall));
        log_failure("forgetting old answers", forget.await);
        // Whichever clock is behind: no leap of the wall clock takes a room away.
        let (policy, now) = (self.0.policy.clone(), wall.min(self.0.clock.now()));
        let untouched = self.0.store.read(move |connection| rooms::untouched(connection, &policy, now)).await;
        for room_id in untouched.inspect_err(|e| tracing::error!("tidying up: {e}")).unwrap_or_default() {
            self.purge(room_id).await;
        }
    }

    async fn tick(&self, room_id: &RoomId) {
        self.or_again(room_id, "a deadline", self.happen(room_id, turn::tick).await);
    }

    async fn process_ended(&self, anchor: Anchor) {
        let found = self.0.store.read(move |connection| rooms::of_process(connection, &anchor)).await;
        for room_id in found.inspect_err(|e| tracing::error!("the end of a process: {e}")).unwrap_or_default() {
            let rule = |room: &mut Room, _: &Moment| membership::processes_exited(room);
            self.or_again(&room_id, "the end of a process", self.happen(&room_id, rule).await);
        }
    }

    /// What the disk refused is tried again: nobody else will come by and ask.
    fn or_again(&self, room_id: &RoomId, what: &str, done: Result<(), Error>) {
        if done.as_ref().is_err_and(|e| e.code != ErrorCode::RoomNotFound) {
            self.0.hub.deadlines.set(room_id, Some(self.0.clock.now() + AGAIN));
        }
        log_failure(what, done);
    }

    /// Takes away a room that has been left alone, if truly nobody is in it.
    async fn purge(&self, room_id: RoomId) {
        log_failure("purging a room", self.happen(&room_id, membership::purge).await);
    }

    /// Writes down who was seen when.
    pub async fn write_presence(&self) {
        let unwritten = self.0.hub.presence.take_unwritten();
        let write =
            self.0.store.write(move |connection| rooms::write_presence(connection, &unwritten.seen, &unwritten.waited));
        log_failure("writing presence", write.await);
    }

    /// Whether somebody who is there holds the stick somewhere, or has it reserved.
    pub async fn anyone_holds(&self) -> bool {
        let this = self.clone();
        let held = self.0.store.read(move |connection| {
            for room_id in rooms::engaged(connection)? {
                let room = rooms::load(connection, &room_id, &this)?;
                if room.held_by().is_some_and(|member| member.liveness != Liveness::Gone) {
                    return Ok(true);
                }
            }
            Ok(false)
        });
        held.await.unwrap_or(true)
    }
}

fn log_failure(what: &str, result: Result<(), Error>) {
    match result {
        // A room that went away in the meantime has no deadlines.
        Err(e) if e.code != ErrorCode::RoomNotFound => tracing::error!("{what}: {e}"),
        Ok(()) | Err(_) => {}
    }
}

/// What came of a command: the room before and after, the grant it made, and the events it appended.
#[derive(Debug)]
pub struct Decision<X> {
    pub decided: X,
    pub before: Room,
    pub after: Room,
    pub grant: Option<Grant>,
    pub events: Vec<Event>,
}

/// Decide and write: every change of a room, whoever drives it. Inside a savepoint of the caller, who rolls it back on
/// an error.
pub fn decide<X>(
    connection: &Connection,
    before: Room,
    caller: Option<&Identity>,
    moment: &Moment,
    wall: WallTime,
    rule: impl FnOnce(&mut Room, &Moment) -> Result<(X, Option<Grant>), Error>,
) -> Result<Decision<X>, Error> {
    let mut room = before.clone();
    if let Some(caller) = caller.filter(|caller| membership::arrives(&room, caller)) {
        membership::join(&mut room, caller, None, moment)?;
    }
    let (decided, grant) = rule(&mut room, moment)?;
    let grant = grant.or_else(|| turn::settle(&mut room, moment));
    let events = rooms::save(connection, &before, &room, wall)?;
    room.written(events.iter().map(|event| event.event_seq));
    Ok(Decision { decided, before, after: room, grant, events })
}

/// Whom a command concerns of those who waited, and what ends their wait.
pub fn told(before: &Room, after: &Room, grant: Option<&Grant>, now: WallTime) -> Vec<(AgentId, Wait)> {
    let answer = |agent: &AgentId| match grant {
        _ if after.deleted => Some(Wait::ended(WaitStatus::Removed, after.turn_id)),
        Some(grant) if grant.agent_id == *agent => Some(turn::your_turn(after, grant.reason)),
        _ => turn::standing(after, agent, now),
    };
    let waiting = before.members().filter(|m| m.waiting != Waiting::No);
    waiting.filter_map(|m| Some((m.agent_id.clone(), answer(&m.agent_id)?))).collect()
}

/// The anchors members did not have before.
fn new_anchors(before: &Room, after: &Room) -> Vec<Anchor> {
    let changed = after.members.iter().enumerate().filter(|(index, member)| {
        before.members.get(*index).is_none_or(|known| !Arc::ptr_eq(known, member) && known.anchor != member.anchor)
    });
    changed.filter_map(|(_, member)| member.anchor.clone()).collect()
}

/// Whose inboxes there is news for.
fn recipients(room: &Room, events: &[Event]) -> Vec<AgentId> {
    let mut found = Vec::new();
    for event in events {
        match (event.event_type, &event.to_agent_id) {
            (EventType::MessageSent, Some(to)) => found.push(to.clone()),
            (EventType::MessageSent, None) => found.extend(room.members().map(|m| m.agent_id.clone())),
            // Whoever listens for a member that was removed listens in vain and is told so.
            (EventType::MemberLeft, _) => found.extend(event.from_agent_id.clone()),
            _ => {}
        }
    }
    found
}

/// When to look at the room again though nobody asked.
pub fn next_deadline(room: &Room, now: WallTime) -> Option<WallTime> {
    if room.deleted { None } else { room.next_deadline(now) }
}

/// Deadlines leave the daemon as times of day.
pub fn for_people(mut wait: Wait, clock: &Clock) -> Wait {
    wait.lease_expires_at = wait.lease_expires_at.map(|at| clock.to_wall(at));
    wait
}

impl Live for Rooms {
    fn waiting(&self, room_id: &RoomId, agent_id: &AgentId) -> Waiting {
        self.0.hub.waiters.waiting(room_id, agent_id)
    }

    fn last_seen(&self, agent_id: &AgentId) -> Option<WallTime> {
        self.0.hub.presence.last_seen(agent_id)
    }

    fn last_wait(&self, room_id: &RoomId, agent_id: &AgentId) -> Option<WallTime> {
        self.0.hub.presence.last_wait(room_id, agent_id)
    }

    fn liveness(&self, anchor: &Anchor) -> Liveness {
        self.0.watch.liveness(anchor)
    }

    fn doubt(&self) -> Duration {
        WRITE_BEHIND
    }

    fn began(&self) -> WallTime {
        self.0.began
    }

    fn policy(&self) -> &Policy {
        &self.0.policy
    }
}
