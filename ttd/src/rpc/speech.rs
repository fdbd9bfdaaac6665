//! What a hook is told to say: where its session stands, the messages that wait for it, and why its turn is not to end yet.

use std::collections::BTreeSet;
use std::path::Path;

use tt_proto::block::{self, Line};
use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::message::{MAX_BATCH, MAX_BATCH_BYTES};
use tt_proto::requests::{MAX_COUNTED, SaidMessages, Say};
use tt_proto::{AgentId, Error, ErrorCode, RoomId};
use tt_rules::{Command, Now, Reply, Room, TakeAccess, Wakes};
use tt_store::{OpenQuery, Reader, WaitingQuery};

use super::{Call, Shared};
use crate::background;
use crate::delivery::boundary::Boundary;
use crate::delivery::facts::{self, Stick};
use crate::delivery::pending::{self, Found, Pending};
use crate::delivery::plan::{self, Opening, Recipient, RoomFacts};
use crate::delivery::told::Cause;
use crate::engine::{HeldMessages, Outcome};

/// What keeps a turn from ending.
const NOT_YET: &str = "Before your turn ends: act on what follows if it needs it, then end your turn.";

/// Characters of a text that are no message and no fact: the frames, and what is said about them.
const FRAME_CHARS: usize = 600;

/// How many questions that were not answered are looked at.
const MAX_QUESTIONS: usize = 20;

/// How a session stands in the room of its workspace.
struct Here {
    room_id: RoomId,
    stick: Stick,
    /// Everything there is to know, unless nobody else is there.
    all: Option<Vec<String>>,
    /// What is to know when somebody else changed who has the stick.
    news: Vec<String>,
    is_quiet: bool,
    /// How often agents may wake it.
    max_wakes: usize,
    /// Why its turn is not to end yet, each cause in words.
    causes: Vec<(Cause, String)>,
}

impl Here {
    /// Looks at the deepest room above a directory of which the session is a member.
    async fn find(shared: &Shared, me: &AgentId, cwd: Option<&str>) -> Result<Option<Self>, Error> {
        let directories = Path::new(cwd.unwrap_or_default()).ancestors();
        let store = shared.engine.store();
        let rooms: Vec<RoomId> =
            directories.filter_map(|directory| store.known_room_at(&mut std::iter::once(directory))).collect();
        for room_id in rooms {
            let (me, now) = (me.clone(), shared.engine.clock().now());
            let look = move |room: &Room, reader: &dyn Reader| Self::look(room, reader, &me, now);
            if let Some(here) = shared.engine.look(&room_id, look).await? {
                return Ok(Some(here));
            }
        }
        Ok(None)
    }

    fn look(room: &Room, reader: &dyn Reader, me: &AgentId, now: Now) -> Result<Option<Self>, Error> {
        let Some(member) = room.member(me).filter(|member| member.status.is_member()) else { return Ok(None) };
        let query = WaitingQuery { recipient: Some(me.clone()), questions: true, limit: MAX_QUESTIONS };
        let mut questions = reader.waiting(&room.room_id, &query)?;
        questions.retain(|question| question.row.state == DeliveryState::Delivered);
        let is_held = room.owner.is_some();
        let since = if is_held { reader.turn_started_at(&room.room_id, room.turn_id)? } else { None };
        let held_for = since.map(|since| now.lease.since(now.to_lease(since)));
        let mut causes: Vec<(Cause, String)> = Vec::new();
        for question in &questions {
            let seq = question.row.event_seq;
            let text = format!("Message {seq} is a question that you have not answered: tt reply {seq} \"…\".");
            causes.push((Cause::Question(seq), text));
        }
        // What the guard took is given back when the turn ends.
        if room.owner.as_ref() == Some(me)
            && !room.edits.by_guard
            && let Some(wants) = facts::wanted_by(room, me, now)
        {
            let (turn, wants) = (room.turn_id, facts::name(room, &wants));
            let text = format!(
                "You hold the stick (turn {turn}) and {wants} waits for it: release it with a handoff (tt release), or keep it (tt heartbeat)."
            );
            causes.push((Cause::Wanted(room.room_id.clone(), turn), text));
        }
        Ok(Some(Self {
            room_id: room.room_id.clone(),
            stick: Stick::of(room),
            all: facts::all(room, me, questions.len(), held_for, now),
            news: std::iter::once(facts::stick(room, me, held_for)).chain(facts::handoff(room, me)).collect(),
            max_wakes: room.policy.max_wakes,
            is_quiet: member.quiet_until.is_some_and(|until| until > now.deadline),
            causes,
        }))
    }

    /// What the session is told of this: everything, or only what is news to it. `is_untold`: it may have a turn that it does not know
    /// of.
    fn facts(self, shared: &Shared, me: &AgentId, is_new: bool, is_untold: bool) -> Vec<String> {
        let is_mine = self.stick.owner.as_ref() == Some(me);
        let Some(all) = self.all else { return if is_untold && is_mine { self.news } else { Vec::new() } };
        match shared.recipients.told().stick(me, &self.room_id, self.stick.clone()) {
            Some(before) if !is_new && !is_untold => {
                if self.stick.is_news(&before, me) {
                    self.news
                } else {
                    Vec::new()
                }
            }
            _ => all,
        }
    }
}

