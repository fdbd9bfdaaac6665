//! `tt notes add|list|resolve`.

use tt_proto::NoteId;
use tt_proto::escape::escape_text;
use tt_proto::note::Note;
use tt_proto::requests::{AddNote, ListNotes, NoteList, ResolveNote};

use super::body::BodyArgs;
use crate::Context;
use crate::error::CommandError;
use crate::session::{PathFlag, Session, fresh_key};
use crate::text::{Style, names::Names, render};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Add a note, which stays until it is resolved
    #[command(after_help = "Example:\n  tt notes add the cart rounds twice")]
    Add {
        #[command(flatten)]
        note: BodyArgs,
        /// The turn it is about
        #[arg(long, value_name = "N")]
        turn: Option<i64>,
        #[command(flatten)]
        path: PathFlag,
    },
    /// Show the open notes
    #[command(after_help = "Example:\n  tt notes list --all")]
    List {
        /// Also the resolved ones
        #[arg(long)]
        all: bool,
        /// Only those after this one
        #[arg(long, value_name = "ID")]
        after: Option<String>,
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        #[command(flatten)]
        path: PathFlag,
    },
    /// Resolve a note
    #[command(after_help = "Example:\n  tt notes resolve 6f9c0a52")]
    Resolve {
        /// Its id, or as much of it as no other note has
        id: String,
        #[command(flatten)]
        path: PathFlag,
    },
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    match args {
        Args::Add { note, turn, path } => {
            let body = note.text()?;
            let key = fresh_key();
            let add = |room_id| AddNote { room_id, body: body.clone(), turn_id: turn, idempotency_key: key.clone() };
            let (session, note) = Session::find_and_call(context, path, add)?;
            Ok(session
                .output
                .answer(&note, |note, style| format!("noted {}", style.dim(&escape_text(note.note_id.as_str()))))?)
        }
        Args::List { all, after, limit, path } => {
            let mut session = Session::find(context, path)?;
            let (room_id, after) = (session.room_id.clone(), after.map(NoteId::from));
            let list = ListNotes {
                room_id: room_id.clone(),
                after_note_id: after.clone(),
                include_resolved: Some(all),
                limit,
            };
            let (mut notes, names) = (session.client.call(&list)?, session.names()?);
            while let Some(last) = notes.notes.last().filter(|_| notes.more && limit.is_none()) {
                let page = ListNotes { after_note_id: Some(last.note_id.clone()), ..list.clone() };
                let page = session.client.call(&page)?;
                notes.notes.extend(page.notes);
                notes.more = page.more;
            }
            Ok(session.output.answer(&notes, |notes, style| text(notes, &names, style))?)
        }
        Args::Resolve { id, path } => {
            let (id, key) = (NoteId::from(id), fresh_key());
            let resolve = |room_id| ResolveNote { room_id, note_id: id.clone(), idempotency_key: key.clone() };
            let (session, resolved) = Session::find_and_call(context, path, resolve)?;
            Ok(session
                .output
                .answer(&resolved, |resolved, _| format!("resolved {}", escape_text(resolved.note_id.as_str())))?)
        }
    }
}

fn text(notes: &NoteList, names: &Names, style: &Style) -> String {
    if notes.notes.is_empty() {
        return "no notes".into();
    }
    let now = render::now();
    let ids: Vec<&str> = notes.notes.iter().map(|note| note.note_id.as_str()).collect();
    let line = |note: &Note| {
        let turn = note.turn_id.map(|turn| format!(" on turn {turn}")).unwrap_or_default();
        let by = note.resolved_by_agent_id.as_ref();
        let resolved = by.map(|by| format!(", resolved by {}", names.get(by))).unwrap_or_default();
        let when = format!(
            "{turn}, {}{resolved}  {}",
            render::ago(note.created_at, now),
            escape_text(short_id(note.note_id.as_str(), &ids))
        );
        let head = format!("{}{}", style.bold(&names.get(&note.author_agent_id)), style.dim(&when));
        let body: String = note.body.lines().map(|line| style.row("  ", &escape_text(line))).collect();
        style.lines(&format!("{head}\n")) + &body
    };
    notes.notes.iter().map(line).collect()
}

/// As much of an id as none of the others begins with, and enough of it to be recognised.
pub(crate) fn short_id<'a>(id: &'a str, all: &[&str]) -> &'a str {
    const SHORTEST: usize = 8;
    let is_unique = |length: &usize| all.iter().filter(|other| other.starts_with(&id[..*length])).count() <= 1;
    let length = (SHORTEST..id.len()).filter(|length| id.is_char_boundary(*length)).find(is_unique);
    &id[..length.unwrap_or(id.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_shortened_as_far_as_it_stays_its_own() {
        let all = ["0123456789ab", "0123456789cd", "fedcba987654"];
        assert_eq!(all.map(|id| short_id(id, &all)), ["0123456789a", "0123456789c", "fedcba98"]);
        assert_eq!(short_id("short", &["short"]), "short");
    }
}
