//! The open room beside its timeline: members with what they do, the current handoff, open notes.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use tt_client::text::render::{ago, clock, handoff};
use tt_proto::room::{Activity, Member, MemberStatus};

use super::text::{cut, lines_of, wrapped};
use super::{Palette, pane_block};
use crate::model::{Model, Pane};

/// How many lines of a note are shown.
const NOTE_LINES: usize = 4;

pub(super) fn draw(model: &Model, palette: &Palette, frame: &mut Frame<'_>, area: Rect) {
    let block = pane_block(" Members ".to_owned(), model.pane == Pane::Side, palette);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let lines = lines(model, palette, usize::from(inner.width).max(4));
    let last = lines.len().saturating_sub(usize::from(inner.height));
    let scroll = u16::try_from(model.side_scroll.min(last)).unwrap_or(u16::MAX);
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), inner);
}

fn lines(model: &Model, palette: &Palette, width: usize) -> Vec<Line<'static>> {
    let Some(state) = model.state() else { return Vec::new() };
    let mut lines = Vec::new();
    let mut put = |texts: Vec<String>, style: Style| {
        lines.extend(texts.into_iter().map(|text| Line::from(Span::styled(text, style))));
    };
    let mut members: Vec<&Member> = state.members.iter().filter(|member| member.status.is_member()).collect();
    let place = |member: &Member| state.queue.iter().position(|agent| *agent == member.agent_id);
    members.sort_by_key(|member| match member.status {
        _ if state.room.owner.as_ref() == Some(&member.agent_id) => (0, 0),
        _ if state.room.reserved_for.as_ref() == Some(&member.agent_id) => (1, 0),
        MemberStatus::Active => (2, place(member).unwrap_or(usize::MAX)),
        _ => (3, 0),
    });
    for member in members {
        let you = if Some(&member.agent_id) == model.me.as_ref() { " (you)" } else { "" };
        put(vec![cut(&format!("{}{you}", model.label(&member.agent_id)), width)], palette.strong);
        let (text, style) = doing(model, palette, state, member, place(member));
        put(wrapped(&format!("  {text}"), width, 2), style);
    }
    for (title, raw) in [("Handoff, not picked up yet", &state.pending_handoff), ("Handoff", &state.current_handoff)] {
        let Some(raw) = raw else { continue };
        let from = state.handoff_from.as_ref().map(|from| format!(" from {}", model.label(from))).unwrap_or_default();
        put(vec![String::new()], palette.plain);
        put(wrapped(&format!("{title}{from}"), width, 2), palette.dim);
        let text = handoff(raw, "", &tt_client::text::Style::plain(Some(width)));
        put(text.lines().map(str::to_owned).collect(), palette.plain);
    }
    if !model.notes.is_empty() {
        put(vec![String::new(), format!("Open notes ({}): N", model.notes.len())], palette.dim);
    }
    for note in &model.notes {
        let head = format!("{} {}", clock(note.created_at, model.now), model.label(&note.author_agent_id));
        put(vec![cut(&head, width)], palette.dim);
        let mut text = lines_of(&note.body, width, 2);
        if text.len() > NOTE_LINES {
            text.truncate(NOTE_LINES);
            text.push("…".to_owned());
        }
        put(text, palette.plain);
    }
    lines
}

/// What a member does, and what is particular about it.
fn doing(
    model: &Model,
    palette: &Palette,
    state: &tt_proto::requests::RoomState,
    member: &Member,
    place: Option<usize>,
) -> (String, Style) {
    let mut parts = Vec::new();
    let is_holder = state.room.owner.as_ref() == Some(&member.agent_id);
    if is_holder {
        parts.push("holds the stick".to_owned());
    } else if state.room.reserved_for.as_ref() == Some(&member.agent_id) {
        parts.push("has the stick next".to_owned());
    }
    parts.push(match (member.activity, place) {
        (Activity::Asking, _) => "asks its user for permission".to_owned(),
        (Activity::Waiting, Some(0)) => "waits for the stick, next".to_owned(),
        (Activity::Waiting, Some(before)) => format!("waits for the stick, {before} before it"),
        (Activity::Waiting, None) => "waits for messages".to_owned(),
        (activity, _) => activity.as_str().to_owned(),
    });
    if let Some(seen) = member.last_seen_at.filter(|_| member.activity != Activity::Waiting) {
        parts.push(format!("seen {}", ago(seen, model.now)));
    }
    if let Some(until) = member.quiet_until {
        parts.push(format!("quiet until {}", clock(until, model.now)));
    }
    if member.unread > 0 {
        parts.push(format!("{} unread", member.unread));
    }
    let style = match member.activity {
        Activity::Asking => palette.warn,
        Activity::Gone if is_holder => palette.bad,
        Activity::Gone | Activity::Away => palette.dim,
        _ if is_holder => palette.good,
        _ => palette.plain,
    };
    (parts.join(", "), style)
}
