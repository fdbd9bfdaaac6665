//! `tt watch`: what happens in one or several rooms, and what becomes of the messages, line by line, for a plain terminal or a log.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tt_proto::delivery::{DeliveryChanged, DeliveryState};
use tt_proto::escape::escape_text;
use tt_proto::event::Event;
use tt_proto::requests::{GetRoomEvents, GetRoomState, SubscribeDeliveries, SubscribeEvents};

use crate::Context;
use crate::connect::{RECONNECT_DELAY, unreadable};
use crate::error::CommandError;
use crate::follow::{Signals, WriteResult, block_on, end_typed_line, reader_gone, write_line};
use crate::live_session::LiveSession;
use crate::output::Format;
use crate::session::PathArg;
use crate::text::names::Names;
use crate::text::{Style, render};

/// How many lines wait for a slow reader. The daemon keeps the rest.
const MAX_LINES: usize = 64;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt watch ~/shop ~/api")]
pub(crate) struct Args {
    /// The workspaces: any path in each [default: the current directory]
    #[arg(value_name = "ROOM")]
    rooms: Vec<PathBuf>,
    /// Begin with this many of the newest events
    #[arg(long, value_name = "N", default_value_t = 10)]
    newest: usize,
}

/// One line: for a program the event or the change as it is, for a person a text.
#[derive(Debug)]
struct Line {
    item: Item,
    text: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Item {
    Event(Box<Event>),
    Delivery(Box<DeliveryChanged>),
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    block_on(watch(context, args))
}

async fn watch(context: &Context, args: Args) -> Result<(), CommandError> {
    let mut signals = Signals::listen()?;
    let paths = if args.rooms.is_empty() { vec![PathBuf::from(".")] } else { args.rooms };
    let (sender, mut lines) = mpsc::channel(MAX_LINES);
    let (several, mut rooms, mut output) = (paths.len() > 1, JoinSet::new(), context.output());
    for path in paths {
        let mut session = LiveSession::find(context, PathArg::at(path)).await?;
        output = session.output.clone();
        let state = session.client.call(GetRoomState { room_id: session.room_id.clone(), all: None }).await?;
        let name = state.room.canonical_path.rsplit('/').next().map(escape_text).filter(|_| several);
        let watched = Room { names: session.names().await?, session, name, lines: sender.clone() };
        rooms.spawn_local(watched.follow(args.newest));
    }
    drop(sender);
    let print = async {
        while let Some(Line { item, text }) = lines.recv().await {
            if write_line(&output, &item, |_, _| text).await? == WriteResult::ReaderGone {
                return Ok(());
            }
        }
        while let Some(ended) = rooms.join_next().await {
            ended.map_err(std::io::Error::other)??;
        }
        Ok::<_, CommandError>(())
    };
    tokio::select! {
        ended = print => ended?,
        signal = signals.next() => end_typed_line(&output, signal),
        () = reader_gone() => {}
    }
    Ok(())
}

/// A room that is watched.
struct Room {
    session: LiveSession,
    names: Names,
    /// Its name, where there are several.
    name: Option<String>,
    lines: Sender<Line>,
}

impl Room {
    /// Passes on what happens, through restarts of the daemon, until the room is deleted.
    async fn follow(mut self, newest: usize) -> Result<(), CommandError> {
        let room_id = self.session.room_id.clone();
        let page = GetRoomEvents { room_id: room_id.clone(), limit: Some(newest.max(1)), ..Default::default() };
        let page = self.session.client.call(page).await?;
        let mut cursor = page.cursor_event_seq;
        for event in page.events.iter().filter(|_| newest > 0) {
            self.show(event, page.undelivered(event.event_seq)).await;
        }
        loop {
            let any = || Some("any".to_owned());
            let changes = SubscribeDeliveries { room_id: room_id.clone(), target_agent_id: any() };
            let mut changes = self.session.client.subscribe(changes).await?;
            let after_event_seq = Some(cursor);
            let events = SubscribeEvents {
                room_id: room_id.clone(),
                after_event_seq,
                target_agent_id: any(),
                ..Default::default()
            };
            let mut events = self.session.client.subscribe(events).await?;
            loop {
                tokio::select! {
                    // A change is told after the event that it is about.
                    biased;
                    item = events.next() => {
                        let Some(item) = item else { break };
                        let item = item.map_err(|e| unreadable(&e))?;
                        cursor = item.cursor_event_seq;
                        if let Some(event) = &item.event {
                            self.names.learn(event);
                            self.show(event, item.undelivered).await;
                        }
                        if item.resync.is_some_and(|resync| resync.reason == "room_deleted") {
                            let _ = writeln!(std::io::stderr(), "a room is gone");
                            return Ok(());
                        }
                    }
                    Some(Ok(item)) = changes.next() => {
                        if let Some(change) = item.delivery {
                            self.show_change(change).await;
                        }
                    }
                }
            }
            tokio::time::sleep(RECONNECT_DELAY).await;
        }
    }

    async fn show(&self, event: &Event, undelivered: Option<DeliveryState>) {
        let style = self.style();
        let text = self.prefixed(&render::logged(event, undelivered, &self.names, &style), &style);
        self.send(Line { item: Item::Event(Box::new(event.clone())), text }).await;
    }

    async fn show_change(&self, change: DeliveryChanged) {
        let style = self.style();
        let way = change.surface.map(|surface| format!(" by {}", surface.as_str().replace('_', " ")));
        let state = match (change.state, change.is_over) {
            (DeliveryState::Delivered, true) => "no answer came in time".to_owned(),
            (state, _) => format!("{}{}", state.as_str(), way.unwrap_or_default()),
        };
        let prefix = format!("{:>5} {} ", change.event_seq, render::clock(change.at, render::now()));
        let what = format!("{}: {state}", self.names.get(&change.recipient));
        let text = self.prefixed(&style.row(&style.dim(&prefix), &style.dim(&what)), &style);
        self.send(Line { item: Item::Delivery(Box::new(change)), text }).await;
    }

    fn style(&self) -> Style {
        match self.session.output.format {
            Format::Text => *self.session.output.style(),
            Format::Json => Style::plain(None),
        }
    }

    /// The text with the name of the room before it, where there are several.
    fn prefixed(&self, text: &str, style: &Style) -> String {
        match &self.name {
            Some(name) => style.row("", &style.bold(name)) + text,
            None => text.to_owned(),
        }
    }

    async fn send(&self, line: Line) {
        // Nobody prints any more when the command ends.
        let _ = self.lines.send(line).await;
    }
}
