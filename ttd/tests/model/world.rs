//! The real engine on the real store, driven one step at a time, with processes and a clock that are only numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tt_proto::delivery::Surface;
use tt_proto::event::{Event, EventType};
use tt_proto::filter::Filter;
use tt_proto::handoff::RawJson;
use tt_proto::hello::{Anchor, FoundBy, Identity};
use tt_proto::message::{DeliveryHint, MessageSent};
use tt_proto::policy::Policy;
use tt_proto::room::Liveness;
use tt_proto::{AgentId, Error, ErrorCode, ReminderId, RoomId};
use tt_rules::{
    Caller, Command, ConnectionId, Decision, Handled, LeaseTime, Needs, NewReminder, Recipients, Reply, Room,
    SendOptions, TakeAccess, TimerKey, WaitEnd, Waiting,
};
use tt_store::sqlite::SqliteStore;
use tt_store::{Loaded, Location, Maintenance, Reader, RequestKey, Store, UnitOfWork};
use ttd::background;
use ttd::clock::Clock;
use ttd::engine::{CommandContext, Engine, MemberProcesses, Outcome};
use ttd::feed::{FeedItem, Follower};
use ttd::waiters::Place;

use crate::messages::{Ask, Reminder, Wish, sent};
use crate::reference::{GUEST, NAMES, PERSON, Times, Told, event};

/// The time at which every history begins, in milliseconds.
const EPOCH: i64 = 1_700_000_000_000;

pub(crate) struct World {
    dir: tempfile::TempDir,
    template: PathBuf,
    runtime: Runtime,
    policy: Policy,
    daemon: Option<Daemon>,
    /// A connection of our own, to look at the rows.
    rows: Connection,
    pub(crate) room: Option<RoomId>,
    /// Milliseconds since the history began.
    pub(crate) now: i64,
    clock: Clock,
    /// The processes agents live in now. The last agent lives where nobody can see it.
    pub(crate) processes: Vec<Option<u32>>,
    /// The other terminals of the person that are open.
    terminals: Vec<u32>,
    next_process: u32,
    dead: Arc<Mutex<BTreeSet<u32>>>,
    waits: BTreeMap<usize, Wait>,
    daemons: u64,
    histories: u64,
}

/// A wait under way, of an agent or of one terminal of the person.
struct Wait {
    place: Place,
    until: i64,
    process: Option<u32>,
}

/// What ends with a daemon.
struct Daemon {
    engine: Engine,
    store: Arc<CrashingStore>,
    feed: Option<Follower>,
}

/// The processes of the members, as numbers.
#[derive(Debug)]
struct Processes(Arc<Mutex<BTreeSet<u32>>>);

impl MemberProcesses for Processes {
    fn liveness(&self, anchor: &Anchor) -> Liveness {
        if self.0.lock().unwrap().contains(&anchor.pid) { Liveness::Gone } else { Liveness::Alive }
    }

    fn watch(&self, _: &Anchor) {}
}

/// A store after whose next commit the daemon is killed: the rows are there, and nobody hears of it.
#[derive(Debug)]
struct CrashingStore {
    store: SqliteStore,
    crash_next: AtomicBool,
    crashed: Arc<AtomicBool>,
}

struct CrashingUnit {
    unit: Box<dyn UnitOfWork>,
    crashed: Arc<AtomicBool>,
}

impl Store for CrashingStore {
    fn submit(&self, unit: Box<dyn UnitOfWork>) {
        if self.crash_next.swap(false, Ordering::SeqCst) {
            self.store.submit(Box::new(CrashingUnit { unit, crashed: self.crashed.clone() }));
        } else {
            self.store.submit(unit);
        }
    }

