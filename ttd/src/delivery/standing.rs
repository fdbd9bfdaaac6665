//! How a message stands with its recipients, and why it waits, for those who read.

use std::time::Duration;

use tt_proto::AgentId;
use tt_proto::delivery::{DeliveryState, Recipient, WaitReason, Waits};
use tt_proto::message::DeliveryHint;
use tt_proto::room::{Liveness, MemberStatus};
use tt_proto::session::SessionStatus;
use tt_rules::{Now, Room, names};
use tt_store::StoredDelivery;

use super::plan::{self, Doing, Step};
use crate::listeners::Listeners;
use crate::sessions::Sessions;

/// Why a message waits for a recipient at this moment.
pub fn waits(
    room: &Room,
    agent_id: &AgentId,
    hint: DeliveryHint,
    is_taken: bool,
    listeners: &Listeners,
    sessions: &Sessions,
    now: Now,
) -> Waits {
    let (doing, since) = doing(room, agent_id, listeners, sessions, now);
    let until = room.member(agent_id).and_then(|member| member.quiet_until);
    let recipient = plan::Recipient { doing, is_quiet: until.is_some_and(|until| until > now.deadline) };
    let because = match plan::step(hint, recipient, is_taken) {
        Step::HandOver(_) => WaitReason::OnItsWay,
        Step::Wait(because) => because,
    };
    Waits { because, text: text(because, since) }
}

/// How a message stands with one recipient.
pub fn of_message(
    room: &Room,
    delivery: &StoredDelivery,
    listeners: &Listeners,
    sessions: &Sessions,
    now: Now,
) -> Recipient {
    let row = &delivery.row;
    let inbox = (room.room_id.clone(), row.recipient.clone());
    let is_taken = listeners.holder(&inbox, row.event_seq).is_some();
    let is_open = row.state == DeliveryState::Pending;
    let waits = is_open.then(|| waits(room, &row.recipient, row.delivery_hint, is_taken, listeners, sessions, now));
    Recipient {
        display_name: names::unique_name(room, &row.recipient).map(str::to_owned),
        agent_id: row.recipient.clone(),
        state: row.state,
        surface: delivery.surface,
        delivered_at: delivery
            .delivered_at
            .filter(|_| matches!(row.state, DeliveryState::Delivered | DeliveryState::Answered)),
        answered_by: delivery.answered_by,
        is_over: row.is_over,
        is_late: delivery.is_late,
        waits,
    }
}

/// What a member does, and for how long as far as that is known.
fn doing(
    room: &Room,
    agent_id: &AgentId,
    listeners: &Listeners,
    sessions: &Sessions,
    now: Now,
) -> (Doing, Option<Duration>) {
    let Some(member) = room.member(agent_id) else { return (Doing::Removed, None) };
    if !member.status.is_member() {
        return (Doing::Removed, None);
    }
    if let Some(surface) = listeners.listening(&(room.room_id.clone(), agent_id.clone())) {
        return (Doing::Listening(surface), None);
    }
    match member.status {
        MemberStatus::Away => return (Doing::Away, None),
        MemberStatus::Gone => return (Doing::Gone, None),
        _ if member.liveness == Liveness::Gone && !member.is_person() => return (Doing::Gone, None),
        _ => {}
    }
    let Some(status) = sessions.status_of(agent_id) else { return (Doing::Unknown, None) };
    let doing = match status.status {
        // What was busy long ago may be anything by now.
        SessionStatus::Busy if status.doubted => Doing::Unknown,
        SessionStatus::Busy => Doing::Busy,
        SessionStatus::Idle => Doing::Idle,
        SessionStatus::Asking => Doing::Asking,
        SessionStatus::Gone => Doing::Gone,
        SessionStatus::Unknown => Doing::Unknown,
    };
    (doing, status.since.map(|since| now.lease.since(since)))
}

/// The reason in words.
fn text(because: WaitReason, since: Option<Duration>) -> String {
    let since =
        since.filter(|since| since.as_secs() >= 1).map_or_else(String::new, |since| format!(" for {}", short(since)));
    match because {
        WaitReason::OnItsWay => "is being handed over".to_owned(),
        WaitReason::Working => format!("busy{since}: comes with its next tool call"),
        WaitReason::UntilTurnEnds => format!("busy{since}: comes at the end of its turn"),
        WaitReason::Idle => format!("idle{since}: comes with the next thing it does"),
        WaitReason::Asking => format!("asks its user something{since}: comes after that"),
        WaitReason::Quiet => format!("idle{since} and does not want to be disturbed"),
        WaitReason::Unknown => "nothing is known of what it does: comes with its next call".to_owned(),
        WaitReason::Away => "away: comes when it opens a terminal".to_owned(),
        WaitReason::Gone => "gone: comes if its session is resumed".to_owned(),
        WaitReason::Removed => "not a member any more: comes if it joins again".to_owned(),
        WaitReason::Draft => "a person is typing there".to_owned(),
        WaitReason::WokenTooOften => "was woken as often as it may be in an hour".to_owned(),
        WaitReason::NoWay | WaitReason::Other => "no way to it is known".to_owned(),
    }
}

/// A duration in its largest unit.
fn short(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
