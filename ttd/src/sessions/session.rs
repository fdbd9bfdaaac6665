//! One session: what is known of it, and what follows from that. Pure.

use tt_proto::AgentId;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;
use tt_proto::session::{self, EvidenceSource, SessionStatus};
use tt_rules::{LeaseTime, Now};

use super::evidence::{self, LifeFacts, SWITCH_GRACE, ServerSays, Sign, Status, Verdict};

/// How many processes of one session are remembered.
const MAX_PROCESSES: usize = 8;

/// Names a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    pub harness: String,
    pub session_id: String,
}

impl SessionKey {
    pub fn new(harness: &str, session_id: &str) -> Self {
        Self { harness: harness.to_owned(), session_id: session_id.to_owned() }
    }
}

/// A session and everything that is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    pub key: SessionKey,
    pub agent_id: AgentId,
    /// The processes that are in this session and in no other, in the order in which they entered it.
    pub processes: Vec<Anchor>,
    /// The process that runs this session and others.
    pub server: Option<Anchor>,
    pub cwd: Option<String>,
    pub transcript_path: Option<String>,
    /// The newest sign that it is open.
    pub opened_at: LeaseTime,
    /// When a hook said that it ended.
    pub ended_at: Option<LeaseTime>,
    /// When its process went on to another conversation.
    pub left_at: Option<LeaseTime>,
    /// The conversation that took its id over.
    pub followed_by: Option<String>,
    /// The conversation whose id it took over without having been told so.
    pub(super) guessed_from: Option<String>,
    /// Since when it goes on as the member of an earlier conversation, without having been told which turn it holds.
    pub(super) untold_since: Option<LeaseTime>,
    pub(super) orphaned: bool,
    /// Another session entered its process since, and the harness can have several open in one.
    pub(super) shares_process: bool,
    pub(super) server_says: ServerSays,
    /// The socket on which its process takes messages for it, as its file last said. It is looked up again before each use.
    pub(super) inbox: Option<std::path::PathBuf>,
    /// The newest of each source.
    signs: Vec<Sign>,
}

impl Session {
    pub fn new(key: SessionKey, agent_id: AgentId, at: LeaseTime) -> Self {
        Self {
            key,
            agent_id,
            processes: Vec::new(),
            server: None,
            cwd: None,
            transcript_path: None,
            opened_at: at,
            ended_at: None,
            left_at: None,
            followed_by: None,
            guessed_from: None,
            untold_since: None,
            orphaned: false,
            shares_process: false,
            server_says: ServerSays::Nothing,
            inbox: None,
            signs: Vec::new(),
        }
    }

    /// Whether the daemon of its harness has to be asked about it.
    pub fn is_unasked(&self) -> bool {
        self.server.is_some() && self.server_says == ServerSays::Nothing
    }

    pub(super) fn note(&mut self, sign: Sign) {
        let known = self.signs.iter_mut().find(|known| known.source == sign.source);
        match known {
            Some(known) if known.at > sign.at => {}
            Some(known) => *known = sign,
            None => self.signs.push(sign),
        }
    }

    /// Whether it goes on as a member without knowing which turn it holds, and there was time enough to tell it.
    pub(super) fn has_forgotten(&self, now: LeaseTime) -> bool {
        self.untold_since.is_some_and(|since| now.since(since) >= SWITCH_GRACE)
    }

    /// Notes a sign that it is open. Returns whether it had ended. Of two signs of the same moment the one that it is open
    /// counts: it may come back, and an end is told once more by the end of its process.
    pub(super) fn open(&mut self, at: LeaseTime) -> bool {
        self.opened_at = self.opened_at.max(at);
        let had_ended = self.ended_at.take_if(|ended| *ended <= at).is_some();
        if had_ended && self.server_says == ServerSays::Closed {
            // The daemon of its harness said so before, and has to be asked again.
            self.server_says = ServerSays::Nothing;
        }
        had_ended
    }

