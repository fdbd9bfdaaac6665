//! `tt state`: shows the room.

use tt_proto::requests::GetRoomState;

use crate::Context;
use crate::error::CommandError;
use crate::session::{PathArg, Session};
use crate::text::render;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt state")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Also show members that left or are gone
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let all = args.all.then_some(true);
    let (session, state) = Session::find_and_call(context, args.path, |room_id| GetRoomState { room_id, all })?;
    let me = session.client.welcome().identity.agent_id.clone();
    Ok(session.output.answer(&state, |state, style| render::state(state, &me, style, args.all))?)
}
