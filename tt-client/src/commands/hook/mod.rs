//! `tt hook EVENT`: a harness runs this at certain moments of a session. It tells the daemon what the session does, prints what the
//! daemon has to say to the model, and confirms the messages in that once they are printed.
//!
//! A hook must never break or delay a session. Whatever goes wrong, it is silent and succeeds, and leaves a line in a log. It
//! starts a daemon only when a session begins.

mod dialect;
mod edits;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use serde_json::value::RawValue;
use tt_proto::delivery::Surface;
use tt_proto::filter::OneOrMany;
use tt_proto::hello::Signals;
use tt_proto::requests::{ReportSession, SaidMessages};
use tt_proto::session::SessionEvent;
use tt_proto::{Error, ErrorCode, WallTime};

use crate::Context;
use crate::connect::{HttpClient, Settings};
use crate::error::CommandError;
use crate::receive::Receipt;
use crate::text::render;
use dialect::{Dialect, Refusal};
use edits::ToolUse;

/// How long a hook may take, reading its input included.
const HOOK_DEADLINE: Duration = Duration::from_millis(200);

/// How long the decision about an edit may take. The edit goes ahead without one.
const EDIT_DEADLINE: Duration = Duration::from_millis(1600);

/// How long a hook that has printed messages may take to confirm them. What is not confirmed would be shown again.
const CONFIRM_DEADLINE: Duration = Duration::from_secs(1);

/// The harness of a run that only measures. The daemon knows none of this name, and notes nothing.
const PROBE: &str = "doctor";

/// How much input is read. A harness includes what its tools printed.
const MAX_HOOK_INPUT: u64 = 64 * 1024 * 1024;

/// How long the name of a file may be, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// How large the log of failed hooks may grow before it begins anew.
const MAX_LOG_BYTES: u64 = 256 * 1024;

// Takes any arguments: to some harnesses a usage error is a refusal, and another version may have written the line.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The harness that runs the hook
    #[arg(long, value_name = "NAME")]
    harness: Option<String>,
    /// What happened in the session
    event: Option<String>,
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    ignored: Vec<String>,
}

/// The parts of a hook's input that say something about its session. Harnesses name them alike.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Input {
    session_id: String,
    transcript_path: Option<String>,
    cwd: Option<String>,
    /// How a session began.
    source: Option<String>,
    /// Why a session ended.
    reason: Option<String>,
    tool_name: Option<String>,
    tool_use_id: Option<String>,
    /// Every tool has its own, and every harness.
    tool_input: Option<Box<RawValue>>,
    /// The subagent in which the hook runs.
    agent_id: Option<String>,
    notification_type: Option<String>,
    previous_session_id: Option<String>,
    /// When it happened, from a plugin that does not wait for its hooks.
    at: Option<WallTime>,
    /// The harness's own name for the event.
    hook_event_name: Option<String>,
    /// Our plugin hands over what is printed now.
    can_speak: bool,
    /// Our plugin waits for the answer, and keeps the tool from running if that says so.
    can_refuse: bool,
}

/// What the daemon has to say, and the connection on which that is confirmed.
struct Speech {
    output: String,
    messages: Vec<SaidMessages>,
    client: HttpClient,
}

