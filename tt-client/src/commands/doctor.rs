//! `tt doctor`: checks the installation and suggests a fix for each problem.

use std::path::Path;

use serde::Serialize;
use tt_harness::Harness;
use tt_proto::escape::escape_text;
use tt_proto::filesystem::{Filesystem, filesystem};
use tt_proto::paths::is_private_dir;
use tt_proto::requests::DaemonStatus;
use tt_proto::{Error, ErrorCode, VERSION};

use crate::Context;
use crate::connect::{HttpClient, LockState, Settings, daemon_program, lock_state};
use crate::error::CommandError;
use crate::install::{Places, Setup};
use crate::text::Style;

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
    /// Why it failed.
    #[serde(rename = "error", skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
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
        Self { name, status: Verdict::Ok, finding: finding.into(), remedy: None, code: None }
    }

    fn warning(name: &'static str, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, status: Verdict::Warning, finding: finding.into(), remedy: Some(remedy.into()), code: None }
    }

    fn failed(name: &'static str, error: &Error) -> Self {
        let (finding, remedy) = (error.message.clone(), Some(error.hint.clone()));
        Self { name, status: Verdict::Failed, finding, remedy, code: Some(error.code) }
    }
}

pub(crate) fn run(context: &Context, _: Args) -> Result<(), CommandError> {
    let settings = &context.settings;
    let mut checks = vec![programs(settings), path(settings)];
    checks.extend([directory(settings), disk(settings), sizes(settings), leftovers(settings)]);
    checks.extend(daemon(settings));
    checks.extend(harnesses(settings));
    let failed: Vec<ErrorCode> = checks.iter().filter_map(|check| check.code).collect();
    context.output().answer(&Report { checks }, text)?;
    let Some(code) = failed.first() else { return Ok(()) };
    let message = match failed.len() {
        1 => "one check failed".to_owned(),
        several => format!("{several} checks failed"),
    };
    let error = Error::new(*code, message).hint("apply the fixes above, from the top");
    Err(if *code == ErrorCode::DaemonUnreachable { CommandError::NoDaemon(error) } else { CommandError::Local(error) })
}

fn programs(settings: &Settings) -> Check {
    match daemon_program(settings) {
        Ok(program) => Check::ok("programs", format!("tt {VERSION} starts {}", program.display())),
        Err(e) => Check::failed("programs", &e),
    }
}

/// Agents and prompts call `tt` by name, so it has to be on the PATH.
fn path(settings: &Settings) -> Check {
    let own = std::env::current_exe().and_then(|exe| exe.canonicalize()).unwrap_or_default();
    let dir = own.parent().unwrap_or(Path::new("/")).display();
    let dirs: Vec<_> = settings.env.get("PATH").map(std::env::split_paths).into_iter().flatten().collect();
    match dirs.iter().map(|dir| dir.join("tt")).find(|tt| tt.is_file()) {
        Some(tt) if tt.canonicalize().is_ok_and(|tt| tt == own) => {
            Check::ok("path", format!("tt is found as {}", tt.display()))
        }
        Some(tt) => Check::warning(
            "path",
            format!("another tt is found first: {}", tt.display()),
            format!("remove it, or put {dir} before it in PATH"),
        ),
        None => Check::warning("path", "tt is not on the PATH, so agents cannot call it", format!("add {dir} to PATH")),
    }
}

/// Checks whether each installed harness has the skill and the MCP server that this version installs.
fn harnesses(settings: &Settings) -> Vec<Check> {
    let places = match Places::of(&settings.env) {
        Ok(places) => places,
        Err(e) => return vec![Check::failed("harnesses", &e)],
    };
    let checks: Vec<Check> = tt_harness::ALL.iter().filter_map(|harness| setup(&places, harness)).collect();
    if checks.is_empty() {
        let all: Vec<&str> = tt_harness::ALL.iter().map(|harness| harness.name).collect();
        return vec![Check::ok("harnesses", format!("none of {} is on this machine", all.join(", ")))];
    }
    checks
}

