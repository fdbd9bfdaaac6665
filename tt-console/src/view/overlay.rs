//! What is shown above the panes: help, a message in full, a question, a list, a line that is asked for.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use tt_client::text::render::clock;

use super::text::{cut, flow, lines_of, wrapped};
use super::timeline::fate;
use super::{Palette, pane_block};
use crate::model::{Layer, List, Model, Prompt};

/// The keys, as the help lists them.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("Up, Down, PgUp, PgDn", "move; also k and j"),
    ("Home, End", "first, newest; also g and G"),
    ("Tab, Left, Right", "rooms, timeline, members"),
    ("Enter", "open a room, or show a message in full"),
    ("w", "write a message"),
    ("a", "ask a question"),
    ("r", "answer the chosen message"),
    ("x", "withdraw a message of yours"),
    ("z", "fold the answers to a question, or unfold them"),
    ("/", "search the room, and jump to what is found"),
    ("i", "what waits for you in all rooms"),
    ("t", "take the stick, or take it over"),
    ("e", "end your turn with a handoff, in your editor"),
    ("p", "pass the stick to a member"),
    ("n, N", "add a note; list and resolve notes"),
    ("m", "remind yourself or a member"),
    ("u", "change how strictly the stick guards edits"),
    ("K", "remove a member"),
    ("s", "a shell in the workspace"),
    ("y", "copy the id of the event, or of the room"),
    ("d", "show rooms with nobody in them, or hide them"),
    ("b", "ring when a person is needed, or do not"),
    ("R", "look for new rooms"),
    ("Ctrl-L, Ctrl-Z", "draw anew, suspend"),
    ("q", "quit"),
];

pub(super) fn draw(model: &Model, palette: &Palette, frame: &mut Frame<'_>, main: Rect) {
    match &model.layer {
        Layer::None | Layer::Compose(_) => {}
        Layer::Help { scroll } => draw_text(frame, palette, main, " Help ", help(palette, main), *scroll),
        Layer::Detail { seq, scroll } => {
            let lines = detail(model, palette, *seq, inside(main));
            draw_text(frame, palette, main, &format!(" Message {seq} "), lines, *scroll);
        }
        Layer::Confirm { question, .. } => {
            let mut lines: Vec<Line<'_>> =
                wrapped(question, inside(main), 0).into_iter().map(|line| styled(line, palette.strong)).collect();
            lines.push(Line::default());
            lines.push(styled("y: yes   n: no".to_owned(), palette.plain));
            let area = bottom(main, lines.len());
            draw_text(frame, palette, area, " Sure? ", lines, 0);
        }
        Layer::Prompt(prompt) => draw_prompt(frame, palette, main, prompt),
        Layer::List(list) => draw_list(frame, palette, main, list),
    }
}

fn inside(area: Rect) -> usize {
    usize::from(area.width.saturating_sub(4)).max(4)
}

/// The lowest part of an area that holds this many lines in a frame.
fn bottom(area: Rect, lines: usize) -> Rect {
    let height = u16::try_from(lines + 2).unwrap_or(u16::MAX).min(area.height);
    Rect { y: area.bottom() - height, height, ..area }
}

fn styled(text: String, style: Style) -> Line<'static> {
    Line::from(vec![Span::raw(" "), Span::styled(text, style)])
}

fn draw_text(frame: &mut Frame<'_>, palette: &Palette, area: Rect, title: &str, lines: Vec<Line<'_>>, scroll: usize) {
    let block = pane_block(title.to_owned(), true, palette);
    let inner = block.inner(area);
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    let last = lines.len().saturating_sub(usize::from(inner.height));
    let scroll = u16::try_from(scroll.min(last)).unwrap_or(u16::MAX);
    frame.render_widget(Paragraph::new(lines).scroll((scroll, 0)), inner);
}

