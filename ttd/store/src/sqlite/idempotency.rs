//! The answers of recent requests, so that a request repeated after a lost connection gets the first answer and changes
//! nothing.

use rusqlite::{Connection, OptionalExtension, params};
use tt_proto::{Error, ErrorCode};
use tt_rules::LeaseTime;

use super::query_failed;
use crate::RequestKey;

/// The answer of an earlier request with this key. Refuses a key that was used for another request.
pub(super) fn find(connection: &Connection, key: &RequestKey) -> Result<Option<Result<String, Error>>, Error> {
    let found: Option<(String, Option<String>)> = connection
        .prepare_cached(
            "SELECT answer_json, request_hash FROM idempotency_keys WHERE idempotency_key = ?1 AND agent_id = ?2",
        )
        .and_then(|mut statement| {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
            statement.query_row([&key.idempotency_key, key.agent_id.as_str()], row).optional()
        })
        .map_err(query_failed)?;
    Ok(found.map(|(answer, hash)| match hash {
        Some(hash) if hash != key.request_hash => Err(used_for_another()),
        _ => Ok(answer),
    }))
}

fn used_for_another() -> Error {
    Error::new(ErrorCode::InvalidInput, "this idempotency_key was used for another request; nothing was changed")
        .hint("draw a new key for every request, and use it again only to repeat that request")
}

pub(super) fn keep(connection: &Connection, key: &RequestKey, answer: &str, now: LeaseTime) -> Result<(), Error> {
    connection
        .prepare_cached(
            "INSERT INTO idempotency_keys (idempotency_key, agent_id, request_hash, answer_json, kept_at)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .and_then(|mut statement| {
            let RequestKey { agent_id, idempotency_key, request_hash } = key;
            statement.execute(params![idempotency_key, agent_id.as_str(), request_hash, answer, now.as_millis()])
        })
        .map(|_| ())
        .map_err(query_failed)
}

pub(super) fn forget(connection: &Connection, before: LeaseTime) -> Result<(), Error> {
    connection
        .execute("DELETE FROM idempotency_keys WHERE kept_at < ?1", [before.as_millis()])
        .map(|_| ())
        .map_err(query_failed)
}
