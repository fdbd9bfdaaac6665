//! Never two holders, and no message lost.
//!
//! Random histories (joins, waits, releases, passes, takeovers, kicks, leaves, heartbeats with right, stale and invented
//! tokens, messages sent, taken by several surfaces, confirmed, returned and expired, processes that end and come back,
//! questions and their answers, notices, reminders, clock steps, daemons stopped, killed, and killed right after a commit) are
//! run through the real engine on the real store, and beside it through a simple reference written from `docs/protocol.md` and
//! `docs/delivery.md` that shares no code with it. After each command both must agree on the answer, on the log, on who was told what, and on every row; and whatever the reference says:
//!
//! - there is at most one holder, and it is the one the log says;
//! - the turn grows by one, and only at a `claim` or `takeover` event; no lease is used twice;
//! - a refused call leaves every row as it was, also that of a caller that is not a member;
//! - leaving, kicking and closing terminals lose nothing: only a command deletes a room, or time one that is empty;
//! - each handoff is received by exactly the next holder, to the letter, and by nobody else;
//! - no member that may have an idle room waits for it, and no member misses what it waits for;
//! - every acknowledged message is, for each recipient, in exactly one of its states, is taken by one connection at a time and
//!   in order, is confirmed at most once, and its sender is told what became of it, once;
//! - what is being handed over in a way that cannot be recalled is held until it is known what became of it, whatever is
//!   killed meanwhile;
//! - every reminder is sent when it is due, and so often.
//!
//! `cargo test -p ttd --test model` runs 60,000 commands. A longer run, and one history again:
//!
//! ```sh
//! TT_MODEL_COMMANDS=1000000 cargo test --release -p ttd --test model
//! TT_MODEL_SEED=42 cargo test -p ttd --test model
//! ```
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod guard;
mod history;
mod messages;
mod reference;
mod world;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tt_proto::event::{Event, EventType};
use tt_proto::handoff::RawJson;
use tt_proto::{LeaseId, ReminderId};
use tt_rules::{Blocker, Command, GiveBackCause, GuardedAction, Reply, TimerKey, Verdict, Waiting};

use history::{Cause, Extras, Kind, Op, Pick, Random, Token, Which, Who, generate, generate_with_messages, shrink};
use messages::{Ask, Reminder, Took, Wish};
use reference::{NAMES, Outcome, Reference, Times, Told};
use world::{Came, StoredDelivery, World, agent, shown, words};

const COMMANDS: u64 = 60_000;

/// Long enough for every deadline to come up, short enough to read.
const LENGTH: usize = 120;

/// What a new daemon may be wrong by.
const DOUBT: i64 = ttd::presence::STORE_INTERVAL.as_millis() as i64;

const TIMES: Times = Times {
    lease: 100_000,
    activity: 20_000,
    heartbeat: 10_000,
    claim: 40_000,
    presence: 300_000,
    grace: 10_000,
    wait_max: 50_000,
    idle_room: 200_000,
    ask: 30_000,
};

#[test]
fn two_never_hold_the_stick() {
    let variable = |name: &str| {
        #[expect(clippy::disallowed_methods, reason = "a test's own knob")]
        std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap())
    };
    let commands = variable("TT_MODEL_COMMANDS").unwrap_or(COMMANDS);
    let (first, histories) = match variable("TT_MODEL_SEED") {
        Some(seed) => (seed, 1),
        None => (0, commands.div_ceil(LENGTH as u64)),
    };
    let world = RefCell::new(World::new(&TIMES));
    let mut tally = Tally::default();
    for seed in first..first + histories {
        // Turns alone, and turns with messages.
        let ops = match seed % 2 {
            0 => generate(&mut Random(seed), LENGTH),
            _ => generate_with_messages(&mut Random(seed), LENGTH),
        };
        let Err(why) = run(&world, &ops, &mut tally) else { continue };
        let small = shrink(ops, |fewer| run(&world, fewer, &mut Tally::default()).is_err());
        let again = run(&world, &small, &mut Tally::default()).unwrap_err();
        let listed: Vec<String> = small.iter().map(|op| format!("  {op:?}")).collect();
        panic!("seed {seed}: {why}\n\nsmallest history, {} steps:\n{}\n\n{again}", small.len(), listed.join("\n"));
    }
    println!("{histories} histories: {tally:?}");
    if histories > 100 {
        tally.everything_happened();
    }
}

/// What the histories came to, to show that they came to something.
#[derive(Debug, Default)]
struct Tally {
    commands: u64,
    refusals: BTreeMap<&'static str, u64>,
    events: BTreeMap<String, u64>,
    told: BTreeMap<String, u64>,
    /// How messages stood with their recipients when their history ended.
    deliveries: BTreeMap<String, u64>,
    /// What was told by nobody.
    notices: BTreeMap<String, u64>,
    /// Answers that came after their question was over.
    late_answers: u64,
    reminders: u64,
    /// How messages that were handed over in a way that cannot be recalled came out.
    attempts: BTreeMap<&'static str, u64>,
    /// Notices and reminders that say that they are late.
    late: u64,
    crashes: u64,
    /// What the guard said.
    guard: BTreeMap<String, u64>,
    /// How many rooms time deleted.
    purges: u64,
}

