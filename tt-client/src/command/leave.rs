//! `tt leave`: stop being a member.

use tt_proto::escape::escape_text;
use tt_proto::requests::{Departure, LeaveRoom};

use crate::workspace::{PathArg, Workspace, key};
use crate::{Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "What you hold goes to whoever waits.\n\nExample:\n  tt leave")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut workspace = Workspace::find(context, args.path).await?;
    let (room_id, key) = (workspace.room_id.clone(), key());
    // Not through the call that joins first: leaving a room one is not in would enter it.
    let left = workspace.client.call(LeaveRoom { room_id: room_id.clone(), idempotency_key: key.clone() }).await?;
    Ok(workspace.output.answer(&left, |left, _| {
        let rest = if left.status == Departure::RoomDeleted { "; nobody is left, and the room is gone" } else { "" };
        format!("left {}{rest}", escape_text(&left.canonical_path))
    })?)
}
