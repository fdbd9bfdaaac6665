//! The test kit: a home of its own for every test, daemons in process and as programs, processes that play a harness or
//! exist on paper only, and raw bytes on the wire.
//!
//! Nothing here sleeps. Waiting means waiting for an event (a process ends, a lock comes free, a pipe closes), and every
//! wait has a limit, so that a broken daemon fails a test instead of hanging it.

pub mod cast;
pub mod codex_server;
pub mod golden;
pub mod harness;
pub mod home;
pub mod in_process;
pub mod member;
pub mod process;
pub mod relay;
pub mod run;
pub mod scene;
pub mod terminal;
pub mod wire;

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

pub use cast::Cast;
pub use codex_server::{CodexServer, Manner};
pub use harness::Harness;
pub use home::Home;
pub use in_process::{Hanging, InProcess};
pub use member::Member;
pub use relay::Relay;
pub use run::{Finished, Lines, Running};
pub use scene::{Scene, Turn};
pub use wire::Wire;

/// No event a test waits for takes longer than this, even on a machine that is busy with something else.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The user whom nothing belongs to, for tests that need a second one.
pub const NOBODY: u32 = 65534;

/// Whether this process may become other users.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Says that this machine cannot show something. Written past the test runner's capture, so that it is seen.
pub fn not_run(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {what}: {why}");
}

/// Runs what may block on a thread of its own and waits for it, no longer than the limit.
pub fn within<T: Send + 'static>(limit: Duration, blocking: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, done) = mpsc::channel();
    std::thread::spawn(move || sender.send(blocking()));
    done.recv_timeout(limit).ok()
}

/// Runs a test of the client library to its end, within the limit.
#[track_caller]
pub fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|e| panic!("no runtime: {e}"));
    let done = runtime.block_on(async { tokio::time::timeout(LIMIT, test).await });
    // A thread that waits for a lock is not waited for.
    runtime.shutdown_background();
    done.unwrap_or_else(|_| panic!("not done after {LIMIT:?}"))
}
