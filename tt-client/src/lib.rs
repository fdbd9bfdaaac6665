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
mod runtime;
mod signals;
mod workspace;

use std::ffi::OsString;
use std::pin::Pin;

use clap::error::ErrorKind;
use clap::{Args as _, CommandFactory, FromArgMatches, Parser, Subcommand};
use connect::{Client, Settings, Transport};
use later::Later;
use output::{Format, Output};
use tt_proto::paths::Environment;
use tt_proto::requests::Method;
use tt_proto::{Error, ErrorCode};

/// Where the help lists what every command takes, apart from what is the command's own.
const EVERYWHERE: &str = "Options of every command";

// The command line. A description here would take the place of the one below.
#[derive(Debug, Parser)]
#[command(name = "tt")]
struct Cli {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    command: Command,
}

/// Lets several coding agents and people share one workspace without stepping on each other.
#[derive(Debug, clap::Args)]
#[command(version, arg_required_else_help = true, max_term_width = 100, after_help = "Example:\n  tt demo")]
struct Options {
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
}

// Grouped, so that for one command its neighbours are described and not all there are. The groups do not show. A description
// of one would take the place of the program's.
#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Room(Room),
    #[command(flatten)]
    Turn(Turn),
    #[command(flatten)]
    Talk(Talk),
    #[command(flatten)]
    Look(Look),
    #[command(flatten)]
    Setup(Setup),
}

// The room and who is in it.
#[derive(Debug, Subcommand)]
enum Room {
    /// Become a member of this workspace's room
    Join(Later<command::join::Args>),
    /// Stop being a member
    Leave(Later<command::leave::Args>),
    /// Show the rooms there are
    List(Later<command::list::Args>),
    /// Show who holds the stick, who waits, and what was handed over
    State(Later<command::state::Args>),
}

// Whose turn it is.
#[derive(Debug, Subcommand)]
enum Turn {
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
}

// What is said and what happened.
#[derive(Debug, Subcommand)]
enum Talk {
    /// Talk to another member, or to everyone, in the middle of anyone's turn
    #[command(subcommand, after_help = "Example:\n  tt msg send codex \"keep the old column for now?\"")]
    Msg(Later<command::msg::Args>),
    /// Leave, list and resolve remarks
    #[command(subcommand, after_help = "Example:\n  tt notes list")]
    Notes(Later<command::notes::Args>),
    /// Show what happened in the room
    Events(Later<command::events::Args>),
}

// Who I am here, and how the stick stands for me.
#[derive(Debug, Subcommand)]
enum Look {
    /// Show in a word how the stick stands; with --prompt, for a shell prompt
    Status(Later<command::status::Args>),
    /// Show the stick in your shell prompt
    #[command(subcommand, after_help = "Example:\n  tt prompt install bash")]
    Prompt(Later<command::prompt::Args>),
    /// Show who the daemon takes you for
    Whoami(Later<command::whoami::Args>),
}

// The daemon, and the programs around it.
#[derive(Debug, Subcommand)]
enum Setup {
    /// Serve an agent's harness over MCP, on standard input and output
    #[command(after_help = "A harness starts it; to try it by hand:\n\nExample:\n  tt mcp")]
    Mcp,
    /// Start, stop and look at the daemon
    #[command(subcommand, after_help = "Example:\n  tt daemon status")]
    Daemon(Later<command::daemon::Args>),
    #[command(about = command::install::about())]
    Install(command::install::Args),
    /// Remove what `tt install` added
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
        self.connect_at(None, Transport::Http).await
    }

    /// Reaches the daemon and asks which room a path belongs to.
    pub(crate) async fn connect_at(
        &self,
        context_path: Option<String>,
        transport: Transport,
    ) -> Result<(Client, Output), Failure> {
        let settings = Settings { context_path, transport, ..self.settings.clone() };
        let client = Client::connect(settings).await.map_err(unreached)?;
        let output = self.output_for(&client);
        Ok((client, output))
    }

    /// Reaches the daemon, asks which room a path belongs to, and makes a first call in the same request.
    pub(crate) async fn connect_and_call<M: Method>(
        &self,
        context_path: String,
        first: M,
    ) -> Result<(Client, Output, Result<M::Answer, Error>), Failure> {
        let settings =
            Settings { context_path: Some(context_path), transport: Transport::Http, ..self.settings.clone() };
        let (client, answer) = Client::connect_and_call(settings, first).await.map_err(unreached)?;
        let output = self.output_for(&client);
        Ok((client, output, answer))
    }

    fn output_for(&self, client: &Client) -> Output {
        let by_identity = if client.welcome().identity.is_person() { Format::Text } else { Format::Json };
        Output::new(self.format.unwrap_or(by_identity), &self.settings.env)
    }

    /// How to answer when no daemon has said who is calling.
    pub(crate) fn output(&self) -> Output {
        let by_signals = if signals::suggest_agent(&self.settings.signals) { Format::Json } else { Format::Text };
        Output::new(self.format.unwrap_or(by_signals), &self.settings.env)
    }
}

