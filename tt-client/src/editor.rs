//! Asks a person for a handoff in an editor.

use std::fs::OpenOptions;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode};

use crate::error::CommandError;
use crate::follow::{Signals, block_on};

/// What is being written is for nobody else yet, and others may look into the directory.
const PRIVATE_FILE_MODE: u32 = 0o600;

const TEMPLATE: &str = "status:
next:

# A handoff for the next holder: what is done and what is not, and the one thing to do first.
# Both may go on over several lines. Also: question: …, do not: …, each on a line of its own.
# Lines that begin with # are left out. Without a status, nothing is released.
";

/// Whether somebody sits at a terminal who could be asked.
pub(crate) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// How often [`Draft::ask`] lets its caller renew the lease while the editor is open.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(60);

/// A handoff that a person wrote. Its file is kept until it is known that the handoff arrived.
#[derive(Debug)]
pub(crate) struct Draft {
    file: PathBuf,
    pub(crate) handoff: RawJson,
}

impl Draft {
    /// Opens the editor and reads what was written, to which `given` is added. Calls `keep_alive` from time to time until the
    /// editor ends.
    pub(crate) fn ask(
        env: &Environment,
        given: &Handoff,
        interval: Duration,
        keep_alive: impl FnMut(),
    ) -> Result<Self, CommandError> {
        let dir = env.get_str("TMPDIR").unwrap_or("/tmp");
        let file = Path::new(dir).join(format!("tt-handoff-{}.txt", uuid::Uuid::new_v4().simple()));
        let created = OpenOptions::new().write(true).create_new(true).mode(PRIVATE_FILE_MODE).open(&file);
        created
            .and_then(|mut created| created.write_all(TEMPLATE.as_bytes()))
            .map_err(|e| failed(format!("{}: {e}", file.display())))?;
        match Self::read(env, &file, given, interval, keep_alive) {
            Ok(handoff) => Ok(Self { file, handoff }),
            Err(what) => Err(kept(&file, failed(what))),
        }
    }

    fn read(
        env: &Environment,
        file: &Path,
        given: &Handoff,
        interval: Duration,
        mut keep_alive: impl FnMut(),
    ) -> Result<RawJson, String> {
        let editor = ["VISUAL", "EDITOR"].into_iter().find_map(|name| env.get_str(name)).unwrap_or("vi");
        // Ctrl-C is for the editor. If it ended this program, the shell and the editor would both read from the terminal.
        block_on(async { Ok(Signals::listen()?) }).map_err(|e| e.to_string())?;
        // An editor may come with arguments of its own.
        let child = Command::new("/bin/sh").args(["-c", "exec $0 \"$1\"", editor]).arg(file).spawn();
        let mut child = child.map_err(|e| format!("{editor} could not be started: {e}"))?;
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(child.wait()));
        let status = loop {
            match end.recv_timeout(interval) {
                Err(RecvTimeoutError::Timeout) => keep_alive(),
                status => break status.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?,
            }
        };
        if !status.success() {
            return Err(format!("{editor} failed, and nothing was released"));
        }
        let handoff = parse(&std::fs::read_to_string(file).map_err(|e| e.to_string())?);
        if handoff.status.is_empty() || handoff.next_action.is_empty() {
            return Err("the handoff has no status or no next action; nothing was released".into());
        }
        let handoff = Handoff {
            artifacts: given.artifacts.clone(),
            open_questions: [given.open_questions.as_slice(), &handoff.open_questions].concat(),
            do_not: [given.do_not.as_slice(), &handoff.do_not].concat(),
            ..handoff
        };
        RawJson::of(&handoff).map_err(|e| e.to_string())
    }

    /// Removes the file once the handoff has arrived. Otherwise the error says where it is.
    pub(crate) fn finish<T>(self, result: Result<T, CommandError>) -> Result<T, CommandError> {
        if result.is_ok() {
            let _ = std::fs::remove_file(&self.file);
        }
        result.map_err(|error| kept(&self.file, error))
    }
}

fn failed(what: String) -> CommandError {
    let error = Error::new(ErrorCode::InvalidHandoff, what);
    CommandError::Refused(error.hint("say it on the command line: --status \"…\" --next-action \"…\""))
}

/// The error, with the file in which the text was kept. A file in which nobody wrote anything is removed.
fn kept(file: &Path, error: CommandError) -> CommandError {
    if std::fs::read_to_string(file).is_ok_and(|text| text == TEMPLATE || text.trim().is_empty()) {
        let _ = std::fs::remove_file(file);
        return error;
    }
    let name = |error: Error| {
        let hint = format!("what you wrote is in {}; {}", file.display(), error.hint);
        error.hint(hint).detail("draft", file.display().to_string())
    };
    match error {
        CommandError::Refused(error) => CommandError::Refused(name(error)),
        CommandError::NoDaemon(error) => CommandError::NoDaemon(name(error)),
        other => other,
    }
}

