//! What the console asks of the daemon, and what it is told.

use tt_proto::delivery::{DeliveryChanged, Recipient};
use tt_proto::event::Event;
use tt_proto::message::DeliveryHint;
use tt_proto::note::Note;
use tt_proto::policy::Guard;
use tt_proto::requests::{EventPage, RoomState};
use tt_proto::room::{Member, RoomSummary};
use tt_proto::{AgentId, NoteId, RoomId};

/// A question to the daemon, or something that it is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Lists the rooms, and follows those that are new.
    Rooms,
    /// Looks at a room again.
    Look(RoomId),
    /// Shows the newest events of a room, its notes and the names of its members, and follows its deliveries.
    Open(RoomId),
    Before {
        room: RoomId,
        seq: i64,
    },
    After {
        room: RoomId,
        seq: i64,
    },
    /// The events up to this one.
    Around {
        room: RoomId,
        seq: i64,
    },
    MessageStatus {
        room: RoomId,
        seq: i64,
    },
    Search {
        room: RoomId,
        words: String,
    },
    Inbox,
    Notes(RoomId),
    Do(RoomId, Deed),
    /// These messages were on the screen.
    Confirm {
        room: RoomId,
        seqs: Vec<i64>,
    },
}

/// Something that a person does in a room.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    Send(Letter),
    Reply { seq: i64, body: String },
    Withdraw { seq: i64 },
    Claim,
    TakeOver { turn: i64, reason: String, operator: bool },
    Kick { agent: AgentId, name: String },
    Guard(Guard),
    AddNote(String),
    ResolveNote(NoteId),
    Remind { to: Option<String>, in_ms: u64, body: String },
}

/// A message that is to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Letter {
    /// Whom it goes to, by what people type: each gets a message of its own.
    pub to: Vec<String>,
    pub body: String,
    pub hint: DeliveryHint,
    pub is_question: bool,
}

/// What the console is told.
#[derive(Debug)]
pub enum Update {
    /// There is a connection, and this is who we are.
    Connected {
        me: AgentId,
        name: String,
    },
    /// There is none, and why.
    Disconnected(String),
    /// All rooms.
    Rooms(Vec<RoomSummary>),
    RoomDeleted(RoomId),
    /// A room as it is now, and the questions to us in it that are not answered.
    State {
        room: RoomId,
        state: Box<RoomState>,
        questions: Vec<i64>,
    },
    Opened {
        room: RoomId,
        page: Box<EventPage>,
        members: Vec<Member>,
        notes: Vec<Note>,
    },
    Before {
        room: RoomId,
        seq: i64,
        page: Box<EventPage>,
    },
    After {
        room: RoomId,
        seq: i64,
        page: Box<EventPage>,
    },
    Around {
        room: RoomId,
        seq: i64,
        page: Box<EventPage>,
    },
    Event {
        room: RoomId,
        event: Box<Event>,
    },
    Notes {
        room: RoomId,
        notes: Vec<Note>,
    },
    Delivery(Box<DeliveryChanged>),
    /// Changes of deliveries were missed.
    DeliveriesMissed(RoomId),
    Recipients {
        room: RoomId,
        seq: i64,
        recipients: Vec<Recipient>,
    },
    Found {
        room: RoomId,
        words: String,
        events: Vec<Event>,
    },
    Inbox(Vec<InboxLine>),
    /// A deed was done, and this came of it.
    Done(String),
    /// What was written has arrived.
    Sent(String),
    /// What was written did not arrive with these, and why.
    NotSent {
        error: String,
        to: Vec<String>,
    },
    /// Something was refused, and why.
    Refused(String),
}

/// A message that waits for us, or a question that we have not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxLine {
    pub room: RoomId,
    pub seq: i64,
    pub from: Option<AgentId>,
    pub at: tt_proto::WallTime,
    pub is_question: bool,
    pub excerpt: String,
}
