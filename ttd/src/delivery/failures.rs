//! Which ways are left out for a recipient, and for how long: one that fails, longer each time; one that said that it cannot now,
//! for as long as it said. In memory: a daemon that is started again tries them all.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tt_proto::AgentId;
use tt_proto::delivery::{WaitReason, WayName};
use tt_rules::LeaseTime;

use super::plan::LeftOut;

/// How long a way is left out after its first failure, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(10 * 60);

/// How many are remembered. Past that all are forgotten, which costs each of them one more failure.
const MAX_REMEMBERED: usize = 4096;

#[derive(Debug, Default)]
pub struct Failures(Mutex<HashMap<(AgentId, WayName), Failure>>);

#[derive(Debug)]
struct Failure {
    in_a_row: u32,
    left_out: LeftOut,
}

impl Failures {
    /// A way failed.
    pub fn failed(&self, agent: &AgentId, way: WayName, now: LeaseTime) {
        let mut failures = self.lock();
        let in_a_row = failures.get(&(agent.clone(), way)).map_or(0, |failure| failure.in_a_row) + 1;
        let pause = FIRST_PAUSE.saturating_mul(1 << (in_a_row - 1).min(16)).min(MAX_PAUSE);
        let left_out = LeftOut { until: now + pause, because: WaitReason::NoWay };
        failures.insert((agent.clone(), way), Failure { in_a_row, left_out });
    }

    /// A way cannot now. That is no failure, and undoes none.
    pub fn not_now(&self, agent: &AgentId, way: WayName, left_out: LeftOut) {
        let mut failures = self.lock();
        let in_a_row = failures.get(&(agent.clone(), way)).map_or(0, |failure| failure.in_a_row);
        failures.insert((agent.clone(), way), Failure { in_a_row, left_out });
    }

    /// A way worked.
    pub fn worked(&self, agent: &AgentId, way: WayName) {
        self.lock().remove(&(agent.clone(), way));
    }

    /// Until when a way is left out, and why.
    pub fn left_out(&self, agent: &AgentId, way: WayName) -> Option<LeftOut> {
        self.lock().get(&(agent.clone(), way)).map(|failure| failure.left_out)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(AgentId, WayName), Failure>> {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MAX_REMEMBERED {
            failures.clear();
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use tt_rules::testing::{at, id};

    use super::*;

    #[test]
    fn a_way_that_fails_is_left_out_for_a_while_that_grows() {
        let (failures, me, way) = (Failures::default(), id("a"), WayName::Terminal);
        let until = || failures.left_out(&me, way).map(|out| out.until);
        for seconds in [5, 10, 20, 40, 80, 160, 320, 600, 600] {
            failures.failed(&me, way, at(1000));
            assert_eq!(until(), Some(at(1000 + seconds)));
        }
        let typing = LeftOut { until: at(1003), because: WaitReason::Draft };
        failures.not_now(&me, way, typing);
        assert_eq!(failures.left_out(&me, way), Some(typing));
        failures.failed(&me, way, at(2000));
        assert_eq!(until(), Some(at(2600)), "that somebody typed undid no failure");
        failures.worked(&me, way);
        failures.failed(&me, way, at(3000));
        assert_eq!(until(), Some(at(3005)));
        assert_eq!(failures.left_out(&me, WayName::NativeInbox), None);
        assert_eq!(failures.left_out(&id("b"), way), None);
    }
}
