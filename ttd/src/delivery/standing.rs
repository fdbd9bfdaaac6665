//! How a message stands with its recipients, and why it waits, for those who read.

use std::time::Duration;

use tt_proto::delivery::{DeliveryState, Recipient, WaitReason, Waits};
use tt_proto::message::{DeliveryHint, MAX_BATCH_BYTES};
use tt_proto::{AgentId, WallTime};
use tt_rules::{LeaseTime, MAX_ATTEMPTS, Now, Room, Wakes, names};
use tt_store::StoredDelivery;

use super::plan;
use super::recipients::Recipients;

/// A message, as far as it matters why it waits.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    pub hint: DeliveryHint,
    pub from_person: bool,
    pub wakes: Wakes,
    /// A surface has it, or it is being handed over.
    pub is_taken: bool,
    /// How many hand-overs have ended of which nothing showed that they arrived.
    pub attempts: u32,
    /// When it was sent; none if that is now.
    pub sent_at: Option<LeaseTime>,
}

/// Why a message waits for a recipient at this moment.
pub fn waits(room: &Room, agent_id: &AgentId, message: Waiting, recipients: &Recipients, now: Now) -> Waits {
    let (doing, since) = recipients.doing(agent_id);
    let facts = [recipients.in_room(room, agent_id, None, now)];
    let woken = recipients.told().woken(agent_id);
    let recipient = plan::Recipient { doing, since, rooms: &facts, woken: &woken };
    let Waiting { hint, from_person, wakes, is_taken, attempts, sent_at } = message;
    let message =
        plan::Message { event_seq: 0, room: 0, hint, from_person, wakes, is_taken, attempts, sent_at, bytes: 0 };
    let plan = plan::plan(&[message], &recipient, MAX_BATCH_BYTES, now);
    let because = plan.wait_of(0).map_or(WaitReason::OnItsWay, |wait| wait.because);
    let since = since.map(|since| now.lease.since(since));
    if plan.hand_over.is_some_and(|hand_over| hand_over.wakes.is_some()) {
        return Waits { because, text: format!("idle{}: wakes it now", for_long(since)) };
    }
    let harness = room.member(agent_id).and_then(|member| member.harness.as_deref());
    Waits { because, text: text(because, since, harness) }
}

/// How a message stands with one recipient. `from_person` and `sent_at` are the message's.
pub fn of_message(
    room: &Room,
    delivery: &StoredDelivery,
    from_person: bool,
    sent_at: WallTime,
    recipients: &Recipients,
    now: Now,
) -> Recipient {
    let row = &delivery.row;
    let inbox = (room.room_id.clone(), row.recipient.clone());
    let is_taken = row.is_taken() || recipients.listeners().holder(&inbox, row.event_seq).is_some();
    let (hint, wakes, attempts) = (row.delivery_hint, row.wakes, row.attempts);
    let sent_at = Some(now.to_lease(sent_at));
    let message = Waiting { hint, from_person, wakes, is_taken, attempts, sent_at };
    let is_open = row.state == DeliveryState::Pending;
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
        waits: is_open.then(|| waits(room, &row.recipient, message, recipients, now)),
    }
}

/// The reason in words.
fn text(because: WaitReason, since: Option<Duration>, harness: Option<&str>) -> String {
    let since = for_long(since);
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
        WaitReason::Unconfirmed => {
            format!(
                "idle{since}; was handed over {MAX_ATTEMPTS} times and nothing shows that it arrived: comes with the next thing it does"
            )
        }
        WaitReason::NoWay | WaitReason::Other => {
            let hooks = harness.map_or_else(String::new, |harness| format!(" (tt install {harness} adds hooks)"));
            format!("idle{since}, and no way wakes it: comes with its next call{hooks}")
        }
    }
}

fn for_long(since: Option<Duration>) -> String {
    since.filter(|since| since.as_secs() >= 1).map_or_else(String::new, |since| format!(" for {}", short(since)))
}

/// A duration in its largest unit.
fn short(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}
