//! `tt heartbeat`: say that the holder is still at work. Any other command says so too.

use tt_proto::api::StickApiClient;

use super::release::held;
use crate::workspace::{PathArg, Workspace};
use crate::{Context, Failure, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt heartbeat")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut workspace = Workspace::find(context, args.path).await?;
    let (lease, turn) = held(&mut workspace).await?;
    let beat = workspace.call(async |rpc, room| rpc.heartbeat(room.clone(), lease.clone(), turn).await).await?;
    Ok(workspace.output.answer(&beat, |beat, _| {
        format!("turn {turn} is yours for {} more", render::span(beat.lease_expires_at.since(render::now())))
    })?)
}
