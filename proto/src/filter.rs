//! Which events a reader wants.

use serde::{Deserialize, Serialize};

use crate::event::{Event, EventType};
use crate::{AgentId, Error, ErrorCode};

/// One event type or a list of them, as the caller wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    pub fn names(&self) -> &[String] {
        match self {
            OneOrMany::One(name) => std::slice::from_ref(name),
            OneOrMany::Many(names) => names,
        }
    }
}

/// The filters of the wire, all optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<OneOrMany>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_agent_id: Option<AgentId>,
    /// `self`, `any`, or an agent id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_agent_id: Option<String>,
}

/// For whom an event must be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Messages to this agent and broadcasts by others; other events it took part in; joins and leaves.
    SelfOf(AgentId),
    Any,
    /// What is addressed to exactly this agent.
    Agent(AgentId),
}

/// A filter that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// None: every type.
    pub event_types: Option<Vec<EventType>>,
    pub from: Option<AgentId>,
    pub target: Target,
}

impl EventFilter {
    /// Understands the filter. `me` is the caller; `default_target` is what no target means.
    pub fn understand(&self, me: Option<&AgentId>, default_target: &str) -> Result<Filter, Error> {
        let bad = |what: String| {
            let names: Vec<&str> = EventType::ALL.iter().map(|t| t.as_str()).collect();
            Error::new(ErrorCode::InvalidEventTypeFilter, what)
                .hint(format!("the event types are {}", names.join(", ")))
        };
        let names = match &self.event_type {
            None => None,
            Some(OneOrMany::One(name)) => Some(vec![name.as_str()]),
            Some(OneOrMany::Many(names)) => Some(names.iter().map(String::as_str).collect()),
        };
        let parse = |name: &str| EventType::parse(name).ok_or_else(|| bad(format!("there is no event type {name:?}")));
        let event_types = match names {
            None => None,
            Some(names) if names.is_empty() => return Err(bad("the list of event types is empty".into())),
            Some(names) => {
                let mut types = names.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
                types.sort_unstable_by_key(|event_type| event_type.as_str());
                types.dedup();
                Some(types)
            }
        };
        let target = match self.target_agent_id.as_deref().unwrap_or(default_target) {
            "any" => Target::Any,
            "self" => Target::SelfOf(me.cloned().ok_or_else(|| {
                Error::new(ErrorCode::AgentIdRequired, "target self needs a caller with an identity")
            })?),
            agent => Target::Agent(AgentId::parse(agent)?),
        };
        Ok(Filter { event_types, from: self.from_agent_id.clone(), target })
    }
}

impl Filter {
    pub fn matches(&self, event: &Event) -> bool {
        self.event_types.as_ref().is_none_or(|types| types.contains(&event.event_type))
            && self.from.as_ref().is_none_or(|from| event.from_agent_id.as_ref() == Some(from))
            && self.target.matches(event)
    }
}

impl Target {
    fn matches(&self, event: &Event) -> bool {
        let (from, to) = (event.from_agent_id.as_ref(), event.to_agent_id.as_ref());
        match self {
            Target::Any => true,
            Target::Agent(agent) => to == Some(agent),
            Target::SelfOf(me) => match event.event_type {
                EventType::MessageSent => to == Some(me) || (to.is_none() && from != Some(me)),
                EventType::MemberJoined | EventType::MemberLeft => true,
                _ => from == Some(me) || to == Some(me),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understand(json: &str) -> Result<Filter, ErrorCode> {
        let filter: EventFilter = serde_json::from_str(json).unwrap();
        filter.understand(Some(&AgentId::trusted("me")), "self").map_err(|e| e.code)
    }

    #[test]
    fn an_empty_list_and_an_unknown_type_are_refused() {
        assert_eq!(understand(r#"{"event_type":[]}"#), Err(ErrorCode::InvalidEventTypeFilter));
        assert_eq!(understand(r#"{"event_type":"gossip"}"#), Err(ErrorCode::InvalidEventTypeFilter));
        assert_eq!(understand(r#"{"event_type":["claim","gossip"]}"#), Err(ErrorCode::InvalidEventTypeFilter));
        let one = understand(r#"{"event_type":"claim"}"#).unwrap();
        assert_eq!(one, understand(r#"{"event_type":["claim"]}"#).unwrap());
        assert_eq!(one.target, Target::SelfOf(AgentId::trusted("me")));
        let nobody = EventFilter::default().understand(None, "self").unwrap_err();
        assert_eq!(nobody.code, ErrorCode::AgentIdRequired);
    }
}
