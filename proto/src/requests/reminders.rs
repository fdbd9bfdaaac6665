//! Reminders.

use serde::{Deserialize, Serialize};

use super::field::methods;
use crate::compact::is_false;
use crate::reminder::Reminder;
use crate::{ReminderId, RoomId};

methods! {
    /// Sets a reminder: a message that is sent later, to the caller or another member.
    AddReminder = "add_reminder" -> Reminder {
        room_id: RoomId,
        body: String,
        in_ms: u64,
        /// The recipient by what people type; the caller if absent.
        to: Option<String>,
        /// After the first time, again and again with this pause.
        every_ms: Option<u64>,
        /// How many times in all. Needed with `every_ms`.
        times: Option<u32>,
        idempotency_key: Option<String>,
    }

    /// Lists the reminders that the caller set and those that others set for it, the next one first.
    ListReminders = "list_reminders" -> ReminderList {
        room_id: RoomId,
    }

    /// Cancels a reminder that the caller set, or that is for it.
    CancelReminder = "cancel_reminder" -> ReminderCancelled {
        room_id: RoomId,
        /// The id, or its beginning.
        reminder_id: ReminderId,
        idempotency_key: Option<String>,
    }
}

/// The answer to `list_reminders`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReminderList {
    pub reminders: Vec<Reminder>,
    /// Whether there are more.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The answer to `cancel_reminder`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReminderCancelled {
    pub reminder_id: ReminderId,
}