fn unreached(error: Error) -> Failure {
    match error.code {
        ErrorCode::InvalidInput | ErrorCode::ProtocolMismatch => Failure::Refused(error),
        _ => Failure::NoDaemon(error),
    }
}

/// The command line as a whole, every command described, for completions and manual pages.
pub fn command_line() -> clap::Command {
    let mut whole = Cli::command();
    whole.build();
    whole
}

/// Reads the command line. Where nothing but our own flags stands before a command, that command is the only one the parser
/// is told of: whatever holds for every command would be written down for each.
fn parse(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let flag = |word: &&OsString| ["--json", "--text", "--no-autostart", "--hook"].iter().any(|flag| *word == flag);
    let command = words.iter().skip(1).find(|word| !flag(word)).and_then(|word| word.to_str());
    let group = command.and_then(group_of);
    let mut line = match group.as_ref().zip(command).and_then(|(group, command)| group.find_subcommand(command)) {
        Some(command) => {
            let line = Options::augment_args(clap::Command::new("tt"));
            line.subcommand_required(true).subcommand(command.clone())
        }
        None => Cli::command(),
    };
    let mut matches = line.try_get_matches_from_mut(words)?;
    let cli = Cli::from_arg_matches_mut(&mut matches).map_err(|e| e.format(&mut line));
    // Left for the end of the process: to take them apart takes half as long as it took to put them together.
    std::mem::forget((line, matches, group));
    cli
}

/// A command of this name with those of its group. None for one of another name, an alias too.
fn group_of(command: &str) -> Option<clap::Command> {
    fn described<G: Subcommand>(command: &str) -> Option<clap::Command> {
        G::has_subcommand(command).then(|| G::augment_subcommands(clap::Command::new("tt")))
    }
    let turn = || described::<Turn>(command);
    let room = || described::<Room>(command);
    let look = || described::<Look>(command);
    let setup = || described::<Setup>(command);
    described::<Talk>(command).or_else(turn).or_else(room).or_else(look).or_else(setup)
}

/// The whole program, and the status it ends with.
pub fn main() -> u8 {
    let env = Environment::of_this_process();
    let Cli { options, command } = match parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error, env),
    };
    let format = match (options.json, options.text) {
        (true, _) => Some(Format::Json),
        (_, true) => Some(Format::Text),
        _ => None,
    };
    let mut settings = match Settings::from_environment(env.clone()) {
        Ok(settings) => settings,
        Err(e) => return fail(format.unwrap_or(Format::Text), &Failure::Refused(e), &env),
    };
    settings.autostart &= !options.no_autostart;
    if options.hook {
        match hook::session() {
            Ok(session) => settings.signals.session_id = Some(session),
            Err(e) => return fail(format.unwrap_or(Format::Json), &Failure::Refused(e), &env),
        }
    }
    let context = Context { settings, format, hook: options.hook };
    let done = runtime::run(async {
        if !command.goes_straight() {
            runtime::in_a_runtime().await;
        }
        match run(&context, command).await {
            Err(Failure::Refused(e)) => Err(Failure::Refused(Box::pin(nearby::suggest(&context, e)).await)),
            done => done,
        }
    });
    let no_runtime = |e: std::io::Error| Err(Failure::Other(Error::new(ErrorCode::InvalidInput, e.to_string())));
    match done.unwrap_or_else(no_runtime) {
        Ok(()) => 0,
        Err(failure) => fail(context.output().format, &failure, &env),
    }
}

impl Command {
    /// Whether it begins with `Workspace::find_and_call`, and so may be over before it needs a runtime.
    fn goes_straight(&self) -> bool {
        match self {
            Self::Room(command) => matches!(command, Room::State(_)),
            Self::Turn(Turn::Release(_) | Turn::Pass(_) | Turn::Take(_) | Turn::Heartbeat(_)) => true,
            Self::Talk(command) => matches!(command, Talk::Msg(Later(command::msg::Args::Send(_))) | Talk::Notes(_)),
            Self::Look(command) => matches!(command, Look::Status(_)),
            Self::Turn(_) | Self::Setup(_) => false,
        }
    }
}

