//! Streams: one line an event, until a signal or the reader says it is enough.

use std::io::Write;

use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::Failure;
use crate::output::{Output, Style};

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

/// How writing to the stream went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrote {
    All,
    /// The reader went away: nothing more can be shown.
    ReaderGone,
}

/// Writes a line on a thread of its own, so that a reader that stalls keeps nobody from hearing a signal.
pub(crate) async fn write<T: Serialize>(
    output: &Output,
    item: &T,
    text: impl FnOnce(&T, &Style) -> String,
) -> Result<Wrote, Failure> {
    let line = output.line(item, text)?;
    let written = tokio::task::spawn_blocking(move || {
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush())
    });
    match written.await.map_err(std::io::Error::other)? {
        Ok(()) => Ok(Wrote::All),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(Wrote::ReaderGone),
        Err(e) => Err(e.into()),
    }
}

/// Says on standard error where to go on from.
pub(crate) fn say_cursor(cursor: i64) {
    let _ = writeln!(std::io::stderr(), "{{\"cursor_event_seq\":{cursor}}}");
}
