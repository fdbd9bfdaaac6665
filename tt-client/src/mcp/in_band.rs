//! Messages that travel with an answer. The answer to every tool call also brings the messages in the caller's inbox: it is
//! the one moment at which every harness shows its model something.
//!
//! Harnesses differ in what they show, the text or the structured content, so both have the messages.

use std::collections::BTreeMap;

use serde_json::Value;
use tt_proto::event::Event;
use tt_proto::requests::{ConfirmMessages, ListInbox, ReturnMessages, TakeMessages};
use tt_proto::{RoomId, block};

use crate::connect::Client;

/// The name under which these deliveries are recorded.
const SURFACE: &str = "tool_response";

/// One answer brings no more than this; the rest stays in the inbox.
const MAX_MESSAGES: usize = 20;
const MAX_BYTES: usize = 8 * 1024;

/// What an answer brings along.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    lines: Vec<String>,
    shown: Vec<(RoomId, i64)>,
    /// Taken, and too much for this answer.
    left_over: Vec<(RoomId, i64)>,
    bytes: usize,
    /// How many more wait, what is left over included.
    more: usize,
}

impl Inbox {
    /// Takes what waits for the caller in any room. Where nothing can be taken, nothing is.
    pub(super) async fn collect(&mut self, client: &mut Client) {
        let waiting = client.call(ListInbox {}).await;
        for room in waiting.into_iter().flat_map(|waiting| waiting.rooms) {
            self.collect_from(client, &room.room_id).await;
        }
    }

    /// Takes what waits in this room.
    pub(super) async fn collect_from(&mut self, client: &mut Client, room_id: &RoomId) {
        // In the order they were sent: once one did not fit, none after it does.
        let limit = if self.more > 0 { 0 } else { MAX_MESSAGES - self.lines.len() };
        let take = TakeMessages {
            room_id: room_id.clone(),
            surface: SURFACE.to_owned(),
            limit: Some(limit),
            max_wait_ms: Some(0),
            ..Default::default()
        };
        if let Ok(taken) = client.call(take).await {
            taken.events.iter().for_each(|event| self.add(event));
            self.more += taken.more;
        }
    }

    /// Adds a message that this connection has taken, unless it is there: what a wait took from a daemon that died before
    /// the inbox was looked at is handed out again by the next one.
    pub(super) fn add(&mut self, event: &Event) {
        let message = (event.room_id.clone(), event.event_seq);
        if self.shown.contains(&message) || self.left_over.contains(&message) {
            return;
        }
        let Some(line) = block::message_line(event) else { return };
        let fits = self.lines.is_empty() || self.bytes + line.len() <= MAX_BYTES;
        if self.more > 0 || !fits || self.lines.len() == MAX_MESSAGES {
            self.more += 1;
            self.left_over.push(message);
            return;
        }
        self.bytes += line.len();
        self.shown.push(message);
        self.lines.push(line);
    }

    /// Puts back what was too much, so that the next call has it.
    pub(super) async fn return_left_over(&mut self, client: &mut Client) {
        for (room, event_seqs) in by_room(&std::mem::take(&mut self.left_over)) {
            let give = ReturnMessages { room_id: room.clone(), event_seqs };
            let _ = client.call(give).await;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The messages as text of their own.
    pub(super) fn text(&self) -> String {
        block::frame(&self.lines, self.more)
    }

    /// The messages as part of the structured answer.
    pub(super) fn value(&self) -> Value {
        let messages: Vec<Value> = self.lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        serde_json::json!({ "about": block::ABOUT, "messages": messages, "more": self.more })
    }

    /// Says that the messages were shown. Left undone they come again, which is better than not at all.
    pub(super) async fn confirm(&self, client: &mut Client) {
        for (room, event_seqs) in by_room(&self.shown) {
            let confirm = ConfirmMessages {
                room_id: room.clone(),
                surface: SURFACE.to_owned(),
                event_seqs,
                ..Default::default()
            };
            let _ = client.call(confirm).await;
        }
    }
}

fn by_room(messages: &[(RoomId, i64)]) -> BTreeMap<&RoomId, Vec<i64>> {
    let mut rooms: BTreeMap<&RoomId, Vec<i64>> = BTreeMap::new();
    messages.iter().for_each(|(room, seq)| rooms.entry(room).or_default().push(*seq));
    rooms
}

#[cfg(test)]
mod tests {
    use tt_proto::event::EventType;
    use tt_proto::handoff::RawJson;
    use tt_proto::message::{DeliveryHint, MessageSent};
    use tt_proto::{AgentId, EventId};

    use super::*;

    fn message(event_seq: i64, body: &str) -> Event {
        let payload = MessageSent { body: body.into(), delivery_hint: DeliveryHint::Normal };
        Event {
            event_seq,
            event_id: EventId::fresh(),
            room_id: "room".into(),
            turn_id: None,
            event_type: EventType::MessageSent,
            from_agent_id: Some(AgentId::trusted("codex:1")),
            to_agent_id: None,
            handoff: None,
            reason: None,
            created_at: serde_json::from_str("\"2026-11-16T01:02:03.456Z\"").unwrap(),
            payload: RawJson::of(&payload).ok(),
        }
    }

    #[test]
    fn the_text_and_the_structured_answer_have_the_same_messages() {
        let mut inbox = Inbox::default();
        inbox.add(&message(1, "two\nlines\u{202e}"));
        let text = inbox.text();
        assert_eq!(text.lines().count(), 3, "{text}");
        let line: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        assert_eq!(line, inbox.value()["messages"][0]);
        assert_eq!(line["body"], "two\nlines\u{202e}");
    }

    #[test]
    fn what_is_handed_out_twice_is_shown_once() {
        let mut inbox = Inbox::default();
        (1..=21).for_each(|n| inbox.add(&message(n, "taken by a wait")));
        (1..=21).for_each(|n| inbox.add(&message(n, "taken again")));
        assert_eq!((inbox.lines.len(), inbox.shown.len()), (MAX_MESSAGES, MAX_MESSAGES));
        assert_eq!((inbox.left_over.len(), inbox.more), (1, 1));
        let elsewhere = Event { room_id: "another".into(), ..message(1, "x") };
        inbox.add(&elsewhere);
        assert_eq!(inbox.left_over.len(), 2, "the same number in another room is another message");
    }

    #[test]
    fn one_answer_brings_a_bounded_number_in_order() {
        let mut many = Inbox::default();
        (1..=50).for_each(|n| many.add(&message(n, "short")));
        assert_eq!((many.lines.len(), many.more), (MAX_MESSAGES, 30));
        assert!(many.text().contains("30 more"));
        let mut long = Inbox::default();
        (1..=5).for_each(|n| long.add(&message(n, &"x".repeat(3000))));
        long.add(&message(6, "short, but after one that did not fit"));
        assert_eq!((long.lines.len(), long.more, long.left_over.len()), (2, 4, 4));
        let mut one = Inbox::default();
        one.add(&message(1, &"\u{1}".repeat(4096)));
        assert_eq!(one.lines.len(), 1, "the longest message there is goes alone");
    }
}
