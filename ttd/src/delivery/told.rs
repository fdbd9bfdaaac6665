//! What each session was told by its hooks, and why its turns were held. In memory: after a restart of the daemon a session is told
//! again where it stands.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tt_proto::{AgentId, RoomId};
use tt_rules::LeaseTime;

use super::facts::Stick;

/// How many sessions are remembered. Past that all are forgotten, which costs each of them a few lines.
const MAX_SESSIONS: usize = 4096;

/// How many causes are remembered for a session.
const MAX_CAUSES: usize = 256;

/// How often the turns of one session are held in [`HOLDS_PERIOD`].
const MAX_HOLDS: usize = 20;
const HOLDS_PERIOD: Duration = Duration::from_secs(60 * 60);

/// Why a turn is held. Each cause holds one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A question that was handed over and not answered.
    Question(i64),
    /// It holds the stick in this turn, and another member waits for it.
    Wanted(RoomId, i64),
}

#[derive(Debug, Default)]
pub struct Told(Mutex<HashMap<AgentId, Session>>);

#[derive(Debug, Default)]
struct Session {
    sticks: HashMap<RoomId, Stick>,
    /// A question to its user is open of which nobody knows that it is about something else than an edit.
    may_ask_to_edit: bool,
    /// What it is to be told at the next moment at which a hook can speak.
    owed: Vec<String>,
    /// It was told in this turn that somebody else has the stick.
    is_advised: bool,
    /// The last end of its turn was held, and nothing else happened since.
    was_held: bool,
    causes: BTreeSet<Cause>,
    held_at: VecDeque<LeaseTime>,
}

impl Told {
    /// Notes what a session is told of the stick, and returns what it was told before.
    pub fn stick(&self, agent: &AgentId, room: &RoomId, stick: Stick) -> Option<Stick> {
        self.with(agent, |session| session.sticks.insert(room.clone(), stick))
    }

    /// A prompt came: the next end of a turn is another one's.
    pub fn prompted(&self, agent: &AgentId) {
        self.with(agent, |session| (session.was_held, session.is_advised) = (false, false));
    }

    /// A question to its user is open, or none is any more. One about an edit would let that edit through later.
    pub fn asks(&self, agent: &AgentId, may_ask_to_edit: bool) {
        let mut sessions = self.lock();
        match sessions.get_mut(agent) {
            Some(session) => session.may_ask_to_edit = may_ask_to_edit,
            None if may_ask_to_edit => {
                drop(sessions);
                self.with(agent, |session| session.may_ask_to_edit = true);
            }
            None => {}
        }
    }

    pub fn may_ask_to_edit(&self, agent: &AgentId) -> bool {
        self.lock().get(agent).is_some_and(|session| session.may_ask_to_edit)
    }

    /// Keeps what a session is to be told.
    pub fn owe(&self, agent: &AgentId, lines: Vec<String>) {
        if !lines.is_empty() {
            self.with(agent, |session| session.owed = lines);
        }
    }

    /// What a session is to be told, which is told now.
    pub fn take_owed(&self, agent: &AgentId) -> Vec<String> {
        let mut sessions = self.lock();
        sessions.get_mut(agent).map(|session| std::mem::take(&mut session.owed)).unwrap_or_default()
    }

    /// Whether a session is to be advised now: once in a turn.
    pub fn may_advise(&self, agent: &AgentId) -> bool {
        self.with(agent, |session| !session.is_advised)
    }

    pub fn advised(&self, agent: &AgentId) {
        self.with(agent, |session| session.is_advised = true);
    }

    /// Its turn ended.
    pub fn turn_ended(&self, agent: &AgentId) {
        let mut sessions = self.lock();
        if let Some(session) = sessions.get_mut(agent) {
            session.is_advised = false;
        }
    }

