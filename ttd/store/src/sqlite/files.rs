//! Whether the files of an open database are still where they were. A database that was removed, replaced or renamed goes on
//! working for the process that has it open, and everything written to it is lost for everybody else.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::sync::watch;
use tt_proto::{Error, ErrorCode};

/// The files of an open database, each by path, device and inode.
#[derive(Debug)]
pub(super) struct Files {
    known: Vec<(PathBuf, u64, u64)>,
    /// Set once one of them is no longer in its place.
    lost: watch::Sender<Option<Error>>,
}

impl Files {
    /// Notes the files of a database that was just opened, with its log and its index, and others that belong to it.
    pub(super) fn note(database: &Path, others: &[&Path]) -> std::io::Result<Self> {
        let companion = |suffix: &str| {
            let mut name = database.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        let mut known = Vec::new();
        for path in [database.to_owned()].into_iter().chain(others.iter().map(|path| path.to_path_buf())) {
            let meta = std::fs::metadata(&path)?;
            known.push((path, meta.dev(), meta.ino()));
        }
        for path in [companion("-wal"), companion("-shm")] {
            match std::fs::metadata(&path) {
                Ok(meta) => known.push((path, meta.dev(), meta.ino())),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Self { known, lost: watch::Sender::new(None) })
    }

    /// Fails if one of the files is not in its place. A few calls of `stat`, cheap enough for every answer.
    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(lost) = &*self.lost.borrow() {
            return Err(lost.clone());
        }
        for (path, device, inode) in &self.known {
            let what = match std::fs::metadata(path) {
                Ok(meta) if (meta.dev(), meta.ino()) == (*device, *inode) => continue,
                Ok(_) => "replaced",
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => "removed or renamed",
                Err(e) => return Err(super::unavailable(path)(e)),
            };
            let message =
                format!("{} was {what} while the daemon used it; this call has changed nothing there", path.display());
            let error = Error::new(ErrorCode::StorageUnavailable, message)
                .hint("run the command again: that starts a daemon with the files that are there now")
                .detail("path", path.display().to_string());
            tracing::error!("{error}");
            self.lost.send_replace(Some(error.clone()));
            return Err(error);
        }
        Ok(())
    }

    /// Tells when a file is found to be lost.
    pub(super) fn lost(&self) -> watch::Receiver<Option<Error>> {
        self.lost.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_the_same_any_more_is_noticed_and_stays_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (database, wal) = (dir.path().join("d"), dir.path().join("d-wal"));
        for lost in [&database, &wal] {
            for replace in [false, true] {
                std::fs::write(&database, "").unwrap();
                std::fs::write(&wal, "").unwrap();
                let files = Files::note(&database, &[]).unwrap();
                files.check().unwrap();
                std::fs::rename(lost, dir.path().join("elsewhere")).unwrap();
                if replace {
                    std::fs::write(lost, "").unwrap();
                }
                let error = files.check().unwrap_err();
                assert!(error.message.contains(if replace { "replaced" } else { "removed" }), "{error}");
                assert_eq!(files.lost().borrow().as_ref(), Some(&error));
                std::fs::rename(dir.path().join("elsewhere"), lost).unwrap();
                assert!(files.check().is_err(), "what was written meanwhile is not known");
            }
        }
    }
}
