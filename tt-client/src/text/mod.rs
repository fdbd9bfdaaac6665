//! Text for people: how members are named, how rooms and events are described, and how it is all laid out on a terminal.

pub mod layout;
pub mod names;
pub mod render;
pub(crate) mod shell;
mod style;

pub use style::Style;
