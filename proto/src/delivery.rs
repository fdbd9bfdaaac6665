//! How one message stands with one recipient, and which surface handed it over.

use serde::{Deserialize, Serialize};

use crate::{AgentId, Error, ErrorCode};

/// How far a message has come with one recipient. Everything but `Pending` and `Delivered` is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// No surface has handed it over yet.
    Pending,
    /// A surface has handed it over.
    Delivered,
    /// The recipient has answered it.
    Answered,
    /// Its deadline passed before a surface handed it over.
    Expired,
    /// Its sender took it back before a surface handed it over.
    Withdrawn,
    /// A state that a newer daemon names and this program does not know.
    #[serde(other)]
    Unknown,
}

impl DeliveryState {
    /// The states a daemon writes. `Unknown` is none of them.
    pub const ALL: &[DeliveryState] = &[Self::Pending, Self::Delivered, Self::Answered, Self::Expired, Self::Withdrawn];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Answered => "answered",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::Unknown => "unknown",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|state| state.as_str() == text)
    }
}

/// What shows a message to its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// `tt msg recv`.
    Recv,
    /// `tt msg recv --follow`.
    Follow,
    /// `tt wait` and `wait_for_turn`.
    Wait,
    /// The answer of an MCP tool.
    ToolResponse,
    Hook,
    Terminal,
    NativeInbox,
    /// A surface that a newer daemon names and this program does not know.
    #[serde(other)]
    Unknown,
}

impl Surface {
    /// The surfaces a daemon accepts. `Unknown` is none of them.
    pub const ALL: &[Surface] =
        &[Self::Recv, Self::Follow, Self::Wait, Self::ToolResponse, Self::Hook, Self::Terminal, Self::NativeInbox];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recv => "recv",
            Self::Follow => "follow",
            Self::Wait => "wait",
            Self::ToolResponse => "tool_response",
            Self::Hook => "hook",
            Self::Terminal => "terminal",
            Self::NativeInbox => "native_inbox",
            Self::Unknown => "unknown",
        }
    }

    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|surface| surface.as_str() == text).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|surface| surface.as_str()).collect();
            Error::new(ErrorCode::InvalidInput, format!("there is no surface called {text:?}"))
                .hint(format!("the surfaces are {}", names.join(", ")))
        })
    }
}

/// How a message stands with one recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    pub agent_id: AgentId,
    /// The recipient's display name, if no other member of the room has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    pub state: DeliveryState,
    /// The surface that handed the message over, or that listens and will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_surfaces_have_the_same_name_in_sql_and_json() {
        for state in DeliveryState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
            assert_eq!(DeliveryState::parse(state.as_str()), Some(*state));
        }
        for surface in Surface::ALL {
            assert_eq!(serde_json::to_value(surface).unwrap(), surface.as_str());
            assert_eq!(Surface::parse(surface.as_str()).unwrap(), *surface);
        }
        assert_eq!(Surface::parse("telepathy").unwrap_err().code, ErrorCode::InvalidInput);
    }
    #[test]
    fn a_recipient_with_a_state_and_a_surface_of_a_newer_daemon_is_read() {
        let newer = serde_json::json!({"agent_id": "human:a", "state": "pondered", "surface": "telepathy"});
        let recipient: Recipient = serde_json::from_value(newer).unwrap();
        assert_eq!((recipient.state, recipient.surface), (DeliveryState::Unknown, Some(Surface::Unknown)));
        assert_eq!((recipient.state.as_str(), Surface::Unknown.as_str()), ("unknown", "unknown"));
        assert_eq!(DeliveryState::parse("unknown"), None, "nothing is stored as unknown");
        assert_eq!(Surface::parse("unknown").unwrap_err().code, ErrorCode::InvalidInput);
    }
}
