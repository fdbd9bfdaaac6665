//! What the daemon and its clients share: the requests and answers of the protocol, the error codes, and the paths of
//! files.
//!
//! This crate has no runtime, no SQL and no command line, and does no I/O beyond looking at a path.

pub mod block;
mod compact;
pub mod delivery;
pub mod error;
pub mod escape;
pub mod event;
pub mod filesystem;
pub mod filter;
pub mod handoff;
pub mod hello;
pub mod ids;
pub mod message;
pub mod names;
pub mod note;
pub mod page;
pub mod paths;
pub mod policy;
pub mod reminder;
pub mod requests;
pub mod room;
pub mod search;
pub mod session;
pub mod time;
pub mod turn;

pub use error::{Error, ErrorCode};
pub use ids::{AgentId, EventId, LeaseId, NoteId, ReminderId, RoomId};
pub use time::WallTime;

/// The protocol number. It goes up only when an older peer could misread a newer one.
pub const PROTOCOL: u32 = 1;

/// The oldest protocol number a daemon of this version still serves.
pub const MIN_PROTOCOL: u32 = 1;

/// The version of this build, sent in every `hello`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The largest request, in bytes. A message body is far smaller.
pub const MAX_REQUEST_BYTES: u32 = 1024 * 1024;

/// The largest answer, in bytes. A page of the log with the longest handoffs in it fits.
pub const MAX_RESPONSE_BYTES: u32 = 16 * 1024 * 1024;
