//! How far messages have come: what is known of their recipients, what that means for a message, and why one waits.

pub mod blocked;
pub mod boundary;
pub mod facts;
pub mod plan;
mod standing;
pub mod told;

pub use standing::{of_message, waits};
