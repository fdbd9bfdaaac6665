//! The log as rows.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tt_proto::event::{Event, EventType};
use tt_proto::filter::Filter;
use tt_proto::handoff::RawJson;
use tt_proto::page::PageSize;
use tt_proto::{AgentId, Error, EventId, RoomId, WallTime};
use tt_rules::EventDraft;

use super::query_failed;
use super::rooms::time;

const COLUMNS: &str = "event_seq, event_id, room_id, turn_id, event_type, from_agent_id, to_agent_id, handoff_json, reason, \
                       created_at, payload_json";

/// Appends one event and gives it its number.
pub(super) fn append(
    connection: &Connection,
    room_id: &RoomId,
    draft: &EventDraft,
    wall: WallTime,
) -> Result<Event, Error> {
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
                draft.handoff.as_ref().map(RawJson::as_str),
                draft.reason,
                wall.to_string(),
                draft.payload.as_ref().map(RawJson::as_str),
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
pub(super) fn get(connection: &Connection, event_seq: i64) -> Result<Option<Event>, Error> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM room_events WHERE event_seq = ?1"))
        .and_then(|mut s| s.query_row([event_seq], event_row).optional())
        .map(Option::flatten)
        .map_err(query_failed)
}

/// A room's events after a cursor that match, oldest first: at most `limit`, and no more than an answer can hold. SQLite
/// passes over what cannot match by its type or sender; the filter itself decides.
pub(super) fn matching(
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
    let (mut found, mut size) = (Vec::new(), PageSize::default());
    for row in rows {
        if found.len() >= limit || !size.has_room() {
            break;
        }
        let Some(event) = row.map_err(query_failed)?.filter(|event| filter.matches(event)) else { continue };
        size.add(&event);
        found.push(event);
    }
    Ok(found)
}

/// The number of the newest event of a room, or of all rooms; 0 before the first.
pub(super) fn newest(connection: &Connection, room_id: Option<&RoomId>) -> Result<i64, Error> {
    let found = match room_id {
        Some(room_id) => connection
            .prepare_cached("SELECT max(event_seq) FROM room_events WHERE room_id = ?1")
            .and_then(|mut s| s.query_row([room_id.as_str()], |row| row.get::<_, Option<i64>>(0))),
        None => connection
            .prepare_cached("SELECT max(event_seq) FROM room_events")
            .and_then(|mut s| s.query_row([], |row| row.get::<_, Option<i64>>(0))),
    };
    Ok(found.map_err(query_failed)?.unwrap_or(0))
}

/// When a turn was granted, as far as the log tells.
pub(super) fn turn_started_at(
    connection: &Connection,
    room_id: &RoomId,
    turn_id: i64,
) -> Result<Option<WallTime>, Error> {
    let granted = "SELECT created_at FROM room_events
                   WHERE room_id = ?1 AND turn_id = ?2 AND event_type IN ('claim', 'takeover') ORDER BY event_seq LIMIT 1";
    let mut statement = connection.prepare_cached(granted).map_err(query_failed)?;
    let at = statement.query_row(params![room_id.as_str(), turn_id], |row| time(row, 0)).optional();
    Ok(at.map_err(query_failed)?.flatten())
}

