//! Rooms for the tests of the rules.

use std::sync::Arc;

use tt_proto::policy::Policy;
use tt_proto::room::{Liveness, MemberStatus, StickState};
use tt_proto::{AgentId, LeaseId, WallTime};

use super::{Member, Moment, Room, Waiting};

/// Seconds after some epoch.
pub(crate) fn at(seconds: i64) -> WallTime {
    WallTime::from_millis(1_000_000_000_000 + seconds * 1000)
}

pub(crate) fn id(agent: &str) -> AgentId {
    AgentId::trusted(agent)
}

pub(crate) fn moment(seconds: i64) -> Moment {
    Moment { now: at(seconds), fresh_lease: LeaseId::fresh() }
}

/// An idle room whose members joined in this order and are all there.
pub(crate) fn room(agents: &[&str]) -> Room {
    let member = |(ordinal, agent): (usize, &&str)| Member {
        agent_id: id(agent),
        ordinal: ordinal as i64,
        status: MemberStatus::Active,
        display_name: (*agent).to_owned(),
        harness: None,
        session_id: None,
        found_by: None,
        anchor: None,
        liveness: Liveness::Alive,
        joined_at: at(0),
        last_seen_at: at(0),
        last_wait_at: None,
        last_held_turn: None,
        waiting: Waiting::No,
    };
    Room {
        room_id: "room".into(),
        canonical_path: "/w".into(),
        state: StickState::Idle,
        turn_id: 0,
        owner: None,
        lease_id: None,
        lease_expires_at: None,
        reserved_for: None,
        claim_expires_at: None,
        reservation_expired: false,
        pending_handoff: None,
        current_handoff: None,
        released_by: None,
        released_at: None,
        sequence_index: 0,
        members: agents.iter().enumerate().map(member).map(Arc::new).collect(),
        policy: Policy::default(),
        events: Vec::new(),
        deleted: false,
    }
}
