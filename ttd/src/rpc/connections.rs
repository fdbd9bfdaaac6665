//! The open connections: who each belongs to, its calls in progress, and which one is closed when there are too many. What
//! they may take of the memory is in `debt.rs`, and their streams are in `tracked_stream.rs`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use jsonrpsee::Extensions;
use nix::sys::socket::{Shutdown, shutdown};
use tokio::net::UnixStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tt_proto::hello::{Identity, Signals};
use tt_proto::{Error, ErrorCode, RoomId};
use tt_rules::ConnectionId;

use super::debt::{AnswerRoom, Debt, LargeRequests, SMALL_REQUEST_BYTES, Total};
use super::tracked_stream::TrackedStream;
use crate::lifecycle::idle::{Activity, Busy};
use crate::listeners::Listeners;
use crate::sessions::Conversation;

/// The most open connections. One more closes another or is refused; see `Standing`.
pub const MAX_CONNECTIONS: usize = 512;

/// Connections that were closed for others and whose descriptors are still open. A burst waits for them to end before it goes on.
pub const MAX_CLOSING: usize = 8;

/// A process with more connections than this loses one of its own first, also one that is in use.
const FAIR_SHARE: usize = 32;

/// The most calls in progress on one connection. Nothing more is read from it until one of them is answered.
const MAX_CALLS: usize = 64;

/// The most calls in progress in all. Beyond that, nothing more is read from a connection that has one.
const MAX_CALLS_IN_ALL: usize = 2048;

/// The most subscriptions in all.
pub const MAX_SUBSCRIPTIONS_IN_ALL: usize = 1024;

/// Memory is given back to the system when connections have ended over which more than this went, each counted with what the
/// connection itself takes.
const LARGE_TRAFFIC_BYTES: usize = 1024 * 1024;
const CONNECTION_BYTES: usize = 32 * 1024;

/// One client's connection. Every request that arrives on it carries it in its extensions.
#[derive(Debug)]
pub struct Connection {
    id: u64,
    fd: RawFd,
    /// The peer's pid as the kernel reports it; none from another pid namespace.
    pub pid: Option<u32>,
    /// Bound once, by `hello`.
    pub session: OnceLock<Session>,
    activity: Activity,
    calls: AtomicUsize,
    last_used: AtomicU64,
    pub(super) all: Connections,
    pub(super) debt: Debt,
    incoming: Mutex<Incoming>,
    /// Bytes read and written.
    traffic: AtomicUsize,
    /// Whether it has become a WebSocket.
    upgraded: AtomicBool,
    /// The daemon has closed it. Nothing more is read, so that its tasks end whatever else they wait for.
    closing: AtomicBool,
    /// True once the stream is closed.
    closed: watch::Sender<bool>,
    /// The client does not read its responses.
    stuck: AtomicBool,
    /// The task that reads requests, while it has to wait.
    reader: Mutex<Option<Waker>>,
    /// Gives back the messages this connection took and has not confirmed.
    listeners: Listeners,
}

/// What was read of requests that no call has begun with yet.
#[derive(Debug, Default)]
struct Incoming {
    bytes: usize,
    /// It counts as a large request.
    large: bool,
}

/// Who a connection belongs to, for as long as it lasts.
#[derive(Debug)]
pub struct Session {
    pub identity: Identity,
    /// Of a hook, once it has reported: the member that its session is, which it speaks for from then on.
    pub member: OnceLock<Identity>,
    /// What the identity was derived from, besides processes.
    pub signals: Signals,
    /// The conversation of a harness that it was made in, if that is known.
    pub conversation: Option<Conversation>,
    /// The client's working directory, which relative paths start from.
    pub cwd: Option<PathBuf>,
    /// The room of the path named by the last greeting, or why there is none.
    pub here: Mutex<Result<RoomId, Error>>,
    /// Whether its calls make the caller a member, as the last greeting asked.
    pub joins: AtomicBool,
}

impl Session {
    /// Who makes the calls of this connection.
    pub fn identity(&self) -> &Identity {
        self.member.get().unwrap_or(&self.identity)
    }
}

/// A call in progress on a connection.
#[derive(Debug)]
pub struct Call {
    pub connection: Arc<Connection>,
    /// Its request is a large one, which the server keeps until the call ends.
    large: bool,
    _busy: Busy,
}

/// A subscription, counted for as long as it lives.
#[derive(Debug)]
pub struct Subscribed(Connections);

