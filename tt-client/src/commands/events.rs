//! `tt events`: shows, waits for or follows the events of the room.

use std::io::Write;
use std::time::{Duration, Instant};

use tt_proto::escape::escape_text;
use tt_proto::event::Event;
use tt_proto::filter::OneOrMany;
use tt_proto::requests::{EventPage, GetRoomEvents, SubscribeEvents, WaitForEvents};
use tt_proto::{AgentId, RoomId, WallTime};

use crate::Context;
use crate::cli::duration;
use crate::connect::{DEADLINE, RECONNECT_DELAY, unreadable};
use crate::error::CommandError;
use crate::follow::{Signals, WriteResult, block_on, end_typed_line, print_cursor, reader_gone, write_line};
use crate::live_session::LiveSession;
use crate::session::{PathArg, Session};
use crate::text::{Style, names::Names, render, shell::shell_word};

/// How long one call waits. A longer wait is made of several calls.
const MAX_WAIT_PER_CALL: Duration = Duration::from_secs(100);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  tt events --since 2h --grep \"old column\"\n  tt events --follow --event claim,release,pass,takeover"
)]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Wait until there is a matching event
    #[arg(long, conflicts_with = "follow")]
    wait: bool,
    /// Keep running and print each event as it happens
    #[arg(long)]
    follow: bool,
    /// Only these types, separated by commas
    #[arg(long = "event", value_name = "T[,T…]", value_delimiter = ',')]
    event_type: Option<Vec<String>>,
    /// Only what concerns you (self), everything (any), or what is addressed to a member
    /// [default: any; with --wait: self]
    #[arg(long, value_name = "self|any|WHO")]
    target: Option<String>,
    /// Only from this member
    #[arg(long, value_name = "WHO")]
    from: Option<String>,
    /// The first events after this one: its number, or the beginning of its id
    #[arg(long, value_name = "SEQ")]
    after: Option<String>,
    /// The newest events before this one: its number, or the beginning of its id
    #[arg(long, value_name = "SEQ", conflicts_with_all = ["after", "wait", "follow"])]
    before: Option<String>,
    /// Only what happened since then: 2h, 09:30, 2026-11-16 or 2026-11-16T09:30:00Z
    #[arg(long, value_name = "D|TIME", value_parser = since, conflicts_with_all = ["wait", "follow"])]
    since: Option<WallTime>,
    /// Only what has these words in its message, handoff or reason; the beginning of a word is enough
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// At most this many [default: 50]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// With --wait or --follow: give up after this long [default: never]
    #[arg(long, value_name = "D", value_parser = duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
}

/// Which events to show, from where, and for how long.
pub(crate) struct EventQuery {
    pub event_type: Option<OneOrMany>,
    pub from: Option<AgentId>,
    pub target: Option<String>,
    pub after: Option<i64>,
    pub limit: Option<usize>,
    pub grep: Option<String>,
    pub give_up: Option<Instant>,
}

/// Reads how long ago, or when.
fn since(text: &str) -> Result<WallTime, String> {
    let now = render::now();
    let ago = tt_proto::time::parse_duration(text).map(|ago| now - ago);
    ago.or_else(|| render::time_of(text, now))
        .ok_or_else(|| "use a duration, such as 30m or 2h, or a time, such as 09:30 or 2026-11-16T09:30:00Z".to_owned())
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    if args.follow {
        return block_on(follow(context, args));
    }
    let mut session = Session::find(context, args.path.clone())?;
    let from = args.from.as_deref().map(|name| session.member(name)).transpose()?;
    let target = match args.target.as_deref() {
        None | Some("self" | "any") => args.target.clone(),
        Some(name) => Some(session.member(name)?.to_string()),
    };
    let after = args.after.as_deref().map(|text| number(&mut session, text)).transpose()?;
    let before = args.before.as_deref().map(|text| number(&mut session, text)).transpose()?;
    let (waits, since, same) = (args.wait, args.since, args.narrowing());
    let query = args.query(from, target, after);
    let events = if waits {
        query.wait_for_events(&mut session)?
    } else {
        let request = GetRoomEvents { before_event_seq: before, since, ..query.page_request(&session.room_id, after) };
        session.client.call(&request)?
    };
    let names = session.names()?;
    Ok(session.output.answer(&events, |events, style| text(events, &same, &names, style))?)
}

