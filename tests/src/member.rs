//! A member of the one room of a home, over a real socket; and the same member as a caller of `tt`.

use std::path::PathBuf;
use std::process::Command;

use jsonrpsee::core::client::Subscription;
use tt_client::connect::{Client, Settings};
use tt_proto::event::Event;
use tt_proto::paths::Environment;
use tt_proto::requests::{
    GetRoomEvents, GetRoomState, JoinPath, Method, RoomState, SendMessage, Sent, Stream, TakeMessages, Taken,
};
use tt_proto::{AgentId, Error, RoomId};

use crate::home::Home;

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

    /// How this agent reaches the daemon from inside the test.
    #[track_caller]
    pub fn settings_of(&self, agent: &str) -> Settings {
        let path = "/usr/local/bin:/usr/bin:/bin";
        let home = self.path().to_str().unwrap_or_default();
        let env = Environment::of([("HOME", home), ("PATH", path), ("TT_HARNESS_AGENT_ID", agent)]);
        let mut settings = Settings::from_environment(env).unwrap_or_else(|e| panic!("{e}"));
        settings.daemon = Some(self.ttd_path().to_owned());
        settings
    }
}

/// An agent that joined. What goes wrong fails the test.
#[derive(Debug)]
pub struct Member {
    pub agent_id: AgentId,
    pub room_id: RoomId,
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

    pub async fn join_as(home: &Home, settings: Settings) -> Self {
        let path = home.workspace().display().to_string();
        let mut client = Client::connect(settings).await.unwrap_or_else(|e| panic!("{e}: {e:?}"));
        let key = fresh_key();
        let joined = client
            .call(JoinPath { context_path: path.clone(), idempotency_key: key.clone(), ..Default::default() })
            .await;
        let joined = joined.unwrap_or_else(|e| panic!("{e}: {e:?}"));
        Self { agent_id: joined.agent_id, room_id: joined.room_id, client }
    }

    /// Makes a call that is safe to repeat.
    pub async fn try_call<M: Method>(&mut self, request: impl FnOnce(RoomId) -> M) -> Result<M::Answer, Error> {
        self.client.call_within(crate::LIMIT, request(self.room_id.clone())).await
    }

    pub async fn call<M: Method>(&mut self, request: impl FnOnce(RoomId) -> M) -> M::Answer {
        self.try_call(request).await.unwrap_or_else(|e| panic!("{e}: {e:?}"))
    }

    /// Starts a stream of this room's events.
    pub async fn subscribe<S: Stream>(&mut self, request: impl FnOnce(RoomId) -> S) -> Subscription<S::Item> {
        let items = self.client.subscribe(request(self.room_id.clone())).await;
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

    pub async fn state(&mut self) -> RoomState {
        self.call(|room_id| GetRoomState { room_id }).await
    }

    /// How many messages wait in this member's inbox.
    pub async fn unread(&mut self) -> usize {
        let me = self.agent_id.clone();
        self.state().await.members.iter().find(|m| m.agent_id == me).map_or(0, |m| m.unread)
    }
}
