//! `tt demo`: a newcomer's first minute, against a real daemon in a scratch directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use tt_proto::{Error, ErrorCode};

use crate::output::{Output, Style};
use crate::{Context, Failure};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the scratch directory, and say where it is
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    build_daemon(context)?;
    let stage = Stage::new(context)?;
    let played = play(&stage);
    let ended = stage.tt(&[], &["daemon", "stop"]);
    if args.keep {
        stage.say(|style| style.dim(&format!("kept: {}\n", stage.scratch.display())))?;
    } else {
        let _ = std::fs::remove_dir_all(&stage.scratch);
    }
    played.and(ended).map(|_| ())
}

fn play(stage: &Stage) -> Result<String, Failure> {
    stage.narrate("A person runs tt. No daemon is there, so tt starts one.")?;
    stage.show(&[], &["whoami"])?;
    stage.narrate("Two agents run tt from their shells. Each has an identity of its own, bound to its session.")?;
    let claude = [("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "demo-1")];
    let codex = [("CODEX_THREAD_ID", "demo-2")];
    stage.show(&claude, &["whoami", "--text"])?;
    stage.show(&codex, &["whoami", "--explain", "--text"])?;
    stage.narrate("The daemon is killed outright. The next command starts another and finds everything in place.")?;
    let status = stage.tt(&[], &["daemon", "status", "--json"])?;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    if let Some(pid) = status["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
    stage.show(&codex, &["whoami", "--text"])?;
    stage.show(&[], &["daemon", "status"])
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
        _ => Err(Failure::Other(
            Error::new(ErrorCode::DaemonUnreachable, "ttd could not be built")
                .hint("run `cargo build --release --bins`"),
        )),
    }
}

/// A scratch home with its own daemon.
struct Stage {
    scratch: PathBuf,
    program: PathBuf,
    path: std::ffi::OsString,
    output: Output,
}

impl Stage {
    fn new(context: &Context) -> Result<Self, Failure> {
        let other = |e: std::io::Error| {
            Failure::Other(Error::new(ErrorCode::StorageUnavailable, format!("no scratch directory: {e}")))
        };
        let scratch = Path::new("/tmp").join(format!("tt-demo-{}", std::process::id()));
        std::fs::create_dir(&scratch).map_err(other)?;
        let program = std::env::current_exe().map_err(other)?;
        let path = context.settings.env.get("PATH").unwrap_or_default().to_owned();
        Ok(Self { scratch, program, path, output: context.output() })
    }

    fn say(&self, text: impl FnOnce(&Style) -> String) -> Result<(), Failure> {
        Ok(self.output.text(text)?)
    }

    fn narrate(&self, text: &str) -> Result<(), Failure> {
        self.say(|style| format!("\n{}\n", style.bold(text)))
    }

    /// Runs a command as its caller would type it and shows both.
    fn show(&self, signals: &[(&str, &str)], args: &[&str]) -> Result<String, Failure> {
        let prompt: String = signals.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        self.say(|style| format!("{}\n", style.dim(&format!("$ {prompt}tt {}", args.join(" ")))))?;
        let output = self.tt(signals, args)?;
        self.say(|_| output.clone())?;
        Ok(output)
    }

    fn tt(&self, signals: &[(&str, &str)], args: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new(&self.program);
        command.args(args).env_clear().env("PATH", &self.path).env("HOME", &self.scratch).current_dir(&self.scratch);
        command.envs(signals.iter().copied());
        let failed = |why: String| {
            Failure::Other(Error::new(ErrorCode::DaemonUnreachable, format!("`tt {}` failed: {why}", args.join(" "))))
        };
        let output = command.output().map_err(|e| failed(e.to_string()))?;
        if !output.status.success() {
            return Err(failed(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
