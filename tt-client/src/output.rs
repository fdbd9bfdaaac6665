//! Writes responses and errors: JSON with one object a line for an agent, text for a person. No response reaches a terminal or a
//! model in any other way, and no hidden character gets past this file, whichever field of a response it is in.

use std::io::{self, Write};

use serde::Serialize;
use tt_proto::escape::{escape_json, escape_text};
use tt_proto::message::Unread;
use tt_proto::paths::Environment;
use tt_proto::{Error, RoomId};

use crate::text::Style;

/// How responses are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}

/// Standard output, with the format and style of what is written to it.
#[derive(Debug, Clone)]
pub struct Output {
    pub format: Format,
    style: Style,
    /// The room of the command, which its answers call `here`.
    here: Option<RoomId>,
    /// The messages that wait there for the caller.
    inbox: Unread,
}

impl Output {
    pub fn new(format: Format, env: &Environment) -> Self {
        Self { format, style: Style::of(&io::stdout(), env), here: None, inbox: Unread::default() }
    }

    /// The output of a command about a room.
    pub fn about(self, here: Option<RoomId>, inbox: Unread) -> Self {
        Self { here, inbox, ..self }
    }

    /// The output of a command that hands over messages itself, or counts them.
    pub fn without_inbox(&self) -> Self {
        Self { inbox: Unread::default(), ..self.clone() }
    }

    pub fn style(&self) -> &Style {
        &self.style
    }

    /// Writes one response: the object as JSON, with the number of unread messages if there are any, or the text that `text`
    /// makes of it.
    pub fn answer<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T, &Style) -> String) -> io::Result<()> {
        let mut line = self.line(answer, text)?;
        if self.format == Format::Json && !self.inbox.is_empty() {
            let unread = serde_json::to_string(&self.inbox)?;
            line = line.strip_suffix("}\n").map_or(line.clone(), |object| {
                let comma = if object.ends_with('{') { "" } else { "," };
                format!("{object}{comma}{}\n", unread.trim_start_matches('{'))
            });
        }
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()
    }

    /// One response as it will be written, ending with a line break.
    pub fn line<T: Serialize>(&self, answer: &T, text: impl FnOnce(&T, &Style) -> String) -> io::Result<String> {
        let mut line = match self.format {
            // A handoff is passed on byte for byte, but a line break in it can only be white space.
            Format::Json => {
                let json = serde_json::to_string(answer)?.replace(['\n', '\r'], " ");
                escape_json(&self.with_here(json))
            }
            Format::Text => self.style.lines(&self.style.harmless(&text(answer, &self.style))),
        };
        if !line.ends_with('\n') {
            line.push('\n');
        }
        Ok(line)
    }

    /// The JSON with `here` for the id of the command's room.
    fn with_here(&self, json: String) -> String {
        match &self.here {
            Some(room_id) => name_here(&json, room_id),
            None => json,
        }
    }

    /// Writes text that has no JSON form.
    pub fn text(&self, text: impl FnOnce(&Style) -> String) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(self.style.harmless(&text(&self.style)).as_bytes())?;
        out.flush()
    }
}

/// Fields that hold what a member wrote as JSON. It is passed on as it is.
const HANDOFFS: [&str; 3] = ["\"handoff\":{", "\"pending_handoff\":{", "\"current_handoff\":{"];

/// The JSON with `here` for the id of a room in the fields `room_id`, except in handoffs. Inside a string quotes are escaped,
/// so no text of a member is taken for a field.
fn name_here(json: &str, room_id: &RoomId) -> String {
    let field = format!("\"room_id\":\"{}\"", room_id.as_str());
    let mut named = String::with_capacity(json.len());
    let mut rest = json;
    loop {
        let next = HANDOFFS.iter().chain([&field.as_str()]).filter_map(|part| Some((rest.find(part)?, *part))).min();
        let Some((at, part)) = next else { return named + rest };
        named.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = if part == field {
            named.push_str("\"room_id\":\"here\"");
            part.len()
        } else {
            let end = part.len() - 1 + object_length(&rest[part.len() - 1..]);
            named.push_str(&rest[..end]);
            end
        };
        rest = &rest[end..];
    }
}

/// How long the object at the beginning of this JSON is.
fn object_length(json: &str) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, byte) in json.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b'{' if !in_string => depth += 1,
            b'}' if !in_string && depth <= 1 => return at + 1,
            b'}' if !in_string => depth -= 1,
            _ => {}
        }
    }
    json.len()
}

/// The command that explains an error.
fn explained_at(error: &Error) -> String {
    format!("tt help errors {}", error.code)
}

/// Writes an error to standard error: as JSON for an agent; for a person as message, hint and the command that explains it.
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
                style.row("    ", &style.dim(&format!("see: {}", explained_at(error)))),
            ];
            style.harmless(&rows.concat())
        }
    };
    let _ = io::stderr().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_here_but_a_handoff_is_passed_on_as_it_is() {
        let handoff = r#"{"status":"a \" } \\","room_id":"r-1","deep":{"room_id":"r-1"}}"#;
        let json = format!(
            r#"{{"room_id":"r-1","handoff":{handoff},"events":[{{"room_id":"r-1","pending_handoff":{handoff}}}],"next":{{"room_id":"r-1"}}}}"#
        );
        let named = format!(
            r#"{{"room_id":"here","handoff":{handoff},"events":[{{"room_id":"here","pending_handoff":{handoff}}}],"next":{{"room_id":"here"}}}}"#
        );
        assert_eq!(name_here(&json, &"r-1".into()), named);
        let text = r#"{"body":"\"room_id\":\"r-1\" \"handoff\":{","room_id":"r-2"}"#;
        assert_eq!(name_here(text, &"r-1".into()), text);
    }
}
