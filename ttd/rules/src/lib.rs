//! What a command does to a room, as pure functions over plain data.
//!
//! [`decide`] takes a [`Room`], the [`Rows`] a [`Command`] needs and the time, and returns a [`Decision`]: the room as it
//! is afterwards, what is added to the log, what happens to deliveries and notes, and what is to be done after the commit.
//! A refusal is an error and changes nothing.
//!
//! There is no SQL, clock, process, socket or runtime here. Everything the rules know about the world is in their
//! arguments, so the same input always gives the same decision, and a decision can be made again.

mod attempts;
mod command;
mod decide;
mod delivery;
mod effect;
pub mod fairness;
mod guard;
mod membership;
pub mod names;
mod notes;
mod notices;
mod reminders;
pub mod resolution;
mod room;
mod sending;
pub mod takeover;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod time;
mod turn;
mod wakes;

pub use attempts::{Attempt, Handled, MAX_ATTEMPTS};
pub use command::{
    Caller, Command, ConnectionId, Needs, NewReminder, Overview, Recipients, Request, Rows, SendOptions, TakeAccess,
};
pub use decide::{Decision, Reply, decide};
pub use delivery::{DeliveryChange, DeliveryRow, MAX_TAKE, MessageRow, NewDelivery};
pub use effect::{Due, Effect, TimerKey};
pub use fairness::goes_before;
pub use guard::{Blocker, GiveBackCause, GuardedAction, MAX_EDITED_FILES, Verdict, wanted_by};
pub use notes::NoteChange;
pub use reminders::{ReminderChange, ReminderRow};
pub use room::{EventDraft, HandoffAt, HeldHandoff, Member, Removal, Room, TurnEdits, Waiting};
pub use time::{DeadlineTime, LeaseTime, Now};
pub use turn::{Turn, WaitEnd};
pub use wakes::Wakes;
