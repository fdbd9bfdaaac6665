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

/// Completes an argument that the script knows nothing about, or of which it knows only that it is a path.
const ZSH: &str = r#"
_tt_ask() {
    local -a found
    found=(${(f)"$(command tt complete -- "${(@)tt_line}" 2>/dev/null | cut -f1)"})
    if (( $#found )); then
        compadd -a found
    else
        _default
    fi
}
"#;

/// The words so far. Below a subcommand the script sees only the rest of them.
const ZSH_LINE: &str = r#"    local -a tt_line
    tt_line=("${(@)words[2,CURRENT]}")"#;

/// Fish completes the value of an option only by what is said of that option.
const FISH: &str = r#"
function __tt_ask
    command tt complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c tt -n "test (count (commandline -opc)) -gt 1" -a "(__tt_ask)"
for option in from to target event path
    complete -c tt -n "contains -- --$option (commandline -opc)[-1]" -l $option -x -a "(__tt_ask)"
end
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
            let begin = format!("{}\n_tt() {{\n{ZSH_LINE}", ZSH.trim());
            script = script.replace(":_default'", ":_tt_ask'").replace(":_files'", ":_tt_ask'");
            script = script.replacen("_tt() {", &begin, 1);
        }
        _ => {}
    }
    Ok(context.output().text(|_| script)?)
}

pub(crate) fn run_complete(context: &Context, args: CompleteArgs) -> Result<(), CommandError> {
    let lines: String = candidates(context, &args.words).iter().map(|line| format!("{line}\n")).collect();
    Ok(context.output().text(|_| lines)?)
}
