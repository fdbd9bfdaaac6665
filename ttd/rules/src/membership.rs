//! Who is a member: join, leave, kick, a process that ends, a member that was silent for too long.

use std::sync::Arc;

use tt_proto::event::{EventType, MemberJoined};
use tt_proto::handoff::RawJson;
use tt_proto::hello::Identity;
use tt_proto::room::{Liveness, MemberStatus, StickState};
use tt_proto::{AgentId, Error, ErrorCode};

use crate::room::{EventDraft, Member, Moment, Room, Waiting};
use crate::time::Now;
use crate::{takeover, turn};

/// Makes the caller a member, or refreshes its membership. Only an arrival is an event.
pub(crate) fn join(room: &mut Room, who: &Identity, display_name: Option<&str>, moment: &Moment) -> Result<(), Error> {
    room.open()?;
    let arrival = match room.member(&who.agent_id) {
        None => Some("joined"),
        Some(member) if member.status != MemberStatus::Active => Some("returned"),
        Some(_) => None,
    };
    let ordinal = room.members().map(|m| m.ordinal + 1).max().unwrap_or(0);
    let known = room.member(&who.agent_id);
    let name = display_name.map(str::to_owned).or_else(|| known.map(|m| m.display_name.clone()));
    let joined = Member {
        agent_id: who.agent_id.clone(),
        ordinal: known.map_or(ordinal, |m| m.ordinal),
        status: MemberStatus::Active,
        display_name: name.unwrap_or_else(|| who.display_name.clone()),
        harness: who.harness.clone(),
        session_id: who.session_id.clone(),
        found_by: serde_json::to_value(who.found_by).ok().and_then(|v| v.as_str().map(str::to_owned)),
        anchor: who.anchor.clone(),
        liveness: if who.anchor.is_some() { Liveness::Alive } else { Liveness::Unknown },
        joined_at: known.filter(|_| arrival.is_none()).map_or(moment.now, |m| m.joined_at),
        last_seen_at: moment.now,
        last_wait_at: known.and_then(|m| m.last_wait_at),
        last_held_turn: known.and_then(|m| m.last_held_turn),
        waiting: known.map_or(Waiting::No, |m| m.waiting),
    };
    if let Some(reason) = arrival {
        let payload = MemberJoined { display_name: joined.display_name.clone(), harness: joined.harness.clone() };
        let mut event = EventDraft::new(EventType::MemberJoined, room.turn_id, &who.agent_id);
        event.reason = Some(reason.to_owned());
        event.payload = RawJson::of(&payload).ok();
        room.events.push(event);
    }
    match room.member_mut(&who.agent_id) {
        Some(member) => *member = joined,
        None => room.members.push(Arc::new(joined)),
    }
    Ok(())
}

/// What a removed member had.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Removed {
    pub(crate) was_owner: bool,
    pub(crate) was_reserved_for: bool,
}

/// Ends the caller's membership.
pub(crate) fn leave(room: &mut Room, caller: &AgentId) -> Result<Removed, Error> {
    let member = room.member(caller).filter(|m| matches!(m.status, MemberStatus::Active | MemberStatus::Gone));
    if member.is_none() {
        room.active_member(caller)?;
    }
    Ok(remove(room, caller, MemberStatus::Left, "left"))
}

/// Removes another member: one that is gone, or any with force.
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
    let found = room.member(target).filter(|m| matches!(m.status, MemberStatus::Active | MemberStatus::Gone));
    let Some(member) = found else {
        return Err(Error::new(ErrorCode::UnknownTarget, format!("{target} is not a member of this room"))
            .detail("agent_id", target.as_str()));
    };
    if !force && !takeover::is_silent(room, member, now.lease) {
        return Err(Error::new(ErrorCode::TargetActive, format!("{target} is still there, or went only now"))
            .detail("agent_id", target.as_str())
            .detail("last_seen_at", now.to_wall(member.last_seen_at).to_string()));
    }
    let mut event = EventDraft::new(EventType::Kick, room.turn_id, caller);
    event.to = Some(target.clone());
    event.reason = reason.map(str::to_owned);
    room.events.push(event);
    Ok(remove(room, target, MemberStatus::Kicked, "kicked"))
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
    let anyone = room.members().any(|m| m.status == MemberStatus::Active);
    room.deleted = !anyone;
    Removed { was_owner, was_reserved_for }
}

fn push_left(room: &mut Room, agent: &AgentId, reason: &str) {
    let mut event = EventDraft::new(EventType::MemberLeft, room.turn_id, agent);
    event.reason = Some(reason.to_owned());
    room.events.push(event);
}

/// Marks members whose process has ended as gone. They are not removed, and keep the stick until another member takes it
/// over.
pub(crate) fn processes_exited(room: &mut Room) {
    let gone: Vec<AgentId> = room
        .members
        .iter()
        .filter(|m| m.status == MemberStatus::Active && m.liveness == Liveness::Gone)
        .map(|m| m.agent_id.clone())
        .collect();
    depart(room, &gone, "process_exited");
}

/// Marks members as gone that were silent for `presence_ttl`. A wait is a sign of life.
pub(crate) fn expire(room: &mut Room, moment: &Moment) {
    let quiet = |m: &&Member| m.status == MemberStatus::Active && m.waiting == Waiting::No;
    let due = |m: &&Member| m.last_seen_at + room.policy.presence_ttl <= moment.now;
    let silent: Vec<AgentId> = room.members().filter(quiet).filter(due).map(|m| m.agent_id.clone()).collect();
    depart(room, &silent, "expired");
}

fn depart(room: &mut Room, agents: &[AgentId], reason: &str) {
    for agent in agents {
        if let Some(member) = room.member_mut(agent) {
            member.status = MemberStatus::Gone;
            member.waiting = Waiting::No;
        }
        push_left(room, agent, reason);
    }
}

/// Deletes a room in which nothing happened for `idle_room_ttl`, unless a member is alive or was seen since.
pub(crate) fn purge(room: &mut Room, moment: &Moment) {
    let heard_of = |m: &Member| m.last_seen_at + room.policy.idle_room_ttl > moment.now;
    let lives = |m: &Member| m.liveness == Liveness::Alive || m.waiting != Waiting::No || heard_of(m);
    let inhabited = room.present().any(lives);
    room.deleted = !inhabited;
}

/// Whether a call changes what is known of its caller: it is back after it counted as gone, or it lives in another process
/// than the one that is watched.
pub(crate) fn arrives(room: &Room, caller: &Identity) -> bool {
    let moved = |m: &Member| m.status == MemberStatus::Active && caller.anchor.is_some() && m.anchor != caller.anchor;
    let arrives = |m: &Member| m.status == MemberStatus::Gone || moved(m);
    room.state != StickState::Closed && room.member(&caller.agent_id).is_some_and(arrives)
}

#[cfg(test)]
mod tests {
    use tt_proto::hello::{Anchor, FoundBy};

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
        assert!(room.deleted, "nobody active is left");
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
    fn a_room_is_purged_only_when_nobody_lives_in_it() {
        let mut room = room(&["a", "b"]);
        let week = 7 * 24 * 3600;
        room.member_mut(&id("a")).unwrap().liveness = Liveness::Gone;
        purge(&mut room, &moment(week));
        assert!(!room.deleted);
        room.member_mut(&id("b")).unwrap().liveness = Liveness::Unknown;
        purge(&mut room, &moment(week - 1));
        assert!(!room.deleted, "b was heard of since");
        purge(&mut room, &moment(week));
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