impl Speech {
    /// Prints it, and then confirms. What could not be printed goes back with the connection.
    fn speak(mut self) -> Result<(), Error> {
        let failed =
            |e: std::io::Error| Error::new(ErrorCode::InvalidInput, format!("nobody reads what it prints: {e}"));
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", self.output).and_then(|()| stdout.flush()).map_err(failed)?;
        let mut receipt = Receipt::new(Surface::Hook);
        for said in &self.messages {
            receipt.mark_seqs_shown(&said.room_id, &said.event_seqs);
        }
        self.client.set_deadline(CONFIRM_DEADLINE);
        receipt.settle(&mut self.client)
    }
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let began = Instant::now();
    let event = args.event.clone().unwrap_or_default();
    let probe = args.harness.as_deref() == Some(PROBE);
    let settings = context.settings.clone();
    let (sender, progress) = mpsc::channel();
    // Nothing that the report waits for, the input included, delays the end of this process.
    std::thread::spawn(move || {
        let is_edit = || drop(sender.send(Progress::Edit));
        let reported = report(settings, args, began, is_edit);
        let _ = sender.send(Progress::Reported(Box::new(reported)));
    });
    // It is printed here, so that nothing is printed after the deadline.
    let spoken =
        reported(&progress, began).map(|report| report.and_then(|speech| speech.map_or(Ok(()), Speech::speak)));
    let failure = match spoken {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(e)) => format!("{} ({})", e.message, e.code),
        Err(_) => "it did not end in time".to_owned(),
    };
    if !probe {
        note(&context.settings, &format!("{event}: {failure}"));
    }
    Ok(())
}

/// How far a report is.
enum Progress {
    /// It is about an edit, for whose decision there is more time.
    Edit,
    Reported(Box<Result<Option<Speech>, Error>>),
}

/// What a report came to, if it came in time.
fn reported(
    progress: &mpsc::Receiver<Progress>,
    began: Instant,
) -> Result<Result<Option<Speech>, Error>, mpsc::RecvTimeoutError> {
    let mut deadline = HOOK_DEADLINE;
    loop {
        match progress.recv_timeout(deadline.saturating_sub(began.elapsed()))? {
            Progress::Edit => deadline = EDIT_DEADLINE,
            Progress::Reported(report) => return Ok(*report),
        }
    }
}

