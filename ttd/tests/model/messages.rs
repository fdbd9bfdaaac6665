//! The part of the reference that is about messages: what becomes of each, who is told of it, and what reminders send. Like the
//! rest it is written from `docs/protocol.md` and shares no code with the rules.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::reference::{NAMES, Outcome, PERSON, Reference, Room, belongs, event, is_addressed, name};

/// A message and how it stands with each recipient.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// Nobody, of a notice.
    pub(crate) from: Option<usize>,
    pub(crate) says: String,
    /// The message that it answers; of a notice, the one that it is about.
    pub(crate) reply_to: Option<usize>,
    pub(crate) expires: Option<i64>,
    pub(crate) is_question: bool,
    /// 0: at the end of a turn; 1: as usual; 2: before those; 3: before all.
    pub(crate) urgency: u8,
    pub(crate) tell_delivery: bool,
    pub(crate) tell_silence: Option<i64>,
    pub(crate) to: BTreeMap<usize, Delivery>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Delivered,
    Answered,
    Expired,
    Withdrawn,
}

impl State {
    pub(crate) fn word(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Delivered => "delivered",
            State::Answered => "answered",
            State::Expired => "expired",
            State::Withdrawn => "withdrawn",
        }
    }

    fn is_final(self) -> bool {
        !matches!(self, State::Pending | State::Delivered)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) state: State,
    /// The connection that has taken it. Only of one that is pending.
    pub(crate) held_by: Option<u64>,
    /// The hand-over under way, which cannot be recalled. Only of one that is pending.
    pub(crate) attempt: Option<u64>,
    /// When its state last changed, or a connection gave it back.
    pub(crate) since: i64,
    pub(crate) is_over: bool,
    pub(crate) is_late: bool,
    pub(crate) answered_by: Option<usize>,
    pub(crate) was_shown: bool,
    /// When its sender is told that there is no answer.
    pub(crate) tell_at: Option<i64>,
}

impl Delivery {
    fn open(since: i64) -> Self {
        let state = State::Pending;
        Self {
            state,
            held_by: None,
            attempt: None,
            since,
            is_over: false,
            is_late: false,
            answered_by: None,
            was_shown: false,
            tell_at: None,
        }
    }

    fn is_free(&self) -> bool {
        self.state == State::Pending && !self.is_taken()
    }

    /// It may be on a screen already.
    fn is_taken(&self) -> bool {
        self.held_by.is_some() || self.attempt.is_some()
    }

    fn becomes(&mut self, state: State, now: i64) {
        (self.state, self.held_by, self.attempt, self.tell_at, self.since) = (state, None, None, None, now);
    }
}

impl Message {
    fn is_past(&self, now: i64) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// Whether an answer of this recipient may still come in time.
    fn awaits(&self, recipient: usize) -> bool {
        self.is_question && self.to.get(&recipient).is_some_and(|d| !d.state.is_final() && !d.is_over)
    }

    fn is_answered(&self) -> bool {
        self.to.values().any(|delivery| delivery.state == State::Answered)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Reminder {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) says: String,
    pub(crate) due: i64,
    pub(crate) every: Option<i64>,
    pub(crate) times: i64,
}

/// What a sender wants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wish {
    pub(crate) to: Option<usize>,
    pub(crate) says: String,
    /// The message that it replies to: its place, or none if there is no such message.
    pub(crate) reply_to: Option<Option<usize>>,
    pub(crate) is_question: bool,
    pub(crate) timeout: Option<i64>,
    pub(crate) urgency: u8,
    pub(crate) tell_delivery: bool,
    pub(crate) tell_silence: Option<i64>,
}

/// What a surface asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) max_replay: Option<usize>,
    pub(crate) limit: usize,
    pub(crate) mid_turn: bool,
    pub(crate) about: Option<usize>,
}

/// What a surface took: the messages it shows and those it skips, by their place in the history, and how many stayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Took {
    pub(crate) messages: Vec<usize>,
    pub(crate) skipped: Vec<usize>,
    pub(crate) more: usize,
}

/// What the log says of a message. `#3` is the number of the third message of the history.
pub(crate) fn sent(turn: i64, from: Option<usize>, to: Option<usize>, says: &str, extras: &[String]) -> String {
    let extras: String = extras.iter().map(|extra| format!(" {extra}")).collect();
    format!("{} says={says}{extras}", event("message_sent", turn, name(from), name(to), "-"))
}

fn late(millis: i64) -> Option<String> {
    (millis >= 1000).then(|| format!("late={millis}"))
}

