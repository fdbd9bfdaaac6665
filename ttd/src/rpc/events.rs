//! `get_room_events`, `wait_for_events`, `subscribe_events`. All of them only look: nobody's presence, wait time, inbox or
//! place in the queue changes.

use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::core::SubscriptionResult;
use jsonrpsee::{Extensions, PendingSubscriptionSink, SubscriptionSink};
use serde_json::value::to_raw_value;
use tokio::sync::broadcast::error::RecvError;
use tt_proto::delivery::DeliveryState;
use tt_proto::event::{Event, EventType};
use tt_proto::filter::{EventFilter, Filter};
use tt_proto::requests::{EventItem, EventPage, GetRoomEvents, Resync, SubscribeEvents, Undelivered, WaitForEvents};
use tt_proto::{Error, ErrorCode, RoomId};
use tt_store::{EventQuery, Reader, room_not_found};

use super::debt::{AnswerRoom, wait_to_stream};
use super::register::{Module, register, register_stream};
use super::{Call, Connection, Shared, stopping, stopping_error};
use crate::feed::{FeedItem, Follower};

/// How many events a page has if the caller does not say, and at most.
const DEFAULT_PAGE: usize = 50;
const MAX_PAGE: usize = 1000;

/// Events a subscription reads at once. The rest stays in the log until its client has taken these.
const STREAM_PAGE: usize = 16;

/// Reads the log of a room for one caller.
struct LogReader {
    shared: Arc<Shared>,
    connection: Arc<Connection>,
    room_id: RoomId,
    filter: Arc<Filter>,
}

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<GetRoomEvents, _>(module, get_room_events)?;
    register::<WaitForEvents, _>(module, wait_for_events)?;
    register_stream::<SubscribeEvents, _>(module, subscribe_events)
}

async fn get_room_events(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: GetRoomEvents,
) -> Result<EventPage, Error> {
    let filter = request.filter();
    let GetRoomEvents { room_id, after_event_seq, before_event_seq, limit, event_id, .. } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let reader = reader(&shared, &call, room_id, &filter, "any")?;
    let _room = call.answer_room().await;
    if let Some(prefix) = event_id {
        return reader.event(prefix).await;
    }
    match (after_event_seq, before_event_seq) {
        (Some(after), None) => {
            reader.check_cursor(Some(after)).await?;
            reader.page_with_more(after, limit).await
        }
        (None, before) => reader.newest(before, limit).await,
        (Some(_), Some(_)) => {
            Err(Error::new(ErrorCode::InvalidCursor, "give either after_event_seq or before_event_seq"))
        }
    }
}

async fn wait_for_events(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: WaitForEvents,
) -> Result<EventPage, Error> {
    let filter = request.filter();
    let WaitForEvents { room_id, after_event_seq, limit, max_wait_ms, .. } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let reader = reader(&shared, &call, room_id, &filter, "self")?;
    let mut stop = shared.stop.subscribe();
    let mut live = shared.engine.feed().subscribe(&reader.room_id);
    let (newest, longest) = reader.head().await?;
    reader.check_cursor(after_event_seq).await?;
    let cursor = after_event_seq.unwrap_or(newest);
    let patience = max_wait_ms.map_or(longest, |ms| longest.min(Duration::from_millis(ms)));
    let deadline = tokio::time::sleep(patience);
    tokio::pin!(deadline);
    // Nothing that does not match moves the cursor, but it need not be read twice either.
    let mut seen = cursor;
    loop {
        let room = call.answer_room().await;
        let page = reader.page_with_more(seen, limit).await?;
        drop(room);
        if !page.events.is_empty() || patience.is_zero() {
            let last = page.events.last().map_or(cursor, |event| event.event_seq);
            return Ok(EventPage { cursor_event_seq: last, ..page });
        }
        loop {
            tokio::select! {
                news = live.recv() => match news {
                    Ok(FeedItem::Event(event)) if event.event_seq > seen => {
                        if reader.filter.matches(&event) {
                            break;
                        }
                        seen = event.event_seq;
                    }
                    Ok(FeedItem::Event(_) | FeedItem::Delivery(_)) => {}
                    Ok(FeedItem::Stored { event_seq }) if event_seq <= seen => {}
                    Ok(FeedItem::Deleted) => return Err(room_not_found(&reader.room_id)),
                    Ok(FeedItem::Stored { .. }) | Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return Err(stopping_error()),
                },
                () = &mut deadline => return Ok(EventPage::new(Vec::new(), cursor)),
                () = stopping(&mut stop) => return Err(stopping_error()),
            }
        }
    }
}

