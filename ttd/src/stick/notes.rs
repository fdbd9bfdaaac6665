//! What a note may be.

use tt_proto::note::MAX_NOTE_BYTES;
use tt_proto::{Error, ErrorCode};

use super::Room;

/// Checks a note before it is kept.
pub fn check(room: &Room, body: &str, turn_id: Option<i64>) -> Result<(), Error> {
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
    use super::super::testing::room;
    use super::*;

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
