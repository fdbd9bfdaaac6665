//! What any implementation of [`Store`] must do. Each check opens a store of its own through the function it is given, and
//! panics where the store does something else.
#![expect(clippy::unwrap_used, reason = "a check that cannot go on must fail")]
#![expect(clippy::print_stdout, reason = "a failed check is found by the line before it")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::event::{Event, EventType};
use tt_proto::filter::Filter;
use tt_proto::handoff::RawJson;
use tt_proto::hello::{Anchor, FoundBy, Identity};
use tt_proto::message::{DeliveryHint, Unread};
use tt_proto::policy::{Guard, Policy, PolicyOverrides};
use tt_proto::{AgentId, Error, ErrorCode, NoteId, RoomId, WallTime};
use tt_rules::{
    Attempt, Caller, Command, ConnectionId, DeadlineTime, Decision, GiveBackCause, GuardedAction, Handled, LeaseTime,
    Needs, NewReminder, Now, Recipients, Reply, Request, Room, SendOptions, TakeAccess, TurnEdits, Waiting, decide,
};

use crate::{
    Clock, EventQuery, Loaded, Location, Maintenance, NotePage, OpenQuery, RequestKey, RoomPage, Store, StoredDelivery,
    StoredSession, UnitOfWork, WaitingQuery,
};

/// Opens a store in a directory. Opening it again finds what was committed.
pub type Open<'a> = &'a dyn Fn(&Path, Arc<dyn Clock>) -> Arc<dyn Store>;

/// What is checked, and how.
type Check = (&'static str, fn(&Bench<'_>));

