//! Deliveries as rows: one for each message and recipient. Open ones are found by a partial index, so that what was
//! delivered long ago costs nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::event::Event;
use tt_proto::message::{DeliveryHint, InboxRoom, Unread};
use tt_proto::{AgentId, Error, RoomId, WallTime};
use tt_rules::{Attempt, DeadlineTime, DeliveryChange, DeliveryRow, MessageRow, NewDelivery, Wakes};

use super::query_failed;
use super::rooms::time;
use crate::{OpenQuery, Page, StoredDelivery, WaitingQuery};

/// Opens the delivery of an event to one recipient.
pub(super) fn open(connection: &Connection, event: &Event, delivery: &NewDelivery) -> Result<(), Error> {
    connection
        .prepare_cached(
            "INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id, expires_at, delivery_hint,
               expects_reply, reply_to, notify_on_delivery, notify_after_ms, due_at, wakes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?5, ?11)",
        )
        .and_then(|mut s| {
            let expires_at = delivery.expires_at.map(DeadlineTime::as_millis);
            let (room_id, from) = (event.room_id.as_str(), event.from_agent_id.as_ref().map(AgentId::as_str));
            let hint = Some(delivery.delivery_hint).filter(|hint| *hint != DeliveryHint::Normal);
            let hint = hint.map(DeliveryHint::as_str);
            s.execute(params![
                event.event_seq,
                delivery.recipient.as_str(),
                room_id,
                from,
                expires_at,
                hint,
                delivery.expects_reply,
                delivery.reply_to,
                delivery.notify_on_delivery,
                delivery.notify_after.map(millis),
                delivery.wakes.as_str(),
            ])
        })
        .map(|_| ())
        .map_err(query_failed)
}

/// Which of these messages nobody was handed, and nobody will be. One that was withdrawn from some and expired for the others
/// counts as withdrawn.
pub(super) fn undelivered(connection: &Connection, event_seqs: &[i64]) -> Result<Vec<(i64, DeliveryState)>, Error> {
    let sql = "SELECT max(state) FROM deliveries WHERE event_seq = ?1
               HAVING count(*) > 0 AND min(state IN ('expired', 'withdrawn'))";
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    let mut found = Vec::new();
    for event_seq in event_seqs {
        let state = statement.query_row([event_seq], |row| row.get::<_, String>(0)).optional().map_err(query_failed)?;
        found.extend(state.and_then(|state| DeliveryState::parse(&state)).map(|state| (*event_seq, state)));
    }
    Ok(found)
}

/// Changes a delivery, unless it is in another state by now. `appended` are the events of the command.
pub(super) fn change(connection: &Connection, change: &DeliveryChange, appended: &[Arc<Event>]) -> Result<(), Error> {
    let after = &change.after;
    let answered_by = change.answered_by.and_then(|index| appended.get(index)).map(|event| event.event_seq);
    connection
        .prepare_cached(
            "UPDATE deliveries SET state = ?4, surface = coalesce(?5, surface), delivered_at = iif(?3 = 'pending', ?6, delivered_at),
               answered_by = coalesce(?7, answered_by), is_over = ?8, is_late = ?9, notify_at = ?10, due_at = ?11,
               attempt_tag = ?12, attempt_surface = ?13, attempt_at = ?14, attempts = ?15
             WHERE event_seq = ?1 AND recipient_agent_id = ?2 AND state = ?3",
        )
        .and_then(|mut s| {
            s.execute(params![
                after.event_seq,
                after.recipient.as_str(),
                change.before.as_str(),
                after.state.as_str(),
                change.surface.map(|surface| surface.as_str()),
                // One that only changed what is known of its question was not handed over by that.
                (after.state != change.before).then(|| change.at.to_string()),
                answered_by,
                after.is_over,
                change.is_late,
                after.notify_at.map(DeadlineTime::as_millis),
                after.due_at().map(DeadlineTime::as_millis),
                after.attempt.as_ref().map(|attempt| attempt.tag.as_str()),
                after.attempt.as_ref().map(|attempt| attempt.surface.as_str()),
                after.attempt.as_ref().map(|attempt| attempt.at.to_string()),
                after.attempts,
            ])
        })
        .map(|_| ())
        .map_err(query_failed)
}

