//! How members are named in text for people, so that no name can pass for an id, for another member's name or for our own
//! words.

use std::collections::BTreeMap;

use tt_proto::AgentId;
use tt_proto::escape::escape_text;
use tt_proto::event::{Event, EventType, MemberJoined};
use tt_proto::names::{NamedMember, is_unambiguous};
use tt_proto::room::{Member, MemberStatus};

/// A member's name, or its id if another active member has the same name or any member has that name as its id.
pub(crate) fn name(agent: &AgentId, members: &[Member]) -> String {
    let Some(member) = members.iter().find(|m| m.agent_id == *agent) else { return id(agent) };
    let named = members.iter().map(|member| NamedMember {
        agent_id: &member.agent_id,
        display_name: &member.display_name,
        is_active: member.status == MemberStatus::Active,
    });
    if is_unambiguous(agent, &member.display_name, named) { quoted(&member.display_name) } else { id(agent) }
}

/// Words that we print in the place of a name.
const RESERVED_WORDS: [&str; 5] = ["everyone", "nobody", "room", "somebody", "you"];

/// A name, in quotes if it could be mistaken for an id, for one of our words, for more than a name or, because of similar
/// letters of another script, for another name.
pub(crate) fn quoted(name: &str) -> String {
    let plain = name.chars().all(is_plain);
    if plain && !RESERVED_WORDS.iter().any(|word| name.eq_ignore_ascii_case(word)) {
        return name.to_owned();
    }
    in_quotes(name)
}

/// A member by its name if it has a unique one, else by its id.
pub(crate) fn called(agent: &AgentId, display_name: Option<&str>) -> String {
    display_name.map_or_else(|| id(agent), quoted)
}

/// An id, in quotes unless it has the form of an id, which no unquoted name has. Its owner may choose it freely.
pub(crate) fn id(agent: &AgentId) -> String {
    let id = agent.as_str();
    let plain = id.contains(':') && id.chars().all(|c| is_plain(c) || c == ':');
    if plain { id.to_owned() } else { in_quotes(id) }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.@".contains(c)
}

fn in_quotes(text: &str) -> String {
    format!("\"{}\"", escape_text(text).replace('"', "\\\""))
}

/// Members' names as the log gives them: the display name if only one member has it, else the agent id.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(BTreeMap<AgentId, String>);

impl Names {
    pub(crate) fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut names = Self::default();
        events.into_iter().for_each(|event| names.learn(event));
        names
    }

    /// Notes the name that a member joined with.
    pub(crate) fn learn(&mut self, event: &Event) {
        let joined = event.payload.as_ref().and_then(|p| serde_json::from_str::<MemberJoined>(p.as_str()).ok());
        if let (EventType::MemberJoined, Some(agent), Some(joined)) = (event.event_type, &event.from_agent_id, joined) {
            self.0.insert(agent.clone(), joined.display_name);
        }
    }

    pub(crate) fn get(&self, agent: &AgentId) -> String {
        let named = self.0.iter().map(|(agent_id, name)| NamedMember { agent_id, display_name: name, is_active: true });
        match self.0.get(agent) {
            Some(name) if is_unambiguous(agent, name, named) => quoted(name),
            _ => id(agent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_pass_for_an_id_or_for_our_words() {
        for plain in ["claude", "code-reviewer_2.0", "bob@home"] {
            assert_eq!(quoted(plain), plain);
        }
        for (name, shown) in [
            ("codex:5c11d1e8", "\"codex:5c11d1e8\""),
            ("alice (you)", "\"alice (you)\""),
            ("codex to alice", "\"codex to alice\""),
            ("Everyone", "\"Everyone\""),
            ("\u{430}lice", "\"\u{430}lice\""),
            ("漢字", "\"漢字\""),
            ("a\" to \"b", "\"a\\\" to \\\"b\""),
        ] {
            assert_eq!(quoted(name), shown);
        }
    }

    #[test]
    fn an_id_cannot_pass_for_a_name_or_for_our_words() {
        for plain in ["codex:5c11d1e8", "human:alice", "ci:a.b@host_2"] {
            assert_eq!(id(&AgentId::trusted(plain)), plain);
        }
        for (agent, shown) in [
            ("alice", "\"alice\""),
            ("everyone", "\"everyone\""),
            ("human:alice(you)", "\"human:alice(you)\""),
            ("human:\u{430}lice", "\"human:\u{430}lice\""),
            ("a:\"b", "\"a:\\\"b\""),
        ] {
            assert_eq!(id(&AgentId::trusted(agent)), shown);
        }
    }
}
