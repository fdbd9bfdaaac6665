//! SQLite: the one writer thread, the pool of readers, the migrations, and the directory they lie in.
//!
//! No rule about sticks or members is decided here.

pub mod events;
pub mod idempotency;
pub mod inbox;
pub mod kept;
mod migrations;
pub mod notes;
mod readers;
pub mod rooms;
mod wal;
mod writer;

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
pub use tt_proto::filesystem::{Filesystem, filesystem};
use tt_proto::paths::{Paths, ensure_private_dir};
use tt_proto::{Error, ErrorCode};

use readers::Readers;
use writer::Writer;

/// How long another program that has the database locked is waited for.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The open database.
#[derive(Debug)]
pub struct Store {
    writer: Writer,
    readers: Readers,
}

/// Creates the data directory or checks the one that is there. A database on a network filesystem is refused: SQLite's
/// locks and its write-ahead log do not hold there.
pub fn prepare_data_dir(paths: &Paths, filesystem: fn(&Path) -> Filesystem) -> Result<(), Error> {
    ensure_private_dir(&paths.data_dir)?;
    if let Filesystem::Network(kind) = filesystem(&paths.data_dir) {
        let shown = paths.data_dir.display();
        return Err(Error::new(
            ErrorCode::StorageUnavailable,
            format!("{shown} is on a network filesystem ({kind}), where a database can be corrupted"),
        )
        .hint("set TALKING_STICK_DATA_DIR to a private directory on a local disk")
        .detail("path", shown.to_string()));
    }
    Ok(())
}

impl Store {
    /// Opens the database, brings it to this version's schema, and starts the writer.
    pub fn open(file: &Path) -> Result<Self, Error> {
        make_private(file).map_err(unavailable(file))?;
        // Looked at read-only first, so that a database we do not understand stays as it is to the byte.
        let looking = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(unavailable(file))?;
        migrations::check(&looking).map_err(|e| e.into_error(file))?;
        drop(looking);
        let connection = Connection::open(file).map_err(unavailable(file))?;
        connection.set_prepared_statement_cache_capacity(128);
        connection.busy_timeout(BUSY_TIMEOUT).map_err(unavailable(file))?;
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = FULL;
                 PRAGMA foreign_keys = ON;
                 PRAGMA temp_store = MEMORY;",
            )
            .map_err(unavailable(file))?;
        migrations::apply(&connection).map_err(|e| e.into_error(file))?;
        let readers = Readers::open(file)?;
        let writer = Writer::start(connection).map_err(unavailable(file))?;
        Ok(Self { writer, readers })
    }

    /// Runs a command on the writer thread, in a savepoint of its own. It answers after the commit that holds it: what
    /// this returns as `Ok` survives a power cut.
    pub async fn write<T, F>(&self, command: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        self.writer.write(command, |_| ()).await
    }

    /// The same, and `after` runs on the writer thread once the command is committed, in the order of the commits and
    /// before the caller is answered.
    pub async fn write_then<T, F, A>(&self, command: F, after: A) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
        A: FnOnce(&mut T) + Send + 'static,
    {
        self.writer.write(command, after).await
    }

    /// Grows when the tables may hold something else than the commands so far have left there: a transaction failed, or
    /// another program wrote to the file. For the writer thread.
    pub fn epoch(&self) -> u64 {
        self.writer.epoch()
    }

    /// Runs a query on a read-only connection, never in the writer's way.
    pub async fn read<T, F>(&self, query: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
    {
        self.readers.read(|| Ok(()), |(), connection| query(connection)).await
    }

    /// The same, after a look at something else that may block.
    pub async fn read_after<P, T>(
        &self,
        look: impl FnOnce() -> Result<P, Error> + Send + 'static,
        query: impl FnOnce(P, &Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
    {
        self.readers.read(look, query).await
    }

    /// The offset of the steady clock in this boot: what an earlier daemon wrote down, or this one's, written down now.
    pub fn steady_offset(file: &Path, boot_id: &str, offset: i64) -> Result<i64, Error> {
        let connection = Connection::open(file).map_err(unavailable(file))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(query_failed)?;
        connection
            .execute("INSERT OR IGNORE INTO steady_clock (boot_id, offset_ms) VALUES (?1, ?2)", (boot_id, offset))
            .and_then(|_| connection.execute("DELETE FROM steady_clock WHERE boot_id <> ?1", [boot_id]))
            .and_then(|_| {
                connection
                    .query_row("SELECT offset_ms FROM steady_clock WHERE boot_id = ?1", [boot_id], |row| row.get(0))
            })
            .map_err(query_failed)
    }

    /// The newest migration the database has.
    pub async fn schema(&self) -> Result<i64, Error> {
        self.read(|connection| migrations::newest(connection).map_err(query_failed)).await
    }

    /// Finishes what is queued, folds the write-ahead log into the file, and closes it.
    pub fn close(&self) {
        self.writer.close();
    }
}

/// Before SQLite sees the file: it gives its companions (`-wal`, `-shm`) the mode of the database.
fn make_private(file: &Path) -> std::io::Result<()> {
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(file)?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600))
}

/// Any failure to reach the file itself.
fn unavailable<E: std::fmt::Display>(file: &Path) -> impl Fn(E) -> Error {
    let file: PathBuf = file.to_owned();
    move |e| {
        Error::new(ErrorCode::StorageUnavailable, format!("cannot use the database {}: {e}", file.display()))
            .hint("check that its disk has room and that the file is yours to read and write")
            .detail("path", file.display().to_string())
    }
}