/// Runs every check.
pub fn check_all(open: Open<'_>) {
    let checks: &[Check] = &[
        ("a room and its members are read back as they were saved", a_room_is_read_back),
        ("what is known of a turn is kept while it lasts, and its commit leads to its room", edits_are_kept),
        ("the terminals of a person are read back, and lead to its room", terminals_are_read_back),
        ("what was committed is there after the store was opened again", committed_work_survives),
        ("a refused unit leaves nothing, and its neighbours stand", a_refusal_leaves_nothing),
        ("a unit that panics leaves nothing, and the next one works", a_panic_leaves_nothing),
        ("a repeated key gets the first answer and changes nothing", a_repeated_key_changes_nothing),
        ("units are committed in the order they were submitted", units_commit_in_order),
        ("a delivery is open until it is changed, once", deliveries_change_once),
        ("a hand-over that began is kept until it has ended", attempts_are_kept),
        ("a question is kept until it is answered or over", questions_are_kept),
        ("a reminder is kept until it was sent for the last time", reminders_are_kept),
        ("what is urgent is known and counted", urgency_is_kept),
        ("the newest events are found by page, by time and by words", newest_events_are_found),
        ("notes and policies are kept", notes_and_policies_are_kept),
        ("a page has as many as it may, fits an answer, and says whether it goes on", pages_end_where_they_are_told_to),
        ("a deleted room takes everything with it", a_deleted_room_is_gone),
        ("presence is stored and never goes back", presence_is_stored),
        ("sessions are stored, replaced and forgotten", sessions_are_stored),
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
    Caller { identity, connection: ConnectionId(1), joins: false }
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
        let timeout = expires_at.map(|at| Duration::from_millis(u64::try_from(at - NOW).unwrap()));
        let sent = self.run(
            from,
            Command::SendMessage {
                to: Recipients::Agent(agent(to)),
                body: "hi".into(),
                delivery_hint: DeliveryHint::Normal,
                from_person: false,
                options: SendOptions { timeout, ..SendOptions::default() },
            },
        );
        sent.events[0].event_seq
    }

    fn say(&self, from: &str, to: &str, body: &str, delivery_hint: DeliveryHint) -> i64 {
        let (to, body) = (Recipients::Agent(agent(to)), body.to_owned());
        let options = SendOptions::default();
        self.run(from, Command::SendMessage { to, body, delivery_hint, from_person: false, options }).events[0]
            .event_seq
    }

    fn log(&self, room: &RoomId) -> Vec<Event> {
        self.store.reader().unwrap().events(room, 0, usize::MAX, &Filter::any()).unwrap()
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
        self.take_of(name, from, None)
    }

    fn take_of(&self, name: &str, from: Option<&str>, about: Option<i64>) -> Vec<i64> {
        let command = Command::TakeMessages {
            from: from.map(agent),
            about,
            among: None,
            mid_turn: false,
            max_replay: None,
            limit: 100,
            access: TakeAccess::Arriving,
        };
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
    bench.run("a", Command::Kick { target: agent("b"), force: true, reason: Some("looped".into()) });
    let read = bench.store.reader().unwrap().room(&saved.room_id).unwrap();
    let removal = read.member(&agent("b")).unwrap().removal.clone().unwrap();
    assert_eq!((removal.by, removal.reason.as_deref()), (agent("a"), Some("looped")));
    let types: Vec<EventType> = bench.log(&saved.room_id).iter().map(|event| event.event_type).collect();
    assert_eq!(types[..4], [EventType::MemberJoined, EventType::MemberJoined, EventType::Claim, EventType::Release]);
}

fn edits_are_kept(bench: &Bench<'_>) {
    bench.join("a");
    let room = bench.join("b");
    let git = Anchor { host_id: "h".into(), pid: 9, process_started_at: "t".into() };
    let check = |action: GuardedAction| Command::CheckGuard { action, is_overridden: false };
    let read = || bench.store.reader().unwrap().room(&room).unwrap().edits;
    let of_git = || bench.store.reader().unwrap().rooms_of_process(&git).unwrap();
    let taken = bench.run("a", check(GuardedAction::Commit { process: Some(git.clone()) })).room.edits;
    assert!(taken.by_guard && taken.commit.as_ref() == Some(&git));
    assert_eq!((read(), of_git()), (taken, vec![room.clone()]));
    let edited = bench.run("a", check(GuardedAction::Edit { files: vec!["src/ü \"x\".rs".into()] })).room.edits;
    assert_eq!((read(), of_git()), (edited.clone(), Vec::new()), "it is for more than the commit now");
    assert_eq!(edited.files, ["src/ü \"x\".rs"]);
    let cause = GiveBackCause::TurnEnded;
    bench.run("b", Command::GiveBack { agent_id: agent("a"), turn_id: 0, cause });
    assert_eq!(read(), edited, "that was another turn");
    bench.run("b", Command::GiveBack { agent_id: agent("a"), turn_id: 1, cause });
    assert_eq!(read(), TurnEdits::default());
}

fn terminals_are_read_back(bench: &Bench<'_>) {
    let terminal = |pid: u32| Anchor { host_id: "h".into(), pid, process_started_at: "t".into() };
    let join = |pid: u32| {
        let (unit, answered) = unit("human:a", Command::Join { display_name: None });
        let mut request = unit.request.clone();
        if let Some(caller) = &mut request.caller {
            (caller.identity.found_by, caller.identity.anchor) = (FoundBy::User, Some(terminal(pid)));
        }
        bench.store.submit(Box::new(Unit { request, ..unit }));
        answered.recv().unwrap().unwrap().unwrap().room.room_id
    };
    let room = [7, 8].map(join)[0].clone();
    let reader = || bench.store.reader().unwrap();
    let stored = reader().room(&room).unwrap();
    assert_eq!(stored.member(&agent("human:a")).unwrap().terminals, [terminal(7), terminal(8)]);
    for pid in [7, 8] {
        assert_eq!(reader().rooms_of_process(&terminal(pid)).unwrap(), std::slice::from_ref(&room));
    }
    assert!(reader().rooms_of_process(&terminal(9)).unwrap().is_empty());
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
    let due = (room.clone(), seqs[2], agent("b"), DeadlineTime::from_millis(NOW + 5));
    assert_eq!(reader().due_deliveries().unwrap(), [due]);
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

fn attempts_are_kept(bench: &Bench<'_>) {
    let room = bench.join("a");
    bench.join("b");
    let seqs = [bench.send("a", "b", None), bench.send("a", "b", None)];
    let (recipient, tag) = (agent("b"), "tag".to_owned());
    let (surface, event_seqs) = (Surface::Terminal, vec![seqs[0], 99_999]);
    let begin = Command::BeginAttempt { recipient: recipient.clone(), event_seqs, surface, tag: tag.clone() };
    assert_eq!(bench.run("a", begin.clone()).reply, Reply::Begun { event_seqs: vec![seqs[0]] });
    assert_eq!(bench.run("a", begin).reply, Reply::Begun { event_seqs: Vec::new() }, "once");
    let reader = || bench.store.reader().unwrap();
    let attempts = || reader().attempts().unwrap();
    let (in_room, row) = attempts().remove(0);
    let attempt = Attempt { surface, tag: tag.clone(), at: WallTime::from_millis(NOW) };
    assert_eq!((in_room, row.event_seq, row.attempt), (room.clone(), seqs[0], Some(attempt.clone())));
    assert_eq!(standing(bench, &room, seqs[0]).row.attempt, Some(attempt));
    assert_eq!(bench.take("b", None), [seqs[1]], "it is taken by nobody else");
    let open = |limit| reader().open_deliveries(&room, &recipient, &OpenQuery::of(limit)).unwrap().len();
    assert_eq!((open(10), reader().inbox(&room, &recipient, 10).unwrap()), (1, vec![seqs[1]]));
    assert_eq!(reader().overview(&room).unwrap().unread, HashMap::from([(agent("b"), 2)]), "and still waits");
    let end = |handled| Command::EndAttempt {
        recipient: recipient.clone(),
        event_seqs: seqs.to_vec(),
        tag: tag.clone(),
        handled,
    };
    assert_eq!(bench.run("a", end(Handled::Unclear)).reply, Reply::Count(1));
    assert_eq!((attempts().len(), open(10), bench.take("b", None)), (0, 2, seqs.to_vec()));
    let event_seqs = vec![seqs[0]];
    let begin = Command::BeginAttempt { recipient: recipient.clone(), event_seqs, surface, tag: tag.clone() };
    bench.run("a", begin);
    assert_eq!(bench.run("a", end(Handled::Arrived)).reply, Reply::Count(1));
    let stored = standing(bench, &room, seqs[0]);
    assert_eq!((stored.row.state, stored.surface), (DeliveryState::Delivered, Some(surface)));
    assert_eq!((stored.row.attempt, stored.row.attempts, attempts().len()), (None, 1, 0), "one showed nothing");
}

/// What becomes of a message with one recipient.
fn standing(bench: &Bench<'_>, room: &RoomId, event_seq: i64) -> StoredDelivery {
    bench.store.reader().unwrap().recipients(room, event_seq, 10).unwrap().remove(0)
}

fn questions_are_kept(bench: &Bench<'_>) {
    let room = bench.join("a");
    bench.join("b");
    let ask = |from: &str, to: &str| {
        let options = SendOptions { expects_reply: true, notify_on_delivery: true, ..SendOptions::default() };
        let (to, body) = (Recipients::Agent(agent(to)), format!("why?\n{}", "because ".repeat(20)));
        let ask = Command::SendMessage { to, body, delivery_hint: DeliveryHint::Normal, from_person: false, options };
        bench.run(from, ask).events[0].event_seq
    };
    let reply = |event_seq: i64| {
        let options = SendOptions { reply_to: Some(event_seq), ..SendOptions::default() };
        let (to, body) = (Recipients::Room, "so".to_owned());
        Command::SendMessage { to, body, delivery_hint: DeliveryHint::Normal, from_person: false, options }
    };
    let question = ask("a", "b");
    let waiting = |questions, recipient: Option<&str>| {
        let query = WaitingQuery { recipient: recipient.map(agent), questions, limit: 10 };
        let found = bench.store.reader().unwrap().waiting(&room, &query).unwrap();
        found.iter().map(|delivery| delivery.row.event_seq).collect::<Vec<_>>()
    };
    assert_eq!(
        (waiting(true, Some("b")), waiting(false, None), waiting(true, Some("a"))),
        (vec![question], vec![question], vec![])
    );
    bench.confirm("b", vec![question]);
    assert_eq!(
        (waiting(true, None), waiting(false, Some("b"))),
        (vec![question], vec![]),
        "handed over and not answered"
    );
    let stored = standing(bench, &room, question);
    assert_eq!((stored.row.state, stored.surface), (DeliveryState::Delivered, Some(Surface::Recv)));
    assert!(stored.delivered_at.is_some() && stored.row.expires_at.is_some());
    let notice = bench.take_of("a", None, Some(question));
    assert_eq!(notice.len(), 1, "of the delivery");
    let events = bench.store.reader().unwrap().events_by_seq(&notice).unwrap();
    let payload = events[0].payload.as_ref().unwrap().as_str();
    assert!(payload.contains("why? because") && payload.contains('…'), "{payload}");
    let back = ask("b", "a");
    bench.say("b", "a", "by the way", DeliveryHint::Normal);
    assert_eq!(bench.take_of("a", None, Some(question)), [notice[0], back], "and what the one who was asked asks");
    assert_eq!(bench.refused("a", reply(question)), ErrorCode::NotARecipient);
    assert_eq!(bench.refused("b", reply(99_999)), ErrorCode::UnknownMessage);
    let answer = bench.run("b", reply(question)).events[0].event_seq;
    assert_eq!(bench.take_of("a", None, Some(question)), [notice[0], back, answer]);
    let stored = standing(bench, &room, question);
    assert_eq!((stored.row.state, stored.answered_by, stored.is_late), (DeliveryState::Answered, Some(answer), false));
    assert_eq!(waiting(true, None), [back], "the answered one is over");
    let removed = bench.run("a", Command::Leave);
    assert!(removed.events.len() > 1, "the one who asked is told that it left: {:?}", removed.events);
    assert!(waiting(true, None).is_empty() && standing(bench, &room, back).row.is_over);
}

fn reminders_are_kept(bench: &Bench<'_>) {
    let room = bench.join("a");
    bench.join("b");
    let reminder = |name: &str, times, every: Option<u64>| NewReminder {
        reminder_id: name.into(),
        body: "look".into(),
        to: Some("b".into()),
        delay: Duration::from_secs(60),
        every: every.map(Duration::from_secs),
        times,
    };
    bench.run("a", Command::AddReminder(reminder("once", 1, None)));
    bench.run("a", Command::AddReminder(reminder("often", 3, Some(60))));
    let of = |name: &str| {
        let found = bench.store.reader().unwrap().reminders(&room, &agent(name), 10).unwrap();
        found.into_iter().map(|reminder| (reminder.reminder_id.to_string(), reminder.times)).collect::<Vec<_>>()
    };
    let both = [("often".to_owned(), 3), ("once".to_owned(), 1)];
    assert_eq!((of("a").len(), of("b").len(), of("c").len()), (2, 2, 0));
    let due = bench.store.reader().unwrap().due_reminders().unwrap();
    assert!(due.len() == 2 && due.iter().all(|(_, _, at)| at.as_millis() == NOW + 60_000), "{due:?}");
    assert!(both.iter().all(|one| of("b").contains(one)));
    assert_eq!(bench.refused("c", Command::CancelReminder { reminder_id: "once".into() }), ErrorCode::UnknownMember);
    bench.run("b", Command::CancelReminder { reminder_id: "once".into() });
    assert_eq!(of("a"), [("often".to_owned(), 3)]);
    let decided = Command::ReminderDue { reminder_id: "often".into() };
    assert_eq!(bench.refused("a", Command::CancelReminder { reminder_id: "gone".into() }), ErrorCode::UnknownReminder);
    bench.run("a", decided);
    assert_eq!(of("a"), [("often".to_owned(), 3)], "it is not due yet");
}

fn urgency_is_kept(bench: &Bench<'_>) {
    let room = bench.join("a");
    bench.join("b");
    let hints = [DeliveryHint::Normal, DeliveryHint::Important, DeliveryHint::Interrupt];
    let seqs = hints.map(|hint| bench.say("a", "b", "hi", hint));
    let unread = || bench.store.reader().unwrap().unread().unwrap();
    assert_eq!(unread(), [(room.clone(), agent("b"), Unread { unread: 3, interrupts: 1 })]);
    assert_eq!(bench.take("b", None), [seqs[2], seqs[1], seqs[0]]);
    assert_eq!(bench.store.reader().unwrap().inbox_rooms(&agent("b"), 10).unwrap().items[0].interrupts, 1);
    bench.confirm("b", vec![seqs[2]]);
    assert_eq!(unread(), [(room, agent("b"), Unread { unread: 2, interrupts: 0 })]);
    bench.confirm("b", seqs.to_vec());
    assert!(unread().is_empty());
}

fn newest_events_are_found(bench: &Bench<'_>) {
    let room = bench.join("a");
    let bodies = ["the cart rounds twice", "Schema first, then the cart", "nothing of note", "carts again"];
    let seqs = bodies.map(|body| bench.say("a", "a", body, DeliveryHint::Normal));
    let find = |before, limit, filter: Filter| {
        let found = bench.store.reader().unwrap().newest_events(&room, &EventQuery { before, limit, filter }).unwrap();
        let numbers: Vec<i64> = found.events.iter().map(|event| event.event_seq).collect();
        (numbers, found.earlier)
    };
    assert_eq!(find(None, 2, Filter::any()), (seqs[2..].to_vec(), 3), "two messages and the join came before");
    assert_eq!(find(Some(seqs[2]), 2, Filter::any()), (seqs[..2].to_vec(), 1));
    assert_eq!(find(Some(seqs[0]), 5, Filter::any()).0.len(), 1);
    let since = |at: i64| Filter { since: Some(WallTime::from_millis(at)), ..Filter::any() };
    assert_eq!(find(None, 9, since(NOW)).0.len(), 5);
    assert_eq!(find(None, 9, since(NOW + 1)), (Vec::new(), 0));
    let words = |text: &str| {
        let words = Some(tt_proto::search::SearchWords::parse(text).unwrap());
        Filter { words, ..Filter::any() }
    };
    // Before anything is in the index, while a part is, and when everything is.
    for step in 0..4 {
        assert_eq!(find(None, 9, words("cart")), (vec![seqs[0], seqs[1], seqs[3]], 0), "step {step}");
        assert_eq!(find(None, 1, words("CART")), (vec![seqs[3]], 2));
        assert_eq!(find(Some(seqs[3]), 1, words("cart")), (vec![seqs[1]], 1));
        assert_eq!(find(None, 9, words("cart schema")).0, [seqs[1]]);
        assert_eq!(find(None, 9, words("chart")).0, Vec::<i64>::new());
        let index = Maintenance::IndexEvents { limit: 2 };
        bench.store.maintain(index).blocking_recv().unwrap().unwrap();
    }
    assert!(!bench.store.reader().unwrap().has_unindexed_events().unwrap());
    let late = bench.say("a", "a", "a late cart", DeliveryHint::Normal);
    assert!(bench.store.reader().unwrap().has_unindexed_events().unwrap());
    assert_eq!(find(None, 1, words("cart")), (vec![late], 3));
    let reader = bench.store.reader().unwrap();
    let event = &reader.events_by_seq(&[late]).unwrap()[0];
    assert_eq!(reader.events_by_id(&room, event.event_id.as_str()).unwrap().len(), 1);
    assert_eq!(reader.events_by_id(&room, "").unwrap().len(), 2, "every id begins with nothing");
    drop(reader);
    assert!(bench.run("a", Command::Delete).room.deleted);
    let again = bench.join("a");
    bench.store.maintain(Maintenance::IndexEvents { limit: 100 }).blocking_recv().unwrap().unwrap();
    let query = EventQuery { before: None, limit: 9, filter: words("cart") };
    let reader = bench.store.reader().unwrap();
    for room in [&room, &again] {
        assert!(reader.newest_events(room, &query).unwrap().events.is_empty(), "deleted with its room");
    }
}

fn notes_and_policies_are_kept(bench: &Bench<'_>) {
    let room = bench.join("a");
    let note_id = NoteId::fresh();
    bench.run("a", Command::AddNote { note_id: note_id.clone(), body: "look".into(), turn_id: None });
    let page = |include_resolved| NotePage { after: None, include_resolved, limit: 10 };
    let notes = |include| bench.store.reader().unwrap().notes(&room, &page(include)).unwrap().items;
    assert_eq!((notes(false).len(), notes(false)[0].body.as_str()), (1, "look"));
    let reader = bench.store.reader().unwrap();
    assert_eq!(reader.open_notes(&room).unwrap(), 1);
    assert_eq!(reader.notes_by_id(&room, &note_id.as_str()[..6]).unwrap(), std::slice::from_ref(&note_id));
    drop(reader);
    bench.run("a", Command::ResolveNote { note_id: note_id.clone() });
    assert_eq!((notes(false).len(), notes(true).len()), (0, 1));
    assert_eq!(bench.store.reader().unwrap().open_notes(&room).unwrap(), 0);
    assert_eq!(bench.refused("a", Command::ResolveNote { note_id: NoteId::fresh() }), ErrorCode::UnknownTarget);
    for (key, value) in [("claim_ttl", "1s"), ("wait_max", "2s"), ("guard", "advise")] {
        let mut overrides = PolicyOverrides::default();
        overrides.set(key, value).unwrap();
        bench.run("a", Command::SetPolicy { overrides });
    }
    let policy = bench.store.reader().unwrap().room(&room).unwrap().policy;
    assert_eq!((policy.claim_ttl.as_secs(), policy.wait_max.as_secs()), (1, 2), "one does not undo the other");
    assert_eq!((policy.guard, policy.presence_ttl), (Guard::Advise, Policy::default().presence_ttl));
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
    bench.join("b");
    bench.send("a", "b", None);
    let waiting = |limit| {
        let page = bench.store.reader().unwrap().inbox_rooms(&agent("b"), limit).unwrap();
        (page.items.len(), page.more)
    };
    assert_eq!((waiting(0), waiting(1)), ((0, true), (1, false)));
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
    assert!(!bench.run("a", Command::Leave).room.deleted);
    let size = bench.store.reader().unwrap().room_size(&room).unwrap();
    assert_eq!((size.events, size.unread), (4, 1), "nobody is left, and everything is kept");
    assert!(size.bytes > 0);
    bench.run("a", Command::Purge);
    assert!(bench.store.reader().unwrap().room_exists(&room).unwrap(), "no time deletes what was written");
    assert!(bench.run("a", Command::Delete).room.deleted);
    let reader = bench.store.reader().unwrap();
    assert_eq!(reader.room(&room).unwrap_err().code, ErrorCode::RoomNotFound);
    assert!(!reader.room_exists(&room).unwrap() && reader.rooms(&all_rooms()).unwrap().items.is_empty());
    assert!(reader.inbox(&room, &agent("a"), 100).unwrap().is_empty() && bench.log(&room).is_empty());
    assert_eq!(bench.store.known_room_at(&mut [Path::new("/w")].into_iter()), None);
    drop(reader);
    let empty = bench.join("a");
    assert_ne!(empty, room, "a new room");
    let much_later = WallTime::from_millis(NOW + 365 * 24 * 3600 * 1000);
    let untouched = |policy: &Policy| bench.store.reader().unwrap().untouched_rooms(policy, much_later).unwrap();
    assert_eq!(untouched(&Policy::default()), std::slice::from_ref(&empty));
    bench.run("a", note("n"));
    assert!(untouched(&Policy::default()).is_empty());
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

fn sessions_are_stored(bench: &Bench<'_>) {
    let room = bench.join("a");
    let anchor = |pid| Anchor { host_id: "h".into(), pid, process_started_at: "t".into() };
    let at = |millis| LeaseTime::from_millis(NOW + millis);
    let session = StoredSession {
        harness: "claude".into(),
        session_id: "s".into(),
        agent_id: agent("a"),
        processes: vec![anchor(1), anchor(2)],
        server: Some(anchor(3)),
        cwd: Some("/w".into()),
        transcript_path: None,
        opened_at: at(1),
        ended_at: Some(at(2)),
        left_at: None,
        followed_by: Some("s-2".into()),
        guessed_from: None,
        orphaned: true,
        shares_process: false,
        untold_since: None,
    };
    let other = StoredSession {
        session_id: "s-2".into(),
        server: None,
        ended_at: None,
        guessed_from: Some("s".into()),
        orphaned: false,
        shares_process: true,
        untold_since: Some(at(3)),
        ..session.clone()
    };
    let maintain = |task| bench.store.maintain(task).blocking_recv().unwrap().unwrap();
    let stored = || bench.store.reader().unwrap().sessions().unwrap();
    for save in [&session, &other, &StoredSession { processes: Vec::new(), ..other.clone() }, &other] {
        maintain(Maintenance::SaveSessions(vec![save.clone()]));
    }
    assert_eq!(stored(), [session.clone(), other]);
    maintain(Maintenance::ForgetSession { harness: "claude".into(), session_id: "s-2".into() });
    maintain(Maintenance::ForgetSession { harness: "codex".into(), session_id: "s".into() });
    assert_eq!(stored(), [session]);
    let reader = bench.store.reader().unwrap();
    assert_eq!(reader.rooms_of_agent(&agent("a")).unwrap(), [room]);
    assert_eq!(reader.rooms_of_agent(&agent("b")).unwrap(), []);
}
