//! The handoff: what every release or pass must carry, so that the next agent does not work out again what happened.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Error, ErrorCode};

/// The longest handoff, in bytes of JSON.
pub const MAX_HANDOFF_BYTES: usize = 64 * 1024;

/// JSON kept exactly as it was sent, unknown fields included. The default is `null`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    pub fn of<T: Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self)
    }

    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for RawJson {}

/// What a handoff says, as far as we understand it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handoff {
    /// Where the work stands.
    pub status: String,
    /// What the next holder should do first.
    pub next_action: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_questions: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub do_not: Vec<String>,
}

/// The handoff that is written for a holder that did not write one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AutomaticHandoff {
    pub status: String,
    pub next_action: String,
    /// The files that were edited.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Always true.
    pub automatic: bool,
    pub turn_id: i64,
    /// The last handoff that a member wrote, if its holder did not answer it with one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<Continued>,
}

/// The beginning of a handoff that was given to a holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    pub from_agent_id: crate::AgentId,
    pub status: String,
    pub next_action: String,
}

/// A file the next holder should look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub path: String,
    /// First and last line, both included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<[u64; 2]>,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What an artifact is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Examine,
    Review,
    Edit,
    Context,
    Output,
}

impl Handoff {
    /// A filled-in example, returned by `join_path` so that an agent need not guess the shape.
    pub fn template() -> Self {
        Self {
            status: "what is done and what is not".into(),
            next_action: "the one thing to do first".into(),
            artifacts: vec![Artifact {
                path: "src/lib.rs".into(),
                lines: Some([1, 40]),
                role: Role::Review,
                note: Some("why it matters".into()),
            }],
            open_questions: vec!["what is still undecided".into()],
            do_not: vec!["what must not be touched or tried again".into()],
        }
    }

    /// Reads and checks a handoff.
    pub fn check(raw: &RawJson) -> Result<Self, Error> {
        let bad = |message: String| Error::new(ErrorCode::InvalidHandoff, message);
        let bytes = raw.as_str().len();
        if bytes > MAX_HANDOFF_BYTES {
            return Err(bad(format!("the handoff has {bytes} bytes; at most {MAX_HANDOFF_BYTES} are allowed"))
                .hint("put the rest into a file and name it under artifacts")
                .detail("max_bytes", MAX_HANDOFF_BYTES));
        }
        let handoff: Handoff =
            serde_json::from_str(raw.as_str()).map_err(|e| bad(format!("the handoff cannot be read: {e}")))?;
        for (field, text) in [("status", &handoff.status), ("next_action", &handoff.next_action)] {
            if text.trim().is_empty() {
                return Err(bad(format!("the handoff's {field} is blank")).detail("field", field));
            }
        }
        for artifact in &handoff.artifacts {
            if artifact.path.trim().is_empty() {
                return Err(bad("an artifact has no path".into()).detail("field", "artifacts.path"));
            }
            if let Some([from, to]) = artifact.lines
                && (from == 0 || from > to)
            {
                return Err(bad(format!("lines {from} to {to} of {} are not a range", artifact.path))
                    .hint("lines are counted from 1, first and last included: [from, to] with from <= to")
                    .detail("field", "artifacts.lines"));
            }
        }
        Ok(handoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Handoff, Error> {
        Handoff::check(&RawJson::parse(text.into()).unwrap())
    }

    #[test]
    fn blank_and_missing_fields_and_reversed_ranges_are_refused() {
        for bad in [
            "{}",
            "[]",
            "null",
            r#""text""#,
            r#"{"status":"s"}"#,
            r#"{"next_action":"n"}"#,
            r#"{"status":"","next_action":"n"}"#,
            r#"{"status":"s","next_action":" \n\t "}"#,
            r#"{"status":1,"next_action":"n"}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"role":"edit"}]}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":" ","role":"edit"}]}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":"a","role":"paint"}]}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":"a","role":"edit","lines":[9,2]}]}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":"a","role":"edit","lines":[0,2]}]}"#,
            r#"{"status":"s","next_action":"n","artifacts":[{"path":"a","role":"edit","lines":[1]}]}"#,
            r#"{"status":"s","next_action":"n","do_not":"x"}"#,
        ] {
            assert_eq!(check(bad).unwrap_err().code, ErrorCode::InvalidHandoff, "{bad}");
        }
    }

    #[test]
    fn the_longest_handoff_is_64_kib() {
        let handoff = |bytes: usize| {
            let frame = r#"{"status":"","next_action":"n"}"#;
            format!(r#"{{"status":"{}","next_action":"n"}}"#, "x".repeat(bytes - frame.len()))
        };
        assert!(check(&handoff(MAX_HANDOFF_BYTES)).is_ok());
        assert_eq!(check(&handoff(MAX_HANDOFF_BYTES + 1)).unwrap_err().code, ErrorCode::InvalidHandoff);
    }

    #[test]
    fn fields_we_do_not_know_are_kept_to_the_letter() {
        let text = r#"{ "status":"s", "next_action":"n", "mood": 1.50, "lines":[3] }"#;
        let raw = RawJson::parse(text.into()).unwrap();
        Handoff::check(&raw).unwrap();
        assert_eq!(serde_json::to_string(&raw).unwrap(), text);
        assert!(Handoff::check(&RawJson::of(&Handoff::template()).unwrap()).is_ok());
    }
}
