//! The full-text index over the log, filled in small steps behind the answers. What is not in it yet is found by looking at
//! the events themselves, so a search never misses the newest.

use rusqlite::{Connection, OptionalExtension, params};
use tt_proto::event::Event;
use tt_proto::filter::Filter;
use tt_proto::page::PageSize;
use tt_proto::search::{SearchWords, text_of, words};
use tt_proto::{Error, RoomId, WallTime};

use super::events::{self, COLUMNS, event_row};
use super::query_failed;
use crate::{EventQuery, NewestEvents};

/// How many older events are counted at most where a filter has to look at each.
const MAX_COUNTED: usize = 1000;

/// A step of indexing ends after this much text.
const MAX_STEP_BYTES: usize = 256 * 1024;

/// Up to which event the index is filled.
pub(super) fn indexed(connection: &Connection) -> Result<i64, Error> {
    connection
        .prepare_cached("SELECT indexed_event_seq FROM event_index")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(query_failed)
}

/// Adds the next events to the index, at most this many.
pub(super) fn index_next(connection: &Connection, limit: usize) -> Result<(), Error> {
    let from = indexed(connection)?;
    let sql = format!("SELECT {COLUMNS} FROM room_events WHERE event_seq > ?1 ORDER BY event_seq LIMIT ?2");
    let mut next = connection.prepare_cached(&sql).map_err(query_failed)?;
    let mut add = connection
        .prepare_cached("INSERT INTO event_words (rowid, room, words) VALUES (?1, ?2, ?3)")
        .map_err(query_failed)?;
    let mut rows = next.query(params![from, i64::try_from(limit).unwrap_or(i64::MAX)]).map_err(query_failed)?;
    let (mut last, mut bytes) = (from, 0);
    while bytes < MAX_STEP_BYTES
        && let Some(row) = rows.next().map_err(query_failed)?
    {
        last = row.get(0).map_err(query_failed)?;
        // A row of a type that this version does not know has no text it could show either.
        let Some(event) = event_row(row).map_err(query_failed)? else { continue };
        let text = words(&text_of(&event)).collect::<Vec<_>>().join(" ");
        bytes += text.len();
        add.execute(params![last, room_word(&event.room_id), text]).map_err(query_failed)?;
    }
    connection
        .prepare_cached("UPDATE event_index SET indexed_event_seq = ?1 WHERE indexed_event_seq < ?1")
        .and_then(|mut statement| statement.execute([last]))
        .map(|_| ())
        .map_err(query_failed)
}

/// Removes the events of a room from the index. They must still be in the log.
pub(super) fn remove_room(connection: &Connection, room_id: &RoomId) -> Result<(), Error> {
    let indexed = indexed(connection)?;
    connection
        .execute(
            "DELETE FROM event_words WHERE rowid IN
               (SELECT event_seq FROM room_events WHERE room_id = ?1 AND event_seq <= ?2)",
            params![room_id.as_str(), indexed],
        )
        .map(|_| ())
        .map_err(query_failed)
}

/// The newest events of a room that match, oldest first, and how many older ones do.
pub(super) fn newest(connection: &Connection, room_id: &RoomId, query: &EventQuery) -> Result<NewestEvents, Error> {
    let before = query.before.unwrap_or(i64::MAX);
    let after = match query.filter.since {
        Some(since) => first_since(connection, room_id, since)? - 1,
        None => 0,
    };
    let mut found = NewestEvents::default();
    match &query.filter.words {
        None => collect(connection, room_id, LOG, (after, before), query, &mut found)?,
        Some(words) => {
            let indexed = indexed(connection)?;
            collect(connection, room_id, LOG, (after.max(indexed), before), query, &mut found)?;
            let matching = matching(room_id, words);
            let range = (after, before.min(indexed.saturating_add(1)));
            collect(connection, room_id, &matching, range, query, &mut found)?;
        }
    }
    if query.filter.is_any()
        && let Some(first) = found.events.last()
    {
        // The index over the numbers of a room counts them all, fast enough for a million.
        let count = "SELECT count(*) FROM room_events WHERE room_id = ?1 AND event_seq < ?2";
        let mut statement = connection.prepare_cached(count).map_err(query_failed)?;
        let earlier: i64 =
            statement.query_row(params![room_id.as_str(), first.event_seq], |row| row.get(0)).map_err(query_failed)?;
        (found.earlier, found.earlier_is_more) = (usize::try_from(earlier).unwrap_or(usize::MAX), false);
    }
    found.events.reverse();
    Ok(found)
}

/// The events of a room between two numbers.
const LOG: &str = "room_events WHERE room_id = ?1 AND event_seq > ?2 AND event_seq < ?3";

/// The events of a room between two numbers that have these words. They are read from the index, newest first, so that a page
/// of a common word does not look at all its events.
fn matching(room_id: &RoomId, words: &SearchWords) -> String {
    format!(
        "event_words CROSS JOIN room_events ON event_seq = event_words.rowid
         WHERE event_words MATCH {} AND event_words.rowid > ?2 AND event_words.rowid < ?3 AND room_id = ?1",
        match_expression(room_id, words)
    )
}