/// A row of a type we do not know is left out rather than misread.
fn event_row(row: &Row<'_>) -> rusqlite::Result<Option<Event>> {
    let Some(event_type) = EventType::parse(&row.get::<_, String>(4)?) else { return Ok(None) };
    let agent = |column| row.get::<_, Option<String>>(column).map(|text| text.map(AgentId::trusted));
    let json = |column| row.get::<_, Option<String>>(column).map(|text| text.and_then(|t| RawJson::parse(t).ok()));
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
        created_at: time(row, 9)?.unwrap_or(WallTime::from_millis(0)),
        payload: json(10)?,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tt_proto::filter::{EventFilter, OneOrMany};

    use super::*;

    const ME: &str = "a";
    const AGENTS: [Option<&str>; 4] = [None, Some("a"), Some("b"), Some("c")];

    /// A row of the log, as far as filters care: type, sender, recipient.
    type Row = (usize, usize, usize);

    fn database(rows: &[Row]) -> (Connection, RoomId) {
        let connection = Connection::open_in_memory().unwrap();
        super::super::migrations::apply_all(&connection).unwrap();
        let create = |path: &str| {
            let room = tt_rules::Room::new(RoomId::fresh(), std::path::Path::new(path), Default::default());
            super::super::rooms::create(&connection, &room, WallTime::from_millis(0)).unwrap();
            room.room_id
        };
        let (room, elsewhere) = (create("/here"), create("/there"));
        for (event_type, from, to) in rows {
            let draft = EventDraft {
                event_type: EventType::ALL[*event_type],
                turn_id: None,
                from: AGENTS[*from].map(AgentId::trusted),
                to: AGENTS[*to].map(AgentId::trusted),
                handoff: None,
                reason: None,
                payload: None,
            };
            append(&connection, &room, &draft, WallTime::from_millis(0)).unwrap();
            append(&connection, &elsewhere, &draft, WallTime::from_millis(0)).unwrap();
        }
        (connection, room)
    }

    /// The filter once more, straight from the protocol and over plain rows.
    fn fits(row: &Row, types: Option<&[usize]>, target: &str, from: Option<&str>) -> bool {
        let (event_type, sender, recipient) = (row.0, AGENTS[row.1], AGENTS[row.2]);
        let name = EventType::ALL[event_type].as_str();
        let for_target = if target == "any" {
            true
        } else if target != "self" {
            recipient == Some(target)
        } else if name == "message_sent" {
            if recipient.is_some() { recipient == Some(ME) } else { sender != Some(ME) }
        } else {
            name == "member_joined" || name == "member_left" || sender == Some(ME) || recipient == Some(ME)
        };
        types.is_none_or(|types| types.contains(&event_type))
            && from.is_none_or(|from| sender == Some(from))
            && for_target
    }

    fn type_filters() -> Vec<Option<Vec<usize>>> {
        let one = (0..EventType::ALL.len()).map(|t| Some(vec![t]));
        let lists = [vec![6, 7], vec![0, 1, 2, 3], vec![6, 6], (0..EventType::ALL.len()).collect()];
        one.chain(lists.into_iter().map(Some)).chain([None]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        #[test]
        fn every_combination_of_filters_finds_what_a_plain_look_finds(
            rows in proptest::collection::vec((0..EventType::ALL.len(), 0_usize..4, 0_usize..4), 0..60),
        ) {
            let (connection, room) = database(&rows);
            let me = AgentId::trusted(ME);
            let nothing = Filter { event_types: None, from: None, target: tt_proto::filter::Target::Any };
            let log = matching(&connection, &room, 0, usize::MAX, &nothing).unwrap();
            prop_assert_eq!(log.len(), rows.len());
            let middle = log.get(log.len() / 2).map_or(0, |event| event.event_seq);
            let newest = log.last().map_or(0, |event| event.event_seq);
            for types in type_filters() {
                for target in ["self", "any", "a", "b", "nobody"] {
                    for from in [None, Some("a"), Some("b"), Some("nobody")] {
                        let names = |types: &Vec<usize>| types.iter().map(|t| EventType::ALL[*t].as_str().to_owned()).collect();
                        let asked = EventFilter {
                            event_type: types.as_ref().map(|types| match types.as_slice() {
                                [one] => OneOrMany::One(EventType::ALL[*one].as_str().to_owned()),
                                _ => OneOrMany::Many(names(types)),
                            }),
                            from_agent_id: from.map(AgentId::trusted),
                            target_agent_id: Some(target.to_owned()),
                        };
                        let filter = asked.understand(Some(&me), "self").unwrap();
                        for after in [0, middle, newest] {
                            for limit in [0, 1, 3, usize::MAX] {
                                let expected: Vec<&Event> = rows
                                    .iter()
                                    .zip(&log)
                                    .filter(|(row, event)| event.event_seq > after && fits(row, types.as_deref(), target, from))
                                    .map(|(_, event)| event)
                                    .take(limit)
                                    .collect();
                                let found = matching(&connection, &room, after, limit, &filter).unwrap();
                                prop_assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{:?} after {} limit {}", asked, after, limit);
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_page_ends_before_it_gets_too_long_to_be_sent() {
        let (connection, room) = database(&[]);
        let long = RawJson::of(&"x".repeat(1024 * 1024)).unwrap();
        let mut draft = EventDraft::new(EventType::Release, 1, &AgentId::trusted(ME));
        draft.handoff = Some(long);
        for _ in 0..20 {
            append(&connection, &room, &draft, WallTime::from_millis(0)).unwrap();
        }
        let any = Filter { event_types: None, from: None, target: tt_proto::filter::Target::Any };
        let (mut cursor, mut pages) = (0, Vec::new());
        while let page = matching(&connection, &room, cursor, 1000, &any).unwrap()
            && let Some(last) = page.last()
        {
            cursor = last.event_seq;
            pages.push(page.len());
        }
        assert_eq!((pages.iter().sum::<usize>(), pages.iter().max()), (20, Some(&1)));
    }
}