/// Tells a member something that nobody sent.
pub(crate) fn notify(
    room: &mut Room,
    to: usize,
    what: &str,
    about: Option<usize>,
    says: &str,
    overdue: i64,
    events: &mut Vec<String>,
) {
    let mut extras = vec![format!("notice={what}")];
    extras.extend(about.map(|about| format!("about=#{about}")));
    extras.extend(late(overdue));
    events.push(sent(room.turn, None, Some(to), says, &extras));
    let to = BTreeMap::from([(to, Delivery::open(0))]);
    room.messages.push(Message { says: says.into(), reply_to: about, urgency: 1, to, ..Message::default() });
    room.has_contents = true;
}

/// Tells the sender of a message what became of it, if it is there.
fn notify_sender(room: &mut Room, index: usize, what: &str, overdue: i64, events: &mut Vec<String>) {
    let (from, says) = (room.messages[index].from, room.messages[index].says.clone());
    if let Some(from) = from.filter(|from| is_addressed(room, *from)) {
        notify(room, from, what, Some(index), &says, overdue, events);
    }
}

impl Reference {
    /// One event, and a delivery for each recipient: the one named, the one that is answered, or every other member that is
    /// active or away.
    pub(crate) fn send(&mut self, agent: usize, process: Option<u32>, wish: &Wish) -> Outcome {
        self.by_member(agent, process, &|this, room, events| {
            Self::active(room, agent)?;
            let answered = match wish.reply_to {
                None => None,
                Some(_) if wish.to.is_some() => return Err("invalid_input"),
                Some(None) => return Err("unknown_message"),
                Some(Some(index)) => {
                    let message = &room.messages[index];
                    let mine = message.to.contains_key(&agent);
                    Some((index, message.from.filter(|_| mine).ok_or("not_a_recipient")?))
                }
            };
            let to = answered.map(|(_, sender)| sender).or(wish.to);
            if to.is_some_and(|to| !room.members.contains_key(&to)) {
                return Err("unknown_recipient");
            }
            let recipients: Vec<usize> = match to {
                Some(to) => vec![to],
                None => room.members.keys().copied().filter(|m| *m != agent && is_addressed(room, *m)).collect(),
            };
            if wish.is_question {
                if to == Some(agent) {
                    return Err("invalid_input");
                }
                if recipients.is_empty() || to.is_some_and(|to| !is_addressed(room, to)) {
                    return Err("unknown_recipient");
                }
            }
            if wish.timeout == Some(0) || wish.tell_silence == Some(0) {
                return Err("invalid_input");
            }
            let reply_to = answered.map(|(index, _)| index);
            let new = room.messages.len();
            if let Some(index) = reply_to {
                let (is_past, is_question) = (room.messages[index].is_past(this.now), room.messages[index].is_question);
                let delivery = room.messages[index].to.get_mut(&agent).filter(|d| !d.state.is_final());
                if let Some(delivery) = delivery {
                    delivery.becomes(State::Answered, this.now);
                    delivery.answered_by = Some(new);
                    delivery.is_late = delivery.is_over || is_question && is_past;
                }
            }
            let timeout = wish.timeout.or(wish.is_question.then_some(this.times.ask));
            room.messages.push(Message {
                from: Some(agent),
                says: wish.says.clone(),
                reply_to,
                expires: timeout.map(|timeout| this.now + timeout),
                is_question: wish.is_question,
                urgency: wish.urgency,
                tell_delivery: wish.tell_delivery,
                tell_silence: wish.tell_silence,
                to: recipients.iter().map(|recipient| (*recipient, Delivery::open(this.now))).collect(),
            });
            room.has_contents = true;
            let mut extras: Vec<String> = reply_to.map(|index| format!("reply_to=#{index}")).into_iter().collect();
            extras.extend(wish.is_question.then(|| "question".to_owned()));
            events.push(sent(room.turn, Some(agent), to, &wish.says, &extras));
            Ok(())
        })
    }

    /// Takes a message back from those who have not been handed it. Returns from how many, and for how many it is too late.
    pub(crate) fn withdraw(
        &mut self,
        agent: usize,
        process: Option<u32>,
        which: Option<usize>,
    ) -> (Outcome, (usize, usize)) {
        let counted = RefCell::new((0, 0));
        let outcome = self.by_member(agent, process, &|this, room, _| {
            Self::active(room, agent)?;
            let message = &mut room.messages[which.ok_or("unknown_message")?];
            if message.from != Some(agent) {
                return Err("invalid_input");
            }
            let was_withdrawn = message.to.values().any(|delivery| delivery.state == State::Withdrawn);
            let mut counted = counted.borrow_mut();
            for delivery in message.to.values_mut() {
                match delivery.state {
                    State::Pending if !delivery.is_taken() => {
                        delivery.becomes(State::Withdrawn, this.now);
                        counted.0 += 1;
                    }
                    State::Pending | State::Delivered | State::Answered => counted.1 += 1,
                    State::Expired | State::Withdrawn => {}
                }
            }
            if counted.0 > 0 || was_withdrawn { Ok(()) } else { Err("already_delivered") }
        });
        (outcome, counted.into_inner())
    }

