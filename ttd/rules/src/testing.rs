//! Rooms for tests.

use std::path::Path;
use std::sync::Arc;

use tt_proto::hello::{FoundBy, Identity};
use tt_proto::policy::Policy;
use tt_proto::room::{Liveness, MemberStatus};
use tt_proto::{AgentId, WallTime};

use crate::command::{Caller, ConnectionId};
#[cfg(test)]
use crate::room::Moment;
use crate::room::{Member, Room, Waiting};
use crate::time::{DeadlineTime, LeaseTime, Now};

/// Seconds after some epoch.
pub fn at(seconds: i64) -> LeaseTime {
    LeaseTime::from_millis(1_000_000_000_000 + seconds * 1000)
}

pub fn id(agent: &str) -> AgentId {
    AgentId::trusted(agent)
}

/// One moment on all clocks, in seconds after some epoch.
pub fn now(seconds: i64) -> Now {
    let millis = at(seconds).as_millis();
    Now { lease: at(seconds), deadline: DeadlineTime::from_millis(millis), wall: WallTime::from_millis(millis) }
}

#[cfg(test)]
pub(crate) fn moment(seconds: i64) -> Moment {
    Moment { now: at(seconds), fresh_lease: tt_proto::LeaseId::fresh() }
}

/// An idle room whose members joined in this order and are all present.
pub fn room(agents: &[&str]) -> Room {
    let member = |(ordinal, agent): (usize, &&str)| Member {
        agent_id: id(agent),
        ordinal: ordinal as i64,
        status: MemberStatus::Active,
        display_name: (*agent).to_owned(),
        harness: None,
        session_id: None,
        found_by: None,
        anchor: None,
        terminals: Vec::new(),
        liveness: Liveness::Alive,
        joined_at: at(0),
        last_seen_at: at(0),
        last_wait_at: None,
        last_held_turn: None,
        removal: None,
        quiet_until: None,
        waiting: Waiting::No,
    };
    let members = agents.iter().enumerate().map(member).map(Arc::new).collect();
    Room { members, ..Room::new("room".into(), Path::new("/w"), Policy::default()) }
}

/// A caller without a process, on one of its connections.
pub fn caller(name: &str, connection: u64) -> Caller {
    let identity = Identity {
        agent_id: id(name),
        display_name: name.into(),
        harness: None,
        session_id: None,
        found_by: FoundBy::Env,
        anchor: None,
        user: "u".into(),
    };
    Caller { identity, connection: ConnectionId(connection), joins: false }
}
