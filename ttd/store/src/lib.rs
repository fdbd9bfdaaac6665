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
use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::event::Event;
use tt_proto::filter::Filter;
use tt_proto::hello::Anchor;
use tt_proto::message::{InboxRoom, Unread};
use tt_proto::note::Note;
use tt_proto::page::{JsonSize, PageSize};
use tt_proto::policy::Policy;
use tt_proto::room::{RoomSize, RoomSummary};
use tt_proto::{AgentId, Error, ErrorCode, NoteId, ReminderId, RoomId, WallTime};
use tt_rules::{DeadlineTime, Decision, DeliveryRow, LeaseTime, Needs, Now, Overview, ReminderRow, Room, Rows};

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
    Presence {
        seen: Vec<(AgentId, LeaseTime)>,
        waited: Vec<(RoomId, AgentId, LeaseTime)>,
    },
    /// Forget the answers of requests that were made before this.
    ForgetAnswers {
        before: LeaseTime,
    },
    /// Give back a part of the space that deleted rows left behind.
    ReclaimSpace,
    /// Add the next events to the full-text index, at most this many.
    IndexEvents {
        limit: usize,
    },
    /// Store sessions as they are now, all or none.
    SaveSessions(Vec<StoredSession>),
    ForgetSession {
        harness: String,
        session_id: String,
    },
}

/// A session of a harness, as far as a later daemon has to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSession {
    pub harness: String,
    pub session_id: String,
    pub agent_id: AgentId,
    pub processes: Vec<Anchor>,
    pub server: Option<Anchor>,
    pub cwd: Option<String>,
    pub transcript_path: Option<String>,
    pub opened_at: LeaseTime,
    pub ended_at: Option<LeaseTime>,
    pub left_at: Option<LeaseTime>,
    pub followed_by: Option<String>,
    pub guessed_from: Option<String>,
    pub orphaned: bool,
    pub shares_process: bool,
    /// Since when it goes on as the member of an earlier conversation, without having been told which turn it holds.
    pub untold_since: Option<LeaseTime>,
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

    /// How much is stored of a room. Reads all of it.
    fn room_size(&self, room_id: &RoomId) -> Result<RoomSize, Error>;

    fn overview(&self, room_id: &RoomId) -> Result<Overview, Error>;

    /// When a turn was granted, as far as the log tells.
    fn turn_started_at(&self, room_id: &RoomId, turn_id: i64) -> Result<Option<WallTime>, Error>;

    /// The events of a room after a cursor that match, oldest first; at most `limit`, and no more than a response can hold.
    fn events(&self, room_id: &RoomId, cursor: i64, limit: usize, filter: &Filter) -> Result<Vec<Event>, Error>;

    /// The newest events of a room that match, oldest first, and how many older ones do. Finds words in events that are not in
    /// the index yet as well.
    fn newest_events(&self, room_id: &RoomId, query: &EventQuery) -> Result<NewestEvents, Error>;

    /// Whether events wait to be added to the full-text index.
    fn has_unindexed_events(&self) -> Result<bool, Error>;

    /// The events of a room whose id begins with this; no more than two.
    fn events_by_id(&self, room_id: &RoomId, prefix: &str) -> Result<Vec<Event>, Error>;

    /// Events by their numbers. Those that do not exist are left out.
    fn events_by_seq(&self, event_seqs: &[i64]) -> Result<Vec<Event>, Error>;

    /// Which of these messages nobody was handed, and nobody will be: whether they expired or were withdrawn.
    fn undelivered(&self, event_seqs: &[i64]) -> Result<Vec<(i64, DeliveryState)>, Error>;

    /// The number of the newest event of a room, or of all rooms; 0 before the first.
    fn newest_event(&self, room_id: Option<&RoomId>) -> Result<i64, Error>;

    /// The numbers of the oldest open deliveries to a member, at most `limit`.
    fn inbox(&self, room_id: &RoomId, recipient: &AgentId, limit: usize) -> Result<Vec<i64>, Error>;

    /// The rooms in which messages wait for a member that has not left them, at most `limit`.
    fn inbox_rooms(&self, recipient: &AgentId, limit: usize) -> Result<Page<InboxRoom>, Error>;

    /// The messages that wait for each member of each room.
    fn unread(&self) -> Result<Vec<(RoomId, AgentId, Unread)>, Error>;

    /// How a message stands with its recipients, at most `limit` of them.
    fn recipients(&self, room_id: &RoomId, event_seq: i64, limit: usize) -> Result<Vec<StoredDelivery>, Error>;

    /// What waits in a room, oldest first.
    fn waiting(&self, room_id: &RoomId, query: &WaitingQuery) -> Result<Vec<StoredDelivery>, Error>;

    /// The deliveries to which something happens by itself, each with the moment.
    fn due_deliveries(&self) -> Result<Vec<(RoomId, i64, AgentId, DeadlineTime)>, Error>;

    /// The deliveries whose hand-over has begun and cannot be recalled, in the order of the log.
    fn attempts(&self) -> Result<Vec<(RoomId, DeliveryRow)>, Error>;

    /// The open deliveries to a member that no hand-over holds, in the order of the log.
    fn open_deliveries(
        &self,
        room_id: &RoomId,
        recipient: &AgentId,
        wanted: &OpenQuery,
    ) -> Result<Vec<DeliveryRow>, Error>;

    /// The reminders that a member set in a room, and those for it; the next one first, at most `limit`.
    fn reminders(&self, room_id: &RoomId, agent_id: &AgentId, limit: usize) -> Result<Vec<ReminderRow>, Error>;

    /// All reminders, each with the moment at which it is due.
    fn due_reminders(&self) -> Result<Vec<(RoomId, ReminderId, DeadlineTime)>, Error>;

    fn notes(&self, room_id: &RoomId, page: &NotePage) -> Result<Page<Note>, Error>;

    /// How many notes of a room are not resolved.
    fn open_notes(&self, room_id: &RoomId) -> Result<usize, Error>;

    /// The ids of the notes of a room that begin with this; no more than two.
    fn notes_by_id(&self, room_id: &RoomId, prefix: &str) -> Result<Vec<NoteId>, Error>;

    /// The rooms in which time may change something: those with an active member, a holder or a reservation.
    fn rooms_with_timers(&self) -> Result<Vec<RoomId>, Error>;

    /// The rooms in which the stick is held or reserved.
    fn rooms_in_use(&self) -> Result<Vec<RoomId>, Error>;

    /// The rooms in which a process is a member.
    fn rooms_of_process(&self, anchor: &Anchor) -> Result<Vec<RoomId>, Error>;

    /// The rooms of which an agent is a member that has not left.
    fn rooms_of_agent(&self, agent_id: &AgentId) -> Result<Vec<RoomId>, Error>;

    /// The rooms in which an agent holds the stick, and its turn in each.
    fn turns_held_by(&self, agent_id: &AgentId) -> Result<Vec<(RoomId, i64)>, Error>;

    /// The rooms in which nothing was ever written and nothing has happened for their `idle_room_ttl`.
    fn untouched_rooms(&self, policy: &Policy, now: WallTime) -> Result<Vec<RoomId>, Error>;

    /// Whether the store has so much free space that [`Maintenance::ReclaimSpace`] would make it smaller.
    fn has_free_space(&self) -> Result<bool, Error>;

    /// All sessions.
    fn sessions(&self) -> Result<Vec<StoredSession>, Error>;

    /// The newest migration of the database.
    fn schema(&self) -> Result<i64, Error>;
}

