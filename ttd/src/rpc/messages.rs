//! `send_message`, `list_inbox`, `take_messages`, `return_messages`, `confirm_messages`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::Extensions;
use rusqlite::Connection;
use tt_proto::delivery::{DeliveryState, Recipient, Surface};
use tt_proto::event::{Event, EventType};
use tt_proto::message::DeliveryHint;
use tt_proto::requests::{
    ConfirmMessages, Confirmed, InboxRooms, ListInbox, ReturnMessages, Returned, SendMessage, Sent, Skipped,
    TakeMessages, Taken,
};
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use super::register::{Module, register};
use super::{Call, Shared, leaving, told_to_stop};
use crate::hub::{Owner, TakenMessages};
use crate::stick::{Room, message, names};
use crate::store::{events, inbox, rooms};

/// More than this is never taken at once; the rest stays in the inbox.
const MAX_TAKE: usize = 200;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<SendMessage, _>(module, send_message)?;
    register::<ListInbox, _>(module, list_inbox)?;
    register::<TakeMessages, _>(module, take_messages)?;
    register::<ReturnMessages, _>(module, return_messages)?;
    register::<ConfirmMessages, _>(module, confirm_messages)
}

async fn send_message(shared: Arc<Shared>, extensions: Extensions, request: SendMessage) -> Result<Sent, Error> {
    let SendMessage { room_id, body, to_agent_id, to, delivery_hint, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let hint = delivery_hint.as_deref().map(DeliveryHint::parse).transpose()?.unwrap_or_default();
    let agent = by.identity.agent_id.clone();
    let rule = move |room: &mut Room, _: &_, _: &_| {
        let to = match (to_agent_id, to.as_deref()) {
            (Some(_), Some(_)) => {
                return Err(Error::new(ErrorCode::InvalidInput, "give either to_agent_id or to, not both"));
            }
            (Some(agent), None) => Some(agent),
            (None, None | Some("room")) => None,
            (None, Some(name)) => {
                room.active_member(&agent)?;
                Some(names::resolve(room, name)?.agent_id.clone())
            }
        };
        Ok((message::send(room, &agent, to.as_ref(), &body, hint)?, None))
    };
    let this = shared.clone();
    let answer = move |recipients: Vec<AgentId>, room: &Room, events: &[Event], connection: &Connection| {
        let sent = events.iter().find(|event| event.event_type == EventType::MessageSent);
        let event = sent.ok_or_else(|| Error::new(ErrorCode::StorageUnavailable, "the message was not appended"))?;
        inbox::add(connection, &room.room_id, event.event_seq, &recipients)?;
        let recipient = |agent_id: AgentId| Recipient {
            surface: this.rooms.hub().inbox.listening(&(room.room_id.clone(), agent_id.clone())),
            display_name: names::called(room, &agent_id).map(str::to_owned),
            state: DeliveryState::Pending,
            agent_id,
        };
        Ok(Sent {
            event_seq: event.event_seq,
            event_id: event.event_id.clone(),
            created_at: event.created_at,
            recipients: recipients.into_iter().map(recipient).collect(),
        })
    };
    shared.rooms.command_with(&room_id, by, rule, answer).await
}

async fn list_inbox(shared: Arc<Shared>, extensions: Extensions, _: ListInbox) -> Result<InboxRooms, Error> {
    let me = shared.commander(&Call::of(&extensions)?, None)?.identity.agent_id.clone();
    let read = shared.rooms.store().read(move |connection| inbox::rooms(connection, &me));
    Ok(InboxRooms { rooms: read.await? })
}

async fn take_messages(shared: Arc<Shared>, extensions: Extensions, request: TakeMessages) -> Result<Taken, Error> {
    let TakeMessages { room_id, surface, from_agent_id, max_replay, limit, max_wait_ms } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, None)?;
    let owner = (room_id.clone(), by.identity.agent_id.clone());
    let surface = Surface::parse(&surface)?;
    // A member that counted as gone is back by this call, and someone who is none is told so.
    let agent = owner.1.clone();
    let member =
        move |room: &mut Room, _: &_, _: &_| Ok((room.active_member(&agent).map(|_| room.policy.wait_max)?, None));
    let longest = shared.rooms.command(&room_id, by, member, |longest, _, _| longest).await?;
    let patience = max_wait_ms.map_or(Duration::ZERO, |ms| longest.min(Duration::from_millis(ms)));
    let mut stop = shared.stop.subscribe();
    let listener = shared.rooms.hub().inbox.listen(&owner, surface);
    let deadline = tokio::time::sleep(patience);
    tokio::pin!(deadline);
    loop {
        // Armed before the look, so that what arrives in between is not missed.
        let arrived = listener.arrived.notified();
        tokio::pin!(arrived);
        arrived.as_mut().enable();
        let (taken, answer) = shared.take(&owner, from_agent_id.as_ref(), max_replay, limit).await?;
        if !answer.events.is_empty() || answer.skipped.is_some() || patience.is_zero() {
            call.connection.hold(taken);
            return Ok(answer);
        }
        let (room_id, agent) = owner.clone();
        let member = move |connection: &Connection| rooms::not_removed(connection, &room_id, &agent);
        shared.rooms.store().read(member).await?;
        tokio::select! {
            () = arrived => {}
            () = &mut deadline => return Ok(answer),
            () = told_to_stop(&mut stop) => return Err(leaving()),
        }
    }
}

