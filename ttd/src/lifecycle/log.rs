//! The log: always on, private, and never larger than a few megabytes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::Metadata;
use tracing::callsite::Identifier;
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
    let log = SharedFile { log: Mutex::new(Log { file: log, places: HashMap::new() }) };
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter).with_writer(log);
    // Errors of the log would be printed to standard error, which is the same file, and printing panics where it fails.
    let subscriber = subscriber.log_internal_errors(false);
    // A second daemon in one process (a test) keeps the first one's log.
    let _ = tracing::subscriber::set_global_default(subscriber.finish());
    Ok(())
}

/// The longest line. What a caller sent may be in it, and is cut.
const MAX_LINE_BYTES: usize = 4096;

/// The most lines of one place in the code in one [`PERIOD`], so that what repeats does not rotate away what happened once.
const MAX_LINES: u32 = 100;

const PERIOD: Duration = Duration::from_secs(60);

struct SharedFile {
    log: Mutex<Log>,
}

struct Log {
    file: RotatingFile,
    places: HashMap<Identifier, Place>,
}

/// One place in the code that writes lines.
struct Place {
    since: Instant,
    lines: u32,
    left_out: u32,
}

impl Place {
    /// Whether a line may be written now, and how many were left out before it.
    fn admit(&mut self, now: Instant) -> Option<u32> {
        if now.saturating_duration_since(self.since) >= PERIOD {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines >= MAX_LINES {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Writes the line of one event, or drops it.
struct Guard<'a> {
    log: MutexGuard<'a, Log>,
    left_out: Option<u32>,
}

impl<'a> MakeWriter<'a> for SharedFile {
    type Writer = Guard<'a>;

    fn make_writer(&'a self) -> Guard<'a> {
        Guard { log: self.log.lock().unwrap_or_else(PoisonError::into_inner), left_out: Some(0) }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Guard<'a> {
        let mut guard = self.make_writer();
        let now = Instant::now();
        let place = Place { since: now, lines: 0, left_out: 0 };
        guard.left_out = guard.log.places.entry(metadata.callsite()).or_insert(place).admit(now);
        guard
    }
}

impl Write for Guard<'_> {
    /// A line that cannot be written, as on a full disk, is dropped: logging never fails what it reports about.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(left_out) = self.left_out {
            let mut text = if left_out > 0 {
                format!("{left_out} lines like the next one were left out\n")
            } else {
                String::new()
            };
            text.push_str(&cut(line));
            let _ = self.log.file.write_all(text.as_bytes());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A line that is not too long.
fn cut(line: &[u8]) -> Cow<'_, str> {
    if line.len() <= MAX_LINE_BYTES {
        return String::from_utf8_lossy(line);
    }
    let start = String::from_utf8_lossy(&line[..MAX_LINE_BYTES]);
    format!("{} … ({} bytes in all)\n", start.trim_end_matches('\u{fffd}'), line.len()).into()
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
    fn what_repeats_and_what_is_long_does_not_push_out_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ttd.log");
        let file = RotatingFile::open(&path, MAX_LOG_BYTES).unwrap();
        let log = SharedFile { log: Mutex::new(Log { file, places: HashMap::new() }) };
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(log).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!("once");
            let long = "\u{1F600}".repeat(25_000);
            (0..1000).for_each(|n| tracing::warn!(n, "repeated: {long}"));
            tracing::warn!("at the end");
        });
        assert!(!dir.path().join("ttd.log.1").exists(), "the log was rotated");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("once") && text.contains("at the end"), "{}", text.len());
        assert_eq!(text.matches("repeated").count(), MAX_LINES as usize);
        assert!(text.lines().all(|line| line.len() < MAX_LINE_BYTES + 100));
    }

    #[test]
    fn what_was_left_out_is_counted() {
        let start = Instant::now();
        let mut place = Place { since: start, lines: 0, left_out: 0 };
        let admitted = (0..MAX_LINES + 5).filter(|_| place.admit(start) == Some(0)).count();
        assert_eq!(admitted, MAX_LINES as usize);
        assert_eq!(place.admit(start + PERIOD), Some(5));
        assert_eq!(place.admit(start + PERIOD), Some(0));
    }

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
