//! The open connections: who each belongs to, its calls in progress, and which one is closed when there are too many. What
//! they may take of the memory is in `debt.rs`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use jsonrpsee::Extensions;
use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tt_proto::hello::{Identity, Signals};
use tt_proto::{Error, ErrorCode, RoomId};
use tt_rules::ConnectionId;

use super::debt::{AnswerRoom, Debt, Frames, LargeRequests, SMALL_REQUEST_BYTES, Total};
use crate::lifecycle::idle::{Activity, Busy};
use crate::listeners::Listeners;

/// The most open connections. One more closes another or is refused; see `Standing`.
pub const MAX_CONNECTIONS: usize = 512;

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
    /// What the identity was derived from, besides processes.
    pub signals: Signals,
    /// The client's working directory, which relative paths start from.
    pub cwd: Option<PathBuf>,
    /// The room of the path named by the last greeting, or why there is none.
    pub here: Mutex<Result<RoomId, Error>>,
    /// Whether its calls make the caller a member, as the last greeting asked.
    pub joins: AtomicBool,
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
        self.session().map(|session| &session.identity)
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
        } else if before >= MAX_CALLS {
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
    fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        let full = || {
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
    fn poll_incoming(&self, cx: &Context<'_>) -> Poll<()> {
        let mut incoming = self.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        if incoming.bytes < SMALL_REQUEST_BYTES || incoming.large {
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
    fn note_read(&self, bytes: usize, large: bool) {
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
    fn wrote(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
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
        let _ = shutdown(self.fd, Shutdown::Both);
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

#[derive(Debug)]
struct Inner {
    most: usize,
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

    /// Adds a connection, and closes another if there are too many. None if no other may be closed.
    pub fn admit(
        &self,
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
        let tracked = TrackedStream {
            entry: Entry { connections: self.clone(), connection: connection.clone() },
            stream,
            frames: Frames::default(),
            last_bytes: [0; 4],
            held: Vec::new(),
        };
        Some((tracked, connection))
    }

    /// Closes the connection that is needed least, if one may be closed.
    pub fn close_one(&self) {
        close_least(&mut self.lock());
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

/// The stream of an open connection. Its entry is dropped first, so that no descriptor is used after it was closed.
#[derive(Debug)]
pub struct TrackedStream {
    entry: Entry,
    stream: UnixStream,
    frames: Frames,
    /// The end of what was read before it became a WebSocket.
    last_bytes: [u8; 4],
    /// What was read and may not be handed on yet: the head of a large request.
    held: Vec<u8>,
}

impl TrackedStream {
    /// Looks at what was read. Returns whether a large request begins in it.
    fn scan(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if self.entry.connection.upgraded.load(Ordering::Acquire) {
            // Bytes that came with the request for the upgrade would be unknown here.
            return if &self.last_bytes == b"\r\n\r\n" {
                Ok(self.frames.scan(bytes))
            } else {
                Err(ErrorKind::InvalidData.into())
            };
        }
        for byte in bytes.iter().skip(bytes.len().saturating_sub(4)) {
            self.last_bytes.rotate_left(1);
            self.last_bytes[3] = *byte;
        }
        Ok(false)
    }
}

#[derive(Debug)]
struct Entry {
    connections: Connections,
    connection: Arc<Connection>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let (inner, connection) = (&self.connections.inner, &self.connection);
        self.connections.lock().remove(&connection.id);
        connection.debt.end(&inner.total);
        inner.large_requests.end(connection.id);
        connection.closed.send_replace(true);
        let traffic = connection.traffic.load(Ordering::Relaxed) + CONNECTION_BYTES;
        if inner.ended_traffic.fetch_add(traffic, Ordering::Relaxed) + traffic > LARGE_TRAFFIC_BYTES {
            inner.ended_traffic.store(0, Ordering::Relaxed);
            inner.large_traffic_ended.notify_one();
        }
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.entry.connection.poll_readable(cx));
        if !self.held.is_empty() {
            let fits = self.held.len().min(buf.remaining());
            buf.put_slice(&self.held[..fits]);
            self.held.drain(..fits);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        let large = self.scan(read)?;
        self.entry.connection.note_read(read.len(), large);
        if large && self.entry.connection.poll_incoming(cx).is_pending() {
            self.held = read.to_vec();
            buf.set_filled(before);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.entry.connection.wrote(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.entry.connection.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_connection_with_too_many_calls_under_way_is_read_again_once_one_is_answered() {
        let (mut client, stream) = UnixStream::pair().unwrap();
        let (mut tracked, connection) =
            Connections::new(1).admit(stream, None, Activity::new(), Listeners::default()).unwrap();
        let mut extensions = Extensions::new();
        extensions.insert(connection);
        let mut calls: Vec<Call> = (0..MAX_CALLS).map(|_| Call::of(&extensions).unwrap()).collect();
        client.write_all(b"one more").await.unwrap();
        let (sender, mut read) = oneshot::channel();
        tokio::spawn(async move {
            let mut bytes = [0; 8];
            tracked.read_exact(&mut bytes).await.unwrap();
            sender.send(bytes)
        });
        // The bytes are there, and the reader has had its chance to take them.
        tokio::task::yield_now().await;
        client.writable().await.unwrap();
        tokio::task::yield_now().await;
        assert!(read.try_recv().is_err(), "read although nothing was answered");
        calls.pop();
        assert_eq!(&read.await.unwrap(), b"one more");
    }

    /// Connections of these processes, in this order, and what each is doing.
    fn open(connections: &Connections, pids: &[u32], busy: bool) -> Vec<(TrackedStream, Option<Call>)> {
        let open = |pid: &u32| {
            let (_, stream) = UnixStream::pair().unwrap();
            let (tracked, connection) =
                connections.admit(stream, Some(*pid), Activity::new(), Listeners::default()).expect("room");
            let mut extensions = Extensions::new();
            extensions.insert(connection);
            (tracked, busy.then(|| Call::of(&extensions).unwrap()))
        };
        pids.iter().map(open).collect()
    }

    fn pids(connections: &Connections) -> Vec<u32> {
        let mut pids: Vec<u32> = connections.lock().values().filter_map(|connection| connection.pid).collect();
        pids.sort_unstable();
        pids
    }

    #[tokio::test]
    async fn there_are_never_more_connections_than_the_limit_and_the_greediest_process_loses_first() {
        let connections = Connections::new(5);
        let _waits = open(&connections, &[1, 2, 2, 2], true);
        let _idle = open(&connections, &[3], false);
        let _newcomers = open(&connections, &[4, 5, 6], true);
        assert_eq!(pids(&connections), [1, 2, 4, 5, 6], "the unused one, then one after the other of process 2");
        let (_, stream) = UnixStream::pair().unwrap();
        assert!(connections.admit(stream, Some(7), Activity::new(), Listeners::default()).is_none());
        assert_eq!(pids(&connections), [1, 2, 4, 5, 6], "nobody's only wait is ended for a newcomer");
    }

    #[tokio::test]
    async fn a_process_that_takes_all_connections_pays_with_its_own() {
        let connections = Connections::new(FAIR_SHARE + 10);
        let _waits = open(&connections, &[1, 2, 3], true);
        let _greedy = open(&connections, &[9; 2 * FAIR_SHARE], true);
        let _newcomers = open(&connections, &[4, 5], true);
        let others: Vec<u32> = pids(&connections).into_iter().filter(|pid| *pid != 9).collect();
        assert_eq!((others, connections.count()), (vec![1, 2, 3, 4, 5], FAIR_SHARE + 10));
    }
}