/// The number of an event, given as such or by the beginning of its id.
fn number(session: &mut Session, text: &str) -> Result<i64, CommandError> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let request =
        GetRoomEvents { room_id: session.room_id.clone(), event_id: Some(text.to_owned()), ..Default::default() };
    Ok(session.client.call(&request)?.cursor_event_seq)
}

async fn follow(context: &Context, args: Args) -> Result<(), CommandError> {
    let mut session = LiveSession::find(context, args.path.clone()).await?;
    let from = match &args.from {
        Some(name) => Some(session.member(name).await?),
        None => None,
    };
    let target = match args.target.as_deref() {
        None => Some("any".to_owned()),
        Some("self" | "any") => args.target.clone(),
        Some(name) => Some(session.member(name).await?.to_string()),
    };
    let after = match args.after.as_deref().map(|text| (text, text.parse())) {
        None => None,
        Some((_, Ok(number))) => Some(number),
        Some((text, Err(_))) => {
            let (room_id, event_id) = (session.room_id.clone(), Some(text.to_owned()));
            Some(session.client.call(GetRoomEvents { room_id, event_id, ..Default::default() }).await?.cursor_event_seq)
        }
    };
    follow_events(&mut session, args.query(from, target, after)).await
}

impl Args {
    /// The command with the flags that narrow it, as they were typed: what is before or after a page is asked for with the same.
    fn narrowing(&self) -> String {
        let path = self.path.is_given().then(|| self.path.text().ok()).flatten();
        let flags = [
            ("--path", path),
            ("--since", self.since.map(|since| since.to_string())),
            ("--event", self.event_type.as_ref().map(|types| types.join(","))),
            ("--target", self.target.clone()),
            ("--from", self.from.clone()),
            ("--grep", self.grep.clone()),
        ];
        let flags = flags.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", shell_word(&value?))));
        "tt events".to_owned() + &flags.collect::<String>()
    }

    fn query(self, from: Option<AgentId>, target: Option<String>, after: Option<i64>) -> EventQuery {
        EventQuery {
            event_type: self.event_type.map(OneOrMany::Many),
            from,
            target,
            after,
            limit: self.limit,
            grep: self.grep,
            give_up: self.timeout.map(|timeout| Instant::now() + timeout),
        }
    }
}

impl EventQuery {
    fn wait_request(&self, room_id: &RoomId, after: Option<i64>, wait: Duration) -> WaitForEvents {
        WaitForEvents {
            room_id: room_id.clone(),
            after_event_seq: after,
            limit: self.limit,
            event_type: self.event_type.clone(),
            from_agent_id: self.from.clone(),
            target_agent_id: self.target.clone(),
            max_wait_ms: Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            grep: self.grep.clone(),
        }
    }

    fn subscribe_request(&self, room_id: &RoomId, after: i64) -> SubscribeEvents {
        SubscribeEvents {
            room_id: room_id.clone(),
            after_event_seq: Some(after),
            event_type: self.event_type.clone(),
            from_agent_id: self.from.clone(),
            target_agent_id: self.target.clone(),
            grep: self.grep.clone(),
        }
    }

    fn page_request(&self, room_id: &RoomId, after: Option<i64>) -> GetRoomEvents {
        GetRoomEvents {
            room_id: room_id.clone(),
            after_event_seq: after,
            limit: self.limit,
            event_type: self.event_type.clone(),
            from_agent_id: self.from.clone(),
            target_agent_id: self.target.clone(),
            grep: self.grep.clone(),
            ..Default::default()
        }
    }

