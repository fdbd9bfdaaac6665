//! The one thread that writes. Commands queue; the thread takes all that wait, runs each in a savepoint of its own inside
//! one transaction, commits once, and only then answers. So load makes a commit cheaper for each, not slower.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rusqlite::Connection;
use tokio::sync::oneshot;
use tt_proto::{Error, ErrorCode};

use super::query_failed;
use super::wal::Wal;

/// No transaction holds more commands than this, so that the first of a burst is not kept waiting for the last.
const MAX_BATCH: usize = 512;

#[derive(Debug)]
pub(super) struct Writer {
    queue: Mutex<Option<Sender<Box<dyn Command>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    epoch: Arc<AtomicU64>,
}

/// One queued command: run inside the transaction, answered after it.
trait Command: Send {
    /// Runs the command; false means its savepoint must be rolled back.
    fn run(&mut self, connection: &Connection) -> bool;
    /// Answers the caller. `Err` when the transaction as a whole did not commit.
    fn answer(self: Box<Self>, commit: &Result<(), Error>);
}

struct Queued<T, F, A> {
    command: Option<F>,
    after: A,
    outcome: Result<T, Error>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<T, F, A> Command for Queued<T, F, A>
where
    T: Send,
    F: FnOnce(&Connection) -> Result<T, Error> + Send,
    A: FnOnce(&mut T) + Send,
{
    fn run(&mut self, connection: &Connection) -> bool {
        if let Some(command) = self.command.take() {
            self.outcome = catch_unwind(AssertUnwindSafe(|| command(connection))).unwrap_or_else(|_| Err(failed()));
        }
        self.outcome.is_ok()
    }

    fn answer(self: Box<Self>, commit: &Result<(), Error>) {
        let answer = match (self.outcome, commit) {
            (Ok(mut outcome), Ok(())) => {
                (self.after)(&mut outcome);
                Ok(outcome)
            }
            (Ok(_), Err(e)) => Err(e.clone()),
            // A refusal needs nothing from the disk and stands.
            (Err(refusal), _) => Err(refusal),
        };
        // The caller may have gone away; what was committed stays.
        let _ = self.reply.send(answer);
    }
}

fn failed() -> Error {
    Error::new(ErrorCode::StorageUnavailable, "a command failed inside the daemon and was rolled back")
        .hint("look at `tt daemon logs` and report what it says")
}

impl Writer {
    pub(super) fn start(connection: Connection) -> std::io::Result<Self> {
        let (queue, commands) = channel();
        let epoch = Arc::new(AtomicU64::new(0));
        let serve = {
            let epoch = epoch.clone();
            move || serve(connection, &commands, &epoch)
        };
        let thread = std::thread::Builder::new().name("writer".into()).spawn(serve)?;
        Ok(Self { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)), epoch })
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    pub(super) async fn write<T, F, A>(&self, command: F, after: A) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
        A: FnOnce(&mut T) + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let queued = Queued { command: Some(command), after, outcome: Err(failed()), reply };
        let sent = match self.queue.lock().unwrap_or_else(|e| e.into_inner()).as_ref() {
            Some(queue) => queue.send(Box::new(queued)).is_ok(),
            None => false,
        };
        if !sent {
            return Err(closed());
        }
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Lets the thread finish what is queued and waits for it.
    pub(super) fn close(&self) {
        drop(self.queue.lock().unwrap_or_else(|e| e.into_inner()).take());
        let thread = self.thread.lock().unwrap_or_else(|e| e.into_inner()).take();
        if thread.is_some_and(|t| t.join().is_err()) {
            tracing::error!("the writer thread panicked");
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorCode::DaemonUnreachable, "the daemon is stopping").hint("try again")
}

fn serve(connection: Connection, commands: &Receiver<Box<dyn Command>>, epoch: &AtomicU64) {
    let mut wal = Wal::of(&connection);
    let mut version = None;
    while let Ok(first) = commands.recv() {
        let mut batch = vec![first];
        batch.extend(commands.try_iter().take(MAX_BATCH - 1));
        let commit = run_batch(&connection, &mut batch, || {
            // Changes only when somebody else wrote to the file.
            let found = connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get::<_, i64>(0))?;
            if version.replace(found) != Some(found) {
                epoch.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        if let Err(e) = &commit {
            epoch.fetch_add(1, Ordering::Relaxed);
            tracing::error!(commands = batch.len(), "commit failed: {e}");
        }
        for command in batch {
            command.answer(&commit);
        }
        wal.tend(&connection);
    }
    // Everything is in the write-ahead log already; folding it in keeps the next start short.
    if let Err(e) = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())) {
        tracing::warn!("checkpoint at close: {e}");
    }
}

fn run_batch(
    connection: &Connection,
    batch: &mut [Box<dyn Command>],
    begun: impl FnOnce() -> rusqlite::Result<()>,
) -> Result<(), Error> {
    execute(connection, "BEGIN IMMEDIATE")?;
    begun().map_err(|e| roll_back(connection, e))?;
    // A savepoint copies every page that is written in it; a command with the transaction to itself does without.
    if let [command] = batch {
        let end = if command.run(connection) { "COMMIT" } else { "ROLLBACK" };
        if connection.is_autocommit() {
            return Err(lost());
        }
        return execute(connection, end);
    }
    for command in batch {
        execute(connection, "SAVEPOINT command")?;
        if !command.run(connection) && !connection.is_autocommit() {
            execute(connection, "ROLLBACK TO command")?;
        }
        // A full disk or an I/O error makes SQLite roll back the whole transaction by itself.
        if connection.is_autocommit() {
            return Err(lost());
        }
        execute(connection, "RELEASE command")?;
    }
    execute(connection, "COMMIT")
}

fn lost() -> Error {
    Error::new(ErrorCode::StorageUnavailable, "the disk refused the write; nothing of it was kept")
        .hint("make room on the disk of the data directory, then try again")
}

fn execute(connection: &Connection, sql: &str) -> Result<(), Error> {
    let done = connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
    done.map(|_| ()).map_err(|e| roll_back(connection, e))
}

fn roll_back(connection: &Connection, why: rusqlite::Error) -> Error {
    if !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    query_failed(why)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    impl Writer {
        async fn run<T, F>(&self, command: F) -> Result<T, Error>
        where
            T: Send + 'static,
            F: FnOnce(&Connection) -> Result<T, Error> + Send + 'static,
        {
            self.write(command, |_| ()).await
        }
    }

    fn writer(dir: &std::path::Path) -> Arc<Writer> {
        let connection = Connection::open(dir.join("w.sqlite")).unwrap();
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER PRIMARY KEY)").unwrap();
        Arc::new(Writer::start(connection).unwrap())
    }

