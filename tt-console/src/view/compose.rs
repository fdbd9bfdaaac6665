//! The message that is being written, below the timeline.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use tt_proto::escape::escape_text;
use tt_proto::message::excerpt;

use super::text::{cut, flow};
use super::{Palette, pane_block};
use crate::model::{Compose, Layer, Model};

/// The lines besides the text: the frame, the recipient and the kind.
const FIXED_LINES: usize = 4;

/// How many lines the message needs.
pub(super) fn height(model: &Model, area: Rect) -> u16 {
    let Layer::Compose(compose) = &model.layer else { return 0 };
    let (before, after) = compose.body.parts();
    let (lines, _) = flow(before, after, text_width(area.width));
    let wanted = u16::try_from(FIXED_LINES + lines.len()).unwrap_or(u16::MAX);
    wanted.min(area.height.saturating_sub(2) / 2).max(area.height.saturating_sub(4).min(5))
}

fn text_width(width: u16) -> usize {
    usize::from(width.saturating_sub(4))
}

pub(super) fn draw(model: &Model, palette: &Palette, frame: &mut Frame<'_>, area: Rect) {
    let Layer::Compose(compose) = &model.layer else { return };
    let title = match compose.is_question {
        _ if compose.reply_to.is_some() => " Answer ",
        true => " Ask ",
        false => " Write ",
    };
    let block = pane_block(title.to_owned(), true, palette);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let width = text_width(area.width);
    let (head, head_cursor) = head(model, compose, width);
    let kind = if compose.is_question { "a question: its answer is shown below it" } else { "a message" };
    let kind = match compose.reply_to {
        Some(_) => "    an answer".to_owned(),
        None => format!("    {kind}, priority {}", compose.hint.as_str()),
    };
    let (before, after) = compose.body.parts();
    let (text, cursor) = flow(before, after, width);
    let fits = usize::from(inner.height).saturating_sub(2).max(1);
    let first = (cursor.1 + 1).saturating_sub(fits);
    let mut lines = vec![Line::from(head), Line::from(Span::styled(cut(&kind, width), palette.dim))];
    lines.extend(text.into_iter().skip(first).take(fits).map(|line| Line::from(format!(" {line}"))));
    frame.render_widget(Paragraph::new(lines), inner);
    let at = if compose.is_in_body { (cursor.0 + 1, cursor.1 - first + 2) } else { (head_cursor, 0) };
    let column = inner.x.saturating_add(u16::try_from(at.0).unwrap_or(u16::MAX)).min(inner.right().saturating_sub(1));
    let row = inner.y.saturating_add(u16::try_from(at.1).unwrap_or(u16::MAX)).min(inner.bottom().saturating_sub(1));
    if !compose.is_sending {
        frame.set_cursor_position(Position::new(column, row));
    }
}

/// Whom the message is for, and the column of the cursor in it.
fn head(model: &Model, compose: &Compose, width: usize) -> (String, usize) {
    if let Some(seq) = compose.reply_to {
        let item = model.timeline.get(seq);
        let from = item.and_then(|item| item.event.from_agent_id.as_ref()).map(|from| model.label(from));
        let body = item.and_then(|item| item.message.as_ref()).map(|message| escape_text(&excerpt(&message.body)));
        let text = format!("to: {}, who wrote: {}", from.unwrap_or_default(), body.unwrap_or_default());
        return (cut(&text, width), 0);
    }
    let (before, after) = compose.to.parts();
    let (before, after) = (escape_text(before), escape_text(after));
    let hint = match before.is_empty() && after.is_empty() {
        true => format!("  ({})", model.recipients().join(", ")),
        false => String::new(),
    };
    let column = 4 + tt_client::text::layout::columns(&before);
    (cut(&format!("to: {before}{after}{hint}"), width), column)
}