/// A statement that failed on an open database.
pub fn query_failed(e: rusqlite::Error) -> Error {
    Error::new(ErrorCode::StorageUnavailable, format!("the database refused: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A populated database as talking-stick 0.1.x leaves it behind.
    const FIXTURE: &str = include_str!("fixture_0_1.sql");

    fn fixture(dir: &Path) -> PathBuf {
        let file = dir.join("rooms.sqlite");
        Connection::open(&file).unwrap().execute_batch(FIXTURE).unwrap();
        file
    }

    fn rows(connection: &Connection, sql: &str) -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        let columns = statement.column_count();
        let row = |r: &rusqlite::Row<'_>| {
            (0..columns)
                .map(|i| r.get::<_, rusqlite::types::Value>(i).map(|v| format!("{v:?}")))
                .collect::<Result<Vec<_>, _>>()
        };
        statement.query_map([], row).unwrap().map(|r| r.unwrap().join("|")).collect()
    }

    const OLD_ROWS: [&str; 4] = [
        "SELECT room_id, canonical_path, sequence_index, owner, reserved_for, pending_handoff_event_seq, turn_id, lease_id,
           lease_expires_at, claim_expires_at, state, updated_at FROM path_rooms ORDER BY 1",
        "SELECT room_id, agent_id, ordinal, joined_at, last_seen_at, status, host_id, pid, process_started_at, session_kind,
           display_name, last_wait_at FROM room_members ORDER BY 1, 2",
        "SELECT event_seq, event_id, room_id, turn_id, event_type, from_agent_id, to_agent_id, handoff_json, reason, created_at
           FROM room_events ORDER BY 1",
        "SELECT * FROM notes ORDER BY 1",
    ];

    #[tokio::test]
    async fn a_database_of_0_1_opens_and_keeps_every_row() {
        let dir = tempfile::tempdir().unwrap();
        let file = fixture(dir.path());
        let before: Vec<_> = OLD_ROWS.iter().map(|sql| rows(&Connection::open(&file).unwrap(), sql)).collect();
        assert!(before.iter().all(|table| !table.is_empty()));
        let store = Store::open(&file).unwrap();
        let after = store.read(|c| Ok(OLD_ROWS.iter().map(|sql| rows(c, sql)).collect::<Vec<_>>())).await.unwrap();
        assert_eq!(before, after);
        let payloads = store.read(|c| Ok(rows(c, "SELECT DISTINCT payload_json FROM room_events"))).await.unwrap();
        assert_eq!(payloads, ["Null"]);
        store.close();
        assert!(Store::open(&file).is_ok(), "and opens again");
    }

    #[tokio::test]
    async fn a_fresh_database_has_the_schema_an_upgraded_one_has() {
        let schema = |file: PathBuf| async move {
            let store = Store::open(&file).unwrap();
            let sql = "SELECT type, name, tbl_name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2";
            let mut all = store.read(move |c| Ok(rows(c, sql))).await.unwrap();
            for table in ["path_rooms", "room_members", "room_events", "notes", "schema_migrations"] {
                let sql = format!("SELECT name, type, pk FROM pragma_table_info('{table}')");
                all.extend(store.read(move |c| Ok(rows(c, &sql))).await.unwrap());
            }
            all
        };
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let upgraded = schema(fixture(old.path())).await;
        assert_eq!(upgraded, schema(new.path().join("rooms.sqlite")).await);
    }

    #[test]
    fn a_database_of_the_future_is_refused_and_stays_as_it_is_to_the_byte() {
        for id in [0, 6, 100, 199, 99_999] {
            let dir = tempfile::tempdir().unwrap();
            let file = fixture(dir.path());
            let connection = Connection::open(&file).unwrap();
            connection
                .execute("INSERT INTO schema_migrations VALUES (?1, 'other', '2026-01-01T00:00:00.000Z')", [id])
                .unwrap();
            drop(connection);
            let before = std::fs::read(&file).unwrap();
            let error = Store::open(&file).unwrap_err();
            assert_eq!(error.code, ErrorCode::SchemaTooNew, "{id}");
            assert_eq!(error.details["migration"], id);
            assert_eq!(std::fs::read(&file).unwrap(), before);
        }
    }

    #[test]
    fn a_file_that_is_no_database_is_refused_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rooms.sqlite");
        std::fs::write(&file, "not a database, but somebody's".repeat(100)).unwrap();
        let before = std::fs::read(&file).unwrap();
        assert_eq!(Store::open(&file).unwrap_err().code, ErrorCode::StorageUnavailable);
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }

    #[test]
    fn the_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let file = fixture(dir.path());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let store = Store::open(&file).unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        }
        store.close();
    }

    #[test]
    fn a_network_filesystem_is_refused_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        let paths = Paths { socket: data_dir.join("ttd.sock"), config_dir: data_dir.clone(), data_dir };
        let error = prepare_data_dir(&paths, |_| Filesystem::Network("nfs")).unwrap_err();
        assert_eq!(error.code, ErrorCode::StorageUnavailable);
        assert!(error.message.contains("nfs") && error.hint.contains("TALKING_STICK_DATA_DIR"));
        prepare_data_dir(&paths, |_| Filesystem::Local).unwrap();
        prepare_data_dir(&paths, filesystem).unwrap();
    }
}
