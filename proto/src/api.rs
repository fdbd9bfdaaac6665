//! The whole API, one trait per group of methods. Server and client both come from it; parameters travel by name.

use jsonrpsee::core::SubscriptionResult;
use jsonrpsee::proc_macros::rpc;
use serde::{Deserialize, Serialize};

use crate::event::{EventItem, Events};
use crate::filter::OneOrMany;
use crate::handoff::RawJson;
use crate::hello::{Hello, Welcome, Whoami};
use crate::message::{Confirmed, InboxRooms, Returned, Sent, Skipped, Taken};
use crate::note::{NoteAdded, NoteResolved, Notes};
use crate::policy::PolicyOverrides;
use crate::room::{Joined, Kicked, Left, ResolvedMember, RoomPolicy, RoomState, Rooms};
use crate::time::WallTime;
use crate::turn::{Heartbeat, Relinquished, TakenOver, Wait};
use crate::{AgentId, Error, LeaseId, NoteId, RoomId};

#[rpc(server, client)]
pub trait DaemonApi {
    /// Binds the connection to the identity derived from its process and signals. Must come first.
    #[method(name = "hello", param_kind = map, with_extensions)]
    async fn hello(&self, hello: Hello) -> Result<Welcome, Error>;

    #[method(name = "whoami", param_kind = map, with_extensions)]
    async fn whoami(&self, explain: Option<bool>) -> Result<Whoami, Error>;

    #[method(name = "daemon_status", param_kind = map, with_extensions)]
    async fn daemon_status(&self) -> Result<DaemonStatus, Error>;

    /// Answers, then drains and exits.
    #[method(name = "daemon_stop", param_kind = map, with_extensions)]
    async fn daemon_stop(&self) -> Result<Stopping, Error>;
}

#[rpc(server, client)]
pub trait RoomApi {
    #[method(name = "join_path", param_kind = map, with_extensions)]
    async fn join_path(
        &self,
        context_path: String,
        force_new: Option<bool>,
        display_name: Option<String>,
        idempotency_key: Option<String>,
    ) -> Result<Joined, Error>;

    #[method(name = "leave_room", param_kind = map, with_extensions)]
    async fn leave_room(&self, room_id: RoomId, idempotency_key: Option<String>) -> Result<Left, Error>;

    #[method(name = "kick_member", param_kind = map, with_extensions)]
    async fn kick_member(
        &self,
        room_id: RoomId,
        target_agent_id: AgentId,
        force: Option<bool>,
        reason: Option<String>,
        idempotency_key: Option<String>,
    ) -> Result<Kicked, Error>;

    /// All rooms, or the one a path belongs to.
    #[method(name = "list_rooms", param_kind = map, with_extensions)]
    async fn list_rooms(&self, context_path: Option<String>) -> Result<Rooms, Error>;

    #[method(name = "get_room_state", param_kind = map, with_extensions)]
    async fn get_room_state(&self, room_id: RoomId) -> Result<RoomState, Error>;

    /// The one member a name means: a full agent id, or a display name or id prefix that fits a single active member.
    #[method(name = "resolve_member", param_kind = map, with_extensions)]
    async fn resolve_member(&self, room_id: RoomId, name: String) -> Result<ResolvedMember, Error>;

    #[method(name = "set_room_policy", param_kind = map, with_extensions)]
    async fn set_room_policy(
        &self,
        room_id: RoomId,
        policy: PolicyOverrides,
        idempotency_key: Option<String>,
    ) -> Result<RoomPolicy, Error>;
}

#[rpc(server, client)]
pub trait EventApi {
    /// A page of the log. Without a target, everything.
    #[method(name = "get_room_events", param_kind = map, with_extensions)]
    async fn get_room_events(
        &self,
        room_id: RoomId,
        after_event_seq: Option<i64>,
        limit: Option<usize>,
        event_type: Option<OneOrMany>,
        from_agent_id: Option<AgentId>,
        target_agent_id: Option<String>,
    ) -> Result<Events, Error>;

    /// The next events that match, waiting for them if there are none. Starts at "now" without a cursor.
    #[method(name = "wait_for_events", param_kind = map, with_extensions)]
    async fn wait_for_events(
        &self,
        room_id: RoomId,
        after_event_seq: Option<i64>,
        limit: Option<usize>,
        event_type: Option<OneOrMany>,
        from_agent_id: Option<AgentId>,
        target_agent_id: Option<String>,
        max_wait_ms: Option<u64>,
    ) -> Result<Events, Error>;

    /// Replays from the cursor, then goes live, with no gap and no repeat.
    #[subscription(name = "subscribe_events" => "event", unsubscribe = "unsubscribe_events", item = EventItem, param_kind = map, with_extensions)]
    async fn subscribe_events(
        &self,
        room_id: RoomId,
        after_event_seq: Option<i64>,
        event_type: Option<OneOrMany>,
        from_agent_id: Option<AgentId>,
        target_agent_id: Option<String>,
    ) -> SubscriptionResult;
}