    /// Reads one page of the log.
    pub(crate) fn read_page(&self, session: &mut Session, after: Option<i64>) -> Result<EventPage, CommandError> {
        Ok(session.client.call(&self.page_request(&session.room_id, after))?)
    }

    /// Blocks for the next events. There are none if the time is up.
    pub(crate) fn wait_for_events(&self, session: &mut Session) -> Result<EventPage, CommandError> {
        let room_id = session.room_id.clone();
        // Without a cursor it starts from now, and misses nothing when the daemon restarts before the first event.
        let cursor = match self.after {
            Some(after) => after,
            None => session.client.call(&self.wait_request(&room_id, None, Duration::ZERO))?.cursor_event_seq,
        };
        loop {
            let time_left = |at: Instant| at.saturating_duration_since(Instant::now()).min(MAX_WAIT_PER_CALL);
            let wait = self.give_up.map_or(MAX_WAIT_PER_CALL, time_left);
            let request = self.wait_request(&room_id, Some(cursor), wait);
            let events = session.client.call_within(wait + DEADLINE, &request)?;
            if !events.events.is_empty() || self.give_up.is_some_and(|at| Instant::now() >= at) {
                return Ok(events);
            }
        }
    }
}

/// Prints one line for each event, through restarts of the daemon, until a signal, the time or the reader ends it.
pub(crate) async fn follow_events(session: &mut LiveSession, query: EventQuery) -> Result<(), CommandError> {
    let mut signals = Signals::listen()?;
    let mut cursor = match query.after {
        Some(after) => after,
        None => {
            let now = query.wait_request(&session.room_id, None, Duration::ZERO);
            session.client.call(now).await?.cursor_event_seq
        }
    };
    let mut names = session.names().await?;
    let give_up = async {
        match query.give_up {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = print_stream(session, &query, &mut names, &mut cursor) => ended?,
        signal = signals.next() => end_typed_line(&session.output, signal),
        () = give_up => {}
        () = reader_gone() => return Ok(()),
    }
    print_cursor(&session.output, cursor);
    Ok(())
}

async fn print_stream(
    session: &mut LiveSession,
    query: &EventQuery,
    names: &mut Names,
    cursor: &mut i64,
) -> Result<(), CommandError> {
    loop {
        let request = query.subscribe_request(&session.room_id, *cursor);
        let mut items = session.client.subscribe(request).await?;
        let mut is_empty = true;
        // A stream that breaks off, because the daemon ended or restarted, continues where it was.
        while let Some(item) = items.next().await {
            // It would come again: a new stream starts with the same item.
            let item = item.map_err(|e| unreadable(&e))?;
            is_empty = false;
            if let Some(event) = &item.event {
                names.learn(event);
                let undelivered = item.undelivered;
                let line = |event: &Event, style: &Style| render::logged(event, undelivered, names, style);
                if write_line(&session.output, event, line).await? == WriteResult::ReaderGone {
                    return Ok(());
                }
            }
            *cursor = item.cursor_event_seq;
            if item.resync.is_some_and(|resync| resync.reason == "room_deleted") {
                let _ = writeln!(std::io::stderr(), "the room is gone");
                return Ok(());
            }
        }
        if is_empty {
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
    }
}

/// The page, with the commands that show what is before and after it.
fn text(events: &EventPage, command: &str, names: &Names, style: &Style) -> String {
    let Some(first) = events.events.first() else { return "nothing found".into() };
    let mut text = String::new();
    if events.earlier > 0 {
        let more = if events.earlier_is_more { "more than " } else { "" };
        let line = format!("{more}{} earlier: {command} --before {}", events.earlier, first.event_seq);
        text.push_str(&style.row("", &style.dim(&escape_text(&line))));
    }
    let line = |event: &Event| render::logged(event, events.undelivered(event.event_seq), names, style);
    text.extend(events.events.iter().map(line));
    if events.more {
        let line = format!("there are later ones: {command} --after {}", events.cursor_event_seq);
        text.push_str(&style.row("", &style.dim(&escape_text(&line))));
    }
    text
}
