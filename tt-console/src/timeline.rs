//! The part of a room's log that is in memory: a window of events, how far their messages have come, and in which order they are
//! shown. However long the log is, the window stays small; older and newer parts are asked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tt_proto::AgentId;
use tt_proto::delivery::{DeliveryChanged, DeliveryState, Recipient};
use tt_proto::event::{Event, EventType};
use tt_proto::message::MessageSent;

/// The most events in memory.
pub const MAX_EVENTS: usize = 600;

/// How many events are asked for at a time.
pub const PAGE: usize = 100;

/// An event, with its message read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub event: Event,
    pub message: Option<MessageSent>,
}

impl Item {
    fn of(mut event: Event) -> Self {
        let is_message = event.event_type == EventType::MessageSent;
        let payload = event.payload.as_ref().filter(|_| is_message);
        let message = payload.and_then(|payload| serde_json::from_str(payload.as_str()).ok());
        if message.is_some() {
            event.payload = None;
        }
        Self { event, message }
    }

    pub fn seq(&self) -> i64 {
        self.event.event_seq
    }
}

/// What is shown in one place of the timeline.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    pub item: &'a Item,
    /// It is an answer, shown below its question.
    pub is_answer: bool,
    /// How many answers are folded away below it.
    pub folded: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    items: VecDeque<Item>,
    recipients: BTreeMap<i64, Vec<Recipient>>,
    /// The last change of each delivery: an answer that was on its way when it came does not know it.
    changes: BTreeMap<(i64, AgentId), DeliveryChanged>,
    /// Messages of which it was asked how far they have come.
    asked: BTreeSet<i64>,
    /// There are older events than those in memory.
    pub has_earlier: bool,
    /// There are newer events than those in memory.
    pub has_later: bool,
    /// The newest event that is known of, also if it is not in memory.
    newest: i64,
    /// A page was asked for and has not come yet.
    pub is_loading: bool,
    /// The event that was chosen. None follows the newest.
    pub chosen: Option<i64>,
    /// Questions whose answers are folded away.
    folded: BTreeSet<i64>,
}

impl Timeline {
    /// Starts anew with the newest events.
    pub fn open(&mut self, events: Vec<Event>, has_earlier: bool) {
        *self = Self { has_earlier, newest: self.newest, ..Self::default() };
        self.items = events.into_iter().map(Item::of).collect();
        self.has_later = self.misses_newest();
    }

    /// The newest events were read: goes on with them if they join those in memory, else starts anew with them. A reader of older
    /// events keeps its place.
    pub fn renew(&mut self, events: Vec<Event>, has_earlier: bool) {
        let first = events.first().map_or(i64::MAX, |event| event.event_seq);
        match self.last_seq() {
            Some(last) if first <= last => self.append(events, false),
            Some(_) if self.chosen.is_some() => self.has_later = true,
            _ => self.open(events, has_earlier),
        }
    }

    /// What happens from now on may not be told, so nothing is put behind what is in memory before the newest were read.
    pub fn pause(&mut self) {
        self.has_later = true;
        self.asked.clear();
        self.is_loading = false;
    }

    /// Whether something happened that is not in memory.
    fn misses_newest(&self) -> bool {
        self.last_seq().is_none_or(|last| last < self.newest)
    }

    /// Starts anew around an event.
    pub fn jump(&mut self, events: Vec<Event>, has_earlier: bool, seq: i64) {
        self.open(events, has_earlier);
        self.has_later = true;
        self.chosen = Some(seq);
    }

    /// An event that happened now.
    pub fn push(&mut self, event: Event) {
        self.is_asked_again(&event);
        self.newest = self.newest.max(event.event_seq);
        if self.has_later || self.last_seq().is_none_or(|last| event.event_seq <= last) {
            return;
        }
        self.items.push_back(Item::of(event));
        self.shrink_front();
    }

