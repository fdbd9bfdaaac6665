//! Notes as rows.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tt_proto::note::{Note, NoteAdded, NoteResolved};
use tt_proto::{AgentId, Error, ErrorCode, NoteId, RoomId, WallTime};

use super::query_failed;
use super::rooms::time;

pub fn add(
    connection: &Connection,
    room_id: &RoomId,
    author: &AgentId,
    body: &str,
    turn_id: Option<i64>,
    wall: WallTime,
) -> Result<NoteAdded, Error> {
    let note = NoteAdded {
        note_id: NoteId::fresh(),
        room_id: room_id.clone(),
        turn_id,
        author_agent_id: author.clone(),
        created_at: wall,
    };
    connection
        .execute(
            "INSERT INTO notes (note_id, room_id, turn_id, author_agent_id, body, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![note.note_id.as_str(), room_id.as_str(), turn_id, author.as_str(), body, wall.to_string()],
        )
        .map_err(query_failed)?;
    Ok(note)
}

/// Marks a note as resolved. Whoever does so first stands; false when it was resolved before.
pub fn resolve(
    connection: &Connection,
    room_id: &RoomId,
    note_id: &NoteId,
    by: &AgentId,
    wall: WallTime,
) -> Result<(NoteResolved, bool), Error> {
    let unknown = || {
        Error::new(ErrorCode::UnknownTarget, "there is no such note in this room")
            .hint("see them with `tt notes list --all`")
            .detail("note_id", note_id.as_str())
    };
    let note = get(connection, room_id, note_id)?.ok_or_else(unknown)?;
    if let (Some(resolved_at), Some(resolved_by_agent_id)) = (note.resolved_at, note.resolved_by_agent_id) {
        return Ok((NoteResolved { note_id: note_id.clone(), resolved_at, resolved_by_agent_id }, false));
    }
    connection
        .execute(
            "UPDATE notes SET resolved_at = ?2, resolved_by_agent_id = ?3 WHERE note_id = ?1 AND resolved_at IS NULL",
            [note_id.as_str(), &wall.to_string(), by.as_str()],
        )
        .map_err(query_failed)?;
    Ok((NoteResolved { note_id: note_id.clone(), resolved_at: wall, resolved_by_agent_id: by.clone() }, true))
}

fn get(connection: &Connection, room_id: &RoomId, note_id: &NoteId) -> Result<Option<Note>, Error> {
    connection
        .prepare_cached(
            "SELECT note_id, room_id, turn_id, author_agent_id, body, created_at, resolved_at, resolved_by_agent_id
             FROM notes WHERE note_id = ?1 AND room_id = ?2",
        )
        .and_then(|mut s| s.query_row([note_id.as_str(), room_id.as_str()], note_row).optional())
        .map_err(query_failed)
}

/// A page of a room's notes, oldest first.
pub fn list(
    connection: &Connection,
    room_id: &RoomId,
    after: Option<&NoteId>,
    include_resolved: bool,
    limit: usize,
) -> Result<Vec<Note>, Error> {
    let (created_at, note_id) = match after {
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
             ORDER BY created_at, note_id LIMIT ?5",
        )
        .map_err(query_failed)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![room_id.as_str(), created_at, note_id, include_resolved, limit], note_row);
    rows.and_then(Iterator::collect).map_err(query_failed)
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
