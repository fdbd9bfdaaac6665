//! The daemon as a process: its life, its files, who calls it.

mod hanging;
mod identity;
mod layers;
mod layout;
mod lifecycle;
mod lost_files;
mod namespaces;
mod native;
mod recovery;
mod service;
mod sessions;
mod terminal_way;
mod versions;