impl Tally {
    fn everything_happened(&self) {
        let codes = [
            "room_not_found",
            "unknown_member",
            "kicked",
            "room_in_use",
            "unknown_target",
            "target_active",
            "cannot_kick_self",
            "invalid_handoff",
            "invalid_input",
            "stale_lease",
            "turn_mismatch",
            "takeover_not_available",
            "takeover_ineligible",
            "duplicate_listener",
            "park_requires_release",
            "unknown_message",
            "not_a_recipient",
            "already_delivered",
            "unknown_reminder",
            "unknown_recipient",
        ];
        for code in codes {
            assert!(self.refusals.contains_key(code), "no history was refused with {code}");
        }
        let causes = ["owner_gone", "owner_timeout", "owner_idle", "recipient_gone", "claim_timeout"];
        for cause in causes {
            assert!(self.told.contains_key(cause), "nobody was told of a takeover for {cause}");
            assert!(self.events.contains_key(&format!("takeover {cause}")), "nobody took over for {cause}");
        }
        for said in ["taken", "passes", "blocked holder", "blocked reserved", "blocked waiter", "blocked removed"] {
            assert!(self.guard.contains_key(said), "the guard never said: {said}");
        }
        for cause in ["turn_ended", "broken_off", "asking", "forgotten", "session_ended", "committed"] {
            assert!(self.events.contains_key(&format!("release {cause}")), "nothing was given back because {cause}");
        }
        for reason in ["direct_pass", "sequence", "open_claim"] {
            assert!(self.told.contains_key(reason) && self.events.contains_key(&format!("claim {reason}")), "{reason}");
        }
        for state in ["pending", "delivered", "answered", "expired", "withdrawn"] {
            assert!(self.deliveries.contains_key(state), "no message ended {state}");
        }
        for notice in tt_proto::message::Notice::ALL {
            assert!(self.notices.contains_key(notice.as_str()), "nobody was told: {}", notice.as_str());
        }
        assert!(self.late_answers > 0 && self.reminders > 0 && self.late > 0, "{self:?}");
        for outcome in ["arrived", "failed"] {
            assert!(self.attempts.get(outcome).is_some_and(|count| *count > 0), "{:?}", self.attempts);
        }
        assert!(self.crashes > 0, "no daemon was killed right after a commit");
        assert!(self.purges > 0, "no empty room was deleted by time");
        for event in [
            "takeover operator_override",
            "reservation_expired -",
            "member_left expired",
            "member_left terminal_closed",
            "kick ghost",
        ] {
            assert!(self.events.contains_key(event), "{event} never came about");
        }
    }
}

fn run(world: &RefCell<World>, ops: &[Op], tally: &mut Tally) -> Result<(), String> {
    let mut world = world.borrow_mut();
    world.begin();
    let mut history = History::new(&mut world, tally);
    for (index, op) in ops.iter().enumerate() {
        let done = catch_unwind(AssertUnwindSafe(|| history.step(*op)));
        let done = done.unwrap_or_else(|_| Err("it panicked".to_owned()));
        done.map_err(|why| format!("step {index}, {op:?}, at {} ms: {why}", history.world.now))?;
    }
    history.count_deliveries();
    Ok(())
}

/// One history under way: the world, the reference beside it, and what was seen so far.
struct History<'a> {
    world: &'a mut World,
    reference: Reference,
    tally: &'a mut Tally,
    /// The lease of each turn of the room, and all there ever were.
    leases: Vec<(i64, String)>,
    all_leases: BTreeSet<String>,
    handoffs: u64,
    /// Who received which handoff, in which turn.
    received: BTreeMap<String, (usize, i64)>,
    log: Replay,
    /// What commands said they wrote down since the log was last read.
    appended: Vec<String>,
    /// The numbers of the room's messages in the log, in the order of the history.
    message_seqs: Vec<i64>,
    /// The ids of the room's reminders, in the order of the history.
    reminder_ids: Vec<ReminderId>,
    /// The hand-overs that began, each with its recipient and its messages.
    begun: Vec<(usize, Vec<usize>)>,
    said: u64,
}

/// What the log alone says about a room.
#[derive(Debug, Default)]
struct Replay {
    turn: i64,
    owner: Option<String>,
    reserved_for: Option<String>,
    newest: i64,
}

impl Replay {
    fn add(&mut self, event: &Event) -> Result<(), String> {
        let name = |agent: &Option<tt_proto::AgentId>| agent.as_ref().map(ToString::to_string);
        let (turn, from) = (event.turn_id.unwrap_or(-1), name(&event.from_agent_id));
        match event.event_type {
            EventType::Claim | EventType::Takeover => {
                if turn != self.turn + 1 {
                    return Err(format!("turn {turn} was granted after turn {}", self.turn));
                }
                if event.event_type == EventType::Claim && self.owner.is_some() {
                    return Err(format!("{from:?} claimed what {:?} held", self.owner));
                }
                (self.turn, self.owner, self.reserved_for) = (turn, from, None);
            }
            EventType::Release | EventType::Pass => {
                if self.owner != from || turn != self.turn {
                    return Err(format!("{from:?} gave away turn {turn}, which {:?} held", self.owner));
                }
                self.owner = None;
                if event.event_type == EventType::Pass {
                    self.reserved_for = name(&event.to_agent_id);
                }
            }
            EventType::MemberLeft if matches!(event.reason.as_deref(), Some("left" | "kicked")) => {
                self.owner = self.owner.take().filter(|owner| Some(owner) != from.as_ref());
                self.reserved_for = self.reserved_for.take().filter(|agent| Some(agent) != from.as_ref());
            }
            _ => {}
        }
        if turn != self.turn {
            return Err(format!("{:?} is about turn {turn} in turn {}", event.event_type, self.turn));
        }
        Ok(())
    }
}

