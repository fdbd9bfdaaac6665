//! Talks to tmux, by its program and an explicit socket. Nothing goes through a shell, no server is started, and each call has a
//! limit.
//!
//! What is typed is typed by one call that first compares what tmux knows of the pane with what a look saw (its [`Mark`]): whether
//! it is the same process on the same terminal, in no mode, and whether a key was pressed in it since. tmux does nothing between
//! the comparison and the keys, so no key of a person comes between a look and what follows from it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// How long tmux may take to answer. It answers at once, unless it hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the program is looked for besides the directories of the session's own environment.
const PROGRAM_DIRS: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin"];

/// What names a pane and says that nothing has happened to it. Where keys of an attached client come to it, it has the second of
/// the last such key; in a window of several sessions, of the last key in any session.
const MARK: &str = concat!(
    "#{pane_id} #{pane_tty} #{pane_pid} #{pane_dead} #{pane_input_off} #{pane_synchronized} #{pane_width} #{pane_height} ",
    "#{?#{==:#{window_linked_sessions},1},",
    "#{?#{&&:#{pane_active},#{&&:#{window_active},#{session_attached}}},#{session_activity},apart},",
    "#{S:#{session_activity}.}}",
);

/// What else a look wants to know.
const STATE: &str = "#{cursor_x} #{cursor_y} #{cursor_flag} #{pane_in_mode} #{pane_mode}";

/// What tells that a call did what it was to do.
const DONE: &str = "done";

/// A call to tmux that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TmuxError {
    #[error("tmux is not installed")]
    NotInstalled,
    /// It said so itself, and did nothing.
    #[error("tmux: {0}")]
    Refused(String),
    /// It may have done it or not.
    #[error("tmux: {0}")]
    Unclear(String),
}

/// A server of tmux.
#[derive(Debug, Clone)]
pub struct Tmux {
    program: PathBuf,
    socket: PathBuf,
}

/// A pane as tmux lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pane {
    pub id: String,
    pub tty: PathBuf,
    /// The process that it was started with.
    pub pid: u32,
}

/// What tmux knows of a pane at one moment, as one text that is compared with that of a later one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(String);

/// A pane at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub mark: Mark,
    pub mode: Mode,
    pub cursor: (usize, usize),
    pub cursor_shown: bool,
    pub rows: usize,
    /// What its program shows, with the escape sequences of its colours.
    pub text: String,
}

/// What tmux itself does with the keys of a pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The program of the pane gets them.
    Off,
    /// Its scrollback is shown.
    Copy,
    /// A list or a menu.
    Other,
}

/// What is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    LeaveCopyMode,
    /// What was put aside with [`Tmux::load`].
    Paste,
    /// Keys, each so many times.
    Keys(Vec<(&'static str, usize)>),
}

impl Mark {
    fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.split(' ')
    }

    /// Whether what is typed comes to the program of the pane and to nothing else.
    pub fn takes_keys(&self) -> bool {
        self.fields().skip(3).take(3).eq(["0", "0", "0"])
    }

    /// Columns and rows.
    pub fn size(&self) -> Option<(usize, usize)> {
        let mut fields = self.fields().skip(6);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    }

    /// The second of the last key that came to it from an attached client, or may have. None if keys do not come to it.
    pub fn last_key(&self) -> Option<u64> {
        self.fields().nth(8)?.split('.').filter_map(|seconds| seconds.parse().ok()).max()
    }

    /// One that a test makes up: the second of the last key.
    #[cfg(test)]
    pub(super) fn with_last_key(seconds: u64) -> Self {
        Self(format!("%1 /dev/pts/1 10 0 0 0 80 40 {seconds}"))
    }

    /// One that a test makes up: columns and rows.
    #[cfg(test)]
    pub(super) fn with_size(size: &str) -> Self {
        Self(format!("%1 /dev/pts/1 10 0 0 0 {size} 50"))
    }

    /// Whether it can be compared by tmux, for which some characters mean something.
    fn is_plain(&self) -> bool {
        self.0.chars().all(|c| c.is_ascii_alphanumeric() || " %/._-".contains(c))
    }

    /// Whether both are of the same process on the same terminal.
    pub fn names_same_process(&self, other: &Self) -> bool {
        self.fields().take(3).eq(other.fields().take(3))
    }

    /// Everything but what keys change.
    fn pane(&self) -> String {
        self.fields().take(8).collect::<Vec<&str>>().join(" ")
    }
}

