//! `tt wait`: waits for the turn, a takeover or a message. `tt try`: takes the stick without waiting.

use std::io::Write;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use tt_proto::delivery::Surface;
use tt_proto::escape::escape_text;
use tt_proto::event::{Event, EventType};
use tt_proto::message::Notice;
use tt_proto::requests::{RoomState, Wait, WaitForTurn};
use tt_proto::room::{MemberStatus, StickState};
use tt_proto::turn::{Reason, WaitStatus};

use crate::Context;
use crate::cli::duration;
use crate::connect::DEADLINE;
use crate::error::{CommandError, EXIT_NOTHING, EXIT_REFUSED};
use crate::output::Format;
use crate::receive::Receipt;
use crate::session::{PathArg, Session};
use crate::text::{Style, names::Names, render};

/// How long one call waits. A longer wait is made of several calls.
const MAX_WAIT_PER_CALL: Duration = Duration::from_secs(100);

/// The most joins and leaves that one answer reports. Earlier ones are only in the log.
const MAX_CHANGES: usize = 100;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "It exits with 0 when something came, 5 when the time ran out, and 3 when you were removed.\n\nExample:\n  tt wait --timeout 10m"
)]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Give up after this long (500ms, 30s, 5m, 2h) [default: never]
    #[arg(long, value_name = "D", value_parser = duration, allow_hyphen_values = true)]
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
    /// Also end when a member joins or leaves
    #[arg(long, conflicts_with = "no_events")]
    joins: bool,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "It exits with 0 when you have the stick and with 5 when you do not.\n\nExample:\n  tt try && make && tt release -m \"built\" -n \"deploy\""
)]
pub(crate) struct TryArgs {
    #[command(flatten)]
    path: PathArg,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let (mut session, state) = Session::find_state(context, args.path.clone())?;
    if !args.claim && !args.park {
        report_free_stick(&session, &state);
    }
    let give_up = args.timeout.map(|timeout| Instant::now() + timeout);
    // The daemon tells of each join and leave once: those that ended no wait come with the answer that does.
    let mut changes = Vec::new();
    loop {
        let left =
            give_up.map_or(MAX_WAIT_PER_CALL, |at| at.saturating_duration_since(Instant::now()).min(MAX_WAIT_PER_CALL));
        let mut wait = wait(&mut session, left, &args)?;
        let timed_out = give_up.is_some_and(|at| Instant::now() >= at);
        let is_news = |event: &Event| args.joins || event.event_type == EventType::MessageSent;
        let news = wait.events.iter().flatten().any(is_news);
        if let Some(events) = &mut wait.events {
            let messages = events.iter().take_while(|event| event.event_type == EventType::MessageSent).count();
            changes.extend(events.drain(messages..));
            changes.drain(..changes.len().saturating_sub(MAX_CHANGES));
        }
        if wait.status != WaitStatus::NotYet || news || timed_out {
            wait.events.iter_mut().for_each(|events| events.append(&mut changes));
            let names = session.names().unwrap_or_default();
            show(&session, &wait, &names, if news { "events" } else { "timeout" })?;
            let mut receipt = Receipt::new(Surface::Wait);
            wait.events.iter().flatten().for_each(|event| receipt.mark_shown(event));
            receipt.settle(&mut session.client)?;
            return match wait.status {
                WaitStatus::NotYet if !news => Err(CommandError::Status(EXIT_NOTHING)),
                WaitStatus::Removed | WaitStatus::Closed => Err(CommandError::Status(EXIT_REFUSED)),
                WaitStatus::NotYet | WaitStatus::YourTurn | WaitStatus::TakeoverAvailable => Ok(()),
            };
        }
    }
}

/// Tells a caller that is alone with a free stick that no turn will come by itself.
fn report_free_stick(session: &Session, state: &RoomState) {
    let me = &session.client.welcome().identity.agent_id;
    let alone = !state.members.iter().any(|member| member.agent_id != *me && member.status == MemberStatus::Active);
    if !alone || state.room.state != StickState::Idle {
        return;
    }
    let hint = "you are alone and the stick is free: tt try takes it; waiting for messages and members";
    let _ = match session.output.format {
        Format::Text => writeln!(std::io::stderr(), "{hint}"),
        Format::Json => writeln!(std::io::stderr(), "{{\"hint\":\"{hint}\"}}"),
    };
}

