//! Asks a person for a handoff in an editor.

use std::io::IsTerminal;
use std::process::Command;

use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode};

use crate::error::CommandError;

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

/// Opens the editor and reads what was written.
pub(crate) fn ask(env: &Environment) -> Result<RawJson, CommandError> {
    let failed = |what: String| {
        let error = Error::new(ErrorCode::InvalidHandoff, what);
        CommandError::Refused(error.hint("say it on the command line: tt release --status \"…\" --next-action \"…\""))
    };
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(|name| env.get_str(name)).unwrap_or("vi");
    let dir = env.get_str("TMPDIR").unwrap_or("/tmp");
    let file = std::path::Path::new(dir).join(format!("tt-handoff-{}.txt", uuid::Uuid::new_v4().simple()));
    std::fs::write(&file, TEMPLATE).map_err(|e| failed(format!("{}: {e}", file.display())))?;
    // An editor may come with arguments of its own.
    let edited = Command::new("/bin/sh").args(["-c", "exec $0 \"$1\"", editor]).arg(&file).status();
    let text = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    match edited {
        Ok(status) if status.success() => {}
        Ok(_) => return Err(failed(format!("{editor} failed, and nothing was released"))),
        Err(e) => return Err(failed(format!("{editor} could not be started: {e}"))),
    }
    let handoff = parse(&text.map_err(|e| failed(e.to_string()))?);
    if handoff.status.is_empty() || handoff.next_action.is_empty() {
        return Err(failed("the handoff has no status or no next action; nothing was released".into()));
    }
    RawJson::of(&handoff).map_err(|e| failed(e.to_string()))
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
}
