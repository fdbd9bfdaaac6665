//! A member of a room, over a real socket; and the same member as a caller of `tt`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use jsonrpsee::core::ClientError;
use jsonrpsee::core::client::Subscription;
use tokio::task::JoinHandle;
use tt_client::connect::{Client, Rpc, Settings};
use tt_proto::event::{Event, EventType};
use tt_proto::filter::OneOrMany;
use tt_proto::paths::Environment;
use tt_proto::requests::{
    AddNote, GetRoomEvents, GetRoomState, Heartbeat, HeartbeatAnswer, JoinPath, Joined, LeaveRoom, Method, NoteAdded,
    PassStick, ReleaseStick, RoomState, SendMessage, Sent, Stream, TakeMessages, Taken, TakenOver, TakeoverStick, Wait,
    WaitForEvents, WaitForTurn,
};
use tt_proto::room::MemberStatus;
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use crate::LIMIT;
use crate::home::Home;
use crate::scene::{Turn, code, handoff};

impl Home {
    /// The workspace everybody shares.
    #[track_caller]
    pub fn workspace(&self) -> PathBuf {
        let dir = self.path().join("workspace");
        std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        dir
    }

    /// `tt` in the workspace, called by this agent.
    #[track_caller]
    pub fn tt_as(&self, agent: &str, args: &[&str]) -> Command {
        let mut command = self.tt(args);
        command.env("TT_HARNESS_AGENT_ID", agent).current_dir(self.workspace());
        command
    }

    /// Lets this many agents join the room of a path and leave it.
    pub async fn come_and_go(&self, count: usize, path: impl AsRef<Path>) {
        for n in 0..count {
            let settings = self.settings_of(&format!("guest:{n:08x}"));
            let mut guest = Member::connect(settings, &path.as_ref().display().to_string()).await;
            guest.call(|room_id| LeaveRoom { room_id, ..Default::default() }).await;
        }
    }

    /// How this agent reaches the daemon from inside the test.
    #[track_caller]
    pub fn settings_of(&self, agent: &str) -> Settings {
        let path = "/usr/local/bin:/usr/bin:/bin";
        let home = self.path().to_str().unwrap_or_default();
        let env = Environment::of([("HOME", home), ("PATH", path), ("TT_HARNESS_AGENT_ID", agent)]);
        let mut settings = Settings::from_environment(env).unwrap_or_else(|e| panic!("{e}"));
        settings.daemon = Some(self.ttd_path().to_owned());
        settings.cwd = Some(self.path().to_owned());
        settings
    }
}

/// An agent that joined. What goes wrong fails the test.
#[derive(Debug)]
pub struct Member {
    pub id: AgentId,
    pub room: RoomId,
    pub joined: Joined,
    pub client: Client,
}

/// A key no two writes share.
pub fn fresh_key() -> Option<String> {
    Some(uuid::Uuid::now_v7().to_string())
}

impl Member {
    pub async fn join(home: &Home, agent: &str) -> Self {
        Self::join_as(home, home.settings_of(agent)).await
    }

    /// Joins the workspace of a home with other settings than usual.
    pub async fn join_as(home: &Home, settings: Settings) -> Self {
        Self::connect(settings, &home.workspace().display().to_string()).await
    }

    /// Shared, so that a wait can go on in a task of its own.
    pub async fn join_at(settings: Settings, path: &str) -> Arc<Self> {
        Arc::new(Self::connect(settings, path).await)
    }

    /// Joins the room of any path.
    pub async fn connect(settings: Settings, path: &str) -> Self {
        let mut client = Client::connect(settings).await.unwrap_or_else(|e| panic!("{e}: {e:?}"));
        let key = fresh_key();
        let request = JoinPath { context_path: path.to_owned(), idempotency_key: key, ..Default::default() };
        let joined = client.call(request).await;
        let joined = joined.unwrap_or_else(|e| panic!("{e}: {e:?}"));
        Self { id: joined.agent_id.clone(), room: joined.room_id.clone(), joined, client }
    }

    /// Makes a call that is safe to repeat.
    pub async fn try_call<M: Method>(&mut self, request: impl FnOnce(RoomId) -> M) -> Result<M::Answer, Error> {
        self.client.call_within(crate::LIMIT, request(self.room.clone())).await
    }

