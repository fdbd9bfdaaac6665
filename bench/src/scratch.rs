//! A scratch home beside the build, on the same disk: a data directory, a daemon of its own, clients and child processes.
//! Dropping one ends what it started and removes what it wrote.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tt_client::connect::{Client, HttpClient, Settings};
use tt_proto::RoomId;
use tt_proto::paths::{Environment, Paths};
use tt_proto::requests::JoinPath;

use crate::Fallible;

/// No step of a measurement takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// The directory the build lies in: this program is in `target/release`.
pub(crate) fn target_dir() -> Fallible<PathBuf> {
    let own = std::env::current_exe()?;
    let dir = own.parent().and_then(Path::parent).ok_or("this program lies in no target directory")?;
    Ok(dir.to_owned())
}

/// A program of the same build.
pub(crate) fn program(name: &str) -> Fallible<PathBuf> {
    let own = std::env::current_exe()?;
    let path = own.parent().ok_or("this program lies in no directory")?.join(name);
    if !path.is_file() {
        return Err(format!("there is no {}: cargo build --release --bins", path.display()).into());
    }
    Ok(path)
}

/// Brings the programs up to date when Cargo runs this one: it builds what it runs, and nothing beside.
pub(crate) fn build_programs() -> Fallible<()> {
    let Some(cargo) = Environment::of_this_process().get("CARGO").map(PathBuf::from) else { return Ok(()) };
    let built =
        Command::new(cargo).args(["build", "--release", "--locked", "--package", "tt-client", "--bins"]).status()?;
    if built.success() { Ok(()) } else { Err("tt and ttd could not be built".into()) }
}

/// A directory of its own, removed with all that is in it.
#[derive(Debug)]
struct Dir(PathBuf);

impl Dir {
    fn new() -> Fallible<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("ttbench-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = target_dir()?.join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A home with a daemon in it.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: Dir,
    daemon: Option<Child>,
}

impl Scratch {
    /// An empty home; no daemon yet.
    pub(crate) fn new() -> Fallible<Self> {
        let dir = Dir::new()?;
        std::fs::create_dir(dir.path().join("work"))?;
        let scratch = Self { dir, daemon: None };
        tt_proto::paths::ensure_private_dir(&scratch.data_dir())?;
        Ok(scratch)
    }

    /// A home whose daemon answers.
    pub(crate) async fn serving() -> Fallible<Self> {
        let mut scratch = Self::new()?;
        scratch.start().await?;
        Ok(scratch)
    }

    /// Starts the daemon, as a supervisor would, and waits until it answers.
    pub(crate) async fn start(&mut self) -> Fallible<()> {
        let mut command = self.command(&program("ttd")?);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.daemon = Some(command.spawn()?);
        let give_up = Instant::now() + PATIENCE;
        while let Err(e) = self.http_client("bench:start") {
            if Instant::now() >= give_up {
                return Err(e);
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Kills the daemon, wherever it is.
    pub(crate) fn kill_daemon(&mut self) -> Fallible<()> {
        let mut daemon = self.daemon.take().ok_or("no daemon")?;
        daemon.kill()?;
        daemon.wait()?;
        Ok(())
    }

    pub(crate) fn home(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.data_dir().join("rooms.sqlite")
    }

    /// The workspace that members of this home share.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn daemon_pid(&self) -> Fallible<u32> {
        Ok(self.daemon.as_ref().ok_or("no daemon")?.id())
    }

    pub(crate) fn socket(&self) -> Fallible<PathBuf> {
        Ok(Paths::resolve(&Environment::of(self.environment()))?.socket)
    }

    fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        vec![
            ("HOME", self.dir.path().to_owned()),
            ("TALKING_STICK_DATA_DIR", self.data_dir()),
            ("TALKING_STICK_CONFIG_DIR", self.data_dir()),
            ("PATH", "/usr/local/bin:/usr/bin:/bin".into()),
        ]
    }

    /// Any program, in this home and nothing else of the caller's environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(self.environment()).current_dir(self.workspace());
        command
    }

