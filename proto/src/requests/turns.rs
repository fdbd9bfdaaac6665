//! The stick: waiting for it, keeping it, giving it away, taking it over.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::compact::is_zero;
use crate::event::Event;
use crate::handoff::RawJson;
use crate::turn::{Reason, TakeoverReason, WaitStatus};
use crate::{AgentId, LeaseId, RoomId, WallTime};

methods! {
    /// Answers when the caller has the turn, may take over, or `max_wait_ms` has passed.
    WaitForTurn = "wait_for_turn" -> Wait {
        room_id: RoomId,
        /// The longest to wait; 0 is one atomic try. Without it, as long as the room's policy allows.
        max_wait_ms: Option<u64>,
        /// Stay in the list of members who wait, but take no turn.
        park: Option<bool>,
        /// Take the stick of an idle room even when alone in it.
        claim: Option<bool>,
        /// Also answer when there is a message. Brings messages, and who joined and left.
        include_events: Option<bool>,
        /// With `include_events`: also answer when a member joins or leaves.
        joins: Option<bool>,
    }

    /// Renews the lease of the caller's turn.
    Heartbeat = "heartbeat" -> HeartbeatAnswer {
        room_id: RoomId,
        lease_id: LeaseId,
        expected_turn_id: i64,
    }

    /// Ends the caller's turn in favour of the next member in line.
    ReleaseStick = "release_stick" -> Relinquished {
        room_id: RoomId,
        lease_id: LeaseId,
        expected_turn_id: i64,
        handoff: RawJson,
        idempotency_key: Option<String>,
    }

    /// Ends the caller's turn in favour of one member.
    PassStick = "pass_stick" -> Relinquished {
        room_id: RoomId,
        lease_id: LeaseId,
        expected_turn_id: i64,
        to_agent_id: AgentId,
        handoff: RawJson,
        idempotency_key: Option<String>,
    }

    /// Takes the stick from a holder who is gone or silent.
    TakeoverStick = "takeover_stick" -> TakenOver {
        room_id: RoomId,
        expected_turn_id: i64,
        reason: String,
        /// A person decided, whatever the rules say.
        operator_override: Option<bool>,
        idempotency_key: Option<String>,
    }
}

/// The answer to `wait_for_turn`. Which fields are present follows from `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    pub status: WaitStatus,
    pub turn_id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<WallTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<RawJson>,
    /// Who wrote the handoff, or who holds the stick that may be taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_agent_id: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// With `include_events`: inbox messages, which are this connection's until confirmed, and joins and leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Event>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor_event_seq: Option<i64>,
    /// How many more messages stay in the inbox.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more: usize,
    /// With `not_yet`: who holds the stick, or has it reserved, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// With `not_yet`: the caller's place in the queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
    /// With `removed`, if the caller was kicked: who did it, and the reason given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kicked_by: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kick_reason: Option<String>,
    /// With `not_yet` and `removed`: what to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Wait {
    /// A wait that ended without a grant.
    pub fn ended(status: WaitStatus, turn_id: i64) -> Self {
        Self {
            status,
            turn_id,
            lease_id: None,
            lease_expires_at: None,
            handoff: None,
            from_agent_id: None,
            reason: None,
            events: None,
            cursor_event_seq: None,
            more: 0,
            holder: None,
            reserved_for: None,
            since: None,
            place: None,
            kicked_by: None,
            kick_reason: None,
            hint: None,
        }
    }
}

/// The answer to `heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    pub status: HeartbeatStatus,
    pub lease_expires_at: WallTime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeartbeatStatus {
    Ok,
}

/// The answer to `release_stick` and `pass_stick`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relinquished {
    pub status: RelinquishedStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<AgentId>,
    pub event_seq: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelinquishedStatus {
    Released,
    Passed,
}

/// The answer to `takeover_stick`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    pub status: WaitStatus,
    pub turn_id: i64,
    pub lease_id: LeaseId,
    pub lease_expires_at: WallTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_agent_id: Option<AgentId>,
    pub reason: TakeoverReason,
    /// The handoff that nobody had picked up, and who wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_agent_id: Option<AgentId>,
}
