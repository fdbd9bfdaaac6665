//! What one surface has taken from the inbox, and which of it was shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tt_proto::delivery::Surface;
use tt_proto::event::{Event, EventType};
use tt_proto::requests::{ConfirmMessages, ReturnMessages, Skipped, TakeMessages};
use tt_proto::{AgentId, Error, RoomId};

use crate::connect::{Client, HttpClient};

/// A message: the room it was sent in and its number in the room's log.
type MessageKey = (RoomId, i64);

/// How much to take, and how long to wait for it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TakeOptions {
    /// Take no more than this; the rest stays in the inbox.
    pub limit: Option<usize>,
    /// Skip all but this many of the newest.
    pub max_replay: Option<usize>,
    pub wait: Duration,
}

/// The messages that one surface has taken: those it has shown and those it returns unshown. It makes the requests that
/// tell the daemon; both kinds of client send them.
#[derive(Debug)]
pub(crate) struct Receipt {
    surface: Surface,
    /// The only sender whose messages are taken.
    from: Option<AgentId>,
    shown: BTreeSet<MessageKey>,
    skipped: Option<(RoomId, Skipped)>,
    unshown: BTreeSet<MessageKey>,
}

impl Receipt {
    pub(crate) fn new(surface: Surface) -> Self {
        Self { surface, from: None, shown: BTreeSet::new(), skipped: None, unshown: BTreeSet::new() }
    }

    /// Restricts the surface to the messages of one sender.
    pub(crate) fn only_from(self, from: Option<AgentId>) -> Self {
        Self { from, ..self }
    }

