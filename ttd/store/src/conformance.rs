//! What any implementation of [`Store`] must do. Each check opens a store of its own through the function it is given, and
//! panics where the store does something else.
#![expect(clippy::unwrap_used, reason = "a check that cannot go on must fail")]
#![expect(clippy::print_stdout, reason = "a failed check is found by the line before it")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use tt_proto::event::{Event, EventType};
use tt_proto::filter::{Filter, Target};
use tt_proto::handoff::RawJson;
use tt_proto::hello::{FoundBy, Identity};
use tt_proto::message::DeliveryHint;
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::{AgentId, Error, ErrorCode, NoteId, RoomId, WallTime};
use tt_rules::{
    Caller, Command, ConnectionId, DeadlineTime, Decision, LeaseTime, Needs, Now, Recipients, Reply, Request, Room,
    TakeAccess, Waiting, decide,
};

use crate::{Clock, Loaded, Location, Maintenance, NotePage, RequestKey, RoomPage, Store, UnitOfWork};

/// Opens a store in a directory. Opening it again finds what was committed.
pub type Open<'a> = &'a dyn Fn(&Path, Arc<dyn Clock>) -> Arc<dyn Store>;

/// What is checked, and how.
type Check = (&'static str, fn(&Bench<'_>));

/// Runs every check.
pub fn check_all(open: Open<'_>) {
    let checks: &[Check] = &[
        ("a room and its members are read back as they were saved", a_room_is_read_back),
        ("what was committed is there after the store was opened again", committed_work_survives),
        ("a refused unit leaves nothing, and its neighbours stand", a_refusal_leaves_nothing),
        ("a unit that panics leaves nothing, and the next one works", a_panic_leaves_nothing),
        ("a repeated key gets the first answer and changes nothing", a_repeated_key_changes_nothing),
        ("units are committed in the order they were submitted", units_commit_in_order),
        ("a delivery is open until it is changed, once", deliveries_change_once),
        ("notes and policies are kept", notes_and_policies_are_kept),
        ("a page has as many as it may, fits an answer, and says whether it goes on", pages_end_where_they_are_told_to),
        ("a deleted room takes everything with it", a_deleted_room_is_gone),
        ("presence is stored and never goes back", presence_is_stored),
    ];
    for (what, check) in checks {
        println!("{what}");
        let dir = tempfile::tempdir().unwrap();
        check(&Bench { open, dir: dir.path().to_owned(), store: open(dir.path(), Arc::new(Stopped)) });
    }
}

/// A clock that stands still.
#[derive(Debug)]
pub(crate) struct Stopped;

pub(crate) const NOW: i64 = 1_790_000_000_000;

impl Clock for Stopped {
    fn now(&self) -> Now {
        Now {
            lease: LeaseTime::from_millis(NOW),
            deadline: DeadlineTime::from_millis(NOW),
            wall: WallTime::from_millis(NOW),
        }
    }
}

struct Bench<'a> {
    open: Open<'a>,
    dir: PathBuf,
    store: Arc<dyn Store>,
}

/// What a unit was answered.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    reply: Reply,
    pub(crate) room: Room,
    pub(crate) events: Vec<Arc<Event>>,
}

pub(crate) type Response = Result<Option<Answer>, Error>;

/// A unit that runs one command by the rules.
pub(crate) struct Unit {
    path: PathBuf,
    request: Request,
    key: Option<RequestKey>,
    panics: Option<Panics>,
    answer: Option<Answer>,
    response: Sender<Response>,
}

/// A unit that runs a command of a member on the room at `/w`, and where its answer arrives.
pub(crate) fn unit(name: &str, command: Command) -> (Unit, Receiver<Response>) {
    let (response, answered) = channel();
    let request = Request::new(Some(caller(name)), command);
    (Unit { path: "/w".into(), request, key: None, panics: None, answer: None, response }, answered)
}

impl Unit {
    /// The unit, recognised by this key when it is repeated.
    #[cfg(test)]
    pub(crate) fn with_key(self, key: &str) -> Self {
        let agent_id = self.request.caller.as_ref().unwrap().agent_id();
        Self { key: Some(RequestKey::new(agent_id, key.into(), "hash".into()).unwrap()), ..self }
    }

