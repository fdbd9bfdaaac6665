//! The only place that writes to standard output. An agent gets JSON, one object a line; a person gets text.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;
use tt_proto::Error;
use tt_proto::paths::Environment;

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
    color: bool,
}

impl Output {
    pub fn new(format: Format, env: &Environment) -> Self {
        Self { format, color: io::stdout().is_terminal() && env.get("NO_COLOR").is_none() }
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
            Format::Json => serde_json::to_string(answer)?.replace(['\n', '\r'], " "),
            Format::Text => text(answer, &Style { color: self.color }),
        };
        if !line.ends_with('\n') {
            line.push('\n');
        }
        Ok(line)
    }

    /// Writes text that has no JSON form.
    pub fn text(&self, text: impl FnOnce(&Style) -> String) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text(&Style { color: self.color }).as_bytes())?;
        out.flush()
    }
}

/// Colours, where there is a terminal that wants them.
#[derive(Debug, Clone, Copy)]
pub struct Style {
    color: bool,
}

impl Style {
    pub fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn warn(&self, text: &str) -> String {
        self.paint("33", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Makes text that came from elsewhere safe to show: control characters, and those that reorder or hide text, become
/// visible escapes.
pub fn harmless(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
            || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    safe
}

/// Writes an error to standard error: JSON for an agent, for a person what happened and what to do.
pub fn complain(format: Format, error: &Error) {
    let line = match format {
        Format::Json => serde_json::to_string(error).unwrap_or_else(|_| error.message.clone()),
        Format::Text => format!("tt: {}\n    {}", harmless(&error.message), harmless(&error.hint)),
    };
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_elsewhere_can_drive_the_terminal() {
        assert_eq!(harmless("plain, ünïcode, 漢字"), "plain, ünïcode, 漢字");
        assert_eq!(harmless("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(harmless("a\r\nb\u{202e}c\u{9b}d"), "a\\r\\nb\\u{202e}c\\u{9b}d");
    }
}
