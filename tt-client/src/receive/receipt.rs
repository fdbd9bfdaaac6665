//! What one surface has taken from the inbox, and which of it was shown.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use tt_proto::delivery::Surface;
use tt_proto::event::{Event, EventType};
use tt_proto::requests::{ConfirmMessages, MAX_LISTED, ReturnMessages, TakeMessages};
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use crate::connect::{Client, HttpClient};

/// A message: the room it was sent in and its number in the room's log.
pub(crate) type MessageKey = (RoomId, i64);

/// How often a surface that ends tries to confirm what another connection holds, and how long it waits in between. Most often
/// that is an earlier connection of its own, which was cut, and whose end the daemon is about to notice. The attempts are counted,
/// because a call to a daemon that stands still takes time in which that daemon notices nothing.
const HELD_ATTEMPTS: usize = 75;
const HELD_INTERVAL: Duration = Duration::from_millis(20);

/// How much to take, and how long to wait for it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TakeOptions {
    /// Take no more than this; the rest stays in the inbox.
    pub limit: Option<usize>,
    /// Skip all but this many of the newest.
    pub max_replay: Option<usize>,
    pub wait: Duration,
    /// For a person: read the log after this event instead of the inbox.
    pub after: Option<i64>,
    /// Only what concerns this question.
    pub about: Option<i64>,
}

/// The messages that one surface has taken: those it has shown and those it returns unshown. It makes the requests that
/// tell the daemon; both kinds of client send them.
#[derive(Debug)]
pub(crate) struct Receipt {
    surface: Surface,
    /// The only sender whose messages are taken.
    from: Option<AgentId>,
    /// Shown, or skipped with a note about it, and not yet confirmed.
    shown: BTreeSet<MessageKey>,
    unshown: BTreeSet<MessageKey>,
}

