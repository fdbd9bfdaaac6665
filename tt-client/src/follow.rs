//! What commands that keep running share: a runtime, signals, and lines written to a reader that may stall or go away.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tt_proto::{Error, ErrorCode};

use crate::error::CommandError;
use crate::output::{Format, Output};
use crate::text::Style;

/// Runs a command that keeps running, in a runtime on this thread.
pub(crate) fn block_on<T>(command: impl Future<Output = Result<T, CommandError>>) -> Result<T, CommandError> {
    // A local runtime, because the code of any other includes a scheduler of many threads, which needs the library of
    // mathematics: one file more to open and map for every command that starts.
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).map_err(|e| {
        CommandError::Local(Error::new(ErrorCode::InvalidInput, format!("the runtime could not be started: {e}")))
    })?;
    let result = runtime.block_on(command);
    // The process ends now. A blocking thread may still wait for a lock, and is not waited for.
    runtime.shutdown_background();
    result
}

/// The signals that end a command in an orderly way.
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
        self.next().await;
    }

    /// The next of them.
    pub(crate) async fn next(&mut self) -> nix::sys::signal::Signal {
        tokio::select! {
            _ = self.terminate.recv() => nix::sys::signal::Signal::SIGTERM,
            _ = self.interrupt.recv() => nix::sys::signal::Signal::SIGINT,
            _ = self.hangup.recv() => nix::sys::signal::Signal::SIGHUP,
        }
    }
}

/// Resolves when the process that reads standard output has gone away, so that a stream without a reader ends. A file
/// has no reader. The future occupies a thread, so it is made once and then kept.
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

/// The result of writing to standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteResult {
    Written,
    /// The reader went away: nothing more can be shown.
    ReaderGone,
}

/// A line that is being written on a thread of its own, so that a reader that stalls does not delay a signal.
pub(crate) struct LineWrite(JoinHandle<std::io::Result<()>>);

impl LineWrite {
    pub(crate) fn start<T: Serialize>(
        output: &Output,
        item: &T,
        text: impl FnOnce(&T, &Style) -> String,
    ) -> Result<Self, CommandError> {
        let line = output.line(item, text)?;
        Ok(Self(tokio::task::spawn_blocking(move || {
            let mut out = std::io::stdout().lock();
            out.write_all(line.as_bytes()).and_then(|()| out.flush())
        })))
    }

    /// Waits for the result. May be called again after it was dropped before the result was there.
    pub(crate) async fn result(&mut self) -> Result<WriteResult, CommandError> {
        match (&mut self.0).await.map_err(std::io::Error::other)? {
            Ok(()) => Ok(WriteResult::Written),
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(WriteResult::ReaderGone),
            Err(e) => Err(e.into()),
        }
    }
}

/// Writes a line.
pub(crate) async fn write_line<T: Serialize>(
    output: &Output,
    item: &T,
    text: impl FnOnce(&T, &Style) -> String,
) -> Result<WriteResult, CommandError> {
    LineWrite::start(output, item, text)?.result().await
}

/// Ends the line on which the terminal of a person shows the `^C` that ended the command.
pub(crate) fn end_typed_line(output: &Output, signal: nix::sys::signal::Signal) {
    let mut stderr = std::io::stderr();
    if signal == nix::sys::signal::Signal::SIGINT && output.format == Format::Text && stderr.is_terminal() {
        let _ = writeln!(stderr);
    }
}

/// Prints on standard error, for a program, the cursor to continue from.
pub(crate) fn print_cursor(output: &Output, cursor: i64) {
    if output.format == Format::Json {
        let _ = writeln!(std::io::stderr(), "{{\"cursor_event_seq\":{cursor}}}");
    }
}
