//! Reads, replaces and removes configuration files of other programs. A file is replaced in one step, and a copy of it is
//! kept before the first change.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use similar::TextDiff;
use tt_proto::{Error, ErrorCode};

pub(super) fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| failed(path, "it is not UTF-8")),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(failed(path, &e.to_string())),
    }
}

/// Replaces the file in one step, so that a reader sees the old or the new content. A symlink stays one, and a file that
/// changed since we read it is left alone.
pub(super) fn replace(path: &Path, from: Option<&str>, to: &str) -> Result<(), Error> {
    let target = target(path)?;
    let mode = fs::metadata(&target).map_or(0o600, |meta| meta.permissions().mode() & 0o7777);
    let beside = with_suffix(&target, &format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let written = target.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(to.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    });
    let done = written.map_err(|e| failed(path, &e.to_string())).and_then(|()| {
        unchanged(path, from)?;
        fs::rename(&beside, &target).map_err(|e| failed(path, &e.to_string()))
    });
    if done.is_err() {
        let _ = fs::remove_file(&beside);
    }
    done
}

/// Checks that the file is writable and has not changed since we read it.
pub(super) fn may_change(path: &Path, from: Option<&str>) -> Result<(), Error> {
    target(path)?;
    unchanged(path, from)
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

/// Refuses a file that changed since we read it: the harness or a person may write to it at any time.
fn unchanged(path: &Path, from: Option<&str>) -> Result<(), Error> {
    if read(path)?.as_deref() == from {
        return Ok(());
    }
    Err(failed(path, "it was changed by another program just now").hint("it was left as it is; run the command again"))
}

/// Removes the file.
pub(super) fn remove(path: &Path, from: Option<&str>) -> Result<(), Error> {
    may_change(path, from)?;
    fs::remove_file(path).map_err(|e| failed(path, &e.to_string()))
}

/// Removes the directories above a skill that are empty now: its own, and those that hold only skills.
pub(super) fn remove_empty_dirs(skill: &Path) {
    let for_skills = |dir: &&Path| ["talking-stick", "skills", ".agents"].iter().any(|name| dir.ends_with(name));
    // Removing a directory that is not empty fails, which ends the loop.
    let _ = skill.ancestors().skip(1).take_while(for_skills).try_for_each(fs::remove_dir);
}

const BACKUP: &str = ".before-talking-stick";

pub(super) fn backup_of(path: &Path) -> Result<Option<String>, Error> {
    read(&with_suffix(path, BACKUP))
}

/// Copies the old content. Without any, an old copy is removed.
pub(super) fn keep_backup(path: &Path, from: Option<&str>) -> Result<(), Error> {
    let backup = with_suffix(path, BACKUP);
    match from {
        Some(text) => replace(&backup, read(&backup)?.as_deref(), text),
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
        .hint("nothing was changed in this file; check it and its permissions")
        .detail("path", path.display().to_string())
}