async fn subscribe_events(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: SubscribeEvents,
    pending: PendingSubscriptionSink,
) -> SubscriptionResult {
    let filter = request.filter();
    let SubscribeEvents { room_id, after_event_seq, .. } = request;
    let prepared = async {
        let (call, room_id) = Call::for_room(&extensions, room_id)?;
        let counted = call.subscribe()?;
        let reader = reader(&shared, &call, room_id, &filter, "self")?;
        let live = shared.engine.feed().subscribe(&reader.room_id);
        let (newest, _) = reader.head().await?;
        reader.check_cursor(after_event_seq).await?;
        Ok::<_, Error>(((call, counted), reader, live, after_event_seq.unwrap_or(newest)))
    };
    match prepared.await {
        Ok((call, reader, live, cursor)) => {
            let sink = pending.accept().await?;
            // The call lives as long as the subscription, so that neither the connection nor the daemon is taken for idle.
            tokio::spawn(async move {
                reader.stream(sink, live, cursor).await;
                drop(call);
            });
            Ok(())
        }
        Err(refusal) => {
            pending.reject(refusal).await;
            Ok(())
        }
    }
}

fn reader(
    shared: &Arc<Shared>,
    call: &Call,
    room_id: RoomId,
    filter: &EventFilter,
    default_target: &str,
) -> Result<LogReader, Error> {
    let me = &call.identity()?.agent_id;
    let filter = Arc::new(filter.understand(Some(me), default_target)?);
    Ok(LogReader { shared: shared.clone(), connection: call.connection.clone(), room_id, filter })
}

impl LogReader {
    /// Refuses a cursor that no event can have.
    async fn check_cursor(&self, cursor: Option<i64>) -> Result<(), Error> {
        let Some(cursor) = cursor.filter(|cursor| *cursor != 0) else { return Ok(()) };
        let newest = if cursor < 0 { 0 } else { self.shared.engine.read(|reader| reader.newest_event(None)).await? };
        if (0..=newest).contains(&cursor) {
            return Ok(());
        }
        let message = format!("there is no event {cursor}; the newest is {newest}");
        let message = if cursor < 0 { "after_event_seq is negative".to_owned() } else { message };
        Err(Error::new(ErrorCode::InvalidCursor, message).detail("newest_event_seq", newest))
    }

