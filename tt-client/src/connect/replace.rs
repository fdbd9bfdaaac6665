//! Two versions on one machine: a newer client replaces an older daemon, once; an older client never touches a newer one.

use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tt_proto::hello::Program;
use tt_proto::requests::Welcome;
use tt_proto::{Error, ErrorCode};

use super::start::daemon_program;
use super::{HttpClient, Settings};

/// How long a daemon may take to exit. It finishes calls for at most two times five seconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// How often to check whether a daemon that was told to stop has exited.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// How long a daemon that does not answer has to exit after SIGTERM.
const SIGTERM_GRACE: Duration = Duration::from_secs(3);

/// How long the process of a daemon may take to end once it has let go of its lock.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a process holds the daemon's lock, and which one the file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    Free,
    Held { pid: Option<u32> },
}

/// Looks at the daemon's lock without waiting for it.
pub fn lock_state(settings: &Settings) -> LockState {
    let path = settings.paths.lock();
    let Ok(file) = File::open(&path) else { return LockState::Free };
    // Shared, so that two processes that look do not take each other for the daemon.
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let pid = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
            LockState::Held { pid }
        }
        Ok(()) | Err(TryLockError::Error(_)) => LockState::Free,
    }
}

/// Whether the daemon that answered should make way for the one this client would start.
pub(super) fn should_replace(settings: &Settings, welcome: &Welcome) -> bool {
    if welcome.supervised || !settings.autostart || !newer(&settings.version, &welcome.version) {
        return false;
    }
    brings_another(settings, welcome.program.as_ref())
}

/// Whether the program we would start is another than the one that runs. If it is the same, a restart would bring the same
/// version again, for ever.
fn brings_another(settings: &Settings, theirs: Option<&Program>) -> bool {
    let ours = daemon_program(settings).ok().and_then(|program| std::fs::metadata(program).ok());
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => (ours.dev(), ours.ino()) != (theirs.device, theirs.inode),
        (ours, _) => ours.is_some(),
    }
}

/// The pid of a daemon that refused us because it is older.
pub(super) fn outdated(settings: &Settings, error: &Error) -> Option<u32> {
    let detail = |key: &str| error.details.get(key);
    let number = |key: &str| detail(key).and_then(serde_json::Value::as_u64);
    let older = error.code == ErrorCode::ProtocolMismatch
        && number("daemon_protocol").is_some_and(|theirs| theirs < u64::from(settings.protocol));
    let supervised = detail("supervised").and_then(serde_json::Value::as_bool).unwrap_or(false);
    let program: Option<Program> = detail("program").and_then(|value| serde_json::from_value(value.clone()).ok());
    let pid = number("daemon_pid").and_then(|pid| u32::try_from(pid).ok());
    pid.filter(|_| older && !supervised && settings.autostart && brings_another(settings, program.as_ref()))
}

/// Waits for the older daemon to end; the caller then starts its own. A daemon that did not agree to stop is sent SIGTERM.
/// Calls under way on the old one finish first.
pub(super) fn replace(settings: &Settings, pid: u32, agreed: bool) -> Result<(), Error> {
    if !agreed {
        terminate(settings, pid, Signal::SIGTERM);
    }
    wait_until_gone(settings, Some(pid), STOP_TIMEOUT)
}

/// Stops the daemon whether it answers or not: asks, then SIGTERM, then SIGKILL. It is safe to end it at any instant. Its process
/// is gone afterwards, and with it all that it had open.
pub fn stop(settings: &Settings, client: Option<HttpClient>) -> Result<bool, Error> {
    let LockState::Held { pid } = signed_lock(settings) else { return Ok(false) };
    release_lock(settings, client, pid)?;
    if let Some(pid) = pid {
        wait_for_exit(pid);
    }
    Ok(true)
}

