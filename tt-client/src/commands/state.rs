//! `tt state`: shows the room.

use tt_proto::AgentId;
use tt_proto::requests::GetRoomState;

use crate::Context;
use crate::error::CommandError;
use crate::session::{PathArg, Session};
use crate::text::{names::name, render};

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
    let (mut session, state) = Session::find_and_call(context, args.path, |room_id| GetRoomState { room_id, all })?;
    let me = session.client.welcome().identity.agent_id.clone();
    // Who wrote the handoff may have left, and is not listed then. The log still has its name.
    let is_listed = |agent: &AgentId| state.members.iter().any(|member| member.agent_id == *agent);
    let author = match &state.handoff_from {
        Some(agent) if !is_listed(agent) => Some(session.names().unwrap_or_default().get(agent)),
        Some(agent) => Some(name(agent, &state.members)),
        None => None,
    };
    Ok(session.output.answer(&state, |state, style| render::state(state, author.as_deref(), &me, style, args.all))?)
}