    /// The newest events that match.
    async fn newest(&self, before: Option<i64>, limit: Option<usize>) -> Result<EventPage, Error> {
        let limit = limit.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE);
        let (room_id, query) =
            (self.room_id.clone(), EventQuery { before, limit, filter: Filter::clone(&self.filter) });
        let read = self.shared.engine.read(move |reader| {
            if !reader.room_exists(&room_id)? {
                return Err(room_not_found(&room_id));
            }
            let found = reader.newest_events(&room_id, &query)?;
            let newest = reader.newest_event(Some(&room_id))?;
            let (earlier, earlier_is_more) = (found.earlier, found.earlier_is_more);
            Ok(EventPage { earlier, earlier_is_more, ..with_marks(reader, found.events, newest)? })
        });
        read.await
    }

    /// The one event whose id begins with this.
    async fn event(&self, prefix: String) -> Result<EventPage, Error> {
        let (room_id, asked) = (self.room_id.clone(), prefix.clone());
        let found = self.shared.engine.read(move |reader| {
            if !reader.room_exists(&room_id)? {
                return Err(room_not_found(&room_id));
            }
            with_marks(reader, reader.events_by_id(&room_id, &asked)?, 0)
        });
        let found = found.await?;
        if found.events.len() == 1 {
            return Ok(found);
        }
        let how_many = if found.events.is_empty() { "no event of this room has" } else { "several events have" };
        Err(Error::new(ErrorCode::UnknownTarget, format!("{how_many} an id that begins with {prefix:?}"))
            .hint("list them with their ids: tt events --json"))
    }

    /// The number of the newest event, and how long a wait may last here.
    async fn head(&self) -> Result<(i64, Duration), Error> {
        let head = |room: &tt_rules::Room, reader: &dyn tt_store::Reader| {
            Ok((reader.newest_event(Some(&room.room_id))?, room.policy.wait_max))
        };
        self.shared.engine.look(&self.room_id, head).await
    }

    /// The next events that match, at most `limit`.
    async fn page(&self, cursor: i64, limit: Option<usize>) -> Result<EventPage, Error> {
        let limit = limit.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE);
        let (room_id, filter) = (self.room_id.clone(), self.filter.clone());
        let read = self.shared.engine.read(move |reader| {
            if !reader.room_exists(&room_id)? {
                return Err(room_not_found(&room_id));
            }
            with_marks(reader, reader.events(&room_id, cursor, limit, &filter)?, cursor)
        });
        read.await
    }

    /// The next events that match, and whether newer ones do.
    async fn page_with_more(&self, cursor: i64, limit: Option<usize>) -> Result<EventPage, Error> {
        let page = self.page(cursor, limit).await?;
        let more = !page.events.is_empty() && !self.page(page.cursor_event_seq, Some(1)).await?.events.is_empty();
        Ok(EventPage { more, ..page })
    }

    /// Replays from the log, then goes live; back to the log whenever the live buffer has run past this subscriber.
    async fn stream(&self, sink: SubscriptionSink, mut live: Follower, mut cursor: i64) {
        let mut stop = self.shared.stop.subscribe();
        // The cursor stands at the last event that matched; what was seen since need not be read again.
        let mut seen = cursor;
        loop {
            let room = tokio::select! {
                room = AnswerRoom::wait_for(&self.connection) => room,
                () = sink.closed() => return,
                () = stopping(&mut stop) => return end(&sink, cursor, "stopping").await,
            };
            let page = match self.page(seen, Some(STREAM_PAGE)).await {
                Ok(page) => page,
                Err(e) if e.code == ErrorCode::RoomNotFound => return end(&sink, cursor, "room_deleted").await,
                Err(e) => {
                    tracing::error!("a subscription cannot be fed: {e}");
                    return end(&sink, cursor, "storage_unavailable").await;
                }
            };
            let more = !page.events.is_empty();
            let (events, undelivered) = (page.events, page.undelivered);
            for event in events {
                (cursor, seen) = (event.event_seq, event.event_seq);
                let mark = undelivered.iter().find(|message| message.event_seq == cursor).map(|message| message.state);
                if !self.send(&sink, event, mark).await {
                    return;
                }
            }
            drop(room);
            if more {
                continue;
            }
            loop {
                let news = tokio::select! {
                    news = live.recv() => news,
                    () = sink.closed() => return,
                    () = stopping(&mut stop) => return end(&sink, cursor, "stopping").await,
                };
                match news {
                    // The page may have run ahead of the live buffer.
                    Ok(FeedItem::Event(event)) if event.event_seq <= seen => {}
                    Ok(FeedItem::Event(event)) if !self.filter.matches(&event) => seen = event.event_seq,
                    Ok(FeedItem::Event(event)) => {
                        (cursor, seen) = (event.event_seq, event.event_seq);
                        if !self.send(&sink, Event::clone(&event), None).await {
                            return;
                        }
                    }
                    Ok(FeedItem::Delivery(_)) => {}
                    Ok(FeedItem::Stored { event_seq }) if event_seq <= seen => {}
                    Ok(FeedItem::Stored { .. }) | Err(RecvError::Lagged(_)) => break,
                    Ok(FeedItem::Deleted) | Err(RecvError::Closed) => return end(&sink, cursor, "room_deleted").await,
                }
            }
        }
    }

    /// Waits for a slow reader: what it has not taken stays in the log, not in memory.
    async fn send(&self, sink: &SubscriptionSink, event: Event, undelivered: Option<DeliveryState>) -> bool {
        tokio::select! {
            () = wait_to_stream(&self.connection) => {}
            () = sink.closed() => return false,
        }
        let cursor_event_seq = event.event_seq;
        let item = EventItem { event: Some(event), cursor_event_seq, resync: None, undelivered };
        let Ok(json) = to_raw_value(&item) else { return false };
        drop(item);
        self.connection.owe(json.get().len());
        sink.send(json).await.is_ok()
    }
}

/// A page of these events, which says what became of the messages among them that nobody was handed. An empty one goes on at
/// `cursor`.
fn with_marks(reader: &dyn Reader, events: Vec<Event>, cursor: i64) -> Result<EventPage, Error> {
    let messages = events.iter().filter(|event| event.event_type == EventType::MessageSent);
    let messages: Vec<i64> = messages.map(|event| event.event_seq).collect();
    let undelivered = reader.undelivered(&messages)?;
    let undelivered = undelivered.into_iter().map(|(event_seq, state)| Undelivered { event_seq, state }).collect();
    let cursor = events.last().map_or(cursor, |event| event.event_seq);
    Ok(EventPage { undelivered, ..EventPage::new(events, cursor) })
}

async fn end(sink: &SubscriptionSink, cursor: i64, reason: &str) {
    let resync = Some(Resync { reason: reason.to_owned() });
    if let Ok(json) = to_raw_value(&EventItem { event: None, cursor_event_seq: cursor, resync, undelivered: None }) {
        let _ = sink.send(json).await;
    }
}