/// The columns of a [`DeliveryRow`].
macro_rules! columns {
    () => {
        "event_seq, recipient_agent_id, from_agent_id, state, delivery_hint, expires_at, expects_reply, notify_on_delivery,
         notify_after_ms, notify_at, is_over, reply_to, attempt_tag, attempt_surface, attempt_at, wakes, attempts"
    };
}

/// Which of a member's open deliveries are looked for.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Which<'a> {
    /// Only those of one sender.
    pub(super) from: Option<&'a AgentId>,
    /// Only what concerns this question.
    pub(super) about: Option<i64>,
    /// Without those for later.
    pub(super) mid_turn: bool,
}

/// The oldest open deliveries to a member, at most `limit`, and as many newer ones that are urgent. What was delivered, and what
/// others sent, is not looked at, and what is being handed over in a way that cannot be recalled is left out.
pub(super) fn inbox(
    connection: &Connection,
    room_id: &RoomId,
    recipient: &AgentId,
    which: Which<'_>,
    limit: usize,
) -> Result<Vec<DeliveryRow>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (room_id, recipient, from) = (room_id.as_str(), recipient.as_str(), which.from.map(AgentId::as_str));
    let mut open = match (which.about, from) {
        (Some(about), _) => return query(connection, ABOUT, params![room_id, recipient, limit, about]),
        (None, None) => query(connection, INBOX, params![room_id, recipient, limit, which.mid_turn])?,
        (None, Some(from)) => {
            query(connection, INBOX_OF_SENDER, params![room_id, recipient, limit, from, which.mid_turn])?
        }
    };
    // What is urgent comes first, however many ordinary messages are older.
    let last = open.last().map_or(0, |delivery| delivery.event_seq);
    open.extend(query(connection, URGENT, params![room_id, recipient, limit, from, last])?);
    Ok(open)
}

const INBOX: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM deliveries WHERE room_id = ?1 AND recipient_agent_id = ?2 AND state = 'pending'
    AND attempt_tag IS NULL AND NOT (?4 AND delivery_hint IS 'idle') ORDER BY event_seq LIMIT ?3"
);

/// Urgent messages that are newer than those of the first page.
const URGENT: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM deliveries INDEXED BY deliveries_urgent_idx
    WHERE room_id = ?1 AND recipient_agent_id = ?2 AND state = 'pending' AND delivery_hint IS NOT NULL
    AND attempt_tag IS NULL AND delivery_hint <> 'idle' AND event_seq > ?5 AND (?4 IS NULL OR from_agent_id = ?4) ORDER BY event_seq LIMIT ?3"
);

const INBOX_OF_SENDER: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM deliveries INDEXED BY deliveries_open_from_idx
    WHERE room_id = ?1 AND recipient_agent_id = ?2 AND from_agent_id = ?4 AND state = 'pending'
    AND attempt_tag IS NULL AND NOT (?5 AND delivery_hint IS 'idle') ORDER BY event_seq LIMIT ?3"
);

/// Replies to a message, notices about it, and questions of those it was sent to.
const ABOUT: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM deliveries WHERE room_id = ?1 AND recipient_agent_id = ?2 AND state = 'pending' AND event_seq > ?4 AND attempt_tag IS NULL
    AND (reply_to = ?4 OR expects_reply AND from_agent_id IN (SELECT recipient_agent_id FROM deliveries WHERE event_seq = ?4))
    ORDER BY event_seq LIMIT ?3"
);

