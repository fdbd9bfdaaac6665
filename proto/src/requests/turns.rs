//! The stick: waiting for it, keeping it, giving it away, taking it over.

use serde::{Deserialize, Serialize};

use super::field::methods;
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
        /// Also answer when there are messages, joins or leaves, and bring them.
        include_events: Option<bool>,
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
    pub revoked_agent_id: Option<AgentId>,
    pub reason: TakeoverReason,
}
