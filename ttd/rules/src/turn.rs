//! Turns: waiting for one, being granted one, and giving it away.

use tt_proto::event::EventType;
use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::room::{MemberStatus, StickState};
use tt_proto::turn::{ClaimReason, TakeoverReason};
use tt_proto::{AgentId, Error, ErrorCode, LeaseId};

use crate::room::{EventDraft, Grant, HandoffAt, HeldHandoff, Member, Moment, Removal, Room, TurnEdits, Waiting};
use crate::time::LeaseTime;
use crate::{fairness, takeover};

/// How a wait ends.
#[derive(Debug, Clone, PartialEq)]
pub enum WaitEnd {
    YourTurn(Turn),
    /// The caller may take over from the holder, or from the member the stick is reserved for.
    TakeoverAvailable {
        turn_id: i64,
        from: Option<AgentId>,
        reason: TakeoverReason,
    },
    /// The caller is no longer a member. If it was kicked, by whom and why.
    Removed {
        turn_id: i64,
        kick: Option<Removal>,
    },
    Closed {
        turn_id: i64,
    },
}

/// A turn as its holder is told about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    pub turn_id: i64,
    pub lease_id: Option<LeaseId>,
    pub lease_expires_at: Option<LeaseTime>,
    /// The handoff the turn came with, and who wrote it.
    pub handoff: Option<RawJson>,
    pub from: Option<AgentId>,
    pub reason: ClaimReason,
}

/// Starts or repeats a wait, and claims where the caller may.
pub(crate) fn wait(
    room: &mut Room,
    caller: &AgentId,
    waiting: Waiting,
    moment: &Moment,
) -> Result<Option<Grant>, Error> {
    room.active_member(caller)?;
    if waiting == Waiting::Parked && room.owner.as_ref() == Some(caller) {
        return Err(Error::new(ErrorCode::ParkRequiresRelease, "you hold the stick and cannot park with it"));
    }
    let is_owner = room.owner.as_ref() == Some(caller);
    if let Some(member) = room.member_mut(caller) {
        member.waiting = waiting;
        member.last_wait_at = (!is_owner).then_some(moment.now);
        member.last_seen_at = member.last_seen_at.max(moment.now);
    }
    if is_owner {
        // It asks for what the guard gave it, and so it is its own to give back.
        room.edits.by_guard = false;
        room.edits.commit = None;
    }
    if room.reserved_for.as_ref() == Some(caller) && waiting != Waiting::Parked {
        return Ok(Some(claim_reservation(room, caller, moment)));
    }
    Ok(None)
}

/// Grants an idle room to the fairest member that waits for it. Every command ends with this, so a room is never idle
/// while a member that may have it waits.
pub(crate) fn settle(room: &mut Room, moment: &Moment) -> Option<Grant> {
    if room.state != StickState::Idle || room.deleted {
        return None;
    }
    let claimant = fairness::next_claimant(room, moment.now)?.agent_id.clone();
    Some(grant(room, &claimant, ClaimReason::OpenClaim, moment))
}

fn claim_reservation(room: &mut Room, caller: &AgentId, moment: &Moment) -> Grant {
    let passed = room.pending_handoff.as_ref().is_none_or(|held| held.passed);
    let reason = if passed { ClaimReason::DirectPass } else { ClaimReason::Sequence };
    grant(room, caller, reason, moment)
}

/// Grants a new turn: the only place where a claim makes the turn number grow.
pub(crate) fn grant(room: &mut Room, agent: &AgentId, reason: ClaimReason, moment: &Moment) -> Grant {
    begin_turn(room, agent, moment);
    room.current_handoff = room.pending_handoff.take();
    let mut event = EventDraft::new(EventType::Claim, room.turn_id, agent);
    event.reason = Some(reason.as_str().to_owned());
    room.events.push(event);
    Grant { agent_id: agent.clone(), reason }
}

/// A new epoch of ownership with a token of its own.
pub(crate) fn begin_turn(room: &mut Room, agent: &AgentId, moment: &Moment) {
    room.turn_id += 1;
    room.state = StickState::Owned;
    room.owner = Some(agent.clone());
    room.lease_id = Some(moment.fresh_lease.clone());
    room.lease_expires_at = Some(moment.now + room.policy.owner_lease_ttl);
    room.reserved_for = None;
    room.claim_expires_at = None;
    room.reservation_expired = false;
    room.released_at = None;
    room.edits = TurnEdits::default();
    let turn_id = room.turn_id;
    if let Some(member) = room.member_mut(agent) {
        member.last_held_turn = Some(turn_id);
        member.last_seen_at = member.last_seen_at.max(moment.now);
        member.waiting = Waiting::No;
        // It has what it waited for.
        member.last_wait_at = None;
        room.sequence_index = room.member(agent).map_or(0, |m| m.ordinal);
    }
}

