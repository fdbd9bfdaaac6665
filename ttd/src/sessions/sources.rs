//! Starts to look at a session where it can be looked at: at the daemon of its harness, at the files its process keeps, at
//! the terminal it was started in. Each is started once, when a session is first heard of.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver};
use tt_harness::Harness;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;
use tt_proto::session::EvidenceSource;

use super::codex::{self, ThreadNews};
use super::evidence::Sign;
use super::session::SessionKey;
use super::{Sessions, files};
use crate::delivery::terminal::pane::SERVER_VARIABLE;
use crate::engine::MemberProcesses;
use crate::identity;
use crate::liveness::{LookTimeout, Processes};

/// How long a daemon that could not be followed is left alone: at first, and at most.
const SERVER_RETRY: Duration = Duration::from_secs(1);
const MAX_SERVER_RETRY: Duration = Duration::from_secs(60);

/// How many processes are remembered as followed. Beyond that they are looked at once more.
const MAX_FOLLOWED: usize = 4096;

impl Sessions {
    /// Looks at a session wherever it can be looked at, from now on.
    pub(super) fn follow(&self, key: &SessionKey) {
        let Some(harness) = tt_harness::by_name(&key.harness) else { return };
        let registry = self.lock();
        let Some(session) = registry.get(key) else { return };
        let server = session.server.clone().filter(|_| session.is_unasked() && session.ended_at.is_none());
        let processes = session.processes.clone();
        drop(registry);
        if let Some(server) = server {
            self.ask_server(harness, server, key.session_id.clone());
        }
        for process in processes {
            self.follow_process(harness, process);
        }
    }

    /// Asks the daemon of a harness about a session, and follows it from then on.
    fn ask_server(&self, harness: &'static Harness, server: Anchor, session_id: String) {
        let mut servers = self.0.servers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(wanted) = servers.get(&server) {
            let _ = wanted.send(session_id);
            return;
        }
        if self.liveness(&server) == Liveness::Gone {
            return;
        }
        let (wanted, mut asked) = mpsc::unbounded_channel();
        let _ = wanted.send(session_id);
        servers.insert(server.clone(), wanted);
        drop(servers);
        let this = self.clone();
        self.0.runtime.spawn(async move { this.keep_following(harness, &server, &mut asked).await });
    }

    /// Follows the daemon of a harness for as long as it runs and has sessions of which it has not told. One that misbehaves is
    /// left alone longer each time.
    async fn keep_following(&self, harness: &'static Harness, server: &Anchor, asked: &mut UnboundedReceiver<String>) {
        let mut pause = SERVER_RETRY;
        loop {
            let began = tokio::time::Instant::now();
            let ended = self.follow_server(harness, server, asked).await;
            tracing::debug!(pid = server.pid, "the daemon of {} is not followed any more: {ended}", harness.title);
            let changes = self.lock().lose_server(server);
            self.tell(changes);
            if began.elapsed() > MAX_SERVER_RETRY {
                pause = SERVER_RETRY;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_SERVER_RETRY);
            while asked.try_recv().is_ok() {}
            // Locked, so that a session is asked about here or by a task of its own.
            let mut servers = self.0.servers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let unasked = self.lock().unasked_of(server);
            if unasked.is_empty() || self.liveness(server) == Liveness::Gone {
                servers.remove(server);
                return;
            }
            if let Some(wanted) = servers.get(server) {
                unasked.into_iter().for_each(|session_id| drop(wanted.send(session_id)));
            }
        }
    }

    async fn follow_server(
        &self,
        harness: &'static Harness,
        server: &Anchor,
        asked: &mut UnboundedReceiver<String>,
    ) -> String {
        let (this, pid) = (self.clone(), server.pid);
        let socket = tokio::task::spawn_blocking(move || {
            let socket = this.config_dir(harness, pid).ok()??.join(harness.server.as_ref()?.socket);
            // It may be a link to a place with a shorter name, since the name of a socket has few bytes.
            socket.canonicalize().ok()
        });
        let Some(socket) = socket.await.ok().flatten() else { return "it has no socket".into() };
        let tell = |news: ThreadNews| self.server_said(harness, server, news);
        match codex::follow(&socket, server, asked, tell).await {
            Ok(()) => "nobody asks".into(),
            Err(e) => e.to_string(),
        }
    }

    fn server_said(&self, harness: &Harness, server: &Anchor, news: ThreadNews) {
        let now = self.now();
        let at = news.at.map_or(now.lease, |at| now.to_lease(at));
        let source = EvidenceSource::HarnessDaemon;
        let sign = news.status.map(|(status, says)| Sign { source, status, says, at });
        let key = SessionKey::new(harness.name, &news.session_id);
        let changes = self.lock().server_says(&key, server, news.says, sign, now.lease);
        self.tell(changes);
        self.heard_of(&key);
    }

