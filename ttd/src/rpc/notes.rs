//! `add_note`, `list_notes`, `resolve_note`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use tt_proto::event::{EventType, NoteRef};
use tt_proto::handoff::RawJson;
use tt_proto::requests::{AddNote, ListNotes, NoteAdded, NoteList, NoteResolved, ResolveNote};
use tt_proto::{AgentId, Error, NoteId};

use super::register::{Module, register};
use super::{Call, Shared};
use crate::stick::{self, EventDraft, Room};
use crate::store::notes;

const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<AddNote, _>(module, add_note)?;
    register::<ListNotes, _>(module, list_notes)?;
    register::<ResolveNote, _>(module, resolve_note)
}

async fn add_note(shared: Arc<Shared>, extensions: Extensions, request: AddNote) -> Result<NoteAdded, Error> {
    let AddNote { room_id, body, turn_id, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let (agent, clock) = (by.identity.agent_id.clone(), shared.rooms.clock().clone());
    let rule = move |room: &mut Room, _: &_, connection: &_| {
        room.active_member(&agent)?;
        stick::notes::check(room, &body, turn_id)?;
        let note = notes::add(connection, &room.room_id, &agent, &body, turn_id, clock.wall())?;
        announce(room, EventType::NoteAdded, &agent, &note.note_id);
        Ok((note, None))
    };
    shared.rooms.command(&room_id, by, rule, |note, _, _| note).await
}

async fn list_notes(shared: Arc<Shared>, extensions: Extensions, request: ListNotes) -> Result<NoteList, Error> {
    let ListNotes { room_id, after_note_id, include_resolved, limit } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    shared.rooms.seen(&call.identity()?.agent_id);
    let limit = limit.unwrap_or(PAGE).min(MAX_PAGE);
    let resolved = include_resolved.unwrap_or(false);
    let look = shared.rooms.look(&room_id, move |room, connection| {
        notes::list(connection, &room.room_id, after_note_id.as_ref(), resolved, limit)
    });
    Ok(NoteList { notes: look.await? })
}

async fn resolve_note(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ResolveNote,
) -> Result<NoteResolved, Error> {
    let ResolveNote { room_id, note_id, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let (agent, clock) = (by.identity.agent_id.clone(), shared.rooms.clock().clone());
    let rule = move |room: &mut Room, _: &_, connection: &_| {
        room.active_member(&agent)?;
        room.open()?;
        let (resolved, now) = notes::resolve(connection, &room.room_id, &note_id, &agent, clock.wall())?;
        if now {
            announce(room, EventType::NoteResolved, &agent, &note_id);
        }
        Ok((resolved, None))
    };
    shared.rooms.command(&room_id, by, rule, |resolved, _, _| resolved).await
}

fn announce(room: &mut Room, event_type: EventType, agent: &AgentId, note_id: &NoteId) {
    let mut event = EventDraft::new(event_type, room.turn_id, agent);
    event.payload = RawJson::of(&NoteRef { note_id: note_id.clone() }).ok();
    room.events.push(event);
}
