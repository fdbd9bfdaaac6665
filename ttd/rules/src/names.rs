//! Finding a member by the name people and agents use.

use std::collections::HashSet;

use tt_proto::names::{MAX_NAME_BYTES, NamedMember, is_reserved, is_unambiguous};
use tt_proto::room::MemberStatus;
use tt_proto::{AgentId, Error, ErrorCode};

use crate::room::{Member, Room, Waiting};

/// The one member a name means: a full agent id of any member; else a display name; else the beginning of an id. Members that
/// are active go before those that are away, and those before the gone. A name in full goes before all beginnings: where
/// `codex` is gone and `codex-2` is there, whose id begins with `codex`, `codex` means the one that is called so.
///
/// A name that others continue (`codex`, where `codex-2` is there too) means several: the caller may not know of the others.
pub fn resolve<'a>(room: &'a Room, name: &str) -> Result<&'a Member, Error> {
    if let Some(member) = room.members().find(|m| m.agent_id.as_str() == name) {
        return Ok(member);
    }
    let is_called = |m: &Member| m.display_name.eq_ignore_ascii_case(name);
    let begins = |m: &Member| !name.is_empty() && m.agent_id.as_str().starts_with(name);
    let statuses = [MemberStatus::Active, MemberStatus::Away, MemberStatus::Gone];
    let of = |status: MemberStatus| room.members().filter(move |m| m.status == status);
    let fitting: Vec<&Member> = match statuses.into_iter().find(|status| of(*status).any(is_called)) {
        Some(status) => of(status).filter(|m| is_handle_of(&m.display_name, name)).collect(),
        None => {
            let status = statuses.into_iter().find(|status| of(*status).any(begins));
            status.into_iter().flat_map(of).filter(|m| begins(m)).collect()
        }
    };
    match fitting.as_slice() {
        [] => Err(unknown(room, name)),
        [member] => Ok(member),
        several => Err(ambiguous(room, name, several)),
    }
}

/// The one member that a message to this name is for. As [`resolve`], but a message is for somebody who can read it: where
/// `codex` is gone, it goes to `codex-2`, which came while that name was taken. The full agent id reaches the one that is gone.
/// Nobody means itself by another's name.
pub(crate) fn resolve_recipient<'a>(room: &'a Room, from: &AgentId, name: &str) -> Result<&'a Member, Error> {
    let is_called = |m: &Member| m.agent_id.as_str() == name || m.display_name.eq_ignore_ascii_case(name);
    let is_gone = |m: &Member| m.status == MemberStatus::Gone && m.agent_id.as_str() != name;
    let mut called = room.members().filter(|m| m.status.is_member() && is_called(m)).peekable();
    if called.peek().is_none() || !called.all(is_gone) {
        return resolve(room, name);
    }
    let is_other = |m: &Member| m.status == MemberStatus::Active && m.agent_id != *from;
    let continues = |m: &&Member| is_other(m) && is_handle_of(&m.display_name, name);
    match room.members().filter(continues).collect::<Vec<_>>().as_slice() {
        [] => resolve(room, name),
        [member] => Ok(member),
        several => Err(ambiguous(room, name, several)),
    }
}

/// Whether a display name is this name, or this name with a number.
fn is_handle_of(display_name: &str, name: &str) -> bool {
    display_name.eq_ignore_ascii_case(name) || stem(display_name).is_some_and(|stem| stem.eq_ignore_ascii_case(name))
}

/// A name without the number that made it unique: `codex` of `codex-2`.
fn stem(name: &str) -> Option<&str> {
    let (stem, number) = name.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    (is_number && !stem.is_empty()).then_some(stem)
}

/// The name that a member gets: the one it wants, or that with a number if another member has it or nobody may have it. A
/// number at the end of the wanted name is part of it (`gpt-5`), unless the name is `usual` with a number: then the number was
/// given here before.
pub(crate) fn free_name(room: &Room, agent: &AgentId, wanted: &str, usual: &str) -> String {
    let others = || room.members().filter(|m| m.agent_id != *agent);
    let ids = others().map(|m| m.agent_id.as_str());
    let names = others().filter(|m| m.status.is_addressed()).map(|m| m.display_name.as_str());
    let taken: HashSet<String> = ids.chain(names).map(str::to_ascii_lowercase).collect();
    let is_free = |name: &str| !is_reserved(name) && !taken.contains(&name.to_ascii_lowercase());
    if is_free(wanted) {
        return wanted.to_owned();
    }
    let beginning = stem(wanted).filter(|stem| stem.eq_ignore_ascii_case(usual)).unwrap_or(wanted);
    let numbered = (2..).map(|number: u64| with_number(beginning, number));
    numbered.into_iter().find(|name| is_free(name)).unwrap_or_else(|| agent.to_string())
}

