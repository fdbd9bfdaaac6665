//! `tt`: a short-lived thin client. It knows how to reach the daemon, how to ask, and how to show the answer; every rule
//! is the daemon's.

mod command;
pub mod connect;
mod follow;
mod handoff;
mod hook;
mod inbox;
mod install;
mod later;
mod layout;
mod mcp;
mod nearby;
pub mod output;
mod render;
mod workspace;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use connect::{Client, Settings, Wire};
use later::Later;
use output::{Format, Output};
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode};

/// Where the help lists what every command takes, apart from what is the command's own.
const EVERYWHERE: &str = "Options of every command";

/// Lets several coding agents and people share one workspace without stepping on each other.
#[derive(Debug, Parser)]
#[command(
    name = "tt",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "Example:\n  tt demo"
)]
struct Cli {
    /// Answer in JSON, one object on one line (the default for an agent)
    #[arg(long, global = true, conflicts_with = "text", help_heading = EVERYWHERE)]
    json: bool,
    /// Answer in text (the default for a person)
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    text: bool,
    /// Do not start the daemon when there is none
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    no_autostart: bool,
    /// A harness runs this as a hook: standard input tells which session it is
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    hook: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Become a member of this workspace's room
    Join(Later<command::join::Args>),
    /// Stop being a member
    Leave(Later<command::leave::Args>),
    /// Show the rooms there are
    List(Later<command::list::Args>),
    /// Show who holds the stick, who waits, and what was handed over
    State(Later<command::state::Args>),
    /// Wait for your turn
    Wait(Later<command::wait::Args>),
    /// Take the stick if it is free, without waiting
    Try(Later<command::wait::TryArgs>),
    /// Give the stick back, with a handoff for whoever comes next
    Release(Later<command::release::Args>),
    /// Give the stick to a member, with a handoff
    #[command(alias = "assign")]
    Pass(Later<command::release::PassArgs>),
    /// Take the stick from someone who no longer answers
    #[command(alias = "takeover")]
    Take(Later<command::take::Args>),
    /// Say that you are still at work with the stick
    Heartbeat(Later<command::heartbeat::Args>),
    /// Remove a member that is gone
    Kick(Later<command::kick::Args>),
    /// Talk to another member, or to everyone, in the middle of anyone's turn
    #[command(subcommand, after_help = "Example:\n  tt msg send codex \"keep the old column for now?\"")]
    Msg(Later<command::msg::Args>),
    /// Leave, list and resolve remarks
    #[command(subcommand, after_help = "Example:\n  tt notes list")]
    Notes(Later<command::notes::Args>),
    /// Show what happened in the room
    Events(Later<command::events::Args>),
    /// Show in a word how the stick stands; with --prompt, for a shell prompt
    Status(Later<command::status::Args>),
    /// Show the stick in your shell prompt
    #[command(subcommand, after_help = "Example:\n  tt prompt install bash")]
    Prompt(Later<command::prompt::Args>),
    /// Show who the daemon takes you for
    Whoami(Later<command::whoami::Args>),
    /// Serve an agent's harness over MCP, on standard input and output
    #[command(after_help = "A harness starts it; to try it by hand:\n\nExample:\n  tt mcp")]
    Mcp,
    /// Start, stop and look at the daemon
    #[command(subcommand, after_help = "Example:\n  tt daemon status")]
    Daemon(Later<command::daemon::Args>),
    /// Tell Claude Code, Codex, Gemini CLI and OpenCode about this: the skill and the MCP server
    Install(command::install::Args),
    /// Take that back
    #[command(after_help = "Example:\n  tt uninstall --all --print")]
    Uninstall(command::install::Args),
    /// Let systemd or launchd run the daemon
    #[command(subcommand, after_help = "Example:\n  tt service install")]
    Service(Later<command::service::Args>),
    /// Check what breaks in practice, and say how to mend it
    Doctor(Later<command::doctor::Args>),
    /// Print completions for your shell
    Completions(Later<command::completions::Args>),
    /// See what this does: a short session against a real daemon in a scratch directory
    Demo(Later<command::demo::Args>),
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The daemon said no, with a code.
    Refused(Error),
    /// No daemon could be reached or started.
    NoDaemon(Error),
    /// Something on this side went wrong.
    Other(Error),
    /// Standard output is gone, or takes no more.
    Output(std::io::Error),
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Failure::Output(e)
    }
}

