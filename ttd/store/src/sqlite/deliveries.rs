//! Deliveries as rows: one for each message and recipient. Open ones are found by a partial index, so that what was
//! delivered long ago costs nothing.

use std::collections::HashMap;

use rusqlite::{Connection, Row, params};
use tt_proto::event::Event;
use tt_proto::message::InboxRoom;
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::{DeadlineTime, DeliveryChange, NewDelivery, OpenDelivery};

use super::query_failed;
use crate::Page;

/// Opens the delivery of an event to one recipient.
pub(super) fn open(connection: &Connection, event: &Event, delivery: &NewDelivery) -> Result<(), Error> {
    connection
        .prepare_cached(
            "INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .and_then(|mut s| {
            let expires_at = delivery.expires_at.map(DeadlineTime::as_millis);
            let (room_id, from) = (event.room_id.as_str(), event.from_agent_id.as_ref().map(AgentId::as_str));
            s.execute(params![event.event_seq, delivery.recipient.as_str(), room_id, from, expires_at])
        })
        .map(|_| ())
        .map_err(query_failed)
}

/// Moves an open delivery to another state. One that is no longer open stays as it is.
pub(super) fn change(connection: &Connection, change: &DeliveryChange) -> Result<(), Error> {
    connection
        .prepare_cached(
            "UPDATE deliveries SET state = ?3, surface = ?4, delivered_at = ?5
             WHERE event_seq = ?1 AND recipient_agent_id = ?2 AND state = 'pending'",
        )
        .and_then(|mut s| {
            s.execute(params![
                change.event_seq,
                change.recipient.as_str(),
                change.state.as_str(),
                change.surface.map(|surface| surface.as_str()),
                change.at.to_string(),
            ])
        })
        .map(|_| ())
        .map_err(query_failed)
}

/// The oldest open deliveries to a member, at most `limit`. With `from`, only those of one sender. What was delivered, and
/// what others sent, is not looked at.
pub(super) fn inbox(
    connection: &Connection,
    room_id: &RoomId,
    recipient: &AgentId,
    from: Option<&AgentId>,
    limit: usize,
) -> Result<Vec<OpenDelivery>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let (room_id, recipient) = (room_id.as_str(), recipient.as_str());
    match from {
        None => query(connection, INBOX, params![room_id, recipient, limit]),
        Some(from) => query(connection, INBOX_OF_SENDER, params![room_id, recipient, limit, from.as_str()]),
    }
}

const INBOX: &str = "SELECT event_seq, recipient_agent_id, expires_at FROM deliveries
    WHERE room_id = ?1 AND recipient_agent_id = ?2 AND state = 'pending' ORDER BY event_seq LIMIT ?3";

const INBOX_OF_SENDER: &str = "SELECT event_seq, recipient_agent_id, expires_at FROM deliveries
    INDEXED BY deliveries_open_from_idx
    WHERE room_id = ?1 AND recipient_agent_id = ?2 AND from_agent_id = ?4 AND state = 'pending'
    ORDER BY event_seq LIMIT ?3";

/// Those of the messages that are open for a member, in the order of the log.
pub(super) fn open_among(
    connection: &Connection,
    room_id: &RoomId,
    recipient: &AgentId,
    event_seqs: &[i64],
) -> Result<Vec<OpenDelivery>, Error> {
    let mut sorted = event_seqs.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut found = Vec::new();
    for event_seq in sorted {
        found.extend(query(
            connection,
            "SELECT event_seq, recipient_agent_id, expires_at FROM deliveries
             WHERE room_id = ?1 AND recipient_agent_id = ?2 AND event_seq = ?3 AND state = 'pending'",
            params![room_id.as_str(), recipient.as_str(), event_seq],
        )?);
    }
    Ok(found)
}

/// The open deliveries of one message.
pub(super) fn of_message(
    connection: &Connection,
    room_id: &RoomId,
    event_seq: i64,
) -> Result<Vec<OpenDelivery>, Error> {
    query(
        connection,
        "SELECT event_seq, recipient_agent_id, expires_at FROM deliveries
         WHERE event_seq = ?1 AND room_id = ?2 AND state = 'pending' ORDER BY recipient_agent_id",
        params![event_seq, room_id.as_str()],
    )
}

fn query(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<OpenDelivery>, Error> {
    let delivery = |row: &Row<'_>| {
        Ok(OpenDelivery {
            event_seq: row.get(0)?,
            recipient: AgentId::trusted(row.get::<_, String>(1)?),
            expires_at: row.get::<_, Option<i64>>(2)?.map(DeadlineTime::from_millis),
            held_by: None,
        })
    };
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    statement.query_map(params, delivery).and_then(Iterator::collect).map_err(query_failed)
}

/// The messages that expire, each with its deadline.
pub(super) fn expiring(connection: &Connection) -> Result<Vec<(RoomId, i64, DeadlineTime)>, Error> {
    let mut statement = connection
        .prepare_cached(
            "SELECT room_id, event_seq, min(expires_at) FROM deliveries
             WHERE state = 'pending' AND expires_at IS NOT NULL GROUP BY event_seq",
        )
        .map_err(query_failed)?;
    let row = |row: &Row<'_>| {
        Ok((row.get::<_, String>(0)?.into(), row.get(1)?, DeadlineTime::from_millis(row.get::<_, i64>(2)?)))
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
            "SELECT d.room_id, count(*) FROM room_members m
             JOIN deliveries d ON d.room_id = m.room_id AND d.recipient_agent_id = m.agent_id AND d.state = 'pending'
             WHERE m.agent_id = ?1 AND m.status IN ('active', 'gone')
             GROUP BY d.room_id ORDER BY min(d.event_seq)",
        )
        .map_err(query_failed)?;
    let room = |row: &Row<'_>| {
        let unread: i64 = row.get(1)?;
        Ok(InboxRoom {
            room_id: row.get::<_, String>(0)?.into(),
            unread: usize::try_from(unread).unwrap_or(usize::MAX),
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
    let row = |row: &Row<'_>| {
        let count: i64 = row.get(1)?;
        Ok((AgentId::trusted(row.get::<_, String>(0)?), usize::try_from(count).unwrap_or(0)))
    };
    statement.query_map([room_id.as_str()], row).and_then(Iterator::collect).map_err(query_failed)
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
            let (found, steps, sorts) = steps(INBOX_OF_SENDER, &[&"r", &"me", &200, &from]);
            assert_eq!((found, sorts), (expected, 0), "{from}");
            assert!(steps < 5000, "{steps} steps to find {expected} from {from}");
        }
        let (found, steps, sorts) = steps(INBOX, &[&"r", &"me", &200]);
        assert!((found, sorts) == (200, 0) && steps < 5000, "{steps} steps");
    }
}
