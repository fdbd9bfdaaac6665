//! Everything that can happen to a room, as data.

use std::collections::HashMap;

use tt_proto::delivery::Surface;
use tt_proto::handoff::RawJson;
use tt_proto::hello::Identity;
use tt_proto::message::DeliveryHint;
use tt_proto::note::Note;
use tt_proto::policy::PolicyOverrides;
use tt_proto::requests::{MAX_COUNTED, MAX_LISTED};
use tt_proto::{AgentId, LeaseId, NoteId, WallTime};

use crate::delivery::MAX_TAKE;
use crate::room::Waiting;
use crate::time::DeadlineTime;

/// One client connection, as far as the rules tell connections apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Who gives a command.
#[derive(Debug, Clone)]
pub struct Caller {
    pub identity: Identity,
    pub connection: ConnectionId,
}

impl Caller {
    pub fn agent_id(&self) -> &AgentId {
        &self.identity.agent_id
    }
}

/// A command with what is drawn for it once, so that a second run of it uses the same.
#[derive(Debug, Clone)]
pub struct Request {
    /// None when time passed or a process ended.
    pub caller: Option<Caller>,
    pub command: Command,
    /// The lease of the one turn a command can grant.
    pub fresh_lease: LeaseId,
}

impl Request {
    pub fn new(caller: Option<Caller>, command: Command) -> Self {
        Self { caller, command, fresh_lease: LeaseId::fresh() }
    }

    pub fn needs(&self) -> Needs {
        self.command.needs(self.caller.as_ref())
    }
}

/// To whom a message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipients {
    /// Every other active member.
    Room,
    Agent(AgentId),
    /// A member by the name people use.
    Named(String),
}

/// In which part of a call messages are taken, and what the caller must be for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeAccess {
    /// The call begins: the caller must be an active member, and one that counted as gone is back.
    Arriving,
    /// The call goes on: the caller must not have been removed.
    Staying,
    /// The call ends: what is open is handed over also to a member that was just removed.
    Leaving,
}

/// Everything that can happen to a room. The first group needs a caller; the last group happens by itself.
#[derive(Debug, Clone)]
pub enum Command {
    Join {
        display_name: Option<String>,
    },
    Leave,
    Kick {
        target: AgentId,
        force: bool,
        reason: Option<String>,
    },
    /// Start or repeat a wait.
    Wait {
        waiting: Waiting,
    },
    /// A wait ended without an answer: what is the answer now?
    EndWait,
    Heartbeat {
        lease_id: LeaseId,
        expected_turn_id: i64,
    },
    Release {
        lease_id: LeaseId,
        expected_turn_id: i64,
        handoff: RawJson,
    },
    Pass {
        lease_id: LeaseId,
        expected_turn_id: i64,
        to: AgentId,
        handoff: RawJson,
    },
    TakeOver {
        expected_turn_id: i64,
        reason: String,
        operator_override: bool,
    },
    SendMessage {
        to: Recipients,
        body: String,
        delivery_hint: DeliveryHint,
        /// Not handed over by then, it expires.
        expires_at: Option<DeadlineTime>,
    },
    /// Take what is in the caller's inbox and held by no other connection.
    TakeMessages {
        from: Option<AgentId>,
        /// With more than this waiting, the older ones are skipped.
        max_replay: Option<usize>,
        /// The newer ones past this stay.
        limit: usize,
        access: TakeAccess,
    },
    /// Messages were shown by a surface. Safe to repeat.
    ConfirmMessages {
        surface: Surface,
        event_seqs: Vec<i64>,
    },
    /// Messages that were taken will not be shown.
    ReturnMessages {
        event_seqs: Vec<i64>,
    },
    AddNote {
        note_id: NoteId,
        body: String,
        turn_id: Option<i64>,
    },
    ResolveNote {
        note_id: NoteId,
    },
    SetPolicy {
        overrides: PolicyOverrides,
    },

    /// Time has passed.
    Tick,
    /// A process of a member may have ended.
    ProcessExited,
    /// Nothing has happened here for long: delete the room if nobody lives in it.
    Purge,
    /// The deadline of a message has come.
    ExpireMessage {
        event_seq: i64,
    },
}

/// The rows a command needs besides the room and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// The oldest open deliveries to a member, at most `limit`. With `from`, only those of one sender.
    Inbox {
        recipient: AgentId,
        from: Option<AgentId>,
        limit: usize,
    },
    /// Of these messages, the open deliveries to a member.
    Deliveries {
        recipient: AgentId,
        event_seqs: Vec<i64>,
    },
    /// The open deliveries of one message.
    Message {
        event_seq: i64,
    },
    Note(NoteId),
    PolicyOverrides,
    Overview,
}

/// The rows a command asked for.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub deliveries: Vec<OpenDelivery>,
    pub note: Option<Note>,
    pub policy_overrides: PolicyOverrides,
    pub overview: Option<Overview>,
}

/// A message that no surface has handed over to this recipient yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenDelivery {
    pub event_seq: i64,
    pub recipient: AgentId,
    pub expires_at: Option<DeadlineTime>,
    /// The connection that has taken it and not yet confirmed it. Not stored.
    pub held_by: Option<ConnectionId>,
}

/// Facts about a room that its row does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// How many messages wait for each member that has any.
    pub unread: HashMap<AgentId, usize>,
    /// The number of the newest event; 0 before the first.
    pub newest_event_seq: i64,
    /// When something last happened here.
    pub updated_at: WallTime,
}

impl Command {
    pub fn needs(&self, caller: Option<&Caller>) -> Needs {
        let recipient = || caller.map(|caller| caller.agent_id().clone());
        match self {
            Command::TakeMessages { from, max_replay, .. } => match recipient() {
                Some(recipient) => {
                    let skipped = max_replay.map_or(0, |max| max.saturating_add(MAX_LISTED));
                    let limit = skipped.saturating_add(MAX_TAKE + MAX_COUNTED);
                    Needs::Inbox { recipient, from: from.clone(), limit }
                }
                None => Needs::Nothing,
            },
            Command::ConfirmMessages { event_seqs, .. } | Command::ReturnMessages { event_seqs } => match recipient() {
                Some(recipient) => Needs::Deliveries { recipient, event_seqs: event_seqs.clone() },
                None => Needs::Nothing,
            },
            Command::ExpireMessage { event_seq } => Needs::Message { event_seq: *event_seq },
            Command::ResolveNote { note_id } => Needs::Note(note_id.clone()),
            Command::SetPolicy { .. } => Needs::PolicyOverrides,
            Command::Join { .. } => Needs::Overview,
            Command::Leave
            | Command::Kick { .. }
            | Command::Wait { .. }
            | Command::EndWait
            | Command::Heartbeat { .. }
            | Command::Release { .. }
            | Command::Pass { .. }
            | Command::TakeOver { .. }
            | Command::SendMessage { .. }
            | Command::AddNote { .. }
            | Command::Tick
            | Command::ProcessExited
            | Command::Purge => Needs::Nothing,
        }
    }
}
