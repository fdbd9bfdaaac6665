//! `tt join`: joins the workspace's room.

use tt_proto::escape::escape_text;
use tt_proto::message::Unread;
use tt_proto::requests::Joined;

use crate::Context;
use crate::error::CommandError;
use crate::session::{PathArg, join_request};
use crate::text::{Style, names};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt join --name reviewer")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Make a room at this exact path, inside another workspace's
    #[arg(long)]
    force_new: bool,
    /// Your name in this room
    #[arg(long, value_name = "DISPLAY")]
    name: Option<String>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let path = args.path.text()?;
    let (mut client, output) = context.connect()?;
    let joined = client.call(&join_request(&path, args.force_new, args.name))?;
    let me = joined.members.iter().find(|member| member.agent_id == joined.agent_id);
    let inbox = Unread { unread: me.map_or(0, |me| me.unread), interrupts: 0 };
    Ok(output.about(Some(joined.room_id.clone()), inbox).answer(&joined, text)?)
}

fn text(joined: &Joined, style: &Style) -> String {
    let how = if joined.joined_existing_room { "joined" } else { "opened" };
    let mut text = format!(
        "{how} {} as {}\n",
        style.bold(&escape_text(&joined.canonical_path)),
        style.bold(&names::id(&joined.agent_id))
    );
    if let Some(warning) = &joined.warning {
        text.push_str(&style.warn(&format!("  note: {}\n", escape_text(warning))));
    }
    let others: Vec<String> = joined
        .members
        .iter()
        .filter(|m| m.agent_id != joined.agent_id && m.status == tt_proto::room::MemberStatus::Active)
        .map(|m| names::name(&m.agent_id, &joined.members))
        .collect();
    let here =
        if others.is_empty() { "nobody else is here".to_owned() } else { format!("here: {}", others.join(", ")) };
    text.push_str(&style.dim(&format!("  {here}\n")));
    text
}
