//! What harnesses offer for messages to a running session, in their own protocols: one client each. A client connects, checks
//! that the other end is the very process it is meant for, hands one text over, and says how that ended. When it is used, and
//! what shows that a text arrived, is not its business.

pub mod claude;
pub mod codex;

use std::path::Path;

use tokio::net::UnixStream;
use tt_proto::hello::Anchor;

/// How a text was not handed over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// Nothing of it was, and nothing will be.
    #[error("{0}")]
    Refused(String),
    /// Nothing of it was, because a question to the user is open.
    #[error("a question to its user is open")]
    Asking,
    /// Nothing of it was, because a turn is under way.
    #[error("it works")]
    Busy,
    /// Nothing of it was, because nobody may be watching.
    #[error("no terminal shows it")]
    Unwatched,
    /// It may have been handed over or not.
    #[error("{0}")]
    Unclear(String),
}

impl NotSent {
    fn refused(why: impl std::fmt::Display) -> Self {
        Self::Refused(why.to_string())
    }

    fn unclear(why: impl std::fmt::Display) -> Self {
        Self::Unclear(why.to_string())
    }
}

/// Connects to a socket at which this process listens, and no other.
async fn connect(socket: &Path, process: &Anchor) -> std::io::Result<UnixStream> {
    let stream = UnixStream::connect(socket).await?;
    let peer = stream.peer_cred()?;
    let is_it =
        peer.uid() == nix::unistd::getuid().as_raw() && peer.pid().map(|pid| pid.cast_unsigned()) == Some(process.pid);
    if is_it { Ok(stream) } else { Err(std::io::Error::other("the socket belongs to another process")) }
}
