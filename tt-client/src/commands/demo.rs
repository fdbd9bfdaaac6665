//! `tt demo`: two agents in a temporary repository with a real daemon of their own. They ask and answer a question during a
//! turn, hand over, and recover from a crash of the holder by a takeover.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tt_proto::paths::{PRIVATE_DIR_MODE, make_dirs};
use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::error::CommandError;
use crate::follow::{Signals, block_on};
use crate::output::Output;
use crate::text::Style;

/// The pause after each step, for reading.
const READING_PAUSE: Duration = Duration::from_millis(700);

/// The script of an actor: it runs each line it is sent and marks the end of the output.
const ACTOR_SCRIPT: &str = "#!/bin/sh\nwhile IFS= read -r line; do eval \"$line\" 2>&1; echo ::done; done\n";

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt demo")]
pub(crate) struct Args {
    /// Run without pauses
    #[arg(long)]
    fast: bool,
    /// Keep the temporary directory and show its path
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    block_on(run_interruptibly(context, args))
}

async fn run_interruptibly(context: &Context, args: Args) -> Result<(), CommandError> {
    let mut signals = Signals::listen()?;
    build_daemon(context)?;
    let stage = Arc::new(Stage::new(context, args.fast)?);
    let mut playing = tokio::task::spawn_blocking({
        let stage = stage.clone();
        move || play(&stage)
    });
    let played = tokio::select! {
        played = &mut playing => played.map_err(failed)?,
        () = signals.any() => {
            stage.interrupt();
            // The current step ends by itself. Until then it could still start the daemon that is to be stopped.
            let _ = playing.await;
            Err(CommandError::Local(
                Error::new(ErrorCode::InvalidInput, "the demo was interrupted")
                    .hint("everything it made was removed; run it again with tt demo"),
            ))
        }
    };
    let ended = stage.tt(&["daemon", "stop"]);
    if args.keep {
        stage.print(|style| style.dim(&format!("\nkept: {}\n", stage.scratch.display())))?;
    } else {
        let _ = std::fs::remove_dir_all(&stage.scratch);
    }
    played.and(ended)
}

fn play(stage: &Stage) -> Result<(), CommandError> {
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
    stage.narrate(
        "Claude has a question in the middle of its turn. It keeps the stick, asks, and waits for the answer.",
    )?;
    claude.begin("tt ask codex --text 'keep the old column for now?'")?;
    stage.narrate("Codex is still waiting for its turn. Another of its shells reads the question and answers.")?;
    codex.run_in_other_shell("tt msg recv --wait --text")?;
    codex.run_in_other_shell("tt reply 4 --text 'yes, until the backfill is done'")?;
    claude.finish_begun("tt ask")?;
    stage.narrate("A message has a life that its sender can see.")?;
    claude.run("tt msg status 4 --text")?;
    stage.narrate(
        "Claude is done and hands over. In the same instant Codex's wait returns, with all it needs to know.",
    )?;
    claude.run(
        "tt release --text --status 'migration written, not run' --next-action 'run it on a copy first' \
         --artifact migrations/007.sql=review --do-not 'drop the old column'",
    )?;
    codex.finish_begun("tt wait")?;
    stage.narrate("Now Claude waits, and Codex crashes in the middle of its turn.")?;
    claude.begin("tt wait --no-events --text")?;
    codex.kill()?;
    stage.narrate(
        "Claude knows at once. Nothing moves by itself: it decides to take over, and the old lease is void.",
    )?;
    claude.finish_begun("tt wait")?;
    claude.run("tt take --text --reason 'codex crashed'")?;
    stage.narrate("Everything that happened is in one log.")?;
    stage.show(&["events"])?;
    stage.print(|style| {
        let end =
            "That was a real daemon in a temporary directory; it is gone now. Next: run tt join in a repository of yours.";
        format!("\n{}", style.row("", &style.dim(end)))
    })
}

/// `cargo run` builds only the program it runs. Started that way, the daemon may be missing or older than this build.
fn build_daemon(context: &Context) -> Result<(), CommandError> {
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
        _ => Err(CommandError::NoDaemon(
            Error::new(ErrorCode::DaemonUnreachable, "ttd could not be built")
                .hint("run `cargo build --release --bins`"),
        )),
    }
}

fn failed(what: impl std::fmt::Display) -> CommandError {
    CommandError::NoDaemon(
        Error::new(ErrorCode::DaemonUnreachable, format!("the demo failed: {what}")).hint("run `tt doctor`"),
    )
}

/// A temporary home and repository with a daemon of their own.
struct Stage {
    scratch: PathBuf,
    program: PathBuf,
    path: OsString,
    output: Output,
    pause_length: Duration,
    /// The process groups of the agents, which are ended when the demo is interrupted.
    cast: Mutex<Cast>,
    interrupted: Condvar,
}

#[derive(Default)]
struct Cast {
    groups: Vec<Pid>,
    interrupted: bool,
}

/// The indentation of a command's output.
const OUTPUT_INDENT: usize = 10;

impl Stage {
    fn new(context: &Context, fast: bool) -> Result<Self, CommandError> {
        let scratch = Path::new("/tmp").join(format!("tt-demo-{}", std::process::id()));
        // It must not be there yet: somebody else could have made it.
        std::fs::DirBuilder::new().mode(PRIVATE_DIR_MODE).create(&scratch).map_err(failed)?;
        std::fs::set_permissions(&scratch, std::fs::Permissions::from_mode(PRIVATE_DIR_MODE)).map_err(failed)?;
        for dir in ["shop/.git", "bin"] {
            make_dirs(&scratch.join(dir), PRIVATE_DIR_MODE).map_err(failed)?;
        }
        let program = std::env::current_exe().map_err(failed)?;
        let mut path = scratch.join("bin").into_os_string();
        path.push(":");
        path.push(context.settings.env.get("PATH").unwrap_or_default());
        std::os::unix::fs::symlink(&program, scratch.join("bin/tt")).map_err(failed)?;
        let pause_length = if fast { Duration::ZERO } else { READING_PAUSE };
        let (cast, interrupted) = (Mutex::default(), Condvar::new());
        Ok(Self { scratch, program, path, output: context.output(), pause_length, cast, interrupted })
    }

