//! The listening socket: bound by us, or passed in by systemd.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tt_proto::paths::{Paths, ensure_private_dir};
use tt_proto::{Error, ErrorCode};

/// A listener, and the socket file to take away at the end if it is ours.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    own: Option<OwnFile>,
}

/// A socket file by path and inode: somebody else's file at the same path is not ours to remove.
#[derive(Debug)]
pub struct OwnFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Socket {
    /// A descriptor passed by systemd. It belongs to systemd: it is never bound, never unlinked.
    pub fn activated(mut passed: listenfd::ListenFd) -> Result<Option<Self>, Error> {
        match passed.take_unix_listener(0) {
            Ok(Some(listener)) => Ok(Some(Self { listener, own: None })),
            Ok(None) => Ok(None),
            Err(e) => Err(Error::new(
                ErrorCode::InvalidInput,
                format!("the descriptor passed for socket activation is not a listening Unix socket: {e}"),
            )
            .hint("pass exactly one stream socket, as systemd/ttd.socket does")),
        }
    }

    /// Binds the socket. Only the holder of the lock may call this: whatever socket lies there is a dead daemon's.
    pub fn bind(paths: &Paths) -> Result<Self, Error> {
        ensure_private_dir(paths.socket_dir())?;
        let path = &paths.socket;
        remove_stale(path)?;
        let cannot = |e: std::io::Error| {
            Error::new(ErrorCode::StorageUnavailable, format!("cannot listen on {}: {e}", path.display()))
                .hint("set TALKING_STICK_SOCKET to a path in a private directory of yours, on a disk that is not full")
                .detail("path", path.display().to_string())
        };
        let listener = UnixListener::bind(path).map_err(cannot)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(cannot)?;
        let meta = std::fs::symlink_metadata(path).map_err(cannot)?;
        let own = OwnFile { path: path.clone(), device: meta.dev(), inode: meta.ino() };
        Ok(Self { listener, own: Some(own) })
    }

    /// The listener for the runtime, and the file to remove when it stops.
    pub fn into_parts(self) -> std::io::Result<(tokio::net::UnixListener, Option<OwnFile>)> {
        self.listener.set_nonblocking(true)?;
        Ok((tokio::net::UnixListener::from_std(self.listener)?, self.own))
    }
}

impl OwnFile {
    /// Removes the file if it is still the one we made.
    pub fn remove(self) {
        let same = |meta: &std::fs::Metadata| (meta.dev(), meta.ino()) == (self.device, self.inode);
        if std::fs::symlink_metadata(&self.path).is_ok_and(|meta| same(&meta)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<(), Error> {
    let refuse = |what: String, hint: String| {
        Error::new(ErrorCode::StorageUnavailable, what).hint(hint).detail("path", path.display().to_string())
    };
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(refuse(format!("cannot look at {shown}: {e}"), format!("check the permissions above {shown}"))),
        Ok(meta) if meta.file_type().is_socket() => std::fs::remove_file(path).map_err(|e| {
            refuse(format!("cannot remove the stale socket {shown}: {e}"), format!("remove it: rm '{shown}'"))
        }),
        Ok(meta) => {
            let what = if meta.is_dir() { "a directory" } else { "not a socket" };
            Err(refuse(
                format!("{shown} is {what}, and the daemon's socket must go there"),
                format!("move it away: mv '{shown}' '{shown}.old'"),
            ))
        }
    }
}
