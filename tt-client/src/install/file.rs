//! Reads, replaces and removes configuration files of other programs. A file is replaced in one step, and a copy of it is
//! kept before the first change.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use similar::TextDiff;
use tt_proto::filesystem::read_file;
use tt_proto::paths::{SHARED_DIR_MODE, make_dirs};
use tt_proto::{Error, ErrorCode};

/// How long to wait for another `tt` that changes the same file, and how often to look.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const LOCK_POLL: Duration = Duration::from_millis(10);

/// Whether a file was changed as planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(super) enum Outcome {
    Written,
    /// Another program wrote to the file after we had read it. Nothing was done.
    ChangedMeanwhile,
}

/// Reads a file, which must be an ordinary one. None if there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, Error> {
    match read_file(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| failed(path, "it is not UTF-8")),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::IsADirectory) => {
            Err(failed(path, &e.to_string()).hint("nothing was changed; put an ordinary file there, or none"))
        }
        Err(e) => Err(failed(path, &e.to_string())),
    }
}

/// Keeps every other `tt` from changing this file for as long as the returned handle lives.
///
/// The lock is on the file's directory: the file itself is replaced, and may not be there, and a lock file would stay behind.
/// The directory is made if there is none.
pub(super) fn lock(path: &Path) -> Result<File, Error> {
    let target = target(path)?;
    let dir = target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let give_up = Instant::now() + LOCK_TIMEOUT;
    let cannot = |e: std::io::Error| failed(path, &e.to_string());
    loop {
        make_dirs(dir, SHARED_DIR_MODE).map_err(cannot)?;
        let handle = match File::open(dir) {
            Ok(handle) => handle,
            // Another `tt` removed it just now.
            Err(e) if e.kind() == ErrorKind::NotFound && Instant::now() < give_up => continue,
            Err(e) => return Err(cannot(e)),
        };
        match handle.try_lock() {
            // A directory that was removed and made again is another one.
            Ok(()) if is_same(dir, &handle) => return Ok(handle),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if Instant::now() < give_up => std::thread::sleep(LOCK_POLL),
            Err(TryLockError::WouldBlock) => {
                return Err(failed(path, "another tt has been changing it for a long time")
                    .hint("nothing was changed; end the other tt install or uninstall, then run the command again"));
            }
            Err(TryLockError::Error(e)) => return Err(cannot(e)),
        }
    }
}

fn is_same(dir: &Path, handle: &File) -> bool {
    let ids = |meta: &fs::Metadata| (meta.dev(), meta.ino());
    matches!((fs::metadata(dir), handle.metadata()), (Ok(there), Ok(ours)) if ids(&there) == ids(&ours))
}

/// Replaces the file in one step, so that a reader sees the old or the new content. A symlink stays one, and a file that
/// changed since we read it is left alone.
pub(super) fn replace(path: &Path, from: Option<&str>, to: &str) -> Result<Outcome, Error> {
    let target = target(path)?;
    let mode = fs::metadata(&target).map_or(0o600, |meta| meta.permissions().mode() & 0o7777);
    let beside = with_suffix(&target, &format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let made = target.parent().map_or(Ok(()), |dir| make_dirs(dir, SHARED_DIR_MODE));
    let written = made.and_then(|()| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(to.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    });
    // As late as possible: the harness may write at any moment.
    let done = written.map_err(|e| failed(path, &e.to_string())).and_then(|()| {
        if read(path)?.as_deref() != from {
            return Ok(Outcome::ChangedMeanwhile);
        }
        fs::rename(&beside, &target).map_err(|e| failed(path, &e.to_string()))?;
        Ok(Outcome::Written)
    });
    if !matches!(done, Ok(Outcome::Written)) {
        let _ = fs::remove_file(&beside);
    }
    done
}

/// Checks that the file is writable and has not changed since we read it.
pub(super) fn check(path: &Path, from: Option<&str>) -> Result<Outcome, Error> {
    target(path)?;
    Ok(if read(path)?.as_deref() == from { Outcome::Written } else { Outcome::ChangedMeanwhile })
}

/// The path behind symlinks. Refuses a read-only file, although renaming over it would work.
fn target(path: &Path) -> Result<PathBuf, Error> {
    let target = match fs::canonicalize(path) {
        Ok(target) => target,
        Err(_) if path.is_symlink() => return Err(failed(path, "it is a dangling symlink")),
        Err(_) => path.to_owned(),
    };
    let read_only = fs::metadata(&target).is_ok_and(|meta| meta.permissions().mode() & 0o222 == 0);
    if read_only { Err(failed(path, "it is read-only")) } else { Ok(target) }
}

/// The refusal to change a file to which another program writes all the time.
pub(super) fn keeps_changing(path: &Path) -> Error {
    failed(path, "another program keeps changing it").hint("it was left as it is; run the command again")
}

/// Removes the file.
pub(super) fn remove(path: &Path, from: Option<&str>) -> Result<Outcome, Error> {
    if check(path, from)? == Outcome::ChangedMeanwhile {
        return Ok(Outcome::ChangedMeanwhile);
    }
    fs::remove_file(path).map_err(|e| failed(path, &e.to_string()))?;
    Ok(Outcome::Written)
}

/// Removes the directories above a file of ours that are empty now: its own, and those that hold only skills or plugins.
pub(super) fn remove_empty_dirs(file: &Path) {
    let names = ["talking-stick", "skills", ".agents", "plugins"];
    let for_ours = |dir: &&Path| names.iter().any(|name| dir.ends_with(name));
    // Removing a directory that is not empty fails, which ends the loop.
    let _ = file.ancestors().skip(1).take_while(for_ours).try_for_each(fs::remove_dir);
}

const BACKUP: &str = ".before-talking-stick";

pub(super) fn backup_of(path: &Path) -> Result<Option<String>, Error> {
    read(&with_suffix(path, BACKUP))
}

/// Copies the old content. Without any, an old copy is removed.
pub(super) fn keep_backup(path: &Path, from: Option<&str>) -> Result<(), Error> {
    let backup = with_suffix(path, BACKUP);
    match from {
        Some(text) => match replace(&backup, read(&backup)?.as_deref(), text)? {
            Outcome::Written => Ok(()),
            Outcome::ChangedMeanwhile => Err(keeps_changing(&backup)),
        },
        None => drop_backup(path),
    }
}

pub(super) fn drop_backup(path: &Path) -> Result<(), Error> {
    match fs::remove_file(with_suffix(path, BACKUP)) {
        Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Err(failed(path, &e.to_string()))
        }
        _ => Ok(()),
    }
}

/// How many unchanged lines are shown around a change.
const DIFF_CONTEXT_LINES: usize = 3;

/// The change as a unified diff that `patch` can read. Empty if the texts are equal.
pub(super) fn diff(from: &str, to: &str) -> String {
    // Split here: `similar` would also end a line at a lone carriage return, which `patch` does not.
    let (from, to): (Vec<&str>, Vec<&str>) = (from.split_inclusive('\n').collect(), to.split_inclusive('\n').collect());
    let diff = TextDiff::configure().newline_terminated(true).diff_slices(&from, &to);
    diff.unified_diff().context_radius(DIFF_CONTEXT_LINES).to_string()
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn failed(path: &Path, what: &str) -> Error {
    Error::new(ErrorCode::InvalidInput, format!("{}: {what}", path.display()))
        .hint("nothing was changed in this file; look at it and at who may write to it")
        .detail("path", path.display().to_string())
}
