//! Taking the stick from a member that no longer answers. Ownership never moves by itself: a member has to ask.

use tt_proto::event::EventType;
use tt_proto::room::{Liveness, MemberStatus, StickState};
use tt_proto::turn::TakeoverReason;
use tt_proto::{AgentId, Error, ErrorCode};

use crate::room::{EventDraft, Member, Moment, Room};
use crate::time::LeaseTime;
use crate::turn::{begin_turn, check_turn, with_current};

/// Why the stick may be taken from its holder now; the most certain reason first.
pub fn reason(room: &Room, now: LeaseTime) -> Option<TakeoverReason> {
    match room.state {
        StickState::Owned => {
            let owner = room.owner.as_ref().and_then(|owner| room.member(owner));
            let waited_for =
                || room.present().any(|m| room.owner.as_ref() != Some(&m.agent_id) && m.waits_again(&room.policy, now));
            if owner.is_none_or(is_gone) {
                Some(TakeoverReason::OwnerGone)
            } else if room.lease_end().is_none_or(|end| end <= now) {
                Some(TakeoverReason::OwnerTimeout)
            } else if owner.is_some_and(|o| o.last_seen_at + room.policy.owner_activity_ttl <= now) && waited_for() {
                Some(TakeoverReason::OwnerIdle)
            } else {
                None
            }
        }
        StickState::Reserved => {
            let recipient = room.reserved_for.as_ref().and_then(|agent| room.member(agent));
            if recipient.is_none_or(is_gone) {
                Some(TakeoverReason::RecipientGone)
            } else if room.claim_expires_at.is_none_or(|at| at <= now) {
                Some(TakeoverReason::ClaimTimeout)
            } else {
                None
            }
        }
        StickState::Idle | StickState::Closed => None,
    }
}

/// Its exact process ended. Silence alone is never taken for death, nor is a terminal that a person closed.
fn is_gone(member: &Member) -> bool {
    member.liveness == Liveness::Gone && !member.is_person()
}

/// Whether this member may take the stick for the [`reason`] there is now.
pub(crate) fn is_available_to(room: &Room, agent: &AgentId, reason: TakeoverReason) -> bool {
    let mine = room.owner.as_ref() == Some(agent) || room.reserved_for.as_ref() == Some(agent);
    !mine && !must_leave_it_to_another(room, agent, reason)
}

/// A member that passed the stick to another that never claimed it lets the others take it first, so that two members
/// cannot pass it back and forth past everyone else. The member that did not claim it does not count as one of the others.
fn must_leave_it_to_another(room: &Room, agent: &AgentId, reason: TakeoverReason) -> bool {
    let recipient = room.reserved_for.as_ref();
    reason == TakeoverReason::ClaimTimeout
        && room.released_by.as_ref() == Some(agent)
        && room.anyone_but(&[agent, recipient.unwrap_or(agent)])
}

/// Who lost the stick to a takeover, and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Takeover {
    pub(crate) revoked: Option<AgentId>,
    pub(crate) reason: TakeoverReason,
}

/// Takes the stick over: a new turn, the old one revoked. A handoff that nobody had picked up comes with it; the one that
/// the last holder worked from does not, for it is out of date.
pub(crate) fn take(
    room: &mut Room,
    caller: &AgentId,
    expected_turn: i64,
    why: &str,
    operator: bool,
    moment: &Moment,
) -> Result<Takeover, Error> {
    room.open()?;
    room.active_member(caller)?;
    if why.trim().is_empty() {
        return Err(Error::new(ErrorCode::InvalidInput, "a takeover needs a reason").hint("say why: --reason \"…\""));
    }
    check_turn(room, expected_turn)?;
    let not_available = |message: &str| with_current(room, Error::new(ErrorCode::TakeoverNotAvailable, message));
    if room.owner.as_ref() == Some(caller) {
        return Err(not_available("you hold the stick yourself"));
    }
    if room.state == StickState::Idle {
        return Err(not_available("nobody holds the stick; wait for it instead"));
    }
    let reason = match reason(room, moment.now) {
        Some(reason) if !must_leave_it_to_another(room, caller, reason) => reason,
        _ if operator => TakeoverReason::OperatorOverride,
        // The one it is reserved for needs no reason but that.
        None if room.reserved_for.as_ref() == Some(caller) => {
            return Err(not_available("the stick is reserved for you; wait for it instead"));
        }
        None => {
            let holder = room.owner.as_ref().or(room.reserved_for.as_ref());
            let holder = holder.map_or_else(|| "its holder".to_owned(), ToString::to_string);
            return Err(not_available(&format!("{holder} is still entitled to the stick")));
        }
        Some(_) => {
            let message = "you passed the stick on, and another member can take it";
            return Err(with_current(room, Error::new(ErrorCode::TakeoverIneligible, message)));
        }
    };
    let revoked = room.owner.clone().or_else(|| room.reserved_for.clone());
    room.current_handoff = room.pending_handoff.take();
    begin_turn(room, caller, moment);
    let mut event = EventDraft::new(EventType::Takeover, room.turn_id, caller);
    event.to = revoked.clone();
    event.reason = Some(format!("{}: {}", reason.as_str(), why.trim()));
    room.events.push(event);
    Ok(Takeover { revoked, reason })
}

