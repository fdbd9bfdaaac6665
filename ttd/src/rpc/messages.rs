//! `send_message`, `reply`, `withdraw_message`, `list_inbox`, `take_messages`, `return_messages`, `confirm_messages`.

use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::Extensions;
use serde::{Deserialize, Serialize};
use tt_proto::delivery::{DeliveryState, Recipient, Surface, WayName};
use tt_proto::event::{Event, EventType};
use tt_proto::filter::{Filter, Target};
use tt_proto::message::DeliveryHint;
use tt_proto::names::means_everyone;
use tt_proto::requests::{
    ConfirmMessages, Confirmed, InboxRooms, ListInbox, MAX_LISTED, Reply as ReplyRequest, ReturnMessages, Returned,
    SendMessage, Sent, Skipped, TakeMessages, Taken, WithdrawMessage, Withdrawn,
};
use tt_proto::{AgentId, Error, ErrorCode, EventId, RoomId};
use tt_rules::{Command, MAX_TAKE, Recipients, Reply, SendOptions, TakeAccess, Wakes, names};
use tt_store::StoredDelivery;

use super::register::{Module, register};
use super::{Call, Shared, stopping, stopping_error};
use crate::delivery::{self, Waiting};
use crate::engine::{CommandContext, HeldMessages, Outcome};
use crate::listeners::Inbox;

/// The most recipients that the answer to a message lists. It is kept under the key of the request.
const MAX_RECIPIENTS: usize = 50;

/// With more recipients than this, the answer does not say what each of them does.
const MAX_EXPLAINED: usize = 10;

/// The most rooms that `list_inbox` lists.
const MAX_INBOX_ROOMS: usize = 1000;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<SendMessage, _>(module, send_message)?;
    register::<ReplyRequest, _>(module, reply)?;
    register::<WithdrawMessage, _>(module, withdraw_message)?;
    register::<ListInbox, _>(module, list_inbox)?;
    register::<TakeMessages, _>(module, take_messages)?;
    register::<ReturnMessages, _>(module, return_messages)?;
    register::<ConfirmMessages, _>(module, confirm_messages)
}

async fn send_message(shared: Arc<Shared>, extensions: Extensions, request: SendMessage) -> Result<Sent, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let SendMessage { body, to_agent_id, to, delivery_hint, reply_to, expects_reply, timeout_ms, .. } = request;
    let options = SendOptions {
        reply_to,
        expects_reply: expects_reply.unwrap_or(false),
        timeout: timeout_ms.map(Duration::from_millis),
        notify_on_delivery: request.notify_on_delivery.unwrap_or(false),
        notify_after: request.notify_after_ms.map(Duration::from_millis),
    };
    let wait_ms = request.wait_ms;
    if wait_ms.is_some() && !options.expects_reply {
        let message = "only an answer can be waited for, and this is no question";
        return Err(Error::new(ErrorCode::InvalidInput, message).hint("say expects_reply, or leave out wait_ms"));
    }
    let delivery_hint = delivery_hint.as_deref().map(DeliveryHint::parse).transpose()?.unwrap_or_default();
    let to = match (to_agent_id, to) {
        (Some(_), Some(_)) => {
            return Err(Error::new(ErrorCode::InvalidInput, "give either to_agent_id or to, not both"));
        }
        (Some(agent_id), None) => Recipients::Agent(agent_id),
        (None, Some(name)) if !means_everyone(&name) => Recipients::Named(name),
        (None, _) => Recipients::Room,
    };
    let from_person = shared.is_at_terminal(&call).await?;
    let command = Command::SendMessage { to, body, delivery_hint, from_person, options };
    let mut sent = send(&shared, &room_id, context, command, delivery_hint).await?;
    if wait_ms.is_some() {
        let inbox = (room_id, call.identity()?.agent_id.clone());
        let options = TakeOptions { about: Some(sent.event_seq), ..TakeOptions::all() };
        let waited = wait_and_take(&shared, &call, &inbox, Surface::Wait, options, wait_ms, None).await;
        sent.reply = match waited {
            // The caller repeats the call, and the next daemon goes on with the wait.
            Err(e) if e.code == ErrorCode::DaemonUnreachable => return Err(e),
            // The question is sent, whatever becomes of the wait.
            waited => waited.ok(),
        };
    }
    Ok(sent)
}

