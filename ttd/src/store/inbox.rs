//! Inboxes and deliveries as rows: one for each message and recipient, in the inbox until it is handed over, among the
//! deliveries after that.

use std::collections::HashMap;

use rusqlite::{Connection, params};
use tt_proto::event::Event;
use tt_proto::message::InboxRoom;
use tt_proto::{AgentId, Error, RoomId, WallTime};

use super::{events, query_failed};

/// A message waits for each of these.
pub fn add(connection: &Connection, room_id: &RoomId, event_seq: i64, recipients: &[AgentId]) -> Result<(), Error> {
    for recipient in recipients {
        connection
            .prepare_cached("INSERT INTO inbox (room_id, recipient_agent_id, event_seq) VALUES (?1, ?2, ?3)")
            .and_then(|mut s| s.execute(params![room_id.as_str(), recipient.as_str(), event_seq]))
            .map_err(query_failed)?;
    }
    Ok(())
}

/// A member's inbox, oldest first.
pub fn pending(connection: &Connection, room_id: &RoomId, recipient: &AgentId) -> Result<Vec<i64>, Error> {
    let mut statement = connection
        .prepare_cached("SELECT event_seq FROM inbox WHERE room_id = ?1 AND recipient_agent_id = ?2 ORDER BY event_seq")
        .map_err(query_failed)?;
    let rows = statement.query_map([room_id.as_str(), recipient.as_str()], |row| row.get(0));
    rows.and_then(Iterator::collect).map_err(query_failed)
}

/// The rooms in which a member has messages that no surface has handed over. Who has left a room is not handed any there.
pub fn rooms(connection: &Connection, recipient: &AgentId) -> Result<Vec<InboxRoom>, Error> {
    let mut statement = connection
        .prepare_cached(
            "SELECT inbox.room_id, count(*) FROM room_members
             JOIN inbox ON inbox.room_id = room_members.room_id AND recipient_agent_id = agent_id
             WHERE agent_id = ?1 AND status IN ('active', 'gone')
             GROUP BY inbox.room_id ORDER BY min(event_seq)",
        )
        .map_err(query_failed)?;
    let room = |row: &rusqlite::Row<'_>| {
        let unread: i64 = row.get(1)?;
        Ok(InboxRoom {
            room_id: row.get_ref(0)?.as_str()?.into(),
            unread: usize::try_from(unread).unwrap_or(usize::MAX),
        })
    };
    let rows = statement.query_map([recipient.as_str()], room);
    rows.and_then(Iterator::collect).map_err(query_failed)
}

/// The messages of an inbox, by number.
pub fn messages(connection: &Connection, event_seqs: &[i64]) -> Result<Vec<Event>, Error> {
    let mut found = Vec::with_capacity(event_seqs.len());
    for seq in event_seqs {
        found.extend(events::get(connection, *seq)?);
    }
    Ok(found)
}

/// Moves a message from an inbox to the deliveries, unless that was done before. Returns whether this did it.
pub fn deliver(
    connection: &Connection,
    (room_id, recipient): (&RoomId, &AgentId),
    event_seq: i64,
    surface: &str,
    wall: WallTime,
) -> Result<bool, Error> {
    let taken = connection
        .prepare_cached("DELETE FROM inbox WHERE room_id = ?1 AND recipient_agent_id = ?2 AND event_seq = ?3")
        .and_then(|mut s| s.execute(params![room_id.as_str(), recipient.as_str(), event_seq]))
        .map_err(query_failed)?;
    if taken == 0 {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, surface, delivered_at)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .and_then(|mut s| {
            s.execute(params![event_seq, recipient.as_str(), room_id.as_str(), surface, wall.to_string()])
        })
        .map(|_| true)
        .map_err(query_failed)
}

/// How many messages wait for each member of a room.
pub fn unread(connection: &Connection, room_id: &RoomId) -> Result<HashMap<AgentId, usize>, Error> {
    let mut statement = connection
        .prepare_cached("SELECT recipient_agent_id, count(*) FROM inbox WHERE room_id = ?1 GROUP BY recipient_agent_id")
        .map_err(query_failed)?;
    let row = |row: &rusqlite::Row<'_>| {
        let count: i64 = row.get(1)?;
        Ok((AgentId::trusted(row.get::<_, String>(0)?), usize::try_from(count).unwrap_or(0)))
    };
    statement.query_map([room_id.as_str()], row).and_then(Iterator::collect).map_err(query_failed)
}
