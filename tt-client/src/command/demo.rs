//! `tt demo`: a newcomer's first minute. Two agents in a scratch repository, against a real daemon of their own: a question
//! asked and answered in the middle of a turn, a handoff, a crash of the holder, and a takeover.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tt_proto::{Error, ErrorCode};

use crate::follow::Signals;
use crate::output::{Output, Style};
use crate::{Context, Failure};

/// Time to read a line before the next thing happens.
const PAUSE: Duration = Duration::from_millis(700);

/// What an actor runs: it is a shell that does as it is told, and says when it is done.
const ACTOR: &str = "#!/bin/sh\nwhile IFS= read -r line; do eval \"$line\" 2>&1; echo ::done; done\n";

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt demo")]
pub(crate) struct Args {
    /// Without pauses to read
    #[arg(long)]
    fast: bool,
    /// Keep the scratch directory, and say where it is
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    build_daemon(context)?;
    let stage = Arc::new(Stage::new(context, args.fast)?);
    let mut playing = tokio::task::spawn_blocking({
        let stage = stage.clone();
        move || play(&stage)
    });
    let played = tokio::select! {
        played = &mut playing => played.map_err(broken)?,
        () = signals.any() => {
            stage.break_off();
            // What is under way ends by itself; until then it could still start the daemon that is to be stopped.
            let _ = playing.await;
            Err(Failure::Other(
                Error::new(ErrorCode::InvalidInput, "the demo was broken off")
                    .hint("nothing of it is left; run it again with tt demo"),
            ))
        }
    };
    let ended = stage.tt(&["daemon", "stop"]);
    if args.keep {
        stage.say(|style| style.dim(&format!("\nkept: {}\n", stage.scratch.display())))?;
    } else {
        let _ = std::fs::remove_dir_all(&stage.scratch);
    }
    played.and(ended)
}

fn play(stage: &Stage) -> Result<(), Failure> {
    let mut claude = Actor::start(stage, "claude", &[("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "demo-1")])?;
    let mut codex = Actor::start(stage, "codex", &[("CODEX_THREAD_ID", "demo-2")])?;
    stage.narrate("Two agents work in one repository. Both join; no daemon is there, so the first tt starts it.")?;
    claude.run("tt join --text")?;
    codex.run("tt join --text")?;
    stage.narrate("Claude takes the stick: it alone may write now. Codex waits, without polling.")?;
    claude.run("tt try --text")?;
    codex.begin("tt wait --no-events --text")?;
    stage.narrate("You look at the room from your own terminal.")?;
    stage.show(&["state"])?;
    stage.narrate("Claude has a question in the middle of its turn. It keeps the stick and just asks.")?;
    claude.run("tt msg send codex --text 'keep the old column for now?'")?;
    stage.narrate("Codex is still waiting for its turn. Another of its shells reads the question and answers.")?;
    codex.aside("tt msg recv --text")?;
    codex.aside("tt msg send claude --text 'yes, until the backfill is done'")?;
    claude.run("tt msg recv --text")?;
    stage.narrate(
        "Claude is done and hands over. In the same instant Codex's wait returns, with all it needs to know.",
    )?;
    claude.run(
        "tt release --text --status 'migration written, not run' --next-action 'run it on a copy first' \
         --artifact migrations/007.sql=review --do-not 'drop the old column'",
    )?;
    codex.returns("tt wait")?;
    stage.narrate("Now Claude waits, and Codex crashes in the middle of its turn.")?;
    claude.begin("tt wait --no-events --text")?;
    codex.kill()?;
    stage.narrate(
        "Claude knows at once. Nothing moves by itself: it decides to take over, and the old lease is void.",
    )?;
    claude.returns("tt wait")?;
    claude.run("tt take --text --reason 'codex crashed'")?;
    stage.narrate("Everything that happened is in one log.")?;
    stage.show(&["events"])?;
    stage.say(|style| {
        let end =
            "That was a real daemon in a scratch directory; it is gone now. Next: tt join, in a repository of yours.";
        format!("\n{}", style.row("", &style.dim(end)))
    })
}

/// `cargo run` builds only the program it runs. Started that way, the daemon may be missing or older than this build.
fn build_daemon(context: &Context) -> Result<(), Failure> {
    let env = &context.settings.env;
    let (Some(cargo), Some("tt-client")) = (env.get("CARGO"), env.get_str("CARGO_PKG_NAME")) else { return Ok(()) };
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--bin", "ttd"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    if let Some(dir) = env.get("CARGO_MANIFEST_DIR") {
        build.current_dir(dir);
    }
    match build.status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Failure::NoDaemon(
            Error::new(ErrorCode::DaemonUnreachable, "ttd could not be built")
                .hint("run `cargo build --release --bins`"),
        )),
    }
}

