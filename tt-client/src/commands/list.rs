//! `tt list`: lists the rooms.

use tt_proto::escape::escape_text;
use tt_proto::requests::{ListRooms, RoomList};
use tt_proto::room::RoomSummary;
use tt_proto::{AgentId, RoomId};

use crate::Context;
use crate::connect::HttpClient;
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
    // The greeting finds the room of this directory, if there is one.
    let settings = context.settings_at(Some(".".into()));
    let mut client = HttpClient::connect(settings).map_err(CommandError::from_connect)?;
    let mut rooms = client.call(&ListRooms { context_path: path, ..Default::default() })?;
    while let Some(last) = rooms.rooms.last().filter(|_| rooms.more) {
        let after_path = Some(last.canonical_path.clone());
        let page = client.call(&ListRooms { after_path, ..Default::default() })?;
        rooms.rooms.extend(page.rooms);
        rooms.more = page.more;
    }
    let here = client.welcome().room_id.clone();
    let output = context.output_for(client.welcome());
    Ok(output.without_inbox().answer(&rooms, |rooms, style| text(rooms, here.as_ref(), style))?)
}

fn text(rooms: &RoomList, here: Option<&RoomId>, style: &Style) -> String {
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
        let members = match room.members {
            0 => "dormant".into(),
            1 => "1 member".into(),
            members => format!("{members} members"),
        };
        let when = style.dim(&format!("{members}, {}", render::ago(room.updated_at, now)));
        let mark = if here == Some(&room.room_id) { style.dim("  here") } else { String::new() };
        let unread = match (room.inbox.unread, room.inbox.interrupts) {
            (0, _) => String::new(),
            (unread, 0) => style.warn(&format!("  {unread} unread")),
            (unread, interrupts) => style.warn(&format!("  {unread} unread, {interrupts} interrupt")),
        };
        format!("{}{mark}\n  {holder}  {when}{unread}\n", style.bold(&escape_text(&room.canonical_path)))
    };
    rooms.rooms.iter().map(line).collect()
}
