//! The timeline of the open room: messages with how far they have come, turns, handoffs, notes, joins.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use tt_client::text::Style as TextStyle;
use tt_client::text::render::{clock, handoff, happening};
use tt_proto::delivery::{DeliveryState, Recipient};
use tt_proto::escape::escape_text;
use tt_proto::event::EventType;
use tt_proto::message::{DeliveryHint, MessageSent};
use tt_proto::room::StickState;

use super::rooms::age;
use super::text::{cut_start, lines_of, wrapped};
use super::{Palette, pane_block};
use crate::model::{Model, Pane, Shown};
use crate::timeline::{Entry, Item};

/// How many lines of one message are shown. Enter shows it in full.
const BODY_LINES: usize = 12;

/// How many lines say who has the stick.
const HEAD_LINES: usize = 2;

/// How many recipients that wait are named.
const NAMED_RECIPIENTS: usize = 3;

pub(super) fn draw(model: &Model, palette: &Palette, frame: &mut Frame<'_>, area: Rect, shown: &mut Shown) {
    let Some(entry) = model.open_room() else {
        return frame.render_widget(pane_block(" Timeline ".to_owned(), false, palette), area);
    };
    let path = escape_text(&entry.summary.canonical_path);
    let title = format!(" {} ", cut_start(&path, usize::from(area.width.saturating_sub(6))));
    let block = pane_block(title, model.pane == Pane::Timeline, palette);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inner.width).max(8);
    let head: Vec<Line<'_>> = wrapped(&stick(model), width, 2)
        .into_iter()
        .take(HEAD_LINES)
        .map(|line| Line::from(Span::styled(line, palette.strong)))
        .collect();
    let [above, area] =
        Layout::vertical([Constraint::Length(u16::try_from(head.len()).unwrap_or(1)), Constraint::Min(0)]).areas(inner);
    frame.render_widget(Paragraph::new(head), above);
    let lines = visible(model, palette, width, usize::from(area.height), shown);
    let mut text = Vec::with_capacity(lines.len());
    for (place, (seq, line)) in lines.into_iter().enumerate() {
        let row = area.y + u16::try_from(place).unwrap_or(u16::MAX);
        shown.lines.push((row, area.x, area.right(), seq));
        if shown.events.last() != Some(&seq) {
            shown.events.push(seq);
        }
        text.push(line);
    }
    frame.render_widget(Paragraph::new(text), area);
}

/// Who has the stick, since when, and who waits: one line.
fn stick(model: &Model) -> String {
    let Some(state) = model.state() else { return String::new() };
    let who = |agent: &tt_proto::AgentId| {
        if Some(agent) == model.me.as_ref() { "you".to_owned() } else { model.label(agent) }
    };
    let room = &state.room;
    let mut text = match (room.state, &room.owner, &room.reserved_for) {
        (StickState::Owned, Some(owner), _) => {
            let since = state.turn_started_at.map(|since| format!(" for {}", age(model, since))).unwrap_or_default();
            let hold = if Some(owner) == model.me.as_ref() { "hold" } else { "holds" };
            format!("{} {hold} the stick: turn {}{since}", who(owner), room.turn_id)
        }
        (StickState::Reserved, _, Some(next)) => format!("{}: has the stick next", who(next)),
        (StickState::Closed, ..) => "the room is closed".to_owned(),
        _ => "nobody holds the stick".to_owned(),
    };
    if let Some(reason) = state.takeover.reason.filter(|_| state.takeover.available) {
        text.push_str(&format!("; may be taken over ({}): t", reason.as_str().replace('_', " ")));
    }
    if !state.queue.is_empty() {
        let waiting: Vec<String> = state.queue.iter().map(who).collect();
        text.push_str(&format!("; waiting: {}", waiting.join(", ")));
    }
    text
}

