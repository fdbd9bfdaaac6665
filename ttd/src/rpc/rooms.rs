//! `join_path`, `leave_room`, `kick_member`, `delete_room`, `list_rooms`, `get_room_state`, `resolve_member`,
//! `set_room_policy`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use jsonrpsee::Extensions;
use serde::{Deserialize, Serialize};
use tt_proto::delivery::WayName;
use tt_proto::names::checked_name;
use tt_proto::requests::{
    DeleteRoom, Departure, GetRoomState, JoinPath, Joined, KickMember, Kicked, LeaveRoom, Left, ListRooms,
    ResolveMember, ResolvedMember, RoomDeleted, RoomList, RoomPolicy, RoomState, SetRoomPolicy,
};
use tt_proto::room::{Member, MemberStatus, RoomSummary};
use tt_proto::{AgentId, Error, RoomId, WallTime};
use tt_rules::{Command, Reply, Room, names};
use tt_store::{Page, Reader, RoomPage};

use super::register::{Module, register};
use super::{Call, Shared, blocking};
use crate::delivery::Recipients;
use crate::engine::Outcome;
use crate::views::{self, Listed};
use crate::workspace::Workspace;

/// The most rooms in one page.
const MAX_ROOMS: usize = 1000;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<JoinPath, _>(module, join_path)?;
    register::<LeaveRoom, _>(module, leave_room)?;
    register::<KickMember, _>(module, kick_member)?;
    register::<DeleteRoom, _>(module, delete_room)?;
    register::<ListRooms, _>(module, list_rooms)?;
    register::<GetRoomState, _>(module, get_room_state)?;
    register::<ResolveMember, _>(module, resolve_member)?;
    register::<SetRoomPolicy, _>(module, set_room_policy)
}

async fn join_path(shared: Arc<Shared>, extensions: Extensions, request: JoinPath) -> Result<Joined, Error> {
    let call = Call::of(&extensions)?;
    let context = shared.keyed_context(&call, &request, None).await?;
    let JoinPath { context_path, force_new, display_name, .. } = request;
    let display_name = display_name.map(|name| checked_name(&name)).transpose()?;
    let look = shared.lookup(call.session()?.cwd.as_deref(), &context_path, Workspace::of).await?;
    let workspace = blocking(look).await?;
    let me = context.agent_id().clone();
    let (viewer, recipients) = (me.clone(), shared.recipients.clone());
    let answer = move |outcome: &Outcome<'_>| {
        let (newest, event) = (outcome.overview.map_or(0, |overview| overview.newest_event_seq), outcome.events.last());
        let updated_at = event.map(|event| event.created_at).or(outcome.overview.map(|overview| overview.updated_at));
        let unread = outcome.overview.map(|overview| overview.unread.clone()).unwrap_or_default();
        let room = outcome.room;
        JoinRecord {
            room_id: room.room_id.clone(),
            workspace_root: outcome
                .resolution
                .map(|r| r.workspace_root.display().to_string())
                .filter(|root| *root != room.canonical_path),
            joined_existing_room: outcome.resolution.is_some_and(|r| r.exists),
            cursor_event_seq: event.map_or(newest, |event| event.event_seq),
            warning: outcome.resolution.and_then(|r| r.warning.clone()),
            found: Some(JoinedRoom::of(
                room,
                &viewer,
                &unread,
                updated_at.unwrap_or(outcome.now.wall),
                &recipients,
                outcome.now,
            )),
        }
    };
    let mut joined = shared.engine.join(context, workspace, force_new.unwrap_or(false), display_name, answer).await?;
    shared.engine.membership_cursors().start((joined.room_id.clone(), me.clone()), joined.cursor_event_seq);
    let found = match joined.found.take() {
        Some(found) => found,
        // A repeated join: what it did is known, and the room is shown as it is now.
        None => {
            let (clock, recipients, viewer) = (shared.engine.clock().clone(), shared.recipients.clone(), me.clone());
            let view = move |room: &Room, reader: &dyn Reader| {
                let overview = reader.overview(&room.room_id)?;
                Ok(JoinedRoom::of(room, &viewer, &overview.unread, overview.updated_at, &recipients, clock.now()))
            };
            shared.engine.look(&joined.room_id, view).await?
        }
    };
    Ok(Joined {
        agent_id: me,
        room_id: joined.room_id,
        canonical_path: found.canonical_path,
        workspace_root: joined.workspace_root,
        joined_existing_room: joined.joined_existing_room,
        cursor_event_seq: joined.cursor_event_seq,
        warning: joined.warning,
        members: found.members,
        more_members: found.more_members,
        room_state: found.room_state,
        woken_by: found.woken_by,
    })
}

/// What a join did, as it is kept under its key. The room itself can be looked at again, so it is left out.
#[derive(Debug, Serialize, Deserialize)]
struct JoinRecord {
    room_id: RoomId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace_root: Option<String>,
    joined_existing_room: bool,
    cursor_event_seq: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    #[serde(skip)]
    found: Option<JoinedRoom>,
}

/// The room as the answer to a join shows it.
#[derive(Debug)]
struct JoinedRoom {
    canonical_path: String,
    members: Vec<Member>,
    more_members: usize,
    room_state: tt_proto::room::Room,
    woken_by: Option<WayName>,
}

