//! Who is next: members that never held the stick first, then those that held it longest ago, then the order of joining.

use crate::room::{Member, Room, Waiting};
use crate::time::LeaseTime;
use tt_proto::AgentId;

/// Smaller goes first.
type Rank = (i64, i64);

/// The order in which the members of a room are given the stick. What it depends on is looked up once, so that choosing
/// among very many is no more than looking at each.
struct Order<'a> {
    room: &'a Room,
    /// One more than the highest ordinal.
    places: i64,
}

impl<'a> Order<'a> {
    fn of(room: &'a Room) -> Self {
        Self { room, places: room.members().map(|m| m.ordinal).max().unwrap_or(0) + 1 }
    }

    fn rank(&self, member: &Member) -> Rank {
        // The sequence goes on from the last holder: the member after it comes first, the holder itself last.
        let after_holder = (member.ordinal - self.room.sequence_index - 1).rem_euclid(self.places);
        (member.last_held_turn.unwrap_or(-1), after_holder)
    }

    /// In the grace window after a release, the rank of the fairest member who is between two waits. Everyone who ranks
    /// behind it stands back.
    fn fairest_between_waits(&self, now: LeaseTime) -> Option<Rank> {
        let room = self.room;
        let between_waits = |m: &&Member| m.waiting == Waiting::No && m.waits_again(&room.policy, now);
        let others = room.present().filter(|m| room.released_by.as_ref() != Some(&m.agent_id));
        others.filter(between_waits).map(|m| self.rank(m)).min()
    }
}

/// The fairest of those who listen and may claim now. In the grace window after a release, the releaser lets the others go
/// first, and everyone a fairer member who is between two waits.
pub fn next_claimant(room: &Room, now: LeaseTime) -> Option<&Member> {
    let order = Order::of(room);
    let in_grace = room.released_at.is_some_and(|at| at + room.policy.waiter_grace > now);
    let fairest = if in_grace { order.fairest_between_waits(now) } else { None };
    let present = room.present().count();
    let may_claim = |member: &&Member| {
        let Waiting::Listening { alone } = member.waiting else { return false };
        let has_company = present > usize::from(member.is_present());
        let stands_back = in_grace && has_company && room.released_by.as_ref() == Some(&member.agent_id);
        member.is_present()
            && (alone || has_company)
            && !stands_back
            && fairest.is_none_or(|fairest| fairest >= order.rank(member))
    };
    room.members().filter(may_claim).min_by_key(|m| order.rank(m))
}

/// The member that an agent, which would just take an idle stick, has to let go first: one that is fairer and between two waits, while
/// the grace window after a release lasts. Whoever released the stick lets all of those go first.
pub fn goes_before<'a>(room: &'a Room, agent: &AgentId, now: LeaseTime) -> Option<&'a Member> {
    let in_grace = room.released_at.is_some_and(|at| at + room.policy.waiter_grace > now);
    let order = Order::of(room);
    let mine = room.member(agent).map(|member| order.rank(member)).filter(|_| room.released_by.as_ref() != Some(agent));
    let waits = |m: &&Member| m.waiting == Waiting::No && m.waits_again(&room.policy, now);
    let others = room.present().filter(|m| m.agent_id != *agent && room.released_by.as_ref() != Some(&m.agent_id));
    let fairest = others.filter(waits).min_by_key(|m| order.rank(m)).filter(|_| in_grace)?;
    mine.is_none_or(|mine| order.rank(fairest) < mine).then_some(fairest)
}

/// Those who listen, in the order in which they would be given the stick.
pub fn queue(room: &Room) -> Vec<&Member> {
    let order = Order::of(room);
    let mut waiting: Vec<&Member> = room.present().filter(|m| m.is_listening()).collect();
    waiting.sort_by_key(|m| order.rank(m));
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, id, room};

    fn listening(room: &mut Room, agents: &[&str]) {
        for agent in agents {
            room.member_mut(&id(agent)).unwrap().waiting = Waiting::Listening { alone: false };
        }
    }

    fn next(room: &Room, now: LeaseTime) -> Option<&str> {
        next_claimant(room, now).map(|m| m.agent_id.as_str())
    }

    #[test]
    fn members_that_never_held_go_first_then_those_that_held_longest_ago() {
        let mut room = room(&["a", "b", "c", "d"]);
        listening(&mut room, &["a", "b", "c", "d"]);
        for (agent, turn) in [("a", 9), ("b", 3), ("d", 5)] {
            room.member_mut(&id(agent)).unwrap().last_held_turn = Some(turn);
        }
        assert_eq!(next(&room, at(0)), Some("c"));
        let order: Vec<&str> = queue(&room).iter().map(|m| m.agent_id.as_str()).collect();
        assert_eq!(order, ["c", "b", "d", "a"]);
        room.member_mut(&id("c")).unwrap().waiting = Waiting::Parked;
        assert_eq!(next(&room, at(0)), Some("b"));
        room.member_mut(&id("b")).unwrap().waiting = Waiting::No;
        assert_eq!(next(&room, at(0)), Some("d"));
    }

    #[test]
    fn among_equals_the_sequence_goes_on_from_the_last_holder() {
        let mut room = room(&["a", "b", "c"]);
        listening(&mut room, &["a", "b", "c"]);
        for (index, expected) in [(0, "b"), (1, "c"), (2, "a")] {
            room.sequence_index = index;
            assert_eq!(next(&room, at(0)), Some(expected));
        }
    }

    #[test]
    fn a_fairer_member_between_two_waits_goes_first_until_the_grace_is_over() {
        let mut room = room(&["a", "b", "c"]);
        room.released_by = Some(id("a"));
        room.released_at = Some(at(100));
        room.member_mut(&id("a")).unwrap().last_held_turn = Some(2);
        room.member_mut(&id("b")).unwrap().last_held_turn = Some(1);
        room.member_mut(&id("c")).unwrap().last_wait_at = Some(at(99));
        listening(&mut room, &["a", "b"]);
        assert_eq!(next(&room, at(105)), None, "c is fairer and only between two waits");
        assert_eq!(next(&room, at(111)), Some("b"), "the grace is over");
        room.member_mut(&id("c")).unwrap().last_wait_at = None;
        assert_eq!(next(&room, at(105)), Some("b"), "c never waited");
        room.member_mut(&id("b")).unwrap().waiting = Waiting::No;
        assert_eq!(next(&room, at(105)), None, "the releaser cannot take it straight back");
        assert_eq!(next(&room, at(111)), Some("a"));
    }

    #[test]
    fn a_lone_member_takes_an_idle_room_only_when_it_says_so() {
        let mut room = room(&["a"]);
        listening(&mut room, &["a"]);
        assert_eq!(next(&room, at(0)), None);
        room.member_mut(&id("a")).unwrap().waiting = Waiting::Listening { alone: true };
        assert_eq!(next(&room, at(0)), Some("a"));
        room.released_by = Some(id("a"));
        room.released_at = Some(at(0));
        assert_eq!(next(&room, at(1)), Some("a"), "nobody is there to stand back for");
    }

    #[test]
    fn a_member_whose_process_is_gone_is_neither_chosen_nor_waited_for() {
        let mut room = room(&["a", "b", "c"]);
        listening(&mut room, &["b", "c"]);
        room.member_mut(&id("b")).unwrap().liveness = tt_proto::room::Liveness::Gone;
        assert_eq!(next(&room, at(0)), Some("c"));
    }
}
