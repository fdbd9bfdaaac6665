//! Who is a member: join, leave, kick, a process that ends, a member that was silent for too long.

use std::sync::Arc;

use tt_proto::event::{EventType, MemberJoined, MemberRenamed};
use tt_proto::handoff::RawJson;
use tt_proto::hello::{Anchor, Identity};
use tt_proto::room::{Liveness, MemberStatus, StickState, room_in_use};
use tt_proto::{AgentId, Error, ErrorCode};

use crate::room::{EventDraft, Member, Moment, Removal, Room, Waiting};
use crate::time::Now;
use crate::{names, takeover, turn};

/// Makes the caller a member, or refreshes its membership. An arrival is an event, and so is a new name.
pub(crate) fn join(room: &mut Room, who: &Identity, display_name: Option<&str>, moment: &Moment) -> Result<(), Error> {
    room.open()?;
    let arrival = match room.member(&who.agent_id) {
        None => Some("joined"),
        Some(member) if member.status != MemberStatus::Active => Some("returned"),
        Some(_) => None,
    };
    let ordinal = room.members().map(|m| m.ordinal + 1).max().unwrap_or(0);
    let known = room.member(&who.agent_id);
    let wanted = display_name.or(known.map(|m| m.display_name.as_str())).unwrap_or(&who.display_name);
    let terminals = open_terminals(known, who);
    let joined = Member {
        agent_id: who.agent_id.clone(),
        ordinal: known.map_or(ordinal, |m| m.ordinal),
        status: MemberStatus::Active,
        display_name: names::free_name(room, &who.agent_id, wanted, &who.display_name),
        harness: who.harness.clone(),
        session_id: who.session_id.clone(),
        found_by: serde_json::to_value(who.found_by).ok().and_then(|v| v.as_str().map(str::to_owned)),
        liveness: if who.anchor.is_some() || !terminals.is_empty() { Liveness::Alive } else { Liveness::Unknown },
        anchor: if who.is_person() { terminals.last().cloned() } else { who.anchor.clone() },
        terminals,
        joined_at: known.filter(|_| arrival.is_none()).map_or(moment.now, |m| m.joined_at),
        last_seen_at: moment.now,
        last_wait_at: known.and_then(|m| m.last_wait_at),
        last_held_turn: known.and_then(|m| m.last_held_turn),
        removal: None,
        quiet_until: known.and_then(|m| m.quiet_until),
        waiting: known.map_or(Waiting::No, |m| m.waiting),
    };
    let previous_name = known.map(|m| m.display_name.clone()).filter(|name| *name != joined.display_name);
    if let Some(reason) = arrival {
        let payload = MemberJoined { display_name: joined.display_name.clone(), harness: joined.harness.clone() };
        let mut event = EventDraft::new(EventType::MemberJoined, room.turn_id, &who.agent_id);
        event.reason = Some(reason.to_owned());
        event.payload = RawJson::of(&payload).ok();
        room.events.push(event);
    }
    if let Some(previous_name) = previous_name {
        let payload = MemberRenamed { display_name: joined.display_name.clone(), previous_name };
        let mut event = EventDraft::new(EventType::MemberRenamed, room.turn_id, &who.agent_id);
        event.payload = RawJson::of(&payload).ok();
        room.events.push(event);
    }
    match room.member_mut(&who.agent_id) {
        Some(member) => *member = joined,
        None => room.members.push(Arc::new(joined)),
    }
    Ok(())
}

/// The terminals of a person that are open, with the one it calls from. An agent has none.
fn open_terminals(known: Option<&Member>, who: &Identity) -> Vec<Anchor> {
    if !who.is_person() {
        return Vec::new();
    }
    let mut open = known.filter(|m| m.liveness != Liveness::Gone).map(|m| m.terminals.clone()).unwrap_or_default();
    open.extend(who.anchor.clone().filter(|anchor| !open.contains(anchor)));
    open
}

/// What a removed member had.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Removed {
    pub(crate) was_owner: bool,
    pub(crate) was_reserved_for: bool,
}

/// Ends the caller's membership.
pub(crate) fn leave(room: &mut Room, caller: &AgentId) -> Result<Removed, Error> {
    if !room.member(caller).is_some_and(|m| m.status.is_member()) {
        return Err(room.not_a_member(caller));
    }
    Ok(remove(room, caller, MemberStatus::Left, "left"))
}