/// Says which other turns a session has, in rooms that are not here, in a conversation that does not know of them.
async fn other_turns(shared: &Shared, me: &AgentId, here: Option<&RoomId>) -> Result<Option<String>, Error> {
    let mut turns = background::turns_of(&shared.engine, me).await?;
    turns.retain(|(room_id, _)| Some(room_id) != here);
    let mut named = Vec::new();
    for (room_id, turn_id) in turns.iter().take(facts::MAX_NAMED) {
        let path = shared.engine.look(room_id, |room, _| Ok(room.canonical_path.clone())).await?;
        named.push((path, *turn_id));
    }
    Ok(facts::elsewhere(&named, turns.len() - named.len()))
}

/// What to say to the session of a hook at this moment. Nothing, most often; at a tool that costs no query.
pub(super) async fn say(
    shared: &Shared,
    call: &Call,
    boundary: Boundary,
    cwd: Option<&str>,
) -> Result<Option<Say>, Error> {
    let (me, told) = (&call.identity()?.agent_id, shared.recipients.told());
    let now = shared.engine.clock().now().lease;
    let holds = boundary == Boundary::TurnEnd;
    if boundary == Boundary::Prompt {
        told.prompted(me);
    }
    let was_held = holds && told.turn_ends(me);
    if was_held {
        return Ok(None);
    }
    // What holds a turn is no place to tell where the session stands.
    let is_untold = !holds && shared.sessions.is_untold(me);
    let alone = if is_untold { Some(shared.sessions.tells_alone().await) } else { None };
    let is_silent = boundary == Boundary::Tool && !is_untold;
    let here = if is_silent { None } else { Here::find(shared, me, cwd).await? };
    let elsewhere = match is_untold {
        true => other_turns(shared, me, here.as_ref().map(|here| &here.room_id)).await?,
        false => None,
    };
    let mut causes = Vec::new();
    let owed = if holds { Vec::new() } else { told.take_owed(me) };
    let lines: Vec<String> = match here {
        Some(here) if holds => {
            let too_often = told.woken(me).too_often(Wakes::ByAgent, here.max_wakes, now).is_some();
            // It asked to be left alone, or was woken often enough: it gets what waits with the next thing it does.
            if !here.is_quiet && !too_often {
                let all = here.causes.iter().map(|(cause, _)| cause.clone()).collect();
                causes = told.new_causes(me, all);
            }
            here.causes.into_iter().filter(|(cause, _)| causes.contains(cause)).map(|(_, text)| text).collect()
        }
        Some(here) => {
            let is_new = matches!(boundary, Boundary::Started { .. });
            here.facts(shared, me, is_new, is_untold)
        }
        None => Vec::new(),
    };
    let mut lines: Vec<String> = owed.into_iter().chain(lines).collect();
    match lines.last_mut() {
        // The facts are at most five lines.
        Some(last) => last.extend(elsewhere.iter().flat_map(|turns| [" ", turns.as_str()])),
        None => lines.extend(elsewhere),
    }
    if is_untold {
        shared.sessions.settle_untold(me);
        // Before it is told: a daemon that is killed now must not take from it what it knows that it has.
        if let Err(e) = background::save_sessions(&shared.engine, &shared.sessions).await {
            tracing::error!("storing what a session was told: {e}");
        }
    }
    drop(alone);
    let facts = (!lines.is_empty()).then(|| block::frame_facts(&lines));
    // A turn that goes on anyhow brings everything that waits.
    let opening = if causes.is_empty() { boundary.opening(was_held) } else { Opening::Fresh };
    let batch = Batch::take(shared, call, opening, facts.as_ref().map_or(0, |facts| facts.chars().count())).await?;
    if facts.is_none() && batch.is_none() {
        return Ok(None);
    }
    if holds {
        let by = batch.as_ref().and_then(|batch| batch.wakes).unwrap_or(Wakes::ByAgent);
        told.held(me, by, causes, now);
    }
    let block = batch.as_ref().map(Batch::text);
    let parts: Vec<String> = holds.then(|| NOT_YET.to_owned()).into_iter().chain(facts).chain(block).collect();
    Ok(Some(Say { text: parts.join("\n"), holds, messages: batch.map(Batch::keep).unwrap_or_default() }))
}

/// Messages that were taken to be shown together. They are given back unless they are kept.
struct Batch {
    lines: Vec<Line>,
    /// How many stay in the inbox.
    more: usize,
    /// On whose account they go to a session that would be idle.
    wakes: Option<Wakes>,
    taken: Vec<(RoomId, Vec<i64>, HeldMessages)>,
}

