//! The stick as `docs/protocol.md` describes it, written once more and as simply as possible. It shares no code with the
//! rules: agents are numbers, times are milliseconds, and there is one room.

use std::collections::{BTreeMap, BTreeSet};

use crate::guard::Given;
use crate::history::Kind;
use crate::messages::{Message, Reminder, notify};

pub(crate) const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// The one that is a person, with as many terminals as it opens.
pub(crate) const PERSON: usize = 2;

/// The one that lives where nobody can see it, and whose calls make it a member.
pub(crate) const GUEST: usize = 4;

/// All times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) lease: i64,
    pub(crate) activity: i64,
    pub(crate) heartbeat: i64,
    pub(crate) claim: i64,
    pub(crate) presence: i64,
    pub(crate) grace: i64,
    pub(crate) wait_max: i64,
    pub(crate) idle_room: i64,
    pub(crate) ask: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Active,
    Away,
    Gone,
    Left,
    Kicked,
}

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) place: i64,
    pub(crate) status: Status,
    /// The process it lives in; none when nobody knows.
    pub(crate) process: Option<u32>,
    /// The terminals of the person.
    pub(crate) terminals: BTreeSet<u32>,
    pub(crate) seen: i64,
    pub(crate) waited: Option<i64>,
    pub(crate) held: Option<i64>,
    pub(crate) waiting: Option<Kind>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Room {
    pub(crate) turn: i64,
    pub(crate) holder: Option<usize>,
    pub(crate) lease: Option<String>,
    pub(crate) granted_until: i64,
    pub(crate) kept_for: Option<usize>,
    pub(crate) claim_until: i64,
    pub(crate) claim_noted: bool,
    /// What was given away and not yet received: the words, by whom, and whether to somebody in particular.
    pub(crate) pending: Option<(String, usize, bool)>,
    pub(crate) received: Option<(String, usize)>,
    pub(crate) giver: Option<usize>,
    pub(crate) given_at: Option<i64>,
    pub(crate) last_place: i64,
    pub(crate) members: BTreeMap<usize, Member>,
    pub(crate) messages: Vec<Message>,
    /// In the order in which they were set; none once it is cancelled, or sent for the last time.
    pub(crate) reminders: Vec<Option<Reminder>>,
    /// Whether there ever was a message, a note or a handoff.
    pub(crate) has_contents: bool,
    pub(crate) deleted: bool,
    /// Of the turn under way.
    pub(crate) given: Given,
}

/// What a waiter is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    YourTurn { turn: i64, handoff: Option<(String, usize)>, reason: &'static str },
    Takeover(&'static str),
    Removed,
    NotYet,
}

/// What a command must come to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    pub(crate) refused: Option<&'static str>,
    pub(crate) events: Vec<String>,
    pub(crate) told: BTreeMap<usize, Told>,
    pub(crate) deleted: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Reference {
    pub(crate) now: i64,
    pub(crate) times: Times,
    pub(crate) room: Option<Room>,
    /// The processes that ended.
    pub(crate) dead: BTreeSet<u32>,
    /// Some ended and the daemon was not told yet, so that nobody else can be.
    pub(crate) unreported: bool,
    /// The command under way is one that makes a guest a member.
    pub(crate) admits: bool,
}

pub(crate) type Rule<'a> = &'a dyn Fn(&Reference, &mut Room, &mut Vec<String>) -> Result<(), &'static str>;

/// Whether the membership of an agent goes on.
pub(crate) fn belongs(room: &Room, agent: usize) -> bool {
    let status = room.members.get(&agent).map(|member| member.status);
    matches!(status, Some(Status::Active | Status::Away | Status::Gone))
}

/// Whether an agent is there, or is a person that only closed its terminals.
pub(crate) fn is_addressed(room: &Room, agent: usize) -> bool {
    matches!(room.members.get(&agent).map(|member| member.status), Some(Status::Active | Status::Away))
}

pub(crate) fn name(agent: Option<usize>) -> &'static str {
    agent.map_or("-", |agent| NAMES[agent])
}

pub(crate) fn event(kind: &str, turn: i64, from: &str, to: &str, reason: &str) -> String {
    format!("{kind} turn={turn} from={from} to={to} reason={reason}")
}