/// Those that may wake their recipient, on one account.
const WAKING: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM deliveries INDEXED BY deliveries_waking_idx
    WHERE room_id = ?1 AND recipient_agent_id = ?2 AND wakes = ?4 AND state = 'pending' AND wakes IS NOT NULL
    AND attempt_tag IS NULL AND attempts < ?5 ORDER BY event_seq LIMIT ?3"
);

/// The open deliveries to a member that no hand-over holds: of the oldest, of the urgent ones, and of those that may wake it on each
/// account, at most so many each. In the order of the log.
pub(super) fn open_for(
    connection: &Connection,
    room_id: &RoomId,
    recipient: &AgentId,
    wanted: &OpenQuery,
) -> Result<Vec<DeliveryRow>, Error> {
    let which = Which { mid_turn: wanted.mid_turn, ..Which::default() };
    let mut open = inbox(connection, room_id, recipient, which, wanted.limit)?;
    let max_attempts = i64::from(wanted.max_attempts.unwrap_or(u32::MAX));
    // In the middle of a turn it makes no difference what could wake a session.
    for wakes in Wakes::ACCOUNTS.iter().filter(|_| !wanted.mid_turn) {
        let account = wakes.as_str();
        let params = params![room_id.as_str(), recipient.as_str(), limit_of(wanted.limit), account, max_attempts];
        open.extend(query(connection, WAKING, params)?);
    }
    open.retain(|row| i64::from(row.attempts) < max_attempts);
    open.sort_by_key(|row| row.event_seq);
    open.dedup_by_key(|row| row.event_seq);
    Ok(open)
}

/// The first characters of its message, for deliveries of which somebody may be told.
const WITH_EXCERPT: &str = concat!(
    "SELECT ",
    columns!(),
    ", iif(expects_reply OR notify_on_delivery OR notify_after_ms IS NOT NULL,
           (SELECT substr(json_extract(payload_json, '$.body'), 1, 400) FROM room_events e
            WHERE e.event_seq = deliveries.event_seq), '')
     FROM deliveries "
);

/// Those of the messages that are open for a member, in the order of the log.
pub(super) fn open_among(
    connection: &Connection,
    room_id: &RoomId,
    recipient: &AgentId,
    event_seqs: &[i64],
) -> Result<Vec<DeliveryRow>, Error> {
    let mut sorted = event_seqs.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let sql = format!(
        "{WITH_EXCERPT} WHERE room_id = ?1 AND recipient_agent_id = ?2 AND event_seq = ?3 AND state = 'pending'"
    );
    let mut found = Vec::new();
    for event_seq in sorted {
        found.extend(query(connection, &sql, params![room_id.as_str(), recipient.as_str(), event_seq])?);
    }
    Ok(found)
}

/// All deliveries of one message.
pub(super) fn of_message(connection: &Connection, room_id: &RoomId, event_seq: i64) -> Result<Vec<DeliveryRow>, Error> {
    let sql = format!("{WITH_EXCERPT} WHERE event_seq = ?1 AND room_id = ?2 ORDER BY recipient_agent_id");
    query(connection, &sql, params![event_seq, room_id.as_str()])
}

/// The delivery of one message to one member.
pub(super) fn of_recipient(
    connection: &Connection,
    room_id: &RoomId,
    event_seq: i64,
    recipient: &AgentId,
) -> Result<Vec<DeliveryRow>, Error> {
    let sql = format!("{WITH_EXCERPT} WHERE event_seq = ?1 AND recipient_agent_id = ?2 AND room_id = ?3");
    query(connection, &sql, params![event_seq, recipient.as_str(), room_id.as_str()])
}

/// All deliveries of the questions of a room that are not over, also those that were answered. A question always has a deadline.
pub(super) fn questions(connection: &Connection, room_id: &RoomId) -> Result<Vec<DeliveryRow>, Error> {
    query(connection, &questions_sql(), params![room_id.as_str()])
}