    /// The unit, on the room at another path.
    #[cfg(test)]
    pub(crate) fn at(self, path: &str) -> Self {
        Self { path: path.into(), ..self }
    }
}

/// Where a unit has a bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Panics {
    Deciding,
    Answering,
}

impl UnitOfWork for Unit {
    fn candidates(&self) -> Vec<PathBuf> {
        vec![self.path.clone()]
    }

    fn locate(&mut self, existing: &HashMap<PathBuf, RoomId>) -> Location {
        match existing.get(&self.path) {
            Some(room_id) => Location::Existing(room_id.clone()),
            None => Location::New { room_id: RoomId::fresh(), path: self.path.clone() },
        }
    }

    fn key(&self) -> Option<&RequestKey> {
        self.key.as_ref()
    }

    fn needs(&self) -> Needs {
        self.request.needs()
    }

    fn decide(&mut self, loaded: Loaded<'_>) -> Result<Decision, Error> {
        let decision = decide(loaded.room, &loaded.rows, &self.request, loaded.now);
        assert_ne!(self.panics, Some(Panics::Deciding), "a bug");
        decision
    }

    fn answer(&mut self, decision: &mut Decision, events: &[Arc<Event>]) -> Result<Option<String>, Error> {
        assert_ne!(self.panics, Some(Panics::Answering), "a bug");
        let (reply, room) = (decision.reply.clone(), decision.room.clone());
        self.answer = Some(Answer { reply, room, events: events.to_vec() });
        Ok(self.key.as_ref().map(|key| format!("the first answer to {}", key.idempotency_key)))
    }

    fn committed(self: Box<Self>) {
        let _ = self.response.send(Ok(self.answer));
    }

    fn repeated(self: Box<Self>, answer: String) {
        assert!(answer.starts_with("the first answer to "), "{answer}");
        let _ = self.response.send(Ok(None));
    }

    fn failed(self: Box<Self>, error: Error) {
        let _ = self.response.send(Err(error));
    }
}

pub(crate) fn agent(name: &str) -> AgentId {
    AgentId::trusted(name)
}

fn caller(name: &str) -> Caller {
    let identity = Identity {
        agent_id: agent(name),
        display_name: name.into(),
        harness: Some("codex".into()),
        session_id: Some("s".into()),
        found_by: FoundBy::Env,
        anchor: None,
        user: "u".into(),
    };
    Caller { identity, connection: ConnectionId(1) }
}

