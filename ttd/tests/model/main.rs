//! Never two holders.
//!
//! Random histories (joins, waits, releases, passes, takeovers, kicks, leaves, heartbeats with right, stale and invented
//! tokens, processes that end and come back, clock steps, daemons killed and started) are run against the real rules and
//! the real store, and beside them against a simple reference written from `docs/protocol.md`. After each command both
//! must agree on what was answered, what was written down, who was told what, and how the room stands; and whatever the
//! reference says:
//!
//! - there is at most one holder, and it is the one the log says;
//! - the turn grows by one, and only at a `claim` or `takeover` event; no lease is used twice;
//! - a refused call leaves every row as it was;
//! - each handoff is received by exactly the next claimant, to the letter, and by nobody else;
//! - nobody who may have an idle room waits for it, and nobody misses what it waits for.
//!
//! `cargo test -p ttd --test model` runs 120,000 commands. A longer run, and one history again:
//!
//! ```sh
//! TT_MODEL_COMMANDS=10000000 cargo test --release -p ttd --test model
//! TT_MODEL_SEED=42 cargo test -p ttd --test model
//! ```
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

mod history;
mod reference;
mod world;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tt_proto::LeaseId;
use tt_proto::event::{Event, EventType};
use tt_proto::handoff::RawJson;
use ttd::stick::{EventDraft, Waiting, membership, takeover, turn};
use ttd::store::notes;

use history::{Kind, Op, Random, Token, Who, generate, shrink};
use reference::{NAMES, Outcome, Reference, Times, Told};
use world::{Came, World, agent, at, shown, words};

const COMMANDS: u64 = 120_000;

/// Long enough for every deadline to come up, short enough to read.
const LENGTH: usize = 120;

/// What a new daemon may be wrong by.
const DOUBT: i64 = ttd::hub::WRITE_BEHIND.as_millis() as i64;

const TIMES: Times = Times {
    lease: 100_000,
    activity: 20_000,
    heartbeat: 10_000,
    claim: 40_000,
    presence: 300_000,
    grace: 10_000,
    wait_max: 50_000,
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
        let ops = generate(&mut Random(seed), LENGTH);
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
}

