//! `tt`, a short-lived thin client. It connects to the daemon, sends requests and shows the responses; every rule is in the
//! daemon.
//!
//! A command is an ordinary synchronous function over [`connect::HttpClient`]. Only a command that follows events, receives
//! messages as they come or serves a harness has a runtime and a WebSocket, [`connect::Client`].

mod cli;
mod commands;
mod complete;
pub mod connect;
mod editor;
mod error;
mod follow;
#[doc(hidden)]
pub mod fuzz;
mod git_hooks;
mod handoff;
mod help;
mod hook;
mod install;
mod lazy_args;
mod live_session;
mod mcp;
pub mod output;
mod receive;
mod session;
mod signals;
mod suggest;
pub mod text;

pub use cli::command_line;
use connect::{HttpClient, Settings};
use error::CommandError;
use output::{Format, Output};
pub use session::fresh_key;
use tt_proto::paths::Environment;
use tt_proto::requests::Welcome;

/// The settings that every command starts from.
pub(crate) struct Context {
    pub settings: Settings,
    format: Option<Format>,
    /// Whether a harness runs this process as a hook, and reads its output as a hook's response.
    pub hook: bool,
}

impl Context {
    /// The settings with a path whose room the daemon looks up.
    pub(crate) fn settings_at(&self, context_path: Option<String>) -> Settings {
        Settings { context_path, ..self.settings.clone() }
    }

    /// Connects to the daemon, and chooses the output format by the caller that it recognised.
    pub(crate) fn connect(&self) -> Result<(HttpClient, Output), CommandError> {
        let client = HttpClient::connect(self.settings.clone()).map_err(CommandError::from_connect)?;
        let output = self.output_for(client.welcome());
        Ok((client, output))
    }

    /// The output for the caller that the daemon recognised.
    pub(crate) fn output_for(&self, welcome: &Welcome) -> Output {
        let by_identity = if welcome.identity.is_person() { Format::Text } else { Format::Json };
        let output = Output::new(self.format.unwrap_or(by_identity), &self.settings.env);
        output.about(welcome.room_id.clone(), welcome.inbox)
    }

    /// The output for a command that has not asked the daemon who is calling.
    pub(crate) fn output(&self) -> Output {
        let by_signals = if signals::suggest_agent(&self.settings.signals) { Format::Json } else { Format::Text };
        Output::new(self.format.unwrap_or(by_signals), &self.settings.env)
    }
}

/// The whole program. Returns the status it exits with.
pub fn main() -> u8 {
    let env = Environment::of_this_process();
    let cli::Cli { options, command } = match cli::Cli::of_this_process(&env) {
        Ok(cli) => cli,
        Err(exit_code) => return exit_code,
    };
    let reports = matches!(command, cli::Command::Hook(_));
    let format = match (options.json, options.text) {
        (true, _) => Some(Format::Json),
        (_, true) => Some(Format::Text),
        _ => None,
    };
    let mut settings = match Settings::from_environment(env.clone()) {
        Ok(settings) => settings,
        // A hook never disturbs its session.
        Err(_) if reports => return 0,
        Err(e) => return fail(format.unwrap_or(Format::Text), &CommandError::Refused(e), &env),
    };
    settings.autostart &= !options.no_autostart;
    if options.hook {
        match hook::read_session() {
            Ok(session) => settings.signals.session_id = Some(session),
            Err(e) => return fail(format.unwrap_or(Format::Json), &CommandError::Refused(e), &env),
        }
    }
    let context = Context { settings, format, hook: options.hook };
    let error = match command.run(&context) {
        Ok(()) => return 0,
        Err(CommandError::Refused(e)) => CommandError::Refused(suggest::with_suggestions(&context, e)),
        Err(error) => error,
    };
    fail(context.output().format, &error, &env)
}

/// Reports why the command failed. Returns the status to exit with.
fn fail(format: Format, error: &CommandError, env: &Environment) -> u8 {
    if let Some(report) = error.report() {
        output::write_error(format, &report, env);
    }
    error.exit_code()
}
