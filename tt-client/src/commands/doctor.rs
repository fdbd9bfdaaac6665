//! `tt doctor`: checks the installation and suggests a fix for each problem.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde::Serialize;
use tt_harness::Harness;
use tt_proto::escape::escape_text;
use tt_proto::filesystem::{Filesystem, filesystem};
use tt_proto::paths::is_private_dir;
use tt_proto::requests::{DaemonStatus, ListRooms};
use tt_proto::room::RoomSummary;
use tt_proto::{Error, ErrorCode, VERSION};

use crate::Context;
use crate::cli::duration;
use crate::connect::{HttpClient, LockState, Settings, daemon_program, lock_state};
use crate::error::CommandError;
use crate::install::{Places, Setup, Wanted};
use crate::text::Style;
use crate::text::render::size;

/// How long a harness may take to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt doctor")]
pub(crate) struct Args {
    /// How long a hook may take without being reported as slow
    #[arg(long, value_name = "D", value_parser = duration, default_value = "150ms")]
    slow_hook: Duration,
}

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

    /// Says if a harness is of another version than the one we know.
    fn with_version(mut self, harness: &Harness, version: Option<String>) -> Self {
        if let Some(version) = version.filter(|version| version != harness.tested_version) {
            let tested = harness.tested_version;
            self.finding += &format!("; {} {version} is not the version that was tested, {tested}", harness.title);
        }
        self
    }

    fn failed(name: &'static str, error: &Error) -> Self {
        let (finding, remedy) = (error.message.clone(), Some(error.hint.clone()));
        Self { name, status: Verdict::Failed, finding, remedy, code: Some(error.code) }
    }
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let settings = &context.settings;
    let mut checks = vec![programs(settings), path(settings)];
    checks.extend([directory(settings), disk(settings), sizes(settings), leftovers(settings)]);
    checks.extend(daemon(settings));
    checks.extend(harnesses(settings, args.slow_hook));
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
fn harnesses(settings: &Settings, slow_hook: Duration) -> Vec<Check> {
    let places = match Places::of(&settings.env, Wanted::ALL) {
        Ok(places) => places,
        Err(e) => return vec![Check::failed("harnesses", &e)],
    };
    // All at once: some take seconds to start.
    let asked: Vec<_> = tt_harness::ALL.iter().map(|harness| VersionQuery::start(&places.program(harness)?)).collect();
    let check = |(harness, version): (&&'static Harness, Option<VersionQuery>)| {
        let check = setup(&places, harness)?;
        Some(check.with_version(harness, version.and_then(VersionQuery::answer)))
    };
    let mut checks: Vec<Check> = tt_harness::ALL.iter().zip(asked).filter_map(check).collect();
    if checks.is_empty() {
        let all: Vec<&str> = tt_harness::ALL.iter().map(|harness| harness.name).collect();
        return vec![Check::ok("harnesses", format!("none of {} is on this machine", all.join(", ")))];
    }
    checks.push(hook_time(super::hook::measure(), slow_hook));
    checks
}

/// Judges the time that a hook took. Agents wait for one before and after every tool call.
fn hook_time(took: Option<Duration>, slow: Duration) -> Check {
    match took {
        Some(took) if took > slow => Check::warning(
            "hooks",
            format!("a hook takes {} ms, and an agent waits for two with every tool call", took.as_millis()),
            "look for what slows down the machine or the start of tt; `tt install NAME --no-hooks` removes the hooks",
        ),
        Some(_) => Check::ok("hooks", format!("a hook takes less than {} ms", slow.as_millis())),
        None => Check::warning("hooks", "`tt hook` does not run", "install tt again, then run `tt install --all`"),
    }
}

/// A program that was asked for its version.
struct VersionQuery {
    child: Child,
    said: Receiver<String>,
    give_up: Instant,
}

impl VersionQuery {
    fn start(program: &Path) -> Option<Self> {
        let mut command = Command::new(program);
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let mut output = child.stdout.take()?;
        let (sender, said) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = [0; 256];
            let length = output.read(&mut line).unwrap_or(0);
            sender.send(String::from_utf8_lossy(&line[..length]).into_owned())
        });
        Some(Self { child, said, give_up: Instant::now() + VERSION_TIMEOUT })
    }

    /// The version, if the program says one in time.
    fn answer(mut self) -> Option<String> {
        let said = self.said.recv_timeout(self.give_up.saturating_duration_since(Instant::now()));
        let _ = self.child.kill();
        let _ = self.child.wait();
        version_in(&said.ok()?)
    }
}

/// The first word that looks like a version, in "codex-cli 0.1.2" or "0.1.2 (Some Name)".
fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    text.split_whitespace().map(|word| word.trim_start_matches('v')).find(is_version).map(str::to_owned)
}

/// How the user of a harness tells it to trust the hooks.
fn how_to_trust(places: &Places, harness: &'static Harness) -> String {
    let choice = places.choice_to_trust(harness).unwrap_or("to trust the hooks");
    format!("start {} and choose {choice}", harness.title)
}

