//! What a hook is told to say: where its session stands, the messages that wait for it, and why its turn is not to end yet.

use std::path::Path;

use tt_proto::block::{self, Line};
use tt_proto::delivery::DeliveryState;
use tt_proto::message::{MAX_BATCH, MAX_BATCH_BYTES};
use tt_proto::requests::{SaidMessages, Say};
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::{Now, Room, TakeAccess};
use tt_store::{Reader, WaitingQuery};

use super::messages::{TakeOptions, take};
use super::{Call, Shared};
use crate::delivery::boundary::{Boundary, wakes};
use crate::delivery::facts::{self, Stick};
use crate::delivery::told::Cause;
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
        if room.owner.as_ref() == Some(me)
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
            is_quiet: member.quiet_until.is_some_and(|until| until > now.deadline),
            causes,
        }))
    }

    /// What the session is told of this: everything, or only what is news to it.
    fn facts(self, shared: &Shared, me: &AgentId, is_new: bool) -> Vec<String> {
        let Some(all) = self.all else { return Vec::new() };
        match shared.told.stick(me, &self.room_id, self.stick.clone()) {
            Some(before) if !is_new => {
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

/// What to say to the session of a hook at this moment. Nothing, most often; at a tool that costs no query.
pub(super) async fn say(
    shared: &Shared,
    call: &Call,
    boundary: Boundary,
    cwd: Option<&str>,
) -> Result<Option<Say>, Error> {
    let me = &call.identity()?.agent_id;
    let now = shared.engine.clock().now().lease;
    let holds = boundary == Boundary::TurnEnd;
    if boundary == Boundary::Prompt {
        shared.told.prompted(me);
    }
    if holds && !shared.told.may_hold(me, now) {
        return Ok(None);
    }
    let here = if boundary == Boundary::Tool { None } else { Here::find(shared, me, cwd).await? };
    let mut causes = Vec::new();
    let owed = if holds { Vec::new() } else { shared.told.take_owed(me) };
    let lines: Vec<String> = match here {
        // It asked to be left alone, and gets what waits with the next thing it does.
        Some(here) if holds && here.is_quiet => return Ok(None),
        Some(here) if holds => {
            let all = here.causes.iter().map(|(cause, _)| cause.clone()).collect();
            causes = shared.told.new_causes(me, all);
            here.causes.into_iter().filter(|(cause, _)| causes.contains(cause)).map(|(_, text)| text).collect()
        }
        Some(here) => {
            let is_new = matches!(boundary, Boundary::Started { .. });
            here.facts(shared, me, is_new)
        }
        None => Vec::new(),
    };
    let lines: Vec<String> = owed.into_iter().chain(lines).collect();
    let facts = (!lines.is_empty()).then(|| block::frame_facts(&lines));
    let batch = Batch::take(shared, call, boundary, facts.as_ref().map_or(0, |facts| facts.chars().count())).await?;
    let batch = batch.filter(|batch| !holds || batch.wakes || !causes.is_empty());
    if facts.is_none() && batch.is_none() {
        return Ok(None);
    }
    if holds {
        shared.told.held(me, causes, now);
    }
    let block = batch.as_ref().map(Batch::text);
    let parts: Vec<String> = holds.then(|| NOT_YET.to_owned()).into_iter().chain(facts).chain(block).collect();
    Ok(Some(Say { text: parts.join("\n"), holds, messages: batch.map(Batch::keep).unwrap_or_default() }))
}

/// Messages that were taken to be shown together. They are given back unless they are kept.
struct Batch {
    /// How long one message may be, for the harness to show it whole.
    longest_line: usize,
    /// How many bytes all of them may have.
    max_bytes: usize,
    lines: Vec<Line>,
    bytes: usize,
    /// How many stay in the inbox.
    more: usize,
    /// Whether one of them may go to a session that is idle.
    wakes: bool,
    taken: Vec<(RoomId, Vec<i64>, HeldMessages)>,
}

impl Batch {
    /// Takes what waits for the caller, if that is anything. `said`: so many characters are said beside it.
    async fn take(shared: &Shared, call: &Call, boundary: Boundary, said: usize) -> Result<Option<Self>, Error> {
        let identity = call.identity()?;
        if shared.engine.unread().rooms_of(&identity.agent_id).is_empty() {
            return Ok(None);
        }
        let harness = identity.harness.as_deref().and_then(tt_harness::by_name);
        let max_chars = harness.map_or(MAX_BATCH_BYTES, |harness| harness.speech.max_chars);
        let longest_line = max_chars.saturating_sub(FRAME_CHARS + said);
        let mut batch = Self {
            longest_line,
            max_bytes: longest_line.min(MAX_BATCH_BYTES),
            lines: Vec::new(),
            bytes: 0,
            more: 0,
            wakes: false,
            taken: Vec::new(),
        };
        batch.collect(shared, call, boundary).await?;
        Ok(Some(batch).filter(|batch| !batch.lines.is_empty()))
    }

    /// Takes what waits for the caller in any room: what interrupts first of all.
    async fn collect(&mut self, shared: &Shared, call: &Call, boundary: Boundary) -> Result<(), Error> {
        // A member that counted as gone is back, and that is written: which member it is has to be stored before.
        let agent_id = shared.context(call).await?.agent_id().clone();
        let inboxes = shared.engine.unread().rooms_of(&agent_id);
        for (room_id, unread) in inboxes.iter().filter(|(_, unread)| unread.interrupts > 0 && inboxes.len() > 1) {
            // What stays is counted below, with the others.
            self.take_from(shared, call, room_id, boundary, unread.interrupts).await;
        }
        for (room_id, _) in &inboxes {
            self.more += self.take_from(shared, call, room_id, boundary, MAX_BATCH).await;
        }
        Ok(())
    }

    /// Takes up to this many messages of a room. Returns how many stay in its inbox. A room that cannot be read, because the
    /// caller was removed from it for example, is left out.
    async fn take_from(
        &mut self,
        shared: &Shared,
        call: &Call,
        room_id: &RoomId,
        boundary: Boundary,
        limit: usize,
    ) -> usize {
        let limit = if self.more > 0 { 0 } else { limit.min(MAX_BATCH - self.lines.len()) };
        let Ok(identity) = call.identity() else { return 0 };
        let inbox = (room_id.clone(), identity.agent_id.clone());
        let options = TakeOptions {
            from: None,
            about: None,
            mid_turn: boundary.is_mid_turn(),
            max_replay: None,
            limit,
            max_bytes: None,
            access: TakeAccess::Arriving,
        };
        let Ok(found) = take(shared, call, &inbox, options).await else { return 0 };
        let Some(mut held) = found.held else { return found.taken.more };
        let (mut seqs, mut rest) = (Vec::new(), Vec::new());
        for event in &found.taken.events {
            // The most urgent come first: once one did not fit, none after it does.
            let line = block::message_line_within(event, self.longest_line).filter(|line| {
                rest.is_empty() && (self.lines.is_empty() || self.bytes + line.json.len() <= self.max_bytes)
            });
            let Some(line) = line else {
                rest.push(event.event_seq);
                continue;
            };
            self.bytes += line.json.len();
            self.wakes |= wakes(event);
            self.lines.push(line);
            seqs.push(event.event_seq);
        }
        held.give_back(&rest);
        self.taken.push((room_id.clone(), seqs, held));
        found.taken.more + rest.len()
    }

    fn text(&self) -> String {
        block::frame(&self.lines, self.more)
    }

    /// Leaves the messages to the connection, and says which they are.
    fn keep(self) -> Vec<SaidMessages> {
        let mut said: Vec<SaidMessages> = Vec::new();
        for (room_id, event_seqs, held) in self.taken {
            held.keep();
            match said.iter_mut().find(|said| said.room_id == room_id) {
                Some(of_room) => of_room.event_seqs.extend(event_seqs),
                None => said.push(SaidMessages { room_id, event_seqs }),
            }
        }
        said
    }
}
