//! One file per command.

pub(crate) mod daemon;
pub(crate) mod demo;
pub(crate) mod service;
pub(crate) mod whoami;