impl Batch {
    /// Takes what is to be handed to the caller at this moment, if that is anything. `said`: so many characters are said beside it.
    async fn take(shared: &Shared, call: &Call, opening: Opening, said: usize) -> Result<Option<Self>, Error> {
        let identity = call.identity()?;
        // What is shown to a subagent does not reach the conversation that the message is for.
        if shared.engine.unread().rooms_of(&identity.agent_id).is_empty() || shared.is_subagents(call) {
            return Ok(None);
        }
        let harness = identity.harness.as_deref().and_then(tt_harness::by_name);
        let max_chars = harness.map_or(MAX_BATCH_BYTES, |harness| harness.speech.max_chars);
        // How long one message may be, for the harness to show it whole.
        let longest_line = max_chars.saturating_sub(FRAME_CHARS + said);
        // A member that counted as gone is back, and that is written: which member it is has to be stored before.
        let me = shared.context(call).await?.agent_id().clone();
        let (mut facts, mut found, mut count) = (Vec::new(), Vec::new(), 0);
        for (room_id, _) in shared.engine.unread().rooms_of(&me) {
            let Some((of_room, waiting)) = look_at(shared, &me, &room_id, opening, longest_line).await? else {
                continue;
            };
            count += waiting.count;
            found.extend(waiting.pending.into_iter().map(|pending| {
                let message = plan::Message { room: facts.len(), ..pending.message };
                Pending { message, ..pending }
            }));
            facts.push(of_room);
        }
        let (doing, since) = shared.recipients.doing(&me);
        let woken = shared.recipients.told().woken(&me);
        let recipient = Recipient { doing, since, rooms: &facts, woken: &woken };
        let messages: Vec<plan::Message> = found.iter().map(|pending| pending.message).collect();
        let max_bytes = longest_line.min(MAX_BATCH_BYTES);
        let plan = plan::plan(&messages, &recipient, max_bytes, shared.engine.clock().now());
        let Some(planned) = plan.hand_over else { return Ok(None) };
        let mut batch = Self { lines: Vec::new(), more: 0, wakes: planned.wakes, taken: Vec::new() };
        let chosen: Vec<&Pending> = planned.messages.iter().map(|place| &found[*place]).collect();
        for room_id in chosen.iter().map(|pending| &pending.room_id).collect::<BTreeSet<&RoomId>>() {
            let seqs = chosen.iter().filter(|pending| pending.room_id == *room_id).map(|pending| pending.event_seq);
            batch.take_from(shared, call, room_id, seqs.collect()).await?;
        }
        let is_taken = |pending: &&&Pending| {
            let of_room = batch.taken.iter().find(|(room_id, ..)| *room_id == pending.room_id);
            of_room.is_some_and(|(_, seqs, _)| seqs.contains(&pending.event_seq))
        };
        batch.lines = chosen.iter().filter(is_taken).map(|pending| pending.line.clone()).collect();
        batch.more = count.saturating_sub(batch.lines.len());
        Ok(Some(batch).filter(|batch| !batch.lines.is_empty()))
    }

    /// Takes these messages of one room, as far as nobody else has taken them meanwhile. Nothing if the caller was removed from it.
    async fn take_from(
        &mut self,
        shared: &Shared,
        call: &Call,
        room_id: &RoomId,
        event_seqs: Vec<i64>,
    ) -> Result<(), Error> {
        let command = Command::TakeMessages {
            from: None,
            about: None,
            among: Some(event_seqs),
            mid_turn: false,
            max_replay: None,
            limit: MAX_BATCH,
            access: TakeAccess::Arriving,
        };
        let taken = |outcome: &Outcome<'_>| match outcome.reply {
            Reply::Taken { event_seqs, .. } => event_seqs.clone(),
            _ => Vec::new(),
        };
        let _room = call.answer_room().await;
        if let Ok((seqs, Some(held))) = shared.engine.take(room_id, shared.silent_context(call)?, command, taken).await
        {
            self.taken.push((room_id.clone(), seqs, held));
        }
        Ok(())
    }

    fn text(&self) -> String {
        block::frame(&self.lines, self.more)
    }

    /// Leaves the messages to the connection, and says which they are.
    fn keep(self) -> Vec<SaidMessages> {
        let said = |(room_id, event_seqs, held): (RoomId, Vec<i64>, HeldMessages)| {
            held.keep();
            SaidMessages { room_id, event_seqs }
        };
        self.taken.into_iter().map(said).collect()
    }
}

/// What waits for the caller in one room. None if that is no more.
async fn look_at(
    shared: &Shared,
    me: &AgentId,
    room_id: &RoomId,
    opening: Opening,
    max_chars: usize,
) -> Result<Option<(RoomFacts, Found)>, Error> {
    let (recipients, me, now) = (shared.recipients.clone(), me.clone(), shared.engine.clock().now());
    let wanted = OpenQuery { mid_turn: opening == Opening::MidTurn, ..OpenQuery::of(MAX_COUNTED) };
    let view = move |room: &Room, reader: &dyn Reader| {
        let facts = recipients.in_room(room, &me, Some((Surface::Hook, opening)), now);
        let found = pending::read(room, reader, &me, recipients.listeners(), wanted, max_chars, now)?;
        Ok(Some((facts, found)))
    };
    match shared.engine.look(room_id, view).await {
        Err(e) if e.code == ErrorCode::RoomNotFound => Ok(None),
        found => found,
    }
}