fn questions_sql() -> String {
    format!(
        "{WITH_EXCERPT} WHERE event_seq IN (SELECT event_seq FROM deliveries INDEXED BY deliveries_due_idx
           WHERE room_id = ?1 AND due_at IS NOT NULL AND expects_reply AND NOT is_over)
         ORDER BY event_seq, recipient_agent_id"
    )
}

/// The sender of a message; none if there is no such message in the room.
pub(super) fn message(connection: &Connection, room_id: &RoomId, event_seq: i64) -> Result<Option<MessageRow>, Error> {
    let row = |row: &Row<'_>| Ok(MessageRow { from: row.get::<_, Option<String>>(0)?.map(AgentId::trusted) });
    connection
        .prepare_cached(
            "SELECT from_agent_id FROM room_events WHERE event_seq = ?1 AND room_id = ?2 AND event_type = 'message_sent'",
        )
        .and_then(|mut s| s.query_row(params![event_seq, room_id.as_str()], row).optional())
        .map_err(query_failed)
}

fn query(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<DeliveryRow>, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    statement.query_map(params, delivery_row).and_then(Iterator::collect).map_err(query_failed)
}

/// A row that begins with the columns of a [`DeliveryRow`]; the excerpt, if there is one, comes after them.
fn delivery_row(row: &Row<'_>) -> rusqlite::Result<DeliveryRow> {
    let deadline = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(DeadlineTime::from_millis));
    let excerpt = if row.as_ref().column_count() > 17 { row.get::<_, Option<String>>(17)? } else { None };
    Ok(DeliveryRow {
        event_seq: row.get(0)?,
        recipient: AgentId::trusted(row.get::<_, String>(1)?),
        from: row.get::<_, Option<String>>(2)?.map(AgentId::trusted),
        state: DeliveryState::parse(&row.get::<_, String>(3)?).unwrap_or(DeliveryState::Unknown),
        delivery_hint: hint(row.get(4)?),
        expires_at: deadline(5)?,
        expects_reply: row.get(6)?,
        notify_on_delivery: row.get(7)?,
        notify_after: duration(row, 8)?,
        notify_at: deadline(9)?,
        is_over: row.get(10)?,
        reply_to: row.get(11)?,
        excerpt: excerpt.map_or_else(String::new, |text| tt_proto::message::excerpt(&text)),
        held_by: None,
        attempt: attempt(row)?,
        wakes: Wakes::parse(row.get::<_, Option<String>>(15)?.as_deref()),
        attempts: row.get(16)?,
    })
}

fn attempt(row: &Row<'_>) -> rusqlite::Result<Option<Attempt>> {
    let Some(tag) = row.get::<_, Option<String>>(12)? else { return Ok(None) };
    let surface = row.get::<_, Option<String>>(13)?.and_then(|text| Surface::parse(&text).ok());
    let at = time(row, 14)?.unwrap_or(WallTime::from_millis(0));
    Ok(Some(Attempt { surface: surface.unwrap_or(Surface::Unknown), tag, at }))
}

/// The columns that a [`StoredDelivery`] has beyond those of its row.
const STORED: &str =
    concat!("SELECT ", columns!(), ", '', surface, delivered_at, answered_by, is_late FROM deliveries ");

fn stored(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<StoredDelivery>, Error> {
    let delivery = |row: &Row<'_>| {
        Ok(StoredDelivery {
            row: delivery_row(row)?,
            surface: row.get::<_, Option<String>>(18)?.map(|text| Surface::parse(&text).unwrap_or(Surface::Unknown)),
            delivered_at: time(row, 19)?,
            answered_by: row.get(20)?,
            is_late: row.get(21)?,
        })
    };
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    statement.query_map(params, delivery).and_then(Iterator::collect).map_err(query_failed)
}

