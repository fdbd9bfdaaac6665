//! `tt help`: explains a command, or an error by its code.

use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::error::CommandError;
use crate::help::{error_codes, error_section};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tt help release\n  tt help errors stale_lease")]
pub(crate) struct Args {
    /// A command, or `errors` and a code
    topic: Vec<String>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let topic: Vec<&str> = args.topic.iter().map(String::as_str).collect();
    let text = match topic.as_slice() {
        ["errors"] => error_codes(),
        ["errors", code] => {
            let section = error_section(code).ok_or_else(|| {
                let error = Error::new(ErrorCode::InvalidInput, format!("there is no error called {code}"));
                CommandError::Refused(error.hint("tt help errors lists them"))
            })?;
            format!("{section}\n")
        }
        words => help_of(words)?,
    };
    Ok(context.output().text(|style| style.lines(&text))?)
}

/// The help of a command.
fn help_of(words: &[&str]) -> Result<String, CommandError> {
    let mut command = crate::command_line();
    for word in words {
        let found = command.find_subcommand(word).cloned();
        command = found.ok_or_else(|| {
            let error = Error::new(ErrorCode::InvalidInput, format!("there is no command called {}", words.join(" ")));
            CommandError::Refused(error.hint("tt --help lists them"))
        })?;
    }
    Ok(command.render_long_help().to_string())
}
