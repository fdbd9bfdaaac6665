//! `get_message_status`, `list_waiting`, `list_sent`, `set_quiet`, `subscribe_deliveries`.

use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::core::SubscriptionResult;
use jsonrpsee::{Extensions, PendingSubscriptionSink, SubscriptionSink};
use serde_json::value::to_raw_value;
use tokio::sync::broadcast::error::RecvError;
use tt_proto::delivery::{Delivery, DeliveryChanged, Recipient};
use tt_proto::event::{Event, EventType};
use tt_proto::filter::Filter;
use tt_proto::message::{MessageSent, excerpt};
use tt_proto::names::means_everyone;
use tt_proto::requests::{
    DeliveryItem, DeliveryList, GetMessageStatus, ListSent, ListWaiting, MessageStatus, Quiet, Resync, SetQuiet,
    SubscribeDeliveries,
};
use tt_proto::{AgentId, Error, ErrorCode};
use tt_rules::{Command, Reply, Room, names};
use tt_store::{EventQuery, Reader, StoredDelivery, WaitingQuery};

use super::debt::wait_to_stream;
use super::register::{Module, register, register_stream};
use super::{Call, Connection, Shared, stopping};
use crate::delivery::{self, pending};
use crate::engine::Outcome;
use crate::feed::{FeedItem, Follower};

/// How many rows a list has if the caller does not say, and at most.
const DEFAULT_PAGE: usize = 50;
const MAX_PAGE: usize = 500;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<GetMessageStatus, _>(module, get_message_status)?;
    register::<ListWaiting, _>(module, list_waiting)?;
    register::<ListSent, _>(module, list_sent)?;
    register::<SetQuiet, _>(module, set_quiet)?;
    register_stream::<SubscribeDeliveries, _>(module, subscribe_deliveries)
}

impl Shared {
    /// How a stored delivery stands now.
    fn standing(&self, room: &Room, event: &Event, stored: &StoredDelivery) -> Recipient {
        let from_person = pending::message_of(event, 0, stored.row.wakes).from_person;
        delivery::of_message(room, stored, from_person, event.created_at, &self.recipients, self.engine.clock().now())
    }

    /// A delivery as lists show it.
    fn listed(&self, room: &Room, event: &Event, stored: &StoredDelivery) -> Delivery {
        let payload = event.payload.as_ref().and_then(|json| serde_json::from_str::<MessageSent>(json.as_str()).ok());
        let payload = payload.unwrap_or_default();
        Delivery {
            event_seq: event.event_seq,
            room_id: event.room_id.clone(),
            from_agent_id: event.from_agent_id.clone(),
            sent_at: event.created_at,
            delivery_hint: payload.delivery_hint,
            expects_reply: payload.expects_reply,
            expires_at: payload.expires_at,
            excerpt: excerpt(&payload.body),
            recipient: self.standing(room, event, stored),
        }
    }
}

async fn get_message_status(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: GetMessageStatus,
) -> Result<MessageStatus, Error> {
    let GetMessageStatus { room_id, event_seq } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    shared.engine.seen(&call.identity()?.agent_id);
    let _room = call.answer_room().await;
    let this = shared.clone();
    let view = move |room: &Room, reader: &dyn Reader| {
        let event = message(room, reader, event_seq)?;
        let mut stored = reader.recipients(&room.room_id, event_seq, MAX_PAGE + 1)?;
        let more = stored.len() > MAX_PAGE;
        stored.truncate(MAX_PAGE);
        let recipients = stored.iter().map(|stored| this.standing(room, &event, stored)).collect();
        Ok(MessageStatus { event, recipients, more })
    };
    shared.engine.look(&room_id, view).await
}

/// The message of a room with this number.
fn message(room: &Room, reader: &dyn Reader, event_seq: i64) -> Result<Event, Error> {
    let found = reader.events_by_seq(&[event_seq])?.into_iter().next();
    let is_message = |event: &Event| event.room_id == room.room_id && event.event_type == EventType::MessageSent;
    found.filter(is_message).ok_or_else(|| {
        Error::new(ErrorCode::UnknownMessage, format!("there is no message {event_seq} in this room"))
            .detail("event_seq", event_seq)
    })
}

async fn list_waiting(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ListWaiting,
) -> Result<DeliveryList, Error> {
    let ListWaiting { room_id, to, questions, limit } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let me = call.identity()?.agent_id.clone();
    shared.engine.seen(&me);
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let _room = call.answer_room().await;
    let this = shared.clone();
    let view = move |room: &Room, reader: &dyn Reader| {
        let recipient = match to {
            None => Some(me),
            Some(name) if means_everyone(&name) => None,
            Some(name) => Some(names::resolve(room, &name)?.agent_id.clone()),
        };
        let query = WaitingQuery { recipient, questions: questions.unwrap_or(false), limit: limit + 1 };
        let mut stored = reader.waiting(&room.room_id, &query)?;
        let more = stored.len() > limit;
        stored.truncate(limit);
        let seqs: Vec<i64> = stored.iter().map(|stored| stored.row.event_seq).collect();
        let events = reader.events_by_seq(&seqs)?;
        let event = |stored: &StoredDelivery| events.iter().find(|event| event.event_seq == stored.row.event_seq);
        let listed = stored.iter().filter_map(|stored| Some(this.listed(room, event(stored)?, stored)));
        Ok(DeliveryList { deliveries: listed.collect(), more })
    };
    shared.engine.look(&room_id, view).await
}