/// Removes another member: one that is gone or away, or any with force. Without force nobody loses a stick that could not be
/// taken over.
pub(crate) fn kick(
    room: &mut Room,
    caller: &AgentId,
    target: &AgentId,
    force: bool,
    reason: Option<&str>,
    now: Now,
) -> Result<Removed, Error> {
    room.active_member(caller)?;
    if caller == target {
        return Err(Error::new(ErrorCode::CannotKickSelf, "you cannot kick yourself"));
    }
    let Some(member) = room.member(target).filter(|m| m.status.is_member()) else {
        return Err(Error::new(ErrorCode::UnknownTarget, format!("{target} is not a member of this room"))
            .detail("agent_id", target.as_str()));
    };
    if !force && !takeover::is_silent(room, member, now.lease) {
        return Err(Error::new(ErrorCode::TargetActive, format!("{target} is still there, or went only now"))
            .detail("agent_id", target.as_str())
            .detail("last_seen_at", now.to_wall(member.last_seen_at).to_string()));
    }
    if !force && takeover::is_entitled(room, target, now.lease) {
        let message = format!("{target} is away, and still entitled to the stick");
        return Err(Error::new(ErrorCode::TargetActive, message)
            .hint("take the stick over when its time has run out, or use --force")
            .detail("agent_id", target.as_str())
            .detail("last_seen_at", now.to_wall(member.last_seen_at).to_string()));
    }
    let mut event = EventDraft::new(EventType::Kick, room.turn_id, caller);
    event.to = Some(target.clone());
    event.reason = reason.map(str::to_owned);
    room.events.push(event);
    let removed = remove(room, target, MemberStatus::Kicked, "kicked");
    if let Some(member) = room.member_mut(target) {
        member.removal = Some(Removal { by: caller.clone(), reason: reason.map(str::to_owned) });
    }
    Ok(removed)
}

/// Deletes the room with everything in it, unless another member is there.
pub(crate) fn delete(room: &mut Room, caller: &AgentId) -> Result<(), Error> {
    let others: Vec<AgentId> = room.present().filter(|m| m.agent_id != *caller).map(|m| m.agent_id.clone()).collect();
    if !others.is_empty() {
        return Err(room_in_use(&others));
    }
    room.deleted = true;
    Ok(())
}

fn remove(room: &mut Room, agent: &AgentId, status: MemberStatus, reason: &str) -> Removed {
    let was_owner = room.owner.as_ref() == Some(agent);
    let was_reserved_for = room.reserved_for.as_ref() == Some(agent);
    if let Some(member) = room.member_mut(agent) {
        member.status = status;
        member.waiting = Waiting::No;
    }
    if was_owner || was_reserved_for {
        // A handoff nobody has claimed yet stays for the next claimant.
        turn::clear(room);
    }
    push_left(room, agent, reason);
    Removed { was_owner, was_reserved_for }
}

fn push_left(room: &mut Room, agent: &AgentId, reason: &str) {
    let mut event = EventDraft::new(EventType::MemberLeft, room.turn_id, agent);
    event.reason = Some(reason.to_owned());
    room.events.push(event);
}

/// Marks agents whose process has ended as gone, and people whose last terminal was closed as away. They are not removed,
/// and keep the stick until another member takes it over, unless the guard gave it to them.
pub(crate) fn processes_exited(room: &mut Room) {
    let gone: Vec<AgentId> = room
        .members
        .iter()
        .filter(|m| m.status == MemberStatus::Active && m.liveness == Liveness::Gone)
        .map(|m| m.agent_id.clone())
        .collect();
    depart(room, &gone, |member| if member.is_person() { "terminal_closed" } else { "process_exited" });
}

/// Marks members as gone or away that were silent for `presence_ttl`. A wait is a sign of life, and so is the open terminal
/// of a person.
pub(crate) fn expire(room: &mut Room, moment: &Moment) {
    let quiet = |m: &&Member| m.status == MemberStatus::Active && m.waiting == Waiting::No && !m.is_at_a_terminal();
    let due = |m: &&Member| m.last_seen_at + room.policy.presence_ttl <= moment.now;
    let silent: Vec<AgentId> = room.members().filter(quiet).filter(due).map(|m| m.agent_id.clone()).collect();
    depart(room, &silent, |_| "expired");
}

