//! The handoff flags of `tt release` and `tt pass`.

use std::io::Read;

use tt_proto::handoff::{Artifact, Handoff, RawJson, Role};
use tt_proto::hello::Identity;
use tt_proto::{Error, ErrorCode};

use crate::editor;
use crate::error::CommandError;

#[derive(Debug, clap::Args)]
pub(crate) struct HandoffArgs {
    /// The state of the work
    #[arg(short = 'm', long, value_name = "T", requires = "next_action")]
    status: Option<String>,
    /// What the next holder should do first
    #[arg(short = 'n', long, value_name = "T", requires = "status")]
    next_action: Option<String>,
    /// A file to look at: PATH, PATH:FROM-TO, PATH=ROLE (examine, review, edit, context, output)
    #[arg(long = "artifact", value_name = "P[:FROM-TO][=ROLE]", value_parser = artifact)]
    artifacts: Vec<Artifact>,
    /// What is still undecided
    #[arg(long = "question", value_name = "T")]
    open_questions: Vec<String>,
    /// What the next holder must not touch or try again
    #[arg(long, value_name = "T")]
    do_not: Vec<String>,
    /// Read the whole handoff as JSON from standard input
    #[arg(long, conflicts_with_all = ["status", "next_action", "artifacts", "open_questions", "do_not"])]
    stdin: bool,
}

/// What the command line says of the work.
pub(crate) enum Given {
    Whole(RawJson),
    /// A person at a terminal said neither the status nor the next action: it is asked for them.
    Part(Handoff),
}

impl HandoffArgs {
    /// Whether the status and the next action are missing.
    fn is_incomplete(&self) -> bool {
        self.status.is_none() && !self.stdin
    }

    /// What was given; an error if that is too little, and no person is there to be asked. An agent may have a terminal too, and
    /// would wait for ever.
    pub(crate) fn given(self, by: &Identity) -> Result<Given, CommandError> {
        if !self.is_incomplete() || !by.is_person() || !editor::is_possible() {
            return Ok(Given::Whole(self.handoff()?));
        }
        Ok(Given::Part(self.fields()))
    }

    /// The handoff to send. What comes from standard input is passed on as it is; the daemon checks it.
    fn handoff(self) -> Result<RawJson, CommandError> {
        let bad = |message: String| CommandError::Refused(Error::new(ErrorCode::InvalidHandoff, message));
        if self.stdin {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|e| bad(format!("standard input: {e}")))?;
            return RawJson::parse(text).map_err(|e| bad(format!("standard input is not JSON: {e}")));
        }
        if self.is_incomplete() {
            return Err(bad("the handoff has no status and no next action".into()));
        }
        RawJson::of(&self.fields()).map_err(|e| bad(e.to_string()))
    }

    fn fields(self) -> Handoff {
        Handoff {
            status: self.status.unwrap_or_default(),
            next_action: self.next_action.unwrap_or_default(),
            artifacts: self.artifacts,
            open_questions: self.open_questions,
            do_not: self.do_not,
        }
    }
}

/// `src/a.rs`, `src/a.rs:10-20`, `src/a.rs:7`, `src/a.rs:10-20=review`.
pub(crate) fn artifact(text: &str) -> Result<Artifact, String> {
    let (rest, role) = match text.rsplit_once('=') {
        Some((rest, role)) => (rest, role_named(role).ok_or_else(|| format!("there is no role {role:?}"))?),
        None => (text, Role::Examine),
    };
    let range = rest.rsplit_once(':').and_then(|(path, lines)| {
        let (from, to) = lines.split_once('-').unwrap_or((lines, lines));
        Some((path, [from.parse().ok()?, to.parse().ok()?]))
    });
    let (path, lines) = range.map_or((rest, None), |(path, lines)| (path, Some(lines)));
    if path.is_empty() {
        return Err("an artifact needs a path".into());
    }
    Ok(Artifact { path: path.to_owned(), lines, role, note: None })
}

fn role_named(name: &str) -> Option<Role> {
    serde_json::from_value(name.into()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn artifacts_are_read_as_people_write_them() {
        let read = |text| artifact(text).map(|a| (a.path, a.lines, a.role));
        assert_eq!(read("src/a.rs"), Ok(("src/a.rs".into(), None, Role::Examine)));
        assert_eq!(read("src/a.rs:10-20=review"), Ok(("src/a.rs".into(), Some([10, 20]), Role::Review)));
        assert_eq!(read("src/a.rs:7"), Ok(("src/a.rs".into(), Some([7, 7]), Role::Examine)));
        assert_eq!(read("c:odd=edit"), Ok(("c:odd".into(), None, Role::Edit)));
        assert!(read("a=paint").is_err() && read("=edit").is_err() && read("").is_err());
    }
}