async fn reply(shared: Arc<Shared>, extensions: Extensions, request: ReplyRequest) -> Result<Sent, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let from_person = shared.is_at_terminal(&call).await?;
    let options = SendOptions { reply_to: Some(request.event_seq), ..SendOptions::default() };
    let (to, delivery_hint) = (Recipients::Room, DeliveryHint::Normal);
    let command = Command::SendMessage { to, body: request.body, delivery_hint, from_person, options };
    send(&shared, &room_id, context, command, delivery_hint).await
}

/// Sends a message, and says what will happen to it.
async fn send(
    shared: &Shared,
    room_id: &RoomId,
    context: CommandContext,
    command: Command,
    delivery_hint: DeliveryHint,
) -> Result<Sent, Error> {
    let known = shared.recipients.clone();
    let (mut is_reply, mut waiting) = (false, None);
    if let Command::SendMessage { to, from_person, options, .. } = &command {
        is_reply = options.reply_to.is_some();
        let wakes = match (is_reply, to) {
            // Whether that was a question is shown by `get_message_status`.
            (true, _) => Wakes::Answer,
            _ if *from_person => Wakes::ByPerson,
            (false, Recipients::Room) => Wakes::Never,
            (false, Recipients::Agent(_) | Recipients::Named(_)) => Wakes::ByAgent,
        };
        waiting = Some(Waiting {
            hint: delivery_hint,
            from_person: *from_person,
            wakes,
            is_taken: false,
            attempts: 0,
            sent_at: None,
        });
    }
    let answer = move |outcome: &Outcome<'_>| {
        let recipients = match outcome.reply {
            Reply::Sent { recipients } => recipients.as_slice(),
            _ => &[],
        };
        let waits = |agent_id: &AgentId| Some(delivery::waits(outcome.room, agent_id, waiting?, &known, outcome.now));
        let recipient = |agent_id: &AgentId| {
            let inbox = (outcome.room.room_id.clone(), agent_id.clone());
            let awaited = is_reply && known.listeners().awaits_answer(&inbox);
            let surface = known.listeners().listening(&inbox).or(awaited.then_some(Surface::Wait));
            let is_explained = surface.is_none() && recipients.len() <= MAX_EXPLAINED;
            Recipient {
                surface,
                display_name: names::unique_name(outcome.room, agent_id).map(str::to_owned),
                waits: if is_explained { waits(agent_id) } else { None },
                ..Recipient::pending(agent_id.clone())
            }
        };
        let event = outcome.events.iter().find(|event| event.event_type == EventType::MessageSent);
        Sent {
            event_seq: event.map_or(0, |event| event.event_seq),
            event_id: event.map_or_else(EventId::fresh, |event| event.event_id.clone()),
            created_at: event.map_or(outcome.now.wall, |event| event.created_at),
            recipients: recipients.iter().take(MAX_RECIPIENTS).map(recipient).collect(),
            more: recipients.len().saturating_sub(MAX_RECIPIENTS),
            reply: None,
        }
    };
    shared.engine.run(room_id, context, command, answer).await
}

async fn withdraw_message(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: WithdrawMessage,
) -> Result<Withdrawn, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let event_seq = request.event_seq;
    let answer = move |outcome: &Outcome<'_>| match outcome.reply {
        Reply::Withdrawn { withdrawn, too_late } => Withdrawn { event_seq, withdrawn: *withdrawn, too_late: *too_late },
        _ => Withdrawn { event_seq, withdrawn: 0, too_late: 0 },
    };
    shared.engine.run(&room_id, context, Command::WithdrawMessage { event_seq }, answer).await
}

async fn list_inbox(shared: Arc<Shared>, extensions: Extensions, _: ListInbox) -> Result<InboxRooms, Error> {
    let me = shared.reading_context(&Call::of(&extensions)?)?.agent_id().clone();
    let page = shared.engine.read(move |reader| reader.inbox_rooms(&me, MAX_INBOX_ROOMS)).await?;
    Ok(InboxRooms { rooms: page.items, more: page.more })
}

