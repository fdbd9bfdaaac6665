//! When a client starts the daemon, replaces it, connects again or gives up. Both clients follow these rules; each greets
//! the daemon and waits in its own way.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use tt_proto::paths::is_private_dir;
use tt_proto::requests::Welcome;
use tt_proto::{Error, ErrorCode};

use super::socket::{self, Opened};
use super::{CallError, GreetError, Settings, busy, other_user, replace, start, unreachable, unreadable};

/// The attempts to establish one connection.
#[derive(Debug)]
pub(super) struct Attempts {
    settings: Settings,
    give_up: Instant,
    started: bool,
    replaced: bool,
}

/// What to do after the daemon was greeted.
#[derive(Debug)]
pub(super) enum Next {
    /// Use the connection.
    Keep(Box<Welcome>),
    /// Replace the daemon with this pid, which is older, and connect again.
    Replace { pid: u32 },
    /// Connect again after [`super::RECONNECT_DELAY`].
    Retry,
}

impl Attempts {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        is_private_dir(settings.paths.socket_dir())?;
        let give_up = Instant::now() + settings.deadline;
        Ok(Self { settings: settings.clone(), give_up, started: false, replaced: false })
    }

    /// Connects to the socket, and starts the daemon first if there is none and it may be started. Blocks.
    pub(super) fn open(&mut self) -> Result<UnixStream, Error> {
        let settings = &self.settings;
        loop {
            match socket::open(&settings.paths.socket, settings.deadline) {
                Opened::Stream(stream) => return Ok(stream),
                Opened::NoDaemon if self.started && Instant::now() >= self.give_up => {
                    return Err(unreachable(settings, "it starts, and then nobody listens"));
                }
                Opened::NoDaemon if settings.autostart => {
                    start(settings)?;
                    // A start may take long; the new daemon has the whole deadline to answer.
                    if !std::mem::replace(&mut self.started, true) {
                        self.give_up = Instant::now() + settings.deadline;
                    }
                }
                Opened::NoDaemon => {
                    return Err(Error::new(ErrorCode::DaemonUnreachable, "no daemon is running, and autostart is off")
                        .hint("start it with `tt daemon start`, or drop --no-autostart and TT_NO_AUTOSTART"));
                }
                Opened::Busy => return Err(busy(settings)),
                Opened::Failed(error) => return Err(error),
            }
        }
    }

    /// How long the daemon may take to answer the greeting.
    pub(super) fn time_left(&self) -> Duration {
        self.give_up.saturating_duration_since(Instant::now())
    }

    /// Decides what to do after a greeting.
    pub(super) fn after_greeting(&mut self, result: Result<Welcome, GreetError>) -> Result<Next, Error> {
        let settings = &self.settings;
        let outdated = match &result {
            Ok(welcome) => replace::should_replace(settings, welcome).then_some(welcome.pid),
            Err(GreetError::Call(CallError::Refused(error))) => replace::outdated(settings, error),
            Err(_) => None,
        };
        if let Some(pid) = outdated.filter(|_| !self.replaced) {
            self.replaced = true;
            return Ok(Next::Replace { pid });
        }
        match result {
            Ok(welcome) => Ok(Next::Keep(Box::new(welcome))),
            Err(GreetError::OtherUser(uid)) => Err(other_user(settings, uid)),
            Err(GreetError::Call(error)) => match error {
                CallError::Refused(error) => Err(error),
                CallError::TimedOut => Err(busy(settings)),
                CallError::Unreadable(e) => Err(unreadable(&e)),
                CallError::Cut(why) if Instant::now() >= self.give_up => Err(unreachable(settings, &why)),
                // It was stopping, or closed this connection to make room: the next attempt reaches its successor.
                CallError::Cut(_) => Ok(Next::Retry),
            },
        }
    }

    /// Gives the daemon that succeeds a replaced one the whole deadline.
    pub(super) fn restart_deadline(&mut self) {
        self.give_up = Instant::now() + self.settings.deadline;
    }
}

/// Decides whether a call that got no answer is made again on a new connection.
#[derive(Debug, Default)]
pub(super) struct Retry {
    cut_since: Option<Instant>,
    /// How often the daemon did not know whether the call was carried out.
    unknown: u32,
}

/// How often a call is repeated because the daemon did not know whether it was carried out.
const MAX_UNKNOWN: u32 = 3;

impl Retry {
    /// Returns if the call is to be made again, after a reconnect; otherwise fails with the error to report. `took` is how
    /// long the call was under way.
    pub(super) fn after(&mut self, settings: &Settings, error: CallError, took: Duration) -> Result<(), Error> {
        let why = match error {
            CallError::TimedOut => return Err(busy(settings)),
            // A daemon that is stopping says so; the next one takes the call.
            CallError::Refused(stopping) if stopping.code == ErrorCode::DaemonUnreachable => stopping.message,
            // The call has its key, or only reads: once more, and the daemon finds out.
            CallError::Refused(error) if error.code == ErrorCode::OutcomeUnknown && self.unknown < MAX_UNKNOWN => {
                self.unknown += 1;
                error.message
            }
            CallError::Refused(error) => return Err(error),
            // It was answered, and perhaps carried out: repeating it would not make the answer readable.
            CallError::Unreadable(e) => return Err(unreadable(&e)),
            CallError::Cut(why) => why,
        };
        // A daemon that had the call for a while did not crash because of it: it was restarted.
        if took >= settings.deadline / 10 {
            self.cut_since = None;
        }
        if self.cut_since.get_or_insert_with(Instant::now).elapsed() >= settings.deadline {
            return Err(unreachable(settings, &why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tt_proto::paths::Environment;

    use super::*;

    #[test]
    fn a_call_with_an_unknown_outcome_is_repeated_a_few_times() {
        let settings = Settings::from_environment(Environment::of([("HOME", "/nowhere")])).unwrap();
        let unknown = || CallError::Refused(Error::new(ErrorCode::OutcomeUnknown, "the disk failed"));
        let mut retry = Retry::default();
        for _ in 0..MAX_UNKNOWN {
            assert_eq!(retry.after(&settings, unknown(), Duration::ZERO), Ok(()));
        }
        let error = retry.after(&settings, unknown(), Duration::ZERO).unwrap_err();
        assert_eq!(error.code, ErrorCode::OutcomeUnknown);
        let refused = CallError::Refused(Error::new(ErrorCode::StorageUnavailable, "no"));
        assert!(Retry::default().after(&settings, refused, Duration::ZERO).is_err(), "a refusal is an answer");
    }
}
