//! Sessions: the conversations of harnesses, which member each is, and the dated evidence of what it does and whether it
//! lives.
//!
//! `evidence` decides, `session` and `registry` remember; all three are pure. `codex` and `files` bring evidence in, one
//! source each; hooks bring theirs with `report_session`, and the kernel reports the end of processes. Nothing here polls.

pub mod codex;
pub mod evidence;
pub mod files;
pub mod inbox;
pub mod registry;
pub mod seat;
pub mod session;
mod sources;
mod subagents;
pub mod transcript;
mod unsaved;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tt_proto::AgentId;
use tt_proto::hello::{Anchor, FoundBy, Identity, Signals, Step};
use tt_proto::room::Liveness;
use tt_proto::session::{EvidenceSource, Session as SessionView, SessionEvent, SessionStatus};
use tt_rules::Now;
use tt_store::StoredSession;

use crate::clock::Clock;
use crate::engine::MemberProcesses;
use crate::liveness::{Looks, Watch};
use evidence::{SWITCH_GRACE, Status};
use files::WatchedDirs;
use registry::{Bound, CallFacts, Changes, Registry, Report};
use session::{Session, SessionKey};
use unsaved::Unsaved;

/// A session that ended this long ago, and is a member nowhere, is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// All sessions, and what tells about them. Cheap to clone.
#[derive(Clone)]
pub struct Sessions(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    watch: Watch,
    looks: Looks,
    clock: Clock,
    user: String,
    /// Where a harness keeps its files if its process does not tell.
    home: Option<PathBuf>,
    /// Agents that may live or not, other than before.
    changes: UnboundedSender<AgentId>,
    /// Told whenever a session changed.
    changed: watch::Sender<()>,
    /// Told of whose session there is new evidence.
    driver: OnceLock<UnboundedSender<AgentId>>,
    unsaved: Unsaved,
    /// The daemons of harnesses that are followed, each with the sessions to ask it about.
    servers: Mutex<HashMap<Anchor, UnboundedSender<String>>>,
    files: WatchedDirs,
    /// The processes whose files and terminals are watched, and whether each was started in tmux.
    followed: Mutex<BTreeMap<(u32, String), bool>>,
    runtime: tokio::runtime::Handle,
}

/// The conversation in which a connection was made.
#[derive(Debug, Clone)]
pub struct Conversation {
    pub key: SessionKey,
    /// A subagent of it made the connection, from a shell.
    pub is_subagents: bool,
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").field("known", &self.lock().sessions().count()).finish_non_exhaustive()
    }
}

impl Sessions {
    /// No sessions yet, and the agents that may live or not, other than before. Must be made inside the runtime.
    pub fn new(
        watch: Watch,
        looks: Looks,
        clock: Clock,
        user: String,
        home: Option<PathBuf>,
    ) -> (Self, UnboundedReceiver<AgentId>) {
        let (changes, receiver) = mpsc::unbounded_channel();
        let (changed_files, file_changes) = mpsc::unbounded_channel();
        let inner = Inner {
            registry: Mutex::default(),
            watch,
            looks,
            clock,
            user,
            home,
            changes,
            changed: watch::Sender::new(()),
            driver: OnceLock::new(),
            unsaved: Unsaved::default(),
            servers: Mutex::default(),
            files: WatchedDirs::new(changed_files),
            followed: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
        };
        let sessions = Self(Arc::new(inner));
        sources::read_changed_files(&sessions, file_changes);
        (sessions, receiver)
    }

    /// Takes over the sessions that an earlier daemon stored, and looks at each again.
    pub fn restore(&self, stored: Vec<StoredSession>) {
        let keys: Vec<SessionKey> = stored.iter().map(|row| SessionKey::new(&row.harness, &row.session_id)).collect();
        let mut registry = self.lock();
        let now = self.now().lease;
        let may_go_on = |row: &StoredSession| row.ended_at.is_some_and(|ended| now < ended + SWITCH_GRACE);
        let ending: Vec<_> = stored.iter().filter(|row| may_go_on(row)).map(|row| row.agent_id.clone()).collect();
        stored.into_iter().for_each(|row| registry.restore(from_stored(row)));
        drop(registry);
        ending.into_iter().for_each(|agent_id| self.look_again_later(agent_id));
        keys.iter().for_each(|key| self.follow(key));
    }

