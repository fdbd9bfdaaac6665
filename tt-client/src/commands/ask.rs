//! `tt ask`: a question, and the wait for its answer. `tt reply`: the answer.

use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::event::Event;
use tt_proto::message::{MessageSent, Notice};
use tt_proto::requests::{GetMessageStatus, Reply, SendMessage, Sent};
use tt_proto::{Error, ErrorCode};

use super::body::BodyArgs;
use super::msg::{HintFlags, millis, sent_text};
use crate::Context;
use crate::cli::time_ahead;
use crate::connect::DEADLINE;
use crate::error::{CommandError, EXIT_NOTHING};
use crate::output::Format;
use crate::receive::{Receipt, TakeOptions};
use crate::session::{PathFlag, Session, fresh_key};
use crate::text::render;

/// How long one call waits. A longer wait is made of several calls; the daemon ends it at the question's deadline.
const MAX_WAIT_PER_CALL: Duration = Duration::from_secs(100);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "It exits with 0 when the answer came and with 5 when there is none: no answer in time, the one you asked is gone, or it asks you something first.\n\nExample:\n  tt ask codex \"keep the old column?\" --timeout 10m"
)]
pub(crate) struct AskArgs {
    /// The member (name, agent id, or the beginning of one), or `room` for everyone
    who: String,
    #[command(flatten)]
    question: BodyArgs,
    /// How long to wait for the answer [default: 5m]
    #[arg(long, value_name = "D", value_parser = time_ahead, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    /// Do not wait: the answer, or a notice that there is none, comes into your inbox
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    hint: HintFlags,
    #[command(flatten)]
    path: PathFlag,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt reply 42 \"yes, it is read by the importer\"")]
pub(crate) struct ReplyArgs {
    /// The number of the message you answer
    event_seq: i64,
    #[command(flatten)]
    answer: BodyArgs,
    #[command(flatten)]
    path: PathFlag,
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Answered,
    /// The one who was asked asks something itself, and may be waiting for that.
    AskedBack,
    NotAnswered,
    Expired,
    RecipientGone,
    /// The asker took its question back.
    Withdrawn,
    /// Another surface of the caller was told that there is no answer.
    Over,
}

/// The end of a question.
#[derive(Debug, Serialize)]
struct Asked<'a> {
    status: Outcome,
    event_seq: i64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    events: &'a [Event],
}

pub(crate) fn run_ask(context: &Context, args: AskArgs) -> Result<(), CommandError> {
    let body = args.question.text()?;
    let key = fresh_key();
    let ask = |room_id| SendMessage {
        room_id,
        body: body.clone(),
        to: Some(args.who.clone()),
        delivery_hint: Some(args.hint.hint().as_str().to_owned()),
        expects_reply: Some(true),
        timeout_ms: args.timeout.map(millis),
        idempotency_key: key.clone(),
        ..Default::default()
    };
    let (mut session, sent) = Session::find_and_call(context, args.path, ask)?;
    if args.no_wait {
        return Ok(session.output.answer(&sent, sent_text)?);
    }
    if session.output.format == Format::Text {
        let told = session.output.line(&sent, |sent, style| sent_text(sent, style) + "\nwaiting for the answer")?;
        let _ = std::io::stderr().write_all(told.as_bytes());
    }
    await_answer(&mut session, &sent)
}

/// Waits for what becomes of a question, shows it, and confirms it.
fn await_answer(session: &mut Session, sent: &Sent) -> Result<(), CommandError> {
    let mut receipt = Receipt::new(Surface::Wait);
    let options = TakeOptions { about: Some(sent.event_seq), wait: MAX_WAIT_PER_CALL, ..TakeOptions::default() };
    let (outcome, events) = loop {
        let taken =
            session.call_within(MAX_WAIT_PER_CALL + DEADLINE, |room_id| receipt.take_request(room_id, options))?;
        match outcome(&taken.events, sent.event_seq) {
            Some(outcome) => break (outcome, taken.events),
            None if taken.is_over => break ended_elsewhere(session, sent.event_seq)?,
            // Notices of the delivery, say.
            None => taken.events.iter().for_each(|event| receipt.mark_shown(event)),
        }
    };
    let names = session.names().unwrap_or_default();
    let asked = Asked { status: outcome, event_seq: sent.event_seq, events: &events };
    session.output.without_inbox().answer(&asked, |asked, style| {
        let shown: String = asked.events.iter().map(|event| render::event(event, &names, style)).collect();
        match asked.status {
            Outcome::AskedBack => shown + &style.dim("it asks you first; your own question stays open\n"),
            Outcome::Withdrawn => "withdrawn\n".to_owned(),
            Outcome::Over => "there is no answer; another of your commands was told why\n".to_owned(),
            _ => shown,
        }
    })?;
    events.iter().for_each(|event| receipt.mark_shown(event));
    receipt.settle(&mut session.client)?;
    if outcome == Outcome::Answered { Ok(()) } else { Err(CommandError::Status(EXIT_NOTHING)) }
}

