//! The list of rooms: who holds the stick and for how long, who waits, what is unread, and where a person is needed.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use tt_client::text::layout::{columns, padded};
use tt_client::text::render::span;
use tt_proto::escape::escape_text;
use tt_proto::room::StickState;

use super::text::cut;
use super::{Palette, pane_block};
use crate::model::{Model, Pane, RoomEntry, Shown};

/// How many lines a room takes.
const LINES: usize = 2;

pub(super) fn draw(model: &Model, palette: &Palette, frame: &mut Frame<'_>, area: Rect, shown: &mut Shown) {
    let block = pane_block(" Rooms ".to_owned(), model.pane == Pane::Rooms, palette);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = usize::from(inner.width);
    let listed = model.listed();
    if listed.is_empty() {
        let text = "no rooms yet\n\nrun tt join in a repository,\nor start an agent there";
        return frame.render_widget(Paragraph::new(text).style(palette.dim), inner);
    }
    let chosen = listed.iter().position(|entry| Some(&entry.summary.room_id) == model.open.as_ref()).unwrap_or(0);
    let fits = (usize::from(inner.height) / LINES).max(1);
    let first = (chosen + 1).saturating_sub(fits);
    let mut lines = Vec::new();
    for (at, entry) in listed.iter().enumerate().skip(first).take(fits) {
        let top = inner.y + u16::try_from(lines.len()).unwrap_or(u16::MAX);
        for line in [top, top.saturating_add(1)] {
            shown.rooms.push((line, inner.x, inner.right(), at));
        }
        lines.extend(room_lines(model, palette, entry, at == chosen, width));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn room_lines<'a>(model: &Model, palette: &Palette, entry: &RoomEntry, is_chosen: bool, width: usize) -> [Line<'a>; 2] {
    let needs = !entry.needs().is_empty();
    let unread = if entry.unread() > 0 { format!(" {} new", entry.unread()) } else { String::new() };
    let mark = if needs { "! " } else { "  " };
    let room_for_name = width.saturating_sub(columns(&unread) + 2);
    let name = padded(&cut(&escape_text(entry.short_name()), room_for_name), room_for_name);
    let style = if is_chosen { palette.chosen } else { palette.strong };
    let head = [
        Span::styled(mark, if is_chosen { palette.chosen } else { palette.warn }),
        Span::styled(name, style),
        Span::styled(unread, if is_chosen { palette.chosen } else { palette.warn }),
    ];
    let below = Span::styled(format!("  {}", cut(&stick(model, entry), width.saturating_sub(2))), palette.dim);
    [Line::from(head.to_vec()), Line::from(below)]
}

/// Who holds the stick, for how long, and how many wait.
fn stick(model: &Model, entry: &RoomEntry) -> String {
    let summary = &entry.summary;
    let state = entry.state.as_deref();
    let who = |agent: &tt_proto::AgentId| {
        if Some(agent) == model.me.as_ref() { "you".to_owned() } else { model.label_in(entry, agent) }
    };
    let holder = match (summary.state, &summary.owner, &summary.reserved_for) {
        (StickState::Owned, Some(owner), _) => {
            let since = state.and_then(|state| state.turn_started_at);
            format!("{}{}", who(owner), since.map(|since| format!(" {}", age(model, since))).unwrap_or_default())
        }
        (StickState::Reserved, _, Some(next)) => format!("next: {}", who(next)),
        (StickState::Closed, ..) => "closed".to_owned(),
        _ if summary.members == 0 => "nobody is here".to_owned(),
        _ => "free".to_owned(),
    };
    match state.map_or(0, |state| state.queue.len()) {
        0 => holder,
        waiting => format!("{holder}, {waiting} waiting"),
    }
}

/// The age of a turn, in whole minutes: what is shown changes once a minute.
pub(super) fn age(model: &Model, since: tt_proto::WallTime) -> String {
    let age = model.now.since(since);
    if age.as_secs() < 60 { "<1m".to_owned() } else { span(age) }
}
