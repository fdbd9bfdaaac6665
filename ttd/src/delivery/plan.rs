//! What is to be done with the messages that wait for a recipient: hand these over by this way now, or wait for this evidence
//! or that moment, because. Pure: the recipient is known by what evidence says, and the ways by what they say they can do.

use std::cmp::Reverse;
use std::time::Duration;

use tt_proto::delivery::{WaitReason, WayName};
use tt_proto::message::{DeliveryHint, MAX_BATCH};
use tt_proto::policy::Policy;
use tt_rules::{DeadlineTime, LeaseTime, MAX_ATTEMPTS, Now, Wakes};

use super::wakes::Woken;

/// What the session of a recipient does, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Busy,
    /// It has finished its turn.
    Idle,
    /// A question to its user is open.
    Asking,
    Unknown,
    Gone,
}

/// Whether a recipient is in a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum There {
    Yes,
    /// A person whose terminals are closed.
    Away,
    /// Its process ended.
    Gone,
    /// It left the room, or was removed.
    Removed,
}

/// What a way can do for a recipient at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Nothing.
    No,
    /// A surface waits for messages.
    Listens,
    /// The session calls, and is handed messages with the answer: now, or when it does.
    Calls(Option<Opening>),
    /// The daemon can begin: what is handed over reaches the session by itself.
    Starts(Abilities),
}

/// The moment of a session at which it calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// It works on: what is for later stays.
    MidTurn,
    /// It begins: a prompt, a conversation that was opened.
    Fresh,
    /// Its turn ends, unless it is held. `was_held`: the last end was.
    TurnEnd { was_held: bool },
}

/// Into which sessions a way hands messages over by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Abilities {
    pub idle: bool,
    /// It breaks off the turn of one that is busy, which goes on with the message.
    pub busy: bool,
    /// It resumes one that is gone.
    pub gone: bool,
}

/// A way, as far as a plan depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WayFacts {
    pub name: WayName,
    pub reach: Reach,
    /// It failed, or said that it cannot now: it is left out until then.
    pub left_out: Option<LeftOut>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut {
    pub until: LeaseTime,
    pub because: WaitReason,
}

/// A recipient in one of its rooms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomFacts {
    pub there: There,
    pub quiet_until: Option<DeadlineTime>,
    pub settings: Settings,
    /// The ways to it that are not switched off in this room.
    pub ways: Vec<WayFacts>,
}

impl RoomFacts {
    /// The best way that wakes the recipient's session while it is idle.
    pub fn woken_by(&self) -> Option<WayName> {
        let wakes = |way: &&WayFacts| matches!(way.reach, Reach::Starts(Abilities { idle: true, .. }));
        self.ways.iter().find(wakes).map(|way| way.name)
    }
}

/// What can be set of a plan, for each room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// A session that was busy for this long without a newer sign is doubted.
    pub busy_doubt: Duration,
    /// How often an hour agents may wake a session.
    pub max_wakes: usize,
    /// What an agent sends to interrupt breaks off a turn too.
    pub agents_may_break: bool,
    /// How many messages go into one block.
    pub max_batch: usize,
    /// How long a session may be idle while something listens for it and takes nothing.
    pub pull_grace: Duration,
}

impl Settings {
    pub fn of(policy: &Policy) -> Self {
        let Policy { busy_doubt, max_wakes, max_batch, agents_may_break, pull_grace, .. } = *policy;
        Self { busy_doubt, max_wakes, agents_may_break, max_batch: max_batch.clamp(1, MAX_BATCH), pull_grace }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::of(&Policy::default())
    }
}

/// A recipient: one session, in all of its rooms.
#[derive(Debug, Clone)]
pub struct Recipient<'a> {
    pub doing: Doing,
    /// The date of the newest sign of that.
    pub since: Option<LeaseTime>,
    pub rooms: &'a [RoomFacts],
    pub woken: &'a Woken,
}

/// A message that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    pub event_seq: i64,
    /// Which of the recipient's rooms it is in.
    pub room: usize,
    pub hint: DeliveryHint,
    pub from_person: bool,
    pub wakes: Wakes,
    /// A surface has it already.
    pub is_taken: bool,
    /// How many hand-overs have ended of which nothing showed that they arrived.
    pub attempts: u32,
    /// When it was sent; none if that does not matter.
    pub sent_at: Option<LeaseTime>,
    /// How much of a block it takes.
    pub bytes: usize,
}

/// What is to be done now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    pub hand_over: Option<HandOver>,
    /// The other messages, by their place, and what each waits for.
    pub waits: Vec<(usize, Wait)>,
}

/// Messages to be handed over, the most urgent first, and of those the oldest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandOver {
    pub way: WayName,
    /// By their place.
    pub messages: Vec<usize>,
    /// It wakes an idle session, or keeps one from becoming idle, and counts as such.
    pub wakes: Option<Wakes>,
    /// It breaks off a turn.
    pub breaks_off: bool,
}

