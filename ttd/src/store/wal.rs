//! The write-ahead log as a file: larger than what is written to it, and folded into the database behind the answers.
//!
//! A commit that makes its file longer waits for the file system's journal as well as for the disk. So the file is made
//! longer, with zeros that no frame of the log is mistaken for, while nobody waits.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal as Committed;

use super::BUSY_TIMEOUT;

/// Frames after which the log is folded in and begins anew: what SQLite does by itself, inside a commit.
const FOLD_AT: u64 = 1000;

/// How much the file grows at a time, and how little may be left of it before it does.
const STEP: u64 = 1024 * 1024;
const MARGIN: u64 = STEP / 4;

/// No frame is longer: a page of the default size and its header.
const FRAME: u64 = 4096 + 24;

thread_local! {
    /// The frames in the log after the last commit. SQLite tells them to a bare function, on the thread that commits.
    static FRAMES: Cell<u64> = const { Cell::new(0) };
}

fn committed(_: &Committed, frames: i32) -> rusqlite::Result<()> {
    FRAMES.set(u64::try_from(frames).unwrap_or(0));
    Ok(())
}

/// The log of the connection that writes.
pub(super) struct Wal {
    /// None once it could not be made longer: SQLite does that too, only slower.
    file: Option<File>,
    length: u64,
    frames: u64,
}

impl Wal {
    /// From here on whoever has the connection must `tend` the log.
    pub(super) fn of(connection: &Connection) -> Self {
        connection.wal_hook(Some(committed));
        let file = connection.path().and_then(|path| OpenOptions::new().write(true).open(format!("{path}-wal")).ok());
        let mut wal = Self { file, length: 0, frames: 0 };
        wal.measure();
        wal
    }

    fn measure(&mut self) {
        self.length = self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |found| found.len());
    }

    /// Does what is due between two commits.
    pub(super) fn tend(&mut self, connection: &Connection) {
        let before = std::mem::replace(&mut self.frames, FRAMES.get());
        if self.frames < before {
            // It began anew, and another program may have cut it off before that.
            self.measure();
        }
        if self.frames >= FOLD_AT {
            // What a reader still needs stays for the next time.
            if let Err(e) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
                tracing::warn!("checkpoint: {e}");
            }
        } else if self.file.is_some() && self.frames * FRAME + MARGIN > self.length {
            self.lengthen(connection);
        }
    }

    fn lengthen(&mut self, connection: &Connection) {
        let Some(file) = &self.file else { return };
        // Nobody else appends to the log while we hold its lock. Where another program has it, there is a next time.
        let patience = connection.busy_timeout(Duration::ZERO);
        let locked = patience.and_then(|()| connection.execute_batch("BEGIN IMMEDIATE")).is_ok();
        let _ = connection.busy_timeout(BUSY_TIMEOUT);
        if !locked {
            return;
        }
        match grow(file) {
            Ok(length) => self.length = length,
            Err(e) => {
                tracing::info!("the write-ahead log is not made longer ahead: {e}");
                self.file = None;
            }
        }
        if let Err(e) = connection.execute_batch("ROLLBACK") {
            tracing::error!("the write-ahead log stays locked: {e}");
        }
    }
}

/// Makes the file a step longer, or leaves it as it was: what is left of a disk belongs to those who need it.
fn grow(file: &File) -> io::Result<u64> {
    let end = file.metadata()?.len();
    let grown = file.write_all_at(&vec![0; STEP as usize], end).and_then(|()| file.sync_data());
    if let Err(e) = grown {
        file.set_len(end)?;
        return Err(e);
    }
    Ok(end + STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(file: &std::path::Path) -> Connection {
        let connection = Connection::open(file).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t (n)").unwrap();
        connection
    }

    fn count(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_log_that_is_longer_than_what_is_in_it_loses_nothing_and_adds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join("w"), dir.path().join("w-wal"));
        let connection = open(&file);
        let mut wal = Wal::of(&connection);
        for n in 0..50 {
            connection.execute("INSERT INTO t VALUES (?1)", [n]).unwrap();
            wal.tend(&connection);
            // As a crash would leave it: copied with the zeros behind the last frame.
            if n % 10 == 0 {
                let copy = tempfile::tempdir().unwrap();
                std::fs::copy(&file, copy.path().join("w")).unwrap();
                std::fs::copy(&log, copy.path().join("w-wal")).unwrap();
                assert_eq!(count(&open(&copy.path().join("w"))), n + 1);
            }
        }
        assert!(std::fs::metadata(&log).unwrap().len() >= STEP, "nothing was made longer");
    }

    #[test]
    fn a_lock_that_another_program_holds_is_waited_for_by_nobody_and_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let (file, log) = (dir.path().join("w"), dir.path().join("w-wal"));
        let (connection, other) = (open(&file), open(&file));
        let mut wal = Wal::of(&connection);
        connection.execute("INSERT INTO t VALUES (1)", []).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        wal.tend(&connection);
        assert!(std::fs::metadata(&log).unwrap().len() < STEP);
        other.execute_batch("ROLLBACK").unwrap();
        wal.tend(&connection);
        assert!(std::fs::metadata(&log).unwrap().len() >= STEP);
        // Whoever folds it in may cut it off as well.
        other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        for n in 0..2 {
            connection.execute("INSERT INTO t VALUES (?1)", [n]).unwrap();
            wal.tend(&connection);
        }
        assert!(std::fs::metadata(&log).unwrap().len() >= STEP);
        assert_eq!(count(&connection), 3);
    }

    #[test]
    fn the_log_is_folded_in_before_it_grows_without_end() {
        let dir = tempfile::tempdir().unwrap();
        let connection = open(&dir.path().join("w"));
        connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
        let mut wal = Wal::of(&connection);
        for n in 0..5000 {
            connection.execute("INSERT INTO t VALUES (?1)", [n]).unwrap();
            wal.tend(&connection);
        }
        let length = std::fs::metadata(dir.path().join("w-wal")).unwrap().len();
        assert!(length <= (FOLD_AT + 10) * FRAME + 2 * STEP, "{length} bytes");
        assert_eq!(count(&connection), 5000);
    }
}
