//! `tt daemon start|stop|restart|status|logs`: start, stop and inspect the daemon.

use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};
use tt_proto::escape::escape_text;
use tt_proto::requests::{DaemonStatus, DaemonStatusAnswer};
use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::connect::{HttpClient, LockState, Settings, Started, lock_state, start, stop};
use crate::error::CommandError;
use crate::text::{Style, render};

/// How long to wait for the handshake of a daemon that is to be stopped. A daemon that takes longer is stuck.
const STOP_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Start the daemon; every other command does so when necessary
    #[command(after_help = "Example:\n  tt daemon start")]
    Start,
    /// Stop the daemon after it has finished its current calls
    #[command(after_help = "Example:\n  tt daemon stop")]
    Stop,
    /// Stop the daemon, even if it is stuck, and start it again
    #[command(after_help = "Example:\n  tt daemon restart")]
    Restart,
    /// Show whether the daemon is running, since when, and where its files are
    #[command(after_help = "Example:\n  tt daemon status --json")]
    Status,
    /// Show the end of the daemon's log
    #[command(after_help = "Example:\n  tt daemon logs -n 20")]
    Logs {
        /// How many lines
        #[arg(short = 'n', long, default_value_t = 50)]
        lines: usize,
    },
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    match args {
        Args::Start => started(context),
        Args::Stop => {
            let answer = json!({ "status": if end(context)? { "stopped" } else { "not_running" } });
            Ok(context.output().answer(&answer, |answer, _| format!("ttd: {}", words(answer)))?)
        }
        Args::Restart => {
            end(context)?;
            started(context)
        }
        Args::Status => status(context),
        Args::Logs { lines } => logs(&context.settings, lines),
    }
}

fn started(context: &Context) -> Result<(), CommandError> {
    let how = start(&context.settings).map_err(CommandError::NoDaemon)?;
    let (mut client, output) = context.connect()?;
    let status = client.call(&DaemonStatus {})?;
    let what = if how == Started::Now { "started" } else { "already running" };
    Ok(output.answer(&status, |status, style| format!("ttd {what}: {}", describe(status, style)))?)
}

/// Stops the daemon. Returns false if there was none.
fn end(context: &Context) -> Result<bool, CommandError> {
    let settings = Settings { autostart: false, deadline: STOP_HANDSHAKE_TIMEOUT, ..context.settings.clone() };
    let client = HttpClient::connect(settings.clone()).ok();
    stop(&settings, client).map_err(CommandError::NoDaemon)
}

fn status(context: &Context) -> Result<(), CommandError> {
    let settings = Settings { autostart: false, ..context.settings.clone() };
    match HttpClient::connect(settings.clone()) {
        Ok(mut client) => {
            let status = client.call(&DaemonStatus {})?;
            Ok(context
                .output()
                .answer(&status, |status, style| format!("ttd is running: {}", describe(status, style)))?)
        }
        Err(_) if lock_state(&settings) == LockState::Free => {
            let paths = &settings.paths;
            let answer = json!({
                "status": "not_running",
                "data_dir": paths.data_dir.display().to_string(),
                "socket": paths.socket.display().to_string(),
                "log": paths.log().display().to_string(),
            });
            Ok(context.output().answer(&answer, |answer, _| format!("ttd: {}", words(answer)))?)
        }
        Err(e) => Err(CommandError::NoDaemon(e)),
    }
}

fn words(answer: &Value) -> String {
    answer["status"].as_str().unwrap_or_default().replace('_', " ")
}

fn describe(status: &DaemonStatusAnswer, style: &Style) -> String {
    let row = |name: &str, value: &str| format!("\n  {} {value}", style.dim(&format!("{name:<9}")));
    let mut text = format!("version {}, pid {}", escape_text(&status.version), status.pid);
    text.push_str(&row("started", &render::ago(status.started_at, render::now())));
    text.push_str(&row("data", &escape_text(&status.data_dir)));
    text.push_str(&row("socket", &escape_text(&status.socket)));
    text.push_str(&row("log", &escape_text(&status.log)));
    if status.supervised {
        text.push_str(&row("run by", "a supervisor (systemd, launchd or a terminal)"));
    }
    text
}

fn logs(settings: &Settings, lines: usize) -> Result<(), CommandError> {
    let path = settings.paths.log();
    let log = std::fs::read(&path).map_err(|e| {
        CommandError::Local(
            Error::new(ErrorCode::StorageUnavailable, format!("cannot read {}: {e}", path.display()))
                .hint("the log appears when the daemon first starts: tt daemon start"),
        )
    })?;
    let log = String::from_utf8_lossy(&log);
    let all: Vec<&str> = log.lines().collect();
    let mut out = std::io::stdout().lock();
    for line in &all[all.len().saturating_sub(lines)..] {
        writeln!(out, "{}", escape_text(line))?;
    }
    Ok(())
}