/// What a message waits for. With a moment, that is when to look again; evidence that changes is a reason at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub because: WaitReason,
    pub until: Option<LeaseTime>,
}

impl Wait {
    const fn because(because: WaitReason) -> Self {
        Self { because, until: None }
    }
}

impl Plan {
    /// When something may be different although nothing happened.
    pub fn look_again(&self) -> Option<LeaseTime> {
        self.waits.iter().filter_map(|(_, wait)| wait.until).min()
    }

    /// What one of the messages waits for. None if it is handed over.
    pub fn wait_of(&self, place: usize) -> Option<Wait> {
        self.waits.iter().find(|(waiting, _)| *waiting == place).map(|(_, wait)| *wait)
    }
}

/// What is to be done with one message, if it were alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    HandOver {
        way: WayName,
        wakes: bool,
        breaks_off: bool,
    },
    /// It wakes nobody, and comes with what does.
    Along,
    Wait(Wait),
}

/// Decides what to hand over now, and by which way. One block has at most so many bytes.
pub fn plan(messages: &[Message], recipient: &Recipient<'_>, max_bytes: usize, now: Now) -> Plan {
    let steps: Vec<Step> = messages.iter().map(|message| step(message, recipient, now)).collect();
    let best = steps.iter().filter_map(|step| match step {
        Step::HandOver { way, wakes, breaks_off } => Some((*way, *wakes, *breaks_off)),
        _ => None,
    });
    let Some((way, wakes, breaks_off)) = best.min_by_key(|(way, ..)| *way) else {
        let wait = |step: &Step| match step {
            Step::Wait(wait) => *wait,
            _ => Wait::because(WaitReason::Idle),
        };
        return Plan { hand_over: None, waits: steps.iter().map(wait).enumerate().collect() };
    };
    let has_way = |message: &Message| recipient.rooms[message.room].ways.iter().any(|facts| facts.name == way);
    let goes = |(message, step): (&Message, &Step)| match step {
        Step::HandOver { way: of_this, .. } => *of_this == way,
        Step::Along => wakes && has_way(message),
        Step::Wait(_) => false,
    };
    let mut chosen: Vec<usize> =
        (0..messages.len()).filter(|place| goes((&messages[*place], &steps[*place]))).collect();
    let cause = chosen.iter().filter(|place| matches!(steps[**place], Step::HandOver { .. }));
    let cause = cause.map(|place| messages[*place].wakes).max().filter(|_| wakes);
    let order = |place: &usize| (Reverse(messages[*place].hint), messages[*place].event_seq);
    // What only comes along takes the room that is left.
    chosen.sort_by_key(|place| (matches!(steps[*place], Step::Along), order(place)));
    chosen.truncate(fitting(&chosen, messages, recipient.rooms, max_bytes));
    chosen.sort_by_key(order);
    let wait = |(place, step): (usize, &Step)| match step {
        _ if chosen.contains(&place) => None,
        Step::Wait(wait) => Some((place, *wait)),
        // It comes with the next block.
        Step::HandOver { .. } | Step::Along => Some((place, Wait::because(WaitReason::Working))),
    };
    let waits = steps.iter().enumerate().filter_map(wait).collect();
    Plan { hand_over: Some(HandOver { way, messages: chosen, wakes: cause, breaks_off }), waits }
}

/// How many of these fit into one block, in their order: the first always does, and once one does not, none after it does.
fn fitting(places: &[usize], messages: &[Message], rooms: &[RoomFacts], max_bytes: usize) -> usize {
    let mut bytes = 0;
    let fits = |(count, place): (usize, &usize)| {
        let message = &messages[*place];
        bytes += message.bytes;
        count == 0 || count < rooms[message.room].settings.max_batch && bytes <= max_bytes
    };
    places.iter().enumerate().map(fits).take_while(|fits| *fits).count()
}

/// Until when a message is left to what listens for it, although its session is idle. None while that need not be looked at: who
/// listens takes at once, unless it was stopped or hangs.
pub fn left_to_listener_until(message: &Message, recipient: &Recipient<'_>) -> Option<LeaseTime> {
    let since = recipient.since.filter(|_| recipient.doing == Doing::Idle)?;
    Some(since.max(message.sent_at?) + recipient.rooms[message.room].settings.pull_grace)
}

