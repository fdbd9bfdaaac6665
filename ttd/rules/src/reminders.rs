//! Reminders: messages that are written now and sent later, once or again and again.

use std::time::Duration;

use tt_proto::event::EventType;
use tt_proto::handoff::RawJson;
use tt_proto::message::MessageSent;
use tt_proto::reminder::{MAX_REMINDERS, MAX_TIMES, MIN_EVERY};
use tt_proto::{AgentId, Error, ErrorCode, ReminderId};

use crate::command::NewReminder;
use crate::delivery::NewDelivery;
use crate::room::{EventDraft, Member, Room};
use crate::sending::{check_ahead, check_body};
use crate::time::{DeadlineTime, Now};
use crate::wakes::Wakes;
use crate::{names, notices};

/// A reminder as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReminderRow {
    pub reminder_id: ReminderId,
    pub from: AgentId,
    pub to: AgentId,
    pub body: String,
    pub due_at: DeadlineTime,
    pub every: Option<Duration>,
    /// How many times it is still sent.
    pub times: u32,
}

/// What a command does to the reminders of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReminderChange {
    /// Add it, or replace the one with its id.
    Set(ReminderRow),
    Remove(ReminderId),
}

impl ReminderChange {
    /// The reminder it is about, and when that is due now.
    pub fn timer(&self) -> (&ReminderId, Option<DeadlineTime>) {
        match self {
            ReminderChange::Set(row) => (&row.reminder_id, Some(row.due_at)),
            ReminderChange::Remove(reminder_id) => (reminder_id, None),
        }
    }
}

/// Sets a reminder.
pub(crate) fn add(room: &Room, me: &AgentId, new: &NewReminder, count: usize, now: Now) -> Result<ReminderRow, Error> {
    room.open()?;
    room.active_member(me)?;
    check_body(&new.body)?;
    check_ahead("in_ms", Some(new.delay))?;
    check_ahead("every_ms", new.every)?;
    let bad = |message: String| Error::new(ErrorCode::InvalidInput, message);
    if new.every.is_some_and(|every| every < MIN_EVERY) {
        return Err(bad(format!("a reminder cannot be repeated more often than every {} s", MIN_EVERY.as_secs())));
    }
    if !(1..=MAX_TIMES).contains(&new.times) {
        return Err(bad(format!("a reminder is sent 1 to {MAX_TIMES} times")));
    }
    if new.every.is_none() && new.times > 1 {
        return Err(bad("a reminder that is sent several times needs a pause between them".into()).hint("add --every"));
    }
    if count >= MAX_REMINDERS {
        return Err(bad(format!("you have {count} reminders in this room, and no more are kept"))
            .hint("cancel some: tt remind list, tt remind cancel"));
    }
    let to = match &new.to {
        None => me.clone(),
        Some(name) => {
            let to = names::resolve_recipient(room, me, name)?;
            if !to.status.is_member() {
                let message = format!("{} is not a member of this room any more", to.agent_id);
                return Err(Error::new(ErrorCode::UnknownRecipient, message).detail("agent_id", to.agent_id.as_str()));
            }
            to.agent_id.clone()
        }
    };
    Ok(ReminderRow {
        reminder_id: new.reminder_id.clone(),
        from: me.clone(),
        to,
        body: new.body.clone(),
        due_at: now.deadline + new.delay,
        every: new.every,
        times: new.times,
    })
}

/// Cancels a reminder of the caller, or for it.
pub(crate) fn cancel(
    room: &Room,
    me: &AgentId,
    reminder_id: &ReminderId,
    reminder: Option<&ReminderRow>,
) -> Result<ReminderChange, Error> {
    room.active_member(me)?;
    match reminder.filter(|reminder| reminder.from == *me || reminder.to == *me) {
        Some(reminder) => Ok(ReminderChange::Remove(reminder.reminder_id.clone())),
        None => Err(Error::new(ErrorCode::UnknownReminder, "there is no such reminder of yours in this room")
            .detail("reminder_id", reminder_id.as_str())),
    }
}

/// Sends a reminder that is due. Those of a series that fell due while no daemon ran come as one, marked as late.
pub(crate) fn due(room: &mut Room, reminder: &ReminderRow, now: Now) -> (ReminderChange, Option<NewDelivery>) {
    if reminder.due_at > now.deadline {
        return (ReminderChange::Set(reminder.clone()), None);
    }
    let is_member = |agent: &AgentId| room.member(agent).is_some_and(|member| member.status.is_member());
    if !is_member(&reminder.from) || !is_member(&reminder.to) {
        return (ReminderChange::Remove(reminder.reminder_id.clone()), None);
    }
    let late = now.deadline.since(reminder.due_at);
    let payload = MessageSent {
        body: reminder.body.clone(),
        reminder_id: Some(reminder.reminder_id.clone()),
        late_ms: notices::late_ms(late),
        ..MessageSent::default()
    };
    // It is nobody's call at this moment: on whose account it wakes shows who set it.
    let from_person = room.member(&reminder.from).is_some_and(Member::is_person);
    let wakes = if from_person { Wakes::ByPerson } else { Wakes::ByAgent };
    let mut event = EventDraft::new(EventType::MessageSent, room.turn_id, &reminder.from);
    event.to = Some(reminder.to.clone());
    event.payload = RawJson::of(&payload).ok();
    room.events.push(event);
    let event = room.events.len() - 1;
    let opened = NewDelivery { event, recipient: reminder.to.clone(), wakes, ..NewDelivery::default() };
    (next(reminder, late), Some(opened))
}

