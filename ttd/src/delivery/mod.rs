//! How messages reach their recipients: what is known of these, what that means for a message, why one waits, and the driver that
//! hands over what does not come to be taken.

pub mod blocked;
pub mod boundary;
pub mod driver;
pub mod facts;
mod failures;
pub mod native;
pub mod pending;
pub mod plan;
mod recipients;
mod standing;
pub mod terminal;
pub mod told;
pub mod wakes;
pub mod ways;

pub use recipients::Recipients;
pub use standing::{Waiting, of_message, waits};