async fn take_messages(shared: Arc<Shared>, extensions: Extensions, request: TakeMessages) -> Result<Taken, Error> {
    let TakeMessages {
        room_id,
        surface,
        from_agent_id,
        max_replay,
        limit,
        max_bytes,
        max_wait_ms,
        after_event_seq,
        about,
    } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let inbox = (room_id, shared.reading_context(&call)?.agent_id().clone());
    let surface = Surface::parse(&surface)?;
    let is_person = call.identity()?.is_person();
    if after_event_seq.is_some() && !is_person {
        return Err(Error::new(
            ErrorCode::InvalidInput,
            "only people read the log here; an agent takes from its inbox",
        )
        .hint("leave out after_event_seq"));
    }
    // A reader that wants very many gets them all, and their number need not be known.
    let max_replay = max_replay.filter(|max| *max <= MAX_LISTED);
    // A tool answer is in the middle of a turn.
    let mid_turn = surface == Surface::ToolResponse && about.is_none();
    let (from, limit, access) = (from_agent_id, limit.unwrap_or(MAX_TAKE), TakeAccess::Arriving);
    let way = WayName::of(surface).filter(|way| *way == WayName::ToolResponse && about.is_none());
    let options = TakeOptions { from, about, mid_turn, max_replay, limit, max_bytes, access, way };
    wait_and_take(&shared, &call, &inbox, surface, options, max_wait_ms, after_event_seq).await
}

/// Takes what is in an inbox; if that is nothing, waits for something.
async fn wait_and_take(
    shared: &Shared,
    call: &Call,
    inbox: &Inbox,
    surface: Surface,
    mut options: TakeOptions,
    max_wait_ms: Option<u64>,
    after_event_seq: Option<i64>,
) -> Result<Taken, Error> {
    let is_person = call.identity()?.is_person();
    let mut stop = shared.stop.subscribe();
    if shared.is_subagents(call) {
        // What is shown to a subagent does not reach the conversation that the message is for.
        let patience = max_wait_ms.map_or(Duration::ZERO, Duration::from_millis).min(shared.engine.policy().wait_max);
        tokio::select! {
            () = tokio::time::sleep(patience) => return Ok(Taken::default()),
            () = stopping(&mut stop) => return Err(stopping_error()),
        }
    }
    let left = shared.conversation_left(call);
    tokio::pin!(left);
    let listeners = shared.engine.listeners();
    let listener = match options.about {
        Some(_) => listeners.await_answer(inbox),
        None => listeners.listen(inbox, surface),
    };
    let started = tokio::time::Instant::now();
    let mut was_over = false;
    loop {
        // Armed before the look, so that what arrives in between is not missed.
        let arrived = listener.arrived.notified();
        tokio::pin!(arrived);
        arrived.as_mut().enable();
        let look = async {
            match is_person {
                true => read(shared, call, inbox, options.clone(), after_event_seq).await,
                false => take(shared, call, inbox, options.clone()).await,
            }
        };
        let TakenMessages { taken, wait_max, held } = tokio::select! {
            biased;
            left = &mut left => return Err(left),
            found = look => found?,
        };
        let patience = max_wait_ms.map_or(Duration::ZERO, |ms| wait_max.min(Duration::from_millis(ms)));
        if !taken.events.is_empty() || taken.skipped.is_some() || patience.is_zero() {
            held.into_iter().for_each(HeldMessages::keep);
            return Ok(taken);
        }
        options.access = TakeAccess::Staying;
        if was_over {
            return Ok(Taken { is_over: true, ..taken });
        }
        if let Some(question) = options.about
            && is_over(shared, &inbox.0, question).await?
        {
            // What ended it, an answer perhaps, may have come after this look.
            was_over = true;
            continue;
        }
        tokio::select! {
            () = arrived => {}
            () = tokio::time::sleep_until(started + patience) => return Ok(taken),
            () = stopping(&mut stop) => return Err(stopping_error()),
            left = &mut left => return Err(left),
        }
    }
}

