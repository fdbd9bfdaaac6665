//! `join_path`, `leave_room`, `kick_member`, `list_rooms`, `get_room_state`, `resolve_member`, `set_room_policy`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use tt_proto::handoff::Handoff;
use tt_proto::requests::{
    Departure, GetRoomState, JoinPath, Joined, KickMember, Kicked, LeaveRoom, Left, ListRooms, ResolveMember,
    ResolvedMember, RoomList, RoomPolicy, RoomState, SetRoomPolicy,
};
use tt_proto::room::MemberStatus;
use tt_proto::{Error, ErrorCode};

use super::register::{Module, register};
use super::{Call, Shared, blocking, view};
use crate::place::{Place, Surroundings};
use crate::stick::{Room, fairness, membership, names};
use crate::store::{events, inbox, rooms};

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
    let by = shared.commander(&call, idempotency_key)?;
    let display_name = display_name.map(|name| checked_name(&name)).transpose()?;
    let look = shared.look_at(call.session()?.cwd.as_deref(), &context_path, Surroundings::of).await?;
    let around = blocking(look).await?;
    let clock = shared.rooms.clock().clone();
    let agent_id = by.identity.agent_id.clone();
    let joined = shared
        .rooms
        .join(by, around, force_new.unwrap_or(false), display_name, move |resolution, room, _, connection| {
            Ok(Joined {
                room_id: room.room_id.clone(),
                canonical_path: room.canonical_path.clone(),
                requested_path: context_path,
                workspace_root: resolution.workspace_root.display().to_string(),
                joined_existing_room: resolution.exists,
                cursor_event_seq: events::newest(connection, &room.room_id)?,
                warning: resolution.warning,
                members: view::members(room, &inbox::unread(connection, &room.room_id)?, &clock),
                policy: room.policy.clone(),
                room_state: view::room(room, &agent_id, rooms::updated_at(connection, &room.room_id)?, &clock),
                handoff_template: Handoff::template(),
                agent_id,
            })
        })
        .await?;
    shared.start_comings_cursor((joined.room_id.clone(), joined.agent_id.clone()), joined.cursor_event_seq);
    Ok(joined)
}

async fn leave_room(shared: Arc<Shared>, extensions: Extensions, request: LeaveRoom) -> Result<Left, Error> {
    let LeaveRoom { room_id, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let agent = by.identity.agent_id.clone();
    let rule = move |room: &mut Room, _: &_, _: &_| Ok((membership::leave(room, &agent)?, None));
    let answer = |_, room: &Room, _: &_| Left {
        status: if room.deleted { Departure::RoomDeleted } else { Departure::Left },
        room_id: room.room_id.clone(),
        canonical_path: room.canonical_path.clone(),
        remaining_members: active(room),
    };
    shared.rooms.command(&room_id, by, rule, answer).await
}

async fn kick_member(shared: Arc<Shared>, extensions: Extensions, request: KickMember) -> Result<Kicked, Error> {
    let KickMember { room_id, target_agent_id, force, reason, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let (agent, target) = (by.identity.agent_id.clone(), target_agent_id.clone());
    let force = force.unwrap_or(false);
    let rule = move |room: &mut Room, moment: &_, _: &_| {
        Ok((membership::kick(room, &agent, &target, force, reason.as_deref(), moment)?, None))
    };
    let answer = move |removed: membership::Removed, room: &Room, _: &_| Kicked {
        status: if room.deleted { Departure::RoomDeleted } else { Departure::Kicked },
        kicked_agent_id: target_agent_id,
        remaining_members: active(room),
        target_was_owner: removed.was_owner,
        target_was_reserved_for: removed.was_reserved_for,
    };
    shared.rooms.command(&room_id, by, rule, answer).await
}

async fn list_rooms(shared: Arc<Shared>, extensions: Extensions, request: ListRooms) -> Result<RoomList, Error> {
    let ListRooms { context_path } = request;
    let call = Call::of(&extensions)?;
    shared.rooms.seen(&call.identity()?.agent_id);
    let rooms = match context_path {
        Some(path) => {
            let look = shared.look_at(call.session()?.cwd.as_deref(), &path, |place| place).await?;
            let at = |place: Place, connection: &_| match place.room(connection)? {
                Some(room_id) => rooms::list(connection, Some(&room_id)),
                None => Ok(Vec::new()),
            };
            shared.rooms.store().read_after(look, at).await?
        }
        None => shared.rooms.store().read(|connection| rooms::list(connection, None)).await?,
    };
    Ok(RoomList { rooms })
}

async fn get_room_state(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: GetRoomState,
) -> Result<RoomState, Error> {
    let GetRoomState { room_id } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let viewer = call.identity()?.agent_id.clone();
    shared.rooms.seen(&viewer);
    let clock = shared.rooms.clock().clone();
    let look = shared.rooms.look(&room_id, move |room, connection| {
        let updated_at = rooms::updated_at(connection, &room.room_id)?;
        Ok(RoomState {
            room: view::room(room, &viewer, updated_at, &clock),
            members: view::members(room, &inbox::unread(connection, &room.room_id)?, &clock),
            queue: fairness::queue(room).into_iter().map(|m| m.agent_id.clone()).collect(),
            turn_started_at: match room.owner {
                Some(_) => events::turn_started_at(connection, &room.room_id, room.turn_id)?,
                None => None,
            },
            handoff_from: room.pending_handoff.as_ref().or(room.current_handoff.as_ref()).map(|h| h.from.clone()),
            pending_handoff: room.pending_handoff.as_ref().map(|held| held.handoff.clone()),
            current_handoff: room.current_handoff.as_ref().map(|held| held.handoff.clone()),
            takeover: view::takeover(room, &clock),
            cursor_event_seq: events::newest(connection, &room.room_id)?,
        })
    });
    look.await
}

async fn resolve_member(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ResolveMember,
) -> Result<ResolvedMember, Error> {
    let ResolveMember { room_id, name } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    call.identity()?;
    let look = shared.rooms.look(&room_id, move |room, _| {
        let member = names::resolve(room, &name)?;
        Ok(ResolvedMember { agent_id: member.agent_id.clone(), display_name: member.display_name.clone() })
    });
    look.await
}

async fn set_room_policy(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: SetRoomPolicy,
) -> Result<RoomPolicy, Error> {
    let SetRoomPolicy { room_id, policy, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let agent = by.identity.agent_id.clone();
    let rule = move |room: &mut Room, _: &_, connection: &_| {
        room.open()?;
        room.active_member(&agent)?;
        let merged = policy.merged_over(&rooms::policy_overrides(connection, &room.room_id)?);
        rooms::set_policy(connection, &room.room_id, &merged)?;
        room.policy = policy.over(&room.policy);
        Ok(((), None))
    };
    let answer = |(), room: &Room, _: &_| RoomPolicy { room_id: room.room_id.clone(), policy: room.policy.clone() };
    shared.rooms.command(&room_id, by, rule, answer).await
}

fn active(room: &Room) -> usize {
    room.members().filter(|m| m.status == MemberStatus::Active).count()
}

/// A display name is one line people can type.
fn checked_name(name: &str) -> Result<String, Error> {
    let name = name.trim();
    if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(Error::new(ErrorCode::InvalidInput, "a display name has 1 to 64 bytes and no control characters"));
    }
    Ok(name.to_owned())
}