/// Boxed, so that a command takes up its own room and not that of the largest.
fn run(context: &Context, command: Command) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + '_>> {
    match command {
        Command::Room(command) => match command {
            Room::Join(Later(args)) => Box::pin(command::join::run(context, args)),
            Room::Leave(Later(args)) => Box::pin(command::leave::run(context, args)),
            Room::List(Later(args)) => Box::pin(command::list::run(context, args)),
            Room::State(Later(args)) => Box::pin(command::state::run(context, args)),
        },
        Command::Turn(command) => match command {
            Turn::Wait(Later(args)) => Box::pin(command::wait::run(context, args)),
            Turn::Try(Later(args)) => Box::pin(command::wait::run_try(context, args)),
            Turn::Release(Later(args)) => Box::pin(command::release::run(context, args)),
            Turn::Pass(Later(args)) => Box::pin(command::release::run_pass(context, args)),
            Turn::Take(Later(args)) => Box::pin(command::take::run(context, args)),
            Turn::Heartbeat(Later(args)) => Box::pin(command::heartbeat::run(context, args)),
            Turn::Kick(Later(args)) => Box::pin(command::kick::run(context, args)),
        },
        Command::Talk(command) => match command {
            Talk::Msg(Later(args)) => Box::pin(command::msg::run(context, args)),
            Talk::Notes(Later(args)) => Box::pin(command::notes::run(context, args)),
            Talk::Events(Later(args)) => Box::pin(command::events::run(context, args)),
        },
        Command::Look(command) => match command {
            Look::Status(Later(args)) => Box::pin(command::status::run(context, args)),
            Look::Prompt(Later(args)) => Box::pin(std::future::ready(command::prompt::run(context, args))),
            Look::Whoami(Later(args)) => Box::pin(command::whoami::run(context, args)),
        },
        Command::Setup(command) => match command {
            Setup::Mcp => Box::pin(mcp::run(context)),
            Setup::Daemon(Later(args)) => Box::pin(command::daemon::run(context, args)),
            Setup::Install(args) => Box::pin(std::future::ready(command::install::run(context, args, true))),
            Setup::Uninstall(args) => Box::pin(std::future::ready(command::install::run(context, args, false))),
            Setup::Service(Later(args)) => Box::pin(command::service::run(context, args)),
            Setup::Doctor(Later(args)) => Box::pin(command::doctor::run(context, args)),
            Setup::Completions(Later(args)) => Box::pin(std::future::ready(command::completions::run(context, args))),
            Setup::Demo(Later(args)) => Box::pin(command::demo::run(context, args)),
        },
    }
}

/// Wrong usage, and the two things that only look like it: help and the version.
fn usage(error: &clap::Error, env: Environment) -> u8 {
    let signals = Settings::from_environment(env.clone()).map(|settings| settings.signals);
    let agent = signals.is_ok_and(|signals| signals::suggest_agent(&signals));
    let typed = |flag: &str| std::env::args_os().any(|arg| arg == flag);
    let json = typed("--json") || (agent && !typed("--text"));
    if !error.use_stderr() || !json {
        error.exit();
    }
    output::complain(Format::Json, &misused(error), &env);
    2
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

fn fail(format: Format, failure: &Failure, env: &Environment) -> u8 {
    let (error, code) = match failure {
        Failure::Refused(e) => (e, 3),
        Failure::NoDaemon(e) => (e, 4),
        Failure::Other(e) => (e, 1),
        // The reader went away, as `head` does: there is nothing to complain about.
        Failure::Output(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return 0,
        Failure::Output(e) => {
            let error = Error::new(ErrorCode::StorageUnavailable, format!("the answer cannot be written: {e}"))
                .hint("what was asked may be done all the same; look with tt state, and write to where there is room");
            output::complain(format, &error, env);
            return 1;
        }
    };
    output::complain(format, error, env);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_is_read_as_all_of_them_would_read_it() {
        let lines = [
            "msg send claude which one?",
            "--json msg send claude hi",
            "msg --json send claude hi --text",
            "--text --text state",
            "--json --text state",
            "msg",
            "msg --help",
            "msg send --help",
            "--help msg",
            "-h state",
            "help msg",
            "help",
            "--help",
            "",
            "--json",
            "-- msg",
            "mgs send",
            "msg sned",
            "--jsn msg send a b",
            "msg send",
            "msg send a b --no",
            "takeover --help",
            "takeover --reason x",
            "assign",
            "state --all extra more",
            "wait --timeout never",
            "install --help",
            "--version",
            "--version msg",
            "state --version",
            "-x state",
            "--hook heartbeat",
            "--no-autostart --hook --json try",
        ];
        for line in lines {
            let words = || std::iter::once("tt").chain(line.split_ascii_whitespace()).map(OsString::from);
            let all = Cli::try_parse_from(words());
            match (parse(words().collect()), all) {
                (Ok(one), Ok(all)) => assert_eq!(format!("{one:?}"), format!("{all:?}"), "{line}"),
                (Err(one), Err(all)) => assert_eq!(one.to_string(), all.to_string(), "{line}"),
                (one, all) => panic!("{line}: {one:?}, {all:?}"),
            }
        }
    }

    #[test]
    fn what_a_command_takes_does_not_change_what_it_is_said_to_do() {
        let (told, mut whole) = (Cli::command(), Cli::command());
        whole.build();
        let about = |command: &clap::Command| command.get_about().map(ToString::to_string);
        assert!(about(&whole).is_some_and(|about| about.starts_with("Lets several")), "{:?}", about(&whole));
        for command in told.get_subcommands() {
            let built = whole.find_subcommand(command.get_name()).map(about);
            assert_eq!(built, Some(about(command)), "{}", command.get_name());
        }
    }
}
