//! Describes rooms, turns and events in text for people: names instead of ids, times as "3m ago", and no control
//! characters from other members.

use std::time::Duration;

use tt_proto::delivery::DeliveryState;
use tt_proto::escape::escape_text;
use tt_proto::event::{Event, EventType, MemberRenamed};
use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::message::{DeliveryHint, MessageSent, Notice};
use tt_proto::requests::RoomState;
use tt_proto::room::{Activity, DerivedState, Member, MemberStatus, Room, RoomSize, StickState};
use tt_proto::turn::TakeoverReason;
use tt_proto::{AgentId, WallTime};

use super::Style;
use super::layout::{columns, padded};
use super::names::{Names, name, quoted};

/// The current time, for "3m ago".
#[expect(clippy::disallowed_methods, reason = "a client has no daemon's clock; this time is only displayed")]
pub fn now() -> WallTime {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    WallTime::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}

/// `12s`, `3m`, `2h`, `4d`: the largest unit that fits.
pub fn span(duration: Duration) -> String {
    match duration.as_secs() {
        s if s < 60 => format!("{s}s"),
        s if s < 3600 => format!("{}m", s / 60),
        s if s < 86_400 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

pub fn ago(at: WallTime, now: WallTime) -> String {
    match now.since(at) {
        short if short < Duration::from_secs(60) => "just now".into(),
        long => format!("{} ago", span(long)),
    }
}

/// How many members that are gone are listed.
const MAX_GONE_SHOWN: usize = 3;

/// Describes a room: the stick, the handoff with the name of its author, and the members.
pub(crate) fn state(state: &RoomState, author: Option<&str>, me: &AgentId, style: &Style, all: bool) -> String {
    let (room, members, now) = (&state.room, &state.members, now());
    let who = |agent: &AgentId| {
        if agent == me { format!("{} (you)", name(agent, members)) } else { name(agent, members) }
    };
    let mut text = style.row("", &style.bold(&escape_text(&room.canonical_path)));
    text.push_str(&style.row("  ", &stick_line(state, me, style)));
    match (state.takeover.reason, room.lease_expires_at, room.claim_expires_at) {
        (Some(reason), ..) => text.push_str(&style.row("  ", &takeover_line(reason, style))),
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
    match state.open_notes {
        0 => {}
        1 => text.push_str(&style.row("  ", &style.dim("1 open note: tt notes list"))),
        notes => text.push_str(&style.row("  ", &style.dim(&format!("{notes} open notes: tt notes list")))),
    }
    if room.derived_state == Some(DerivedState::Dormant) {
        text.push_str(&style.row("  ", &style.dim("nobody is here; resume with tt join")));
    } else if !members.iter().any(|member| member.agent_id == *me && member.status == MemberStatus::Active) {
        text.push_str(&style.row("  ", &style.dim("you are not a member; become one with tt join")));
    }
    let you = if state.handoff_from.as_ref() == Some(me) { " (you)" } else { "" };
    let from = author.map(|author| format!(" from {author}{you}")).unwrap_or_default();
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

/// Who has the stick, since when, and what that member is doing: one line, the same wherever it is shown.
pub(crate) fn stick_line(state: &RoomState, me: &AgentId, style: &Style) -> String {
    let (room, members) = (&state.room, &state.members);
    let who = |agent: &AgentId| {
        let you = if agent == me { " (you)" } else { "" };
        style.bold(&format!("{}{you}", name(agent, members)))
    };
    match (room.state, &room.owner, &room.reserved_for) {
        (StickState::Owned, Some(owner), _) => {
            let since = state.turn_started_at.map(|since| format!(" for {}", span(now().since(since))));
            let holder = members.iter().find(|member| member.agent_id == *owner);
            let doing = holder.map(|holder| format!(", {}", holder.activity.as_str())).unwrap_or_default();
            format!("{} holds the stick: turn {}{}{doing}", who(owner), room.turn_id, since.unwrap_or_default())
        }
        (StickState::Reserved, _, Some(agent)) => {
            format!("{} has the stick next, after turn {}", who(agent), room.turn_id)
        }
        (StickState::Closed, ..) => "the room is closed".into(),
        _ if room.turn_id == 0 => "nobody holds the stick: no turn yet".into(),
        _ => format!("nobody holds the stick: turn {} is over", room.turn_id),
    }
}

/// Why the stick may be taken over, and how.
pub(crate) fn takeover_line(reason: TakeoverReason, style: &Style) -> String {
    let why = format!("may be taken over ({})", reason.as_str().replace('_', " "));
    format!("{}: tt take --reason \"…\"", style.warn(&why))
}

/// The members in the order in which the stick will go: the holder, the waiters, the other active members, and those who are
/// gone.
fn table(state: &RoomState, me: &AgentId, who: &dyn Fn(&AgentId) -> String, style: &Style, all: bool) -> String {
    let (room, now) = (&state.room, now());
    let seen = |member: &Member| member.last_seen_at.unwrap_or(now);
    let place = |member: &Member| state.queue.iter().position(|agent| *agent == member.agent_id);
    let rank = |member: &Member| match (member.status, place(member)) {
        _ if room.owner.as_ref() == Some(&member.agent_id) => (0, 0, 0),
        _ if room.reserved_for.as_ref() == Some(&member.agent_id) => (1, 0, 0),
        (MemberStatus::Active, Some(place)) => (2, place, 0),
        (MemberStatus::Active, None) => (3, 0, 0),
        // The member seen last comes first.
        _ => (4, 0, -seen(member).as_millis()),
    };
    let mut members: Vec<&Member> = state.members.iter().collect();
    members.sort_by_key(|member| rank(member));
    let mut gone = 0;
    let shown: Vec<&Member> = members
        .into_iter()
        .filter(|member| {
            gone += usize::from(member.status == MemberStatus::Gone && rank(member).0 == 4);
            all || rank(member).0 < 4
                || member.status == MemberStatus::Away
                || (member.status == MemberStatus::Gone && gone <= MAX_GONE_SHOWN)
        })
        .collect();
    let width = shown.iter().map(|m| columns(&who(&m.agent_id))).filter(|width| *width <= 24).max().unwrap_or(8).max(8);
    let quiet = |member: &Member| {
        let until = member.quiet_until.filter(|_| member.status == MemberStatus::Active);
        until.map(|until| style.dim(&format!(", quiet until {}", clock(until, now)))).unwrap_or_default()
    };
    let doing = |member: &&Member| doing(member, room, place(member), style, now) + &quiet(member);
    let doing: Vec<String> = shown.iter().map(doing).collect();
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
    let seen = member.last_seen_at.map(|at| format!(", seen {}", ago(at, now))).unwrap_or_default();
    let word = member.activity.as_str();
    match (member.activity, place) {
        (Activity::Gone, _) if member.status == MemberStatus::Active => style.warn(&format!("{word}{seen}")),
        (Activity::Asking, _) if room.owner.as_ref() != Some(&member.agent_id) => style.warn("asking its user"),
        _ if room.owner.as_ref() == Some(&member.agent_id) => format!("{word}, holds the stick"),
        _ if room.reserved_for.as_ref() == Some(&member.agent_id) => format!("{word}, has it next"),
        (Activity::Waiting, Some(0)) => "waiting, next".into(),
        (Activity::Waiting, Some(before)) => format!("waiting, {before} before it"),
        (Activity::Waiting, None) => "waiting, not for the stick".into(),
        _ => style.dim(&format!("{word}{seen}")),
    }
}

/// A handoff, beginning with the next action. Every line begins with `indentation`.
pub fn handoff(raw: &RawJson, indentation: &str, style: &Style) -> String {
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

/// One event that its reader was sent, as a sentence, with its handoff or message below it.
pub fn event(event: &Event, names: &Names, style: &Style) -> String {
    sentence(event, Shown::Received, names, style)
}

/// One event as the log has it, also of a message to somebody else. `undelivered`: what became of a message that nobody was handed.
pub fn logged(event: &Event, undelivered: Option<DeliveryState>, names: &Names, style: &Style) -> String {
    sentence(event, Shown::Logged(undelivered), names, style)
}

/// To whom a message is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// To one to whom it was sent.
    Received,
    /// To anybody who reads the log.
    Logged(Option<DeliveryState>),
}

fn sentence(event: &Event, shown: Shown, names: &Names, style: &Style) -> String {
    if event.event_type == EventType::MessageSent {
        return message(event, shown, names, style);
    }
    let prefix = event_prefix(event);
    let mut text = style.row(&style.dim(&prefix), &happening(event, &|agent| names.get(agent), style));
    if let Some(handoff) = &event.handoff {
        text.push_str(&self::handoff(handoff, &" ".repeat(columns(&prefix)), style));
    }
    text
}

/// What happened, on one line, without the handoff that came with it and without the text of a message.
pub fn happening(event: &Event, name: &dyn Fn(&AgentId) -> String, style: &Style) -> String {
    let agent = |agent: &Option<AgentId>| agent.as_ref().map_or_else(|| "somebody".to_owned(), name);
    let (from, to) = (style.bold(&agent(&event.from_agent_id)), agent(&event.to_agent_id));
    let reason = event.reason.as_deref().map(escape_text).unwrap_or_default();
    let turn = event.turn_id.unwrap_or(0);
    match event.event_type {
        EventType::Claim => format!("{from} has turn {turn}"),
        EventType::Release => format!("{from} released turn {turn}"),
        EventType::Pass => format!("{from} passed turn {turn} to {to}"),
        EventType::Takeover => format!("{from} took turn {turn} over from {to} ({})", reason.replacen('_', " ", 1)),
        EventType::Close => format!("{from} closed the room"),
        EventType::Kick if reason.is_empty() => format!("{from} kicked {to}"),
        EventType::Kick => format!("{from} kicked {to} ({reason})"),
        EventType::MessageSent => format!("{from} sent a message"),
        EventType::MemberJoined => format!("{from} {reason}"),
        EventType::MemberLeft if reason == "terminal_closed" => format!("{from} is away: its last terminal was closed"),
        EventType::MemberRenamed => {
            let renamed = event.payload.as_ref().and_then(|p| serde_json::from_str::<MemberRenamed>(p.as_str()).ok());
            let (before, now) =
                renamed.map(|r| (quoted(&r.previous_name), quoted(&r.display_name))).unwrap_or_default();
            format!("{} is now called {}", style.bold(&before), style.bold(&now))
        }
        EventType::MemberLeft => format!("{from} left ({})", reason.replace('_', " ")),
        EventType::NoteAdded => format!("{from} added a note: tt notes list"),
        EventType::NoteResolved => format!("{from} resolved a note"),
        EventType::ReservationExpired => format!("{to} did not take the stick in time"),
        EventType::GuardOverridden => {
            let holder = if event.to_agent_id.is_some() { format!(", which was {to}'s turn") } else { String::new() };
            format!("{from} went on with a {reason}{holder}")
        }
        EventType::Unknown => format!("{from} did something that this version of tt does not know"),
    }
}

/// A message as in a conversation. Every line of the body is indented, so that none can pass for another sender's.
fn message(event: &Event, shown: Shown, names: &Names, style: &Style) -> String {
    let agent = |agent: &AgentId| names.get(agent);
    let from = event.from_agent_id.as_ref().map_or_else(|| "notice".to_owned(), agent);
    let to = event.to_agent_id.as_ref().map_or_else(|| "everyone".to_owned(), agent);
    let sent = event.payload.as_ref().and_then(|payload| serde_json::from_str::<MessageSent>(payload.as_str()).ok());
    let sent = sent.unwrap_or_default();
    let fate = match shown {
        Shown::Logged(Some(state)) => format!(" {}", style.warn(&format!("[{}]", state.as_str()))),
        Shown::Logged(None) | Shown::Received => String::new(),
    };
    let head = format!("{} {} {to}{}{fate}", style.bold(&from), style.dim("to"), marks(&sent, style));
    let prefix = event_prefix(event);
    let indent = " ".repeat(columns(&prefix));
    let mut text = style.row(&style.dim(&prefix), &head);
    for line in sent.body.split('\n') {
        text.push_str(&style.row(&indent, &escape_text(line)));
    }
    if sent.expects_reply && shown == Shown::Received {
        let before = sent.expires_at.map(|at| format!(" (before {})", clock(at, now()))).unwrap_or_default();
        text.push_str(
            &style.row(&indent, &style.dim(&format!("answer with: tt reply {} \"…\"{before}", event.event_seq))),
        );
    }
    text
}

/// Whether an event is a notice of this kind.
pub(crate) fn is_notice(event: &Event, notice: Notice) -> bool {
    let sent = event.payload.as_ref().and_then(|payload| serde_json::from_str::<MessageSent>(payload.as_str()).ok());
    event.from_agent_id.is_none() && sent.is_some_and(|sent| sent.notice == Some(notice))
}

/// What is special about a message: how urgent it is, what it answers, that it was overdue.
fn marks(sent: &MessageSent, style: &Style) -> String {
    let mut marks = Vec::new();
    if sent.delivery_hint != DeliveryHint::Normal {
        marks.push(style.warn(&format!("[{}]", sent.delivery_hint.as_str())));
    }
    if sent.expects_reply {
        marks.push(style.warn("[question]"));
    }
    if sent.reminder_id.is_some() {
        marks.push(style.dim("(reminder)"));
    }
    marks.extend(sent.reply_to.map(|seq| style.dim(&format!("(answers {seq})"))));
    marks.extend(sent.late_ms.map(|late| style.dim(&format!("(late by {})", span(Duration::from_millis(late))))));
    marks.iter().map(|mark| format!(" {mark}")).collect()
}

/// What precedes an event on its line: its number and when it was.
fn event_prefix(event: &Event) -> String {
    format!("{:>5} {} ", event.event_seq, clock(event.created_at, now()))
}

/// The time of day on this machine, with the date if that is not today's.
pub fn clock(at: WallTime, now: WallTime) -> String {
    let zoned = |at: WallTime| {
        let at = jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or(jiff::Timestamp::MIN);
        at.to_zoned(jiff::tz::TimeZone::system())
    };
    let (at, now) = (zoned(at), zoned(now));
    let date = match (at.date() == now.date(), at.year() == now.year()) {
        (true, _) => String::new(),
        (false, true) => format!("{:02}-{:02} ", at.month(), at.day()),
        (false, false) => format!("{:04}-{:02}-{:02} ", at.year(), at.month(), at.day()),
    };
    format!("{date}{:02}:{:02}", at.hour(), at.minute())
}

/// Reads a time as it is shown, or as JSON has it: `09:30` of this day, `11-16 09:30` of this year, `2026-11-16`,
/// `2026-11-16 09:30`, with or without a zone. Without one it is a time of this machine.
pub(crate) fn time_of(text: &str, now: WallTime) -> Option<WallTime> {
    let zone = jiff::tz::TimeZone::system();
    let today = jiff::Timestamp::from_millisecond(now.as_millis()).ok()?.to_zoned(zone.clone()).date();
    let local = || {
        let of_today = text.parse::<jiff::civil::Time>().map(|time| today.to_datetime(time));
        let of_this_year = || format!("{:04}-{text}", today.year()).parse::<jiff::civil::DateTime>();
        let at = text.parse::<jiff::civil::DateTime>().or(of_today).or_else(|_| of_this_year());
        at.ok()?.to_zoned(zone).ok()
    };
    let zoned = || Some(WallTime::from_millis(local()?.timestamp().as_millisecond()));
    WallTime::parse(text).or_else(zoned)
}

/// What is stored of a room, in words.
pub(crate) fn size(room: &RoomSize) -> String {
    let events = if room.events == 1 { "1 event".to_owned() } else { format!("{} events", room.events) };
    let bytes = match room.bytes {
        bytes @ ..1024 => format!("{bytes} bytes"),
        bytes @ ..1_048_576 => format!("{} KiB", bytes / 1024),
        bytes => format!("{} MiB", bytes / 1_048_576),
    };
    let unread = if room.unread == 0 { String::new() } else { format!(", {} unread", room.unread) };
    format!("{events}, {bytes}{unread}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_its_date_when_that_is_not_today() {
        let at = |text: &str| WallTime::parse(text).unwrap();
        let now = at("2026-11-16T12:00:00Z");
        assert_eq!(clock(now, now).len(), 5);
        assert!(clock(at("2026-11-10T12:00:00Z"), now).starts_with("11-10 "));
        assert!(clock(at("2025-11-10T12:00:00Z"), now).starts_with("2025-11-10 "));
    }

    #[test]
    fn a_time_is_read_as_it_is_shown() {
        let now = WallTime::parse("2026-11-16T12:00:00Z").unwrap();
        let earlier = now - Duration::from_secs(26 * 3600);
        for at in [now, earlier] {
            let shown = clock(at, WallTime::parse("2020-01-01T00:00:00Z").unwrap());
            assert_eq!(time_of(&shown, now), Some(at), "{shown}");
        }
        assert_eq!(time_of(&clock(now, now), now), Some(now));
        assert_eq!(time_of(&clock(earlier, now), now), Some(earlier));
        assert_eq!(time_of("2026-11-16T12:00:00Z", earlier), Some(now));
        let day = time_of("2026-11-16", now).unwrap();
        assert!(clock(day, now).ends_with("00:00"), "{day}");
        for wrong in ["yesterday", "", "25:00", "9"] {
            assert_eq!(time_of(wrong, now), None, "{wrong:?}");
        }
    }

    #[test]
    fn spans_are_short() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (200_000, "2d")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