impl Reference {
    pub(crate) fn gone(&self, member: &Member) -> bool {
        if !member.terminals.is_empty() {
            return member.terminals.is_subset(&self.dead);
        }
        member.process.is_some_and(|process| self.dead.contains(&process))
    }

    /// Its process ended. A person that closed its terminals is only away.
    fn died(&self, member: &Member) -> bool {
        member.terminals.is_empty() && self.gone(member)
    }

    pub(crate) fn present(&self, member: &Member) -> bool {
        member.status == Status::Active && !self.gone(member)
    }

    fn another_present(&self, room: &Room, but: &[usize]) -> bool {
        room.members.iter().any(|(agent, m)| !but.contains(agent) && self.present(m))
    }

    /// In a wait, or between two.
    pub(crate) fn waits(&self, member: &Member) -> bool {
        member.waiting.is_some() || member.waited.is_some_and(|at| self.now < at + self.times.wait_max)
    }

    /// Never held, then longest ago, then the order of joining from the last holder on.
    pub(crate) fn fairness(room: &Room, member: &Member) -> (i64, i64) {
        let places = room.members.values().map(|m| m.place).max().unwrap_or(0) + 1;
        (member.held.unwrap_or(-1), (member.place - room.last_place - 1).rem_euclid(places))
    }

    fn may_claim(&self, room: &Room, agent: usize) -> bool {
        let member = &room.members[&agent];
        let willing = match member.waiting {
            Some(Kind::Alone) => true,
            Some(Kind::Listen) => self.another_present(room, &[agent]),
            Some(Kind::Park) | None => false,
        };
        if !willing || !self.present(member) {
            return false;
        }
        let in_grace = room.given_at.is_some_and(|at| self.now < at + self.times.grace);
        let straight_back = room.giver == Some(agent) && self.another_present(room, &[agent]);
        let fairer_between_waits = room.members.iter().any(|(other, m)| {
            *other != agent
                && room.giver != Some(*other)
                && self.present(m)
                && m.waiting.is_none()
                && self.waits(m)
                && Self::fairness(room, m) < Self::fairness(room, member)
        });
        !in_grace || !(straight_back || fairer_between_waits)
    }

    pub(crate) fn next(&self, room: &Room) -> Option<usize> {
        let candidates = room.members.keys().copied().filter(|agent| self.may_claim(room, *agent));
        candidates.min_by_key(|agent| Self::fairness(room, &room.members[agent]))
    }

    fn begin(&self, room: &mut Room, agent: usize) {
        room.turn += 1;
        room.holder = Some(agent);
        room.lease = None;
        room.granted_until = self.now + self.times.lease;
        room.kept_for = None;
        room.given_at = None;
        room.given = Given::default();
        let turn = room.turn;
        if let Some(member) = room.members.get_mut(&agent) {
            member.held = Some(turn);
            member.seen = self.now;
            member.waited = None;
            room.last_place = member.place;
        }
    }

    pub(crate) fn claim(&self, room: &mut Room, agent: usize, reason: &str, events: &mut Vec<String>) {
        self.begin(room, agent);
        room.received = room.pending.take().map(|(words, from, _)| (words, from));
        events.push(event("claim", room.turn, NAMES[agent], "-", reason));
    }

    fn settle(&self, room: &mut Room, events: &mut Vec<String>) {
        if room.holder.is_none()
            && room.kept_for.is_none()
            && let Some(agent) = self.next(room)
        {
            self.claim(room, agent, "open_claim", events);
        }
    }

    pub(crate) fn lease_until(&self, room: &Room) -> i64 {
        room.holder.map_or(0, |holder| room.granted_until.max(room.members[&holder].seen + self.times.lease))
    }