    /// An answer changes how its question stands.
    fn is_asked_again(&mut self, event: &Event) {
        let payload = event.payload.as_ref().filter(|_| event.event_type == EventType::MessageSent);
        let message = payload.and_then(|payload| serde_json::from_str::<MessageSent>(payload.as_str()).ok());
        if let Some(seq) = message.and_then(|message| message.reply_to.or(message.about)) {
            self.asked.remove(&seq);
        }
    }

    pub fn prepend(&mut self, events: Vec<Event>, has_earlier: bool) {
        self.is_loading = false;
        self.has_earlier = has_earlier;
        let first = self.first_seq().unwrap_or(i64::MAX);
        for event in events.into_iter().rev().filter(|event| event.event_seq < first) {
            self.items.push_front(Item::of(event));
        }
        while self.items.len() > MAX_EVENTS {
            self.items.pop_back();
            self.has_later = true;
        }
        self.forget();
    }

    pub fn append(&mut self, events: Vec<Event>, has_later: bool) {
        self.is_loading = false;
        let last = self.last_seq().unwrap_or(i64::MIN);
        self.items.extend(events.into_iter().filter(|event| event.event_seq > last).map(Item::of));
        // What happened after the page was read is not in it.
        self.has_later = has_later || self.misses_newest();
        self.shrink_front();
    }

    fn shrink_front(&mut self) {
        while self.items.len() > MAX_EVENTS {
            self.items.pop_front();
            self.has_earlier = true;
        }
        self.forget();
    }

    /// Forgets what belongs to events that are no longer in memory.
    fn forget(&mut self) {
        let (Some(first), Some(last)) = (self.first_seq(), self.last_seq()) else { return };
        self.recipients.retain(|seq, _| (first..=last).contains(seq));
        self.changes.retain(|(seq, _), _| (first..=last).contains(seq));
        self.asked.retain(|seq| (first..=last).contains(seq));
        self.folded.retain(|seq| (first..=last).contains(seq));
        self.chosen = self.chosen.map(|seq| seq.clamp(first, last));
    }

    pub fn first_seq(&self) -> Option<i64> {
        self.items.front().map(Item::seq)
    }

