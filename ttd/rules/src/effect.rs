//! What is to be done once a decision is committed. The rules only name it.

use tt_proto::hello::Anchor;
use tt_proto::{AgentId, ReminderId, RoomId};

use crate::command::ConnectionId;
use crate::time::{DeadlineTime, LeaseTime};
use crate::turn::WaitEnd;

/// One thing to do after the commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// End a member's wait with this answer.
    EndWait { agent_id: AgentId, end: WaitEnd },
    /// Wake the surfaces that listen for a member's messages.
    Offer { agent_id: AgentId },
    /// Watch for the end of a member's process.
    Watch { anchor: Anchor },
    /// Set the timer of a key, or clear it.
    Timer { key: TimerKey, due: Option<Due> },
    /// Keep messages for a connection until it confirms them, returns them or ends. Done with the decision already, so that
    /// no other unit of the same transaction takes them; undone if the transaction fails.
    Hold { connection: ConnectionId, agent_id: AgentId, event_seqs: Vec<i64> },
    /// A connection no longer holds these. `offer`: they are still open, and other surfaces may take them.
    LetGo { connection: ConnectionId, agent_id: AgentId, event_seqs: Vec<i64>, offer: bool },
}

/// What a timer is for. Each key has its own timer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimerKey {
    /// The next moment at which something in a room changes by itself.
    Room(RoomId),
    /// What is due next of one delivery: the deadline of its message, or a notice.
    Delivery(RoomId, i64, AgentId),
    Reminder(RoomId, ReminderId),
}

impl TimerKey {
    pub fn room_id(&self) -> &RoomId {
        match self {
            TimerKey::Room(room_id) | TimerKey::Delivery(room_id, ..) | TimerKey::Reminder(room_id, _) => room_id,
        }
    }
}

/// When a timer is due, on the clock that measures it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    Lease(LeaseTime),
    Deadline(DeadlineTime),
}