    /// Takes what nobody holds, the most urgent first, and never what is too late.
    pub(crate) fn take(&mut self, agent: usize, process: Option<u32>, connection: u64, ask: Ask) -> (Outcome, Took) {
        let took = RefCell::new(Took::default());
        let outcome = self.by_member(agent, process, &|this, room, _| {
            Self::active(room, agent)?;
            let concerns = |index: usize, message: &Message| {
                ask.about.is_none_or(|about| {
                    let asks_back = message.from.is_some_and(|from| room.messages[about].to.contains_key(&from));
                    index > about && (message.reply_to == Some(about) || message.is_question && asks_back)
                })
            };
            let mut free: Vec<usize> = Vec::new();
            for (index, message) in room.messages.iter().enumerate() {
                let is_mine = message.to.get(&agent).is_some_and(Delivery::is_free);
                let is_for_later = ask.mid_turn && message.urgency == 0;
                if is_mine && !message.is_past(this.now) && !is_for_later && concerns(index, message) {
                    free.push(index);
                }
            }
            let mut skip = ask.max_replay.map_or(0, |max| free.len().saturating_sub(max));
            let mut took = took.borrow_mut();
            free.retain(|index| {
                let message = &room.messages[*index];
                let matters = message.is_question || message.reply_to.is_some();
                let is_skipped = skip > 0 && message.urgency < 3 && !matters;
                if is_skipped {
                    skip -= 1;
                    took.skipped.push(*index);
                }
                !is_skipped
            });
            for urgency in (0..=3).rev() {
                took.messages.extend(free.iter().filter(|index| room.messages[**index].urgency == urgency));
            }
            took.messages.truncate(ask.limit);
            took.more = free.len() - took.messages.len();
            // A person holds nothing: all of its terminals may show a message.
            for index in took.skipped.iter().chain(&took.messages).filter(|_| agent != PERSON) {
                if let Some(delivery) = room.messages[*index].to.get_mut(&agent) {
                    delivery.held_by = Some(connection);
                }
            }
            Ok(())
        });
        (outcome, took.into_inner())
    }

