//! The store on a disk that fails.
//!
//! A story touches everything the store writes: a migration, joins, turns with handoffs, messages and their confirmations,
//! notes, policies, presence, sessions, the index of words, answers that are forgotten, checkpoints, a restart, a room that is
//! deleted and whose space is given back. It is told once on a good disk, which counts the calls SQLite makes. Then it is told again and again, and each time another call goes wrong. A step that fails is repeated
//! under its idempotency key, as a client does. In the end the database must open and be sound, hold everything that was
//! acknowledged, and, with the rest of the story told, be what the good disk has: no step is lost, half done or done twice.
//!
//! `cargo test` tries a share of the calls, `TT_DISK_FAULTS=all` all of them and `TT_DISK_FAULTS=1566` what can go wrong at
//! that one.

mod vfs;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use tt_proto::delivery::Surface;
use tt_proto::event::Event;
use tt_proto::message::DeliveryHint;
use tt_proto::paths::Environment;
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::{Error, NoteId, RoomId};
use tt_rules::{Command, LeaseTime, NewReminder, Recipients, Room, SendOptions, Waiting};

use super::{ClockOffsets, SqliteStore};
use crate::Clock as _;
use crate::conformance::{NOW, Stopped, agent, handoff, note, unit};
use crate::{Maintenance, Store, StoredSession};
use vfs::{Call, Disk, Fault};

/// Of so many faults `cargo test` tries one.
const SHARE: usize = 23;

/// How often a step is repeated before it counts as impossible. One fault can fail a step and the repair of a pool.
const MAX_ATTEMPTS: usize = 4;

const FIXTURE: &str = include_str!("../fixture_0_1.sql");

/// One step of the story.
#[derive(Clone, Copy)]
enum Step {
    /// The daemon starts: the clocks, the schema, the writer, the readers.
    Open,
    /// It stops.
    Close,
    /// A member gives a command on the room at a path.
    Command(&'static str, &'static str, fn(&Story) -> Command),
    /// What the daemon does behind the answers.
    Maintain(fn(&Story) -> Maintenance),
}

fn join(_: &Story) -> Command {
    Command::Join { display_name: None }
}

fn claim(_: &Story) -> Command {
    Command::Wait { waiting: Waiting::Listening { alone: true } }
}

fn release(story: &Story) -> Command {
    let room = story.room();
    Command::Release { lease_id: room.lease_id.unwrap(), expected_turn_id: room.turn_id, handoff: handoff() }
}

fn pass_to_c(story: &Story) -> Command {
    let room = story.room();
    let (lease_id, expected_turn_id) = (room.lease_id.unwrap(), room.turn_id);
    Command::Pass { lease_id, expected_turn_id, to: agent("c"), handoff: handoff() }
}

fn send(to: Recipients, body: &str, options: SendOptions) -> Command {
    Command::SendMessage { to, body: body.into(), delivery_hint: DeliveryHint::Normal, from_person: false, options }
}

fn say_to_b(_: &Story) -> Command {
    send(Recipients::Agent(agent("b")), "to b", SendOptions::default())
}

fn say_to_all(_: &Story) -> Command {
    send(Recipients::Room, &"to all ".repeat(500), SendOptions::default())
}

fn ask_c(_: &Story) -> Command {
    let timeout = Some(Duration::from_millis(5));
    let options = SendOptions { timeout, expects_reply: true, notify_on_delivery: true, ..SendOptions::default() };
    send(Recipients::Agent(agent("c")), "soon", options)
}

fn confirm_as_c(story: &Story) -> Command {
    Command::ConfirmMessages { surface: Surface::Wait, event_seqs: story.inbox("c") }
}

fn answer_as_c(story: &Story) -> Command {
    send(Recipients::Room, "yes", SendOptions { reply_to: Some(story.question()), ..SendOptions::default() })
}

fn remind_b(_: &Story) -> Command {
    Command::AddReminder(NewReminder {
        reminder_id: "look-again".into(),
        body: "look again".into(),
        to: Some("b".into()),
        delay: Duration::from_secs(60),
        every: Some(Duration::from_secs(60)),
        times: 2,
    })
}