    fn maintain(&self, task: Maintenance) -> oneshot::Receiver<Result<(), Error>> {
        self.store.maintain(task)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>, Error> {
        self.store.reader()
    }

    fn known_room_at(&self, paths: &mut dyn Iterator<Item = &std::path::Path>) -> Option<RoomId> {
        self.store.known_room_at(paths)
    }

    fn check(&self) -> Result<(), Error> {
        self.store.check()
    }

    fn lost(&self) -> watch::Receiver<Option<Error>> {
        self.store.lost()
    }

    fn close(&self) {
        self.store.close();
    }
}

impl UnitOfWork for CrashingUnit {
    fn candidates(&self) -> Vec<PathBuf> {
        self.unit.candidates()
    }

    fn locate(&mut self, existing: &HashMap<PathBuf, RoomId>) -> Location {
        self.unit.locate(existing)
    }

    fn key(&self) -> Option<&RequestKey> {
        self.unit.key()
    }

    fn needs(&self) -> Needs {
        self.unit.needs()
    }

    fn decide(&mut self, loaded: Loaded<'_>) -> Result<Decision, Error> {
        self.unit.decide(loaded)
    }

    fn answer(&mut self, decision: &mut Decision, events: &[Arc<Event>]) -> Result<Option<String>, Error> {
        self.unit.answer(decision, events)
    }

    fn committed(self: Box<Self>) {
        self.crashed.store(true, Ordering::SeqCst);
    }

    fn repeated(self: Box<Self>, answer: String) {
        self.unit.repeated(answer);
    }

    fn failed(self: Box<Self>, error: Error) {
        self.unit.failed(error);
    }
}

/// What a command came to.
#[derive(Debug, Default)]
pub(crate) struct Came {
    pub(crate) refused: Option<&'static str>,
    pub(crate) events: Vec<String>,
    pub(crate) told: BTreeMap<usize, Told>,
    pub(crate) deleted: bool,
    /// It was committed, and then the daemon was killed: nobody heard of it.
    pub(crate) crashed: bool,
    pub(crate) reply: Option<Reply>,
}

pub(crate) fn agent(number: usize) -> AgentId {
    AgentId::trusted(NAMES[number])
}

fn millis(at: LeaseTime) -> i64 {
    at.as_millis() - EPOCH
}

pub(crate) fn anchor(pid: u32) -> Anchor {
    Anchor { host_id: "host".into(), pid, process_started_at: "then".into() }
}

/// The number of an agent.
fn number(agent: &AgentId) -> usize {
    NAMES.iter().position(|name| *name == agent.as_str()).unwrap_or(usize::MAX)
}

fn policy(times: &Times) -> Policy {
    let of = |millis: i64| Duration::from_millis(millis as u64);
    Policy {
        owner_lease_ttl: of(times.lease),
        owner_activity_ttl: of(times.activity),
        heartbeat_interval: of(times.heartbeat),
        claim_ttl: of(times.claim),
        presence_ttl: of(times.presence),
        waiter_grace: of(times.grace),
        wait_max: of(times.wait_max),
        idle_room_ttl: of(times.idle_room),
        ask_expiry: of(times.ask),
        ..Policy::default()
    }
}

impl World {
    pub(crate) fn new(times: &Times) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let template = dir.path().join("template.sqlite");
        SqliteStore::create(&template).unwrap();
        // Everything into the one file that is copied.
        let connection = Connection::open(&template).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        Self {
            rows: Connection::open_in_memory().unwrap(),
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
            template,
            dir,
            policy: policy(times),
            daemon: None,
            room: None,
            now: 0,
            clock: Clock::stopped(EPOCH),
            processes: Vec::new(),
            terminals: Vec::new(),
            next_process: 1,
            dead: Arc::default(),
            waits: BTreeMap::new(),
            daemons: 0,
            histories: 0,
        }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join(format!("{}.sqlite", self.histories))
    }

