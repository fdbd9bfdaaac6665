//! `tt msg send` and `tt msg recv`. What became of messages is in `deliveries.rs`.

use std::time::{Duration, Instant};

use tt_proto::delivery::{Recipient, Surface};
use tt_proto::escape::escape_text;
use tt_proto::filter::OneOrMany;
use tt_proto::message::DeliveryHint;
use tt_proto::requests::{EventPage, SendMessage, Sent};
use tt_proto::{AgentId, Error, ErrorCode};

use super::body::read_stdin;
use super::events::{EventQuery, follow_events};
use crate::Context;
use crate::cli::{duration, time_ahead};
use crate::error::CommandError;
use crate::follow::{Signals, WriteResult, block_on, end_typed_line, print_cursor, reader_gone};
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
    /// Show how far a message has come with each recipient
    #[command(after_help = "Example:\n  tt msg status 42")]
    Status(LazyArgs<super::deliveries::StatusArgs>),
    /// List the messages you sent, and how far they have come
    #[command(after_help = "Example:\n  tt msg sent --limit 5")]
    Sent(LazyArgs<super::deliveries::SentArgs>),
    /// Take a message back from those who have not been handed it
    #[command(after_help = "Example:\n  tt msg withdraw 42")]
    Withdraw(LazyArgs<super::deliveries::WithdrawArgs>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// The member (name, agent id, or the beginning of one), or `room` for everyone
    #[arg(required_unless_present = "room")]
    who: Option<String>,
    /// The message
    #[arg(required_unless_present_any = ["stdin", "room", "message"], conflicts_with_all = ["stdin", "message"])]
    body: Vec<String>,
    /// Send it to everyone: then there is no member before the message
    #[arg(long)]
    room: bool,
    /// The message, as a flag
    #[arg(short, long, value_name = "T", conflicts_with = "stdin")]
    message: Option<String>,
    #[command(flatten)]
    hint: HintFlags,
    /// If it was not handed over after this long, it expires
    #[arg(long, value_name = "D", value_parser = time_ahead, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Get a notice once it was handed over
    #[arg(long)]
    notify_on_delivery: bool,
    /// Get a notice if there is no answer this long after it was handed over
    #[arg(long, value_name = "D", value_parser = time_ahead, allow_hyphen_values = true)]
    notify_after: Option<Duration>,
    /// Read the message from standard input, unchanged
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    path: PathFlag,
}

// How urgent a message is. A doc comment here would replace the description of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct HintFlags {
    /// Ask the recipient to interrupt its work
    #[arg(long, conflicts_with_all = ["important", "when_idle"])]
    interrupt: bool,
    /// Ask the recipient to read it soon
    #[arg(long, conflicts_with = "when_idle")]
    important: bool,
    /// Hand it over when the recipient has finished its turn
    #[arg(long)]
    when_idle: bool,
}

impl HintFlags {
    pub(crate) fn hint(&self) -> DeliveryHint {
        match (self.interrupt, self.important, self.when_idle) {
            (true, ..) => DeliveryHint::Interrupt,
            (_, true, _) => DeliveryHint::Important,
            (_, _, true) => DeliveryHint::Idle,
            _ => DeliveryHint::Normal,
        }
    }
}

/// The milliseconds of a duration that was typed.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
    #[arg(long, value_name = "D", value_parser = duration, allow_hyphen_values = true)]
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
        Args::Status(LazyArgs(args)) => super::deliveries::status(context, args),
        Args::Sent(LazyArgs(args)) => super::deliveries::sent(context, args),
        Args::Withdraw(LazyArgs(args)) => super::deliveries::withdraw(context, args),
    }
}