fn broken(what: impl std::fmt::Display) -> Failure {
    Failure::NoDaemon(
        Error::new(ErrorCode::DaemonUnreachable, format!("the demo broke off: {what}")).hint("run `tt doctor`"),
    )
}

/// A scratch home and repository with a daemon of their own.
struct Stage {
    scratch: PathBuf,
    program: PathBuf,
    path: OsString,
    output: Output,
    pause: Duration,
    /// The process groups of the agents; none of them lives on when the demo is broken off.
    cast: Mutex<Cast>,
    broken_off: Condvar,
}

#[derive(Default)]
struct Cast {
    groups: Vec<Pid>,
    broken_off: bool,
}

/// What an answer is set in by, below the command it answers.
const SET_IN: usize = 10;

impl Stage {
    fn new(context: &Context, fast: bool) -> Result<Self, Failure> {
        let scratch = Path::new("/tmp").join(format!("tt-demo-{}", std::process::id()));
        std::fs::create_dir(&scratch).map_err(broken)?;
        for dir in ["shop/.git", "bin"] {
            std::fs::create_dir_all(scratch.join(dir)).map_err(broken)?;
        }
        let program = std::env::current_exe().map_err(broken)?;
        let mut path = scratch.join("bin").into_os_string();
        path.push(":");
        path.push(context.settings.env.get("PATH").unwrap_or_default());
        std::os::unix::fs::symlink(&program, scratch.join("bin/tt")).map_err(broken)?;
        let pause = if fast { Duration::ZERO } else { PAUSE };
        let (cast, broken_off) = (Mutex::default(), Condvar::new());
        Ok(Self { scratch, program, path, output: context.output(), pause, cast, broken_off })
    }

    /// A command as someone in the repository would run it, with nothing of the caller's environment.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", &self.path).env("HOME", &self.scratch).current_dir(self.scratch.join("shop"));
        if let Some(width) = self.output.style().width_within(SET_IN) {
            command.env("COLUMNS", width.to_string());
        }
        command
    }

    fn cast(&self) -> MutexGuard<'_, Cast> {
        self.cast.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the agents and all they run. Whatever comes next finds that it is over.
    fn break_off(&self) {
        let mut cast = self.cast();
        cast.broken_off = true;
        for group in cast.groups.drain(..) {
            let _ = killpg(group, Signal::SIGKILL);
        }
        self.broken_off.notify_all();
    }

    /// Time to read.
    fn rest(&self) -> Result<(), Failure> {
        let rested = self.broken_off.wait_timeout_while(self.cast(), self.pause, |cast| !cast.broken_off);
        if rested.unwrap_or_else(PoisonError::into_inner).0.broken_off {
            Err(broken("somebody ended it"))
        } else {
            Ok(())
        }
    }

    fn say(&self, text: impl FnOnce(&Style) -> String) -> Result<(), Failure> {
        Ok(self.output.text(text)?)
    }

    fn narrate(&self, text: &str) -> Result<(), Failure> {
        self.rest()?;
        self.say(|style| format!("\n{}", style.row("", &style.bold(text))))?;
        self.rest()
    }

    /// A line somebody types, and later what came of it.
    fn typed(&self, who: &str, line: &str) -> Result<(), Failure> {
        self.say(|style| {
            let line = line.replace(" --text", "").replace(" --no-events", "");
            style.row(&format!("{} ", style.dim(&format!("{who:>7} $"))), &line)
        })
    }

    fn answered(&self, text: &str) -> Result<(), Failure> {
        self.say(|_| text.lines().map(|line| format!("{:SET_IN$}{line}\n", "")).collect())
    }

    /// Runs a command as the person at the keyboard.
    fn show(&self, args: &[&str]) -> Result<(), Failure> {
        self.typed("you", &format!("tt {}", args.join(" ")))?;
        let output = self.command(&self.program).args(args).output().map_err(broken)?;
        if !output.status.success() {
            return Err(broken(String::from_utf8_lossy(&output.stderr)));
        }
        self.answered(&String::from_utf8_lossy(&output.stdout))
    }

    fn tt(&self, args: &[&str]) -> Result<(), Failure> {
        self.command(&self.program).args(args).output().map(|_| ()).map_err(broken)
    }
}