/// The query for the events of a source, newest first.
fn select_newest(source: &str, filter: &Filter) -> String {
    let order = if source == LOG { "event_seq" } else { "event_words.rowid" };
    format!(
        "SELECT {COLUMNS} FROM {source} AND (?4 IS NULL OR from_agent_id = ?4){} ORDER BY {order} DESC",
        events::type_condition(filter)
    )
}

/// Adds the events between two numbers that match, newest first, and counts those beyond the limit.
fn collect(
    connection: &Connection,
    room_id: &RoomId,
    source: &str,
    (after, before): (i64, i64),
    query: &EventQuery,
    found: &mut NewestEvents,
) -> Result<(), Error> {
    let filter = &query.filter;
    let mut statement = connection.prepare(&select_newest(source, filter)).map_err(query_failed)?;
    let from = filter.from.as_ref().map(|agent| agent.as_str());
    let mut rows = statement.query(params![room_id.as_str(), after, before, from]).map_err(query_failed)?;
    let mut size = PageSize::default();
    found.events.iter().for_each(|event| size.add(event));
    while let Some(row) = rows.next().map_err(query_failed)? {
        let Some(event) = event_row(row).map_err(query_failed)?.filter(|event| filter.matches(event)) else { continue };
        if found.earlier == 0 && found.events.len() < query.limit && size.has_room() {
            size.add(&event);
            found.events.push(event);
        } else if found.earlier < MAX_COUNTED {
            found.earlier += 1;
            if filter.is_any() {
                return Ok(());
            }
        } else {
            found.earlier_is_more = true;
            return Ok(());
        }
    }
    Ok(())
}

/// The number of the first event of a room that is not older than this. Searched by halves, since numbers grow with time;
/// where the clock was set back, the filter still looks at each event.
fn first_since(connection: &Connection, room_id: &RoomId, since: WallTime) -> Result<i64, Error> {
    let mut at = connection
        .prepare_cached(
            "SELECT event_seq, created_at FROM room_events WHERE room_id = ?1 AND event_seq >= ?2 ORDER BY event_seq LIMIT 1",
        )
        .map_err(query_failed)?;
    let (mut low, mut high) = (1, events::newest(connection, Some(room_id))? + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let row = at.query_row(params![room_id.as_str(), middle], |row| {
            Ok((row.get::<_, i64>(0)?, super::rooms::time(row, 1)?))
        });
        match row.optional().map_err(query_failed)? {
            Some((seq, Some(created_at))) if created_at < since => low = seq + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The room as one word, which no other room has.
fn room_word(room_id: &RoomId) -> String {
    room_id.as_str().chars().filter(char::is_ascii_alphanumeric).collect()
}

/// What FTS5 is asked. Words are letters and digits only, so none has a meaning to it.
fn match_expression(room_id: &RoomId, searched: &SearchWords) -> String {
    let words: Vec<String> = searched.as_slice().iter().map(|word| format!("words : \"{word}\" *")).collect();
    format!("'room : \"{}\" AND {}'", room_word(room_id), words.join(" AND "))
}

/// The event of a room whose id begins with this, if there is only one. The error names how many there are.
pub(super) fn by_id(connection: &Connection, room_id: &RoomId, prefix: &str) -> Result<Vec<Event>, Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM room_events WHERE event_id >= ?1 AND event_id < ?1 || x'7f' AND room_id = ?2
         ORDER BY event_id LIMIT 2"
    );
    let mut statement = connection.prepare_cached(&sql).map_err(query_failed)?;
    let rows = statement.query_map([prefix, room_id.as_str()], event_row).map_err(query_failed)?;
    let found: Vec<Option<Event>> = rows.collect::<Result<_, _>>().map_err(query_failed)?;
    Ok(found.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_looks_words_up_in_the_index_and_sorts_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        super::super::migrations::apply_all(&connection).unwrap();
        let plan = |source: &str| {
            let sql = format!("EXPLAIN QUERY PLAN {}", select_newest(source, &Filter::any()));
            let mut statement = connection.prepare(&sql).unwrap();
            let rows = statement.query_map(params!["r", 0, 9, None::<&str>], |row| row.get("detail")).unwrap();
            rows.collect::<Result<Vec<String>, _>>().unwrap()
        };
        let words = SearchWords::parse("cart schema").unwrap();
        // The index is asked for the words (M) between two numbers, and each event it names is read by its number.
        let indexed = plan(&matching(&RoomId::from("r"), &words));
        assert_eq!(indexed.len(), 2, "{indexed:?}");
        assert!(
            indexed[0].starts_with("SCAN event_words VIRTUAL TABLE INDEX ") && indexed[0].ends_with(":M2><"),
            "{indexed:?}"
        );
        assert_eq!(indexed[1], "SEARCH room_events USING INTEGER PRIMARY KEY (rowid=?)");
        // What is not in it yet is read from the log of this room alone.
        let rest = plan(LOG);
        assert_eq!(rest.len(), 1, "{rest:?}");
        assert!(rest[0].ends_with("(room_id=? AND event_seq>? AND event_seq<?)"), "{rest:?}");
    }
}
