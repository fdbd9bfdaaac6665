//! `tt completions`: prints the completion script for a shell. What only the daemon knows is asked for when it is needed, with
//! the hidden command `tt complete`.

use clap_complete::Shell;

use crate::Context;
use crate::complete::candidates;
use crate::error::CommandError;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt completions bash > ~/.local/share/bash-completion/completions/tt")]
pub(crate) struct Args {
    /// bash, elvish, fish, powershell or zsh
    shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt complete -- msg send co")]
pub(crate) struct CompleteArgs {
    /// The words after `tt`, of which the last is to be completed
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Asks for candidates first, and without any completes as before.
const BASH: &str = r#"
_tt_or_ask() {
    local IFS=$'\n' found
    found=($(command tt complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
    if [[ ${#found[@]} -gt 0 ]]; then
        COMPREPLY=("${found[@]}")
    else
        unset IFS
        _tt "$@"
    fi
}
complete -F _tt_or_ask -o nosort -o bashdefault -o default tt
"#;

/// Completes an argument that the script knows nothing about.
const ZSH: &str = r#"
_tt_ask() {
    local -a found
    found=(${(f)"$(command tt complete -- "${(@)words[2,CURRENT]}" 2>/dev/null | cut -f1)"})
    if (( $#found )); then
        compadd -a found
    else
        _default
    fi
}
"#;

const FISH: &str = r#"
complete -c tt -n "test (count (commandline -opc)) -gt 1" -a "(command tt complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)"
"#;

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command_line(), "tt", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    match args.shell {
        Shell::Bash => script.push_str(BASH),
        Shell::Fish => script.push_str(FISH),
        Shell::Zsh => {
            // The function is defined before the script calls what completes.
            script =
                script.replace(":_default'", ":_tt_ask'").replacen("_tt() {", &format!("{}\n_tt() {{", ZSH.trim()), 1);
        }
        _ => {}
    }
    Ok(context.output().text(|_| script)?)
}

pub(crate) fn run_complete(context: &Context, args: CompleteArgs) -> Result<(), CommandError> {
    let lines: String = candidates(context, &args.words).iter().map(|line| format!("{line}\n")).collect();
    Ok(context.output().text(|_| lines)?)
}
