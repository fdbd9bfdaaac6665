//! Read-only connections. They see the last commit, never block the writer and are never blocked by it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use r2d2::Pool;
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::{Connection, OpenFlags};
use tt_proto::{Error, ErrorCode};

const READERS: u32 = 4;

#[derive(Debug, Clone)]
pub(super) struct Readers {
    pool: Pool<SqliteConnectionManager>,
}

impl Readers {
    pub(super) fn open(file: &Path) -> Result<Self, Error> {
        let manager = SqliteConnectionManager::file(file)
            .with_flags(OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
            .with_init(|connection| {
                connection.set_prepared_statement_cache_capacity(64);
                connection
                    .execute_batch("PRAGMA busy_timeout = 5000; PRAGMA query_only = ON; PRAGMA cache_size = -1024")
            });
        // Without an idle time-out and a life-time the pool needs no timer, so a daemon at rest stays at rest.
        let pool = Pool::builder()
            .max_size(READERS)
            .min_idle(Some(1))
            .idle_timeout(None)
            .max_lifetime(None)
            .test_on_check_out(false)
            .connection_timeout(Duration::from_secs(10))
            .thread_pool(Arc::new(scheduled_thread_pool::ScheduledThreadPool::new(1)))
            .build(manager)
            .map_err(super::unavailable(file))?;
        Ok(Self { pool })
    }

    /// Runs a query on a thread that may block. What `before` finds out there comes first, with no connection held: a
    /// file system that hangs must not keep readers from others.
    pub(super) async fn read<P, T>(
        &self,
        before: impl FnOnce() -> Result<P, Error> + Send + 'static,
        query: impl FnOnce(P, &Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
    {
        let pool = self.pool.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let found = before()?;
            let connection = pool
                .get()
                .map_err(|e| Error::new(ErrorCode::StorageUnavailable, format!("no reader came free: {e}")))?;
            query(found, &connection)
        });
        reading.await.map_err(|e| Error::new(ErrorCode::StorageUnavailable, format!("the reader failed: {e}")))?
    }
}
