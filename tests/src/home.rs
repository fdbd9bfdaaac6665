//! A home of its own: directory, environment, programs and daemon, gone when the test is.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tt_proto::paths::{Environment, Paths};
use ttd::lifecycle::Options;

use crate::run::{self, Finished, Running};
use crate::{LIMIT, process, within};

/// The only programs a test reaches besides our own.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A home for the programs of the target that calls this: only the target knows where Cargo put them.
#[macro_export]
macro_rules! home {
    () => {
        $crate::Home::new(env!("CARGO_BIN_EXE_tt"), env!("CARGO_BIN_EXE_ttd"))
    };
}

/// A scratch home directory with its own data directory. Dropping it ends the daemon that serves it.
#[derive(Debug)]
pub struct Home {
    dir: tempfile::TempDir,
    tt: PathBuf,
    ttd: PathBuf,
}

impl Home {
    #[track_caller]
    pub fn new(tt: impl Into<PathBuf>, ttd: impl Into<PathBuf>) -> Self {
        // Not `$TMPDIR`, which may be long: the socket's address must fit.
        let dir = tempfile::Builder::new().prefix("tt").tempdir_in("/tmp");
        Self { dir: dir.unwrap_or_else(|e| panic!("no scratch home: {e}")), tt: tt.into(), ttd: ttd.into() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn ttd_path(&self) -> &Path {
        &self.ttd
    }

    pub fn tt_path(&self) -> &Path {
        &self.tt
    }

    /// What a program of this home sees of the world.
    pub fn environment(&self) -> Environment {
        Environment::of([("HOME", self.path().as_os_str()), ("PATH", PATH.as_ref())])
    }

    #[track_caller]
    pub fn paths(&self) -> Paths {
        Paths::resolve(&self.environment()).unwrap_or_else(|e| panic!("{e}"))
    }

    /// How a daemon of this home runs in process, before a test changes it.
    #[track_caller]
    pub fn options(&self) -> Options {
        Options::new(self.paths())
    }

    /// Any program, in this home and in nothing else of the caller's environment.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("HOME", self.path()).env("PATH", PATH).current_dir(self.path());
        command
    }

    pub fn tt(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.tt);
        command.args(args);
        command
    }

    pub fn ttd(&self) -> Command {
        self.command(&self.ttd)
    }

    /// Runs `tt` to its end.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Finished {
        run::finish(&mut self.tt(args))
    }

    /// Starts the daemon and names it.
    #[track_caller]
    pub fn start(&self) -> u32 {
        self.run(&["daemon", "start"]).ok();
        self.daemon().unwrap_or_else(|| panic!("no daemon holds the lock"))
    }

    /// Waits for a daemon that the test started itself, by asking until it answers.
    #[track_caller]
    pub fn wait_for(&self, daemon: &Running) {
        let give_up = Instant::now() + LIMIT;
        while self.run(&["--no-autostart", "whoami"]).code != Some(0) {
            assert!(!daemon.ended_within(Duration::ZERO), "the daemon ended");
            assert!(Instant::now() < give_up, "the daemon does not answer");
        }
    }

    /// The running daemon's account of itself.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        self.run(&["daemon", "status", "--json"]).ok().json()
    }

    /// The pid of the daemon that holds the lock.
    pub fn daemon(&self) -> Option<u32> {
        let path = self.paths().lock();
        let file = File::open(&path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => std::fs::read_to_string(&path).ok()?.trim().parse().ok(),
            _ => None,
        }
    }

    /// Waits for the lock to come free, which is when the daemon has truly gone.
    #[track_caller]
    pub fn wait_until_gone(&self) {
        let path = self.paths().lock();
        let free = within(LIMIT, move || File::open(path).and_then(|file| file.lock_shared()));
        assert!(matches!(free, Some(Ok(()))), "the daemon is still there: {free:?}");
    }

    /// Makes the data directory as a first run would.
    #[track_caller]
    pub fn make_data_dir(&self) -> PathBuf {
        let dir = self.paths().data_dir;
        tt_proto::paths::ensure_private_dir(&dir).unwrap_or_else(|e| panic!("{e}"));
        dir
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.paths().log()).unwrap_or_default()
    }

    /// Writes a program into this home.
    #[track_caller]
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        self.try_script(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    fn try_script(&self, path: &Path, text: &str) -> std::io::Result<()> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        // Written by a process of its own: were the file open for writing here, a child that another test starts at
        // this moment would inherit the descriptor, and running the script would fail with "text file busy".
        let mut copy = Command::new("/bin/sh");
        copy.arg("-c").arg("printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"").arg("sh").arg(text).arg(path);
        if copy.status()?.success() { Ok(()) } else { Err(std::io::ErrorKind::Other.into()) }
    }

    /// A copy of a program where every user can run it.
    #[track_caller]
    pub fn for_everyone(&self, program: &Path) -> PathBuf {
        let name = program.file_name().unwrap_or_default();
        let copy = self.path().join("everyone").join(name);
        let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755));
        let made = open(self.path())
            .and_then(|()| std::fs::create_dir_all(self.path().join("everyone")))
            .and_then(|()| open(&self.path().join("everyone")))
            .and_then(|()| Command::new("cp").arg(program).arg(&copy).status())
            .and_then(|_| open(&copy));
        made.unwrap_or_else(|e| panic!("cannot copy {}: {e}", program.display()));
        copy
    }

    /// Waits until a member of this harness holds the stick in the workspace that everybody shares.
    #[track_caller]
    pub fn until_member(&self, harness: &str) {
        let started = Instant::now();
        loop {
            let mut look = self.tt(&["state", "--json"]);
            let state = crate::run::finish(look.current_dir(self.workspace()));
            let state = serde_json::from_str::<serde_json::Value>(&state.stdout).unwrap_or_default();
            if state["room"]["owner"].as_str().is_some_and(|owner| owner.starts_with(harness)) {
                return;
            }
            assert!(started.elapsed() < LIMIT, "no member of {harness}: {state}");
        }
    }

    /// Waits until somebody is in a wait in the workspace at this path below the home.
    #[track_caller]
    pub fn until_waiting(&self, workspace: &str) {
        let started = std::time::Instant::now();
        loop {
            let mut look = self.tt(&["state", "--json"]);
            let state = crate::run::finish(look.current_dir(self.path().join(workspace))).ok().json();
            let members = state["members"].as_array().cloned().unwrap_or_default();
            if members.iter().any(|member| member["waiting"] == true) {
                return;
            }
            assert!(started.elapsed() < crate::LIMIT, "nobody waits: {state}");
        }
    }

    /// Ends the daemon without a chance to clean up.
    #[track_caller]
    pub fn kill_daemon(&self) {
        let pid = self.daemon().unwrap_or_else(|| panic!("no daemon holds the lock"));
        send(pid, Signal::SIGKILL);
        self.wait_until_gone();
    }
}

/// Sends a signal to a daemon of this test.
pub fn send(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid.try_into().unwrap_or(i32::MAX)), signal);
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some(pid) = self.daemon() else { return };
        // A daemon in process stops by itself, and a process that is not a daemon of this home is not ours to end.
        if pid != std::process::id() && process::serves(pid, &self.paths()) {
            send(pid, Signal::SIGKILL);
            let path = self.paths().lock();
            let _ = within(LIMIT, move || OpenOptions::new().read(true).open(path).map(|file| file.lock_shared()));
        }
    }
}
