//! `tt wait`: waits for the turn, messages, joins and leaves. `tt try`: takes the stick without waiting.

use std::time::{Duration, Instant};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use tt_proto::delivery::Surface;
use tt_proto::requests::{Wait, WaitForTurn};
use tt_proto::turn::{Reason, WaitStatus};

use crate::Context;
use crate::cli::duration;
use crate::connect::DEADLINE;
use crate::error::CommandError;
use crate::receive::Receipt;
use crate::session::{PathArg, Session};
use crate::text::{Style, names::Names, render};

/// How long one call waits. A longer wait is made of several calls.
const MAX_WAIT_PER_CALL: Duration = Duration::from_secs(100);

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt wait --timeout 10m")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Give up after this long (500ms, 30s, 5m, 2h) [default: never]
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
    /// Stay listed but take no turn
    #[arg(long, conflicts_with = "claim")]
    park: bool,
    /// Take an idle room even when nobody else is here
    #[arg(long)]
    claim: bool,
    /// Wait for the turn only: leave messages in the inbox, and do not report joins and leaves
    #[arg(long)]
    no_events: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  tt try\n\nIt exits with 0 whether or not you got the stick: the answer tells, `your turn` or `not yet`,\nin JSON as `status` (`your_turn`, `not_yet`, …)."
)]
pub(crate) struct TryArgs {
    #[command(flatten)]
    path: PathArg,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let mut session = Session::find(context, args.path)?;
    let give_up = args.timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let left =
            give_up.map_or(MAX_WAIT_PER_CALL, |at| at.saturating_duration_since(Instant::now()).min(MAX_WAIT_PER_CALL));
        let wait = wait(&mut session, left, args.park, args.claim, !args.no_events)?;
        let timed_out = give_up.is_some_and(|at| Instant::now() >= at);
        let news = wait.events.as_ref().is_some_and(|events| !events.is_empty());
        if wait.status != WaitStatus::NotYet || news || timed_out {
            let names = session.names().unwrap_or_default();
            show(&session, &wait, &names, if news { "events" } else { "timeout" })?;
            let mut receipt = Receipt::new(Surface::Wait);
            wait.events.iter().flatten().for_each(|event| receipt.mark_shown(event));
            return Ok(receipt.confirm(&mut session.client)?);
        }
    }
}

pub(crate) fn run_try(context: &Context, args: TryArgs) -> Result<(), CommandError> {
    let mut session = Session::find(context, args.path)?;
    let wait = wait(&mut session, Duration::ZERO, false, true, false)?;
    let names = session.names().unwrap_or_default();
    show(&session, &wait, &names, "not_yet")
}

fn wait(
    session: &mut Session,
    max_wait: Duration,
    park: bool,
    claim: bool,
    events: bool,
) -> Result<Wait, CommandError> {
    let millis = u64::try_from(max_wait.as_millis()).unwrap_or(u64::MAX);
    session.call_within(max_wait + DEADLINE, |room_id| WaitForTurn {
        room_id,
        max_wait_ms: Some(millis),
        park: Some(park),
        claim: Some(claim),
        include_events: Some(events),
    })
}

/// The wait, with the end of the caller's own max_wait spelled out.
struct Answer<'a> {
    wait: &'a Wait,
    status: Option<&'static str>,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.status {
            Some(status) => {
                let mut map = serializer.serialize_map(None)?;
                map.serialize_entry("status", status)?;
                map.serialize_entry("turn_id", &self.wait.turn_id)?;
                if let Some(events) = &self.wait.events {
                    map.serialize_entry("events", events)?;
                    map.serialize_entry("cursor_event_seq", &self.wait.cursor_event_seq)?;
                }
                map.end()
            }
            None => self.wait.serialize(serializer),
        }
    }
}

fn show(session: &Session, wait: &Wait, names: &Names, nothing: &'static str) -> Result<(), CommandError> {
    let answer = Answer { status: (wait.status == WaitStatus::NotYet).then_some(nothing), wait };
    Ok(session.output.answer(&answer, |_, style| text(wait, names, style))?)
}

fn text(wait: &Wait, names: &Names, style: &Style) -> String {
    let reason = match wait.reason {
        Some(Reason::Claim(reason)) => reason.as_str(),
        Some(Reason::Takeover(reason)) => reason.as_str(),
        None => "",
    }
    .replace('_', " ");
    let news: String = wait.events.iter().flatten().map(|event| render::event(event, names, style)).collect();
    let from = wait.from_agent_id.as_ref().map(|agent| names.get(agent)).unwrap_or_default();
    let turn = match wait.status {
        WaitStatus::YourTurn => {
            let mut text = format!("{} ({reason})\n", style.bold(&format!("your turn: {}", wait.turn_id)));
            if let Some(handoff) = &wait.handoff {
                text.push_str(&format!(
                    "{}\n{}",
                    style.dim(&format!("handoff from {from}")),
                    render::handoff(handoff, "  ", style)
                ));
            }
            text
        }
        WaitStatus::TakeoverAvailable => {
            format!("{} from {from} ({reason}): tt take --reason \"…\"\n", style.warn("may be taken over"))
        }
        WaitStatus::NotYet if !news.is_empty() => String::new(),
        WaitStatus::NotYet => "not yet\n".into(),
        WaitStatus::Closed => "the room is closed\n".into(),
        WaitStatus::Removed => "you are no longer a member; join again: tt join\n".into(),
    };
    format!("{news}{turn}")
}
