//! Hands messages over by the ways that start by themselves: carries out what `plan` decides, and finds out what became of it.
//!
//! Each agent for whom there may be something to do has one courier, a task that ends when there is nothing to wait for. It is
//! woken by a message that was sent or given back, by evidence of the agent's session, and at the moment its plan named; it
//! never looks again and again. Ways are used at a distance, each time in a task of its own, with a limit: one that hangs or
//! crashes costs only its own hand-over.
//!
//! That a hand-over begins is stored before it, and the messages are held until it is known what became of it. Whether they arrived
//! is never the word of the hand-over itself, but of a look at the evidence. While nothing shows it, they stay held, also over
//! a restart; once the session has been idle for `CONFIRM_WITHIN` without a sign of them, they are open again and the way is left
//! out for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::{self, JoinSet};
use tt_proto::block::{self, Line};
use tt_proto::delivery::WayName;
use tt_proto::message::MAX_BATCH_BYTES;
use tt_proto::{AgentId, Error, ErrorCode, RoomId};
use tt_rules::{Command, DeliveryRow, LeaseTime, Room};
use tt_store::Reader;

use super::pending::{self, Pending};
use super::plan::{self, Doing, HandOver, LeftOut, Plan, Reach, Recipient, RoomFacts};
use super::recipients::Recipients;
use super::ways::{Arrived, Begun, Block, Handed, Way};
use crate::engine::Engine;

/// How long a hand-over may take.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(30);

/// How long the last look may take, after which a hand-over has failed.
const LAST_LOOK_LIMIT: Duration = Duration::from_secs(2);

/// How long a session may be idle without a sign of what was handed over.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);

/// How soon something that could not be read or stored is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How many messages of a room are looked at for one plan.
const MAX_PLANNED: usize = 50;

/// Runs until it is cancelled. `wakes`: agents for whom something may have changed.
pub async fn run(engine: Engine, recipients: Recipients, mut wakes: UnboundedReceiver<AgentId>) {
    let mut couriers = Couriers::default();
    for (agent_id, begun) in unfinished(&engine).await {
        couriers.start(Courier::new(&engine, &recipients, &agent_id), begun);
    }
    loop {
        tokio::select! {
            woken = wakes.recv() => match woken {
                Some(agent_id) if couriers.wake(&agent_id) => {}
                Some(agent_id) => {
                    let rooms: Vec<RoomId> =
                        engine.unread().rooms_of(&agent_id).into_iter().map(|(room_id, _)| room_id).collect();
                    if recipients.can_start(&agent_id, &rooms) {
                        couriers.start(Courier::new(&engine, &recipients, &agent_id), Vec::new());
                    }
                }
                None => return,
            },
            Some(ended) = couriers.tasks.join_next_with_id(), if !couriers.tasks.is_empty() => {
                if let Some(agent_id) = couriers.ended(ended) {
                    // Something happened while it was about to end.
                    couriers.start(Courier::new(&engine, &recipients, &agent_id), Vec::new());
                }
            }
        }
    }
}

/// The couriers that are under way.
#[derive(Default)]
struct Couriers {
    tasks: JoinSet<u64>,
    by_task: HashMap<task::Id, AgentId>,
    /// How often each was woken.
    woken: HashMap<AgentId, watch::Sender<u64>>,
}

impl Couriers {
    /// Wakes the courier of an agent. Returns whether it has one.
    fn wake(&self, agent_id: &AgentId) -> bool {
        let woken = self.woken.get(agent_id);
        woken.inspect(|woken| woken.send_modify(|count| *count += 1)).is_some()
    }

    fn start(&mut self, mut courier: Courier, begun: Vec<(WayName, Begun)>) {
        let (sender, woken) = watch::channel(0);
        let agent_id = courier.agent_id.clone();
        self.woken.insert(agent_id.clone(), sender);
        let task = self.tasks.spawn(async move {
            let mut woken = woken;
            courier.run(begun, &mut woken).await
        });
        self.by_task.insert(task.id(), agent_id);
    }

    /// A courier has ended. Returns its agent if it was woken since it last looked.
    fn ended(&mut self, ended: Result<(task::Id, u64), task::JoinError>) -> Option<AgentId> {
        let (id, seen) = match ended {
            Ok((id, seen)) => (id, Some(seen)),
            Err(e) => {
                tracing::error!("a courier: {e}");
                (e.id(), None)
            }
        };
        let agent_id = self.by_task.remove(&id)?;
        let woken = self.woken.remove(&agent_id)?;
        // One that crashed is not started again by itself.
        seen.is_some_and(|seen| *woken.borrow() != seen).then_some(agent_id)
    }
}