impl From<Error> for Failure {
    fn from(e: Error) -> Self {
        match e.code {
            ErrorCode::DaemonUnreachable => Failure::NoDaemon(e),
            _ => Failure::Refused(e),
        }
    }
}

/// What every command starts from.
pub(crate) struct Context {
    pub settings: Settings,
    format: Option<Format>,
    /// A harness runs us as a hook, and reads what we say as a hook's answer.
    pub hook: bool,
}

impl Context {
    /// Reaches the daemon and settles how to answer the caller it recognised.
    pub(crate) async fn connect(&self) -> Result<(Client, Output), Failure> {
        self.connect_at(None, Wire::Short).await
    }

    /// The same, asking in which room a path is.
    pub(crate) async fn connect_at(
        &self,
        context_path: Option<String>,
        wire: Wire,
    ) -> Result<(Client, Output), Failure> {
        let settings = Settings { context_path, wire, ..self.settings.clone() };
        let client = Client::connect(settings).await.map_err(|e| match e.code {
            ErrorCode::InvalidInput | ErrorCode::ProtocolMismatch => Failure::Refused(e),
            _ => Failure::NoDaemon(e),
        })?;
        let by_identity = if client.welcome().identity.is_person() { Format::Text } else { Format::Json };
        Ok((client, Output::new(self.format.unwrap_or(by_identity), &self.settings.env)))
    }

    /// How to answer when no daemon has said who is calling.
    pub(crate) fn output(&self) -> Output {
        let by_signals = if self.settings.signals.suggest_agent() { Format::Json } else { Format::Text };
        Output::new(self.format.unwrap_or(by_signals), &self.settings.env)
    }
}

/// The command line as a whole, every command described, for completions and manual pages.
pub fn command_line() -> clap::Command {
    let mut whole = <Cli as clap::CommandFactory>::command();
    whole.build();
    whole
}

/// The whole program.
pub fn main() -> ExitCode {
    let env = Environment::of_this_process();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error, env),
    };
    let format = match (cli.json, cli.text) {
        (true, _) => Some(Format::Json),
        (_, true) => Some(Format::Text),
        _ => None,
    };
    let mut settings = match Settings::from_environment(env.clone()) {
        Ok(settings) => settings,
        Err(e) => return fail(format.unwrap_or(Format::Text), &Failure::Refused(e), &env),
    };
    settings.autostart &= !cli.no_autostart;
    if cli.hook {
        match hook::session() {
            Ok(session) => settings.signals.session_id = Some(session),
            Err(e) => return fail(format.unwrap_or(Format::Json), &Failure::Refused(e), &env),
        }
    }
    let context = Context { settings, format, hook: cli.hook };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            let failure = Failure::Other(Error::new(ErrorCode::InvalidInput, e.to_string()));
            return fail(context.output().format, &failure, &env);
        }
    };
    let done = runtime.block_on(async {
        match run(&context, cli.command).await {
            Err(Failure::Refused(e)) => Err(Failure::Refused(nearby::suggest(&context, e).await)),
            done => done,
        }
    });
    // A thread may still be waiting for a lock; the process does not wait for it.
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(context.output().format, &failure, &env),
    }
}

