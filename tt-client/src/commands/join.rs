//! `tt join`: joins the workspace's room.

use tt_proto::escape::escape_text;
use tt_proto::message::Unread;
use tt_proto::requests::Joined;

use crate::Context;
use crate::connect::HttpClient;
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
    /// Your name in this room, by which others address you; a name that is taken gets a number
    #[arg(long, value_name = "DISPLAY")]
    name: Option<String>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let path = args.path.text()?;
    // The greeting counts what waits in the room of this path. A room that is made now has nothing.
    let mut client =
        HttpClient::connect(context.settings_at(Some(path.clone()))).map_err(CommandError::from_connect)?;
    let (found, inbox) = (client.welcome().room_id.clone(), client.welcome().inbox);
    let joined = client.call(&join_request(&path, args.force_new, args.name))?;
    let inbox = if found.as_ref() == Some(&joined.room_id) { inbox } else { Unread::default() };
    let output = context.output_for(client.welcome()).about(Some(joined.room_id.clone()), inbox);
    Ok(output.answer(&joined, text)?)
}

fn text(joined: &Joined, style: &Style) -> String {
    let how = if joined.joined_existing_room { "joined" } else { "opened" };
    let mut text = format!(
        "{how} {} as {}\n",
        style.bold(&escape_text(&joined.canonical_path)),
        style.bold(&names::id(&joined.agent_id))
    );
    if let Some(name) = unusual_name(joined) {
        text.push_str(&format!("  you are called {} here\n", style.bold(&names::quoted(name))));
    }
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
    if joined.room_state.pending_handoff_event_seq.is_some() && joined.room_state.owner.is_none() {
        text.push_str("  a handoff waits for the next holder: tt try\n");
    }
    text
}

/// The caller's name, unless its id shows it.
fn unusual_name(joined: &Joined) -> Option<&str> {
    let me = joined.members.iter().find(|m| m.agent_id == joined.agent_id)?;
    let mut usual = joined.agent_id.as_str().splitn(2, ':');
    (!usual.any(|part| part == me.display_name)).then_some(me.display_name.as_str())
}
