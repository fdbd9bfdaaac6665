//! The log as rows.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tt_proto::event::{Event, EventType};
use tt_proto::filter::Filter;
use tt_proto::handoff::Verbatim;
use tt_proto::{AgentId, Error, EventId, RoomId, Timestamp};

use super::query_failed;
use super::rooms::time;
use crate::stick::EventDraft;

const COLUMNS: &str = "event_seq, event_id, room_id, turn_id, event_type, from_agent_id, to_agent_id, handoff_json, reason, \
                       created_at, payload_json";

/// Appends one event and gives it its number.
pub fn append(connection: &Connection, room_id: &RoomId, draft: &EventDraft, wall: Timestamp) -> Result<Event, Error> {
    let event_id = EventId::fresh();
    connection
        .prepare_cached(
            "INSERT INTO room_events (event_id, room_id, turn_id, event_type, from_agent_id, to_agent_id, handoff_json, reason,
               created_at, payload_json) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )
        .and_then(|mut statement| {
            statement.execute(params![
                event_id.as_str(),
                room_id.as_str(),
                draft.turn_id,
                draft.event_type.as_str(),
                draft.from.as_ref().map(AgentId::as_str),
                draft.to.as_ref().map(AgentId::as_str),
                draft.handoff.as_ref().map(Verbatim::as_str),
                draft.reason,
                wall.to_string(),
                draft.payload.as_ref().map(Verbatim::as_str),
            ])
        })
        .map_err(query_failed)?;
    Ok(Event {
        event_seq: connection.last_insert_rowid(),
        event_id,
        room_id: room_id.clone(),
        turn_id: draft.turn_id,
        event_type: draft.event_type,
        from_agent_id: draft.from.clone(),
        to_agent_id: draft.to.clone(),
        handoff: draft.handoff.clone(),
        reason: draft.reason.clone(),
        created_at: wall,
        payload: draft.payload.clone(),
    })
}

/// One event by its number.
pub fn get(connection: &Connection, event_seq: i64) -> Result<Option<Event>, Error> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM room_events WHERE event_seq = ?1"))
        .and_then(|mut s| s.query_row([event_seq], event_row).optional())
        .map(Option::flatten)
        .map_err(query_failed)
}

/// A room's events after a cursor that match, oldest first, at most `limit`. SQLite passes over what cannot match by its
/// type or sender; the filter itself decides.
pub fn matching(
    connection: &Connection,
    room_id: &RoomId,
    cursor: i64,
    limit: usize,
    filter: &Filter,
) -> Result<Vec<Event>, Error> {
    // Names of types are our own words and safe to write into the statement.
    let types = filter.event_types.as_ref().map(|types| {
        let names: Vec<String> = types.iter().map(|t| format!("'{}'", t.as_str())).collect();
        format!(" AND event_type IN ({})", names.join(", "))
    });
    let sql = format!(
        "SELECT {COLUMNS} FROM room_events WHERE room_id = ?1 AND event_seq > ?2 AND (?3 IS NULL OR from_agent_id = ?3){}
         ORDER BY event_seq",
        types.unwrap_or_default()
    );
    let mut statement = connection.prepare_cached(&sql).map_err(query_failed)?;
    let from = filter.from.as_ref().map(AgentId::as_str);
    let rows = statement.query_map(params![room_id.as_str(), cursor, from], event_row).map_err(query_failed)?;
    let mut found = Vec::new();
    for row in rows {
        if found.len() >= limit {
            break;
        }
        found.extend(row.map_err(query_failed)?.filter(|event| filter.matches(event)));
    }
    Ok(found)
}

/// The number of a room's newest event; 0 before the first.
pub fn newest(connection: &Connection, room_id: &RoomId) -> Result<i64, Error> {
    connection
        .prepare_cached("SELECT coalesce(max(event_seq), 0) FROM room_events WHERE room_id = ?1")
        .and_then(|mut s| s.query_row([room_id.as_str()], |row| row.get(0)))
        .map_err(query_failed)
}

/// A row of a type we do not know is left out rather than misread.
fn event_row(row: &Row<'_>) -> rusqlite::Result<Option<Event>> {
    let Some(event_type) = EventType::parse(&row.get::<_, String>(4)?) else { return Ok(None) };
    let agent = |column| row.get::<_, Option<String>>(column).map(|text| text.map(AgentId::trusted));
    let json = |column| row.get::<_, Option<String>>(column).map(|text| text.and_then(|t| Verbatim::parse(t).ok()));
    Ok(Some(Event {
        event_seq: row.get(0)?,
        event_id: row.get::<_, String>(1)?.into(),
        room_id: row.get::<_, String>(2)?.into(),
        turn_id: row.get(3)?,
        event_type,
        from_agent_id: agent(5)?,
        to_agent_id: agent(6)?,
        handoff: json(7)?,
        reason: row.get(8)?,
        created_at: time(row, 9)?.unwrap_or(Timestamp::from_millis(0)),
        payload: json(10)?,
    }))
}