/// What must still be so when something is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Guard {
    /// Nothing has happened to the pane, and no key was pressed in it.
    Untouched(Mark),
    /// It is that pane, and as large.
    SamePane(Mark),
}

impl Guard {
    /// The condition, as a format of tmux. None if it cannot be put.
    fn condition(&self, mode: Mode) -> Option<String> {
        let in_mode = if mode == Mode::Off { "0" } else { "1" };
        let (now, then) = match self {
            Self::Untouched(mark) => (MARK.to_owned(), mark.is_plain().then(|| mark.0.clone())?),
            Self::SamePane(mark) => {
                let fields: Vec<&str> = MARK.split(' ').take(8).collect();
                (fields.join(" "), mark.is_plain().then(|| mark.pane())?)
            }
        };
        Some(format!("#{{==:{now} #{{pane_in_mode}},{then} {in_mode}}}"))
    }
}

impl Tmux {
    /// The server that listens here. `path`: the directories in which its user has programs.
    pub fn at(socket: PathBuf, path: Option<&OsStr>) -> Result<Self, TmuxError> {
        let named = path.into_iter().flat_map(std::env::split_paths).filter(|dir| dir.is_absolute());
        let dirs = named.chain(PROGRAM_DIRS.iter().map(PathBuf::from));
        let program = dirs.map(|dir| dir.join("tmux")).find(|program| is_program(program));
        Ok(Self { program: program.ok_or(TmuxError::NotInstalled)?, socket })
    }

    /// All panes, each once.
    pub async fn panes(&self) -> Result<Vec<Pane>, TmuxError> {
        let listed = self.call(&["list-panes", "-a", "-F", "#{pane_id} #{pane_pid} #{pane_tty}"], None).await?;
        let mut panes: Vec<Pane> = Vec::new();
        for line in listed.lines() {
            let mut fields = line.splitn(3, ' ');
            let (Some(id), Some(pid), Some(tty)) = (fields.next(), fields.next(), fields.next()) else { continue };
            let Ok(pid) = pid.parse() else { continue };
            if !panes.iter().any(|pane| pane.id == id) {
                panes.push(Pane { id: id.to_owned(), tty: tty.into(), pid });
            }
        }
        Ok(panes)
    }

    /// Looks at a pane: all of it at one moment.
    pub async fn look(&self, pane: &str) -> Result<Look, TmuxError> {
        let format = format!("{MARK}\n{STATE}");
        let looks = ["display-message", "-p", "-t", pane, &format, ";", "capture-pane", "-p", "-e", "-t", pane];
        let seen = self.call(&looks, None).await?;
        read_look(&seen).ok_or_else(|| TmuxError::Refused("its answer is not understood".into()))
    }

    /// Keeps a text for [`Act::Paste`], under this name. It is forgotten once it was pasted.
    pub async fn load(&self, name: &str, text: &str) -> Result<(), TmuxError> {
        self.call(&["load-buffer", "-b", name, "-"], Some(text)).await.map(drop)
    }

    /// Forgets a text that was not pasted.
    pub async fn forget(&self, name: &str) {
        let _ = self.call(&["delete-buffer", "-b", name], None).await;
    }

    /// Types something, if what the guard says is so at that moment. Returns whether it was. `buffer`: what is pasted.
    pub async fn act(&self, pane: &str, buffer: &str, guard: &Guard, act: &Act) -> Result<bool, TmuxError> {
        let mode = if *act == Act::LeaveCopyMode { Mode::Copy } else { Mode::Off };
        let Some(condition) = guard.condition(mode) else { return Ok(false) };
        let mut commands = match act {
            Act::LeaveCopyMode => format!("send-keys -t {pane} -X cancel ; "),
            Act::Paste => format!("paste-buffer -p -d -b {buffer} -t {pane} ; "),
            Act::Keys(keys) => {
                keys.iter().map(|(key, times)| format!("send-keys -t {pane} -N {times} {key} ; ")).collect()
            }
        };
        commands.push_str(&format!("display-message -p {DONE}"));
        let answer = self.call(&["if-shell", "-F", "-t", pane, &condition, &commands], None).await?;
        Ok(answer.trim() == DONE)
    }