    /// Forgets everything, for a history of its own.
    pub(crate) fn begin(&mut self) {
        self.end_daemon(true);
        self.rows = Connection::open_in_memory().unwrap();
        for name in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{name}", self.file().display()));
        }
        self.histories += 1;
        std::fs::copy(&self.template, self.file()).unwrap();
        self.rows = Connection::open(self.file()).unwrap();
        self.rows.set_prepared_statement_cache_capacity(64);
        self.room = None;
        self.dead.lock().unwrap().clear();
        self.next_process = 1;
        self.terminals.clear();
        self.processes = (0..NAMES.len()).map(|_| None).collect();
        for agent in 0..NAMES.len() {
            self.come_alive(agent);
        }
        self.now = 0;
        self.clock = Clock::stopped(EPOCH);
        self.start_daemon();
    }

    fn start_daemon(&mut self) {
        let clock = Arc::new(self.clock.clone());
        let store = SqliteStore::open_volatile(&self.file(), clock, self.policy.clone()).unwrap();
        let store = Arc::new(CrashingStore {
            store,
            crash_next: AtomicBool::new(false),
            crashed: Arc::new(AtomicBool::new(false)),
        });
        let processes = Arc::new(Processes(self.dead.clone()));
        let engine = Engine::new(store.clone(), self.clock.clone(), processes, self.policy.clone());
        let feed = self.room.as_ref().map(|room| engine.feed().subscribe(room));
        self.daemon = Some(Daemon { engine, store, feed });
        self.daemons += 1;
    }

    /// Ends the daemon. What is not committed is lost either way; an orderly end stores presence first.
    fn end_daemon(&mut self, killed: bool) {
        if self.daemon.is_none() {
            return;
        }
        if !killed {
            self.store_presence();
        }
        self.waits.clear();
        if let Some(daemon) = self.daemon.take() {
            daemon.store.close();
        }
    }

    /// The daemon ends and another one starts: nothing in memory survives.
    pub(crate) fn restart(&mut self, killed: bool, down: i64) {
        self.end_daemon(killed);
        self.advance_to(self.now + down);
        self.start_daemon();
    }

    /// Lets the daemon be killed after the next commit.
    pub(crate) fn crash_next(&mut self) {
        if let Some(daemon) = &self.daemon {
            daemon.store.crash_next.store(true, Ordering::SeqCst);
        }
    }

    fn engine(&self) -> &Engine {
        &self.daemon.as_ref().unwrap().engine
    }

    pub(crate) fn advance_to(&mut self, now: i64) {
        self.clock.advance(Duration::from_millis(u64::try_from(now - self.now).unwrap()));
        self.now = now;
    }

    /// An agent that does something lives: in a new process where the last one ended.
    pub(crate) fn come_alive(&mut self, agent: usize) -> Option<u32> {
        let invisible = agent == GUEST;
        let is_dead = |process: u32| self.dead.lock().unwrap().contains(&process);
        if !invisible && self.processes[agent].is_none_or(is_dead) {
            self.processes[agent] = Some(self.next_process);
            self.next_process += 1;
        }
        self.processes[agent]
    }

    /// Ends the process of an agent. The person goes on in another terminal that is open.
    pub(crate) fn kill(&mut self, agent: usize, process: u32) {
        self.dead.lock().unwrap().insert(process);
        if agent == PERSON {
            self.processes[PERSON] = self.terminals.pop().or(self.processes[PERSON]);
        }
    }

    /// A process of git.
    pub(crate) fn start_commit(&mut self) -> u32 {
        self.next_process += 1;
        self.next_process - 1
    }

    pub(crate) fn end_commit(&mut self, git: u32) {
        self.dead.lock().unwrap().insert(git);
    }

    pub(crate) fn open_terminal(&mut self) {
        let is_open = |process: &u32| !self.dead.lock().unwrap().contains(process);
        let open = self.processes[PERSON].filter(is_open);
        self.terminals.extend(open);
        self.processes[PERSON] = Some(self.next_process);
        self.next_process += 1;
    }

    /// One of the connections of an agent. None outlives its daemon.
    pub(crate) fn connection(&self, agent: usize, surface: usize) -> ConnectionId {
        ConnectionId(self.daemons * 1000 + agent as u64 * 10 + surface as u64)
    }

    fn context(&self, number: usize, surface: usize) -> CommandContext {
        self.context_in(self.processes[number], number, surface)
    }

    fn context_in(&self, process: Option<u32>, number: usize, surface: usize) -> CommandContext {
        let anchor = process.map(anchor);
        let identity = Identity {
            agent_id: agent(number),
            display_name: NAMES[number].into(),
            harness: None,
            session_id: None,
            found_by: if number == PERSON { FoundBy::User } else { FoundBy::Override },
            anchor,
            user: "user".into(),
        };
        let caller = Caller { identity, connection: self.connection(number, surface), joins: number == GUEST };
        CommandContext { caller, key: None }
    }

    pub(crate) fn seen(&mut self, number: usize) {
        self.engine().seen(&agent(number));
    }

    /// Notes that a member waited, unless it has its turn.
    fn waited(&mut self, room: &RoomId, number: usize) {
        let lease = self.clock.now().lease;
        if self.look(|room| room.owner == Some(agent(number))) != Some(true) {
            self.engine().presence().waited(room, &agent(number), lease);
        }
    }

    /// Runs a member's command.
    pub(crate) fn run(&mut self, number: usize, command: Command) -> Came {
        self.run_on(number, 0, command)
    }

    /// Runs a command of one of a member's connections.
    pub(crate) fn run_on(&mut self, number: usize, surface: usize, command: Command) -> Came {
        self.run_in(self.context(number, surface), command)
    }

    fn run_in(&mut self, context: CommandContext, command: Command) -> Came {
        let Some(room_id) = self.room.clone() else { return self.without_room() };
        let reply = Arc::new(Mutex::new(None));
        let seen = reply.clone();
        let answer = move |outcome: &Outcome<'_>| *seen.lock().unwrap() = Some(outcome.reply.clone());
        let engine = self.engine().clone();
        let done = self.runtime.block_on(engine.run(&room_id, context, command, answer));
        let mut came = self.came(done);
        came.reply = reply.lock().unwrap().take();
        came
    }

    /// Runs a command that no member gave.
    pub(crate) fn run_by_itself(&mut self, command: Command) -> Came {
        let Some(room_id) = self.room.clone() else { return self.without_room() };
        let engine = self.engine().clone();
        let done = self.runtime.block_on(engine.run_system_command(&room_id, command));
        self.came(done)
    }

    fn without_room(&self) -> Came {
        Came { refused: Some("room_not_found"), ..Came::default() }
    }

    pub(crate) fn join(&mut self, number: usize) -> Came {
        let path = self.dir.path().join("w");
        std::fs::create_dir_all(&path).unwrap();
        let directory = ttd::workspace::Directory::find(&path, None).unwrap();
        let workspace = ttd::workspace::Workspace::of(directory);
        let context = self.context(number, 0);
        let engine = self.engine().clone();
        let room = Arc::new(Mutex::new(None));
        let (seen, before) = (room.clone(), self.last_event());
        let answer = move |outcome: &Outcome<'_>| *seen.lock().unwrap() = Some(outcome.room.room_id.clone());
        let done = self.runtime.block_on(engine.join(context, workspace, true, None, answer));
        let created = self.room.is_none();
        if created {
            self.room = room.lock().unwrap().clone();
            // Nobody could follow the room before it was there: what happened is in the log.
            let mut came = self.came(done);
            came.events = self.log(before).iter().map(shown).collect();
            let feed = self.room.as_ref().map(|room| self.engine().feed().subscribe(room));
            self.daemon.as_mut().unwrap().feed = feed;
            return came;
        }
        self.came(done)
    }

    fn last_event(&self) -> i64 {
        self.rows.query_row("SELECT coalesce(max(event_seq), 0) FROM room_events", [], |row| row.get(0)).unwrap()
    }

    /// What came of a command: what the feed brought, and who was told what.
    fn came(&mut self, done: Result<(), Error>) -> Came {
        let mut came = Came::default();
        let daemon = self.daemon.as_mut().unwrap();
        if daemon.store.crashed.swap(false, Ordering::SeqCst) {
            return Came { crashed: true, ..came };
        }
        if let Err(e) = done {
            assert_ne!(e.code, ErrorCode::StorageUnavailable, "{e}");
            return Came { refused: Some(e.code.as_str()), ..came };
        }
        while let Some(Ok(item)) = daemon.feed.as_mut().map(Follower::try_recv) {
            match item {
                FeedItem::Event(event) => came.events.push(shown(&event)),
                FeedItem::Stored { event_seq } => panic!("event {event_seq} is too long for a history"),
                FeedItem::Delivery(_) => {}
                FeedItem::Deleted => came.deleted = true,
            }
        }
        let room_id = self.room.clone();
        if came.deleted {
            self.room = None;
            daemon.feed = None;
        }
        let mut ended = Vec::new();
        for (number, wait) in &mut self.waits {
            if let Ok(end) = wait.place.ended.try_recv() {
                came.told.insert(*number, heard(end));
                ended.push(*number);
            }
        }
        for number in ended {
            self.waits.remove(&number);
            if let Some(room_id) = &room_id {
                self.waited(room_id, number);
            }
        }
        came
    }

    /// Starts a wait, as `wait_for_turn` does.
    pub(crate) fn wait(&mut self, number: usize, waiting: Waiting, until: i64) -> Came {
        let room_id = self.room.clone().unwrap_or_else(|| "none".into());
        let place = match self.engine().waiters().enter(&room_id, &agent(number), waiting, None, None) {
            Ok(place) => place,
            Err(e) => return Came { refused: Some(e.code.as_str()), ..Came::default() },
        };
        self.waits.insert(number, Wait { place, until, process: self.processes[number] });
        let came = self.run(number, Command::Wait { waiting });
        match came.refused {
            _ if came.crashed => {}
            None => self.waited(&room_id, number),
            Some(_) => drop(self.waits.remove(&number)),
        }
        came
    }

    /// The time of a wait runs out: it asks one last time. None when it was not waiting.
    pub(crate) fn end_wait(&mut self, number: usize) -> Option<(Came, Told)> {
        // Its place is free before it asks.
        let Wait { process, .. } = self.waits.remove(&number)?;
        let room_id = self.room.clone()?;
        self.waited(&room_id, number);
        let context = self.context_in(process, number, 0);
        let came = self.run_in(context, Command::EndWait);
        let told = match &came.reply {
            Some(Reply::Waiting(Some(end))) => heard(end.clone()),
            _ => Told::NotYet,
        };
        Some((came, told))
    }

    /// Whether there was a wait to cut.
    pub(crate) fn hang(&mut self, number: usize) -> bool {
        self.waits.remove(&number).is_some()
    }

    /// The process that waits for a member, if one does. An agent may live where it cannot be seen.
    pub(crate) fn waiting_process(&self, number: usize) -> Option<Option<u32>> {
        self.waits.get(&number).map(|wait| wait.process)
    }

    /// The next wait whose time runs out, and when.
    pub(crate) fn next_end_of_wait(&self) -> Option<(i64, usize)> {
        self.waits.iter().map(|(number, wait)| (wait.until, *number)).min()
    }

    /// Sends what somebody wishes for. `reply_to` is the number of the message that it answers.
    pub(crate) fn send(&mut self, number: usize, wish: &Wish, reply_to: Option<i64>) -> Came {
        let to = wish.to.map_or(Recipients::Room, |to| Recipients::Agent(agent(to)));
        let of = |millis: i64| Duration::from_millis(millis as u64);
        let options = SendOptions {
            reply_to,
            expects_reply: wish.is_question,
            timeout: wish.timeout.map(of),
            notify_on_delivery: wish.tell_delivery,
            notify_after: wish.tell_silence.map(of),
        };
        let hints = [DeliveryHint::Idle, DeliveryHint::Normal, DeliveryHint::Important, DeliveryHint::Interrupt];
        let (body, delivery_hint) = (wish.says.clone(), hints[usize::from(wish.urgency)]);
        self.run(number, Command::SendMessage { to, body, delivery_hint, from_person: false, options })
    }

    pub(crate) fn remind(&mut self, number: usize, reminder_id: ReminderId, new: &Reminder) -> Came {
        let of = |millis: i64| Duration::from_millis(millis as u64);
        let new = NewReminder {
            reminder_id,
            body: new.says.clone(),
            to: (new.to != number).then(|| NAMES[new.to].to_owned()),
            delay: of(new.due),
            every: new.every.map(of),
            times: new.times as u32,
        };
        self.run(number, Command::AddReminder(new))
    }

    /// Takes messages. `about` is the number of a message.
    pub(crate) fn take(&mut self, number: usize, surface: usize, ask: Ask, about: Option<i64>) -> Came {
        let Ask { max_replay, limit, mid_turn, .. } = ask;
        let access = TakeAccess::Arriving;
        let command = Command::TakeMessages { from: None, about, among: None, mid_turn, max_replay, limit, access };
        self.run_on(number, surface, command)
    }

    pub(crate) fn confirm(&mut self, number: usize, surface: usize, event_seqs: Vec<i64>) -> Came {
        self.run_on(number, surface, Command::ConfirmMessages { surface: Surface::Recv, event_seqs })
    }

    pub(crate) fn give_back(&mut self, number: usize, surface: usize, event_seqs: Vec<i64>) -> Came {
        self.run_on(number, surface, Command::ReturnMessages { event_seqs })
    }

    /// Begins to hand messages over in a way that cannot be recalled.
    pub(crate) fn begin_attempt(&mut self, recipient: usize, event_seqs: Vec<i64>, tag: String) -> Came {
        let (recipient, surface) = (agent(recipient), Surface::Terminal);
        self.run_by_itself(Command::BeginAttempt { recipient, event_seqs, surface, tag })
    }

    /// It is known what became of that.
    pub(crate) fn end_attempt(&mut self, recipient: usize, event_seqs: Vec<i64>, tag: String, arrived: bool) -> Came {
        let handled = if arrived { Handled::Arrived } else { Handled::Unclear };
        self.run_by_itself(Command::EndAttempt { recipient: agent(recipient), event_seqs, tag, handled })
    }

    pub(crate) fn end_connection(&mut self, number: usize, surface: usize) {
        self.engine().listeners().end_connection(self.connection(number, surface));
    }

    /// Sets the timers of messages and reminders, as a new daemon does.
    pub(crate) fn set_timers(&mut self) {
        let daemon = self.daemon.as_ref().unwrap();
        let reader = daemon.store.reader().unwrap();
        for (room_id, event_seq, recipient, at) in reader.due_deliveries().unwrap() {
            let key = TimerKey::Delivery(room_id, event_seq, recipient);
            daemon.engine.timers().set_if_unset(key, tt_rules::Due::Deadline(at));
        }
        for (room_id, reminder_id, at) in reader.due_reminders().unwrap() {
            let key = TimerKey::Reminder(room_id, reminder_id);
            daemon.engine.timers().set_if_unset(key, tt_rules::Due::Deadline(at));
        }
    }

    /// The room may have been deleted without a word.
    pub(crate) fn forget_deleted_room(&mut self) {
        if self.row().is_none() {
            self.room = None;
            self.daemon.as_mut().unwrap().feed = None;
        }
    }

    /// The keys that are due now.
    pub(crate) fn due(&mut self) -> Vec<TimerKey> {
        self.engine().timers().take_due(self.clock.now())
    }

    /// When the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<i64> {
        let rest = self.engine().timers().next_in(self.clock.now())?;
        Some(self.now + i64::try_from(rest.as_millis()).unwrap())
    }

    pub(crate) fn look<T>(&self, view: impl FnOnce(&Room) -> T) -> Option<T> {
        let daemon = self.daemon.as_ref()?;
        let reader = daemon.store.reader().unwrap();
        Some(view(&daemon.engine.current_room(reader.as_ref(), self.room.as_ref()?).unwrap()))
    }

    /// Stores presence if there is something to store now.
    pub(crate) fn store_presence_if_due(&mut self) {
        let asks = {
            let changed = std::pin::pin!(self.engine().presence().changed());
            changed.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        if asks {
            self.store_presence();
        }
    }

    fn store_presence(&mut self) {
        let engine = self.engine().clone();
        self.runtime.block_on(background::store_presence(&engine));
    }

    /// When each member was last seen and last waited, as the rules see it.
    pub(crate) fn presence(&self) -> HashMap<usize, (i64, Option<i64>)> {
        let times = |room: &Room| {
            let of = |m: &tt_rules::Member| (number(&m.agent_id), (millis(m.last_seen_at), m.last_wait_at.map(millis)));
            room.members().map(of).collect()
        };
        self.look(times).unwrap_or_default()
    }

    pub(crate) fn lease_end(&self) -> Option<i64> {
        self.look(|room| room.lease_end().map(millis)).flatten()
    }

    /// Every row of every table, as it is on the disk.
    pub(crate) fn dump(&self) -> String {
        let mut all = String::with_capacity(32 * 1024);
        for sql in [
            "SELECT * FROM path_rooms",
            "SELECT * FROM room_members",
            "SELECT * FROM member_terminals",
            "SELECT * FROM room_events",
            "SELECT * FROM notes",
            "SELECT * FROM deliveries",
            "SELECT * FROM reminders",
            "SELECT * FROM idempotency_keys",
            "SELECT * FROM schema_migrations",
            "SELECT * FROM steady_clock",
        ] {
            let mut statement = self.rows.prepare_cached(sql).unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                for column in 0..columns {
                    all.push('|');
                    match row.get_ref(column).unwrap() {
                        ValueRef::Null => all.push('-'),
                        ValueRef::Integer(i) => all.push_str(&i.to_string()),
                        ValueRef::Text(text) => all.push_str(&String::from_utf8_lossy(text)),
                        other => all.push_str(&format!("{other:?}")),
                    }
                }
                all.push('\n');
            }
        }
        all
    }

    /// The room's row, in words of its own.
    pub(crate) fn row(&self) -> Option<Row> {
        let room = self.room.as_ref()?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok(Row {
                state: row.get(0)?,
                turn: row.get(1)?,
                owner: row.get(2)?,
                lease: row.get(3)?,
                reserved_for: row.get(4)?,
                pending: row.get(5)?,
                current: row.get(6)?,
            })
        };
        let sql = "SELECT state, turn_id, owner, lease_id, reserved_for,
              (SELECT handoff_json FROM room_events WHERE event_seq = pending_handoff_event_seq),
              (SELECT handoff_json FROM room_events WHERE event_seq = current_handoff_event_seq)
            FROM path_rooms WHERE room_id = ?1";
        self.rows.prepare_cached(sql).unwrap().query_row([room.as_str()], row).optional().unwrap()
    }

    /// Every delivery, in the order of the log.
    pub(crate) fn deliveries(&self) -> Vec<StoredDelivery> {
        let sql = "SELECT event_seq, recipient_agent_id, state, is_over, is_late, answered_by, notify_at, reply_to,
                     surface IS NOT NULL, attempt_tag FROM deliveries ORDER BY 1, 2";
        let mut statement = self.rows.prepare_cached(sql).unwrap();
        let row = |row: &rusqlite::Row<'_>| {
            Ok(StoredDelivery {
                message: row.get(0)?,
                to: number(&AgentId::trusted(row.get::<_, String>(1)?)),
                state: row.get(2)?,
                is_over: row.get(3)?,
                is_late: row.get(4)?,
                answered_by: row.get(5)?,
                tell_at: row.get::<_, Option<i64>>(6)?.map(|at| at - EPOCH),
                reply_to: row.get(7)?,
                was_shown: row.get(8)?,
                attempt: row.get(9)?,
            })
        };
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    }

    /// Every reminder: its id, when it is due, and how many times.
    pub(crate) fn reminders(&self) -> BTreeMap<String, (i64, i64)> {
        let mut statement = self.rows.prepare_cached("SELECT reminder_id, due_at, times FROM reminders").unwrap();
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, (row.get::<_, i64>(1)? - EPOCH, row.get(2)?)));
        statement.query_map([], row).unwrap().map(Result::unwrap).collect()
    }

    pub(crate) fn log(&self, after: i64) -> Vec<Event> {
        let Some(room) = &self.room else { return Vec::new() };
        let all = Filter::any();
        self.daemon.as_ref().unwrap().store.reader().unwrap().events(room, after, usize::MAX, &all).unwrap()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) state: String,
    pub(crate) turn: i64,
    pub(crate) owner: Option<String>,
    pub(crate) lease: Option<String>,
    pub(crate) reserved_for: Option<String>,
    pub(crate) pending: Option<String>,
    pub(crate) current: Option<String>,
}

