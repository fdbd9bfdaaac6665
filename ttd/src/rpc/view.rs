//! Rooms as the wire shows them. Steady times become times of day here, and only the holder sees the lease.

use std::collections::HashMap;

use tt_proto::room::{Member, Room, Takeover};
use tt_proto::{AgentId, WallTime};

use crate::clock::Clock;
use crate::stick::{self, HandoffAt, Waiting, takeover};

fn member(member: &stick::Member, unread: usize, clock: &Clock) -> Member {
    Member {
        agent_id: member.agent_id.clone(),
        display_name: member.display_name.clone(),
        harness: member.harness.clone(),
        ordinal: member.ordinal,
        joined_at: clock.to_wall(member.joined_at),
        last_seen_at: clock.to_wall(member.last_seen_at.min(clock.now())),
        last_wait_at: member.last_wait_at.map(|at| clock.to_wall(at)),
        status: member.status,
        liveness: member.liveness,
        waiting: member.waiting != Waiting::No,
        unread,
    }
}

pub(super) fn members(room: &stick::Room, unread: &HashMap<AgentId, usize>, clock: &Clock) -> Vec<Member> {
    room.members().map(|m| member(m, unread.get(&m.agent_id).copied().unwrap_or(0), clock)).collect()
}

pub(super) fn room(room: &stick::Room, viewer: &AgentId, updated_at: WallTime, clock: &Clock) -> Room {
    let stored = |held: &stick::HeldHandoff| match held.at {
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
        lease_expires_at: room.lease_end().map(|at| clock.to_wall(at)),
        claim_expires_at: room.claim_expires_at.map(|at| clock.to_wall(at)),
        state: room.state,
        derived_state: room.derived_state(clock.now()),
        updated_at,
    }
}

pub(super) fn takeover(room: &stick::Room, clock: &Clock) -> Takeover {
    let reason = takeover::reason(room, clock.now());
    Takeover { available: reason.is_some(), reason }
}
