//! SQLite: the one writer thread, the pool of readers, the migrations, and the rows.

mod checkpoint;
mod contents;
mod deliveries;
mod edits;
mod events;
#[cfg(test)]
mod failing_disk;
mod files;
mod idempotency;
mod migrations;
mod notes;
mod readers;
mod reminders;
mod room_cache;
mod room_paths;
mod rooms;
mod search;
mod sessions;
mod space;
mod terminals;
mod writer;

use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{oneshot, watch};
use tt_proto::policy::Policy;
use tt_proto::{Error, ErrorCode, RoomId};
use tt_rules::LeaseTime;

use crate::{Clock, Maintenance, Reader, Store, UnitOfWork};
use files::Files;
use readers::Readers;
use room_paths::RoomPaths;
use writer::Writer;

/// The write-ahead log is cut to this length when it was moved into the database.
const MAX_IDLE_LOG_BYTES: u32 = 8 * 1024 * 1024;

/// How long to wait for another program that has the database locked.
const BUSY_TIMEOUT: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(5) };

/// The store of one machine: a SQLite database.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
    paths: Arc<RoomPaths>,
    policy: Policy,
    files: Arc<Files>,
}

/// How far the clocks of this boot are from the machine's own, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffsets {
    pub lease: i64,
    pub deadline: i64,
}

impl SqliteStore {
    /// Opens the database, brings it to the schema of this version, and starts the writer. `policy` is what rooms without
    /// overrides go by.
    pub fn open(file: &Path, clock: Arc<dyn Clock>, policy: Policy) -> Result<Self, Error> {
        Self::open_beside(file, &[], clock, policy)
    }

    /// Opens the database and looks after other files that must stay as they are for as long as it is open.
    pub fn open_beside(file: &Path, others: &[&Path], clock: Arc<dyn Clock>, policy: Policy) -> Result<Self, Error> {
        Self::open_with(file, others, clock, policy, "FULL")
    }

    /// Opens a database whose commits survive the end of the process, but not a power cut. For simulations.
    pub fn open_volatile(file: &Path, clock: Arc<dyn Clock>, policy: Policy) -> Result<Self, Error> {
        Self::open_with(file, &[], clock, policy, "OFF")
    }

    fn open_with(
        file: &Path,
        others: &[&Path],
        clock: Arc<dyn Clock>,
        policy: Policy,
        synchronous: &str,
    ) -> Result<Self, Error> {
        prepare(file)?;
        let connection = Connection::open(file).map_err(cannot_use(file))?;
        connection.set_prepared_statement_cache_capacity(128);
        connection.busy_timeout(BUSY_TIMEOUT).map_err(cannot_use(file))?;
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL;
                 PRAGMA journal_size_limit = {MAX_IDLE_LOG_BYTES};
                 PRAGMA synchronous = {synchronous};
                 PRAGMA foreign_keys = ON;
                 PRAGMA temp_store = MEMORY;"
            ))
            .map_err(cannot_use(file))?;
        let readers = Readers::open(file)?;
        let paths = Arc::new(RoomPaths::default());
        // From the first query on the log and its index exist, and they stay until the last connection is closed.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).map_err(unavailable(file))?;
        let files = Arc::new(Files::note(file, others).map_err(unavailable(file))?);
        let writer = Writer::start(connection, clock, policy.clone(), paths.clone(), files.clone());
        let writer = writer.map_err(unavailable(file))?;
        Ok(Self { writer, readers, paths, policy, files })
    }

    /// Creates the database, or brings it to the schema of this version, without opening it.
    pub fn create(file: &Path) -> Result<(), Error> {
        prepare(file)
    }

    /// The offsets of the clocks in this boot: those an earlier daemon stored, or these, stored now. `now` is what the clock of
    /// leases says with these. If the time of day was ahead in an earlier boot, and with it everything that was measured then,
    /// both clocks go on from the latest of it: no lease and no deadline becomes longer by a clock that was corrected.
    pub fn clock_offsets(
        file: &Path,
        boot_id: &str,
        offsets: ClockOffsets,
        now: LeaseTime,
    ) -> Result<ClockOffsets, Error> {
        prepare(file)?;
        let connection = Connection::open(file).map_err(cannot_use(file))?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(query_failed)?;
        let known = "SELECT EXISTS (SELECT 1 FROM steady_clock WHERE boot_id = ?1)";
        let known: bool = connection.query_row(known, [boot_id], |row| row.get(0)).map_err(query_failed)?;
        let behind = match rooms::latest_time(&connection)? {
            Some(latest) if !known => latest.as_millis().saturating_sub(now.as_millis()).max(0),
            _ => 0,
        };
        let offsets = ClockOffsets {
            lease: offsets.lease.saturating_add(behind),
            deadline: offsets.deadline.saturating_add(behind),
        };
        let stored = |connection: &Connection| {
            let insert =
                "INSERT OR IGNORE INTO steady_clock (boot_id, offset_ms, deadline_offset_ms) VALUES (?1, ?2, ?3)";
            connection.execute(insert, (boot_id, offsets.lease, offsets.deadline))?;
            // An older version stored only the first.
            let complete =
                "UPDATE steady_clock SET deadline_offset_ms = ?2 WHERE boot_id = ?1 AND deadline_offset_ms IS NULL";
            connection.execute(complete, (boot_id, offsets.deadline))?;
            connection.execute("DELETE FROM steady_clock WHERE boot_id <> ?1", [boot_id])?;
            let select = "SELECT offset_ms, deadline_offset_ms FROM steady_clock WHERE boot_id = ?1";
            connection
                .query_row(select, [boot_id], |row| Ok(ClockOffsets { lease: row.get(0)?, deadline: row.get(1)? }))
        };
        stored(&connection).map_err(query_failed)
    }
}

