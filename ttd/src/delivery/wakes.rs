//! Who may wake an idle session, and how often. Pure.

use std::collections::VecDeque;
use std::time::Duration;

use tt_proto::message::MessageSent;
use tt_rules::LeaseTime;

/// The time in which wakes are counted.
const PERIOD: Duration = Duration::from_secs(60 * 60);

/// How often people may wake a session in that time.
const MAX_WAKES_BY_PEOPLE: usize = 60;

/// Whether a message may go to a session that is idle, and on whose account. The best is the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wakes {
    /// It comes with the next thing that the session does.
    Never,
    ByAgent,
    ByPerson,
    /// The answer to a question of its own.
    Answer,
}

impl Wakes {
    /// Whether a message wakes its recipient. What an agent tells everybody, and what became of something, does not.
    /// `is_named`: it is addressed to the recipient. `answers`: it answers a question of the recipient.
    pub fn of(payload: &MessageSent, is_named: bool, answers: bool) -> Self {
        match payload {
            MessageSent { notice: Some(_), .. } => Self::Never,
            _ if answers => Self::Answer,
            MessageSent { from_person: true, .. } => Self::ByPerson,
            _ if is_named => Self::ByAgent,
            _ => Self::Never,
        }
    }
}

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
    use tt_proto::message::Notice;
    use tt_rules::testing::at;

    use super::*;

    #[test]
    fn a_broadcast_of_an_agent_and_a_notice_wake_nobody() {
        let plain = MessageSent::default;
        let person = || MessageSent { from_person: true, ..plain() };
        let notice = || MessageSent { notice: Some(Notice::Expired), ..plain() };
        let reminder = || MessageSent { reminder_id: Some("r".into()), ..plain() };
        let reply = || MessageSent { reply_to: Some(1), ..plain() };
        let table = [
            ("an agent, by name", plain(), true, false, Wakes::ByAgent),
            ("an agent, to everybody", plain(), false, false, Wakes::Never),
            ("a person, by name", person(), true, false, Wakes::ByPerson),
            ("a person, to everybody", person(), false, false, Wakes::ByPerson),
            ("a notice", notice(), true, false, Wakes::Never),
            ("a reminder", reminder(), true, false, Wakes::ByAgent),
            ("a reply to what was no question", reply(), true, false, Wakes::ByAgent),
            ("an answer", reply(), true, true, Wakes::Answer),
        ];
        for (case, payload, is_named, answers, expected) in table {
            assert_eq!(Wakes::of(&payload, is_named, answers), expected, "{case}");
        }
    }

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
