//! The open connections: who is at the other end, what is under way, and which one has to make room.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use jsonrpsee::Extensions;
use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tt_proto::hello::Identity;
use tt_proto::{Error, ErrorCode};

use crate::hub::{Owner, TakenMessages};
use crate::identity::Derived;
use crate::lifecycle::idle::{Activity, Busy};

/// More connections than this, and the one that has been idle longest is closed to make room.
pub const MAX_CONNECTIONS: usize = 512;

/// One client's connection. It travels in the extensions of every request that comes in on it.
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
    /// Messages this connection took and has not confirmed. They go back with it.
    taken: Mutex<Vec<TakenMessages>>,
}

/// Who is at the other end, for as long as the connection lasts.
#[derive(Debug, Clone)]
pub struct Session {
    pub derived: Derived,
    /// The client's working directory, which relative paths start from.
    pub cwd: Option<PathBuf>,
}

/// A call under way on a connection.
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

    /// Who is calling.
    pub fn identity(&self) -> Result<&Identity, Error> {
        self.session().map(|session| &session.derived.identity)
    }

    pub fn session(&self) -> Result<&Session, Error> {
        let unknown = || Error::new(ErrorCode::AgentIdRequired, "this connection has not said hello");
        self.connection.session.get().ok_or_else(unknown)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.connection.touch();
        self.connection.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Connection {
    fn touch(&self) {
        // A count orders uses as well as a clock does, and costs less.
        self.last_used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Keeps messages for this connection until it confirms them or ends.
    pub fn hold(&self, taken: TakenMessages) {
        if !taken.event_seqs.is_empty() {
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
        }
    }

    /// Lets go of messages that were confirmed.
    pub fn let_go(&self, owner: &Owner, event_seqs: &HashSet<i64>) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter_mut().filter(|taken| taken.owner == *owner).for_each(|taken| taken.confirmed(event_seqs));
        taken.retain(|taken| !taken.event_seqs.is_empty());
    }

    /// Strangers before acquaintances, then the one used longest ago.
    fn rank(&self) -> (bool, u64) {
        (self.session.get().is_some(), self.last_used.load(Ordering::Relaxed))
    }

    fn hang_up(&self) {
        let _ = shutdown(self.fd, Shutdown::Both);
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

    /// Takes a connection in, closing the longest idle one where there are too many.
    pub fn admit(&self, stream: UnixStream, pid: Option<u32>, activity: Activity) -> (Tracked, Arc<Connection>) {
        let connection = Arc::new(Connection {
            id: self.ids.fetch_add(1, Ordering::Relaxed),
            fd: stream.as_raw_fd(),
            pid,
            session: OnceLock::new(),
            activity,
            calls: AtomicUsize::new(0),
            last_used: AtomicU64::new(0),
            uses: self.uses.clone(),
            taken: Mutex::default(),
        });
        connection.touch();
        let mut open = self.lock();
        if open.len() >= MAX_CONNECTIONS {
            let idle = open.values().filter(|c| c.calls.load(Ordering::Acquire) == 0);
            if let Some(oldest) = idle.min_by_key(|c| c.rank()).cloned() {
                // Out of the table at once, so that a burst closes one connection each and not the same one again.
                oldest.hang_up();
                open.remove(&oldest.id);
            }
        }
        open.insert(connection.id, connection.clone());
        drop(open);
        let tracked = Tracked { _entry: Entry { connections: self.clone(), connection: connection.clone() }, stream };
        (tracked, connection)
    }

    /// Closes whatever is still open.
    pub fn hang_up_all(&self) {
        for connection in self.lock().values() {
            connection.hang_up();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stream of an open connection. The entry goes first when it is dropped, so that nobody can reach for a descriptor
/// that is closed or used again.
#[derive(Debug)]
pub struct Tracked {
    _entry: Entry,
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
    }
}

impl AsyncRead for Tracked {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tracked {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
