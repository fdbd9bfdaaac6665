//! What happens in rooms: turns, messages, membership.

mod limits;
mod messages;
mod names;
mod payloads;
mod receive;
mod rooms;
mod turns;
mod waits;
