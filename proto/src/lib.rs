//! What both ends agree on: the words of the protocol as types, the error codes, the RPC trait, and where files lie.
//!
//! Nothing here does I/O beyond looking at a path, knows SQL, or parses a command line.

pub mod api;
pub mod delivery;
pub mod error;
pub mod event;
pub mod filesystem;
pub mod filter;
pub mod handoff;
pub mod hello;
pub mod ids;
pub mod message;
pub mod note;
pub mod paths;
pub mod policy;
pub mod room;
pub mod time;
pub mod turn;

pub use error::{Error, ErrorCode};
pub use ids::{AgentId, EventId, LeaseId, NoteId, RoomId};
pub use time::WallTime;

/// The number both ends speak. It goes up only when an older peer could misread a newer one.
pub const PROTOCOL: u32 = 1;

/// The oldest protocol number a daemon of this version still serves.
pub const MIN_PROTOCOL: u32 = 1;

/// The version of this build, as it stands in every `hello`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// No request may be larger than this; a message body is far smaller.
pub const MAX_REQUEST_BYTES: u32 = 1024 * 1024;

/// No answer may be larger than this: a page of the log with the longest handoffs in it fits.
pub const MAX_RESPONSE_BYTES: u32 = 16 * 1024 * 1024;