fn be_quiet(_: &Story) -> Command {
    Command::SetQuiet { lasts: Some(Duration::from_secs(60)) }
}

fn cancel_reminder(_: &Story) -> Command {
    Command::CancelReminder { reminder_id: "look-again".into() }
}

fn confirm_as_b(story: &Story) -> Command {
    let event_seqs = story.inbox("b");
    Command::ConfirmMessages { surface: Surface::Recv, event_seqs }
}

fn resolve(story: &Story) -> Command {
    Command::ResolveNote { note_id: story.notes().remove(0) }
}

fn set_policy(_: &Story) -> Command {
    let mut overrides = PolicyOverrides::default();
    overrides.set("claim_ttl", "7s").unwrap();
    Command::SetPolicy { overrides }
}

fn delete(_: &Story) -> Command {
    Command::Delete
}

/// Enough text for pages that can be given back.
fn add_long_note(_: &Story) -> Command {
    note(&"soon gone ".repeat(1600))
}

fn store_presence(story: &Story) -> Maintenance {
    let (room_id, name, at) = (story.room_id.clone().unwrap(), agent("a"), LeaseTime::from_millis(NOW + 10));
    Maintenance::Presence { seen: vec![(name.clone(), at)], waited: vec![(room_id, name, at)] }
}

fn session(session_id: &str) -> StoredSession {
    StoredSession {
        harness: "claude".into(),
        session_id: session_id.into(),
        agent_id: agent("a"),
        processes: Vec::new(),
        server: None,
        cwd: Some("/w".into()),
        transcript_path: None,
        opened_at: LeaseTime::from_millis(NOW),
        ended_at: None,
        left_at: None,
        followed_by: None,
        guessed_from: None,
        orphaned: false,
        shares_process: false,
        untold_since: None,
    }
}

fn save_session(_: &Story) -> Maintenance {
    Maintenance::SaveSessions(vec![session("stays")])
}

fn save_other_session(_: &Story) -> Maintenance {
    Maintenance::SaveSessions(vec![session("goes")])
}

fn forget_other_session(_: &Story) -> Maintenance {
    Maintenance::ForgetSession { harness: "claude".into(), session_id: "goes".into() }
}

fn index_some(_: &Story) -> Maintenance {
    Maintenance::IndexEvents { limit: 8 }
}

fn index_all(_: &Story) -> Maintenance {
    Maintenance::IndexEvents { limit: 1000 }
}

fn forget_answers(_: &Story) -> Maintenance {
    Maintenance::ForgetAnswers { before: LeaseTime::from_millis(NOW + 1) }
}

fn reclaim_space(_: &Story) -> Maintenance {
    Maintenance::ReclaimSpace
}

const STORY: &[Step] = &[
    Step::Open,
    Step::Command("a", "/w", join),
    Step::Command("b", "/w", join),
    Step::Command("c", "/w", join),
    Step::Command("a", "/w", claim),
    Step::Command("a", "/w", |_| note("a note")),
    Step::Command("a", "/w", |_| note("another note")),
    Step::Command("b", "/w", resolve),
    Step::Command("a", "/w", say_to_b),
    Step::Command("a", "/w", say_to_all),
    Step::Command("b", "/w", confirm_as_b),
    Step::Command("a", "/w", release),
    Step::Command("b", "/w", claim),
    Step::Command("c", "/w", say_to_b),
    Step::Maintain(store_presence),
    Step::Maintain(save_session),
    Step::Maintain(save_other_session),
    Step::Maintain(index_some),
    Step::Command("b", "/w", pass_to_c),
    Step::Command("c", "/w", claim),
    Step::Command("a", "/w", set_policy),
    Step::Command("d", "/x", join),
    Step::Command("d", "/x", add_long_note),
    Step::Command("d", "/x", add_long_note),
    Step::Maintain(index_all),
    Step::Command("d", "/x", |_| Command::Leave),
    Step::Command("d", "/x", delete),
    Step::Maintain(reclaim_space),
    Step::Maintain(forget_answers),
    Step::Maintain(forget_other_session),
    Step::Command("b", "/w", say_to_all),
    Step::Close,
    Step::Open,
    Step::Command("a", "/w", ask_c),
    Step::Command("a", "/w", remind_b),
    Step::Command("c", "/w", confirm_as_c),
    Step::Command("a", "/w", say_to_all),
    Step::Command("c", "/w", answer_as_c),
    Step::Command("b", "/w", be_quiet),
    Step::Command("b", "/w", cancel_reminder),
    Step::Command("c", "/w", release),
    Step::Command("b", "/w", confirm_as_b),
    Step::Command("c", "/w", |_| Command::Leave),
    Step::Close,
];

