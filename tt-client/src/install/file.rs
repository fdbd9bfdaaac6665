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

/// Replaces the file in one step, so that whoever reads it meanwhile sees the old one or the new one. A link stays a link.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mode = fs::metadata(&path).map_or(0o600, |meta| meta.permissions().mode() & 0o7777);
    let beside = with_suffix(&path, &format!(".{}.new", std::process::id()));
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    });
    written.map_err(|e| {
        let _ = fs::remove_file(&beside);
        failed(&path, &e.to_string())
    })
}

/// Removes the file, and the directories it leaves empty that exist for skills alone.
pub(super) fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_file(path).map_err(|e| failed(path, &e.to_string()))?;
    if path.ends_with("SKILL.md") {
        let _ = fs::remove_file(with_suffix(path, BACKUP));
        // Removing a directory that is not empty fails, and is meant to.
        let _ = path.ancestors().skip(1).take(2).try_for_each(fs::remove_dir);
    }
    Ok(())
}

const BACKUP: &str = ".before-talking-stick";

pub(super) fn backup_of(path: &Path) -> Result<Option<String>, Error> {
    read(&with_suffix(path, BACKUP))
}

/// Keeps what was there before. Where there was nothing, nothing is kept.
pub(super) fn keep_backup(path: &Path, from: Option<&str>) -> Result<(), Error> {
    match from {
        Some(text) => write(&with_suffix(path, BACKUP), text),
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

/// The lines that go and the lines that come, without those around them that stay.
pub(super) fn diff(from: &str, to: &str) -> String {
    let (from, to): (Vec<&str>, Vec<&str>) = (from.lines().collect(), to.lines().collect());
    let head = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let tail = from[head..].iter().rev().zip(to[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let lines = |sign: char, lines: &[&str]| lines.iter().map(|line| format!("{sign} {line}\n")).collect::<String>();
    lines('-', &from[head..from.len() - tail]) + &lines('+', &to[head..to.len() - tail])
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