    async fn call(&self, arguments: &[&str], input: Option<&str>) -> Result<String, TmuxError> {
        let mut command = Command::new(&self.program);
        // `-u`: what it writes is UTF-8, whatever the locale of the daemon.
        command.arg("-u").arg("-S").arg(&self.socket).args(arguments.iter().map(OsString::from));
        command.env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| TmuxError::Refused(format!("cannot be started: {e}")))?;
        let stdin = child.stdin.take();
        let ends = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                stdin.write_all(input.as_bytes()).await?;
            }
            child.wait_with_output().await
        };
        match timeout(ANSWER_TIMEOUT, ends).await {
            Ok(Ok(output)) => read_output(output),
            Ok(Err(e)) => Err(TmuxError::Unclear(e.to_string())),
            Err(_) => Err(TmuxError::Unclear("it does not answer".into())),
        }
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn read_output(output: Output) -> Result<String, TmuxError> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(TmuxError::Refused(said.trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn read_look(seen: &str) -> Option<Look> {
    let (mark, rest) = seen.split_once('\n')?;
    let (state, text) = rest.split_once('\n')?;
    let mut state = state.split(' ');
    let mut number = || state.next()?.parse::<usize>().ok();
    let (cursor, shown, in_mode) = ((number()?, number()?), number()?, number()?);
    let mode = match (in_mode, state.next()) {
        (0, _) => Mode::Off,
        (1, Some("copy-mode" | "view-mode")) => Mode::Copy,
        // Of several modes one is below the other.
        _ => Mode::Other,
    };
    let mark = Mark(mark.to_owned());
    let (_, rows) = mark.size()?;
    Some(Look { mark, mode, cursor, cursor_shown: shown == 1, rows, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: &str = "%4 /dev/pts/7 4242 0 0 0 110 36 1795124719\n2 33 1 0 \nfirst\n\n  last\n";

    #[test]
    fn a_look_is_read() {
        let look = read_look(SEEN).unwrap();
        assert_eq!((look.cursor, look.cursor_shown, look.mode, look.rows), ((2, 33), true, Mode::Off, 36));
        assert_eq!(look.text, "first\n\n  last\n");
        assert!(look.mark.takes_keys() && look.mark.is_plain());
        assert_eq!(look.mark.last_key(), Some(1_795_124_719));
        let read = |from: &str, to: &str| read_look(&SEEN.replacen(from, to, 1)).unwrap();
        assert_eq!(read("1 0 \n", "1 1 copy-mode\n").mode, Mode::Copy);
        assert_eq!(read("1 0 \n", "1 1 tree-mode\n").mode, Mode::Other);
        assert_eq!(read("1 0 \n", "1 2 copy-mode\n").mode, Mode::Other);
        for state in ["4242 1 0 0", "4242 0 1 0", "4242 0 0 1"] {
            assert!(!read("4242 0 0 0", state).mark.takes_keys(), "{state}");
        }
        assert_eq!(read("1795124719", "apart").mark.last_key(), None);
        assert_eq!(read("1795124719", "17.19.18.").mark.last_key(), Some(19));
        for text in ["", "\n", "%1\n\n", "%4 /dev/pts/7 4242 0 0 0 110 x 1\n2 33 1 0 \n"] {
            assert_eq!(read_look(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_guard_is_put_as_one_comparison() {
        let mark = read_look(SEEN).unwrap().mark;
        let condition = |guard: Guard, mode| guard.condition(mode).unwrap();
        let untouched = condition(Guard::Untouched(mark.clone()), Mode::Off);
        assert!(untouched.ends_with(" #{pane_in_mode},%4 /dev/pts/7 4242 0 0 0 110 36 1795124719 0}"), "{untouched}");
        let same = condition(Guard::SamePane(mark.clone()), Mode::Copy);
        let expected = "#{==:#{pane_id} #{pane_tty} #{pane_pid} #{pane_dead} #{pane_input_off} #{pane_synchronized} \
                        #{pane_width} #{pane_height} #{pane_in_mode},%4 /dev/pts/7 4242 0 0 0 110 36 1}";
        assert_eq!(same, expected);
        let odd = Mark(mark.0.replace("pts", "p#{ts,"));
        assert_eq!(Guard::Untouched(odd).condition(Mode::Off), None, "a comma would end the comparison");
    }
}
