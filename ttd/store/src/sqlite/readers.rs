//! Read-only connections. They see the last commit, never block the writer and are never blocked by it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use r2d2::{Pool, PooledConnection};
use r2d2_sqlite::SqliteConnectionManager;
use rusqlite::OpenFlags;
use tt_proto::delivery::DeliveryState;
use tt_proto::event::Event;
use tt_proto::filter::Filter;
use tt_proto::hello::Anchor;
use tt_proto::message::{InboxRoom, Unread};
use tt_proto::note::Note;
use tt_proto::policy::Policy;
use tt_proto::room::{RoomSize, RoomSummary};
use tt_proto::{AgentId, Error, ErrorCode, NoteId, ReminderId, RoomId, WallTime};
use tt_rules::{DeadlineTime, DeliveryRow, Overview, ReminderRow, Room};

use super::{contents, deliveries, events, migrations, notes, query_failed, reminders, rooms, search, sessions, space};
use crate::{
    EventQuery, NewestEvents, NotePage, OpenQuery, Page, Reader, RoomPage, StoredDelivery, StoredSession, WaitingQuery,
    room_not_found,
};

/// Queries that can run at once.
const MAX_READERS: u32 = 4;

/// How long a query waits for a connection.
const CONNECTION_TIMEOUT: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(10) };

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
        // Without an idle time-out and a life-time the pool needs no timer, so an idle daemon does not wake up.
        let pool = Pool::builder()
            .max_size(MAX_READERS)
            .min_idle(Some(1))
            .idle_timeout(None)
            .max_lifetime(None)
            .test_on_check_out(false)
            .connection_timeout(CONNECTION_TIMEOUT)
            .thread_pool(Arc::new(scheduled_thread_pool::ScheduledThreadPool::new(1)))
            .build(manager)
            .map_err(super::unavailable(file))?;
        Ok(Self { pool })
    }

    pub(super) fn get(&self, policy: Policy) -> Result<SqliteReader, Error> {
        let connection = self.pool.get().map_err(|e| {
            Error::new(ErrorCode::StorageUnavailable, format!("no database connection became free: {e}"))
        })?;
        Ok(SqliteReader { connection, policy })
    }
}

/// One read-only connection.
#[derive(Debug)]
pub(super) struct SqliteReader {
    connection: PooledConnection<SqliteConnectionManager>,
    policy: Policy,
}

impl Reader for SqliteReader {
    fn room(&self, room_id: &RoomId) -> Result<Room, Error> {
        rooms::load(&self.connection, room_id, &self.policy)?.ok_or_else(|| room_not_found(room_id))
    }

    fn room_exists(&self, room_id: &RoomId) -> Result<bool, Error> {
        rooms::exists(&self.connection, room_id)
    }

    fn room_at(&self, paths: &mut dyn Iterator<Item = &Path>) -> Result<Option<RoomId>, Error> {
        // One snapshot for all of them.
        let snapshot = self.connection.unchecked_transaction().map_err(query_failed)?;
        for path in paths {
            if let Some(room_id) = rooms::at_path(&snapshot, path)? {
                return Ok(Some(room_id));
            }
        }
        Ok(None)
    }

    fn rooms(&self, page: &RoomPage) -> Result<Page<RoomSummary>, Error> {
        rooms::list(&self.connection, page)
    }

    fn room_size(&self, room_id: &RoomId) -> Result<RoomSize, Error> {
        contents::size(&self.connection, room_id)
    }

    fn overview(&self, room_id: &RoomId) -> Result<Overview, Error> {
        rooms::overview(&self.connection, room_id)
    }

    fn turn_started_at(&self, room_id: &RoomId, turn_id: i64) -> Result<Option<WallTime>, Error> {
        events::turn_started_at(&self.connection, room_id, turn_id)
    }

    fn events(&self, room_id: &RoomId, cursor: i64, limit: usize, filter: &Filter) -> Result<Vec<Event>, Error> {
        events::matching(&self.connection, room_id, cursor, limit, filter)
    }

    fn newest_events(&self, room_id: &RoomId, query: &EventQuery) -> Result<NewestEvents, Error> {
        // One snapshot for the index and the log.
        let snapshot = self.connection.unchecked_transaction().map_err(query_failed)?;
        search::newest(&snapshot, room_id, query)
    }

    fn has_unindexed_events(&self) -> Result<bool, Error> {
        Ok(search::indexed(&self.connection)? < events::newest(&self.connection, None)?)
    }

    fn events_by_id(&self, room_id: &RoomId, prefix: &str) -> Result<Vec<Event>, Error> {
        search::by_id(&self.connection, room_id, prefix)
    }