    /// Whether the end of a turn may be held now: not if the last one was, and not too often. What is let through may be held the
    /// next time.
    pub fn may_hold(&self, agent: &AgentId, now: LeaseTime) -> bool {
        self.with(agent, |session| {
            while session.held_at.front().is_some_and(|at| now.since(*at) >= HOLDS_PERIOD) {
                session.held_at.pop_front();
            }
            !std::mem::take(&mut session.was_held) && session.held_at.len() < MAX_HOLDS
        })
    }

    /// Of these causes, those for which no turn was held yet.
    pub fn new_causes(&self, agent: &AgentId, causes: Vec<Cause>) -> Vec<Cause> {
        self.with(agent, |session| causes.into_iter().filter(|cause| !session.causes.contains(cause)).collect())
    }

    /// The end of a turn is held for these causes.
    pub fn held(&self, agent: &AgentId, causes: Vec<Cause>, now: LeaseTime) {
        self.with(agent, |session| {
            session.was_held = true;
            session.held_at.push_back(now);
            session.causes.extend(causes);
            while session.causes.len() > MAX_CAUSES {
                session.causes.pop_first();
            }
        });
    }

    /// A conversation ended: the one that follows it knows nothing.
    pub fn forget(&self, agent: &AgentId) {
        self.lock().remove(agent);
    }

    fn with<T>(&self, agent: &AgentId, act: impl FnOnce(&mut Session) -> T) -> T {
        let mut sessions = self.lock();
        if sessions.len() >= MAX_SESSIONS && !sessions.contains_key(agent) {
            sessions.clear();
        }
        act(sessions.entry(agent.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AgentId, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tt_rules::testing::{at, id};

    use super::*;

    #[test]
    fn a_turn_is_held_never_twice_in_a_row_and_once_for_each_cause() {
        let (told, me) = (Told::default(), id("a"));
        let question = || vec![Cause::Question(7)];
        assert!(told.may_hold(&me, at(0)));
        assert_eq!(told.new_causes(&me, question()), question());
        told.held(&me, question(), at(0));
        assert!(!told.may_hold(&me, at(1)), "the next end is let through");
        assert!(told.may_hold(&me, at(2)), "and the one after it may be held");
        assert_eq!(told.new_causes(&me, question()), []);
        told.held(&me, Vec::new(), at(3));
        told.prompted(&me);
        assert!(told.may_hold(&me, at(4)), "a prompt begins another turn");
        told.forget(&me);
        assert_eq!(told.new_causes(&me, question()), question());
    }

    #[test]
    fn advice_comes_once_in_a_turn_and_what_is_owed_is_told_once() {
        let (told, me) = (Told::default(), id("a"));
        assert!(told.may_advise(&me));
        told.advised(&me);
        assert!(!told.may_advise(&me));
        told.turn_ended(&me);
        assert!(told.may_advise(&me), "another turn");
        told.advised(&me);
        told.prompted(&me);
        assert!(told.may_advise(&me), "and after a prompt");
        told.owe(&me, vec!["x".into()]);
        told.owe(&me, Vec::new());
        assert_eq!((told.take_owed(&me), told.take_owed(&me)), (vec!["x".to_owned()], Vec::new()));
    }

    #[test]
    fn turns_are_held_a_bounded_number_of_times_in_an_hour() {
        let (told, me) = (Told::default(), id("a"));
        for n in 0..MAX_HOLDS {
            told.prompted(&me);
            assert!(told.may_hold(&me, at(n as i64)));
            told.held(&me, Vec::new(), at(n as i64));
        }
        told.prompted(&me);
        assert!(!told.may_hold(&me, at(100)));
        assert!(told.may_hold(&me, at(60 * 60)), "the first is an hour ago");
        assert!(told.may_hold(&id("b"), at(100)), "another session");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let told = Told::default();
        for n in 0..MAX_SESSIONS + 1 {
            told.prompted(&id(&format!("a{n}")));
        }
        assert_eq!(told.lock().len(), 1);
        told.held(&id("a"), (0..1000).map(Cause::Question).collect(), at(0));
        assert_eq!(told.lock().get(&id("a")).map(|session| session.causes.len()), Some(MAX_CAUSES));
    }
}
