//! The moments of a session at which a hook can speak, and what may be said then. Pure.

use tt_proto::session::SessionEvent;

use super::plan::Opening;
use crate::sessions::registry::Report;

/// A moment at which a hook can speak to the model of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// A conversation was opened. `compacted`: the one that was open lost its context.
    Started {
        compacted: bool,
    },
    Prompt,
    /// Before or after a tool.
    Tool,
    TurnEnd,
}

impl Boundary {
    /// The moment that a report is about. None where nothing is said: inside a subagent, what is said would not reach the
    /// conversation.
    pub fn of(report: &Report) -> Option<Self> {
        if report.subagent_id.is_some() {
            return None;
        }
        match report.event {
            SessionEvent::SessionStarted => {
                Some(Self::Started { compacted: report.reason.as_deref() == Some("compact") })
            }
            SessionEvent::Prompt => Some(Self::Prompt),
            SessionEvent::ToolStarted | SessionEvent::ToolEnded => Some(Self::Tool),
            SessionEvent::TurnEnded => Some(Self::TurnEnd),
            SessionEvent::SessionEnded
            | SessionEvent::SubagentStarted
            | SessionEvent::SubagentEnded
            | SessionEvent::PermissionAsked
            | SessionEvent::PermissionAnswered
            | SessionEvent::Interrupted
            | SessionEvent::Idle
            | SessionEvent::Busy => None,
        }
    }

    /// What may be handed over then. `was_held`: the last end of a turn was held.
    pub fn opening(self, was_held: bool) -> Opening {
        match self {
            Self::Tool | Self::Started { compacted: true } => Opening::MidTurn,
            Self::Prompt | Self::Started { compacted: false } => Opening::Fresh,
            Self::TurnEnd => Opening::TurnEnd { was_held },
        }
    }
}

#[cfg(test)]
mod tests {
    use tt_rules::LeaseTime;

    use super::*;

    #[test]
    fn nothing_is_said_in_a_subagent_and_only_at_a_tool_is_it_the_middle_of_a_turn() {
        for event in SessionEvent::ALL {
            let report = Report::of(*event, LeaseTime::from_millis(0));
            let inside = Report { subagent_id: Some("a".into()), ..report.clone() };
            assert_eq!(Boundary::of(&inside), None, "{event:?}");
            let expected = match event {
                SessionEvent::SessionStarted | SessionEvent::Prompt => Some(Opening::Fresh),
                SessionEvent::TurnEnded => Some(Opening::TurnEnd { was_held: true }),
                SessionEvent::ToolStarted | SessionEvent::ToolEnded => Some(Opening::MidTurn),
                _ => None,
            };
            let opening = |report: &Report| Boundary::of(report).map(|boundary| boundary.opening(true));
            assert_eq!(opening(&report), expected, "{event:?}");
            let compacted = Report { reason: Some("compact".into()), ..report };
            if *event == SessionEvent::SessionStarted {
                assert_eq!(opening(&compacted), Some(Opening::MidTurn), "the turn goes on after it");
            }
        }
    }
}
