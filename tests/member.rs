//! Members of a room as the tests of the stick drive them: each a connection of its own to a real daemon.
#![expect(dead_code, reason = "no suite needs all of it")]

use std::path::PathBuf;
use std::sync::Arc;

use jsonrpsee::core::ClientError;
use tokio::task::JoinHandle;
use tt_client::connect::{Client, Rpc, Settings};
use tt_proto::event::{Event, EventType};
use tt_proto::handoff::RawJson;
use tt_proto::requests::{
    AddNote, GetRoomEvents, GetRoomState, Heartbeat, JoinPath, Joined, PassStick, ReleaseStick, RoomState,
    TakeoverStick, Wait, WaitForTurn,
};
use tt_proto::turn::{Reason, WaitStatus};
use tt_proto::{AgentId, Error, ErrorCode, LeaseId, RoomId};
use tt_tests::{Cast, Home, InProcess};
use ttd::clock::Clock;
use ttd::lifecycle::Options;

/// A handoff that says enough.
pub(crate) fn handoff(status: &str) -> RawJson {
    RawJson::parse(format!(r#"{{"status":"{status}","next_action":"go on"}}"#)).unwrap()
}

/// How `name` reaches the daemon of a home.
pub(crate) fn settings(home: &Home, name: &str) -> Settings {
    let mut settings = Settings::from_environment(home.environment()).unwrap();
    settings.daemon = Some(home.ttd_path().to_owned());
    settings.cwd = Some(home.path().to_owned());
    settings.signals.env.insert("TT_HARNESS_AGENT_ID".into(), name.to_owned());
    settings
}

/// The typed error of a call that must be refused.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> Error {
    match answer.expect_err("it was not refused") {
        ClientError::Call(refusal) => Error::from(&refusal),
        other => panic!("not a refusal: {other}"),
    }
}

#[track_caller]
pub(crate) fn code<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> ErrorCode {
    refused(answer).code
}

/// One member, by one connection.
#[derive(Debug)]
pub(crate) struct Member {
    client: Client,
    pub(crate) id: AgentId,
    pub(crate) room: RoomId,
    pub(crate) joined: Joined,
}

impl Member {
    pub(crate) async fn join(settings: Settings, path: &str) -> Arc<Self> {
        let client = Client::connect(settings).await.unwrap();
        let joined = client.rpc().call(JoinPath { context_path: path.to_owned(), ..Default::default() }).await.unwrap();
        Arc::new(Self { client, id: joined.agent_id.clone(), room: joined.room_id.clone(), joined })
    }

    pub(crate) fn rpc(&self) -> &Rpc {
        self.client.rpc()
    }

    /// A wait of up to a minute.
    pub(crate) async fn wait(&self) -> Wait {
        self.rpc()
            .call(WaitForTurn { room_id: self.room.clone(), max_wait_ms: Some(60_000), ..Default::default() })
            .await
            .unwrap()
    }

    /// One try, even when alone.
    pub(crate) async fn try_it(&self) -> Wait {
        self.rpc()
            .call(WaitForTurn {
                room_id: self.room.clone(),
                max_wait_ms: Some(0),
                claim: Some(true),
                ..Default::default()
            })
            .await
            .unwrap()
    }

    /// Takes an idle room.
    pub(crate) async fn claim(&self) -> Turn {
        Turn::of(&self.try_it().await)
    }

    /// Starts a wait, and returns once the daemon has it in its list.
    pub(crate) async fn start_waiting(self: &Arc<Self>) -> JoinHandle<Wait> {
        let this = self.clone();
        let wait = tokio::spawn(async move { this.wait().await });
        self.until(|state| state.members.iter().any(|m| m.agent_id == self.id && m.waiting)).await;
        wait
    }

    /// Looks at the room until it is as it should be.
    pub(crate) async fn until(&self, there: impl Fn(&RoomState) -> bool) -> RoomState {
        loop {
            let state = self.state().await;
            if there(&state) {
                return state;
            }
        }
    }

    pub(crate) async fn state(&self) -> RoomState {
        self.rpc().call(GetRoomState { room_id: self.room.clone() }).await.unwrap()
    }

    pub(crate) async fn release(&self, turn: &Turn, status: &str) {
        let (lease, id) = (turn.lease.clone(), turn.id);
        self.rpc()
            .call(ReleaseStick {
                room_id: self.room.clone(),
                lease_id: lease,
                expected_turn_id: id,
                handoff: handoff(status),
                ..Default::default()
            })
            .await
            .unwrap();
    }

    pub(crate) async fn pass(&self, turn: &Turn, to: &Member, status: &str) {
        let (lease, id) = (turn.lease.clone(), turn.id);
        self.rpc()
            .call(PassStick {
                room_id: self.room.clone(),
                lease_id: lease,
                expected_turn_id: id,
                to_agent_id: to.id.clone(),
                handoff: handoff(status),
                ..Default::default()
            })
            .await
            .unwrap();
    }

    /// Takes over, or is refused.
    pub(crate) async fn take(&self, turn: i64) -> Result<tt_proto::requests::TakenOver, ErrorCode> {
        let taken = self
            .rpc()
            .call(TakeoverStick {
                room_id: self.room.clone(),
                expected_turn_id: turn,
                reason: "stuck".into(),
                ..Default::default()
            })
            .await;
        match taken {
            Ok(taken) => Ok(taken),
            refusal => Err(code(refusal)),
        }
    }

    pub(crate) async fn beat(&self, turn: &Turn) -> Result<tt_proto::requests::HeartbeatAnswer, ClientError> {
        self.rpc()
            .call(Heartbeat { room_id: self.room.clone(), lease_id: turn.lease.clone(), expected_turn_id: turn.id })
            .await
    }

    pub(crate) async fn note(&self, body: &str) -> Result<tt_proto::note::NoteAdded, ClientError> {
        self.rpc().call(AddNote { room_id: self.room.clone(), body: body.to_owned(), ..Default::default() }).await
    }

    pub(crate) async fn log(&self) -> Vec<Event> {
        let all = self.rpc().call(GetRoomEvents {
            room_id: self.room.clone(),
            limit: Some(1000),
            target_agent_id: Some("any".into()),
            ..Default::default()
        });
        all.await.unwrap().events
    }

    /// What happened, each as `type reason`.
    pub(crate) async fn history(&self) -> Vec<String> {
        let shown = |e: &Event| format!("{} {}", e.event_type.as_str(), e.reason.as_deref().unwrap_or("-"));
        self.log().await.iter().map(shown).collect()
    }

    pub(crate) async fn count(&self, event_type: EventType) -> usize {
        self.log().await.iter().filter(|e| e.event_type == event_type).count()
    }
}

/// A turn that was granted.
#[derive(Debug, Clone)]
pub(crate) struct Turn {
    pub(crate) id: i64,
    pub(crate) lease: LeaseId,
}

impl Turn {
    #[track_caller]
    pub(crate) fn of(wait: &Wait) -> Self {
        assert_eq!(wait.status, WaitStatus::YourTurn, "{wait:?}");
        Self { id: wait.turn_id, lease: wait.lease_id.clone().unwrap() }
    }
}

/// How a wait ended, in a word or two.
pub(crate) fn told(wait: &Wait) -> String {
    let status = serde_json::to_value(wait.status).unwrap().as_str().unwrap().to_owned();
    match wait.reason {
        Some(Reason::Claim(reason)) => format!("{status} {}", reason.as_str()),
        Some(Reason::Takeover(reason)) => format!("{status} {}", reason.as_str()),
        None => status,
    }
}

/// A daemon in this process with a clock of its own, members whose processes exist on paper, and a workspace.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) daemon: InProcess,
    pub(crate) clock: Clock,
    pub(crate) cast: Arc<Cast>,
    pub(crate) dir: PathBuf,
    pub(crate) home: Home,
}

