//! Rooms, members and waits as the wire shows them. Lease times become times of day here, and only the holder sees the
//! lease.

mod activity;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tt_proto::page::MAX_MEMBERS;
use tt_proto::requests::{RoomState, Wait};
use tt_proto::room::{Member, MemberStatus, Room, Takeover};
use tt_proto::session::SessionStatus;
use tt_proto::turn::{Reason, WaitStatus};
use tt_proto::{AgentId, Error, ErrorCode, RoomId, WallTime};
use tt_rules::{HandoffAt, HeldHandoff, LeaseTime, Now, Removal, WaitEnd, Waiting, fairness, takeover};
use tt_store::Reader;

pub use activity::activity;

/// A member that was seen within this time was seen just now.
const JUST_NOW: Duration = Duration::from_secs(60);

/// Tells what the session of an agent does, as far as evidence shows it.
pub type SessionLook<'a> = &'a dyn Fn(&AgentId) -> SessionStatus;

fn member(
    room: &tt_rules::Room,
    member: &tt_rules::Member,
    unread: usize,
    session: SessionLook<'_>,
    now: Now,
) -> Member {
    let is_in_id = |harness: &String| member.agent_id.as_str().split(':').next() == Some(harness.as_str());
    let last_seen = member.last_seen_at.min(now.lease);
    Member {
        agent_id: member.agent_id.clone(),
        display_name: member.display_name.clone(),
        harness: member.harness.clone().filter(|harness| !is_in_id(harness)),
        last_seen_at: (last_seen + JUST_NOW <= now.lease).then(|| now.to_wall(last_seen)),
        status: member.status,
        liveness: member.liveness,
        activity: activity(room, member, || session(&member.agent_id), now),
        waiting: member.waiting != Waiting::No,
        quiet_until: member.quiet_until.filter(|until| *until > now.deadline).map(|until| now.deadline_to_wall(until)),
        unread,
    }
}

/// The most members that are listed although they are gone. Each session of an agent stays a member, so a room in use has
/// very many of them.
pub(crate) const MAX_GONE_LISTED: usize = 5;

/// Which members of a room are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Those who are active or away, and the last few that are gone.
    Present,
    All,
}

/// The members in the order in which they joined, and how many are left out. The holder and the viewer are always listed; of
/// very many, then those who are active, and then those who came last.
pub fn members(
    room: &tt_rules::Room,
    viewer: &AgentId,
    listed: Listed,
    unread: &HashMap<AgentId, usize>,
    session: SessionLook<'_>,
    now: Now,
) -> (Vec<Member>, usize) {
    let held_by = room.held_by().map(|member| &member.agent_id);
    let is_first = |m: &tt_rules::Member| m.agent_id == *viewer || Some(&m.agent_id) == held_by;
    let mut shown: Vec<&tt_rules::Member> = room.members().collect();
    let count = shown.len();
    if listed == Listed::Present {
        let mut gone: Vec<_> = shown.iter().filter(|m| m.status == MemberStatus::Gone && !is_first(m)).collect();
        gone.sort_by_key(|m| std::cmp::Reverse((m.last_seen_at, m.ordinal)));
        let gone: HashSet<&AgentId> = gone.into_iter().take(MAX_GONE_LISTED).map(|m| &m.agent_id).collect();
        shown.retain(|m| is_first(m) || m.status.is_addressed() || gone.contains(&m.agent_id));
    }
    if shown.len() > MAX_MEMBERS {
        shown.sort_by_key(|m| (!is_first(m), m.status != MemberStatus::Active, -m.ordinal));
        shown.truncate(MAX_MEMBERS);
        shown.sort_by_key(|m| m.ordinal);
    }
    let more = count - shown.len();
    let view = |m: &tt_rules::Member| member(room, m, unread.get(&m.agent_id).copied().unwrap_or(0), session, now);
    (shown.into_iter().map(view).collect(), more)
}

pub fn room(room: &tt_rules::Room, viewer: &AgentId, updated_at: WallTime, now: Now) -> Room {
    let stored = |held: &HeldHandoff| match held.at {
        HandoffAt::Stored(seq) => Some(seq),
        HandoffAt::Draft(_) => None,
    };
    Room {
        room_id: room.room_id.clone(),
        canonical_path: room.canonical_path.clone(),
        owner: room.owner.clone(),
        reserved_for: room.reserved_for.clone(),
        pending_handoff_event_seq: room.pending_handoff.as_ref().and_then(stored),
        turn_id: room.turn_id,
        lease_id: room.lease_id.clone().filter(|_| room.owner.as_ref() == Some(viewer)),
        lease_expires_at: room.lease_end().map(|at| now.to_wall(at)),
        claim_expires_at: room.claim_expires_at.map(|at| now.to_wall(at)),
        state: room.state,
        derived_state: room.derived_state(now.lease),
        updated_at,
    }
}