    pub fn last_seq(&self) -> Option<i64> {
        self.items.back().map(Item::seq)
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn get(&self, seq: i64) -> Option<&Item> {
        let at = self.items.binary_search_by_key(&seq, Item::seq).ok()?;
        self.items.get(at)
    }

    pub fn items(&self) -> impl DoubleEndedIterator<Item = &Item> {
        self.items.iter()
    }

    pub fn recipients(&self, seq: i64) -> &[Recipient] {
        self.recipients.get(&seq).map_or(&[], Vec::as_slice)
    }

    /// How a message stands with its recipients, as it was when it was asked.
    pub fn set_recipients(&mut self, seq: i64, mut recipients: Vec<Recipient>) {
        if self.get(seq).is_none() {
            return;
        }
        for recipient in recipients.iter_mut().filter(|recipient| recipient.state == DeliveryState::Pending) {
            if let Some(change) = self.changes.get(&(seq, recipient.agent_id.clone())) {
                apply(recipient, change);
            }
        }
        self.recipients.insert(seq, recipients);
    }

    /// A delivery changed. What it was waiting for is no longer so.
    pub fn change(&mut self, change: &DeliveryChanged) {
        if self.get(change.event_seq).is_none() {
            return;
        }
        let recipients = self.recipients.get_mut(&change.event_seq);
        let recipient = recipients.and_then(|all| all.iter_mut().find(|one| one.agent_id == change.recipient));
        if let Some(recipient) = recipient {
            apply(recipient, change);
        }
        self.changes.insert((change.event_seq, change.recipient.clone()), change.clone());
    }

    /// Why messages wait may have changed: those that wait are asked about again when they are shown.
    pub fn ask_again(&mut self) {
        let waits = |recipients: &Vec<Recipient>| recipients.iter().any(|r| r.state == DeliveryState::Pending);
        let waiting = self.recipients.iter().filter(|(_, recipients)| waits(recipients)).map(|(seq, _)| *seq);
        let waiting: Vec<i64> = waiting.collect();
        waiting.iter().for_each(|seq| {
            self.asked.remove(seq);
        });
    }

    /// Those of these messages of which nobody asked yet how far they have come.
    pub fn mark_asked(&mut self, shown: &[i64]) -> Vec<i64> {
        let is_message = |seq: &i64| self.get(*seq).is_some_and(|item| item.message.is_some());
        let unknown: Vec<i64> =
            shown.iter().copied().filter(|seq| is_message(seq) && !self.asked.contains(seq)).collect();
        self.asked.extend(&unknown);
        unknown
    }

    /// Nothing that was asked for will come: the connection was cut.
    pub fn forget_asked(&mut self) {
        self.asked.clear();
        self.is_loading = false;
    }

    /// The question of the thread that an event belongs to: the event itself, if it answers nothing in memory.
    pub fn question(&self, seq: i64) -> i64 {
        let mut seq = seq;
        // A reply has a greater number than what it replies to, so this ends.
        while let Some(before) = self.get(seq).and_then(|item| item.message.as_ref()?.reply_to) {
            if before >= seq || self.get(before).is_none() {
                break;
            }
            seq = before;
        }
        seq
    }

    /// Folds the answers in the thread of an event, or unfolds them.
    pub fn toggle_fold(&mut self, seq: i64) {
        let question = self.question(seq);
        if !self.folded.remove(&question) {
            self.folded.insert(question);
            self.chosen = self.chosen.map(|_| question);
        }
    }

    /// The events in the order in which they are shown: answers below their question, and the thread where its last answer is,
    /// so that what is new is always at the end.
    pub fn entries(&self) -> Vec<Entry<'_>> {
        let questions: Vec<i64> = self.items.iter().map(|item| self.question(item.seq())).collect();
        let mut threads: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
        for (at, question) in questions.iter().enumerate() {
            threads.entry(*question).or_default().push(at);
        }
        let mut entries = Vec::with_capacity(self.items.len());
        for (at, question) in questions.iter().enumerate() {
            let Some(thread) = threads.get(question).filter(|thread| thread.last() == Some(&at)) else { continue };
            let folds = self.folded.contains(question);
            for (place, at) in thread.iter().enumerate() {
                let folded = if folds && place == 0 { thread.len() - 1 } else { 0 };
                if !folds || place == 0 {
                    entries.push(Entry { item: &self.items[*at], is_answer: place > 0, folded });
                }
            }
        }
        entries
    }

    /// Chooses the event that is `steps` further down, or up.
    pub fn step(&mut self, steps: isize) {
        let entries = self.entries();
        let Some(last) = entries.len().checked_sub(1) else { return };
        let at = self.chosen.and_then(|seq| entries.iter().position(|entry| entry.item.seq() == seq)).unwrap_or(last);
        let next = at.saturating_add_signed(steps).min(last);
        let seq = entries[next].item.seq();
        let follows = next == last && steps > 0 && !self.has_later;
        self.chosen = if follows { None } else { Some(seq) };
    }

    /// The event that keys are about: the chosen one, or the newest.
    pub fn current(&self) -> Option<&Item> {
        match self.chosen {
            Some(seq) => self.get(seq),
            None => self.entries().last().map(|entry| entry.item),
        }
    }
}

