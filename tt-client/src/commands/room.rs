//! `tt room`: deletes a room.

use std::io::{BufRead, IsTerminal, Write};

use tt_proto::escape::escape_text;
use tt_proto::requests::{DeleteRoom, GetRoomState, ListRooms};
use tt_proto::room::{MemberStatus, RoomSize, room_in_use};
use tt_proto::{AgentId, Error, ErrorCode};

use crate::Context;
use crate::error::CommandError;
use crate::lazy_args::LazyArgs;
use crate::session::{PathArg, Session, fresh_key};
use crate::text::render::size;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Delete the room with its log, its notes and its messages
    #[command(after_help = "Nothing else deletes what was written in a room.\n\nExample:\n  tt room delete --yes")]
    Delete(LazyArgs<DeleteArgs>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    path: PathArg,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    match args {
        Args::Delete(LazyArgs(args)) => delete(context, args),
    }
}

fn delete(context: &Context, args: DeleteArgs) -> Result<(), CommandError> {
    let path = args.path.text()?;
    let mut session = Session::find(context, args.path)?;
    if !args.yes {
        // Nobody is asked about what will be refused.
        let state = GetRoomState { room_id: session.room_id.clone(), ..Default::default() };
        let (state, me) = (session.client.call(&state)?, &session.client.welcome().identity.agent_id);
        let others = state.members.iter().filter(|m| m.agent_id != *me && m.status == MemberStatus::Active);
        let others: Vec<AgentId> = others.map(|member| member.agent_id.clone()).collect();
        if !others.is_empty() {
            return Err(CommandError::Refused(room_in_use(&others)));
        }
        let rooms = session
            .client
            .call(&ListRooms { context_path: Some(path), sizes: Some(true), ..Default::default() })?
            .rooms;
        let room = rooms.into_iter().find(|room| room.room_id == session.room_id);
        let (path, size) = room.map_or((String::new(), None), |room| (room.canonical_path, room.size));
        confirm(&path, &size.unwrap_or_default(), session.client.welcome().identity.is_person())?;
    }
    let request = DeleteRoom { room_id: session.room_id.clone(), idempotency_key: fresh_key() };
    let deleted = session.client.call(&request)?;
    Ok(session.output.answer(&deleted, |deleted, _| format!("deleted {}", escape_text(&deleted.canonical_path)))?)
}

/// Asks the person at the terminal. An error if it does not agree, or if there is nobody to ask: an agent may have a terminal
/// too, and would wait for ever.
fn confirm(path: &str, room: &RoomSize, by_person: bool) -> Result<(), CommandError> {
    let refused = |message: &str, hint: &str| {
        CommandError::Refused(Error::new(ErrorCode::InvalidInput, message).hint(hint.to_owned()))
    };
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !by_person || !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(refused("deleting a room has to be confirmed", "add --yes"));
    }
    write!(stderr, "Delete {} with {}? It cannot be undone. [y/N] ", escape_text(path), size(room))?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(refused("nothing was deleted", "answer y to delete the room")),
    }
}