/// Takes the stick away from its holder and leaves the room idle.
pub(crate) fn clear(room: &mut Room) {
    room.state = StickState::Idle;
    room.owner = None;
    room.lease_id = None;
    room.lease_expires_at = None;
    room.reserved_for = None;
    room.claim_expires_at = None;
    room.reservation_expired = false;
    room.current_handoff = None;
    room.edits = TurnEdits::default();
}

/// Checks that a call comes from the holder of the turn it names.
pub(crate) fn check_authority(room: &Room, caller: &AgentId, lease: &LeaseId, expected_turn: i64) -> Result<(), Error> {
    room.active_member(caller)?;
    check_turn(room, expected_turn)?;
    if room.owner.as_ref() == Some(caller) && room.lease_id.as_ref() == Some(lease) {
        return Ok(());
    }
    let holder = room.owner.as_ref().map_or("nobody".to_owned(), ToString::to_string);
    Err(with_current(
        room,
        Error::new(ErrorCode::StaleLease, format!("this lease is no longer valid; {holder} holds the stick")),
    ))
}

pub(crate) fn check_turn(room: &Room, expected: i64) -> Result<(), Error> {
    if room.turn_id == expected {
        return Ok(());
    }
    let message = format!("the room is at turn {}, not {expected}", room.turn_id);
    Err(with_current(room, Error::new(ErrorCode::TurnMismatch, message)))
}

/// Adds the current state to the refusal of a stale call.
pub(crate) fn with_current(room: &Room, error: Error) -> Error {
    let text = |agent: &Option<AgentId>| agent.as_ref().map(|a| a.as_str().to_owned());
    error
        .detail("owner", text(&room.owner))
        .detail("reserved_for", text(&room.reserved_for))
        .detail("turn_id", room.turn_id)
        .detail("state", room.state.as_str())
}

/// Releases the stick. The fairest member that waits is granted it in the same decision; otherwise the room is idle and
/// keeps the handoff for the next claimant.
pub(crate) fn release(
    room: &mut Room,
    caller: &AgentId,
    lease: &LeaseId,
    expected_turn: i64,
    handoff: &RawJson,
    moment: &Moment,
) -> Result<Option<Grant>, Error> {
    check_authority(room, caller, lease, expected_turn)?;
    Handoff::check(handoff)?;
    Ok(release_to_next(room, caller, handoff, None, moment))
}

/// Releases the stick of its holder. `reason`: its holder did not do it.
pub(crate) fn release_to_next(
    room: &mut Room,
    holder: &AgentId,
    handoff: &RawJson,
    reason: Option<&str>,
    moment: &Moment,
) -> Option<Grant> {
    let index = give_away(room, holder, EventType::Release, handoff, moment);
    room.events[index].reason = reason.map(str::to_owned);
    let next = fairness::next_claimant(room, moment.now).map(|m| m.agent_id.clone());
    room.events[index].to = next.clone();
    next.map(|next| grant(room, &next, ClaimReason::Sequence, moment))
}

/// Passes the stick to a member. It has the turn at once if it waits, and a reservation otherwise.
pub(crate) fn pass(
    room: &mut Room,
    caller: &AgentId,
    lease: &LeaseId,
    expected_turn: i64,
    to: &AgentId,
    handoff: &RawJson,
    moment: &Moment,
) -> Result<Option<Grant>, Error> {
    check_authority(room, caller, lease, expected_turn)?;
    Handoff::check(handoff)?;
    if to == caller {
        return Err(Error::new(ErrorCode::InvalidInput, "you hold the stick already").hint("pass it to another member"));
    }
    let target = room.member(to).filter(|m| m.status == MemberStatus::Active).ok_or_else(|| {
        Error::new(ErrorCode::UnknownTarget, format!("{to} is not an active member of this room"))
            .detail("agent_id", to.as_str())
    })?;
    let listens = target.is_listening() && target.is_present();
    let index = give_away(room, caller, EventType::Pass, handoff, moment);
    room.events[index].to = Some(to.clone());
    room.state = StickState::Reserved;
    room.reserved_for = Some(to.clone());
    room.claim_expires_at = Some(moment.now + room.policy.claim_ttl);
    Ok(listens.then(|| claim_reservation(room, to, moment)))
}

