//! Finding events by words: what the words of an event are, and when they match. The full-text index of a store and a look
//! at single events go by the same definition.

use serde_json::Value;

use crate::event::Event;
use crate::handoff::RawJson;
use crate::{Error, ErrorCode};

/// The words that an event must contain. The beginning of a word is enough; case does not matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchWords(Vec<String>);

impl SearchWords {
    /// The words in what somebody typed.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let words: Vec<String> = words(text).collect();
        if words.is_empty() {
            return Err(Error::new(ErrorCode::InvalidInput, "the search has no letters or digits")
                .hint("search for words; the beginning of a word is enough"));
        }
        Ok(Self(words))
    }

    pub fn as_slice(&self) -> &[String] {
        &self.0
    }

    /// Whether every word is, or begins, a word of the event.
    pub fn match_event(&self, event: &Event) -> bool {
        let text = text_of(event);
        let found: Vec<String> = words(&text).collect();
        self.0.iter().all(|word| found.iter().any(|other| other.starts_with(word.as_str())))
    }
}

/// The words of a text, in small letters.
pub fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// The fields of payloads that members wrote. The others are ids, the harness, and how urgent a message is.
const WRITTEN: [&str; 3] = ["body", "display_name", "previous_name"];

/// Everything in an event that members wrote: the message, the handoff, the reason, their names. Field names are not part
/// of it.
pub fn text_of(event: &Event) -> String {
    let mut text = event.reason.clone().unwrap_or_default();
    let read = |json: &RawJson| serde_json::from_str::<Value>(json.as_str()).ok();
    if let Some(handoff) = event.handoff.as_ref().and_then(read) {
        collect(&handoff, &mut text);
    }
    if let Some(payload) = event.payload.as_ref().and_then(read) {
        WRITTEN.iter().filter_map(|field| payload.get(field)).for_each(|value| collect(value, &mut text));
    }
    text
}

fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(part) => {
            text.push('\n');
            text.push_str(part);
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, text)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventType;
    use crate::{EventId, WallTime};

    fn event(event_type: EventType) -> Event {
        Event {
            event_seq: 1,
            event_id: EventId::fresh(),
            room_id: "room".into(),
            turn_id: None,
            event_type,
            from_agent_id: None,
            to_agent_id: None,
            handoff: None,
            reason: None,
            created_at: WallTime::from_millis(0),
            payload: None,
        }
    }

    #[test]
    fn only_what_members_wrote_is_found() {
        let cases = [
            (r#"{"body":"the cart rounds twice","delivery_hint":"normal"}"#, "cart", "normal"),
            (r#"{"display_name":"reviewer","harness":"codex"}"#, "reviewer", "codex"),
            (r#"{"display_name":"reviewer","previous_name":"codex-2"}"#, "codex reviewer", "display"),
        ];
        for (payload, found, missing) in cases {
            let payload = RawJson::parse(payload.into()).ok();
            let event = Event { payload, ..event(EventType::MessageSent) };
            assert!(SearchWords::parse(found).unwrap().match_event(&event), "{found}");
            assert!(!SearchWords::parse(missing).unwrap().match_event(&event), "{missing}");
        }
        let note = RawJson::parse(r#"{"note_id":"0a1b2c3d"}"#.into()).ok();
        assert_eq!(text_of(&Event { payload: note, ..event(EventType::NoteAdded) }), "");
    }

    #[test]
    fn words_match_by_their_beginning_whatever_their_case() {
        let handoff = r#"{"status":"Überarbeitet: src/Cart.rs","do_not":["touch the schema"]}"#;
        let event = Event {
            handoff: RawJson::parse(handoff.into()).ok(),
            reason: Some("operator_override: impatience".into()),
            ..event(EventType::Release)
        };
        let matches = |text: &str| SearchWords::parse(text).unwrap().match_event(&event);
        for found in ["über", "cart.rs", "CART", "schema touch", "imp", "override"] {
            assert!(matches(found), "{found}");
        }
        for missing in ["art", "schemas", "cart nothing", "do_not", "status"] {
            assert!(!matches(missing), "{missing}");
        }
        assert_eq!(SearchWords::parse(" -- ").unwrap_err().code, ErrorCode::InvalidInput);
    }
}
