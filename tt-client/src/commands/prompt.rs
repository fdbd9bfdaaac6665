//! `tt prompt install|uninstall`: shows the stick in the shell prompt, through a marked block in the shell's startup file.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;
use tt_proto::escape::escape_text;
use tt_proto::filesystem::read_file;
use tt_proto::paths::{SHARED_DIR_MODE, make_dirs};
use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::error::CommandError;

const BEGIN: &str = "# >>> talking-stick prompt >>>";
const END: &str = "# <<< talking-stick prompt <<<";

/// Notes on the first line of the block, for when removing the block alone does not restore the file.
const NO_FILE: &str = " there was no file";
const NO_LINE_END: &str = " the line before had no end";

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Show the stick in the prompt of new shells
    #[command(after_help = "Example:\n  tt prompt install zsh")]
    Install { shell: Shell },
    /// Remove the stick from the prompt
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
    fn file(self, context: &Context) -> Result<PathBuf, CommandError> {
        let env = &context.settings.env;
        let home = env.home().map_err(CommandError::Local)?;
        Ok(match self {
            Shell::Bash => home.join(".bashrc"),
            Shell::Zsh => env.get("ZDOTDIR").map_or_else(|| home.clone(), PathBuf::from).join(".zshrc"),
            Shell::Fish => {
                let config = env.get("XDG_CONFIG_HOME").map_or_else(|| home.join(".config"), PathBuf::from);
                config.join("fish/conf.d/talking-stick.fish")
            }
        })
    }

    /// Adds the stick once, however often the file is read, and keeps the exit status that the rest of the prompt may show; in
    /// fish by computing the rest first.
    fn script(self) -> &'static str {
        match self {
            Shell::Bash => {
                r#"case $PS1 in
    *'tt status --prompt'*) ;;
    *) PS1='$(s=$?; command tt status --prompt 2>/dev/null; exit $s)'"$PS1" ;;
esac"#
            }
            Shell::Zsh => {
                r#"setopt PROMPT_SUBST
case $PROMPT in
    *'tt status --prompt'*) ;;
    *) PROMPT='$(s=$?; command tt status --prompt 2>/dev/null; exit $s)'"$PROMPT" ;;
esac"#
            }
            Shell::Fish => {
                r#"if status is-interactive
    functions --query __tt_prompt; or functions --copy fish_prompt __tt_prompt
    function fish_prompt
        set -l rest (__tt_prompt | string collect --no-trim-newlines)
        command tt status --prompt 2>/dev/null
        printf '%s' "$rest"
    end
end"#
            }
        }
    }
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let (shell, install) = match args {
        Args::Install { shell } => (shell, true),
        Args::Uninstall { shell } => (shell, false),
    };
    let file = shell.file(context)?;
    // A dotfile that is a symlink stays one; its target is changed.
    let file = file.canonicalize().unwrap_or(file);
    let cannot = |e: std::io::Error| {
        let (code, hint) = match e.kind() {
            ErrorKind::InvalidInput | ErrorKind::IsADirectory => {
                (ErrorCode::InvalidInput, "nothing was changed; put an ordinary file there, or none")
            }
            _ => (ErrorCode::StorageUnavailable, "check its permissions"),
        };
        CommandError::Local(Error::new(code, format!("cannot change {}: {e}", file.display())).hint(hint))
    };
    let before = match read_file(&file) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == ErrorKind::NotFound => None,
        Err(e) => return Err(cannot(e)),
    };
    let bare = before.as_deref().and_then(without_block);
    let after = if install { Some(with_block(bare.as_deref(), shell.script())) } else { bare };
    match &after {
        _ if after == before => {}
        Some(text) => replace(&file, text).map_err(cannot)?,
        None => std::fs::remove_file(&file).map_err(cannot)?,
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
        let place = if status == "uninstalled" { "from" } else { "in" };
        format!("{} {place} {}{next}", status.replace('_', " "), escape_text(&file.display().to_string()))
    })?)
}

/// The file with our block at its end. It is handled as bytes because it need not be UTF-8.
fn with_block(bare: Option<&[u8]>, script: &str) -> Vec<u8> {
    let (gap, note) = match bare {
        None => ("", NO_FILE),
        Some(text) if text.is_empty() || text.ends_with(b"\n") => ("", ""),
        Some(_) => ("\n", NO_LINE_END),
    };
    let block = format!("{gap}{BEGIN}{note}\n{script}\n{END}\n");
    [bare.unwrap_or_default(), block.as_bytes()].concat()
}

/// The file as it was before our block was added; None if there was no file. A block without its last line is left alone.
fn without_block(text: &[u8]) -> Option<Vec<u8>> {
    let find = |text: &[u8], what: &str| text.windows(what.len()).position(|window| window == what.as_bytes());
    let Some(from) = find(text, BEGIN) else { return Some(text.to_owned()) };
    let Some(to) = find(&text[from..], END).map(|at| from + at + END.len()) else { return Some(text.to_owned()) };
    let note = &text[from + BEGIN.len()..];
    let (mut head, tail) = (&text[..from], text[to..].strip_prefix(b"\n").unwrap_or(&text[to..]));
    if note.starts_with(NO_LINE_END.as_bytes()) && tail.is_empty() {
        head = head.strip_suffix(b"\n").unwrap_or(head);
    }
    let rest = [head, tail].concat();
    (!(note.starts_with(NO_FILE.as_bytes()) && rest.is_empty())).then_some(rest)
}

/// Writes a temporary file and renames it, so that a shell never reads half of the text.
fn replace(file: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        make_dirs(dir, SHARED_DIR_MODE)?;
    }
    let beside = file.with_extension(format!("tt-{}", std::process::id()));
    let mode = std::fs::metadata(file).map_or(0o600, |meta| meta.permissions().mode() & 0o7777);
    let mut new = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside)?;
    new.write_all(text)?;
    // Whatever the umask.
    new.set_permissions(std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installing_twice_is_installing_once_and_uninstalling_restores_the_file() {
        let files: [Option<&[u8]>; 6] = [
            None,
            Some(b""),
            Some(b"alias ll='ls -l'\n"),
            Some(b"no end"),
            Some(b"two\nlines\n\n"),
            Some(b"caf\xe9\n"),
        ];
        for before in files {
            let once = with_block(before, Shell::Bash.script());
            let bare = without_block(&once);
            assert_eq!(bare.as_deref(), before);
            assert_eq!(with_block(bare.as_deref(), Shell::Bash.script()), once);
        }
        let edited = format!("a\n{BEGIN}\nx\n{END}\nb\n");
        assert_eq!(without_block(edited.as_bytes()).unwrap(), b"a\nb\n", "what was added after it stays");
        let moved_in = format!("{BEGIN}{NO_FILE}\nx\n{END}\nb\n");
        assert_eq!(without_block(moved_in.as_bytes()).unwrap(), b"b\n", "the file is the user's by now");
        let broken = format!("a\n{BEGIN}\nx\n");
        assert_eq!(without_block(broken.as_bytes()).unwrap(), broken.as_bytes());
    }
}
