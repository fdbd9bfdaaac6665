//! Writes responses and errors: JSON with one object a line for an agent, text for a person. No response reaches a terminal or a
//! model in any other way, and no hidden character gets past this file, whichever field of a response it is in.

use std::io::{self, Write};

use serde::Serialize;
use tt_proto::Error;
use tt_proto::escape::{escape_json, escape_text};
use tt_proto::paths::Environment;

use crate::text::Style;

/// How responses are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}

/// Standard output, with the format and style of what is written to it.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    pub format: Format,
    style: Style,
}

impl Output {
    pub fn new(format: Format, env: &Environment) -> Self {
        Self { format, style: Style::of(&io::stdout(), env) }
    }

    pub fn style(&self) -> &Style {
        &self.style
    }

    /// Writes one response: the object as JSON, or the text that `text` makes of it.
    pub fn answer<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T, &Style) -> String) -> io::Result<()> {
        let line = self.line(answer, text)?;
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()
    }

    /// One response as it will be written, ending with a line break.
    pub fn line<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T, &Style) -> String) -> io::Result<String> {
        let mut line = match self.format {
            Format::Json => escape_json(&serde_json::to_string(answer)?),
            Format::Text => self.style.lines(&self.style.harmless(&text(answer, &self.style))),
        };
        if !line.ends_with('\n') {
            line.push('\n');
        }
        Ok(line)
    }

    /// Writes text that has no JSON form.
    pub fn text(&self, text: impl FnOnce(&Style) -> String) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(self.style.harmless(&text(&self.style)).as_bytes())?;
        out.flush()
    }
}

/// The section of the documentation that explains an error.
fn explained_at(error: &Error) -> String {
    format!("docs/troubleshooting.md#{}", error.code)
}

/// Writes an error to standard error: as JSON for an agent; for a person as message, hint and a link to the documentation.
pub fn write_error(format: Format, error: &Error, env: &Environment) {
    let text = match format {
        Format::Json => {
            let error = error.clone().detail("see", explained_at(error));
            escape_json(&serde_json::to_string(&error).unwrap_or(error.message)) + "\n"
        }
        Format::Text => {
            let style = Style::of(&io::stderr(), env);
            let rows = [
                style.row(&format!("{} ", style.warn("tt:")), &escape_text(&error.message)),
                style.row("    ", &escape_text(&error.hint)),
                style.row("    ", &style.dim(&format!("see {}", explained_at(error)))),
            ];
            style.harmless(&rows.concat())
        }
    };
    let _ = io::stderr().write_all(text.as_bytes());
}
