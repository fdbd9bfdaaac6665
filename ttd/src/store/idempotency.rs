//! Answers kept for a while, so that a write repeated after a lost connection gets the first answer and changes nothing.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tt_proto::{AgentId, Error, ErrorCode, WallTime};

use super::query_failed;

/// Nobody repeats a call after this long.
pub const KEPT: Duration = Duration::from_secs(60 * 60);

/// Runs a write once for each key. Only what succeeded is remembered: a refusal changed nothing and may differ next time.
pub fn once<T, F>(
    connection: &Connection,
    agent: &AgentId,
    key: Option<&str>,
    wall: WallTime,
    write: F,
) -> Result<T, Error>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce() -> Result<T, Error>,
{
    let Some(key) = key else { return write() };
    if key.is_empty() || key.len() > 128 {
        return Err(Error::new(ErrorCode::InvalidInput, "an idempotency_key has 1 to 128 bytes"));
    }
    let unreadable =
        |e: serde_json::Error| Error::new(ErrorCode::StorageUnavailable, format!("a kept answer is unreadable: {e}"));
    let kept: Option<String> = connection
        .prepare_cached("SELECT answer_json FROM idempotency_keys WHERE idempotency_key = ?1 AND agent_id = ?2")
        .and_then(|mut s| s.query_row([key, agent.as_str()], |row| row.get(0)).optional())
        .map_err(query_failed)?;
    if let Some(answer) = kept {
        return serde_json::from_str(&answer).map_err(unreadable);
    }
    let answer = write()?;
    let json = serde_json::to_string(&answer).map_err(unreadable)?;
    connection
        .prepare_cached(
            "INSERT INTO idempotency_keys (idempotency_key, agent_id, answer_json, created_at) VALUES (?1, ?2, ?3, ?4)",
        )
        .and_then(|mut s| s.execute([key, agent.as_str(), &json, &wall.to_string()]))
        .map_err(query_failed)?;
    Ok(answer)
}

/// Forgets answers nobody will ask for again.
pub fn forget(connection: &Connection, wall: WallTime) -> Result<(), Error> {
    connection
        .execute("DELETE FROM idempotency_keys WHERE created_at < ?1", [(wall - KEPT).to_string()])
        .map(|_| ())
        .map_err(query_failed)
}
