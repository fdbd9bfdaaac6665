//! The real rules and the real store, driven as `Rooms` drives them but one step at a time: the same load, decision and
//! write in a savepoint, the real waiters and presence, with processes and a clock that are only numbers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::task::{Context, Waker};
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};
use tt_proto::event::Event;
use tt_proto::filter::{Filter, Target};
use tt_proto::handoff::RawJson;
use tt_proto::hello::{Anchor, FoundBy, Identity};
use tt_proto::policy::Policy;
use tt_proto::requests::Wait;
use tt_proto::room::Liveness;
use tt_proto::turn::{Reason, WaitStatus};
use tt_proto::{AgentId, Error, LeaseId, RoomId, WallTime};
use ttd::hub::{Hub, Place, WRITE_BEHIND};
use ttd::rooms::{decide, next_deadline, told};
use ttd::stick::{Grant, Moment, Room, Waiting, turn};
use ttd::store::kept::Kept;
use ttd::store::rooms::{self, Live};
use ttd::store::{Store, events};

use crate::reference::{NAMES, Times, Told, event};

pub(crate) struct World {
    dir: tempfile::TempDir,
    connection: Connection,
    hub: Hub,
    policy: Policy,
    pub(crate) room: Option<RoomId>,
    /// Milliseconds since the world began.
    pub(crate) now: i64,
    /// The processes agents live in now. The last agent lives where nobody can see it.
    pub(crate) processes: Vec<Option<u32>>,
    next_process: u32,
    pub(crate) dead: BTreeSet<u32>,
    places: BTreeMap<usize, (Place, i64)>,
    pub(crate) deadline: Option<i64>,
    /// When the daemon that runs now began.
    began: i64,
    kept: Kept,
    /// How many daemons there were: none keeps anything of the one before.
    daemons: u64,
    histories: u64,
}

/// What the rules see of the world.
struct Seen<'a> {
    began: i64,
    hub: &'a Hub,
    dead: &'a BTreeSet<u32>,
    policy: &'a Policy,
}

impl Live for Seen<'_> {
    fn waiting(&self, room_id: &RoomId, agent_id: &AgentId) -> Waiting {
        self.hub.waiters.waiting(room_id, agent_id)
    }

    fn last_seen(&self, agent_id: &AgentId) -> Option<WallTime> {
        self.hub.presence.last_seen(agent_id)
    }

    fn last_wait(&self, room_id: &RoomId, agent_id: &AgentId) -> Option<WallTime> {
        self.hub.presence.last_wait(room_id, agent_id)
    }

    fn liveness(&self, anchor: &Anchor) -> Liveness {
        if self.dead.contains(&anchor.pid) { Liveness::Gone } else { Liveness::Alive }
    }

    fn doubt(&self) -> Duration {
        WRITE_BEHIND
    }

    fn began(&self) -> WallTime {
        at(self.began)
    }

    fn policy(&self) -> &Policy {
        self.policy
    }
}

/// What a command came to.
#[derive(Debug, Default)]
pub(crate) struct Came {
    pub(crate) refused: Option<&'static str>,
    pub(crate) events: Vec<String>,
    pub(crate) told: BTreeMap<usize, Told>,
    pub(crate) deleted: bool,
}

pub(crate) fn agent(number: usize) -> AgentId {
    AgentId::trusted(NAMES[number])
}

pub(crate) fn at(millis: i64) -> WallTime {
    WallTime::from_millis(1_700_000_000_000 + millis)
}

fn millis(at: WallTime) -> i64 {
    at.as_millis() - 1_700_000_000_000
}

/// The number of a name, where there is one.
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
        ..Policy::default()
    }
}

/// Opens the database for ourselves. As on the writer thread many commands share a transaction, each in a savepoint of its
/// own; here it is committed when a daemon ends, and nobody waits for the disk.
fn open(file: &Path) -> Connection {
    let connection = Connection::open(file).unwrap();
    connection.set_prepared_statement_cache_capacity(128);
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA foreign_keys = ON; BEGIN IMMEDIATE").unwrap();
    connection
}