impl<'a> History<'a> {
    fn new(world: &'a mut World, tally: &'a mut Tally) -> Self {
        let reference =
            Reference { now: 0, times: TIMES, room: None, dead: BTreeSet::new(), unreported: false, admits: false };
        Self {
            world,
            reference,
            tally,
            leases: Vec::new(),
            all_leases: BTreeSet::new(),
            handoffs: 0,
            received: BTreeMap::new(),
            log: Replay::default(),
            appended: Vec::new(),
            message_seqs: Vec::new(),
            reminder_ids: Vec::new(),
            begun: Vec::new(),
            said: 0,
        }
    }

    fn who(&self, who: Who) -> usize {
        let room = self.reference.room.as_ref();
        match who {
            Who::Agent(agent) => agent,
            Who::Holder => room.and_then(|room| room.holder).unwrap_or(0),
            Who::Recipient => room.and_then(|room| room.kept_for).unwrap_or(1),
        }
    }

    fn token(&self, token: Token) -> (String, i64) {
        let turn = self.reference.room.as_ref().map_or(0, |room| room.turn);
        let current = self.leases.last().map_or("none", |(_, lease)| lease.as_str());
        let earlier = self.leases.iter().rev().nth(1).map_or((-7, "none"), |(turn, lease)| (*turn, lease.as_str()));
        match token {
            Token::Right => (current.to_owned(), turn),
            Token::Earlier => (earlier.1.to_owned(), earlier.0),
            Token::EarlierLease => (earlier.1.to_owned(), turn),
            Token::OtherTurn(by) => (current.to_owned(), turn + by),
            Token::Invented => (LeaseId::fresh().to_string(), turn),
        }
    }

    /// An agent acts: it is alive, and seen.
    fn acts(&mut self, number: usize) -> Option<u32> {
        let process = self.world.come_alive(number);
        self.world.seen(number);
        self.world.store_presence_if_due();
        self.reference.seen(number);
        process
    }

    fn step(&mut self, op: Op) -> Result<(), String> {
        self.tally.commands += 1;
        match op {
            Op::Join(number) => {
                let process = self.acts(number);
                let expected = self.reference.join(number, process);
                let came = self.world.join(number);
                self.agree(&expected, &came)?;
            }
            Op::Wait(who, kind) => {
                let number = self.who(who);
                let process = self.acts(number);
                let waiting = match kind {
                    Kind::Listen => Waiting::Listening { alone: false },
                    Kind::Alone => Waiting::Listening { alone: true },
                    Kind::Park => Waiting::Parked,
                };
                let until = self.world.now + TIMES.wait_max;
                let expected = self.reference.wait(number, process, kind);
                self.compare(&expected, |world| world.wait(number, waiting, until))?;
            }
            Op::EndWait(number) => self.end_wait(number)?,
            Op::Hang(number) => {
                if self.world.hang(number) {
                    self.reference.hang(number);
                }
            }
            Op::Release(who, token) => self.give(who, None, token, true)?,
            Op::Pass(who, to, token) => self.give(who, Some(to), token, true)?,
            Op::BadHandoff(who) => self.give(who, None, Token::Right, false)?,
            Op::Takeover { by, turn, operator } => {
                let number = self.who(by);
                let process = self.acts(number);
                let (_, expected_turn) = self.token(turn);
                let expected = self.reference.takeover(number, process, expected_turn, operator);
                self.compare(&expected, |world| {
                    let command = Command::TakeOver {
                        expected_turn_id: expected_turn,
                        reason: "stuck".into(),
                        operator_override: operator,
                    };
                    world.run(number, command)
                })?;
            }
            Op::Kick { by, target, force } => {
                let (process, target) = (self.acts(by), self.who(target));
                let expected = self.reference.kick(by, process, target, force);
                self.compare(&expected, |world| {
                    world.run(by, Command::Kick { target: agent(target), force, reason: Some("ghost".into()) })
                })?;
            }
            Op::Leave(who) => {
                let number = self.who(who);
                let process = self.acts(number);
                let expected = self.reference.leave(number, process);
                self.compare(&expected, |world| world.run(number, Command::Leave))?;
            }
            Op::Delete(number) => {
                self.acts(number);
                let expected = self.reference.delete(number);
                self.compare(&expected, |world| world.run(number, Command::Delete))?;
            }
            Op::Purge => {
                let expected = self.reference.purge();
                self.compare(&expected, |world| world.run_by_itself(Command::Purge))?;
                self.tally.purges += u64::from(expected.deleted);
            }
            Op::OpenTerminal => self.world.open_terminal(),
            Op::Heartbeat(who, token) => self.heartbeat(who, token)?,
            Op::Note(number) => {
                let process = self.acts(number);
                let expected = self.reference.note(number, process);
                let note_id = tt_proto::NoteId::fresh();
                let command = Command::AddNote { note_id, body: "n".into(), turn_id: None };
                self.compare(&expected, |world| world.run(number, command))?;
            }
            Op::Die { who, reported } => self.die(who, reported)?,
            Op::Step(millis) => self.pass_time(millis)?,
            Op::Send { by, to, ttl, extras } => self.send(by, to, ttl, extras)?,
            Op::Reply { by, to, named, extras } => self.reply(by, to, named, extras)?,
            Op::Withdraw { by, which } => self.withdraw(by, which)?,
            Op::Remind { by, to, after, every, times } => {
                let says = self.words();
                self.remind(by, &Reminder { from: by, to, says, due: after, every, times })?;
            }
            Op::Cancel { by, back } => self.cancel(by, back)?,
            Op::Take { who, surface, max_replay, limit, mid_turn, about } => {
                let about = about.map(|about| self.pick(who, about));
                self.take(who, surface, Ask { max_replay, limit, mid_turn, about: about.flatten() }, about.is_some())?;
            }
            Op::Confirm { who, surface, which } => self.confirm(who, surface, which)?,
            Op::Begin { to, count } => self.begin(to, count)?,
            Op::End { back, arrived } => self.end(back, arrived)?,
            Op::Return { who, surface, which } => self.give_back(who, surface, which)?,
            Op::Close { who, surface } => {
                let connection = self.world.connection(who, surface).0;
                self.world.end_connection(who, surface);
                self.reference.end_connections(|ended| ended == connection);
            }
            Op::Edit { who, overridden } => {
                let file = self.words().replace(' ', "-");
                let command = GuardedAction::Edit { files: vec![file.clone()] };
                self.check_guard(who, &guard::Action::Edit(file), command, overridden)?;
            }
            Op::Commit { who, seen, overridden } => {
                let git = seen.then(|| self.world.start_commit());
                let process = git.map(world::anchor);
                self.check_guard(who, &guard::Action::Commit(git), GuardedAction::Commit { process }, overridden)?;
            }
            Op::Push(who, overridden) => {
                self.check_guard(who, &guard::Action::Push, GuardedAction::Push, overridden)?;
            }
            Op::EndCommit => {
                let Some(git) = self.reference.room.as_ref().and_then(|room| room.given.commit) else { return Ok(()) };
                self.world.end_commit(git);
                self.reference.dead.insert(git);
                let expected = self.reference.happen(false);
                let came = self.world.run_by_itself(Command::ProcessExited);
                self.agree(&expected, &came)?;
            }
            Op::GiveBack { who, cause, late } => {
                let number = self.who(who);
                let turn_id = self.reference.room.as_ref().map_or(0, |room| room.turn) - i64::from(late);
                let expected = self.reference.end_turn(number, cause, late);
                let cause = match cause {
                    Cause::TurnEnded => GiveBackCause::TurnEnded,
                    Cause::BrokenOff => GiveBackCause::BrokenOff,
                    Cause::Asking => GiveBackCause::Asking,
                    Cause::Forgotten => GiveBackCause::Forgotten,
                    Cause::SessionEnded => GiveBackCause::SessionEnded,
                    Cause::Committed => GiveBackCause::Committed,
                };
                self.compare(&expected, |world| {
                    world.run_by_itself(Command::GiveBack { agent_id: agent(number), turn_id, cause })
                })?;
            }
            Op::Crash => self.world.crash_next(),
            Op::Restart { killed, down } => self.restart(killed, down)?,
        }
        self.check()
    }