/// A name and a number that are together no longer than a name may be.
fn with_number(name: &str, number: u64) -> String {
    let number = format!("-{number}");
    let mut name = name.to_owned();
    while name.len() + number.len() > MAX_NAME_BYTES && name.pop().is_some() {}
    name + &number
}

fn ambiguous(room: &Room, name: &str, several: &[&Member]) -> Error {
    let shown = |m: &&Member| format!("{} ({}, {})", m.display_name, m.agent_id, activity(room, m));
    let listed: Vec<String> = several.iter().take(MAX_LISTED).map(shown).collect();
    let candidates = ids(several.iter().copied());
    let more = several.len() - candidates.len();
    let and_more = if more > 0 { format!(" or {more} more") } else { String::new() };
    let message = format!("{name:?} can mean {}{and_more}", listed.join(" or "));
    let error = Error::new(ErrorCode::AmbiguousRecipient, message).detail("candidates", candidates);
    if more > 0 { error.detail("more", more) } else { error }
}

/// What a member is doing, as far as its room knows.
fn activity(room: &Room, member: &Member) -> &'static str {
    match member.waiting {
        _ if room.owner.as_ref() == Some(&member.agent_id) => "holds the stick",
        _ if room.reserved_for.as_ref() == Some(&member.agent_id) => "has the stick next",
        Waiting::Listening { .. } => "waits for the stick",
        Waiting::Parked => "parked",
        Waiting::No => member.status.as_str(),
    }
}

