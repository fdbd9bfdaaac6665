//! Colours and line width of one output stream.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use tt_proto::escape::{escape_lines, escape_text};
use tt_proto::paths::Environment;

use super::layout;

/// Everything that [`Style`] writes to a terminal besides text.
const COLOURS: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"];

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

    /// The style for a text without colours.
    pub fn plain(width: Option<usize>) -> Self {
        Self { color: false, width }
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

    /// The text without a character that could drive a terminal or hide: only line breaks and our own colours stay. Texts of
    /// others are escaped where they are put into a line; this is for what was forgotten there.
    pub fn harmless(&self, text: &str) -> String {
        let mut safe = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('\x1b') {
            safe.push_str(&escape_lines(&rest[..at]));
            let own = if self.color { COLOURS.iter().find(|colour| rest[at..].starts_with(**colour)) } else { None };
            let end = at + own.map_or(1, |colour| colour.len());
            safe.push_str(&own.map_or_else(|| escape_text(&rest[at..end]), |colour| (*colour).to_owned()));
            rest = &rest[end..];
        }
        safe + &escape_lines(rest)
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
    fn only_line_breaks_and_our_own_colours_get_through() {
        let style = Style { color: true, width: None };
        let own = format!("{}{}{}\n", style.bold("a"), style.dim("b\n"), style.warn("c"));
        assert_eq!(style.harmless(&own), own);
        let nasty = "x\x1b[2J\x1b]0;t\x07\x1b[31my\x1b\u{9b}1m\r\u{202e}z\x1b";
        let shown = "x\\u{1b}[2J\\u{1b}]0;t\\u{7}\\u{1b}[31my\\u{1b}\\u{9b}1m\\r\\u{202e}z\\u{1b}";
        assert_eq!(style.harmless(nasty), shown);
        let plain = Style { color: false, width: None };
        assert_eq!(plain.harmless("\x1b[1mx"), "\\u{1b}[1mx", "without colours there are none of ours");
    }

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
