//! Turns: how waits end, and why the stick is granted or may be taken.

use serde::{Deserialize, Serialize};

pub use crate::requests::Wait;

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
    /// It began to edit, or to commit, while nobody had it.
    Guard,
}

impl ClaimReason {
    pub const fn as_str(self) -> &'static str {
        match self {
            ClaimReason::DirectPass => "direct_pass",
            ClaimReason::Sequence => "sequence",
            ClaimReason::OpenClaim => "open_claim",
            ClaimReason::AlreadyOwner => "already_owner",
            ClaimReason::Guard => "guard",
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
