use std::sync::mpsc;

use tt_rules::Command;

use super::super::SqliteStore;
use super::*;
use crate::Store;
use crate::conformance::{Response, Stopped, note, unit};

struct Scratch {
    dir: tempfile::TempDir,
    store: SqliteStore,
}

fn scratch() -> Scratch {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("w.sqlite"), Arc::new(Stopped), Policy::default()).unwrap();
    let scratch = Scratch { dir, store };
    scratch.run("a", Command::Join { display_name: None }).unwrap();
    scratch
}

impl Scratch {
    fn run(&self, name: &str, command: Command) -> Result<Vec<Arc<Event>>, Error> {
        let (unit, answered) = unit(name, command);
        self.store.submit(Box::new(unit));
        answered.recv().unwrap().map(|answer| answer.unwrap().events)
    }

    /// Keeps the writer busy with a unit until the sender is dropped, so that others queue behind it.
    fn block(&self) -> (mpsc::Sender<()>, mpsc::Receiver<Response>) {
        let (release, hold) = mpsc::channel::<()>();
        let (busy, is_busy) = mpsc::channel();
        let (unit, answered) = unit("a", note("first"));
        let decided = Box::new(move || {
            let _ = busy.send(());
            let _ = hold.recv();
        });
        self.store.submit(Box::new(Hooked { unit, decided, committed: Box::new(|| ()) }));
        is_busy.recv().unwrap();
        (release, answered)
    }

    /// Another program's connection.
    fn other(&self) -> Connection {
        Connection::open(self.dir.path().join("w.sqlite")).unwrap()
    }
}

/// Runs a hook in the middle of another unit.
struct Hooked<U> {
    unit: U,
    decided: Box<dyn FnMut() + Send>,
    committed: Box<dyn FnOnce() + Send>,
}

impl<U: UnitOfWork> UnitOfWork for Hooked<U> {
    fn candidates(&self) -> Vec<std::path::PathBuf> {
        self.unit.candidates()
    }

    fn locate(&mut self, existing: &HashMap<std::path::PathBuf, RoomId>) -> Location {
        self.unit.locate(existing)
    }

    fn needs(&self) -> Needs {
        self.unit.needs()
    }

    fn decide(&mut self, loaded: Loaded<'_>) -> Result<Decision, Error> {
        let decision = self.unit.decide(loaded);
        (self.decided)();
        decision
    }

    fn answer(&mut self, decision: &mut Decision, events: &[Arc<Event>]) -> Result<Option<String>, Error> {
        self.unit.answer(decision, events)
    }

    fn committed(self: Box<Self>) {
        (self.committed)();
        Box::new(self.unit).committed();
    }

    fn repeated(self: Box<Self>, answer: String) {
        Box::new(self.unit).repeated(answer);
    }

    fn failed(self: Box<Self>, error: Error) {
        Box::new(self.unit).failed(error);
    }
}

fn version(connection: &Connection) -> i64 {
    connection.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap()
}

