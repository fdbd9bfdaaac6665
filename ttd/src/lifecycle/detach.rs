//! Becoming a daemon: a session of its own, no descriptors of the process that started it, no working directory to keep
//! busy.
//!
//! The client that spawns us has cleared the environment and set the standard streams: null, the readiness pipe, the log.

use std::io::Write;

use tt_proto::Error;

use super::Ready;

/// Leaves the starter's session, directory and open files. Must come before anything else is opened.
pub fn detach() -> std::io::Result<()> {
    close_inherited();
    // Fails only for a process-group leader, which a freshly spawned child is not; a second session changes nothing.
    let _ = nix::unistd::setsid();
    std::env::set_current_dir("/")
}

/// A harness may leave descriptors open to its children; keeping them would keep the harness waiting on us.
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return };
    let open: Vec<i32> = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd > 2) {
        // The directory's own descriptor is among them and already closed.
        let _ = nix::unistd::close(fd);
    }
}

/// Reports the outcome of the start to the waiting client on standard output, then closes the pipe.
pub fn report(outcome: &Result<Ready, Error>) {
    let line = match outcome {
        Ok(ready) => serde_json::json!({ "ready": ready }),
        Err(error) => serde_json::json!({ "failed": error }),
    };
    // The client may have given up waiting; the daemon serves the next one.
    let _ = writeln!(std::io::stdout(), "{line}");
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(null);
    }
}
