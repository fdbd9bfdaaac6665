//! Text for people: how members are named, how rooms and events are described, and how it is all laid out on a terminal.

pub(crate) mod layout;
pub(crate) mod names;
pub(crate) mod render;
pub(crate) mod shell;
mod style;

pub use style::Style;