    /// Watches the file and the terminal of a process.
    fn follow_process(&self, harness: &'static Harness, process: Anchor) {
        // One that cannot be seen now may be seen when it calls next.
        if self.liveness(&process) != Liveness::Alive {
            return;
        }
        let name = (process.pid, process.process_started_at.clone());
        let mut followed = self.0.followed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if followed.len() >= MAX_FOLLOWED {
            followed.clear();
        }
        if followed.contains_key(&name) {
            return;
        }
        followed.insert(name.clone(), false);
        drop(followed);
        let this = self.clone();
        self.0.runtime.spawn_blocking(move || {
            let followed = this.note_tmux(&process);
            let followed = followed.and_then(|()| this.follow_file(harness, process.pid));
            if let Err(LookTimeout { .. }) = followed.and_then(|()| this.follow_terminal(process)) {
                // Its next call tries again.
                this.0.followed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&name);
            }
        });
    }

    /// Notes whether a process was started in tmux. May block.
    fn note_tmux(&self, process: &Anchor) -> Result<(), LookTimeout> {
        let pid = process.pid;
        if !self.0.looks.run_blocking(move |processes| processes.variable(pid, SERVER_VARIABLE).is_some())? {
            return Ok(());
        }
        let name = (pid, process.process_started_at.clone());
        self.0.followed.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(name, true);
        self.agents_in(process).iter().for_each(|agent_id| self.wake_driver(agent_id));
        Ok(())
    }

    /// Reads the file of a process, now and when it changes. May block.
    fn follow_file(&self, harness: &'static Harness, pid: u32) -> Result<(), LookTimeout> {
        let Some(facts) = &harness.session_files else { return Ok(()) };
        let Some(dir) = self.config_dir(harness, pid)?.map(|dir| dir.join(facts.dir)) else { return Ok(()) };
        if let Err(e) = self.0.files.watch(&dir) {
            tracing::debug!("the session files of {} are not watched: {e}", harness.title);
        }
        self.read_file(harness, &dir.join(format!("{pid}.json")));
        Ok(())
    }

    /// Notices when the terminal is closed in which a process was started: the process that leads its session ends then. May
    /// block.
    fn follow_terminal(&self, process: Anchor) -> Result<(), LookTimeout> {
        let (pid, runtime) = (process.pid, self.0.runtime.clone());
        let open_leader = move |processes: &dyn Processes| {
            processes.has_terminal(pid).filter(|has_terminal| *has_terminal)?;
            let leader = processes.get(pid).ok()?.session;
            let _inside = runtime.enter();
            if leader == pid { None } else { processes.open(leader).ok() }
        };
        let Some(exit) = self.0.looks.run_blocking(open_leader)? else { return Ok(()) };
        let this = self.clone();
        self.0.runtime.spawn(async move {
            if exit.await.is_err() || this.liveness(&process) != Liveness::Alive {
                return;
            }
            if this.0.looks.run(move |processes| processes.has_terminal(pid)).await == Ok(Some(false)) {
                let changes = this.lock().orphan(&process);
                this.tell(changes);
            }
        });
        Ok(())
    }

    /// Reads the file of a process, if that process is in a known session. May block.
    fn read_file(&self, harness: &'static Harness, path: &Path) {
        let Some(facts) = &harness.session_files else { return };
        let Some(pid) = files::pid_of(path) else { return };
        let Ok(Ok(process)) = self.0.looks.run_blocking(move |processes| processes.get(pid)) else { return };
        let anchor = self.0.looks.anchor(&process);
        let Some(record) = files::read(facts, path, &anchor.process_started_at, &self.now()) else { return };
        let mut registry = self.lock();
        if !registry.knows_process(&anchor) {
            return;
        }
        let derived = identity::agent_id(harness.name, &self.0.looks.machine_id(), &record.session_id, &self.0.user);
        let alive = |anchor: &Anchor| self.liveness(anchor);
        let changes = registry.file_says(harness.name, &anchor, derived, &record, &alive, self.now().lease);
        drop(registry);
        self.tell(changes);
        self.heard_of(&SessionKey::new(harness.name, &record.session_id));
    }

    /// The directory of a harness's configuration, as the process of the harness sees it. May block.
    pub(super) fn config_dir(&self, harness: &'static Harness, pid: u32) -> Result<Option<PathBuf>, LookTimeout> {
        let our_home = self.0.home.clone();
        self.0.looks.run_blocking(move |processes| {
            let variable = |name: &str| processes.variable(pid, name).filter(|value| !value.is_empty());
            let named: Option<OsString> = harness.config_dir.variable.and_then(variable);
            if let Some(dir) = harness.config_dir.from_variable(|_| named.as_deref()) {
                return Some(dir);
            }
            let home = variable("HOME").map(PathBuf::from).or_else(|| our_home.clone())?;
            Some(harness.config_dir.below_home(&home))
        })
    }
}

/// Reads the files that change.
pub(super) fn read_changed_files(sessions: &Sessions, mut changed: UnboundedReceiver<PathBuf>) {
    // Not kept alive by this task, which ends with the last of the others.
    let weak = std::sync::Arc::downgrade(&sessions.0);
    sessions.0.runtime.spawn(async move {
        while let Some(path) = changed.recv().await {
            let Some(inner) = weak.upgrade() else { return };
            let this = Sessions(inner);
            let read = move || {
                let keeps_files = |harness: &&&Harness| harness.session_files.is_some();
                tt_harness::ALL.iter().filter(keeps_files).for_each(|harness| this.read_file(harness, &path));
            };
            let _ = tokio::task::spawn_blocking(read).await;
        }
    });
}
