//! What a hook is told to say: where its session stands, the messages that wait for it, and why its turn is not to end yet.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tt_proto::block::{self, Line};
use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::event::Event;
use tt_proto::message::{MAX_BATCH, MAX_BATCH_BYTES};
use tt_proto::requests::{SaidMessages, Say};
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::{Now, Room, TakeAccess};
use tt_store::{Reader, WaitingQuery};

use super::messages::{TakeOptions, take_and_look};
use super::{Call, Shared};
use crate::background;
use crate::delivery::boundary::Boundary;
use crate::delivery::facts::{self, Stick};
use crate::delivery::pending;
use crate::delivery::plan::{self, Opening, Recipient, RoomFacts};
use crate::delivery::told::Cause;
use crate::delivery::wakes::Wakes;
use crate::engine::HeldMessages;

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
    let _alone = if is_untold { Some(shared.sessions.tells_alone().await) } else { None };
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

/// A message that was taken, before it is decided whether it is shown now.
struct Candidate {
    /// Which of the inboxes it is in.
    room: usize,
    line: Line,
}

impl Batch {
    /// Takes what waits for the caller, if that is anything, and keeps what is to be handed over at this moment. `said`: so many
    /// characters are said beside it.
    async fn take(shared: &Shared, call: &Call, opening: Opening, said: usize) -> Result<Option<Self>, Error> {
        let identity = call.identity()?;
        if shared.engine.unread().rooms_of(&identity.agent_id).is_empty() {
            return Ok(None);
        }
        let harness = identity.harness.as_deref().and_then(tt_harness::by_name);
        let max_chars = harness.map_or(MAX_BATCH_BYTES, |harness| harness.speech.max_chars);
        // How long one message may be, for the harness to show it whole.
        let longest_line = max_chars.saturating_sub(FRAME_CHARS + said);
        // A member that counted as gone is back, and that is written: which member it is has to be stored before.
        let me = shared.context(call).await?.agent_id().clone();
        let mut batch = Self { lines: Vec::new(), more: 0, wakes: None, taken: Vec::new() };
        let (mut facts, mut messages, mut candidates) = (Vec::new(), Vec::new(), Vec::new());
        for (room_id, _) in shared.engine.unread().rooms_of(&me) {
            let room = facts.len();
            let Some(inbox) = batch.take_from(shared, call, &me, &room_id, opening).await? else { continue };
            facts.push(inbox.facts);
            for (event, wakes) in inbox.events.iter().zip(inbox.wakes) {
                let Some(line) = block::message_line_within(event, longest_line) else { continue };
                messages.push(pending::message_of(event, room, wakes, line.json.len()));
                candidates.push(Candidate { room, line });
            }
        }
        let (doing, since) = shared.recipients.doing(&me);
        let woken = shared.recipients.told().woken(&me);
        let recipient = Recipient { doing, since, rooms: &facts, woken: &woken };
        let max_bytes = longest_line.min(MAX_BATCH_BYTES);
        let plan = plan::plan(&messages, &recipient, max_bytes, shared.engine.clock().now());
        let (chosen, wakes) = plan.hand_over.map_or((Vec::new(), None), |now| (now.messages, now.wakes));
        for (place, candidate) in candidates.iter().enumerate() {
            let (_, kept, held) = &mut batch.taken[candidate.room];
            let event_seq = messages[place].event_seq;
            if chosen.contains(&place) {
                kept.push(event_seq);
            } else {
                held.give_back(&[event_seq]);
                batch.more += 1;
            }
        }
        batch.wakes = wakes;
        batch.lines = chosen.iter().map(|place| candidates[*place].line.clone()).collect();
        Ok(Some(batch).filter(|batch| !batch.lines.is_empty()))
    }

    /// Takes what may be handed over now of one room. None if it cannot be read, because the caller was removed from it for example.
    async fn take_from(
        &mut self,
        shared: &Shared,
        call: &Call,
        me: &AgentId,
        room_id: &RoomId,
        opening: Opening,
    ) -> Result<Option<Inbox>, Error> {
        let options = TakeOptions {
            from: None,
            about: None,
            mid_turn: opening == Opening::MidTurn,
            max_replay: None,
            limit: MAX_BATCH,
            max_bytes: None,
            access: TakeAccess::Arriving,
            way: None,
        };
        let seen = Arc::new(Mutex::new(None));
        let noted = seen.clone();
        let look = move |room: &Room| *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(room.clone());
        let inbox = (room_id.clone(), me.clone());
        let Ok(found) = take_and_look(shared, call, &inbox, options, look).await else { return Ok(None) };
        self.more += found.taken.more;
        let Some(held) = found.held else { return Ok(None) };
        self.taken.push((room_id.clone(), Vec::new(), held));
        let Some(room) = seen.lock().unwrap_or_else(PoisonError::into_inner).take() else { return Ok(None) };
        let now = shared.engine.clock().now();
        let facts = shared.recipients.in_room(&room, me, Some((Surface::Hook, opening)), now);
        let events = found.taken.events;
        let replied_to = pending::replied_to(&events);
        let questions = match replied_to.is_empty() {
            true => Vec::new(),
            false => shared.engine.read(move |reader| reader.events_by_seq(&replied_to)).await?,
        };
        let wakes = pending::wakes_with(&room, &questions, &events);
        Ok(Some(Inbox { facts, wakes, events }))
    }

    fn text(&self) -> String {
        block::frame(&self.lines, self.more)
    }

    /// Leaves the messages to the connection, and says which they are.
    fn keep(self) -> Vec<SaidMessages> {
        let mut said = Vec::new();
        for (room_id, event_seqs, held) in self.taken {
            held.keep();
            if !event_seqs.is_empty() {
                said.push(SaidMessages { room_id, event_seqs });
            }
        }
        said
    }
}

/// What waits for the caller in one room.
struct Inbox {
    facts: RoomFacts,
    events: Vec<Event>,
    wakes: Vec<Wakes>,
}
