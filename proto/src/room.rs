//! Rooms and members as every surface shows them.

use serde::{Deserialize, Serialize};

use crate::compact::{is_default, is_false, is_zero};
use crate::message::Unread;
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberStatus {
    #[default]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Liveness {
    #[default]
    Alive,
    Gone,
    /// There is no process to look at, or it is another machine's.
    Unknown,
}

/// What a member is doing, in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// It works. The holder of the stick does, as far as its signs of life tell.
    Working,
    /// It is in a wait, for the stick or for messages.
    Waiting,
    #[default]
    Idle,
    /// It waits for a person's permission.
    Asking,
    /// A person without an open terminal.
    Away,
    Gone,
    Left,
    Kicked,
    /// A word of a newer daemon.
    #[serde(other)]
    Unknown,
}

impl Activity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Activity::Working => "working",
            Activity::Waiting => "waiting",
            Activity::Idle => "idle",
            Activity::Asking => "asking",
            Activity::Away => "away",
            Activity::Gone => "gone",
            Activity::Left => "left",
            Activity::Kicked => "kicked",
            Activity::Unknown => "unknown",
        }
    }
}

/// A member, in the order in which members joined. Fields that have their default are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub agent_id: AgentId,
    pub display_name: String,
    /// Left out where the agent id begins with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
    /// Left out if it was seen within the last minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_at: Option<WallTime>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub status: MemberStatus,
    #[serde(default, skip_serializing_if = "is_default")]
    pub liveness: Liveness,
    #[serde(default, skip_serializing_if = "is_default")]
    pub activity: Activity,
    #[serde(default, skip_serializing_if = "is_false")]
    pub waiting: bool,
    /// Until when nothing wakes it, as it asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_until: Option<WallTime>,
    /// Messages in its inbox.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unread: usize,
}

/// A room: what is stored of it, and the state derived from that at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Left out, like the path, where the answer names them beside it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub room_id: RoomId,
    #[serde(default, skip_serializing_if = "is_default")]
    pub canonical_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_handoff_event_seq: Option<i64>,
    pub turn_id: i64,
    /// Shown to the holder alone: it is what proves that a call comes from this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<LeaseId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<WallTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_expires_at: Option<WallTime>,
    pub state: StickState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub derived_state: Option<DerivedState>,
    pub updated_at: WallTime,
}

/// Whether the stick may be taken over now, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AgentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<AgentId>,
    /// The display name of the member who holds the stick or has it reserved, if no other member has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    pub turn_id: i64,
    /// How many members are active. A room without any is dormant: it keeps everything, and can be joined again.
    pub members: u32,
    pub updated_at: WallTime,
    /// The messages that wait for the caller.
    #[serde(flatten)]
    pub inbox: Unread,
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

/// The refusal to delete a room in which others are.
pub fn room_in_use(others: &[AgentId]) -> Error {
    let others: Vec<&str> = others.iter().map(AgentId::as_str).collect();
    let message = format!("other members are in this room: {}", others.join(", "));
    Error::new(ErrorCode::RoomInUse, message).detail("members", others)
}
