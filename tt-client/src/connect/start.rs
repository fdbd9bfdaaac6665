//! Starting the daemon: one client at a time does it, the others find it done.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Deserialize;
use tt_proto::paths::ensure_private_dir;
use tt_proto::policy::PolicyOverrides;
use tt_proto::{Error, ErrorCode};

use super::Settings;
use super::socket::{self, Opened};

/// The variables that the daemon is started with. A call carries the facts about its caller's environment itself.
const PASSED_VARIABLES: &[&str] = &[
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "RUST_BACKTRACE",
    "TALKING_STICK_IDLE_EXIT",
    "TTD_LOG",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
    "TALKING_STICK_CONFIG_DIR",
];

/// How a start ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// This client started it.
    Now,
    /// Another client was faster, or it was running all along.
    AlreadyRunning,
}

/// The daemon's one line on the readiness pipe.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    Ready { already_running: bool },
    Failed(Error),
}

/// How often a daemon is started again that somebody killed before it was ready, and how long to wait before.
const MAX_KILLED_STARTS: usize = 20;
const RESTART_DELAY: Duration = Duration::from_millis(50);

/// Starts the daemon and waits until it is ready. Losing the race to start it is success. A daemon that was killed while it
/// started did nothing wrong, and is started again.
pub fn start(settings: &Settings) -> Result<Started, Error> {
    for _ in 1..MAX_KILLED_STARTS {
        match try_start(settings) {
            Err(StartError::Killed(_)) => thread::sleep(RESTART_DELAY),
            done => return done.map_err(StartError::into_error),
        }
    }
    try_start(settings).map_err(StartError::into_error)
}

/// Why the daemon did not start.
#[derive(Debug)]
enum StartError {
    /// A signal that only somebody else sends ended it before it was ready.
    Killed(Error),
    Failed(Error),
}

impl StartError {
    fn into_error(self) -> Error {
        match self {
            Self::Killed(error) | Self::Failed(error) => error,
        }
    }
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn try_start(settings: &Settings) -> Result<Started, StartError> {
    ensure_private_dir(&settings.paths.data_dir)?;
    let _starting = lock(settings.paths.start_lock(), settings.start_timeout)?;
    if matches!(socket::open(&settings.paths.socket, settings.deadline), Opened::Stream(_) | Opened::Busy) {
        return Ok(Started::AlreadyRunning);
    }
    let program = daemon_program(settings)?;
    let mut child = command(settings, &program)?.spawn().map_err(|e| {
        Error::new(ErrorCode::DaemonUnreachable, format!("cannot start {}: {e}", program.display()))
            .hint("install tt and ttd together: cargo install --path tt-client --locked")
    })?;
    let died = |what: String| {
        Error::new(ErrorCode::DaemonUnreachable, what)
            .hint(format!("look at {}", settings.paths.log().display()))
            .detail("log", settings.paths.log().display().to_string())
    };
    let pipe = child.stdout.take().ok_or_else(|| died("the daemon's readiness pipe could not be read".into()))?;
    let (sender, report) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        let _ = BufReader::new(pipe).read_line(&mut line);
        // Without a line it has ended, or is about to.
        let ended = if line.is_empty() { child.wait().ok() } else { None };
        let killed = ended.and_then(|status| status.signal()).is_some_and(is_from_outside);
        let _ = sender.send((line, killed));
        // A client that lives on must not keep the daemon as a zombie once it ends.
        let _ = child.wait();
    });
    let timed_out = |_| died(format!("the daemon was not ready after {} s", settings.start_timeout.as_secs()));
    let (line, killed) = report.recv_timeout(settings.start_timeout).map_err(timed_out)?;
    match serde_json::from_str(&line) {
        Ok(Report::Ready { already_running: true }) => Ok(Started::AlreadyRunning),
        Ok(Report::Ready { already_running: false }) => Ok(Started::Now),
        Ok(Report::Failed(error)) => Err(error.detail("log", settings.paths.log().display().to_string()).into()),
        Err(_) if killed => Err(StartError::Killed(died("the daemon died while starting: it was killed".into()))),
        Err(_) => Err(died("the daemon died while starting".into()).into()),
    }
}

