//! The only place that writes to standard output. An agent gets JSON, one object a line; a person gets text.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use serde::Serialize;
use tt_proto::Error;
use tt_proto::escape::escape_json;
pub use tt_proto::escape::escape_text as harmless;
use tt_proto::paths::Environment;

use crate::layout;

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}

/// Where answers go.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub format: Format,
    style: Style,
    terminal: bool,
}

impl Output {
    pub fn new(format: Format, env: &Environment) -> Self {
        Self { format, style: Style::of(&io::stdout(), env), terminal: io::stdout().is_terminal() }
    }

    pub fn style(&self) -> &Style {
        &self.style
    }

    /// Writes one answer: the object as JSON, or what `text` makes of it.
    pub fn answer<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T, &Style) -> String) -> io::Result<()> {
        let line = self.line(answer, text)?;
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()
    }

    /// One answer as it will be written, closed by a line break.
    pub fn line<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T, &Style) -> String) -> io::Result<String> {
        let mut line = match self.format {
            // A handoff is passed on to the letter, but a line break in it can only be white space.
            Format::Json => json_for(self.terminal, serde_json::to_string(answer)?.replace(['\n', '\r'], " ")),
            Format::Text => self.style.lines(&text(answer, &self.style)),
        };
        if !line.ends_with('\n') {
            line.push('\n');
        }
        Ok(line)
    }

    /// Writes text that has no JSON form.
    pub fn text(&self, text: impl FnOnce(&Style) -> String) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text(&self.style).as_bytes())?;
        out.flush()
    }
}

/// Colours, where there is a terminal that wants them, and lines as long as it is wide.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    color: bool,
    /// None: lines may be as long as they are, because a program reads them.
    width: Option<usize>,
}

impl Style {
    /// What suits this stream. `COLUMNS` may ask for less than the terminal is wide, but not for more: what it breaks itself
    /// goes on at the margin. Shells export it, and it may be older than the terminal's last change of size.
    fn of(stream: &(impl IsTerminal + AsFd), env: &Environment) -> Self {
        let terminal = terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
        let asked = env.get_str("COLUMNS").and_then(|columns| columns.parse().ok());
        Self {
            color: stream.is_terminal() && env.get("NO_COLOR").is_none(),
            width: [asked, terminal].into_iter().flatten().filter(|width| *width > 0).min(),
        }
    }

    /// The same, with this much less room.
    pub fn width_within(&self, indentation: usize) -> Option<usize> {
        self.width.map(|width| width.saturating_sub(indentation).max(1))
    }

    /// A text after its beginning: what does not fit on the line goes on below the text, not below the beginning.
    pub fn row(&self, beginning: &str, text: &str) -> String {
        let row = format!("{beginning}{text}\n");
        match self.width {
            Some(width) => layout::wrapped(&row, width, layout::columns(beginning)),
            None => row,
        }
    }

    /// Lines that nobody laid out by hand: what does not fit goes on below, set in a little.
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

    /// Every line has its colour to itself, so that a text that ends with a line still does.
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

/// JSON exactly as it is for a program; on a terminal, unsafe characters are escaped, which does not change its meaning.
fn json_for(terminal: bool, json: String) -> String {
    if terminal { escape_json(&json) } else { json }
}

/// Where an error is explained at length.
fn explained_at(error: &Error) -> String {
    format!("docs/troubleshooting.md#{}", error.code)
}

/// Writes an error to standard error: JSON for an agent; for a person what happened, what to do, and where to read more.
pub fn complain(format: Format, error: &Error, env: &Environment) {
    let text = match format {
        Format::Json => {
            let error = error.clone().detail("see", explained_at(error));
            json_for(io::stderr().is_terminal(), serde_json::to_string(&error).unwrap_or(error.message)) + "\n"
        }
        Format::Text => {
            let style = Style::of(&io::stderr(), env);
            let rows = [
                style.row(&format!("{} ", style.warn("tt:")), &harmless(&error.message)),
                style.row("    ", &harmless(&error.hint)),
                style.row("    ", &style.dim(&format!("see {}", explained_at(error)))),
            ];
            rows.concat()
        }
    };
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_drives_nothing_and_says_the_same() {
        let text = "a\u{9b}2J\u{202e}b\u{e0041}c\u{7f}";
        let json = serde_json::to_string(text).unwrap();
        assert_eq!(json_for(false, json.clone()), json, "to the letter");
        let shown = json_for(true, json);
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        assert_eq!(json_for(true, "{\t\"a\":\t\"b\\tc\"}".into()), "{ \"a\": \"b\\tc\"}", "white space between tokens");
    }

    #[test]
    fn colours_change_neither_where_lines_end_nor_how_far_they_are_set_in() {
        let (plain, coloured) = [false, true]
            .map(|color| Style { color, width: Some(12) })
            .map(|s| s.lines(&s.dim("  one two three\n  four\n")))
            .into();
        assert_eq!(plain, "  one two\n    three\n  four\n");
        assert_eq!(coloured.replace("\x1b[2m", "").replace("\x1b[0m", ""), plain);
        assert!(coloured.ends_with('\n'), "no line break is added to it: {coloured:?}");
    }
}