/// Whether no answer to a question is to be expected any more: it was answered, is over, or never reached anybody.
async fn is_over(shared: &Shared, room_id: &RoomId, question: i64) -> Result<bool, Error> {
    let room_id = room_id.clone();
    let recipients = shared.engine.read(move |reader| reader.recipients(&room_id, question, usize::MAX)).await?;
    let awaited = |stored: &StoredDelivery| {
        let row = &stored.row;
        !row.is_over && matches!(row.state, DeliveryState::Pending | DeliveryState::Delivered)
    };
    let is_answered = |stored: &StoredDelivery| stored.row.state == DeliveryState::Answered;
    Ok(recipients.iter().any(is_answered) || !recipients.iter().any(awaited))
}

/// What to take from an inbox.
#[derive(Debug, Clone)]
pub(super) struct TakeOptions {
    pub(super) from: Option<AgentId>,
    pub(super) about: Option<i64>,
    pub(super) mid_turn: bool,
    pub(super) max_replay: Option<usize>,
    pub(super) limit: usize,
    pub(super) max_bytes: Option<usize>,
    pub(super) access: TakeAccess,
    /// The way by which a model is handed them in one block: as many as the room allows, and none if it is switched off there.
    pub(super) way: Option<WayName>,
}

impl TakeOptions {
    /// Everything that is open.
    fn all() -> Self {
        let (max_replay, limit, access) = (None, MAX_TAKE, TakeAccess::Arriving);
        Self { from: None, about: None, mid_turn: false, max_replay, limit, max_bytes: None, access, way: None }
    }
}

/// What was taken, before its events are read.
#[derive(Debug, Serialize, Deserialize)]
struct TakenSeqs {
    skipped: Vec<i64>,
    event_seqs: Vec<i64>,
    more: usize,
    wait_max: Duration,
    /// How many of them are handed over.
    max_batch: usize,
}

/// Messages that were taken. They are given back unless they are kept.
pub(super) struct TakenMessages {
    pub(super) taken: Taken,
    /// How long a wait may last in this room.
    wait_max: Duration,
    pub(super) held: Option<HeldMessages>,
}

/// Takes messages for the connection of a call.
pub(super) async fn take(
    shared: &Shared,
    call: &Call,
    inbox: &Inbox,
    options: TakeOptions,
) -> Result<TakenMessages, Error> {
    if shared.is_subagents(call) {
        // What is shown to a subagent does not reach the conversation that the message is for.
        let taken = Taken::default();
        return Ok(TakenMessages { taken, wait_max: Duration::ZERO, held: None });
    }
    let TakeOptions { from, about, mid_turn, max_replay, limit, max_bytes, access, way } = options;
    let command = Command::TakeMessages { from, about, among: None, mid_turn, max_replay, limit, access };
    let answer = move |outcome: &Outcome<'_>| {
        let policy = &outcome.room.policy;
        let (wait_max, mut max_batch) = (policy.wait_max, usize::MAX);
        if let Some(way) = way {
            max_batch = if policy.ways.allow(way) { policy.max_batch.max(1) } else { 0 };
        }
        let (mut skipped, mut event_seqs, mut left) = (Vec::new(), Vec::new(), 0);
        if let Reply::Taken { skipped: old, event_seqs: new, more } = outcome.reply {
            (skipped, event_seqs, left) = (old.clone(), new.clone(), *more);
        }
        TakenSeqs { skipped, event_seqs, more: left, wait_max, max_batch }
    };
    let _room = call.answer_room().await;
    let (mut taken, mut held) = shared.engine.take(&inbox.0, shared.silent_context(call)?, command, answer).await?;
    if taken.event_seqs.len() > taken.max_batch {
        let mut rest = taken.event_seqs.split_off(taken.max_batch);
        taken.more += rest.len();
        if taken.max_batch == 0 {
            rest.append(&mut taken.skipped);
        }
        held.iter_mut().for_each(|held| held.give_back(&rest));
    }
    let TakenSeqs { skipped, event_seqs, mut more, wait_max, .. } = taken;
    let mut events = match shared.engine.feed().recent_messages(&event_seqs) {
        Some(events) => events,
        None => shared.engine.read(move |reader| reader.events_by_seq(&event_seqs)).await?,
    };
    if let Some(max_bytes) = max_bytes {
        let rest = split_off(&mut events, max_bytes);
        more += rest.len();
        held.iter_mut().for_each(|held| held.give_back(&rest));
    }
    let taken = Taken { skipped: Skipped::of(&skipped), skipped_seqs: skipped, events, more, ..Taken::default() };
    Ok(TakenMessages { taken, wait_max, held })
}

