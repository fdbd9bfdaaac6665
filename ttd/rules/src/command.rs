//! Everything that can happen to a room, as data.

use std::collections::HashMap;
use std::time::Duration;

use tt_proto::delivery::Surface;
use tt_proto::handoff::RawJson;
use tt_proto::hello::Identity;
use tt_proto::message::DeliveryHint;
use tt_proto::note::Note;
use tt_proto::policy::PolicyOverrides;
use tt_proto::requests::{MAX_COUNTED, MAX_LISTED};
use tt_proto::{AgentId, LeaseId, NoteId, ReminderId, WallTime};

use crate::attempts::Handled;
use crate::delivery::{DeliveryRow, MAX_TAKE, MessageRow};
use crate::guard::{GiveBackCause, GuardedAction};
use crate::reminders::ReminderRow;
use crate::room::Waiting;

/// One client connection, as far as the rules tell connections apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Who gives a command.
#[derive(Debug, Clone)]
pub struct Caller {
    pub identity: Identity,
    pub connection: ConnectionId,
    /// A command that only a member may give makes this caller a member too, unless it is refused.
    pub joins: bool,
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
    /// Every other member that is active or away.
    Room,
    Agent(AgentId),
    /// A member by the name people use.
    Named(String),
}

/// What a sender wants of a message beyond its words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// The message it replies to. It goes to the sender of that one.
    pub reply_to: Option<i64>,
    /// It is a question.
    pub expects_reply: bool,
    /// Not handed over in this time, it expires; not answered in this time, a question is over.
    pub timeout: Option<Duration>,
    pub notify_on_delivery: bool,
    /// Tell the sender if there is no answer this long after it was handed over.
    pub notify_after: Option<Duration>,
}

/// A reminder that a member sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewReminder {
    pub reminder_id: ReminderId,
    pub body: String,
    /// A member by the name people use; the caller if absent.
    pub to: Option<String>,
    pub delay: Duration,
    pub every: Option<Duration>,
    pub times: u32,
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
    /// Delete the room, unless another member is there.
    Delete,
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
        /// The caller is a person at a terminal, as far as its processes show.
        from_person: bool,
        options: SendOptions,
    },
    /// Take a message back from those who have not been handed it.
    WithdrawMessage {
        event_seq: i64,
    },
    /// Take what is in the caller's inbox and held by no other connection. A person holds nothing, and is shown everything.
    TakeMessages {
        from: Option<AgentId>,
        /// Only what concerns this question of the caller.
        about: Option<i64>,
        /// Only these.
        among: Option<Vec<i64>>,
        /// The caller works: what is for later stays.
        mid_turn: bool,
        /// With more than this waiting, the older ones are skipped.
        max_replay: Option<usize>,
        /// The others past this stay: the most urgent are taken first, and of those the oldest.
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
    /// Nothing wakes the caller for this long; without a time, it may be woken again.
    SetQuiet {
        lasts: Option<Duration>,
    },
    /// The caller is about to change files, or to commit or push them. What the guard says to that is the reply.
    CheckGuard {
        action: GuardedAction,
        /// The caller goes on in any case, and says so.
        is_overridden: bool,
    },
    AddReminder(NewReminder),
    CancelReminder {
        reminder_id: ReminderId,
    },

    /// A holder is done with what it was given the stick for, or does not know of it any more.
    GiveBack {
        agent_id: AgentId,
        /// The turn that it was about. A later one of the same holder is not given back.
        turn_id: i64,
        cause: GiveBackCause,
    },
    /// Time has passed.
    Tick,
    /// A process of a member may have ended.
    ProcessExited,
    /// Nothing has happened here for long: delete the room if it is empty and nobody lives in it.
    Purge,
    /// Something about a message is due: its deadline, or the moment of a notice.
    DeliveryDue {
        event_seq: i64,
    },
    ReminderDue {
        reminder_id: ReminderId,
    },
    /// Messages are about to be handed to a member by a way that cannot be recalled.
    BeginAttempt {
        recipient: AgentId,
        event_seqs: Vec<i64>,
        surface: Surface,
        tag: String,
    },
    /// It is known what became of that.
    EndAttempt {
        recipient: AgentId,
        event_seqs: Vec<i64>,
        tag: String,
        handled: Handled,
    },
}

