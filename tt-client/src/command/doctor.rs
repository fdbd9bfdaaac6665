//! `tt doctor`: what breaks in practice, and the remedy for each.

use serde::Serialize;
use tt_proto::api::DaemonApiClient;
use tt_proto::filesystem::{Filesystem, filesystem};
use tt_proto::paths::is_private_dir;
use tt_proto::{Error, ErrorCode, VERSION};

use crate::connect::{Client, LockState, Settings, daemon_program, lock_state};
use crate::output::{Style, harmless};
use crate::{Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt doctor")]
pub(crate) struct Args {}

#[derive(Debug, Serialize)]
struct Report {
    checks: Vec<Check>,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    status: Verdict,
    finding: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, status: Verdict::Ok, finding: finding.into(), remedy: None }
    }

    fn warning(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, status: Verdict::Warning, finding: finding.into(), remedy: Some(remedy.into()) }
    }

    fn failed(name: &'static str, error: &Error) -> Self {
        Self { name, status: Verdict::Failed, finding: error.message.clone(), remedy: Some(error.hint.clone()) }
    }
}

pub(crate) async fn run(context: &Context, _: Args) -> Result<(), Failure> {
    let settings = &context.settings;
    let mut checks = vec![programs(settings), directory(settings), disk(settings), leftovers(settings)];
    checks.extend(daemon(settings).await);
    let failed = checks.iter().filter(|check| check.status == Verdict::Failed).count();
    context.output().answer(&Report { checks }, text)?;
    if failed > 0 {
        let message = format!("{failed} of the checks failed");
        return Err(Failure::Other(
            Error::new(ErrorCode::DaemonUnreachable, message).hint("follow the remedies above"),
        ));
    }
    Ok(())
}

fn programs(settings: &Settings) -> Check {
    match daemon_program(settings) {
        Ok(program) => Check::ok("programs", format!("tt {VERSION} starts {}", program.display())),
        Err(e) => Check::failed("programs", &e),
    }
}

fn directory(settings: &Settings) -> Check {
    let dir = &settings.paths.data_dir;
    match is_private_dir(dir) {
        Ok(true) => Check::ok("directory", format!("{} is yours alone", dir.display())),
        Ok(false) => Check::ok("directory", format!("{} will be made when it is needed", dir.display())),
        Err(e) => Check::failed("directory", &e),
    }
}

fn disk(settings: &Settings) -> Check {
    let dir = &settings.paths.data_dir;
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    match filesystem(there) {
        Filesystem::Local => Check::ok("disk", "the data directory is on a local disk"),
        Filesystem::Network(kind) => Check::failed(
            "disk",
            &Error::new(
                ErrorCode::StorageUnavailable,
                format!("the data directory is on a network filesystem ({kind})"),
            )
            .hint("set TALKING_STICK_DATA_DIR to a private directory on a local disk"),
        ),
    }
}

/// Files a daemon that was killed leaves behind. They are cleaned up by the next one and only worth a word.
fn leftovers(settings: &Settings) -> Check {
    let socket = &settings.paths.socket;
    match (lock_state(settings), socket.exists()) {
        (LockState::Free, true) => {
            Check::ok("leftovers", "a socket without a daemon; the next daemon clears it away".to_owned())
        }
        (LockState::Held { .. }, false) => Check::warning(
            "leftovers",
            format!("a daemon runs, but its socket {} is gone", socket.display()),
            "run `tt daemon restart`",
        ),
        _ => Check::ok("leftovers", "none"),
    }
}

async fn daemon(settings: &Settings) -> Vec<Check> {
    let mut client = match Client::connect(settings.clone()).await {
        Ok(client) => client,
        Err(e) => return vec![Check::failed("daemon", &e)],
    };
    let status = match client.call(async |rpc| rpc.daemon_status().await).await {
        Ok(status) => status,
        Err(e) => return vec![Check::failed("daemon", &e)],
    };
    let running = format!("ttd {} answers, pid {}, schema {}", status.version, status.pid, status.schema);
    let versions = if status.version == settings.version {
        Check::ok("versions", format!("tt and ttd are both {}", settings.version))
    } else {
        let remedy = if status.supervised {
            "run `tt service install` again, then restart the service"
        } else {
            "install tt and ttd together, then run `tt daemon restart`"
        };
        Check::warning("versions", format!("tt is {}, ttd is {}", settings.version, status.version), remedy)
    };
    let who = &client.welcome().identity;
    let identity = match (&who.anchor, who.is_person()) {
        (None, false) => Check::warning(
            "identity",
            format!("{}, but no process of the harness can be watched", who.agent_id),
            "only time-outs will tell when it is gone; see tt whoami --explain",
        ),
        _ => Check::ok("identity", who.agent_id.to_string()),
    };
    vec![Check::ok("daemon", running), versions, identity]
}

fn text(report: &Report, style: &Style) -> String {
    let width = report.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let line = |check: &Check| {
        let mark = match check.status {
            Verdict::Ok => style.dim("ok     "),
            Verdict::Warning | Verdict::Failed => {
                style.warn(if check.status == Verdict::Failed { "failed " } else { "warning" })
            }
        };
        let found = style.row(&format!("{mark}  {:<width$}  ", check.name), &harmless(&check.finding));
        let remedy = check.remedy.as_ref().map(|r| style.row(&" ".repeat(width + 11), &harmless(r)));
        found + &remedy.unwrap_or_default()
    };
    report.checks.iter().map(line).collect()
}