/// The messages to a person: at first those that nobody confirmed, then all that are in the log after the cursor, whether or
/// not another of its terminals confirmed them.
async fn read(
    shared: &Shared,
    call: &Call,
    inbox: &Inbox,
    options: TakeOptions,
    after: Option<i64>,
) -> Result<TakenMessages, Error> {
    let (limit, from) = (options.limit.min(MAX_TAKE), options.from.clone());
    // Before the look at the inbox: what is sent in between is read from the log next time.
    let room_id = inbox.0.clone();
    let newest = shared.engine.read(move |reader| reader.newest_event(Some(&room_id))).await?;
    // Also with a cursor, because it shows whether the caller is still a member.
    let options = if after.is_some() { TakeOptions { limit: 0, max_replay: None, ..options } } else { options };
    let mut read = take(shared, call, inbox, options).await?;
    let Some(after) = after else {
        read.taken.events.retain(|event| event.event_seq <= newest);
        // Where the log goes on after the inbox. Those that did not fit are still in the inbox: the most urgent come first, so
        // no place in the log separates them from these.
        read.taken.cursor_event_seq = Some(newest);
        return Ok(read);
    };
    let ((room_id, me), event_types) = (inbox.clone(), Some(vec![EventType::MessageSent]));
    let filter = Filter { event_types, from, target: Target::SelfOf(me), ..Filter::any() };
    let page = shared.engine.read(move |reader| {
        let mut cursor = after;
        loop {
            let mut events = reader.events(&room_id, cursor, limit, &filter)?;
            let Some(last) = events.last() else { return Ok((events, cursor)) };
            cursor = last.event_seq;
            let seqs: Vec<i64> = events.iter().map(|event| event.event_seq).collect();
            let undelivered = reader.undelivered(&seqs)?;
            // What expired or was withdrawn while nobody followed is no message to anybody any more.
            events.retain(|event| undelivered.iter().all(|(event_seq, _)| *event_seq != event.event_seq));
            if !events.is_empty() {
                return Ok((events, cursor));
            }
        }
    });
    let (events, cursor) = page.await?;
    read.taken = Taken { events, cursor_event_seq: Some(cursor), ..Taken::default() };
    Ok(read)
}

/// Cuts off the events past this many bytes, but never the first. Returns their numbers.
fn split_off(events: &mut Vec<Event>, max_bytes: usize) -> Vec<i64> {
    let mut bytes = 0;
    let fits = |event: &Event| {
        bytes += serde_json::to_string(event).map_or(0, |json| json.len());
        bytes <= max_bytes
    };
    let count = events.iter().map(fits).take_while(|fits| *fits).count().max(1);
    let rest = if count < events.len() { events.split_off(count) } else { Vec::new() };
    rest.iter().map(|event| event.event_seq).collect()
}

async fn return_messages(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ReturnMessages,
) -> Result<Returned, Error> {
    let ReturnMessages { room_id, event_seqs } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    shared.engine.seen(&call.identity()?.agent_id);
    Ok(Returned { returned: count(&shared, &call, &room_id, Command::ReturnMessages { event_seqs }).await? })
}

async fn confirm_messages(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ConfirmMessages,
) -> Result<Confirmed, Error> {
    let ConfirmMessages { room_id, surface, event_seqs } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let surface = Surface::parse(&surface)?;
    let command = Command::ConfirmMessages { surface, event_seqs };
    Ok(Confirmed { confirmed: count(&shared, &call, &room_id, command).await? })
}

/// Runs a command whose answer is a count. A room that was deleted has nothing to confirm or return.
async fn count(shared: &Shared, call: &Call, room_id: &RoomId, command: Command) -> Result<usize, Error> {
    let answer = |outcome: &Outcome<'_>| match outcome.reply {
        Reply::Count(count) => *count,
        _ => 0,
    };
    let context = shared.silent_context(call)?;
    let inbox = (room_id.clone(), context.agent_id().clone());
    match shared.engine.run(room_id, context, command, answer).await {
        Err(e) if e.code == ErrorCode::RoomNotFound => {
            shared.engine.listeners().forget(&inbox, call.connection.id());
            Ok(0)
        }
        counted => counted,
    }
}