pub(crate) fn run_try(context: &Context, args: TryArgs) -> Result<(), CommandError> {
    let mut session = Session::find(context, args.path)?;
    let try_once = |room_id| WaitForTurn { room_id, max_wait_ms: Some(0), claim: Some(true), ..Default::default() };
    let wait = session.call(try_once)?;
    let names = session.names().unwrap_or_default();
    show(&session, &wait, &names, "not_yet")?;
    if wait.status == WaitStatus::YourTurn { Ok(()) } else { Err(CommandError::Status(EXIT_NOTHING)) }
}

fn wait(session: &mut Session, max_wait: Duration, args: &Args) -> Result<Wait, CommandError> {
    let millis = u64::try_from(max_wait.as_millis()).unwrap_or(u64::MAX);
    session.call_within(max_wait + DEADLINE, |room_id| WaitForTurn {
        room_id,
        max_wait_ms: Some(millis),
        park: Some(args.park),
        claim: Some(args.claim),
        include_events: Some(!args.no_events),
        joins: Some(args.joins),
    })
}

/// The wait, with a word of its own for what ended it when that was no turn.
struct Answer<'a> {
    wait: &'a Wait,
    status: Option<&'static str>,
}

impl Serialize for Answer<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(status) = self.status else { return self.wait.serialize(serializer) };
        // The status is the first field. What follows is passed on as it is.
        let json = serde_json::to_string(self.wait).map_err(serde::ser::Error::custom)?;
        let json = json.replacen("\"not_yet\"", &format!("\"{status}\""), 1);
        serde_json::value::RawValue::from_string(json).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

fn show(session: &Session, wait: &Wait, names: &Names, nothing: &'static str) -> Result<(), CommandError> {
    let answer = Answer { status: (wait.status == WaitStatus::NotYet).then_some(nothing), wait };
    // A wait that handed messages over says itself how many are left.
    let output = if wait.events.is_some() { session.output.without_inbox() } else { session.output.clone() };
    Ok(output.answer(&answer, |_, style| text(wait, nothing, names, style))?)
}

fn text(wait: &Wait, nothing: &str, names: &Names, style: &Style) -> String {
    let reason = match wait.reason {
        Some(Reason::Claim(reason)) => reason.as_str(),
        Some(Reason::Takeover(reason)) => reason.as_str(),
        None => "",
    }
    .replace('_', " ");
    // What a notice of the removal says is said below.
    let is_said = |event: &&Event| wait.status == WaitStatus::Removed && render::is_notice(event, Notice::Kicked);
    let events = wait.events.iter().flatten().filter(|event| !is_said(event));
    let mut news: String = events.map(|event| render::event(event, names, style)).collect();
    if wait.more > 0 {
        news.push_str(&style.dim(&format!("{} more messages: tt wait or tt msg recv\n", wait.more)));
    }
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
        WaitStatus::NotYet if nothing == "events" => String::new(),
        WaitStatus::NotYet => not_yet(wait, names, style),
        WaitStatus::Closed => "the room is closed\n".into(),
        WaitStatus::Removed => {
            let hint = wait.hint.as_deref().unwrap_or("join again: tt join");
            format!("{}\n  {}\n", removed(wait, names), style.dim(&escape_text(hint)))
        }
    };
    format!("{news}{turn}")
}

/// Why the caller is no longer a member.
pub(crate) fn removed(wait: &Wait, names: &Names) -> String {
    let Some(by) = &wait.kicked_by else { return "you are no longer a member".into() };
    let why = wait.kick_reason.as_deref().map(|reason| format!(": {}", escape_text(reason))).unwrap_or_default();
    format!("{} kicked you from this room{why}", names.get(by))
}

/// Who has the stick, since when, and when it could be the caller's turn.
fn not_yet(wait: &Wait, names: &Names, style: &Style) -> String {
    let since =
        wait.since.map(|since| format!(" for {}", render::span(render::now().since(since)))).unwrap_or_default();
    let holder = match (&wait.holder, &wait.reserved_for) {
        (Some(holder), _) => format!(": {} holds the stick, turn {}{since}", names.get(holder), wait.turn_id),
        (None, Some(agent)) => format!(": {} has the stick next", names.get(agent)),
        (None, None) => ": nobody holds the stick".to_owned(),
    };
    let place = match wait.place {
        Some(1) => "; you are next".to_owned(),
        Some(place) => format!("; {} before you", place - 1),
        None => String::new(),
    };
    let hint = wait.hint.as_deref().map(|hint| style.dim(&format!("  {}\n", escape_text(hint))));
    format!("not yet{holder}{place}\n{}", hint.unwrap_or_default())
}
