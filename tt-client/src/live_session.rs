//! The room and the connection of a command that keeps running: it follows events or receives messages, and may be
//! interrupted in the middle of a call.

use std::time::Duration;

use tt_proto::requests::{GetRoomState, Method, ResolveMember};
use tt_proto::{AgentId, ErrorCode, RoomId};

use crate::Context;
use crate::connect::{Client, DEADLINE};
use crate::error::CommandError;
use crate::output::{Format, Output};
use crate::session::{PathArg, names_request, report_join, room_of};
use crate::text::names::Names;

/// A room, and a WebSocket for calls and streams about it.
pub(crate) struct LiveSession {
    pub client: Client,
    pub output: Output,
    pub room_id: RoomId,
}

impl LiveSession {
    /// Reaches the daemon and finds the room of this path.
    pub(crate) async fn find(context: &Context, path: impl Into<PathArg>) -> Result<Self, CommandError> {
        let path = path.into().text()?;
        let settings = context.settings_at(Some(path.clone()));
        let client = Client::connect(settings).await.map_err(CommandError::from_connect)?;
        let output = context.output_for(client.welcome());
        Ok(Self { room_id: room_of(client.welcome(), &path)?, client, output })
    }

    /// Makes a call that only a member may make. A caller that is not a member yet joins the existing room with it, unless the
    /// call is refused, and is told so.
    pub(crate) async fn call<M: Method>(&mut self, request: impl Fn(RoomId) -> M) -> Result<M::Answer, CommandError> {
        match self.client.call(request(self.room_id.clone())).await {
            Err(e) if e.code == ErrorCode::UnknownMember => {
                let answer = self.client.call_and_join(request(self.room_id.clone())).await?;
                if self.output.format == Format::Text {
                    let state = GetRoomState { room_id: self.room_id.clone(), ..Default::default() };
                    // A turn that the call brought must not be lost because its room cannot be named.
                    if let Ok(state) = self.client.call(state).await {
                        report_join(&self.output, &state.room.canonical_path, &self.client.welcome().identity.agent_id);
                    }
                }
                Ok(answer)
            }
            answer => Ok(answer?),
        }
    }

    /// Makes a call in which the daemon waits for up to `wait`. It never joins: a caller that was a member a moment ago and
    /// is none now was removed, and must not come back by itself.
    pub(crate) async fn call_waiting<M: Method>(
        &mut self,
        wait: Duration,
        request: M,
    ) -> Result<M::Answer, CommandError> {
        Ok(self.client.call_within(wait + DEADLINE, request).await?)
    }

    /// The names of the members, for text. It is only a read: no member's presence changes.
    pub(crate) async fn names(&mut self) -> Result<Names, CommandError> {
        if self.output.format == Format::Json {
            return Ok(Names::default());
        }
        let mut names = Names::default();
        loop {
            let page = self.client.call(names_request(&self.room_id, names.cursor())).await?;
            if names.learn_page(&page) {
                return Ok(names);
            }
        }
    }

    /// The member with this name.
    pub(crate) async fn member(&mut self, name: &str) -> Result<AgentId, CommandError> {
        // Anybody may ask: a name that nobody has makes the caller no member.
        let resolve = ResolveMember { room_id: self.room_id.clone(), name: name.to_owned() };
        Ok(self.client.call(resolve).await?.agent_id)
    }
}
