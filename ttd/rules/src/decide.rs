//! One decision: what a command does to a room.

use std::sync::Arc;

use tt_proto::event::EventType;
use tt_proto::hello::Anchor;
use tt_proto::message::{Notice, excerpt};
use tt_proto::note::Note;
use tt_proto::policy::{Guard, PolicyOverrides};
use tt_proto::turn::TakeoverReason;
use tt_proto::{AgentId, Error, ErrorCode, WallTime};

use crate::command::{Caller, Command, Request, Rows, TakeAccess};
use crate::delivery::{self, Changes, DeliveryChange, DeliveryRow, NewDelivery};
use crate::effect::{Due, Effect, TimerKey};
use crate::guard::Verdict;
use crate::notes::{self, NoteChange};
use crate::reminders::{self, ReminderChange, ReminderRow};
use crate::room::{EventDraft, Grant, Member, Moment, Room, Waiting};
use crate::sending::{self, Draft};
use crate::time::{LeaseTime, Now};
use crate::turn::{Turn, WaitEnd};
use crate::{attempts, guard, membership, names, notices, takeover, turn};

/// What a command comes to. Nothing of it has happened yet.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The room as it is afterwards. Its `events` are what the command adds to the log.
    pub room: Room,
    pub opened: Vec<NewDelivery>,
    pub changed: Vec<DeliveryChange>,
    pub note: Option<NoteChange>,
    pub reminder: Option<ReminderChange>,
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
    Withdrawn {
        withdrawn: usize,
        too_late: usize,
    },
    Quiet {
        until: Option<WallTime>,
    },
    Guard(Verdict),
    Reminder(ReminderRow),
    Taken {
        skipped: Vec<i64>,
        event_seqs: Vec<i64>,
        /// How many newer messages stay in the inbox, as far as they were counted.
        more: usize,
    },
    /// How many messages a confirmation or a return was about.
    Count(usize),
    /// The messages whose hand-over has begun.
    Begun {
        event_seqs: Vec<i64>,
    },
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
    reminder: Option<ReminderChange>,
    policy_overrides: Option<PolicyOverrides>,
    effects: Vec<Effect>,
}

