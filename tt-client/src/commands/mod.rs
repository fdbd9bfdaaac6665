//! One file per command.

pub(crate) mod completions;
pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod heartbeat;
pub(crate) mod help;
pub(crate) mod install;
pub(crate) mod join;
pub(crate) mod kick;
pub(crate) mod leave;
pub(crate) mod list;
pub(crate) mod msg;
pub(crate) mod notes;
pub(crate) mod prompt;
pub(crate) mod release;
pub(crate) mod room;
pub(crate) mod run;
pub(crate) mod service;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod take;
pub(crate) mod wait;
pub(crate) mod whoami;
