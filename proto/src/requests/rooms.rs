//! Rooms and their members.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::compact::{is_default, is_zero};
use crate::delivery::WayName;
use crate::handoff::RawJson;
use crate::policy::{Guard, Policy, PolicyOverrides};
use crate::room::{Member, Room, RoomSummary, Takeover};
use crate::{AgentId, RoomId, WallTime};

methods! {
    /// Makes the caller a member of the room a path belongs to. Creates the room if there is none.
    JoinPath = "join_path" -> Joined {
        context_path: String,
        /// Create a room for exactly this path even if it belongs to another room.
        force_new: Option<bool>,
        display_name: Option<String>,
        idempotency_key: Option<String>,
    }

    /// Ends the caller's membership.
    LeaveRoom = "leave_room" -> Left {
        room_id: RoomId,
        idempotency_key: Option<String>,
    }

    /// Removes a member.
    KickMember = "kick_member" -> Kicked {
        room_id: RoomId,
        target_agent_id: AgentId,
        /// Remove it even though it is active.
        force: Option<bool>,
        reason: Option<String>,
        idempotency_key: Option<String>,
    }

    /// Deletes a room with its log, its notes and its messages. Refused while another member is there.
    DeleteRoom = "delete_room" -> RoomDeleted {
        room_id: RoomId,
        idempotency_key: Option<String>,
    }

    /// Lists the rooms by their paths, or the one a path belongs to.
    ListRooms = "list_rooms" -> RoomList {
        context_path: Option<String>,
        /// Only those after the room with this canonical path.
        after_path: Option<String>,
        limit: Option<usize>,
        /// Also tell how much is stored of each.
        sizes: Option<bool>,
    }

    /// Shows a room, its members, its handoffs and whether it may be taken over.
    GetRoomState = "get_room_state" -> RoomState {
        room_id: RoomId,
        /// List those too who left, were kicked or are long gone.
        all: Option<bool>,
    }

    /// Finds the one member a name means: a full agent id; else a display name or id prefix that fits a single member that is
    /// active, or else away, or else gone.
    ResolveMember = "resolve_member" -> ResolvedMember {
        room_id: RoomId,
        name: String,
    }

    /// Changes times of one room.
    SetRoomPolicy = "set_room_policy" -> RoomPolicy {
        room_id: RoomId,
        policy: PolicyOverrides,
        idempotency_key: Option<String>,
    }
}

/// The answer to `join_path`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    pub agent_id: AgentId,
    pub room_id: RoomId,
    pub canonical_path: String,
    /// The workspace of the path, where that is not the room's own path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_root: Option<String>,
    pub joined_existing_room: bool,
    pub cursor_event_seq: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    pub members: Vec<Member>,
    /// How many members are not listed: those who left or were kicked, and of the gone all but a few.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_members: usize,
    /// The stick, without the room's id and path.
    pub room_state: Room,
    /// The way by which a message wakes the session of the caller while it is idle; absent if nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub woken_by: Option<WayName>,
}

/// The answer to `leave_room`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    pub status: Departure,
    pub room_id: RoomId,
    pub canonical_path: String,
    /// How many members are active. Without any, the room is dormant and keeps everything.
    pub remaining_members: usize,
}

/// The answer to `kick_member`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kicked {
    pub status: Departure,
    pub kicked_agent_id: AgentId,
    pub remaining_members: usize,
    pub target_was_owner: bool,
    pub target_was_reserved_for: bool,
}

/// How a membership ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    Left,
    Kicked,
}

/// The answer to `delete_room`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomDeleted {
    pub room_id: RoomId,
    pub canonical_path: String,
}

/// The answer to `list_rooms`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomList {
    pub rooms: Vec<RoomSummary>,
    /// Whether there are more after the last one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
}

/// The answer to `get_room_state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomState {
    pub room: Room,
    pub members: Vec<Member>,
    /// How many members are not listed: those who left or were kicked, and of the gone all but a few.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_members: usize,
    /// Those who wait for the stick, in the order in which they would be given it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<AgentId>,
    /// When the current turn was granted, while somebody holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_started_at: Option<WallTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_handoff: Option<RawJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_handoff: Option<RawJson>,
    /// Who wrote the handoff that is shown: the pending one, else the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff_from: Option<AgentId>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub takeover: Takeover,
    /// How strictly the stick is kept before an edit.
    #[serde(default)]
    pub guard: Guard,
    /// The guard gave the holder the stick, and gives it back.
    #[serde(default, skip_serializing_if = "is_default")]
    pub by_guard: bool,
    /// The files that the holder edited in this turn, as far as its hooks told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edited_files: Vec<String>,
    /// How many notes are not resolved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub open_notes: usize,
    pub cursor_event_seq: i64,
}

/// The answer to `resolve_member`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedMember {
    pub agent_id: AgentId,
    pub display_name: String,
}

/// The answer to `set_room_policy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomPolicy {
    pub room_id: RoomId,
    pub policy: Policy,
}
