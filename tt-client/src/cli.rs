//! The command line: every command, the options they share, and how a usage error is reported.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use tt_proto::paths::Environment;
use tt_proto::reminder::MAX_AHEAD;
use tt_proto::{Error, ErrorCode};

use crate::connect::Settings;
use crate::error::{CommandError, EXIT_USAGE};
use crate::lazy_args::LazyArgs;
use crate::output::{self, Format};
use crate::{Context, commands, mcp, signals};

/// The heading in the help for the options that every command accepts.
const GLOBAL_OPTIONS: &str = "Options of every command";

// The command line. A doc comment here would replace the program's description below.
#[derive(Debug, Parser)]
#[command(name = "tt", disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub options: Options,
    #[command(subcommand)]
    pub command: Command,
}

/// Lets several coding agents and people share one workspace without stepping on each other.
#[derive(Debug, clap::Args)]
#[command(version, arg_required_else_help = true, max_term_width = 100, after_help = "Example:\n  tt demo")]
pub(crate) struct Options {
    /// Answer in JSON, one object on one line (the default for an agent)
    #[arg(long, global = true, conflicts_with = "text", help_heading = GLOBAL_OPTIONS)]
    pub json: bool,
    /// Answer in text (the default for a person)
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pub text: bool,
    /// Do not start the daemon if it is not running
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pub no_autostart: bool,
    /// Run as a hook of a harness, which names its session on standard input
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS)]
    pub hook: bool,
}

// The commands, in the order of the help. A doc comment here would replace the description of the program.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Join this workspace's room
    Join(LazyArgs<commands::join::Args>),
    /// Leave the room
    Leave(LazyArgs<commands::leave::Args>),
    /// List the rooms
    List(LazyArgs<commands::list::Args>),
    /// Show who holds the stick, who is waiting, and the current handoff
    State(LazyArgs<commands::state::Args>),
    /// Wait for your turn, a takeover or a message
    Wait(LazyArgs<commands::wait::Args>),
    /// Join with nothing to do: say whether a message wakes you, and return
    Standby(LazyArgs<commands::standby::Args>),
    /// Take the stick if it is free, without waiting
    Try(LazyArgs<commands::wait::TryArgs>),
    /// Wait for the stick, run a command with it, and release it
    Run(LazyArgs<commands::run::Args>),
    /// Release the stick, with a handoff for the next holder
    Release(LazyArgs<commands::release::Args>),
    /// Give the stick to a member, with a handoff
    #[command(alias = "assign")]
    Pass(LazyArgs<commands::release::PassArgs>),
    /// Take the stick over from a member that no longer responds
    #[command(alias = "takeover")]
    Take(LazyArgs<commands::take::Args>),
    /// Renew your lease while you work with the stick
    Heartbeat(LazyArgs<commands::heartbeat::Args>),
    /// Keep agents from editing and committing without the stick, or do not
    Guard(LazyArgs<commands::guard::Args>),
    /// Remove a member
    Kick(LazyArgs<commands::kick::Args>),
    /// Send and receive messages, at any time and without the stick
    #[command(subcommand, after_help = "Example:\n  tt msg send codex \"keep the old column for now?\"")]
    Msg(LazyArgs<commands::msg::Args>),
    /// Send a message (tt msg send)
    #[command(after_help = "Example:\n  tt send claude \"which constraint do you mean?\"")]
    Send(LazyArgs<commands::msg::SendArgs>),
    /// Read your messages (tt msg recv)
    #[command(after_help = "Example:\n  tt recv --follow")]
    Recv(LazyArgs<commands::msg::RecvArgs>),
    /// Ask a member something and wait for the answer
    Ask(LazyArgs<commands::ask::AskArgs>),
    /// Answer a message
    Reply(LazyArgs<commands::ask::ReplyArgs>),
    /// Show the messages that wait, and why
    Inbox(LazyArgs<commands::deliveries::InboxArgs>),
    /// Send yourself or another member a message later
    #[command(visible_alias = "wake")]
    Remind(LazyArgs<commands::remind::Args>),
    /// Do not be woken by messages for a while
    Quiet(LazyArgs<commands::deliveries::QuietArgs>),
    /// Add, list and resolve notes
    #[command(subcommand, after_help = "Example:\n  tt notes list")]
    Notes(LazyArgs<commands::notes::Args>),
    /// Show the events of the room
    #[command(visible_alias = "log")]
    Events(LazyArgs<commands::events::Args>),
    /// Watch one or several rooms, line by line, with what becomes of each message
    Watch(LazyArgs<commands::watch::Args>),
    /// Delete the room
    #[command(subcommand, after_help = "Example:\n  tt room delete")]
    Room(LazyArgs<commands::room::Args>),
    /// See all rooms, members and messages on one screen
    #[command(visible_alias = "ui")]
    Console(LazyArgs<commands::console::Args>),
    /// List the sessions of harnesses: what each does, and how that is known
    Sessions(LazyArgs<commands::sessions::Args>),
    /// Show what a member's session said and did last
    Peek(LazyArgs<commands::sessions::PeekArgs>),
    /// Show the state of the stick in one word; with --prompt, for a shell prompt
    Status(LazyArgs<commands::status::Args>),
    /// Show the stick in your shell prompt
    #[command(subcommand, after_help = "Example:\n  tt prompt install bash")]
    Prompt(LazyArgs<commands::prompt::Args>),
    /// Show which agent the daemon recognises you as
    Whoami(LazyArgs<commands::whoami::Args>),
    /// Serve an agent over MCP, on standard input and output
    #[command(after_help = "A harness starts this. To try it by hand:\n\nExample:\n  tt mcp")]
    Mcp,
    /// Start, stop and inspect the daemon
    #[command(subcommand, after_help = "Example:\n  tt daemon status")]
    Daemon(LazyArgs<commands::daemon::Args>),
    #[command(about = commands::install::about(), after_help = "Examples:\n  tt install --all --print\n  tt install claude codex")]
    Install(LazyArgs<commands::install::InstallArgs>),
    /// Uninstall the skill, the MCP server and the hooks
    #[command(after_help = "Example:\n  tt uninstall --all --print")]
    Uninstall(LazyArgs<commands::install::Args>),
    /// Report what a session does, as a hook of its harness
    #[command(
        after_help = "Harnesses run this; `tt install` sets it up.\n\nExample:\n  tt hook --harness claude turn_ended </dev/null"
    )]
    Hook(LazyArgs<commands::hook::Args>),
    /// Run the daemon as a systemd or launchd service
    #[command(subcommand, after_help = "Example:\n  tt service install")]
    Service(LazyArgs<commands::service::Args>),
    /// Check the installation and suggest fixes
    Doctor(LazyArgs<commands::doctor::Args>),
    /// Print shell completions
    Completions(LazyArgs<commands::completions::Args>),
    /// Watch a short session against a real daemon in a temporary directory
    Demo(LazyArgs<commands::demo::Args>),
    /// Explain a command, or an error: tt help errors CODE
    Help(LazyArgs<commands::help::Args>),
    /// Complete a command line, for the completion scripts
    #[command(hide = true)]
    Complete(LazyArgs<commands::completions::CompleteArgs>),
}