fn setup(places: &Places, harness: &'static Harness) -> Option<Check> {
    let name = harness.name;
    Some(match places.setup(harness) {
        Ok(Setup::Absent) => return None,
        Ok(Setup::Ready) => Check::ok(name, "has the MCP server, the hooks and the skill"),
        Ok(Setup::Different { missing, drifted, .. }) if missing.is_empty() && drifted.is_empty() => Check::warning(
            name,
            format!("{} has not been told to trust the hooks, and runs none of them", harness.title),
            format!("{}, or run `tt install {name} --trust-hooks`", how_to_trust(places, harness)),
        ),
        Ok(Setup::Different { missing, drifted, .. }) if drifted.is_empty() => {
            Check::warning(name, format!("lacks {}", in_words(&missing)), format!("run `tt install {name}`"))
        }
        Ok(Setup::Different { missing, drifted, .. }) => {
            let lacks = if missing.is_empty() { String::new() } else { format!("; lacks {}", in_words(&missing)) };
            Check::warning(
                name,
                format!("has {} of another version or changed by hand{lacks}", in_words(&drifted)),
                format!("see the change with `tt install {name} --print`, make it with `tt install {name}`"),
            )
        }
        Err(e) => Check::failed(name, &e),
    })
}

fn in_words(parts: &[&str]) -> String {
    match parts {
        [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => parts.concat(),
    }
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
    let mut checks = vec![Check::ok("daemon", running), versions, identity];
    checks.extend(rooms(&mut client));
    checks
}

/// The most dormant rooms that are listed; the largest come first.
const MAX_DORMANT_SHOWN: usize = 10;

/// How many rooms are asked for at a time. The daemon counts every event of each, and a call has a deadline.
const ROOMS_PER_CALL: usize = 25;

/// All rooms, with their sizes.
fn all_rooms(client: &mut HttpClient) -> Result<Vec<RoomSummary>, Error> {
    let mut rooms: Vec<RoomSummary> = Vec::new();
    loop {
        let after_path = rooms.last().map(|room| room.canonical_path.clone());
        let page = ListRooms { after_path, limit: Some(ROOMS_PER_CALL), sizes: Some(true), ..Default::default() };
        let page = client.call(&page)?;
        let is_last = !page.more || page.rooms.is_empty();
        rooms.extend(page.rooms);
        if is_last {
            return Ok(rooms);
        }
    }
}

/// How many rooms there are, and what the dormant ones keep.
fn rooms(client: &mut HttpClient) -> Vec<Check> {
    let all = match all_rooms(client) {
        Ok(all) => all,
        Err(e) => return vec![Check::failed("rooms", &e)],
    };
    let mut dormant: Vec<&RoomSummary> = all.iter().filter(|room| room.members == 0).collect();
    dormant.sort_by_key(|room| std::cmp::Reverse(room.size.unwrap_or_default().bytes));
    let summary = match dormant.len() {
        0 => format!("{} with members, none dormant", all.len()),
        count => {
            let explained = "nobody is in them, and they keep everything; in its directory, `tt join` resumes one and `tt room delete` deletes it";
            format!("{} with members, {count} dormant: {explained}", all.len() - count)
        }
    };
    let mut checks = vec![Check::ok("rooms", summary)];
    for room in dormant.iter().take(MAX_DORMANT_SHOWN) {
        let size = size(&room.size.unwrap_or_default());
        checks.push(Check::ok("dormant", format!("{}: {size}", room.canonical_path)));
    }
    if let Some(more) = dormant.len().checked_sub(MAX_DORMANT_SHOWN).filter(|more| *more > 0) {
        checks.push(Check::ok("dormant", format!("and {more} smaller ones: tt list")));
    }
    checks
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_harnesses_say_them() {
        for said in ["codex-cli 1.20.3\n", "1.20.3 (Claude Code)\n", "1.20.3\n", "v1.20.3"] {
            assert_eq!(version_in(said).as_deref(), Some("1.20.3"), "{said:?}");
        }
        assert_eq!(version_in("usage: x [options]"), None);
    }

    #[test]
    fn a_hook_is_slow_above_the_limit_and_broken_if_it_does_not_run() {
        let limit = Duration::from_millis(150);
        let judged = |took: Option<u64>| hook_time(took.map(Duration::from_millis), limit);
        assert_eq!((judged(Some(3)).status, judged(Some(150)).status), (Verdict::Ok, Verdict::Ok));
        let slow = judged(Some(151));
        assert!(slow.status == Verdict::Warning && slow.finding.contains("151 ms") && slow.remedy.is_some());
        let broken = judged(None);
        assert!(broken.status == Verdict::Warning && broken.finding.contains("does not run"));
    }

    #[test]
    fn a_version_that_was_not_tested_is_named() {
        let harness = tt_harness::ALL[0];
        let judged = |version: &str| Check::ok("x", "fine").with_version(harness, Some(version.to_owned())).finding;
        assert_eq!(judged(harness.tested_version), "fine");
        let other = judged("99.0.1");
        assert!(other.contains("99.0.1") && other.contains(harness.tested_version), "{other}");
    }
}