async fn list_sent(shared: Arc<Shared>, extensions: Extensions, request: ListSent) -> Result<DeliveryList, Error> {
    let ListSent { room_id, before, limit } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let me = call.identity()?.agent_id.clone();
    shared.engine.seen(&me);
    let limit = limit.unwrap_or(DEFAULT_PAGE).clamp(1, MAX_PAGE);
    let _room = call.answer_room().await;
    let this = shared.clone();
    let view = move |room: &Room, reader: &dyn Reader| {
        let filter = Filter { from: Some(me), ..Filter::of_types(&[EventType::MessageSent]) };
        let found = reader.newest_events(&room.room_id, &EventQuery { before, limit, filter })?;
        let mut list = DeliveryList { deliveries: Vec::new(), more: found.earlier > 0 || found.earlier_is_more };
        for event in found.events.iter().rev() {
            let rest = MAX_PAGE.saturating_sub(list.deliveries.len());
            let stored = reader.recipients(&room.room_id, event.event_seq, rest)?;
            list.deliveries.extend(stored.iter().map(|stored| this.listed(room, event, stored)));
            if list.deliveries.len() >= MAX_PAGE {
                list.more = true;
                break;
            }
        }
        Ok(list)
    };
    shared.engine.look(&room_id, view).await
}

async fn set_quiet(shared: Arc<Shared>, extensions: Extensions, request: SetQuiet) -> Result<Quiet, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let command = Command::SetQuiet { lasts: request.for_ms.map(Duration::from_millis) };
    let answer = |outcome: &Outcome<'_>| Quiet {
        quiet_until: match outcome.reply {
            Reply::Quiet { until } => *until,
            _ => None,
        },
    };
    shared.engine.run(&room_id, context, command, answer).await
}

async fn subscribe_deliveries(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: SubscribeDeliveries,
    pending: PendingSubscriptionSink,
) -> SubscriptionResult {
    let SubscribeDeliveries { room_id, target_agent_id } = request;
    let prepared = async {
        let (call, room_id) = Call::for_room(&extensions, room_id)?;
        let counted = call.subscribe()?;
        let me = call.identity()?.agent_id.clone();
        let of = match target_agent_id.as_deref().unwrap_or("self") {
            "self" => Some(me),
            "any" => None,
            other => Some(AgentId::parse(other)?),
        };
        let live = shared.engine.feed().subscribe(&room_id);
        shared.engine.look(&room_id, |_, _| Ok(())).await?;
        Ok::<_, Error>(((call, counted), of, live))
    };
    match prepared.await {
        Ok((call, of, live)) => {
            let sink = pending.accept().await?;
            let connection = call.0.connection.clone();
            // The call lives as long as the subscription, so that neither the connection nor the daemon is taken for idle.
            tokio::spawn(async move {
                stream(&shared, &connection, sink, live, of).await;
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

/// Sends the changes to or from a member, or all of the room. There is no log of them: a reader that falls behind is told so.
async fn stream(
    shared: &Shared,
    connection: &Connection,
    sink: SubscriptionSink,
    mut live: Follower,
    of: Option<AgentId>,
) {
    let mut stop = shared.stop.subscribe();
    let concerns = |change: &DeliveryChanged| {
        of.as_ref().is_none_or(|me| change.recipient == *me || change.from_agent_id.as_ref() == Some(me))
    };
    let resync = |reason: &str| DeliveryItem { delivery: None, resync: Some(Resync { reason: reason.to_owned() }) };
    loop {
        let news = tokio::select! {
            news = live.recv() => news,
            () = sink.closed() => return,
            () = stopping(&mut stop) => return send(&sink, connection, &resync("stopping")).await,
        };
        let item = match news {
            Ok(FeedItem::Delivery(change)) if concerns(&change) => {
                DeliveryItem { delivery: Some(DeliveryChanged::clone(&change)), resync: None }
            }
            Ok(FeedItem::Delivery(_) | FeedItem::Event(_) | FeedItem::Stored { .. }) => continue,
            Err(RecvError::Lagged(_)) => resync("lagged"),
            Ok(FeedItem::Deleted) | Err(RecvError::Closed) => {
                return send(&sink, connection, &resync("room_deleted")).await;
            }
        };
        // A slow reader is waited for; what it misses meanwhile ends in one "lagged".
        tokio::select! {
            () = wait_to_stream(connection) => {}
            () = sink.closed() => return,
        }
        send(&sink, connection, &item).await;
    }
}

async fn send(sink: &SubscriptionSink, connection: &Connection, item: &DeliveryItem) {
    if let Ok(json) = to_raw_value(item) {
        connection.owe(json.get().len());
        let _ = sink.send(json).await;
    }
}