/// The part that releasing and passing share. Returns the index of the event that holds the handoff.
fn give_away(room: &mut Room, caller: &AgentId, event_type: EventType, handoff: &RawJson, moment: &Moment) -> usize {
    clear(room);
    let index = room.events.len();
    let mut event = EventDraft::new(event_type, room.turn_id, caller);
    event.handoff = Some(handoff.clone());
    room.events.push(event);
    room.pending_handoff = Some(HeldHandoff {
        at: HandoffAt::Draft(index),
        from: caller.clone(),
        passed: event_type == EventType::Pass,
        handoff: handoff.clone(),
    });
    room.released_by = Some(caller.clone());
    room.released_at = Some(moment.now);
    index
}

/// Lets time pass: notes which processes ended and which reservation ran out, and lets members expire.
pub(crate) fn tick(room: &mut Room, moment: &Moment) {
    crate::membership::processes_exited(room);
    crate::membership::expire(room, moment);
    let ran_out = room.claim_expires_at.is_some_and(|at| at <= moment.now);
    if let Some(agent) = room.reserved_for.clone().filter(|_| ran_out && !room.reservation_expired) {
        room.reservation_expired = true;
        let mut event = EventDraft::new(EventType::ReservationExpired, room.turn_id, &agent);
        event.from = room.released_by.clone();
        event.to = Some(agent);
        room.events.push(event);
    }
}

/// What a wait of this member would answer now; none while it has to wait on.
pub(crate) fn wait_end(room: &Room, agent: &AgentId, now: LeaseTime) -> Option<WaitEnd> {
    wait_end_of(room, agent, room.member(agent), takeover::reason(room, now))
}

/// What the wait of one member of many would answer now. `reason` is why the stick may be taken over, which is looked up once.
pub(crate) fn wait_end_of(
    room: &Room,
    agent: &AgentId,
    member: Option<&Member>,
    reason: Option<TakeoverReason>,
) -> Option<WaitEnd> {
    let turn_id = room.turn_id;
    if room.state == StickState::Closed {
        return Some(WaitEnd::Closed { turn_id });
    }
    if member.is_none_or(|m| m.status != MemberStatus::Active) {
        return Some(WaitEnd::Removed { turn_id, kick: member.and_then(|m| m.removal.clone()) });
    }
    if room.owner.as_ref() == Some(agent) {
        return Some(WaitEnd::YourTurn(current_turn(room, ClaimReason::AlreadyOwner)));
    }
    let reason = reason.filter(|reason| takeover::is_available_to(room, agent, *reason))?;
    let from = room.owner.clone().or_else(|| room.reserved_for.clone());
    Some(WaitEnd::TakeoverAvailable { turn_id, from, reason })
}