impl Drop for Subscribed {
    fn drop(&mut self) {
        self.0.inner.subscriptions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Call {
    /// The call a request's extensions belong to. Holding it keeps the connection and the daemon alive.
    pub fn of(extensions: &Extensions) -> Result<Self, Error> {
        let connection = extensions.get::<Arc<Connection>>().cloned();
        let connection =
            connection.ok_or_else(|| Error::new(ErrorCode::AgentIdRequired, "the call came from no connection"))?;
        connection.calls.fetch_add(1, Ordering::AcqRel);
        connection.all.inner.calls.fetch_add(1, Ordering::AcqRel);
        let busy = connection.activity.begin();
        let large = connection.claim_incoming();
        Ok(Self { connection, large, _busy: busy })
    }

    /// Waits until the connection may make a large answer. Hold what is returned until the answer is made.
    pub async fn answer_room(&self) -> AnswerRoom {
        AnswerRoom::wait_for(&self.connection).await
    }

    /// Counts a subscription. Refused if there are too many.
    pub fn subscribe(&self) -> Result<Subscribed, Error> {
        let subscriptions = &self.connection.all.inner.subscriptions;
        let counted = subscriptions.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            (count < MAX_SUBSCRIPTIONS_IN_ALL).then_some(count + 1)
        });
        match counted {
            Ok(_) => Ok(Subscribed(self.connection.all.clone())),
            Err(count) => {
                Err(Error::new(ErrorCode::Overloaded, format!("the daemon feeds {count} subscriptions already")))
            }
        }
    }

    /// The call a request's extensions belong to, and the id of the room it is about.
    pub fn for_room(extensions: &Extensions, room_id: RoomId) -> Result<(Self, RoomId), Error> {
        let call = Self::of(extensions)?;
        if room_id.as_str() != RoomId::HERE {
            return Ok((call, room_id));
        }
        let here = call.session()?.here.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Ok((call, here))
    }

    /// Who is calling.
    pub fn identity(&self) -> Result<&Identity, Error> {
        self.session().map(Session::identity)
    }

    /// Resolves when the connection is closed. The server does not cancel the call.
    pub async fn closed(&self) {
        let _ = self.connection.closed.subscribe().wait_for(|closed| *closed).await;
    }

    pub fn session(&self) -> Result<&Session, Error> {
        let unknown = || Error::new(ErrorCode::AgentIdRequired, "this connection has not said hello");
        self.connection.session.get().ok_or_else(unknown)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.connection.touch();
        let connection = &self.connection;
        if self.large {
            connection.all.inner.large_requests.end(connection.id);
        }
        let (before, before_in_all) = (
            connection.calls.fetch_sub(1, Ordering::AcqRel),
            connection.all.inner.calls.fetch_sub(1, Ordering::AcqRel),
        );
        if before_in_all == MAX_CALLS_IN_ALL {
            connection.all.lock().values().for_each(|connection| connection.resume());
        } else if before >= MAX_CALLS || (before == 1 && before_in_all > MAX_CALLS_IN_ALL) {
            // However many calls there are in all, a connection without one is read.
            connection.resume();
        }
    }
}

impl Connection {
    pub fn id(&self) -> ConnectionId {
        ConnectionId(self.id)
    }

    fn touch(&self) {
        // A count orders uses as well as a clock does, and costs less.
        self.last_used.store(self.all.inner.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// How this connection ranks if the process at its other end has this many of them.
    fn standing(&self, of_process: usize) -> Standing {
        let busy = self.calls.load(Ordering::Acquire) > 0;
        match (busy, self.session.get().is_some()) {
            (false, false) => Standing::Unused,
            _ if of_process > FAIR_SHARE => Standing::Greedy { others: Reverse(of_process), busy },
            (false, true) => Standing::Idle,
            (true, _) if of_process > 1 => Standing::Busy { others: Reverse(of_process) },
            (true, _) => Standing::Only,
        }
    }

    /// Whether the next request may be read. The server starts every request it reads, so a client that sends requests
    /// without reading responses, or faster than they can be answered, would otherwise fill the memory.
    pub(super) fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        let full = || {
            if self.is_closing() {
                return false;
            }
            let calls = self.calls.load(Ordering::Acquire);
            let too_many_in_all = calls > 0 && self.all.inner.calls.load(Ordering::Acquire) >= MAX_CALLS_IN_ALL;
            self.stuck.load(Ordering::Acquire) || calls >= MAX_CALLS || too_many_in_all
        };
        if !full() {
            return self.poll_incoming(cx);
        }
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        // It may have changed before the waker was in place.
        if full() { Poll::Pending } else { self.poll_incoming(cx) }
    }

    /// Whether the request that is being read is short enough, or may be a large one.
    pub(super) fn poll_incoming(&self, cx: &Context<'_>) -> Poll<()> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        if incoming.bytes < SMALL_REQUEST_BYTES || incoming.large || self.is_closing() {
            return Poll::Ready(());
        }
        let (begun, slow) = self.all.inner.large_requests.poll_begin(self.id, cx);
        incoming.large = begun.is_ready();
        // A call may begin with it, too.
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        drop(incoming);
        if let Some(slow) = slow {
            self.all.close(slow);
        }
        begun
    }

