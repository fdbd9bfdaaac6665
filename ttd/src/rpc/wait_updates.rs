//! What a wait brings besides a turn: the messages in the caller's inbox, and who joined and left.

use tokio::sync::broadcast::error::RecvError;
use tt_proto::delivery::{Surface, WayName};
use tt_proto::event::{Event, EventType};
use tt_proto::filter::Filter;
use tt_proto::message::{MAX_BATCH, MAX_BATCH_BYTES};
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::TakeAccess;
use tt_store::Reader;

use super::messages::{TakeOptions, take};
use super::{Call, Shared};
use crate::engine::HeldMessages;
use crate::feed::{FeedItem, Follower};
use crate::listeners::{Inbox, Listener};

/// The most joins and leaves that one wait reports. Further ones are only in the log.
const MAX_MEMBERSHIP_CHANGES: usize = 100;

/// Listens for what concerns one member.
pub(super) struct WaitUpdates {
    inbox: Inbox,
    /// Whether a join or a leave ends the wait.
    joins: bool,
    listener: Listener,
    live: Follower,
}

/// What a wait brings.
pub(super) struct Brought {
    /// Messages, the most urgent first, and then who joined and left.
    pub(super) events: Vec<Event>,
    pub(super) cursor: i64,
    /// How many messages stay in the inbox.
    pub(super) more: usize,
}

impl WaitUpdates {
    pub(super) fn listen(shared: &Shared, room_id: &RoomId, agent: &AgentId, joins: bool) -> Self {
        let inbox = (room_id.clone(), agent.clone());
        let engine = &shared.engine;
        Self {
            listener: engine.listeners().listen(&inbox, Surface::Wait),
            live: engine.feed().subscribe(room_id),
            inbox,
            joins,
        }
    }

    /// Resolves when there is something that ends the wait.
    pub(super) async fn arrived(updates: &mut Option<Self>, shared: &Shared) -> Result<(), Error> {
        let Some(updates) = updates else { return std::future::pending().await };
        loop {
            let arrived = updates.listener.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if updates.is_pending(shared).await? {
                return Ok(());
            }
            let (live, me) = (&mut updates.live, &updates.inbox.1);
            tokio::select! {
                () = arrived => {}
                () = next_membership_change(live, me), if updates.joins => {}
            }
        }
    }

    /// Whether there is a message that no connection holds, or, if that ends the wait, a join or leave since the last one.
    async fn is_pending(&self, shared: &Shared) -> Result<bool, Error> {
        let (inbox, cursor) = (self.inbox.clone(), shared.engine.membership_cursors().get(&self.inbox));
        let (joins, listeners) = (self.joins, shared.engine.listeners().clone());
        let read = shared.engine.read(move |reader| {
            // One more than connections hold is one that none of them does.
            let open = reader.inbox(&inbox.0, &inbox.1, listeners.held_count(&inbox) + 1)?;
            if open.iter().any(|seq| listeners.holder(&inbox, *seq).is_none()) {
                return Ok(true);
            }
            Ok(joins && !membership_changes(reader, &inbox, cursor)?.is_empty())
        });
        read.await
    }

    /// Takes messages for this connection, and reports who joined and left.
    pub(super) async fn hand_over(self, shared: &Shared, call: &Call) -> Result<Brought, Error> {
        let options = TakeOptions {
            from: None,
            about: None,
            mid_turn: false,
            max_replay: None,
            limit: MAX_BATCH,
            max_bytes: Some(MAX_BATCH_BYTES),
            access: TakeAccess::Leaving,
            way: Some(WayName::Listening),
        };
        let (mut events, more, held) = match take(shared, call, &self.inbox, options).await {
            Ok(messages) => (messages.taken.events, messages.taken.more, messages.held),
            // The room was deleted, and its messages with it.
            Err(e) if e.code == tt_proto::ErrorCode::RoomNotFound => (Vec::new(), 0, None),
            Err(e) => return Err(e),
        };
        let (inbox, cursor) = (self.inbox.clone(), shared.engine.membership_cursors().get(&self.inbox));
        let read = shared.engine.read(move |reader| {
            let newest = reader.newest_event(Some(&inbox.0))?;
            Ok((membership_changes(reader, &inbox, cursor)?, newest, reader.room_exists(&inbox.0)?))
        });
        let (changes, newest, exists) = read.await?;
        if exists {
            shared.engine.membership_cursors().set(self.inbox, newest);
        }
        held.into_iter().for_each(HeldMessages::keep);
        events.extend(changes);
        Ok(Brought { events, cursor: newest, more })
    }
}

/// Joins and leaves of others after a cursor, and after the caller's own last join.
fn membership_changes(reader: &dyn Reader, inbox: &Inbox, cursor: i64) -> Result<Vec<Event>, Error> {
    let filter = Filter::of_types(&[EventType::MemberJoined, EventType::MemberLeft]);
    let mut found = reader.events(&inbox.0, cursor, MAX_MEMBERSHIP_CHANGES, &filter)?;
    let is_mine = |event: &Event| event.from_agent_id.as_ref() == Some(&inbox.1);
    if let Some(joined) = found.iter().rposition(|e| is_mine(e) && e.event_type == EventType::MemberJoined) {
        found.drain(..=joined);
    }
    found.retain(|event| !is_mine(event));
    Ok(found)
}

/// Resolves when another member joins or leaves, or when there was more than could be followed.
async fn next_membership_change(live: &mut Follower, me: &AgentId) {
    loop {
        match live.recv().await {
            Ok(FeedItem::Event(event)) => {
                let changed = matches!(event.event_type, EventType::MemberJoined | EventType::MemberLeft);
                if changed && event.from_agent_id.as_ref() != Some(me) {
                    return;
                }
            }
            Ok(FeedItem::Delivery(_)) => {}
            Ok(FeedItem::Stored { .. } | FeedItem::Deleted) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}
