//! Rooms, turns and events as text for people: names before ids, times as "3m ago", nothing that can drive a terminal.

use std::collections::BTreeMap;
use std::time::Duration;

use tt_proto::event::{Event, EventType, MemberJoined};
use tt_proto::handoff::{Handoff, Verbatim};
use tt_proto::message::{DeliveryHint, MessageSent};
use tt_proto::room::{DerivedState, Liveness, Member, MemberStatus, RoomState, StickState};
use tt_proto::{AgentId, Timestamp};

use crate::output::{Style, harmless};

/// The time of day, for "3m ago".
#[expect(clippy::disallowed_methods, reason = "a client has no daemon's clock; this is only for show")]
pub(crate) fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
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

pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    match now.since(at) {
        short if short < Duration::from_secs(1) => "just now".into(),
        long => format!("{} ago", span(long)),
    }
}

/// A member's name, with as much of its id as tells it from others of the same name.
pub(crate) fn name(agent: &AgentId, members: &[Member]) -> String {
    let Some(member) = members.iter().find(|m| m.agent_id == *agent) else { return harmless(agent.as_str()) };
    let namesakes = members.iter().filter(|m| m.display_name == member.display_name).count();
    if namesakes > 1 { harmless(agent.as_str()) } else { harmless(&member.display_name) }
}

/// What members are called, as the log tells it: a display name where it is one member's alone, else the agent id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(BTreeMap<AgentId, String>);

impl Names {
    pub(crate) fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut names = Self::default();
        events.into_iter().for_each(|event| names.learn(event));
        names
    }

    /// A join says what the member is called from then on.
    pub(crate) fn learn(&mut self, event: &Event) {
        let joined = event.payload.as_ref().and_then(|p| serde_json::from_str::<MemberJoined>(p.as_str()).ok());
        if let (EventType::MemberJoined, Some(agent), Some(joined)) = (event.event_type, &event.from_agent_id, joined) {
            self.0.insert(agent.clone(), joined.display_name);
        }
    }

    fn get(&self, agent: &AgentId) -> String {
        match self.0.get(agent) {
            Some(name) if self.0.values().filter(|other| *other == name).count() == 1 => harmless(name),
            _ => harmless(agent.as_str()),
        }
    }
}

/// The room at a glance.
pub(crate) fn state(state: &RoomState, me: &AgentId, style: &Style, all: bool) -> String {
    let (room, members, now) = (&state.room, &state.members, now());
    let who = |agent: &AgentId| {
        if agent == me { format!("{} (you)", name(agent, members)) } else { name(agent, members) }
    };
    let mut text = format!("{}\n", style.bold(&harmless(&room.canonical_path)));
    let turn = if room.turn_id > 0 { format!("turn {}", room.turn_id) } else { "no turn yet".into() };
    let line = match (room.state, &room.owner, &room.reserved_for) {
        (StickState::Owned, Some(owner), _) => format!("{} holds the stick, {turn}", style.bold(&who(owner))),
        (StickState::Reserved, _, Some(agent)) => format!("reserved for {}, {turn}", style.bold(&who(agent))),
        (StickState::Closed, ..) => "closed".into(),
        _ => format!("nobody holds the stick, {turn}"),
    };
    text.push_str(&format!("  {line}\n"));
    if let Some(end) = room.lease_expires_at.or(room.claim_expires_at).filter(|end| *end > now) {
        text.push_str(&style.dim(&format!("  for {} more without a sign of life\n", span(end.since(now)))));
    }
    if let Some(reason) = state.takeover.reason {
        text.push_str(&format!(
            "  {}: tt take --reason \"…\"\n",
            style.warn(&format!("may be taken over ({})", reason.as_str().replace('_', " ")))
        ));
    }
    if room.derived_state == Some(DerivedState::Dormant) {
        text.push_str(&style.dim("  nobody is here; join to resume\n"));
    }
    for (title, handoff) in [("asked for", &state.current_handoff), ("waiting to be picked up", &state.pending_handoff)]
    {
        if let Some(handoff) = handoff {
            text.push_str(&format!("\n{}\n{}", style.dim(title), self::handoff(handoff, style)));
        }
    }
    text.push('\n');
    let width = members.iter().map(|m| who(&m.agent_id).chars().count()).max().unwrap_or(0).clamp(8, 32);
    for member in members.iter().filter(|m| all || matches!(m.status, MemberStatus::Active)) {
        let place = state.queue.iter().position(|agent| *agent == member.agent_id);
        text.push_str(&member_line(member, &format!("{:width$}", who(&member.agent_id)), place, style, now));
    }
    let hidden = members.iter().filter(|m| m.status != MemberStatus::Active).count();
    if !all && hidden > 0 {
        text.push_str(&style.dim(&format!("  and {hidden} who are gone (--all shows them)\n")));
    }
    text
}

