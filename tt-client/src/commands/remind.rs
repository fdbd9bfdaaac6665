//! `tt remind`: messages that are written now and sent later.

use std::time::Duration;

use tt_proto::escape::escape_text;
use tt_proto::reminder::Reminder;
use tt_proto::requests::{AddReminder, CancelReminder, ListReminders, ReminderCancelled, ReminderList};
use tt_proto::{Error, ErrorCode, ReminderId};

use super::msg::millis;
use super::notes::short_id;
use crate::Context;
use crate::cli::time_ahead;
use crate::error::CommandError;
use crate::session::{PathFlag, Session, fresh_key};
use crate::text::{Style, names::Names, render};

#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  tt remind 20m \"look at CI\"\n  tt remind 1h \"stand-up\" --to claude\n  tt remind 10m \"still there?\" --every 10m --times 3"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// When (90s, 20m, 2h)
    #[arg(value_name = "D", value_parser = time_ahead)]
    delay: Option<Duration>,
    /// The message
    #[arg(conflicts_with = "message")]
    body: Vec<String>,
    /// The message, as a flag
    #[arg(short, long, value_name = "T")]
    message: Option<String>,
    /// Whom to remind [default: you]
    #[arg(long, value_name = "WHO")]
    to: Option<String>,
    /// Again and again, with this pause
    #[arg(long, value_name = "D", value_parser = time_ahead, allow_hyphen_values = true, requires = "times")]
    every: Option<Duration>,
    /// How many times in all
    #[arg(long, value_name = "N")]
    times: Option<u32>,
    #[command(flatten)]
    path: PathFlag,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show the reminders you set, and those for you
    #[command(after_help = "Example:\n  tt remind list")]
    List {
        #[command(flatten)]
        path: PathFlag,
    },
    /// Cancel a reminder
    #[command(after_help = "Example:\n  tt remind cancel 6f9c0a52")]
    Cancel {
        /// Its id, or as much of it as no other reminder has
        id: String,
        #[command(flatten)]
        path: PathFlag,
    },
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    match args.command {
        Some(Command::List { path }) => list(context, path),
        Some(Command::Cancel { id, path }) => cancel(context, id, path),
        None => add(context, args),
    }
}

fn add(context: &Context, args: Args) -> Result<(), CommandError> {
    let Some(delay) = args.delay else {
        let error = Error::new(ErrorCode::InvalidInput, "a reminder needs a time and a message");
        return Err(CommandError::Refused(error.hint("for example: tt remind 20m \"look at CI\"")));
    };
    let (body, key) = (args.message.unwrap_or_else(|| args.body.join(" ")), fresh_key());
    let add = |room_id| AddReminder {
        room_id,
        body: body.clone(),
        in_ms: millis(delay),
        to: args.to.clone(),
        every_ms: args.every.map(millis),
        times: args.times,
        idempotency_key: key.clone(),
    };
    let (mut session, reminder) = Session::find_and_call(context, args.path, add)?;
    let names = session.names().unwrap_or_default();
    Ok(session.output.answer(&reminder, |reminder: &Reminder, style| {
        let id = style.dim(&escape_text(short_id(reminder.reminder_id.as_str(), &[])));
        format!("{}  {id}", when(reminder, &names))
    })?)
}

/// Whom a reminder reminds, when and how often.
fn when(reminder: &Reminder, names: &Names) -> String {
    let whom = reminder.to_agent_id.as_ref().map_or_else(|| "you".to_owned(), |to| names.get(to));
    let at = render::clock(reminder.due_at, render::now());
    match (reminder.every_ms, reminder.times) {
        (Some(every), times @ 2..) => {
            format!("reminds {whom} {times} times: at {at}, then every {}", render::span(Duration::from_millis(every)))
        }
        _ => format!("reminds {whom} at {at}"),
    }
}

fn list(context: &Context, path: PathFlag) -> Result<(), CommandError> {
    let (mut session, list) = Session::find_and_call(context, path, |room_id| ListReminders { room_id })?;
    let names = session.names().unwrap_or_default();
    Ok(session.output.answer(&list, |list, style| text(list, &names, style))?)
}

fn text(list: &ReminderList, names: &Names, style: &Style) -> String {
    if list.reminders.is_empty() {
        return "no reminders".into();
    }
    let ids: Vec<&str> = list.reminders.iter().map(|reminder| reminder.reminder_id.as_str()).collect();
    let line = |reminder: &Reminder| {
        let id = style.dim(&escape_text(short_id(reminder.reminder_id.as_str(), &ids)));
        let head = format!("{} {}  {id}\n", style.bold(&names.get(&reminder.from_agent_id)), when(reminder, names));
        let body: String = reminder.body.lines().map(|line| style.row("  ", &escape_text(line))).collect();
        style.lines(&head) + &body
    };
    let more = if list.more { style.dim("there are more\n") } else { String::new() };
    list.reminders.iter().map(line).collect::<String>() + &more
}

fn cancel(context: &Context, id: String, path: PathFlag) -> Result<(), CommandError> {
    let (id, key) = (ReminderId::from(id), fresh_key());
    let cancel = |room_id| CancelReminder { room_id, reminder_id: id.clone(), idempotency_key: key.clone() };
    let (session, cancelled) = Session::find_and_call(context, path, cancel)?;
    Ok(session.output.answer(&cancelled, |cancelled: &ReminderCancelled, _| {
        format!("cancelled {}", escape_text(cancelled.reminder_id.as_str()))
    })?)
}
