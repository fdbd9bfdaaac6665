//! Colours: the terminal's own, so that they are readable on light and dark. Whatever a colour says, a word or a sign says too.

use ratatui::style::{Color, Modifier, Style};
use tt_proto::paths::Environment;

#[derive(Debug, Clone, Copy)]
pub struct Palette {
    pub plain: Style,
    pub strong: Style,
    pub dim: Style,
    pub chosen: Style,
    /// Needs a person, or is on its way.
    pub warn: Style,
    pub bad: Style,
    pub good: Style,
}

impl Palette {
    pub fn of(env: &Environment) -> Self {
        if env.get("NO_COLOR").is_some() { Self::plain() } else { Self::coloured() }
    }

    /// Without colours.
    pub fn plain() -> Self {
        let style = Style::new();
        Self {
            plain: style,
            strong: style.add_modifier(Modifier::BOLD),
            dim: style.add_modifier(Modifier::DIM),
            chosen: style.add_modifier(Modifier::REVERSED),
            warn: style.add_modifier(Modifier::BOLD),
            bad: style.add_modifier(Modifier::BOLD),
            good: style,
        }
    }

    pub fn coloured() -> Self {
        let plain = Self::plain();
        Self {
            warn: Style::new().fg(Color::Yellow),
            bad: Style::new().fg(Color::Red),
            good: Style::new().fg(Color::Green),
            ..plain
        }
    }
}
