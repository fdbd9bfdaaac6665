//! What became of messages: `tt inbox`, `tt msg status`, `tt msg sent`, `tt msg withdraw`. And `tt quiet`.

use std::time::Duration;

use tt_proto::delivery::{Delivery, DeliveryState, Recipient, Surface};
use tt_proto::escape::escape_text;
use tt_proto::message::DeliveryHint;
use tt_proto::requests::{
    DeliveryList, GetMessageStatus, ListSent, ListWaiting, MessageStatus, Quiet, SetQuiet, WithdrawMessage, Withdrawn,
};
use tt_proto::{Error, ErrorCode};

use super::msg::millis;
use crate::Context;
use crate::cli::duration;
use crate::error::CommandError;
use crate::session::{PathFlag, Session, fresh_key};
use crate::text::{
    Style,
    names::{self, Names},
    render,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "It shows and does not confirm: `tt msg recv` reads your messages.\n\nExample:\n  tt inbox --all"
)]
pub(crate) struct InboxArgs {
    /// For whom the messages wait [default: you]
    who: Option<String>,
    /// For everybody in the room
    #[arg(long, conflicts_with = "who")]
    all: bool,
    /// Only questions that are not answered, also those that were handed over
    #[arg(long)]
    questions: bool,
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    #[command(flatten)]
    path: PathFlag,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// The number of the message
    event_seq: i64,
    #[command(flatten)]
    path: PathFlag,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SentArgs {
    /// Only those before this one
    #[arg(long, value_name = "SEQ")]
    before: Option<i64>,
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,
    #[command(flatten)]
    path: PathFlag,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WithdrawArgs {
    /// The number of the message
    event_seq: i64,
    #[command(flatten)]
    path: PathFlag,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Messages stay in your inbox and come with what you do next; nothing wakes you.\n\nExamples:\n  tt quiet 2h\n  tt quiet off"
)]
pub(crate) struct QuietArgs {
    /// For how long (30m, 2h), or `off`
    #[arg(value_name = "D")]
    lasts: String,
    #[command(flatten)]
    path: PathFlag,
}

pub(crate) fn inbox(context: &Context, args: InboxArgs) -> Result<(), CommandError> {
    let to = if args.all { Some("room".to_owned()) } else { args.who };
    let list =
        |room_id| ListWaiting { room_id, to: to.clone(), questions: args.questions.then_some(true), limit: args.limit };
    let (mut session, list) = Session::find_and_call(context, args.path, list)?;
    let names = session.names().unwrap_or_default();
    let nothing = if args.questions { "no open questions" } else { "nothing waits" };
    Ok(session.output.without_inbox().answer(&list, |list, style| table(list, nothing, &names, style))?)
}

pub(crate) fn status(context: &Context, args: StatusArgs) -> Result<(), CommandError> {
    let status = |room_id| GetMessageStatus { room_id, event_seq: args.event_seq };
    let (mut session, status) = Session::find_and_call(context, args.path, status)?;
    let names = session.names().unwrap_or_default();
    Ok(session.output.answer(&status, |status, style| status_text(status, &names, style))?)
}

pub(crate) fn sent(context: &Context, args: SentArgs) -> Result<(), CommandError> {
    let list = |room_id| ListSent { room_id, before: args.before, limit: Some(args.limit) };
    let (mut session, list) = Session::find_and_call(context, args.path, list)?;
    let names = session.names().unwrap_or_default();
    Ok(session.output.answer(&list, |list, style| table(list, "you sent nothing here", &names, style))?)
}

pub(crate) fn withdraw(context: &Context, args: WithdrawArgs) -> Result<(), CommandError> {
    let key = fresh_key();
    let withdraw = |room_id| WithdrawMessage { room_id, event_seq: args.event_seq, idempotency_key: key.clone() };
    let (session, withdrawn) = Session::find_and_call(context, args.path, withdraw)?;
    Ok(session.output.answer(&withdrawn, |withdrawn: &Withdrawn, _| {
        let too_late = match withdrawn.too_late {
            0 => String::new(),
            1 => "; one recipient has it already".to_owned(),
            several => format!("; {several} recipients have it already"),
        };
        format!("withdrawn{too_late}")
    })?)
}

pub(crate) fn quiet(context: &Context, args: QuietArgs) -> Result<(), CommandError> {
    let lasts: Option<Duration> = match args.lasts.as_str() {
        "off" => None,
        text => Some(duration(text).map_err(|e| {
            let error = Error::new(ErrorCode::InvalidInput, e.to_string());
            CommandError::Refused(error.hint("write a time such as 30m or 2h, or off"))
        })?),
    };
    let key = fresh_key();
    let quiet = |room_id| SetQuiet { room_id, for_ms: lasts.map(millis), idempotency_key: key.clone() };
    let (session, quiet) = Session::find_and_call(context, args.path, quiet)?;
    Ok(session.output.answer(&quiet, |quiet: &Quiet, _| match quiet.quiet_until {
        Some(until) => format!("quiet until {}", render::clock(until, render::now())),
        None => "messages wake you again".to_owned(),
    })?)
}

/// One line for each delivery, with its state and why it waits.
fn table(list: &DeliveryList, nothing: &str, names: &Names, style: &Style) -> String {
    if list.deliveries.is_empty() {
        return nothing.to_owned();
    }
    let line = |delivery: &Delivery| {
        let from = delivery.from_agent_id.as_ref().map_or_else(|| "notice".to_owned(), |from| names.get(from));
        let to = names::called(&delivery.recipient.agent_id, delivery.recipient.display_name.as_deref());
        let hint = match delivery.delivery_hint {
            DeliveryHint::Normal => String::new(),
            hint => style.warn(&format!(" [{}]", hint.as_str())),
        };
        let question = if delivery.expects_reply { style.warn(" [question]") } else { String::new() };
        let age = style.dim(&render::ago(delivery.sent_at, render::now()));
        let number = style.dim(&format!("{:>5} ", delivery.event_seq));
        let head = format!("{number}{} {} {to}{hint}{question}, {age}", style.bold(&from), style.dim("to"));
        let state = style.row("      ", &state(&delivery.recipient, delivery.expects_reply));
        style.lines(&format!("{head}\n")) + &style.row("      ", &escape_text(&delivery.excerpt)) + &style.dim(&state)
    };
    let mut text: String = list.deliveries.iter().map(line).collect();
    if list.more {
        text.push_str(&style.dim("there are more: --limit\n"));
    }
    text
}

fn status_text(status: &MessageStatus, names: &Names, style: &Style) -> String {
    let mut text = render::logged(&status.event, None, names, style);
    if status.recipients.is_empty() {
        text.push_str(&style.row("      ", "nobody else was there"));
    }
    let payload = status.event.payload.as_ref();
    let is_question = payload.is_some_and(|payload| {
        serde_json::from_str::<tt_proto::message::MessageSent>(payload.as_str()).is_ok_and(|sent| sent.expects_reply)
    });
    for recipient in &status.recipients {
        let name = names::called(&recipient.agent_id, recipient.display_name.as_deref());
        text.push_str(&style.row("      ", &format!("{name}: {}", state(recipient, is_question))));
    }
    text
}

/// How a message stands with one recipient, in words.
pub(crate) fn state(recipient: &Recipient, is_question: bool) -> String {
    let at = recipient.delivered_at.map(|at| format!(" {}", render::ago(at, render::now()))).unwrap_or_default();
    let by = recipient.surface.map_or("", way);
    match recipient.state {
        DeliveryState::Pending => match &recipient.waits {
            Some(waits) => format!("waits: {}", escape_text(&waits.text)),
            None => "waits".to_owned(),
        },
        DeliveryState::Delivered if is_question && recipient.is_over => {
            format!("delivered{by}{at}, not answered in time")
        }
        DeliveryState::Delivered if is_question => format!("delivered{by}{at}, not answered yet"),
        DeliveryState::Delivered => format!("delivered{by}{at}"),
        DeliveryState::Answered => {
            let number = recipient.answered_by.map(|seq| format!(" by {seq}")).unwrap_or_default();
            format!("answered{number}{}", if recipient.is_late { ", late" } else { "" })
        }
        DeliveryState::Expired => "expired: it was not handed over in time".to_owned(),
        DeliveryState::Withdrawn => "withdrawn".to_owned(),
        DeliveryState::Unknown => "in a state that this version of tt does not know".to_owned(),
    }
}

/// By what a message was handed over.
fn way(surface: Surface) -> &'static str {
    match surface {
        Surface::Recv => " to tt msg recv",
        Surface::Follow => " to a follower",
        Surface::Wait => " to a wait",
        Surface::ToolResponse => " with a tool answer",
        Surface::Hook => " by a hook",
        Surface::Terminal => " by the terminal",
        Surface::NativeInbox => " by its own inbox",
        Surface::Unknown => "",
    }
}
