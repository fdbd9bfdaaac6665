//! The command line: what people and agents type, see and install.

mod arguments;
mod command_line;
mod docs;
mod glance;
mod guard;
mod guard_git;
mod hook;
mod install;
mod install_hooks;
mod mcp;
mod readme;
mod screens;
mod shells;
mod skill;
mod speaking;
mod standing;
mod terminal_safety;
mod terminals;
mod watching;
