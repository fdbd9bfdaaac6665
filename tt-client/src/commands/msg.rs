//! `tt msg send` and `tt msg recv`.

use std::io::Read;
use std::time::{Duration, Instant};

use tt_proto::delivery::Surface;
use tt_proto::event::Event;
use tt_proto::filter::OneOrMany;
use tt_proto::message::DeliveryHint;
use tt_proto::requests::{SendMessage, Sent};
use tt_proto::{AgentId, Error, ErrorCode};

use super::events::{EventQuery, follow_events};
use crate::Context;
use crate::cli::duration;
use crate::error::CommandError;
use crate::follow::{Signals, WriteResult, block_on, print_cursor, reader_gone};
use crate::lazy_args::LazyArgs;
use crate::live_session::LiveSession;
use crate::output::{Format, Output};
use crate::receive::{InboxPrinter, TakeOptions};
use crate::session::{PathFlag, Session, fresh_key};
use crate::text::{
    Style,
    names::{self, Names},
    render,
};

/// How long one call waits. A longer wait is made of several calls.
const MAX_WAIT_PER_CALL: Duration = Duration::from_secs(100);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Send a message to a member, or to everyone
    #[command(after_help = "Example:\n  tt msg send claude \"which constraint do you mean?\"")]
    Send(LazyArgs<SendArgs>),
    /// Read your messages
    #[command(after_help = "Example:\n  tt msg recv --follow")]
    Recv(LazyArgs<RecvArgs>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// The member (name, agent id, or the beginning of one), or `room` for everyone
    who: String,
    /// The message
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin")]
    body: Vec<String>,
    /// Ask the recipient to interrupt its work
    #[arg(long, conflicts_with = "important")]
    interrupt: bool,
    /// Ask the recipient to read it soon
    #[arg(long)]
    important: bool,
    /// Read the message from standard input, unchanged
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    path: PathFlag,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecvArgs {
    /// Wait until there is a message
    #[arg(long, conflicts_with = "follow")]
    wait: bool,
    /// Keep running and print each message as it arrives
    #[arg(long)]
    follow: bool,
    /// Only from this member
    #[arg(long, value_name = "WHO")]
    from: Option<String>,
    /// Read the log from this event on instead of the inbox, and change nothing
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// With --wait or --follow: give up after this long [default: never]
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
    /// Show only this many of the newest waiting messages
    #[arg(long, value_name = "N", default_value_t = 50)]
    max_replay: usize,
    #[command(flatten)]
    path: PathFlag,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    match args {
        Args::Send(LazyArgs(args)) => send(context, args),
        Args::Recv(LazyArgs(args)) => recv(context, args),
    }
}

fn send(context: &Context, args: SendArgs) -> Result<(), CommandError> {
    let body = if args.stdin { read_stdin()? } else { args.body.join(" ") };
    let hint = match (args.interrupt, args.important) {
        (true, _) => DeliveryHint::Interrupt,
        (_, true) => DeliveryHint::Important,
        _ => DeliveryHint::Normal,
    };
    let key = fresh_key();
    let send = |room_id| SendMessage {
        room_id,
        body: body.clone(),
        to: Some(args.who.clone()),
        delivery_hint: Some(hint.as_str().to_owned()),
        idempotency_key: key.clone(),
        ..Default::default()
    };
    let (session, sent) = Session::find_and_call(context, args.path, send)?;
    Ok(session.output.answer(&sent, sent_text)?)
}

fn read_stdin() -> Result<String, CommandError> {
    let mut bytes = Vec::new();
    let bad = |what: String| CommandError::Refused(Error::new(ErrorCode::InvalidBody, what));
    std::io::stdin().read_to_end(&mut bytes).map_err(|e| bad(format!("standard input: {e}")))?;
    String::from_utf8(bytes).map_err(|_| bad("standard input is not UTF-8".into()))
}

fn sent_text(sent: &Sent, style: &Style) -> String {
    if sent.recipients.is_empty() {
        return "sent, but nobody else is here".into();
    }
    let names: Vec<String> = sent
        .recipients
        .iter()
        .map(|recipient| {
            let name = names::called(&recipient.agent_id, recipient.display_name.as_deref());
            if recipient.surface.is_some() { format!("{name} (listening)") } else { name }
        })
        .collect();
    let more = if sent.more > 0 { format!(" and {} more", sent.more) } else { String::new() };
    format!("sent to {}{more} {}", names.join(", "), style.dim(&format!("#{}", sent.event_seq)))
}

fn recv(context: &Context, args: RecvArgs) -> Result<(), CommandError> {
    match args.after {
        Some(after) if !args.follow => recv_from_log(context, &args, after),
        _ => block_on(recv_live(context, args)),
    }
}

/// The messages in the log, for a reader that keeps a cursor of its own.
fn log_query(args: &RecvArgs, from: Option<AgentId>, after: i64) -> EventQuery {
    EventQuery {
        event_type: Some(OneOrMany::One("message_sent".into())),
        from,
        target: Some("self".into()),
        after: Some(after),
        limit: None,
        give_up: args.timeout.map(|timeout| Instant::now() + timeout),
    }
}

/// Prints the messages in the log after a cursor. The inbox does not change.
fn recv_from_log(context: &Context, args: &RecvArgs, after: i64) -> Result<(), CommandError> {
    let mut session = Session::find(context, args.path.clone())?;
    let from = args.from.as_deref().map(|name| session.member(name)).transpose()?;
    let query = log_query(args, from, after);
    if args.wait {
        let events = query.wait_for_events(&mut session)?.events;
        let names = session.names()?;
        print_events(&session.output, &events, &names)?;
        return if events.is_empty() { report_no_messages(&session.output) } else { Ok(()) };
    }
    let names = session.names()?;
    let mut cursor = after;
    loop {
        let page = query.read_page(&mut session, Some(cursor))?;
        if page.events.is_empty() {
            return Ok(());
        }
        print_events(&session.output, &page.events, &names)?;
        cursor = page.cursor_event_seq;
    }
}

/// Writes one line for each event.
fn print_events(output: &Output, events: &[Event], names: &Names) -> Result<(), CommandError> {
    for event in events {
        output.answer(event, |event, style| render::event(event, names, style))?;
    }
    Ok(())
}

/// Tells a person that there is nothing. An agent gets no output.
fn report_no_messages(output: &Output) -> Result<(), CommandError> {
    if output.format == Format::Json {
        return Ok(());
    }
    Ok(output.text(|style| style.dim("no new messages; earlier ones: tt msg recv --after 0") + "\n")?)
}

async fn recv_live(context: &Context, args: RecvArgs) -> Result<(), CommandError> {
    // Listened for from here on, so that a signal ends the command in an orderly way even before it has reached the daemon.
    let mut signals = Signals::listen()?;
    let find = async {
        let mut session = LiveSession::find(context, args.path.clone()).await?;
        let from = match &args.from {
            Some(name) => Some(session.member(name).await?),
            None => None,
        };
        Ok::<_, CommandError>((session, from))
    };
    let (mut session, from) = tokio::select! {
        found = find => found?,
        () = signals.any() => return Ok(()),
    };
    match args.after {
        Some(after) => follow_events(&mut session, log_query(&args, from, after)).await,
        None => recv_from_inbox(session, args, from, signals).await,
    }
}

/// Prints the messages in the inbox, and those that come while the command stays.
async fn recv_from_inbox(
    session: LiveSession,
    args: RecvArgs,
    from: Option<AgentId>,
    mut signals: Signals,
) -> Result<(), CommandError> {
    let surface = if args.follow { Surface::Follow } else { Surface::Recv };
    let give_up = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut printer = InboxPrinter::new(session, surface, from);
    let gone = reader_gone();
    tokio::pin!(gone);
    // The first round prints what is in the inbox, or only the newest of too many. The next ones print everything new.
    let mut options = TakeOptions { max_replay: Some(args.max_replay), ..TakeOptions::default() };
    loop {
        let round = tokio::select! {
            round = printer.print(options) => round?,
            () = signals.any() => {
                printer.finish().await;
                if args.follow {
                    print_cursor(printer.cursor);
                }
                return Ok(());
            }
            () = &mut gone => {
                printer.finish().await;
                return Ok(());
            }
        };
        if round.skips_on && round.result == WriteResult::Written {
            continue;
        }
        let stay = args.follow || (args.wait && round.is_empty);
        let timed_out = give_up.is_some_and(|at| Instant::now() >= at);
        if round.is_empty && !args.follow && (!stay || timed_out) {
            report_no_messages(&printer.session.output)?;
        }
        if round.result == WriteResult::ReaderGone || !stay {
            return Ok(());
        }
        if timed_out {
            if args.follow {
                print_cursor(printer.cursor);
            }
            return Ok(());
        }
        let time_left = |at: Instant| at.saturating_duration_since(Instant::now()).min(MAX_WAIT_PER_CALL);
        options = TakeOptions { wait: give_up.map_or(MAX_WAIT_PER_CALL, time_left), ..TakeOptions::default() };
    }
}