    /// Counts what was read. `large`: a large request begins in it.
    pub(super) fn note_read(&self, bytes: usize, large: bool) {
        self.traffic.fetch_add(bytes, Ordering::Relaxed);
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner).bytes +=
            if large { bytes.max(SMALL_REQUEST_BYTES) } else { bytes };
    }

    /// The connection is a WebSocket from here on. A client that did not wait for the answer is not one.
    pub fn upgrade(&self) {
        self.upgraded.store(true, Ordering::Release);
    }

    /// A call has begun with what was read. Returns whether its request is a large one.
    fn claim_incoming(&self) -> bool {
        let incoming = std::mem::take(&mut *self.incoming.lock().unwrap_or_else(PoisonError::into_inner));
        if incoming.bytes >= SMALL_REQUEST_BYTES && !incoming.large {
            self.resume();
        }
        incoming.large
    }

    /// Notes an answer that is to be written.
    pub(super) fn owe(&self, bytes: usize) {
        self.debt.owe(&self.all.inner.total, bytes);
    }

    /// Notes whether the client accepted what was written.
    pub(super) fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &written {
            self.traffic.fetch_add(*bytes, Ordering::Relaxed);
            self.debt.pay(&self.all.inner.total, *bytes);
        }
        if self.stuck.swap(written.is_pending(), Ordering::AcqRel) && written.is_ready() {
            self.resume();
        }
        written
    }

    fn resume(&self) {
        if let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            reader.wake();
        }
    }

    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        let _ = shutdown(self.fd, Shutdown::Both);
        self.resume();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Acquire)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Every call on it has ended by now, so that nothing can be taken for it any more.
        self.listeners.end_connection(self.id());
    }
}

/// Which connection is closed when there are too many: the least of these, and among equals the one used longest ago.
/// The waits of a client that behaves are safe from one that does not.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// No greeting, and no call in progress.
    Unused,
    /// Its process has more than its share.
    Greedy {
        others: Reverse<usize>,
        busy: bool,
    },
    Idle,
    /// A call is in progress, and its process has other connections.
    Busy {
        others: Reverse<usize>,
    },
    /// A call is in progress on the only connection of its process. It is never closed for another.
    Only,
}

/// All open connections.
#[derive(Debug, Clone)]
pub struct Connections {
    inner: Arc<Inner>,
}

