//! Finding a member by the name people and agents use.

use tt_proto::names::{NamedMember, is_unambiguous};
use tt_proto::room::MemberStatus;
use tt_proto::{AgentId, Error, ErrorCode};

use crate::room::{Member, Room};

/// The one member a name means: a full agent id, present or absent; else a display name or the beginning of an id that
/// fits exactly one active member.
pub fn resolve<'a>(room: &'a Room, name: &str) -> Result<&'a Member, Error> {
    if let Some(member) = room.members().find(|m| m.agent_id.as_str() == name) {
        return Ok(member);
    }
    let active = || room.members().filter(|m| m.status == MemberStatus::Active);
    let named: Vec<&Member> = active().filter(|m| m.display_name.eq_ignore_ascii_case(name)).collect();
    let fitting = if named.is_empty() && !name.is_empty() {
        active().filter(|m| m.agent_id.as_str().starts_with(name)).collect()
    } else {
        named
    };
    match fitting.as_slice() {
        [member] => Ok(member),
        [] => Err(unknown(room, name)),
        several => {
            let candidates = ids(several.iter().copied());
            let more = several.len() - candidates.len();
            let and_more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let message = format!("{name:?} fits {}{and_more}", candidates.join(" and "));
            let error = Error::new(ErrorCode::AmbiguousRecipient, message).detail("candidates", candidates);
            Err(if more > 0 { error.detail("more", more) } else { error })
        }
    }
}

/// The display name of a member, if no other member can be meant by it.
pub fn unique_name<'a>(room: &'a Room, agent: &AgentId) -> Option<&'a str> {
    let name = room.member(agent)?.display_name.as_str();
    let named = room.members().map(|m| NamedMember {
        agent_id: &m.agent_id,
        display_name: &m.display_name,
        is_active: m.status == MemberStatus::Active,
    });
    is_unambiguous(agent, name, named).then_some(name)
}

/// How many members an error lists.
const MAX_LISTED: usize = 10;

/// The ids of the first few.
fn ids<'a>(members: impl Iterator<Item = &'a Member>) -> Vec<String> {
    members.take(MAX_LISTED).map(|m| m.agent_id.to_string()).collect()
}

fn unknown(room: &Room, name: &str) -> Error {
    let active = room.members().filter(|m| m.status == MemberStatus::Active);
    let near = ids(active.filter(|m| is_near(name, &m.display_name) || is_near(name, m.agent_id.as_str())));
    let error = Error::new(ErrorCode::UnknownRecipient, format!("nobody here is called {name:?}"));
    let absent = room.members().filter(|m| m.status != MemberStatus::Active);
    let absent = ids(absent.filter(|m| m.display_name.eq_ignore_ascii_case(name)));
    if near.is_empty() && !absent.is_empty() {
        let hint = format!("that was {}, no longer here; a full agent id reaches it all the same", absent.join(" or "));
        return error.hint(hint).detail("absent", absent);
    }
    if near.is_empty() {
        return error;
    }
    error.hint(format!("did you mean {}?", near.join(" or "))).detail("near_matches", near)
}

/// Alike enough to be a slip: a third of the letters may differ.
fn is_near(typed: &str, name: &str) -> bool {
    // What is twice as long differs in too many, and need not be compared letter by letter.
    if typed.len() > 2 * AgentId::MAX_BYTES {
        return false;
    }
    let (typed, name) = (typed.to_lowercase(), name.to_lowercase());
    let stem = name.split(':').next().unwrap_or_default();
    [name.as_str(), stem].iter().any(|name| distance(&typed, name) <= name.chars().count().div_ceil(3))
}

/// How many letters must be added, dropped or changed to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, cb) in b.iter().enumerate() {
            let changed = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{id, room};

    fn named() -> Room {
        let mut room = room(&["claude:1a2b3c4d", "codex:5c11d1e8", "codex:9f00aa11", "human:alice"]);
        for (agent, name) in [("claude:1a2b3c4d", "claude"), ("codex:5c11d1e8", "codex"), ("codex:9f00aa11", "codex")] {
            room.member_mut(&id(agent)).unwrap().display_name = name.into();
        }
        room.member_mut(&id("human:alice")).unwrap().display_name = "alice".into();
        room
    }

    fn who(room: &Room, name: &str) -> Result<String, ErrorCode> {
        resolve(room, name).map(|m| m.agent_id.to_string()).map_err(|e| e.code)
    }

    #[test]
    fn ids_names_and_prefixes_each_find_their_member() {
        let mut room = named();
        for (name, expected) in [
            ("claude", "claude:1a2b3c4d"),
            ("Claude", "claude:1a2b3c4d"),
            ("codex:9f00aa11", "codex:9f00aa11"),
            ("codex:5", "codex:5c11d1e8"),
            ("human", "human:alice"),
            ("alice", "human:alice"),
        ] {
            assert_eq!(who(&room, name).as_deref(), Ok(expected), "{name}");
        }
        room.member_mut(&id("human:alice")).unwrap().status = MemberStatus::Gone;
        assert_eq!(who(&room, "human:alice").as_deref(), Ok("human:alice"), "a full id, though absent");
        assert_eq!(who(&room, "alice"), Err(ErrorCode::UnknownRecipient));
        let hint = resolve(&room, "Alice").unwrap_err().hint;
        assert!(hint.contains("human:alice"), "a name of somebody who is gone is not a slip: {hint}");
    }

    #[test]
    fn a_member_is_called_by_a_name_only_it_has() {
        let mut room = named();
        assert_eq!(unique_name(&room, &id("human:alice")), Some("alice"));
        assert_eq!(unique_name(&room, &id("codex:5c11d1e8")), None);
        assert_eq!(unique_name(&room, &id("nobody")), None);
        room.member_mut(&id("codex:9f00aa11")).unwrap().display_name = "CODEX".into();
        assert_eq!(unique_name(&room, &id("codex:5c11d1e8")), None, "nobody hears the difference");
        room.member_mut(&id("codex:9f00aa11")).unwrap().status = MemberStatus::Gone;
        assert_eq!(unique_name(&room, &id("codex:5c11d1e8")), Some("codex"));
        room.member_mut(&id("codex:5c11d1e8")).unwrap().display_name = "human:Alice".into();
        assert_eq!(unique_name(&room, &id("codex:5c11d1e8")), None, "that is somebody's id");
    }

    #[test]
    fn two_of_one_name_are_listed_and_slips_are_suggested() {
        let room = named();
        let error = resolve(&room, "codex").unwrap_err();
        assert_eq!(error.code, ErrorCode::AmbiguousRecipient);
        assert_eq!(error.details["candidates"].as_array().map(Vec::len), Some(2));
        let error = resolve(&room, "cluade").unwrap_err();
        assert!(error.hint.contains("claude:1a2b3c4d"), "{}", error.hint);
        let many: Vec<String> = (0..500).map(|n| format!("codex:{n:03}")).collect();
        let many = crate::testing::room(&many.iter().map(String::as_str).collect::<Vec<_>>());
        let error = resolve(&many, "codex").unwrap_err();
        assert_eq!(error.details["candidates"].as_array().map(Vec::len), Some(MAX_LISTED));
        assert_eq!(error.details["more"], 500 - MAX_LISTED);
        assert!(error.message.len() < 300, "{}", error.message);
        for nobody in ["", "zebra", "room"] {
            assert_eq!(who(&room, nobody), Err(ErrorCode::UnknownRecipient), "{nobody:?}");
        }
    }
}
