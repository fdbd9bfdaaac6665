//! The open connections: who each belongs to, its calls in progress, and which one is closed when there are too many.

use std::collections::HashMap;
use std::io;
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
use tokio::sync::watch;
use tt_proto::hello::{Identity, Signals};
use tt_proto::{Error, ErrorCode, RoomId};
use tt_rules::ConnectionId;

use crate::lifecycle::idle::{Activity, Busy};
use crate::listeners::Listeners;

/// The most open connections. One more closes the one that has been idle longest.
pub const MAX_CONNECTIONS: usize = 512;

/// The most calls in progress on one connection. Nothing more is read from it until one of them is answered.
const MAX_CALLS: usize = 256;

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
    uses: Arc<AtomicU64>,
    /// True once the stream is closed.
    closed: watch::Sender<bool>,
    /// The client does not read its responses.
    stuck: AtomicBool,
    /// The task that reads requests, while it has to wait.
    reader: Mutex<Option<Waker>>,
    /// Gives back the messages this connection took and has not confirmed.
    listeners: Listeners,
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
    _busy: Busy,
}

impl Call {
    /// The call a request's extensions belong to. Holding it keeps the connection and the daemon alive.
    pub fn of(extensions: &Extensions) -> Result<Self, Error> {
        let connection = extensions.get::<Arc<Connection>>().cloned();
        let connection =
            connection.ok_or_else(|| Error::new(ErrorCode::AgentIdRequired, "the call came from no connection"))?;
        connection.calls.fetch_add(1, Ordering::AcqRel);
        let busy = connection.activity.begin();
        Ok(Self { connection, _busy: busy })
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
        if self.connection.calls.fetch_sub(1, Ordering::AcqRel) >= MAX_CALLS {
            self.connection.resume();
        }
    }
}

impl Connection {
    pub fn id(&self) -> ConnectionId {
        ConnectionId(self.id)
    }

    fn touch(&self) {
        // A count orders uses as well as a clock does, and costs less.
        self.last_used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The connection to close first has the lowest rank: one without a greeting, then the one used longest ago.
    fn rank(&self) -> (bool, u64) {
        (self.session.get().is_some(), self.last_used.load(Ordering::Relaxed))
    }

    /// Whether the next request may be read. The server starts every request it reads, so a client that sends requests
    /// without reading responses, or faster than they can be answered, would otherwise fill the memory.
    fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        let full = || self.stuck.load(Ordering::Acquire) || self.calls.load(Ordering::Acquire) >= MAX_CALLS;
        if !full() {
            return Poll::Ready(());
        }
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        // It may have changed before the waker was in place.
        if full() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Notes whether the client accepted what was written.
    fn wrote<T>(&self, written: Poll<T>) -> Poll<T> {
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

/// All open connections.
#[derive(Debug, Clone, Default)]
pub struct Connections {
    open: Arc<Mutex<HashMap<u64, Arc<Connection>>>>,
    ids: Arc<AtomicU64>,
    uses: Arc<AtomicU64>,
}

impl Connections {
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Adds a connection, and closes the one that has been idle longest if there are too many.
    pub fn admit(
        &self,
        stream: UnixStream,
        pid: Option<u32>,
        activity: Activity,
        listeners: Listeners,
    ) -> (TrackedStream, Arc<Connection>) {
        let connection = Arc::new(Connection {
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            fd: stream.as_raw_fd(),
            pid,
            session: OnceLock::new(),
            activity,
            calls: AtomicUsize::new(0),
            last_used: AtomicU64::new(0),
            uses: self.uses.clone(),
            listeners,
            closed: watch::Sender::new(false),
            stuck: AtomicBool::new(false),
            reader: Mutex::new(None),
        });
        connection.touch();
        let mut open = self.lock();
        if open.len() >= MAX_CONNECTIONS {
            let idle = open.values().filter(|c| c.calls.load(Ordering::Acquire) == 0);
            if let Some(oldest) = idle.min_by_key(|c| c.rank()).cloned() {
                // Out of the table at once, so that a burst closes one connection each and not the same one again.
                oldest.close();
                open.remove(&oldest.id);
            }
        }
        open.insert(connection.id, connection.clone());
        drop(open);
        let tracked =
            TrackedStream { entry: Entry { connections: self.clone(), connection: connection.clone() }, stream };
        (tracked, connection)
    }

    /// Closes every connection.
    pub fn close_all(&self) {
        for connection in self.lock().values() {
            connection.close();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream of an open connection. Its entry is dropped first, so that no descriptor is used after it was closed.
#[derive(Debug)]
pub struct TrackedStream {
    entry: Entry,
    stream: UnixStream,
}

#[derive(Debug)]
struct Entry {
    connections: Connections,
    connection: Arc<Connection>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.connection.id);
        self.connection.closed.send_replace(true);
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        std::task::ready!(self.entry.connection.poll_readable(cx));
        Pin::new(&mut self.stream).poll_read(cx, buf)
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
            Connections::default().admit(stream, None, Activity::new(), Listeners::default());
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
}
