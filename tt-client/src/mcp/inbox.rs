//! The messages that an answer carries. The answer to every tool call also has the messages in the caller's inbox, because
//! every harness shows its model the answer to a call.
//!
//! Harnesses differ in what they show, the text or the structured content, so both have the messages.

use std::collections::BTreeSet;

use serde_json::Value;
use tt_proto::block::{self, Line};
use tt_proto::delivery::Surface;
use tt_proto::event::Event;
use tt_proto::message::{InboxRoom, MAX_BATCH, MAX_BATCH_BYTES};
use tt_proto::requests::ListInbox;
use tt_proto::{AgentId, RoomId};

use super::shown::{Progress, ShownMessages};
use crate::connect::Client;
use crate::receive::{MessageKey, Receipt, TakeOptions};

/// The messages that one answer carries.
#[derive(Debug)]
pub(super) struct AnswerInbox {
    agent: AgentId,
    lines: Vec<Line>,
    receipt: Receipt,
    /// What other answers of this process carry.
    shown: ShownMessages,
    bytes: usize,
    /// How many more are in the inbox, including those that were taken and did not fit.
    more: usize,
}

impl AnswerInbox {
    pub(super) fn new(agent: AgentId, shown: ShownMessages) -> Self {
        Self { agent, lines: Vec::new(), receipt: Receipt::new(Surface::ToolResponse), shown, bytes: 0, more: 0 }
    }

    /// Takes the messages that wait for the caller in any room. A room that cannot be read is left out.
    pub(super) async fn collect(&mut self, client: &mut Client) {
        let waiting: Vec<InboxRoom> = client.call(ListInbox {}).await.map(|waiting| waiting.rooms).unwrap_or_default();
        // What interrupts comes first in every room, and so first of all rooms.
        for room in waiting.iter().filter(|room| room.interrupts > 0 && waiting.len() > 1) {
            // What stays in the inbox is counted below, with the others.
            self.take_from(client, &room.room_id, room.interrupts).await;
        }
        for room in &waiting {
            self.collect_from(client, &room.room_id).await;
        }
    }

    /// Takes the messages that wait in this room.
    pub(super) async fn collect_from(&mut self, client: &mut Client, room_id: &RoomId) {
        self.more += self.take_from(client, room_id, MAX_BATCH).await;
    }

    /// Takes up to this many messages of a room, and returns how many stayed in its inbox. Those that were taken and do not
    /// fit are counted at once: they are held, so that no later look finds them.
    async fn take_from(&mut self, client: &mut Client, room_id: &RoomId, limit: usize) -> usize {
        // The most urgent come first: once one did not fit, none after it does.
        let limit = if self.more > 0 { 0 } else { limit.min(MAX_BATCH - self.lines.len()) };
        let options = TakeOptions { limit: Some(limit), ..TakeOptions::default() };
        let Ok(taken) = client.call(self.receipt.take_request(room_id.clone(), options)).await else { return 0 };
        taken.events.iter().for_each(|event| self.add(event));
        taken.more
    }

    /// Adds a message that this connection has taken, unless it was added before: when the daemon restarts after a wait has
    /// taken a message, the new daemon hands it out again. One that an earlier answer has shown is confirmed with this one.
    pub(super) fn add(&mut self, event: &Event) {
        if self.receipt.contains(event) {
            return;
        }
        match self.shown.get(&self.agent, &(event.room_id.clone(), event.event_seq)) {
            Some(Progress::Written) => return self.receipt.mark_shown(event),
            Some(Progress::Composed) => return self.receipt.mark_unshown(event),
            None => {}
        }
        let Some(line) = block::message_line(event) else { return };
        let fits = self.lines.is_empty() || self.bytes + line.json.len() <= MAX_BATCH_BYTES;
        if self.more > 0 || !fits || self.lines.len() == MAX_BATCH {
            self.more += 1;
            self.receipt.mark_unshown(event);
            return;
        }
        self.bytes += line.json.len();
        self.receipt.mark_shown(event);
        self.lines.push(line);
    }

    /// Returns the messages that did not fit, so that the next call gets them.
    pub(super) async fn return_unshown(&mut self, client: &mut Client) {
        self.receipt.return_unshown(client).await;
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
        let messages: Vec<Value> = self.lines.iter().filter_map(|line| serde_json::from_str(&line.json).ok()).collect();
        serde_json::json!({ "about": block::about(&self.lines), "messages": messages, "more": self.more })
    }

