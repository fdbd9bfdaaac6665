//! The two lines at the bottom: the connection or what just happened, and the keys.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use tt_proto::escape::escape_text;

use super::Palette;
use super::text::cut;
use crate::model::{Layer, Link, Model, Tone};

pub(super) fn draw(model: &Model, palette: &Palette, frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width);
    let (text, style) = match (&model.link, &model.notice) {
        (Link::Down(why), _) => (format!("no daemon: {}", escape_text(why)), palette.bad),
        (Link::Connecting, _) => ("connecting to the daemon".to_owned(), palette.dim),
        (Link::Up, Some((Tone::Plain, text))) => (text.clone(), palette.plain),
        (Link::Up, Some((Tone::Bad, text))) => (text.clone(), palette.bad),
        (Link::Up, None) => (summary(model), palette.dim),
    };
    let first = Rect { height: 1, ..area };
    let second = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    frame.render_widget(Line::from(Span::styled(cut(&text, width), style)), first);
    frame.render_widget(Line::from(Span::styled(cut(keys(model), width), palette.dim)), second);
}

/// What needs a person anywhere, else who we are.
fn summary(model: &Model) -> String {
    let needs = model
        .rooms
        .iter()
        .flat_map(|entry| entry.needs().into_iter().map(|need| format!("{}: {need}", escape_text(entry.short_name()))));
    let needs: Vec<String> = needs.collect();
    if !needs.is_empty() {
        return format!("! {}", needs.join("; "));
    }
    // A member may be called otherwise in each room.
    let here = model.me.as_ref().and_then(|me| model.labels.get(me).cloned());
    format!("you are {}", here.unwrap_or_else(|| escape_text(&model.my_name)))
}

fn keys(model: &Model) -> &'static str {
    match &model.layer {
        Layer::None => "? help  w write  a ask  r reply  t take  / search  i inbox  Tab next pane  q quit",
        Layer::Help { .. } | Layer::Detail { .. } => "Up and Down scroll, Esc goes back",
        Layer::Compose(compose) if compose.is_sending => "sending…",
        Layer::Compose(compose) if compose.is_in_body => {
            "Enter sends  Alt-Enter new line  Ctrl-P priority  Ctrl-Q question  Esc keeps it for later"
        }
        Layer::Compose(_) => "Tab completes  Enter goes on to the text  Esc keeps it for later",
        Layer::Prompt(prompt) if prompt.candidates.is_empty() => "Enter goes on  Esc goes back",
        Layer::Prompt(_) => "Tab completes  Enter goes on  Esc goes back",
        Layer::Confirm { .. } => "y does it  n does nothing",
        Layer::List(_) => "Up and Down choose, Enter goes there, Esc goes back",
    }
}