/// An agent: a process of the harness's name, whose children are the commands it runs.
struct Actor<'a> {
    stage: &'a Stage,
    name: &'static str,
    signals: Vec<(&'static str, &'static str)>,
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl<'a> Actor<'a> {
    fn start(stage: &'a Stage, name: &'static str, signals: &[(&'static str, &'static str)]) -> Result<Self, Failure> {
        let script = stage.scratch.join("bin").join(name);
        std::fs::write(&script, ACTOR).map_err(broken)?;
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, executable).map_err(broken)?;
        let mut command = stage.command(&script);
        command.envs(signals.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut cast = stage.cast();
        if cast.broken_off {
            return Err(broken("somebody ended it"));
        }
        let mut process = command.spawn().map_err(broken)?;
        cast.groups.push(Pid::from_raw(process.id().try_into().map_err(broken)?));
        drop(cast);
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(broken("an agent has no pipes"));
        };
        Ok(Self { stage, name, signals: signals.to_vec(), process, commands, answers: BufReader::new(answers) })
    }

    fn begin(&mut self, line: &str) -> Result<(), Failure> {
        self.stage.typed(self.name, line)?;
        writeln!(self.commands, "{line}").map_err(broken)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line).map_err(broken)? == 0 {
                return Err(broken(format!("{} is gone", self.name)));
            }
            if line == "::done\n" {
                return self.stage.answered(&text);
            }
            text.push_str(&line);
        }
    }

    /// The end of a command that was begun earlier.
    fn returns(&mut self, line: &str) -> Result<(), Failure> {
        self.stage.say(|style| style.dim(&format!("{:>7}   {line} returns:\n", self.name)))?;
        self.finish()
    }

    fn run(&mut self, line: &str) -> Result<(), Failure> {
        self.begin(line)?;
        self.finish()
    }

    /// Runs a command in another shell of the same session, while the first is busy.
    fn aside(&self, line: &str) -> Result<(), Failure> {
        self.stage.typed(self.name, line)?;
        let mut command = self.stage.command(Path::new("/bin/sh"));
        let output = command.args(["-c", line]).envs(self.signals.iter().copied()).output().map_err(broken)?;
        self.stage.answered(&String::from_utf8_lossy(&output.stdout))
    }

    fn kill(mut self) -> Result<(), Failure> {
        self.stage.say(|style| format!("{} {}\n", style.dim(&format!("{:>7}  ", self.name)), style.warn("killed")))?;
        self.end();
        Ok(())
    }

    /// Ends the agent and what it runs, once: later its number may be another's.
    fn end(&mut self) {
        let group = self.process.id().try_into().map_or(Pid::from_raw(0), Pid::from_raw);
        let mut cast = self.stage.cast();
        if let Some(at) = cast.groups.iter().position(|known| *known == group) {
            cast.groups.swap_remove(at);
            let _ = killpg(group, Signal::SIGKILL);
        }
        drop(cast);
        let _ = self.process.wait();
    }
}

impl Drop for Actor<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