/// The rows a command needs besides the room and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// The oldest open deliveries to a member, at most `limit`. With `from`, only those of one sender; with `about`, only replies
    /// to that message, notices about it, and questions of its recipients.
    Inbox {
        recipient: AgentId,
        from: Option<AgentId>,
        about: Option<i64>,
        /// Without those for later, however many there are.
        mid_turn: bool,
        limit: usize,
    },
    /// Of these messages, the open deliveries to a member.
    Deliveries {
        recipient: AgentId,
        event_seqs: Vec<i64>,
    },
    /// One message with all of its deliveries.
    Message {
        event_seq: i64,
    },
    /// One message, and its delivery to a member.
    RepliedTo {
        event_seq: i64,
        recipient: AgentId,
    },
    /// The deliveries of questions that are not over.
    Questions,
    /// How many reminders a member has set.
    ReminderCount(AgentId),
    Reminder(ReminderId),
    Note(NoteId),
    PolicyOverrides,
    Overview,
    /// Whether anything was written in the room.
    Contents,
}

/// The rows a command asked for.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub deliveries: Vec<DeliveryRow>,
    pub message: Option<MessageRow>,
    pub reminder: Option<ReminderRow>,
    pub reminder_count: usize,
    pub note: Option<Note>,
    pub policy_overrides: PolicyOverrides,
    pub overview: Option<Overview>,
    /// Whether there is a message, a note or a handoff in the room.
    pub has_contents: bool,
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
        let me = || caller.map(|caller| caller.agent_id().clone());
        let of_caller = |needs: &dyn Fn(AgentId) -> Needs| me().map_or(Needs::Nothing, needs);
        match self {
            Command::TakeMessages { among: None, from, about, mid_turn, max_replay, .. } => of_caller(&|recipient| {
                let skipped = max_replay.map_or(0, |max| max.saturating_add(MAX_LISTED));
                let limit = skipped.saturating_add(MAX_TAKE + MAX_COUNTED);
                Needs::Inbox { recipient, from: from.clone(), about: *about, mid_turn: *mid_turn, limit }
            }),
            Command::ConfirmMessages { event_seqs, .. }
            | Command::ReturnMessages { event_seqs }
            | Command::TakeMessages { among: Some(event_seqs), .. } => {
                of_caller(&|recipient| Needs::Deliveries { recipient, event_seqs: event_seqs.clone() })
            }
            Command::BeginAttempt { recipient, event_seqs, .. } | Command::EndAttempt { recipient, event_seqs, .. } => {
                Needs::Deliveries { recipient: recipient.clone(), event_seqs: event_seqs.clone() }
            }
            Command::SendMessage { options: SendOptions { reply_to: Some(event_seq), .. }, .. } => {
                of_caller(&|recipient| Needs::RepliedTo { event_seq: *event_seq, recipient })
            }
            Command::AddReminder(_) => of_caller(&Needs::ReminderCount),
            Command::CancelReminder { reminder_id } | Command::ReminderDue { reminder_id } => {
                Needs::Reminder(reminder_id.clone())
            }
            Command::WithdrawMessage { event_seq } | Command::DeliveryDue { event_seq } => {
                Needs::Message { event_seq: *event_seq }
            }
            Command::ResolveNote { note_id } => Needs::Note(note_id.clone()),
            Command::SetPolicy { .. } => Needs::PolicyOverrides,
            Command::Join { .. } => Needs::Overview,
            Command::Purge => Needs::Contents,
            // A member may leave by these, and those who asked it something are told.
            Command::Leave | Command::Kick { .. } | Command::Tick | Command::ProcessExited => Needs::Questions,
            Command::Delete
            | Command::Wait { .. }
            | Command::EndWait
            | Command::Heartbeat { .. }
            | Command::Release { .. }
            | Command::Pass { .. }
            | Command::TakeOver { .. }
            | Command::SendMessage { .. }
            | Command::SetQuiet { .. }
            | Command::CheckGuard { .. }
            | Command::GiveBack { .. }
            | Command::AddNote { .. } => Needs::Nothing,
        }
    }
}