/// The stick of a room, for an answer that names the room itself.
pub fn stick(current: &tt_rules::Room, viewer: &AgentId, updated_at: WallTime, now: Now) -> Room {
    Room { room_id: RoomId::default(), canonical_path: String::new(), ..room(current, viewer, updated_at, now) }
}

/// Everything `get_room_state` shows.
pub fn room_state(
    current: &tt_rules::Room,
    viewer: &AgentId,
    listed: Listed,
    reader: &dyn Reader,
    session: SessionLook<'_>,
    now: Now,
) -> Result<RoomState, Error> {
    let overview = reader.overview(&current.room_id)?;
    let reason = takeover::reason(current, now.lease);
    let handoff = |held: &Option<HeldHandoff>| held.as_ref().map(|held| held.handoff.clone());
    let (members, more_members) = members(current, viewer, listed, &overview.unread, session, now);
    Ok(RoomState {
        room: room(current, viewer, overview.updated_at, now),
        members,
        more_members,
        queue: fairness::queue(current).into_iter().map(|m| m.agent_id.clone()).collect(),
        turn_started_at: match current.owner {
            Some(_) => reader.turn_started_at(&current.room_id, current.turn_id)?,
            None => None,
        },
        handoff_from: current.pending_handoff.as_ref().or(current.current_handoff.as_ref()).map(|h| h.from.clone()),
        pending_handoff: handoff(&current.pending_handoff),
        current_handoff: handoff(&current.current_handoff),
        takeover: Takeover { available: reason.is_some(), reason },
        guard: current.policy.guard,
        by_guard: current.edits.by_guard,
        edited_files: current.edits.files.clone(),
        open_notes: reader.open_notes(&current.room_id)?,
        cursor_event_seq: overview.newest_event_seq,
    })
}

/// A wait that goes on: who holds the stick, the caller's place in the queue, and what to do meanwhile.
pub fn not_yet(room: &tt_rules::Room, agent: &AgentId, waiting: Waiting, now: LeaseTime) -> Wait {
    // The place it has when it waits again, since it has just stopped waiting.
    let mut again = room.clone();
    if let Some(member) = again.member_mut(agent) {
        member.waiting = waiting;
    }
    let place = fairness::queue(&again).iter().position(|member| member.agent_id == *agent);
    let hint = match (&room.owner, &room.reserved_for) {
        (Some(owner), _) => format!("wait again: tt wait; meanwhile read, or ask: tt msg send {owner} \"…\""),
        (None, Some(reserved_for)) if reserved_for == agent => "it is reserved for you: tt wait takes it".into(),
        (None, Some(agent)) => format!("it is reserved for {agent}; wait again: tt wait"),
        (None, None) if !room.anyone_but(&[agent]) => "you are alone and the stick is free: tt try takes it".into(),
        (None, None) if !could_try(room, agent, now) => {
            "the stick is free, but another member comes first for a moment; wait again: tt wait".into()
        }
        (None, None) => "the stick is free: tt try takes it".into(),
    };
    Wait {
        holder: room.owner.clone(),
        reserved_for: room.reserved_for.clone(),
        place: place.map(|place| place + 1),
        hint: Some(hint),
        ..Wait::ended(WaitStatus::NotYet, room.turn_id)
    }
}

/// Whether a try would take a free stick now. In the grace window after a release it goes to a fairer member.
fn could_try(room: &tt_rules::Room, agent: &AgentId, now: LeaseTime) -> bool {
    let mut trying = room.clone();
    if let Some(member) = trying.member_mut(agent) {
        member.waiting = Waiting::Listening { alone: true };
    }
    fairness::next_claimant(&trying, now).is_some_and(|member| member.agent_id == *agent)
}

