//! A world: its directory, its programs, its disk, its actors. Dropping it ends every process it started.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::actors::{self, Actor};
use crate::control::Control;
use crate::evidence::MEMBER;
use crate::processes;
use crate::stage::Stage;
use crate::{Fallible, say};

/// What there is in the directory of a world.
#[derive(Debug, Clone)]
pub(crate) struct Places(PathBuf);

impl Places {
    pub(crate) fn at(dir: &Path) -> Self {
        Self(dir.to_owned())
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn tt(&self) -> PathBuf {
        self.0.join("bin/tt")
    }

    pub(crate) fn ttd(&self) -> PathBuf {
        self.0.join("bin/ttd")
    }

    /// Starts the daemon with the library that makes its disk fail.
    pub(crate) fn starter(&self) -> PathBuf {
        self.0.join("bin/start-ttd")
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.0.join("work")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// Where the data directory is kept when its own file system is gone.
    pub(crate) fn kept_data(&self) -> PathBuf {
        self.0.join("data-kept")
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.0.join("journals")
    }

    pub(crate) fn outputs(&self) -> PathBuf {
        self.0.join("outputs")
    }

    /// The environment of every program: times that are short enough for a run of a minute.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables: Vec<(OsString, OsString)> = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("RUST_BACKTRACE", "1"),
            ("TALKING_STICK_OWNER_LEASE_TTL", "2s"),
            ("TALKING_STICK_OWNER_ACTIVITY_TTL", "3s"),
            ("TALKING_STICK_CLAIM_TTL", "1s"),
            ("TALKING_STICK_WAITER_GRACE", "300ms"),
            ("TALKING_STICK_HEARTBEAT_INTERVAL", "1s"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .into();
        variables.push(("HOME".into(), self.0.join("home").into()));
        variables.push(("TALKING_STICK_DATA_DIR".into(), self.data().into()));
        variables.push(("TALKING_STICK_DAEMON".into(), self.starter().into()));
        variables
    }

    /// The environment of one actor's programs.
    pub(crate) fn variables_of(&self, actor: &dyn Actor, number: usize) -> Vec<(OsString, OsString)> {
        let mut variables = self.variables();
        if !actor.is_anonymous(number) {
            variables.push(("TT_HARNESS_AGENT_ID".into(), actor.agent_id(number).into()));
        }
        variables
    }
}

/// An actor's processes, below a shell that leads their session, and how often they were started.
struct Player {
    kind: &'static dyn Actor,
    number: usize,
    shell: Option<Child>,
    starts: u64,
    start_at: Instant,
}

pub(crate) struct World {
    pub places: Places,
    pub control: Option<Control>,
    /// Whether the data directory has a file system of its own.
    pub has_own_disk: bool,
    seed: u64,
    players: Vec<Player>,
}

/// The size of the data directory's file system: room for what a run writes.
fn disk_size_kib(seconds: u64) -> u64 {
    64 * 1024 + seconds * 128
}

impl World {
    pub(crate) fn create(seed: u64, seconds: u64) -> Fallible<Self> {
        // Not `$TMPDIR`, which may be long: the socket's address must fit.
        let dir = tempfile::Builder::new().prefix("tt-chaos-").tempdir_in("/tmp")?.keep();
        let places = Places::at(&dir);
        for sub in ["bin", "home", "work", "journals", "outputs"] {
            std::fs::create_dir(dir.join(sub))?;
        }
        std::fs::create_dir(places.data())?;
        let has_own_disk = mount(&places.data(), disk_size_kib(seconds));
        if let Err(e) = &has_own_disk {
            say(&format!("not run: a disk that is really full: {e}"));
        }
        std::fs::set_permissions(places.data(), std::fs::Permissions::from_mode(0o700))?;
        let own = std::env::current_exe()?;
        let built = own.parent().ok_or("this program is in no directory")?;
        for name in ["tt", "ttd"] {
            std::fs::copy(built.join(name), dir.join("bin").join(name))?;
        }
        let control = Control::build(&dir);
        if let Err(e) = &control {
            say(&format!("not run: failing and slow disks, clocks that jump: {e}"));
        }
        let control = control.ok();
        let mut starter = "#!/bin/sh\n".to_owned();
        for (name, value) in control.iter().flat_map(Control::variables) {
            starter += &format!("export {name}='{}'\n", value.display());
        }
        starter += &format!("exec '{}' \"$@\"\n", places.ttd().display());
        std::fs::write(places.starter(), starter)?;
        std::fs::set_permissions(places.starter(), std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { places, control, has_own_disk: has_own_disk.is_ok(), seed, players: Vec::new() })
    }

    /// The stage of an actor for something that is done in its name by this process.
    pub(crate) fn stage(&self, actor: &dyn Actor, number: usize, what: &str) -> Fallible<Stage> {
        let name = format!("{}-{number}.{what}", actor.kind());
        Stage::new(self.places.clone(), name, self.seed, self.places.variables_of(actor, number))
    }

    /// A stage for something that is done in the name of a member that no actor is any more.
    pub(crate) fn stage_of_member(&self, agent_id: &str) -> Fallible<Stage> {
        let mut variables = self.places.variables();
        variables.push(("TT_HARNESS_AGENT_ID".into(), agent_id.into()));
        Stage::new(self.places.clone(), format!("{MEMBER}{agent_id}.rest"), self.seed, variables)
    }

    /// Makes everybody a member, and then lets them play.
    pub(crate) fn open(&mut self) -> Fallible<()> {
        for (actor, number) in actors::members() {
            let joined = self.stage(actor, number, "join")?.run(&["join", "--json"], None)?;
            if !joined.status.success() {
                return Err(format!("{} cannot join: {}", actor.agent_id(number), joined.stderr).into());
            }
        }
        for (kind, number) in actors::cast() {
            let start_at = Instant::now();
            self.players.push(Player { kind, number, shell: None, starts: 0, start_at });
        }
        Ok(())
    }

    /// Starts the actors that do not play. Returns what must not have happened.
    pub(crate) fn keep_playing(&mut self) -> Fallible<Vec<String>> {
        let mut broken = Vec::new();
        for player in &mut self.players {
            if let Some(shell) = &mut player.shell {
                let Some(status) = shell.try_wait()? else { continue };
                player.shell = None;
                broken.push(format!("{}-{} ended by itself: {status}", player.kind.kind(), player.number));
            }
            if Instant::now() >= player.start_at {
                player.start(&self.places, self.seed)?;
            }
        }
        Ok(broken)
    }

    pub(crate) fn kill_actor(&mut self, which: u64, restart_after: Duration) -> Fallible<()> {
        let count = self.players.len();
        let player = &mut self.players[usize::try_from(which)? % count];
        if let Some(mut shell) = player.shell.take() {
            signal_group(&shell, Signal::SIGKILL);
            shell.wait()?;
            player.start_at = Instant::now() + restart_after;
        }
        Ok(())
    }

    pub(crate) fn signal_actor(&self, which: u64, signal: Signal) -> Fallible<()> {
        let player = &self.players[usize::try_from(which)? % self.players.len()];
        if let Some(shell) = &player.shell {
            signal_group(shell, signal);
        }
        Ok(())
    }

    /// Lets everybody finish. Returns who did not.
    pub(crate) fn end_play(&mut self, limit: Duration) -> Fallible<Vec<String>> {
        let give_up = Instant::now() + limit;
        for player in &mut self.players {
            if let Some(shell) = &mut player.shell {
                drop(shell.stdin.take());
            }
        }
        let mut stuck = Vec::new();
        for player in &mut self.players {
            let Some(mut shell) = player.shell.take() else { continue };
            while shell.try_wait()?.is_none() {
                if Instant::now() > give_up {
                    stuck.push(format!("{}-{} does not end", player.kind.kind(), player.number));
                    signal_group(&shell, Signal::SIGKILL);
                    shell.wait()?;
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(stuck)
    }

    pub(crate) fn starts(&self) -> u64 {
        self.players.iter().map(|player| player.starts).sum()
    }

    /// The pids of the daemons, seen from outside of every namespace.
    pub(crate) fn daemons(&self) -> Vec<u32> {
        processes::running(&self.places.ttd())
    }

    pub(crate) fn signal_daemons(&self, signal: Signal) {
        self.daemons().into_iter().for_each(|pid| processes::signal(pid, signal));
    }
}

impl Player {
    fn start(&mut self, places: &Places, seed: u64) -> Fallible<()> {
        self.starts += 1;
        let own = std::env::current_exe()?;
        let role = [
            "--role",
            &places.dir().display().to_string(),
            self.kind.kind(),
            &self.number.to_string(),
            &self.starts.to_string(),
        ]
        .map(str::to_owned);
        // The shell leads a session, as in a terminal: the members below it live as long as it does.
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", "\"$@\"; exit $?", "sh"]).args(self.kind.launcher()).arg(own).args(role);
        command.args(["--seed", &seed.to_string()]).args(actors::left_out().iter().flat_map(|k| ["--without", k]));
        command.env_clear().envs(places.variables_of(self.kind, self.number)).current_dir(places.workspace());
        let errors = places.outputs().join(format!("{}-{}.{}.err", self.kind.kind(), self.number, self.starts));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(std::fs::File::create(errors)?);
        self.shell = Some(command.spawn()?);
        Ok(())
    }
}

/// Sends a signal to the shell of an actor and to everything it runs. A daemon has left the group.
fn signal_group(shell: &Child, signal: Signal) {
    if let Ok(pid) = i32::try_from(shell.id()) {
        let _ = kill(Pid::from_raw(-pid), signal);
    }
}

/// Gives a directory a file system of its own, in memory, which disappears with this process's mount namespace.
fn mount(dir: &Path, size_kib: u64) -> Fallible<()> {
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("size={size_kib}k,mode=0700"), "tt-chaos"]).arg(dir);
    let mounted = mount.output()?;
    if mounted.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&mounted.stderr).trim().into()) }
}

impl Drop for World {
    fn drop(&mut self) {
        for player in &mut self.players {
            if let Some(mut shell) = player.shell.take() {
                signal_group(&shell, Signal::SIGKILL);
                let _ = shell.wait();
            }
        }
        self.signal_daemons(Signal::SIGKILL);
    }
}
