//! Rooms and members as every surface shows them.

use serde::{Deserialize, Serialize};

use crate::turn::TakeoverReason;
use crate::{AgentId, Error, ErrorCode, LeaseId, RoomId, WallTime};

/// What is stored of a room's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StickState {
    Idle,
    Owned,
    Reserved,
    Closed,
}

impl StickState {
    pub const fn as_str(self) -> &'static str {
        match self {
            StickState::Idle => "idle",
            StickState::Owned => "owned",
            StickState::Reserved => "reserved",
            StickState::Closed => "closed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Idle, Self::Owned, Self::Reserved, Self::Closed].into_iter().find(|s| s.as_str() == text)
    }
}

/// What a reader should know beyond the stored state; the most actionable applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DerivedState {
    OwnerGone,
    RecipientGone,
    StaleOwner,
    OwnerIdle,
    Dormant,
}

/// Whether a member counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberStatus {
    Active,
    /// A person whose last terminal was closed. Messages wait for it, and it returns by any call.
    Away,
    /// An agent whose process ended, or of which nothing was heard for `presence_ttl`. It returns by any call.
    Gone,
    Left,
    Kicked,
}

impl MemberStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            MemberStatus::Active => "active",
            MemberStatus::Away => "away",
            MemberStatus::Gone => "gone",
            MemberStatus::Left => "left",
            MemberStatus::Kicked => "kicked",
        }
    }

    /// A word 0.1.x used that we do not know is a member who is not there.
    pub fn parse(text: &str) -> Self {
        let known = [Self::Active, Self::Away, Self::Gone, Self::Left, Self::Kicked];
        known.into_iter().find(|s| s.as_str() == text).unwrap_or(Self::Left)
    }

    /// Whether a message to everyone is for this member, and no other member may have its name.
    pub const fn is_addressed(self) -> bool {
        matches!(self, MemberStatus::Active | MemberStatus::Away)
    }

    /// Whether the membership goes on: it neither left nor was kicked.
    pub const fn is_member(self) -> bool {
        matches!(self, MemberStatus::Active | MemberStatus::Away | MemberStatus::Gone)
    }
}

/// What the kernel says of a member's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    Alive,
    Gone,
    /// There is no process to look at, or it is another machine's.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub agent_id: AgentId,
    pub display_name: String,
    pub harness: Option<String>,
    pub ordinal: i64,
    pub joined_at: WallTime,
    pub last_seen_at: WallTime,
    pub last_wait_at: Option<WallTime>,
    pub status: MemberStatus,
    pub liveness: Liveness,
    pub waiting: bool,
    /// Messages in its inbox.
    pub unread: usize,
}

/// A room: the stored columns, and the state derived from them at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    pub room_id: RoomId,
    pub canonical_path: String,
    pub sequence_index: i64,
    pub owner: Option<AgentId>,
    pub reserved_for: Option<AgentId>,
    pub pending_handoff_event_seq: Option<i64>,
    pub turn_id: i64,
    /// Shown to the holder alone: it is what proves that a call comes from this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    pub lease_expires_at: Option<WallTime>,
    pub claim_expires_at: Option<WallTime>,
    pub state: StickState,
    pub derived_state: Option<DerivedState>,
    pub updated_at: WallTime,
}

/// Whether the stick may be taken over now, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takeover {
    pub available: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<TakeoverReason>,
}

/// One row of `list_rooms`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomSummary {
    pub room_id: RoomId,
    pub canonical_path: String,
    pub state: StickState,
    pub owner: Option<AgentId>,
    pub reserved_for: Option<AgentId>,
    /// The display name of the member who holds the stick or has it reserved, if no other member has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    pub turn_id: i64,
    /// How many members are active. A room without any is dormant: it keeps everything, and can be joined again.
    pub members: u32,
    pub updated_at: WallTime,
    /// What is stored of it, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<RoomSize>,
}

/// What is stored of a room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomSize {
    /// The events in its log.
    pub events: u64,
    /// Its messages that no recipient was shown yet, counted once for each recipient.
    pub unread: u64,
    /// The bytes that its members wrote: messages, handoffs, reasons and notes.
    pub bytes: u64,
}

/// The error for a path that belongs to no room.
pub fn nobody_joined(path: &str) -> Error {
    Error::new(ErrorCode::RoomNotFound, "nobody has joined this workspace yet")
        .hint("join it: tt join")
        .detail("path", path)
}