    pub async fn call<M: Method>(&mut self, request: impl FnOnce(RoomId) -> M) -> M::Answer {
        self.try_call(request).await.unwrap_or_else(|e| panic!("{e}: {e:?}"))
    }

    /// Starts a stream of this room's events.
    pub async fn subscribe<S: Stream>(&mut self, request: impl FnOnce(RoomId) -> S) -> Subscription<S::Item> {
        let items = self.client.subscribe(request(self.room.clone())).await;
        items.unwrap_or_else(|e| panic!("{e}: {e:?}"))
    }

    /// Says something to a member, by whatever name, or to everyone.
    pub async fn try_say(&mut self, to: Option<&str>, body: &str) -> Result<Sent, Error> {
        let (to, key) = (to.map(str::to_owned), fresh_key());
        let call = |room_id| SendMessage {
            room_id,
            body: body.to_owned(),
            to: to.clone(),
            idempotency_key: key.clone(),
            ..Default::default()
        };
        self.try_call(call).await
    }

    pub async fn say(&mut self, to: Option<&str>, body: &str) -> Sent {
        self.try_say(to, body).await.unwrap_or_else(|e| panic!("{e}: {e:?}"))
    }

    /// The whole log after a cursor, page by page.
    pub async fn log(&mut self, mut cursor: i64) -> Vec<Event> {
        let mut all = Vec::new();
        loop {
            let page = |room_id| GetRoomEvents { room_id, after_event_seq: Some(cursor), ..Default::default() };
            let page = self.call(page).await;
            if page.events.is_empty() {
                return all;
            }
            cursor = page.cursor_event_seq;
            all.extend(page.events);
        }
    }

    /// Takes what is in the inbox, waiting for it no longer than this.
    pub async fn take(&mut self, max_wait_ms: u64) -> Taken {
        let call = |room_id| TakeMessages {
            room_id,
            surface: "recv".into(),
            max_wait_ms: Some(max_wait_ms),
            ..Default::default()
        };
        self.call(call).await
    }

    /// How many messages wait in this member's inbox.
    pub async fn unread(&self) -> usize {
        let me = self.id.clone();
        self.state().await.members.iter().find(|m| m.agent_id == me).map_or(0, |m| m.unread)
    }

    pub fn rpc(&self) -> &Rpc {
        self.client.rpc()
    }

    fn long_wait(&self) -> WaitForTurn {
        WaitForTurn { room_id: self.room.clone(), max_wait_ms: Some(60_000), ..Default::default() }
    }

    /// A wait of up to a minute.
    pub async fn wait(&self) -> Wait {
        self.rpc().call(self.long_wait()).await.unwrap()
    }

    /// One try, even when alone.
    pub async fn try_it(&self) -> Wait {
        let request =
            WaitForTurn { room_id: self.room.clone(), max_wait_ms: Some(0), claim: Some(true), ..Default::default() };
        self.rpc().call(request).await.unwrap()
    }

    /// Takes an idle room.
    pub async fn claim(&self) -> Turn {
        Turn::of(&self.try_it().await)
    }

    /// Starts a wait, and returns once the daemon has it in its list.
    ///
    /// Two waits are started, and the daemon lets a member have one: when either is refused, the other is in its place.
    pub async fn start_waiting(self: &Arc<Self>) -> JoinHandle<Wait> {
        let (refused, mut refusals) = tokio::sync::mpsc::channel(1);
        let [first, second] = [0, 1].map(|number| {
            let (this, refused) = (self.clone(), refused.clone());
            tokio::spawn(async move {
                match this.rpc().call(this.long_wait()).await {
                    Ok(wait) => wait,
                    refusal => {
                        assert_eq!(code(refusal), ErrorCode::DuplicateListener);
                        refused.send(number).await.unwrap();
                        std::future::pending().await
                    }
                }
            })
        });
        drop(refused);
        let (refused, waiting) = if refusals.recv().await == Some(0) { (first, second) } else { (second, first) };
        refused.abort();
        waiting
    }

