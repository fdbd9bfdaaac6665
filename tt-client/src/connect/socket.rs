//! Opens the daemon's Unix socket and checks who is at the other end.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::TimeVal;
use tt_proto::{Error, ErrorCode};

use super::GreetError;

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
        Err(e) => Opened::Failed(not_allowed(path, e)),
    }
}

fn not_allowed(path: &Path, errno: Errno) -> Error {
    let socket = path.display();
    let error = match errno {
        // File permissions give EACCES. A system call that is forbidden altogether gives this.
        Errno::EPERM => Error::new(
            ErrorCode::DaemonUnreachable,
            format!("a sandbox forbids this command to connect to {socket}"),
        )
        .hint(
            "use the MCP tools of the server talking-stick, which work: join_path, wait_for_turn, send_message; or \
                     run tt outside the sandbox",
        ),
        errno => Error::new(ErrorCode::DaemonUnreachable, format!("cannot connect to {socket}: {}", errno.desc()))
            .hint("set TALKING_STICK_SOCKET or TALKING_STICK_DATA_DIR to a place where you may connect"),
    };
    error.detail("path", socket.to_string())
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

/// Checks that the process at the other end belongs to the same user, before anything is sent to it.
pub(super) fn check_peer(stream: &UnixStream) -> Result<(), GreetError> {
    let peer = peer_uid(stream).map_err(GreetError::hung_up)?;
    if peer != nix::unistd::getuid().as_raw() {
        return Err(GreetError::OtherUser(peer));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_told_from_file_permissions() {
        let path = Path::new("/data/ttd.sock");
        let (sandbox, permissions) = (not_allowed(path, Errno::EPERM), not_allowed(path, Errno::EACCES));
        assert!(sandbox.message.contains("a sandbox forbids") && sandbox.hint.contains("MCP tools"), "{sandbox:?}");
        assert!(permissions.hint.contains("TALKING_STICK_DATA_DIR"), "{permissions:?}");
        assert_eq!((sandbox.code, permissions.code), (ErrorCode::DaemonUnreachable, ErrorCode::DaemonUnreachable));
    }
}
