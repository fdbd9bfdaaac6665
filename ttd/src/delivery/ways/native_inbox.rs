//! What the harness of a session itself offers for messages: the messaging socket of Claude Code, the daemon of Codex. It starts a
//! turn and leaves alone what a person is typing. Where it leads is looked up again each time (`sessions/inbox.rs`); the protocols
//! are in `native`. A block has arrived once it is part of the conversation: the transcript shows its tag, or the daemon of
//! the harness the message of that name.

use std::path::Path;
use std::time::Duration;

use tt_proto::delivery::{WaitReason, WayName};
use tt_proto::session::SessionStatus;

use super::{Arrived, Begun, Block, Handed, InItsTime, Target, Way};
use crate::delivery::native::codex::Thread;
use crate::delivery::native::{NotSent, claude, codex};
use crate::delivery::plan::{Abilities, Reach};
use crate::sessions::inbox::Inbox;
use crate::sessions::{Sessions, transcript};

/// How soon a thread is tried again that may have lost its terminal. Codex closes one after a minute.
const UNWATCHED_RETRY: Duration = Duration::from_secs(60);

/// How soon a session is tried again that asks its user something.
const ASKING_RETRY: Duration = Duration::from_secs(5);

/// How soon a session is tried again that has just begun to work. There is evidence when it ends.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Whether a process takes a message at this moment, by what its file says now: a turn or a question may have begun since there was
/// evidence last.
fn may_take(is_in_session: bool, status: Option<SessionStatus>) -> Result<(), NotSent> {
    match status {
        _ if !is_in_session => Err(NotSent::Refused("its process is in another session now".into())),
        Some(SessionStatus::Asking) => Err(NotSent::Asking),
        Some(SessionStatus::Busy) => Err(NotSent::Busy),
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub(super) struct NativeInbox(pub(super) Sessions);

impl Way for NativeInbox {
    fn name(&self) -> WayName {
        WayName::NativeInbox
    }

    fn starts(&self) -> bool {
        true
    }

    fn reach(&self, target: &Target<'_>) -> Reach {
        match target.sessions.takes_messages(target.agent_id) {
            true => Reach::Starts(Abilities { idle: true, ..Abilities::default() }),
            false => Reach::No,
        }
    }

    fn hand_over<'a>(&'a self, block: &'a Block) -> InItsTime<'a, Handed> {
        Box::pin(async move {
            let (tag, text) = (&block.attempt.tag, &block.text);
            let sent = match self.0.inbox(&block.attempt.agent_id).await {
                None => return Handed::Failed("its session takes no messages any more".into()),
                Some(Inbox::Process { socket, process, session_id, .. }) => {
                    let agent_id = &block.attempt.agent_id;
                    let look = async || match self.0.inbox(agent_id).await {
                        Some(Inbox::Process { process: of, session_id: id, status, .. }) => {
                            may_take(of == process && id == session_id, status)
                        }
                        _ => may_take(false, None),
                    };
                    claude::send(&socket, &process, &session_id, text, look).await
                }
                Some(Inbox::Server { socket, server, session_id, terminals }) => {
                    let thread = Thread { socket: &socket, server: &server, id: &session_id };
                    codex::send(thread, terminals, tag, text).await
                }
            };
            match sent {
                Ok(()) => Handed::Over,
                Err(NotSent::Refused(why)) => Handed::Failed(why),
                Err(NotSent::Unclear(why)) => Handed::Unknown(why),
                Err(NotSent::Busy) => Handed::NotNow { because: WaitReason::Working, retry: BUSY_RETRY },
                Err(NotSent::Asking) => Handed::NotNow { because: WaitReason::Asking, retry: ASKING_RETRY },
                Err(NotSent::Unwatched) => Handed::NotNow { because: WaitReason::NoWay, retry: UNWATCHED_RETRY },
            }
        })
    }

    fn look<'a>(&'a self, attempt: &'a Begun) -> InItsTime<'a, Arrived> {
        Box::pin(async move {
            if let Some(Inbox::Server { socket, server, session_id, .. }) = self.0.inbox(&attempt.agent_id).await {
                let thread = Thread { socket: &socket, server: &server, id: &session_id };
                if codex::has(thread, &attempt.tag).await == Some(true) {
                    return Arrived::Yes;
                }
            }
            let (sessions, agent_id, tag) = (self.0.clone(), attempt.agent_id.clone(), attempt.tag.clone());
            let look = move || {
                let shows = |path: &Path| transcript::shows_block(path, &tag).unwrap_or(false);
                sessions.transcripts(&agent_id).iter().any(|path| shows(path))
            };
            match tokio::task::spawn_blocking(look).await {
                Ok(true) => Arrived::Yes,
                _ => Arrived::Unknown,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_has_begun_to_work_or_to_ask_is_handed_nothing() {
        use SessionStatus::{Asking, Busy, Idle};
        assert_eq!((may_take(true, Some(Idle)), may_take(true, None)), (Ok(()), Ok(())));
        assert_eq!(may_take(true, Some(Busy)), Err(NotSent::Busy));
        assert_eq!(may_take(true, Some(Asking)), Err(NotSent::Asking));
        assert!(matches!(may_take(false, Some(Idle)), Err(NotSent::Refused(_))), "/clear");
    }
}