/// A delivery as its row says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredDelivery {
    pub(crate) message: i64,
    pub(crate) to: usize,
    pub(crate) state: String,
    pub(crate) is_over: bool,
    pub(crate) is_late: bool,
    pub(crate) answered_by: Option<i64>,
    pub(crate) tell_at: Option<i64>,
    pub(crate) reply_to: Option<i64>,
    /// A surface handed it over.
    pub(crate) was_shown: bool,
    /// The tag of the hand-over under way.
    pub(crate) attempt: Option<String>,
}

/// An event in the words of the reference.
pub(crate) fn shown(e: &Event) -> String {
    let name = |agent: &Option<AgentId>| agent.as_ref().map_or("-".to_owned(), ToString::to_string);
    let reason = e.reason.as_deref().unwrap_or("-");
    if e.event_type == EventType::MessageSent {
        let payload: MessageSent = serde_json::from_str(e.payload.as_ref().unwrap().as_str()).unwrap();
        // A notice ends with the words that it is about.
        let says = payload.body.rsplit(": ").next().unwrap_or_default().trim_matches('"');
        let mut extras: Vec<String> = Vec::new();
        extras.extend(payload.notice.map(|notice| format!("notice={}", notice.as_str())));
        extras.extend(payload.about.map(|about| format!("about={about}")));
        extras.extend(payload.reply_to.map(|reply_to| format!("reply_to={reply_to}")));
        extras.extend(payload.expects_reply.then(|| "question".to_owned()));
        extras.extend(payload.reminder_id.map(|_| "reminder".to_owned()));
        extras.extend(payload.late_ms.map(|late| format!("late={late}")));
        let known = |agent: &Option<AgentId>| agent.as_ref().map(number);
        return sent(e.turn_id.unwrap_or(-1), known(&e.from_agent_id), known(&e.to_agent_id), says, &extras);
    }
    event(e.event_type.as_str(), e.turn_id.unwrap_or(-1), &name(&e.from_agent_id), &name(&e.to_agent_id), reason)
}

/// What a waiter heard, in the words of the reference.
fn heard(end: WaitEnd) -> Told {
    match end {
        WaitEnd::YourTurn(turn) => Told::YourTurn {
            turn: turn.turn_id,
            handoff: turn
                .handoff
                .map(|words| (words.as_str().to_owned(), turn.from.as_ref().map_or(usize::MAX, number))),
            reason: turn.reason.as_str(),
        },
        WaitEnd::TakeoverAvailable { reason, .. } => Told::Takeover(reason.as_str()),
        WaitEnd::Removed { .. } | WaitEnd::Closed { .. } => Told::Removed,
    }
}

/// A handoff no other release or pass of this history carries.
pub(crate) fn words(count: u64) -> RawJson {
    RawJson::parse(format!(r#"{{"status":"step {count}", "next_action": "go on" ,"n":{count}}}"#)).unwrap()
}