/// How a question ended of which another surface of the caller was told. An answer is shown here as well; it is confirmed there.
fn ended_elsewhere(session: &mut Session, question: i64) -> Result<(Outcome, Vec<Event>), CommandError> {
    let status = session.call(|room_id| GetMessageStatus { room_id, event_seq: question })?;
    let Some(answer) = status.recipients.iter().find_map(|recipient| recipient.answered_by) else {
        let is_withdrawn = status.recipients.iter().all(|recipient| recipient.state == DeliveryState::Withdrawn);
        return Ok((if is_withdrawn { Outcome::Withdrawn } else { Outcome::Over }, Vec::new()));
    };
    let answer = session.call(|room_id| GetMessageStatus { room_id, event_seq: answer })?;
    Ok((Outcome::Answered, vec![answer.event]))
}

/// What these messages mean for a question. An answer counts more than anything else that came with it.
fn outcome(events: &[Event], question: i64) -> Option<Outcome> {
    let payload = |event: &Event| serde_json::from_str::<MessageSent>(event.payload.as_ref()?.as_str()).ok();
    let of = |sent: MessageSent| match sent.notice {
        _ if sent.reply_to == Some(question) => Some(Outcome::Answered),
        None if sent.expects_reply => Some(Outcome::AskedBack),
        Some(Notice::NotAnswered) => Some(Outcome::NotAnswered),
        Some(Notice::Expired) => Some(Outcome::Expired),
        Some(Notice::RecipientGone) => Some(Outcome::RecipientGone),
        _ => None,
    };
    let rank = |outcome: &Outcome| match outcome {
        Outcome::Answered => 0,
        Outcome::AskedBack => 1,
        _ => 2,
    };
    events.iter().filter_map(payload).filter_map(of).min_by_key(rank)
}

pub(crate) fn run_reply(context: &Context, args: ReplyArgs) -> Result<(), CommandError> {
    let body = args.answer.text()?;
    if body.trim().is_empty() {
        return Err(CommandError::Refused(Error::new(ErrorCode::InvalidBody, "the answer is blank")));
    }
    let key = fresh_key();
    let reply =
        |room_id| Reply { room_id, event_seq: args.event_seq, body: body.clone(), idempotency_key: key.clone() };
    let (session, sent) = Session::find_and_call(context, args.path, reply)?;
    Ok(session.output.answer(&sent, sent_text)?)
}

#[cfg(test)]
mod tests {
    use tt_proto::event::EventType;
    use tt_proto::handoff::RawJson;
    use tt_proto::{EventId, WallTime};

    use super::*;

    fn event(payload: &MessageSent) -> Event {
        Event {
            event_seq: 9,
            event_id: EventId::fresh(),
            room_id: "r".into(),
            turn_id: None,
            event_type: EventType::MessageSent,
            from_agent_id: None,
            to_agent_id: None,
            handoff: None,
            reason: None,
            created_at: WallTime::from_millis(0),
            payload: RawJson::of(payload).ok(),
        }
    }

    #[test]
    fn an_answer_counts_more_than_a_question_back_and_that_more_than_a_notice() {
        let answer = event(&MessageSent { reply_to: Some(7), ..MessageSent::default() });
        let back = event(&MessageSent { expects_reply: true, ..MessageSent::default() });
        let notice = |notice| event(&MessageSent { notice: Some(notice), about: Some(7), ..MessageSent::default() });
        let expired = notice(Notice::Expired);
        assert_eq!(outcome(&[expired.clone(), back.clone(), answer], 7), Some(Outcome::Answered));
        assert_eq!(outcome(&[expired.clone(), back], 7), Some(Outcome::AskedBack));
        assert_eq!(outcome(&[expired], 7), Some(Outcome::Expired));
        assert_eq!(outcome(&[notice(Notice::Delivered)], 7), None, "the wait goes on");
        assert_eq!(outcome(&[event(&MessageSent { reply_to: Some(6), ..MessageSent::default() })], 7), None);
    }
}