fn apply(recipient: &mut Recipient, change: &DeliveryChanged) {
    recipient.state = change.state;
    recipient.surface = change.surface;
    recipient.answered_by = change.answered_by;
    recipient.is_over = change.is_over;
    recipient.is_late = change.is_late;
    recipient.waits = None;
    if change.state == DeliveryState::Delivered {
        recipient.delivered_at = Some(change.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn message(seq: i64, reply_to: Option<i64>) -> Event {
        let payload = MessageSent { body: format!("message {seq}"), reply_to, ..MessageSent::default() };
        serde_json::from_value(serde_json::json!({
            "event_seq": seq, "event_id": format!("id-{seq}"), "room_id": "r", "event_type": "message_sent",
            "from_agent_id": "claude:1", "created_at": "2026-11-16T12:00:00.000Z", "payload": payload,
        }))
        .unwrap()
    }

    fn shown(timeline: &Timeline) -> Vec<i64> {
        timeline.entries().iter().map(|entry| entry.item.seq()).collect()
    }

    #[test]
    fn answers_are_below_their_question_and_the_newest_is_at_the_end() {
        let mut timeline = Timeline::default();
        timeline.open([1, 2, 3].map(|seq| message(seq, None)).to_vec(), false);
        timeline.push(message(4, Some(1)));
        assert_eq!(shown(&timeline), [2, 3, 1, 4]);
        timeline.push(message(5, None));
        timeline.push(message(6, Some(4)));
        assert_eq!(shown(&timeline), [2, 3, 5, 1, 4, 6], "an answer to an answer belongs to the thread");
        timeline.toggle_fold(6);
        assert_eq!(shown(&timeline), [2, 3, 5, 1]);
        assert_eq!(timeline.entries()[3].folded, 2);
        timeline.toggle_fold(1);
        assert_eq!(shown(&timeline).len(), 6);
    }

    #[test]
    fn the_window_stays_small_and_can_be_moved() {
        let mut timeline = Timeline::default();
        timeline.open(vec![message(0, None)], false);
        (1..=100_000).for_each(|seq| timeline.push(message(seq, None)));
        assert_eq!((timeline.len(), timeline.last_seq(), timeline.has_earlier), (MAX_EVENTS, Some(100_000), true));
        let first = timeline.first_seq().unwrap();
        timeline.step(-10_000);
        assert_eq!(timeline.chosen, Some(first));
        timeline.prepend((first - 100..first).map(|seq| message(seq, None)).collect(), true);
        assert_eq!((timeline.len(), timeline.first_seq()), (MAX_EVENTS, Some(first - 100)));
        assert!(timeline.has_later && timeline.chosen == Some(first), "the newest were dropped, not what is read");
        timeline.push(message(100_001, None));
        assert_eq!(timeline.last_seq(), Some(99_900), "what comes now is not put behind a gap");
        timeline.append((99_901..=100_001).map(|seq| message(seq, None)).collect(), false);
        assert_eq!((timeline.len(), timeline.last_seq()), (MAX_EVENTS, Some(100_001)));
        timeline.step(10_000);
        assert_eq!(timeline.chosen, None, "the end is followed again");
    }

    #[test]
    fn a_message_is_asked_about_once_and_again_when_it_waits() {
        let mut timeline = Timeline::default();
        timeline.open([1, 2].map(|seq| message(seq, None)).to_vec(), false);
        assert_eq!(timeline.mark_asked(&[1, 2, 3]), [1, 2]);
        assert_eq!(timeline.mark_asked(&[1, 2, 3]), [0; 0]);
        let agent = tt_proto::AgentId::trusted("codex:1");
        timeline.set_recipients(1, vec![Recipient::pending(agent.clone())]);
        let delivered = Recipient { state: DeliveryState::Delivered, ..Recipient::pending(agent) };
        timeline.set_recipients(2, vec![delivered]);
        timeline.ask_again();
        assert_eq!(timeline.mark_asked(&[1, 2]), [1], "only what waits can change by itself");
    }

    #[test]
    fn an_answer_that_was_on_its_way_does_not_undo_a_change() {
        let mut timeline = Timeline::default();
        timeline.open(vec![message(1, None)], false);
        let agent = AgentId::trusted("codex:1");
        let change = serde_json::from_value(serde_json::json!({
            "event_seq": 1, "room_id": "r", "recipient": "codex:1", "state": "delivered", "surface": "recv",
            "at": "2026-11-16T12:00:00.000Z",
        }));
        timeline.change(&change.unwrap());
        timeline.set_recipients(1, vec![Recipient::pending(agent)]);
        assert_eq!(timeline.recipients(1)[0].state, DeliveryState::Delivered);
    }
}