    pub(crate) fn takeover_reason(&self, room: &Room) -> Option<&'static str> {
        if let Some(holder) = room.holder {
            let member = &room.members[&holder];
            let waited_for = room.members.iter().any(|(a, m)| *a != holder && self.present(m) && self.waits(m));
            return if self.died(member) {
                Some("owner_gone")
            } else if self.now >= self.lease_until(room) {
                Some("owner_timeout")
            } else if self.now >= member.seen + self.times.activity && waited_for {
                Some("owner_idle")
            } else {
                None
            };
        }
        let recipient = &room.members[&room.kept_for?];
        if self.died(recipient) {
            Some("recipient_gone")
        } else if self.now >= room.claim_until {
            Some("claim_timeout")
        } else {
            None
        }
    }

    /// After a claim timeout the prior owner stands back while another active member could take it.
    fn stands_back(&self, room: &Room, agent: usize, reason: &str) -> bool {
        let recipient = room.kept_for.unwrap_or(agent);
        reason == "claim_timeout" && room.giver == Some(agent) && self.another_present(room, &[agent, recipient])
    }

    /// What a wait of this member would answer now.
    pub(crate) fn standing(&self, room: &Room, agent: usize, reason: &'static str) -> Option<Told> {
        if room.members.get(&agent).is_none_or(|m| m.status != Status::Active) {
            return Some(Told::Removed);
        }
        if room.holder == Some(agent) {
            return Some(Told::YourTurn { turn: room.turn, handoff: room.received.clone(), reason });
        }
        let takeover = self.takeover_reason(room)?;
        let mine = room.kept_for == Some(agent);
        (!mine && !self.stands_back(room, agent, takeover)).then_some(Told::Takeover(takeover))
    }

    /// Anything that should have happened by now and has not.
    pub(crate) fn overdue(&self) -> Option<String> {
        let room = self.room.as_ref()?;
        if self.unreported {
            return None;
        }
        if room.holder.is_none()
            && room.kept_for.is_none()
            && let Some(agent) = self.next(room)
        {
            return Some(format!("{} waits for an idle room that it may have", NAMES[agent]));
        }
        for (agent, member) in &room.members {
            if member.waiting.is_some()
                && let Some(told) = self.standing(room, *agent, "already_owner")
            {
                return Some(format!("{} waits and was not told {told:?}", NAMES[*agent]));
            }
            let silent = member.status == Status::Active && member.waiting.is_none() && member.terminals.is_empty();
            if silent && self.now >= member.seen + self.times.presence {
                return Some(format!("{} was silent for presence_ttl and still counts", NAMES[*agent]));
            }
        }
        if let Some(why) = self.overdue_message(room) {
            return Some(why);
        }
        let unnoted = room.kept_for.is_some() && self.now >= room.claim_until && !room.claim_noted;
        unnoted.then(|| "a reservation ran out and the log does not say so".to_owned())
    }

    /// Runs a command: on a copy, so that a refusal changes nothing. The caller comes with the process it calls from.
    pub(crate) fn command(&mut self, caller: Option<(usize, Option<u32>)>, rule: Rule<'_>) -> Outcome {
        let Some(before) = self.room.clone() else {
            return Outcome { refused: Some("room_not_found"), ..Outcome::default() };
        };
        let (mut room, mut events) = (before.clone(), Vec::new());
        if let Some((GUEST, process)) = caller
            && self.admits
            && room.members.get(&GUEST).is_none_or(|m| m.status == Status::Left)
        {
            self.enter(&mut room, GUEST, process, &mut events);
        }
        let known = caller.and_then(|(agent, process)| Some((agent, process, room.members.get_mut(&agent)?)));
        if let Some((agent, process, member)) = known {
            if matches!(member.status, Status::Gone | Status::Away) {
                events.push(event("member_joined", room.turn, NAMES[agent], "-", "returned"));
                member.status = Status::Active;
            }
            if member.status == Status::Active && agent == PERSON {
                member.terminals.extend(process);
            } else if member.status == Status::Active {
                member.process = process.or(member.process);
            }
        }
        if let Err(code) = rule(self, &mut room, &mut events) {
            return Outcome { refused: Some(code), ..Outcome::default() };
        }
        self.end_questions(&before, &mut room, &mut events);
        self.settle(&mut room, &mut events);
        self.commit(before, room, events)
    }

    fn commit(&mut self, before: Room, mut room: Room, events: Vec<String>) -> Outcome {
        let deleted = room.deleted;
        let mut told = BTreeMap::new();
        // Only a member that waited can be told; one that was granted the turn by this command hears why.
        let why = |agent: usize| {
            let granted = room.holder == Some(agent) && room.turn > before.turn;
            // A grant may be followed by notices.
            let grant = events.iter().rfind(|event| event.starts_with("claim ")).filter(|_| granted);
            let reasons = ["direct_pass", "sequence", "open_claim", "guard"];
            let is_why = |reason: &&&str| grant.is_some_and(|grant| grant.ends_with(&format!("reason={reason}")));
            reasons.iter().find(is_why).copied().unwrap_or("already_owner")
        };
        for agent in room.members.keys().filter(|agent| room.members[agent].waiting.is_some()) {
            let standing = if deleted { Some(Told::Removed) } else { self.standing(&room, *agent, why(*agent)) };
            if let Some(standing) = standing {
                told.insert(*agent, standing);
            }
        }
        for agent in told.keys() {
            if let Some(member) = room.members.get_mut(agent) {
                member.waiting = None;
                member.waited = (room.holder != Some(*agent)).then_some(self.now);
            }
        }
        self.room = (!deleted).then_some(room);
        // A room that is deleted takes its log with it.
        Outcome { refused: None, events: if deleted { Vec::new() } else { events }, told, deleted }
    }

    pub(crate) fn seen(&mut self, agent: usize) {
        let now = self.now;
        if let Some(member) = self.room.as_mut().and_then(|room| room.members.get_mut(&agent)) {
            member.seen = now;
        }
    }

    /// Joining creates the room where there is none.
    pub(crate) fn join(&mut self, agent: usize, process: Option<u32>) -> Outcome {
        self.room.get_or_insert_default();
        self.command(None, &|this, room, events| {
            this.enter(room, agent, process, events);
            Ok(())
        })
    }

    fn enter(&self, room: &mut Room, agent: usize, process: Option<u32>, events: &mut Vec<String>) {
        let place = room.members.values().map(|m| m.place + 1).max().unwrap_or(0);
        let fresh = Member {
            place,
            status: Status::Left,
            process,
            terminals: BTreeSet::new(),
            seen: self.now,
            waited: None,
            held: None,
            waiting: None,
        };
        let known = room.members.contains_key(&agent);
        let member = room.members.entry(agent).or_insert(fresh);
        if member.status != Status::Active {
            let reason = if known { "returned" } else { "joined" };
            events.push(event("member_joined", room.turn, NAMES[agent], "-", reason));
        }
        member.status = Status::Active;
        member.process = process;
        member.seen = self.now;
        if agent == PERSON {
            member.terminals.extend(process);
        }
    }

    /// Runs a command that only a member may give. A guest becomes one with it, unless it is refused.
    pub(crate) fn by_member(&mut self, agent: usize, process: Option<u32>, rule: Rule<'_>) -> Outcome {
        self.admits = true;
        let outcome = self.command(Some((agent, process)), rule);
        self.admits = false;
        outcome
    }

    /// A room is deleted by a caller that is alone in it.
    pub(crate) fn delete(&mut self, agent: usize) -> Outcome {
        self.command(None, &|this, room, _| {
            room.deleted = !this.another_present(room, &[agent]);
            if room.deleted { Ok(()) } else { Err("room_in_use") }
        })
    }

    /// Time deletes a room in which nothing was ever written, and in which nobody lives.
    pub(crate) fn purge(&mut self) -> Outcome {
        self.command(None, &|this, room, _| {
            let is_seen = |m: &Member| m.process.is_some() || !m.terminals.is_empty();
            let lives = |m: &Member| is_seen(m) || m.waiting.is_some() || this.now < m.seen + this.times.idle_room;
            let inhabited = room.members.values().any(|m| this.present(m) && lives(m));
            room.deleted = !inhabited && !room.has_contents;
            Ok(())
        })
    }

    pub(crate) fn active(room: &Room, agent: usize) -> Result<(), &'static str> {
        match room.members.get(&agent).map(|m| m.status) {
            Some(Status::Active) => Ok(()),
            Some(Status::Kicked) => Err("kicked"),
            _ => Err("unknown_member"),
        }
    }

    pub(crate) fn wait(&mut self, agent: usize, process: Option<u32>, kind: Kind) -> Outcome {
        let waits = |room: &Room| room.members.get(&agent).is_some_and(|m| m.waiting.is_some());
        if self.room.as_ref().is_some_and(waits) {
            return Outcome { refused: Some("duplicate_listener"), ..Outcome::default() };
        }
        self.by_member(agent, process, &|this, room, events| {
            Self::active(room, agent)?;
            if kind == Kind::Park && room.holder == Some(agent) {
                return Err("park_requires_release");
            }
            if room.holder == Some(agent) {
                // It asks for what it was given.
                (room.given.by_guard, room.given.commit) = (false, None);
            }
            if let Some(member) = room.members.get_mut(&agent) {
                member.waiting = Some(kind);
                member.waited = (room.holder != Some(agent)).then_some(this.now);
            }
            if room.kept_for == Some(agent) && kind != Kind::Park {
                let passed = room.pending.as_ref().is_none_or(|(_, _, passed)| *passed);
                this.claim(room, agent, if passed { "direct_pass" } else { "sequence" }, events);
            }
            Ok(())
        })
    }

    /// The wait stops, and asks one last time.
    pub(crate) fn end_wait(&mut self, agent: usize, process: Option<u32>) -> (Outcome, Told) {
        self.hang(agent);
        let now = self.now;
        if let Some(room) = &mut self.room
            && room.holder != Some(agent)
            && let Some(member) = room.members.get_mut(&agent)
        {
            member.waited = Some(now);
        }
        let outcome = self.command(Some((agent, process)), &|_, _, _| Ok(()));
        let standing = self.room.as_ref().and_then(|room| self.standing(room, agent, "already_owner"));
        (outcome, standing.unwrap_or(Told::NotYet))
    }

    pub(crate) fn hang(&mut self, agent: usize) {
        if let Some(member) = self.room.as_mut().and_then(|room| room.members.get_mut(&agent)) {
            member.waiting = None;
        }
    }

    pub(crate) fn authority(room: &Room, agent: usize, lease: &str, turn: i64) -> Result<(), &'static str> {
        Self::active(room, agent)?;
        if room.turn != turn {
            return Err("turn_mismatch");
        }
        if room.holder != Some(agent) || room.lease.as_deref() != Some(lease) {
            return Err("stale_lease");
        }
        Ok(())
    }

    /// Gives the stick away: to the next in line, or to a member by name.
    pub(crate) fn give(
        &mut self,
        agent: usize,
        process: Option<u32>,
        to: Option<usize>,
        (lease, turn): (&str, i64),
        words: Option<&str>,
    ) -> Outcome {
        self.by_member(agent, process, &|this, room, events| {
            Self::authority(room, agent, lease, turn)?;
            let words = words.ok_or("invalid_handoff")?;
            if to == Some(agent) {
                return Err("invalid_input");
            }
            if to.is_some_and(|to| Self::active(room, to).is_err()) {
                return Err("unknown_target");
            }
            room.has_contents = true;
            room.holder = None;
            room.lease = None;
            room.received = None;
            room.given = Given::default();
            room.pending = Some((words.to_owned(), agent, to.is_some()));
            room.giver = Some(agent);
            room.given_at = Some(this.now);
            match to {
                None => {
                    let next = this.next(room);
                    events.push(event("release", room.turn, NAMES[agent], name(next), "-"));
                    if let Some(next) = next {
                        this.claim(room, next, "sequence", events);
                    }
                }
                Some(to) => {
                    events.push(event("pass", room.turn, NAMES[agent], NAMES[to], "-"));
                    let there = this.present(&room.members[&to]);
                    if there && matches!(room.members[&to].waiting, Some(Kind::Listen | Kind::Alone)) {
                        this.claim(room, to, "direct_pass", events);
                    } else {
                        room.kept_for = Some(to);
                        room.claim_until = this.now + this.times.claim;
                        room.claim_noted = false;
                    }
                }
            }
            Ok(())
        })
    }

    pub(crate) fn takeover(&mut self, agent: usize, process: Option<u32>, turn: i64, operator: bool) -> Outcome {
        self.by_member(agent, process, &|this, room, events| {
            Self::active(room, agent)?;
            if room.turn != turn {
                return Err("turn_mismatch");
            }
            let revoked = room.holder.or(room.kept_for);
            if room.holder == Some(agent) || revoked.is_none() {
                return Err("takeover_not_available");
            }
            let reason = match this.takeover_reason(room) {
                Some(reason) if !this.stands_back(room, agent, reason) => reason,
                _ if operator => "operator_override",
                Some(_) => return Err("takeover_ineligible"),
                None => return Err("takeover_not_available"),
            };
            room.received = room.pending.take().map(|(words, from, _)| (words, from));
            this.begin(room, agent);
            events.push(event("takeover", room.turn, NAMES[agent], name(revoked), &format!("{reason}: stuck")));
            if let Some(revoked) = revoked.filter(|revoked| *revoked != agent && belongs(room, *revoked)) {
                notify(room, revoked, "taken_over", None, "stuck", 0, events);
            }
            Ok(())
        })
    }

    fn remove(room: &mut Room, agent: usize, status: Status, reason: &str, events: &mut Vec<String>) {
        if room.holder == Some(agent) || room.kept_for == Some(agent) {
            room.holder = None;
            room.lease = None;
            room.kept_for = None;
            room.received = None;
            room.given = Given::default();
        }
        if let Some(member) = room.members.get_mut(&agent) {
            member.status = status;
        }
        events.push(event("member_left", room.turn, NAMES[agent], "-", reason));
    }

    pub(crate) fn kick(&mut self, agent: usize, process: Option<u32>, target: usize, force: bool) -> Outcome {
        self.by_member(agent, process, &|this, room, events| {
            Self::active(room, agent)?;
            if agent == target {
                return Err("cannot_kick_self");
            }
            let member = room.members.get(&target);
            let there = |m: &&Member| matches!(m.status, Status::Active | Status::Away | Status::Gone);
            let member = member.filter(there).ok_or("unknown_target")?;
            let gone = this.gone(member) || member.status != Status::Active;
            let silent = this.now >= member.seen + 2 * this.times.heartbeat;
            if !(force || gone && silent) {
                return Err("target_active");
            }
            // Somebody who closed the last terminal keeps the stick until its time has run out.
            let holds = room.holder == Some(target);
            let time_left = holds && this.now < this.lease_until(room)
                || room.kept_for == Some(target) && this.now < room.claim_until;
            let idle = holds && this.takeover_reason(room) == Some("owner_idle");
            if !force && time_left && !idle && !this.died(member) {
                return Err("target_active");
            }
            events.push(event("kick", room.turn, NAMES[agent], NAMES[target], "ghost"));
            Self::remove(room, target, Status::Kicked, "kicked", events);
            notify(room, target, "kicked", None, "ghost", 0, events);
            Ok(())
        })
    }

    pub(crate) fn leave(&mut self, agent: usize, process: Option<u32>) -> Outcome {
        self.command(Some((agent, process)), &|_, room, events| {
            Self::active(room, agent)?;
            Self::remove(room, agent, Status::Left, "left", events);
            Ok(())
        })
    }

    /// A note, or anything else that only shows that a member is there.
    pub(crate) fn note(&mut self, agent: usize, process: Option<u32>) -> Outcome {
        self.by_member(agent, process, &|_, room, events| {
            Self::active(room, agent)?;
            room.has_contents = true;
            events.push(event("note_added", room.turn, NAMES[agent], "-", "-"));
            Ok(())
        })
    }

    fn depart(&self, room: &mut Room, events: &mut Vec<String>, exited: bool, due: &dyn Fn(&Member) -> bool) {
        let mut due: Vec<usize> = room.members.keys().copied().filter(|a| due(&room.members[a])).collect();
        due.sort_by_key(|agent| room.members[agent].place);
        for agent in due {
            if let Some(member) = room.members.get_mut(&agent) {
                member.status = if agent == PERSON { Status::Away } else { Status::Gone };
            }
            let reason = match (exited, agent) {
                (true, PERSON) => "terminal_closed",
                (true, _) => "process_exited",
                (false, _) => "expired",
            };
            events.push(event("member_left", room.turn, NAMES[agent], "-", reason));
        }
    }

    /// Processes that ended are noticed; with `time`, what ran out is too.
    pub(crate) fn happen(&mut self, time: bool) -> Outcome {
        self.unreported = false;
        self.command(None, &|this, room, events| {
            this.depart(room, events, true, &|m| m.status == Status::Active && this.gone(m));
            if !time {
                this.free_what_was_given(room, events);
                return Ok(());
            }
            // A person with an open terminal is there, however silent.
            let silent = |m: &Member| {
                m.status == Status::Active
                    && m.terminals.is_empty()
                    && m.waiting.is_none()
                    && this.now >= m.seen + this.times.presence
            };
            this.depart(room, events, false, &silent);
            if let Some(recipient) = room.kept_for.filter(|_| !room.claim_noted && this.now >= room.claim_until) {
                room.claim_noted = true;
                events.push(event("reservation_expired", room.turn, name(room.giver), NAMES[recipient], "-"));
            }
            this.free_what_was_given(room, events);
            Ok(())
        })
    }
}
