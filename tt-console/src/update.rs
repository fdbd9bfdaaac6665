//! What the daemon tells changes the model.

use tt_proto::RoomId;
use tt_proto::escape::escape_text;
use tt_proto::event::{Event, EventType};
use tt_proto::room::RoomSummary;

use crate::exchange::{InboxLine, Request, Update};
use crate::model::{Action, Goal, Layer, Link, List, Model, RoomEntry, Row};

impl Model {
    pub fn apply(&mut self, update: Update) -> Vec<Action> {
        match update {
            Update::Connected { me, name } => self.connected(me, name),
            Update::Disconnected(why) => {
                if self.link == Link::Up {
                    self.timeline.pause();
                }
                self.link = Link::Down(why);
                Vec::new()
            }
            Update::Rooms(rooms) => self.set_rooms(rooms),
            Update::RoomDeleted(room) => self.delete_room(&room),
            Update::State { room, state, questions } => {
                let me = self.me.clone();
                let Some(entry) = self.room_mut(&room) else { return Vec::new() };
                let mine = state.members.iter().find(|member| Some(&member.agent_id) == me.as_ref());
                entry.summary.inbox.unread = mine.map_or(0, |member| member.unread);
                entry.summary.turn_id = state.room.turn_id;
                entry.summary.owner = state.room.owner.clone();
                entry.summary.reserved_for = state.room.reserved_for.clone();
                entry.summary.state = state.room.state;
                let active =
                    state.members.iter().filter(|member| member.status == tt_proto::room::MemberStatus::Active);
                entry.summary.members = u32::try_from(active.count()).unwrap_or(u32::MAX);
                entry.questions = questions;
                entry.state = Some(state);
                let alert = alert(entry);
                if self.open.as_ref() == Some(&room) {
                    self.name_members();
                    self.timeline.ask_again();
                }
                alert.filter(|_| !self.is_silent).into_iter().map(Action::Alert).collect()
            }
            Update::Opened { room, page, members, notes } => {
                if self.open.as_ref() != Some(&room) {
                    return Vec::new();
                }
                self.notes = notes;
                self.members = members;
                self.name_members();
                if let Some((_, seq)) = self.jump.take_if(|(to, _)| *to == room) {
                    return vec![Action::Ask(Request::Around { room, seq })];
                }
                self.timeline.renew(page.events, page.earlier > 0);
                Vec::new()
            }
            // A page that does not join what is in memory now was asked for by a reader who has gone elsewhere since.
            Update::Before { room, seq, page } => {
                self.timeline.is_loading = false;
                if self.open.as_ref() == Some(&room) && self.timeline.first_seq() == Some(seq) {
                    self.timeline.prepend(page.events, page.earlier > 0);
                }
                Vec::new()
            }
            Update::After { room, seq, page } => {
                self.timeline.is_loading = false;
                if self.open.as_ref() == Some(&room) && self.timeline.last_seq() == Some(seq) {
                    self.timeline.append(page.events, page.more);
                }
                Vec::new()
            }
            Update::Around { room, seq, page } => {
                if self.open.as_ref() == Some(&room) {
                    self.timeline.jump(page.events, page.earlier > 0, seq);
                }
                Vec::new()
            }
            Update::Event { room, event } => self.happened(&room, *event),
            Update::Notes { room, notes } => {
                if self.open.as_ref() == Some(&room) {
                    self.notes = notes;
                }
                Vec::new()
            }
            Update::Delivery(change) => {
                if self.open.as_ref() == Some(&change.room_id) {
                    self.timeline.change(&change);
                }
                vec![Action::Ask(Request::Look(change.room_id.clone()))]
            }
            Update::DeliveriesMissed(room) => {
                if self.open.as_ref() == Some(&room) {
                    self.timeline.forget_asked();
                }
                Vec::new()
            }
            Update::Recipients { room, seq, recipients } => {
                if self.open.as_ref() == Some(&room) {
                    self.timeline.set_recipients(seq, recipients);
                }
                Vec::new()
            }
            Update::Found { room, words, events } => {
                self.layer = self.found(&room, &words, &events);
                Vec::new()
            }
            Update::Inbox(lines) => {
                self.layer = self.inbox(&lines);
                Vec::new()
            }
            Update::Done(what) => {
                self.say(what);
                Vec::new()
            }
            Update::Sent(what) => {
                if matches!(&self.layer, Layer::Compose(compose) if compose.is_sending) {
                    self.layer = Layer::None;
                }
                if let Some(room) = &self.open {
                    self.drafts.remove(room);
                }
                self.say(what);
                Vec::new()
            }
            Update::NotSent { error, to } => {
                if let Layer::Compose(compose) = &mut self.layer {
                    compose.is_sending = false;
                    if compose.reply_to.is_none() {
                        compose.to = crate::input::Input::of(&to.join(", "));
                    }
                }
                self.complain(error);
                Vec::new()
            }
            Update::Refused(why) => {
                self.timeline.is_loading = false;
                self.complain(why);
                Vec::new()
            }
        }
    }

    fn connected(&mut self, me: tt_proto::AgentId, name: String) -> Vec<Action> {
        if matches!(self.link, Link::Down(_)) {
            self.say("connected again");
        }
        self.link = Link::Up;
        (self.me, self.my_name) = (Some(me), name);
        self.timeline.forget_asked();
        let open = self.open.clone().map(|room| Action::Ask(Request::Open(room)));
        open.into_iter().collect()
    }