    /// The request that takes messages of a room.
    pub(crate) fn take_request(&self, room_id: RoomId, options: TakeOptions) -> TakeMessages {
        TakeMessages {
            room_id,
            surface: self.surface.as_str().to_owned(),
            from_agent_id: self.from.clone(),
            limit: options.limit,
            max_bytes: None,
            max_replay: options.max_replay,
            max_wait_ms: Some(u64::try_from(options.wait.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    /// Whether this message was taken before. A daemon that restarts hands out again what was not confirmed.
    pub(crate) fn contains(&self, event: &Event) -> bool {
        let key = key(event);
        self.shown.contains(&key) || self.unshown.contains(&key)
    }

    /// Records that an event was shown. Only messages are confirmed; other events are ignored.
    pub(crate) fn mark_shown(&mut self, event: &Event) {
        if event.event_type == EventType::MessageSent {
            self.shown.insert(key(event));
        }
    }

    /// Records that the note about skipped messages was shown.
    pub(crate) fn mark_skipped(&mut self, room_id: RoomId, skipped: Skipped) {
        self.skipped = Some((room_id, skipped));
    }

    /// Records that a message was taken but will not be shown.
    pub(crate) fn mark_unshown(&mut self, event: &Event) {
        self.unshown.insert(key(event));
    }

    /// Confirms what was shown. Repeating it is safe.
    pub(crate) fn confirm(&mut self, client: &mut HttpClient) -> Result<(), Error> {
        for request in self.confirm_requests() {
            client.call(&request)?;
            self.forget_confirmed(&request);
        }
        Ok(())
    }

    /// Confirms what was shown, on a WebSocket. Repeating it is safe, also after it was dropped in the middle.
    pub(crate) async fn confirm_live(&mut self, client: &mut Client) -> Result<(), Error> {
        let mut result = Ok(());
        for request in self.confirm_requests() {
            match client.call(request.clone()).await {
                Ok(_) => self.forget_confirmed(&request),
                // The other rooms are confirmed all the same.
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Returns to the inbox what will not be shown. A message that cannot be returned goes back with the connection.
    pub(crate) async fn return_unshown(&mut self, client: &mut Client) {
        for (room_id, event_seqs) in by_room(&std::mem::take(&mut self.unshown)) {
            let _ = client.call(ReturnMessages { room_id, event_seqs }).await;
        }
    }

    fn confirm_requests(&self) -> Vec<ConfirmMessages> {
        let mut rooms = by_room(&self.shown);
        if let Some((room_id, _)) = &self.skipped {
            rooms.entry(room_id.clone()).or_default();
        }
        let request = |(room_id, event_seqs)| ConfirmMessages {
            skipped: self.skipped.as_ref().filter(|(room, _)| *room == room_id).map(|(_, skipped)| skipped.clone()),
            room_id,
            surface: self.surface.as_str().to_owned(),
            event_seqs,
            from_agent_id: self.from.clone(),
        };
        rooms.into_iter().map(request).collect()
    }

    fn forget_confirmed(&mut self, request: &ConfirmMessages) {
        for event_seq in &request.event_seqs {
            self.shown.remove(&(request.room_id.clone(), *event_seq));
        }
        self.skipped.take_if(|(room_id, _)| *room_id == request.room_id);
    }
}

fn key(event: &Event) -> MessageKey {
    (event.room_id.clone(), event.event_seq)
}

fn by_room(messages: &BTreeSet<MessageKey>) -> BTreeMap<RoomId, Vec<i64>> {
    let mut rooms: BTreeMap<RoomId, Vec<i64>> = BTreeMap::new();
    for (room_id, event_seq) in messages {
        rooms.entry(room_id.clone()).or_default().push(*event_seq);
    }
    rooms
}

#[cfg(test)]
mod tests {
    use tt_proto::EventId;

    use super::*;

    fn event(room: &str, event_seq: i64, event_type: EventType) -> Event {
        Event {
            event_seq,
            event_id: EventId::fresh(),
            room_id: room.into(),
            turn_id: None,
            event_type,
            from_agent_id: None,
            to_agent_id: None,
            handoff: None,
            reason: None,
            created_at: serde_json::from_str("\"2026-11-16T01:02:03.456Z\"").unwrap(),
            payload: None,
        }
    }

    #[test]
    fn only_messages_that_were_shown_are_confirmed_and_each_once() {
        let mut receipt = Receipt::new(Surface::Wait);
        assert!(receipt.confirm_requests().is_empty(), "nothing was shown");
        receipt.mark_shown(&event("a", 1, EventType::MemberJoined));
        assert!(receipt.confirm_requests().is_empty(), "a join is not in an inbox");
        for (room, seq) in [("b", 5), ("a", 3), ("a", 2), ("a", 3)] {
            receipt.mark_shown(&event(room, seq, EventType::MessageSent));
        }
        receipt.mark_unshown(&event("a", 4, EventType::MessageSent));
        let requests = receipt.confirm_requests();
        let rooms: Vec<(&str, &[i64])> = requests.iter().map(|r| (r.room_id.as_str(), &r.event_seqs[..])).collect();
        assert_eq!(rooms, [("a", &[2, 3][..]), ("b", &[5])]);
        assert!(requests.iter().all(|request| request.surface == "wait" && request.skipped.is_none()));
        receipt.forget_confirmed(&requests[0]);
        assert_eq!(receipt.confirm_requests(), requests[1..], "what failed is confirmed by the next attempt");
    }

    #[test]
    fn skipped_messages_are_confirmed_without_one_that_was_shown() {
        let from = Some(AgentId::trusted("codex:1"));
        let mut receipt = Receipt::new(Surface::Recv).only_from(from.clone());
        let skipped = Skipped { skipped: 2, from_seq: 1, to_seq: 2 };
        receipt.mark_skipped("a".into(), skipped.clone());
        let requests = receipt.confirm_requests();
        assert_eq!((requests.len(), &requests[0].skipped), (1, &Some(skipped)));
        assert_eq!(requests[0].from_agent_id, from);
        receipt.forget_confirmed(&requests[0]);
        assert!(receipt.confirm_requests().is_empty());
    }
}