/// Reads the fields. A line without one goes on with the last.
fn parse(text: &str) -> Handoff {
    let mut fields: Vec<(&str, String)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let field = ["status", "next", "question", "do not"]
            .into_iter()
            .find_map(|name| Some((name, line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned())));
        match (field, fields.last_mut()) {
            (Some(field), _) => fields.push(field),
            (None, Some((_, value))) => {
                value.push('\n');
                value.push_str(line);
            }
            (None, None) => {}
        }
    }
    let all = |name: &str| -> Vec<String> {
        let values = fields.iter().filter(|(field, _)| *field == name).map(|(_, value)| value.trim().to_owned());
        values.filter(|value| !value.is_empty()).collect()
    };
    Handoff {
        status: all("status").join("\n"),
        next_action: all("next").join("\n"),
        artifacts: Vec::new(),
        open_questions: all("question"),
        do_not: all("do not"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_writes_is_a_handoff() {
        let text =
            "status: parser done\nand tested\nnext:\n  add spans\n\nquestion: bytes?\ndo not: rename Token\n# no\n";
        let handoff = parse(text);
        assert_eq!((handoff.status.as_str(), handoff.next_action.as_str()), ("parser done\nand tested", "add spans"));
        assert_eq!((handoff.open_questions, handoff.do_not), (vec!["bytes?".into()], vec!["rename Token".into()]));
        assert_eq!(parse(TEMPLATE).status, "", "what was left as it is says nothing");
    }

    /// Asks with a script for an editor, and returns what the script left behind too.
    fn ask(script: &str, keep_alive: impl FnMut(&Path)) -> (tempfile::TempDir, Result<Draft, CommandError>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("editor");
        std::fs::write(&file, script).unwrap();
        let (tmp, mut keep_alive) = (dir.path().to_str().unwrap().to_owned(), keep_alive);
        let editor = format!("/bin/sh {tmp}/editor");
        let env = Environment::of([("EDITOR", editor.as_str()), ("TMPDIR", tmp.as_str())]);
        let given = Handoff { do_not: vec!["rename Token".into()], ..parse("") };
        let draft = Draft::ask(&env, &given, Duration::from_millis(1), || keep_alive(dir.path()));
        (dir, draft)
    }

    fn drafts(dir: &tempfile::TempDir) -> Vec<String> {
        let files = std::fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap());
        let drafts = files.filter(|file| file.file_name().to_str().unwrap().starts_with("tt-handoff-"));
        drafts.map(|file| std::fs::read_to_string(file.path()).unwrap()).collect()
    }

    const WRITE: &str = "printf 'status: half done\\nnext: the rest\\n' > \"$1\"\n";

    #[test]
    fn what_a_person_wrote_is_kept_until_it_arrived() {
        let refused = || CommandError::Refused(Error::new(ErrorCode::StaleLease, "somebody took over"));
        let (dir, draft) = ask(WRITE, |_| ());
        let Err(CommandError::Refused(error)) = draft.unwrap().finish::<()>(Err(refused())) else { panic!("refused") };
        assert_eq!(drafts(&dir), ["status: half done\nnext: the rest\n"]);
        assert!(error.hint.contains("tt-handoff-") && error.details.contains_key("draft"), "{error:?}");
        let (dir, draft) = ask(WRITE, |_| ());
        let draft = draft.unwrap();
        assert!(draft.handoff.as_str().contains(r#""do_not":["rename Token"]"#), "what was said before is kept");
        draft.finish(Ok(())).unwrap();
        assert_eq!(drafts(&dir), [""; 0], "it arrived");
        for incomplete in ["printf 'status: half' > \"$1\"", "printf 'status: half' > \"$1\"; exit 1"] {
            let (dir, draft) = ask(incomplete, |_| ());
            assert!(draft.is_err());
            assert_eq!(drafts(&dir), ["status: half"], "{incomplete}");
        }
        let (dir, draft) = ask("exit 0", |_| ());
        assert!(draft.is_err());
        assert_eq!(drafts(&dir), [""; 0], "nothing was written");
    }

    #[test]
    fn nobody_else_reads_a_draft_and_the_lease_is_renewed_while_it_is_written() {
        use std::os::unix::fs::PermissionsExt;
        let script = format!("while [ ! -e \"${{0%/*}}/renewed\" ]; do sleep 0.01; done\n{WRITE}");
        let (dir, draft) = ask(&script, |dir| std::fs::write(dir.join("renewed"), "").unwrap());
        let mode = std::fs::metadata(&draft.unwrap().file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(dir);
    }
}
