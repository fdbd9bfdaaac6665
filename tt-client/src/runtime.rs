//! The runtime, made when something first needs it: a command whose one call goes through at once never does.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Builder, Handle, LocalOptions};

/// Descriptors looked after at once; more are looked after one handful after the other.
const EVENTS: usize = 32;

/// Runs the program: as far as it gets without a runtime, and from there in one.
pub(crate) fn run<T>(program: impl Future<Output = T>) -> std::io::Result<T> {
    let mut program = pin!(program);
    if let Poll::Ready(done) = program.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Ok(done);
    }
    // One that can only ever have this thread, and room for a handful of events: what it could do besides is linked and
    // laid out for nothing.
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_io_events_per_tick(EVENTS)
        .build_local(LocalOptions::default())?;
    let done = runtime.block_on(program);
    // The process ends now. A blocking thread may still wait for a lock, and is not waited for.
    runtime.shutdown_background();
    Ok(done)
}

/// Goes on in a runtime. To be awaited before the first use of anything of tokio's that a command may be the first to use.
pub(crate) async fn in_a_runtime() {
    poll_fn(|_| if Handle::try_current().is_ok() { Poll::Ready(()) } else { Poll::Pending }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_there_from_where_it_is_asked_for() {
        assert!(run(async { Handle::try_current().is_err() }).unwrap());
        let slept = run(async {
            let before = Handle::try_current().is_ok();
            in_a_runtime().await;
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            in_a_runtime().await;
            (before, Handle::try_current().is_ok())
        });
        assert_eq!(slept.unwrap(), (false, true));
    }
}
