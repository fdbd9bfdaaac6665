//! Typed ids. They are strings on the wire and in SQL; the types keep them from being mixed up in between. The default of
//! each is empty and means nothing: it is there so that a request can be written with `..Default::default()`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorCode};

/// The name of an agent or a person: `codex:5c11d1e8`, `human:alice`. Case-sensitive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AgentId(String);

impl AgentId {
    /// The longest id accepted from outside.
    pub const MAX_BYTES: usize = 128;

    /// Accepts an id chosen outside the daemon: printable, without spaces, not empty, not long.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let plain = |c: char| c.is_ascii_graphic() || (!c.is_ascii() && c.is_alphanumeric());
        if text.is_empty() || text.len() > Self::MAX_BYTES || !text.chars().all(plain) {
            return Err(Error::new(ErrorCode::InvalidInput, "that is not a usable agent id")
                .hint("use 1 to 128 bytes of letters, digits and punctuation, for example codex:review-1")
                .detail("agent_id", text.escape_debug().to_string()));
        }
        Ok(Self(text.to_owned()))
    }

    /// Takes an id the daemon itself made or has stored.
    pub fn trusted(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! made_by_the_daemon {
    ($($(#[$doc:meta])* $name:ident by $version:ident;)+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn fresh() -> Self {
                Self(uuid::Uuid::$version().to_string())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: Into<String>> From<T> for $name {
            fn from(text: T) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )+};
}

// Read back as any text: a database of 0.1.x may hold ids of another form.
made_by_the_daemon! {
    RoomId by new_v4;
    /// The fencing token of a turn. Never used twice.
    LeaseId by new_v4;
    /// In the order they are made, so that the index over them grows at its end however long the log is.
    EventId by now_v7;
    NoteId by new_v4;
    ReminderId by new_v4;
}

impl RoomId {
    /// Means the room of the `context_path` that the connection's `hello` named, so that a call need not wait for its answer.
    pub const HERE: &str = "here";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_from_outside_are_checked() {
        for good in ["codex:5c11d1e8", "human:alice", "human:zoë", "a"] {
            assert_eq!(AgentId::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "two words", "tab\there", "esc\u{1b}[2J", "rtl\u{202e}", &"x".repeat(129)] {
            assert_eq!(AgentId::parse(bad).unwrap_err().code, ErrorCode::InvalidInput, "{bad:?}");
        }
    }
}
