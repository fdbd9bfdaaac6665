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
    connection.execute(FORGET, [before.as_millis()]).map(|_| ()).map_err(query_failed)
}

const FORGET: &str = "DELETE FROM idempotency_keys WHERE kept_at < ?1";

#[cfg(test)]
mod tests {
    use tt_proto::AgentId;

    use super::*;

    fn database() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        super::super::migrations::apply_all(&connection).unwrap();
        connection
    }

    #[test]
    fn old_answers_are_found_by_an_index() {
        let connection = database();
        let plan = format!("EXPLAIN QUERY PLAN {FORGET}");
        let plan: String = connection.query_row(&plan, [0], |row| row.get("detail")).unwrap();
        assert!(plan.contains("idempotency_keys_kept_idx"), "{plan}");
    }

    #[test]
    fn an_answer_that_an_earlier_version_kept_fits_any_request() {
        let connection = database();
        let old =
            "INSERT INTO idempotency_keys (idempotency_key, agent_id, answer_json, kept_at) VALUES ('k', 'a', '1', 0)";
        connection.execute_batch(old).unwrap();
        let key = |key: &str, hash: &str| RequestKey::new(&AgentId::trusted("a"), key.into(), hash.into()).unwrap();
        assert_eq!(find(&connection, &key("k", "any")).unwrap(), Some(Ok("1".into())));
        keep(&connection, &key("l", "one"), "2", LeaseTime::from_millis(5)).unwrap();
        assert_eq!(find(&connection, &key("l", "one")).unwrap(), Some(Ok("2".into())));
        let refused = find(&connection, &key("l", "other")).unwrap().unwrap().unwrap_err();
        assert_eq!(refused.code, ErrorCode::InvalidInput);
        forget(&connection, LeaseTime::from_millis(5)).unwrap();
        assert_eq!(find(&connection, &key("k", "any")).unwrap(), None);
        assert!(find(&connection, &key("l", "one")).unwrap().is_some());
    }
}
