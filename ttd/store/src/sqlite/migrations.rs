//! Numbered migrations, embedded from `migrations/`. 1 to 4 are the schema of talking-stick 0.1.x, 5 bridges to this
//! project's, which continue from 101.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tt_proto::{Error, ErrorCode};

struct Migration {
    id: i64,
    name: &'static str,
    sql: &'static str,
}

macro_rules! migration {
    ($id:literal, $name:literal) => {
        Migration { id: $id, name: $name, sql: include_str!(concat!("../../migrations/", $name, ".sql")) }
    };
}

const MIGRATIONS: &[Migration] = &[
    migration!(1, "001_rooms_members_events"),
    migration!(2, "002_member_process"),
    migration!(3, "003_notes"),
    migration!(4, "004_last_wait"),
    migration!(5, "005_event_payload"),
    migration!(101, "101_turns_and_members"),
    migration!(102, "102_deliveries"),
    migration!(103, "103_grants_index"),
    migration!(104, "104_inbox"),
    migration!(105, "105_one_deliveries_table"),
    migration!(106, "106_short_answers_and_senders"),
    migration!(108, "108_people_and_dormant_rooms"),
    migration!(109, "109_search_and_hints"),
    migration!(110, "110_sessions"),
    migration!(120, "120_questions_and_reminders"),
    migration!(121, "121_guard"),
    migration!(130, "130_attempts"),
    migration!(132, "132_untold_sessions"),
    migration!(133, "133_wakes"),
];

/// Why a database cannot be brought to our schema.
#[derive(Debug, thiserror::Error)]
pub(super) enum MigrationError {
    #[error("migration {0} is unknown to this version")]
    Unknown(i64),
    #[error("migration {name} failed: {source}")]
    Failed { name: &'static str, source: rusqlite::Error },
    #[error("the backup {} could not be made: {source}", file.display())]
    Backup { file: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

impl MigrationError {
    pub(super) fn into_error(self, file: &Path) -> Error {
        match &self {
            MigrationError::Unknown(id) => {
                let message = format!("{} was written by a newer talking-stick: {self}", file.display());
                Error::new(ErrorCode::SchemaTooNew, message).detail("migration", *id)
            }
            MigrationError::Failed { source, .. } | MigrationError::Sqlite(source) if super::is_locked(source) => {
                super::locked()
            }
            MigrationError::Failed { .. } | MigrationError::Backup { .. } | MigrationError::Sqlite(_) => {
                super::unavailable(file)(self)
            }
        }
    }
}

/// Whether a database lacks a migration. Refuses one that has a migration this version does not know. Changes nothing.
pub(super) fn missing(connection: &Connection) -> Result<bool, MigrationError> {
    let applied = applied(connection)?;
    match applied.iter().find(|id| !MIGRATIONS.iter().any(|m| m.id == **id)) {
        Some(unknown) => Err(MigrationError::Unknown(*unknown)),
        None => Ok(applied.len() < MIGRATIONS.len()),
    }
}

/// Applies what is missing, all of it or nothing, after a copy of the database was made beside it.
pub(super) fn apply(connection: &Connection, file: &Path) -> Result<(), MigrationError> {
    if let Some(newest) = applied(connection)?.last() {
        back_up(connection, file, *newest)?;
    }
    apply_all(connection)
}

/// Applies what is missing, all of it or nothing.
pub(super) fn apply_all(connection: &Connection) -> Result<(), MigrationError> {
    // Two versions may start at once on one file: the write lock comes first, then the second look.
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let result = missing(connection).and_then(|_| apply_missing_of(connection, MIGRATIONS));
    connection.execute_batch(if result.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
    result
}

/// Copies the database to a file beside it that names the newest migration in it. The copy is kept until the next one.
fn back_up(connection: &Connection, file: &Path, newest: i64) -> Result<(), MigrationError> {
    let beside = |suffix: &str| {
        let mut path = file.as_os_str().to_owned();
        path.push(format!(".backup-{suffix}"));
        PathBuf::from(path)
    };
    let (backup, unfinished) = (beside(&newest.to_string()), beside("unfinished"));
    let failed =
        |source: Box<dyn std::error::Error + Send + Sync>| MigrationError::Backup { file: backup.clone(), source };
    let create = || {
        let _ = std::fs::remove_file(&unfinished);
        std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&unfinished)
    };
    create().map_err(|e| failed(e.into()))?;
    let target = unfinished.to_str().ok_or_else(|| failed("its path is not UTF-8".into()))?;
    connection.execute("VACUUM INTO ?1", [target]).map_err(|e| failed(e.into()))?;
    std::fs::rename(&unfinished, &backup).map_err(|e| failed(e.into()))?;
    let (Some(dir), Some(name)) = (file.parent(), file.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    // Only what a migration made: a copy with a name of its own is somebody else's.
    let prefix = format!("{name}.backup-");
    let is_backup = |name: &str| name.strip_prefix(&prefix).is_some_and(|id| id.parse::<i64>().is_ok());
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_backup) && entry.path() != backup {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    Ok(())
}

fn apply_missing_of<'a>(
    connection: &Connection,
    migrations: impl IntoIterator<Item = &'a Migration>,
) -> Result<(), MigrationError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_migrations (id INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at TEXT NOT NULL)",
    )?;
    let present = applied(connection)?;
    for migration in migrations.into_iter().filter(|m| !present.contains(&m.id)) {
        let failed = |source| MigrationError::Failed { name: migration.name, source };
        connection.execute_batch(migration.sql).map_err(failed)?;
        connection.execute(
            "INSERT INTO schema_migrations (id, name, applied_at) VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))",
            (migration.id, migration.name),
        )?;
    }
    Ok(())
}

/// The newest migration present.
pub(super) fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT max(id) FROM schema_migrations", [], |row| row.get(0))
}