    /// The caller as the member that its session is. A caller in no known session stays who it is.
    pub async fn bind(
        &self,
        identity: Identity,
        signals: &Signals,
        server: Option<Anchor>,
    ) -> (Identity, Option<Conversation>) {
        if signals.hook || identity.found_by == FoundBy::Override {
            return (identity, None);
        }
        let Some(call) = call_facts(&identity, signals, server) else { return (identity, None) };
        // The end of another process may not have been reported yet, and the caller must not be anchored to it.
        let mut ended = self.lock().processes_beside(&call);
        ended.retain(|anchor| self.0.watch.liveness(anchor) == Liveness::Alive);
        for anchor in std::mem::take(&mut ended) {
            if self.0.looks.has_ended(&anchor).await {
                ended.push(anchor);
            }
        }
        let alive = |anchor: &Anchor| match self.0.watch.liveness(anchor) {
            Liveness::Alive if ended.contains(anchor) => Liveness::Gone,
            liveness => liveness,
        };
        let (bound, changes) = self.lock().bind(&call, &alive, self.now().lease);
        self.tell(changes);
        let Some(Bound { key, agent_id, anchor }) = bound else { return (identity, None) };
        self.follow(&key);
        let is_in_shell = signals.client_info.is_none();
        // A shell names the conversation that it was started in; an MCP server may have been started in an earlier one.
        let named = call.session_id.filter(|_| is_in_shell).map(|id| SessionKey::new(&key.harness, &id));
        let conversation = Conversation {
            is_subagents: is_in_shell && self.lock().is_in_subagents_shell(&key, self.now().lease),
            key: named.unwrap_or_else(|| key.clone()),
        };
        let anchor = anchor.or_else(|| identity.anchor.clone());
        // Where the harness shows its session to hooks alone, a caller has none of its own.
        let session_id = identity.session_id.as_ref().map(|_| key.session_id);
        (Identity { agent_id, session_id, anchor, ..identity }, Some(conversation))
    }

