//! One decision: what a command does to a room.

use std::sync::Arc;

use tt_proto::event::EventType;
use tt_proto::hello::Anchor;
use tt_proto::note::Note;
use tt_proto::policy::PolicyOverrides;
use tt_proto::turn::TakeoverReason;
use tt_proto::{AgentId, Error, ErrorCode};

use crate::command::{Caller, Command, Request, Rows, TakeAccess};
use crate::delivery::{self, DeliveryChange, NewDelivery};
use crate::effect::{Due, Effect, TimerKey};
use crate::notes::{self, NoteChange};
use crate::room::{EventDraft, Grant, Member, Moment, Room, Waiting};
use crate::time::{LeaseTime, Now};
use crate::turn::{Turn, WaitEnd};
use crate::{membership, takeover, turn};

/// What a command comes to. Nothing of it has happened yet.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The room as it is afterwards. Its `events` are what the command adds to the log.
    pub room: Room,
    pub opened: Vec<NewDelivery>,
    pub changed: Vec<DeliveryChange>,
    pub note: Option<NoteChange>,
    /// The overrides of the room's policy from now on, if they change.
    pub policy_overrides: Option<PolicyOverrides>,
    pub effects: Vec<Effect>,
    pub reply: Reply,
}

/// What the caller is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    Done,
    /// A member was removed.
    Removed {
        was_owner: bool,
        was_reserved_for: bool,
    },
    /// What a wait of the caller would answer now; none while it has to wait on.
    Waiting(Option<WaitEnd>),
    Heartbeat {
        lease_expires_at: LeaseTime,
    },
    TakenOver {
        turn: Turn,
        revoked: Option<AgentId>,
        reason: TakeoverReason,
    },
    Sent {
        recipients: Vec<AgentId>,
    },
    Taken {
        skipped: Vec<i64>,
        event_seqs: Vec<i64>,
        /// How many newer messages stay in the inbox, as far as they were counted.
        more: usize,
    },
    /// How many messages a confirmation or a return was about.
    Count(usize),
    Note(Note),
}

/// What applying a command came to, beyond what it changed in the room.
#[derive(Default)]
struct Applied {
    reply: Option<Reply>,
    grant: Option<Grant>,
    opened: Vec<NewDelivery>,
    changed: Vec<DeliveryChange>,
    note: Option<NoteChange>,
    policy_overrides: Option<PolicyOverrides>,
    effects: Vec<Effect>,
}

impl Applied {
    fn reply(reply: Reply) -> Self {
        Self { reply: Some(reply), ..Self::default() }
    }

    fn grant(grant: Option<Grant>) -> Self {
        Self { grant, ..Self::default() }
    }
}

/// Decides what a request does to a room.
pub fn decide(before: &Room, rows: &Rows, request: &Request, now: Now) -> Result<Decision, Error> {
    let mut room = before.clone();
    let moment = Moment { now: now.lease, fresh_lease: request.fresh_lease.clone() };
    if let Some(caller) = &request.caller
        && brings_back(&request.command)
        && membership::arrives(&room, &caller.identity)
    {
        membership::join(&mut room, &caller.identity, None, &moment)?;
    }
    let applied = match &request.caller {
        Some(caller) => apply(&mut room, rows, caller, &request.command, now, &moment)?,
        None => apply_by_itself(&mut room, rows, &request.command, now, &moment)?,
    };
    let grant = applied.grant.or_else(|| turn::settle(&mut room, &moment));
    let mut effects = applied.effects;
    effects.extend(wait_ends(before, &room, grant.as_ref(), now.lease));
    effects.extend(offers(&room.events, &applied.opened));
    effects.extend(new_anchors(before, &room).map(|anchor| Effect::Watch { anchor }));
    let due = if room.deleted { None } else { room.next_deadline(now.lease).map(Due::Lease) };
    effects.push(Effect::Timer { key: TimerKey::Room(room.room_id.clone()), due });
    Ok(Decision {
        opened: applied.opened,
        changed: applied.changed,
        note: applied.note,
        policy_overrides: applied.policy_overrides,
        effects,
        reply: applied.reply.unwrap_or(Reply::Done),
        room,
    })
}

