//! `tt room`: what a room goes by, and its deletion.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use serde_json::Value;
use tt_proto::escape::escape_text;
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::requests::{DeleteRoom, GetRoomState, ListRooms, RoomPolicy, SetRoomPolicy};
use tt_proto::room::{MemberStatus, RoomSize, room_in_use};
use tt_proto::{AgentId, Error, ErrorCode};

use crate::Context;
use crate::error::CommandError;
use crate::lazy_args::LazyArgs;
use crate::session::{PathArg, PathFlag, Session, fresh_key};
use crate::text::render::size;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Delete the room with its log, its notes and its messages
    #[command(after_help = "Nothing else deletes what was written in a room.\n\nExample:\n  tt room delete --yes")]
    Delete(LazyArgs<DeleteArgs>),
    /// Show what the room goes by, or set one of it for this room
    #[command(
        after_help = "What is not set for a room is as in config.toml and the environment of the daemon.\n\nExamples:\n  tt room policy\n  tt room policy ask_expiry 20m"
    )]
    Policy(LazyArgs<PolicyArgs>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct PolicyArgs {
    /// What to set, for example ask_expiry
    #[arg(requires = "value")]
    key: Option<String>,
    /// Its value, as in config.toml: a time (20m), a number or a word
    value: Option<String>,
    #[command(flatten)]
    path: PathFlag,
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
        Args::Policy(LazyArgs(args)) => policy(context, args),
    }
}

fn policy(context: &Context, args: PolicyArgs) -> Result<(), CommandError> {
    let mut overrides = PolicyOverrides::default();
    if let (Some(key), Some(value)) = (&args.key, &args.value) {
        overrides.set(key, value).map_err(CommandError::Refused)?;
    }
    // Setting nothing answers with what there is.
    let idempotency_key = fresh_key();
    let set = |room_id| SetRoomPolicy { room_id, policy: overrides.clone(), idempotency_key: idempotency_key.clone() };
    let (session, room) = Session::find_and_call(context, args.path, set)?;
    let shown = |room: &RoomPolicy| match &args.key {
        Some(key) => line(&room.policy, key),
        None => PolicyOverrides::KEYS.iter().map(|key| line(&room.policy, key) + "\n").collect(),
    };
    Ok(session.output.answer(&room, |room, _| shown(room))?)
}

/// A policy and its value, as it is written to set it.
fn line(policy: &Policy, key: &str) -> String {
    let all = serde_json::to_value(policy).unwrap_or_default();
    let value = match (all.get(key), all.get(format!("{key}_ms")).and_then(Value::as_u64)) {
        (_, Some(millis)) => in_its_unit(Duration::from_millis(millis)),
        (Some(Value::String(word)), None) => word.clone(),
        (value, None) => value.map(ToString::to_string).unwrap_or_default(),
    };
    format!("{key:<20} {}", escape_text(&value))
}

/// A duration in the largest unit in which it is a whole number.
fn in_its_unit(duration: Duration) -> String {
    let millis = duration.as_millis();
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    match units.into_iter().find(|(unit, _)| millis >= *unit && millis.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_can_be_set() {
        let policy = Policy::default();
        for key in PolicyOverrides::KEYS {
            let shown = line(&policy, key);
            let mut overrides = PolicyOverrides::default();
            overrides.set(key, shown.split_whitespace().nth(1).unwrap()).unwrap();
            assert_eq!(overrides.over(&policy), policy, "{shown}");
        }
        assert_eq!(line(&policy, "wait_max"), "wait_max             110s");
    }
}