fn help(palette: &Palette, area: Rect) -> Vec<Line<'static>> {
    let width = inside(area);
    let mut lines = Vec::new();
    for (keys, what) in KEYS {
        let mut texts = wrapped(what, width.saturating_sub(22).max(8), 0).into_iter();
        let first = texts.next().unwrap_or_default();
        lines.push(Line::from(vec![
            Span::raw(" "),
            Span::styled(format!("{keys:<21} "), palette.strong),
            Span::raw(first),
        ]));
        lines.extend(texts.map(|text| Line::from(format!("{}{text}", " ".repeat(23)))));
    }
    lines.push(Line::default());
    let signs = "! needs a person   … waits   ✓ delivered   ↩ answered   ✗ expired or withdrawn";
    lines.extend(wrapped(signs, width, 0).into_iter().map(|line| styled(line, palette.dim)));
    lines
}

fn detail(model: &Model, palette: &Palette, seq: i64, width: usize) -> Vec<Line<'static>> {
    let Some(item) = model.timeline.get(seq) else { return vec![styled("it is not here".to_owned(), palette.dim)] };
    let mut lines = Vec::new();
    let mut put = |texts: Vec<String>, style: Style| lines.extend(texts.into_iter().map(|text| styled(text, style)));
    let event = &item.event;
    let name = |agent: &Option<tt_proto::AgentId>, none: &str| {
        agent.as_ref().map_or_else(|| none.to_owned(), |agent| model.label(agent))
    };
    let head = match item.message {
        Some(_) => format!("{} to {}", name(&event.from_agent_id, "notice"), name(&event.to_agent_id, "everyone")),
        None => {
            tt_client::text::render::happening(event, &|agent| model.label(agent), &tt_client::text::Style::plain(None))
        }
    };
    put(wrapped(&head, width, 2), palette.strong);
    let clock = clock(event.created_at, model.now);
    put(vec![cut(&format!("{clock}, event {seq}, id {}", event.event_id.as_str()), width)], palette.dim);
    put(vec![String::new()], palette.plain);
    if let Some(message) = &item.message {
        put(lines_of(&message.body, width, 0), palette.plain);
        put(vec![String::new()], palette.plain);
    }
    if let Some(raw) = &event.handoff {
        let text = tt_client::text::render::handoff(raw, "", &tt_client::text::Style::plain(Some(width)));
        put(text.lines().map(str::to_owned).collect(), palette.plain);
    }
    for recipient in model.timeline.recipients(seq) {
        let (text, style) = fate(model, palette, recipient, Some(&model.label(&recipient.agent_id)));
        put(wrapped(&text, width, 2), style);
    }
    lines
}

fn draw_prompt(frame: &mut Frame<'_>, palette: &Palette, main: Rect, prompt: &Prompt) {
    let width = inside(main);
    let (before, after) = prompt.input.parts();
    let (text, cursor) = flow(before, after, width);
    let label = wrapped(&format!("{}:", prompt.label), width, 2);
    let above = label.len();
    let mut lines: Vec<Line<'_>> = label.into_iter().map(|line| styled(line, palette.strong)).collect();
    lines.extend(text.into_iter().map(|line| styled(line, palette.plain)));
    let area = bottom(main, lines.len());
    let scroll = (lines.len() + 2).saturating_sub(usize::from(area.height));
    draw_text(frame, palette, area, "", lines, scroll);
    let row = usize::from(area.y) + 1 + (above + cursor.1).saturating_sub(scroll);
    let column = usize::from(area.x) + 2 + cursor.0;
    let limit = |at: usize, end: u16| u16::try_from(at).unwrap_or(u16::MAX).min(end.saturating_sub(2));
    frame.set_cursor_position(Position::new(limit(column, area.right()), limit(row, area.bottom())));
}

fn draw_list(frame: &mut Frame<'_>, palette: &Palette, main: Rect, list: &List) {
    let width = inside(main);
    let fits = usize::from(main.height.saturating_sub(2)).max(1);
    let first = (list.chosen + 1).saturating_sub(fits);
    let rows = list.rows.iter().enumerate().skip(first).take(fits);
    let mut lines: Vec<Line<'_>> = rows
        .map(|(at, row)| {
            let style = if at == list.chosen { palette.chosen } else { palette.plain };
            styled(cut(&row.text.replace('\n', " "), width), style)
        })
        .collect();
    if lines.is_empty() {
        lines.push(styled("nothing".to_owned(), palette.dim));
    }
    draw_text(frame, palette, main, &format!(" {} ", cut(&list.title, width.saturating_sub(2))), lines, 0);
}
