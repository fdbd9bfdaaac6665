//! The command line: what people and agents type, see and install.

mod arguments;
mod command_line;
mod docs;
mod glance;
mod install;
mod mcp;
mod readme;
mod screens;
mod skill;
mod terminal_safety;