/// How long one run of a hook takes on this machine: the best of a few, because other programs run too.
pub(crate) fn measure() -> Option<Duration> {
    let program = std::env::current_exe().ok()?;
    let run = || {
        let began = Instant::now();
        let mut hook = Command::new(&program);
        hook.args(["hook", "--harness", PROBE, SessionEvent::Busy.as_str()]);
        let mut hook = hook.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        hook.stdin.take()?.write_all(br#"{"session_id":"doctor"}"#).ok()?;
        hook.wait().ok()?.success().then(|| began.elapsed())
    };
    (0..3).filter_map(|_| run()).min()
}

fn report(given: Settings, args: Args, began: Instant, is_edit: impl FnOnce()) -> Result<Option<Speech>, Error> {
    let (at, began_ms) = (render::now(), monotonic_millis());
    let missing = |what: &str| Error::new(ErrorCode::InvalidInput, format!("{what} is missing"));
    let harness = args.harness.ok_or_else(|| missing("--harness"))?;
    let event = SessionEvent::required(&args.event.ok_or_else(|| missing("the event"))?)?;
    let input = read(std::io::stdin().lock())?;
    // Gemini CLI has one event for everything it tells its user.
    if event == SessionEvent::PermissionAsked
        && input.notification_type.as_deref().is_some_and(|kind| kind != "ToolPermission")
    {
        return Ok(None);
    }
    let (known, event_name) = (tt_harness::by_name(&harness), input.hook_event_name.as_deref());
    let dialect = known.and_then(|harness| Dialect::of(harness, event_name, event.as_str(), input.can_speak));
    let refusal = known.and_then(|harness| Refusal::of(harness, event_name, event.as_str(), input.can_refuse));
    let (edits, is_shell) = match known.zip(input.tool_name.as_deref()) {
        Some((harness, tool)) if refusal.is_some() || event == SessionEvent::PermissionAsked => {
            match edits::read(&harness.tools, tool, input.tool_input.as_deref()) {
                ToolUse::Edit(paths) => (Some(absolute(paths, input.cwd.as_deref())), None),
                ToolUse::Shell => (None, Some(true)),
                ToolUse::Other => (None, None),
            }
        }
        _ => (None, None),
    };
    let mut deadline = HOOK_DEADLINE;
    if edits.is_some() && refusal.is_some() {
        deadline = EDIT_DEADLINE;
        is_edit();
    }
    let settings = Settings {
        autostart: given.autostart && event == SessionEvent::SessionStarted,
        deadline: deadline.saturating_sub(began.elapsed()),
        start_timeout: HOOK_DEADLINE.saturating_sub(began.elapsed()),
        signals: Signals { session_id: Some(input.session_id.clone()), hook: true, ..given.signals },
        ..given
    };
    // Only the command of a subagent may be taken for one of its conversation.
    let runs_tt = input.agent_id.is_some() && input.tool_input.as_deref().is_some_and(runs_tt);
    let request = ReportSession {
        harness,
        session_id: input.session_id,
        event: event.as_str().to_owned(),
        reason: input.source.or(input.reason),
        // A plugin tells of an earlier moment, and only in time of day.
        began_ms: began_ms.filter(|_| input.at.is_none()),
        at: Some(input.at.unwrap_or(at)),
        subagent_id: input.agent_id,
        tool_use_id: input.tool_use_id,
        tool_name: input.tool_name,
        runs_tt: runs_tt.then_some(true),
        cwd: input.cwd,
        transcript_path: input.transcript_path,
        previous_session_id: input.previous_session_id,
        can_speak: dialect.map(|_| true),
        edits: edits.map(OneOrMany::Many),
        is_shell,
    };
    let (client, reported) = match HttpClient::try_connect_and_call(&settings, &request)? {
        Some((client, answer)) => (client, answer?),
        None if settings.autostart => {
            let mut client = HttpClient::connect(settings)?;
            let answer = client.call(&request)?;
            (client, answer)
        }
        // Nobody decided about it, and it goes ahead.
        None if refusal.is_some() && request.edits.is_some() => {
            return Err(Error::new(
                ErrorCode::DaemonUnreachable,
                "no daemon has decided about an edit, which goes ahead",
            ));
        }
        // No daemon runs, so nobody waits for this.
        None => return Ok(None),
    };
    if let Some((refusal, reason)) = refusal.zip(reported.refusal) {
        let output = refusal.output(&reason);
        return Ok(output.map(|output| Speech { output, messages: Vec::new(), client }));
    }
    let Some((dialect, say)) = dialect.zip(reported.say) else { return Ok(None) };
    let output = dialect.output(&say);
    Ok(output.map(|output| Speech { output, messages: say.messages, client }))
}

/// The files that a tool names, from the directory of its session.
fn absolute(paths: Vec<String>, cwd: Option<&str>) -> Vec<String> {
    let is_named = |path: &String| path.len() < MAX_PATH_BYTES && !path.contains('\0');
    let absolute = |path: String| match cwd {
        Some(cwd) => Path::new(cwd).join(path).to_string_lossy().into_owned(),
        None => path,
    };
    paths.into_iter().map(absolute).filter(is_named).collect()
}

/// The clock that no one sets, as the daemon reads it.
fn monotonic_millis() -> Option<i64> {
    #[cfg(target_os = "macos")]
    let clock = ClockId::from_raw(nix::libc::CLOCK_UPTIME_RAW);
    #[cfg(not(target_os = "macos"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    let now = clock_gettime(clock).ok()?;
    Some(now.tv_sec() * 1000 + now.tv_nsec() / 1_000_000)
}

/// Whether a tool is a shell command in which `tt` is a word.
fn runs_tt(tool_input: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct ShellInput {
        command: String,
    }
    let Ok(ShellInput { command }) = serde_json::from_str(tool_input.get()) else { return false };
    let is_part_of_path = |c: char| c.is_alphanumeric() || matches!(c, '/' | '_' | '-' | '.' | '~');
    let mut words = command.split(|c| !is_part_of_path(c));
    words.any(|word| word.rsplit('/').next() == Some("tt"))
}

/// The session that the input of a hook names, if it can be read.
pub(crate) fn session_in(input: impl Read) -> Result<String, Error> {
    read(input).map(|input| input.session_id)
}

/// The files that the input of a hook says an edit will change, each as the daemon is told.
pub(crate) fn edits_in(harness: &tt_harness::Harness, input: impl Read) -> Result<Vec<String>, Error> {
    let input = read(input)?;
    let tool = input.tool_name.as_deref().unwrap_or_default();
    match edits::read(&harness.tools, tool, input.tool_input.as_deref()) {
        ToolUse::Edit(paths) => Ok(absolute(paths, input.cwd.as_deref())),
        ToolUse::Shell | ToolUse::Other => Ok(Vec::new()),
    }
}

/// Reads the first JSON object; the harness may keep its end open.
fn read(input: impl Read) -> Result<Input, Error> {
    let bad = |what: &str| Error::new(ErrorCode::InvalidInput, format!("the input of the hook cannot be read: {what}"));
    let mut objects =
        serde_json::Deserializer::from_reader(std::io::BufReader::new(input.take(MAX_HOOK_INPUT))).into_iter::<Input>();
    match objects.next() {
        Some(Ok(input)) if !input.session_id.is_empty() => Ok(input),
        Some(Ok(_)) => Err(bad("it names no session")),
        Some(Err(e)) => Err(bad(&e.to_string())),
        None => Err(bad("it is empty")),
    }
}

/// Adds a line to the log of hooks that failed. Nothing is said if that fails too.
fn note(settings: &Settings, line: &str) {
    let path = settings.paths.data_dir.join("hooks.log");
    let full = std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.len() > MAX_LOG_BYTES);
    let file = OpenOptions::new().create(true).write(true).append(!full).truncate(full).mode(0o600).open(path);
    if let Ok(mut file) = file {
        let line = tt_proto::escape::escape_text(line);
        let _ = writeln!(file, "{} {line}", render::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_of_every_harness_is_read_and_what_it_does_not_say_is_absent() {
        let claude = r#"{"session_id":"s","transcript_path":"/t","cwd":"/w","hook_event_name":"PreToolUse","tool_name":"Bash",
            "tool_input":{"command":"x"},"tool_use_id":"u","agent_id":"a","agent_type":"Explore"}"#;
        let input = read(claude.as_bytes()).unwrap();
        assert_eq!((input.session_id.as_str(), input.agent_id.as_deref()), ("s", Some("a")));
        assert_eq!((input.tool_use_id.as_deref(), input.reason), (Some("u"), None));
        let started = read(br#"{"session_id":"s","source":"clear"} and more"#.as_slice()).unwrap();
        assert_eq!(started.source.as_deref(), Some("clear"));
    }

    #[test]
    fn a_command_that_runs_tt_is_recognised() {
        let runs = |command: &str| {
            let input = serde_json::json!({"session_id": "s", "tool_input": {"command": command}}).to_string();
            runs_tt(&read(input.as_bytes()).unwrap().tool_input.unwrap())
        };
        for command in ["tt wait", "cd x && /opt/bin/tt --json state", "x=$(tt state)", "'~/bin/tt' msg recv;", "a|tt"]
        {
            assert!(runs(command), "{command}");
        }
        for command in ["cargo test", "ttd", "att x", "tt-demo", "cat tt.txt", ""] {
            assert!(!runs(command), "{command}");
        }
        for other in [r#"{"command":["tt"]}"#, r#""tt""#, "7", "{}", r#"{"file_path":"tt"}"#] {
            let input = format!(r#"{{"session_id":"s","tool_input":{other}}}"#);
            assert!(!runs_tt(&read(input.as_bytes()).unwrap().tool_input.unwrap()), "{other}");
        }
    }

    #[test]
    fn input_that_is_empty_cut_off_or_of_another_shape_is_an_error_and_never_a_panic() {
        for bad in
            ["", " ", "{}", "[]", "7", "{\"session_id\":\"\"}", "{\"session_id\":7}", "{\"session_id\":\"s", "\u{0}"]
        {
            assert_eq!(read(bad.as_bytes()).unwrap_err().code, ErrorCode::InvalidInput, "{bad:?}");
        }
        let deep = format!("{{\"session_id\":\"s\",\"x\":{}", "[".repeat(100_000));
        assert!(read(deep.as_bytes()).is_err());
    }
}
