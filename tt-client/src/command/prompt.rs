//! `tt prompt install|uninstall`: the stick in the shell prompt, in a marked block of the shell's own file.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;
use tt_proto::{Error, ErrorCode};

use crate::{Context, Failure};

const BEGIN: &str = "# >>> talking-stick prompt >>>";
const END: &str = "# <<< talking-stick prompt <<<";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Show the stick in the prompt of new shells
    #[command(after_help = "Example:\n  tt prompt install zsh")]
    Install { shell: Shell },
    /// Take that back
    #[command(after_help = "Example:\n  tt prompt uninstall zsh")]
    Uninstall { shell: Shell },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn file(self, context: &Context) -> Result<PathBuf, Failure> {
        let env = &context.settings.env;
        let home = env.home().map_err(Failure::Other)?;
        Ok(match self {
            Shell::Bash => home.join(".bashrc"),
            Shell::Zsh => env.get("ZDOTDIR").map_or_else(|| home.clone(), PathBuf::from).join(".zshrc"),
            Shell::Fish => {
                let config = env.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
                config.join("fish/conf.d/talking-stick.fish")
            }
        })
    }

    fn script(self) -> &'static str {
        match self {
            Shell::Bash => "PS1='$(command tt status --prompt 2>/dev/null)'\"$PS1\"",
            Shell::Zsh => "setopt PROMPT_SUBST\nPROMPT='$(command tt status --prompt 2>/dev/null)'\"$PROMPT\"",
            Shell::Fish => {
                "if status is-interactive\n    functions --query __tt_prompt; or functions --copy fish_prompt __tt_prompt\n    \
                 function fish_prompt\n        command tt status --prompt 2>/dev/null\n        __tt_prompt\n    end\nend"
            }
        }
    }
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let (shell, install) = match args {
        Args::Install { shell } => (shell, true),
        Args::Uninstall { shell } => (shell, false),
    };
    let file = shell.file(context)?;
    // A dotfile that is a symlink stays one: what it points to is changed.
    let file = file.canonicalize().unwrap_or(file);
    let cannot = |e: std::io::Error| {
        let message = format!("cannot change {}: {e}", file.display());
        Failure::Other(Error::new(ErrorCode::StorageUnavailable, message).hint("check its permissions"))
    };
    let before = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(e) => return Err(cannot(e)),
    };
    let bare = without_block(&before);
    let after = if install { with_block(&bare, shell.script()) } else { bare };
    if after != before {
        replace(&file, &after).map_err(cannot)?;
    }
    let status = match (install, after != before) {
        (true, true) => "installed",
        (true, false) => "already_installed",
        (false, true) => "uninstalled",
        (false, false) => "not_installed",
    };
    let answer = json!({ "status": status, "file": file.display().to_string() });
    Ok(context.output().answer(&answer, |_, _| {
        let next = if status == "installed" { "; open a new shell to see it" } else { "" };
        format!("{} in {}{next}", status.replace('_', " "), file.display())
    })?)
}

fn with_block(bare: &str, script: &str) -> String {
    let gap = if bare.is_empty() || bare.ends_with('\n') { "" } else { "\n" };
    format!("{bare}{gap}{BEGIN}\n{script}\n{END}\n")
}

/// The file as it was before our block was put at its end. A block that was cut short is left alone.
fn without_block(text: &str) -> String {
    let Some(from) = text.find(BEGIN) else { return text.to_owned() };
    let Some(to) = text[from..].find(END).map(|at| from + at + END.len()) else { return text.to_owned() };
    let rest = text[to..].strip_prefix('\n').unwrap_or(&text[to..]);
    format!("{}{rest}", &text[..from])
}

/// Writes beside the file and moves it into place, so that a shell never reads half of it.
fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    if text.is_empty() {
        return std::fs::remove_file(file);
    }
    let beside = file.with_extension(format!("tt-{}", std::process::id()));
    std::fs::write(&beside, text)?;
    if let Ok(meta) = std::fs::metadata(file) {
        std::fs::set_permissions(&beside, meta.permissions())?;
    }
    std::fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installing_twice_is_installing_once_and_uninstalling_restores_the_file() {
        for before in ["", "alias ll='ls -l'\n", "two\nlines\n"] {
            let once = with_block(&without_block(before), Shell::Bash.script());
            let twice = with_block(&without_block(&once), Shell::Bash.script());
            assert_eq!(once, twice);
            assert_eq!(without_block(&once), before);
        }
        let edited = format!("a\n{BEGIN}\nx\n{END}\nb\n");
        assert_eq!(without_block(&edited), "a\nb\n", "what was added after it stays");
        let broken = format!("a\n{BEGIN}\nx\n");
        assert_eq!(without_block(&broken), broken);
    }
}
