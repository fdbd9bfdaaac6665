//! `tt msg send` and `tt msg recv`.

use std::io::Read;
use std::time::{Duration, Instant};

use tt_proto::event::Event;
use tt_proto::filter::OneOrMany;
use tt_proto::message::DeliveryHint;
use tt_proto::requests::{GetRoomEvents, SendMessage, Sent, Skipped, TakeMessages, Taken};
use tt_proto::{AgentId, Error, ErrorCode};

use super::events::{Stream, follow_log, wait_for_log};
use crate::connect::DEADLINE;
use crate::follow::{Signals, Writing, Wrote, reader_gone, say_cursor, write};
use crate::lazy_args::LazyArgs;
use crate::output::Format;
use crate::text::{
    Style,
    names::{self, Names},
    render,
};
use crate::workspace::{PathFlag, Workspace, key};
use crate::{Context, Failure, duration, inbox};

/// One call waits at most this long; the loop goes on for as long as it should.
const ONE_WAIT: Duration = Duration::from_secs(100);

/// Nobody who ends a program wants to wait longer for it: for a line that is being written, and for the daemon to hear what
/// was shown.
const LAST_LINE: Duration = Duration::from_millis(200);
const LAST_WORD: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Say something to a member, or to everyone
    #[command(after_help = "Example:\n  tt msg send claude \"which constraint do you mean?\"")]
    Send(LazyArgs<SendArgs>),
    /// Read what was said to you
    #[command(after_help = "Example:\n  tt msg recv --follow")]
    Recv(LazyArgs<RecvArgs>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct SendArgs {
    /// The member (name, agent id, or the beginning of one), or `room` for everyone
    who: String,
    /// What to say
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin")]
    body: Vec<String>,
    /// Worth breaking off for
    #[arg(long, conflicts_with = "important")]
    interrupt: bool,
    /// Worth reading soon
    #[arg(long)]
    important: bool,
    /// Read what to say from standard input, to the letter
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    path: PathFlag,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecvArgs {
    /// Wait until there is something
    #[arg(long, conflicts_with = "follow")]
    wait: bool,
    /// Stay, and print each message as it comes
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
    /// With more than this many waiting, show only the newest
    #[arg(long, value_name = "N", default_value_t = 50)]
    max_replay: usize,
    #[command(flatten)]
    path: PathFlag,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    match args {
        Args::Send(LazyArgs(args)) => Box::pin(send(context, args)).await,
        Args::Recv(LazyArgs(args)) => Box::pin(recv(context, args)).await,
    }
}

async fn send(context: &Context, args: SendArgs) -> Result<(), Failure> {
    let body = if args.stdin { read_stdin()? } else { args.body.join(" ") };
    let hint = match (args.interrupt, args.important) {
        (true, _) => DeliveryHint::Interrupt,
        (_, true) => DeliveryHint::Important,
        _ => DeliveryHint::Normal,
    };
    let key = key();
    let send = |room_id| SendMessage {
        room_id,
        body: body.clone(),
        to: Some(args.who.clone()),
        delivery_hint: Some(hint.as_str().to_owned()),
        idempotency_key: key.clone(),
        ..Default::default()
    };
    let (workspace, sent) = Workspace::find_and_call(context, args.path, send).await?;
    Ok(workspace.output.answer(&sent, sent_text)?)
}

fn read_stdin() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let bad = |what: String| Failure::Refused(Error::new(ErrorCode::InvalidBody, what));
    std::io::stdin().read_to_end(&mut bytes).map_err(|e| bad(format!("standard input: {e}")))?;
    String::from_utf8(bytes).map_err(|_| bad("standard input is not UTF-8".into()))
}

fn sent_text(sent: &Sent, style: &Style) -> String {
    if sent.recipients.is_empty() {
        return "said, but nobody else is here".into();
    }
    let names: Vec<String> = sent
        .recipients
        .iter()
        .map(|recipient| {
            let name = names::called(&recipient.agent_id, recipient.display_name.as_deref());
            if recipient.surface.is_some() { format!("{name} (listening)") } else { name }
        })
        .collect();
    format!("said to {} {}", names.join(", "), style.dim(&format!("#{}", sent.event_seq)))
}

async fn recv(context: &Context, args: RecvArgs) -> Result<(), Failure> {
    // Heard from here on, so that a signal ends it in order even before it has reached the daemon.
    let mut signals = Signals::listen()?;
    let find = async {
        let mut workspace = Workspace::find_and_stay(context, args.path.clone()).await?;
        let from = match &args.from {
            Some(name) => Some(workspace.member(name).await?),
            None => None,
        };
        Ok::<_, Failure>((workspace, from))
    };
    let (workspace, from) = tokio::select! {
        found = find => found?,
        () = signals.any() => return Ok(()),
    };
    match args.after {
        Some(after) => recv_from_log(workspace, args, from, after).await,
        None => recv_from_inbox(workspace, args, from, signals).await,
    }
}

/// Reads messages off the log: for whoever keeps a cursor of its own.
async fn recv_from_log(
    mut workspace: Workspace,
    args: RecvArgs,
    from: Option<AgentId>,
    after: i64,
) -> Result<(), Failure> {
    let stream = Stream {
        event_type: Some(OneOrMany::One("message_sent".into())),
        from,
        target: Some("self".into()),
        after: Some(after),
        limit: None,
        give_up: args.timeout.map(|timeout| Instant::now() + timeout),
    };
    if args.follow {
        return follow_log(&mut workspace, stream).await;
    }
    if args.wait {
        let events = wait_for_log(&mut workspace, stream).await?.events;
        let names = workspace.names().await?;
        write_lines(&workspace, &events, &names).await?;
        return if events.is_empty() { say_nothing_new(&workspace) } else { Ok(()) };
    }
    let names = workspace.names().await?;
    let (mut cursor, room_id) = (after, workspace.room_id.clone());
    loop {
        let page = GetRoomEvents {
            room_id: room_id.clone(),
            after_event_seq: Some(cursor),
            event_type: stream.event_type.clone(),
            from_agent_id: stream.from.clone(),
            target_agent_id: stream.target.clone(),
            ..Default::default()
        };
        let page = workspace.client.call(page).await?;
        if page.events.is_empty() {
            return Ok(());
        }
        if write_lines(&workspace, &page.events, &names).await? == Wrote::ReaderGone {
            return Ok(());
        }
        cursor = page.cursor_event_seq;
    }
}

/// Writes one line an event, for as long as there is a reader.
async fn write_lines(workspace: &Workspace, events: &[Event], names: &Names) -> Result<Wrote, Failure> {
    for event in events {
        let line = |event: &Event, style: &Style| render::event(event, names, style);
        if write(&workspace.output, event, line).await? == Wrote::ReaderGone {
            return Ok(Wrote::ReaderGone);
        }
    }
    Ok(Wrote::All)
}

/// An agent takes silence for what it is; a person would wonder.
fn say_nothing_new(workspace: &Workspace) -> Result<(), Failure> {
    if workspace.output.format == Format::Json {
        return Ok(());
    }
    Ok(workspace.output.text(|style| style.dim("no new messages; earlier ones: tt msg recv --after 0") + "\n")?)
}

/// Hands over what is in the inbox, and says so for what was truly written.
async fn recv_from_inbox(
    workspace: Workspace,
    args: RecvArgs,
    from: Option<AgentId>,
    mut signals: Signals,
) -> Result<(), Failure> {
    let surface = if args.follow { "follow" } else { "recv" };
    let give_up = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut hand = Hand { workspace, surface, from, writing: None, shown: Vec::new(), skipped: None, cursor: 0 };
    let gone = reader_gone();
    tokio::pin!(gone);
    // The first look hands over what is there, the newest of it where it is too much. Whoever stays gets all that comes.
    let mut max_replay = Some(args.max_replay);
    let mut patience = Duration::ZERO;
    loop {
        let (nothing, wrote) = tokio::select! {
            round = hand.round(max_replay, patience) => round?,
            () = signals.any() => {
                hand.settle().await;
                if args.follow {
                    say_cursor(hand.cursor);
                }
                return Ok(());
            }
            () = &mut gone => {
                hand.settle().await;
                return Ok(());
            }
        };
        let stay = args.follow || (args.wait && nothing);
        let timed_out = give_up.is_some_and(|at| Instant::now() >= at);
        if nothing && !args.follow && (!stay || timed_out) {
            say_nothing_new(&hand.workspace)?;
        }
        if wrote == Wrote::ReaderGone || !stay {
            return Ok(());
        }
        if timed_out {
            if args.follow {
                say_cursor(hand.cursor);
            }
            return Ok(());
        }
        max_replay = None;
        patience = give_up.map_or(ONE_WAIT, |at| at.saturating_duration_since(Instant::now()).min(ONE_WAIT));
    }
}

/// What a line is about.
enum Item {
    Message(Box<Event>),
    Skipped(Skipped),
}

/// A surface at work: what it is writing, what it has shown and not yet confirmed, and how far it came.
struct Hand {
    workspace: Workspace,
    surface: &'static str,
    from: Option<AgentId>,
    writing: Option<(Writing, Item)>,
    shown: Vec<Event>,
    skipped: Option<Skipped>,
    cursor: i64,
}

impl Hand {
    /// Takes what is there, or waits for it, and shows it. What could not be written stays in the inbox. Returns whether
    /// there was nothing.
    async fn round(&mut self, max_replay: Option<usize>, patience: Duration) -> Result<(bool, Wrote), Failure> {
        let taken = self.take(max_replay, patience).await?;
        let nothing = taken.events.is_empty() && taken.skipped.is_none();
        let wrote = self.show(taken).await?;
        self.confirm().await?;
        Ok((nothing, wrote))
    }

    async fn take(&mut self, max_replay: Option<usize>, patience: Duration) -> Result<Taken, Failure> {
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let (surface, from) = (self.surface, self.from.clone());
        let call = |room_id| TakeMessages {
            room_id,
            surface: surface.to_owned(),
            from_agent_id: from.clone(),
            max_replay,
            max_wait_ms: Some(millis),
            ..Default::default()
        };
        if patience.is_zero() {
            return self.workspace.call(call).await;
        }
        // Whoever was a member a moment ago and is none now was removed, and must not come back by itself.
        let room_id = self.workspace.room_id.clone();
        Ok(self.workspace.client.call_within(patience + DEADLINE, call(room_id)).await?)
    }

    async fn show(&mut self, taken: Taken) -> Result<Wrote, Failure> {
        let output = self.workspace.output;
        let names = if taken.events.is_empty() { Names::default() } else { self.workspace.names().await? };
        let messages = taken.events.into_iter().map(|event| Item::Message(Box::new(event)));
        for item in taken.skipped.map(Item::Skipped).into_iter().chain(messages) {
            let writing = match &item {
                Item::Message(event) => {
                    Writing::start(&output, &**event, |event, style| render::event(event, &names, style))?
                }
                Item::Skipped(skipped) => Writing::start(&output, skipped, skipped_text)?,
            };
            self.writing = Some((writing, item));
            if self.written().await? == Wrote::ReaderGone {
                return Ok(Wrote::ReaderGone);
            }
        }
        Ok(Wrote::All)
    }

    /// Waits for the line that is being written and takes note of it.
    async fn written(&mut self) -> Result<Wrote, Failure> {
        let Some((writing, _)) = &mut self.writing else { return Ok(Wrote::All) };
        let wrote = writing.done().await?;
        match self.writing.take().filter(|_| wrote == Wrote::All) {
            Some((_, Item::Message(event))) => {
                self.cursor = self.cursor.max(event.event_seq);
                self.shown.push(*event);
            }
            Some((_, Item::Skipped(skipped))) => self.skipped = Some(skipped),
            None => {}
        }
        Ok(wrote)
    }

    async fn confirm(&mut self) -> Result<(), Failure> {
        let shown: Vec<&Event> = self.shown.iter().collect();
        inbox::confirm(&mut self.workspace, self.surface, &shown, self.skipped.as_ref(), self.from.as_ref()).await?;
        (self.shown, self.skipped) = (Vec::new(), None);
        Ok(())
    }

    /// Confirms what was shown before the end came, if the daemon is there to hear it. Otherwise it is shown again.
    async fn settle(&mut self) {
        // The reader may have had the line under way this instant; one that stalls has not.
        let _ = tokio::time::timeout(LAST_LINE, self.written()).await;
        let _ = tokio::time::timeout(LAST_WORD, self.confirm()).await;
    }
}

fn skipped_text(skipped: &Skipped, style: &Style) -> String {
    style.dim(&format!(
        "{} older messages are not shown; read them with: tt msg recv --after {}",
        skipped.skipped,
        skipped.from_seq - 1
    ))
}
