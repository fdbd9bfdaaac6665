//! One connection: a Unix socket, the peer checked, JSON-RPC on top.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use jsonrpsee::client_transport::ws::{Url, WsHandshakeError, WsTransportClientBuilder};
use jsonrpsee::core::client::ClientBuilder;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use tt_proto::hello::Hello;
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};

use super::Wire;
use super::rpc::{Rpc, Short};

/// Every call brings its own deadline; a wait is longer than any that would do for all.
const NO_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// The kernel waits for a full queue in ticks, which may be as long as this. Whoever has less time does not wait for it.
const TICK: Duration = Duration::from_millis(10);

/// What is at the socket's path.
pub(super) enum Opened {
    Stream(UnixStream),
    /// No file, or nobody behind it: the only two answers that allow starting a daemon.
    Nobody,
    /// Somebody is there and does not take us in.
    Busy,
    Failed(Error),
}

/// Connects, waiting no longer than `patience` for a daemon whose queue is full.
pub(super) fn open(path: &Path, patience: Duration) -> Opened {
    match try_open(path, patience) {
        Ok(stream) => Opened::Stream(stream),
        Err(Errno::ENOENT | Errno::ECONNREFUSED) => Opened::Nobody,
        Err(Errno::EAGAIN | Errno::ETIMEDOUT | Errno::EINPROGRESS) => Opened::Busy,
        // macOS says so of a file that is no socket; the daemon knows the remedy and reports it.
        Err(Errno::ENOTSOCK) => Opened::Nobody,
        Err(e) => Opened::Failed(
            Error::new(ErrorCode::DaemonUnreachable, format!("cannot connect to {}: {}", path.display(), e.desc()))
                .hint("check the permissions of the socket and of the directories above it")
                .detail("path", path.display().to_string()),
        ),
    }
}

fn try_open(path: &Path, patience: Duration) -> Result<UnixStream, Errno> {
    let fd = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let stream = UnixStream::from(fd);
    if patience < TICK {
        stream.set_nonblocking(true).map_err(|_| Errno::EINVAL)?;
    } else {
        // A blocking connect to a full queue waits as long as a send may.
        let patience =
            TimeVal::new(patience.as_secs().try_into().unwrap_or(i32::MAX).into(), patience.subsec_micros().into());
        setsockopt(&stream, sockopt::SendTimeout, &patience)?;
    }
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    stream.set_nonblocking(false).map_err(|_| Errno::EINVAL)?;
    Ok(stream)
}

/// Why a connected socket did not become a client.
pub(super) enum Mute {
    HungUp(String),
    TimedOut,
    /// The other end is run by this user, who is not us. Nothing was sent.
    Stranger(u32),
}

/// Makes a JSON-RPC client of a connected socket, after checking that the other end is run by the same user.
pub(super) async fn speak(stream: UnixStream, wire: Wire, deadline: Duration) -> Result<Rpc, Mute> {
    check(&stream)?;
    if wire == Wire::Short {
        return Ok(Rpc::Short(Box::new(Short::new(stream, None, deadline))));
    }
    let hung_up = |e: std::io::Error| Mute::HungUp(e.to_string());
    stream.set_nonblocking(true).map_err(hung_up)?;
    let stream = tokio::net::UnixStream::from_std(stream).map_err(hung_up)?;
    let url = Url::parse("ws://localhost/").map_err(|e| Mute::HungUp(e.to_string()))?;
    let transport = WsTransportClientBuilder::default()
        .max_request_size(MAX_REQUEST_BYTES)
        .max_response_size(MAX_RESPONSE_BYTES)
        .connection_timeout(deadline);
    let (sender, receiver) = transport.build_with_stream(url, stream).await.map_err(|e| match e {
        WsHandshakeError::Timeout(_) => Mute::TimedOut,
        e => Mute::HungUp(e.to_string()),
    })?;
    Ok(Rpc::Long(ClientBuilder::default().request_timeout(NO_LIMIT).build_with_tokio(sender, receiver)))
}

/// The same for a client whose greeting goes out with its first call.
pub(super) fn speak_at_once(stream: UnixStream, hello: Hello, deadline: Duration) -> Result<Rpc, Mute> {
    check(&stream)?;
    Ok(Rpc::Short(Box::new(Short::new(stream, Some(hello), deadline))))
}

fn check(stream: &UnixStream) -> Result<(), Mute> {
    let peer = peer_uid(stream).map_err(|e| Mute::HungUp(e.to_string()))?;
    if peer != nix::unistd::getuid().as_raw() {
        return Err(Mute::Stranger(peer));
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
