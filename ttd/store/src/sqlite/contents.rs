//! What was written in a room, and how much of it there is.

use rusqlite::{Connection, Row};
use tt_proto::room::RoomSize;
use tt_proto::{Error, RoomId};

use super::query_failed;

/// Whether there is a message, a note, a reminder or a handoff in a room `r`.
pub(super) const HAS_CONTENTS: &str = "(EXISTS (SELECT 1 FROM notes n WHERE n.room_id = r.room_id)
    OR EXISTS (SELECT 1 FROM reminders m WHERE m.room_id = r.room_id)
    OR EXISTS (SELECT 1 FROM room_events e WHERE e.room_id = r.room_id
               AND (e.event_type = 'message_sent' OR e.handoff_json IS NOT NULL)))";

pub(super) fn exist(connection: &Connection, room_id: &RoomId) -> Result<bool, Error> {
    connection
        .prepare_cached(&format!("SELECT coalesce((SELECT {HAS_CONTENTS} FROM path_rooms r WHERE room_id = ?1), 0)"))
        .and_then(|mut statement| statement.query_row([room_id.as_str()], |row| row.get(0)))
        .map_err(query_failed)
}

/// How much is stored of a room. Reads all of it.
pub(super) fn size(connection: &Connection, room_id: &RoomId) -> Result<RoomSize, Error> {
    let size = |row: &Row<'_>| {
        let number = |column| row.get::<_, i64>(column).map(|n| u64::try_from(n).unwrap_or(0));
        Ok(RoomSize { events: number(0)?, unread: number(2)?, bytes: number(1)? + number(3)? })
    };
    connection
        .prepare_cached(
            "SELECT count(*),
               coalesce(sum(length(CAST(coalesce(payload_json, '') || coalesce(handoff_json, '') || coalesce(reason, '')
                                        AS BLOB))), 0),
               (SELECT count(*) FROM deliveries WHERE room_id = ?1 AND state = 'pending'),
               (SELECT coalesce(sum(length(CAST(body AS BLOB))), 0) FROM notes WHERE room_id = ?1)
             FROM room_events WHERE room_id = ?1",
        )
        .and_then(|mut statement| statement.query_row([room_id.as_str()], size))
        .map_err(query_failed)
}