    /// A command in the repository, without the caller's environment.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", &self.path).env("HOME", &self.scratch).current_dir(self.scratch.join("shop"));
        if let Some(width) = self.output.style().width_within(OUTPUT_INDENT) {
            command.env("COLUMNS", width.to_string());
        }
        command
    }

    fn cast(&self) -> MutexGuard<'_, Cast> {
        self.cast.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the agents and everything they run. Later steps fail.
    fn interrupt(&self) {
        let mut cast = self.cast();
        cast.interrupted = true;
        for group in cast.groups.drain(..) {
            let _ = killpg(group, Signal::SIGKILL);
        }
        self.interrupted.notify_all();
    }

    /// Pauses for reading. Fails if the demo was interrupted.
    fn pause(&self) -> Result<(), CommandError> {
        let rested = self.interrupted.wait_timeout_while(self.cast(), self.pause_length, |cast| !cast.interrupted);
        if rested.unwrap_or_else(PoisonError::into_inner).0.interrupted {
            Err(failed("it was interrupted"))
        } else {
            Ok(())
        }
    }

    fn print(&self, text: impl FnOnce(&Style) -> String) -> Result<(), CommandError> {
        Ok(self.output.text(text)?)
    }

    fn narrate(&self, text: &str) -> Result<(), CommandError> {
        self.pause()?;
        self.print(|style| format!("\n{}", style.row("", &style.bold(text))))?;
        self.pause()
    }

    /// Shows a command line and who types it.
    fn show_typed(&self, who: &str, line: &str) -> Result<(), CommandError> {
        self.print(|style| {
            let line = line.replace(" --text", "").replace(" --no-events", "");
            style.row(&format!("{} ", style.dim(&format!("{who:>7} $"))), &line)
        })
    }

    fn show_output(&self, text: &str) -> Result<(), CommandError> {
        self.print(|_| text.lines().map(|line| format!("{:OUTPUT_INDENT$}{line}\n", "")).collect())
    }

    /// Runs a command as the person at the keyboard.
    fn show(&self, args: &[&str]) -> Result<(), CommandError> {
        self.show_typed("you", &format!("tt {}", args.join(" ")))?;
        let output = self.command(&self.program).args(args).output().map_err(failed)?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr)));
        }
        self.show_output(&String::from_utf8_lossy(&output.stdout))
    }

    fn tt(&self, args: &[&str]) -> Result<(), CommandError> {
        self.command(&self.program).args(args).output().map(|_| ()).map_err(failed)
    }
}

/// An agent: a process with the name of its harness, which runs commands as its children.
struct Actor<'a> {
    stage: &'a Stage,
    name: &'static str,
    signals: Vec<(&'static str, &'static str)>,
    process: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl<'a> Actor<'a> {
    fn start(
        stage: &'a Stage,
        name: &'static str,
        signals: &[(&'static str, &'static str)],
    ) -> Result<Self, CommandError> {
        let script = stage.scratch.join("bin").join(name);
        std::fs::write(&script, ACTOR_SCRIPT).map_err(failed)?;
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, executable).map_err(failed)?;
        let mut command = stage.command(&script);
        command.envs(signals.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut cast = stage.cast();
        if cast.interrupted {
            return Err(failed("it was interrupted"));
        }
        let mut process = command.spawn().map_err(failed)?;
        cast.groups.push(Pid::from_raw(process.id().try_into().map_err(failed)?));
        drop(cast);
        let (Some(commands), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed("an agent has no pipes"));
        };
        Ok(Self { stage, name, signals: signals.to_vec(), process, commands, answers: BufReader::new(answers) })
    }

    fn begin(&mut self, line: &str) -> Result<(), CommandError> {
        self.stage.show_typed(self.name, line)?;
        writeln!(self.commands, "{line}").map_err(failed)
    }

    fn finish(&mut self) -> Result<(), CommandError> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line).map_err(failed)? == 0 {
                return Err(failed(format!("{} is gone", self.name)));
            }
            if line == "::done\n" {
                return self.stage.show_output(&text);
            }
            text.push_str(&line);
        }
    }

    /// Waits for the end of a command that was begun earlier.
    fn finish_begun(&mut self, line: &str) -> Result<(), CommandError> {
        self.stage.print(|style| style.dim(&format!("{:>7}   {line} returns:\n", self.name)))?;
        self.finish()
    }

    fn run(&mut self, line: &str) -> Result<(), CommandError> {
        self.begin(line)?;
        self.finish()
    }

    /// Runs a command in another shell of the same session, while the first is busy.
    fn run_in_other_shell(&self, line: &str) -> Result<(), CommandError> {
        self.stage.show_typed(self.name, line)?;
        let mut command = self.stage.command(Path::new("/bin/sh"));
        let output = command.args(["-c", line]).envs(self.signals.iter().copied()).output().map_err(failed)?;
        self.stage.show_output(&String::from_utf8_lossy(&output.stdout))
    }

    fn kill(mut self) -> Result<(), CommandError> {
        self.stage
            .print(|style| format!("{} {}\n", style.dim(&format!("{:>7}  ", self.name)), style.warn("killed")))?;
        self.end();
        Ok(())
    }

    /// Ends the agent and what it runs. Does so once, because its pid may later belong to another process.
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