    /// The real `tt`, as a given agent.
    pub(crate) fn tt(&self, agent: &str, args: &[&str]) -> Fallible<Command> {
        let mut command = self.command(&program("tt")?);
        command.env("TT_HARNESS_AGENT_ID", agent).args(args);
        Ok(command)
    }

    /// The same, as a session of Claude Code that we are the process of.
    pub(crate) fn tt_in_claude(&self, args: &[&str]) -> Fallible<Command> {
        let mut command = self.command(&program("tt")?);
        command.env("CLAUDECODE", "1").env("CLAUDE_CODE_SESSION_ID", "bench");
        command.env("CLAUDE_PID", std::process::id().to_string()).args(args);
        Ok(command)
    }

    /// This program again, in a role, as a given agent.
    pub(crate) fn player(&self, agent: &str, role: &[&str]) -> Fallible<Player> {
        let mut command = self.command(&std::env::current_exe()?);
        command.env("TT_HARNESS_AGENT_ID", agent).arg("--role").args(role);
        Player::spawn(command)
    }

    fn settings(&self, agent: &str) -> Fallible<Settings> {
        let mut settings = settings(Environment::of(self.environment()), agent)?;
        settings.cwd = Some(self.workspace());
        Ok(settings)
    }

    fn join_request(&self) -> JoinPath {
        JoinPath { context_path: self.workspace().display().to_string(), ..Default::default() }
    }

    /// The connection of a short command, which has greeted the daemon.
    pub(crate) fn http_client(&self, agent: &str) -> Fallible<HttpClient> {
        Ok(HttpClient::connect(self.settings(agent)?)?)
    }

    /// The connection of a short command of a member of the workspace's room.
    pub(crate) fn http_member(&self, agent: &str) -> Fallible<(HttpClient, RoomId)> {
        let mut client = self.http_client(agent)?;
        let joined = client.call(&self.join_request())?;
        Ok((client, joined.room_id))
    }

    /// A WebSocket of a member of the workspace's room.
    pub(crate) async fn member(&self, agent: &str) -> Fallible<(Client, RoomId)> {
        let mut client = Client::connect(self.settings(agent)?).await?;
        let joined = client.call(self.join_request()).await?;
        Ok((client, joined.room_id))
    }
}

/// How an agent reaches a daemon that is there.
pub(crate) fn settings(env: Environment, agent: &str) -> Fallible<Settings> {
    let mut settings = Settings::from_environment(env)?;
    settings.signals.env.insert("TT_HARNESS_AGENT_ID".to_owned(), agent.to_owned());
    settings.autostart = false;
    Ok(settings)
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            if let Ok(pid) = i32::try_from(daemon.id()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            let _ = daemon.wait();
        }
    }
}

/// A child process that is told things on its standard input and reports on its standard output, a line each.
#[derive(Debug)]
pub(crate) struct Player {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Player {
    pub(crate) fn spawn(mut command: Command) -> Fallible<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        Ok(Self { stdin: child.stdin.take(), stdout: BufReader::new(stdout), child })
    }

    /// The next line it writes.
    pub(crate) fn line(&mut self) -> Fallible<String> {
        let mut line = String::new();
        if self.stdout.read_line(&mut line)? == 0 {
            return Err("a process of the measurement ended before it was done".into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// A line that is a reading of the clock, perhaps with more behind it.
    pub(crate) fn time(&mut self) -> Fallible<u64> {
        let line = self.line()?;
        let word = line.split(' ').next().unwrap_or_default();
        word.parse().map_err(|_| format!("a process of the measurement said {line:?}").into())
    }

    pub(crate) fn tell(&mut self, line: &str) -> Fallible<()> {
        let stdin = self.stdin.as_mut().ok_or("no standard input")?;
        Ok(writeln!(stdin, "{line}").and_then(|()| stdin.flush())?)
    }

    /// Ends it without notice.
    pub(crate) fn kill(&mut self) -> Fallible<()> {
        Ok(self.child.kill()?)
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