    fn events_by_seq(&self, event_seqs: &[i64]) -> Result<Vec<Event>, Error> {
        let mut found = Vec::with_capacity(event_seqs.len());
        for event_seq in event_seqs {
            found.extend(events::get(&self.connection, *event_seq)?);
        }
        Ok(found)
    }

    fn undelivered(&self, event_seqs: &[i64]) -> Result<Vec<(i64, DeliveryState)>, Error> {
        deliveries::undelivered(&self.connection, event_seqs)
    }

    fn newest_event(&self, room_id: Option<&RoomId>) -> Result<i64, Error> {
        events::newest(&self.connection, room_id)
    }

    fn inbox(&self, room_id: &RoomId, recipient: &AgentId, limit: usize) -> Result<Vec<i64>, Error> {
        let open = deliveries::inbox(&self.connection, room_id, recipient, deliveries::Which::default(), limit)?;
        Ok(open.into_iter().map(|delivery| delivery.event_seq).collect())
    }

    fn inbox_rooms(&self, recipient: &AgentId, limit: usize) -> Result<Page<InboxRoom>, Error> {
        deliveries::inbox_rooms(&self.connection, recipient, limit)
    }

    fn unread(&self) -> Result<Vec<(RoomId, AgentId, Unread)>, Error> {
        deliveries::all_unread(&self.connection)
    }

    fn recipients(&self, room_id: &RoomId, event_seq: i64, limit: usize) -> Result<Vec<StoredDelivery>, Error> {
        deliveries::of_event(&self.connection, room_id, event_seq, limit)
    }

    fn waiting(&self, room_id: &RoomId, query: &WaitingQuery) -> Result<Vec<StoredDelivery>, Error> {
        deliveries::waiting(&self.connection, room_id, query)
    }

    fn due_deliveries(&self) -> Result<Vec<(RoomId, i64, AgentId, DeadlineTime)>, Error> {
        deliveries::due(&self.connection)
    }

    fn attempts(&self) -> Result<Vec<(RoomId, DeliveryRow)>, Error> {
        deliveries::attempts(&self.connection)
    }

    fn open_deliveries(
        &self,
        room_id: &RoomId,
        recipient: &AgentId,
        wanted: &OpenQuery,
    ) -> Result<Vec<DeliveryRow>, Error> {
        deliveries::open_for(&self.connection, room_id, recipient, wanted)
    }

    fn reminders(&self, room_id: &RoomId, agent_id: &AgentId, limit: usize) -> Result<Vec<ReminderRow>, Error> {
        reminders::of_member(&self.connection, room_id, agent_id, limit)
    }

    fn due_reminders(&self) -> Result<Vec<(RoomId, ReminderId, DeadlineTime)>, Error> {
        reminders::due(&self.connection)
    }

    fn notes(&self, room_id: &RoomId, page: &NotePage) -> Result<Page<Note>, Error> {
        notes::list(&self.connection, room_id, page)
    }

    fn open_notes(&self, room_id: &RoomId) -> Result<usize, Error> {
        notes::open(&self.connection, room_id)
    }

    fn notes_by_id(&self, room_id: &RoomId, prefix: &str) -> Result<Vec<NoteId>, Error> {
        notes::by_id(&self.connection, room_id, prefix)
    }

    fn rooms_with_timers(&self) -> Result<Vec<RoomId>, Error> {
        rooms::with_timers(&self.connection)
    }

    fn rooms_in_use(&self) -> Result<Vec<RoomId>, Error> {
        rooms::in_use(&self.connection)
    }

    fn rooms_of_process(&self, anchor: &Anchor) -> Result<Vec<RoomId>, Error> {
        rooms::of_process(&self.connection, anchor)
    }

    fn rooms_of_agent(&self, agent_id: &AgentId) -> Result<Vec<RoomId>, Error> {
        rooms::of_agent(&self.connection, agent_id)
    }

    fn turns_held_by(&self, agent_id: &AgentId) -> Result<Vec<(RoomId, i64)>, Error> {
        rooms::held_by(&self.connection, agent_id)
    }

    fn untouched_rooms(&self, policy: &Policy, now: WallTime) -> Result<Vec<RoomId>, Error> {
        rooms::untouched(&self.connection, policy, now)
    }

    fn has_free_space(&self) -> Result<bool, Error> {
        space::is_reclaimable(&self.connection)
    }

    fn sessions(&self) -> Result<Vec<StoredSession>, Error> {
        sessions::list(&self.connection)
    }

    fn schema(&self) -> Result<i64, Error> {
        migrations::newest(&self.connection).map_err(query_failed)
    }
}