/// How a message stands with its recipients, at most `limit`.
pub(super) fn of_event(
    connection: &Connection,
    room_id: &RoomId,
    event_seq: i64,
    limit: usize,
) -> Result<Vec<StoredDelivery>, Error> {
    let sql = format!("{STORED} WHERE event_seq = ?1 AND room_id = ?2 ORDER BY recipient_agent_id LIMIT ?3");
    stored(connection, &sql, params![event_seq, room_id.as_str(), limit_of(limit)])
}

/// What waits in a room, oldest first, at most `limit`: the open deliveries to a member or to all, or the questions that are not
/// over.
pub(super) fn waiting(
    connection: &Connection,
    room_id: &RoomId,
    query: &WaitingQuery,
) -> Result<Vec<StoredDelivery>, Error> {
    let which = match (query.questions, &query.recipient) {
        (true, _) => {
            "INDEXED BY deliveries_due_idx WHERE room_id = ?1 AND due_at IS NOT NULL AND expects_reply AND NOT is_over
             AND (?2 IS NULL OR recipient_agent_id = ?2)"
        }
        (false, Some(_)) => "WHERE room_id = ?1 AND recipient_agent_id = ?2 AND state = 'pending'",
        (false, None) => "WHERE room_id = ?1 AND ?2 IS NULL AND state = 'pending'",
    };
    let sql = format!("{STORED} {which} ORDER BY event_seq, recipient_agent_id LIMIT ?3");
    let recipient = query.recipient.as_ref().map(AgentId::as_str);
    stored(connection, &sql, params![room_id.as_str(), recipient, limit_of(query.limit)])
}

fn limit_of(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A column of milliseconds.
pub(super) fn duration(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Duration>> {
    let millis = row.get::<_, Option<i64>>(column)?;
    Ok(millis.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or(0))))
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The hand-overs that have begun and of which it is not known what became of them, in the order of the log.
pub(super) fn attempts(connection: &Connection) -> Result<Vec<(RoomId, DeliveryRow)>, Error> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        ", '', room_id FROM deliveries INDEXED BY deliveries_attempts_idx WHERE attempt_tag IS NOT NULL ORDER BY event_seq"
    );
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    let row = |row: &Row<'_>| Ok((row.get::<_, String>(18)?.into(), delivery_row(row)?));
    statement.query_map([], row).and_then(Iterator::collect).map_err(query_failed)
}

const DUE: &str = "SELECT room_id, event_seq, recipient_agent_id, due_at FROM deliveries INDEXED BY deliveries_due_idx
                   WHERE due_at IS NOT NULL";

/// The deliveries to which something happens by itself, each with the moment.
pub(super) fn due(connection: &Connection) -> Result<Vec<(RoomId, i64, AgentId, DeadlineTime)>, Error> {
    let mut statement = connection.prepare_cached(DUE).map_err(query_failed)?;
    let row = |row: &Row<'_>| {
        let recipient = AgentId::trusted(row.get::<_, String>(2)?);
        Ok((row.get::<_, String>(0)?.into(), row.get(1)?, recipient, DeadlineTime::from_millis(row.get::<_, i64>(3)?)))
    };
    statement.query_map([], row).and_then(Iterator::collect).map_err(query_failed)
}

/// The rooms in which messages wait for a member that has not left them.
pub(super) fn inbox_rooms(
    connection: &Connection,
    recipient: &AgentId,
    limit: usize,
) -> Result<Page<InboxRoom>, Error> {
    let mut statement = connection
        .prepare_cached(
            "SELECT d.room_id, count(*), count(nullif(d.delivery_hint = 'interrupt', 0)) FROM room_members m
             JOIN deliveries d ON d.room_id = m.room_id AND d.recipient_agent_id = m.agent_id AND d.state = 'pending'
             WHERE m.agent_id = ?1 AND m.status IN ('active', 'away', 'gone')
             GROUP BY d.room_id ORDER BY min(d.event_seq)",
        )
        .map_err(query_failed)?;
    let room = |row: &Row<'_>| {
        Ok(InboxRoom {
            room_id: row.get::<_, String>(0)?.into(),
            unread: count(row.get(1)?),
            interrupts: count(row.get(2)?),
        })
    };
    let rows = statement.query_map([recipient.as_str()], room).map_err(query_failed)?;
    Page::of(rows, limit).map_err(query_failed)
}