impl Command {
    /// Runs the command to its end.
    pub(crate) fn run(self, context: &Context) -> Result<(), CommandError> {
        match self {
            Self::Join(LazyArgs(args)) => commands::join::run(context, args),
            Self::Leave(LazyArgs(args)) => commands::leave::run(context, args),
            Self::List(LazyArgs(args)) => commands::list::run(context, args),
            Self::State(LazyArgs(args)) => commands::state::run(context, args),
            Self::Wait(LazyArgs(args)) => commands::wait::run(context, args),
            Self::Try(LazyArgs(args)) => commands::wait::run_try(context, args),
            Self::Run(LazyArgs(args)) => commands::run::run(context, args),
            Self::Release(LazyArgs(args)) => commands::release::run(context, args),
            Self::Pass(LazyArgs(args)) => commands::release::run_pass(context, args),
            Self::Take(LazyArgs(args)) => commands::take::run(context, args),
            Self::Heartbeat(LazyArgs(args)) => commands::heartbeat::run(context, args),
            Self::Guard(LazyArgs(args)) => commands::guard::run(context, args),
            Self::Kick(LazyArgs(args)) => commands::kick::run(context, args),
            Self::Msg(LazyArgs(args)) => commands::msg::run(context, args),
            Self::Send(LazyArgs(args)) => commands::msg::send(context, args),
            Self::Recv(LazyArgs(args)) => commands::msg::recv(context, args),
            Self::Ask(LazyArgs(args)) => commands::ask::run_ask(context, args),
            Self::Reply(LazyArgs(args)) => commands::ask::run_reply(context, args),
            Self::Inbox(LazyArgs(args)) => commands::deliveries::inbox(context, args),
            Self::Remind(LazyArgs(args)) => commands::remind::run(context, args),
            Self::Standby(LazyArgs(args)) => commands::standby::run(context, args),
            Self::Quiet(LazyArgs(args)) => commands::deliveries::quiet(context, args),
            Self::Notes(LazyArgs(args)) => commands::notes::run(context, args),
            Self::Events(LazyArgs(args)) => commands::events::run(context, args),
            Self::Watch(LazyArgs(args)) => commands::watch::run(context, args),
            Self::Room(LazyArgs(args)) => commands::room::run(context, args),
            Self::Console(LazyArgs(args)) => commands::console::run(context, args),
            Self::Sessions(LazyArgs(args)) => commands::sessions::run(context, args),
            Self::Peek(LazyArgs(args)) => commands::sessions::run_peek(context, args),
            Self::Status(LazyArgs(args)) => commands::status::run(context, args),
            Self::Prompt(LazyArgs(args)) => commands::prompt::run(context, args),
            Self::Whoami(LazyArgs(args)) => commands::whoami::run(context, args),
            Self::Mcp => mcp::run(context),
            Self::Daemon(LazyArgs(args)) => commands::daemon::run(context, args),
            Self::Install(LazyArgs(args)) => commands::install::run_install(context, args),
            Self::Uninstall(LazyArgs(args)) => commands::install::run_uninstall(context, args),
            Self::Hook(LazyArgs(args)) => commands::hook::run(context, args),
            Self::Service(LazyArgs(args)) => commands::service::run(context, args),
            Self::Doctor(LazyArgs(args)) => commands::doctor::run(context, args),
            Self::Completions(LazyArgs(args)) => commands::completions::run(context, args),
            Self::Demo(LazyArgs(args)) => commands::demo::run(context, args),
            Self::Help(LazyArgs(args)) => commands::help::run(context, args),
            Self::Complete(LazyArgs(args)) => commands::completions::run_complete(context, args),
        }
    }
}

