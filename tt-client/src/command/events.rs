//! `tt events`: what happened in the room.

use tt_proto::api::RoomApiClient;
use tt_proto::event::Events;

use crate::output::Style;
use crate::workspace::{PathArg, Workspace};
use crate::{Context, Failure, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt events --limit 20")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Only what came after this event
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// At most this many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut workspace = Workspace::find(context, args.path).await?;
    let room_id = workspace.room_id.clone();
    let page = async |rpc: &_| RoomApiClient::get_room_events(rpc, room_id.clone(), args.after, args.limit).await;
    let events = workspace.client.call(page).await?;
    Ok(workspace.output.answer(&events, text)?)
}

fn text(events: &Events, style: &Style) -> String {
    if events.events.is_empty() {
        return "nothing happened yet".into();
    }
    events.events.iter().map(|event| render::event(event, style)).collect()
}
