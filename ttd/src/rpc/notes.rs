//! `add_note`, `list_notes`, `resolve_note`.

use std::sync::Arc;

use jsonrpsee::Extensions;
use tt_proto::requests::{AddNote, ListNotes, NoteAdded, NoteList, NoteResolved, ResolveNote};
use tt_proto::{Error, ErrorCode, NoteId, RoomId};
use tt_rules::{Command, Reply};
use tt_store::NotePage;

use super::register::{Module, register};
use super::{Call, Shared};
use crate::engine::Outcome;

/// How many notes a page has if the caller does not say, and at most.
const DEFAULT_PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<AddNote, _>(module, add_note)?;
    register::<ListNotes, _>(module, list_notes)?;
    register::<ResolveNote, _>(module, resolve_note)
}

async fn add_note(shared: Arc<Shared>, extensions: Extensions, request: AddNote) -> Result<NoteAdded, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let AddNote { body, turn_id, .. } = request;
    let (note_id, author) = (NoteId::fresh(), context.agent_id().clone());
    let command = Command::AddNote { note_id: note_id.clone(), body, turn_id };
    let answer = move |outcome: &Outcome<'_>| NoteAdded {
        note_id: note_id.clone(),
        room_id: outcome.room.room_id.clone(),
        turn_id,
        author_agent_id: author.clone(),
        created_at: outcome.now.wall,
    };
    shared.engine.run(&room_id, context, command, answer).await
}

async fn list_notes(shared: Arc<Shared>, extensions: Extensions, request: ListNotes) -> Result<NoteList, Error> {
    let ListNotes { room_id, after_note_id, include_resolved, limit } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    shared.engine.seen(&call.identity()?.agent_id);
    let page = NotePage {
        after: after_note_id,
        include_resolved: include_resolved.unwrap_or(false),
        limit: limit.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE),
    };
    let _room = call.answer_room().await;
    let page = shared.engine.look(&room_id, move |room, reader| reader.notes(&room.room_id, &page)).await?;
    Ok(NoteList { notes: page.items, more: page.more })
}

async fn resolve_note(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ResolveNote,
) -> Result<NoteResolved, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let note_id = full_id(&shared, &room_id, request.note_id).await?;
    let (me, resolved) = (context.agent_id().clone(), note_id.clone());
    let answer = move |outcome: &Outcome<'_>| {
        let note = match outcome.reply {
            Reply::Note(note) => Some(note),
            _ => None,
        };
        NoteResolved {
            note_id: resolved.clone(),
            resolved_at: note.and_then(|note| note.resolved_at).unwrap_or(outcome.now.wall),
            resolved_by_agent_id: note.and_then(|note| note.resolved_by_agent_id.clone()).unwrap_or_else(|| me.clone()),
        }
    };
    shared.engine.run(&room_id, context, Command::ResolveNote { note_id }, answer).await
}

/// How long the id of a note is.
const ID_BYTES: usize = 36;

/// The id of the one note that begins with this. An id that is complete, or that no note has, stays as it is.
async fn full_id(shared: &Shared, room_id: &RoomId, note_id: NoteId) -> Result<NoteId, Error> {
    if note_id.as_str().len() >= ID_BYTES {
        return Ok(note_id);
    }
    let (room_id, prefix) = (room_id.clone(), note_id.as_str().to_owned());
    let found = shared.engine.read(move |reader| reader.notes_by_id(&room_id, &prefix)).await?;
    match found.as_slice() {
        [] => Ok(note_id),
        [only] => Ok(only.clone()),
        [first, second, ..] => {
            let candidates = vec![first.to_string(), second.to_string()];
            let message = format!("{:?} begins the ids of several notes", note_id.as_str());
            Err(Error::new(ErrorCode::UnknownTarget, message)
                .hint("write more of the id; tt notes list --all shows them")
                .detail("candidates", candidates))
        }
    }
}