impl Cli {
    /// Reads the command line of this process. The error is the exit code, with the usage error, help or version printed.
    pub(crate) fn of_this_process(env: &Environment) -> Result<Self, u8> {
        Self::try_parse().map_err(|error| print_usage(suggest_one(error), env))
    }
}

/// The complete command line, for completions and manual pages.
pub fn command_line() -> clap::Command {
    let mut whole = Cli::command();
    whole.build();
    whole
}

/// Keeps the likeliest of several commands that were perhaps meant, so that the line fits a narrow terminal.
fn suggest_one(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand)
        && let Some(likeliest) = names.last().cloned()
    {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![likeliest]));
    }
    error
}

/// Prints a usage error, the help or the version, and returns the exit code.
fn print_usage(error: clap::Error, env: &Environment) -> u8 {
    // A line that another version installed must not disturb the session.
    if error.use_stderr() && std::env::args_os().nth(1).is_some_and(|command| command == "hook") {
        return 0;
    }
    let signals = Settings::from_environment(env.clone()).map(|settings| settings.signals);
    let agent = signals.is_ok_and(|signals| signals::suggest_agent(&signals));
    let typed = |flag: &str| std::env::args_os().any(|arg| arg == flag);
    let json = typed("--json") || (agent && !typed("--text"));
    if !error.use_stderr() || !json {
        error.exit();
    }
    output::write_error(Format::Json, &describe_usage_error(&error), env);
    EXIT_USAGE
}

/// A usage error of clap as one message and one hint.
fn describe_usage_error(error: &clap::Error) -> Error {
    let text = error.to_string();
    let lines = |from: &str| {
        let below = text.split_once(from).map_or("", |(_, below)| below);
        below.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>()
    };
    // Without a command clap shows the whole help, which does not name the error.
    let no_command =
        matches!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand);
    let message = if no_command {
        "a command is missing".to_owned()
    } else {
        // The error, and below it the possible values or the missing arguments.
        let error_lines = lines("error: ");
        let (first, details) = error_lines.split_first().map_or(("", &[][..]), |(first, details)| (*first, details));
        format!("{first} {}", details.join(", ")).trim_end().to_owned()
    };
    let mut hint: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|l| l.starts_with("tip:") || l.starts_with("Usage:"))
        .map(str::to_owned)
        .collect();
    if no_command {
        let commands: Vec<&str> = lines("Commands:\n").iter().filter_map(|line| line.split(' ').next()).collect();
        hint.push(format!("commands: {}", commands.join(", ")));
    }
    let refusal = Error::new(ErrorCode::InvalidInput, message);
    if hint.is_empty() { refusal } else { refusal.hint(hint.join("; ")) }
}

/// Parses a duration argument.
pub(crate) fn duration(text: &str) -> Result<std::time::Duration, String> {
    tt_proto::time::parse_duration(text)
        .ok_or_else(|| "use a number with ms, s, m, h or d, such as 30s or 1h30m".to_owned())
}

/// Parses how far ahead something is to happen.
pub(crate) fn time_ahead(text: &str) -> Result<std::time::Duration, String> {
    match duration(text)? {
        time if time.is_zero() || time > MAX_AHEAD => Err("use a time between a millisecond and a year".to_owned()),
        time => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lazy_arguments_do_not_change_the_description_of_a_command() {
        let (lazy, mut whole) = (Cli::command(), Cli::command());
        whole.build();
        let about = |command: &clap::Command| command.get_about().map(ToString::to_string);
        assert!(about(&whole).is_some_and(|about| about.starts_with("Lets several")), "{:?}", about(&whole));
        for command in lazy.get_subcommands() {
            let built = whole.find_subcommand(command.get_name()).map(about);
            assert_eq!(built, Some(about(command)), "{}", command.get_name());
        }
    }
}