/// Whether a member may be removed without force: it is gone or away, and has been silent for two heartbeats.
pub(crate) fn is_silent(room: &Room, member: &Member, now: LeaseTime) -> bool {
    let gone = member.liveness == Liveness::Gone || member.status != MemberStatus::Active;
    gone && member.last_seen_at + 2 * room.policy.heartbeat_interval <= now
}

/// Whether a member holds the stick, or has it reserved, and nobody may take it over now.
pub(crate) fn is_entitled(room: &Room, agent: &AgentId, now: LeaseTime) -> bool {
    let has_it = room.owner.as_ref() == Some(agent) || room.reserved_for.as_ref() == Some(agent);
    has_it && reason(room, now).is_none()
}

#[cfg(test)]
mod tests {
    use tt_proto::handoff::RawJson;

    use super::*;
    use crate::room::Waiting;
    use crate::testing::{at, id, moment, room};
    use crate::turn;

    const MINUTE: i64 = 60;

    /// `a` holds turn 1 since second 0.
    fn owned(agents: &[&str]) -> Room {
        let mut room = room(agents);
        turn::wait(&mut room, &id("a"), Waiting::Listening { alone: true }, &moment(0)).unwrap();
        turn::settle(&mut room, &moment(0)).unwrap();
        room
    }

