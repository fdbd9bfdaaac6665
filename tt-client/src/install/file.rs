//! Other people's files: read whole, written in one step, kept aside before the first change.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tt_proto::{Error, ErrorCode};

pub(super) fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| failed(path, "it is not UTF-8")),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(failed(path, &e.to_string())),
    }
}

/// Replaces the file in one step, so that whoever reads it meanwhile sees the old one or the new one. A link stays a link, and
/// what is no longer as it was when we looked is left alone.
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

/// Whether we may change the file, as far as can be known before.
pub(super) fn may_change(path: &Path, from: Option<&str>) -> Result<(), Error> {
    target(path)?;
    unchanged(path, from)
}

/// Where a file truly is. One that its owner made read-only is not to be changed, although its directory would allow it.
fn target(path: &Path) -> Result<PathBuf, Error> {
    let target = match fs::canonicalize(path) {
        Ok(target) => target,
        Err(_) if path.is_symlink() => return Err(failed(path, "it is a link to nothing")),
        Err(_) => path.to_owned(),
    };
    let read_only = fs::metadata(&target).is_ok_and(|meta| meta.permissions().mode() & 0o222 == 0);
    if read_only { Err(failed(path, "it is read-only")) } else { Ok(target) }
}

/// The harness itself, or a person, may write at any time.
fn unchanged(path: &Path, from: Option<&str>) -> Result<(), Error> {
    if read(path)?.as_deref() == from {
        return Ok(());
    }
    Err(failed(path, "somebody changed it just now").hint("it was left as they made it; run the command again"))
}

/// Removes the file, and the directories it leaves empty that exist for skills alone.
pub(super) fn remove(path: &Path, from: Option<&str>) -> Result<(), Error> {
    may_change(path, from)?;
    fs::remove_file(path).map_err(|e| failed(path, &e.to_string()))
}

/// Removes the directories above a skill that are empty now: the skill's own, and those that exist for skills alone.
pub(super) fn remove_empty_dirs(skill: &Path) {
    let for_skills = |dir: &&Path| ["talking-stick", "skills", ".agents"].iter().any(|name| dir.ends_with(name));
    // Removing a directory that is not empty fails, and is meant to.
    let _ = skill.ancestors().skip(1).take_while(for_skills).try_for_each(fs::remove_dir);
}

const BACKUP: &str = ".before-talking-stick";

pub(super) fn backup_of(path: &Path) -> Result<Option<String>, Error> {
    read(&with_suffix(path, BACKUP))
}

/// Keeps what was there before. Where there was nothing, nothing is kept.
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

/// How many lines around a change are shown.
const AROUND: usize = 3;

/// The change as `patch` reads it: the lines that go and come, with where they are and a few around them. Nothing if none do.
pub(super) fn diff(from: &str, to: &str) -> String {
    if from == to {
        return String::new();
    }
    let (from, to): (Vec<&str>, Vec<&str>) = (from.split_inclusive('\n').collect(), to.split_inclusive('\n').collect());
    let head = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let tail = from[head..].iter().rev().zip(to[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (start, after) = (head.saturating_sub(AROUND), tail.min(AROUND));
    let gone = head..from.len() - tail;
    let lines = |sign: char, lines: &[&str]| lines.iter().map(|text| line(sign, text)).collect::<String>();
    // A side without lines is counted from the line before it.
    let range = |end: usize| format!("{},{}", if end == start { start } else { start + 1 }, end - start);
    let (ranges, context) = ((range(gone.end + after), range(to.len() - tail + after)), &from[start..head]);
    format!("@@ -{} +{} @@\n", ranges.0, ranges.1)
        + &lines(' ', context)
        + &lines('-', &from[gone.clone()])
        + &lines('+', &to[head..to.len() - tail])
        + &lines(' ', &from[gone.end..gone.end + after])
}

fn line(sign: char, line: &str) -> String {
    match line.strip_suffix('\n') {
        Some(line) => format!("{sign}{line}\n"),
        None => format!("{sign}{line}\n\\ No newline at end of file\n"),
    }
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