impl Store for SqliteStore {
    fn submit(&self, unit: Box<dyn UnitOfWork>) {
        self.writer.submit(unit);
    }

    fn maintain(&self, task: Maintenance) -> oneshot::Receiver<Result<(), Error>> {
        self.writer.maintain(task)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, Error> {
        let reader = self.readers.get(self.policy.clone())?;
        self.files.check()?;
        Ok(Box::new(reader))
    }

    fn check(&self) -> Result<(), Error> {
        self.files.check()
    }

    fn lost(&self) -> watch::Receiver<Option<Error>> {
        self.files.lost()
    }

    fn known_room_at(&self, paths: &mut dyn Iterator<Item = &Path>) -> Option<RoomId> {
        self.paths.first(paths)
    }

    fn close(&self) {
        self.writer.close();
    }
}

/// Makes the file private and brings it to the schema of this version.
fn prepare(file: &Path) -> Result<(), Error> {
    make_private(file).map_err(unavailable(file))?;
    // Opened read-only first, so that a database of a newer version stays as it is, byte for byte.
    let looking = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(cannot_use(file))?;
    looking.busy_timeout(BUSY_TIMEOUT).map_err(cannot_use(file))?;
    let missing = migrations::missing(&looking).map_err(|e| e.into_error(file))?;
    let shrinks = space::is_given_back(&looking).map_err(cannot_use(file))?;
    drop(looking);
    if !missing && shrinks {
        return Ok(());
    }
    let connection = Connection::open(file).map_err(cannot_use(file))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(cannot_use(file))?;
    // The first of these has an effect at once only in a database that is still empty.
    space::prepare(&connection).map_err(cannot_use(file))?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON").map_err(cannot_use(file))?;
    if missing {
        migrations::apply(&connection, file).map_err(|e| e.into_error(file))?;
    }
    space::rebuild_if_needed(&connection);
    Ok(())
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

/// A database that cannot be opened or prepared.
fn cannot_use(file: &Path) -> impl Fn(rusqlite::Error) -> Error {
    let unavailable = unavailable(file);
    move |e| if is_locked(&e) { locked() } else { unavailable(e) }
}

/// A statement that failed on an open database.
pub fn query_failed(e: rusqlite::Error) -> Error {
    if is_locked(&e) {
        return locked();
    }
    Error::new(ErrorCode::StorageUnavailable, format!("the database refused: {e}"))
}

/// Whether another program has the database locked.
fn is_locked(e: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseBusy, DatabaseLocked};
    matches!(e.sqlite_error_code(), Some(DatabaseBusy | DatabaseLocked))
}

fn locked() -> Error {
    let message = format!("another program has the database locked, and kept it locked for {BUSY_TIMEOUT:?}");
    Error::new(ErrorCode::StorageUnavailable, message)
        .hint("end the program that has rooms.sqlite open, for instance a database browser or a backup; then try again")
        .detail("locked", true)
}

#[cfg(test)]
mod tests {
    use tt_rules::{DeadlineTime, LeaseTime, Now};

    use super::*;

    #[derive(Debug)]
    struct Stopped;

    impl Clock for Stopped {
        fn now(&self) -> Now {
            let millis = 1_790_000_000_000;
            Now {
                lease: LeaseTime::from_millis(millis),
                deadline: DeadlineTime::from_millis(millis),
                wall: tt_proto::WallTime::from_millis(millis),
            }
        }
    }

    fn open(file: &Path) -> Result<SqliteStore, Error> {
        SqliteStore::open(file, Arc::new(Stopped), Policy::default())
    }

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

    #[test]
    fn a_database_of_0_1_opens_and_keeps_every_row() {
        let dir = tempfile::tempdir().unwrap();
        let file = fixture(dir.path());
        let before: Vec<_> = OLD_ROWS.iter().map(|sql| rows(&Connection::open(&file).unwrap(), sql)).collect();
        assert!(before.iter().all(|table| !table.is_empty()));
        open(&file).unwrap().close();
        let connection = Connection::open(&file).unwrap();
        let after: Vec<_> = OLD_ROWS.iter().map(|sql| rows(&connection, sql)).collect();
        assert_eq!(before, after);
        assert_eq!(rows(&connection, "SELECT DISTINCT payload_json FROM room_events"), ["Null"]);
        assert!(space::is_given_back(&connection).unwrap(), "from now on deleted rooms give their space back");
        assert!(open(&file).is_ok(), "and opens again");
    }

