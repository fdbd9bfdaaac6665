//! The ways by which messages reach a model: a module each, one trait. They know nothing of each other, nor of when they are
//! used: that is the plan's.
//!
//! A way is one of two kinds. With the first, a surface of the session comes and takes: a wait, the answer of a tool, a hook. Such a
//! way only says whether that is so. With the second, the daemon begins: such a way also hands over ([`Way::hand_over`]), and
//! says afterwards whether it arrived ([`Way::look`]). To add one, write a module and name it in [`all`].

mod hook;
mod listening;
mod native_inbox;
mod terminal;
mod tool_response;

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tt_proto::delivery::{Surface, WaitReason, WayName};
use tt_proto::session::{EvidenceSource, Session};
use tt_proto::{AgentId, RoomId};

use super::plan::{Opening, Reach};
use crate::listeners::Listeners;
use crate::sessions::Sessions;

/// What a way does in its own time. It may hang: it is given up after a while.
pub type InItsTime<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A way by which messages reach a model.
pub trait Way: fmt::Debug + Send + Sync + 'static {
    fn name(&self) -> WayName;

    /// Whether it ever starts by itself.
    fn starts(&self) -> bool {
        false
    }

    /// What it can do for a recipient now, as far as that is known. It looks at nothing that could block.
    fn reach(&self, target: &Target<'_>) -> Reach;

    /// Whether this is no moment to begin: why, and how long the way is left out. Asked before anything is stored.
    fn not_now<'a>(&'a self, _agent_id: &'a AgentId) -> InItsTime<'a, Option<(WaitReason, Duration)>> {
        Box::pin(ready(None))
    }

    /// Hands a block over. It was stored that this begins. Only of a way that starts by itself.
    fn hand_over<'a>(&'a self, _block: &'a Block) -> InItsTime<'a, Handed> {
        Box::pin(ready(Handed::Failed("its surface comes and takes".into())))
    }

    /// Whether a block has arrived, from evidence that does not come from the hand-over itself: the tag in the transcript, an echo,
    /// what the session does. Also asked by a later daemon, which does not know how the hand-over ended.
    fn look<'a>(&'a self, _attempt: &'a Begun) -> InItsTime<'a, Arrived> {
        Box::pin(ready(Arrived::Unknown))
    }
}

/// All ways there are, the best first.
pub fn all(sessions: &Sessions) -> Vec<Arc<dyn Way>> {
    vec![
        Arc::new(listening::Listening),
        Arc::new(tool_response::ToolResponse),
        Arc::new(hook::Hook),
        Arc::new(native_inbox::NativeInbox(sessions.clone())),
        Arc::new(terminal::Terminal::new(sessions)),
    ]
}

/// A recipient as a way looks at it.
#[derive(Debug)]
pub struct Target<'a> {
    pub room_id: &'a RoomId,
    pub agent_id: &'a AgentId,
    /// The surface by which its session calls now, and at which moment.
    pub calls: Option<(Surface, Opening)>,
    pub listeners: &'a Listeners,
    pub sessions: &'a Sessions,
}

impl Target<'_> {
    /// Its session, and the file of its transcript, as far as they are known.
    pub fn session(&self) -> Option<(Session, Option<String>)> {
        self.sessions.of_agent(self.agent_id)
    }

    /// Whether hooks have told of its session.
    pub fn has_hooks(&self) -> bool {
        self.sessions.has_heard(self.agent_id, EvidenceSource::Hook)
    }
}

/// What is handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub attempt: Begun,
    /// Everything the model is to read, framed with the tag.
    pub text: String,
    /// A turn is to be broken off for it.
    pub breaks_off: bool,
}

/// A hand-over that has begun, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    pub agent_id: AgentId,
    pub tag: String,
    /// Its messages, room by room.
    pub messages: Vec<(RoomId, Vec<i64>)>,
}

/// How a hand-over ended, as far as the way knows. Whether the block arrived is asked of [`Way::look`], in every case but
/// [`Handed::NotNow`] and [`Handed::Failed`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handed {
    /// The harness has it.
    Over,
    /// Nothing was handed over, because this is not the moment; the way is left out for so long.
    NotNow { because: WaitReason, retry: Duration },
    /// Nothing was handed over, and the way failed.
    Failed(String),
    /// It may have been handed over or not.
    Unknown(String),
}

/// Whether a block arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    Yes,
    /// It did not, and will not any more.
    No,
    /// Nothing shows it yet.
    Unknown,
}
