//! `tt completions`: prints the completion script for a shell.

use clap_complete::Shell;

use crate::Context;
use crate::error::CommandError;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt completions bash > ~/.local/share/bash-completion/completions/tt")]
pub(crate) struct Args {
    /// bash, elvish, fish, powershell or zsh
    shell: Shell,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command_line(), "tt", &mut script);
    Ok(context.output().text(|_| String::from_utf8_lossy(&script).into_owned())?)
}
