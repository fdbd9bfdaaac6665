//! When a member may be shown by its display name alone.

use crate::AgentId;

/// A member as far as its name matters.
#[derive(Debug, Clone, Copy)]
pub struct NamedMember<'a> {
    pub agent_id: &'a AgentId,
    pub display_name: &'a str,
    pub is_active: bool,
}

/// Whether a display name means this member and nobody else: no other active member has it, and it is nobody else's id. Case
/// does not distinguish names.
pub fn is_unambiguous<'a>(
    agent: &AgentId,
    display_name: &str,
    members: impl IntoIterator<Item = NamedMember<'a>>,
) -> bool {
    !members.into_iter().filter(|other| other.agent_id != agent).any(|other| {
        (other.is_active && other.display_name.eq_ignore_ascii_case(display_name))
            || other.agent_id.as_str().eq_ignore_ascii_case(display_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_two_active_members_and_a_name_that_is_an_id_are_ambiguous() {
        let (alice, codex) = (AgentId::trusted("human:alice"), AgentId::trusted("codex:1"));
        let member = |agent_id, display_name, is_active| NamedMember { agent_id, display_name, is_active };
        let check = |name: &'static str, other| is_unambiguous(&alice, name, [member(&alice, name, true), other]);
        assert!(check("alice", member(&codex, "codex", true)));
        assert!(!check("alice", member(&codex, "ALICE", true)));
        assert!(check("alice", member(&codex, "alice", false)), "only active members are addressed by name");
        assert!(!check("Codex:1", member(&codex, "codex", false)), "that is somebody's id");
        assert!(is_unambiguous(&alice, "human:alice", [member(&alice, "human:alice", true)]));
    }
}