/// Whether a command brings its caller back after it counted as gone. A join does so by itself; and confirming what was
/// shown, or looking again in the middle of a call, is no sign of a new life.
fn brings_back(command: &Command) -> bool {
    match command {
        Command::Join { .. } | Command::ConfirmMessages { .. } | Command::ReturnMessages { .. } => false,
        Command::TakeMessages { access, .. } => *access == TakeAccess::Arriving,
        _ => true,
    }
}

fn apply(
    room: &mut Room,
    rows: &Rows,
    caller: &Caller,
    command: &Command,
    now: Now,
    moment: &Moment,
) -> Result<Applied, Error> {
    let me = caller.agent_id();
    Ok(match command {
        Command::Join { display_name } => {
            membership::join(room, &caller.identity, display_name.as_deref(), moment)?;
            Applied::default()
        }
        Command::Leave => Applied::reply(removed(membership::leave(room, me)?)),
        Command::Kick { target, force, reason } => {
            Applied::reply(removed(membership::kick(room, me, target, *force, reason.as_deref(), now)?))
        }
        Command::Wait { waiting } => Applied::grant(turn::wait(room, me, *waiting, moment)?),
        Command::EndWait => {
            // Settled first, so that the answer is how things are after this command.
            let grant = turn::settle(room, moment);
            let end = turn::wait_end(room, me, moment.now);
            Applied { grant, ..Applied::reply(Reply::Waiting(end)) }
        }
        Command::Heartbeat { lease_id, expected_turn_id } => {
            turn::check_authority(room, me, lease_id, *expected_turn_id)?;
            Applied::reply(Reply::Heartbeat { lease_expires_at: room.lease_end().unwrap_or(moment.now) })
        }
        Command::Release { lease_id, expected_turn_id, handoff } => {
            Applied::grant(turn::release(room, me, lease_id, *expected_turn_id, handoff, moment)?)
        }
        Command::Pass { lease_id, expected_turn_id, to, handoff } => {
            Applied::grant(turn::pass(room, me, lease_id, *expected_turn_id, to, handoff, moment)?)
        }
        Command::TakeOver { expected_turn_id, reason, operator_override } => {
            let taken = takeover::take(room, me, *expected_turn_id, reason, *operator_override, moment)?;
            let turn = turn::current_turn(room, tt_proto::turn::ClaimReason::AlreadyOwner);
            Applied::reply(Reply::TakenOver { turn, revoked: taken.revoked, reason: taken.reason })
        }
        Command::SendMessage { to, body, delivery_hint, expires_at } => {
            let recipients = delivery::send(room, me, to, body, *delivery_hint)?;
            let event = room.events.len() - 1;
            let open =
                |recipient: &AgentId| NewDelivery { event, recipient: recipient.clone(), expires_at: *expires_at };
            Applied { opened: recipients.iter().map(open).collect(), ..Applied::reply(Reply::Sent { recipients }) }
        }
        Command::TakeMessages { max_replay, limit, access, .. } => {
            if *access == TakeAccess::Arriving {
                room.active_member(me)?;
            }
            let expired = delivery::expire(&rows.deliveries, now.deadline, now.wall);
            let mut open = rows.deliveries.clone();
            open.retain(|delivery| !expired.iter().any(|change| change.event_seq == delivery.event_seq));
            let taken = delivery::take(&open, caller.connection, me, *max_replay, *limit);
            // What came before the end of a membership is still handed over.
            if taken.effect.is_none() {
                check_access(room, me, *access)?;
            }
            let reply = Reply::Taken { skipped: taken.skipped, event_seqs: taken.event_seqs, more: taken.more };
            Applied { changed: expired, effects: taken.effect.into_iter().collect(), ..Applied::reply(reply) }
        }
        Command::ConfirmMessages { surface, event_seqs } => {
            delivery::check_listed(&rows.deliveries, caller.connection, event_seqs)?;
            let (changed, effect) =
                delivery::confirm(&rows.deliveries, caller.connection, me, *surface, event_seqs, now.wall);
            let reply = Reply::Count(changed.len());
            Applied { changed, effects: vec![effect], ..Applied::reply(reply) }
        }
        Command::ReturnMessages { event_seqs } => {
            delivery::check_listed(&rows.deliveries, caller.connection, event_seqs)?;
            let (returned, effect) = delivery::give_back(&rows.deliveries, caller.connection, me, event_seqs);
            Applied { effects: vec![effect], ..Applied::reply(Reply::Count(returned)) }
        }
        Command::AddNote { note_id, body, turn_id } => {
            let note = notes::add(room, me, note_id, body, *turn_id, now.wall)?;
            Applied { note: Some(NoteChange::Add(note.clone())), ..Applied::reply(Reply::Note(note)) }
        }
        Command::ResolveNote { note_id } => {
            let (note, change) = notes::resolve(room, me, note_id, rows.note.as_ref(), now.wall)?;
            Applied { note: change, ..Applied::reply(Reply::Note(note)) }
        }
        Command::SetPolicy { overrides } => {
            room.open()?;
            room.active_member(me)?;
            room.policy = overrides.over(&room.policy);
            let merged = overrides.merged_over(&rows.policy_overrides);
            Applied { policy_overrides: Some(merged), ..Applied::default() }
        }
        Command::Tick | Command::ProcessExited | Command::Purge | Command::ExpireMessage { .. } => {
            return apply_by_itself(room, rows, command, now, moment);
        }
    })
}

