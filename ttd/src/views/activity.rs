//! What a member is doing, in one word. This is the only place that decides it, from whatever is known of the member.

use tt_proto::room::{Activity, Liveness, MemberStatus};
use tt_proto::session::SessionStatus;
use tt_rules::{Member, Now, Room, Waiting};

/// The word for a member. `session` tells what its session does, as far as evidence shows it; it is asked only about members
/// that are there.
pub fn activity(room: &Room, member: &Member, session: impl FnOnce() -> SessionStatus, now: Now) -> Activity {
    match (member.status, member.liveness) {
        (MemberStatus::Left, _) => return Activity::Left,
        (MemberStatus::Kicked, _) => return Activity::Kicked,
        (MemberStatus::Away, _) => return Activity::Away,
        (MemberStatus::Gone, _) | (_, Liveness::Gone) => return Activity::Gone,
        (MemberStatus::Active, _) => {}
    }
    let holds = room.owner.as_ref() == Some(&member.agent_id);
    let acts = member.last_seen_at + room.policy.owner_activity_ttl > now.lease;
    match session() {
        // Whatever else it does, it goes on only when its user has answered.
        SessionStatus::Asking => Activity::Asking,
        _ if member.waiting != Waiting::No => Activity::Waiting,
        SessionStatus::Busy => Activity::Working,
        SessionStatus::Idle => Activity::Idle,
        // Only the calls of the member tell something.
        SessionStatus::Gone | SessionStatus::Unknown if holds && acts => Activity::Working,
        SessionStatus::Gone | SessionStatus::Unknown => Activity::Idle,
    }
}

#[cfg(test)]
mod tests {
    use tt_rules::testing::{id, now, room};

    use super::*;

    #[test]
    fn what_a_session_does_counts_more_than_the_stick_and_a_wait_more_than_that_it_is_busy() {
        let mut room = room(&["a", "b"]);
        room.owner = Some(id("a"));
        let word = |room: &Room, name: &str, session, seconds| {
            activity(room, room.member(&id(name)).unwrap(), || session, now(seconds))
        };
        for (session, holder, other) in [
            (SessionStatus::Unknown, Activity::Working, Activity::Idle),
            (SessionStatus::Busy, Activity::Working, Activity::Working),
            (SessionStatus::Idle, Activity::Idle, Activity::Idle),
            (SessionStatus::Asking, Activity::Asking, Activity::Asking),
        ] {
            assert_eq!((word(&room, "a", session, 0), word(&room, "b", session, 0)), (holder, other), "{session:?}");
        }
        assert_eq!(word(&room, "a", SessionStatus::Unknown, 3600), Activity::Idle, "nothing was heard of it for long");
        room.member_mut(&id("b")).unwrap().waiting = Waiting::Parked;
        assert_eq!(word(&room, "b", SessionStatus::Busy, 0), Activity::Waiting);
        assert_eq!(word(&room, "b", SessionStatus::Asking, 0), Activity::Asking);
        room.member_mut(&id("b")).unwrap().status = MemberStatus::Gone;
        assert_eq!(word(&room, "b", SessionStatus::Asking, 0), Activity::Gone);
    }
}
