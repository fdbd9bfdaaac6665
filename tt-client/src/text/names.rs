//! How members are named in text for people, so that no name can pass for an id, for another member's name or for our own
//! words.

use std::collections::BTreeMap;

use tt_proto::AgentId;
use tt_proto::escape::escape_text;
use tt_proto::event::{Event, EventType, MemberJoined, MemberRenamed};
use tt_proto::names::{NamedMember, is_reserved, is_unambiguous};
use tt_proto::requests::EventPage;
use tt_proto::room::Member;

/// A member's name, or its id if another active member has the same name or any member has that name as its id.
pub fn name(agent: &AgentId, members: &[Member]) -> String {
    let Some(member) = members.iter().find(|m| m.agent_id == *agent) else { return id(agent) };
    let named = members.iter().map(|member| NamedMember {
        agent_id: &member.agent_id,
        display_name: &member.display_name,
        is_active: member.status.is_addressed(),
    });
    if is_unambiguous(agent, &member.display_name, named) { quoted(&member.display_name) } else { id(agent) }
}

/// Words that we print in the place of a name, besides those that no member may have as its name.
const RESERVED_WORDS: [&str; 3] = ["nobody", "somebody", "you"];

/// A name, in quotes if it could be mistaken for an id, for one of our words, for more than a name or, because of similar
/// letters of another script, for another name.
pub fn quoted(name: &str) -> String {
    let plain = name.chars().all(is_plain);
    if plain && !is_reserved(name) && !RESERVED_WORDS.iter().any(|word| name.eq_ignore_ascii_case(word)) {
        return name.to_owned();
    }
    in_quotes(name)
}

/// A member by its name if it has a unique one, else by its id.
pub fn called(agent: &AgentId, display_name: Option<&str>) -> String {
    display_name.map_or_else(|| id(agent), quoted)
}

/// An id, in quotes unless it has the form of an id, which no unquoted name has. Its owner may choose it freely.
pub fn id(agent: &AgentId) -> String {
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

/// Members' names as the log gives them: the display name if it is its own, else the agent id.
#[derive(Debug, Clone, Default)]
pub struct Names {
    members: BTreeMap<AgentId, Known>,
    /// The last event that was learned from.
    cursor: i64,
}

/// What the log says of a member.
#[derive(Debug, Clone)]
struct Known {
    name: String,
    is_active: bool,
}

impl Names {
    /// The event after which to read on.
    pub fn cursor(&self) -> i64 {
        self.cursor
    }

    /// Learns from a page of the log. Returns whether it was the last one: pages end by their bytes too, so a short one may
    /// be followed by others.
    pub fn learn_page(&mut self, page: &EventPage) -> bool {
        page.events.iter().for_each(|event| self.learn(event));
        self.cursor = page.cursor_event_seq;
        page.events.is_empty()
    }

    /// Notes the name of a member that joined or was renamed, and that a member left.
    pub fn learn(&mut self, event: &Event) {
        let Some(agent) = &event.from_agent_id else { return };
        let payload = event.payload.as_ref().map_or("", |payload| payload.as_str());
        match event.event_type {
            EventType::MemberJoined => {
                if let Ok(MemberJoined { display_name, .. }) = serde_json::from_str(payload) {
                    self.members.insert(agent.clone(), Known { name: display_name, is_active: true });
                }
            }
            EventType::MemberRenamed => {
                if let (Ok(renamed), Some(known)) =
                    (serde_json::from_str::<MemberRenamed>(payload), self.members.get_mut(agent))
                {
                    known.name = renamed.display_name;
                }
            }
            // A person that is away keeps its name.
            EventType::MemberLeft if event.reason.as_deref() != Some("terminal_closed") => {
                if let Some(known) = self.members.get_mut(agent) {
                    known.is_active = false;
                }
            }
            _ => {}
        }
    }

    pub fn get(&self, agent: &AgentId) -> String {
        let named = self.members.iter().map(|(agent_id, known)| NamedMember {
            agent_id,
            display_name: &known.name,
            is_active: known.is_active,
        });
        match self.members.get(agent) {
            Some(known) if is_unambiguous(agent, &known.name, named) => quoted(&known.name),
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
    fn the_log_tells_who_has_a_name_now() {
        let event = |seq: i64, kind: &str, from: &str, rest: &str| -> Event {
            let json = format!(
                r#"{{"event_seq":{seq},"event_id":"e","room_id":"r","turn_id":0,"event_type":"{kind}","from_agent_id":"{from}",
                    "to_agent_id":null,"handoff":null,"created_at":"2026-11-16T01:02:03.456Z",{rest}}}"#
            );
            serde_json::from_str(&json).unwrap()
        };
        let joined = |seq, from, name: &str| {
            event(
                seq,
                "member_joined",
                from,
                &format!(r#""reason":"joined","payload":{{"display_name":"{name}","harness":null}}"#),
            )
        };
        let left = |seq, from, reason: &str| {
            event(seq, "member_left", from, &format!(r#""reason":"{reason}","payload":null"#))
        };
        let mut names = Names::default();
        names.learn(&joined(1, "claude:1", "claude"));
        names.learn(&left(2, "claude:1", "process_exited"));
        names.learn(&joined(3, "claude:2", "claude"));
        let get = |names: &Names, agent: &str| names.get(&AgentId::trusted(agent));
        assert_eq!((get(&names, "claude:2"), get(&names, "claude:1")), ("claude".into(), "claude:1".into()));
        let payload = r#""reason":null,"payload":{"display_name":"reviewer","previous_name":"claude"}"#;
        names.learn(&event(4, "member_renamed", "claude:2", payload));
        assert_eq!((get(&names, "claude:2"), get(&names, "claude:1")), ("reviewer".into(), "claude".into()));
        names.learn(&left(5, "claude:2", "terminal_closed"));
        names.learn(&joined(6, "claude:3", "reviewer"));
        assert_eq!(get(&names, "claude:3"), "claude:3", "away is not gone");
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