pub(crate) fn send(context: &Context, args: SendArgs) -> Result<(), CommandError> {
    let (to, words) = match args.who {
        Some(who) if !args.room => (who, args.body),
        first => ("room".to_owned(), first.into_iter().chain(args.body).collect()),
    };
    if (args.stdin || args.message.is_some()) && !words.is_empty() {
        let twice = Error::new(ErrorCode::InvalidInput, "the message is given twice, as an argument and by a flag");
        return Err(CommandError::Refused(twice.hint("leave one of them out")));
    }
    let body = if args.stdin { read_stdin()? } else { args.message.unwrap_or_else(|| words.join(" ")) };
    let key = fresh_key();
    let send = |room_id| SendMessage {
        room_id,
        body: body.clone(),
        to: Some(to.clone()),
        delivery_hint: Some(args.hint.hint().as_str().to_owned()),
        timeout_ms: args.timeout.map(millis),
        notify_on_delivery: args.notify_on_delivery.then_some(true),
        notify_after_ms: args.notify_after.map(millis),
        idempotency_key: key.clone(),
        ..Default::default()
    };
    let (session, sent) = Session::find_and_call(context, args.path, send)?;
    Ok(session.output.answer(&sent, sent_text)?)
}

pub(crate) fn sent_text(sent: &Sent, style: &Style) -> String {
    let number = style.dim(&format!("#{}", sent.event_seq));
    let name = |recipient: &Recipient| names::called(&recipient.agent_id, recipient.display_name.as_deref());
    match sent.recipients.as_slice() {
        [] => "sent, but nobody else is here".into(),
        // What happens to it now.
        [only] => {
            let waits = only.waits.as_ref().map(|waits| escape_text(&waits.text));
            let state = if only.surface.is_some() { Some("listening".to_owned()) } else { waits };
            format!("sent to {}{} {number}", name(only), state.map(|state| format!(" ({state})")).unwrap_or_default())
        }
        several => {
            let listed = |recipient: &Recipient| match recipient.surface {
                Some(_) => format!("{} (listening)", name(recipient)),
                None => name(recipient),
            };
            let names: Vec<String> = several.iter().map(listed).collect();
            let more = if sent.more > 0 { format!(" and {} more", sent.more) } else { String::new() };
            format!("sent to {}{more} {number}", names.join(", "))
        }
    }
}

pub(crate) fn recv(context: &Context, args: RecvArgs) -> Result<(), CommandError> {
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
        grep: None,
        give_up: args.timeout.map(|timeout| Instant::now() + timeout),
    }
}

/// Prints the messages in the log after a cursor. The inbox does not change.
fn recv_from_log(context: &Context, args: &RecvArgs, after: i64) -> Result<(), CommandError> {
    let mut session = Session::find(context, args.path.clone())?;
    let from = args.from.as_deref().map(|name| session.member(name)).transpose()?;
    let mut query = log_query(args, from, after);
    if args.wait {
        loop {
            let page = query.wait_for_events(&mut session)?;
            let names = session.names()?;
            if print_messages(&session.output, &page, &names)? {
                return Ok(());
            }
            if page.events.is_empty() {
                return report_no_messages(&session.output);
            }
            query.after = Some(page.cursor_event_seq);
        }
    }
    let names = session.names()?;
    let mut cursor = after;
    loop {
        let page = query.read_page(&mut session, Some(cursor))?;
        if page.events.is_empty() {
            return Ok(());
        }
        print_messages(&session.output, &page, &names)?;
        cursor = page.cursor_event_seq;
    }
}

/// Prints the messages of a page, and returns whether there were any. What expired or was withdrawn is only in `tt events`, with its
/// mark.
fn print_messages(output: &Output, page: &EventPage, names: &Names) -> Result<bool, CommandError> {
    let mut any = false;
    for event in page.events.iter().filter(|event| page.undelivered(event.event_seq).is_none()) {
        output.without_inbox().answer(event, |event, style| render::event(event, names, style))?;
        any = true;
    }
    Ok(any)
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
            signal = signals.next() => {
                printer.finish().await;
                end_typed_line(&printer.session.output, signal);
                if args.follow {
                    print_cursor(&printer.session.output, printer.cursor);
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
            return printer.settle().await;
        }
        if timed_out {
            printer.settle().await?;
            if args.follow {
                print_cursor(&printer.session.output, printer.cursor);
            }
            return Ok(());
        }
        let time_left = |at: Instant| at.saturating_duration_since(Instant::now()).min(MAX_WAIT_PER_CALL);
        options = TakeOptions { wait: give_up.map_or(MAX_WAIT_PER_CALL, time_left), ..TakeOptions::default() };
    }
}