/// The state of the lock. A daemon that has taken it this instant is about to sign it; where several are restarted, so may the
/// next one be.
fn signed_lock(settings: &Settings) -> LockState {
    let give_up = Instant::now() + SIGTERM_GRACE;
    loop {
        let state = lock_state(settings);
        if state != (LockState::Held { pid: None }) || Instant::now() >= give_up {
            return state;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Makes the daemon that holds the lock let go of it.
fn release_lock(settings: &Settings, client: Option<HttpClient>, pid: Option<u32>) -> Result<(), Error> {
    if let Some(mut client) = client
        && client.ask_to_stop()
        && wait_until_gone(settings, pid, STOP_TIMEOUT).is_ok()
    {
        return Ok(());
    }
    let pid = pid.ok_or_else(|| {
        Error::new(ErrorCode::DaemonUnreachable, "the daemon does not answer and its lock file names no pid")
            .hint("find it with `pgrep ttd` and end it")
    })?;
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        // The pid is the daemon's only for as long as the lock is held.
        if lock_state(settings) != (LockState::Held { pid: Some(pid) }) {
            return Ok(());
        }
        terminate(settings, pid, signal);
        if wait_until_gone(settings, Some(pid), SIGTERM_GRACE).is_ok() {
            return Ok(());
        }
    }
    Err(Error::new(ErrorCode::DaemonUnreachable, format!("the daemon (pid {pid}) could not be ended")))
}

fn terminate(settings: &Settings, pid: u32, signal: Signal) {
    if lock_state(settings) == (LockState::Held { pid: Some(pid) })
        && let Ok(pid) = i32::try_from(pid)
    {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// Waits until the process of a daemon that has let go of its lock is gone: it ends a moment later. The pid may be of another
/// process by then, or of one in another pid namespace, so that the wait is short.
fn wait_for_exit(pid: u32) {
    let give_up = Instant::now() + EXIT_TIMEOUT;
    while is_running(pid) && Instant::now() < give_up {
        thread::sleep(POLL_INTERVAL);
    }
}

/// Whether there is such a process that has anything open. One that has ended and whose parent has not noticed has nothing.
fn is_running(pid: u32) -> bool {
    let exists = i32::try_from(pid).is_ok_and(|pid| kill(Pid::from_raw(pid), None) != Err(Errno::ESRCH));
    exists && !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| has_ended(&stat))
}

/// Whether a line of `/proc/<pid>/stat` shows a process whose last thread has ended.
fn has_ended(stat: &str) -> bool {
    // The name may contain anything, so the fields are counted from its end: the state, and 17 fields later the number of threads.
    let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    fields.next().is_some_and(|state| matches!(state, "Z" | "X"))
        && fields.nth(16).is_some_and(|count| matches!(count, "0" | "1"))
}

/// Waits until the daemon of this pid no longer holds the lock, which is when others may have it. The next one may have the
/// lock by then, so that waiting for the lock itself could be waiting for ever.
fn wait_until_gone(settings: &Settings, pid: Option<u32>, timeout: Duration) -> Result<(), Error> {
    let give_up = Instant::now() + timeout;
    while lock_state(settings) == (LockState::Held { pid }) {
        if Instant::now() >= give_up {
            return Err(Error::new(ErrorCode::DaemonUnreachable, "the daemon did not end in time")
                .hint("run `tt daemon restart`")
                .detail("log", settings.paths.log().display().to_string()));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Compares versions by their numbers; a version that cannot be read is not newer.
fn newer(ours: &str, theirs: &str) -> bool {
    let numbers = |version: &str| -> Option<Vec<u64>> {
        version.split(['-', '+']).next()?.split('.').map(|part| part.parse().ok()).collect()
    };
    matches!((numbers(ours), numbers(theirs)), (Some(ours), Some(theirs)) if ours > theirs)
}

#[cfg(test)]
mod tests {
    use super::{has_ended, is_running, newer};

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let stat = |state: &str, threads: u32| {
            let before = (4..=19).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
            format!("7 (a) b) {state} {before} {threads} 21 22\n")
        };
        assert!(has_ended(&stat("Z", 1)) && has_ended(&stat("X", 0)));
        assert!(!has_ended(&stat("Z", 2)), "its main thread has ended");
        assert!(!has_ended(&stat("S", 1)) && !has_ended("") && !has_ended("7 (a"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_that_nobody_has_collected_is_not_running() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(is_running(child.id()));
        drop(child.stdin.take());
        while is_running(child.id()) {
            std::thread::yield_now();
        }
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert!(stat.contains(") Z "), "{stat}");
        child.wait().unwrap();
        assert!(!is_running(child.id()));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        for (ours, theirs, expected) in [
            ("0.2.0", "0.1.9", true),
            ("0.10.0", "0.9.0", true),
            ("0.2.0", "0.2.0", false),
            ("0.2.0-dev", "0.2.0", false),
            ("0.1.0", "0.2.0", false),
            ("unknown", "0.1.0", false),
        ] {
            assert_eq!(newer(ours, theirs), expected, "{ours} {theirs}");
        }
    }
}