/// A descriptor for a connection. There are as many as connections may be open or closing.
#[derive(Debug)]
pub struct Vacancy(#[expect(dead_code, reason = "held until the descriptor is closed")] OwnedSemaphorePermit);

#[derive(Debug)]
struct Inner {
    most: usize,
    descriptors: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    ids: AtomicU64,
    uses: AtomicU64,
    calls: AtomicUsize,
    subscriptions: AtomicUsize,
    total: Total,
    large_requests: Arc<LargeRequests>,
    /// What went over connections that ended since memory was last given back.
    ended_traffic: AtomicUsize,
    /// Notified when that is much.
    large_traffic_ended: Notify,
}

impl Connections {
    /// Room for this many.
    pub fn new(most: usize) -> Self {
        let inner = Inner {
            most,
            descriptors: Arc::new(Semaphore::new(most + MAX_CLOSING)),
            open: Mutex::default(),
            ids: AtomicU64::new(0),
            uses: AtomicU64::new(0),
            calls: AtomicUsize::new(0),
            subscriptions: AtomicUsize::new(0),
            total: Total::default(),
            large_requests: Arc::default(),
            ended_traffic: AtomicUsize::new(0),
            large_traffic_ended: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What all connections owe.
    pub(super) fn total(&self) -> &Total {
        &self.inner.total
    }

    /// Resolves when connections with much traffic have ended.
    pub async fn large_traffic_ended(&self) {
        self.inner.large_traffic_ended.notified().await;
    }

    /// Closes the connection that owes most of those whose clients do not read.
    pub(super) fn close_largest_debtor(&self) {
        let mut open = self.lock();
        let stuck = open.values().filter(|connection| connection.stuck.load(Ordering::Acquire));
        let debtor =
            stuck.map(|connection| (connection.debt.owed(), connection.id)).filter(|(owed, _)| *owed > 0).max();
        if let Some(connection) = debtor.and_then(|(_, id)| open.remove(&id)) {
            tracing::warn!(pid = connection.pid, "closed a connection whose client does not read its answers");
            connection.close();
        }
    }

    fn close(&self, id: u64) {
        if let Some(connection) = self.lock().remove(&id) {
            tracing::warn!(pid = connection.pid, "closed a connection whose request does not end");
            connection.close();
        }
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Waits until there is a descriptor for one more connection.
    pub async fn vacancy(&self) -> Vacancy {
        match self.inner.descriptors.clone().acquire_owned().await {
            Ok(permit) => Vacancy(permit),
            // It is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Adds a connection, and closes another if there are too many. None if no other may be closed.
    pub fn admit(
        &self,
        vacancy: Vacancy,
        stream: UnixStream,
        pid: Option<u32>,
        activity: Activity,
        listeners: Listeners,
    ) -> Option<(TrackedStream, Arc<Connection>)> {
        let connection = Arc::new(Connection {
            id: self.inner.ids.fetch_add(1, Ordering::Relaxed),
            fd: stream.as_raw_fd(),
            pid,
            session: OnceLock::new(),
            activity,
            calls: AtomicUsize::new(0),
            last_used: AtomicU64::new(0),
            all: self.clone(),
            debt: Debt::default(),
            incoming: Mutex::default(),
            traffic: AtomicUsize::new(0),
            upgraded: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            listeners,
            closed: watch::Sender::new(false),
            stuck: AtomicBool::new(false),
            reader: Mutex::new(None),
        });
        connection.touch();
        let mut open = self.lock();
        if open.len() >= self.inner.most && !close_least(&mut open) {
            return None;
        }
        open.insert(connection.id, connection.clone());
        drop(open);
        Some((TrackedStream::new(self.clone(), connection.clone(), stream, vacancy), connection))
    }

    /// Closes the connection that is needed least, if one may be closed.
    pub fn close_one(&self) {
        close_least(&mut self.lock());
    }

    /// Forgets a connection whose stream is closed.
    pub(super) fn end(&self, connection: &Connection) {
        let inner = &self.inner;
        self.lock().remove(&connection.id);
        connection.debt.end(&inner.total);
        inner.large_requests.end(connection.id);
        connection.closed.send_replace(true);
        let traffic = connection.traffic.load(Ordering::Relaxed) + CONNECTION_BYTES;
        if inner.ended_traffic.fetch_add(traffic, Ordering::Relaxed) + traffic > LARGE_TRAFFIC_BYTES {
            inner.ended_traffic.store(0, Ordering::Relaxed);
            inner.large_traffic_ended.notify_one();
        }
    }

    /// Closes every connection.
    pub fn close_all(&self) {
        for connection in self.lock().values() {
            connection.close();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the connection of the least standing. Returns whether there is one that may be closed.
fn close_least(open: &mut HashMap<u64, Arc<Connection>>) -> bool {
    let mut of_process: HashMap<Option<u32>, usize> = HashMap::new();
    for connection in open.values() {
        *of_process.entry(connection.pid).or_default() += 1;
    }
    let ranked = open.values().map(|connection| {
        let standing = connection.standing(of_process.get(&connection.pid).copied().unwrap_or(0));
        (standing, connection.last_used.load(Ordering::Relaxed), connection.id)
    });
    let Some((_, _, id)) = ranked.filter(|(standing, ..)| *standing != Standing::Only).min() else { return false };
    // Out of the table at once, so that a burst closes one connection each and not the same one again.
    if let Some(connection) = open.remove(&id) {
        connection.close();
    }
    true
}

#[cfg(test)]
mod tests;
