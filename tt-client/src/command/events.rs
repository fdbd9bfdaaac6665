//! `tt events`: what happened in the room, and what happens next.

use std::io::Write;
use std::time::{Duration, Instant};

use tt_proto::AgentId;
use tt_proto::event::Event;
use tt_proto::filter::OneOrMany;
use tt_proto::requests::{EventPage, GetRoomEvents, SubscribeEvents, WaitForEvents};

use crate::connect::DEADLINE;
use crate::follow::{Signals, Wrote, reader_gone, say_cursor, write};
use crate::text::{Style, names::Names, render};
use crate::workspace::{PathArg, Workspace};
use crate::{Context, Failure, duration};

/// One call waits at most this long; the loop goes on for as long as it should.
const ONE_WAIT: Duration = Duration::from_secs(100);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tt events --limit 20\n  tt events --follow --event claim,release,pass,takeover --target any"
)]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Wait until there is something that fits
    #[arg(long, conflicts_with = "follow")]
    wait: bool,
    /// Stay, and print each event as it comes
    #[arg(long)]
    follow: bool,
    /// Only these types, separated by commas
    #[arg(long = "event", value_name = "T[,T…]", value_delimiter = ',')]
    event_type: Option<Vec<String>>,
    /// Only what concerns you (self), everything (any), or what is addressed to a member
    /// [default: any; with --wait or --follow: self]
    #[arg(long, value_name = "self|any|WHO")]
    target: Option<String>,
    /// Only from this member
    #[arg(long, value_name = "WHO")]
    from: Option<String>,
    /// Only what came after this event
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// At most this many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// With --wait or --follow: give up after this long [default: never]
    #[arg(long, value_name = "D", value_parser = duration)]
    timeout: Option<Duration>,
}

/// Which events to stream, from where, and for how long.
pub(crate) struct Stream {
    pub event_type: Option<OneOrMany>,
    pub from: Option<AgentId>,
    pub target: Option<String>,
    pub after: Option<i64>,
    pub limit: Option<usize>,
    pub give_up: Option<Instant>,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut workspace = Workspace::find_and_stay(context, args.path).await?;
    let stream = Stream {
        event_type: args.event_type.map(OneOrMany::Many),
        from: match &args.from {
            Some(name) => Some(workspace.member(name).await?),
            None => None,
        },
        target: match args.target.as_deref() {
            None | Some("self" | "any") => args.target,
            Some(name) => Some(workspace.member(name).await?.to_string()),
        },
        after: args.after,
        limit: args.limit,
        give_up: args.timeout.map(|timeout| Instant::now() + timeout),
    };
    match (args.wait, args.follow) {
        (_, true) => follow_log(&mut workspace, stream).await,
        (true, _) => {
            let events = wait_for_log(&mut workspace, stream).await?;
            let names = workspace.names().await?;
            Ok(workspace.output.answer(&events, |events, style| text(events, &names, style))?)
        }
        _ => {
            let room_id = workspace.room_id.clone();
            let page = GetRoomEvents {
                room_id,
                after_event_seq: stream.after,
                limit: stream.limit,
                event_type: stream.event_type,
                from_agent_id: stream.from,
                target_agent_id: stream.target,
            };
            let (events, names) = (workspace.client.call(page).await?, workspace.names().await?);
            Ok(workspace.output.answer(&events, |events, style| text(events, &names, style))?)
        }
    }
}

impl Stream {
    fn patience(&self) -> Duration {
        self.give_up.map_or(ONE_WAIT, |at| at.saturating_duration_since(Instant::now()).min(ONE_WAIT))
    }

    fn is_over(&self) -> bool {
        self.give_up.is_some_and(|at| Instant::now() >= at)
    }

    async fn wait(
        &self,
        workspace: &mut Workspace,
        after: Option<i64>,
        patience: Duration,
    ) -> Result<EventPage, Failure> {
        let millis = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let room_id = workspace.room_id.clone();
        let request = WaitForEvents {
            room_id,
            after_event_seq: after,
            limit: self.limit,
            event_type: self.event_type.clone(),
            from_agent_id: self.from.clone(),
            target_agent_id: self.target.clone(),
            max_wait_ms: Some(millis),
        };
        Ok(workspace.client.call_within(patience + DEADLINE, request).await?)
    }

    /// Where "now" is, so that nothing is missed when the daemon restarts before the first event.
    async fn start(&self, workspace: &mut Workspace) -> Result<i64, Failure> {
        match self.after {
            Some(after) => Ok(after),
            None => Ok(self.wait(workspace, None, Duration::ZERO).await?.cursor_event_seq),
        }
    }
}

/// Blocks for the next events that fit. None of them are there when its time is up.
pub(crate) async fn wait_for_log(workspace: &mut Workspace, stream: Stream) -> Result<EventPage, Failure> {
    let cursor = stream.start(workspace).await?;
    loop {
        let events = stream.wait(workspace, Some(cursor), stream.patience()).await?;
        if !events.events.is_empty() || stream.is_over() {
            return Ok(events);
        }
    }
}

/// Prints one line an event, through restarts of the daemon, until a signal or the reader ends it.
pub(crate) async fn follow_log(workspace: &mut Workspace, stream: Stream) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let mut cursor = stream.start(workspace).await?;
    let mut names = workspace.names().await?;
    let give_up = async {
        match stream.give_up {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = follow(workspace, &stream, &mut names, &mut cursor) => ended?,
        () = signals.any() => {}
        () = give_up => {}
        () = reader_gone() => return Ok(()),
    }
    say_cursor(cursor);
    Ok(())
}

async fn follow(
    workspace: &mut Workspace,
    stream: &Stream,
    names: &mut Names,
    cursor: &mut i64,
) -> Result<(), Failure> {
    loop {
        let request = SubscribeEvents {
            room_id: workspace.room_id.clone(),
            after_event_seq: Some(*cursor),
            event_type: stream.event_type.clone(),
            from_agent_id: stream.from.clone(),
            target_agent_id: stream.target.clone(),
        };
        let mut items = workspace.client.subscribe(request).await?;
        // A stream that breaks off, by whatever end of the daemon, is taken up again where it was.
        while let Some(Ok(item)) = items.next().await {
            if let Some(event) = &item.event {
                names.learn(event);
                let line = |event: &Event, style: &Style| render::event(event, names, style);
                if write(&workspace.output, event, line).await? == Wrote::ReaderGone {
                    return Ok(());
                }
            }
            *cursor = item.cursor_event_seq;
            if item.resync.is_some_and(|resync| resync.reason == "room_deleted") {
                let _ = writeln!(std::io::stderr(), "the room is gone");
                return Ok(());
            }
        }
    }
}

fn text(events: &EventPage, names: &Names, style: &Style) -> String {
    if events.events.is_empty() {
        return "nothing happened yet".into();
    }
    events.events.iter().map(|event| render::event(event, names, style)).collect()
}
