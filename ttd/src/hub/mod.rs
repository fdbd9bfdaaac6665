//! What lives only while the daemon runs: who waits, who listens, who was last seen when, and which deadline comes next.
//!
//! The hub decides nothing. After a commit it is told what to tell whom, and tells them.

mod deadlines;
mod inbox;
mod presence;
mod subscribers;
mod waiters;

pub use deadlines::Deadlines;
pub use inbox::{Inbox, Listener, Owner, Taken as TakenMessages};
pub use presence::{Presence, Unwritten, WRITE_BEHIND};
pub use subscribers::{News, Subscribers};
pub use waiters::{Place, Waiters};

/// Everything in memory.
#[derive(Debug, Default)]
pub struct Hub {
    pub waiters: Waiters,
    pub presence: Presence,
    pub deadlines: Deadlines,
    pub inbox: Inbox,
    pub subscribers: Subscribers,
}
