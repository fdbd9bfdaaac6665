//! How one message stands with one recipient, and which surface handed it over.

use serde::{Deserialize, Serialize};

use crate::compact::is_false;
use crate::message::DeliveryHint;
use crate::{AgentId, Error, ErrorCode, RoomId, WallTime};

/// How far a message has come with one recipient. Everything but `Pending` and `Delivered` is final.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// No surface has handed it over yet.
    #[default]
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

/// A way by which messages reach a model, the best first. A surface is where they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WayName {
    /// A wait, `tt msg recv` or a follower: somebody asked for messages and waits for them.
    Listening,
    /// The answer of an MCP tool.
    ToolResponse,
    Hook,
    /// What the harness itself offers for messages.
    NativeInbox,
    Terminal,
}

impl WayName {
    pub const ALL: &[WayName] = &[Self::Listening, Self::ToolResponse, Self::Hook, Self::NativeInbox, Self::Terminal];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Listening => "listening",
            Self::ToolResponse => "tool_response",
            Self::Hook => "hook",
            Self::NativeInbox => "native_inbox",
            Self::Terminal => "terminal",
        }
    }

    /// The surface that hands over what goes this way.
    pub const fn surface(self) -> Surface {
        match self {
            Self::Listening => Surface::Wait,
            Self::ToolResponse => Surface::ToolResponse,
            Self::Hook => Surface::Hook,
            Self::NativeInbox => Surface::NativeInbox,
            Self::Terminal => Surface::Terminal,
        }
    }

    /// The way of a surface.
    pub const fn of(surface: Surface) -> Option<Self> {
        match surface {
            Surface::Recv | Surface::Follow | Surface::Wait => Some(Self::Listening),
            Surface::ToolResponse => Some(Self::ToolResponse),
            Surface::Hook => Some(Self::Hook),
            Surface::NativeInbox => Some(Self::NativeInbox),
            Surface::Terminal => Some(Self::Terminal),
            Surface::Unknown => None,
        }
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<WallTime>,
    /// The message that answered it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<i64>,
    /// It was a question and it is over: its time ran out, or the recipient left.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_over: bool,
    /// The answer came after the question was over.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_late: bool,
    /// Why it waits, while it is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
}

impl Recipient {
    /// A recipient to whom nothing was handed over yet.
    pub fn pending(agent_id: AgentId) -> Self {
        Self {
            agent_id,
            display_name: None,
            state: DeliveryState::Pending,
            surface: None,
            delivered_at: None,
            answered_by: None,
            is_over: false,
            is_late: false,
            waits: None,
        }
    }
}

/// Why a message waits, and what brings it to its recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    pub because: WaitReason,
    /// The reason in words, for people: "busy for 2 min: comes with its next tool call".
    pub text: String,
}

/// Why a message is not handed over at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// It is being handed over: a surface listens, or has taken it.
    OnItsWay,
    /// The recipient works: it comes with its next tool call.
    Working,
    /// The recipient works, and the message is for later: it comes at the end of the turn.
    UntilTurnEnds,
    /// The recipient has finished, and nothing can wake it: it comes with the next thing it does.
    Idle,
    /// The recipient asks its user something.
    Asking,
    /// The recipient does not want to be disturbed.
    Quiet,
    /// Nothing is known of what the recipient does: it comes with its next call.
    Unknown,
    /// The recipient's terminals are closed.
    Away,
    /// The recipient's process ended.
    Gone,
    /// The recipient is not a member any more.
    Removed,
    /// A person types into the recipient's composer.
    Draft,
    /// The recipient was woken as often as it may be in an hour.
    WokenTooOften,
    /// It was handed over several times, and nothing showed that it arrived: it comes with the next thing that the recipient does.
    Unconfirmed,
    /// No way to the recipient is known, or all of them failed.
    NoWay,
    /// A reason that a newer daemon names and this program does not know.
    #[serde(other)]
    Other,
}

/// One message and one recipient, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    pub event_seq: i64,
    pub room_id: RoomId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_agent_id: Option<AgentId>,
    pub sent_at: WallTime,
    pub delivery_hint: DeliveryHint,
    #[serde(default, skip_serializing_if = "is_false")]
    pub expects_reply: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WallTime>,
    /// The first characters of its body.
    pub excerpt: String,
    pub recipient: Recipient,
}

/// A delivery that has just changed its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryChanged {
    pub event_seq: i64,
    pub room_id: RoomId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_agent_id: Option<AgentId>,
    pub recipient: AgentId,
    pub state: DeliveryState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<i64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_over: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_late: bool,
    pub at: WallTime,
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
        for way in WayName::ALL {
            assert_eq!(serde_json::to_value(way).unwrap(), way.as_str());
            assert_eq!(WayName::of(way.surface()), Some(*way));
        }
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