    /// `a` passed turn 1 to `b` at second 0, who has not claimed it.
    fn reserved(agents: &[&str]) -> Room {
        let mut room = owned(agents);
        let lease = room.lease_id.clone().unwrap();
        let handoff = RawJson::parse(r#"{"status":"s","next_action":"n"}"#.into()).unwrap();
        assert_eq!(turn::pass(&mut room, &id("a"), &lease, 1, &id("b"), &handoff, &moment(0)).unwrap(), None);
        room
    }

    fn kill(room: &mut Room, agent: &str) {
        room.member_mut(&id(agent)).unwrap().liveness = Liveness::Gone;
    }

    fn take_at(room: &Room, agent: &str, seconds: i64) -> Result<Takeover, ErrorCode> {
        take(&mut room.clone(), &id(agent), room.turn_id, "stuck", false, &moment(seconds)).map_err(|e| e.code)
    }

    #[test]
    fn nobody_takes_the_stick_from_a_holder_who_is_well() {
        let room = owned(&["a", "b"]);
        assert_eq!(take_at(&room, "b", 1), Err(ErrorCode::TakeoverNotAvailable));
        assert_eq!(take_at(&room, "a", 1), Err(ErrorCode::TakeoverNotAvailable), "the holder itself");
        assert_eq!(take_at(&room, "x", 1), Err(ErrorCode::UnknownMember));
        assert_eq!(take_at(&crate::testing::room(&["a"]), "a", 1), Err(ErrorCode::TakeoverNotAvailable), "idle");
    }

    #[test]
    fn owner_gone_at_once() {
        let mut room = owned(&["a", "b"]);
        kill(&mut room, "a");
        assert_eq!(take_at(&room, "b", 1).unwrap().reason, TakeoverReason::OwnerGone);
    }

    #[test]
    fn a_person_that_closed_its_terminal_keeps_the_stick_as_long_as_a_silent_holder_would() {
        let mut room = owned(&["a", "b"]);
        room.member_mut(&id("a")).unwrap().found_by = Some("user".into());
        kill(&mut room, "a");
        assert_eq!(take_at(&room, "b", 1), Err(ErrorCode::TakeoverNotAvailable));
        assert_eq!(take_at(&room, "b", 45 * MINUTE).unwrap().reason, TakeoverReason::OwnerTimeout);
        let mut room = reserved(&["a", "b", "c"]);
        room.member_mut(&id("b")).unwrap().found_by = Some("user".into());
        kill(&mut room, "b");
        assert_eq!(take_at(&room, "c", 1), Err(ErrorCode::TakeoverNotAvailable));
        assert_eq!(take_at(&room, "c", 20 * MINUTE).unwrap().reason, TakeoverReason::ClaimTimeout);
    }

    #[test]
    fn owner_timeout_when_the_lease_ran_out_but_not_before() {
        let mut room = owned(&["a", "b"]);
        room.policy.owner_activity_ttl = std::time::Duration::from_secs(3600 * 24);
        assert!(take_at(&room, "b", 45 * MINUTE - 1).is_err());
        assert_eq!(take_at(&room, "b", 45 * MINUTE).unwrap().reason, TakeoverReason::OwnerTimeout);
        room.member_mut(&id("a")).unwrap().last_seen_at = at(45 * MINUTE);
        assert!(take_at(&room, "b", 46 * MINUTE).is_err(), "an expired owner that acted keeps the stick");
    }

    #[test]
    fn owner_idle_only_while_someone_waits() {
        let mut room = owned(&["a", "b", "c"]);
        room.policy.owner_activity_ttl = std::time::Duration::from_secs(60);
        assert_eq!(take_at(&room, "b", 2 * MINUTE), Err(ErrorCode::TakeoverNotAvailable), "nobody waits");
        room.member_mut(&id("c")).unwrap().waiting = Waiting::Parked;
        assert_eq!(take_at(&room, "b", 2 * MINUTE).unwrap().reason, TakeoverReason::OwnerIdle);
        room.member_mut(&id("c")).unwrap().waiting = Waiting::No;
        room.member_mut(&id("b")).unwrap().last_wait_at = Some(at(119));
        assert_eq!(take_at(&room, "b", 2 * MINUTE).unwrap().reason, TakeoverReason::OwnerIdle, "between two waits");
        kill(&mut room, "b");
        assert_eq!(take_at(&room, "c", 2 * MINUTE), Err(ErrorCode::TakeoverNotAvailable), "the dead wait for nothing");
    }

    #[test]
    fn recipient_gone_at_once_and_claim_timeout_at_the_deadline() {
        let mut room = reserved(&["a", "b", "c"]);
        assert_eq!(take_at(&room, "c", 20 * MINUTE - 1), Err(ErrorCode::TakeoverNotAvailable));
        assert_eq!(take_at(&room, "c", 20 * MINUTE).unwrap().reason, TakeoverReason::ClaimTimeout);
        kill(&mut room, "b");
        let taken = take_at(&room, "c", 1).unwrap();
        assert_eq!((taken.reason, taken.revoked), (TakeoverReason::RecipientGone, Some(id("b"))));
    }

    #[test]
    fn after_a_claim_timeout_the_prior_owner_stands_back_while_another_could_take_it() {
        let mut room = reserved(&["a", "b", "c"]);
        assert_eq!(take_at(&room, "a", 20 * MINUTE), Err(ErrorCode::TakeoverIneligible));
        assert_eq!(reason(&room, at(20 * MINUTE)), Some(TakeoverReason::ClaimTimeout));
        assert!(!is_available_to(&room, &id("a"), TakeoverReason::ClaimTimeout));
        assert!(is_available_to(&room, &id("c"), TakeoverReason::ClaimTimeout));
        kill(&mut room, "c");
        assert!(take_at(&room, "a", 20 * MINUTE).is_ok(), "nobody else is left");
        assert!(take_at(&reserved(&["a", "b"]), "a", 20 * MINUTE).is_ok(), "only the one who let it lie");
    }

    #[test]
    fn an_operator_may_override_and_the_log_says_so() {
        let mut room = owned(&["a", "b"]);
        let taken = take(&mut room, &id("b"), 1, "going home", true, &moment(1)).unwrap();
        assert_eq!((taken.reason, taken.revoked), (TakeoverReason::OperatorOverride, Some(id("a"))));
        let event = room.events.last().unwrap();
        assert_eq!(event.reason.as_deref(), Some("operator_override: going home"));
        assert_eq!((room.turn_id, room.owner.as_ref()), (2, Some(&id("b"))));
        let mut prior = reserved(&["a", "b", "c"]);
        let taken = take(&mut prior, &id("a"), 1, "mine", true, &moment(20 * MINUTE)).unwrap();
        assert_eq!(
            taken.reason,
            TakeoverReason::OperatorOverride,
            "the refusal was overridden, and is recorded as that"
        );
    }

    #[test]
    fn a_takeover_revokes_the_old_lease_and_brings_the_handoff_nobody_picked_up() {
        let mut room = reserved(&["a", "b", "c"]);
        take(&mut room, &id("c"), 1, "b sleeps", false, &moment(20 * MINUTE)).unwrap();
        let handoff = room.current_handoff.as_ref().map(|held| (held.from.clone(), held.handoff.as_str().to_owned()));
        assert_eq!(handoff, Some((id("a"), r#"{"status":"s","next_action":"n"}"#.into())));
        assert_eq!(room.pending_handoff, None, "it is picked up now");
        assert_eq!(room.reserved_for, None);
        assert_eq!(turn::wait_end(&room, &id("b"), at(20 * MINUTE)), None, "too late for b");
        assert_eq!(take_at(&room, "a", 20 * MINUTE), Err(ErrorCode::TakeoverNotAvailable));
        let blank = take(&mut room, &id("a"), 2, " ", false, &moment(1)).unwrap_err();
        assert_eq!(blank.code, ErrorCode::InvalidInput);
        take(&mut room, &id("a"), 2, "c is stuck", true, &moment(20 * MINUTE)).unwrap();
        assert_eq!(room.current_handoff, None, "what c worked from is out of date");
    }
}
