//! `tt`: the command line as a program. Everything is in the library.
//!
//! The C library calls `main` here by its name. What Rust does before a `main` of its own, reading the map of the process's
//! memory to guard its stack, takes a short command longer than its arguments do; what a program needs of it is done here.
#![no_main]
#![expect(unsafe_code, reason = "the C library calls main, and signals and descriptors are set before anything runs")]

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, IntoRawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::stat::Mode;

/// What a program that panicked ends with.
const PANICKED: c_int = 101;

#[unsafe(no_mangle)]
pub extern "C" fn main() -> c_int {
    open_the_standard_streams();
    // SAFETY: nothing else runs yet, and to ignore a signal runs no code of ours. Whoever stops reading is told by an error.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    std::panic::catch_unwind(tt_client::main).map_or(PANICKED, c_int::from)
}

/// A descriptor below 3 that is closed would be given to the next file that is opened, which would then be written to.
fn open_the_standard_streams() {
    for fd in 0..3 {
        // SAFETY: it is only asked whether the descriptor is open.
        let closed = unsafe { fcntl(BorrowedFd::borrow_raw(fd), FcntlArg::F_GETFD) } == Err(Errno::EBADF);
        if closed {
            // The lowest that is free is this one, and it stays open.
            let _ = open("/dev/null", OFlag::O_RDWR, Mode::empty()).map(IntoRawFd::into_raw_fd);
        }
    }
}