/// The display name of a member, if no other member can be meant by it.
pub fn unique_name<'a>(room: &'a Room, agent: &AgentId) -> Option<&'a str> {
    let name = room.member(agent)?.display_name.as_str();
    let named = room.members().map(|m| NamedMember {
        agent_id: &m.agent_id,
        display_name: &m.display_name,
        is_active: m.status.is_addressed(),
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
    let here = room.members().filter(|m| m.status.is_member());
    let near = ids(here.filter(|m| is_near(name, &m.display_name) || is_near(name, m.agent_id.as_str())));
    let error = Error::new(ErrorCode::UnknownRecipient, format!("nobody here is called {name:?}"));
    let absent = room.members().filter(|m| !m.status.is_member());
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
        assert_eq!(who(&room, "alice").as_deref(), Ok("human:alice"), "gone, and nobody else has the name");
        room.member_mut(&id("human:alice")).unwrap().status = MemberStatus::Left;
        assert_eq!(who(&room, "human:alice").as_deref(), Ok("human:alice"), "a full id, though it left");
        assert_eq!(who(&room, "alice"), Err(ErrorCode::UnknownRecipient));
        let hint = resolve(&room, "Alice").unwrap_err().hint;
        assert!(hint.contains("human:alice"), "a name of somebody who left is not a slip: {hint}");
    }

    #[test]
    fn a_name_means_the_active_before_the_away_and_the_away_before_the_gone() {
        let mut room = room(&["codex:1", "codex:2", "codex:3"]);
        let statuses = [MemberStatus::Gone, MemberStatus::Away, MemberStatus::Active];
        for (agent, status) in ["codex:1", "codex:2", "codex:3"].into_iter().zip(statuses) {
            let member = room.member_mut(&id(agent)).unwrap();
            (member.display_name, member.status) = ("reviewer".into(), status);
        }
        for expected in ["codex:3", "codex:2", "codex:1"] {
            assert_eq!(who(&room, "reviewer").as_deref(), Ok(expected));
            room.member_mut(&id(expected)).unwrap().status = MemberStatus::Left;
        }
        assert_eq!(who(&room, "reviewer"), Err(ErrorCode::UnknownRecipient));
    }

    #[test]
    fn a_name_that_another_member_continues_is_ambiguous_while_both_are_there() {
        let mut room = named();
        room.member_mut(&id("codex:9f00aa11")).unwrap().display_name = "codex-2".into();
        room.owner = Some(id("codex:5c11d1e8"));
        room.member_mut(&id("codex:9f00aa11")).unwrap().waiting = Waiting::Listening { alone: false };
        let error = resolve(&room, "codex").unwrap_err();
        assert_eq!(error.code, ErrorCode::AmbiguousRecipient);
        assert_eq!(
            error.message,
            "\"codex\" can mean codex (codex:5c11d1e8, holds the stick) or codex-2 (codex:9f00aa11, waits for the stick)"
        );
        assert_eq!(who(&room, "codex-2").as_deref(), Ok("codex:9f00aa11"));
        room.member_mut(&id("codex:9f00aa11")).unwrap().status = MemberStatus::Gone;
        assert_eq!(who(&room, "codex").as_deref(), Ok("codex:5c11d1e8"));
        assert_eq!(who(&room, "codex-2").as_deref(), Ok("codex:9f00aa11"), "gone, but named in full");
    }

    #[test]
    fn a_name_means_the_gone_member_that_has_it_before_an_active_one_whose_id_begins_with_it() {
        let mut room = named();
        room.member_mut(&id("codex:9f00aa11")).unwrap().display_name = "codex-2".into();
        for status in [MemberStatus::Away, MemberStatus::Gone] {
            room.member_mut(&id("codex:5c11d1e8")).unwrap().status = status;
            assert_eq!(who(&room, "codex").as_deref(), Ok("codex:5c11d1e8"), "{status:?}");
        }
        assert_eq!(who(&room, "codex:").as_deref(), Ok("codex:9f00aa11"), "a beginning means the active one");
        room.member_mut(&id("codex:5c11d1e8")).unwrap().status = MemberStatus::Left;
        assert_eq!(who(&room, "codex").as_deref(), Ok("codex:9f00aa11"), "who left has no name any more");
    }

    #[test]
    fn a_message_to_a_name_whose_member_is_gone_is_for_the_one_that_continues_the_name() {
        let mut room = named();
        room.member_mut(&id("codex:9f00aa11")).unwrap().display_name = "codex-2".into();
        let from = |from: &str, room: &Room, name: &str| {
            resolve_recipient(room, &id(from), name).map(|m| m.agent_id.to_string()).map_err(|e| e.code)
        };
        let recipient = |room: &Room, name: &str| from("somebody", room, name);
        assert_eq!(recipient(&room, "codex"), Err(ErrorCode::AmbiguousRecipient), "both are there");
        room.member_mut(&id("codex:5c11d1e8")).unwrap().status = MemberStatus::Away;
        assert_eq!(recipient(&room, "codex").as_deref(), Ok("codex:5c11d1e8"), "it comes back");
        room.member_mut(&id("codex:5c11d1e8")).unwrap().status = MemberStatus::Gone;
        assert_eq!(recipient(&room, "codex").as_deref(), Ok("codex:9f00aa11"));
        let by_itself = from("codex:9f00aa11", &room, "codex");
        assert_eq!(by_itself.as_deref(), Ok("codex:5c11d1e8"), "who continues the name does not mean itself by it");
        assert_eq!(recipient(&room, "codex:5c11d1e8").as_deref(), Ok("codex:5c11d1e8"), "the id means no other");
        assert_eq!(recipient(&room, "codex:5").as_deref(), Ok("codex:5c11d1e8"), "nor does its beginning");
        assert_eq!(who(&room, "codex").as_deref(), Ok("codex:5c11d1e8"), "a kick is for the one that is called so");
        room.member_mut(&id("claude:1a2b3c4d")).unwrap().display_name = "codex-3".into();
        assert_eq!(recipient(&room, "codex"), Err(ErrorCode::AmbiguousRecipient));
        room.member_mut(&id("codex:9f00aa11")).unwrap().status = MemberStatus::Gone;
        assert_eq!(recipient(&room, "codex").as_deref(), Ok("claude:1a2b3c4d"), "also where several of them are gone");
        room.member_mut(&id("claude:1a2b3c4d")).unwrap().status = MemberStatus::Left;
        room.member_mut(&id("codex:9f00aa11")).unwrap().status = MemberStatus::Left;
        assert_eq!(recipient(&room, "codex").as_deref(), Ok("codex:5c11d1e8"), "nobody else is there");
    }

    #[test]
    fn a_name_that_is_taken_or_reserved_gets_a_number() {
        let room = named();
        let free = |wanted: &str| free_name(&room, &id("new"), wanted, "claude");
        assert_eq!(free("gemini"), "gemini");
        assert_eq!(free("CLAUDE"), "CLAUDE-2", "nobody hears the difference");
        assert_eq!((free("room"), free("All").as_str()), ("room-2".into(), "All-2"));
        assert_eq!(free_name(&room, &id("human:alice"), "alice", "alice"), "alice", "its own");
    }

    #[test]
    fn a_number_that_belongs_to_a_name_stays_and_one_that_made_it_unique_is_replaced() {
        let mut room = named();
        room.member_mut(&id("codex:5c11d1e8")).unwrap().display_name = "gpt-5".into();
        room.member_mut(&id("codex:9f00aa11")).unwrap().display_name = "codex-2".into();
        let free = |wanted: &str| free_name(&room, &id("new"), wanted, "codex");
        assert_eq!(
            (free("gpt-5"), free("codex-2"), free("codex")),
            ("gpt-5-2".into(), "codex-3".into(), "codex".into())
        );
        let long = "é".repeat(MAX_NAME_BYTES / 2);
        room.member_mut(&id("codex:9f00aa11")).unwrap().display_name = long.clone();
        let numbered = free_name(&room, &id("new"), &long, "codex");
        assert_eq!(numbered, format!("{}-2", "é".repeat(MAX_NAME_BYTES / 2 - 1)), "no longer than a name may be");
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
        assert!(error.message.len() < 500, "{}", error.message);
        for nobody in ["", "zebra", "room"] {
            assert_eq!(who(&room, nobody), Err(ErrorCode::UnknownRecipient), "{nobody:?}");
        }
    }
}
