//! Reminders as rows.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tt_proto::{AgentId, Error, ReminderId, RoomId};
use tt_rules::{DeadlineTime, ReminderChange, ReminderRow};

use super::deliveries::{duration, millis};
use super::query_failed;

/// Saves what a decision does to a reminder.
pub(super) fn save(connection: &Connection, room_id: &RoomId, change: &ReminderChange) -> Result<(), Error> {
    let done = match change {
        ReminderChange::Set(reminder) => connection.execute(
            "INSERT INTO reminders (reminder_id, room_id, from_agent_id, to_agent_id, body, due_at, every_ms, times)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (reminder_id) DO UPDATE SET due_at = ?6, times = ?8",
            params![
                reminder.reminder_id.as_str(),
                room_id.as_str(),
                reminder.from.as_str(),
                reminder.to.as_str(),
                reminder.body,
                reminder.due_at.as_millis(),
                reminder.every.map(millis),
                reminder.times,
            ],
        ),
        ReminderChange::Remove(reminder_id) => {
            connection.execute("DELETE FROM reminders WHERE reminder_id = ?1", [reminder_id.as_str()])
        }
    };
    done.map(|_| ()).map_err(query_failed)
}

const COLUMNS: &str = "reminder_id, from_agent_id, to_agent_id, body, due_at, every_ms, times";

/// The reminder of a room whose id is this.
pub(super) fn get(connection: &Connection, room_id: &RoomId, id: &ReminderId) -> Result<Option<ReminderRow>, Error> {
    connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM reminders WHERE reminder_id = ?1 AND room_id = ?2"))
        .and_then(|mut s| s.query_row([id.as_str(), room_id.as_str()], reminder).optional())
        .map_err(query_failed)
}

/// How many reminders a member has set in a room.
pub(super) fn count(connection: &Connection, room_id: &RoomId, from: &AgentId) -> Result<usize, Error> {
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM reminders WHERE room_id = ?1 AND from_agent_id = ?2")
        .and_then(|mut s| s.query_row([room_id.as_str(), from.as_str()], |row| row.get(0)))
        .map_err(query_failed)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The reminders that a member set in a room, and those for it; the next one first, at most `limit`.
pub(super) fn of_member(
    connection: &Connection,
    room_id: &RoomId,
    agent_id: &AgentId,
    limit: usize,
) -> Result<Vec<ReminderRow>, Error> {
    let mut statement = connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM reminders WHERE room_id = ?1 AND (from_agent_id = ?2 OR to_agent_id = ?2)
             ORDER BY due_at, reminder_id LIMIT ?3"
        ))
        .map_err(query_failed)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![room_id.as_str(), agent_id.as_str(), limit], reminder);
    rows.and_then(Iterator::collect).map_err(query_failed)
}

/// All reminders, each with the moment at which it is due.
pub(super) fn due(connection: &Connection) -> Result<Vec<(RoomId, ReminderId, DeadlineTime)>, Error> {
    let mut statement =
        connection.prepare_cached("SELECT room_id, reminder_id, due_at FROM reminders").map_err(query_failed)?;
    let row = |row: &Row<'_>| {
        let (room_id, reminder_id): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((room_id.into(), reminder_id.into(), DeadlineTime::from_millis(row.get::<_, i64>(2)?)))
    };
    statement.query_map([], row).and_then(Iterator::collect).map_err(query_failed)
}

fn reminder(row: &Row<'_>) -> rusqlite::Result<ReminderRow> {
    Ok(ReminderRow {
        reminder_id: row.get::<_, String>(0)?.into(),
        from: AgentId::trusted(row.get::<_, String>(1)?),
        to: AgentId::trusted(row.get::<_, String>(2)?),
        body: row.get(3)?,
        due_at: DeadlineTime::from_millis(row.get(4)?),
        every: duration(row, 5)?,
        times: row.get(6)?,
    })
}