/// The lines that fit, with the event of each: the end of the timeline, or what is around the chosen event.
fn visible(
    model: &Model,
    palette: &Palette,
    width: usize,
    height: usize,
    shown: &mut Shown,
) -> Vec<(i64, Line<'static>)> {
    let entries = model.timeline.entries();
    let Some(last) = entries.len().checked_sub(1) else {
        shown.reaches_first = true;
        return Vec::new();
    };
    let chosen = model.timeline.chosen.and_then(|seq| entries.iter().position(|entry| entry.item.seq() == seq));
    let lines_at = |at: usize| {
        let is_chosen = chosen == Some(at) && model.pane == Pane::Timeline;
        let seq = entries[at].item.seq();
        entry_lines(model, palette, &entries[at], is_chosen, width).map(move |line| (seq, line))
    };
    let middle = chosen.unwrap_or(last);
    let mut own: Vec<_> = lines_at(middle).collect();
    own.truncate(height);
    let free = height - own.len();
    let (mut above, mut below) = (VecDeque::new(), Vec::new());
    let (mut first_drawn, mut last_drawn) = (middle, middle);
    while below.len() < free / 2 && last_drawn < last {
        last_drawn += 1;
        below.extend(lines_at(last_drawn));
    }
    below.truncate(free.min(below.len()));
    while above.len() + below.len().min(free / 2) < free && first_drawn > 0 {
        first_drawn -= 1;
        lines_at(first_drawn).rev().for_each(|line| above.push_front(line));
    }
    while above.len() + below.len() < free && last_drawn < last {
        last_drawn += 1;
        below.extend(lines_at(last_drawn));
    }
    below.truncate((free / 2).max(free.saturating_sub(above.len())));
    let keep = free - below.len();
    let dropped = above.len().saturating_sub(keep);
    above.drain(..dropped);
    shown.reaches_first = first_drawn == 0 && dropped == 0;
    shown.reaches_last = last_drawn == last;
    above.into_iter().chain(own).chain(below).collect()
}

/// One event: a head with the time, and below it what was written and what became of it.
fn entry_lines(
    model: &Model,
    palette: &Palette,
    entry: &Entry<'_>,
    is_chosen: bool,
    width: usize,
) -> std::vec::IntoIter<Line<'static>> {
    let item = entry.item;
    let mark = if is_chosen { "›" } else { " " };
    let indent = if entry.is_answer { "  ↳ " } else { "" };
    let prefix = format!("{mark}{} {indent}", clock(item.event.created_at, model.now));
    let hang = tt_client::text::layout::columns(&prefix).min(width / 2);
    let inside = width.saturating_sub(hang).max(4);
    let margin = " ".repeat(hang);
    let mut lines = Vec::new();
    let mut below = |texts: Vec<String>, style: Style| {
        lines.extend(
            texts.into_iter().map(|text| Line::from(vec![Span::raw(margin.clone()), Span::styled(text, style)])),
        );
    };
    let head_style = if is_chosen { palette.chosen } else { palette.strong };
    let head = match &item.message {
        Some(message) => {
            let mut body = lines_of(&message.body, inside, 0);
            if body.len() > BODY_LINES {
                body.truncate(BODY_LINES - 1);
                body.push("… Enter shows all of it".to_owned());
            }
            below(body, palette.plain);
            for (text, style) in fates(model, palette, item) {
                below(wrapped(&text, inside, 2), style);
            }
            message_head(model, item, message)
        }
        None => {
            if let Some(raw) = &item.event.handoff {
                let text = handoff(raw, "", &TextStyle::plain(Some(inside)));
                below(text.lines().map(str::to_owned).collect(), palette.plain);
            }
            let name = |agent: &tt_proto::AgentId| model.label(agent);
            happening(&item.event, &name, &TextStyle::plain(None)).replace(": tt notes list", "")
        }
    };
    if entry.folded > 0 {
        let answers = if entry.folded == 1 { "1 answer".to_owned() } else { format!("{} answers", entry.folded) };
        below(vec![format!("↳ {answers} folded: z shows them")], palette.dim);
    }
    let head_style = match item.event.event_type {
        EventType::MessageSent => head_style,
        _ if is_chosen => head_style,
        EventType::Takeover | EventType::Kick | EventType::GuardOverridden | EventType::ReservationExpired => {
            palette.warn
        }
        EventType::Claim | EventType::Release | EventType::Pass => palette.plain,
        _ => palette.dim,
    };
    let mut head_lines = wrapped(&head, inside, 2).into_iter();
    let first = head_lines.next().unwrap_or_default();
    let mut all = vec![Line::from(vec![Span::styled(prefix, palette.dim), Span::styled(first, head_style)])];
    let more = head_lines.map(|text| Line::from(vec![Span::raw(margin.clone()), Span::styled(text, head_style)]));
    all.extend(more);
    all.extend(lines);
    all.into_iter()
}