impl Receipt {
    pub(crate) fn new(surface: Surface) -> Self {
        Self { surface, from: None, shown: BTreeSet::new(), unshown: BTreeSet::new() }
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
            after_event_seq: options.after,
            about: options.about,
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

    /// Records that messages were shown of which only the numbers are known, or the note about skipped ones.
    pub(crate) fn mark_seqs_shown(&mut self, room_id: &RoomId, event_seqs: &[i64]) {
        self.shown.extend(event_seqs.iter().map(|event_seq| (room_id.clone(), *event_seq)));
    }

    /// Records that a message was taken but will not be shown.
    pub(crate) fn mark_unshown(&mut self, event: &Event) {
        self.unshown.insert(key(event));
    }

    /// What was shown and is not yet known to be confirmed.
    pub(crate) fn unconfirmed(&self) -> &BTreeSet<MessageKey> {
        &self.shown
    }

    /// Confirms everything that was shown, before the surface ends. What stays unconfirmed is shown again by the next one.
    pub(crate) fn settle(&mut self, client: &mut HttpClient) -> Result<(), Error> {
        self.confirm(client)?;
        for _ in 1..HELD_ATTEMPTS {
            if self.shown.is_empty() {
                break;
            }
            thread::sleep(HELD_INTERVAL);
            self.confirm(client)?;
        }
        Ok(())
    }

    /// Confirms everything that was shown, before the surface ends, on a WebSocket.
    pub(crate) async fn settle_live(&mut self, client: &mut Client) -> Result<(), Error> {
        self.confirm_live(client).await?;
        for _ in 1..HELD_ATTEMPTS {
            if self.shown.is_empty() {
                break;
            }
            tokio::time::sleep(HELD_INTERVAL).await;
            self.confirm_live(client).await?;
        }
        Ok(())
    }

    /// Confirms what was shown. Repeating it is safe.
    fn confirm(&mut self, client: &mut HttpClient) -> Result<(), Error> {
        for mut request in self.confirm_requests() {
            let mut answer = client.call(&request);
            if leave_out_held(&mut request.event_seqs, answer.as_ref().err()) {
                answer = client.call(&request);
            }
            self.after_confirming(&request, answer.map(|_| ()))?;
        }
        Ok(())
    }

    /// Confirms what was shown, on a WebSocket. Repeating it is safe, also after it was dropped in the middle.
    pub(crate) async fn confirm_live(&mut self, client: &mut Client) -> Result<(), Error> {
        let mut result = Ok(());
        for mut request in self.confirm_requests() {
            let mut answer = client.call(request.clone()).await;
            if leave_out_held(&mut request.event_seqs, answer.as_ref().err()) {
                answer = client.call(request.clone()).await;
            }
            // The other rooms are confirmed all the same.
            result = result.and(self.after_confirming(&request, answer.map(|_| ())));
        }
        result
    }

    /// Forgets what was confirmed. What another connection holds is confirmed by that one, or given back when it ends: as long
    /// as it is not known which, it stays in the receipt, and is confirmed with the next messages instead of shown again.
    fn after_confirming(&mut self, request: &ConfirmMessages, answer: Result<(), Error>) -> Result<(), Error> {
        match answer {
            Ok(()) => {
                for event_seq in &request.event_seqs {
                    self.shown.remove(&(request.room_id.clone(), *event_seq));
                }
                Ok(())
            }
            Err(error) if error.code == ErrorCode::MessageHeld => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns to the inbox what will not be shown. A message that cannot be returned goes back with the connection.
    pub(crate) async fn return_unshown(&mut self, client: &mut Client) {
        for (room_id, event_seqs) in by_room(&std::mem::take(&mut self.unshown)) {
            let mut request = ReturnMessages { room_id, event_seqs };
            let answer = client.call(request.clone()).await;
            if leave_out_held(&mut request.event_seqs, answer.as_ref().err()) {
                let _ = client.call(request).await;
            }
        }
    }

    fn confirm_requests(&self) -> Vec<ConfirmMessages> {
        let request = |room_id: &RoomId, event_seqs: &[i64]| ConfirmMessages {
            room_id: room_id.clone(),
            surface: self.surface.as_str().to_owned(),
            event_seqs: event_seqs.to_vec(),
        };
        let rooms = by_room(&self.shown);
        rooms.iter().flat_map(|(room_id, seqs)| seqs.chunks(MAX_LISTED).map(|seqs| request(room_id, seqs))).collect()
    }
}

/// After a refusal because another connection holds some of the messages, leaves those out. Returns whether the call is to be
/// made again with the rest.
fn leave_out_held(event_seqs: &mut Vec<i64>, refusal: Option<&Error>) -> bool {
    let Some(refusal) = refusal.filter(|error| error.code == ErrorCode::MessageHeld) else { return false };
    let held: BTreeSet<i64> = match refusal.details.get("event_seqs").and_then(|seqs| seqs.as_array()) {
        Some(seqs) => seqs.iter().filter_map(serde_json::Value::as_i64).collect(),
        None => return false,
    };
    let before = event_seqs.len();
    event_seqs.retain(|event_seq| !held.contains(event_seq));
    !event_seqs.is_empty() && event_seqs.len() < before
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
        assert!(requests.iter().all(|request| request.surface == "wait"));
        receipt.after_confirming(&requests[0], Ok(())).unwrap();
        assert_eq!(receipt.confirm_requests(), requests[1..], "what failed is confirmed by the next attempt");
    }

    #[test]
    fn skipped_messages_are_confirmed_by_their_numbers_in_calls_that_are_not_too_long() {
        let mut receipt = Receipt::new(Surface::Recv);
        let skipped: Vec<i64> = (0..MAX_LISTED as i64 + 1).map(|n| 2 * n).collect();
        receipt.mark_seqs_shown(&"a".into(), &skipped);
        let requests = receipt.confirm_requests();
        assert_eq!(requests.iter().map(|r| r.event_seqs.len()).collect::<Vec<_>>(), [MAX_LISTED, 1]);
        assert_eq!(requests.iter().flat_map(|r| r.event_seqs.clone()).collect::<Vec<_>>(), skipped);
        requests.iter().for_each(|request| receipt.after_confirming(request, Ok(())).unwrap());
        assert!(receipt.confirm_requests().is_empty());
    }

    #[test]
    fn what_another_connection_holds_is_left_out_and_tried_again_later() {
        let mut receipt = Receipt::new(Surface::Recv);
        (1..=3).for_each(|seq| receipt.mark_shown(&event("a", seq, EventType::MessageSent)));
        let refusal = Error::new(ErrorCode::MessageHeld, "no").detail("event_seqs", vec![2]);
        let mut request = receipt.confirm_requests().remove(0);
        assert!(!leave_out_held(&mut request.event_seqs, Some(&Error::new(ErrorCode::StorageUnavailable, "no"))));
        assert!(leave_out_held(&mut request.event_seqs, Some(&refusal)));
        assert_eq!(request.event_seqs, [1, 3]);
        receipt.after_confirming(&request, Ok(())).unwrap();
        let mut rest = receipt.confirm_requests().remove(0);
        assert_eq!(rest.event_seqs, [2]);
        assert!(!leave_out_held(&mut rest.event_seqs, Some(&refusal)), "nothing is left to confirm now");
        assert!(receipt.after_confirming(&rest, Err(refusal)).is_ok(), "and nothing failed");
        assert!(receipt.contains(&event("a", 2, EventType::MessageSent)), "if it comes again, it was shown already");
    }
}