impl Applied {
    /// Adds changes of deliveries, and their notices.
    fn add(&mut self, changes: Changes) {
        self.changed.extend(changes.changed);
        self.opened.extend(changes.opened);
    }

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
        && (brings_back(&request.command) && membership::arrives(&room, &caller.identity)
            || caller.joins
                && is_for_members(&room, &request.command)
                && membership::may_enter(&room, caller.agent_id()))
    {
        membership::join(&mut room, &caller.identity, None, &moment)?;
    }
    let applied = match &request.caller {
        Some(caller) => apply(&mut room, rows, caller, &request.command, now, &moment)?,
        None => apply_by_itself(&mut room, rows, &request.command, now, &moment)?,
    };
    let mut applied = applied;
    let gone = departed(&room);
    if !gone.is_empty() {
        let changes = delivery::end_questions(&mut room, &rows.deliveries, &gone, now);
        applied.add(changes);
    }
    let grant = applied.grant.or_else(|| turn::settle(&mut room, &moment));
    let mut effects = applied.effects;
    effects.extend(applied.changed.iter().map(|change| delivery_timer(&room, &change.after, now)));
    effects.extend(applied.reminder.iter().map(|change| reminder_timer(&room, change)));
    // A caller that became a member by its wait is not among those that waited before.
    let waits = request.caller.as_ref().filter(|_| matches!(request.command, Command::Wait { .. }));
    effects.extend(wait_ends(before, &room, waits.map(Caller::agent_id), grant.as_ref(), now.lease));
    effects.extend(offers(&room.events, &applied.opened, &applied.changed));
    effects.extend(new_anchors(before, &room).map(|anchor| Effect::Watch { anchor }));
    let due = if room.deleted { None } else { room.next_deadline(now.lease).map(Due::Lease) };
    effects.push(Effect::Timer { key: TimerKey::Room(room.room_id.clone()), due });
    Ok(Decision {
        opened: applied.opened,
        changed: applied.changed,
        note: applied.note,
        reminder: applied.reminder,
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
        Command::Join { .. } | Command::Delete | Command::ConfirmMessages { .. } | Command::ReturnMessages { .. } => {
            false
        }
        Command::TakeMessages { access, .. } => *access == TakeAccess::Arriving,
        _ => true,
    }
}

/// Whether a caller that is not a member may become one by this command.
fn is_for_members(room: &Room, command: &Command) -> bool {
    // Where nothing is guarded, nobody has to do with an edit.
    let is_guarded = !matches!(command, Command::CheckGuard { .. }) || room.policy.guard != Guard::Off;
    // A wait that ends, and a member that leaves, were members before.
    is_guarded && brings_back(command) && !matches!(command, Command::EndWait | Command::Leave)
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
        Command::Delete => {
            membership::delete(room, me)?;
            Applied::default()
        }
        Command::Kick { target, force, reason } => {
            let kicked = removed(membership::kick(room, me, target, *force, reason.as_deref(), now)?);
            let why = reason.as_deref().map_or_else(String::new, |reason| format!(" and says: {}", quoted(reason)));
            let text = format!("{} removed you from the room{why}", name_of(room, me));
            let opened = vec![notices::tell(room, target, Notice::Kicked, text)];
            Applied { opened, ..Applied::reply(kicked) }
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
            let mut applied = Applied::default();
            let is_told = |revoked: &&AgentId| {
                // A member may take over what was kept for itself.
                *revoked != me && room.member(revoked).is_some_and(|m| m.status.is_member())
            };
            let told = taken.revoked.as_ref().filter(is_told);
            if let Some(revoked) = told {
                let text = format!(
                    "{} took the stick from you ({}) and says: {}",
                    name_of(room, me),
                    taken.reason.as_str().replace('_', " "),
                    quoted(reason)
                );
                applied.opened.push(notices::tell(room, revoked, Notice::TakenOver, text));
            }
            applied.reply = Some(Reply::TakenOver { turn, revoked: taken.revoked, reason: taken.reason });
            applied
        }
        Command::SendMessage { to, body, delivery_hint, from_person, options } => {
            let draft = Draft { from: me, to, body, hint: *delivery_hint, from_person: *from_person, options };
            let sent = sending::send(room, &draft, rows, now)?;
            let recipients = sent.opened.iter().map(|opened| opened.recipient.clone()).collect();
            let changed = sent.answers.into_iter().collect();
            Applied { opened: sent.opened, changed, ..Applied::reply(Reply::Sent { recipients }) }
        }
        Command::WithdrawMessage { event_seq } => {
            room.active_member(me)?;
            let (changed, too_late) = delivery::withdraw(me, rows.message.as_ref(), *event_seq, &rows.deliveries, now)?;
            let reply = Reply::Withdrawn { withdrawn: changed.len(), too_late };
            Applied { changed, ..Applied::reply(reply) }
        }
        Command::TakeMessages { max_replay, limit, access, mid_turn, .. } => {
            if *access == TakeAccess::Arriving {
                room.active_member(me)?;
            }
            let holds = (!caller.identity.is_person()).then_some(caller.connection);
            let taken = delivery::take(&rows.deliveries, holds, me, *max_replay, *limit, *mid_turn, now.deadline);
            // What came before the end of a membership is still handed over.
            if taken.is_empty() {
                check_access(room, me, *access)?;
            }
            let reply = Reply::Taken { skipped: taken.skipped, event_seqs: taken.event_seqs, more: taken.more };
            Applied { effects: taken.effect.into_iter().collect(), ..Applied::reply(reply) }
        }
        Command::ConfirmMessages { surface, event_seqs } => {
            delivery::check_listed(&rows.deliveries, caller.connection, event_seqs)?;
            let (changes, effect) =
                delivery::confirm(room, &rows.deliveries, caller.connection, me, *surface, event_seqs, now);
            let reply = Reply::Count(changes.changed.len());
            let mut applied = Applied { effects: vec![effect], ..Applied::reply(reply) };
            applied.add(changes);
            applied
        }
        Command::ReturnMessages { event_seqs } => {
            delivery::check_listed(&rows.deliveries, caller.connection, event_seqs)?;
            let (returned, effect) = delivery::give_back(&rows.deliveries, caller.connection, me, event_seqs);
            Applied { effects: vec![effect], ..Applied::reply(Reply::Count(returned)) }
        }
        Command::SetQuiet { lasts } => {
            room.active_member(me)?;
            sending::check_ahead("for_ms", *lasts)?;
            if let Some(member) = room.member_mut(me) {
                member.quiet_until = lasts.map(|lasts| now.deadline + lasts);
            }
            Applied::reply(Reply::Quiet { until: lasts.map(|lasts| now.wall + lasts) })
        }
        Command::CheckGuard { action, is_overridden } => {
            let checked = guard::check(room, caller, action, *is_overridden, moment);
            let effects = checked.watch.map(|anchor| Effect::Watch { anchor }).into_iter().collect();
            let opened = checked.notice.into_iter().collect();
            let reply = Some(Reply::Guard(checked.verdict));
            Applied { reply, grant: checked.grant, opened, effects, ..Applied::default() }
        }
        Command::AddReminder(new) => {
            let reminder = reminders::add(room, me, new, rows.reminder_count, now)?;
            let change = Some(ReminderChange::Set(reminder.clone()));
            Applied { reminder: change, ..Applied::reply(Reply::Reminder(reminder)) }
        }
        Command::CancelReminder { reminder_id } => {
            let change = reminders::cancel(room, me, reminder_id, rows.reminder.as_ref())?;
            Applied { reminder: Some(change), ..Applied::default() }
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
        Command::GiveBack { .. }
        | Command::Tick
        | Command::ProcessExited
        | Command::Purge
        | Command::DeliveryDue { .. }
        | Command::ReminderDue { .. }
        | Command::BeginAttempt { .. }
        | Command::EndAttempt { .. } => {
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
        Command::GiveBack { agent_id, turn_id, cause } => {
            let is_over = room.turn_id != *turn_id;
            let grant = if is_over { None } else { guard::give_back(room, agent_id, *cause, moment) };
            return Ok(Applied::grant(grant));
        }
        Command::Tick => {
            turn::tick(room, moment);
            return Ok(Applied::grant(guard::process_exited(room, moment)));
        }
        Command::ProcessExited => {
            membership::processes_exited(room);
            return Ok(Applied::grant(guard::process_exited(room, moment)));
        }
        Command::Purge => membership::purge(room, rows.has_contents, moment),
        Command::DeliveryDue { .. } => {
            let mut applied = Applied::default();
            applied.add(delivery::due(room, &rows.deliveries, now));
            // One that a connection holds is looked at again; every other one that is due was changed.
            let is_changed =
                |row: &&DeliveryRow| applied.changed.iter().any(|change| change.after.recipient == row.recipient);
            let unchanged = rows.deliveries.iter().filter(|row| !is_changed(row));
            let again: Vec<Effect> = unchanged
                .map(|row| Effect::Timer {
                    key: TimerKey::Delivery(room.room_id.clone(), row.event_seq, row.recipient.clone()),
                    due: delivery::due_again(row, now.deadline).map(Due::Deadline),
                })
                .collect();
            applied.effects.extend(again);
            return Ok(applied);
        }
        Command::ReminderDue { .. } => {
            let Some(reminder) = &rows.reminder else { return Ok(Applied::default()) };
            let (change, opened) = reminders::due(room, reminder, now);
            let opened = opened.into_iter().collect();
            return Ok(Applied { reminder: Some(change), opened, ..Applied::default() });
        }
        Command::BeginAttempt { recipient, surface, tag, .. } => {
            let (changed, event_seqs) = attempts::begin(room, &rows.deliveries, recipient, *surface, tag, now);
            return Ok(Applied { changed, ..Applied::reply(Reply::Begun { event_seqs }) });
        }
        Command::EndAttempt { recipient, tag, handled, .. } => {
            let (changes, effects) = attempts::end(room, &rows.deliveries, recipient, tag, *handled, now);
            let reply = Reply::Count(changes.changed.len());
            let mut applied = Applied { effects, ..Applied::reply(reply) };
            applied.add(changes);
            return Ok(applied);
        }
        _ => return Err(Error::new(ErrorCode::AgentIdRequired, "this command needs a caller")),
    }
    Ok(Applied::default())
}

/// Refuses a caller that can no longer expect messages here.
fn check_access(room: &Room, me: &AgentId, access: TakeAccess) -> Result<(), Error> {
    let is_member = room.member(me).is_some_and(|member| member.status.is_member());
    match access {
        TakeAccess::Arriving => room.active_member(me).map(|_| ()),
        TakeAccess::Staying if !is_member => Err(room.not_a_member(me)),
        TakeAccess::Staying | TakeAccess::Leaving => Ok(()),
    }
}

/// The members whose membership, or whose process, ended with this command.
fn departed(room: &Room) -> Vec<AgentId> {
    let left = room.events.iter().filter(|event| matches!(event.event_type, EventType::MemberLeft | EventType::Kick));
    let agents = left.filter_map(|event| match event.event_type {
        EventType::Kick => event.to.clone(),
        _ => event.from.clone(),
    });
    agents.filter(|agent| room.member(agent).is_some_and(|member| !member.status.is_addressed())).collect()
}

/// Sets the timer of a delivery to what is due of it next.
fn delivery_timer(room: &Room, row: &DeliveryRow, now: Now) -> Effect {
    let key = TimerKey::Delivery(room.room_id.clone(), row.event_seq, row.recipient.clone());
    Effect::Timer { key, due: delivery::due_again(row, now.deadline).map(Due::Deadline) }
}

fn reminder_timer(room: &Room, change: &ReminderChange) -> Effect {
    let (reminder_id, due) = change.timer();
    Effect::Timer { key: TimerKey::Reminder(room.room_id.clone(), reminder_id.clone()), due: due.map(Due::Deadline) }
}

/// What a member wrote, on one line in quotes: a notice is nobody's words, and these are somebody's.
fn quoted(text: &str) -> String {
    format!("\"{}\"", excerpt(text).replace('"', "'"))
}

/// What a notice calls a member.
fn name_of(room: &Room, agent: &AgentId) -> String {
    names::unique_name(room, agent).unwrap_or(agent.as_str()).to_owned()
}

fn removed(removed: membership::Removed) -> Reply {
    Reply::Removed { was_owner: removed.was_owner, was_reserved_for: removed.was_reserved_for }
}

/// The waits that end with this command, and their answers.
fn wait_ends<'a>(
    before: &'a Room,
    after: &'a Room,
    waits: Option<&'a AgentId>,
    grant: Option<&'a Grant>,
    now: LeaseTime,
) -> impl Iterator<Item = Effect> + 'a {
    let reason = takeover::reason(after, now);
    let end = move |agent: &AgentId, member: Option<&Member>| match grant {
        _ if after.deleted => Some(WaitEnd::Removed { turn_id: after.turn_id, kick: None }),
        Some(grant) if grant.agent_id == *agent => Some(WaitEnd::YourTurn(turn::current_turn(after, grant.reason))),
        _ => turn::wait_end_of(after, agent, member, reason),
    };
    // Members are only ever added, at the end: each is where it was before.
    let waited = move |place: usize| before.members.get(place).is_some_and(|m| m.waiting != Waiting::No);
    let waits = waits.cloned();
    let waiting =
        after.members().enumerate().filter(move |(place, m)| waited(*place) || waits.as_ref() == Some(&m.agent_id));
    waiting.filter_map(move |(_, m)| {
        Some(Effect::EndWait { end: end(&m.agent_id, Some(m))?, agent_id: m.agent_id.clone() })
    })
}

