//! Turns: what waiting, releasing, passing and taking over answer.

use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::handoff::RawJson;
use crate::{AgentId, LeaseId, WallTime};

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitStatus {
    YourTurn,
    NotYet,
    TakeoverAvailable,
    Closed,
    /// The caller left or was kicked while it waited.
    Removed,
}

/// Why the caller has the stick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimReason {
    DirectPass,
    Sequence,
    OpenClaim,
    AlreadyOwner,
}

impl ClaimReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            ClaimReason::DirectPass => "direct_pass",
            ClaimReason::Sequence => "sequence",
            ClaimReason::OpenClaim => "open_claim",
            ClaimReason::AlreadyOwner => "already_owner",
        }
    }
}

/// Why the stick may be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeoverReason {
    ClaimTimeout,
    OwnerTimeout,
    OwnerGone,
    OwnerIdle,
    RecipientGone,
    /// Not a fact about the room: a person decided.
    OperatorOverride,
}

impl TakeoverReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            TakeoverReason::ClaimTimeout => "claim_timeout",
            TakeoverReason::OwnerTimeout => "owner_timeout",
            TakeoverReason::OwnerGone => "owner_gone",
            TakeoverReason::OwnerIdle => "owner_idle",
            TakeoverReason::RecipientGone => "recipient_gone",
            TakeoverReason::OperatorOverride => "operator_override",
        }
    }
}

/// Why the stick was granted, or may be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Reason {
    Claim(ClaimReason),
    Takeover(TakeoverReason),
}

/// The answer to `wait_for_turn`. Which fields are there follows from `status`.
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
pub struct Heartbeat {
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
