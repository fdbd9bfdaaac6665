//! The table `sessions`.

use rusqlite::{Connection, Row, params};
use tt_proto::{AgentId, Error};
use tt_rules::LeaseTime;

use super::query_failed;
use super::rooms::{lease_text, lease_time};
use crate::StoredSession;

pub(super) fn list(connection: &Connection) -> Result<Vec<StoredSession>, Error> {
    let sql = "SELECT harness, session_id, agent_id, processes_json, server_json, cwd, transcript_path, opened_at,
                 ended_at, left_at, followed_by, guessed_from, orphaned, shares_process, untold_since FROM sessions";
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    let rows = statement.query_map([], read).map_err(query_failed)?;
    rows.collect::<Result<_, _>>().map_err(query_failed)
}

fn read(row: &Row<'_>) -> rusqlite::Result<StoredSession> {
    let processes: String = row.get(3)?;
    let server: Option<String> = row.get(4)?;
    Ok(StoredSession {
        harness: row.get(0)?,
        session_id: row.get(1)?,
        agent_id: AgentId::trusted(row.get::<_, String>(2)?),
        processes: serde_json::from_str(&processes).unwrap_or_default(),
        server: server.as_deref().and_then(|json| serde_json::from_str(json).ok()),
        cwd: row.get(5)?,
        transcript_path: row.get(6)?,
        opened_at: lease_time(row, 7)?.unwrap_or(LeaseTime::from_millis(0)),
        ended_at: lease_time(row, 8)?,
        left_at: lease_time(row, 9)?,
        followed_by: row.get(10)?,
        guessed_from: row.get(11)?,
        orphaned: row.get(12)?,
        shares_process: row.get(13)?,
        untold_since: lease_time(row, 14)?,
    })
}

pub(super) fn save(connection: &Connection, session: &StoredSession) -> Result<(), Error> {
    let sql = "INSERT OR REPLACE INTO sessions (harness, session_id, agent_id, processes_json, server_json, cwd,
                 transcript_path, opened_at, ended_at, left_at, followed_by, guessed_from, orphaned, shares_process,
                 untold_since)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)";
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    let values = params![
        session.harness,
        session.session_id,
        session.agent_id.as_str(),
        serde_json::to_string(&session.processes).unwrap_or_default(),
        session.server.as_ref().and_then(|server| serde_json::to_string(server).ok()),
        session.cwd,
        session.transcript_path,
        lease_text(session.opened_at),
        session.ended_at.map(lease_text),
        session.left_at.map(lease_text),
        session.followed_by,
        session.guessed_from,
        session.orphaned,
        session.shares_process,
        session.untold_since.map(lease_text),
    ];
    statement.execute(values).map(|_| ()).map_err(query_failed)
}

pub(super) fn forget(connection: &Connection, harness: &str, session_id: &str) -> Result<(), Error> {
    let sql = "DELETE FROM sessions WHERE harness = ?1 AND session_id = ?2";
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    statement.execute([harness, session_id]).map(|_| ()).map_err(query_failed)
}