impl Scene {
    pub(crate) fn new(home: Home) -> Self {
        Self::with(home, |_| ())
    }

    /// A daemon with other options than usual.
    pub(crate) fn with(home: Home, change: impl FnOnce(&mut Options)) -> Self {
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
    pub(crate) fn restart(&mut self) {
        self.restart_after(|_| ());
    }

    /// The same, with something done to the database in between.
    pub(crate) fn restart_after(&mut self, change: impl FnOnce(&rusqlite::Connection)) {
        self.daemon.stop();
        assert!(self.daemon.ended_within(tt_tests::LIMIT));
        change(&rusqlite::Connection::open(self.home.paths().database()).unwrap());
        let mut options = Options::from_environment(&self.home.environment()).unwrap();
        options.processes = self.cast.clone();
        self.clock = options.clock.clone();
        self.daemon = InProcess::start(options);
    }

    /// How the member of this name calls: from the process that is its own.
    pub(crate) fn settings(&self, name: &str) -> Settings {
        let mut settings = settings(&self.home, name);
        settings.autostart = false;
        settings.signals.env.insert("CLAUDECODE".into(), "1".into());
        settings.signals.env.insert("CLAUDE_PID".into(), player(name).to_string());
        settings
    }

    pub(crate) async fn join(&self, name: &str) -> Arc<Member> {
        Member::join(self.settings(name), self.dir.to_str().unwrap()).await
    }

    /// A member in a process that nobody can see.
    pub(crate) async fn join_unseen(&self, name: &str) -> Arc<Member> {
        let mut settings = settings(&self.home, name);
        settings.autostart = false;
        Member::join(settings, self.dir.to_str().unwrap()).await
    }

    /// Ends a member's process.
    pub(crate) fn kill(&self, name: &str) {
        self.cast.kill(player(name));
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(std::time::Duration::from_secs(seconds));
    }
}

/// Each name of one letter has a process.
fn player(name: &str) -> u32 {
    Cast::player(usize::from(name.bytes().last().unwrap_or(b'a') - b'a'))
}