/// What is left of a reminder after it was sent so late.
fn next(reminder: &ReminderRow, late: Duration) -> ReminderChange {
    let remove = || ReminderChange::Remove(reminder.reminder_id.clone());
    let Some(every) = reminder.every.filter(|every| !every.is_zero()) else { return remove() };
    let missed = u32::try_from(late.as_millis() / every.as_millis()).unwrap_or(u32::MAX);
    let sent = missed.saturating_add(1);
    match reminder.times.checked_sub(sent) {
        None | Some(0) => remove(),
        Some(times) => {
            ReminderChange::Set(ReminderRow { due_at: reminder.due_at + every * sent, times, ..reminder.clone() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{id, now, room};

    fn new(delay: u64, every: Option<u64>, times: u32) -> NewReminder {
        let (delay, every) = (Duration::from_secs(delay), every.map(Duration::from_secs));
        NewReminder { reminder_id: "r".into(), body: "look at CI".into(), to: None, delay, every, times }
    }

    #[test]
    fn a_reminder_that_makes_no_sense_is_refused() {
        let room = room(&["a", "b"]);
        let refused = |new: NewReminder, count| add(&room, &id("a"), &new, count, now(0)).map_err(|e| e.code);
        assert!(refused(new(5, None, 1), 0).is_ok());
        for bad in [new(0, None, 1), new(5, Some(1), 3), new(5, None, 3), new(5, Some(60), 0), new(5, Some(60), 1001)] {
            assert_eq!(refused(bad.clone(), 0), Err(ErrorCode::InvalidInput), "{bad:?}");
        }
        assert_eq!(refused(new(u64::MAX / 1000, None, 1), 0), Err(ErrorCode::InvalidInput), "for ever");
        assert_eq!(refused(new(5, None, 1), MAX_REMINDERS), Err(ErrorCode::InvalidInput));
        let blank = NewReminder { body: " ".into(), ..new(5, None, 1) };
        assert_eq!(refused(blank, 0), Err(ErrorCode::InvalidBody));
        let unknown = NewReminder { to: Some("nobody".into()), ..new(5, None, 1) };
        assert_eq!(refused(unknown, 0), Err(ErrorCode::UnknownRecipient));
        let mut without_b = room.clone();
        without_b.member_mut(&id("b")).unwrap().status = tt_proto::room::MemberStatus::Kicked;
        let to_b = NewReminder { to: Some("b".into()), ..new(5, None, 1) };
        assert_eq!(add(&without_b, &id("a"), &to_b, 0, now(0)).unwrap_err().code, ErrorCode::UnknownRecipient);
    }

    #[test]
    fn a_series_keeps_its_rhythm_and_ends() {
        let mut room = room(&["a"]);
        let reminder = add(&room, &id("a"), &new(60, Some(60), 3), 0, now(0)).unwrap();
        assert_eq!(due(&mut room, &reminder, now(59)), (ReminderChange::Set(reminder.clone()), None), "too early");
        let (change, opened) = due(&mut room, &reminder, now(60));
        assert_eq!(opened.unwrap().recipient, id("a"));
        let ReminderChange::Set(second) = change else { panic!("two more are to come") };
        assert_eq!((second.due_at, second.times), (now(120).deadline, 2));
        let (change, opened) = due(&mut room, &second, now(500));
        assert!(opened.is_some() && change == ReminderChange::Remove("r".into()), "the last two as one");
        let payload = room.events.last().unwrap().payload.clone().unwrap();
        assert!(payload.as_str().contains(r#""late_ms":380000"#), "{payload:?}");
    }

    #[test]
    fn a_reminder_for_or_from_somebody_who_left_is_dropped() {
        let mut room = room(&["a", "b"]);
        let to_b = NewReminder { to: Some("b".into()), ..new(1, None, 1) };
        let reminder = add(&room, &id("a"), &to_b, 0, now(0)).unwrap();
        room.member_mut(&id("b")).unwrap().status = tt_proto::room::MemberStatus::Left;
        assert_eq!(due(&mut room, &reminder, now(1)), (ReminderChange::Remove("r".into()), None));
        assert!(room.events.is_empty());
    }

    #[test]
    fn only_those_it_concerns_cancel_a_reminder() {
        let room = room(&["a", "b", "c"]);
        let to_b = NewReminder { to: Some("b".into()), ..new(1, None, 1) };
        let reminder = add(&room, &id("a"), &to_b, 0, now(0)).unwrap();
        let cancelled = |who: &str| cancel(&room, &id(who), &"r".into(), Some(&reminder)).map_err(|e| e.code);
        assert!(cancelled("a").is_ok() && cancelled("b").is_ok());
        assert_eq!(cancelled("c"), Err(ErrorCode::UnknownReminder));
        assert_eq!(cancel(&room, &id("a"), &"x".into(), None).unwrap_err().code, ErrorCode::UnknownReminder);
    }
}