    /// Nobody confirms or returns for another: one message that another connection holds, and nothing is done.
    fn check_listed(room: &Room, agent: usize, connection: u64, which: &[usize]) -> Result<(), &'static str> {
        let delivery = |index: &usize| room.messages.get(*index).and_then(|message| message.to.get(&agent));
        let is_anothers = |index: &usize| {
            delivery(index).is_some_and(|d| d.attempt.is_some() || d.held_by.is_some_and(|by| by != connection))
        };
        if which.iter().any(is_anothers) { Err("message_held") } else { Ok(()) }
    }

    /// Confirms messages by their place in the history. Returns how many were open.
    pub(crate) fn confirm(&mut self, agent: usize, connection: u64, which: &[usize]) -> (Outcome, usize) {
        let confirmed = RefCell::new(0);
        let outcome = self.command(None, &|this, room, events| {
            Self::check_listed(room, agent, connection, which)?;
            for index in which {
                let message = &mut room.messages[*index];
                let (tell_delivery, tell_silence) = (message.tell_delivery, message.tell_silence);
                let Some(delivery) = message.to.get_mut(&agent).filter(|d| d.state == State::Pending) else { continue };
                delivery.becomes(State::Delivered, this.now);
                delivery.was_shown = true;
                // Who was told that no answer will come is not told again.
                delivery.tell_at = tell_silence.filter(|_| !delivery.is_over).map(|after| this.now + after);
                *confirmed.borrow_mut() += 1;
                if tell_delivery {
                    notify_sender(room, *index, "delivered", 0, events);
                }
            }
            Ok(())
        });
        (outcome, confirmed.into_inner())
    }

    /// Gives back what a connection holds of these messages. Returns how many.
    pub(crate) fn give_back(&mut self, agent: usize, connection: u64, which: &[usize]) -> (Outcome, usize) {
        let returned = RefCell::new(0);
        let outcome = self.command(None, &|this, room, _| {
            Self::check_listed(room, agent, connection, which)?;
            for index in which {
                let delivery = room.messages[*index].to.get_mut(&agent);
                if let Some(delivery) = delivery.filter(|delivery| delivery.held_by == Some(connection)) {
                    (delivery.held_by, delivery.since) = (None, this.now);
                    *returned.borrow_mut() += 1;
                }
            }
            Ok(())
        });
        (outcome, returned.into_inner())
    }

    /// The connections that are no more hold nothing.
    pub(crate) fn end_connections(&mut self, ended: impl Fn(u64) -> bool) {
        for message in self.room.iter_mut().flat_map(|room| &mut room.messages) {
            for delivery in message.to.values_mut().filter(|delivery| delivery.held_by.is_some_and(&ended)) {
                (delivery.held_by, delivery.since) = (None, self.now);
            }
        }
    }

    /// Messages are about to be handed to an agent: those that nobody has, and that are not too late.
    pub(crate) fn begin_attempt(&mut self, agent: usize, which: &[usize], tag: u64) -> Outcome {
        self.command(None, &|this, room, _| {
            let is_there = belongs(room, agent);
            for index in which {
                let message = &mut room.messages[*index];
                let is_past = message.is_past(this.now);
                let delivery = message.to.get_mut(&agent).filter(|delivery| delivery.is_free());
                if let Some(delivery) = delivery.filter(|_| is_there && !is_past) {
                    delivery.attempt = Some(tag);
                }
            }
            Ok(())
        })
    }

    /// It is known whether they arrived.
    pub(crate) fn end_attempt(&mut self, agent: usize, tag: u64, arrived: bool) -> Outcome {
        self.command(None, &|this, room, events| {
            for index in 0..room.messages.len() {
                let message = &mut room.messages[index];
                let (tell_delivery, tell_silence) = (message.tell_delivery, message.tell_silence);
                let Some(delivery) = message.to.get_mut(&agent).filter(|d| d.attempt == Some(tag)) else { continue };
                if !arrived {
                    (delivery.attempt, delivery.since) = (None, this.now);
                    continue;
                }
                delivery.becomes(State::Delivered, this.now);
                delivery.was_shown = true;
                delivery.tell_at = tell_silence.filter(|_| !delivery.is_over).map(|after| this.now + after);
                if tell_delivery {
                    notify_sender(room, index, "delivered", 0, events);
                }
            }
            Ok(())
        })
    }

    /// A moment has come that matters to a message. What a connection holds may be on a screen already.
    pub(crate) fn message_due(&mut self, index: usize) -> Outcome {
        self.command(None, &|this, room, events| {
            let is_answered = room.messages[index].is_answered();
            let message = &mut room.messages[index];
            let expires = message.expires.filter(|at| *at <= this.now);
            let (mut expired, mut silent) = (None, None);
            for delivery in message.to.values_mut() {
                match (delivery.state, expires) {
                    (State::Pending, Some(at)) if !delivery.is_taken() => {
                        let is_awaited = message.is_question && !delivery.is_over && !is_answered;
                        if is_awaited || message.tell_delivery {
                            expired = Some(this.now - at);
                        }
                        delivery.becomes(State::Expired, this.now);
                        delivery.is_over = message.is_question;
                    }
                    (State::Pending | State::Delivered, _) => {
                        let ends = expires.filter(|_| message.is_question && !delivery.is_over);
                        let told = delivery.tell_at.filter(|at| *at <= this.now);
                        if let Some(since) = ends.into_iter().chain(told).min() {
                            silent = silent.max(Some(this.now - since));
                            delivery.is_over |= ends.is_some();
                            delivery.tell_at = None;
                        }
                    }
                    _ => {}
                }
            }
            if let Some(overdue) = expired {
                notify_sender(room, index, "expired", overdue, events);
            }
            if let Some(overdue) = silent.filter(|_| !is_answered) {
                notify_sender(room, index, "not_answered", overdue, events);
            }
            Ok(())
        })
    }

    /// The asker of a member that has gone now is told, unless another has answered or still may.
    pub(crate) fn end_questions(&self, before: &Room, room: &mut Room, events: &mut Vec<String>) {
        let status = |room: &Room, agent: usize| room.members.get(&agent).map(|member| member.status);
        let went = |agent: &usize| !is_addressed(room, *agent) && status(before, *agent) != status(room, *agent);
        let gone: Vec<usize> = room.members.keys().copied().filter(went).collect();
        for index in 0..room.messages.len() {
            let message = &mut room.messages[index];
            let lost: Vec<usize> = gone.iter().copied().filter(|agent| message.awaits(*agent)).collect();
            for agent in &lost {
                if let Some(delivery) = message.to.get_mut(agent) {
                    (delivery.is_over, delivery.tell_at) = (true, None);
                }
            }
            let may_answer = message.to.keys().any(|agent| message.awaits(*agent));
            if !lost.is_empty() && !may_answer && !message.is_answered() {
                notify_sender(room, index, "recipient_gone", 0, events);
            }
        }
    }

    /// The messages a connection holds, of one agent.
    pub(crate) fn held(&self, agent: usize, connection: u64) -> Vec<usize> {
        let is_held = |message: &Message| message.to.get(&agent).is_some_and(|d| d.held_by == Some(connection));
        let messages = self.room.iter().flat_map(|room| room.messages.iter().enumerate());
        messages.filter(|(_, message)| is_held(message)).map(|(index, _)| index).collect()
    }

    pub(crate) fn remind(&mut self, agent: usize, process: Option<u32>, new: &Reminder) -> Outcome {
        self.by_member(agent, process, &|this, room, _| {
            Self::active(room, agent)?;
            let is_series = new.every.is_some();
            if new.due == 0 || new.every.is_some_and(|every| every < 10_000) || !(1..=1000).contains(&new.times) {
                return Err("invalid_input");
            }
            if !is_series && new.times > 1 {
                return Err("invalid_input");
            }
            if !belongs(room, new.to) {
                return Err("unknown_recipient");
            }
            room.reminders.push(Some(Reminder { due: this.now + new.due, ..new.clone() }));
            room.has_contents = true;
            Ok(())
        })
    }

    pub(crate) fn cancel(&mut self, agent: usize, process: Option<u32>, which: Option<usize>) -> Outcome {
        self.by_member(agent, process, &|_, room, _| {
            Self::active(room, agent)?;
            let reminder = which.map(|index| &mut room.reminders[index]);
            let concerns = |reminder: &Reminder| reminder.from == agent || reminder.to == agent;
            match reminder {
                Some(reminder) if reminder.as_ref().is_some_and(concerns) => *reminder = None,
                _ => return Err("unknown_reminder"),
            }
            Ok(())
        })
    }

    /// Sends a reminder. What a series missed comes as one, and the rhythm stays.
    pub(crate) fn reminder_due(&mut self, index: usize) -> Outcome {
        self.command(None, &|this, room, events| {
            let Some(mut reminder) = room.reminders[index].clone() else { return Ok(()) };
            if reminder.due > this.now {
                return Ok(());
            }
            room.reminders[index] = None;
            if !belongs(room, reminder.from) || !belongs(room, reminder.to) {
                return Ok(());
            }
            let mut extras = vec!["reminder".to_owned()];
            extras.extend(late(this.now - reminder.due));
            events.push(sent(room.turn, Some(reminder.from), Some(reminder.to), &reminder.says, &extras));
            let to = BTreeMap::from([(reminder.to, Delivery::open(this.now))]);
            let (from, says) = (Some(reminder.from), reminder.says.clone());
            room.messages.push(Message { from, says, urgency: 1, to, ..Message::default() });
            if let Some(every) = reminder.every {
                while reminder.due <= this.now && reminder.times > 0 {
                    reminder.due += every;
                    reminder.times -= 1;
                }
                room.reminders[index] = (reminder.times > 0).then_some(reminder);
            }
            Ok(())
        })
    }

    /// A message or a reminder to which something should have happened by now.
    pub(crate) fn overdue_message(&self, room: &Room) -> Option<String> {
        for (index, message) in room.messages.iter().enumerate() {
            for (agent, delivery) in &message.to {
                let past = |at: Option<i64>, grace: i64| at.is_some_and(|at| at.max(delivery.since) + grace < self.now);
                // What was held at its deadline is looked at again within a second. Everything else happens at its moment.
                let was_held = message.expires.is_some_and(|at| at < delivery.since);
                let is_overdue = match delivery.state {
                    State::Pending => !delivery.is_taken() && past(message.expires, if was_held { 1000 } else { 0 }),
                    State::Delivered => {
                        message.is_question && !delivery.is_over && past(message.expires, 0)
                            || past(delivery.tell_at, 0)
                    }
                    _ => false,
                };
                if is_overdue {
                    return Some(format!("something of message {index} to {} is overdue", NAMES[*agent]));
                }
            }
        }
        let due = room.reminders.iter().position(|reminder| reminder.as_ref().is_some_and(|r| r.due < self.now));
        due.map(|index| format!("reminder {index} should have been sent"))
    }
}
