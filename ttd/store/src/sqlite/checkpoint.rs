//! Moving the write-ahead log into the database file, behind the answers instead of inside a commit that a caller waits for.

use std::cell::Cell;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

/// The log is moved once it has this many frames. SQLite would do so by itself at the same length, inside a commit.
const CHECKPOINT_FRAMES: i32 = if cfg!(test) { 100 } else { 1000 };

thread_local! {
    /// The frames in the log after the last commit. SQLite tells them to a plain function, on the thread that commits.
    static FRAMES: Cell<i32> = const { Cell::new(0) };
}

fn committed(_: &Wal, frames: i32) -> rusqlite::Result<()> {
    FRAMES.set(frames);
    Ok(())
}

/// From here on the log is moved by [`run_if_due`] only.
pub(super) fn take_over(connection: &Connection) {
    connection.wal_hook(Some(committed));
}

pub(super) fn run_if_due(connection: &Connection) {
    if FRAMES.get() >= CHECKPOINT_FRAMES {
        // Frames that a reader still needs stay in the log until the next commit asks again.
        FRAMES.set(0);
        run(connection, "PRAGMA wal_checkpoint(PASSIVE)");
    }
}

/// Moves the log now, so that a database file that became shorter gives back its end.
pub(super) fn run_now(connection: &Connection) {
    FRAMES.set(0);
    run(connection, "PRAGMA wal_checkpoint(PASSIVE)");
}

/// Everything is in the log already; moving it keeps the next start short.
pub(super) fn run_at_close(connection: &Connection) {
    run(connection, "PRAGMA wal_checkpoint(TRUNCATE)");
}

fn run(connection: &Connection, sql: &str) {
    if let Err(e) = connection.query_row(sql, [], |_| Ok(())) {
        tracing::warn!("checkpoint: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_moved_before_it_grows_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let connection = Connection::open(dir.path().join("w")).unwrap();
        let setup = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; CREATE TABLE t (n INTEGER)";
        connection.execute_batch(setup).unwrap();
        take_over(&connection);
        for n in 0..5000 {
            connection.execute("INSERT INTO t VALUES (?1)", [n]).unwrap();
            run_if_due(&connection);
        }
        let frames = std::fs::metadata(dir.path().join("w-wal")).unwrap().len() / (4096 + 24);
        assert!(frames <= 110, "{frames} frames");
    }
}