fn applied(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let known: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'schema_migrations')",
        [],
        |row| row.get(0),
    )?;
    if !known {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare("SELECT id FROM schema_migrations ORDER BY id")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_in_order_and_names_carry_them() {
        assert!(MIGRATIONS.windows(2).all(|pair| pair[0].id < pair[1].id));
        for migration in MIGRATIONS {
            assert!(migration.name.starts_with(&format!("{:03}_", migration.id)), "{}", migration.name);
            assert!(migration.id <= 5 || migration.id > 100, "6 to 100 belong to 0.1.x");
        }
    }

    #[test]
    fn a_half_migrated_database_is_finished_and_applying_twice_changes_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        apply_all(&connection).unwrap();
        let all = applied(&connection).unwrap();
        connection
            .execute_batch(
                "ALTER TABLE room_events DROP COLUMN payload_json; DELETE FROM schema_migrations WHERE id = 5",
            )
            .unwrap();
        apply_all(&connection).unwrap();
        apply_all(&connection).unwrap();
        assert_eq!(applied(&connection).unwrap(), all);
    }

    /// A database as some earlier version left it, with a message that is pending for one member and delivered to the other.
    fn database_at(newest: i64) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        apply_missing_of(&connection, MIGRATIONS.iter().filter(|m| m.id <= newest)).unwrap();
        connection
            .execute_batch(
                "INSERT INTO path_rooms (room_id, canonical_path, state, updated_at) VALUES ('r', '/w', 'idle', 't');
                 INSERT INTO room_members (room_id, agent_id, ordinal, joined_at, last_seen_at, status)
                   VALUES ('r', 'a', 0, 't', 't', 'active'), ('r', 'b', 1, 't', 't', 'active');
                 INSERT INTO room_events (event_seq, event_id, room_id, event_type, from_agent_id, created_at)
                   VALUES (1, 'e1', 'r', 'message_sent', 'b', 't'), (2, 'e2', 'r', 'message_sent', 'a', 't');
                 INSERT INTO notes (note_id, room_id, author_agent_id, body, created_at) VALUES ('n', 'r', 'a', 'b', 't')",
            )
            .unwrap();
        if newest >= 101 {
            let kept = "INSERT INTO idempotency_keys VALUES ('k', 'a', '{}', '2026-01-02T03:04:05.678Z'), ('l', 'a', '{}', 'never')";
            connection.execute_batch(kept).unwrap();
        }
        let messages = match newest {
            ..102 => "",
            102 | 103 => {
                "INSERT INTO deliveries (event_seq, recipient_agent_id, room_id)
                   VALUES (1, 'a', 'r'), (2, 'a', 'r'), (2, 'b', 'r');
                 UPDATE deliveries SET state = 'delivered', surface = 'wait', delivered_at = 't'
                 WHERE event_seq = 2 AND recipient_agent_id = 'a'"
            }
            104 => {
                "INSERT INTO inbox (event_seq, recipient_agent_id, room_id) VALUES (1, 'a', 'r'), (2, 'b', 'r');
                 INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, surface, delivered_at)
                   VALUES (2, 'a', 'r', 'wait', 't')"
            }
            _ => {
                "INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, state, surface, delivered_at)
                   VALUES (1, 'a', 'r', 'pending', NULL, NULL), (2, 'a', 'r', 'delivered', 'wait', 't'),
                          (2, 'b', 'r', 'pending', NULL, NULL)"
            }
        };
        connection.execute_batch(messages).unwrap();
        connection
    }

    #[test]
    fn a_database_of_every_earlier_version_keeps_every_row() {
        for newest in [3, 4, 5, 101, 102, 103, 104, 105] {
            let connection = database_at(newest);
            apply_all(&connection).unwrap();
            let rows = |sql: &str| -> Vec<String> {
                let mut statement = connection.prepare(sql).unwrap();
                statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
            };
            let others = "SELECT room_id || canonical_path FROM path_rooms UNION ALL SELECT room_id || agent_id FROM room_members
                          UNION ALL SELECT event_seq || event_id FROM room_events UNION ALL SELECT note_id || body FROM notes";
            assert_eq!(rows(others), ["r/w", "ra", "rb", "1e1", "2e2", "nb"], "{newest}");
            let deliveries = rows(
                "SELECT room_id || recipient_agent_id || event_seq || state || coalesce(surface, '')
                   || coalesce(delivered_at, '') || attempts || coalesce(expires_at, '') || coalesce(answered_by, '')
                 FROM deliveries ORDER BY event_seq, recipient_agent_id",
            );
            let expected: &[&str] =
                if newest < 102 { &[] } else { &["ra1pending0", "ra2deliveredwaitt0", "rb2pending0"] };
            assert_eq!(deliveries, expected, "{newest}");
            let senders = rows("SELECT from_agent_id FROM deliveries WHERE state = 'pending' ORDER BY event_seq");
            assert_eq!(senders.concat(), if newest < 102 { "" } else { "ba" }, "{newest}");
            let answers = rows("SELECT idempotency_key || kept_at FROM idempotency_keys ORDER BY 1");
            let expected: &[&str] = if newest < 101 { &[] } else { &["k1767323045000", "l0"] };
            assert_eq!(answers, expected, "{newest}");
        }
    }

    #[test]
    fn a_person_that_was_gone_is_away_and_keeps_its_terminal() {
        let connection = Connection::open_in_memory().unwrap();
        apply_missing_of(&connection, MIGRATIONS.iter().filter(|m| m.id <= 105)).unwrap();
        connection
            .execute_batch(
                "INSERT INTO path_rooms (room_id, canonical_path, state, updated_at) VALUES ('r', '/w', 'idle', 't');
                 INSERT INTO room_members (room_id, agent_id, ordinal, joined_at, last_seen_at, status, found_by, host_id, pid,
                                           process_started_at)
                   VALUES ('r', 'human:a', 0, 't', 't', 'gone', 'user', 'h', 7, 's'),
                          ('r', 'codex:1', 1, 't', 't', 'gone', 'env', 'h', 8, 's'),
                          ('r', 'human:b', 2, 't', 't', 'left', 'user', NULL, NULL, NULL)",
            )
            .unwrap();
        apply_all(&connection).unwrap();
        let rows = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).unwrap();
            statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
        };
        assert_eq!(rows("SELECT status FROM room_members ORDER BY ordinal"), ["away", "gone", "left"]);
        assert_eq!(rows("SELECT agent_id || pid || process_started_at FROM member_terminals"), ["human:a7s"]);
    }

    #[test]
    fn what_waited_before_wakes_its_recipients_as_it_would_now() {
        let connection = Connection::open_in_memory().unwrap();
        apply_missing_of(&connection, MIGRATIONS.iter().filter(|m| m.id < 133)).unwrap();
        let room =
            "INSERT INTO path_rooms (room_id, canonical_path, state, updated_at) VALUES ('r', '/w', 'idle', 't')";
        connection.execute_batch(room).unwrap();
        let messages = [
            ("codex:1", "'b'", r#"{"body":"named"}"#, "agent"),
            ("codex:1", "NULL", r#"{"body":"broadcast"}"#, ""),
            ("human:a", "NULL", r#"{"body":"broadcast","from_person":true}"#, "person"),
            ("human:a", "'b'", r#"{"body":"reminder","reminder_id":"r"}"#, "person"),
            ("codex:1", "'b'", r#"{"body":"notice","notice":"delivered"}"#, ""),
            ("b", "'codex:1'", r#"{"body":"question","expects_reply":true}"#, "agent"),
            ("codex:1", "'b'", r#"{"body":"answer","reply_to":6}"#, "answer"),
            ("codex:1", "'b'", r#"{"body":"reply","reply_to":1}"#, "agent"),
        ];
        for (seq, (from, to, payload, _)) in (1..).zip(&messages) {
            let sql = format!(
                "INSERT INTO room_events (event_seq, event_id, room_id, event_type, from_agent_id, to_agent_id, payload_json, created_at)
                   VALUES ({seq}, 'e{seq}', 'r', 'message_sent', '{from}', {to}, '{payload}', 't');
                 INSERT INTO deliveries (event_seq, recipient_agent_id, room_id) VALUES ({seq}, 'b', 'r')"
            );
            connection.execute_batch(&sql).unwrap();
        }
        apply_all(&connection).unwrap();
        let mut statement =
            connection.prepare("SELECT coalesce(wakes, '') FROM deliveries ORDER BY event_seq").unwrap();
        let wakes: Vec<String> = statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(wakes, messages.map(|(.., wakes)| wakes));
    }

    #[test]
    fn a_migration_that_fails_leaves_nothing_behind() {
        let connection = Connection::open_in_memory().unwrap();
        // The third migration will find its table taken.
        connection.execute_batch("CREATE TABLE notes (x)").unwrap();
        assert!(matches!(apply_all(&connection), Err(MigrationError::Failed { name: "003_notes", .. })));
        assert_eq!(applied(&connection).unwrap(), Vec::<i64>::new());
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'path_rooms'", [], |r| r.get(0))
            .unwrap();
        assert_eq!(tables, 0);
    }
}
