use tt_rules::{MAX_TAKE, Recipients, TakeAccess, testing};
use tt_store::sqlite::SqliteStore;

use super::*;
use crate::workspace::Directory;

/// Processes that all run.
#[derive(Debug)]
pub(crate) struct Alive;

impl MemberProcesses for Alive {
    fn liveness(&self, _: &Anchor) -> Liveness {
        Liveness::Alive
    }

    fn watch(&self, _: &Anchor) {}
}

fn context(name: &str, connection: u64) -> CommandContext {
    CommandContext { caller: testing::caller(name, connection), key: None }
}

/// A room with the members `a` and `b`, and a message from one to the other.
async fn room_with_a_message(dir: &std::path::Path) -> (Engine, RoomId) {
    let (clock, policy) = (Clock::new(), Policy::default());
    let file = dir.join("rooms.sqlite");
    let store = SqliteStore::open_volatile(&file, Arc::new(clock.clone()), policy.clone()).unwrap();
    let engine = Engine::new(Arc::new(store), clock, Arc::new(Alive), policy);
    let mut room_id = None;
    for name in ["a", "b"] {
        let workspace = Workspace::of(Directory::find(dir, None).unwrap());
        let answer = |outcome: &Outcome<'_>| outcome.room.room_id.clone();
        room_id = Some(engine.join(context(name, 1), workspace, true, None, answer).await.unwrap());
    }
    let room_id = room_id.unwrap();
    let (to, body) = (Recipients::Agent(AgentId::trusted("b")), "hi".to_owned());
    let delivery_hint = Default::default();
    let options = Default::default();
    let send = Command::SendMessage { to, body, delivery_hint, from_person: false, options };
    engine.run(&room_id, context("a", 1), send, |_| ()).await.unwrap();
    (engine, room_id)
}

async fn take(engine: &Engine, room_id: &RoomId, connection: u64) -> (usize, Option<HeldMessages>) {
    let command = Command::TakeMessages {
        from: None,
        about: None,
        among: None,
        mid_turn: false,
        max_replay: None,
        limit: MAX_TAKE,
        access: TakeAccess::Arriving,
    };
    let count = |outcome: &Outcome<'_>| match outcome.reply {
        Reply::Taken { event_seqs, .. } => event_seqs.len(),
        other => panic!("{other:?}"),
    };
    engine.take(room_id, context("b", connection), command, count).await.unwrap()
}

#[tokio::test]
async fn messages_are_given_back_unless_their_taker_keeps_them() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, room_id) = room_with_a_message(dir.path()).await;
    let (count, held) = take(&engine, &room_id, 1).await;
    assert_eq!((count, take(&engine, &room_id, 2).await.0), (1, 0), "one connection at a time");
    // As when the text of the message cannot be read.
    drop(held);
    let (count, held) = take(&engine, &room_id, 2).await;
    assert_eq!(count, 1);
    held.unwrap().keep();
    assert_eq!(take(&engine, &room_id, 1).await.0, 0, "kept until its connection ends");
    engine.listeners().end_connection(ConnectionId(2));
    assert_eq!(take(&engine, &room_id, 1).await.0, 1);
}

#[tokio::test]
async fn a_caller_that_stopped_waiting_for_its_answer_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (engine, room_id) = room_with_a_message(dir.path()).await;
    {
        let taking = take(&engine, &room_id, 1);
        tokio::pin!(taking);
        // Submitted, and then dropped before it is answered.
        let waker = std::task::Waker::noop();
        let _ = taking.as_mut().poll(&mut std::task::Context::from_waker(waker));
    }
    // The writer has had the abandoned unit once it answers the next one.
    engine.run_system_command(&room_id, Command::Tick).await.unwrap();
    assert_eq!(take(&engine, &room_id, 2).await.0, 1);
}

#[test]
fn processes_of_members_that_left_or_are_long_gone_are_not_looked_at() {
    let id = tt_rules::testing::id;
    let names: Vec<String> = (0..50).map(|n| format!("m{n}")).collect();
    let mut room = tt_rules::testing::room(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for (n, name) in names[..45].iter().enumerate() {
        let status = [MemberStatus::Gone, MemberStatus::Left, MemberStatus::Kicked][n % 3];
        room.member_mut(&id(name)).unwrap().status = status;
    }
    room.member_mut(&id("m46")).unwrap().status = MemberStatus::Away;
    room.owner = Some(id("m0"));
    let looked_at = looked_at(&room).into_iter().enumerate().filter(|(_, matters)| *matters);
    let looked_at: Vec<usize> = looked_at.map(|(n, _)| n).collect();
    let expected = [0, 30, 33, 36, 39, 42, 45, 46, 47, 48, 49];
    assert_eq!(looked_at, expected, "the holder, the last of the gone, and who is there");
}
