//! Which sessions there are, which member each is, and which process is in which of them. Pure: facts go in, and the
//! agents whose liveness may have changed come out.
//!
//! A session is one conversation of a harness. Its member's id is derived from its session id, or else from its process. It
//! keeps that id for good, with one exception: a conversation that was opened in the place of another one (`/clear`) takes
//! the id over, and is the same member.

use std::collections::{BTreeMap, BTreeSet};

use tt_proto::AgentId;
use tt_proto::hello::Anchor;
use tt_proto::paths::short_hash;
use tt_proto::room::Liveness;
use tt_proto::session::{EvidenceSource, SessionEvent, SessionStatus};
use tt_rules::LeaseTime;

use super::evidence::{self, ServerSays, Sign, Verdict};
use super::session::{Alive, Session, SessionKey};
use super::subagents::Subagents;

/// How many sessions are remembered. Beyond that, those that were left longest ago are forgotten.
const MAX_SESSIONS: usize = 4096;

/// A call, as far as it concerns sessions.
#[derive(Debug, Clone)]
pub struct CallFacts {
    pub harness: String,
    pub session_id: Option<String>,
    /// Whether the session id is that of this moment. The environment of a process that runs for long is not.
    pub fresh: bool,
    /// The id that follows from the session id or the process alone.
    pub derived_id: AgentId,
    /// The user chose the id: it is this one whatever the session.
    pub fixed_id: bool,
    /// The process that is in one session at a time.
    pub process: Option<Anchor>,
    pub server: Option<Anchor>,
}

/// The member that makes a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    pub key: SessionKey,
    pub agent_id: AgentId,
    pub anchor: Option<Anchor>,
}

/// A report of a hook.
#[derive(Debug, Clone)]
pub struct Report {
    pub event: SessionEvent,
    pub reason: Option<String>,
    pub at: LeaseTime,
    /// The subagent in which it happened.
    pub subagent_id: Option<String>,
    pub tool_use_id: Option<String>,
    pub tool_name: Option<String>,
    /// The tool is a command that runs `tt`.
    pub runs_tt: bool,
    pub cwd: Option<String>,
    pub transcript_path: Option<String>,
    pub previous_session_id: Option<String>,
}

impl Report {
    /// An event of which nothing more is told.
    pub fn of(event: SessionEvent, at: LeaseTime) -> Self {
        Self {
            event,
            reason: None,
            at,
            subagent_id: None,
            tool_use_id: None,
            tool_name: None,
            runs_tt: false,
            cwd: None,
            transcript_path: None,
            previous_session_id: None,
        }
    }
}

/// What a file of a harness says about one of its processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRecord {
    pub session_id: String,
    /// When the file was written.
    pub at: LeaseTime,
    pub status: Option<SessionStatus>,
    pub says: String,
    /// Since when the status is so.
    pub status_at: LeaseTime,
    /// The socket on which the process takes messages for its session.
    pub inbox: Option<std::path::PathBuf>,
}

/// How a process came into a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// In the place of the one before: the member goes on.
    InItsPlace,
    /// As a conversation of its own.
    OfItsOwn,
    /// Nothing tells.
    Unsaid,
}

/// What changed, for those who store and tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Agents whose liveness may have changed.
    pub agents: BTreeSet<AgentId>,
    /// Agents that go on in another conversation, which knows nothing yet.
    pub untold: BTreeSet<AgentId>,
    /// Sessions that have to be stored again.
    pub sessions: BTreeSet<SessionKey>,
}

impl Changes {
    fn of(session: &Session) -> Self {
        Self { agents: [session.agent_id.clone()].into(), sessions: [session.key.clone()].into(), ..Self::default() }
    }

