//! `tt list`: lists the rooms.

use tt_proto::AgentId;
use tt_proto::escape::escape_text;
use tt_proto::requests::{ListRooms, RoomList};
use tt_proto::room::RoomSummary;

use crate::Context;
use crate::error::CommandError;
use crate::session::PathArg;
use crate::text::{Style, names, render};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt list")]
pub(crate) struct Args {
    /// Only the room this path belongs to
    #[arg(value_name = "PATH")]
    path: Option<std::path::PathBuf>,
    /// Only the room of this path, as a flag
    #[arg(long = "path", value_name = "DIR", conflicts_with = "path")]
    dir: Option<std::path::PathBuf>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let path = args.path.or(args.dir).map(|path| PathArg::at(path).text()).transpose()?;
    let (mut client, output) = context.connect()?;
    let mut rooms = client.call(&ListRooms { context_path: path, ..Default::default() })?;
    while let Some(last) = rooms.rooms.last().filter(|_| rooms.more) {
        let after_path = Some(last.canonical_path.clone());
        let page = client.call(&ListRooms { after_path, ..Default::default() })?;
        rooms.rooms.extend(page.rooms);
        rooms.more = page.more;
    }
    Ok(output.answer(&rooms, text)?)
}

fn text(rooms: &RoomList, style: &Style) -> String {
    if rooms.rooms.is_empty() {
        return "no rooms; open one with tt join".into();
    }
    let now = render::now();
    let line = |room: &RoomSummary| {
        let called = |agent: &AgentId| names::called(agent, room.display_name.as_deref());
        let holder = match (&room.owner, &room.reserved_for) {
            (Some(owner), _) => format!("{} holds turn {}", called(owner), room.turn_id),
            (None, Some(agent)) => format!("reserved for {}", called(agent)),
            (None, None) => room.state.as_str().to_owned(),
        };
        let members = if room.members == 1 { "1 member".into() } else { format!("{} members", room.members) };
        let when = style.dim(&format!("{members}, {}", render::ago(room.updated_at, now)));
        format!("{}\n  {holder}  {when}\n", style.bold(&escape_text(&room.canonical_path)))
    };
    rooms.rooms.iter().map(line).collect()
}
