//! Where rooms are kept.
//!
//! A change goes through a [`UnitOfWork`]: the store loads the room and the rows it needs, lets it decide, saves the
//! decision, and commits. A unit may be run more than once before it is committed (another program changed the database,
//! or a neighbour in the same transaction failed), and only its last run counts. Queries go through a [`Reader`].
//!
//! [`Store`] is what an engine must offer; [`sqlite`] is the one there is. The suite in `conformance` is what any of them
//! must pass. No rule is decided here.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod sqlite;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{oneshot, watch};
use tt_proto::event::Event;
use tt_proto::filter::Filter;
use tt_proto::hello::Anchor;
use tt_proto::message::InboxRoom;
use tt_proto::note::Note;
use tt_proto::page::{JsonSize, PageSize};
use tt_proto::policy::Policy;
use tt_proto::room::RoomSummary;
use tt_proto::{AgentId, Error, ErrorCode, NoteId, RoomId, WallTime};
use tt_rules::{DeadlineTime, Decision, LeaseTime, Needs, Now, Overview, Room, Rows};

/// Supplies the time. A store that is shared by several machines has a clock of its own.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    fn now(&self) -> Now;
}

/// A storage engine.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Queues a unit of work. Units are committed in the order in which they were queued.
    fn submit(&self, unit: Box<dyn UnitOfWork>);

    /// Queues maintenance that concerns no room's rules. The answer comes after its commit.
    fn maintain(&self, task: Maintenance) -> oneshot::Receiver<Result<(), Error>>;

    /// A look at the last commit. May block, so call it where blocking is allowed.
    fn reader(&self) -> Result<Box<dyn Reader + '_>, Error>;

    /// The room at the first of these paths that has one, if that is known without waiting.
    fn known_room_at(&self, paths: &mut dyn Iterator<Item = &Path>) -> Option<RoomId>;

    /// Fails if what is written would be lost: the database was removed, replaced or renamed while it was open. Every answer of
    /// this store is checked in the same way before it is given.
    fn check(&self) -> Result<(), Error>;

    /// Tells when [`Store::check`] has failed for good.
    fn lost(&self) -> watch::Receiver<Option<Error>>;

    /// Finishes what is queued and closes the database.
    fn close(&self);
}

/// One change, from loading to the answer.
pub trait UnitOfWork: Send {
    /// The paths whose rooms have to be known before [`UnitOfWork::locate`] can answer.
    fn candidates(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// The room this is about, given the rooms at its candidate paths.
    fn locate(&mut self, existing: &HashMap<PathBuf, RoomId>) -> Location;

    /// The key under which a repeated request is recognised. Only a unit that succeeded is remembered.
    fn key(&self) -> Option<&RequestKey> {
        None
    }

    fn needs(&self) -> Needs;

    /// Brings the room up to date with what is not stored, and decides. An error is a refusal: nothing is saved.
    fn decide(&mut self, loaded: Loaded<'_>) -> Result<Decision, Error>;

    /// Makes the answer, once the decision has been saved with these events. Returns it, in short, as JSON if it is to be kept
    /// under the key.
    fn answer(&mut self, decision: &mut Decision, events: &[Arc<Event>]) -> Result<Option<String>, Error>;

    /// The unit is committed. Called in the order of the commits.
    fn committed(self: Box<Self>);

    /// An earlier unit with the same key and request was committed, with this answer. One with the same key and another
    /// request is refused.
    fn repeated(self: Box<Self>, answer: String);

    /// The unit was refused, or could not be committed. Nothing of it was kept, except perhaps where the error is
    /// [`ErrorCode::OutcomeUnknown`]: then the same unit with the same key finds out.
    fn failed(self: Box<Self>, error: Error);
}

/// What a unit of work decides on.
#[derive(Debug)]
pub struct Loaded<'a> {
    pub room: &'a mut Room,
    pub rows: Rows,
    /// Whether the room was read from the database, not kept in memory since the last unit.
    pub from_disk: bool,
    pub now: Now,
}

/// Which room a unit of work is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Existing(RoomId),
    /// A room that the unit creates.
    New {
        room_id: RoomId,
        path: PathBuf,
    },
}

/// Recognises a repeated request of one caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestKey {
    pub agent_id: AgentId,
    pub idempotency_key: String,
    /// Differs between requests of another method or with other parameters.
    pub request_hash: String,
}

impl RequestKey {
    const MAX_BYTES: usize = 128;

    pub fn new(agent_id: &AgentId, idempotency_key: String, request_hash: String) -> Result<Self, Error> {
        if idempotency_key.is_empty() || idempotency_key.len() > Self::MAX_BYTES {
            return Err(Error::new(ErrorCode::InvalidInput, "an idempotency_key has 1 to 128 bytes"));
        }
        Ok(Self { agent_id: agent_id.clone(), idempotency_key, request_hash })
    }
}