async fn run(context: &Context, command: Command) -> Result<(), Failure> {
    match command {
        Command::Join(Later(args)) => command::join::run(context, args).await,
        Command::Leave(Later(args)) => command::leave::run(context, args).await,
        Command::List(Later(args)) => command::list::run(context, args).await,
        Command::State(Later(args)) => command::state::run(context, args).await,
        Command::Wait(Later(args)) => command::wait::run(context, args).await,
        Command::Try(Later(args)) => command::wait::run_try(context, args).await,
        Command::Release(Later(args)) => command::release::run(context, args).await,
        Command::Pass(Later(args)) => command::release::run_pass(context, args).await,
        Command::Take(Later(args)) => command::take::run(context, args).await,
        Command::Heartbeat(Later(args)) => command::heartbeat::run(context, args).await,
        Command::Kick(Later(args)) => command::kick::run(context, args).await,
        Command::Msg(Later(args)) => command::msg::run(context, args).await,
        Command::Notes(Later(args)) => command::notes::run(context, args).await,
        Command::Events(Later(args)) => command::events::run(context, args).await,
        Command::Status(Later(args)) => command::status::run(context, args).await,
        Command::Prompt(Later(args)) => command::prompt::run(context, args),
        Command::Doctor(Later(args)) => command::doctor::run(context, args).await,
        Command::Completions(Later(args)) => command::completions::run(context, args),
        Command::Whoami(Later(args)) => command::whoami::run(context, args).await,
        Command::Mcp => mcp::run(context).await,
        Command::Daemon(Later(args)) => command::daemon::run(context, args).await,
        Command::Install(args) => command::install::run(context, args, true),
        Command::Uninstall(args) => command::install::run(context, args, false),
        Command::Service(Later(args)) => command::service::run(context, args).await,
        Command::Demo(Later(args)) => command::demo::run(context, args).await,
    }
}

/// Wrong usage, and the two things that only look like it: help and the version.
fn usage(error: &clap::Error, env: Environment) -> ExitCode {
    let signals = Settings::from_environment(env.clone()).map(|settings| settings.signals);
    let agent = signals.is_ok_and(|signals| signals.suggest_agent());
    let typed = |flag: &str| std::env::args_os().any(|arg| arg == flag);
    let json = typed("--json") || (agent && !typed("--text"));
    if !error.use_stderr() || !json {
        error.exit();
    }
    output::complain(Format::Json, &misused(error), &env);
    ExitCode::from(2)
}

/// What clap has to say, in one message and one hint.
fn misused(error: &clap::Error) -> Error {
    let text = error.to_string();
    let lines = |from: &str| {
        let below = text.split_once(from).map_or("", |(_, below)| below);
        below.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    // For want of a command it shows the whole help, which has no word on what is wrong.
    let bare =
        matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand);
    let message = if bare {
        "a command is missing".to_owned()
    } else {
        // What is wrong, and below it the values there are or the arguments that are missing.
        let said = lines("error: ");
        let (first, details) = said.split_first().map_or(("", &[][..]), |(first, details)| (*first, details));
        format!("{first} {}", details.join(", ")).trim_end().to_owned()
    };
    let mut hint: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|l| l.starts_with("tip:") || l.starts_with("Usage:"))
        .map(str::to_owned)
        .collect();
    if bare {
        let commands: Vec<&str> = lines("Commands:\n").iter().filter_map(|line| line.split(' ').next()).collect();
        hint.push(format!("commands: {}", commands.join(", ")));
    }
    let refusal = Error::new(ErrorCode::InvalidInput, message);
    if hint.is_empty() { refusal } else { refusal.hint(hint.join("; ")) }
}

/// A duration as people type it.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    tt_proto::time::parse_duration(text).ok_or_else(|| "use a number with ms, s, m, h or d, such as 30s".to_owned())
}

fn fail(format: Format, failure: &Failure, env: &Environment) -> ExitCode {
    let (error, code) = match failure {
        Failure::Refused(e) => (e, 3),
        Failure::NoDaemon(e) => (e, 4),
        Failure::Other(e) => (e, 1),
        // The reader went away, as `head` does: there is nothing to complain about.
        Failure::Output(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
        Failure::Output(e) => {
            let error = Error::new(ErrorCode::StorageUnavailable, format!("the answer cannot be written: {e}"))
                .hint("what was asked may be done all the same; look with tt state, and write to where there is room");
            output::complain(format, &error, env);
            return ExitCode::FAILURE;
        }
    };
    output::complain(format, error, env);
    ExitCode::from(code)
}
