//! `tt`: the command line as a program. Everything is in the library.
#![cfg_attr(all(target_os = "linux", target_env = "gnu"), no_main)]

/// Elsewhere arguments are not known before Rust's own beginning.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn main() -> std::process::ExitCode {
    tt_client::main().into()
}

/// With glibc the C library calls `main` here by its name. What Rust does before a `main` of its own, reading the map of the
/// process's memory to guard its stack, takes a short command longer than its arguments do; what a program needs of it is
/// done here.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "the C library calls main, and signals and descriptors are set before anything runs")]
mod entry {
    use nix::libc::{self, c_int};

    /// What a program that panicked ends with.
    const PANICKED: c_int = 101;

    #[unsafe(no_mangle)]
    extern "C" fn main() -> c_int {
        open_the_standard_streams();
        // SAFETY: nothing else runs yet, and to ignore a signal runs no code of ours. Whoever stops reading is told by an error.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        // Whatever was to be written has been: nothing waits here for a reader that stalls.
        std::panic::catch_unwind(tt_client::main).map_or(PANICKED, c_int::from)
    }

    /// A descriptor below 3 that is closed would be given to the next file that is opened, and that would be written to.
    fn open_the_standard_streams() {
        for fd in 0..3 {
            // SAFETY: both calls take integers and a constant; a new descriptor is the lowest that is free, this one, and it
            // stays open for the life of the process.
            let closed = unsafe {
                libc::fcntl(fd, libc::F_GETFD) == -1 && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) == -1
            };
            if closed {
                std::process::abort();
            }
        }
    }
}
