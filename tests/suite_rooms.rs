//! What happens in rooms: turns, messages, membership.

mod asking;
mod deliveries;
mod limits;
mod messages;
mod names;
mod payloads;
mod people;
mod receive;
mod rooms;
mod turns;
mod waits;
