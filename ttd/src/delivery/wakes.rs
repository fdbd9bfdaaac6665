//! How often an idle session may be woken. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use tt_rules::{LeaseTime, Wakes};

/// The time in which wakes are counted.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// How often people may wake a session in that time.
const MAX_WAKES_BY_PEOPLE: usize = 60;

/// When a session was woken, or kept from becoming idle, within the last hour.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Woken {
    by_agents: VecDeque<LeaseTime>,
    by_people: VecDeque<LeaseTime>,
}

impl Woken {
    /// Until when the session may not be woken again on this account. None if it may be now.
    pub fn too_often(&self, by: Wakes, max_by_agents: usize, now: LeaseTime) -> Option<LeaseTime> {
        let (times, max) = match by {
            Wakes::Never | Wakes::ByAgent => (&self.by_agents, max_by_agents),
            Wakes::ByPerson => (&self.by_people, MAX_WAKES_BY_PEOPLE),
            Wakes::Answer => return None,
        };
        if max == 0 {
            return Some(now + PERIOD);
        }
        let recent = times.iter().filter(|at| now.since(**at) < PERIOD).count();
        if recent < max {
            return None;
        }
        // The one that has to be an hour ago for there to be less than that.
        let oldest = times.len().checked_sub(max).and_then(|index| times.get(index)).copied();
        Some(oldest.unwrap_or(now) + PERIOD)
    }

    /// The session is woken on this account.
    pub fn add(&mut self, by: Wakes, now: LeaseTime) {
        let times = match by {
            Wakes::Never | Wakes::Answer => return,
            Wakes::ByAgent => &mut self.by_agents,
            Wakes::ByPerson => &mut self.by_people,
        };
        while times.front().is_some_and(|at| now.since(*at) >= PERIOD) {
            times.pop_front();
        }
        times.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use tt_rules::testing::at;

    use super::*;

    #[test]
    fn agents_wake_a_session_a_bounded_number_of_times_in_an_hour_and_people_more_often() {
        let mut woken = Woken::default();
        for n in 0..20 {
            assert_eq!(woken.too_often(Wakes::ByAgent, 20, at(n)), None, "{n}");
            woken.add(Wakes::ByAgent, at(n));
        }
        assert_eq!(woken.too_often(Wakes::ByAgent, 20, at(100)), Some(at(3600)));
        assert_eq!(woken.too_often(Wakes::ByAgent, 20, at(3600)), None, "the first is an hour ago");
        assert_eq!(woken.too_often(Wakes::ByAgent, 10, at(100)), Some(at(3610)), "the tenth from the end");
        assert_eq!(woken.too_often(Wakes::ByAgent, 0, at(100)), Some(at(3700)), "never");
        for by in [Wakes::ByPerson, Wakes::Answer] {
            assert_eq!(woken.too_often(by, 20, at(100)), None, "{by:?}");
        }
        for n in 0..1000 {
            woken.add(Wakes::Answer, at(n));
        }
        for n in 0..60 {
            assert_eq!(woken.too_often(Wakes::ByPerson, 20, at(n)), None, "{n}");
            woken.add(Wakes::ByPerson, at(n));
        }
        assert_eq!(woken.too_often(Wakes::ByPerson, 20, at(100)), Some(at(3600)));
        assert_eq!(woken.too_often(Wakes::Answer, 20, at(100)), None, "an answer to its own question is not counted");
    }

    #[test]
    fn what_is_remembered_is_an_hour() {
        let mut woken = Woken::default();
        for n in 0..100_000 {
            woken.add(Wakes::ByPerson, at(n));
        }
        assert_eq!(woken.by_people.len(), 3600);
    }
}
