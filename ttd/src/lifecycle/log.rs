//! The log: always on, private, and never larger than a few megabytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The length at which a log file is rotated.
const MAX_LOG_BYTES: u64 = 1024 * 1024;

/// Rotated files that are kept: `ttd.log.1` to `ttd.log.3`.
const ROTATED_FILES: u32 = 3;

/// Sends all tracing of this process to the file.
pub fn start(path: &Path, filter: Option<&str>) -> io::Result<()> {
    let log = RotatingFile::open(path, MAX_LOG_BYTES)?;
    let filter = EnvFilter::try_new(filter.unwrap_or("info")).unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(SharedFile(Mutex::new(log)));
    // Errors of the log would be printed to standard error, which is the same file, and printing panics where it fails.
    let subscriber = subscriber.log_internal_errors(false);
    // A second daemon in one process (a test) keeps the first one's log.
    let _ = tracing::subscriber::set_global_default(subscriber.finish());
    Ok(())
}

struct SharedFile(Mutex<RotatingFile>);

struct Guard<'a>(MutexGuard<'a, RotatingFile>);

impl<'a> MakeWriter<'a> for SharedFile {
    type Writer = Guard<'a>;

    fn make_writer(&'a self) -> Guard<'a> {
        Guard(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Guard<'_> {
    /// A line that cannot be written, as on a full disk, is dropped: logging never fails what it reports about.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends to a file and moves it aside when it has grown.
struct RotatingFile {
    path: PathBuf,
    file: File,
    length: u64,
    max: u64,
}

impl RotatingFile {
    fn open(path: &Path, max: u64) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, length, max })
    }

    fn rotate(&mut self) -> io::Result<()> {
        let aged = |n: u32| PathBuf::from(format!("{}.{n}", self.path.display()));
        for n in (1..ROTATED_FILES).rev() {
            let _ = std::fs::rename(aged(n), aged(n + 1));
        }
        std::fs::rename(&self.path, aged(1))?;
        *self = Self::open(&self.path, self.max)?;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.length >= self.max {
            // Better a log that grows than one that stops.
            let _ = self.rotate();
        }
        let written = self.file.write(line)?;
        self.length += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_log_is_rotated_kept_small_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ttd.log");
        let mut log = RotatingFile::open(&path, 100).unwrap();
        for n in 0..100 {
            writeln!(log, "line {n:04}").unwrap();
        }
        let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        names.sort();
        assert_eq!(names.len(), 4, "{names:?}");
        for name in &names {
            let meta = std::fs::metadata(name).unwrap();
            assert!(meta.len() <= 110);
            assert_eq!(meta.permissions().mode() & 0o777, 0o600);
        }
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("line 0099\n"));
        let reopened = RotatingFile::open(&path, 100).unwrap();
        assert_eq!(reopened.length, std::fs::metadata(&path).unwrap().len());
    }
}
