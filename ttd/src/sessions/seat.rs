//! Which processes of a session may sit in a terminal where something can be typed for it. Where that is, is looked up before each
//! use (`delivery/terminal/pane.rs`).

use std::path::PathBuf;

use tt_harness::Harness;
use tt_proto::AgentId;
use tt_proto::hello::Anchor;
use tt_proto::room::Liveness;

use super::{Sessions, files, transcript};
use crate::clock::Clock;
use crate::engine::MemberProcesses;
use crate::liveness::{LookTimeout, Looks};

/// A session in a terminal.
#[derive(Debug, Clone)]
pub struct Seated {
    pub harness: &'static Harness,
    pub session_id: String,
    /// Its processes that were started in tmux.
    pub processes: Vec<Anchor>,
}

impl Sessions {
    /// The session of an agent, if it was started in tmux and has a process of its own. What a process that several sessions share
    /// shows in its terminals, nothing tells.
    pub fn seated(&self, agent_id: &AgentId) -> Option<Seated> {
        let now = self.now().lease;
        let alive = |anchor: &Anchor| self.0.watch.liveness(anchor);
        let registry = self.lock();
        let session = registry.of_agent(agent_id)?;
        let is_over = session.is_left() || session.verdict(&alive, now).liveness == Liveness::Gone;
        if is_over || session.shares_process || session.server.is_some() {
            return None;
        }
        let harness = tt_harness::by_name(&session.key.harness)?;
        let (processes, session_id) = (session.processes.clone(), session.key.session_id.clone());
        drop(registry);
        let followed = self.0.followed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let in_tmux = |process: &Anchor| {
            let name = (process.pid, process.process_started_at.clone());
            followed.get(&name) == Some(&true) && self.liveness(process) == Liveness::Alive
        };
        let processes: Vec<Anchor> = processes.into_iter().filter(in_tmux).collect();
        (!processes.is_empty()).then_some(Seated { harness, session_id, processes })
    }

    /// Whether a process is in this conversation and in no other, as far as its harness tells. May block.
    pub fn is_in_conversation(&self, seated: &Seated, process: &Anchor) -> Result<bool, LookTimeout> {
        let Some(facts) = &seated.harness.session_files else { return Ok(true) };
        let Some(dir) = self.config_dir(seated.harness, process.pid)? else { return Ok(true) };
        let path = dir.join(facts.dir).join(format!("{}.json", process.pid));
        let record = files::read(facts, &path, &process.process_started_at, &self.now());
        Ok(record.is_none_or(|record| record.session_id == seated.session_id))
    }

    /// Whether a transcript of an agent's session shows a block with this tag.
    pub async fn shows_block(&self, agent_id: &AgentId, tag: &str) -> bool {
        let (this, agent_id, tag) = (self.clone(), agent_id.clone(), tag.to_owned());
        let shows = move |path: &PathBuf| transcript::shows_block(path, &tag).unwrap_or(false);
        tokio::task::spawn_blocking(move || this.transcripts(&agent_id).iter().any(shows)).await.unwrap_or(false)
    }

    pub fn looks(&self) -> &Looks {
        &self.0.looks
    }

    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }
}