impl JoinedRoom {
    fn of(
        room: &Room,
        viewer: &AgentId,
        unread: &HashMap<AgentId, usize>,
        updated_at: WallTime,
        recipients: &Recipients,
        now: tt_rules::Now,
    ) -> Self {
        let session = |agent: &AgentId| recipients.sessions().doing(agent);
        let (members, more_members) = views::members(room, viewer, Listed::Present, unread, &session, now);
        Self {
            canonical_path: room.canonical_path.clone(),
            members,
            more_members,
            room_state: views::stick(room, viewer, updated_at, now),
            woken_by: recipients.in_room(room, viewer, None, now).woken_by(),
        }
    }
}

async fn leave_room(shared: Arc<Shared>, extensions: Extensions, request: LeaveRoom) -> Result<Left, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let answer = |outcome: &Outcome<'_>| Left {
        status: Departure::Left,
        room_id: outcome.room.room_id.clone(),
        canonical_path: outcome.room.canonical_path.clone(),
        remaining_members: active(outcome.room),
    };
    shared.engine.run(&room_id, context, Command::Leave, answer).await
}

async fn kick_member(shared: Arc<Shared>, extensions: Extensions, request: KickMember) -> Result<Kicked, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let KickMember { target_agent_id, force, reason, .. } = request;
    let command = Command::Kick { target: target_agent_id.clone(), force: force.unwrap_or(false), reason };
    let answer = move |outcome: &Outcome<'_>| {
        let (target_was_owner, target_was_reserved_for) = match outcome.reply {
            Reply::Removed { was_owner, was_reserved_for } => (*was_owner, *was_reserved_for),
            _ => (false, false),
        };
        Kicked {
            status: Departure::Kicked,
            kicked_agent_id: target_agent_id.clone(),
            remaining_members: active(outcome.room),
            target_was_owner,
            target_was_reserved_for,
        }
    };
    shared.engine.run(&room_id, context, command, answer).await
}

async fn delete_room(shared: Arc<Shared>, extensions: Extensions, request: DeleteRoom) -> Result<RoomDeleted, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let answer = |outcome: &Outcome<'_>| RoomDeleted {
        room_id: outcome.room.room_id.clone(),
        canonical_path: outcome.room.canonical_path.clone(),
    };
    shared.engine.run(&room_id, context, Command::Delete, answer).await
}

async fn list_rooms(shared: Arc<Shared>, extensions: Extensions, request: ListRooms) -> Result<RoomList, Error> {
    let ListRooms { context_path, after_path, limit, sizes } = request;
    let page = RoomPage { only: None, after_path, limit: limit.unwrap_or(MAX_ROOMS).min(MAX_ROOMS) };
    let call = Call::of(&extensions)?;
    shared.engine.seen(&call.identity()?.agent_id);
    let _room = call.answer_room().await;
    let me = call.identity()?.agent_id.clone();
    let mut rooms = match context_path {
        Some(path) => {
            let look = shared.lookup(call.session()?.cwd.as_deref(), &path, |directory| directory.candidates()).await?;
            let list = move |paths: Vec<PathBuf>, reader: &dyn Reader| match reader
                .room_at(&mut paths.iter().map(PathBuf::as_path))?
            {
                Some(room_id) => list(reader, &RoomPage { only: Some(room_id), ..page }, sizes),
                None => Ok(Page { items: Vec::new(), more: false }),
            };
            shared.engine.read_after(look, list).await?
        }
        None => shared.engine.read(move |reader| list(reader, &page, sizes)).await?,
    };
    for room in &mut rooms.items {
        room.inbox = shared.engine.unread().get(&(room.room_id.clone(), me.clone()));
    }
    Ok(RoomList { rooms: rooms.items, more: rooms.more })
}

fn list(reader: &dyn Reader, page: &RoomPage, sizes: Option<bool>) -> Result<Page<RoomSummary>, Error> {
    let mut rooms = reader.rooms(page)?;
    for room in rooms.items.iter_mut().filter(|_| sizes == Some(true)) {
        room.size = Some(reader.room_size(&room.room_id)?);
    }
    Ok(rooms)
}

async fn get_room_state(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: GetRoomState,
) -> Result<RoomState, Error> {
    let GetRoomState { room_id, all } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let viewer = call.identity()?.agent_id.clone();
    shared.engine.seen(&viewer);
    let (clock, sessions) = (shared.engine.clock().clone(), shared.sessions.clone());
    let listed = if all.unwrap_or(false) { Listed::All } else { Listed::Present };
    let view = move |room: &Room, reader: &dyn Reader| {
        let session = |agent: &AgentId| sessions.doing(agent);
        views::room_state(room, &viewer, listed, reader, &session, clock.now())
    };
    let _room = call.answer_room().await;
    shared.engine.look(&room_id, view).await
}

async fn resolve_member(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ResolveMember,
) -> Result<ResolvedMember, Error> {
    let ResolveMember { room_id, name } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    call.identity()?;
    let view = move |room: &Room, _: &dyn Reader| {
        let member = names::resolve(room, &name)?;
        Ok(ResolvedMember { agent_id: member.agent_id.clone(), display_name: member.display_name.clone() })
    };
    shared.engine.look(&room_id, view).await
}

async fn set_room_policy(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: SetRoomPolicy,
) -> Result<RoomPolicy, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let SetRoomPolicy { policy, .. } = request;
    let answer = |outcome: &Outcome<'_>| RoomPolicy {
        room_id: outcome.room.room_id.clone(),
        policy: outcome.room.policy.clone(),
    };
    let command = Command::SetPolicy { overrides: policy };
    shared.engine.run(&room_id, context, command, answer).await
}

fn active(room: &Room) -> usize {
    room.members().filter(|m| m.status == MemberStatus::Active).count()
}
