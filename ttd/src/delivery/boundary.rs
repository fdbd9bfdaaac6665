//! The moments of a session at which a hook can speak, and what may be said then. Pure.

use tt_proto::event::Event;
use tt_proto::message::MessageSent;
use tt_proto::session::SessionEvent;

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

    /// Whether the session works on: what is for later stays.
    pub fn is_mid_turn(self) -> bool {
        matches!(self, Self::Tool | Self::Started { compacted: true })
    }
}

/// Whether a message may go to a session that is idle. What an agent tells everybody, and what became of something, comes with
/// the next thing that the session does.
pub fn wakes(message: &Event) -> bool {
    let payload = message.payload.as_ref().and_then(|json| serde_json::from_str::<MessageSent>(json.as_str()).ok());
    payload.is_some_and(|payload| {
        payload.notice.is_none()
            && (message.to_agent_id.is_some() || payload.from_person || payload.reminder_id.is_some())
    })
}

#[cfg(test)]
mod tests {
    use tt_proto::event::EventType;
    use tt_proto::handoff::RawJson;
    use tt_proto::message::Notice;
    use tt_proto::{AgentId, EventId, WallTime};
    use tt_rules::LeaseTime;

    use super::*;

    #[test]
    fn nothing_is_said_in_a_subagent_and_only_at_a_tool_is_it_the_middle_of_a_turn() {
        for event in SessionEvent::ALL {
            let report = Report::of(*event, LeaseTime::from_millis(0));
            let inside = Report { subagent_id: Some("a".into()), ..report.clone() };
            assert_eq!(Boundary::of(&inside), None, "{event:?}");
            let expected = match event {
                SessionEvent::SessionStarted | SessionEvent::Prompt | SessionEvent::TurnEnded => Some(false),
                SessionEvent::ToolStarted | SessionEvent::ToolEnded => Some(true),
                _ => None,
            };
            assert_eq!(Boundary::of(&report).map(Boundary::is_mid_turn), expected, "{event:?}");
            let compacted = Report { reason: Some("compact".into()), ..report };
            if *event == SessionEvent::SessionStarted {
                assert!(Boundary::of(&compacted).is_some_and(Boundary::is_mid_turn), "the turn goes on after it");
            }
        }
    }

    #[test]
    fn a_broadcast_of_an_agent_and_a_notice_wake_nobody() {
        let message = |to: Option<&str>, payload: MessageSent| Event {
            event_seq: 1,
            event_id: EventId::fresh(),
            room_id: "room".into(),
            turn_id: None,
            event_type: EventType::MessageSent,
            from_agent_id: Some(AgentId::trusted("a")),
            to_agent_id: to.map(AgentId::trusted),
            handoff: None,
            reason: None,
            created_at: WallTime::from_millis(0),
            payload: RawJson::of(&payload).ok(),
        };
        let plain = MessageSent::default;
        assert!(wakes(&message(Some("b"), plain())), "to it by name");
        assert!(!wakes(&message(None, plain())), "to everybody");
        assert!(wakes(&message(None, MessageSent { from_person: true, ..plain() })), "a person to everybody");
        assert!(!wakes(&message(Some("b"), MessageSent { notice: Some(Notice::Expired), ..plain() })));
        assert!(wakes(&message(None, MessageSent { reminder_id: Some("r".into()), ..plain() })));
        assert!(!wakes(&Event { payload: None, ..message(Some("b"), plain()) }));
    }
}