/// The turn of the holder, with the handoff it came with.
pub(crate) fn current_turn(room: &Room, reason: ClaimReason) -> Turn {
    let held = room.current_handoff.as_ref();
    Turn {
        turn_id: room.turn_id,
        lease_id: room.lease_id.clone(),
        lease_expires_at: room.lease_end(),
        handoff: held.map(|h| h.handoff.clone()),
        from: held.map(|h| h.from.clone()),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, id, moment, room};

    const LISTEN: Waiting = Waiting::Listening { alone: false };

    /// A wait as every command ends: settled.
    fn wait(room: &mut Room, caller: &AgentId, waiting: Waiting, moment: &Moment) -> Result<Option<Grant>, Error> {
        Ok(super::wait(room, caller, waiting, moment)?.or_else(|| settle(room, moment)))
    }

    fn handoff() -> RawJson {
        RawJson::parse(r#"{"status":"done","next_action":"review"}"#.into()).unwrap()
    }

    fn owned(agents: &[&str], by: &str) -> (Room, LeaseId) {
        let mut room = room(agents);
        wait(&mut room, &id(by), Waiting::Listening { alone: true }, &moment(0)).unwrap().unwrap();
        let lease = room.lease_id.clone().unwrap();
        (room, lease)
    }

    #[test]
    fn a_claim_starts_a_turn_with_a_lease_of_its_own() {
        let (room, lease) = owned(&["a", "b"], "a");
        assert_eq!((room.turn_id, room.owner.as_ref(), room.state), (1, Some(&id("a")), StickState::Owned));
        assert_eq!(room.lease_id, Some(lease));
        assert_eq!(room.events.len(), 1);
        let mine = WaitEnd::YourTurn(current_turn(&room, ClaimReason::AlreadyOwner));
        assert_eq!(wait_end(&room, &id("a"), at(1)), Some(mine));
        assert_eq!(wait_end(&room, &id("b"), at(1)), None);
    }

    #[test]
    fn a_release_hands_the_turn_and_the_handoff_to_the_member_that_waits() {
        let (mut room, lease) = owned(&["a", "b"], "a");
        wait(&mut room, &id("b"), LISTEN, &moment(1)).unwrap();
        let grant = release(&mut room, &id("a"), &lease, 1, &handoff(), &moment(2)).unwrap().unwrap();
        assert_eq!((grant.agent_id.as_str(), grant.reason), ("b", ClaimReason::Sequence));
        assert_eq!((room.turn_id, room.owner.as_ref()), (2, Some(&id("b"))));
        assert_ne!(room.lease_id, Some(lease));
        let turn = current_turn(&room, grant.reason);
        assert_eq!((turn.handoff, turn.from), (Some(handoff()), Some(id("a"))));
        assert_eq!(room.pending_handoff, None);
    }

    #[test]
    fn with_nobody_waiting_the_room_keeps_the_handoff_for_the_next_claimant() {
        let (mut room, lease) = owned(&["a", "b"], "a");
        assert_eq!(release(&mut room, &id("a"), &lease, 1, &handoff(), &moment(1)).unwrap(), None);
        assert_eq!(room.state, StickState::Idle);
        assert!(room.pending_handoff.is_some());
        let grant = wait(&mut room, &id("b"), LISTEN, &moment(2)).unwrap().unwrap();
        assert_eq!(grant.reason, ClaimReason::OpenClaim);
        assert_eq!(current_turn(&room, grant.reason).handoff, Some(handoff()));
    }

    #[test]
    fn a_pass_is_kept_for_its_member_even_past_the_deadline() {
        let (mut room, lease) = owned(&["a", "b", "c"], "a");
        wait(&mut room, &id("c"), LISTEN, &moment(1)).unwrap();
        assert_eq!(pass(&mut room, &id("a"), &lease, 1, &id("b"), &handoff(), &moment(2)).unwrap(), None);
        assert_eq!((room.state, room.reserved_for.as_ref()), (StickState::Reserved, Some(&id("b"))));
        assert_eq!(room.owner, None, "the passer holds it no more");
        tick(&mut room, &moment(2 + 20 * 60));
        assert!(room.reservation_expired);
        let grant = wait(&mut room, &id("b"), LISTEN, &moment(3000)).unwrap().unwrap();
        assert_eq!(grant.reason, ClaimReason::DirectPass);
    }

    #[test]
    fn a_pass_to_a_member_in_a_wait_is_a_turn_at_once_unless_it_is_parked() {
        for (waiting, granted) in [(LISTEN, true), (Waiting::Parked, false)] {
            let (mut room, lease) = owned(&["a", "b"], "a");
            wait(&mut room, &id("b"), waiting, &moment(1)).unwrap();
            let grant = pass(&mut room, &id("a"), &lease, 1, &id("b"), &handoff(), &moment(2)).unwrap();
            assert_eq!(grant.is_some(), granted);
        }
    }

    #[test]
    fn passing_to_oneself_or_to_nobody_is_refused() {
        let (mut room, lease) = owned(&["a", "b"], "a");
        room.member_mut(&id("b")).unwrap().status = MemberStatus::Left;
        for (to, code) in
            [("a", ErrorCode::InvalidInput), ("b", ErrorCode::UnknownTarget), ("x", ErrorCode::UnknownTarget)]
        {
            let error = pass(&mut room.clone(), &id("a"), &lease, 1, &id(to), &handoff(), &moment(1)).unwrap_err();
            assert_eq!(error.code, code);
        }
    }

    #[test]
    fn stale_calls_are_told_how_things_stand() {
        let (room, lease) = owned(&["a", "b"], "a");
        let turn = check_authority(&room, &id("a"), &lease, 7).unwrap_err();
        assert_eq!((turn.code, &turn.details["turn_id"]), (ErrorCode::TurnMismatch, &1.into()));
        for (caller, lease) in [("b", lease.clone()), ("a", LeaseId::fresh())] {
            let error = check_authority(&room, &id(caller), &lease, 1).unwrap_err();
            assert_eq!((error.code, &error.details["owner"]), (ErrorCode::StaleLease, &"a".into()));
        }
        assert_eq!(check_authority(&room, &id("x"), &lease, 1).unwrap_err().code, ErrorCode::UnknownMember);
    }

    #[test]
    fn the_holder_cannot_park() {
        let (mut room, _) = owned(&["a", "b"], "a");
        let error = wait(&mut room, &id("a"), Waiting::Parked, &moment(1)).unwrap_err();
        assert_eq!(error.code, ErrorCode::ParkRequiresRelease);
    }

    #[test]
    fn activity_of_the_holder_extends_the_lease() {
        let (mut room, _) = owned(&["a", "b"], "a");
        let granted = room.lease_end().unwrap();
        room.member_mut(&id("a")).unwrap().last_seen_at = at(600);
        assert_eq!(room.lease_end(), Some(granted + std::time::Duration::from_secs(600)));
    }
}
