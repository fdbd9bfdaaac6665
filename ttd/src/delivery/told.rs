//! What each session was told by its hooks, and why its turns were held. In memory: after a restart of the daemon a session is told
//! again where it stands.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tt_proto::{AgentId, RoomId};
use tt_rules::{LeaseTime, Wakes};

use super::facts::Stick;
use super::wakes::Woken;

/// How many sessions are remembered. Past that all are forgotten, which costs each of them a few lines.
const MAX_SESSIONS: usize = 4096;

/// How many causes are remembered for a session.
const MAX_CAUSES: usize = 256;

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
    may_ask_to_edit: Option<bool>,
    /// What it is to be told at the next moment at which a hook can speak.
    owed: Vec<String>,
    /// When the newest hook before an edit began.
    edited_at: Option<LeaseTime>,
    /// It was told in this turn that somebody else has the stick.
    is_advised: bool,
    /// The last end of its turn was held, and nothing else happened since.
    was_held: bool,
    causes: BTreeSet<Cause>,
    woken: Woken,
    /// How many hooks at the end of its turn are being answered.
    ending: usize,
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

    /// A question to its user is open. One about an edit would let that edit through later.
    pub fn asks(&self, agent: &AgentId, may_ask_to_edit: bool) {
        self.with(agent, |session| {
            // More than one question may be open.
            session.may_ask_to_edit = Some(may_ask_to_edit || session.may_ask_to_edit == Some(true));
        });
    }

    /// A hook that began at this moment is about an edit. Noted before that is decided.
    pub fn edits(&self, agent: &AgentId, at: LeaseTime) {
        self.with(agent, |session| session.edited_at = session.edited_at.max(Some(at)));
    }

    /// Whether a session began an edit after this moment. What ended before that does not end what the edit began.
    pub fn has_edited_since(&self, agent: &AgentId, at: LeaseTime) -> bool {
        self.lock().get(agent).is_some_and(|session| session.edited_at > Some(at))
    }

    /// No question to its user is open any more.
    pub fn was_answered(&self, agent: &AgentId) {
        if let Some(session) = self.lock().get_mut(agent) {
            session.may_ask_to_edit = None;
        }
    }

    /// Whether a question that is open may be about an edit: it may, unless all are known not to be.
    pub fn may_ask_to_edit(&self, agent: &AgentId) -> bool {
        self.lock().get(agent).and_then(|session| session.may_ask_to_edit) != Some(false)
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

    /// The end of a turn has come. Returns whether the last one was held; what is let through may be held the next time.
    pub fn turn_ends(&self, agent: &AgentId) -> bool {
        self.with(agent, |session| std::mem::take(&mut session.was_held))
    }

    /// A hook at the end of a turn is answered from now on, or was.
    pub fn answers_end(&self, agent: &AgentId, begins: bool) {
        self.with(agent, |session| {
            session.ending = if begins { session.ending + 1 } else { session.ending.saturating_sub(1) };
        });
    }

    /// Whether it is being decided whether the turn of a session ends.
    pub fn is_ending(&self, agent: &AgentId) -> bool {
        self.lock().get(agent).is_some_and(|session| session.ending > 0)
    }

    /// When a session was woken.
    pub fn woken(&self, agent: &AgentId) -> Woken {
        self.lock().get(agent).map(|session| session.woken.clone()).unwrap_or_default()
    }

    /// An idle session is woken.
    pub fn wake(&self, agent: &AgentId, by: Wakes, now: LeaseTime) {
        self.with(agent, |session| session.woken.add(by, now));
    }

    /// Of these causes, those for which no turn was held yet.
    pub fn new_causes(&self, agent: &AgentId, causes: Vec<Cause>) -> Vec<Cause> {
        self.with(agent, |session| causes.into_iter().filter(|cause| !session.causes.contains(cause)).collect())
    }

    /// The end of a turn is held, on this account and for these causes.
    pub fn held(&self, agent: &AgentId, by: Wakes, causes: Vec<Cause>, now: LeaseTime) {
        self.with(agent, |session| {
            session.was_held = true;
            session.woken.add(by, now);
            session.causes.extend(causes);
            while session.causes.len() > MAX_CAUSES {
                session.causes.pop_first();
            }
        });
    }

    /// A conversation ended: the one that follows it knows nothing. How often it was woken still counts, and when it edited.
    pub fn forget(&self, agent: &AgentId) {
        if let Some(session) = self.lock().get_mut(agent) {
            let (woken, ending, edited_at) = (std::mem::take(&mut session.woken), session.ending, session.edited_at);
            *session = Session { woken, ending, edited_at, ..Session::default() };
        }
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
    fn a_turn_is_held_once_for_each_cause_and_it_is_known_whether_the_last_end_was() {
        let (told, me) = (Told::default(), id("a"));
        let question = || vec![Cause::Question(7)];
        assert!(!told.turn_ends(&me));
        assert_eq!(told.new_causes(&me, question()), question());
        told.held(&me, Wakes::ByAgent, question(), at(0));
        assert!(told.turn_ends(&me), "the next end is let through");
        assert!(!told.turn_ends(&me), "and the one after it may be held");
        assert_eq!(told.new_causes(&me, question()), []);
        told.held(&me, Wakes::ByAgent, Vec::new(), at(3));
        told.prompted(&me);
        assert!(!told.turn_ends(&me), "a prompt begins another turn");
        assert!(told.woken(&me).too_often(Wakes::ByAgent, 2, at(4)).is_some(), "a turn that is held counts as woken");
        assert!(told.woken(&id("b")).too_often(Wakes::ByAgent, 2, at(4)).is_none(), "another session");
        told.edits(&me, at(9));
        told.edits(&me, at(8));
        told.forget(&me);
        assert_eq!(told.new_causes(&me, question()), question());
        assert_eq!([at(8), at(9)].map(|at| told.has_edited_since(&me, at)), [true, false]);
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
    fn what_is_remembered_is_bounded() {
        let told = Told::default();
        for n in 0..MAX_SESSIONS + 1 {
            told.prompted(&id(&format!("a{n}")));
        }
        assert_eq!(told.lock().len(), 1);
        told.held(&id("a"), Wakes::ByAgent, (0..1000).map(Cause::Question).collect(), at(0));
        assert_eq!(told.lock().get(&id("a")).map(|session| session.causes.len()), Some(MAX_CAUSES));
    }
}
