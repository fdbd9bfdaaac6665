//! The daemon: owns the database, knows who is calling, and pushes what happens to those it concerns.
//!
//! A request goes one way: `rpc` makes a command of it, `engine` runs the command (load, decide, save, commit) and then its
//! effects. The rules are the crate `tt-rules`, the storage is `tt-store`. `lifecycle` starts and stops everything.

pub mod background;
mod boot_sleep;
pub mod clock;
pub mod delivery;
pub mod engine;
pub mod feed;
pub mod identity;
pub mod lifecycle;
pub mod listeners;
pub mod liveness;
pub mod membership_cursors;
pub mod presence;
pub mod rpc;
pub mod sessions;
pub mod timers;
pub mod unread;
pub mod views;
pub mod waiters;
pub mod workspace;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use lifecycle::descriptors::Descriptors;
use lifecycle::{Daemon, Options, Ready, detach, log};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode, VERSION};

const HELP: &str = "\
ttd, the daemon of Talking Stick. tt starts it by itself; run it by hand only under a supervisor.

Usage: ttd [--detached]

  --detached   leave the caller's session and report readiness as one line of JSON on standard output
  --version    print the version
  --help       print this
";

/// The whole program.
pub fn main() -> ExitCode {
    let mut detached = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--detached" => detached = true,
            "--version" => return say(std::io::stdout(), &format!("ttd {VERSION}\n"), ExitCode::SUCCESS),
            "--help" => return say(std::io::stdout(), HELP, ExitCode::SUCCESS),
            other => {
                return say(std::io::stderr(), &format!("ttd: unknown argument {other}\n\n{HELP}"), ExitCode::from(2));
            }
        }
    }
    if detached && let Err(e) = detach::detach() {
        return say(std::io::stderr(), &format!("ttd: cannot detach: {e}\n"), ExitCode::FAILURE);
    }
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let started = start(&Environment::of_this_process(), detached);
    let ready = match &started {
        Ok(Some(_)) => Ok(Ready { pid: std::process::id(), already_running: false }),
        Ok(None) => Ok(Ready { pid: std::process::id(), already_running: true }),
        Err(e) => Err(e.clone()),
    };
    if detached {
        detach::report(&ready);
    }
    match started {
        Ok(Some(started)) => run(started),
        Ok(None) => ExitCode::SUCCESS,
        Err(e) => say(std::io::stderr(), &format!("ttd: {e}\n  {}\n", e.hint), ExitCode::FAILURE),
    }
}

/// A daemon that is ready to serve.
struct Started {
    daemon: Daemon,
    runtime: Runtime,
    signals: Signals,
}

fn start(env: &Environment, detached: bool) -> Result<Option<Started>, Error> {
    let mut options = Options::from_environment(env)?;
    lifecycle::data_dir::prepare(&options.paths, options.filesystem)?;
    log::start(&options.paths.log(), env.get_str("TTD_LOG")).map_err(|e| {
        Error::new(
            ErrorCode::StorageUnavailable,
            format!("cannot write the log {}: {e}", options.paths.log().display()),
        )
        .hint("make the data directory writable and its disk not full")
    })?;
    // A daemon in the foreground has a supervisor, or a person, who decides when it ends.
    options.supervised = !detached;
    // Only systemd passes descriptors, and then the daemon was not detached by a client.
    let passed = if detached { listenfd::ListenFd::empty() } else { listenfd::ListenFd::from_env() };
    Descriptors::raise_limit();
    // Before the lock: a process that finds this one by its lock file may signal it, and it must end in order.
    let cannot = |e: std::io::Error| Error::new(ErrorCode::StorageUnavailable, format!("no runtime: {e}"));
    let runtime = runtime().map_err(cannot)?;
    let signals = Signals::listen(&runtime).map_err(cannot)?;
    Ok(Daemon::start(options, passed)?.map(|daemon| Started { daemon, runtime, signals }))
}

/// The runtime of the daemon, with threads that stay. Left to itself the runtime ends a thread that has had nothing to do for ten seconds and starts one
/// when it is needed again: a daemon at rest would keep waking up to do nothing. So there are few of them, for readers
/// and for looks at the disk, and they sleep until there is work.
pub fn runtime() -> std::io::Result<Runtime> {
    const A_YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
    tokio::runtime::Builder::new_current_thread().max_blocking_threads(8).thread_keep_alive(A_YEAR).enable_all().build()
}

fn run(started: Started) -> ExitCode {
    let Started { daemon, runtime, signals } = started;
    let served = runtime.block_on(async {
        tokio::spawn(signals.stop(daemon.stopper()));
        daemon.serve().await
    });
    // A thread may still wait for a disk that hangs; everything is written, and the process does not wait for it.
    runtime.shutdown_background();
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("{e}");
            say(std::io::stderr(), &format!("ttd: {e}\n  {}\n", e.hint), ExitCode::FAILURE)
        }
    }
}

/// The signals that end the daemon, remembered from `listen` on; and one that must not end it: where a file may not grow,
/// the write fails as well.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    _file_too_long: Signal,
}

impl Signals {
    fn listen(runtime: &Runtime) -> std::io::Result<Self> {
        let _inside = runtime.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            _file_too_long: signal(SignalKind::from_raw(libc::SIGXFSZ))?,
        })
    }

    async fn stop(mut self, stopper: lifecycle::Stopper) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
        stopper.stop();
    }
}

fn say(mut to: impl Write, text: &str, code: ExitCode) -> ExitCode {
    let _ = to.write_all(text.as_bytes());
    code
}
