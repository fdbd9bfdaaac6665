//! Notes as rows.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tt_proto::note::Note;
use tt_proto::{AgentId, Error, ErrorCode, NoteId, RoomId, WallTime};
use tt_rules::NoteChange;

use super::query_failed;
use super::rooms::time;
use crate::{NotePage, Page};

/// Saves what a decision does to a note.
pub(super) fn save(connection: &Connection, change: &NoteChange) -> Result<(), Error> {
    let done = match change {
        NoteChange::Add(note) => connection.execute(
            "INSERT INTO notes (note_id, room_id, turn_id, author_agent_id, body, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                note.note_id.as_str(),
                note.room_id.as_str(),
                note.turn_id,
                note.author_agent_id.as_str(),
                note.body,
                note.created_at.to_string()
            ],
        ),
        NoteChange::Resolve { note_id, by, at } => connection.execute(
            "UPDATE notes SET resolved_at = ?2, resolved_by_agent_id = ?3 WHERE note_id = ?1 AND resolved_at IS NULL",
            [note_id.as_str(), &at.to_string(), by.as_str()],
        ),
    };
    done.map(|_| ()).map_err(query_failed)
}

pub(super) fn get(connection: &Connection, room_id: &RoomId, note_id: &NoteId) -> Result<Option<Note>, Error> {
    connection
        .prepare_cached(
            "SELECT note_id, room_id, turn_id, author_agent_id, body, created_at, resolved_at, resolved_by_agent_id
             FROM notes WHERE note_id = ?1 AND room_id = ?2",
        )
        .and_then(|mut s| s.query_row([note_id.as_str(), room_id.as_str()], note_row).optional())
        .map_err(query_failed)
}

/// A page of a room's notes, oldest first.
pub(super) fn list(connection: &Connection, room_id: &RoomId, page: &NotePage) -> Result<Page<Note>, Error> {
    let (created_at, note_id) = match &page.after {
        None => (String::new(), String::new()),
        Some(after) => {
            let note = get(connection, room_id, after)?.ok_or_else(|| {
                Error::new(ErrorCode::InvalidCursor, "after_note_id names no note of this room")
                    .detail("note_id", after.as_str())
            })?;
            (note.created_at.to_string(), after.as_str().to_owned())
        }
    };
    let mut statement = connection
        .prepare_cached(
            "SELECT note_id, room_id, turn_id, author_agent_id, body, created_at, resolved_at, resolved_by_agent_id
             FROM notes WHERE room_id = ?1 AND (created_at, note_id) > (?2, ?3) AND (?4 OR resolved_at IS NULL)
             ORDER BY created_at, note_id",
        )
        .map_err(query_failed)?;
    let rows = statement.query_map(params![room_id.as_str(), created_at, note_id, page.include_resolved], note_row);
    Page::of(rows.map_err(query_failed)?, page.limit).map_err(query_failed)
}

fn note_row(row: &Row<'_>) -> rusqlite::Result<Note> {
    Ok(Note {
        note_id: row.get::<_, String>(0)?.into(),
        room_id: row.get::<_, String>(1)?.into(),
        turn_id: row.get(2)?,
        author_agent_id: AgentId::trusted(row.get::<_, String>(3)?),
        body: row.get(4)?,
        created_at: time(row, 5)?.unwrap_or(WallTime::from_millis(0)),
        resolved_at: time(row, 6)?,
        resolved_by_agent_id: row.get::<_, Option<String>>(7)?.map(AgentId::trusted),
    })
}