fn step(message: &Message, recipient: &Recipient<'_>, now: Now) -> Step {
    let room = &recipient.rooms[message.room];
    if message.is_taken {
        return Step::Wait(Wait::because(WaitReason::OnItsWay));
    }
    if room.there == There::Removed {
        return Step::Wait(Wait::because(WaitReason::Removed));
    }
    let hand_over = |way| Step::HandOver { way, wakes: false, breaks_off: false };
    if let Some(way) = room.ways.iter().find(|way| way.reach == Reach::Listens)
        && left_to_listener_until(message, recipient).is_none_or(|until| until > now.lease)
    {
        return hand_over(way.name);
    }
    let calls = |way: &WayFacts| match way.reach {
        Reach::Calls(Some(opening)) => Some((way.name, opening)),
        _ => None,
    };
    // What the session itself does now is better evidence than what was heard of it before.
    match room.ways.iter().find_map(calls) {
        Some((_, Opening::MidTurn)) if message.hint == DeliveryHint::Idle => {
            return Step::Wait(Wait::because(WaitReason::UntilTurnEnds));
        }
        Some((way, Opening::MidTurn | Opening::Fresh)) => return hand_over(way),
        // The next thing that it does brings it.
        Some((_, Opening::TurnEnd { was_held: true })) => return Step::Wait(Wait::because(WaitReason::Idle)),
        Some((way, Opening::TurnEnd { was_held: false })) => {
            return wake(message, recipient, now, std::iter::once((way, None)));
        }
        None => {}
    }
    let starts = |able: fn(&Abilities) -> bool| {
        room.ways.iter().filter(move |way| matches!(&way.reach, Reach::Starts(abilities) if able(abilities)))
    };
    let gone = || match starts(|able| able.gone).find(|way| way.left_out.is_none_or(|out| out.until <= now.lease)) {
        Some(way) => hand_over(way.name),
        None => Step::Wait(Wait::because(WaitReason::Gone)),
    };
    match (room.there, recipient.doing) {
        (There::Away, _) => Step::Wait(Wait::because(WaitReason::Away)),
        (There::Gone, _) | (_, Doing::Gone) => gone(),
        (_, Doing::Asking) => Step::Wait(Wait::because(WaitReason::Asking)),
        (_, Doing::Unknown) => Step::Wait(Wait::because(WaitReason::Unknown)),
        // It may have arrived each time: what starts by itself repeats it no more, and the next thing that the session does brings it.
        (_, Doing::Idle) if message.attempts >= MAX_ATTEMPTS && starts(|able| able.idle).next().is_some() => {
            Step::Wait(Wait::because(WaitReason::Unconfirmed))
        }
        (_, Doing::Busy) => busy(message, recipient, now, starts(|able| able.busy)),
        (_, Doing::Idle) => wake(message, recipient, now, starts(|able| able.idle).map(|way| (way.name, way.left_out))),
    }
}

/// A message for a session that works.
fn busy<'a>(
    message: &Message,
    recipient: &Recipient<'_>,
    now: Now,
    mut ways: impl Iterator<Item = &'a WayFacts>,
) -> Step {
    let room = &recipient.rooms[message.room];
    let doubted_at = recipient.since.map(|since| since + room.settings.busy_doubt);
    if doubted_at.is_none_or(|at| at <= now.lease) {
        // What was busy long ago may be anything by now.
        return Step::Wait(Wait::because(WaitReason::Unknown));
    }
    let may_break = message.from_person || room.settings.agents_may_break;
    if message.hint == DeliveryHint::Interrupt
        && may_break
        && let Some(way) = ways.find(|way| way.left_out.is_none_or(|out| out.until <= now.lease))
    {
        return Step::HandOver { way: way.name, wakes: false, breaks_off: true };
    }
    let because = if message.hint == DeliveryHint::Idle { WaitReason::UntilTurnEnds } else { WaitReason::Working };
    Step::Wait(Wait { because, until: doubted_at })
}

/// A message for a session that is idle, or is about to be: whether it may be woken for it, and by which of these ways.
fn wake(
    message: &Message,
    recipient: &Recipient<'_>,
    now: Now,
    ways: impl Iterator<Item = (WayName, Option<LeftOut>)>,
) -> Step {
    let room = &recipient.rooms[message.room];
    if message.wakes == Wakes::Never {
        return Step::Along;
    }
    if let Some(until) = room.quiet_until.filter(|until| *until > now.deadline) {
        let until = Some(now.lease + until.since(now.deadline));
        return Step::Wait(Wait { because: WaitReason::Quiet, until });
    }
    if let Some(until) = recipient.woken.too_often(message.wakes, room.settings.max_wakes, now.lease) {
        return Step::Wait(Wait { because: WaitReason::WokenTooOften, until: Some(until) });
    }
    let mut left_out: Option<LeftOut> = None;
    for (way, out) in ways {
        match out.filter(|out| out.until > now.lease) {
            None => return Step::HandOver { way, wakes: true, breaks_off: false },
            // The reason of the best way, until any of them can be tried again.
            Some(out) => {
                let first = left_out.get_or_insert(out);
                first.until = first.until.min(out.until);
            }
        }
    }
    if let Some(LeftOut { until, because }) = left_out {
        return Step::Wait(Wait { because, until: Some(until) });
    }
    let calls = room.ways.iter().any(|way| matches!(way.reach, Reach::Calls(_)));
    Step::Wait(Wait::because(if calls { WaitReason::Idle } else { WaitReason::NoWay }))
}

#[cfg(test)]
mod tests;
