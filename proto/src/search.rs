//! Finding events by words: what the words of an event are, and when they match. The full-text index of a store and a look
//! at single events go by the same definition.

use serde_json::Value;

use crate::event::Event;
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

/// Everything in an event that members wrote: the message, the handoff, the reason. Field names are not part of it.
pub fn text_of(event: &Event) -> String {
    let mut text = event.reason.clone().unwrap_or_default();
    for json in [&event.handoff, &event.payload].into_iter().flatten() {
        if let Ok(value) = serde_json::from_str(json.as_str()) {
            collect(&value, &mut text);
        }
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
    use crate::handoff::RawJson;
    use crate::{EventId, WallTime};

    #[test]
    fn words_match_by_their_beginning_whatever_their_case() {
        let event = Event {
            event_seq: 1,
            event_id: EventId::fresh(),
            room_id: "room".into(),
            turn_id: None,
            event_type: EventType::Release,
            from_agent_id: None,
            to_agent_id: None,
            handoff: RawJson::parse(r#"{"status":"Überarbeitet: src/Cart.rs","do_not":["touch the schema"]}"#.into())
                .ok(),
            reason: Some("operator_override: impatience".into()),
            created_at: WallTime::from_millis(0),
            payload: None,
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
