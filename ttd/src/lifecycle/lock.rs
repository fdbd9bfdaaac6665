//! The lock file: held for as long as the daemon lives, and the one truth about whether it does. The kernel frees it
//! with the process, however that ends. The pid inside is for people; the file is never deleted.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tt_proto::paths::Paths;
use tt_proto::{Error, ErrorCode};

/// How long a new daemon waits for one that is stopping.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a second daemon checks whether the first has begun to listen.
const LISTEN_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The held lock. Dropping it frees it.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// The outcome of asking for the lock.
#[derive(Debug)]
pub enum Acquired {
    Held(Lock),
    /// Another daemon has it and answers: losing the race is success.
    Running,
}

/// Takes the lock. When another process has it, that is either a daemon that answers, or one that is starting or
/// stopping; the latter is waited for. A supervisor that passed us its socket has put it in the place of whatever was there,
/// so that a daemon which has the lock cannot be reached any more and is told to leave.
pub fn acquire(paths: &Paths, activated: bool) -> Result<Acquired, Error> {
    let path = paths.lock();
    let cannot = |e: std::io::Error| {
        Error::new(ErrorCode::StorageUnavailable, format!("cannot use the lock file {}: {e}", path.display()))
            .hint("make the data directory writable and its disk not full")
            .detail("path", path.display().to_string())
    };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(cannot)?;
    match file.try_lock() {
        Ok(()) => return held(file, &path).map_err(cannot),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(e)) => return Err(cannot(e)),
    }
    if activated && let Ok(pid) = holder(&path).parse() {
        tracing::info!(pid, "taking over from a daemon that has lost its socket");
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
    }
    // A blocked lock cannot be given up, so it is taken on a thread of its own.
    let (sender, locked) = mpsc::channel();
    std::thread::spawn(move || sender.send(file.lock().map(|()| file)));
    let started = Instant::now();
    loop {
        match locked.recv_timeout(LISTEN_CHECK_INTERVAL) {
            Ok(Ok(file)) => return held(file, &path).map_err(cannot),
            Ok(Err(e)) => return Err(cannot(e)),
            Err(_) if !activated && is_listening(&paths.socket) => return Ok(Acquired::Running),
            Err(_) if started.elapsed() > LOCK_TIMEOUT => {
                let pid = holder(&path);
                return Err(Error::new(
                    ErrorCode::DaemonUnreachable,
                    format!("another ttd (pid {pid}) holds the lock but does not answer"),
                )
                .hint("run `tt daemon restart`"));
            }
            Err(_) => {}
        }
    }
}

/// Waits until nobody listens on the socket, for the holder of the lock. A daemon that does so without it has lost its files:
/// the data directory or the lock was removed and made again. It notices when somebody connects, and leaves.
pub fn wait_for_stray(paths: &Paths) -> Result<(), Error> {
    let started = Instant::now();
    while is_listening(&paths.socket) {
        if started.elapsed() > LOCK_TIMEOUT {
            let (socket, data_dir) = (paths.socket.display(), paths.data_dir.display());
            return Err(Error::new(
                ErrorCode::DaemonUnreachable,
                format!("another ttd serves {socket}, but not from the data directory {data_dir}"),
            )
            .hint("stop the other one, or set TALKING_STICK_SOCKET to another path"));
        }
        std::thread::sleep(LISTEN_CHECK_INTERVAL);
    }
    Ok(())
}

/// The process that the lock file names.
fn holder(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Whether a daemon listens on the socket. One that is too busy to accept does.
fn is_listening(path: &Path) -> bool {
    let connected = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).and_then(|fd| {
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        connect(fd.as_raw_fd(), &UnixAddr::new(path)?)
    });
    matches!(connected, Ok(()) | Err(Errno::EAGAIN))
}

fn held(mut file: File, path: &Path) -> std::io::Result<Acquired> {
    // The lock of a file that was removed or replaced meanwhile keeps nobody out.
    let (locked, there) = (file.metadata()?, std::fs::metadata(path)?);
    if (locked.dev(), locked.ino()) != (there.dev(), there.ino()) {
        return Err(std::io::Error::other("it was replaced while this daemon waited for it; start it again"));
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Acquired::Held(Lock { _file: file }))
}
