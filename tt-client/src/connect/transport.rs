//! Opens one connection: a Unix socket whose peer is checked, with JSON-RPC on top.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use jsonrpsee::client_transport::ws::{Url, WsHandshakeError, WsTransportClientBuilder};
use jsonrpsee::core::client::ClientBuilder;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use tt_proto::hello::Greeting;
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};

use super::Transport;
use super::rpc::{HttpConnection, Rpc};

/// Every call has its own deadline, so the limit for all of them is longer than any wait.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The kernel waits for a full queue in ticks, which may be as long as this. A shorter deadline does not wait at all.
const KERNEL_TICK: Duration = Duration::from_millis(10);

/// The result of connecting to the socket's path.
pub(super) enum Opened {
    Stream(UnixStream),
    /// No file, or no process listens on it: the only two results that allow starting a daemon.
    NoDaemon,
    /// A process listens but does not accept the connection in time.
    Busy,
    Failed(Error),
}

/// Connects, waiting no longer than `timeout` for a daemon whose queue is full.
pub(super) fn open(path: &Path, timeout: Duration) -> Opened {
    match try_open(path, timeout) {
        Ok(stream) => Opened::Stream(stream),
        Err(Errno::ENOENT | Errno::ECONNREFUSED) => Opened::NoDaemon,
        Err(Errno::EAGAIN | Errno::ETIMEDOUT | Errno::EINPROGRESS) => Opened::Busy,
        // The error of macOS for a file that is not a socket. The daemon reports it with the fix.
        Err(Errno::ENOTSOCK) => Opened::NoDaemon,
        Err(e) => Opened::Failed(
            Error::new(ErrorCode::DaemonUnreachable, format!("cannot connect to {}: {}", path.display(), e.desc()))
                .hint("check the permissions of the socket and of the directories above it")
                .detail("path", path.display().to_string()),
        ),
    }
}

fn try_open(path: &Path, timeout: Duration) -> Result<UnixStream, Errno> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let stream = UnixStream::from(fd);
    if timeout < KERNEL_TICK {
        stream.set_nonblocking(true).map_err(|_| Errno::EINVAL)?;
    } else {
        // A blocking connect to a full queue waits as long as a send may.
        let timeout =
            TimeVal::new(timeout.as_secs().try_into().unwrap_or(i32::MAX).into(), timeout.subsec_micros().into());
        setsockopt(&stream, sockopt::SendTimeout, &timeout)?;
    }
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    stream.set_nonblocking(false).map_err(|_| Errno::EINVAL)?;
    Ok(stream)
}

/// Why a connected socket did not become a client.
pub(super) enum HandshakeError {
    HungUp(String),
    TimedOut,
    /// The process at the other end belongs to this other user. Nothing was sent.
    OtherUser(u32),
}

/// Makes a JSON-RPC client of a connected socket, after checking that the other end belongs to the same user.
pub(super) async fn handshake(
    stream: UnixStream,
    transport: Transport,
    deadline: Duration,
) -> Result<Rpc, HandshakeError> {
    check_peer(&stream)?;
    if transport == Transport::Http {
        return Ok(Rpc::Http(Box::new(HttpConnection::new(stream, None, deadline))));
    }
    let hung_up = |e: std::io::Error| HandshakeError::HungUp(e.to_string());
    stream.set_nonblocking(true).map_err(hung_up)?;
    let stream = tokio::net::UnixStream::from_std(stream).map_err(hung_up)?;
    let url = Url::parse("ws://localhost/").map_err(|e| HandshakeError::HungUp(e.to_string()))?;
    let transport = WsTransportClientBuilder::default()
        .max_request_size(MAX_REQUEST_BYTES)
        .max_response_size(MAX_RESPONSE_BYTES)
        .connection_timeout(deadline);
    let (sender, receiver) = transport.build_with_stream(url, stream).await.map_err(|e| match e {
        WsHandshakeError::Timeout(_) => HandshakeError::TimedOut,
        e => HandshakeError::HungUp(e.to_string()),
    })?;
    Ok(Rpc::WebSocket(ClientBuilder::default().request_timeout(MAX_REQUEST_TIME).build_with_tokio(sender, receiver)))
}

/// Makes an HTTP client of a connected socket, after checking its peer. The greeting is sent with its first call.
pub(super) fn handshake_with_first_call(
    stream: UnixStream,
    greeting: Greeting,
    deadline: Duration,
) -> Result<Rpc, HandshakeError> {
    check_peer(&stream)?;
    Ok(Rpc::Http(Box::new(HttpConnection::new(stream, Some(greeting), deadline))))
}

fn check_peer(stream: &UnixStream) -> Result<(), HandshakeError> {
    let peer = peer_uid(stream).map_err(|e| HandshakeError::HungUp(e.to_string()))?;
    if peer != nix::unistd::getuid().as_raw() {
        return Err(HandshakeError::OtherUser(peer));
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn peer_uid(stream: &UnixStream) -> Result<u32, Errno> {
    nix::sys::socket::getsockopt(stream, sockopt::PeerCredentials).map(|peer| peer.uid())
}

#[cfg(not(target_os = "linux"))]
fn peer_uid(stream: &UnixStream) -> Result<u32, Errno> {
    nix::unistd::getpeereid(stream).map(|(uid, _)| uid.as_raw())
}