    fn insert(connection: &Connection, n: i64) -> Result<(), Error> {
        connection.execute("INSERT INTO t VALUES (?1)", [n]).map(|_| ()).map_err(query_failed)
    }

    async fn count(writer: &Writer) -> i64 {
        writer.run(|c| c.query_row("SELECT count(*) FROM t", [], |r| r.get(0)).map_err(query_failed)).await.unwrap()
    }

    #[tokio::test]
    async fn a_refused_command_leaves_nothing_and_its_neighbours_stand() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(dir.path());
        let refused = |c: &Connection| {
            insert(c, 2)?;
            Err::<(), _>(Error::new(ErrorCode::InvalidInput, "no"))
        };
        let panicked = |c: &Connection| -> Result<(), Error> {
            insert(c, 3)?;
            panic!("a bug");
        };
        let (a, b, c, d) = tokio::join!(
            writer.run(|c| insert(c, 1)),
            writer.run(refused),
            writer.run(panicked),
            writer.run(|c| insert(c, 4)),
        );
        assert!(a.is_ok() && d.is_ok());
        assert_eq!(b.unwrap_err().code, ErrorCode::InvalidInput);
        assert_eq!(c.unwrap_err().code, ErrorCode::StorageUnavailable);
        assert_eq!(count(&writer).await, 2);
        // And so it is for those who have a transaction to themselves.
        assert_eq!(writer.run(refused).await.unwrap_err().code, ErrorCode::InvalidInput);
        assert_eq!(writer.run(panicked).await.unwrap_err().code, ErrorCode::StorageUnavailable);
        assert_eq!(count(&writer).await, 2);
    }

    #[tokio::test]
    async fn commands_that_wait_together_share_one_commit() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(dir.path());
        let commits = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = commits.clone();
        writer
            .run(move |c| {
                c.commit_hook(Some(move || {
                    counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    false
                }))
                .map_err(query_failed)
            })
            .await
            .unwrap();
        // The first command keeps the thread busy until all the others have queued behind it.
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let blocker = tokio::spawn({
            let writer = writer.clone();
            async move { writer.run(move |_| held.recv().map_err(|_| failed())).await }
        });
        let mut writes = Vec::new();
        for n in 0..100 {
            let writer = writer.clone();
            writes.push(tokio::spawn(async move { writer.run(move |c| insert(c, n)).await }));
        }
        // The scheduler comes back here after some sixty tasks, whether or not the others have had their turn.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        hold.send(()).unwrap();
        blocker.await.unwrap().unwrap();
        for write in writes {
            write.await.unwrap().unwrap();
        }
        let commits = commits.load(std::sync::atomic::Ordering::SeqCst);
        assert!((1..=3).contains(&commits), "{commits} commits for 100 commands");
        assert_eq!(count(&writer).await, 100);
    }

    #[tokio::test]
    async fn a_commit_that_fails_is_told_to_everyone_in_it_and_the_next_one_works() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(dir.path());
        writer.run(|c| c.commit_hook(Some(|| true)).map_err(query_failed)).await.unwrap_err();
        assert_eq!(writer.run(|c| insert(c, 1)).await.unwrap_err().code, ErrorCode::StorageUnavailable);
        writer.run(|c| c.commit_hook(None::<fn() -> bool>).map_err(query_failed)).await.unwrap();
        writer.run(|c| insert(c, 2)).await.unwrap();
        assert_eq!(count(&writer).await, 1);
    }

    #[tokio::test]
    async fn closing_finishes_the_queue_and_refuses_what_comes_after() {
        let dir = tempfile::tempdir().unwrap();
        let writer = writer(dir.path());
        let write = tokio::spawn({
            let writer = writer.clone();
            async move { writer.run(|c| insert(c, 1)).await }
        });
        tokio::task::yield_now().await;
        writer.close();
        write.await.unwrap().unwrap();
        assert_eq!(writer.run(|c| insert(c, 2)).await.unwrap_err().code, ErrorCode::DaemonUnreachable);
        let kept: i64 = Connection::open(dir.path().join("w.sqlite"))
            .unwrap()
            .query_row("SELECT count(*) FROM t", [], |r| r.get(0))
            .unwrap();
        assert_eq!(kept, 1);
    }
}