    #[test]
    fn a_fresh_database_has_the_schema_an_upgraded_one_has() {
        let schema = |file: PathBuf| {
            open(&file).unwrap().close();
            let connection = Connection::open(&file).unwrap();
            let sql = "SELECT type, name, tbl_name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2";
            let mut all = rows(&connection, sql);
            for table in [
                "path_rooms",
                "room_members",
                "room_events",
                "notes",
                "deliveries",
                "idempotency_keys",
                "schema_migrations",
            ] {
                let sql = format!("SELECT name, type, pk FROM pragma_table_info('{table}')");
                all.extend(rows(&connection, &sql));
            }
            all
        };
        let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let upgraded = schema(fixture(old.path()));
        assert_eq!(upgraded, schema(new.path().join("rooms.sqlite")));
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
            let error = open(&file).unwrap_err();
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
        assert_eq!(open(&file).unwrap_err().code, ErrorCode::StorageUnavailable);
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }

    #[test]
    fn a_clock_that_was_years_ahead_makes_no_lease_of_years() {
        const YEAR: i64 = 365 * 24 * 60 * 60 * 1000;
        let dir = tempfile::tempdir().unwrap();
        let file = fixture(dir.path());
        let offsets = |boot: &str, lease: i64| {
            let offsets = ClockOffsets { lease: lease - 5000, deadline: lease - 7000 };
            SqliteStore::clock_offsets(&file, boot, offsets, LeaseTime::from_millis(lease)).unwrap()
        };
        let today = 1_790_000_000_000;
        // As a machine without a battery may believe at its first start. Members are seen, and hold the stick, by that clock.
        let ahead = today + 14 * YEAR;
        assert_eq!(offsets("first", ahead), ClockOffsets { lease: ahead - 5000, deadline: ahead - 7000 });
        let seen = tt_proto::WallTime::from_millis(ahead + 60_000).to_string();
        Connection::open(&file).unwrap().execute("UPDATE room_members SET last_seen_at = ?1", [seen]).unwrap();
        assert_eq!(offsets("first", today).lease, ahead - 5000, "in one boot the clock goes on as it is");
        let next = offsets("second", today);
        assert_eq!(next, ClockOffsets { lease: ahead + 55_000, deadline: ahead + 53_000 }, "it goes on from there");
        assert_eq!(offsets("second", today + 1), next, "and stays");
        let later = ahead + YEAR;
        assert_eq!(offsets("third", later).lease, later - 5000, "time that passed while the machine was off counts");
    }

    #[test]
    fn a_locked_database_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rooms.sqlite");
        let other = Connection::open(&file).unwrap();
        other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; CREATE TABLE t (n); BEGIN IMMEDIATE").unwrap();
        let error = open(&file).unwrap_err();
        assert_eq!((error.code, &error.details["locked"]), (ErrorCode::StorageUnavailable, &true.into()), "{error:?}");
        assert!(error.message.contains("another program has the database locked"), "{error}");
    }

    #[test]
    fn the_files_are_private() {
        let dir = tempfile::tempdir().unwrap();
        let file = fixture(dir.path());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let store = open(&file).unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        }
        store.close();
    }

    #[test]
    fn sqlite_does_what_any_store_must() {
        crate::conformance::check_all(&|dir, clock| {
            Arc::new(SqliteStore::open(&dir.join("rooms.sqlite"), clock, Policy::default()).unwrap())
        });
    }

    #[test]
    fn a_migration_keeps_a_private_copy_of_the_database_as_it_was_and_only_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let file = fixture(dir.path());
        let before: Vec<_> = OLD_ROWS.iter().map(|sql| rows(&Connection::open(&file).unwrap(), sql)).collect();
        std::fs::write(dir.path().join("rooms.sqlite.backup-3"), "an older one").unwrap();
        std::fs::write(dir.path().join("rooms.sqlite.backup-of-mine"), "somebody's own").unwrap();
        open(&file).unwrap().close();
        let backups = |dir: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
            entries.filter(|path| path.display().to_string().contains(".backup-")).collect()
        };
        std::fs::remove_file(dir.path().join("rooms.sqlite.backup-of-mine")).expect("it is not ours to remove");
        let copy = backups(dir.path());
        assert_eq!(copy.len(), 1, "{copy:?}");
        assert_eq!(std::fs::metadata(&copy[0]).unwrap().permissions().mode() & 0o777, 0o600);
        let connection = Connection::open(&copy[0]).unwrap();
        let kept: Vec<_> = OLD_ROWS.iter().map(|sql| rows(&connection, sql)).collect();
        assert_eq!(before, kept);
        open(&file).unwrap().close();
        assert_eq!(backups(dir.path()), copy, "nothing was migrated, so nothing was copied");
        let fresh = tempfile::tempdir().unwrap();
        open(&fresh.path().join("rooms.sqlite")).unwrap().close();
        assert!(backups(fresh.path()).is_empty(), "a new database needs no copy");
    }
}
