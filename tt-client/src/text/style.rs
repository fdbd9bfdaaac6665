//! Colours and line width of one output stream.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use tt_proto::paths::Environment;

use super::layout;

/// Whether to use colours, and how wide lines may be.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    color: bool,
    /// None if lines are not wrapped, because the reader is not a terminal.
    width: Option<usize>,
}

impl Style {
    /// The style for this stream. `COLUMNS` can make lines shorter than the terminal is wide but not longer, because a line
    /// that the terminal wraps continues at the margin. The variable may be older than the terminal's last change of size.
    pub(crate) fn of(stream: &(impl IsTerminal + AsFd), env: &Environment) -> Self {
        let terminal = terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
        let asked = env.get_str("COLUMNS").and_then(|columns| columns.parse().ok());
        Self {
            color: stream.is_terminal() && env.get("NO_COLOR").is_none(),
            width: [asked, terminal].into_iter().flatten().filter(|width| *width > 0).min(),
        }
    }

    /// The width that is left inside this indentation.
    pub fn width_within(&self, indentation: usize) -> Option<usize> {
        self.width.map(|width| width.saturating_sub(indentation).max(1))
    }

    /// A line that begins with `beginning`. Continuation lines are indented to where `text` began.
    pub fn row(&self, beginning: &str, text: &str) -> String {
        let row = format!("{beginning}{text}\n");
        match self.width {
            Some(width) => layout::wrapped(&row, width, layout::columns(beginning)),
            None => row,
        }
    }

    /// Wraps lines that were not laid out with `row`. Continuation lines are indented by two more columns than their line.
    pub fn lines(&self, text: &str) -> String {
        let Some(width) = self.width else { return text.to_owned() };
        text.split_inclusive('\n').map(|line| layout::wrapped(line, width, layout::margin(line) + 2)).collect()
    }

    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn warn(&self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Colours each line separately, so that a text that ends with a line break still does.
    fn paint(&self, code: &str, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let line = |line: &str| match line.strip_suffix('\n') {
            Some(line) => format!("\x1b[{code}m{line}\x1b[0m\n"),
            None => format!("\x1b[{code}m{line}\x1b[0m"),
        };
        text.split_inclusive('\n').map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_change_neither_line_breaks_nor_indentation() {
        let (plain, coloured) = [false, true]
            .map(|color| Style { color, width: Some(12) })
            .map(|s| s.lines(&s.dim("  one two three\n  four\n")))
            .into();
        assert_eq!(plain, "  one two\n    three\n  four\n");
        assert_eq!(coloured.replace("\x1b[2m", "").replace("\x1b[0m", ""), plain);
        assert!(coloured.ends_with('\n'), "no line break is added to it: {coloured:?}");
    }
}