    fn set_rooms(&mut self, rooms: Vec<RoomSummary>) -> Vec<Action> {
        let mut known = std::mem::take(&mut self.rooms);
        for summary in rooms {
            let at = known.iter().position(|entry| entry.summary.room_id == summary.room_id);
            let old = at.map(|at| known.swap_remove(at));
            let (state, questions, alerted) =
                old.map(|old| (old.state, old.questions, old.alerted)).unwrap_or_default();
            self.rooms.push(RoomEntry { summary, state, questions, alerted });
        }
        self.rooms.sort_by(|one, other| one.summary.canonical_path.cmp(&other.summary.canonical_path));
        match &self.open {
            Some(open) if self.room(open).is_none() => {
                let open = open.clone();
                self.delete_room(&open)
            }
            Some(_) => Vec::new(),
            None => self.open_first(),
        }
    }

    /// The room of the directory that the console was started in. It is opened unless a person chose another meanwhile.
    pub fn set_home(&mut self, room: Option<RoomId>) -> Vec<Action> {
        let Some(room) = room else { return Vec::new() };
        self.home = Some(room.clone());
        let is_untouched = self.timeline.chosen.is_none() && matches!(self.layer, Layer::None);
        if is_untouched && self.room(&room).is_some() { self.open_this(&room) } else { Vec::new() }
    }

    /// Opens the room of the directory that the console was started in, or the first.
    fn open_first(&mut self) -> Vec<Action> {
        let home = self.home.clone().filter(|home| self.room(home).is_some());
        let first = home.or_else(|| self.listed().first().map(|entry| entry.summary.room_id.clone()));
        first.map(|room| self.open_this(&room)).unwrap_or_default()
    }

    fn delete_room(&mut self, room: &RoomId) -> Vec<Action> {
        self.rooms.retain(|entry| entry.summary.room_id != *room);
        self.drafts.remove(room);
        if self.open.as_ref() != Some(room) {
            return Vec::new();
        }
        self.complain("the room was deleted");
        self.layer = Layer::None;
        self.open = None;
        self.timeline = crate::timeline::Timeline::default();
        (self.notes, self.members) = (Vec::new(), Vec::new());
        self.open_first()
    }

    fn happened(&mut self, room: &RoomId, event: Event) -> Vec<Action> {
        if let Some(entry) = self.room_mut(room) {
            entry.summary.updated_at = event.created_at;
        }
        if self.open.as_ref() != Some(room) {
            return Vec::new();
        }
        let is_note = matches!(event.event_type, EventType::NoteAdded | EventType::NoteResolved);
        self.timeline.push(event);
        if is_note { vec![Action::Ask(Request::Notes(room.clone()))] } else { Vec::new() }
    }

    fn found(&self, room: &RoomId, words: &str, events: &[Event]) -> Layer {
        let rows = events.iter().rev().map(|event| {
            let from = event.from_agent_id.as_ref().map_or_else(|| "notice".to_owned(), |agent| self.label(agent));
            let text = tt_proto::message::excerpt(&tt_proto::search::text_of(event));
            let clock = tt_client::text::render::clock(event.created_at, self.now);
            Row {
                text: format!("{clock} {from}: {}", escape_text(&text)),
                goal: Goal::Jump { room: room.clone(), seq: event.event_seq },
            }
        });
        Layer::List(List { title: format!("Found: {}", escape_text(words)), rows: rows.collect(), chosen: 0 })
    }

    fn inbox(&self, lines: &[InboxLine]) -> Layer {
        Layer::List(self.inbox_list(lines))
    }

    /// What was on the screen is asked about, confirmed, and gone on with at its ends.
    pub fn was_shown(&mut self, shown: crate::model::Shown) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(room) = self.open.clone().filter(|_| self.link == Link::Up) else {
            self.shown = shown;
            return actions;
        };
        for seq in self.timeline.mark_asked(&shown.events) {
            actions.push(Action::Ask(Request::MessageStatus { room: room.clone(), seq }));
        }
        let seqs = self.to_confirm(&shown.events);
        if !seqs.is_empty() {
            self.confirmed.extend(&seqs);
            actions.push(Action::Ask(Request::Confirm { room: room.clone(), seqs }));
        }
        if shown.reaches_first && self.timeline.has_earlier && !self.timeline.is_loading {
            if let Some(seq) = self.timeline.first_seq() {
                self.timeline.is_loading = true;
                actions.push(Action::Ask(Request::Before { room: room.clone(), seq }));
            }
        } else if shown.reaches_last
            && self.timeline.has_later
            && !self.timeline.is_loading
            && let Some(seq) = self.timeline.last_seq()
        {
            self.timeline.is_loading = true;
            actions.push(Action::Ask(Request::After { room, seq }));
        }
        self.shown = shown;
        actions
    }

    /// The messages on the screen that wait for us.
    fn to_confirm(&self, events: &[i64]) -> Vec<i64> {
        let waits = |seq: &&i64| {
            let mut recipients = self.timeline.recipients(**seq).iter();
            recipients.any(|recipient| {
                Some(&recipient.agent_id) == self.me.as_ref()
                    && recipient.state == tt_proto::delivery::DeliveryState::Pending
            })
        };
        events.iter().filter(|seq| !self.confirmed.contains(seq)).filter(waits).copied().collect()
    }
}

/// What newly needs a person in a room, in words.
fn alert(entry: &mut RoomEntry) -> Option<String> {
    let needs: std::collections::BTreeSet<&'static str> = entry.needs().into_iter().collect();
    let new: Vec<&str> = needs.difference(&entry.alerted).copied().collect();
    let text = (!new.is_empty()).then(|| format!("{}: {}", escape_text(entry.short_name()), new.join(", ")));
    entry.alerted = needs;
    text
}