/// Applies a command that no member gave.
fn apply_by_itself(
    room: &mut Room,
    rows: &Rows,
    command: &Command,
    now: Now,
    moment: &Moment,
) -> Result<Applied, Error> {
    match command {
        Command::Tick => turn::tick(room, moment),
        Command::ProcessExited => membership::processes_exited(room),
        Command::Purge => membership::purge(room, moment),
        Command::ExpireMessage { event_seq } => {
            let changed = delivery::expire(&rows.deliveries, now.deadline, now.wall);
            let again = delivery::expire_again(&rows.deliveries, now.deadline).map(Due::Deadline);
            let key = TimerKey::Delivery(room.room_id.clone(), *event_seq);
            let effects = vec![Effect::Timer { key, due: again }];
            return Ok(Applied { changed, effects, ..Applied::default() });
        }
        _ => return Err(Error::new(ErrorCode::AgentIdRequired, "this command needs a caller")),
    }
    Ok(Applied::default())
}

/// Refuses a caller that can no longer expect messages here.
fn check_access(room: &Room, me: &AgentId, access: TakeAccess) -> Result<(), Error> {
    use tt_proto::room::MemberStatus as Status;
    let status = room.member(me).map(|member| member.status);
    match access {
        TakeAccess::Arriving => room.active_member(me).map(|_| ()),
        TakeAccess::Staying if !matches!(status, Some(Status::Active | Status::Gone)) => {
            Err(Error::new(ErrorCode::UnknownMember, format!("{me} is no longer a member of this room")))
        }
        TakeAccess::Staying | TakeAccess::Leaving => Ok(()),
    }
}

fn removed(removed: membership::Removed) -> Reply {
    Reply::Removed { was_owner: removed.was_owner, was_reserved_for: removed.was_reserved_for }
}

/// The waits that end with this command, and their answers.
fn wait_ends<'a>(
    before: &'a Room,
    after: &'a Room,
    grant: Option<&'a Grant>,
    now: LeaseTime,
) -> impl Iterator<Item = Effect> + 'a {
    let reason = takeover::reason(after, now);
    let end = move |agent: &AgentId, member: Option<&Member>| match grant {
        _ if after.deleted => Some(WaitEnd::Removed { turn_id: after.turn_id }),
        Some(grant) if grant.agent_id == *agent => Some(WaitEnd::YourTurn(turn::current_turn(after, grant.reason))),
        _ => turn::wait_end_of(after, agent, member, reason),
    };
    // Members are only ever added, at the end: each is where it was before.
    let waiting = before.members().enumerate().filter(|(_, m)| m.waiting != Waiting::No);
    waiting.filter_map(move |(place, m)| {
        let member = after.members.get(place).map(|member| &**member);
        Some(Effect::EndWait { end: end(&m.agent_id, member)?, agent_id: m.agent_id.clone() })
    })
}

/// The members whose listeners have something to look at: a new message, or the end of their membership.
fn offers<'a>(events: &'a [EventDraft], opened: &'a [NewDelivery]) -> impl Iterator<Item = Effect> + 'a {
    let left = events.iter().filter(|event| event.event_type == EventType::MemberLeft);
    let left = left.filter_map(|event| event.from.clone());
    opened.iter().map(|delivery| delivery.recipient.clone()).chain(left).map(|agent_id| Effect::Offer { agent_id })
}