/// How many messages wait for each member of a room that has any.
pub(super) fn unread(connection: &Connection, room_id: &RoomId) -> Result<HashMap<AgentId, usize>, Error> {
    let mut statement = connection
        .prepare_cached(
            "SELECT recipient_agent_id, count(*) FROM deliveries WHERE room_id = ?1 AND state = 'pending'
             GROUP BY recipient_agent_id",
        )
        .map_err(query_failed)?;
    let row = |row: &Row<'_>| Ok((AgentId::trusted(row.get::<_, String>(0)?), count(row.get(1)?)));
    statement.query_map([room_id.as_str()], row).and_then(Iterator::collect).map_err(query_failed)
}

/// The messages that wait for each member of each room.
pub(super) fn all_unread(connection: &Connection) -> Result<Vec<(RoomId, AgentId, Unread)>, Error> {
    let mut statement = connection
        .prepare_cached(
            "SELECT room_id, recipient_agent_id, count(*),
               (SELECT count(*) FROM deliveries i WHERE i.room_id = d.room_id
                AND i.recipient_agent_id = d.recipient_agent_id AND i.state = 'pending' AND i.delivery_hint = 'interrupt')
             FROM deliveries d WHERE state = 'pending' GROUP BY room_id, recipient_agent_id",
        )
        .map_err(query_failed)?;
    let row = |row: &Row<'_>| {
        let unread = Unread { unread: count(row.get(2)?), interrupts: count(row.get(3)?) };
        Ok((row.get::<_, String>(0)?.into(), AgentId::trusted(row.get::<_, String>(1)?), unread))
    };
    statement.query_map([], row).and_then(Iterator::collect).map_err(query_failed)
}

fn count(count: i64) -> usize {
    usize::try_from(count).unwrap_or(0)
}