/// Whether a process does not send itself this signal when it crashes.
fn is_from_outside(signal: i32) -> bool {
    [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].iter().any(|known| *known as i32 == signal)
}

fn command(settings: &Settings, program: &Path) -> Result<Command, Error> {
    let log = settings.paths.log();
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(&log).map_err(|e| {
        Error::new(ErrorCode::StorageUnavailable, format!("cannot write the log {}: {e}", log.display()))
            .hint("make the data directory writable and its disk not full")
            .detail("path", log.display().to_string())
    })?;
    let mut command = Command::new(program);
    command.arg("--detached").env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    for name in PASSED_VARIABLES {
        if let Some(value) = settings.env.get(name) {
            command.env(name, value);
        }
    }
    for key in PolicyOverrides::KEYS {
        let name = format!("TALKING_STICK_{}", key.to_uppercase());
        if let Some(value) = settings.env.get(&name) {
            command.env(name, value);
        }
    }
    command.env("TALKING_STICK_DATA_DIR", &settings.paths.data_dir);
    if settings.env.get("TALKING_STICK_SOCKET").is_some() {
        command.env("TALKING_STICK_SOCKET", &settings.paths.socket);
    }
    Ok(command)
}

/// Locks a file, for as long as the returned handle lives, and writes our pid into it for a process that waits too long.
fn lock(path: PathBuf, timeout: Duration) -> Result<File, Error> {
    let shown = path.display().to_string();
    let cannot = |e: std::io::Error| {
        Error::new(ErrorCode::StorageUnavailable, format!("cannot lock {shown}: {e}"))
            .hint("make the data directory writable and its disk not full")
            .detail("path", shown.clone())
    };
    let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).clone();
    let file = options.open(&path).map_err(cannot)?;
    let signed = |mut file: File| {
        // On a full disk it stays anonymous.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        file
    };
    if file.try_lock().is_ok() {
        return Ok(signed(file));
    }
    // A blocked lock cannot be given up, so it is taken on a thread of its own, which ends with this process at the latest.
    let (sender, locked) = mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(file.lock().map(|()| file));
    });
    match locked.recv_timeout(timeout) {
        Ok(locked) => locked.map(signed).map_err(cannot),
        Err(_) => {
            let holder = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u32>().ok());
            let (message, hint) = match holder {
                Some(pid) => (
                    format!("{shown} stays locked by process {pid}"),
                    format!("another tt is stuck starting the daemon; end it with: kill -9 {pid}"),
                ),
                None => (
                    format!("{shown} stays locked by another process"),
                    "another tt is stuck starting the daemon; find it with: pgrep -l tt".to_owned(),
                ),
            };
            Err(Error::new(ErrorCode::DaemonUnreachable, message).hint(hint).detail("path", shown))
        }
    }
}

/// The `ttd` that belongs to this `tt`: named by `TALKING_STICK_DAEMON`, beside it, or on the path.
pub fn daemon_program(settings: &Settings) -> Result<PathBuf, Error> {
    if let Some(program) = &settings.daemon {
        return Ok(program.clone());
    }
    let own = std::env::current_exe().and_then(|exe| exe.canonicalize()).ok();
    let beside = own.and_then(|exe| exe.parent().map(|dir| dir.join("ttd")));
    let path = settings.env.get("PATH").map(std::env::split_paths).into_iter().flatten().map(|dir| dir.join("ttd"));
    beside.into_iter().chain(path).find(|candidate| candidate.is_file()).ok_or_else(|| {
        Error::new(ErrorCode::DaemonUnreachable, "there is no ttd beside tt or on the PATH")
            .hint("install both: cargo install --path tt-client --locked (in a checkout: cargo build --bins)")
    })
}
