//! `tt guard`: how strictly the stick is kept before an edit, and the hooks of git that ask for it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde::Serialize;
use tt_proto::escape::{escape_text, is_harmless};
use tt_proto::policy::{Guard, PolicyOverrides};
use tt_proto::requests::{CheckGuard, GuardVerdict, SetRoomPolicy};
use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::connect::{HttpClient, Settings};
use crate::error::CommandError;
use crate::git_hooks::{self, Changed, HOOKS};
use crate::session::{PathArg, PathFlag, Session, fresh_key};

/// How long git waits for an answer. It goes on without one.
const CHECK_DEADLINE: Duration = Duration::from_millis(1600);

/// The status with which a commit is refused.
const EXIT_NOT_YOUR_TURN: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Look at nothing
    Off,
    /// Tell agents that edit without the stick
    Advise,
    /// Give a free stick to the first who edits, and refuse the others
    Enforce,
    /// Ask before each commit and push, in the hooks of this repository
    Install,
    /// Remove that from the hooks, and leave everything else
    Uninstall,
    #[value(hide = true)]
    Check,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without an argument it shows the state. TT_GUARD=off git commit … goes on once in any case, and is recorded.\n\n\
    Examples:\n  tt guard\n  tt guard advise\n  tt guard install"
)]
pub(crate) struct Args {
    #[arg(value_name = "ACTION")]
    action: Option<Action>,
    #[command(flatten)]
    path: PathFlag,
    // What the hook is about, and the process of git. A line of another version may have more.
    #[arg(hide = true, trailing_var_arg = true)]
    rest: Vec<String>,
}

/// The state, as JSON.
#[derive(Debug, Serialize)]
struct State {
    guard: Guard,
    #[serde(skip_serializing_if = "Option::is_none")]
    git_hooks: Option<GitHooks>,
}

#[derive(Debug, Serialize)]
struct GitHooks {
    path: String,
    installed: bool,
}

#[derive(Debug, Serialize)]
struct HookChange {
    path: String,
    change: &'static str,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    match args.action {
        None => show(context, args.path.into()),
        Some(Action::Off) => set(context, args.path.into(), Guard::Off),
        Some(Action::Advise) => set(context, args.path.into(), Guard::Advise),
        Some(Action::Enforce) => set(context, args.path.into(), Guard::Enforce),
        Some(Action::Install) => change_hooks(context, &args.path.into(), true),
        Some(Action::Uninstall) => change_hooks(context, &args.path.into(), false),
        Some(Action::Check) => check(&context.settings, &args.rest),
    }
}

fn show(context: &Context, path: PathArg) -> Result<(), CommandError> {
    let workspace = PathBuf::from(path.text()?);
    let (session, state) = Session::find_state(context, path)?;
    let hooks = git_hooks::directory(&workspace).ok().map(|hooks| GitHooks {
        installed: HOOKS.iter().all(|(hook, _)| git_hooks::is_installed(&hooks, hook)),
        path: hooks.display().to_string(),
    });
    let state = State { guard: state.guard, git_hooks: hooks };
    Ok(session.output.answer(&state, |state, style| {
        let hooks = match &state.git_hooks {
            None => "not a git repository".to_owned(),
            Some(hooks) if hooks.installed => format!("asks before a commit and a push ({})", escape_text(&hooks.path)),
            Some(_) => "not asked: tt guard install".to_owned(),
        };
        format!("guard  {}: {}\ngit    {hooks}", style.bold(state.guard.as_str()), meaning(state.guard))
    })?)
}

fn meaning(guard: Guard) -> &'static str {
    match guard {
        Guard::Off => "edits are not looked at",
        Guard::Advise => "an agent that edits without the stick is told so",
        Guard::Enforce => "the first edit takes a free stick; while another has it, edits are refused",
    }
}

