//! `send_message`, `list_inbox`, `take_messages`, `return_messages`, `confirm_messages`.

use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::Extensions;
use serde::{Deserialize, Serialize};
use tt_proto::delivery::{DeliveryState, Recipient, Surface};
use tt_proto::event::EventType;
use tt_proto::message::DeliveryHint;
use tt_proto::requests::{
    ConfirmMessages, Confirmed, InboxRooms, ListInbox, MAX_LISTED, ReturnMessages, Returned, SendMessage, Sent,
    Skipped, TakeMessages, Taken,
};
use tt_proto::{AgentId, Error, ErrorCode, EventId, RoomId};
use tt_rules::{Command, MAX_TAKE, Recipients, Reply, TakeAccess, names};

use super::register::{Module, register};
use super::{Call, Shared, stopping, stopping_error};
use crate::engine::{HeldMessages, Outcome};
use crate::listeners::Inbox;

/// The most recipients that the answer to a message lists. It is kept under the key of the request.
const MAX_RECIPIENTS: usize = 50;

/// The most rooms that `list_inbox` lists.
const MAX_INBOX_ROOMS: usize = 1000;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<SendMessage, _>(module, send_message)?;
    register::<ListInbox, _>(module, list_inbox)?;
    register::<TakeMessages, _>(module, take_messages)?;
    register::<ReturnMessages, _>(module, return_messages)?;
    register::<ConfirmMessages, _>(module, confirm_messages)
}

async fn send_message(shared: Arc<Shared>, extensions: Extensions, request: SendMessage) -> Result<Sent, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id))?;
    let SendMessage { body, to_agent_id, to, delivery_hint, .. } = request;
    let delivery_hint = delivery_hint.as_deref().map(DeliveryHint::parse).transpose()?.unwrap_or_default();
    let to = match (to_agent_id, to) {
        (Some(_), Some(_)) => {
            return Err(Error::new(ErrorCode::InvalidInput, "give either to_agent_id or to, not both"));
        }
        (Some(agent_id), None) => Recipients::Agent(agent_id),
        (None, Some(name)) if name != "room" => Recipients::Named(name),
        (None, _) => Recipients::Room,
    };
    let command = Command::SendMessage { to, body, delivery_hint, expires_at: None };
    let listeners = shared.engine.listeners().clone();
    let answer = move |outcome: &Outcome<'_>| {
        let recipients = match outcome.reply {
            Reply::Sent { recipients } => recipients.as_slice(),
            _ => &[],
        };
        let recipient = |agent_id: &AgentId| Recipient {
            surface: listeners.listening(&(outcome.room.room_id.clone(), agent_id.clone())),
            display_name: names::unique_name(outcome.room, agent_id).map(str::to_owned),
            state: DeliveryState::Pending,
            agent_id: agent_id.clone(),
        };
        let event = outcome.events.iter().find(|event| event.event_type == EventType::MessageSent);
        Sent {
            event_seq: event.map_or(0, |event| event.event_seq),
            event_id: event.map_or_else(EventId::fresh, |event| event.event_id.clone()),
            created_at: event.map_or(outcome.now.wall, |event| event.created_at),
            recipients: recipients.iter().take(MAX_RECIPIENTS).map(recipient).collect(),
            more: recipients.len().saturating_sub(MAX_RECIPIENTS),
        }
    };
    shared.engine.run(&room_id, context, command, answer).await
}

async fn list_inbox(shared: Arc<Shared>, extensions: Extensions, _: ListInbox) -> Result<InboxRooms, Error> {
    let me = shared.context(&Call::of(&extensions)?)?.agent_id().clone();
    let page = shared.engine.read(move |reader| reader.inbox_rooms(&me, MAX_INBOX_ROOMS)).await?;
    Ok(InboxRooms { rooms: page.items, more: page.more })
}

