//! Giving memory back to the system. The C library keeps what was freed in the middle of its heaps, however much it is; a daemon
//! that once had a large client would stay large.
#![expect(unsafe_code, reason = "malloc_trim has no safe wrapper; it takes a number and touches only free memory")]

use std::time::Duration;

use crate::rpc::Connections;

/// How soon after the end of a connection memory is given back. Others may be about to end.
const TRIM_DELAY: Duration = Duration::from_millis(200);

/// Gives memory back after each connection that had much to do with it. Runs until it is cancelled.
pub async fn give_back(connections: Connections) {
    loop {
        connections.large_traffic_ended().await;
        tokio::time::sleep(TRIM_DELAY).await;
        let _ = tokio::task::spawn_blocking(trim).await;
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn trim() {
    // SAFETY: any number is a valid argument, and other threads may use the heap at the same time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
