//! What a member is doing, in one word. This is the only place that decides it, from whatever is known of the member.

use tt_proto::room::{Activity, Liveness, MemberStatus};
use tt_rules::{Member, Now, Room, Waiting};

/// The word for a member.
pub fn activity(room: &Room, member: &Member, now: Now) -> Activity {
    let holds = room.owner.as_ref() == Some(&member.agent_id);
    let acts = member.last_seen_at + room.policy.owner_activity_ttl > now.lease;
    match (member.status, member.liveness) {
        (MemberStatus::Left, _) => Activity::Left,
        (MemberStatus::Kicked, _) => Activity::Kicked,
        (MemberStatus::Away, _) => Activity::Away,
        (MemberStatus::Gone, _) | (_, Liveness::Gone) => Activity::Gone,
        (MemberStatus::Active, _) if member.waiting != Waiting::No => Activity::Waiting,
        (MemberStatus::Active, _) if holds && acts => Activity::Working,
        (MemberStatus::Active, _) => Activity::Idle,
    }
}