async fn take_messages(shared: Arc<Shared>, extensions: Extensions, request: TakeMessages) -> Result<Taken, Error> {
    let TakeMessages { room_id, surface, from_agent_id, max_replay, limit, max_wait_ms } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let inbox = (room_id, shared.context(&call)?.agent_id().clone());
    let surface = Surface::parse(&surface)?;
    let mut stop = shared.stop.subscribe();
    let listener = shared.engine.listeners().listen(&inbox, surface);
    // A reader that wants very many gets them all, and their number need not be known.
    let max_replay = max_replay.filter(|max| *max <= MAX_LISTED);
    let mut options =
        TakeOptions { from: from_agent_id, max_replay, limit: limit.unwrap_or(MAX_TAKE), access: TakeAccess::Arriving };
    let started = tokio::time::Instant::now();
    loop {
        // Armed before the look, so that what arrives in between is not missed.
        let arrived = listener.arrived.notified();
        tokio::pin!(arrived);
        arrived.as_mut().enable();
        let TakenMessages { taken, wait_max, held } = take(&shared, &call, &inbox, options.clone()).await?;
        let patience = max_wait_ms.map_or(Duration::ZERO, |ms| wait_max.min(Duration::from_millis(ms)));
        if !taken.events.is_empty() || taken.skipped.is_some() || patience.is_zero() {
            held.into_iter().for_each(HeldMessages::keep);
            return Ok(taken);
        }
        options.access = TakeAccess::Staying;
        tokio::select! {
            () = arrived => {}
            () = tokio::time::sleep_until(started + patience) => return Ok(taken),
            () = stopping(&mut stop) => return Err(stopping_error()),
        }
    }
}

/// What to take from an inbox.
#[derive(Debug, Clone)]
pub(super) struct TakeOptions {
    pub(super) from: Option<AgentId>,
    pub(super) max_replay: Option<usize>,
    pub(super) limit: usize,
    pub(super) access: TakeAccess,
}

/// What was taken, before its events are read.
#[derive(Debug, Serialize, Deserialize)]
struct TakenSeqs {
    skipped: Vec<i64>,
    event_seqs: Vec<i64>,
    more: usize,
    wait_max: Duration,
}

/// Messages that were taken. They are given back unless they are kept.
pub(super) struct TakenMessages {
    pub(super) taken: Taken,
    /// How long a wait may last in this room.
    wait_max: Duration,
    pub(super) held: Option<HeldMessages>,
}

/// Takes messages for the connection of a call.
pub(super) async fn take(
    shared: &Shared,
    call: &Call,
    inbox: &Inbox,
    options: TakeOptions,
) -> Result<TakenMessages, Error> {
    let TakeOptions { from, max_replay, limit, access } = options;
    let command = Command::TakeMessages { from, max_replay, limit, access };
    let answer = |outcome: &Outcome<'_>| {
        let wait_max = outcome.room.policy.wait_max;
        match outcome.reply {
            Reply::Taken { skipped, event_seqs, more } => {
                TakenSeqs { skipped: skipped.clone(), event_seqs: event_seqs.clone(), more: *more, wait_max }
            }
            _ => TakenSeqs { skipped: Vec::new(), event_seqs: Vec::new(), more: 0, wait_max },
        }
    };
    let _room = call.answer_room().await;
    let (TakenSeqs { skipped, event_seqs, more, wait_max }, held) =
        shared.engine.take(&inbox.0, shared.silent_context(call)?, command, answer).await?;
    let events = match shared.engine.feed().recent_messages(&event_seqs) {
        Some(events) => events,
        None => shared.engine.read(move |reader| reader.events_by_seq(&event_seqs)).await?,
    };
    let taken = Taken { skipped: Skipped::of(&skipped), skipped_seqs: skipped, events, more };
    Ok(TakenMessages { taken, wait_max, held })
}

async fn return_messages(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ReturnMessages,
) -> Result<Returned, Error> {
    let ReturnMessages { room_id, event_seqs } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    shared.engine.seen(&call.identity()?.agent_id);
    Ok(Returned { returned: count(&shared, &call, &room_id, Command::ReturnMessages { event_seqs }).await? })
}

async fn confirm_messages(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ConfirmMessages,
) -> Result<Confirmed, Error> {
    let ConfirmMessages { room_id, surface, event_seqs } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let surface = Surface::parse(&surface)?;
    let command = Command::ConfirmMessages { surface, event_seqs };
    Ok(Confirmed { confirmed: count(&shared, &call, &room_id, command).await? })
}

/// Runs a command whose answer is a count. A room that was deleted has nothing to confirm or return.
async fn count(shared: &Shared, call: &Call, room_id: &RoomId, command: Command) -> Result<usize, Error> {
    let answer = |outcome: &Outcome<'_>| match outcome.reply {
        Reply::Count(count) => *count,
        _ => 0,
    };
    let context = shared.silent_context(call)?;
    let inbox = (room_id.clone(), context.agent_id().clone());
    match shared.engine.run(room_id, context, command, answer).await {
        Err(e) if e.code == ErrorCode::RoomNotFound => {
            shared.engine.listeners().forget(&inbox, call.connection.id());
            Ok(0)
        }
        counted => counted,
    }
}
