//! `tt-console`: the rooms, members and messages of Talking Stick on one screen, for the person who runs the agents.
//!
//! It is a client like any other: it subscribes, and has no rule of its own. `model` is what is known, `update` and `keys` change it,
//! `view` shows it, and all of these are pure; `connection` and `deeds` talk to the daemon, `terminal` to the terminal, `program`
//! joins them.

mod connection;
mod deeds;
pub mod exchange;
pub mod input;
mod keys;
pub mod model;
mod program;
mod terminal;
pub mod timeline;
mod update;
pub mod view;

pub use program::main;
