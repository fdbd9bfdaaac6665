//! One command on one room, from end to end: load, decide, save, commit, and then the effects.
//!
//! This is the only way a room changes. The store runs units of work one after the other, so that no two commands decide on
//! the same state; the rules decide; and after the commit this tells everyone it concerns.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, oneshot};
use tt_proto::delivery::{DeliveryChanged, Surface};
use tt_proto::event::{Event, EventType};
use tt_proto::hello::Anchor;
use tt_proto::policy::Policy;
use tt_proto::room::{Liveness, MemberStatus};
use tt_proto::{AgentId, Error, ErrorCode, RoomId};
use tt_rules::resolution::Resolution;
use tt_rules::{
    Caller, Command, ConnectionId, Decision, DeliveryChange, Due, Effect, LeaseTime, Member, Needs, Now, Overview,
    Reply, Request, Room, TimerKey, decide,
};
use tt_store::{Loaded, Location, Reader, RequestKey, Store, UnitOfWork};

use crate::clock::Clock;
use crate::feed::Feed;
use crate::listeners::Listeners;
use crate::membership_cursors::MembershipCursors;
use crate::presence::{Presence, STORE_INTERVAL};
use crate::timers::Timers;
use crate::unread::{UnreadChanges, UnreadCounts};
use crate::views::MAX_GONE_LISTED;
use crate::waiters::Waiters;
use crate::workspace::Workspace;

/// Knows which processes of members are alive.
pub trait MemberProcesses: std::fmt::Debug + Send + Sync + 'static {
    fn liveness(&self, anchor: &Anchor) -> Liveness;
    /// Reports the end of this process from now on.
    fn watch(&self, anchor: &Anchor);
    /// Whether a member lives, from the best evidence there is. Its process is evidence unless it shares that with others.
    fn member_liveness(&self, _agent_id: &AgentId, anchor: Option<&Anchor>) -> Liveness {
        anchor.map_or(Liveness::Unknown, |anchor| self.liveness(anchor))
    }
}

/// Runs commands. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    clock: Clock,
    processes: Arc<dyn MemberProcesses>,
    policy: Policy,
    /// An earlier daemon saw nobody later than this.
    started_at: LeaseTime,
    waiters: Waiters,
    presence: Presence,
    timers: Timers,
    listeners: Listeners,
    membership_cursors: MembershipCursors,
    feed: Feed,
    unread: UnreadCounts,
    /// Told when there are new events for the full-text index.
    appended: Notify,
}

/// Who gives a command, and the key under which a repeated one is recognised.
#[derive(Debug, Clone)]
pub struct CommandContext {
    pub caller: Caller,
    pub key: Option<RequestKey>,
}

impl CommandContext {
    pub fn agent_id(&self) -> &AgentId {
        self.caller.agent_id()
    }
}

/// What a command came to, for making its answer.
#[derive(Debug)]
pub struct Outcome<'a> {
    pub reply: &'a Reply,
    pub room: &'a Room,
    pub events: &'a [Arc<Event>],
    /// As it was before the command, for commands that need it.
    pub overview: Option<&'a Overview>,
    /// How the path of a join was resolved.
    pub resolution: Option<&'a Resolution>,
    pub now: Now,
}

