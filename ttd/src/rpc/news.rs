//! What a wait brings besides a turn: the messages in the caller's inbox, and who came and went.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tt_proto::delivery::Surface;
use tt_proto::event::{Event, EventType};
use tt_proto::filter::{Filter, Target};
use tt_proto::{AgentId, Error, RoomId};

use super::{Call, Shared};
use crate::hub::{self, Listener, Owner};
use crate::store::{events, inbox};

/// A member's ear for what is new.
pub(super) struct News {
    owner: Owner,
    listener: Listener,
    live: broadcast::Receiver<hub::News>,
}

/// More comings and goings than this between two waits are read in the log.
const MAX_COMINGS: usize = 100;

impl News {
    /// Starts to listen.
    pub(super) fn of(shared: &Shared, room_id: &RoomId, agent: &AgentId) -> Self {
        let owner = (room_id.clone(), agent.clone());
        let hub = shared.rooms.hub();
        Self { listener: hub.inbox.listen(&owner, Surface::Wait), live: hub.subscribers.subscribe(room_id), owner }
    }

    /// Resolves when there is something to hand over.
    pub(super) async fn there(news: &mut Option<Self>, shared: &Shared) -> Result<(), Error> {
        let Some(news) = news else { return std::future::pending().await };
        loop {
            let arrived = news.listener.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            if news.waiting(shared).await? {
                return Ok(());
            }
            let (live, me) = (&mut news.live, &news.owner.1);
            tokio::select! {
                () = arrived => {}
                () = next_coming(live, me) => {}
            }
        }
    }

    /// Whether anything is new: a message nobody has taken, or someone who came or went since the last wait.
    async fn waiting(&self, shared: &Shared) -> Result<bool, Error> {
        let (owner, cursor, inbox) =
            (self.owner.clone(), shared.comings_cursor(&self.owner), shared.rooms.hub().inbox.clone());
        let read = shared.rooms.store().read(move |connection| {
            let pending = inbox::pending(connection, &owner.0, &owner.1)?;
            if pending.iter().any(|seq| !inbox.is_taken(&owner, *seq)) {
                return Ok(true);
            }
            Ok(!comings(connection, &owner, cursor)?.is_empty())
        });
        read.await
    }

    /// Takes the messages for this connection and reports who came and went, in the order of the log.
    pub(super) async fn hand_over(self, shared: &Shared, call: &Call) -> Result<(Vec<Event>, i64), Error> {
        let (taken, messages) = shared.take(&self.owner, None, None, None).await?;
        let (owner, cursor) = (self.owner.clone(), shared.comings_cursor(&self.owner));
        let read = shared.rooms.store().read(move |connection| {
            let newest = events::newest(connection, &owner.0)?;
            Ok((comings(connection, &owner, cursor)?, newest))
        });
        let (comings, newest) = read.await?;
        shared.set_comings_cursor(self.owner, newest);
        call.connection.hold(taken);
        let mut all = messages.events;
        all.extend(comings);
        all.sort_by_key(|event| event.event_seq);
        Ok((all, newest))
    }
}

/// Joins and leaves of others after a cursor.
fn comings(connection: &rusqlite::Connection, owner: &Owner, cursor: i64) -> Result<Vec<Event>, Error> {
    let event_types = Some(vec![EventType::MemberJoined, EventType::MemberLeft]);
    let filter = Filter { event_types, from: None, target: Target::Any };
    let mut found = events::matching(connection, &owner.0, cursor, MAX_COMINGS, &filter)?;
    found.retain(|event| event.from_agent_id.as_ref() != Some(&owner.1));
    Ok(found)
}

/// Resolves when somebody else came or went, or when there was more news than could be listened to.
async fn next_coming(live: &mut broadcast::Receiver<hub::News>, me: &AgentId) {
    loop {
        match live.recv().await {
            Ok(hub::News::Event(event)) => {
                let coming = matches!(event.event_type, EventType::MemberJoined | EventType::MemberLeft);
                if coming && event.from_agent_id.as_ref() != Some(me) {
                    return;
                }
            }
            Ok(hub::News::Deleted) | Err(RecvError::Lagged(_)) => return,
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}
