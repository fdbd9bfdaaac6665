//! `tt console`: starts the console, which is a program of its own so that `tt` stays small.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::error::CommandError;

/// The program of the console.
const PROGRAM: &str = "tt-console";

#[derive(Debug, clap::Args)]
#[command(after_help = "Press ? in it for its keys.\n\nExample:\n  tt console")]
pub(crate) struct Args {
    /// The workspace whose room is shown first: any path in it [default: the current directory]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let beside = std::env::current_exe().ok().and_then(|tt| Some(tt.parent()?.join(PROGRAM)));
    let program = beside.filter(|program| program.is_file()).unwrap_or_else(|| PROGRAM.into());
    let mut command = Command::new(&program);
    if !context.settings.autostart {
        command.env("TT_NO_AUTOSTART", "1");
    }
    // It has the terminal, and its signals, as if it had been started itself.
    let failure = command.args(args.path).exec();
    let message = match failure.kind() {
        std::io::ErrorKind::NotFound => "the console is not installed".to_owned(),
        _ => format!("{} could not be started: {failure}", program.display()),
    };
    let hint = "install it where tt is: cargo install --path tt-console";
    Err(CommandError::Local(Error::new(ErrorCode::InvalidInput, message).hint(hint)))
}