/// Writes that no rule decides.
#[derive(Debug, Clone)]
pub enum Maintenance {
    /// Store when agents were last seen, and when they last waited in a room.
    Presence { seen: Vec<(AgentId, LeaseTime)>, waited: Vec<(RoomId, AgentId, LeaseTime)> },
    /// Forget the answers of requests that were made before this.
    ForgetAnswers { before: LeaseTime },
    /// Give back a part of the space that deleted rows left behind.
    ReclaimSpace,
}

/// Queries on the last commit.
pub trait Reader {
    /// A room with its members as they are stored.
    fn room(&self, room_id: &RoomId) -> Result<Room, Error>;

    fn room_exists(&self, room_id: &RoomId) -> Result<bool, Error>;

    /// The room at the first of these paths that has one.
    fn room_at(&self, paths: &mut dyn Iterator<Item = &Path>) -> Result<Option<RoomId>, Error>;

    /// A page of the rooms, by their paths.
    fn rooms(&self, page: &RoomPage) -> Result<Page<RoomSummary>, Error>;

    fn overview(&self, room_id: &RoomId) -> Result<Overview, Error>;

    /// When a turn was granted, as far as the log tells.
    fn turn_started_at(&self, room_id: &RoomId, turn_id: i64) -> Result<Option<WallTime>, Error>;

    /// The events of a room after a cursor that match, oldest first; at most `limit`, and no more than a response can hold.
    fn events(&self, room_id: &RoomId, cursor: i64, limit: usize, filter: &Filter) -> Result<Vec<Event>, Error>;

    /// Events by their numbers. Those that do not exist are left out.
    fn events_by_seq(&self, event_seqs: &[i64]) -> Result<Vec<Event>, Error>;

    /// The number of the newest event of a room, or of all rooms; 0 before the first.
    fn newest_event(&self, room_id: Option<&RoomId>) -> Result<i64, Error>;

    /// The numbers of the oldest open deliveries to a member, at most `limit`.
    fn inbox(&self, room_id: &RoomId, recipient: &AgentId, limit: usize) -> Result<Vec<i64>, Error>;

    /// The rooms in which messages wait for a member that has not left them, at most `limit`.
    fn inbox_rooms(&self, recipient: &AgentId, limit: usize) -> Result<Page<InboxRoom>, Error>;

    /// The messages that expire, each with its deadline.
    fn expiring(&self) -> Result<Vec<(RoomId, i64, DeadlineTime)>, Error>;

    fn notes(&self, room_id: &RoomId, page: &NotePage) -> Result<Page<Note>, Error>;

    /// The rooms in which time may change something: those with an active member, a holder or a reservation.
    fn rooms_with_timers(&self) -> Result<Vec<RoomId>, Error>;

    /// The rooms in which the stick is held or reserved.
    fn rooms_in_use(&self) -> Result<Vec<RoomId>, Error>;

    /// The rooms in which a process is a member.
    fn rooms_of_process(&self, anchor: &Anchor) -> Result<Vec<RoomId>, Error>;

    /// The rooms in which nothing has happened for their `idle_room_ttl`.
    fn untouched_rooms(&self, policy: &Policy, now: WallTime) -> Result<Vec<RoomId>, Error>;

    /// Whether the store has so much free space that [`Maintenance::ReclaimSpace`] would make it smaller.
    fn has_free_space(&self) -> Result<bool, Error>;

    /// The newest migration of the database.
    fn schema(&self) -> Result<i64, Error>;
}

/// Which notes of a room to list.
#[derive(Debug, Clone, Default)]
pub struct NotePage {
    pub after: Option<NoteId>,
    pub include_resolved: bool,
    pub limit: usize,
}

/// Which rooms to list.
#[derive(Debug, Clone, Default)]
pub struct RoomPage {
    /// Only this one.
    pub only: Option<RoomId>,
    /// Only those after the room with this path.
    pub after_path: Option<String>,
    pub limit: usize,
}

/// A part of a list that fits one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Whether the list goes on after the last item.
    pub more: bool,
}

impl<T: JsonSize> Page<T> {
    /// Takes items until there are `limit`, or as many as an answer can hold.
    pub fn of<E>(items: impl Iterator<Item = Result<T, E>>, limit: usize) -> Result<Self, E> {
        let (mut page, mut size) = (Vec::new(), PageSize::default());
        for item in items {
            let item = item?;
            if page.len() >= limit || !size.has_room() {
                return Ok(Self { items: page, more: true });
            }
            size.add(&item);
            page.push(item);
        }
        Ok(Self { items: page, more: false })
    }
}

/// The refusal for a room that does not exist.
pub fn room_not_found(room_id: &RoomId) -> Error {
    Error::new(ErrorCode::RoomNotFound, "there is no such room").detail("room_id", room_id.as_str())
}
