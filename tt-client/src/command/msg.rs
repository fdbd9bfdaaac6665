//! `tt msg send` and `tt msg recv`.

use std::io::Read;
use std::time::{Duration, Instant};

use tt_proto::api::{EventApiClient, MessageApiClient};
use tt_proto::event::Event;
use tt_proto::filter::OneOrMany;
use tt_proto::message::{DeliveryHint, Sent, Skipped, Taken};
use tt_proto::{AgentId, Error, ErrorCode};

use super::events::{Stream, follow_log, wait_for_log};
use crate::connect::DEADLINE;
use crate::follow::{Signals, Wrote, say_cursor, write};
use crate::output::{Style, harmless};
use crate::render::Names;
use crate::workspace::{PathFlag, Workspace, key};
use crate::{Context, Failure, duration, inbox, render};

/// One call waits at most this long; the loop goes on for as long as it should.
const ONE_WAIT: Duration = Duration::from_secs(100);

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Args {
    /// Say something to a member, or to everyone
    #[command(after_help = "Example:\n  tt msg send claude \"which constraint do you mean?\"")]
    Send(SendArgs),
    /// Read what was said to you
    #[command(after_help = "Example:\n  tt msg recv --follow")]
    Recv(RecvArgs),
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
        Args::Send(args) => send(context, args).await,
        Args::Recv(args) => recv(context, args).await,
    }
}

async fn send(context: &Context, args: SendArgs) -> Result<(), Failure> {
    let body = if args.stdin { read_stdin()? } else { args.body.join(" ") };
    let hint = match (args.interrupt, args.important) {
        (true, _) => DeliveryHint::Interrupt,
        (_, true) => DeliveryHint::Important,
        _ => DeliveryHint::Normal,
    };
    let mut workspace = Workspace::find(context, args.path).await?;
    let key = key();
    let sent = workspace
        .call(async |rpc, room| {
            let (to, hint) = (Some(args.who.clone()), Some(hint.as_str().to_owned()));
            rpc.send_message(room.clone(), body.clone(), None, to, hint, key.clone()).await
        })
        .await?;
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
        .map(|recipient| match &recipient.surface {
            Some(_) => format!("{} (listening)", harmless(recipient.agent_id.as_str())),
            None => harmless(recipient.agent_id.as_str()),
        })
        .collect();
    format!("said to {} {}", names.join(", "), style.dim(&format!("#{}", sent.event_seq)))
}

async fn recv(context: &Context, args: RecvArgs) -> Result<(), Failure> {
    let mut workspace = Workspace::find(context, args.path.clone()).await?;
    let from = match &args.from {
        Some(name) => Some(workspace.member(name).await?),
        None => None,
    };
    match args.after {
        Some(after) => recv_from_log(workspace, args, from, after).await,
        None => recv_from_inbox(workspace, args, from).await,
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
        return wait_for_log(&mut workspace, stream).await;
    }
    let names = workspace.names().await?;
    let (mut cursor, room_id) = (after, workspace.room_id.clone());
    loop {
        let page = async |rpc: &_| {
            let (from, target) = (stream.from.clone(), stream.target.clone());
            EventApiClient::get_room_events(
                rpc,
                room_id.clone(),
                Some(cursor),
                None,
                stream.event_type.clone(),
                from,
                target,
            )
            .await
        };
        let page = workspace.client.call(page).await?;
        if page.events.is_empty() {
            return Ok(());
        }
        for event in &page.events {
            let line = |event: &Event, style: &Style| render::event(event, &names, style);
            if write(&workspace.output, event, line).await? == Wrote::ReaderGone {
                return Ok(());
            }
        }
        cursor = page.cursor_event_seq;
    }
}

/// Hands over what is in the inbox, and says so for what was truly written.
async fn recv_from_inbox(mut workspace: Workspace, args: RecvArgs, from: Option<AgentId>) -> Result<(), Failure> {
    let surface = if args.follow { "follow" } else { "recv" };
    let give_up = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut signals = Signals::listen()?;
    let mut cursor = 0;
    loop {
        let left = match (args.wait || args.follow, give_up) {
            (false, _) => Duration::ZERO,
            (true, None) => ONE_WAIT,
            (true, Some(at)) => at.saturating_duration_since(Instant::now()).min(ONE_WAIT),
        };
        let round = async {
            let taken = take(&mut workspace, surface, from.as_ref(), args.max_replay, left).await?;
            show(&mut workspace, surface, &taken, from.as_ref(), &mut cursor).await.map(|wrote| (taken, wrote))
        };
        let (taken, wrote) = tokio::select! {
            round = round => round?,
            () = signals.any() => {
                if args.follow {
                    say_cursor(cursor);
                }
                return Ok(());
            }
        };
        let nothing = taken.events.is_empty() && taken.skipped.is_none();
        let stay = args.follow || (args.wait && nothing);
        let timed_out = give_up.is_some_and(|at| Instant::now() >= at);
        if wrote == Wrote::ReaderGone || !stay || timed_out {
            return Ok(());
        }
    }
}

async fn take(
    workspace: &mut Workspace,
    surface: &str,
    from: Option<&AgentId>,
    max_replay: usize,
    patience: Duration,
) -> Result<Taken, Failure> {
    let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    workspace
        .call_within(patience + DEADLINE, async |rpc, room| {
            rpc.take_messages(room.clone(), surface.to_owned(), from.cloned(), Some(max_replay), Some(millis)).await
        })
        .await
}

/// Writes what was taken and confirms what was written. What could not be written stays in the inbox.
async fn show(
    workspace: &mut Workspace,
    surface: &str,
    taken: &Taken,
    from: Option<&AgentId>,
    cursor: &mut i64,
) -> Result<Wrote, Failure> {
    let output = workspace.output;
    let names = if taken.events.is_empty() { Names::default() } else { workspace.names().await? };
    let mut wrote = Wrote::All;
    let mut skipped = None;
    if let Some(older) = &taken.skipped {
        wrote = write(&output, older, skipped_text).await?;
        skipped = Some(older).filter(|_| wrote == Wrote::All);
    }
    let mut shown = Vec::new();
    for event in &taken.events {
        if wrote == Wrote::All {
            wrote = write(&output, event, |event, style| render::event(event, &names, style)).await?;
        }
        if wrote == Wrote::All {
            shown.push(event);
            *cursor = event.event_seq;
        }
    }
    inbox::confirm(workspace, surface, &shown, skipped, from).await?;
    Ok(wrote)
}

fn skipped_text(skipped: &Skipped, style: &Style) -> String {
    style.dim(&format!(
        "{} older messages are not shown; read them with: tt msg recv --after {}",
        skipped.skipped,
        skipped.from_seq - 1
    ))
}