fn member_line(member: &Member, who: &str, place: Option<usize>, style: &Style, now: Timestamp) -> String {
    let doing = match (member.status, member.liveness) {
        (MemberStatus::Active, Liveness::Gone) => style.warn("process ended"),
        (MemberStatus::Active, _) if place == Some(0) => "waiting, next".into(),
        (MemberStatus::Active, _) if place.is_some() => format!("waiting, {} before it", place.unwrap_or(0)),
        (MemberStatus::Active, _) if member.waiting => "parked".into(),
        (MemberStatus::Active, _) => style.dim(&format!("seen {}", ago(member.last_seen_at, now))),
        (status, _) => style.dim(&format!("{}, seen {}", status.as_str(), ago(member.last_seen_at, now))),
    };
    let unread = if member.unread > 0 { format!("  {} unread", member.unread) } else { String::new() };
    format!("  {who}  {doing}{unread}\n")
}

/// A handoff, as its reader needs it: what to do first.
pub(crate) fn handoff(raw: &Verbatim, style: &Style) -> String {
    let Ok(handoff) = serde_json::from_str::<Handoff>(raw.as_str()) else {
        return format!("  {}\n", harmless(raw.as_str()));
    };
    let mut text = format!("  {} {}\n", style.bold("next:"), harmless(&handoff.next_action));
    text.push_str(&format!("  {} {}\n", style.dim("status:"), harmless(&handoff.status)));
    for artifact in &handoff.artifacts {
        let lines = artifact.lines.map(|[from, to]| format!(":{from}-{to}")).unwrap_or_default();
        let note = artifact.note.as_ref().map(|note| format!("  {}", harmless(note))).unwrap_or_default();
        let role =
            serde_json::to_value(artifact.role).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        text.push_str(&format!("  {} {}{lines}{note}\n", style.dim(&format!("{role}:")), harmless(&artifact.path)));
    }
    for (title, items) in [("question:", &handoff.open_questions), ("do not:", &handoff.do_not)] {
        for item in items {
            text.push_str(&format!("  {} {}\n", style.dim(title), harmless(item)));
        }
    }
    text
}

/// One event on one line, as a sentence.
pub(crate) fn event(event: &Event, names: &Names, style: &Style) -> String {
    let agent = |agent: &Option<AgentId>| agent.as_ref().map_or_else(|| "somebody".to_owned(), |a| names.get(a));
    let (from, to) = (style.bold(&agent(&event.from_agent_id)), agent(&event.to_agent_id));
    let reason = event.reason.as_deref().map(harmless).unwrap_or_default();
    let turn = event.turn_id.unwrap_or(0);
    let what = match event.event_type {
        EventType::Claim => format!("{from} has turn {turn}"),
        EventType::Release => format!("{from} released turn {turn}"),
        EventType::Pass => format!("{from} passed turn {turn} to {to}"),
        EventType::Takeover => format!("{from} took turn {turn} over from {to} ({reason})"),
        EventType::Close => format!("{from} closed the room"),
        EventType::Kick if reason.is_empty() => format!("{from} kicked {to}"),
        EventType::Kick => format!("{from} kicked {to} ({reason})"),
        EventType::MessageSent => return message(event, names, style),
        EventType::MemberJoined => format!("{from} {reason}"),
        EventType::MemberLeft => format!("{from} left ({})", reason.replace('_', " ")),
        EventType::NoteAdded => format!("{from} added a note"),
        EventType::NoteResolved => format!("{from} resolved a note"),
        EventType::ReservationExpired => format!("the reservation for {to} ran out"),
    };
    let mut text =
        format!("{} {what}\n", style.dim(&format!("{:>5} {:>9}", event.event_seq, ago(event.created_at, now()))));
    if let Some(handoff) = &event.handoff {
        let inner = self::handoff(handoff, style);
        inner.lines().for_each(|line| text.push_str(&format!("                {line}\n")));
    }
    text
}

/// A message as people read a conversation. Every line of the body is set in, so that none can pass for another sender's.
fn message(event: &Event, names: &Names, style: &Style) -> String {
    let agent = |agent: &AgentId| names.get(agent);
    let from = event.from_agent_id.as_ref().map_or_else(|| "somebody".to_owned(), agent);
    let to = event.to_agent_id.as_ref().map_or_else(|| "everyone".to_owned(), agent);
    let sent = event.payload.as_ref().and_then(|payload| serde_json::from_str::<MessageSent>(payload.as_str()).ok());
    let (body, hint) = sent.map_or((String::new(), DeliveryHint::Normal), |sent| (sent.body, sent.delivery_hint));
    let loud = if hint == DeliveryHint::Normal { String::new() } else { style.warn(&format!(" [{}]", hint.as_str())) };
    let when = style.dim(&format!("{:>5} {:>9}", event.event_seq, ago(event.created_at, now())));
    let mut text = format!("{when} {} {} {to}{loud}\n", style.bold(&from), style.dim("to"));
    for line in body.split('\n') {
        text.push_str(&format!("                {}\n", harmless(line)));
    }
    text
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