/// Which open deliveries of a member are wanted: of the oldest, of the urgent ones, and of those that may wake it on each account,
/// at most so many each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenQuery {
    pub limit: usize,
    /// Without those for later.
    pub mid_turn: bool,
    /// Only those with fewer hand-overs of which nothing showed that they arrived.
    pub max_attempts: Option<u32>,
}

impl OpenQuery {
    /// Any, at most so many of each kind.
    pub fn of(limit: usize) -> Self {
        Self { limit, mid_turn: false, max_attempts: None }
    }
}

/// A delivery with what readers want to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDelivery {
    /// Without an excerpt.
    pub row: DeliveryRow,
    pub surface: Option<Surface>,
    /// When it left `pending`.
    pub delivered_at: Option<WallTime>,
    pub answered_by: Option<i64>,
    pub is_late: bool,
}

/// Which waiting deliveries to list.
#[derive(Debug, Clone, Default)]
pub struct WaitingQuery {
    /// Of this member only.
    pub recipient: Option<AgentId>,
    /// Questions that are not over, also those that were handed over, and nothing else.
    pub questions: bool,
    pub limit: usize,
}

/// Which of the newest events of a room to find.
#[derive(Debug, Clone)]
pub struct EventQuery {
    /// Only events before this one.
    pub before: Option<i64>,
    pub limit: usize,
    pub filter: Filter,
}

/// The newest events that were asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewestEvents {
    pub events: Vec<Event>,
    /// How many older ones match.
    pub earlier: usize,
    /// Whether there are more than `earlier`, which were not counted.
    pub earlier_is_more: bool,
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