    fn add(&mut self, other: Changes) {
        self.agents.extend(other.agents);
        self.untold.extend(other.untold);
        self.sessions.extend(other.sessions);
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Registry {
    sessions: BTreeMap<SessionKey, Session>,
    subagents: Subagents,
}

impl Registry {
    /// Takes a session over from an earlier daemon.
    pub fn restore(&mut self, session: Session) {
        self.sessions.insert(session.key.clone(), session);
    }

    pub fn forget(&mut self, key: &SessionKey) {
        self.sessions.remove(key);
    }

    pub fn get(&self, key: &SessionKey) -> Option<&Session> {
        self.sessions.get(key)
    }

    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.values()
    }

    /// The session that an agent is in.
    pub fn of_agent(&self, agent_id: &AgentId) -> Option<&Session> {
        let of_it = self.sessions.values().filter(|session| session.agent_id == *agent_id);
        of_it.max_by_key(|session| (session.owns_its_id(), session.opened_at))
    }

    /// Whether the process of a conversation went on to another one.
    pub fn is_left(&self, key: &SessionKey) -> bool {
        self.sessions.get(key).is_some_and(Session::is_left)
    }

    /// The session of an agent that goes on without knowing which turn it holds.
    pub fn untold(&self, agent_id: &AgentId) -> Option<&Session> {
        self.of_agent(agent_id).filter(|session| session.untold_since.is_some())
    }

    /// Notes that the conversation of an agent knows which turn it holds, or that there is nothing to know any more.
    pub fn settle_untold(&mut self, agent_id: &AgentId) -> Changes {
        let mut changes = Changes::default();
        for session in self.sessions.values_mut().filter(|session| session.agent_id == *agent_id) {
            if session.untold_since.take().is_some() {
                changes.sessions.insert(session.key.clone());
            }
        }
        changes
    }

    /// Whether a tool use is known to be a subagent's.
    pub fn is_subagents(&self, tool_use_id: &str) -> bool {
        self.subagents.has_tool(tool_use_id)
    }

    /// Whether a call from a shell of this session is a subagent's, as far as is known: one of them runs `tt` there.
    pub fn is_in_subagents_shell(&self, key: &SessionKey, now: LeaseTime) -> bool {
        self.subagents.run_tt(key, now)
    }

    /// Finds out which session and which member makes a call, and notes that it did. None if the call is of no session.
    pub fn bind(&mut self, call: &CallFacts, alive: Alive<'_>, now: LeaseTime) -> (Option<Bound>, Changes) {
        let current = call.process.as_ref().and_then(|process| self.current_of(&call.harness, process));
        let key = match (&call.session_id, current) {
            (None, None) => return (None, Changes::default()),
            (None, Some(current)) => current,
            (Some(session_id), None) => SessionKey::new(&call.harness, session_id),
            (Some(session_id), Some(current)) => {
                let named = SessionKey::new(&call.harness, session_id);
                // A process that was started in a conversation that is over still has its name in the environment.
                let is_stale = self.is_left(&named) || !call.fresh;
                if is_stale && !runs_several(&call.harness) { current } else { named }
            }
        };
        let mut changes = self.enter(&key, call, Opening::Unsaid, now, alive, now);
        let bound = self.sessions.get_mut(&key).map(|session| {
            if session.open(now) {
                changes.add(Changes::of(session));
            }
            Bound { key: key.clone(), agent_id: session.agent_id.clone(), anchor: session.anchor(alive).cloned() }
        });
        (bound, changes)
    }

    /// Notes what a hook reported, and says whose session it is.
    pub fn report(&mut self, call: &CallFacts, report: &Report, alive: Alive<'_>, now: LeaseTime) -> (Bound, Changes) {
        // A clock that was set back must not make a sign the newest for ever.
        let at = report.at.min(now);
        let session_id = call.session_id.clone().unwrap_or_default();
        let key = SessionKey::new(&call.harness, &session_id);
        let mut changes = Changes::default();
        if report.event == SessionEvent::SessionEnded {
            changes.add(self.end(&key, call, at, alive));
        } else if self.is_late(&key, call, at) {
            // Its process has gone on since: what it did before is of no concern any more.
        } else {
            let opening = opening(report);
            changes.add(self.enter(&key, call, opening, at, alive, now));
        }
        self.subagents.note(&key, report, at);
        if let Some(session) = self.sessions.get_mut(&key) {
            let place = (session.cwd.clone(), session.transcript_path.clone());
            session.cwd = report.cwd.clone().or(session.cwd.take());
            session.transcript_path = report.transcript_path.clone().or(session.transcript_path.take());
            if place != (session.cwd.clone(), session.transcript_path.clone()) {
                changes.sessions.insert(key.clone());
            }
            if report.event != SessionEvent::SessionEnded && session.open(at) {
                changes.add(Changes::of(session));
            }
            // A compaction is in the middle of a turn, and goes on.
            let compacts = report.event == SessionEvent::SessionStarted && report.reason.as_deref() == Some("compact");
            // A subagent may go on in the background when the turn of its session has ended.
            let is_background =
                |status| report.subagent_id.is_some() && status == SessionStatus::Busy && session.is_idle();
            let status = evidence::status_after(report.event).filter(|status| !compacts && !is_background(*status));
            if let Some(status) = status {
                let tool = report.tool_name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
                let says = format!("{}{tool}", report.event.as_str());
                session.note(Sign { source: EvidenceSource::Hook, status, says, at });
            }
        }
        let bound = match self.sessions.get(&key) {
            Some(session) => Bound { agent_id: session.agent_id.clone(), anchor: session.anchor(alive).cloned(), key },
            None => Bound { key, agent_id: call.derived_id.clone(), anchor: call.process.clone() },
        };
        (bound, changes)
    }

    /// Notes what the file of a process says.
    pub fn file_says(
        &mut self,
        harness: &str,
        process: &Anchor,
        derived_id: AgentId,
        record: &FileRecord,
        alive: Alive<'_>,
        now: LeaseTime,
    ) -> Changes {
        let at = record.at.min(now);
        let key = SessionKey::new(harness, &record.session_id);
        let call = CallFacts {
            harness: harness.to_owned(),
            session_id: Some(record.session_id.clone()),
            fresh: true,
            derived_id,
            fixed_id: false,
            process: Some(process.clone()),
            server: None,
        };
        let mut changes = Changes::default();
        if !self.is_late(&key, &call, at) {
            changes = self.enter(&key, &call, Opening::Unsaid, at, alive, now);
        }
        if let Some(session) = self.sessions.get_mut(&key) {
            if session.open(at) {
                changes.add(Changes::of(session));
            }
            session.inbox.clone_from(&record.inbox);
            if let Some(status) = record.status {
                let source = EvidenceSource::SessionFile;
                session.note(Sign { source, status, says: record.says.clone(), at: record.status_at.min(now) });
                if session.is_idle() {
                    changes.agents.insert(session.agent_id.clone());
                }
            }
        }
        changes
    }

    /// Notes what the daemon of a harness says of one of its sessions.
    pub fn server_says(
        &mut self,
        key: &SessionKey,
        server: &Anchor,
        says: ServerSays,
        sign: Option<Sign>,
        now: LeaseTime,
    ) -> Changes {
        let Some(session) = self.sessions.get_mut(key).filter(|session| session.server.as_ref() == Some(server)) else {
            return Changes::default();
        };
        let had_ended = match says {
            ServerSays::Open => session.open(now),
            ServerSays::Closed => {
                session.ended_at = Some(now);
                false
            }
            ServerSays::Nothing => false,
        };
        sign.into_iter().for_each(|sign| session.note(sign));
        if std::mem::replace(&mut session.server_says, says) == says && !had_ended {
            let idle = session.is_idle().then(|| session.agent_id.clone());
            return Changes { agents: idle.into_iter().collect(), ..Changes::default() };
        }
        Changes::of(session)
    }

    /// The daemon of a harness cannot be asked any more: what it had open may be open or not.
    pub fn lose_server(&mut self, server: &Anchor) -> Changes {
        let mut changes = Changes::default();
        let of_it = self.sessions.values_mut().filter(|session| session.server.as_ref() == Some(server));
        for session in of_it.filter(|session| session.server_says == ServerSays::Open) {
            session.server_says = ServerSays::Nothing;
            changes.agents.insert(session.agent_id.clone());
        }
        changes
    }

    /// The sessions of a process that runs several of which it has not said whether they are open.
    pub fn unasked_of(&self, server: &Anchor) -> Vec<String> {
        let of_it = self.sessions.values().filter(|session| session.server.as_ref() == Some(server));
        let unasked = of_it.filter(|session| session.is_unasked() && session.ended_at.is_none());
        unasked.map(|session| session.key.session_id.clone()).collect()
    }

    /// Notes that the terminal of a process was closed.
    pub fn orphan(&mut self, process: &Anchor) -> Changes {
        let mut changes = Changes::default();
        for session in self.sessions.values_mut().filter(|session| session.processes.contains(process)) {
            session.orphaned = true;
            changes.add(Changes::of(session));
        }
        changes
    }

    /// Whether a process is in a session.
    pub fn knows_process(&self, process: &Anchor) -> bool {
        self.sessions.values().any(|session| session.processes.contains(process))
    }

    /// The agents whose sessions run in a process.
    pub fn agents_in(&self, process: &Anchor) -> BTreeSet<AgentId> {
        let in_it = self.sessions.values().filter(|session| session.processes.contains(process));
        in_it.map(|session| session.agent_id.clone()).collect()
    }

    /// Whether an agent lives, if it is known by a session.
    pub fn liveness(&self, agent_id: &AgentId, alive: Alive<'_>, now: LeaseTime) -> Option<Verdict> {
        self.of_agent(agent_id).map(|session| session.verdict(alive, now))
    }

    /// The processes of the sessions that a call may be of, but not its own.
    pub fn processes_beside(&self, call: &CallFacts) -> Vec<Anchor> {
        let current = call.process.as_ref().and_then(|process| self.current_of(&call.harness, process));
        let named = call.session_id.as_ref().map(|session_id| SessionKey::new(&call.harness, session_id));
        let keys: BTreeSet<SessionKey> = current.into_iter().chain(named).collect();
        let processes = keys.iter().filter_map(|key| self.sessions.get(key)).flat_map(|session| &session.processes);
        processes.filter(|process| call.process.as_ref() != Some(*process)).cloned().collect()
    }

    /// The session that a process is in: the last it entered.
    fn current_of(&self, harness: &str, process: &Anchor) -> Option<SessionKey> {
        let in_it = self.sessions.values().filter(|s| s.key.harness == harness && s.processes.contains(process));
        in_it.max_by_key(|session| session.opened_at).map(|session| session.key.clone())
    }

    /// Whether a sign about a session is older than the entry of its process into another one.
    fn is_late(&self, key: &SessionKey, call: &CallFacts, at: LeaseTime) -> bool {
        self.sessions.get(key).and_then(|session| session.left_at).is_some_and(|left| at <= left)
            && call
                .process
                .as_ref()
                .is_none_or(|process| self.current_of(&call.harness, process).is_none_or(|current| current != *key))
    }

    /// Brings the caller's process into a session, and out of the one it was in.
    fn enter(
        &mut self,
        key: &SessionKey,
        call: &CallFacts,
        opening: Opening,
        at: LeaseTime,
        alive: Alive<'_>,
        now: LeaseTime,
    ) -> Changes {
        let mut changes = Changes::default();
        let before = call.process.as_ref().and_then(|process| self.current_of(&call.harness, process));
        let before = before.filter(|before| before != key && !runs_several(&key.harness));
        let known = self.sessions.contains_key(key);
        if let (Some(before), Some(process)) = (&before, &call.process) {
            let takes_over = match opening {
                Opening::InItsPlace => true,
                Opening::OfItsOwn => false,
                Opening::Unsaid => !known,
            };
            let others = self.others_in(before, process, alive);
            if let Some(left) = self.sessions.get_mut(before) {
                left.processes.retain(|known| known != process);
                if !others {
                    left.left_at = Some(at.max(left.opened_at));
                    if takes_over {
                        left.followed_by = Some(key.session_id.clone());
                    }
                }
                changes.add(Changes::of(left));
                let (agent_id, cwd) = (left.agent_id.clone(), left.cwd.clone());
                if takes_over && !others {
                    let session = self.sessions.entry(key.clone());
                    let session = session.or_insert_with(|| Session::new(key.clone(), agent_id.clone(), at));
                    session.cwd = session.cwd.take().or(cwd);
                    session.agent_id = agent_id;
                    session.followed_by = None;
                    session.untold_since = Some(now);
                    changes.untold.insert(session.agent_id.clone());
                    session.guessed_from = (opening == Opening::Unsaid).then(|| before.session_id.clone());
                }
            }
        } else {
            changes.add(self.settle_guess(key, call, opening));
        }
        if !self.sessions.contains_key(key) {
            let agent_id = if call.fixed_id { call.derived_id.clone() } else { self.free_id(key, &call.derived_id) };
            self.sessions.insert(key.clone(), Session::new(key.clone(), agent_id, at));
            changes.sessions.insert(key.clone());
            self.make_room();
        }
        self.reopen(key, opening, at);
        if let Some(process) = call.process.as_ref().filter(|_| runs_several(&key.harness)) {
            changes.add(self.share_process(key, process));
        }
        if let Some(session) = self.sessions.get_mut(key) {
            let was = (session.processes.clone(), session.server.clone(), session.left_at);
            match &call.process {
                Some(process) => session.enter(process, alive),
                None => session.enter_unseen(alive),
            }
            if call.server.is_some() && session.server != call.server {
                session.server.clone_from(&call.server);
                session.server_says = ServerSays::Nothing;
            }
            let is_new_here = match &call.process {
                Some(process) => before.is_some() || !was.0.contains(process),
                // Which process it is cannot be seen, and so not either that it is in another conversation. The next daemon, which
                // may see it, must not take it for being there.
                None => session.left_at.is_some_and(|left| left < at),
            };
            if is_new_here {
                session.left_at = None;
                session.opened_at = session.opened_at.max(at);
            }
            if was != (session.processes.clone(), session.server.clone(), session.left_at) {
                changes.add(Changes::of(session));
            }
        }
        changes
    }

    /// Lets a process speak for the session that was last heard of in it, and for no other.
    fn share_process(&mut self, key: &SessionKey, process: &Anchor) -> Changes {
        let mut changes = Changes::default();
        let in_it = |session: &&mut Session| session.key == *key || session.processes.contains(process);
        for session in self.sessions.values_mut().filter(in_it) {
            let shares = session.key != *key;
            if std::mem::replace(&mut session.shares_process, shares) != shares {
                changes.add(Changes::of(session));
            }
        }
        changes
    }

    /// Gives a conversation that is opened again an id of its own, if another one took over the id it had.
    fn reopen(&mut self, key: &SessionKey, opening: Opening, at: LeaseTime) {
        let Some(session) = self.sessions.get(key).filter(|session| !session.owns_its_id()) else { return };
        if opening == Opening::Unsaid && session.left_at.is_some_and(|left| at <= left) {
            return;
        }
        let agent_id = self.free_id(key, &session.agent_id.clone());
        if let Some(session) = self.sessions.get_mut(key) {
            session.agent_id = agent_id;
            session.followed_by = None;
        }
    }

    /// A conversation took over an id by a guess, and a hook of its process says whether that was right. What another process
    /// says about its own way into the conversation is no answer.
    fn settle_guess(&mut self, key: &SessionKey, call: &CallFacts, opening: Opening) -> Changes {
        let mut changes = Changes::default();
        let Some(session) = self.sessions.get_mut(key) else { return changes };
        let is_inside = call.process.as_ref().is_some_and(|process| session.processes.contains(process));
        if opening == Opening::Unsaid || !is_inside {
            return changes;
        }
        let Some(guessed_from) = session.guessed_from.take() else { return changes };
        changes.add(Changes::of(session));
        if opening == Opening::InItsPlace {
            return changes;
        }
        let before = SessionKey::new(&key.harness, &guessed_from);
        if let Some(before) = self.sessions.get_mut(&before) {
            before.followed_by = None;
            changes.add(Changes::of(before));
        }
        let agent_id = self.free_id(key, &call.derived_id);
        if let Some(session) = self.sessions.get_mut(key) {
            session.agent_id = agent_id;
            session.untold_since = None;
            changes.add(Changes::of(session));
        }
        changes
    }

    /// Notes the end of a session, which is only its own: a run beside a living session ends alone.
    fn end(&mut self, key: &SessionKey, call: &CallFacts, at: LeaseTime, alive: Alive<'_>) -> Changes {
        let Some(session) = self.sessions.get_mut(key) else { return Changes::default() };
        // One that cannot be looked at may run on. Where the caller's own process is not known, it may be that one.
        let may_run_on = |known: &Anchor| match alive(known) {
            Liveness::Alive => true,
            Liveness::Unknown => call.process.is_some(),
            Liveness::Gone => false,
        };
        let mut others = session.processes.iter().filter(|known| call.process.as_ref() != Some(known));
        if !session.shares_process && others.any(may_run_on) {
            session.processes.retain(|known| Some(known) != call.process.as_ref());
            return Changes::of(session);
        }
        if at < session.opened_at {
            return Changes::default();
        }
        session.ended_at = Some(at);
        Changes::of(session)
    }

    /// Whether a session runs in another process as well.
    fn others_in(&self, key: &SessionKey, process: &Anchor, alive: Alive<'_>) -> bool {
        let session = self.sessions.get(key);
        let mut processes = session.into_iter().flat_map(|session| &session.processes);
        processes.any(|known| known != process && alive(known) == Liveness::Alive)
    }

    /// An id for a session that no other session has.
    fn free_id(&self, key: &SessionKey, derived: &AgentId) -> AgentId {
        let taken = |id: &AgentId| self.sessions.values().any(|s| s.key != *key && s.agent_id == *id);
        if !taken(derived) {
            return derived.clone();
        }
        let nth = |n: u32| {
            let hash = short_hash([key.session_id.as_bytes(), n.to_string().as_bytes()]);
            AgentId::trusted(format!("{}:{hash}", key.harness))
        };
        (1..).map(nth).find(|id| !taken(id)).unwrap_or_else(|| derived.clone())
    }

    fn make_room(&mut self) {
        while self.sessions.len() > MAX_SESSIONS {
            let oldest = self.sessions.values().min_by_key(|session| (session.left_at.is_none(), session.opened_at));
            let Some(key) = oldest.map(|session| session.key.clone()) else { return };
            self.sessions.remove(&key);
        }
    }
}

/// Whether a process of this harness can have several sessions open.
fn runs_several(harness: &str) -> bool {
    tt_harness::by_name(harness).is_some_and(|harness| harness.server.is_some())
}

/// How the event that was reported opened its conversation.
fn opening(report: &Report) -> Opening {
    match (report.event, report.reason.as_deref()) {
        (SessionEvent::SessionStarted, Some("clear" | "new")) => Opening::InItsPlace,
        (SessionEvent::SessionStarted, Some("resume" | "branch" | "fork" | "startup")) => Opening::OfItsOwn,
        (SessionEvent::SessionStarted, _) if report.previous_session_id.is_some() => Opening::InItsPlace,
        _ => Opening::Unsaid,
    }
}

#[cfg(test)]
mod tests;