/// The members whose listeners have something to look at: a new message, the end of their membership, or the end of a
/// question of theirs.
fn offers<'a>(
    events: &'a [EventDraft],
    opened: &'a [NewDelivery],
    changed: &'a [DeliveryChange],
) -> impl Iterator<Item = Effect> + 'a {
    let left = events.iter().filter(|event| event.event_type == EventType::MemberLeft);
    let left = left.filter_map(|event| event.from.clone());
    let ended = changed.iter().map(|change| &change.after).filter(|row| row.expects_reply && !row.awaits_answer());
    let ended = ended.filter_map(|row| row.from.clone());
    let opened = opened.iter().map(|delivery| delivery.recipient.clone());
    opened.chain(left).chain(ended).map(|agent_id| Effect::Offer { agent_id })
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

    use crate::room::Removal;
    use crate::testing::{at, caller, id, now, room};

    fn take(room: &Room, open: &[i64], access: TakeAccess) -> Result<Vec<i64>, ErrorCode> {
        let delivery = |seq: &i64| DeliveryRow { event_seq: *seq, recipient: id("a"), ..DeliveryRow::default() };
        let rows = Rows { deliveries: open.iter().map(delivery).collect(), ..Rows::default() };
        let command = Command::TakeMessages {
            from: None,
            about: None,
            among: None,
            mid_turn: false,
            max_replay: None,
            limit: 10,
            access,
        };
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
        assert_eq!(take(&room, &[], TakeAccess::Staying), Err(ErrorCode::Kicked), "and then hears of it");
        assert_eq!(take(&room, &[7], TakeAccess::Arriving), Err(ErrorCode::Kicked));
        assert_eq!(take(&room, &[], TakeAccess::Leaving), Ok(Vec::new()));
    }

    #[test]
    fn a_call_brings_a_member_back_and_a_later_look_does_not() {
        let mut room = room(&["a", "b"]);
        room.member_mut(&id("a")).unwrap().status = tt_proto::room::MemberStatus::Gone;
        let joined = |access| {
            let command = Command::TakeMessages {
                from: None,
                about: None,
                among: None,
                mid_turn: false,
                max_replay: None,
                limit: 10,
                access,
            };
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
    fn a_caller_that_is_refused_does_not_become_a_member() {
        let joining = |agent: &str, command: Command| {
            let caller = Caller { joins: true, ..caller(agent, 1) };
            decide(&room(&["a", "b"]), &Rows::default(), &Request::new(Some(caller), command), now(0))
        };
        let note = |body: &str| Command::AddNote { note_id: "n".into(), body: body.into(), turn_id: None };
        let decision = joining("new", note("x")).unwrap();
        let log: Vec<&str> = decision.room.events.iter().map(|event| event.event_type.as_str()).collect();
        assert_eq!(log, ["member_joined", "note_added"]);
        let kick = Command::Kick { target: id("b"), force: false, reason: None };
        for (command, code) in [
            (note(" "), ErrorCode::InvalidBody),
            (kick, ErrorCode::TargetActive),
            (Command::Leave, ErrorCode::UnknownMember),
        ] {
            assert_eq!(joining("new", command).unwrap_err().code, code);
        }
        let end = joining("new", Command::EndWait).unwrap();
        assert!(end.room.events.is_empty(), "a wait that ends joins nothing");
    }

    #[test]
    fn what_was_about_an_earlier_turn_gives_no_later_one_back() {
        let check = Command::CheckGuard {
            action: crate::GuardedAction::Edit { files: vec!["f".into()] },
            is_overridden: false,
        };
        let request = Request::new(Some(caller("a", 1)), check);
        let held = decide(&room(&["a", "b"]), &Rows::default(), &request, now(0)).unwrap().room;
        assert_eq!((held.owner.clone(), held.turn_id), (Some(id("a")), 1));
        let owner_after = |turn_id: i64| {
            let cause = crate::GiveBackCause::TurnEnded;
            let request = Request::new(None, Command::GiveBack { agent_id: id("a"), turn_id, cause });
            decide(&held, &Rows::default(), &request, now(1)).unwrap().room.owner
        };
        assert_eq!((owner_after(0), owner_after(1)), (Some(id("a")), None));
    }

    #[test]
    fn nobody_enters_by_a_command_after_a_kick() {
        let mut room = room(&["a", "b"]);
        membership::kick(&mut room, &id("a"), &id("b"), true, Some("looped"), now(0)).unwrap();
        let kick = Some(Removal { by: id("a"), reason: Some("looped".into()) });
        assert_eq!(turn::wait_end(&room, &id("b"), at(1)), Some(WaitEnd::Removed { turn_id: 0, kick }));
        let caller = Caller { joins: true, ..caller("b", 1) };
        let note = Command::AddNote { note_id: "n".into(), body: "x".into(), turn_id: None };
        let refusal = decide(&room, &Rows::default(), &Request::new(Some(caller.clone()), note), now(1)).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::Kicked);
        assert!(refusal.message.contains("looped") && refusal.message.contains('a'), "{refusal}");
        let join = Request::new(Some(caller), Command::Join { display_name: None });
        let joined = decide(&room, &Rows::default(), &join, now(2)).unwrap().room;
        assert!(joined.active_member(&id("b")).unwrap().removal.is_none());
    }

    #[test]
    fn the_connections_of_a_person_are_all_shown_its_messages() {
        let mut person = caller("a", 1);
        person.identity.found_by = tt_proto::hello::FoundBy::User;
        let open = DeliveryRow {
            event_seq: 7,
            recipient: id("a"),
            held_by: Some(crate::command::ConnectionId(2)),
            ..DeliveryRow::default()
        };
        let rows = Rows { deliveries: vec![open], ..Rows::default() };
        let command = Command::TakeMessages {
            from: None,
            about: None,
            among: None,
            mid_turn: false,
            max_replay: None,
            limit: 10,
            access: TakeAccess::Arriving,
        };
        let decision = decide(&room(&["a", "b"]), &rows, &Request::new(Some(person), command), now(0)).unwrap();
        assert_eq!(decision.reply, Reply::Taken { skipped: Vec::new(), event_seqs: vec![7], more: 0 });
        assert!(!decision.effects.iter().any(|effect| matches!(effect, Effect::Hold { .. })));
    }

    #[test]
    fn a_question_that_ends_wakes_the_one_who_waits_for_its_answer() {
        let row = DeliveryRow { event_seq: 7, recipient: id("b"), from: Some(id("a")), ..DeliveryRow::default() };
        let message = Some(crate::delivery::MessageRow { from: Some(id("a")) });
        let offered = |expects_reply| {
            let deliveries = vec![DeliveryRow { expects_reply, ..row.clone() }];
            let rows = Rows { deliveries, message: message.clone(), ..Rows::default() };
            let withdraw = Request::new(Some(caller("a", 1)), Command::WithdrawMessage { event_seq: 7 });
            let decision = decide(&room(&["a", "b"]), &rows, &withdraw, now(0)).unwrap();
            decision.effects.contains(&Effect::Offer { agent_id: id("a") })
        };
        assert_eq!((offered(true), offered(false)), (true, false));
    }

    #[test]
    fn a_command_that_needs_a_caller_is_refused_without_one() {
        let request = Request::new(None, Command::Leave);
        let refused = decide(&room(&["a"]), &Rows::default(), &request, now(0)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::AgentIdRequired);
    }
}
