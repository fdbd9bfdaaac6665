//! Which names members may have, and when a member may be shown by its name alone.

use crate::{AgentId, Error, ErrorCode};

/// Words that mean every other member, as a recipient.
const EVERYONE: [&str; 3] = ["room", "all", "everyone"];

/// Words with a meaning of their own where a name is expected. No member may have one as its name.
pub const RESERVED_NAMES: [&str; 6] = ["room", "all", "everyone", "self", "any", "here"];

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// Whether a recipient means every other member.
pub fn means_everyone(recipient: &str) -> bool {
    EVERYONE.iter().any(|word| recipient.eq_ignore_ascii_case(word))
}

/// Whether this is one of the [`RESERVED_NAMES`]. Case does not distinguish names.
pub fn is_reserved(name: &str) -> bool {
    RESERVED_NAMES.iter().any(|word| name.eq_ignore_ascii_case(word))
}

/// The name that a member asks for: one line that people can type, and that cannot be taken for an id or a reserved word.
pub fn checked_name(name: &str) -> Result<String, Error> {
    let name = name.trim();
    let bad = |what: String| Err(Error::new(ErrorCode::InvalidInput, what).hint("choose another name"));
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        return bad(format!("a name has 1 to {MAX_NAME_BYTES} bytes and no control characters"));
    }
    if name.contains(':') {
        return bad(format!("{name:?} cannot be a name: only agent ids have a colon"));
    }
    if is_reserved(name) {
        return bad(format!("{name:?} cannot be a name: it is a word with a meaning of its own"));
    }
    Ok(name.to_owned())
}

/// A member as far as its name matters.
#[derive(Debug, Clone, Copy)]
pub struct NamedMember<'a> {
    pub agent_id: &'a AgentId,
    pub display_name: &'a str,
    /// Whether it is active or away. Only then its name is its own.
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
    fn a_name_is_one_line_without_a_meaning_of_its_own() {
        for (name, good) in [
            ("reviewer", true),
            (" Zoë ", true),
            ("rooms", true),
            ("Room", false),
            ("ALL", false),
            ("everyone", false),
            ("self", false),
            ("any", false),
            ("here", false),
            ("codex:1", false),
            ("", false),
            (" ", false),
            ("two\nlines", false),
        ] {
            assert_eq!(checked_name(name).is_ok(), good, "{name:?}");
        }
        assert!(checked_name(&"n".repeat(64)).is_ok() && checked_name(&"n".repeat(65)).is_err());
        assert!(["room", "All", "everyone"].into_iter().all(means_everyone) && !means_everyone("self"));
    }

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