fn notes(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_process_whose_writer_ended_ends() {
    use std::os::unix::process::ExitStatusExt;
    const SIGABRT: i32 = 6;
    let mut this = std::process::Command::new(std::env::current_exe().unwrap());
    let ended = this.args(["--exact", "sqlite::writer::tests::plays_a_writer_that_ends", "--ignored"]).output();
    let ended = ended.unwrap();
    assert_eq!(ended.status.signal(), Some(SIGABRT), "{ended:?}");
}

#[test]
#[ignore = "run by the test above, in a process of its own"]
fn plays_a_writer_that_ends() {
    let (scratch, (unit, _answered)) = (scratch(), unit("a", note("first")));
    let committed = Box::new(|| panic!("outside of any unit's own work"));
    scratch.store.submit(Box::new(Hooked { unit, decided: Box::new(|| ()), committed }));
    let (_keep, never) = mpsc::channel::<()>();
    let _ = never.recv_timeout(std::time::Duration::from_secs(60));
}

#[test]
fn a_unit_that_changes_nothing_costs_no_transaction() {
    let scratch = scratch();
    let other = scratch.other();
    let before = version(&other);
    scratch.run("a", Command::EndWait).unwrap();
    assert_eq!(scratch.run("stranger", Command::Leave).unwrap_err().code, ErrorCode::UnknownMember);
    // Even while another program has the database locked.
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    scratch.run("a", Command::EndWait).unwrap();
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(version(&other), before, "something was committed");
    scratch.run("a", note("n")).unwrap();
    assert_ne!(version(&other), before);
}

#[test]
fn units_that_wait_together_share_one_commit() {
    let scratch = scratch();
    let (release, blocked) = scratch.block();
    let (seen, visible) = mpsc::channel();
    let answers: Vec<_> = (0..100)
        .map(|n| {
            let (unit, answered) = unit("a", note(&n.to_string()));
            let (other, seen) = (scratch.other(), seen.clone());
            let committed = Box::new(move || seen.send(notes(&other)).unwrap());
            scratch.store.submit(Box::new(Hooked { unit, decided: Box::new(|| ()), committed }));
            answered
        })
        .collect();
    drop(release);
    blocked.recv().unwrap().unwrap();
    answers.iter().for_each(|answer| assert!(answer.recv().unwrap().is_ok()));
    drop(seen);
    let visible: Vec<i64> = visible.iter().collect();
    assert_eq!(visible, vec![101; 100], "when the first was told, the last was committed too");
}

#[test]
fn a_unit_is_run_again_when_another_program_wrote_in_the_meantime() {
    let scratch = scratch();
    let other = scratch.other();
    let (hooked, answered) = unit("a", note("mine"));
    let mut runs = 0;
    let (count, counted) = mpsc::channel();
    let decided = Box::new(move || {
        runs += 1;
        count.send(runs).unwrap();
        if runs == 1 {
            other.execute("UPDATE room_members SET status = 'kicked'", []).unwrap();
        }
    });
    scratch.store.submit(Box::new(Hooked { unit: hooked, decided, committed: Box::new(|| ()) }));
    let refusal = answered.recv().unwrap().unwrap_err();
    assert_eq!(refusal.code, ErrorCode::Kicked, "decided on what the other program left");
    assert_eq!(counted.iter().last(), Some(2));
}

#[test]
fn a_unit_that_cannot_be_saved_fails_alone() {
    let scratch = scratch();
    let sql = "CREATE TRIGGER refuse BEFORE INSERT ON notes WHEN NEW.body = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END";
    scratch.other().execute_batch(sql).unwrap();
    let (release, blocked) = scratch.block();
    let answers = ["good", "bad", "fine"].map(|body| {
        let (unit, answered) = unit("a", note(body));
        scratch.store.submit(Box::new(unit));
        answered
    });
    drop(release);
    blocked.recv().unwrap().unwrap();
    let kept = answers.map(|answer| answer.recv().unwrap().is_ok());
    assert_eq!(kept, [true, false, true]);
    assert_eq!(notes(&scratch.other()), 3);
}

#[test]
fn a_locked_database_is_waited_for_once_and_not_by_each_unit() {
    let scratch = scratch();
    let (release, blocked) = scratch.block();
    let (ran, runs) = mpsc::channel();
    let answers: Vec<_> = (0..20)
        .map(|n| {
            let (unit, answered) = unit("a", note(&n.to_string()));
            let ran = ran.clone();
            let decided = Box::new(move || ran.send(n).unwrap());
            scratch.store.submit(Box::new(Hooked { unit, decided, committed: Box::new(|| ()) }));
            answered
        })
        .collect();
    let other = scratch.other();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop((release, ran));
    // The first unit was decided before the lock, and waits for it alone.
    let error = blocked.recv().unwrap().unwrap_err();
    assert_eq!((error.code, &error.details["locked"]), (ErrorCode::StorageUnavailable, &true.into()), "{error}");
    for answer in answers {
        assert_eq!(answer.recv().unwrap().unwrap_err().code, ErrorCode::StorageUnavailable);
    }
    assert_eq!(runs.iter().collect::<Vec<_>>(), [0], "the others were not run, each to wait for the lock in turn");
    other.execute_batch("ROLLBACK").unwrap();
    scratch.run("a", note("again")).unwrap();
}

#[test]
fn only_a_commit_that_failed_in_the_middle_has_an_unknown_outcome() {
    let failure = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
    for (code, expected) in [
        (rusqlite::ffi::SQLITE_IOERR_FSYNC, ErrorCode::OutcomeUnknown),
        (rusqlite::ffi::SQLITE_IOERR_WRITE, ErrorCode::OutcomeUnknown),
        (rusqlite::ffi::SQLITE_FULL, ErrorCode::StorageUnavailable),
        (rusqlite::ffi::SQLITE_BUSY, ErrorCode::StorageUnavailable),
    ] {
        assert_eq!(commit_failed(failure(code)).code, expected, "{code}");
    }
}

#[test]
fn a_deleted_room_gives_its_space_back() {
    let scratch = scratch();
    for n in 0..500 {
        scratch.run("a", note(&format!("{n}{}", "x".repeat(16_000)))).unwrap();
    }
    scratch.run("a", Command::Delete).unwrap();
    let has_free_space = || scratch.store.reader().unwrap().has_free_space().unwrap();
    assert!(has_free_space());
    while has_free_space() {
        scratch.store.maintain(Maintenance::ReclaimSpace).blocking_recv().unwrap().unwrap();
    }
    scratch.store.close();
    let bytes = std::fs::metadata(scratch.dir.path().join("w.sqlite")).unwrap().len();
    assert!(bytes < 2 * 1024 * 1024, "{bytes} bytes are left of 8 MB");
}

#[test]
fn closing_finishes_the_queue_and_refuses_what_comes_after() {
    let scratch = scratch();
    let (last, answered) = unit("a", note("last"));
    scratch.store.submit(Box::new(last));
    scratch.store.close();
    assert!(answered.recv().unwrap().is_ok());
    assert_eq!(scratch.run("a", note("late")).unwrap_err().code, ErrorCode::DaemonUnreachable);
    assert_eq!(notes(&scratch.other()), 1);
}