    /// Whether this source has told of it.
    pub fn has_heard(&self, source: EvidenceSource) -> bool {
        self.signs.iter().any(|sign| sign.source == source)
    }

    /// Whether the newest sign says that it waits for its user.
    pub(super) fn is_idle(&self) -> bool {
        self.signs.iter().max_by_key(|sign| sign.at).is_some_and(|sign| sign.status == SessionStatus::Idle)
    }

    /// Whether its process went on to another conversation, and nothing was heard of it since.
    pub(super) fn is_left(&self) -> bool {
        self.left_at.is_some_and(|left| left >= self.opened_at)
    }

    /// Whether its id belongs to it alone.
    pub(super) fn owns_its_id(&self) -> bool {
        self.followed_by.is_none()
    }

    pub(super) fn enter(&mut self, process: &Anchor, alive: Alive<'_>) {
        if self.processes.contains(process) {
            return;
        }
        self.processes.retain(|known| alive(known) != Liveness::Gone);
        self.processes.push(process.clone());
        if self.processes.len() > MAX_PROCESSES {
            self.processes.remove(1);
        }
        self.orphaned = false;
    }

    /// It was heard of from a process that cannot be seen. Those that are not known to run cannot tell any more that it
    /// ended, now or to a later daemon that sees them.
    pub(super) fn enter_unseen(&mut self, alive: Alive<'_>) {
        self.processes.retain(|known| alive(known) == Liveness::Alive);
    }

    /// The process whose end means that the session ended, as far as is known now.
    pub(super) fn anchor(&self, alive: Alive<'_>) -> Option<&Anchor> {
        let first = |liveness| self.processes.iter().find(|process| alive(process) == liveness);
        first(Liveness::Alive).or_else(|| first(Liveness::Unknown)).or(self.processes.first())
    }

    fn life_facts(&self, alive: Alive<'_>) -> LifeFacts {
        let process = self.anchor(alive).map(|anchor| (anchor.pid, alive(anchor)));
        LifeFacts {
            // A process that goes on with another session says nothing of this one, until it ends.
            process: process.filter(|(_, liveness)| !self.shares_process || *liveness == Liveness::Gone),
            orphaned: self.orphaned,
            left: self.is_left(),
            ended_at: self.ended_at.filter(|ended| *ended >= self.opened_at),
            shared: self.server.is_some() || self.shares_process,
            server: self.server_says,
        }
    }

    pub fn verdict(&self, alive: Alive<'_>, now: LeaseTime) -> Verdict {
        evidence::liveness(&self.life_facts(alive), now)
    }

    /// What it does.
    pub fn status(&self, alive: Alive<'_>, now: LeaseTime) -> Status {
        evidence::status(&self.signs, self.verdict(alive, now).liveness, now)
    }

    /// The session as it is shown.
    pub fn view(&self, alive: Alive<'_>, now: &Now) -> session::Session {
        let verdict = self.verdict(alive, now.lease);
        let status = evidence::status(&self.signs, verdict.liveness, now.lease);
        let mut evidence: Vec<session::Evidence> = self.signs.iter().map(|sign| sign.evidence(now)).collect();
        evidence.sort_by_key(|evidence| std::cmp::Reverse(evidence.at));
        session::Session {
            harness: self.key.harness.clone(),
            session_id: self.key.session_id.clone(),
            agent_id: self.agent_id.clone(),
            status: status.status,
            since: status.since.map(|since| now.to_wall(since)),
            doubted: status.doubted,
            liveness: verdict.liveness,
            because: verdict.because,
            pid: self.anchor(alive).map(|anchor| anchor.pid),
            cwd: self.cwd.clone(),
            ways: Vec::new(),
            evidence,
        }
    }
}

/// What the kernel says of a process.
pub type Alive<'a> = &'a dyn Fn(&Anchor) -> Liveness;