impl Engine {
    pub fn new(store: Arc<dyn Store>, clock: Clock, processes: Arc<dyn MemberProcesses>, policy: Policy) -> Self {
        let started_at = clock.now().lease;
        Self(Arc::new(Inner {
            store,
            clock,
            processes,
            policy,
            started_at,
            waiters: Waiters::default(),
            presence: Presence::default(),
            timers: Timers::default(),
            listeners: Listeners::default(),
            membership_cursors: MembershipCursors::default(),
            feed: Feed::default(),
            unread: UnreadCounts::default(),
            appended: Notify::new(),
        }))
    }

    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    pub fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }

    pub fn presence(&self) -> &Presence {
        &self.0.presence
    }

    pub fn timers(&self) -> &Timers {
        &self.0.timers
    }

    pub fn listeners(&self) -> &Listeners {
        &self.0.listeners
    }

    pub fn membership_cursors(&self) -> &MembershipCursors {
        &self.0.membership_cursors
    }

    pub fn feed(&self) -> &Feed {
        &self.0.feed
    }

    pub fn unread(&self) -> &UnreadCounts {
        &self.0.unread
    }

    /// How many entries are kept in memory about rooms.
    pub fn remembered(&self) -> usize {
        let Inner { waiters, listeners, feed, membership_cursors, presence, .. } = &*self.0;
        [waiters.count(), listeners.count(), feed.count(), membership_cursors.count(), presence.count()].iter().sum()
    }

    /// Resolves when events were added to the log since it last did.
    pub async fn appended(&self) {
        self.0.appended.notified().await;
    }

    /// Notes a sign of life. Costs no disk.
    pub fn seen(&self, agent: &AgentId) {
        self.0.presence.seen(agent, self.0.clock.now().lease);
    }

    /// Runs a member's command on a room. `answer` makes the response of what it came to; it may be called more than once.
    /// With a key, the response is kept as JSON, so it has to be short.
    pub async fn run<T>(
        &self,
        room_id: &RoomId,
        context: CommandContext,
        command: Command,
        answer: impl Fn(&Outcome<'_>) -> T + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let CommandContext { caller, key } = context;
        let target = Target::Room(room_id.clone());
        let (answer, held) = self.submit(target, Some(caller), key, command, answer).await?;
        held.into_iter().for_each(HeldMessages::keep);
        Ok(answer)
    }

    /// Runs a command that takes messages. They are given back unless the caller keeps them, once it has all it needs to hand
    /// them over.
    pub async fn take<T>(
        &self,
        room_id: &RoomId,
        context: CommandContext,
        command: Command,
        answer: impl Fn(&Outcome<'_>) -> T + Send + 'static,
    ) -> Result<(T, Option<HeldMessages>), Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let CommandContext { caller, key } = context;
        self.submit(Target::Room(room_id.clone()), Some(caller), key, command, answer).await
    }

    /// Makes the caller a member of the room its workspace belongs to. Creates that room if there is none.
    pub async fn join<T>(
        &self,
        context: CommandContext,
        workspace: Workspace,
        force_new: bool,
        display_name: Option<String>,
        answer: impl Fn(&Outcome<'_>) -> T + Send + 'static,
    ) -> Result<T, Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let CommandContext { caller, key } = context;
        let target = Target::Workspace { workspace, force_new, room_id: RoomId::fresh(), resolution: None };
        let command = Command::Join { display_name };
        self.submit(target, Some(caller), key, command, answer).await.map(|(answer, _)| answer)
    }

    /// Runs a command that no member gave: time passed, or a process ended.
    pub async fn run_system_command(&self, room_id: &RoomId, command: Command) -> Result<(), Error> {
        self.submit(Target::Room(room_id.clone()), None, None, command, |_| ()).await.map(|((), _)| ())
    }

    /// Begins to hand messages over in a way that cannot be recalled. Returns those that were still open.
    pub async fn begin_attempt(
        &self,
        room_id: &RoomId,
        recipient: &AgentId,
        event_seqs: Vec<i64>,
        surface: Surface,
        tag: &str,
    ) -> Result<Vec<i64>, Error> {
        let (recipient, tag) = (recipient.clone(), tag.to_owned());
        let command = Command::BeginAttempt { recipient, event_seqs, surface, tag };
        let begun = |outcome: &Outcome<'_>| match outcome.reply {
            Reply::Begun { event_seqs } => event_seqs.clone(),
            _ => Vec::new(),
        };
        self.submit(Target::Room(room_id.clone()), None, None, command, begun).await.map(|(begun, _)| begun)
    }

    async fn submit<T>(
        &self,
        target: Target,
        caller: Option<Caller>,
        key: Option<RequestKey>,
        command: Command,
        answer: impl Fn(&Outcome<'_>) -> T + Send + 'static,
    ) -> Result<(T, Option<HeldMessages>), Error>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let (response, answered) = oneshot::channel();
        let unit = RoomUnit {
            engine: self.clone(),
            target,
            request: Request::new(caller, command),
            key,
            answer,
            overview: None,
            now: None,
            held: None,
            decided: None,
            response,
        };
        self.0.store.submit(Box::new(unit));
        let lost = || Error::new(ErrorCode::DaemonUnreachable, "the daemon is stopping").hint("try again");
        answered.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Runs a query on the last commit, on a thread that may block.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&dyn Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.read_after(|| Ok(()), |(), reader| query(reader)).await
    }

    /// Runs a query after a look at something else that may block. No reader is taken before that look has ended.
    pub async fn read_after<P, T: Send + 'static>(
        &self,
        look: impl FnOnce() -> Result<P, Error> + Send + 'static,
        query: impl FnOnce(P, &dyn Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let store = self.0.store.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let found = look()?;
            let reader = store.reader()?;
            query(found, reader.as_ref())
        });
        reading.await.map_err(|e| Error::new(ErrorCode::StorageUnavailable, format!("a query failed: {e}")))?
    }

    /// Looks at a room as it is after the last commit, without changing it.
    pub async fn look<T: Send + 'static>(
        &self,
        room_id: &RoomId,
        view: impl FnOnce(&Room, &dyn Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (this, room_id) = (self.clone(), room_id.clone());
        self.read(move |reader| view(&this.current_room(reader, &room_id)?, reader)).await
    }

    /// A stored room, brought up to date.
    pub fn current_room(&self, reader: &dyn Reader, room_id: &RoomId) -> Result<Room, Error> {
        let mut room = reader.room(room_id)?;
        self.apply_runtime_state(&mut room, true);
        Ok(room)
    }

    /// Brings a room up to date with what is not stored: who waits, who was seen when, whose process is alive.
    fn apply_runtime_state(&self, room: &mut Room, from_disk: bool) {
        let (inner, room_id) = (&self.0, room.room_id.clone());
        room.edits.commit_ended =
            room.edits.commit.as_ref().is_some_and(|git| inner.processes.liveness(git) == Liveness::Gone);
        // First, because it may have to look at a process, which no lock should wait for.
        let looked_at = looked_at(room);
        let look = |(member, matters): (&mut Arc<Member>, bool)| match matters {
            true => self.look_at_processes(member),
            false => member.liveness,
        };
        let liveness: Vec<Liveness> = room.members.iter_mut().zip(looked_at).map(look).collect();
        let members = room.members.iter_mut().zip(liveness);
        inner.waiters.of_room(&room_id, |waiting| {
            inner.presence.of_room(&room_id, |last| {
                for (member, liveness) in members {
                    let stored = member.last_seen_at;
                    // What an earlier daemon had not stored when it was killed counts in the member's favour.
                    let seen =
                        if from_disk { (stored + STORE_INTERVAL).min(inner.started_at).max(stored) } else { stored };
                    let (last_seen, last_wait) = last(&member.agent_id);
                    let current = (
                        waiting(&member.agent_id),
                        liveness,
                        last_seen.map_or(seen, |at| at.max(seen)),
                        last_wait.or(member.last_wait_at),
                    );
                    if current != (member.waiting, member.liveness, member.last_seen_at, member.last_wait_at) {
                        let member = Arc::make_mut(member);
                        (member.waiting, member.liveness, member.last_seen_at, member.last_wait_at) = current;
                    }
                }
            });
        });
    }

    /// Whether a member is alive: its process, or any of the terminals of a person. Terminals that were closed are forgotten
    /// while another is open.
    fn look_at_processes(&self, member: &mut Arc<Member>) -> Liveness {
        let processes = &self.0.processes;
        if member.terminals.is_empty() {
            return processes.member_liveness(&member.agent_id, member.anchor.as_ref());
        }
        let terminals: Vec<Liveness> = member.terminals.iter().map(|terminal| processes.liveness(terminal)).collect();
        let (open, closed): (Vec<_>, Vec<_>) = terminals.iter().partition(|liveness| **liveness != Liveness::Gone);
        if !open.is_empty() && !closed.is_empty() {
            let mut liveness = terminals.iter();
            Arc::make_mut(member).terminals.retain(|_| liveness.next() != Some(&Liveness::Gone));
        }
        match open.as_slice() {
            [] => Liveness::Gone,
            open if open.contains(&&Liveness::Alive) => Liveness::Alive,
            _ => Liveness::Unknown,
        }
    }

    /// Does what a committed decision asks for.
    fn run_effects(&self, room_id: &RoomId, committed: Committed) {
        let inner = &self.0;
        let inbox = |agent_id: AgentId| (room_id.clone(), agent_id);
        // First: who is told of a message looks here for where it is.
        inner.unread.apply(room_id, committed.unread, committed.deleted);
        for effect in committed.effects {
            match effect {
                Effect::EndWait { agent_id, end } => inner.waiters.end(room_id, &agent_id, end),
                Effect::Offer { agent_id } => inner.listeners.offer(&inbox(agent_id)),
                Effect::Watch { anchor } => inner.processes.watch(&anchor),
                Effect::Timer { key, due } => inner.timers.set(key, due),
                // Held since the decision, so that no other unit of the same transaction took them.
                Effect::Hold { .. } => {}
                Effect::LetGo { connection, agent_id, event_seqs, offer } => {
                    inner.listeners.let_go(&inbox(agent_id), connection, &event_seqs, offer);
                }
            }
        }
        for (event_seq, recipient, due) in committed.expiring {
            inner.timers.set(TimerKey::Delivery(room_id.clone(), event_seq, recipient), Some(due));
        }
        // However a member came in, what was before is no news to it.
        let joins = committed.events.iter().filter(|event| event.event_type == EventType::MemberJoined);
        for (joined, agent_id) in joins.filter_map(|event| Some((event.event_seq, event.from_agent_id.clone()?))) {
            inner.membership_cursors.set(inbox(agent_id), joined);
        }
        // Who has a turn has what it waited for.
        for event in &committed.events {
            if let (EventType::Claim | EventType::Takeover, Some(agent_id)) = (event.event_type, &event.from_agent_id) {
                inner.presence.has_its_turn(room_id, agent_id);
            }
        }
        let changes = || delivery_changes(room_id, &committed.changed, &committed.events);
        inner.feed.publish(room_id, &committed.events, changes, committed.deleted);
        if committed.deleted {
            inner.presence.forget_room(room_id);
            inner.membership_cursors.forget_room(room_id);
            inner.timers.forget_room(room_id);
        }
        if !committed.events.is_empty() {
            inner.appended.notify_one();
        }
    }
}