/// A hint that an unknown version wrote is normal.
fn hint(stored: Option<String>) -> DeliveryHint {
    stored.and_then(|text| DeliveryHint::parse(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn a_reader_of_one_sender_passes_over_no_others() {
        let connection = Connection::open_in_memory().unwrap();
        super::super::migrations::apply_all(&connection).unwrap();
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
                    INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id)
                    SELECT i, 'me', 'r', iif(i % 1000 = 0, 'rare', 'many') FROM n";
        connection.execute_batch(fill).unwrap();
        let steps = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
            let mut statement = connection.prepare(sql).unwrap();
            let mut rows = statement.query(params).unwrap();
            let mut found = 0;
            while rows.next().unwrap().is_some() {
                found += 1;
            }
            drop(rows);
            (found, statement.get_status(StatementStatus::VmStep), statement.get_status(StatementStatus::Sort))
        };
        for (from, expected) in [("rare", 100), ("nobody", 0), ("many", 200)] {
            let (found, steps, sorts) = steps(INBOX_OF_SENDER, &[&"r", &"me", &200, &from, &false]);
            assert_eq!((found, sorts), (expected, 0), "{from}");
            assert!(steps < 6000, "{steps} steps to find {expected} from {from}");
        }
        let (found, steps, sorts) = steps(INBOX, &[&"r", &"me", &200, &false]);
        assert!((found, sorts) == (200, 0) && steps < 6000, "{steps} steps");
    }

    #[test]
    fn what_was_delivered_long_ago_costs_no_step() {
        let count = |delivered: i64| {
            let connection = Connection::open_in_memory().unwrap();
            super::super::migrations::apply_all(&connection).unwrap();
            let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                        INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id, state, expects_reply)
                        SELECT i, 'me', 'r', 'you', iif(i % 3, 'delivered', 'answered'), i % 2 FROM n";
            connection.execute(fill, [delivered]).unwrap();
            let open = "INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id, expects_reply, expires_at, due_at)
                        SELECT ?1 + value, 'me', 'r', 'you', 1, 9, 9 FROM json_each('[1,2,3,4,5]')";
            connection.execute(open, [delivered]).unwrap();
            let steps = |sql: &str, params: &[&dyn rusqlite::ToSql]| {
                let mut statement = connection.prepare(sql).unwrap();
                let mut rows = statement.query(params).unwrap();
                while rows.next().unwrap().is_some() {}
                drop(rows);
                statement.get_status(StatementStatus::VmStep)
            };
            let about = delivered;
            let update = "UPDATE deliveries SET state = 'delivered', due_at = NULL
                          WHERE event_seq = ?1 AND recipient_agent_id = 'me' AND state = 'pending'";
            [
                steps(INBOX, &[&"r", &"me", &200, &false]),
                steps(INBOX_OF_SENDER, &[&"r", &"me", &200, &"you", &false]),
                steps(URGENT, &[&"r", &"me", &200, &None::<String>, &0]),
                steps(WAKING, &[&"r", &"me", &200, &"agent", &3]),
                steps(ABOUT, &[&"r", &"me", &200, &about]),
                steps(&questions_sql(), &[&"r"]),
                steps(DUE, &[]),
                steps(update, &[&(delivered + 1)]),
            ]
        };
        assert_eq!(count(100), count(100_000));
    }

    #[test]
    fn what_wakes_nobody_hides_nothing_that_may() {
        let connection = Connection::open_in_memory().unwrap();
        super::super::migrations::apply_all(&connection).unwrap();
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
                    INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id, wakes, attempts)
                    SELECT i, 'me', 'r', 'you', CASE WHEN i = 90000 THEN 'answer' WHEN i > 99000 THEN 'agent' END, i = 99001 FROM n";
        connection.execute_batch(fill).unwrap();
        let seqs = |max_attempts| {
            let wanted = OpenQuery { max_attempts, ..OpenQuery::of(2) };
            let found = open_for(&connection, &"r".into(), &AgentId::trusted("me"), &wanted).unwrap();
            found.iter().map(|row| row.event_seq).collect::<Vec<i64>>()
        };
        assert_eq!(seqs(None), [1, 2, 90_000, 99_001, 99_002]);
        assert_eq!(seqs(Some(1)), [1, 2, 90_000, 99_002, 99_003], "one of them is not tried any more");
        let mut statement = connection.prepare(WAKING).unwrap();
        let mut rows = statement.query(params!["r", "me", 2, "agent", 9]).unwrap();
        while rows.next().unwrap().is_some() {}
        drop(rows);
        let steps = statement.get_status(StatementStatus::VmStep);
        assert!(steps < 200, "{steps} steps");
    }

    #[test]
    fn in_the_middle_of_a_turn_no_number_of_messages_for_later_hides_another() {
        let connection = Connection::open_in_memory().unwrap();
        super::super::migrations::apply_all(&connection).unwrap();
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50)
                    INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id, delivery_hint)
                    SELECT i, 'me', 'r', 'you', iif(i < 50, 'idle', NULL) FROM n";
        connection.execute_batch(fill).unwrap();
        let (me, you) = (AgentId::trusted("me"), AgentId::trusted("you"));
        for from in [None, Some(&you)] {
            let seqs = |mid_turn| {
                let which = Which { from, about: None, mid_turn };
                let found = inbox(&connection, &"r".into(), &me, which, 10).unwrap();
                found.iter().map(|row| row.event_seq).collect::<Vec<i64>>()
            };
            assert_eq!(seqs(true), [50], "{from:?}");
            assert_eq!(seqs(false), (1..=10).collect::<Vec<i64>>(), "{from:?}");
        }
    }
}