    fn give(&mut self, who: Who, to: Option<usize>, token: Token, good: bool) -> Result<(), String> {
        let number = self.who(who);
        let process = self.acts(number);
        let (lease, expected_turn) = self.token(token);
        self.handoffs += 1;
        let said = if good { words(self.handoffs) } else { RawJson::parse(r#"{"status":" "}"#.into()).unwrap() };
        let text = good.then_some(said.as_str());
        let expected = self.reference.give(number, process, to, (&lease, expected_turn), text);
        let (lease_id, expected_turn_id, handoff) = (LeaseId::from(lease), expected_turn, said);
        let command = match to {
            None => Command::Release { lease_id, expected_turn_id, handoff },
            Some(to) => Command::Pass { lease_id, expected_turn_id, to: agent(to), handoff },
        };
        self.compare(&expected, |world| world.run(number, command)).map(|_| ())
    }

    fn check_guard(
        &mut self,
        who: Who,
        action: &guard::Action,
        command: GuardedAction,
        is_overridden: bool,
    ) -> Result<(), String> {
        let number = self.who(who);
        let process = self.acts(number);
        let (expected, says) = self.reference.check_guard(number, process, action, is_overridden);
        let command = Command::CheckGuard { action: command, is_overridden };
        let Some(Reply::Guard(verdict)) = self.compare(&expected, |world| world.run(number, command))? else {
            return Ok(());
        };
        let by = |by: &Blocker| match by {
            Blocker::Holder(agent) => format!("holder {agent}"),
            Blocker::Reserved(agent) => format!("reserved {agent}"),
            Blocker::Waiter(agent) => format!("waiter {agent}"),
            Blocker::Removal(_) => "removed -".to_owned(),
        };
        let said = match &verdict {
            Verdict::Passes => "passes".to_owned(),
            Verdict::Taken => "taken".to_owned(),
            Verdict::Blocked { by: blocker, is_enforced: true } => format!("blocked {}", by(blocker)),
            Verdict::Blocked { .. } => "advised".to_owned(),
            Verdict::Overridden { by: blocker } => format!("overridden {}", by(blocker)),
        };
        *self.tally.guard.entry(said.split(' ').take(2).collect::<Vec<_>>().join(" ")).or_default() += 1;
        if said == says { Ok(()) } else { Err(format!("the guard says {said}, not {says}")) }
    }

    /// Words that nobody said before.
    fn words(&mut self) -> String {
        self.said += 1;
        format!("hello {}", self.said)
    }

    /// The message that somebody means: its place, or none if it has a number that no message has.
    fn pick(&self, who: usize, which: Pick) -> Option<usize> {
        let messages = self.reference.room.as_ref().map_or(&[][..], |room| &room.messages);
        let newest = |back: usize, fits: &dyn Fn(&messages::Message) -> bool| {
            let fitting = messages.iter().enumerate().rev().filter(|(_, message)| fits(message));
            fitting.map(|(index, _)| index).nth(back)
        };
        match which {
            Pick::ToMe(back) => newest(back, &|message| message.to.contains_key(&who)),
            Pick::FromMe(back) => newest(back, &|message| message.from == Some(who)),
            Pick::Any(back) => newest(back, &|_| true),
            Pick::Unknown => None,
        }
    }

    /// The number of a picked message. One that is no message's is that of another event, or of none.
    fn seq_of(&self, picked: Option<usize>) -> i64 {
        let is_message = |seq: &i64| self.message_seqs.contains(seq);
        picked.map_or_else(|| (1..).find(|seq| !is_message(seq)).unwrap(), |index| self.message_seqs[index])
    }

    fn send(&mut self, by: usize, to: Option<usize>, ttl: Option<i64>, extras: Extras) -> Result<(), String> {
        let wish = Wish { to, timeout: ttl, ..self.wish(extras) };
        self.deliver(by, &wish)
    }

    fn wish(&mut self, extras: Extras) -> Wish {
        let Extras { is_question, urgency, tell_delivery, tell_silence } = extras;
        Wish { says: self.words(), is_question, urgency, tell_delivery, tell_silence, ..Wish::default() }
    }

    fn reply(&mut self, by: usize, to: Pick, named: Option<usize>, extras: Extras) -> Result<(), String> {
        let reply_to = Some(self.pick(by, to));
        let wish = Wish { reply_to, to: named, ..self.wish(extras) };
        self.deliver(by, &wish)
    }

    fn deliver(&mut self, by: usize, wish: &Wish) -> Result<(), String> {
        let process = self.acts(by);
        let reply_to = wish.reply_to.map(|picked| self.seq_of(picked));
        let expected = self.reference.send(by, process, wish);
        self.compare(&expected, |world| world.send(by, wish, reply_to)).map(|_| ())
    }

    fn withdraw(&mut self, by: usize, which: Pick) -> Result<(), String> {
        let (process, picked) = (self.acts(by), self.pick(by, which));
        let event_seq = self.seq_of(picked);
        let (expected, counted) = self.reference.withdraw(by, process, picked);
        match self.compare(&expected, |world| world.run(by, Command::WithdrawMessage { event_seq }))? {
            Some(Reply::Withdrawn { withdrawn, too_late }) if (withdrawn, too_late) != counted => {
                Err(format!("withdrawn from {withdrawn}, too late for {too_late}, not {counted:?}"))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, to: usize, count: usize) -> Result<(), String> {
        let Some(room) = &self.reference.room else { return Ok(()) };
        let to_it = room.messages.iter().enumerate().rev().filter(|(_, message)| message.to.contains_key(&to));
        let which: Vec<usize> = to_it.map(|(index, _)| index).take(count).collect();
        let seqs: Vec<i64> = which.iter().map(|index| self.message_seqs[*index]).collect();
        let tag = self.begun.len() as u64;
        self.begun.push((to, which.clone()));
        let expected = self.reference.begin_attempt(to, &which, tag);
        let came = self.world.begin_attempt(to, seqs, format!("t{tag}"));
        self.agree(&expected, &came)
    }

    fn end(&mut self, back: usize, arrived: bool) -> Result<(), String> {
        let Some(tag) = self.begun.len().checked_sub(back + 1) else { return Ok(()) };
        let (to, which) = self.begun[tag].clone();
        if self.reference.room.is_none() {
            return Ok(());
        }
        let seqs: Vec<i64> = which.iter().filter_map(|index| self.message_seqs.get(*index).copied()).collect();
        let open = self.world.deliveries().iter().filter(|d| d.attempt == Some(format!("t{tag}"))).count() as u64;
        *self.tally.attempts.entry(if arrived { "arrived" } else { "failed" }).or_default() += open;
        let expected = self.reference.end_attempt(to, tag as u64, arrived);
        let came = self.world.end_attempt(to, seqs, format!("t{tag}"), arrived);
        self.agree(&expected, &came)
    }

    fn remind(&mut self, by: usize, new: &Reminder) -> Result<(), String> {
        let (process, reminder_id) = (self.acts(by), ReminderId::fresh());
        let expected = self.reference.remind(by, process, new);
        if expected.refused.is_none() {
            self.reminder_ids.push(reminder_id.clone());
        }
        self.compare(&expected, |world| world.remind(by, reminder_id, new)).map(|_| ())
    }

    fn cancel(&mut self, by: usize, back: usize) -> Result<(), String> {
        let process = self.acts(by);
        let which = self.reminder_ids.len().checked_sub(1 + back);
        let reminder_id = which.map_or_else(ReminderId::fresh, |index| self.reminder_ids[index].clone());
        let expected = self.reference.cancel(by, process, which);
        self.compare(&expected, |world| world.run(by, Command::CancelReminder { reminder_id })).map(|_| ())
    }

    /// `has_about`: only what concerns one message is asked for.
    fn take(&mut self, who: usize, surface: usize, ask: Ask, has_about: bool) -> Result<(), String> {
        if has_about && ask.about.is_none() {
            return Ok(());
        }
        let process = self.acts(who);
        let connection = self.world.connection(who, surface).0;
        let about = ask.about.map(|index| self.message_seqs[index]);
        let (expected, took) = self.reference.take(who, process, connection, ask);
        let came = self.compare(&expected, |world| world.take(who, surface, ask, about))?;
        let Some(Reply::Taken { skipped, event_seqs, more }) = came else { return Ok(()) };
        let index = |seq: &i64| self.message_seqs.iter().position(|known| known == seq).unwrap();
        let indexes = |seqs: &[i64]| seqs.iter().map(index).collect::<Vec<usize>>();
        let really = Took { messages: indexes(&event_seqs), skipped: indexes(&skipped), more };
        if really == took { Ok(()) } else { Err(format!("took {really:?}, not {took:?}")) }
    }

    fn which(&self, who: usize, connection: u64, which: Which) -> Vec<usize> {
        let held = self.reference.held(who, connection);
        match which {
            Which::Held => held,
            Which::First => held.into_iter().take(1).collect(),
            Which::Everything => (0..self.message_seqs.len()).collect(),
        }
    }

    fn seqs(&self, messages: &[usize]) -> Vec<i64> {
        messages.iter().map(|index| self.message_seqs[*index]).collect()
    }

    fn confirm(&mut self, who: usize, surface: usize, which: Which) -> Result<(), String> {
        let connection = self.world.connection(who, surface).0;
        let shown = self.which(who, connection, which);
        let (expected, count) = self.reference.confirm(who, connection, &shown);
        let seqs = self.seqs(&shown);
        let came = self.compare(&expected, |world| world.confirm(who, surface, seqs))?;
        match came {
            Some(Reply::Count(really)) if really != count => Err(format!("confirmed {really}, not {count}")),
            _ => Ok(()),
        }
    }

    fn give_back(&mut self, who: usize, surface: usize, which: Which) -> Result<(), String> {
        let connection = self.world.connection(who, surface).0;
        let returned = self.which(who, connection, which);
        let seqs = self.seqs(&returned);
        let (expected, count) = self.reference.give_back(who, connection, &returned);
        let came = self.compare(&expected, |world| world.give_back(who, surface, seqs))?;
        match came {
            Some(Reply::Count(really)) if really != count => Err(format!("returned {really}, not {count}")),
            _ => Ok(()),
        }
    }

    /// How every message stands, in the rows and in the reference, and every reminder.
    fn compare_deliveries(&self) -> Result<(), String> {
        let messages = self.reference.room.iter().flat_map(|room| room.messages.iter().zip(&self.message_seqs));
        let seq = |index: Option<usize>| index.map(|index| self.message_seqs[index]);
        let expected: Vec<StoredDelivery> = messages
            .flat_map(|(message, number)| {
                message.to.iter().map(|(to, delivery)| StoredDelivery {
                    message: *number,
                    to: *to,
                    state: delivery.state.word().to_owned(),
                    is_over: delivery.is_over,
                    is_late: delivery.is_late,
                    answered_by: seq(delivery.answered_by),
                    tell_at: delivery.tell_at,
                    reply_to: seq(message.reply_to),
                    was_shown: delivery.was_shown,
                    attempt: delivery.attempt.map(|tag| format!("t{tag}")),
                })
            })
            .collect();
        let stored = self.world.deliveries();
        if stored != expected {
            let differ = stored.iter().zip(&expected).find(|(stored, expected)| stored != expected);
            return Err(format!(
                "{} and {} deliveries, the first that differ: {differ:?}",
                stored.len(),
                expected.len()
            ));
        }
        let reminders = self.reference.room.iter().flat_map(|room| room.reminders.iter().zip(&self.reminder_ids));
        let expected: BTreeMap<String, (i64, i64)> = reminders
            .filter_map(|(reminder, id)| reminder.as_ref().map(|r| (id.to_string(), (r.due, r.times))))
            .collect();
        let stored = self.world.reminders();
        if stored == expected { Ok(()) } else { Err(format!("the reminders are {stored:?}, not {expected:?}")) }
    }

    fn count_deliveries(&mut self) {
        for delivery in self.world.deliveries() {
            *self.tally.deliveries.entry(delivery.state).or_default() += 1;
            self.tally.late_answers += u64::from(delivery.is_late);
        }
    }

    /// A heartbeat writes nothing, unless it brings back a member that was gone.
    fn heartbeat(&mut self, who: Who, token: Token) -> Result<(), String> {
        let number = self.who(who);
        let process = self.acts(number);
        let (lease, turn_id) = self.token(token);
        let expected = self
            .reference
            .by_member(number, process, &|_, room, _| Reference::authority(room, number, &lease, turn_id));
        let command = Command::Heartbeat { lease_id: LeaseId::from(lease), expected_turn_id: turn_id };
        self.compare(&expected, |world| world.run(number, command))?;
        let until = self.world.lease_end();
        let expected = self.reference.room.as_ref().filter(|room| room.holder.is_some());
        let expected = expected.map(|room| self.reference.lease_until(room));
        if until != expected {
            return Err(format!("the lease ends at {until:?}, not {expected:?}"));
        }
        Ok(())
    }

    fn end_wait(&mut self, number: usize) -> Result<(), String> {
        // The process that waits is the one that asks again: of a person, the terminal in which the wait began.
        let Some(process) = self.world.waiting_process(number) else { return Ok(()) };
        let (expected, standing) = self.reference.end_wait(number, process);
        let Some((came, answered)) = self.world.end_wait(number) else { return Err("it did not wait".into()) };
        let crashed = came.crashed;
        self.agree(&expected, &came)?;
        if standing != answered && !crashed {
            return Err(format!("the wait ended with {answered:?}, not {standing:?}"));
        }
        Ok(())
    }

    fn die(&mut self, who: Who, reported: bool) -> Result<(), String> {
        let number = self.who(who);
        // A person may wait in another terminal than the one that is closed.
        if self.world.waiting_process(number) == Some(self.world.processes[number]) {
            self.world.hang(number);
            self.reference.hang(number);
        }
        let Some(process) = self.world.processes[number] else { return Ok(()) };
        self.world.kill(number, process);
        self.reference.dead.insert(process);
        if !reported || self.world.room.is_none() {
            self.reference.unreported = true;
            return Ok(());
        }
        let expected = self.reference.happen(false);
        let came = self.world.run_by_itself(Command::ProcessExited);
        self.agree(&expected, &came)
    }

    /// Time passes, and on its way whatever has a time comes about when it should.
    fn pass_time(&mut self, millis: i64) -> Result<(), String> {
        let end = self.world.now + millis;
        loop {
            let timer = self.world.next_timer().filter(|at| *at <= end);
            let wait = self.world.next_end_of_wait().filter(|(at, _)| *at <= end);
            let next = timer.into_iter().chain(wait.map(|(at, _)| at)).min().unwrap_or(end);
            self.world.advance_to(next.max(self.world.now));
            self.reference.now = self.world.now;
            if timer == Some(next) {
                for key in self.world.due() {
                    self.run_timer(&key)?;
                }
            } else if let Some((_, number)) = wait {
                self.end_wait(number)?;
            } else {
                return Ok(());
            }
            self.check()?;
        }
    }

    fn tick(&mut self) -> Result<(), String> {
        if self.world.room.is_none() {
            return Ok(());
        }
        let expected = self.reference.happen(true);
        let came = self.world.run_by_itself(Command::Tick);
        self.agree(&expected, &came)
    }

    fn run_timer(&mut self, key: &TimerKey) -> Result<(), String> {
        match key {
            TimerKey::Room(room) if self.world.room.as_ref() == Some(room) => self.tick(),
            TimerKey::Delivery(room, event_seq, _) if self.world.room.as_ref() == Some(room) => {
                let index = self.message_seqs.iter().position(|seq| seq == event_seq).unwrap();
                let expected = self.reference.message_due(index);
                let came = self.world.run_by_itself(Command::DeliveryDue { event_seq: *event_seq });
                self.agree(&expected, &came)
            }
            TimerKey::Reminder(room, reminder_id) if self.world.room.as_ref() == Some(room) => {
                let index = self.reminder_ids.iter().position(|id| id == reminder_id).unwrap();
                let expected = self.reference.reminder_due(index);
                let came = self.world.run_by_itself(Command::ReminderDue { reminder_id: reminder_id.clone() });
                self.agree(&expected, &came)
            }
            key => Err(format!("a room that was deleted still has the timer {key:?}")),
        }
    }

    /// A new daemon knows when members were last seen to within the doubt, always in their favour; the reference takes
    /// its word for it within that. Then it catches up.
    fn restart(&mut self, killed: bool, down: i64) -> Result<(), String> {
        let before = self.world.dump();
        self.world.restart(killed, down);
        self.reference.now = self.world.now;
        if killed && self.world.dump() != before {
            return Err("a restart changed what was stored".into());
        }
        self.catch_up(killed)
    }

    /// What a new daemon does first.
    fn catch_up(&mut self, killed: bool) -> Result<(), String> {
        self.reference.end_connections(|_| true);
        self.world.set_timers();
        let presence = self.world.presence();
        for (number, member) in self.reference.room.iter_mut().flat_map(|room| &mut room.members) {
            let (seen, waited) = presence[number];
            if seen < member.seen || seen > (member.seen + DOUBT).min(self.reference.now) {
                return Err(format!("{} was seen at {}, and now at {seen}", NAMES[*number], member.seen));
            }
            if waited > member.waited || (!killed && waited != member.waited) {
                return Err(format!("{} waited at {:?}, and now at {waited:?}", NAMES[*number], member.waited));
            }
            member.seen = seen;
            member.waited = waited;
            member.waiting = None;
        }
        self.tick()?;
        for key in self.world.due() {
            self.run_timer(&key)?;
        }
        Ok(())
    }

    /// Runs a command whose outcome is known, and sees to it that a refusal changes nothing.
    fn compare(
        &mut self,
        expected: &Outcome,
        command: impl FnOnce(&mut World) -> Came,
    ) -> Result<Option<Reply>, String> {
        let before = expected.refused.map(|_| self.world.dump());
        let came = command(self.world);
        if let (Some(before), Some(code)) = (before, came.refused) {
            *self.tally.refusals.entry(code).or_default() += 1;
            let after = self.world.dump();
            if before != after {
                return Err(format!("refused with {code}, and yet it changed\n{before}\nto\n{after}"));
            }
        }
        self.agree(expected, &came)?;
        Ok(came.reply.filter(|_| came.refused.is_none() && !came.crashed))
    }

    /// The command was committed and its daemon killed: nobody heard of it, and the log has it.
    fn recover(&mut self, expected: &Outcome) -> Result<(), String> {
        self.tally.crashes += 1;
        self.world.restart(true, 0);
        self.world.forget_deleted_room();
        if expected.deleted {
            self.log = Replay::default();
            self.received.clear();
            self.leases.clear();
            self.appended.clear();
            self.message_seqs.clear();
            self.reminder_ids.clear();
            self.begun.clear();
        }
        let expected_events = self.numbered(&expected.events);
        self.appended.extend(expected_events);
        self.note_messages();
        self.catch_up(true)
    }

    /// Learns the numbers of the messages in the log.
    fn note_messages(&mut self) {
        let newest = self.message_seqs.last().copied().unwrap_or(0);
        let sent = self.world.log(newest).into_iter().filter(|event| event.event_type == EventType::MessageSent);
        self.message_seqs.extend(sent.map(|event| event.event_seq));
    }

    /// Events with the numbers of the messages in the place of their places: `about=17` for `about=#3`.
    fn numbered(&self, events: &[String]) -> Vec<String> {
        let number = |word: &str| match word.split_once("=#") {
            Some((key, index)) => format!("{key}={}", self.message_seqs[index.parse::<usize>().unwrap()]),
            None => word.to_owned(),
        };
        events.iter().map(|event| event.split(' ').map(number).collect::<Vec<_>>().join(" ")).collect()
    }

    fn agree(&mut self, expected: &Outcome, came: &Came) -> Result<(), String> {
        if came.crashed {
            return if expected.refused.is_none() {
                self.recover(expected)
            } else {
                Err(format!("committed what should be refused with {:?}", expected.refused))
            };
        }
        if expected.refused != came.refused {
            return Err(format!("refused with {:?}, not {:?}", came.refused, expected.refused));
        }
        let expected_events = self.numbered(&expected.events);
        if expected_events != came.events || expected.deleted != came.deleted {
            return Err(format!("wrote down {:#?}, not {expected_events:#?}", came.events));
        }
        if expected.told != came.told {
            return Err(format!("told {:#?}, not {:#?}", came.told, expected.told));
        }
        self.appended.extend_from_slice(&came.events);
        if came.deleted {
            self.log = Replay::default();
            self.received.clear();
            self.leases.clear();
            self.appended.clear();
            self.message_seqs.clear();
            self.reminder_ids.clear();
            self.begun.clear();
        }
        if came.events.iter().any(|event| event.starts_with("message_sent")) {
            self.note_messages();
        }
        for event in &came.events {
            let kind = event.split(' ').next().unwrap_or_default();
            let reason =
                event.split("reason=").nth(1).and_then(|reason| reason.split([':', ' ']).next()).unwrap_or_default();
            if let Some(notice) = event.split("notice=").nth(1).and_then(|rest| rest.split(' ').next()) {
                *self.tally.notices.entry(notice.to_owned()).or_default() += 1;
            }
            self.tally.reminders += u64::from(event.contains(" reminder"));
            self.tally.late += u64::from(event.contains(" late="));
            *self.tally.events.entry(format!("{kind} {reason}")).or_default() += 1;
        }
        for (number, told) in &came.told {
            let (shown, grant) = match told {
                Told::YourTurn { reason, handoff, turn } => (*reason, Some((handoff, *turn))),
                Told::Takeover(reason) => (*reason, None),
                Told::Removed => ("removed", None),
                Told::NotYet => ("not_yet", None),
            };
            *self.tally.told.entry(shown.to_owned()).or_default() += 1;
            if let Some((Some((text, _)), turn)) = grant {
                let first = self.received.entry(text.clone()).or_insert((*number, turn));
                if *first != (*number, turn) {
                    return Err(format!("{text} went to {first:?} and to {:?}", (number, turn)));
                }
            }
        }
        Ok(())
    }

    /// What must hold after every command, whatever it was.
    fn check(&mut self) -> Result<(), String> {
        self.world.store_presence_if_due();
        let row = self.world.row();
        let (Some(row), Some(room)) = (&row, &mut self.reference.room) else {
            let both = row.is_none() && self.reference.room.is_none();
            return if both { Ok(()) } else { Err(format!("the room is there: {row:?}, {:?}", self.reference.room)) };
        };
        let name = |agent: Option<usize>| agent.map(|agent| NAMES[agent].to_owned());
        let expected = world::Row {
            state: match (room.holder, room.kept_for) {
                (Some(_), None) => "owned",
                (None, Some(_)) => "reserved",
                (None, None) => "idle",
                (Some(_), Some(_)) => return Err("held and reserved at once".into()),
            }
            .to_owned(),
            turn: room.turn,
            owner: name(room.holder),
            lease: row.lease.clone(),
            reserved_for: name(room.kept_for),
            pending: room.pending.as_ref().map(|(text, _, _)| text.clone()),
            current: room.received.as_ref().map(|(text, _)| text.clone()),
        };
        if *row != expected {
            return Err(format!("stored {row:#?}, not {expected:#?}"));
        }
        if row.lease.is_some() != row.owner.is_some() {
            return Err("a lease without a holder, or a holder without a lease".into());
        }
        if let Some(lease) = &row.lease {
            if self.leases.last() != Some(&(row.turn, lease.clone())) {
                if !self.all_leases.insert(lease.clone()) {
                    return Err(format!("lease {lease} was given out twice"));
                }
                if self.leases.last().is_some_and(|(turn, _)| *turn >= row.turn) {
                    return Err(format!("turn {} has two leases", row.turn));
                }
                self.leases.push((row.turn, lease.clone()));
            }
            room.lease = Some(lease.clone());
        }
        let mut appended = Vec::new();
        for event in self.world.log(self.log.newest) {
            self.log.newest = event.event_seq;
            self.log.add(&event)?;
            appended.push(shown(&event));
        }
        if appended != self.appended {
            return Err(format!("the log has {appended:#?}, not {:#?}", self.appended));
        }
        self.appended.clear();
        if (self.log.turn, &self.log.owner, &self.log.reserved_for) != (row.turn, &row.owner, &row.reserved_for) {
            return Err(format!("the log says {:?}, the room {row:?}", self.log));
        }
        self.compare_deliveries()?;
        self.reference.overdue().map_or(Ok(()), Err)
    }
}
