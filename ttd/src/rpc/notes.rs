//! `add_note`, `list_notes`, `resolve_note`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use jsonrpsee::core::async_trait;
use tt_proto::api::NoteApiServer;
use tt_proto::event::{EventType, NoteRef};
use tt_proto::handoff::RawJson;
use tt_proto::note::{NoteAdded, NoteResolved, Notes};
use tt_proto::{AgentId, Error, NoteId, RoomId};

use super::{Call, Shared};
use crate::stick::{self, EventDraft, Room};
use crate::store::notes;

const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

pub(super) struct NoteMethods(pub(super) Arc<Shared>);

#[async_trait]
impl NoteApiServer for NoteMethods {
    async fn add_note(
        &self,
        extensions: &Extensions,
        room_id: RoomId,
        body: String,
        turn_id: Option<i64>,
        idempotency_key: Option<String>,
    ) -> Result<NoteAdded, Error> {
        let (call, room_id) = Call::about(extensions, room_id)?;
        let by = self.0.commander(&call, idempotency_key)?;
        let (agent, clock) = (by.identity.agent_id.clone(), self.0.rooms.clock().clone());
        let rule = move |room: &mut Room, _: &_, connection: &_| {
            room.active_member(&agent)?;
            stick::notes::check(room, &body, turn_id)?;
            let note = notes::add(connection, &room.room_id, &agent, &body, turn_id, clock.wall())?;
            announce(room, EventType::NoteAdded, &agent, &note.note_id);
            Ok((note, None))
        };
        self.0.rooms.command(&room_id, by, rule, |note, _, _| note).await
    }

    async fn list_notes(
        &self,
        extensions: &Extensions,
        room_id: RoomId,
        after_note_id: Option<NoteId>,
        include_resolved: Option<bool>,
        limit: Option<usize>,
    ) -> Result<Notes, Error> {
        let (call, room_id) = Call::about(extensions, room_id)?;
        self.0.rooms.seen(&call.identity()?.agent_id);
        let limit = limit.unwrap_or(PAGE).min(MAX_PAGE);
        let resolved = include_resolved.unwrap_or(false);
        let look = self.0.rooms.look(&room_id, move |room, connection| {
            notes::list(connection, &room.room_id, after_note_id.as_ref(), resolved, limit)
        });
        Ok(Notes { notes: look.await? })
    }

    async fn resolve_note(
        &self,
        extensions: &Extensions,
        room_id: RoomId,
        note_id: NoteId,
        idempotency_key: Option<String>,
    ) -> Result<NoteResolved, Error> {
        let (call, room_id) = Call::about(extensions, room_id)?;
        let by = self.0.commander(&call, idempotency_key)?;
        let (agent, clock) = (by.identity.agent_id.clone(), self.0.rooms.clock().clone());
        let rule = move |room: &mut Room, _: &_, connection: &_| {
            room.active_member(&agent)?;
            room.open()?;
            let (resolved, now) = notes::resolve(connection, &room.room_id, &note_id, &agent, clock.wall())?;
            if now {
                announce(room, EventType::NoteResolved, &agent, &note_id);
            }
            Ok((resolved, None))
        };
        self.0.rooms.command(&room_id, by, rule, |resolved, _, _| resolved).await
    }
}

fn announce(room: &mut Room, event_type: EventType, agent: &AgentId, note_id: &NoteId) {
    let mut event = EventDraft::new(event_type, room.turn_id, agent);
    event.payload = RawJson::of(&NoteRef { note_id: note_id.clone() }).ok();
    room.events.push(event);
}
