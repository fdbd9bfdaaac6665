//! `tt standby`: for an agent that has joined and has nothing to do. Says whether a message wakes it, and returns.

use std::time::Duration;

use serde::Serialize;
use tt_proto::delivery::WayName;
use tt_proto::escape::escape_text;
use tt_proto::requests::Joined;
use tt_proto::{AgentId, RoomId};

use crate::Context;
use crate::connect::HttpClient;
use crate::error::CommandError;
use crate::session::{PathArg, join_request};
use crate::text::{Style, names};

/// The daemon reads what a harness says of a session behind its first call: how often it is asked again, and the pause between.
const ASKED_AGAIN: usize = 3;
const ASK_PAUSE: Duration = Duration::from_millis(300);

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt standby")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
}

/// Whether a message wakes the caller, and what to do now.
#[derive(Debug, Serialize)]
struct Standby {
    room_id: RoomId,
    agent_id: AgentId,
    #[serde(skip)]
    canonical_path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    woken_by: Option<WayName>,
    next: &'static str,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let path = args.path.text()?;
    let mut client =
        HttpClient::connect(context.settings_at(Some(path.clone()))).map_err(CommandError::from_connect)?;
    let mut joined = client.call(&join_request(&path, false, None))?;
    for _ in 0..ASKED_AGAIN {
        if joined.woken_by.is_some() {
            break;
        }
        std::thread::sleep(ASK_PAUSE);
        joined = client.call(&join_request(&path, false, None))?;
    }
    let output = context.output_for(client.welcome()).about(Some(joined.room_id.clone()), client.welcome().inbox);
    Ok(output.answer(&Standby::of(joined), text)?)
}

impl Standby {
    fn of(joined: Joined) -> Self {
        let next = match joined.woken_by {
            Some(_) => "end your turn now and keep nothing running: a message starts your next turn",
            None => "nothing wakes you: keep one `tt wait --park` running, which ends when a message comes",
        };
        let Joined { room_id, agent_id, canonical_path, woken_by, .. } = joined;
        Self { room_id, agent_id, canonical_path, woken_by, next }
    }
}

fn text(standby: &Standby, style: &Style) -> String {
    let how = match standby.woken_by {
        Some(WayName::NativeInbox) => "the inbox of its harness wakes it",
        Some(WayName::Terminal) => "its terminal wakes it",
        Some(_) => "a message wakes it",
        None => "no way wakes it",
    };
    let (path, id) = (escape_text(&standby.canonical_path), names::id(&standby.agent_id));
    let first = style.row("", &format!("{} stands by in {}: {how}", style.bold(&id), style.bold(&path)));
    first + &style.row("  ", &style.dim(standby.next))
}
