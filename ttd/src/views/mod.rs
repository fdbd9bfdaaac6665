//! Rooms, members and waits as the wire shows them. Lease times become times of day here, and only the holder sees the
//! lease.

use std::collections::HashMap;

use tt_proto::page::MAX_MEMBERS;
use tt_proto::requests::{RoomState, Wait};
use tt_proto::room::{Member, MemberStatus, Room, Takeover};
use tt_proto::turn::{Reason, WaitStatus};
use tt_proto::{AgentId, Error, WallTime};
use tt_rules::{HandoffAt, HeldHandoff, Now, WaitEnd, Waiting, fairness, takeover};
use tt_store::Reader;

fn member(member: &tt_rules::Member, unread: usize, now: Now) -> Member {
    Member {
        agent_id: member.agent_id.clone(),
        display_name: member.display_name.clone(),
        harness: member.harness.clone(),
        ordinal: member.ordinal,
        joined_at: now.to_wall(member.joined_at),
        last_seen_at: now.to_wall(member.last_seen_at.min(now.lease)),
        last_wait_at: member.last_wait_at.map(|at| now.to_wall(at)),
        status: member.status,
        liveness: member.liveness,
        waiting: member.waiting != Waiting::No,
        unread,
    }
}

/// The members in the order in which they joined, and how many are left out. Of very many, the holder, the viewer and those
/// who are active are shown, and then those who came last.
pub fn members(
    room: &tt_rules::Room,
    viewer: &AgentId,
    unread: &HashMap<AgentId, usize>,
    now: Now,
) -> (Vec<Member>, usize) {
    let mut shown: Vec<&tt_rules::Member> = room.members().collect();
    let more = shown.len().saturating_sub(MAX_MEMBERS);
    if more > 0 {
        let held_by = room.held_by().map(|member| &member.agent_id);
        let is_first = |m: &tt_rules::Member| m.agent_id == *viewer || Some(&m.agent_id) == held_by;
        shown.sort_by_key(|m| (!is_first(m), m.status != MemberStatus::Active, -m.ordinal));
        shown.truncate(MAX_MEMBERS);
        shown.sort_by_key(|m| m.ordinal);
    }
    let view = |m: &tt_rules::Member| member(m, unread.get(&m.agent_id).copied().unwrap_or(0), now);
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
        sequence_index: room.sequence_index,
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

/// Everything `get_room_state` shows.
pub fn room_state(
    current: &tt_rules::Room,
    viewer: &AgentId,
    reader: &dyn Reader,
    now: Now,
) -> Result<RoomState, Error> {
    let overview = reader.overview(&current.room_id)?;
    let reason = takeover::reason(current, now.lease);
    let handoff = |held: &Option<HeldHandoff>| held.as_ref().map(|held| held.handoff.clone());
    let (members, more_members) = members(current, viewer, &overview.unread, now);
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
        cursor_event_seq: overview.newest_event_seq,
    })
}

/// The answer of a wait. `None` means that the caller has to wait on.
pub fn wait(end: Option<WaitEnd>, turn_id: i64, now: Now) -> Wait {
    match end {
        None => Wait::ended(WaitStatus::NotYet, turn_id),
        Some(WaitEnd::Closed { turn_id }) => Wait::ended(WaitStatus::Closed, turn_id),
        Some(WaitEnd::Removed { turn_id }) => Wait::ended(WaitStatus::Removed, turn_id),
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

#[cfg(test)]
mod tests {
    use tt_rules::testing::{id, now, room};

    use super::*;

    #[test]
    fn of_very_many_members_those_who_matter_are_shown() {
        let names: Vec<String> = (0..2 * MAX_MEMBERS).map(|n| format!("m{n}")).collect();
        let mut room = room(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for name in &names[..2 * MAX_MEMBERS - 10] {
            room.member_mut(&id(name)).unwrap().status = MemberStatus::Left;
        }
        room.owner = Some(id("m0"));
        let (shown, more) = members(&room, &id("m3"), &HashMap::new(), now(0));
        assert_eq!((shown.len(), more), (MAX_MEMBERS, MAX_MEMBERS));
        let ids: Vec<&str> = shown.iter().map(|m| m.agent_id.as_str()).collect();
        assert_eq!(ids[..2], ["m0", "m3"], "the holder and the viewer");
        assert_eq!(shown.iter().filter(|m| m.status == MemberStatus::Active).count(), 10);
        assert!(shown.is_sorted_by_key(|m| m.ordinal));
    }
}