impl World {
    pub(crate) fn new(times: &Times) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rooms.sqlite");
        Store::open(&file).unwrap().close();
        let connection = open(&file);
        let mut world = Self {
            dir,
            connection,
            hub: Hub::default(),
            policy: policy(times),
            room: None,
            now: 0,
            processes: Vec::new(),
            next_process: 1,
            dead: BTreeSet::new(),
            places: BTreeMap::new(),
            deadline: None,
            began: 0,
            kept: Kept::default(),
            daemons: 0,
            histories: 0,
        };
        world.begin();
        world
    }

    /// Forgets everything, for a history of its own.
    pub(crate) fn begin(&mut self) {
        if let Some(room) = self.room.take() {
            rooms::delete(&self.connection, &room).unwrap();
        }
        self.places.clear();
        self.hub = Hub::default();
        self.dead.clear();
        self.next_process = 1;
        self.processes = (0..NAMES.len()).map(|_| None).collect();
        for agent in 0..NAMES.len() {
            self.come_alive(agent);
        }
        self.deadline = None;
        self.began = 0;
        self.now = 0;
        self.histories += 1;
    }

    /// An agent that does something lives: in a new process where the last one ended.
    pub(crate) fn come_alive(&mut self, agent: usize) -> Option<u32> {
        let invisible = agent == NAMES.len() - 1;
        if !invisible && self.processes[agent].is_none_or(|process| self.dead.contains(&process)) {
            self.processes[agent] = Some(self.next_process);
            self.next_process += 1;
        }
        self.processes[agent]
    }

    fn live(&self) -> Seen<'_> {
        Seen { began: self.began, hub: &self.hub, dead: &self.dead, policy: &self.policy }
    }

    fn identity(&self, number: usize) -> Identity {
        let anchor =
            self.processes[number].map(|pid| Anchor { host_id: "host".into(), pid, process_started_at: "then".into() });
        Identity {
            agent_id: agent(number),
            display_name: NAMES[number].into(),
            harness: None,
            session_id: None,
            found_by: FoundBy::Override,
            anchor,
            user: "user".into(),
        }
    }

    pub(crate) fn seen(&mut self, number: usize) {
        self.hub.presence.seen(&agent(number), at(self.now));
    }

    fn waited(&mut self, room: &RoomId, number: usize) {
        self.hub.presence.waited(room, &agent(number), at(self.now));
    }

    fn execute(&self, sql: &str) {
        self.connection.prepare_cached(sql).unwrap().execute([]).unwrap();
    }

    /// One command in a savepoint of its own, and after it those it concerns are told.
    fn command<X>(
        &mut self,
        caller: Option<usize>,
        rule: impl FnOnce(&mut Room, &Moment, &Connection) -> Result<(X, Option<Grant>), Error>,
    ) -> Result<(X, Room, Came), Error> {
        let Some(room_id) = self.room.clone() else { return Err(rooms::not_found(&RoomId::fresh())) };
        let identity = caller.map(|caller| self.identity(caller));
        let moment = Moment { now: at(self.now), fresh_lease: LeaseId::fresh() };
        self.execute("SAVEPOINT command");
        let rule = |room: &mut Room, moment: &Moment| rule(room, moment, &self.connection);
        let live = self.live();
        // Whatever way the room before it is found, it must be the same one.
        let before = rooms::load(&self.connection, &room_id, &live)?;
        if let Some(mut kept) = self.kept.take(&room_id, self.daemons) {
            rooms::enliven(&mut kept, &live);
            assert_eq!(kept, before, "what was kept is not what is stored");
        }
        let decision =
            decide(&self.connection, before, identity.as_ref(), &moment, at(self.now), rule).inspect_err(|_| {
                self.execute("ROLLBACK TO command");
                self.execute("RELEASE command");
            })?;
        self.execute("RELEASE command");
        for (agent, wait) in told(&decision.before, &decision.after, decision.grant.as_ref(), moment.now) {
            self.hub.waiters.tell(&room_id, &agent, wait);
        }
        self.deadline = next_deadline(&decision.after, moment.now).map(millis);
        let mut came = Came { deleted: decision.after.deleted, ..Came::default() };
        came.events = decision.events.iter().map(shown).collect();
        if came.deleted {
            self.room = None;
        }
        let mut left = Vec::new();
        for (number, (place, _)) in &mut self.places {
            if let Ok(wait) = place.told.try_recv() {
                came.told.insert(*number, heard(&wait));
                left.push(*number);
            }
        }
        for number in left {
            self.places.remove(&number);
            self.waited(&room_id, number);
        }
        self.kept.put(decision.after.clone(), self.daemons);
        Ok((decision.decided, decision.after, came))
    }

    /// The same, where only what came of it matters.
    pub(crate) fn run(
        &mut self,
        caller: Option<usize>,
        rule: impl FnOnce(&mut Room, &Moment, &Connection) -> Result<Option<Grant>, Error>,
    ) -> Came {
        match self.command(caller, |room, moment, connection| Ok(((), rule(room, moment, connection)?))) {
            Ok((_, _, came)) => came,
            Err(e) => Came { refused: Some(e.code.as_str()), ..Came::default() },
        }
    }

    pub(crate) fn join(&mut self, number: usize) -> Came {
        if self.room.is_none() {
            let path = format!("/w/{}", self.histories);
            self.room = Some(rooms::create(&self.connection, &path, at(self.now)).unwrap());
        }
        let identity = self.identity(number);
        self.run(None, |room, moment, _| {
            ttd::stick::membership::join(room, &identity, None, moment)?;
            Ok(None)
        })
    }

    /// Starts a wait, as `wait_for_turn` does.
    pub(crate) fn wait(&mut self, number: usize, waiting: Waiting, until: i64) -> Came {
        let room_id = self.room.clone().unwrap_or_else(|| "none".into());
        let place = match self.hub.waiters.enter(&room_id, &agent(number), waiting, None, |_| true) {
            Ok(place) => place,
            Err(e) => return Came { refused: Some(e.code.as_str()), ..Came::default() },
        };
        self.places.insert(number, (place, until));
        let came = self.run(Some(number), |room, moment, _| turn::wait(room, &agent(number), waiting, moment));
        match came.refused {
            None => self.waited(&room_id, number),
            Some(_) => drop(self.places.remove(&number)),
        }
        came
    }

    /// The patience of a wait runs out: it asks the writer one last time. None when it was not waiting.
    pub(crate) fn end_wait(&mut self, number: usize) -> Option<(Came, Told)> {
        self.places.remove(&number)?;
        let room_id = self.room.clone()?;
        self.waited(&room_id, number);
        let now = at(self.now);
        let rule = |_: &mut Room, _: &Moment, _: &Connection| Ok(((), None));
        match self.command(Some(number), rule) {
            Ok(((), room, came)) => {
                let standing = turn::standing(&room, &agent(number), now);
                Some((came, standing.map_or(Told::NotYet, |wait| heard(&wait))))
            }
            Err(e) => Some((Came { refused: Some(e.code.as_str()), ..Came::default() }, Told::NotYet)),
        }
    }

    /// Whether there was a wait to cut.
    pub(crate) fn hang(&mut self, number: usize) -> bool {
        self.places.remove(&number).is_some()
    }

    pub(crate) fn waits(&self, number: usize) -> bool {
        self.places.contains_key(&number)
    }

    /// The next wait whose patience runs out, and when.
    pub(crate) fn next_end_of_wait(&self) -> Option<(i64, usize)> {
        self.places.iter().map(|(number, (_, until))| (*until, *number)).min()
    }

    pub(crate) fn look<T>(&self, view: impl FnOnce(&Room) -> T) -> Option<T> {
        let room = rooms::load(&self.connection, self.room.as_ref()?, &self.live()).unwrap();
        Some(view(&room))
    }

    /// Writes presence behind where it asks for it.
    pub(crate) fn write_behind(&mut self) {
        let asks = {
            let changed = std::pin::pin!(self.hub.presence.changed());
            changed.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        if asks {
            self.write_presence();
        }
    }

    fn write_presence(&mut self) {
        let unwritten = self.hub.presence.take_unwritten();
        rooms::write_presence(&self.connection, &unwritten.seen, &unwritten.waited).unwrap();
    }

    /// The daemon ends and another one starts: nothing in memory survives.
    pub(crate) fn restart(&mut self, killed: bool) {
        if !killed {
            self.write_presence();
        }
        self.places.clear();
        self.hub = Hub::default();
        self.began = self.now;
        self.daemons += 1;
        self.execute("COMMIT");
        self.connection = Connection::open_in_memory().unwrap();
        self.connection = open(&self.dir.path().join("rooms.sqlite"));
    }

    /// When each member was last seen and last waited, as the rules see it.
    pub(crate) fn presence(&self) -> HashMap<usize, (i64, Option<i64>)> {
        let times = |room: &Room| {
            let of =
                |m: &ttd::stick::Member| (number(&m.agent_id), (millis(m.last_seen_at), m.last_wait_at.map(millis)));
            room.members().map(of).collect()
        };
        self.look(times).unwrap_or_default()
    }

    /// Every row of every table, as it is on the disk.
    pub(crate) fn dump(&self) -> String {
        let mut all = String::with_capacity(32 * 1024);
        for sql in [
            "SELECT * FROM path_rooms",
            "SELECT * FROM room_members",
            "SELECT * FROM room_events",
            "SELECT * FROM notes",
            "SELECT * FROM inbox",
            "SELECT * FROM deliveries",
            "SELECT * FROM idempotency_keys",
            "SELECT * FROM schema_migrations",
            "SELECT * FROM steady_clock",
        ] {
            let mut statement = self.connection.prepare_cached(sql).unwrap();
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
        self.connection.prepare_cached(sql).unwrap().query_row([room.as_str()], row).optional().unwrap()
    }

    pub(crate) fn log(&self, after: i64) -> Vec<Event> {
        let all = Filter { event_types: None, from: None, target: Target::Any };
        let log = |room| events::matching(&self.connection, room, after, usize::MAX, &all).unwrap();
        self.room.as_ref().map_or_else(Vec::new, log)
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

/// An event in the words of the reference.
pub(crate) fn shown(e: &Event) -> String {
    let name = |agent: &Option<AgentId>| agent.as_ref().map_or("-".to_owned(), ToString::to_string);
    let reason = e.reason.as_deref().unwrap_or("-");
    event(e.event_type.as_str(), e.turn_id.unwrap_or(-1), &name(&e.from_agent_id), &name(&e.to_agent_id), reason)
}

/// What a waiter heard, in the words of the reference.
fn heard(wait: &Wait) -> Told {
    match (wait.status, wait.reason) {
        (WaitStatus::YourTurn, Some(Reason::Claim(reason))) => Told::YourTurn {
            turn: wait.turn_id,
            handoff: wait
                .handoff
                .as_ref()
                .map(|words| (words.as_str().to_owned(), wait.from_agent_id.as_ref().map_or(usize::MAX, number))),
            reason: reason.as_str(),
        },
        (WaitStatus::TakeoverAvailable, Some(Reason::Takeover(reason))) => Told::Takeover(reason.as_str()),
        (WaitStatus::Removed, _) => Told::Removed,
        _ => Told::NotYet,
    }
}

/// A handoff no other release or pass of this history carries.
pub(crate) fn words(count: u64) -> RawJson {
    RawJson::parse(format!(r#"{{"status":"step {count}", "next_action": "go on" ,"n":{count}}}"#)).unwrap()
}
