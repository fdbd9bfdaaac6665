//! A daemon in this process with a clock of its own, and members whose processes exist on paper; turns and refusals as the
//! tests read them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::PathBuf;
use std::sync::Arc;

use jsonrpsee::core::ClientError;
use tt_client::connect::Settings;
use tt_proto::handoff::RawJson;
use tt_proto::requests::Wait;
use tt_proto::turn::{Reason, WaitStatus};
use tt_proto::{Error, ErrorCode, LeaseId};
use ttd::clock::Clock;
use ttd::lifecycle::Options;

use crate::{Cast, Home, InProcess, Member};

/// A handoff that says enough.
pub fn handoff(status: &str) -> RawJson {
    RawJson::parse(format!(r#"{{"status":"{status}","next_action":"go on"}}"#)).unwrap()
}

/// The typed error of a call that must be refused.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Error {
    match answer.expect_err("it was not refused") {
        ClientError::Call(refusal) => Error::from(&refusal),
        other => panic!("not a refusal: {other}"),
    }
}

#[track_caller]
pub fn code<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ErrorCode {
    refused(answer).code
}

/// A turn that was granted.
#[derive(Debug, Clone)]
pub struct Turn {
    pub id: i64,
    pub lease: LeaseId,
}

impl Turn {
    #[track_caller]
    pub fn of(wait: &Wait) -> Self {
        assert_eq!(wait.status, WaitStatus::YourTurn, "{wait:?}");
        Self { id: wait.turn_id, lease: wait.lease_id.clone().unwrap() }
    }
}

/// How a wait ended, in a word or two.
pub fn told(wait: &Wait) -> String {
    let status = serde_json::to_value(wait.status).unwrap().as_str().unwrap().to_owned();
    match wait.reason {
        Some(Reason::Claim(reason)) => format!("{status} {}", reason.as_str()),
        Some(Reason::Takeover(reason)) => format!("{status} {}", reason.as_str()),
        None => status,
    }
}

/// A daemon in this process with a clock of its own, members whose processes exist on paper, and a workspace.
#[derive(Debug)]
pub struct Scene {
    pub daemon: InProcess,
    pub clock: Clock,
    pub cast: Arc<Cast>,
    pub dir: PathBuf,
    pub home: Home,
}

impl Scene {
    pub fn new(home: Home) -> Self {
        Self::with(home, |_| ())
    }

    /// A daemon with other options than usual.
    pub fn with(home: Home, change: impl FnOnce(&mut Options)) -> Self {
        let cast = Arc::new(Cast::default());
        let dir = home.path().join("work");
        std::fs::create_dir_all(&dir).unwrap();
        let mut options = Options::from_environment(&home.environment()).unwrap();
        options.processes = cast.clone();
        change(&mut options);
        let clock = options.clock.clone();
        Self { daemon: InProcess::start(options), clock, cast, dir: dir.canonicalize().unwrap(), home }
    }

    /// Ends the daemon in order and starts another, which knows nothing but what is stored.
    pub fn restart(&mut self) {
        self.restart_after(|_| ());
    }

    /// Ends the daemon in order, changes its database, and starts another.
    pub fn restart_after(&mut self, change: impl FnOnce(&rusqlite::Connection)) {
        self.daemon.stop();
        assert!(self.daemon.ended_within(crate::LIMIT));
        change(&rusqlite::Connection::open(self.home.paths().database()).unwrap());
        let mut options = Options::from_environment(&self.home.environment()).unwrap();
        options.processes = self.cast.clone();
        self.clock = options.clock.clone();
        self.daemon = InProcess::start(options);
    }

    /// How the member of this name calls: from the process that is its own.
    pub fn settings(&self, name: &str) -> Settings {
        let mut settings = self.home.settings_of(name);
        settings.autostart = false;
        settings.signals.env.insert("CLAUDECODE".into(), "1".into());
        settings.signals.env.insert("CLAUDE_PID".into(), player(name).to_string());
        settings
    }

    pub async fn join(&self, name: &str) -> Arc<Member> {
        Member::join_at(self.settings(name), self.dir.to_str().unwrap()).await
    }

    /// A member in a process that nobody can see.
    pub async fn join_unseen(&self, name: &str) -> Arc<Member> {
        let mut settings = self.home.settings_of(name);
        settings.autostart = false;
        Member::join_at(settings, self.dir.to_str().unwrap()).await
    }

    /// Ends a member's process.
    pub fn kill(&self, name: &str) {
        self.cast.kill(player(name));
    }

    pub fn advance(&self, seconds: u64) {
        self.clock.advance(std::time::Duration::from_secs(seconds));
    }
}

/// Each name of one letter has a process.
fn player(name: &str) -> u32 {
    Cast::player(usize::from(name.bytes().last().unwrap_or(b'a') - b'a'))
}