fn depart(room: &mut Room, agents: &[AgentId], reason: impl Fn(&Member) -> &'static str) {
    for agent in agents {
        let Some(member) = room.member_mut(agent) else { continue };
        member.status = if member.is_person() { MemberStatus::Away } else { MemberStatus::Gone };
        member.waiting = Waiting::No;
        let reason = reason(member);
        push_left(room, agent, reason);
    }
}

/// Deletes a room in which nothing happened for `idle_room_ttl` and nothing was ever written, unless a member is alive or
/// was seen since.
pub(crate) fn purge(room: &mut Room, has_contents: bool, moment: &Moment) {
    let heard_of = |m: &Member| m.last_seen_at + room.policy.idle_room_ttl > moment.now;
    let lives = |m: &Member| m.liveness == Liveness::Alive || m.waiting != Waiting::No || heard_of(m);
    let inhabited = room.present().any(lives);
    room.deleted = !inhabited && !has_contents;
}

/// Whether a caller that is not a member may become one without saying so: it never was one, or it left by itself.
pub(crate) fn may_enter(room: &Room, caller: &AgentId) -> bool {
    room.state != StickState::Closed && room.member(caller).is_none_or(|m| m.status == MemberStatus::Left)
}

/// Whether a call changes what is known of its caller: it is back after it counted as gone or away, or it lives in a process
/// that is not watched yet.
pub(crate) fn arrives(room: &Room, caller: &Identity) -> bool {
    let is_known = |m: &Member, anchor: &Anchor| match caller.is_person() {
        true => m.terminals.contains(anchor),
        false => m.anchor.as_ref() == Some(anchor),
    };
    let moved = |m: &Member| caller.anchor.as_ref().is_some_and(|anchor| !is_known(m, anchor));
    let arrives = |m: &Member| match m.status {
        MemberStatus::Active => moved(m),
        MemberStatus::Away | MemberStatus::Gone => true,
        MemberStatus::Left | MemberStatus::Kicked => false,
    };
    room.state != StickState::Closed && room.member(&caller.agent_id).is_some_and(arrives)
}

#[cfg(test)]
mod tests {
    use tt_proto::hello::FoundBy;

    use super::*;
    use crate::testing::{id, moment, now, room};

    fn who(agent: &str) -> Identity {
        Identity {
            agent_id: id(agent),
            display_name: "codex".into(),
            harness: Some("codex".into()),
            session_id: None,
            found_by: FoundBy::Env,
            anchor: Some(Anchor { host_id: "h".into(), pid: 7, process_started_at: "t".into() }),
            user: "u".into(),
        }
    }

    fn events(room: &Room) -> Vec<(EventType, &str)> {
        room.events.iter().map(|e| (e.event_type, e.reason.as_deref().unwrap_or(""))).collect()
    }

    fn own(room: &mut Room, agent: &str) {
        turn::wait(room, &id(agent), Waiting::Listening { alone: true }, &moment(0)).unwrap();
        turn::settle(room, &moment(0)).unwrap();
        room.events.clear();
    }

    #[test]
    fn only_an_arrival_is_written_down() {
        let mut room = room(&["a"]);
        join(&mut room, &who("b"), Some("Bea"), &moment(1)).unwrap();
        join(&mut room, &who("b"), None, &moment(2)).unwrap();
        assert_eq!(events(&room), [(EventType::MemberJoined, "joined")]);
        let b = room.member(&id("b")).unwrap();
        assert_eq!((b.ordinal, b.display_name.as_str()), (1, "Bea"), "a name once given stays");
        room.member_mut(&id("b")).unwrap().status = MemberStatus::Gone;
        join(&mut room, &who("b"), None, &moment(3)).unwrap();
        assert_eq!(events(&room).last(), Some(&(EventType::MemberJoined, "returned")));
        assert_eq!(room.member(&id("b")).unwrap().ordinal, 1, "and so does its place");
    }

