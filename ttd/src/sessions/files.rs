//! The files in which a harness records the session that each of its processes is in, and what it does. Claude Code keeps
//! them. They are read when the kernel reports a change; a file that is half written is read again at the next one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tt_harness::SessionFiles;
use tt_proto::WallTime;
use tt_proto::session::SessionStatus;
use tt_rules::Now;

use super::registry::FileRecord;

/// The largest file that is read. Real ones have a few hundred bytes.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// The directories that are watched.
#[derive(Debug)]
pub struct WatchedDirs(Mutex<Option<Watched>>, UnboundedSender<PathBuf>);

#[derive(Debug)]
struct Watched {
    watcher: RecommendedWatcher,
    dirs: HashSet<PathBuf>,
}

impl WatchedDirs {
    /// Nothing is watched yet. Files that changed are sent to the channel.
    pub fn new(changed: UnboundedSender<PathBuf>) -> Self {
        Self(Mutex::default(), changed)
    }

    /// Watches a directory from now on. May block.
    pub fn watch(&self, dir: &Path) -> notify::Result<()> {
        let mut watched = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = match &mut *watched {
            Some(watched) => watched,
            none => {
                let changed = self.1.clone();
                let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                    let paths = event.map(|event| event.paths).unwrap_or_default();
                    paths.into_iter().filter(|path| pid_of(path).is_some()).for_each(|path| {
                        let _ = changed.send(path);
                    });
                })?;
                none.insert(Watched { watcher, dirs: HashSet::new() })
            }
        };
        if !watched.dirs.contains(dir) {
            watched.watcher.watch(dir, RecursiveMode::NonRecursive)?;
            watched.dirs.insert(dir.to_owned());
        }
        Ok(())
    }
}

/// The process that a file is about: it is called `<pid>.json`.
pub fn pid_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()
}

/// Reads the file of a process that was started at this time. None if there is none, it cannot be read, or it was written by
/// an earlier process with the same pid.
pub fn read(facts: &SessionFiles, path: &Path, started_at: &str, now: &Now) -> Option<FileRecord> {
    let is_readable = |meta: &std::fs::Metadata| meta.is_file() && meta.len() <= MAX_FILE_BYTES;
    std::fs::metadata(path).ok().filter(is_readable)?;
    parse(facts, &std::fs::read_to_string(path).ok()?, started_at, now)
}

/// Reads the text of such a file.
pub fn parse(facts: &SessionFiles, text: &str, started_at: &str, now: &Now) -> Option<FileRecord> {
    let record: Value = serde_json::from_str(text).ok()?;
    let text = |key: &str| record.get(key).and_then(Value::as_str);
    let started = match record.get(facts.process_start_key)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    // The kernel's ticks, to which the boot was added.
    if started_at.split('@').next() != Some(started.as_str()) {
        return None;
    }
    let session_id = text(facts.session_id_key).filter(|id| !id.is_empty())?.to_owned();
    let status = match text("status") {
        Some("idle") => Some(SessionStatus::Idle),
        Some("busy") => Some(SessionStatus::Busy),
        Some("waiting") => Some(SessionStatus::Asking),
        _ => None,
    };
    let says = match (text("status"), text("waitingFor")) {
        (Some("waiting"), Some(what)) => format!("waiting for {what}"),
        (status, _) => status.unwrap_or("unknown").to_owned(),
    };
    let time = |key: &str| match record.get(key) {
        Some(Value::Number(millis)) => millis.as_i64().map(WallTime::from_millis),
        Some(Value::String(text)) => WallTime::parse(text),
        _ => None,
    };
    let time = |key: &str| time(key).map(|at| now.to_lease(at));
    let at = time("updatedAt").unwrap_or(now.lease);
    // Another session is another conversation with the status of before: its date stays.
    let status_at = time("statusUpdatedAt").unwrap_or(at);
    let inbox = text(facts.inbox_key).map(PathBuf::from).filter(|socket| socket.is_absolute());
    Some(FileRecord { session_id, at, status, says, status_at, inbox })
}

#[cfg(test)]
mod tests {
    use super::*;

    use tt_rules::{DeadlineTime, LeaseTime};

    /// The wall clock is a second behind the others.
    fn now() -> Now {
        let (lease, deadline) = (LeaseTime::from_millis(1009), DeadlineTime::from_millis(1009));
        Now { lease, deadline, wall: WallTime::from_millis(9) }
    }

    fn facts() -> &'static SessionFiles {
        tt_harness::by_name("claude").unwrap().session_files.as_ref().unwrap()
    }

    #[test]
    fn a_file_says_which_session_its_process_is_in_and_what_it_does() {
        let now = now();
        let read = |text: &str| parse(facts(), text, "12@boot", &now);
        let busy = r#"{"pid":7,"procStart":"12","sessionId":"s","status":"busy","updatedAt":7,"statusUpdatedAt":5}"#;
        let expected = FileRecord {
            session_id: "s".into(),
            at: LeaseTime::from_millis(1007),
            status: Some(SessionStatus::Busy),
            says: "busy".into(),
            status_at: LeaseTime::from_millis(1005),
            inbox: None,
        };
        assert_eq!(read(busy), Some(expected));
        let with_inbox = |socket: &str| {
            read(&format!(r#"{{"procStart":12,"sessionId":"s","messagingSocketPath":{socket}}}"#)).unwrap().inbox
        };
        assert_eq!(with_inbox(r#""/run/7.sock""#), Some(PathBuf::from("/run/7.sock")));
        for other in [r#""7.sock""#, "7", "null", r#""""#] {
            assert_eq!(with_inbox(other), None, "{other}");
        }
        let asking = r#"{"procStart":12,"sessionId":"s","status":"waiting","waitingFor":"permission prompt"}"#;
        let asking = read(asking).unwrap();
        assert_eq!(
            (asking.status, asking.says.as_str()),
            (Some(SessionStatus::Asking), "waiting for permission prompt")
        );
        assert_eq!(asking.at, now.lease);
        let ahead = r#"{"procStart":12,"sessionId":"s","updatedAt":7000000}"#;
        assert_eq!(read(ahead).unwrap().at, now.lease, "written by a clock that was corrected since");
        assert_eq!(read(r#"{"procStart":12,"sessionId":"s","status":"singing"}"#).unwrap().status, None);
    }

    #[test]
    fn half_a_file_and_the_file_of_an_earlier_process_say_nothing() {
        let whole = r#"{"procStart":"12","sessionId":"s","status":"idle","statusUpdatedAt":5}"#;
        for end in 0..whole.len() {
            assert_eq!(parse(facts(), &whole[..end], "12@boot", &now()), None, "{}", &whole[..end]);
        }
        assert_eq!(parse(facts(), whole, "13@boot", &now()), None);
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(facts(), dir.path(), "12@boot", &now()), None, "a directory");
    }

    #[test]
    fn only_files_named_by_a_pid_are_looked_at() {
        assert_eq!(pid_of(Path::new("/x/12.json")), Some(12));
        for other in ["/x/12.json.tmp", "/x/a.json", "/x/.json", "/x", "/x/-1.json"] {
            assert_eq!(pid_of(Path::new(other)), None, "{other}");
        }
    }
}
