//! `join_path`, `leave_room`, `kick_member`, `list_rooms`, `get_room_state`, `resolve_member`, `set_room_policy`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use tt_proto::requests::{
    Departure, GetRoomState, JoinPath, Joined, KickMember, Kicked, LeaveRoom, Left, ListRooms, ResolveMember,
    ResolvedMember, RoomList, RoomPolicy, RoomState, SetRoomPolicy,
};
use tt_proto::room::MemberStatus;
use tt_proto::{Error, ErrorCode};
use tt_rules::{Command, Reply, Room, names};
use tt_store::Reader;

use super::register::{Module, register};
use super::{Call, Shared, blocking};
use crate::engine::Outcome;
use crate::views;
use crate::workspace::{Directory, Workspace};

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<JoinPath, _>(module, join_path)?;
    register::<LeaveRoom, _>(module, leave_room)?;
    register::<KickMember, _>(module, kick_member)?;
    register::<ListRooms, _>(module, list_rooms)?;
    register::<GetRoomState, _>(module, get_room_state)?;
    register::<ResolveMember, _>(module, resolve_member)?;
    register::<SetRoomPolicy, _>(module, set_room_policy)
}

async fn join_path(shared: Arc<Shared>, extensions: Extensions, request: JoinPath) -> Result<Joined, Error> {
    let JoinPath { context_path, force_new, display_name, idempotency_key } = request;
    let call = Call::of(&extensions)?;
    let context = shared.context(&call, idempotency_key)?;
    let display_name = display_name.map(|name| checked_name(&name)).transpose()?;
    let look = shared.lookup(call.session()?.cwd.as_deref(), &context_path, Workspace::of).await?;
    let workspace = blocking(look).await?;
    let agent_id = context.agent_id().clone();
    let answer = move |outcome: &Outcome<'_>| {
        let (room, now) = (outcome.room, outcome.now);
        let unread = outcome.overview.map(|overview| &overview.unread).cloned().unwrap_or_default();
        let updated_at = outcome.overview.map(|overview| overview.updated_at);
        let newest = outcome.overview.map_or(0, |overview| overview.newest_event_seq);
        let event = outcome.events.last();
        Joined {
            room_id: room.room_id.clone(),
            canonical_path: room.canonical_path.clone(),
            workspace_root: outcome
                .resolution
                .map(|r| r.workspace_root.display().to_string())
                .filter(|root| *root != room.canonical_path),
            joined_existing_room: outcome.resolution.is_some_and(|r| r.exists),
            cursor_event_seq: event.map_or(newest, |event| event.event_seq),
            warning: outcome.resolution.and_then(|r| r.warning.clone()),
            members: views::members(room, &unread, now),
            room_state: views::stick(
                room,
                &agent_id,
                event.map(|event| event.created_at).or(updated_at).unwrap_or(now.wall),
                now,
            ),
            agent_id: agent_id.clone(),
        }
    };
    let joined = shared.engine.join(context, workspace, force_new.unwrap_or(false), display_name, answer).await?;
    // Its next wait reports what comes after its join: the answer has shown who is there.
    shared.set_membership_cursor((joined.room_id.clone(), joined.agent_id.clone()), joined.cursor_event_seq);
    Ok(joined)
}

async fn leave_room(shared: Arc<Shared>, extensions: Extensions, request: LeaveRoom) -> Result<Left, Error> {
    let LeaveRoom { room_id, idempotency_key } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let answer = |outcome: &Outcome<'_>| Left {
        status: if outcome.room.deleted { Departure::RoomDeleted } else { Departure::Left },
        room_id: outcome.room.room_id.clone(),
        canonical_path: outcome.room.canonical_path.clone(),
        remaining_members: active(outcome.room),
    };
    shared.engine.run(&room_id, shared.context(&call, idempotency_key)?, Command::Leave, answer).await
}

async fn kick_member(shared: Arc<Shared>, extensions: Extensions, request: KickMember) -> Result<Kicked, Error> {
    let KickMember { room_id, target_agent_id, force, reason, idempotency_key } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let command = Command::Kick { target: target_agent_id.clone(), force: force.unwrap_or(false), reason };
    let answer = move |outcome: &Outcome<'_>| {
        let (target_was_owner, target_was_reserved_for) = match outcome.reply {
            Reply::Removed { was_owner, was_reserved_for } => (*was_owner, *was_reserved_for),
            _ => (false, false),
        };
        Kicked {
            status: if outcome.room.deleted { Departure::RoomDeleted } else { Departure::Kicked },
            kicked_agent_id: target_agent_id.clone(),
            remaining_members: active(outcome.room),
            target_was_owner,
            target_was_reserved_for,
        }
    };
    shared.engine.run(&room_id, shared.context(&call, idempotency_key)?, command, answer).await
}

async fn list_rooms(shared: Arc<Shared>, extensions: Extensions, request: ListRooms) -> Result<RoomList, Error> {
    let ListRooms { context_path } = request;
    let call = Call::of(&extensions)?;
    shared.engine.seen(&call.identity()?.agent_id);
    let me = call.identity()?.agent_id.clone();
    let mut rooms = match context_path {
        Some(path) => {
            let look = shared.lookup(call.session()?.cwd.as_deref(), &path, |directory| directory).await?;
            let list = |directory: Directory, reader: &dyn Reader| match reader.room_at(&mut directory.candidates())? {
                Some(room_id) => reader.rooms(Some(&room_id)),
                None => Ok(Vec::new()),
            };
            shared.engine.read_after(look, list).await?
        }
        None => shared.engine.read(|reader| reader.rooms(None)).await?,
    };
    for room in &mut rooms {
        room.inbox = shared.engine.unread().get(&(room.room_id.clone(), me.clone()));
    }
    Ok(RoomList { rooms })
}

async fn get_room_state(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: GetRoomState,
) -> Result<RoomState, Error> {
    let GetRoomState { room_id } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let viewer = call.identity()?.agent_id.clone();
    shared.engine.seen(&viewer);
    let clock = shared.engine.clock().clone();
    let view = move |room: &Room, reader: &dyn Reader| views::room_state(room, &viewer, reader, clock.now());
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
    let SetRoomPolicy { room_id, policy, idempotency_key } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let answer = |outcome: &Outcome<'_>| RoomPolicy {
        room_id: outcome.room.room_id.clone(),
        policy: outcome.room.policy.clone(),
    };
    let command = Command::SetPolicy { overrides: policy };
    shared.engine.run(&room_id, shared.context(&call, idempotency_key)?, command, answer).await
}

fn active(room: &Room) -> usize {
    room.members().filter(|m| m.status == MemberStatus::Active).count()
}

/// Checks that a display name is one line people can type.
fn checked_name(name: &str) -> Result<String, Error> {
    let name = name.trim();
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(Error::new(ErrorCode::InvalidInput, "a display name has 1 to 64 bytes and no control characters"));
    }
    Ok(name.to_owned())
}