/// The story on one disk.
struct Story {
    file: PathBuf,
    disk: Arc<Disk>,
    store: Option<SqliteStore>,
    /// The commands of the steps that were tried, so that a repeated step gives the same command.
    commands: Vec<Option<Command>>,
    /// How many steps were acknowledged.
    done: usize,
    /// What the acknowledged steps appended to the log of the room that stays.
    events: Vec<Arc<Event>>,
    room_id: Option<RoomId>,
}

impl Story {
    /// Before the story begins there is the database of an earlier version.
    fn new(dir: &Path) -> Self {
        let file = dir.join("rooms.sqlite");
        let (commands, disk) = (vec![None; STORY.len()], Disk::below(dir));
        disk.without_faults(|| Connection::open(&file).unwrap().execute_batch(FIXTURE).unwrap());
        Self { file, disk, store: None, commands, done: 0, events: Vec::new(), room_id: None }
    }

    fn store(&self) -> &SqliteStore {
        self.store.as_ref().unwrap()
    }

    fn connection(&self) -> Connection {
        Connection::open_with_flags(&self.file, rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap()
    }

    // What a step is about is read without a fault, as a client that has it from an earlier answer.

    fn room(&self) -> Room {
        let room_id = self.room_id.as_ref().unwrap();
        super::rooms::load(&self.connection(), room_id, &Policy::default()).unwrap().unwrap()
    }

    fn inbox(&self, name: &str) -> Vec<i64> {
        let room_id = self.room_id.as_ref().unwrap();
        let open = super::deliveries::inbox(&self.connection(), room_id, &agent(name), Default::default(), usize::MAX)
            .unwrap();
        open.iter().map(|delivery| delivery.event_seq).collect()
    }

    /// The only question of the story.
    fn question(&self) -> i64 {
        let sql = "SELECT event_seq FROM deliveries WHERE expects_reply";
        self.connection().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn notes(&self) -> Vec<NoteId> {
        let connection = self.connection();
        let mut statement = connection.prepare("SELECT note_id FROM notes WHERE room_id = ?1 ORDER BY rowid").unwrap();
        let ids = statement.query_map([self.room_id.as_ref().unwrap().as_str()], |row| row.get::<_, String>(0));
        ids.unwrap().map(|id| NoteId::from(id.unwrap().as_str())).collect()
    }

    /// Tries a step once.
    fn attempt(&mut self, number: usize) -> Result<(), Error> {
        match STORY[number] {
            Step::Open => {
                let offsets = ClockOffsets { lease: 1, deadline: 2 };
                SqliteStore::clock_offsets(&self.file, "boot", offsets, Stopped.now().lease)?;
                self.store = Some(SqliteStore::open(&self.file, Arc::new(Stopped), Policy::default())?);
                Ok(())
            }
            Step::Close => {
                self.close();
                Ok(())
            }
            Step::Maintain(task) => self.store().maintain(task(self)).blocking_recv().unwrap(),
            Step::Command(name, path, command) => {
                if self.commands[number].is_none() {
                    self.commands[number] = Some(self.disk.without_faults(|| command(self)));
                }
                let command = self.commands[number].clone().unwrap();
                let (unit, answered) = unit(name, command);
                self.store().submit(Box::new(unit.at(path).with_key(&format!("step {number}"))));
                // A step that was done before its answer was lost is answered without its events.
                if let Some(answer) = answered.recv().unwrap()?
                    && path == "/w"
                {
                    self.room_id.get_or_insert(answer.room.room_id);
                    self.events.extend(answer.events);
                }
                self.find_room();
                Ok(())
            }
        }
    }

    /// The room by its path: the answer that told its id may have been lost.
    fn find_room(&mut self) {
        if self.room_id.is_none() {
            self.room_id = self.store().known_room_at(&mut std::iter::once(Path::new("/w")));
        }
    }

    fn close(&mut self) {
        if let Some(store) = self.store.take() {
            store.close();
        }
    }

    /// Tells the story to its end, or until the power is cut. What fails is repeated.
    fn tell(&mut self) {
        while self.done < STORY.len() && !self.disk.is_cut() {
            let mut attempts = 0;
            while let Err(error) = self.attempt(self.done) {
                assert!(self.disk.has_fired(), "step {} failed on a good disk: {error:?}", self.done);
                if self.disk.is_cut() {
                    return;
                }
                attempts += 1;
                assert!(attempts < MAX_ATTEMPTS, "step {} does not work again: {error:?}", self.done);
                self.disk.make_space();
            }
            self.done += 1;
        }
    }

    /// The machine starts again.
    fn restart(&mut self) {
        self.close();
        self.disk.wait_until_closed();
        self.disk.restart();
        // The daemon is started at the step where the story goes on.
        if self.done < STORY.len() && !matches!(STORY[self.done], Step::Open) {
            let started = SqliteStore::open(&self.file, Arc::new(Stopped), Policy::default());
            self.store = Some(started.unwrap_or_else(|e| panic!("the database does not open: {e:?}")));
        }
    }

    /// The database is sound, and what was acknowledged is in it.
    fn check_acknowledged(&self) {
        let connection = self.connection();
        let answer: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(answer, "ok");
        let orphans = lines(&connection, "SELECT \"table\" FROM pragma_foreign_key_check");
        assert!(orphans.is_empty(), "{orphans:?}");
        for event in &self.events {
            let kept = super::events::get(&connection, event.event_seq).unwrap();
            assert_eq!(kept.as_ref(), Some(&**event), "acknowledged and lost");
        }
        for (step, command) in STORY[..self.done].iter().zip(&self.commands) {
            let (Step::Command(by, ..), Some(Command::ConfirmMessages { event_seqs, .. })) = (step, command) else {
                continue;
            };
            for event_seq in event_seqs {
                let sql = "SELECT state IN ('delivered', 'answered') FROM deliveries
                           WHERE event_seq = ?1 AND recipient_agent_id = ?2";
                let kept: bool = connection.query_row(sql, (event_seq, by), |row| row.get(0)).unwrap();
                assert!(kept, "the confirmation of {event_seq} is lost");
            }
        }
    }

    /// Everything that the story leaves, but for ids that are drawn anew each time.
    fn outcome(&self) -> Vec<String> {
        let connection = self.connection();
        let queries = [
            "SELECT canonical_path, sequence_index, owner, reserved_for, turn_id, lease_id IS NULL, state, released_by, policy_json,
               (SELECT count(*) FROM room_events e WHERE e.room_id = r.room_id AND e.event_seq <= r.pending_handoff_event_seq)
             FROM path_rooms r ORDER BY canonical_path",
            "SELECT canonical_path, agent_id, ordinal, status, last_seen_at, last_wait_at, last_held_turn
             FROM room_members JOIN path_rooms USING (room_id) ORDER BY 1, 2",
            "SELECT canonical_path, e.turn_id, event_type, from_agent_id, to_agent_id, handoff_json, reason,
               json_remove(payload_json, '$.note_id')
             FROM room_events e JOIN path_rooms USING (room_id) ORDER BY event_seq",
            "SELECT recipient_agent_id, state, surface, delivered_at, expires_at, due_at, is_over, answered_by IS NULL FROM deliveries ORDER BY event_seq, 1",
            "SELECT canonical_path, body, resolved_by_agent_id FROM notes JOIN path_rooms USING (room_id) ORDER BY notes.rowid",
            "SELECT id FROM schema_migrations ORDER BY id",
            "SELECT * FROM steady_clock",
            "SELECT * FROM sessions",
            "SELECT * FROM reminders",
            "SELECT agent_id, quiet_until FROM room_members ORDER BY 1",
            "SELECT agent_id, idempotency_key FROM idempotency_keys ORDER BY 2",
            "SELECT (SELECT count(*) FROM room_events WHERE event_seq <= indexed_event_seq) FROM event_index",
            "SELECT (SELECT count(*) FROM room_events e WHERE e.event_seq <= event_words.rowid)
             FROM event_words WHERE event_words MATCH 'all OR note OR gone' ORDER BY rowid",
        ];
        queries.iter().flat_map(|sql| lines(&connection, sql)).collect()
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        self.disk.forget();
    }
}

/// The rows of a query, one line each.
fn lines(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let line = |row: &rusqlite::Row<'_>| {
        let cells = (0..columns).map(|i| row.get::<_, rusqlite::types::Value>(i).map(|value| format!("{value:?}")));
        cells.collect::<Result<Vec<_>, _>>().map(|cells| cells.join("|"))
    };
    statement.query_map([], line).unwrap().map(Result::unwrap).collect()
}

/// What the story makes of a good disk, and the calls it takes.
fn good_disk() -> (Vec<String>, Vec<Call>) {
    let dir = tempfile::tempdir().unwrap();
    let mut story = Story::new(dir.path());
    story.tell();
    story.disk.wait_until_closed();
    let calls = story.disk.calls();
    story.check_acknowledged();
    let outcome = story.outcome();
    assert!(
        outcome.iter().any(|line| line.contains("/w")) && !outcome.iter().any(|line| line.contains("/x")),
        "{outcome:?}"
    );
    assert!(!super::space::is_reclaimable(&story.connection()).unwrap(), "what the room left was not given back");
    (outcome, calls)
}

/// Tells the story with one call that goes wrong. Returns whether that call came.
fn tell_with(number: usize, fault: Fault, expected: &[String]) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let mut story = Story::new(dir.path());
    story.disk.fail_at(number, fault);
    story.tell();
    let fired = story.disk.has_fired();
    story.restart();
    story.check_acknowledged();
    story.tell();
    story.check_acknowledged();
    for (line, expected) in story.outcome().iter().zip(expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(story.outcome().len(), expected.len());
    fired
}

#[test]
fn whatever_call_to_the_disk_fails_nothing_acknowledged_is_lost_and_no_step_is_done_twice() {
    // A busy machine makes the threads of the store take turns in other ways, with more calls: the shortest way is the usual one.
    let tellings = std::iter::repeat_with(good_disk).take(3);
    let (expected, calls) = tellings.min_by_key(|(_, calls)| calls.len()).unwrap();
    let environment = Environment::of_this_process();
    let wanted = environment.get_str("TT_DISK_FAULTS");
    let mut faults: Vec<(usize, Fault)> = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        faults.extend(Fault::ALL.iter().filter(|fault| fault.applies_to(*call)).map(|fault| (number, *fault)));
    }
    let all = faults.len();
    match wanted {
        None => faults = faults.into_iter().step_by(SHARE).collect(),
        Some("all") => {}
        Some(call) => {
            let call: usize = call.parse().expect("TT_DISK_FAULTS is `all` or the number of a call");
            faults.retain(|(number, _)| *number == call);
        }
    }
    let (next, fired, failures) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((number, fault)) = faults.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                    let told = std::panic::catch_unwind(|| tell_with(number, fault, &expected));
                    match told {
                        Ok(came) => fired.fetch_add(usize::from(came), Ordering::Relaxed),
                        Err(_) => {
                            failures.lock().unwrap().push(format!("call {number} ({:?}): {fault:?}", calls[number]));
                            0
                        }
                    };
                }
            });
        }
    });
    let fired = fired.into_inner();
    println!("{} calls, {} of {all} faults tried, {fired} came", calls.len(), faults.len());
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), faults.len(), failures.join("\n"));
    // The threads of the store take turns a little differently each time, so that a few of the last calls may not come.
    assert!(fired * 100 >= faults.len() * 98, "only {fired} of {} faults came", faults.len());
}