impl Bench<'_> {
    fn submit(&self, name: &str, command: Command, key: Option<&str>, panics: Option<Panics>) -> Receiver<Response> {
        // The kind of a command stands for the whole request.
        let kind = std::mem::discriminant(&command);
        let key = key.map(|key| RequestKey::new(&agent(name), key.into(), format!("{kind:?}")).unwrap());
        let (unit, answered) = unit(name, command);
        self.store.submit(Box::new(Unit { key, panics, ..unit }));
        answered
    }

    fn run(&self, name: &str, command: Command) -> Answer {
        self.submit(name, command, None, None).recv().unwrap().unwrap().unwrap()
    }

    fn refused(&self, name: &str, command: Command) -> ErrorCode {
        self.submit(name, command, None, None).recv().unwrap().unwrap_err().code
    }

    fn join(&self, name: &str) -> RoomId {
        self.run(name, Command::Join { display_name: None }).room.room_id
    }

    fn send(&self, from: &str, to: &str, expires_at: Option<i64>) -> i64 {
        let sent = self.run(
            from,
            Command::SendMessage {
                to: Recipients::Agent(agent(to)),
                body: "hi".into(),
                delivery_hint: DeliveryHint::Normal,
                expires_at: expires_at.map(DeadlineTime::from_millis),
            },
        );
        sent.events[0].event_seq
    }

    fn log(&self, room: &RoomId) -> Vec<Event> {
        let all = Filter { event_types: None, from: None, target: Target::Any };
        self.store.reader().unwrap().events(room, 0, usize::MAX, &all).unwrap()
    }

    fn confirm(&self, name: &str, event_seqs: Vec<i64>) -> usize {
        let surface = tt_proto::delivery::Surface::Recv;
        let command = Command::ConfirmMessages { surface, event_seqs };
        match self.run(name, command).reply {
            Reply::Count(count) => count,
            other => panic!("{other:?}"),
        }
    }

    fn take(&self, name: &str, from: Option<&str>) -> Vec<i64> {
        let command =
            Command::TakeMessages { from: from.map(agent), max_replay: None, limit: 100, access: TakeAccess::Arriving };
        match self.run(name, command).reply {
            Reply::Taken { event_seqs, .. } => event_seqs,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn handoff() -> RawJson {
    RawJson::parse(r#"{"status":"half done", "next_action":"go on"}"#.into()).unwrap()
}

fn a_room_is_read_back(bench: &Bench<'_>) {
    bench.join("a");
    bench.join("b");
    let turn = bench.run("a", Command::Wait { waiting: Waiting::Listening { alone: true } }).room;
    let release = Command::Release {
        lease_id: turn.lease_id.clone().unwrap(),
        expected_turn_id: turn.turn_id,
        handoff: handoff(),
    };
    let saved = bench.run("a", release).room;
    let read = bench.store.reader().unwrap().room(&saved.room_id).unwrap();
    // Who waits, and whose process is alive, is not stored.
    let stored = |room: &Room| {
        let mut room = room.clone();
        for member in &mut room.members {
            let member = Arc::make_mut(member);
            member.waiting = Waiting::No;
            member.liveness = tt_proto::room::Liveness::Unknown;
            member.last_wait_at = None;
        }
        room
    };
    assert_eq!(stored(&read), stored(&saved));
    assert_eq!(read.pending_handoff.unwrap().handoff, handoff(), "to the letter");
    let types: Vec<EventType> = bench.log(&saved.room_id).iter().map(|event| event.event_type).collect();
    assert_eq!(types, [EventType::MemberJoined, EventType::MemberJoined, EventType::Claim, EventType::Release]);
}

fn committed_work_survives(bench: &Bench<'_>) {
    let room = bench.join("a");
    bench.join("b");
    let seq = bench.send("a", "b", None);
    bench.store.close();
    let again = (bench.open)(&bench.dir, Arc::new(Stopped));
    let reader = again.reader().unwrap();
    assert_eq!(reader.inbox(&room, &agent("b"), 100).unwrap(), [seq]);
    assert_eq!(reader.room_at(&mut [Path::new("/x"), Path::new("/w")].into_iter()).unwrap(), Some(room.clone()));
    assert_eq!(reader.newest_event(Some(&room)).unwrap(), seq);
    assert_eq!(reader.events_by_seq(&[seq, seq + 1]).unwrap().len(), 1);
}

fn a_refusal_leaves_nothing(bench: &Bench<'_>) {
    let room = bench.join("a");
    let before = bench.log(&room);
    let first = bench.submit("a", note("one"), None, None);
    let refused = bench.submit("stranger", Command::Leave, None, None);
    let last = bench.submit("a", note("two"), None, None);
    assert!(first.recv().unwrap().is_ok() && last.recv().unwrap().is_ok());
    assert_eq!(refused.recv().unwrap().unwrap_err().code, ErrorCode::UnknownMember);
    assert_eq!(bench.log(&room).len(), before.len() + 2);
}

pub(crate) fn note(body: &str) -> Command {
    Command::AddNote { note_id: NoteId::fresh(), body: body.into(), turn_id: None }
}

fn a_panic_leaves_nothing(bench: &Bench<'_>) {
    let room = bench.join("a");
    for (lost, panics) in [Panics::Deciding, Panics::Answering].into_iter().enumerate() {
        let panicked = bench.submit("a", note("lost"), None, Some(panics));
        assert_eq!(panicked.recv().unwrap().unwrap_err().code, ErrorCode::StorageUnavailable);
        bench.run("a", note("kept"));
        assert_eq!(bench.log(&room).len(), 2 + lost);
    }
}

fn a_repeated_key_changes_nothing(bench: &Bench<'_>) {
    let room = bench.join("a");
    bench.join("b");
    let send = |name: &str, key: &str| bench.submit(name, note("n"), Some(key), None).recv().unwrap();
    assert!(send("a", "k").unwrap().is_some());
    assert!(send("a", "k").unwrap().is_none(), "the first answer again");
    assert!(send("b", "k").unwrap().is_some(), "a key is its caller's own");
    assert_eq!(bench.log(&room).len(), 4);
    let refused = bench.submit("a", note(" "), Some("refused"), None).recv().unwrap();
    assert_eq!(refused.unwrap_err().code, ErrorCode::InvalidBody);
    assert!(send("a", "refused").unwrap().is_some(), "a refusal is not remembered");
    let another = bench.submit("a", Command::Leave, Some("k"), None).recv().unwrap();
    assert_eq!(another.unwrap_err().code, ErrorCode::InvalidInput, "another request under the same key");
    assert!(send("a", "k").unwrap().is_none(), "and the first one is still known");
    let forget = |before| Maintenance::ForgetAnswers { before: LeaseTime::from_millis(before) };
    bench.store.maintain(forget(NOW)).blocking_recv().unwrap().unwrap();
    assert!(send("a", "k").unwrap().is_none(), "it is not old enough");
    let forget = forget(NOW + 1);
    bench.store.maintain(forget).blocking_recv().unwrap().unwrap();
    assert!(send("a", "k").unwrap().is_some(), "it was forgotten");
}

fn units_commit_in_order(bench: &Bench<'_>) {
    let room = bench.join("a");
    let notes: Vec<_> = (0..200).map(|n| bench.submit("a", note(&n.to_string()), None, None)).collect();
    let numbers: Vec<i64> =
        notes.iter().map(|note| note.recv().unwrap().unwrap().unwrap().events[0].event_seq).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let log: Vec<i64> = bench.log(&room).iter().skip(1).map(|event| event.event_seq).collect();
    assert_eq!(log, numbers);
}

fn deliveries_change_once(bench: &Bench<'_>) {
    let room = bench.join("a");
    for name in ["b", "c"] {
        bench.join(name);
    }
    let seqs = [bench.send("a", "b", None), bench.send("c", "b", None), bench.send("a", "b", Some(NOW + 5))];
    let reader = || bench.store.reader().unwrap();
    assert_eq!(reader().inbox(&room, &agent("b"), 100).unwrap(), seqs);
    assert_eq!(reader().inbox(&room, &agent("b"), 2).unwrap(), seqs[..2], "the oldest");
    assert_eq!(reader().expiring().unwrap(), [(room.clone(), seqs[2], DeadlineTime::from_millis(NOW + 5))]);
    assert_eq!(bench.take("b", Some("c")), [seqs[1]]);
    assert_eq!(bench.take("b", None), seqs);
    assert_eq!(bench.confirm("c", vec![seqs[0]]), 0, "it was not sent to c");
    assert_eq!(bench.confirm("b", vec![seqs[0], seqs[0], 99_999]), 1);
    assert_eq!(bench.confirm("b", vec![seqs[0]]), 0, "once");
    assert_eq!(reader().inbox(&room, &agent("b"), 100).unwrap(), seqs[1..]);
    assert_eq!(reader().overview(&room).unwrap().unread, HashMap::from([(agent("b"), 2)]));
    let rooms = reader().inbox_rooms(&agent("b"), 10).unwrap().items;
    assert_eq!((rooms.len(), &rooms[0].room_id, rooms[0].unread), (1, &room, 2));
    bench.run("b", Command::Leave);
    assert!(reader().inbox_rooms(&agent("b"), 10).unwrap().items.is_empty(), "b is no member any more");
}

fn notes_and_policies_are_kept(bench: &Bench<'_>) {
    let room = bench.join("a");
    let note_id = NoteId::fresh();
    bench.run("a", Command::AddNote { note_id: note_id.clone(), body: "look".into(), turn_id: None });
    let page = |include_resolved| NotePage { after: None, include_resolved, limit: 10 };
    let notes = |include| bench.store.reader().unwrap().notes(&room, &page(include)).unwrap().items;
    assert_eq!((notes(false).len(), notes(false)[0].body.as_str()), (1, "look"));
    bench.run("a", Command::ResolveNote { note_id: note_id.clone() });
    assert_eq!((notes(false).len(), notes(true).len()), (0, 1));
    assert_eq!(bench.refused("a", Command::ResolveNote { note_id: NoteId::fresh() }), ErrorCode::UnknownTarget);
    for (key, seconds) in [("claim_ttl", 1), ("wait_max", 2)] {
        let mut overrides = PolicyOverrides::default();
        overrides.set(key, std::time::Duration::from_secs(seconds)).unwrap();
        bench.run("a", Command::SetPolicy { overrides });
    }
    let policy = bench.store.reader().unwrap().room(&room).unwrap().policy;
    assert_eq!((policy.claim_ttl.as_secs(), policy.wait_max.as_secs()), (1, 2), "one does not undo the other");
    assert_eq!(policy.presence_ttl, Policy::default().presence_ttl);
}

fn all_rooms() -> RoomPage {
    RoomPage { limit: usize::MAX, ..RoomPage::default() }
}

fn pages_end_where_they_are_told_to(bench: &Bench<'_>) {
    let room = bench.join("a");
    let path = bench.store.reader().unwrap().rooms(&all_rooms()).unwrap().items[0].canonical_path.clone();
    let rooms = |after_path: &str, limit| {
        let page = RoomPage { only: None, after_path: Some(after_path.into()), limit };
        let page = bench.store.reader().unwrap().rooms(&page).unwrap();
        (page.items.len(), page.more)
    };
    assert_eq!((rooms("", 0), rooms("", 1), rooms(&path, 1)), ((0, true), (1, false), (0, false)));
    for n in 0..600 {
        // As long as a note can be, and six times as long in JSON.
        bench.run("a", note(&format!("{n:04}{}", "\u{1}".repeat(16_000))));
    }
    let (mut after, mut seen) = (None, 0);
    loop {
        let page = NotePage { after: after.take(), include_resolved: false, limit: 1000 };
        let page = bench.store.reader().unwrap().notes(&room, &page).unwrap();
        let bytes = serde_json::to_string(&page.items).unwrap().len();
        assert!(bytes < tt_proto::MAX_RESPONSE_BYTES as usize, "{bytes} bytes in one page");
        seen += page.items.len();
        if !page.more {
            break;
        }
        after = page.items.last().map(|note| note.note_id.clone());
    }
    assert_eq!(seen, 600, "and the pages have all of them");
}

fn a_deleted_room_is_gone(bench: &Bench<'_>) {
    let room = bench.join("a");
    bench.send("a", "a", None);
    bench.run("a", note("n"));
    assert!(bench.run("a", Command::Leave).room.deleted);
    let reader = bench.store.reader().unwrap();
    assert_eq!(reader.room(&room).unwrap_err().code, ErrorCode::RoomNotFound);
    assert!(!reader.room_exists(&room).unwrap() && reader.rooms(&all_rooms()).unwrap().items.is_empty());
    assert!(reader.inbox(&room, &agent("a"), 100).unwrap().is_empty() && bench.log(&room).is_empty());
    assert_eq!(bench.store.known_room_at(&mut [Path::new("/w")].into_iter()), None);
    drop(reader);
    assert_ne!(bench.join("a"), room, "a new room");
    assert!(bench.store.known_room_at(&mut [Path::new("/w")].into_iter()).is_some());
}

fn presence_is_stored(bench: &Bench<'_>) {
    let room = bench.join("a");
    let seen = |at: i64| Maintenance::Presence {
        seen: vec![(agent("a"), LeaseTime::from_millis(at))],
        waited: vec![(room.clone(), agent("a"), LeaseTime::from_millis(at))],
    };
    for at in [NOW + 10, NOW + 5] {
        bench.store.maintain(seen(at)).blocking_recv().unwrap().unwrap();
    }
    let stored = bench.store.reader().unwrap().room(&room).unwrap();
    assert_eq!(stored.member(&agent("a")).unwrap().last_seen_at, LeaseTime::from_millis(NOW + 10));
}