/// What earlier daemons began and did not finish, for each agent.
async fn unfinished(engine: &Engine) -> HashMap<AgentId, Vec<(WayName, Begun)>> {
    let rows = loop {
        match engine.read(|reader| reader.attempts()).await {
            Ok(rows) => break rows,
            Err(e) => {
                tracing::error!("reading what was being handed over: {e}");
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    };
    group(rows)
}

/// The hand-overs that these deliveries belong to.
fn group(rows: Vec<(RoomId, DeliveryRow)>) -> HashMap<AgentId, Vec<(WayName, Begun)>> {
    let mut found: HashMap<AgentId, Vec<(WayName, Begun)>> = HashMap::new();
    for (room_id, row) in rows {
        let Some(attempt) = row.attempt else { continue };
        let Some(way) = WayName::of(attempt.surface) else {
            tracing::warn!(tag = attempt.tag, "a newer version began to hand over message {}", row.event_seq);
            continue;
        };
        let of_agent = found.entry(row.recipient.clone()).or_default();
        if !of_agent.iter().any(|(_, begun)| begun.tag == attempt.tag) {
            let begun = Begun { agent_id: row.recipient, tag: attempt.tag.clone(), messages: Vec::new() };
            of_agent.push((way, begun));
        }
        let Some((_, begun)) = of_agent.iter_mut().find(|(_, begun)| begun.tag == attempt.tag) else { continue };
        match begun.messages.iter_mut().find(|(room, _)| *room == room_id) {
            Some((_, seqs)) => seqs.push(row.event_seq),
            None => begun.messages.push((room_id, vec![row.event_seq])),
        }
    }
    found
}

/// Brings an agent what waits for it.
struct Courier {
    engine: Engine,
    recipients: Recipients,
    agent_id: AgentId,
}

type WokenUp = watch::Receiver<u64>;

/// What there is to do for an agent.
struct Look {
    pending: Vec<Pending>,
    plan: Plan,
}

impl Courier {
    fn new(engine: &Engine, recipients: &Recipients, agent_id: &AgentId) -> Self {
        Self { engine: engine.clone(), recipients: recipients.clone(), agent_id: agent_id.clone() }
    }

    /// Runs until there is nothing to do for the agent, nor a moment to wait for. Returns how often it had been woken when it last
    /// looked.
    async fn run(&mut self, begun: Vec<(WayName, Begun)>, woken: &mut WokenUp) -> u64 {
        for (way, begun) in begun {
            self.settle(way, &begun, self.now(), woken).await;
        }
        loop {
            let seen = *woken.borrow_and_update();
            let look = match self.look().await {
                Ok(look) => look,
                Err(e) => {
                    tracing::error!("what waits for {}: {e}", self.agent_id);
                    tokio::time::sleep(RETRY_DELAY).await;
                    continue;
                }
            };
            if let Some(hand_over) = &look.plan.hand_over
                && self.carry_out(hand_over, &look.pending, woken).await
            {
                continue;
            }
            let again = look.plan.look_again();
            tokio::select! {
                changed = woken.changed() => if changed.is_err() { return seen },
                () = self.until(again), if again.is_some() => {}
                // Whatever changes from now on starts another one.
                () = std::future::ready(()), if again.is_none() && !woken.has_changed().unwrap_or(false) => return seen,
            }
        }
    }

    /// Looks at everything that waits for the agent, and plans. What is about to be taken is left to those who take it.
    async fn look(&self) -> Result<Look, Error> {
        let rooms: Vec<RoomId> =
            self.engine.unread().rooms_of(&self.agent_id).into_iter().map(|(room_id, _)| room_id).collect();
        let (mut facts, mut found): (Vec<RoomFacts>, Vec<Pending>) = (Vec::new(), Vec::new());
        if self.recipients.can_start(&self.agent_id, &rooms) {
            for room_id in &rooms {
                let (this, agent_id, place) = (self.recipients.clone(), self.agent_id.clone(), facts.len());
                let now = self.engine.clock().now();
                let view = move |room: &Room, reader: &dyn Reader| {
                    let facts = this.in_room(room, &agent_id, None, now);
                    let mut pending = pending::read(room, reader, &agent_id, this.listeners(), MAX_PLANNED, now)?;
                    pending.iter_mut().for_each(|pending| pending.message.room = place);
                    Ok((facts, pending))
                };
                match self.engine.look(room_id, view).await {
                    Ok((of_room, pending)) => {
                        facts.push(of_room);
                        found.extend(pending);
                    }
                    Err(e) if e.code == ErrorCode::RoomNotFound => {}
                    Err(e) => return Err(e),
                }
            }
        }
        found.retain(|pending| !facts[pending.message.room].ways.iter().any(|way| way.reach == Reach::Listens));
        let (doing, since) = self.recipients.doing(&self.agent_id);
        let woken = self.recipients.told().woken(&self.agent_id);
        let recipient = Recipient { doing, since, rooms: &facts, woken: &woken };
        let messages: Vec<plan::Message> = found.iter().map(|pending| pending.message).collect();
        let plan = plan::plan(&messages, &recipient, MAX_BATCH_BYTES, self.engine.clock().now());
        Ok(Look { pending: found, plan })
    }

    /// Hands over what was planned. Returns whether anything came of it.
    async fn carry_out(&self, planned: &HandOver, pending: &[Pending], woken: &mut WokenUp) -> bool {
        let Some(way) = self.recipients.way(planned.way).cloned() else { return false };
        let agent_id = self.agent_id.clone();
        let look = self.at_a_distance(&way, LAST_LOOK_LIMIT, |way| async move { way.not_now(&agent_id).await });
        if let Ok(Some((because, retry))) = look.await {
            let left_out = LeftOut { until: self.now() + retry, because };
            self.recipients.failures().not_now(&self.agent_id, planned.way, left_out);
            return true;
        }
        let Some(block) = self.begin(planned, pending).await else { return false };
        let began = self.now();
        let attempt = block.attempt.clone();
        let handing = self.at_a_distance(&way, HAND_OVER_LIMIT, move |way| async move { way.hand_over(&block).await });
        let handed = handing.await.unwrap_or_else(Handed::Unknown);
        let (agent_id, failures) = (&self.agent_id, self.recipients.failures());
        match handed {
            Handed::Over | Handed::Unknown(_) => {
                if let Handed::Unknown(why) = handed {
                    tracing::warn!(way = planned.way.as_str(), tag = attempt.tag, "handing over to {agent_id}: {why}");
                }
                if let Some(by) = planned.wakes {
                    self.recipients.told().wake(agent_id, by, began);
                }
                self.settle(planned.way, &attempt, began, woken).await;
            }
            Handed::NotNow { because, retry } => {
                // First, so that nobody plans with this way meanwhile.
                failures.not_now(agent_id, planned.way, LeftOut { until: self.now() + retry, because });
                self.end(&attempt, false).await;
            }
            Handed::Failed(why) => {
                tracing::info!(way = planned.way.as_str(), "handing over to {agent_id} failed: {why}");
                failures.failed(agent_id, planned.way, self.now());
                self.end(&attempt, false).await;
            }
        }
        true
    }

    /// Stores that a hand-over begins. None if nothing of it is open any more.
    async fn begin(&self, planned: &HandOver, pending: &[Pending]) -> Option<Block> {
        let tag = block::fresh_tag();
        let surface = planned.way.surface();
        let chosen: Vec<&Pending> = planned.messages.iter().map(|place| &pending[*place]).collect();
        let mut messages: Vec<(RoomId, Vec<i64>)> = Vec::new();
        for pending in &chosen {
            match messages.iter_mut().find(|(room_id, _)| *room_id == pending.room_id) {
                Some((_, seqs)) => seqs.push(pending.event_seq),
                None => messages.push((pending.room_id.clone(), vec![pending.event_seq])),
            }
        }
        for (room_id, seqs) in &mut messages {
            let begun = self.engine.begin_attempt(room_id, &self.agent_id, seqs.clone(), surface, &tag).await;
            // What may have been stored is found when it is ended, or by the next daemon.
            *seqs = begun.inspect_err(|e| tracing::error!("storing a hand-over: {e}")).unwrap_or_default();
        }
        messages.retain(|(_, seqs)| !seqs.is_empty());
        let is_begun = |pending: &&&Pending| {
            messages.iter().any(|(room_id, seqs)| *room_id == pending.room_id && seqs.contains(&pending.event_seq))
        };
        let lines: Vec<Line> = chosen.iter().filter(is_begun).map(|pending| pending.line.clone()).collect();
        if lines.is_empty() {
            return None;
        }
        let more = pending.len() - lines.len();
        let text = block::frame_tagged(&tag, &lines, more);
        let attempt = Begun { agent_id: self.agent_id.clone(), tag, messages };
        Some(Block { attempt, text, breaks_off: planned.breaks_off })
    }

    /// Finds out whether a block arrived, and ends its hand-over. Nothing but evidence decides; time only while the session is known
    /// to do nothing.
    async fn settle(&self, name: WayName, begun: &Begun, began: LeaseTime, woken: &mut WokenUp) {
        let Some(way) = self.recipients.way(name).cloned() else {
            tracing::warn!(tag = begun.tag, "{} is not known here: what it began stays as it is", name.as_str());
            return;
        };
        let arrived = self.arrives(&way, begun, began, woken).await;
        let failures = self.recipients.failures();
        if arrived {
            failures.worked(&self.agent_id, name);
        } else {
            failures.failed(&self.agent_id, name, self.now());
        }
        self.end(begun, arrived).await;
    }

    /// Waits until it is known whether a block arrived.
    async fn arrives(&self, way: &Arc<dyn Way>, begun: &Begun, began: LeaseTime, woken: &mut WokenUp) -> bool {
        let look = || {
            let (way, begun) = (way.clone(), begun.clone());
            AbortOnDrop(tokio::spawn(async move { way.look(&begun).await }))
        };
        let mut looking = Some(look());
        loop {
            woken.mark_unchanged();
            let until = self.confirmed_by(began);
            let answer = async {
                match &mut looking {
                    Some(looking) => (&mut looking.0).await.unwrap_or(Arrived::Unknown),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                arrived = answer => match arrived {
                    Arrived::Yes => return true,
                    Arrived::No => return false,
                    Arrived::Unknown => looking = None,
                },
                changed = woken.changed() => match changed {
                    // There is new evidence.
                    Ok(()) => looking = Some(looking.unwrap_or_else(look)),
                    Err(_) => std::future::pending().await,
                },
                () = self.until(until), if until.is_some() => {
                    if self.confirmed_by(began).is_none_or(|until| until > self.now()) {
                        // It has begun to do something meanwhile.
                        continue;
                    }
                    drop(looking);
                    let begun = begun.clone();
                    let last = |way: Arc<dyn Way>| async move { way.look(&begun).await };
                    return self.at_a_distance(way, LAST_LOOK_LIMIT, last).await == Ok(Arrived::Yes);
                }
            }
        }
    }

    /// By when there must be a sign of what was handed over. None while the session may still come to it.
    fn confirmed_by(&self, began: LeaseTime) -> Option<LeaseTime> {
        match self.recipients.doing(&self.agent_id) {
            (Doing::Idle, Some(since)) => Some(began.max(since) + CONFIRM_WITHIN),
            (Doing::Idle, None) => Some(began + CONFIRM_WITHIN),
            (Doing::Gone, _) => Some(began),
            (Doing::Busy | Doing::Asking | Doing::Unknown, _) => None,
        }
    }

    /// Stores what became of a hand-over.
    async fn end(&self, begun: &Begun, arrived: bool) {
        for (room_id, event_seqs) in &begun.messages {
            let (recipient, tag, event_seqs) = (self.agent_id.clone(), begun.tag.clone(), event_seqs.clone());
            let command = Command::EndAttempt { recipient, event_seqs, tag, arrived };
            loop {
                match self.engine.run_system_command(room_id, command.clone()).await {
                    Ok(()) => break,
                    Err(e) if e.code == ErrorCode::RoomNotFound => break,
                    Err(e) => {
                        tracing::error!("storing the end of a hand-over: {e}");
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                }
            }
        }
    }

    /// Lets a way do something in a task of its own, for no longer than this. What went wrong otherwise, in words.
    async fn at_a_distance<T, F>(
        &self,
        way: &Arc<dyn Way>,
        limit: Duration,
        act: impl FnOnce(Arc<dyn Way>) -> F + Send + 'static,
    ) -> Result<T, String>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send,
    {
        let way = way.clone();
        let mut task = AbortOnDrop(tokio::spawn(async move { act(way).await }));
        tokio::select! {
            done = &mut task.0 => done.map_err(|_| "it crashed".to_owned()),
            () = self.until(Some(self.now() + limit)) => Err(format!("it took longer than {limit:?}")),
        }
    }

    async fn until(&self, at: Option<LeaseTime>) {
        match at {
            Some(at) => self.engine.clock().until(at).await,
            None => std::future::pending().await,
        }
    }

    fn now(&self) -> LeaseTime {
        self.engine.clock().now().lease
    }
}

/// A task that ends with its owner.
struct AbortOnDrop<T>(task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests;
