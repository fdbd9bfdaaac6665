//! Describes rooms, turns and events in text for people: names instead of ids, times as "3m ago", and no control
//! characters from other members.

use std::time::Duration;

use tt_proto::escape::escape_text;
use tt_proto::event::{Event, EventType};
use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::message::{DeliveryHint, MessageSent};
use tt_proto::requests::RoomState;
use tt_proto::room::{DerivedState, Liveness, Member, MemberStatus, Room, StickState};
use tt_proto::{AgentId, WallTime};

use super::Style;
use super::layout::{columns, padded};
use super::names::{Names, name};

/// The current time, for "3m ago".
#[expect(clippy::disallowed_methods, reason = "a client has no daemon's clock; this time is only displayed")]
pub(crate) fn now() -> WallTime {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    WallTime::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// `12s`, `3m`, `2h`, `4d`: the largest unit that fits.
pub(crate) fn span(duration: Duration) -> String {
    match duration.as_secs() {
        s if s < 60 => format!("{s}s"),
        s if s < 3600 => format!("{}m", s / 60),
        s if s < 86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

pub(crate) fn ago(at: WallTime, now: WallTime) -> String {
    match now.since(at) {
        short if short < Duration::from_secs(60) => "just now".into(),
        long => format!("{} ago", span(long)),
    }
}

/// How many members that are gone are listed.
const MAX_GONE_SHOWN: usize = 3;

/// Describes a room: the stick, the handoff and the members.
pub(crate) fn state(state: &RoomState, me: &AgentId, style: &Style, all: bool) -> String {
    let (room, members, now) = (&state.room, &state.members, now());
    let who = |agent: &AgentId| {
        if agent == me { format!("{} (you)", name(agent, members)) } else { name(agent, members) }
    };
    let mut text = style.row("", &style.bold(&escape_text(&room.canonical_path)));
    let turn = match (room.turn_id, state.turn_started_at) {
        (turn, Some(since)) => format!("turn {turn}, taken {}", ago(since, now)),
        (turn, None) => format!("turn {turn}"),
    };
    let line = match (room.state, &room.owner, &room.reserved_for) {
        (StickState::Owned, Some(owner), _) => format!("{} holds the stick: {turn}", style.bold(&who(owner))),
        (StickState::Reserved, _, Some(agent)) => {
            format!("{} has the stick next, after {turn}", style.bold(&who(agent)))
        }
        (StickState::Closed, ..) => "the room is closed".into(),
        _ if room.turn_id == 0 => "nobody holds the stick: no turn yet".into(),
        _ => format!("nobody holds the stick: turn {} is over", room.turn_id),
    };
    text.push_str(&style.row("  ", &line));
    match (state.takeover.reason, room.lease_expires_at, room.claim_expires_at) {
        (Some(reason), ..) => {
            let why = format!("may be taken over ({})", reason.as_str().replace('_', " "));
            text.push_str(&style.row("  ", &format!("{}: tt take --reason \"…\"", style.warn(&why))));
        }
        (None, Some(end), _) if end > now => {
            let left = format!("may be taken over after {} without a sign of life", span(end.since(now)));
            text.push_str(&style.row("  ", &style.dim(&left)));
        }
        (None, None, Some(end)) if end > now => {
            let left = format!("may be taken over if it is not there in {}", span(end.since(now)));
            text.push_str(&style.row("  ", &style.dim(&left)));
        }
        _ => {}
    }
    if room.derived_state == Some(DerivedState::Dormant) {
        text.push_str(&style.row("  ", &style.dim("nobody is here; resume with tt join")));
    } else if !members.iter().any(|member| member.agent_id == *me && member.status == MemberStatus::Active) {
        text.push_str(&style.row("  ", &style.dim("you are not a member; become one with tt join")));
    }
    let from = state.handoff_from.as_ref().map(|agent| format!(" from {}", who(agent))).unwrap_or_default();
    for (then, handoff) in [("", &state.current_handoff), (", not picked up yet", &state.pending_handoff)] {
        if let Some(handoff) = handoff {
            text.push('\n');
            text.push_str(&style.row("", &style.dim(&format!("handoff{from}{then}"))));
            text.push_str(&self::handoff(handoff, "  ", style));
        }
    }
    text.push('\n');
    text.push_str(&table(state, me, &who, style, all));
    text
}

/// The members in the order in which the stick will go: the holder, the waiters, the other active members, and those who are
/// gone.
fn table(state: &RoomState, me: &AgentId, who: &dyn Fn(&AgentId) -> String, style: &Style, all: bool) -> String {
    let (room, now) = (&state.room, now());
    let place = |member: &Member| state.queue.iter().position(|agent| *agent == member.agent_id);
    let rank = |member: &Member| match (member.status, place(member)) {
        _ if room.owner.as_ref() == Some(&member.agent_id) => (0, 0, 0),
        _ if room.reserved_for.as_ref() == Some(&member.agent_id) => (1, 0, 0),
        (MemberStatus::Active, Some(place)) => (2, place, 0),
        (MemberStatus::Active, None) => (3, 0, 0),
        // The member seen last comes first.
        _ => (4, 0, -member.last_seen_at.as_millis()),
    };
    let mut members: Vec<&Member> = state.members.iter().collect();
    members.sort_by_key(|member| (rank(member), member.ordinal));
    let mut gone = 0;
    let shown: Vec<&Member> = members
        .into_iter()
        .filter(|member| {
            gone += usize::from(member.status == MemberStatus::Gone && rank(member).0 == 4);
            all || rank(member).0 < 4 || (member.status == MemberStatus::Gone && gone <= MAX_GONE_SHOWN)
        })
        .collect();
    let width = shown.iter().map(|m| columns(&who(&m.agent_id))).filter(|width| *width <= 24).max().unwrap_or(8).max(8);
    let doing: Vec<String> = shown.iter().map(|member| doing(member, room, place(member), style, now)).collect();
    let doing_width = doing.iter().map(|doing| columns(doing)).max().unwrap_or(0);
    let mut text = String::new();
    for (member, doing) in shown.iter().zip(doing) {
        let what = match member.unread {
            0 => doing,
            unread if member.agent_id == *me => {
                format!("{}  {}", padded(&doing, doing_width), style.warn(&format!("{unread} unread: tt msg recv")))
            }
            unread => format!("{}  {unread} unread", padded(&doing, doing_width)),
        };
        let who = who(&member.agent_id);
        if columns(&who) <= width {
            text.push_str(&style.row(&format!("  {}  ", padded(&who, width)), &what));
        } else {
            text.push_str(&style.row("  ", &who));
            text.push_str(&style.row(&" ".repeat(width + 4), &what));
        }
    }
    let hidden = state.members.len() - shown.len() + state.more_members;
    if hidden > 0 {
        text.push_str(&style.row("  ", &style.dim(&format!("and {hidden} more who left or are gone: tt state --all"))));
    }
    text
}

/// What a member is doing, or when it was last seen.
fn doing(member: &Member, room: &Room, place: Option<usize>, style: &Style, now: WallTime) -> String {
    let seen = format!("seen {}", ago(member.last_seen_at, now));
    match (member.status, member.liveness, place) {
        (MemberStatus::Active, Liveness::Gone, _) => style.warn(&format!("gone, {seen}")),
        (MemberStatus::Active, ..) if room.owner.as_ref() == Some(&member.agent_id) => "holds the stick".into(),
        (MemberStatus::Active, ..) if room.reserved_for.as_ref() == Some(&member.agent_id) => "has it next".into(),
        (MemberStatus::Active, _, Some(0)) => "waiting, next".into(),
        (MemberStatus::Active, _, Some(before)) => format!("waiting, {before} before it"),
        (MemberStatus::Active, ..) if member.waiting => "waiting, not for the stick".into(),
        (MemberStatus::Active, ..) => style.dim(&seen),
        (status, ..) => style.dim(&format!("{}, {seen}", status.as_str())),
    }
}

/// A handoff, beginning with the next action. Every line begins with `indentation`.
pub(crate) fn handoff(raw: &RawJson, indentation: &str, style: &Style) -> String {
    let Ok(handoff) = serde_json::from_str::<Handoff>(raw.as_str()) else {
        return style.row(indentation, &escape_text(raw.as_str()));
    };
    let field = |label: &str, text: &str| {
        // Further lines of a text are indented below it, so that none can pass for another field.
        let lines = text.split('\n').enumerate().map(|(number, line)| {
            let label = if number == 0 { label.to_owned() } else { " ".repeat(columns(label)) };
            style.row(&format!("{indentation}{label} "), &escape_text(line))
        });
        lines.collect::<String>()
    };
    let mut text = field(&style.bold("next:"), &handoff.next_action);
    text.push_str(&field(&style.dim("status:"), &handoff.status));
    for artifact in &handoff.artifacts {
        let lines = artifact.lines.map(|[from, to]| format!(":{from}-{to}")).unwrap_or_default();
        let note = artifact.note.as_ref().map(|note| format!("  {note}")).unwrap_or_default();
        let role =
            serde_json::to_value(artifact.role).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        text.push_str(&field(&style.dim(&format!("{role}:")), &format!("{}{lines}{note}", artifact.path)));
    }
    for (label, items) in [("question:", &handoff.open_questions), ("do not:", &handoff.do_not)] {
        items.iter().for_each(|item| text.push_str(&field(&style.dim(label), item)));
    }
    text
}

/// The indentation of an event's text, which is the width of its number and time.
const EVENT_INDENT: usize = 16;

/// One event as a sentence, with its handoff or message below it.
pub(crate) fn event(event: &Event, names: &Names, style: &Style) -> String {
    let agent = |agent: &Option<AgentId>| agent.as_ref().map_or_else(|| "somebody".to_owned(), |a| names.get(a));
    let (from, to) = (style.bold(&agent(&event.from_agent_id)), agent(&event.to_agent_id));
    let reason = event.reason.as_deref().map(escape_text).unwrap_or_default();
    let turn = event.turn_id.unwrap_or(0);
    let what = match event.event_type {
        EventType::Claim => format!("{from} has turn {turn}"),
        EventType::Release => format!("{from} released turn {turn}"),
        EventType::Pass => format!("{from} passed turn {turn} to {to}"),
        EventType::Takeover => format!("{from} took turn {turn} over from {to} ({})", reason.replacen('_', " ", 1)),
        EventType::Close => format!("{from} closed the room"),
        EventType::Kick if reason.is_empty() => format!("{from} kicked {to}"),
        EventType::Kick => format!("{from} kicked {to} ({reason})"),
        EventType::MessageSent => return message(event, names, style),
        EventType::MemberJoined => format!("{from} {reason}"),
        EventType::MemberLeft => format!("{from} left ({})", reason.replace('_', " ")),
        EventType::NoteAdded => format!("{from} added a note: tt notes list"),
        EventType::NoteResolved => format!("{from} resolved a note"),
        EventType::ReservationExpired => format!("{to} did not take the stick in time"),
        EventType::Unknown => format!("{from} did something that this version of tt does not know"),
    };
    let mut text = style.row(&event_prefix(event, style), &what);
    if let Some(handoff) = &event.handoff {
        text.push_str(&self::handoff(handoff, &" ".repeat(EVENT_INDENT), style));
    }
    text
}

/// A message as in a conversation. Every line of the body is indented, so that none can pass for another sender's.
fn message(event: &Event, names: &Names, style: &Style) -> String {
    let agent = |agent: &AgentId| names.get(agent);
    let from = event.from_agent_id.as_ref().map_or_else(|| "somebody".to_owned(), agent);
    let to = event.to_agent_id.as_ref().map_or_else(|| "everyone".to_owned(), agent);
    let sent = event.payload.as_ref().and_then(|payload| serde_json::from_str::<MessageSent>(payload.as_str()).ok());
    let (body, hint) = sent.map_or((String::new(), DeliveryHint::Normal), |sent| (sent.body, sent.delivery_hint));
    let loud = if hint == DeliveryHint::Normal { String::new() } else { style.warn(&format!(" [{}]", hint.as_str())) };
    let head = format!("{} {} {to}{loud}", style.bold(&from), style.dim("to"));
    let mut text = style.row(&event_prefix(event, style), &head);
    for line in body.split('\n') {
        text.push_str(&style.row(&" ".repeat(EVENT_INDENT), &escape_text(line)));
    }
    text
}

/// What precedes an event on its line: its number and how long ago it was.
fn event_prefix(event: &Event, style: &Style) -> String {
    style.dim(&format!("{:>5} {:>9} ", event.event_seq, ago(event.created_at, now())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (200_000, "2d")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