    /// Whether there is something to confirm.
    pub(super) fn has_receipt(&self) -> bool {
        !self.receipt.unconfirmed().is_empty()
    }

    /// Notes that the answer is about to be written.
    pub(super) fn compose(&self) {
        self.shown.compose(&self.agent, self.receipt.unconfirmed().iter().cloned());
    }

    /// Notes whether the answer was written.
    pub(super) fn finish(&self, written: bool) {
        self.shown.finish(&self.agent, self.receipt.unconfirmed(), written);
    }

    /// Confirms that the messages were shown. Those that cannot be confirmed now are confirmed when they are taken again.
    pub(super) async fn confirm(&mut self, client: &mut Client) {
        let before: BTreeSet<MessageKey> = self.receipt.unconfirmed().clone();
        let _ = self.receipt.settle_live(client).await;
        self.shown.forget(&self.agent, before.difference(self.receipt.unconfirmed()));
    }
}

#[cfg(test)]
mod tests {
    use tt_proto::EventId;
    use tt_proto::event::EventType;
    use tt_proto::handoff::RawJson;
    use tt_proto::message::MessageSent;

    use super::*;

    fn inbox() -> AnswerInbox {
        AnswerInbox::new(AgentId::trusted("claude:1"), ShownMessages::default())
    }

    fn message(event_seq: i64, body: &str) -> Event {
        let payload = MessageSent { body: body.into(), ..MessageSent::default() };
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
        let mut inbox = inbox();
        inbox.add(&message(1, "two\nlines\u{202e}"));
        let text = inbox.text();
        assert_eq!(text.lines().count(), 3, "{text}");
        let line: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
        assert_eq!(line, inbox.value()["messages"][0]);
        assert_eq!(line["body"], "two\nlines\u{202e}");
    }

    #[test]
    fn what_is_handed_out_twice_is_shown_once() {
        let mut inbox = inbox();
        (1..=11).for_each(|n| inbox.add(&message(n, "taken by a wait")));
        (1..=11).for_each(|n| inbox.add(&message(n, "taken again")));
        assert_eq!((inbox.lines.len(), inbox.more), (MAX_BATCH, 1));
        let elsewhere = Event { room_id: "another".into(), ..message(1, "x") };
        inbox.add(&elsewhere);
        assert_eq!(inbox.more, 2, "the same number in another room is another message");
    }

    #[test]
    fn what_another_answer_carries_is_not_shown_again() {
        let mut first = inbox();
        first.add(&message(1, "x"));
        first.compose();
        let next = |n: i64| {
            let mut next = AnswerInbox::new(first.agent.clone(), first.shown.clone());
            next.add(&message(n, "x"));
            next
        };
        let early = next(1);
        assert!(early.is_empty() && !early.has_receipt(), "the harness may still cancel the first answer");
        first.finish(true);
        let late = next(1);
        assert!(late.is_empty() && late.has_receipt(), "shown, and to be confirmed");
        assert!(!next(2).is_empty());
        let mut another = AnswerInbox::new(AgentId::trusted("claude:2"), first.shown.clone());
        another.add(&message(1, "to two members"));
        assert!(!another.is_empty());
        // The second answer with it is cancelled, which takes nothing from the first.
        late.compose();
        late.finish(false);
        assert!(next(1).is_empty());
        let cancelled = next(3);
        cancelled.compose();
        cancelled.finish(false);
        assert!(!next(3).is_empty(), "it was never written");
    }

    #[test]
    fn one_answer_brings_a_bounded_number_in_order() {
        let mut many = inbox();
        (1..=50).for_each(|n| many.add(&message(n, "short")));
        assert_eq!((many.lines.len(), many.more), (MAX_BATCH, 40));
        assert!(many.text().contains("40 more"));
        let mut long = inbox();
        (1..=5).for_each(|n| long.add(&message(n, &"x".repeat(3000))));
        long.add(&message(6, "short, but after one that did not fit"));
        assert_eq!((long.lines.len(), long.more), (2, 4));
        let mut one = inbox();
        one.add(&message(1, &"\u{1}".repeat(4096)));
        assert_eq!(one.lines.len(), 1, "the longest message there is goes alone");
    }
}
