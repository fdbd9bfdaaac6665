//! Why a command failed, and the status the program exits with.

use std::io;

use tt_proto::{Error, ErrorCode};

/// The exit codes, which `docs/receive-contract.md` lists for scripts.
const EXIT_FAILURE: u8 = 1;
pub(crate) const EXIT_USAGE: u8 = 2;
pub(crate) const EXIT_REFUSED: u8 = 3;
const EXIT_NO_DAEMON: u8 = 4;
/// Nothing came: no stick, no message, the time is up.
pub(crate) const EXIT_NOTHING: u8 = 5;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The daemon refused the request, or the client refused it on the daemon's behalf.
    #[error("{0}")]
    Refused(Error),
    /// No daemon could be reached or started.
    #[error("{0}")]
    NoDaemon(Error),
    /// Something failed in the client.
    #[error("{0}")]
    Local(Error),
    /// The answer was given, and this status is part of it.
    #[error("the answer was given")]
    Status(u8),
    /// Standard output could not be written.
    #[error("the answer cannot be written: {0}")]
    Output(#[from] io::Error),
}

impl From<Error> for CommandError {
    fn from(e: Error) -> Self {
        match e.code {
            ErrorCode::DaemonUnreachable => Self::NoDaemon(e),
            _ => Self::Refused(e),
        }
    }
}

impl CommandError {
    /// The failure of a connection that was not established.
    pub(crate) fn from_connect(error: Error) -> Self {
        match error.code {
            ErrorCode::InvalidInput | ErrorCode::ProtocolMismatch => Self::Refused(error),
            _ => Self::NoDaemon(error),
        }
    }

    /// The status the program exits with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => EXIT_REFUSED,
            Self::NoDaemon(_) => EXIT_NO_DAEMON,
            Self::Local(_) => EXIT_FAILURE,
            Self::Status(status) => *status,
            // The reader closed its end, as `head` does. That is no error.
            Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => 0,
            Self::Output(_) => EXIT_FAILURE,
        }
    }

    /// What the caller is told. None if there is nothing to report.
    pub(crate) fn report(&self) -> Option<Error> {
        match self {
            Self::Refused(e) | Self::NoDaemon(e) | Self::Local(e) => Some(e.clone()),
            Self::Status(_) => None,
            Self::Output(e) if e.kind() == io::ErrorKind::BrokenPipe => None,
            Self::Output(_) => {
                let error = Error::new(ErrorCode::StorageUnavailable, self.to_string());
                Some(error.hint(
                    "the command may have been carried out; check with tt state, and write to a place with free space",
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_has_its_exit_code() {
        let error = |code| Error::new(code, "x");
        let codes = [
            (CommandError::from(error(ErrorCode::StaleLease)), 3),
            (CommandError::from(error(ErrorCode::DaemonUnreachable)), 4),
            (CommandError::from_connect(error(ErrorCode::ProtocolMismatch)), 3),
            (CommandError::from_connect(error(ErrorCode::StorageUnavailable)), 4),
            (CommandError::Local(error(ErrorCode::InvalidInput)), 1),
            (CommandError::Output(io::ErrorKind::BrokenPipe.into()), 0),
            (CommandError::Output(io::ErrorKind::StorageFull.into()), 1),
        ];
        for (failure, code) in codes {
            assert_eq!(failure.exit_code(), code, "{failure:?}");
            assert_eq!(failure.report().is_none(), code == 0, "{failure:?}");
        }
        let nothing = CommandError::Status(EXIT_NOTHING);
        assert_eq!((nothing.exit_code(), nothing.report()), (5, None), "the answer says it all");
    }
}