    #[test]
    fn leaving_gives_back_what_one_held() {
        let mut room = room(&["a", "b"]);
        own(&mut room, "a");
        turn::wait(&mut room, &id("b"), Waiting::Listening { alone: false }, &moment(1)).unwrap();
        let removed = leave(&mut room, &id("a")).unwrap();
        assert!(removed.was_owner && !room.deleted);
        assert_eq!(turn::settle(&mut room, &moment(2)), None, "b is alone now and did not ask to claim alone");
        assert_eq!((room.state, room.owner.as_ref()), (StickState::Idle, None));
        assert_eq!(leave(&mut room, &id("a")).unwrap_err().code, ErrorCode::UnknownMember);
        leave(&mut room, &id("b")).unwrap();
        assert!(!room.deleted, "nobody is left, and the room keeps what it has");
    }

    #[test]
    fn the_last_to_leave_leaves_the_handoff_for_the_next_to_join() {
        let mut room = room(&["a"]);
        own(&mut room, "a");
        let lease = room.lease_id.clone().unwrap();
        let handoff = RawJson::parse(r#"{"status":"s","next_action":"n"}"#.into()).unwrap();
        turn::release(&mut room, &id("a"), &lease, 1, &handoff, &moment(1)).unwrap();
        leave(&mut room, &id("a")).unwrap();
        assert_eq!(room.derived_state(moment(2).now), Some(tt_proto::room::DerivedState::Dormant));
        join(&mut room, &who("b"), None, &moment(3)).unwrap();
        own(&mut room, "b");
        assert_eq!(room.current_handoff.map(|held| held.handoff), Some(handoff));
    }

    #[test]
    fn a_room_is_deleted_by_a_caller_that_is_alone_in_it() {
        let mut room = room(&["a", "b", "c"]);
        room.member_mut(&id("c")).unwrap().status = MemberStatus::Away;
        let refused = delete(&mut room, &id("a")).unwrap_err();
        assert_eq!((refused.code, &refused.details["members"]), (ErrorCode::RoomInUse, &serde_json::json!(["b"])));
        assert_eq!(delete(&mut room, &id("stranger")).unwrap_err().code, ErrorCode::RoomInUse);
        room.member_mut(&id("b")).unwrap().liveness = Liveness::Gone;
        delete(&mut room, &id("a")).unwrap();
        assert!(room.deleted);
    }

    #[test]
    fn kicking_needs_force_until_the_process_has_been_gone_for_two_heartbeats() {
        let mut room = room(&["a", "b", "c"]);
        own(&mut room, "b");
        let kick_at = |room: &Room, target: &str, force: bool, seconds: i64| {
            kick(&mut room.clone(), &id("a"), &id(target), force, Some("ghost"), now(seconds)).map_err(|e| e.code)
        };
        assert_eq!(kick_at(&room, "a", true, 0), Err(ErrorCode::CannotKickSelf));
        assert_eq!(kick_at(&room, "x", true, 0), Err(ErrorCode::UnknownTarget));
        assert_eq!(kick_at(&room, "b", false, 10_000), Err(ErrorCode::TargetActive), "alive");
        assert!(kick_at(&room, "b", true, 0).unwrap().was_owner);
        room.member_mut(&id("b")).unwrap().liveness = Liveness::Gone;
        assert_eq!(kick_at(&room, "b", false, 599), Err(ErrorCode::TargetActive));
        assert!(kick_at(&room, "b", false, 600).is_ok());
        kick(&mut room, &id("a"), &id("b"), false, Some("ghost"), now(600)).unwrap();
        assert_eq!(events(&room), [(EventType::Kick, "ghost"), (EventType::MemberLeft, "kicked")]);
        assert_eq!(kick_at(&room, "b", true, 600), Err(ErrorCode::UnknownTarget), "already removed");
    }

    #[test]
    fn kicking_without_force_frees_no_stick_that_could_not_be_taken_over() {
        let mut room = room(&["a", "b", "c"]);
        own(&mut room, "b");
        let away = |room: &mut Room| {
            let b = room.member_mut(&id("b")).unwrap();
            (b.found_by, b.liveness, b.status) = (Some("user".into()), Liveness::Gone, MemberStatus::Away);
        };
        let kick_at = |room: &Room, force: bool, seconds: i64| {
            kick(&mut room.clone(), &id("a"), &id("b"), force, None, now(seconds)).map_err(|e| e.code)
        };
        away(&mut room);
        assert_eq!(kick_at(&room, false, 45 * 60 - 1), Err(ErrorCode::TargetActive), "its lease runs");
        assert!(kick_at(&room, true, 601).unwrap().was_owner);
        assert!(kick_at(&room, false, 45 * 60).unwrap().was_owner);

        let mut room = room_with_reservation();
        away(&mut room);
        assert_eq!(kick_at(&room, false, 20 * 60 - 1), Err(ErrorCode::TargetActive), "it may still claim it");
        assert!(kick_at(&room, false, 20 * 60).unwrap().was_reserved_for);

        turn::clear(&mut room);
        assert!(kick_at(&room, false, 600).is_ok(), "away, and without the stick");
        // One that only counts as gone, by its silence, may still be at work.
        let mut room = crate::testing::room(&["a", "b", "c"]);
        room.policy.owner_lease_ttl = std::time::Duration::from_secs(8 * 3600);
        room.policy.owner_activity_ttl = room.policy.owner_lease_ttl;
        own(&mut room, "b");
        room.member_mut(&id("b")).unwrap().status = MemberStatus::Gone;
        assert_eq!(kick_at(&room, false, 5 * 3600), Err(ErrorCode::TargetActive));
    }

    /// `a` passed the stick to `b` at second 0.
    fn room_with_reservation() -> Room {
        let mut room = room(&["a", "b", "c"]);
        own(&mut room, "a");
        let lease = room.lease_id.clone().unwrap();
        let handoff = RawJson::parse(r#"{"status":"s","next_action":"n"}"#.into()).unwrap();
        turn::pass(&mut room, &id("a"), &lease, 1, &id("b"), &handoff, &moment(0)).unwrap();
        room
    }

    #[test]
    fn a_process_that_ends_leaves_its_member_gone_and_its_turn_to_be_taken_over() {
        let mut room = room(&["a", "b"]);
        own(&mut room, "a");
        room.member_mut(&id("a")).unwrap().liveness = Liveness::Gone;
        processes_exited(&mut room);
        assert_eq!(room.owner, Some(id("a")), "ownership never moves by itself");
        processes_exited(&mut room);
        assert_eq!(events(&room), [(EventType::MemberLeft, "process_exited")], "told once");
        assert!(arrives(&room, &who("a")), "any call brings it back");
    }

    #[test]
    fn a_member_is_where_it_last_called_from() {
        let mut room = room(&["a"]);
        join(&mut room, &who("b"), None, &moment(1)).unwrap();
        room.events.clear();
        let mut elsewhere = who("b");
        assert!(!arrives(&room, &elsewhere));
        elsewhere.anchor.as_mut().unwrap().pid = 8;
        assert!(arrives(&room, &elsewhere));
        join(&mut room, &elsewhere, None, &moment(2)).unwrap();
        assert_eq!(room.member(&id("b")).unwrap().anchor, elsewhere.anchor);
        assert_eq!(events(&room), [], "it was here all along");
        elsewhere.anchor = None;
        assert!(!arrives(&room, &elsewhere), "a call from nowhere does not hide where it lives");
        assert!(!arrives(&room, &who("x")), "a stranger");
    }

    #[test]
    fn who_joins_again_is_still_not_to_be_disturbed() {
        let mut room = room(&["b"]);
        join(&mut room, &person(1), None, &moment(0)).unwrap();
        let until = Some(now(600).deadline);
        room.member_mut(&id("human:alice")).unwrap().quiet_until = until;
        join(&mut room, &person(2), None, &moment(1)).unwrap();
        assert_eq!(room.member(&id("human:alice")).unwrap().quiet_until, until, "in another terminal");
    }

    fn person(pid: u32) -> Identity {
        let anchor = Some(Anchor { host_id: "h".into(), pid, process_started_at: "t".into() });
        let (agent_id, display_name) = (id("human:alice"), "alice".into());
        Identity { agent_id, display_name, harness: None, found_by: FoundBy::User, anchor, ..who("x") }
    }

    #[test]
    fn a_person_has_several_terminals_and_is_away_after_the_last() {
        let mut room = room(&["b"]);
        join(&mut room, &person(1), None, &moment(0)).unwrap();
        assert!(arrives(&room, &person(2)), "another terminal");
        join(&mut room, &person(2), None, &moment(1)).unwrap();
        let alice = |room: &Room| room.member(&id("human:alice")).unwrap().clone();
        assert_eq!(alice(&room).terminals.iter().map(|t| t.pid).collect::<Vec<_>>(), [1, 2]);
        assert!(!arrives(&room, &person(1)) && !arrives(&room, &person(2)), "both are known");
        room.events.clear();
        expire(&mut room, &moment(7 * 24 * 3600));
        assert_eq!(alice(&room).status, MemberStatus::Active, "silent, with an open terminal");
        room.events.clear();
        room.member_mut(&id("human:alice")).unwrap().liveness = Liveness::Gone;
        processes_exited(&mut room);
        assert_eq!(events(&room), [(EventType::MemberLeft, "terminal_closed")]);
        assert_eq!(alice(&room).status, MemberStatus::Away);
        assert!(arrives(&room, &person(1)));
        join(&mut room, &person(3), None, &moment(2)).unwrap();
        assert_eq!(alice(&room).terminals.iter().map(|t| t.pid).collect::<Vec<_>>(), [3], "the others are closed");
        assert_eq!(events(&room).last(), Some(&(EventType::MemberJoined, "returned")));
    }

    #[test]
    fn names_are_handles_and_a_new_one_is_written_down() {
        let mut room = room(&[]);
        let name = |room: &Room, agent: &str| room.member(&id(agent)).unwrap().display_name.clone();
        for agent in ["codex:1", "codex:2", "codex:3"] {
            join(&mut room, &who(agent), None, &moment(0)).unwrap();
        }
        assert_eq!(["codex:1", "codex:2", "codex:3"].map(|a| name(&room, a)), ["codex", "codex-2", "codex-3"]);
        leave(&mut room, &id("codex:1")).unwrap();
        join(&mut room, &who("codex:2"), None, &moment(1)).unwrap();
        assert_eq!(name(&room, "codex:2"), "codex-2", "a handle once given stays");
        join(&mut room, &who("codex:4"), None, &moment(1)).unwrap();
        assert_eq!(name(&room, "codex:4"), "codex", "and one that was given up is free");
        room.events.clear();
        join(&mut room, &who("codex:1"), None, &moment(2)).unwrap();
        assert_eq!(name(&room, "codex:1"), "codex-4");
        join(&mut room, &who("codex:2"), Some("Reviewer"), &moment(3)).unwrap();
        let log: Vec<_> = events(&room).iter().map(|(event_type, _)| event_type.as_str()).collect();
        assert_eq!(log, ["member_joined", "member_renamed", "member_renamed"]);
        let payload = room.events[2].payload.as_ref().unwrap().as_str();
        assert_eq!(payload, r#"{"display_name":"Reviewer","previous_name":"codex-2"}"#);
    }

    #[test]
    fn a_room_is_purged_only_when_nobody_lives_in_it_and_nothing_was_written() {
        let mut room = room(&["a", "b"]);
        let week = 7 * 24 * 3600;
        room.member_mut(&id("a")).unwrap().liveness = Liveness::Gone;
        purge(&mut room, false, &moment(week));
        assert!(!room.deleted);
        room.member_mut(&id("b")).unwrap().liveness = Liveness::Unknown;
        purge(&mut room, false, &moment(week - 1));
        assert!(!room.deleted, "b was heard of since");
        purge(&mut room, true, &moment(52 * week));
        assert!(!room.deleted, "somebody wrote something");
        purge(&mut room, false, &moment(week));
        assert!(room.deleted);
    }

    #[test]
    fn silence_expires_a_member_but_not_one_that_waits() {
        let mut room = room(&["a", "b"]);
        room.member_mut(&id("b")).unwrap().waiting = Waiting::Parked;
        expire(&mut room, &moment(4 * 3600 - 1));
        assert_eq!(events(&room), []);
        expire(&mut room, &moment(4 * 3600));
        assert_eq!(events(&room), [(EventType::MemberLeft, "expired")]);
        assert_eq!(room.member(&id("a")).unwrap().status, MemberStatus::Gone);
    }
}