/// The answer of a wait. `None` means that the caller has to wait on.
pub fn wait(end: Option<WaitEnd>, turn_id: i64, now: Now) -> Wait {
    match end {
        None => Wait::ended(WaitStatus::NotYet, turn_id),
        Some(WaitEnd::Closed { turn_id }) => Wait::ended(WaitStatus::Closed, turn_id),
        Some(WaitEnd::Removed { turn_id, kick }) => removed(turn_id, kick),
        Some(WaitEnd::TakeoverAvailable { turn_id, from, reason }) => Wait {
            from_agent_id: from,
            reason: Some(Reason::Takeover(reason)),
            ..Wait::ended(WaitStatus::TakeoverAvailable, turn_id)
        },
        Some(WaitEnd::YourTurn(turn)) => Wait {
            lease_id: turn.lease_id,
            lease_expires_at: turn.lease_expires_at.map(|at| now.to_wall(at)),
            handoff: turn.handoff,
            from_agent_id: turn.from,
            reason: Some(Reason::Claim(turn.reason)),
            ..Wait::ended(WaitStatus::YourTurn, turn.turn_id)
        },
    }
}

/// A wait that ended because the caller is no longer a member. One that was kicked is told by whom and why.
fn removed(turn_id: i64, kick: Option<Removal>) -> Wait {
    let hint = kick.as_ref().map_or("join again: tt join", |_| ErrorCode::Kicked.default_hint());
    let (kicked_by, kick_reason) = kick.map_or((None, None), |kick| (Some(kick.by), kick.reason));
    Wait { kicked_by, kick_reason, hint: Some(hint.to_owned()), ..Wait::ended(WaitStatus::Removed, turn_id) }
}

#[cfg(test)]
mod tests {
    use tt_rules::testing::{id, now, room};

    use super::*;

    const UNKNOWN: fn(&AgentId) -> SessionStatus = |_| SessionStatus::Unknown;

    #[test]
    fn of_very_many_members_those_who_matter_are_shown() {
        let names: Vec<String> = (0..2 * MAX_MEMBERS).map(|n| format!("m{n}")).collect();
        let mut room = room(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names[..2 * MAX_MEMBERS - 10] {
            room.member_mut(&id(name)).unwrap().status = MemberStatus::Left;
        }
        room.owner = Some(id("m0"));
        let (present, hidden) = members(&room, &id("m3"), Listed::Present, &HashMap::new(), &UNKNOWN, now(0));
        assert_eq!((present.len(), hidden), (12, 2 * MAX_MEMBERS - 12), "the active, the holder and the viewer");
        let (shown, more) = members(&room, &id("m3"), Listed::All, &HashMap::new(), &UNKNOWN, now(0));
        assert_eq!((shown.len(), more), (MAX_MEMBERS, MAX_MEMBERS));
        let ids: Vec<&str> = shown.iter().map(|m| m.agent_id.as_str()).collect();
        assert_eq!(ids[..2], ["m0", "m3"], "the holder and the viewer");
        assert_eq!(shown.iter().filter(|m| m.status == MemberStatus::Active).count(), 10);
        assert!(ids.is_sorted_by_key(|id| id[1..].parse::<usize>().unwrap()), "in the order in which they joined");
    }

    #[test]
    fn members_that_are_gone_are_not_paid_for_in_every_answer() {
        let names: Vec<String> = (0..40).map(|n| format!("m{n}")).collect();
        let mut room = room(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for (n, name) in names[..38].iter().enumerate() {
            let member = room.member_mut(&id(name)).unwrap();
            member.status = [MemberStatus::Gone, MemberStatus::Left, MemberStatus::Kicked, MemberStatus::Gone][n % 4];
        }
        let (shown, more) = members(&room, &id("m39"), Listed::Present, &HashMap::new(), &UNKNOWN, now(0));
        let ids: Vec<&str> = shown.iter().map(|m| m.agent_id.as_str()).collect();
        assert_eq!(ids, ["m28", "m31", "m32", "m35", "m36", "m38", "m39"], "the last of the gone, and who is there");
        assert_eq!(more, 33);
    }

    #[test]
    fn a_hint_offers_the_stick_only_to_a_member_that_could_take_it() {
        let mut room = room(&["a", "b"]);
        let hint = |room: &tt_rules::Room, waiting| not_yet(room, &id("a"), waiting, now(1).lease).hint.unwrap();
        assert!(hint(&room, Waiting::Parked).contains("tt try takes it"));
        (room.released_by, room.released_at) = (Some(id("a")), Some(now(0).lease));
        assert!(!hint(&room, Waiting::Parked).contains("tt try"), "it has just released it");
        room.reserved_for = Some(id("a"));
        assert!(hint(&room, Waiting::Parked).contains("reserved for you"));
    }
}
