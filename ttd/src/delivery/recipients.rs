//! What is known of recipients, as a plan wants it: what their sessions do, which ways lead to them, how often they were woken.

use std::sync::Arc;

use tt_proto::delivery::{Surface, WayName};
use tt_proto::room::{Liveness, MemberStatus};
use tt_proto::session::SessionStatus;
use tt_proto::{AgentId, RoomId};
use tt_rules::{LeaseTime, Now, Room};

use super::failures::Failures;
use super::plan::{Doing, Opening, Reach, RoomFacts, Settings, There, WayFacts};
use super::told::Told;
use super::ways::{Target, Way};
use crate::listeners::Listeners;
use crate::sessions::Sessions;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct Recipients(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    listeners: Listeners,
    sessions: Sessions,
    /// The best first.
    ways: Vec<Arc<dyn Way>>,
    told: Told,
    failures: Failures,
}

/// The end of a turn that is being decided.
#[derive(Debug)]
pub struct Ending {
    recipients: Recipients,
    agent_id: AgentId,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.recipients.0.told.answers_end(&self.agent_id, false);
        self.recipients.0.listeners.wake_driver(&self.agent_id);
    }
}

impl Recipients {
    pub fn new(listeners: Listeners, sessions: Sessions, mut ways: Vec<Arc<dyn Way>>) -> Self {
        ways.sort_by_key(|way| way.name());
        let (told, failures) = (Told::default(), Failures::default());
        Self(Arc::new(Inner { listeners, sessions, ways, told, failures }))
    }

    pub fn listeners(&self) -> &Listeners {
        &self.0.listeners
    }

    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// What hooks have told sessions, and when these were woken.
    pub fn told(&self) -> &Told {
        &self.0.told
    }

    /// Which ways are left out.
    pub fn failures(&self) -> &Failures {
        &self.0.failures
    }

    pub fn way(&self, name: WayName) -> Option<&Arc<dyn Way>> {
        self.0.ways.iter().find(|way| way.name() == name)
    }

    /// From now on a hook at the end of an agent's turn is being answered, for as long as this lives: what waits may hold the turn,
    /// so that nothing else need wake the session.
    pub fn ending(&self, agent_id: &AgentId) -> Ending {
        self.0.told.answers_end(agent_id, true);
        Ending { recipients: self.clone(), agent_id: agent_id.clone() }
    }

    /// What the session of an agent does, and the date of the newest sign of that.
    pub fn doing(&self, agent_id: &AgentId) -> (Doing, Option<LeaseTime>) {
        if self.0.told.is_ending(agent_id) {
            return (Doing::Unknown, None);
        }
        let Some(status) = self.0.sessions.status_of(agent_id) else { return (Doing::Unknown, None) };
        let doing = match status.status {
            SessionStatus::Busy => Doing::Busy,
            SessionStatus::Idle => Doing::Idle,
            SessionStatus::Asking => Doing::Asking,
            SessionStatus::Gone => Doing::Gone,
            SessionStatus::Unknown => Doing::Unknown,
        };
        (doing, status.since)
    }

    /// A recipient in one of its rooms. `calls`: the surface by which its session calls now, and at which moment.
    pub fn in_room(&self, room: &Room, agent_id: &AgentId, calls: Option<(Surface, Opening)>, now: Now) -> RoomFacts {
        let member = room.member(agent_id).filter(|member| member.status.is_member());
        let there = match member {
            None => There::Removed,
            Some(member) if member.status == MemberStatus::Away => There::Away,
            Some(member) if member.status == MemberStatus::Gone => There::Gone,
            Some(member) if member.liveness == Liveness::Gone && !member.is_person() => There::Gone,
            Some(_) => There::Yes,
        };
        let quiet_until = member.and_then(|member| member.quiet_until).filter(|until| *until > now.deadline);
        let mut ways = self.ways_to(Some(&room.room_id), agent_id, calls);
        ways.retain(|way| room.policy.ways.allow(way.name));
        RoomFacts { there, quiet_until, settings: Settings::of(&room.policy), ways }
    }

    /// By which ways messages reach the session of an agent without its waiting for them, the best first.
    pub fn ways_of(&self, agent_id: &AgentId) -> Vec<WayName> {
        self.ways_to(None, agent_id, None).into_iter().map(|way| way.name).collect()
    }

    /// Whether there is a way that starts by itself. Without one there is nothing to drive.
    pub fn any_starts(&self) -> bool {
        self.0.ways.iter().any(|way| way.starts())
    }

    /// Whether the daemon could begin to hand something over to an agent in any of these rooms.
    pub fn can_start(&self, agent_id: &AgentId, rooms: &[RoomId]) -> bool {
        let starts = |facts: WayFacts| matches!(facts.reach, Reach::Starts(_));
        rooms.iter().any(|room_id| self.ways_to(Some(room_id), agent_id, None).into_iter().any(starts))
    }

    fn ways_to(
        &self,
        room_id: Option<&RoomId>,
        agent_id: &AgentId,
        calls: Option<(Surface, Opening)>,
    ) -> Vec<WayFacts> {
        let (listeners, sessions) = (&self.0.listeners, &self.0.sessions);
        let target = Target { room_id, agent_id, calls, listeners, sessions };
        let facts = |way: &Arc<dyn Way>| {
            let (name, reach) = (way.name(), way.reach(&target));
            let left_out = match reach {
                Reach::Starts(_) => self.0.failures.left_out(agent_id, name),
                _ => None,
            };
            (reach != Reach::No).then_some(WayFacts { name, reach, left_out })
        };
        self.0.ways.iter().filter_map(facts).collect()
    }
}
