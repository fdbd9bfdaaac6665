//! Notes: remarks that stay until a member resolves them.

use tt_proto::event::{EventType, NoteRef};
use tt_proto::handoff::RawJson;
use tt_proto::note::{MAX_NOTE_BYTES, Note};
use tt_proto::{AgentId, Error, ErrorCode, NoteId, WallTime};

use crate::room::{EventDraft, Room};

/// What a command does to the notes of a room.
#[derive(Debug, Clone, PartialEq)]
pub enum NoteChange {
    Add(Note),
    Resolve { note_id: NoteId, by: AgentId, at: WallTime },
}

/// Adds a note.
pub(crate) fn add(
    room: &mut Room,
    author: &AgentId,
    note_id: &NoteId,
    body: &str,
    turn_id: Option<i64>,
    now: WallTime,
) -> Result<Note, Error> {
    room.active_member(author)?;
    check(room, body, turn_id)?;
    push_event(room, EventType::NoteAdded, author, note_id);
    Ok(Note {
        note_id: note_id.clone(),
        room_id: room.room_id.clone(),
        turn_id,
        author_agent_id: author.clone(),
        body: body.to_owned(),
        created_at: now,
        resolved_at: None,
        resolved_by_agent_id: None,
    })
}

/// Resolves a note and returns it, with the change. A note that was resolved before stays as it was.
pub(crate) fn resolve(
    room: &mut Room,
    caller: &AgentId,
    note_id: &NoteId,
    note: Option<&Note>,
    now: WallTime,
) -> Result<(Note, Option<NoteChange>), Error> {
    room.active_member(caller)?;
    room.open()?;
    let note = note.ok_or_else(|| {
        Error::new(ErrorCode::UnknownTarget, "there is no such note in this room")
            .hint("list them: tt notes list --all")
            .detail("note_id", note_id.as_str())
    })?;
    if note.resolved_at.is_some() {
        return Ok((note.clone(), None));
    }
    push_event(room, EventType::NoteResolved, caller, note_id);
    let resolved = Note { resolved_at: Some(now), resolved_by_agent_id: Some(caller.clone()), ..note.clone() };
    let change = NoteChange::Resolve { note_id: note_id.clone(), by: caller.clone(), at: now };
    Ok((resolved, Some(change)))
}

fn push_event(room: &mut Room, event_type: EventType, agent: &AgentId, note_id: &NoteId) {
    let mut event = EventDraft::new(event_type, room.turn_id, agent);
    event.payload = RawJson::of(&NoteRef { note_id: note_id.clone() }).ok();
    room.events.push(event);
}

fn check(room: &Room, body: &str, turn_id: Option<i64>) -> Result<(), Error> {
    room.open()?;
    if body.trim().is_empty() {
        return Err(Error::new(ErrorCode::InvalidBody, "the note is empty"));
    }
    if body.len() > MAX_NOTE_BYTES {
        return Err(Error::new(
            ErrorCode::BodyTooLarge,
            format!("the note is {} bytes long; {MAX_NOTE_BYTES} is the most", body.len()),
        )
        .detail("bytes", body.len())
        .detail("max_bytes", MAX_NOTE_BYTES));
    }
    if let Some(turn) = turn_id.filter(|turn| !(1..=room.turn_id).contains(turn)) {
        return Err(Error::new(ErrorCode::InvalidTurnId, format!("the room has had no turn {turn}"))
            .detail("turn_id", room.turn_id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::room;

    #[test]
    fn the_longest_note_passes_and_one_byte_more_does_not() {
        let room = room(&["a"]);
        let code = |body: &str, turn| check(&room, body, turn).map_err(|e| e.code);
        assert_eq!(code(&"x".repeat(MAX_NOTE_BYTES), None), Ok(()));
        assert_eq!(code(&"x".repeat(MAX_NOTE_BYTES + 1), None), Err(ErrorCode::BodyTooLarge));
        assert_eq!(code(&"ü".repeat(MAX_NOTE_BYTES / 2 + 1), None), Err(ErrorCode::BodyTooLarge), "counted in bytes");
        assert_eq!(code(" \n", None), Err(ErrorCode::InvalidBody));
        assert_eq!(code("x", Some(1)), Err(ErrorCode::InvalidTurnId), "the room has had no turn yet");
        assert_eq!(code("x", Some(0)), Err(ErrorCode::InvalidTurnId));
    }
}
