//! `tt leave`: leaves the room.

use tt_proto::escape::escape_text;
use tt_proto::requests::LeaveRoom;

use crate::Context;
use crate::error::CommandError;
use crate::session::{PathArg, Session, fresh_key};

#[derive(Debug, clap::Args)]
#[command(after_help = "If you hold the stick, it goes to the next member that waits.\n\nExample:\n  tt leave")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let mut session = Session::find(context, args.path)?;
    let (room_id, key) = (session.room_id.clone(), fresh_key());
    // Not through `Session::call`, which joins first.
    let left = session.client.call(&LeaveRoom { room_id: room_id.clone(), idempotency_key: key.clone() })?;
    Ok(session.output.answer(&left, |left, _| {
        let rest = match left.remaining_members {
            0 => "; nobody is left, and the room keeps everything for the next to join",
            _ => "",
        };
        format!("left {}{rest}", escape_text(&left.canonical_path))
    })?)
}
