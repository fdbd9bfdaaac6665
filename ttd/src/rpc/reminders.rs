//! `add_reminder`, `list_reminders`, `cancel_reminder`.

use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::Extensions;
use tt_proto::reminder::{MAX_REMINDERS, Reminder};
use tt_proto::requests::{AddReminder, CancelReminder, ListReminders, ReminderCancelled, ReminderList};
use tt_proto::{AgentId, Error, ErrorCode, ReminderId, RoomId};
use tt_rules::{Command, NewReminder, Now, ReminderRow, Reply};
use tt_store::Page;

use super::register::{Module, register};
use super::{Call, Shared};
use crate::engine::Outcome;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<AddReminder, _>(module, add_reminder)?;
    register::<ListReminders, _>(module, list_reminders)?;
    register::<CancelReminder, _>(module, cancel_reminder)
}

async fn add_reminder(shared: Arc<Shared>, extensions: Extensions, request: AddReminder) -> Result<Reminder, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let AddReminder { body, in_ms, to, every_ms, times, .. } = request;
    if every_ms.is_some() && times.is_none() {
        return Err(Error::new(ErrorCode::InvalidInput, "a reminder does not go on for ever")
            .hint("say how many times it is sent: times, or --times N"));
    }
    let command = Command::AddReminder(NewReminder {
        reminder_id: ReminderId::fresh(),
        body,
        to,
        delay: Duration::from_millis(in_ms),
        every: every_ms.map(Duration::from_millis),
        times: times.unwrap_or(1),
    });
    let answer = |outcome: &Outcome<'_>| match outcome.reply {
        Reply::Reminder(row) => Some(reminder(&outcome.room.room_id, row, outcome.now)),
        _ => None,
    };
    let added = shared.engine.run(&room_id, context, command, answer).await?;
    added.ok_or_else(|| Error::new(ErrorCode::StorageUnavailable, "the reminder has no answer"))
}

/// A reminder as it is shown.
fn reminder(room_id: &RoomId, row: &ReminderRow, now: Now) -> Reminder {
    Reminder {
        reminder_id: row.reminder_id.clone(),
        room_id: room_id.clone(),
        from_agent_id: row.from.clone(),
        to_agent_id: (row.to != row.from).then(|| row.to.clone()),
        body: row.body.clone(),
        due_at: now.deadline_to_wall(row.due_at),
        every_ms: row.every.map(|every| u64::try_from(every.as_millis()).unwrap_or(u64::MAX)),
        times: row.times,
    }
}

async fn list_reminders(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ListReminders,
) -> Result<ReminderList, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id)?;
    let me = call.identity()?.agent_id.clone();
    shared.engine.seen(&me);
    let now = shared.engine.clock().now();
    let _room = call.answer_room().await;
    let rows = rows(&shared, &room_id, me).await?;
    let reminders = rows.iter().map(|row| Ok::<_, Error>(reminder(&room_id, row, now)));
    let page = Page::of(reminders, MAX_REMINDERS)?;
    Ok(ReminderList { reminders: page.items, more: page.more })
}

async fn rows(shared: &Shared, room_id: &RoomId, me: AgentId) -> Result<Vec<ReminderRow>, Error> {
    let view = move |room: &tt_rules::Room, reader: &dyn tt_store::Reader| {
        reader.reminders(&room.room_id, &me, MAX_REMINDERS + 1)
    };
    shared.engine.look(room_id, view).await
}

async fn cancel_reminder(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: CancelReminder,
) -> Result<ReminderCancelled, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let asked = request.reminder_id;
    let rows = rows(&shared, &room_id, context.agent_id().clone()).await?;
    let begins =
        |row: &&ReminderRow| !asked.as_str().is_empty() && row.reminder_id.as_str().starts_with(asked.as_str());
    let found: Vec<&ReminderRow> = rows.iter().filter(begins).collect();
    let reminder_id = match found.as_slice() {
        [] => asked,
        [only] => only.reminder_id.clone(),
        several => {
            let candidates: Vec<&str> = several.iter().take(5).map(|row| row.reminder_id.as_str()).collect();
            let message = format!("{:?} begins the ids of several reminders", asked.as_str());
            return Err(Error::new(ErrorCode::UnknownReminder, message)
                .hint("write more of the id; tt remind list shows them")
                .detail("candidates", candidates));
        }
    };
    let answer = ReminderCancelled { reminder_id: reminder_id.clone() };
    shared.engine.run(&room_id, context, Command::CancelReminder { reminder_id }, move |_| answer.clone()).await
}