#[rpc(server, client)]
pub trait MessageApi {
    /// To a member by agent id, or by what people call it (`to`: a name, the beginning of an id, `room` for everyone).
    /// Without a recipient, to everyone who is there.
    #[method(name = "send_message", param_kind = map, with_extensions)]
    async fn send_message(
        &self,
        room_id: RoomId,
        body: String,
        to_agent_id: Option<AgentId>,
        to: Option<String>,
        delivery_hint: Option<String>,
        idempotency_key: Option<String>,
    ) -> Result<Sent, Error>;

    /// The rooms in which messages wait for the caller. Changes nothing.
    #[method(name = "list_inbox", param_kind = map, with_extensions)]
    async fn list_inbox(&self) -> Result<InboxRooms, Error>;

    /// Takes what is in the caller's inbox, waiting for it if it is empty. With more than `max_replay` waiting the older
    /// ones are skipped; past `limit` the newer ones stay.
    #[method(name = "take_messages", param_kind = map, with_extensions)]
    async fn take_messages(
        &self,
        room_id: RoomId,
        surface: String,
        from_agent_id: Option<AgentId>,
        max_replay: Option<usize>,
        limit: Option<usize>,
        max_wait_ms: Option<u64>,
    ) -> Result<Taken, Error>;

    /// Puts back what this connection took and will not show. What it never took is passed over.
    #[method(name = "return_messages", param_kind = map, with_extensions)]
    async fn return_messages(&self, room_id: RoomId, event_seqs: Vec<i64>) -> Result<Returned, Error>;

    /// Says that messages were shown. Safe to repeat.
    #[method(name = "confirm_messages", param_kind = map, with_extensions)]
    async fn confirm_messages(
        &self,
        room_id: RoomId,
        surface: String,
        event_seqs: Vec<i64>,
        skipped: Option<Skipped>,
        from_agent_id: Option<AgentId>,
    ) -> Result<Confirmed, Error>;
}

#[rpc(server, client)]
pub trait StickApi {
    /// Answers when the caller has the turn, may take over, or `max_wait_ms` has passed. 0 is one atomic try.
    #[method(name = "wait_for_turn", param_kind = map, with_extensions)]
    async fn wait_for_turn(
        &self,
        room_id: RoomId,
        max_wait_ms: Option<u64>,
        park: Option<bool>,
        claim: Option<bool>,
        include_events: Option<bool>,
    ) -> Result<Wait, Error>;

    #[method(name = "heartbeat", param_kind = map, with_extensions)]
    async fn heartbeat(&self, room_id: RoomId, lease_id: LeaseId, expected_turn_id: i64) -> Result<Heartbeat, Error>;

    #[method(name = "release_stick", param_kind = map, with_extensions)]
    async fn release_stick(
        &self,
        room_id: RoomId,
        lease_id: LeaseId,
        expected_turn_id: i64,
        handoff: RawJson,
        idempotency_key: Option<String>,
    ) -> Result<Relinquished, Error>;

    #[method(name = "pass_stick", param_kind = map, with_extensions)]
    async fn pass_stick(
        &self,
        room_id: RoomId,
        lease_id: LeaseId,
        expected_turn_id: i64,
        to_agent_id: AgentId,
        handoff: RawJson,
        idempotency_key: Option<String>,
    ) -> Result<Relinquished, Error>;

    #[method(name = "takeover_stick", param_kind = map, with_extensions)]
    async fn takeover_stick(
        &self,
        room_id: RoomId,
        expected_turn_id: i64,
        reason: String,
        operator_override: Option<bool>,
        idempotency_key: Option<String>,
    ) -> Result<TakenOver, Error>;
}

#[rpc(server, client)]
pub trait NoteApi {
    #[method(name = "add_note", param_kind = map, with_extensions)]
    async fn add_note(
        &self,
        room_id: RoomId,
        body: String,
        turn_id: Option<i64>,
        idempotency_key: Option<String>,
    ) -> Result<NoteAdded, Error>;

    #[method(name = "list_notes", param_kind = map, with_extensions)]
    async fn list_notes(
        &self,
        room_id: RoomId,
        after_note_id: Option<NoteId>,
        include_resolved: Option<bool>,
        limit: Option<usize>,
    ) -> Result<Notes, Error>;

    #[method(name = "resolve_note", param_kind = map, with_extensions)]
    async fn resolve_note(
        &self,
        room_id: RoomId,
        note_id: NoteId,
        idempotency_key: Option<String>,
    ) -> Result<NoteResolved, Error>;
}

/// A daemon's own account of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    pub status: String,
    pub pid: u32,
    pub version: String,
    pub protocol: u32,
    pub started_at: WallTime,
    pub uptime_ms: u64,
    pub supervised: bool,
    pub data_dir: String,
    pub socket: String,
    pub log: String,
    pub connections: usize,
    pub calls: usize,
    pub waiters: usize,
    /// The newest migration the database has.
    pub schema: i64,
    /// After this long with nothing to do the daemon exits; absent when it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_exit_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopping {
    pub status: String,
    pub pid: u32,
}