/// The processes of members that were not watched before.
fn new_anchors<'a>(before: &'a Room, after: &'a Room) -> impl Iterator<Item = Anchor> + 'a {
    let changed = after.members.iter().enumerate().filter(|(index, member)| {
        before.members.get(*index).is_none_or(|known| !Arc::ptr_eq(known, member) && known.anchor != member.anchor)
    });
    changed.filter_map(|(_, member)| member.anchor.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::OpenDelivery;
    use crate::testing::{caller, id, now, room};

    fn take(room: &Room, open: &[i64], access: TakeAccess) -> Result<Vec<i64>, ErrorCode> {
        let delivery =
            |seq: &i64| OpenDelivery { event_seq: *seq, recipient: id("a"), expires_at: None, held_by: None };
        let rows = Rows { deliveries: open.iter().map(delivery).collect(), ..Rows::default() };
        let command = Command::TakeMessages { from: None, max_replay: None, limit: 10, access };
        let decision = decide(room, &rows, &Request::new(Some(caller("a", 1)), command), now(0)).map_err(|e| e.code)?;
        match decision.reply {
            Reply::Taken { event_seqs, .. } => Ok(event_seqs),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_member_that_was_removed_while_it_waited_gets_what_was_sent_before() {
        let mut room = room(&["a", "b"]);
        room.member_mut(&id("a")).unwrap().status = tt_proto::room::MemberStatus::Kicked;
        assert_eq!(take(&room, &[7], TakeAccess::Staying), Ok(vec![7]));
        assert_eq!(take(&room, &[], TakeAccess::Staying), Err(ErrorCode::UnknownMember), "and then hears of it");
        assert_eq!(take(&room, &[7], TakeAccess::Arriving), Err(ErrorCode::UnknownMember));
        assert_eq!(take(&room, &[], TakeAccess::Leaving), Ok(Vec::new()));
    }

    #[test]
    fn a_call_brings_a_member_back_and_a_later_look_does_not() {
        let mut room = room(&["a", "b"]);
        room.member_mut(&id("a")).unwrap().status = tt_proto::room::MemberStatus::Gone;
        let joined = |access| {
            let command = Command::TakeMessages { from: None, max_replay: None, limit: 10, access };
            let request = Request::new(Some(caller("a", 1)), command);
            decide(&room, &Rows::default(), &request, now(0)).unwrap().room.events.len()
        };
        assert_eq!((joined(TakeAccess::Arriving), joined(TakeAccess::Staying)), (1, 0));
    }

    #[test]
    fn a_release_looks_at_each_of_thousands_of_waiters_a_few_times() {
        let looked_at = |count: usize| {
            let names: Vec<String> = (0..count).map(|n| format!("m{n}")).collect();
            let mut room = room(&names.iter().map(String::as_str).collect::<Vec<_>>());
            let waiting = Waiting::Listening { alone: false };
            turn::wait(&mut room, &id("m0"), Waiting::Listening { alone: true }, &crate::testing::moment(0)).unwrap();
            turn::settle(&mut room, &crate::testing::moment(0)).unwrap();
            for (n, member) in room.members.iter_mut().enumerate().skip(1) {
                let member = Arc::make_mut(member);
                // Every third is between two waits.
                member.waiting = if n % 3 == 0 { Waiting::No } else { waiting };
                member.last_wait_at = Some(crate::testing::at(0));
            }
            let release = Command::Release {
                lease_id: room.lease_id.clone().unwrap(),
                expected_turn_id: room.turn_id,
                handoff: tt_proto::handoff::RawJson::parse(r#"{"status":"s","next_action":"n"}"#.into()).unwrap(),
            };
            let before = crate::room::LOOKED_AT.get();
            let request = Request::new(Some(caller("m0", 1)), release);
            let decision = decide(&room, &Rows::default(), &request, now(0)).unwrap();
            assert!(decision.room.owner.is_some_and(|owner| owner != id("m0")));
            crate::room::LOOKED_AT.get() - before
        };
        let (few, many) = (looked_at(300), looked_at(3000));
        assert!(many < 11 * few, "{many} looks for 3000 members, {few} for 300");
    }

    #[test]
    fn a_command_that_needs_a_caller_is_refused_without_one() {
        let request = Request::new(None, Command::Leave);
        let refused = decide(&room(&["a"]), &Rows::default(), &request, now(0)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::AgentIdRequired);
    }
}