    /// Waits until a member of this room is gone, and returns the room.
    pub async fn until_gone(&self, agent: &str) -> RoomState {
        self.until_gone_from(&self.room, agent).await
    }

    /// Waits until the log of any room says that a member has left, and returns the room, in which it is gone.
    pub async fn until_gone_from(&self, room: &RoomId, agent: &str) -> RoomState {
        let mut cursor = 0;
        loop {
            let left = self.rpc().call(WaitForEvents {
                room_id: room.clone(),
                after_event_seq: Some(cursor),
                event_type: Some(OneOrMany::One(EventType::MemberLeft.as_str().to_owned())),
                from_agent_id: Some(AgentId::parse(agent).unwrap()),
                target_agent_id: Some("any".to_owned()),
                ..Default::default()
            });
            let left = left.await.unwrap();
            assert!(!left.events.is_empty(), "{agent} is still there");
            cursor = left.cursor_event_seq;
            // It may have left before and come back since.
            let state = self.rpc().call(GetRoomState { room_id: room.clone(), ..Default::default() }).await.unwrap();
            let member = state.members.iter().find(|member| member.agent_id.as_str() == agent);
            if member.is_some_and(|member| member.status == MemberStatus::Gone) {
                return state;
            }
        }
    }

    /// Looks at the room until it is as it should be.
    pub async fn until(&self, there: impl Fn(&RoomState) -> bool) -> RoomState {
        let started = Instant::now();
        loop {
            let state = self.state().await;
            if there(&state) {
                return state;
            }
            assert!(started.elapsed() < LIMIT, "the room stays as it is: {state:?}");
        }
    }

    pub async fn state(&self) -> RoomState {
        self.rpc().call(GetRoomState { room_id: self.room.clone(), ..Default::default() }).await.unwrap()
    }

    pub async fn release(&self, turn: &Turn, status: &str) {
        let request = ReleaseStick {
            room_id: self.room.clone(),
            lease_id: turn.lease.clone(),
            expected_turn_id: turn.id,
            handoff: handoff(status),
            ..Default::default()
        };
        self.rpc().call(request).await.unwrap();
    }

    pub async fn pass(&self, turn: &Turn, to: &Member, status: &str) {
        let request = PassStick {
            room_id: self.room.clone(),
            lease_id: turn.lease.clone(),
            expected_turn_id: turn.id,
            to_agent_id: to.id.clone(),
            handoff: handoff(status),
            ..Default::default()
        };
        self.rpc().call(request).await.unwrap();
    }

    /// Takes over, or is refused.
    pub async fn take_over(&self, turn: i64) -> Result<TakenOver, ErrorCode> {
        let request = TakeoverStick {
            room_id: self.room.clone(),
            expected_turn_id: turn,
            reason: "stuck".into(),
            ..Default::default()
        };
        match self.rpc().call(request).await {
            Ok(taken) => Ok(taken),
            refusal => Err(code(refusal)),
        }
    }

    pub async fn beat(&self, turn: &Turn) -> Result<HeartbeatAnswer, ClientError> {
        let (room_id, lease_id) = (self.room.clone(), turn.lease.clone());
        self.rpc().call(Heartbeat { room_id, lease_id, expected_turn_id: turn.id }).await
    }

    pub async fn note(&self, body: &str) -> Result<NoteAdded, ClientError> {
        self.rpc().call(AddNote { room_id: self.room.clone(), body: body.to_owned(), ..Default::default() }).await
    }

    /// The whole log, as far as one page holds it.
    pub async fn events(&self) -> Vec<Event> {
        let all = self.rpc().call(GetRoomEvents {
            room_id: self.room.clone(),
            limit: Some(1000),
            target_agent_id: Some("any".into()),
            ..Default::default()
        });
        all.await.unwrap().events
    }

    /// What happened, each as `type reason`.
    pub async fn history(&self) -> Vec<String> {
        let shown = |e: &Event| format!("{} {}", e.event_type.as_str(), e.reason.as_deref().unwrap_or("-"));
        self.events().await.iter().map(shown).collect()
    }

    pub async fn count(&self, event_type: EventType) -> usize {
        self.events().await.iter().filter(|e| e.event_type == event_type).count()
    }
}
