//! The answers of recent requests, so that a request repeated after a lost connection gets the first answer and changes
//! nothing.

use rusqlite::{Connection, OptionalExtension};
use tt_proto::{Error, WallTime};

use super::query_failed;
use crate::RequestKey;

pub(super) fn find(connection: &Connection, key: &RequestKey) -> Result<Option<String>, Error> {
    connection
        .prepare_cached("SELECT answer_json FROM idempotency_keys WHERE idempotency_key = ?1 AND agent_id = ?2")
        .and_then(|mut s| s.query_row([&key.idempotency_key, key.agent_id.as_str()], |row| row.get(0)).optional())
        .map_err(query_failed)
}

pub(super) fn keep(connection: &Connection, key: &RequestKey, answer: &str, wall: WallTime) -> Result<(), Error> {
    connection
        .prepare_cached(
            "INSERT INTO idempotency_keys (idempotency_key, agent_id, answer_json, created_at) VALUES (?1, ?2, ?3, ?4)",
        )
        .and_then(|mut s| s.execute([&key.idempotency_key, key.agent_id.as_str(), answer, &wall.to_string()]))
        .map(|_| ())
        .map_err(query_failed)
}

pub(super) fn forget(connection: &Connection, before: WallTime) -> Result<(), Error> {
    connection
        .execute("DELETE FROM idempotency_keys WHERE created_at < ?1", [before.to_string()])
        .map(|_| ())
        .map_err(query_failed)
}