/// Which room a unit of work is about.
#[derive(Debug)]
enum Target {
    Room(RoomId),
    Workspace {
        workspace: Workspace,
        force_new: bool,
        /// The id of the room, if it has to be created. Drawn once.
        room_id: RoomId,
        resolution: Option<Resolution>,
    },
}

/// One command as a unit of work.
struct RoomUnit<T, A> {
    engine: Engine,
    target: Target,
    request: Request,
    key: Option<RequestKey>,
    answer: A,
    overview: Option<Overview>,
    now: Option<Now>,
    /// What this run took for its connection.
    held: Option<HeldMessages>,
    decided: Option<(T, RoomId, Committed)>,
    response: oneshot::Sender<Result<(T, Option<HeldMessages>), Error>>,
}

/// Messages that a unit took for a connection. They are given back when this is dropped, unless the caller has them: a caller
/// that stopped waiting for its answer may have ended its connection before the unit ran.
#[derive(Debug)]
pub struct HeldMessages {
    listeners: Listeners,
    inbox: (RoomId, AgentId),
    connection: ConnectionId,
    event_seqs: Vec<i64>,
}

impl HeldMessages {
    fn take(listeners: &Listeners, inbox: (RoomId, AgentId), connection: ConnectionId, event_seqs: Vec<i64>) -> Self {
        listeners.hold(&inbox, connection, &event_seqs);
        Self { listeners: listeners.clone(), inbox, connection, event_seqs }
    }