async fn return_messages(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ReturnMessages,
) -> Result<Returned, Error> {
    let ReturnMessages { room_id, event_seqs } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let owner = (room_id, shared.commander(&call, None)?.identity.agent_id.clone());
    Ok(Returned { returned: call.connection.give_back(&owner, &event_seqs) })
}

async fn confirm_messages(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ConfirmMessages,
) -> Result<Confirmed, Error> {
    let ConfirmMessages { room_id, surface, event_seqs, skipped, from_agent_id } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let agent = call.identity()?.agent_id.clone();
    let surface = Surface::parse(&surface)?;
    let owner = (room_id.clone(), agent.clone());
    let wall = shared.rooms.clock().wall();
    let write = shared.rooms.store().write(move |connection| {
        let mut all: HashSet<i64> = event_seqs.into_iter().collect();
        if let Some(skipped) = skipped {
            let range = skipped.from_seq..=skipped.to_seq;
            let pending = inbox_from(connection, &room_id, &agent, from_agent_id.as_ref())?;
            all.extend(pending.into_iter().filter(|seq| range.contains(seq)));
        }
        let mut confirmed = 0;
        for seq in &all {
            confirmed += usize::from(inbox::deliver(connection, (&room_id, &agent), *seq, surface.as_str(), wall)?);
        }
        Ok((all, confirmed))
    });
    let (all, confirmed) = write.await?;
    call.connection.let_go(&owner, &all);
    Ok(Confirmed { confirmed })
}

fn inbox_from(connection: &Connection, room: &RoomId, me: &AgentId, from: Option<&AgentId>) -> Result<Vec<i64>, Error> {
    let pending = inbox::pending(connection, room, me)?;
    let Some(from) = from else { return Ok(pending) };
    let mut theirs = Vec::new();
    for seq in pending {
        if events::get(connection, seq)?.is_some_and(|event| event.from_agent_id.as_ref() == Some(from)) {
            theirs.push(seq);
        }
    }
    Ok(theirs)
}

impl Shared {
    /// Takes what is in an inbox and not taken by anyone else. With more than `max_replay` waiting, the oldest are
    /// passed over; past `limit`, the newest stay.
    pub(super) async fn take(
        &self,
        owner: &Owner,
        from: Option<&AgentId>,
        max_replay: Option<usize>,
        limit: Option<usize>,
    ) -> Result<(TakenMessages, Taken), Error> {
        let (inbox, owner, from) = (self.rooms.hub().inbox.clone(), owner.clone(), from.cloned());
        let read = self.rooms.store().read(move |connection| {
            let look = || inbox_from(connection, &owner.0, &owner.1, from.as_ref());
            let (mut taken, mut mine) = inbox.take_pending(&owner, look)?;
            let skipped = max_replay.filter(|max| mine.len() > *max).map(|max| {
                let rest = mine.split_off(mine.len() - max);
                let passed_over = std::mem::replace(&mut mine, rest);
                Skipped {
                    skipped: passed_over.len(),
                    from_seq: passed_over.first().copied().unwrap_or(0),
                    to_seq: passed_over.last().copied().unwrap_or(0),
                }
            });
            let most = limit.unwrap_or(MAX_TAKE).min(MAX_TAKE);
            let rest = if mine.len() > most { mine.split_off(most) } else { Vec::new() };
            let more = rest.len();
            taken.give_back(rest);
            Ok((taken, Taken { skipped, events: inbox::messages(connection, &mine)?, more }))
        });
        read.await
    }
}
