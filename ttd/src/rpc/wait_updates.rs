//! What a wait brings besides a turn: the messages in the caller's inbox, and who joined and left.

use tokio::sync::broadcast::error::RecvError;
use tt_proto::delivery::Surface;
use tt_proto::event::{Event, EventType};
use tt_proto::filter::{Filter, Target};
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::{MAX_TAKE, TakeAccess};
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
    listener: Listener,
    live: Follower,
}

impl WaitUpdates {
    pub(super) fn listen(shared: &Shared, room_id: &RoomId, agent: &AgentId) -> Self {
        let inbox = (room_id.clone(), agent.clone());
        let engine = &shared.engine;
        Self {
            listener: engine.listeners().listen(&inbox, Surface::Wait),
            live: engine.feed().subscribe(room_id),
            inbox,
        }
    }

    /// Resolves when there is something to hand over.
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
                () = next_membership_change(live, me) => {}
            }
        }
    }

    /// Whether there is a message that no connection holds, or a join or leave since the last wait.
    async fn is_pending(&self, shared: &Shared) -> Result<bool, Error> {
        let (inbox, cursor) = (self.inbox.clone(), shared.engine.membership_cursors().get(&self.inbox));
        let listeners = shared.engine.listeners().clone();
        let read = shared.engine.read(move |reader| {
            // One more than connections hold is one that none of them does.
            let open = reader.inbox(&inbox.0, &inbox.1, listeners.held_count(&inbox) + 1)?;
            if open.iter().any(|seq| listeners.holder(&inbox, *seq).is_none()) {
                return Ok(true);
            }
            Ok(!membership_changes(reader, &inbox, cursor)?.is_empty())
        });
        read.await
    }

    /// Takes the messages for this connection and reports who joined and left, in the order of the log.
    pub(super) async fn hand_over(self, shared: &Shared, call: &Call) -> Result<(Vec<Event>, i64), Error> {
        let options = TakeOptions { from: None, max_replay: None, limit: MAX_TAKE, access: TakeAccess::Leaving };
        let (mut all, held) = match take(shared, call, &self.inbox, options).await {
            Ok(messages) => (messages.taken.events, messages.held),
            // The room was deleted, and its messages with it.
            Err(e) if e.code == tt_proto::ErrorCode::RoomNotFound => (Vec::new(), None),
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
        all.extend(changes);
        all.sort_by_key(|event| event.event_seq);
        Ok((all, newest))
    }
}

/// Joins and leaves of others after a cursor.
fn membership_changes(reader: &dyn Reader, inbox: &Inbox, cursor: i64) -> Result<Vec<Event>, Error> {
    let event_types = Some(vec![EventType::MemberJoined, EventType::MemberLeft]);
    let filter = Filter { event_types, from: None, target: Target::Any };
    let mut found = reader.events(&inbox.0, cursor, MAX_MEMBERSHIP_CHANGES, &filter)?;
    found.retain(|event| event.from_agent_id.as_ref() != Some(&inbox.1));
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
            Ok(FeedItem::Stored { .. } | FeedItem::Deleted) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}
