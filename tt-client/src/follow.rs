//! Streams: one line an event, until a signal or the reader says it is enough.

use std::io::Write;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;

use crate::Failure;
use crate::output::Output;
use crate::text::Style;

/// The signals that end a stream in order.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}

/// Resolves when whoever reads standard output has gone away, so that a stream nobody reads does not stay for ever. A file
/// has no such reader. It keeps a thread, so it is asked for once and then held.
pub(crate) async fn reader_gone() {
    let watch = tokio::task::spawn_blocking(|| {
        let stdout = std::io::stdout();
        // Asked for nothing, the kernel tells only that the other end is closed.
        let mut stdout = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
        while poll(&mut stdout, PollTimeout::NONE) == Err(Errno::EINTR) {}
        stdout[0].revents().is_some_and(|what| what.intersects(PollFlags::POLLERR | PollFlags::POLLHUP))
    });
    if !matches!(watch.await, Ok(true)) {
        std::future::pending().await
    }
}

/// How writing to the stream went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrote {
    All,
    /// The reader went away: nothing more can be shown.
    ReaderGone,
}

/// A line on its way to the reader, on a thread of its own, so that a reader that stalls keeps nobody from hearing a signal.
pub(crate) struct Writing(JoinHandle<std::io::Result<()>>);

impl Writing {
    pub(crate) fn start<T: Serialize>(
        output: &Output,
        item: &T,
        text: impl FnOnce(&T, &Style) -> String,
    ) -> Result<Self, Failure> {
        let line = output.line(item, text)?;
        Ok(Self(tokio::task::spawn_blocking(move || {
            let mut out = std::io::stdout().lock();
            out.write_all(line.as_bytes()).and_then(|()| out.flush())
        })))
    }

    /// How it went, once it is known. May be asked again by whoever was interrupted.
    pub(crate) async fn done(&mut self) -> Result<Wrote, Failure> {
        match (&mut self.0).await.map_err(std::io::Error::other)? {
            Ok(()) => Ok(Wrote::All),
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(Wrote::ReaderGone),
            Err(e) => Err(e.into()),
        }
    }
}

/// Writes a line.
pub(crate) async fn write<T: Serialize>(
    output: &Output,
    item: &T,
    text: impl FnOnce(&T, &Style) -> String,
) -> Result<Wrote, Failure> {
    Writing::start(output, item, text)?.done().await
}

/// Says on standard error where to go on from.
pub(crate) fn say_cursor(cursor: i64) {
    let _ = writeln!(std::io::stderr(), "{{\"cursor_event_seq\":{cursor}}}");
}
