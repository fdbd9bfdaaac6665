//! How the descriptors that this process may have are shared out, so that none of their uses can take them all.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::rpc::{MAX_CLOSING, MAX_CONNECTIONS};

/// The most descriptors that are asked for. The usual soft limit is lower than it need be.
const MAX_DESCRIPTORS: u64 = 4096;

/// Kept free for the database, the log, and looks at processes and at the disk: a process whose files cannot be opened for want
/// of a descriptor cannot be told from one that hides.
const RESERVE: usize = 64;

/// The fewest connections that are of use to anybody.
const MIN_CONNECTIONS: usize = 8;

/// What connections and watched processes may take, one descriptor each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    pub connections: usize,
    pub watches: usize,
}

impl Descriptors {
    /// Raises the limit of this process as far as that is useful.
    pub fn raise_limit() {
        if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.max(hard.min(MAX_DESCRIPTORS)), hard);
        }
    }

    /// The shares of this process.
    pub fn of_this_process() -> Self {
        let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(256, |(soft, _)| soft);
        Self::of(usize::try_from(limit.min(MAX_DESCRIPTORS)).unwrap_or(256))
    }

    fn of(limit: usize) -> Self {
        let free = limit.saturating_sub(RESERVE + MAX_CLOSING);
        let connections = (free / 2).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS);
        Self { connections, watches: free.saturating_sub(connections) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_watches_leave_the_reserve_alone() {
        for limit in [96, 128, 256, 1024, 4096, 1_000_000] {
            let Descriptors { connections, watches } = Descriptors::of(limit);
            assert!(connections + MAX_CLOSING + watches + RESERVE <= limit, "{limit}");
            assert!(connections >= MIN_CONNECTIONS && watches >= MIN_CONNECTIONS, "{limit}");
        }
        assert_eq!(Descriptors::of(4096).connections, MAX_CONNECTIONS);
        assert_eq!(Descriptors::of(10), Descriptors { connections: MIN_CONNECTIONS, watches: 0 });
    }
}
