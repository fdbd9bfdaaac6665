//! The model as a frame. Pure: nothing here changes the model. A wide terminal shows three panes side by side, a narrow one the pane
//! that has the keys.

mod compose;
mod overlay;
mod palette;
mod rooms;
mod side;
mod status;
mod text;
mod timeline;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::model::{Layer, Model, Pane, Shown};
pub use palette::Palette;

/// From this width on all panes are shown.
const WIDE: u16 = 100;

/// Below this size there is nothing useful to show.
const MIN_SIZE: (u16, u16) = (24, 6);

/// Draws everything, and returns what a person can read and click.
pub fn draw(model: &Model, palette: &Palette, frame: &mut Frame<'_>) -> Shown {
    let area = frame.area();
    let mut shown = Shown::default();
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        frame.render_widget(Paragraph::new("too small"), area);
        return shown;
    }
    let compose_height = compose::height(model, area);
    let [main, writing, bar] =
        Layout::vertical([Constraint::Min(0), Constraint::Length(compose_height), Constraint::Length(2)]).areas(area);
    if area.width >= WIDE {
        let rooms_width = (area.width / 5).clamp(24, 36);
        let side_width = (area.width / 4).clamp(30, 44);
        let panes = [Constraint::Length(rooms_width), Constraint::Min(0), Constraint::Length(side_width)];
        let [left, middle, right] = Layout::horizontal(panes).areas(main);
        rooms::draw(model, palette, frame, left, &mut shown);
        timeline::draw(model, palette, frame, middle, &mut shown);
        side::draw(model, palette, frame, right);
    } else {
        let [tabs, pane] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(main);
        draw_tabs(model, palette, frame, tabs);
        match model.pane {
            Pane::Rooms => rooms::draw(model, palette, frame, pane, &mut shown),
            Pane::Timeline => timeline::draw(model, palette, frame, pane, &mut shown),
            Pane::Side => side::draw(model, palette, frame, pane),
        }
    }
    compose::draw(model, palette, frame, writing);
    status::draw(model, palette, frame, bar);
    // What covers a message hides it.
    if !matches!(model.layer, Layer::None | Layer::Compose(_)) {
        overlay::draw(model, palette, frame, main);
        if !matches!(model.layer, Layer::Prompt(_)) {
            shown.events.clear();
        }
    }
    make_steady(frame.buffer_mut());
    shown
}

/// Replaces characters that are made of several, and that terminals give different widths, by the first of them: else what is drawn
/// behind one would be somewhere else on the screen than we believe, and stay there.
fn make_steady(buffer: &mut ratatui::buffer::Buffer) {
    for cell in &mut buffer.content {
        let symbol = cell.symbol();
        let sum: usize = symbol.chars().map(|c| c.width().unwrap_or(0)).sum();
        let is_unsure = symbol.chars().any(|c| matches!(c, '\u{fe0e}' | '\u{fe0f}' | '\u{200d}'));
        if (is_unsure || sum != symbol.width())
            && let Some(first) = symbol.chars().next()
        {
            cell.set_char(first);
        }
    }
}

fn draw_tabs(model: &Model, palette: &Palette, frame: &mut Frame<'_>, area: Rect) {
    let tab = |pane: Pane, name: &'static str| {
        let style = if model.pane == pane { palette.chosen } else { palette.dim };
        [Span::styled(format!(" {name} "), style), Span::raw(" ")]
    };
    let tabs = [(Pane::Rooms, "Rooms"), (Pane::Timeline, "Timeline"), (Pane::Side, "Members")];
    let spans: Vec<Span<'_>> = tabs.into_iter().flat_map(|(pane, name)| tab(pane, name)).collect();
    frame.render_widget(Line::from(spans), area);
}

/// The frame of a pane.
fn pane_block<'a>(title: String, has_keys: bool, palette: &Palette) -> Block<'a> {
    let style = if has_keys { palette.strong } else { palette.dim };
    Block::bordered().border_style(style).title(Span::styled(title, style))
}