fn setup(places: &Places, harness: &'static Harness) -> Option<Check> {
    let name = harness.name;
    Some(match places.setup(harness) {
        Ok(Setup::Absent) => return None,
        Ok(Setup::Ready) => Check::ok(name, "has the MCP server and the skill"),
        Ok(Setup::Different { missing, drifted }) if drifted.is_empty() => {
            Check::warning(name, format!("lacks {}", missing.join(" and ")), format!("run `tt install {name}`"))
        }
        Ok(Setup::Different { missing, drifted }) => {
            let lacks = if missing.is_empty() { String::new() } else { format!("; lacks {}", missing.join(" and ")) };
            Check::warning(
                name,
                format!("has {} of another version or changed by hand{lacks}", drifted.join(" and ")),
                format!("see the change with `tt install {name} --print`, make it with `tt install {name}`"),
            )
        }
        Err(e) => Check::failed(name, &e),
    })
}

fn directory(settings: &Settings) -> Check {
    let dir = &settings.paths.data_dir;
    // A data directory with a long path has its socket elsewhere.
    let beside = settings.paths.socket.parent().filter(|beside| beside != dir);
    if let Some(Err(e)) = beside.map(is_private_dir) {
        return Check::failed("directory", &e);
    }
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

/// How much space our files take.
fn sizes(settings: &Settings) -> Check {
    let (database, log) = (settings.paths.database(), settings.paths.log());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (database, log) = (name(&database), name(&log));
    let (mut of_database, mut of_wal, mut of_backups, mut of_log) = (0, 0, 0, 0);
    for entry in std::fs::read_dir(&settings.paths.data_dir).into_iter().flatten().flatten() {
        let (name, size) = (entry.file_name(), entry.metadata().map_or(0, |meta| meta.len()));
        match name.to_str().unwrap_or_default() {
            name if name == database => of_database += size,
            name if name == format!("{database}-wal") => of_wal += size,
            name if name.starts_with(&format!("{database}.backup-")) => of_backups += size,
            name if name == log || name.starts_with(&format!("{log}.")) => of_log += size,
            _ => {}
        }
    }
    let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let finding = format!(
        "database {}, write-ahead log {}, backups {}, log {}",
        megabytes(of_database),
        megabytes(of_wal),
        megabytes(of_backups),
        megabytes(of_log)
    );
    Check::ok("sizes", finding)
}

/// Files that a killed daemon left behind. The next daemon removes them.
fn leftovers(settings: &Settings) -> Check {
    let socket = &settings.paths.socket;
    match (lock_state(settings), socket.exists()) {
        (LockState::Free, true) => {
            Check::ok("leftovers", "a socket without a daemon; the next daemon removes it".to_owned())
        }
        (LockState::Held { .. }, false) => Check::warning(
            "leftovers",
            format!("a daemon runs, but its socket {} is gone", socket.display()),
            "run `tt daemon restart`",
        ),
        _ => Check::ok("leftovers", "none"),
    }
}

fn daemon(settings: &Settings) -> Vec<Check> {
    let mut client = match HttpClient::connect(settings.clone()) {
        Ok(client) => client,
        Err(e) => return vec![Check::failed("daemon", &e)],
    };
    let status = match client.call(&DaemonStatus {}) {
        Ok(status) => status,
        Err(e) => return vec![Check::failed("daemon", &e)],
    };
    let running = format!("ttd {} answers", status.version);
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
            format!("{}, with no process to watch: its end is noticed only after a time-out", who.agent_id),
            "run tt from within the harness; `tt whoami --explain` shows what was looked for",
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
        let found = style.row(&format!("{mark}  {:<width$}  ", check.name), &escape_text(&check.finding));
        let remedy =
            check.remedy.as_ref().map(|r| style.row(&format!("{}→ ", " ".repeat(width + 11)), &escape_text(r)));
        found + &remedy.unwrap_or_default()
    };
    report.checks.iter().map(line).collect()
}