impl Tally {
    fn everything_happened(&self) {
        let codes = [
            "room_not_found",
            "unknown_member",
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
        ];
        for code in codes {
            assert!(self.refusals.contains_key(code), "no history was refused with {code}");
        }
        let causes = ["owner_gone", "owner_timeout", "owner_idle", "recipient_gone", "claim_timeout"];
        for cause in causes {
            assert!(self.told.contains_key(cause), "nobody was told of a takeover for {cause}");
            assert!(self.events.contains_key(&format!("takeover {cause}")), "nobody took over for {cause}");
        }
        for reason in ["direct_pass", "sequence", "open_claim"] {
            assert!(self.told.contains_key(reason) && self.events.contains_key(&format!("claim {reason}")), "{reason}");
        }
        for event in ["takeover operator_override", "reservation_expired -", "member_left expired", "kick ghost"] {
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
        let reference = Reference { now: 0, times: TIMES, room: None, dead: BTreeSet::new(), unreported: false };
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
                    world.run(Some(number), |room, moment, _| {
                        takeover::take(room, &agent(number), expected_turn, "stuck", operator, moment).map(|_| None)
                    })
                })?;
            }
            Op::Kick { by, target, force } => {
                let (process, target) = (self.acts(by), self.who(target));
                let expected = self.reference.kick(by, process, target, force);
                self.compare(&expected, |world| {
                    world.run(Some(by), |room, moment, _| {
                        let (by, target) = (agent(by), agent(target));
                        membership::kick(room, &by, &target, force, Some("ghost"), moment).map(|_| None)
                    })
                })?;
            }
            Op::Leave(who) => {
                let number = self.who(who);
                let process = self.acts(number);
                let expected = self.reference.leave(number, process);
                self.compare(&expected, |world| {
                    world.run(Some(number), |room, _, _| membership::leave(room, &agent(number)).map(|_| None))
                })?;
            }
            Op::Heartbeat(who, token) => self.heartbeat(who, token)?,
            Op::Note(number) => {
                let process = self.acts(number);
                let expected = self.reference.note(number, process);
                self.compare(&expected, |world| {
                    let now = at(world.now);
                    world.run(Some(number), |room, _, connection| {
                        room.active_member(&agent(number))?;
                        notes::add(connection, &room.room_id, &agent(number), "n", None, now)?;
                        room.events.push(EventDraft::new(EventType::NoteAdded, room.turn_id, &agent(number)));
                        Ok(None)
                    })
                })?;
            }
            Op::Die { who, reported } => self.die(who, reported)?,
            Op::Step(millis) => self.pass_time(millis)?,
            Op::Restart { killed } => self.restart(killed)?,
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
        self.compare(&expected, |world| {
            world.run(Some(number), |room, moment, _| {
                let (caller, lease) = (agent(number), LeaseId::from(lease));
                match to {
                    None => turn::release(room, &caller, &lease, expected_turn, &said, moment),
                    Some(to) => turn::pass(room, &caller, &lease, expected_turn, &agent(to), &said, moment),
                }
            })
        })
    }

    /// A heartbeat writes nothing, unless it brings back a member that was gone.
    fn heartbeat(&mut self, who: Who, token: Token) -> Result<(), String> {
        let number = self.who(who);
        let process = self.acts(number);
        let (lease, turn_id) = self.token(token);
        let expected = self
            .reference
            .command(Some((number, process)), &|_, room, _| Reference::authority(room, number, &lease, turn_id));
        let (caller, lease) = (agent(number), LeaseId::from(lease));
        self.compare(&expected, |world| {
            world.run(Some(number), |room, _, _| turn::check_authority(room, &caller, &lease, turn_id).map(|()| None))
        })?;
        let until = self.world.look(|room| room.lease_end()).flatten();
        let expected = self.reference.room.as_ref().filter(|room| room.holder.is_some());
        let expected = expected.map(|room| at(self.reference.lease_until(room)));
        if until != expected {
            return Err(format!("the lease ends at {until:?}, not {expected:?}"));
        }
        Ok(())
    }

    fn end_wait(&mut self, number: usize) -> Result<(), String> {
        if !self.world.waits(number) {
            return Ok(());
        }
        // The process that waits is the one that asks again.
        let process = self.world.processes[number];
        let (expected, standing) = self.reference.end_wait(number, process);
        let Some((came, answered)) = self.world.end_wait(number) else { return Err("it did not wait".into()) };
        self.agree(&expected, &came)?;
        if standing != answered {
            return Err(format!("the wait ended with {answered:?}, not {standing:?}"));
        }
        Ok(())
    }

    fn die(&mut self, who: Who, reported: bool) -> Result<(), String> {
        let number = self.who(who);
        if self.world.hang(number) {
            self.reference.hang(number);
        }
        let Some(process) = self.world.processes[number] else { return Ok(()) };
        self.world.dead.insert(process);
        self.reference.dead.insert(process);
        if !reported || self.world.room.is_none() {
            self.reference.unreported = true;
            return Ok(());
        }
        let expected = self.reference.happen(false);
        let came = self.world.run(None, |room, _, _| {
            membership::processes_exited(room);
            Ok(None)
        });
        self.agree(&expected, &came)
    }

    /// Time passes, and on its way whatever has a time comes about when it should.
    fn pass_time(&mut self, millis: i64) -> Result<(), String> {
        let end = self.world.now + millis;
        loop {
            let deadline = self.world.deadline.filter(|at| *at <= end);
            let wait = self.world.next_end_of_wait().filter(|(at, _)| *at <= end);
            let next = deadline.into_iter().chain(wait.map(|(at, _)| at)).min().unwrap_or(end);
            self.world.now = next.max(self.world.now);
            self.reference.now = self.world.now;
            if deadline == Some(next) {
                self.world.deadline = None;
                self.tick()?;
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
        let came = self.world.run(None, |room, moment, _| {
            turn::tick(room, moment);
            Ok(None)
        });
        self.agree(&expected, &came)
    }

    /// A new daemon knows when members were last seen to within the doubt, always in their favour; the reference takes
    /// its word for it within that. Then it catches up.
    fn restart(&mut self, killed: bool) -> Result<(), String> {
        let before = self.world.dump();
        self.world.restart(killed);
        if killed && self.world.dump() != before {
            return Err("a restart changed what was stored".into());
        }
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
        self.tick()
    }

    /// Runs a command whose outcome is known, and sees to it that a refusal changes nothing.
    fn compare(&mut self, expected: &Outcome, command: impl FnOnce(&mut World) -> Came) -> Result<(), String> {
        let before = expected.refused.map(|_| self.world.dump());
        let came = command(self.world);
        if let (Some(before), Some(code)) = (before, came.refused) {
            *self.tally.refusals.entry(code).or_default() += 1;
            let after = self.world.dump();
            if before != after {
                return Err(format!("refused with {code}, and yet it changed\n{before}\nto\n{after}"));
            }
        }
        self.agree(expected, &came)
    }

    fn agree(&mut self, expected: &Outcome, came: &Came) -> Result<(), String> {
        if expected.refused != came.refused {
            return Err(format!("refused with {:?}, not {:?}", came.refused, expected.refused));
        }
        if expected.events != came.events || expected.deleted != came.deleted {
            return Err(format!("wrote down {:#?}, not {:#?}", came.events, expected.events));
        }
        if expected.told != came.told {
            return Err(format!("told {:#?}, not {:#?}", came.told, expected.told));
        }
        self.appended.extend_from_slice(&came.events);
        if came.deleted {
            self.log = Replay::default();
            self.leases.clear();
            self.appended.clear();
        }
        for event in &came.events {
            let kind = event.split(' ').next().unwrap_or_default();
            let reason = event.split("reason=").nth(1).and_then(|reason| reason.split(':').next()).unwrap_or_default();
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
        self.world.write_behind();
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
        self.reference.overdue().map_or(Ok(()), Err)
    }
}