fn set(context: &Context, path: PathArg, guard: Guard) -> Result<(), CommandError> {
    let mut session = Session::find(context, path)?;
    let key = fresh_key();
    let policy = PolicyOverrides { guard: Some(guard), ..PolicyOverrides::default() };
    session.call(|room_id| SetRoomPolicy { room_id, policy: policy.clone(), idempotency_key: key.clone() })?;
    let state = State { guard, git_hooks: None };
    Ok(session.output.answer(&state, |state, style| {
        format!("guard  {}: {}", style.bold(state.guard.as_str()), meaning(state.guard))
    })?)
}

fn change_hooks(context: &Context, path: &PathArg, installs: bool) -> Result<(), CommandError> {
    let hooks = git_hooks::directory(Path::new(&path.text()?))?;
    let tt = std::env::current_exe()
        .map_err(|e| CommandError::Local(Error::new(ErrorCode::InvalidInput, format!("tt cannot find itself: {e}"))))?;
    let changed = match installs {
        true => git_hooks::install(&hooks, &tt)?,
        false => {
            let uninstall = |(hook, _): &(&str, &str)| Ok((hooks.join(hook), git_hooks::uninstall(&hooks, hook)?));
            HOOKS.iter().map(uninstall).collect::<Result<_, Error>>()?
        }
    };
    let change =
        |(path, changed): (PathBuf, Changed)| HookChange { path: path.display().to_string(), change: word(changed) };
    let changes: Vec<HookChange> = changed.into_iter().map(change).collect();
    Ok(context.output().answer(&changes, |changes, _| {
        let lines: Vec<String> =
            changes.iter().map(|change| format!("{}: {}", escape_text(&change.path), change.change)).collect();
        lines.join("\n")
    })?)
}

fn word(changed: Changed) -> &'static str {
    match changed {
        Changed::Installed => "installed",
        Changed::Added => "our line is in the script that was there",
        Changed::Chained => "installed; the hook that was there runs after it",
        Changed::Removed => "removed",
        Changed::Unchanged => "unchanged",
    }
}

/// Asks whether git may go on. Whatever goes wrong, it may.
fn check(settings: &Settings, rest: &[String]) -> Result<(), CommandError> {
    let [action, process, ..] = rest else { return Ok(()) };
    let is_overridden = settings.env.get_str("TT_GUARD") == Some("off");
    let request = CheckGuard {
        context_path: ".".to_owned(),
        action: action.clone(),
        process: process.parse().ok(),
        is_overridden: is_overridden.then_some(true),
    };
    let settings =
        Settings { autostart: false, deadline: CHECK_DEADLINE, start_timeout: Duration::ZERO, ..settings.clone() };
    let (sender, answer) = mpsc::channel();
    // Nothing that the call waits for delays git for longer: connecting, greeting and the answer have one deadline together.
    std::thread::spawn(move || drop(sender.send(HttpClient::try_connect_and_call(&settings, &request))));
    let Ok(Ok(Some((_client, Ok(answer))))) = answer.recv_timeout(CHECK_DEADLINE) else { return Ok(()) };
    let text = answer.text.filter(|text| text.lines().all(is_harmless)).unwrap_or_default();
    let (said, is_refused) = match answer.verdict {
        GuardVerdict::Passes | GuardVerdict::Taken => return Ok(()),
        GuardVerdict::Warned => (format!("talking-stick: you {action} although it is not your turn\n{text}"), false),
        GuardVerdict::Overridden => {
            (format!("talking-stick: you {action} although it is not your turn; recorded\n{text}"), false)
        }
        GuardVerdict::Refused => {
            let how = "Run `tt wait`, which returns when it is your turn, and then do this again.";
            (format!("talking-stick: refused to {action}: it is not your turn\n{text}\n{how}"), true)
        }
    };
    let _ = writeln!(std::io::stderr(), "{said}");
    if is_refused { Err(CommandError::Status(EXIT_NOT_YOUR_TURN)) } else { Ok(()) }
}