    /// Gives back some of the messages.
    pub fn give_back(&mut self, event_seqs: &[i64]) {
        if !event_seqs.is_empty() {
            self.listeners.let_go(&self.inbox, self.connection, event_seqs, true);
            self.event_seqs.retain(|seq| !event_seqs.contains(seq));
        }
    }

    /// Leaves the messages to the connection, which gives back what it does not confirm.
    pub fn keep(mut self) {
        self.event_seqs.clear();
    }
}

impl Drop for HeldMessages {
    fn drop(&mut self) {
        if !self.event_seqs.is_empty() {
            self.listeners.let_go(&self.inbox, self.connection, &self.event_seqs, true);
        }
    }
}

/// What is done after the commit.
#[derive(Debug)]
struct Committed {
    effects: Vec<Effect>,
    events: Vec<Arc<Event>>,
    expiring: Vec<(i64, AgentId, Due)>,
    changed: Vec<DeliveryChange>,
    unread: UnreadChanges,
    deleted: bool,
}

impl<T, A> UnitOfWork for RoomUnit<T, A>
where
    T: Serialize + DeserializeOwned + Send,
    A: Fn(&Outcome<'_>) -> T + Send,
{
    fn candidates(&self) -> Vec<PathBuf> {
        match &self.target {
            Target::Room(_) => Vec::new(),
            Target::Workspace { workspace, .. } => workspace.candidates(),
        }
    }

    fn locate(&mut self, existing: &HashMap<PathBuf, RoomId>) -> Location {
        match &mut self.target {
            Target::Room(room_id) => Location::Existing(room_id.clone()),
            Target::Workspace { workspace, force_new, room_id, resolution } => {
                let found = workspace.resolve(existing, *force_new);
                let path = found.path.clone();
                *resolution = Some(found);
                match existing.get(&path) {
                    Some(room_id) => Location::Existing(room_id.clone()),
                    None => Location::New { room_id: room_id.clone(), path },
                }
            }
        }
    }

    fn key(&self) -> Option<&RequestKey> {
        self.key.as_ref()
    }

    fn needs(&self) -> Needs {
        match (self.request.needs(), &self.target) {
            // What connections hold is open too, and may be all of the oldest.
            (Needs::Inbox { recipient, from, about, mid_turn, limit }, Target::Room(room_id)) => {
                let inbox = (room_id.clone(), recipient.clone());
                let limit = limit.saturating_add(self.engine.listeners().held_count(&inbox));
                Needs::Inbox { recipient, from, about, mid_turn, limit }
            }
            (needs, _) => needs,
        }
    }

    fn decide(&mut self, loaded: Loaded<'_>) -> Result<Decision, Error> {
        // What an earlier run of this unit took is given back.
        self.held = None;
        let Loaded { room, mut rows, from_disk, now } = loaded;
        self.engine.apply_runtime_state(room, from_disk);
        for delivery in &mut rows.deliveries {
            let inbox = (room.room_id.clone(), delivery.recipient.clone());
            delivery.held_by = self.engine.0.listeners.holder(&inbox, delivery.event_seq);
        }
        self.overview = rows.overview.take();
        self.now = Some(now);
        decide(room, &rows, &self.request, now)
    }

    fn answer(&mut self, decision: &mut Decision, events: &[Arc<Event>]) -> Result<Option<String>, Error> {
        let effects = std::mem::take(&mut decision.effects);
        for effect in &effects {
            if let Effect::Hold { connection, agent_id, event_seqs } = effect {
                let inbox = (decision.room.room_id.clone(), agent_id.clone());
                let listeners = self.engine.listeners();
                self.held = Some(HeldMessages::take(listeners, inbox, *connection, event_seqs.clone()));
            }
        }
        let expiring = decision.opened.iter().filter_map(|opened| {
            let due = Due::Deadline(opened.expires_at?);
            Some((events.get(opened.event)?.event_seq, opened.recipient.clone(), due))
        });
        let committed = Committed {
            expiring: expiring.collect(),
            effects,
            events: events.to_vec(),
            unread: UnreadChanges::of(&decision.opened, &decision.changed),
            changed: decision.changed.clone(),
            deleted: decision.room.deleted,
        };
        let resolution = match &self.target {
            Target::Room(_) => None,
            Target::Workspace { resolution, .. } => resolution.as_ref(),
        };
        let outcome = Outcome {
            reply: &decision.reply,
            room: &decision.room,
            events,
            overview: self.overview.as_ref(),
            resolution,
            now: self.now.unwrap_or_else(|| self.engine.clock().now()),
        };
        let answer = (self.answer)(&outcome);
        let json = match &self.key {
            Some(_) => Some(serde_json::to_string(&answer).map_err(|e| unreadable(&e))?),
            None => None,
        };
        self.decided = Some((answer, decision.room.room_id.clone(), committed));
        Ok(json)
    }

    fn committed(mut self: Box<Self>) {
        let Some((answer, room_id, committed)) = self.decided.take() else { return };
        self.engine.run_effects(&room_id, committed);
        // The caller may have gone away. Then what was committed stays, and what was taken is given back.
        let _ = self.response.send(Ok((answer, self.held.take())));
    }

    fn repeated(mut self: Box<Self>, answer: String) {
        self.held = None;
        let answer = serde_json::from_str(&answer).map_err(|e| unreadable(&e));
        let _ = self.response.send(answer.map(|answer| (answer, None)));
    }

    fn failed(mut self: Box<Self>, error: Error) {
        self.held = None;
        let _ = self.response.send(Err(error));
    }
}

/// The changes of deliveries as those see them who follow a room.
fn delivery_changes(room_id: &RoomId, changed: &[DeliveryChange], events: &[Arc<Event>]) -> Vec<DeliveryChanged> {
    let change = |change: &DeliveryChange| DeliveryChanged {
        event_seq: change.after.event_seq,
        room_id: room_id.clone(),
        from_agent_id: change.after.from.clone(),
        recipient: change.after.recipient.clone(),
        state: change.after.state,
        surface: change.surface,
        answered_by: change.answered_by.and_then(|index| events.get(index)).map(|event| event.event_seq),
        is_over: change.after.is_over,
        is_late: change.is_late,
        at: change.at,
    };
    changed.iter().filter(|change| !change.is_internal).map(change).collect()
}

fn unreadable(e: &serde_json::Error) -> Error {
    Error::new(ErrorCode::StorageUnavailable, format!("an answer cannot be kept or read back: {e}"))
}

/// For each member, whether it matters if its process lives: it is there, or has the stick, or is one of the few that are
/// listed as gone. Every session of an agent stays a member, and a look at all that ever were would slow down each command.
fn looked_at(room: &Room) -> Vec<bool> {
    let mut gone: Vec<_> = room.members().filter(|m| m.status == MemberStatus::Gone).collect();
    gone.sort_by_key(|m| std::cmp::Reverse((m.last_seen_at, m.ordinal)));
    let gone: HashSet<&AgentId> = gone.into_iter().take(MAX_GONE_LISTED).map(|m| &m.agent_id).collect();
    let has_stick = room.held_by().map(|m| &m.agent_id);
    let matters = |m: &Member| m.status.is_addressed() || Some(&m.agent_id) == has_stick || gone.contains(&m.agent_id);
    room.members().map(matters).collect()
}

#[cfg(test)]
pub(crate) mod tests;