    /// Resolves when the process of a conversation has gone on to another one.
    pub async fn left(&self, conversation: &SessionKey) {
        let mut changed = self.0.changed.subscribe();
        while !self.lock().is_left(conversation) {
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub fn is_left(&self, conversation: &SessionKey) -> bool {
        self.lock().is_left(conversation)
    }

    /// Whether some session is known to live.
    pub fn any_lives(&self) -> bool {
        let (now, alive) = (self.now(), |anchor: &Anchor| self.0.watch.liveness(anchor));
        self.lock().sessions().any(|session| session.verdict(&alive, now.lease).liveness == Liveness::Alive)
    }

    /// Notes what a hook of the caller's session reported, and returns the member that the session is.
    pub fn report(
        &self,
        identity: &Identity,
        session_id: &str,
        report: &Report,
        server: Option<Anchor>,
    ) -> (Identity, SessionStatus) {
        let Some(mut call) = call_facts(identity, &Signals::default(), server) else {
            return (identity.clone(), SessionStatus::Unknown);
        };
        call.session_id = Some(session_id.to_owned());
        let alive = |anchor: &Anchor| self.0.watch.liveness(anchor);
        let mut registry = self.lock();
        let now = self.now();
        let (bound, changes) = registry.report(&call, report, &alive, now.lease);
        let view = registry.get(&bound.key).map(|session| session.view(&alive, &now));
        drop(registry);
        self.tell(changes);
        self.wake_driver(&bound.agent_id);
        self.follow(&bound.key);
        if report.event == SessionEvent::SessionEnded {
            self.look_again_later(bound.agent_id.clone());
        }
        let Bound { key, agent_id, anchor } = bound;
        let session_id = identity.session_id.as_ref().map(|_| key.session_id);
        let anchor = anchor.or_else(|| identity.anchor.clone());
        let member = Identity { agent_id, session_id, anchor, ..identity.clone() };
        (member, view.map_or(SessionStatus::Unknown, |view| view.status))
    }

    /// Whether it is not known which process runs the session of a caller, whose harness runs several in one.
    pub fn lacks_server(&self, identity: &Identity) -> bool {
        let harness = identity.harness.as_deref().and_then(tt_harness::by_name);
        let Some(harness) = harness.filter(|harness| harness.server.is_some() && identity.anchor.is_none()) else {
            return false;
        };
        let Some(session_id) = &identity.session_id else { return false };
        let registry = self.lock();
        let session = registry.get(&SessionKey::new(harness.name, session_id));
        session.and_then(|session| session.server.as_ref()).is_none_or(|s| self.0.watch.liveness(s) != Liveness::Alive)
    }

    /// The agents whose sessions run in a process.
    pub fn agents_in(&self, process: &Anchor) -> BTreeSet<AgentId> {
        self.lock().agents_in(process)
    }

    /// Whether a tool use is known to be a subagent's.
    pub fn is_subagents(&self, tool_use_id: &str) -> bool {
        self.lock().is_subagents(tool_use_id)
    }

    /// Every session, the living ones first.
    pub fn list(&self) -> Vec<SessionView> {
        let alive = |anchor: &Anchor| self.0.watch.liveness(anchor);
        let now = self.now();
        let mut views: Vec<_> = self.lock().sessions().map(|session| session.view(&alive, &now)).collect();
        views.sort_by_key(|view| (view.liveness == Liveness::Gone, std::cmp::Reverse(view.since)));
        views
    }

    /// The session of an agent, as it is shown, and the file of its transcript.
    pub fn of_agent(&self, agent_id: &AgentId) -> Option<(SessionView, Option<String>)> {
        let alive = |anchor: &Anchor| self.0.watch.liveness(anchor);
        let now = self.now();
        let show = |session: &Session| (session.view(&alive, &now), session.transcript_path.clone());
        self.lock().of_agent(agent_id).map(show)
    }

    /// What an agent's session does, as far as that is known.
    pub fn status_of(&self, agent_id: &AgentId) -> Option<Status> {
        let alive = |anchor: &Anchor| self.0.watch.liveness(anchor);
        let now = self.now();
        self.lock().of_agent(agent_id).map(|session| session.status(&alive, now.lease))
    }

    /// Whether this source has told of an agent's session.
    pub fn has_heard(&self, agent_id: &AgentId, source: EvidenceSource) -> bool {
        self.lock().of_agent(agent_id).is_some_and(|session| session.has_heard(source))
    }

    /// What an agent's session does now. What was busy long ago may be anything by now.
    pub fn doing(&self, agent_id: &AgentId) -> SessionStatus {
        let status = self.status_of(agent_id).filter(|status| !status.doubted);
        status.map_or(SessionStatus::Unknown, |status| status.status)
    }

    /// Which evidence decides about the session of a caller, for `tt whoami --explain`.
    pub fn explain(&self, identity: &Identity) -> Vec<Step> {
        let step = |rule: &str, finding: String| Step { rule: rule.to_owned(), finding };
        let Some((view, _)) = self.of_agent(&identity.agent_id) else {
            return vec![step("sessions", "no session is known: the anchor decides".into())];
        };
        let mut steps = vec![
            step("sessions", format!("{} session {} is {}", view.harness, view.session_id, view.agent_id)),
            step("liveness", format!("{}: {}", liveness_word(view.liveness), view.because)),
        ];
        let doubted = if view.doubted { ", but nothing was heard of it for long" } else { "" };
        match view.evidence.first() {
            Some(newest) => steps.push(step(
                "status",
                format!(
                    "{}{doubted}: {} says {} at {}",
                    view.status.as_str(),
                    newest.source.as_str(),
                    newest.says,
                    newest.at
                ),
            )),
            None => steps.push(step("status", "unknown: no hook, file or daemon has said what it does".into())),
        }
        steps
    }

    /// Sessions that ended long ago.
    pub fn forgettable(&self) -> Vec<(SessionKey, AgentId)> {
        let (now, alive) = (self.now().lease, |anchor: &Anchor| self.0.watch.liveness(anchor));
        let registry = self.lock();
        let is_old = |session: &&Session| now.since(session.opened_at) >= FORGET_AFTER;
        let old = registry.sessions().filter(is_old);
        let gone = old.filter(|session| session.verdict(&alive, now).liveness != Liveness::Alive);
        gone.map(|session| (session.key.clone(), session.agent_id.clone())).collect()
    }

    /// Looks at an agent again once the process of its session has had time to open another one.
    fn look_again_later(&self, agent_id: AgentId) {
        let (this, at) = (self.clone(), self.now().lease + SWITCH_GRACE);
        self.0.runtime.spawn(async move {
            this.0.clock.until(at).await;
            let _ = this.0.changes.send(agent_id);
        });
    }

    fn tell(&self, changes: Changes) {
        if !changes.sessions.is_empty() {
            self.0.changed.send_replace(());
            self.0.unsaved.add(changes.sessions);
        }
        for agent_id in changes.agents {
            self.wake_driver(&agent_id);
            let _ = self.0.changes.send(agent_id);
        }
    }

    /// From now on this is told of whose session there is new evidence.
    pub fn tell_driver(&self, driver: UnboundedSender<AgentId>) {
        let _ = self.0.driver.set(driver);
    }

    fn wake_driver(&self, agent_id: &AgentId) {
        if let Some(driver) = self.0.driver.get() {
            let _ = driver.send(agent_id.clone());
        }
    }

    /// There is new evidence of a session.
    fn heard_of(&self, key: &SessionKey) {
        let agent_id = self.lock().get(key).map(|session| session.agent_id.clone());
        agent_id.iter().for_each(|agent_id| self.wake_driver(agent_id));
    }

    fn now(&self) -> Now {
        self.0.clock.now()
    }

    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemberProcesses for Sessions {
    fn liveness(&self, anchor: &Anchor) -> Liveness {
        self.0.watch.liveness(anchor)
    }

    fn watch(&self, anchor: &Anchor) {
        self.0.watch.watch(anchor);
    }

    fn member_liveness(&self, agent_id: &AgentId, anchor: Option<&Anchor>) -> Liveness {
        let alive = |anchor: &Anchor| self.0.watch.liveness(anchor);
        let by_session = self.lock().liveness(agent_id, &alive, self.now().lease);
        match by_session {
            Some(verdict) => verdict.liveness,
            None => anchor.map_or(Liveness::Unknown, alive),
        }
    }
}

/// What a caller's identity says of its session.
fn call_facts(identity: &Identity, signals: &Signals, server: Option<Anchor>) -> Option<CallFacts> {
    Some(CallFacts {
        harness: identity.harness.clone()?,
        session_id: identity.session_id.clone(),
        fresh: signals.session_id.is_some() || signals.client_info.is_none(),
        derived_id: identity.agent_id.clone(),
        fixed_id: identity.found_by == FoundBy::Override,
        process: identity.anchor.clone(),
        server,
    })
}

fn liveness_word(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Alive => "alive",
        Liveness::Gone => "gone",
        Liveness::Unknown => "unknown",
    }
}

fn to_stored(session: &Session) -> StoredSession {
    StoredSession {
        harness: session.key.harness.clone(),
        session_id: session.key.session_id.clone(),
        agent_id: session.agent_id.clone(),
        processes: session.processes.clone(),
        server: session.server.clone(),
        cwd: session.cwd.clone(),
        transcript_path: session.transcript_path.clone(),
        opened_at: session.opened_at,
        ended_at: session.ended_at,
        left_at: session.left_at,
        followed_by: session.followed_by.clone(),
        guessed_from: session.guessed_from.clone(),
        orphaned: session.orphaned,
        shares_process: session.shares_process,
    }
}

fn from_stored(row: StoredSession) -> Session {
    let mut session = Session::new(SessionKey::new(&row.harness, &row.session_id), row.agent_id, row.opened_at);
    session.processes = row.processes;
    session.server = row.server;
    session.cwd = row.cwd;
    session.transcript_path = row.transcript_path;
    session.ended_at = row.ended_at;
    session.left_at = row.left_at;
    session.followed_by = row.followed_by;
    session.guessed_from = row.guessed_from;
    session.orphaned = row.orphaned;
    session.shares_process = row.shares_process;
    session
}