/// Who writes to whom, and what is special about it.
fn message_head(model: &Model, item: &Item, message: &MessageSent) -> String {
    let you = |agent: &tt_proto::AgentId| {
        if Some(agent) == model.me.as_ref() { "you".to_owned() } else { model.label(agent) }
    };
    let from = item.event.from_agent_id.as_ref().map_or_else(|| "notice".to_owned(), you);
    let to = item.event.to_agent_id.as_ref().map_or_else(|| "everyone".to_owned(), you);
    let mut head = format!("{from} to {to}");
    if message.delivery_hint != DeliveryHint::Normal {
        head.push_str(&format!(" [{}]", message.delivery_hint.as_str()));
    }
    if message.expects_reply {
        head.push_str(" [question]");
    }
    if message.reminder_id.is_some() {
        head.push_str(" (reminder)");
    }
    if let Some(seq) = message.reply_to.filter(|seq| model.timeline.get(*seq).is_none()) {
        head.push_str(&format!(" (answers {seq})"));
    }
    head
}

/// How far a message has come, in words and signs.
pub(super) fn fates(model: &Model, palette: &Palette, item: &Item) -> Vec<(String, Style)> {
    let recipients = model.timeline.recipients(item.seq());
    if let [only] = recipients {
        return vec![fate(model, palette, only, None)];
    }
    let came = |recipient: &&Recipient| matches!(recipient.state, DeliveryState::Delivered | DeliveryState::Answered);
    let delivered = recipients.iter().filter(came).count();
    if recipients.is_empty() {
        return Vec::new();
    }
    let style = if delivered == recipients.len() { palette.dim } else { palette.warn };
    let sign = if delivered == recipients.len() { "✓" } else { "…" };
    let mut fates = vec![(format!("{sign} {delivered} of {} have it", recipients.len()), style)];
    let others = recipients.iter().filter(|recipient| !came(recipient));
    fates.extend(others.take(NAMED_RECIPIENTS).map(|recipient| {
        let name = model.label(&recipient.agent_id);
        fate(model, palette, recipient, Some(&name))
    }));
    fates
}

/// How far a message has come with one recipient.
pub(super) fn fate(model: &Model, palette: &Palette, recipient: &Recipient, name: Option<&str>) -> (String, Style) {
    let name = name.map(|name| format!("{name}: ")).unwrap_or_default();
    let way = recipient.surface.map(|surface| surface.as_str().replace('_', " "));
    let way = way.map(|way| format!(" by {way}")).unwrap_or_default();
    let at = recipient.delivered_at.map(|at| format!(" {}", clock(at, model.now))).unwrap_or_default();
    match recipient.state {
        DeliveryState::Pending => {
            let why =
                recipient.waits.as_ref().map_or_else(|| "on its way".to_owned(), |waits| escape_text(&waits.text));
            (format!("… {name}waits: {why}"), palette.warn)
        }
        DeliveryState::Delivered if recipient.is_over => {
            (format!("✗ {name}delivered{at}{way}; no answer came in time"), palette.bad)
        }
        DeliveryState::Delivered => (format!("✓ {name}delivered{at}{way}"), palette.dim),
        DeliveryState::Answered => {
            let late = if recipient.is_late { ", too late" } else { "" };
            (format!("↩ {name}answered{late}"), palette.good)
        }
        DeliveryState::Expired => (format!("✗ {name}expired: it was not delivered in time"), palette.bad),
        DeliveryState::Withdrawn => (format!("✗ {name}withdrawn"), palette.dim),
        DeliveryState::Unknown => (format!("? {name}unknown to this version"), palette.dim),
    }
}
