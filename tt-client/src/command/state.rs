//! `tt state`: the room at a glance.

use crate::text::render;
use crate::workspace::{PathArg, Workspace};
use crate::{Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt state")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Also those who left or are gone
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let (workspace, state) = Workspace::find_state(context, args.path).await?;
    let me = workspace.client.welcome().identity.agent_id.clone();
    Ok(workspace.output.answer(&state, |state, style| render::state(state, &me, style, args.all))?)
}
