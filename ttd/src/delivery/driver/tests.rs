use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tt_proto::ErrorCode;
use tt_proto::delivery::{DeliveryState, Surface, WaitReason};
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::session::SessionEvent;
use tt_rules::{Recipients as To, Reply, SendOptions, TakeAccess, testing};
use tt_store::sqlite::SqliteStore;

use super::forgetful_store::ForgetfulStore;
use super::*;
use crate::clock::Clock;
use crate::delivery::plan::{Abilities, Reach};
use crate::delivery::ways::{self, InItsTime, Target};
use crate::delivery::{Waiting, waits};
use crate::engine::tests::Alive;
use crate::engine::{CommandContext, HeldMessages, Outcome};
use crate::feed::{FeedItem, Follower};
use crate::liveness::{Kernel, LOOK_TIMEOUT, Looks, Watch};
use crate::sessions::Sessions;
use crate::sessions::registry::Report;
use crate::workspace::{Directory, Workspace};

/// What a scripted way does with one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Works,
    /// It says that it handed the block over, and nothing arrived.
    Lies,
    /// It says so too, and nothing will ever show it.
    StaysSilent,
    Fails,
    SaysNotNow,
    Hangs,
    Crashes,
    /// It hands the block over and hangs.
    HangsAfterwards,
    LooksForEver,
}

/// A way that does what it is told, in this order; the last of it again and again.
#[derive(Debug)]
struct Scripted {
    name: WayName,
    script: Mutex<VecDeque<Does>>,
    last: Mutex<Does>,
    clock: Clock,
    blocks: UnboundedSender<(WayName, Block, LeaseTime)>,
}

impl Scripted {
    /// `found`: what it says of what an earlier daemon handed over.
    fn resumed(name: WayName, found: Does, script: &[Does], kit: &Kit) -> Arc<dyn Way> {
        let (last, script) = (Mutex::new(found), Mutex::new(script.iter().copied().collect()));
        Arc::new(Self { name, script, last, clock: kit.clock.clone(), blocks: kit.blocks.clone() })
    }

    fn scripted(name: WayName, script: &[Does], kit: &Kit) -> Arc<dyn Way> {
        Self::resumed(name, Does::StaysSilent, script, kit)
    }
}

impl Way for Scripted {
    fn name(&self) -> WayName {
        self.name
    }

    fn starts(&self) -> bool {
        true
    }

    fn reach(&self, _: &Target<'_>) -> Reach {
        Reach::Starts(Abilities { idle: true, busy: false, gone: false })
    }

    fn hand_over<'a>(&'a self, block: &'a Block) -> InItsTime<'a, Handed> {
        Box::pin(async move {
            let does = {
                let mut last = self.last.lock().unwrap();
                *last = self.script.lock().unwrap().pop_front().unwrap_or(*last);
                *last
            };
            self.blocks.send((self.name, block.clone(), self.clock.now().lease)).unwrap();
            match does {
                Does::Works | Does::Lies | Does::StaysSilent | Does::LooksForEver => Handed::Over,
                Does::Fails => Handed::Failed("no such socket".into()),
                Does::SaysNotNow => Handed::NotNow { because: WaitReason::Draft, retry: Duration::from_secs(120) },
                Does::Hangs | Does::HangsAfterwards => std::future::pending().await,
                Does::Crashes => panic!("a way that crashes"),
            }
        })
    }

    fn look<'a>(&'a self, _: &'a Begun) -> InItsTime<'a, Arrived> {
        let does = *self.last.lock().unwrap();
        Box::pin(async move {
            match does {
                Does::Works | Does::HangsAfterwards => Arrived::Yes,
                Does::Lies | Does::Fails | Does::SaysNotNow => Arrived::No,
                Does::StaysSilent | Does::Hangs | Does::Crashes => Arrived::Unknown,
                Does::LooksForEver => std::future::pending().await,
            }
        })
    }
}

/// A room with the members `a` and `b`. `b` has a session.
struct Kit {
    dir: tempfile::TempDir,
    clock: Clock,
    engine: Engine,
    sessions: Sessions,
    room_id: RoomId,
    blocks: UnboundedSender<(WayName, Block, LeaseTime)>,
    handed: UnboundedReceiver<(WayName, Block, LeaseTime)>,
    changes: Follower,
    /// The store loses its next answer about a hand-over.
    loses_next: Arc<AtomicBool>,
}

impl Kit {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::stopped(1_000_000_000_000);
        let loses_next = Arc::new(AtomicBool::new(false));
        let engine = engine(dir.path(), &clock, &loses_next);
        let mut room_id = None;
        for name in ["a", "b"] {
            let workspace = Workspace::of(Directory::find(dir.path(), None).unwrap());
            let answer = |outcome: &Outcome<'_>| outcome.room.room_id.clone();
            room_id = Some(engine.join(context(name), workspace, true, None, answer).await.unwrap());
        }
        let room_id = room_id.unwrap();
        let (blocks, handed) = unbounded_channel();
        let (sessions, changes) = (sessions(&clock), engine.feed().subscribe(&room_id));
        Self { dir, clock, engine, sessions, room_id, blocks, handed, changes, loses_next }
    }

    /// Starts a driver with these ways, and what is known of recipients.
    fn drive(&self, ways: &[Arc<dyn Way>]) -> (AbortOnDrop<()>, Recipients) {
        let mut all = ways::all(&self.sessions);
        all.retain(|way| !ways.iter().any(|given| given.name() == way.name()));
        all.extend(ways.iter().cloned());
        let recipients = Recipients::new(self.engine.listeners().clone(), self.sessions.clone(), all);
        let (wake, wakes) = unbounded_channel();
        self.engine.listeners().tell_driver(wake.clone());
        self.sessions.tell_driver(wake);
        (AbortOnDrop(tokio::spawn(run(self.engine.clone(), recipients.clone(), wakes))), recipients)
    }

    /// Another daemon. It has sessions of its own, and at first knows nothing of what they do.
    async fn restart(&mut self) {
        self.engine.store().close();
        self.engine = engine(self.dir.path(), &self.clock, &self.loses_next);
        self.engine.unread().load(self.engine.read(|reader| reader.unread()).await.unwrap());
        self.sessions = sessions(&self.clock);
        self.changes = self.engine.feed().subscribe(&self.room_id);
    }

    /// A hook of `b`'s session tells this.
    fn reports(&self, event: SessionEvent) {
        self.reports_of("b", event);
    }

    fn reports_of(&self, name: &str, event: SessionEvent) {
        let mut identity = testing::caller(name, 1).identity;
        identity.harness = Some("claude".into());
        let session_id = format!("s-{name}");
        self.sessions.report(&identity, &session_id, &Report::of(event, self.clock.now().lease), None);
    }

    /// One member writes to the other.
    async fn write(&self, from: &str, to: &str) {
        let (to, delivery_hint, options) = (To::Agent(testing::id(to)), Default::default(), SendOptions::default());
        let command = Command::SendMessage { to, body: "and you?".into(), delivery_hint, from_person: false, options };
        self.engine.run(&self.room_id, context(from), command, |_| ()).await.unwrap();
    }

    /// What `a` tells everybody.
    async fn broadcast(&self, body: &str) {
        let (to, delivery_hint, options) = (To::Room, Default::default(), SendOptions::default());
        let command = Command::SendMessage { to, body: body.into(), delivery_hint, from_person: false, options };
        self.engine.run(&self.room_id, context("a"), command, |_| ()).await.unwrap();
    }

    async fn send(&self, body: &str, timeout: Option<Duration>) -> i64 {
        let options = SendOptions { timeout, ..SendOptions::default() };
        let (to, delivery_hint) = (To::Agent(testing::id("b")), Default::default());
        let command = Command::SendMessage { to, body: body.into(), delivery_hint, from_person: false, options };
        let seq = |outcome: &Outcome<'_>| outcome.events[0].event_seq;
        self.engine.run(&self.room_id, context("a"), command, seq).await.unwrap()
    }

    /// The next hand-over that begins.
    async fn next(&mut self) -> (WayName, Block, LeaseTime) {
        self.handed.recv().await.unwrap()
    }

    /// The next hand-over, while time passes second by second.
    async fn next_in_time(&mut self) -> (WayName, Block, LeaseTime) {
        loop {
            if let Ok(handed) = tokio::time::timeout(Duration::from_millis(5), self.handed.recv()).await {
                return handed.unwrap();
            }
            self.clock.advance(Duration::from_secs(1));
        }
    }

    /// The next delivery that changes its state.
    async fn next_change(&mut self) -> (i64, DeliveryState, Option<Surface>) {
        loop {
            if let FeedItem::Delivery(change) = self.changes.recv().await.unwrap() {
                return (change.event_seq, change.state, change.surface);
            }
        }
    }

    async fn withdraw(&self, event_seq: i64) -> Result<(), ErrorCode> {
        let command = Command::WithdrawMessage { event_seq };
        self.engine.run(&self.room_id, context("a"), command, |_| ()).await.map_err(|e| e.code)
    }

    /// What `b` is given if it asks now.
    async fn take(&self) -> Vec<i64> {
        let access = TakeAccess::Arriving;
        let command = Command::TakeMessages {
            from: None,
            about: None,
            among: None,
            mid_turn: false,
            max_replay: None,
            limit: 10,
            access,
        };
        let taken = |outcome: &Outcome<'_>| match outcome.reply {
            Reply::Taken { event_seqs, .. } => event_seqs.clone(),
            other => panic!("{other:?}"),
        };
        let (taken, held) = self.engine.take(&self.room_id, context("b"), command, taken).await.unwrap();
        held.into_iter().for_each(HeldMessages::keep);
        taken
    }

    async fn attempts(&self) -> Vec<i64> {
        let rows = self.engine.read(|reader| reader.attempts()).await.unwrap();
        rows.into_iter().map(|(_, row)| row.event_seq).collect()
    }

    fn now(&self) -> LeaseTime {
        self.clock.now().lease
    }
}

fn context(name: &str) -> CommandContext {
    CommandContext { caller: testing::caller(name, 1), key: None }
}

fn engine(dir: &Path, clock: &Clock, loses_next: &Arc<AtomicBool>) -> Engine {
    let policy = Policy::default();
    let store = SqliteStore::open_volatile(&dir.join("rooms.sqlite"), Arc::new(clock.clone()), policy.clone());
    let store = ForgetfulStore { store: Arc::new(store.unwrap()), loses_next: loses_next.clone() };
    Engine::new(Arc::new(store), clock.clone(), Arc::new(Alive), policy)
}

fn sessions(clock: &Clock) -> Sessions {
    let looks = Looks::new(Arc::new(Kernel::new()), LOOK_TIMEOUT);
    let (watch, _exits) = Watch::new(looks.clone(), 10);
    Sessions::new(watch, looks, clock.clone(), "someone".into(), None).0
}

const DELIVERED: DeliveryState = DeliveryState::Delivered;

#[tokio::test]
async fn a_message_is_handed_to_an_idle_session_once_and_what_was_sent_is_in_the_block() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::Terminal, &[Does::Works], &kit)]);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("look at this", None).await;
    let (way, block, _) = kit.next().await;
    assert_eq!((way, &block.attempt.messages), (WayName::Terminal, &vec![(kit.room_id.clone(), vec![seq])]));
    assert!(block.text.contains("look at this") && block.text.contains(&block.attempt.tag), "{}", block.text);
    assert_eq!(kit.next_change().await, (seq, DELIVERED, Some(Surface::Terminal)));
    assert_eq!(kit.attempts().await, [0; 0]);
}

#[tokio::test]
async fn a_message_for_a_session_that_works_waits_until_that_is_idle() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Works], &kit)]);
    kit.reports(SessionEvent::Prompt);
    let seq = kit.send("hi", None).await;
    assert_eq!(kit.withdraw(seq).await, Ok(()), "nobody has it");
    assert_eq!(kit.next_change().await, (seq, DeliveryState::Withdrawn, None));
    let seq = kit.send("hi again", None).await;
    kit.clock.advance(Duration::from_secs(3));
    let idle_at = kit.now();
    kit.reports(SessionEvent::TurnEnded);
    let (_, block, at) = kit.next().await;
    assert_eq!(
        (block.attempt.messages[0].1.as_slice(), at),
        (&[seq][..], idle_at),
        "it is woken by the evidence alone"
    );
    assert_eq!(kit.next_change().await, (seq, DELIVERED, Some(Surface::NativeInbox)));
}

#[tokio::test]
async fn a_way_that_fails_or_lies_or_crashes_is_left_out_and_the_next_one_brings_the_message() {
    for does in [Does::Fails, Does::Lies] {
        let mut kit = Kit::new().await;
        let ways = [
            Scripted::scripted(WayName::NativeInbox, &[does], &kit),
            Scripted::scripted(WayName::Terminal, &[Does::Works], &kit),
        ];
        let (_driver, recipients) = kit.drive(&ways);
        kit.reports(SessionEvent::TurnEnded);
        let seq = kit.send("hi", None).await;
        assert_eq!(kit.next().await.0, WayName::NativeInbox, "{does:?}");
        let (way, _, at) = kit.next().await;
        assert_eq!((way, at), (WayName::Terminal, kit.now()), "{does:?}");
        assert_eq!(kit.next_change().await, (seq, DELIVERED, Some(Surface::Terminal)));
        let left_out = recipients.failures().left_out(&testing::id("b"), WayName::NativeInbox);
        assert_eq!(left_out.map(|out| out.until), Some(kit.now() + Duration::from_secs(5)));
    }
}

#[tokio::test]
async fn what_nothing_shows_is_held_until_the_session_was_idle_for_a_while() {
    for does in [Does::StaysSilent, Does::Crashes, Does::LooksForEver] {
        let mut kit = Kit::new().await;
        let ways = [
            Scripted::scripted(WayName::NativeInbox, &[does], &kit),
            Scripted::scripted(WayName::Terminal, &[Does::Works], &kit),
        ];
        let _driver = kit.drive(&ways);
        kit.reports(SessionEvent::TurnEnded);
        let seq = kit.send("hi", Some(Duration::from_secs(3))).await;
        let (_, _, began) = kit.next().await;
        assert_eq!(kit.attempts().await, [seq], "{does:?}");
        assert_eq!(kit.withdraw(seq).await, Err(ErrorCode::AlreadyDelivered), "{does:?}");
        assert_eq!(kit.take().await, [0; 0], "{does:?}");
        // It works on what it may have been handed: there is no hurry.
        kit.clock.advance(Duration::from_secs(2));
        kit.reports(SessionEvent::ToolStarted);
        kit.clock.advance(Duration::from_secs(1000));
        let due = Command::DeliveryDue { event_seq: seq };
        kit.engine.run_system_command(&kit.room_id, due).await.unwrap();
        assert_eq!(kit.attempts().await, [seq], "{does:?}: it does not expire either");
        kit.send("another", None).await;
        let idle_at = kit.now();
        kit.reports(SessionEvent::TurnEnded);
        let (way, block, at) = kit.next_in_time().await;
        assert!(at.since(idle_at) >= Policy::default().confirm_within && at > began, "{does:?}");
        // The first one is past its deadline by now, and is nobody's any more.
        let seqs = &block.attempt.messages[0].1;
        assert_eq!((way, seqs.contains(&seq), seqs.len()), (WayName::Terminal, false, 1), "{does:?}");
    }
}

#[tokio::test]
async fn a_way_that_hangs_is_given_up_and_the_next_one_brings_the_message() {
    let mut kit = Kit::new().await;
    let ways = [
        Scripted::scripted(WayName::NativeInbox, &[Does::Hangs], &kit),
        Scripted::scripted(WayName::Terminal, &[Does::Works], &kit),
    ];
    let _driver = kit.drive(&ways);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("hi", None).await;
    let (_, _, began) = kit.next().await;
    let (way, _, at) = kit.next_in_time().await;
    assert_eq!(way, WayName::Terminal);
    assert!(at.since(began) >= HAND_OVER_LIMIT, "{:?}", at.since(began));
    assert_eq!(kit.next_change().await, (seq, DELIVERED, Some(Surface::Terminal)));
}

#[tokio::test]
async fn what_arrived_although_its_way_hung_is_not_handed_over_again() {
    let mut kit = Kit::new().await;
    let ways = [
        Scripted::scripted(WayName::NativeInbox, &[Does::HangsAfterwards], &kit),
        Scripted::scripted(WayName::Terminal, &[Does::Works], &kit),
    ];
    let _driver = kit.drive(&ways);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("hi", None).await;
    kit.next().await;
    let clock = kit.clock.clone();
    let (_passing, changed) = (
        AbortOnDrop(tokio::spawn(async move {
            loop {
                clock.advance(Duration::from_secs(1));
                tokio::task::yield_now().await;
            }
        })),
        kit.next_change().await,
    );
    assert_eq!(changed, (seq, DELIVERED, Some(Surface::NativeInbox)));
    assert!(kit.handed.try_recv().is_err(), "nobody handed it over again");
}

#[tokio::test]
async fn a_way_that_keeps_failing_is_tried_less_and_less_often() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::Terminal, &[Does::Fails], &kit)]);
    kit.reports(SessionEvent::TurnEnded);
    kit.send("hi", None).await;
    let mut last = kit.next().await.2;
    for pause in [5, 10, 20, 40] {
        let (_, _, at) = kit.next_in_time().await;
        assert!(at.since(last) >= Duration::from_secs(pause), "{pause} s: {:?}", at.since(last));
        last = at;
    }
}

#[tokio::test]
async fn a_way_that_cannot_now_says_why_and_when_and_that_is_no_failure() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::Terminal, &[Does::SaysNotNow, Does::Works], &kit)]);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("hi", None).await;
    let (_, _, first) = kit.next().await;
    let (_, _, again) = kit.next_in_time().await;
    assert!(again.since(first) >= Duration::from_secs(120));
    assert_eq!(kit.next_change().await, (seq, DELIVERED, Some(Surface::Terminal)));
}

#[tokio::test]
async fn a_hand_over_that_a_killed_daemon_began_is_looked_for_before_anything_is_repeated() {
    for (does, repeated) in [(Does::Works, false), (Does::Lies, true)] {
        let mut kit = Kit::new().await;
        let (driver, _) = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::StaysSilent], &kit)]);
        kit.reports(SessionEvent::TurnEnded);
        let seq = kit.send("hi", None).await;
        let tag = kit.next().await.1.attempt.tag;
        drop(driver);
        assert_eq!(kit.attempts().await, [seq]);
        kit.restart().await;
        let way = Scripted::resumed(WayName::NativeInbox, does, &[Does::Works], &kit);
        let _driver = kit.drive(&[way]);
        if repeated {
            kit.reports(SessionEvent::TurnEnded);
            let (_, block, _) = kit.next_in_time().await;
            assert_ne!(block.attempt.tag, tag);
        }
        assert_eq!(kit.next_change().await, (seq, DELIVERED, Some(Surface::NativeInbox)));
        assert!(kit.handed.try_recv().is_err(), "{does:?}");
    }
}

#[tokio::test]
async fn what_a_killed_daemon_began_and_nothing_shows_stays_held_while_nothing_is_known_of_the_session() {
    let mut kit = Kit::new().await;
    let (driver, _) = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::StaysSilent], &kit)]);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("hi", None).await;
    kit.next().await;
    drop(driver);
    kit.restart().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::StaysSilent], &kit)]);
    kit.clock.advance(Duration::from_secs(100_000));
    assert_eq!((kit.attempts().await, kit.take().await), (vec![seq], Vec::new()));
    assert_eq!(kit.withdraw(seq).await, Err(ErrorCode::AlreadyDelivered));
    // Once it is known to be idle, and still nothing shows it, it is handed over again.
    kit.reports(SessionEvent::TurnEnded);
    let (_, block, _) = kit.next_in_time().await;
    assert_eq!(block.attempt.messages[0].1, [seq]);
}

#[tokio::test]
async fn a_session_that_listens_is_left_to_itself() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Works], &kit)]);
    let listener = kit.engine.listeners().listen(&(kit.room_id.clone(), testing::id("b")), Surface::Wait);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("hi", None).await;
    assert_eq!(kit.take().await, [seq], "its surface has it");
    assert!(kit.handed.try_recv().is_err());
    drop(listener);
}

#[tokio::test]
async fn what_listens_and_takes_nothing_does_not_keep_a_message_from_an_idle_session() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Works], &kit)]);
    let listener = kit.engine.listeners().listen(&(kit.room_id.clone(), testing::id("b")), Surface::Wait);
    kit.reports(SessionEvent::TurnEnded);
    let (seq, sent_at) = (kit.send("hi", None).await, kit.now());
    let (_, block, at) = kit.next_in_time().await;
    assert_eq!(block.attempt.messages[0].1, [seq]);
    assert!(at.since(sent_at) >= Policy::default().pull_grace, "{:?}", at.since(sent_at));
    drop(listener);
}

#[tokio::test]
async fn a_room_says_how_long_a_sign_may_take() {
    let mut kit = Kit::new().await;
    let mut overrides = PolicyOverrides::default();
    overrides.set("confirm_within", "60s").unwrap();
    kit.engine.run(&kit.room_id, context("a"), Command::SetPolicy { overrides }, |_| ()).await.unwrap();
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::StaysSilent], &kit)]);
    kit.reports(SessionEvent::TurnEnded);
    kit.send("hi", None).await;
    let (_, _, first) = kit.next().await;
    let (_, _, again) = kit.next_in_time().await;
    assert!(again.since(first) >= Duration::from_secs(60), "{:?}", again.since(first));
}

#[tokio::test]
async fn nobody_is_woken_while_a_hook_at_the_end_of_its_turn_is_answered() {
    let mut kit = Kit::new().await;
    let (_driver, recipients) = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Works], &kit)]);
    let ending = recipients.ending(&testing::id("b"));
    kit.reports(SessionEvent::TurnEnded);
    let first = kit.send("hi", None).await;
    assert_eq!(kit.take().await, [first], "the hook takes it, and holds the turn");
    kit.reports(SessionEvent::Busy);
    let second = kit.send("and another", None).await;
    drop(ending);
    kit.reports(SessionEvent::TurnEnded);
    let (_, block, _) = kit.next().await;
    assert_eq!(block.attempt.messages[0].1, [second]);
}

#[tokio::test]
async fn what_wakes_nobody_hides_no_message_that_does() {
    let mut kit = Kit::new().await;
    for n in 0..120 {
        kit.broadcast(&format!("news {n}")).await;
    }
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Works], &kit)]);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("for you", None).await;
    let (_, block, _) = kit.next().await;
    let seqs = &block.attempt.messages[0].1;
    assert!(seqs.contains(&seq), "{seqs:?}");
    assert_eq!(seqs.len(), 10, "what tells everybody comes with it");
    assert!(block.text.contains("111 more"), "{}", block.text);
}

#[tokio::test]
async fn what_nothing_ever_shows_is_handed_over_a_few_times_and_then_waits() {
    let mut kit = Kit::new().await;
    let (_driver, recipients) = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::StaysSilent], &kit)]);
    kit.reports(SessionEvent::TurnEnded);
    let first = kit.send("hi", None).await;
    for _ in 0..MAX_ATTEMPTS {
        assert_eq!(kit.next_in_time().await.1.attempt.messages[0].1, [first]);
    }
    // One that comes later is tried in its turn, and the first one is not repeated with it.
    let (second, seqs) = loop {
        if kit.attempts().await.is_empty() {
            let second = kit.send("and you?", None).await;
            break (second, kit.next_in_time().await.1.attempt.messages[0].1.clone());
        }
        kit.clock.advance(Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(seqs, [second]);
    let (room_id, first_row) = (kit.room_id.clone(), first);
    let stored = kit.engine.read(move |reader| reader.recipients(&room_id, first_row, 1)).await.unwrap().remove(0).row;
    assert_eq!((stored.state, stored.attempts), (DeliveryState::Pending, MAX_ATTEMPTS));
    let room = kit.engine.look(&kit.room_id, |room, _| Ok(room.clone())).await.unwrap();
    let (hint, from_person, wakes, is_taken, attempts) =
        (stored.delivery_hint, false, stored.wakes, false, stored.attempts);
    let message = Waiting { hint, from_person, wakes, is_taken, attempts, sent_at: None };
    let waits = waits(&room, &testing::id("b"), message, &recipients, kit.clock.now());
    assert_eq!(waits.because, WaitReason::Unconfirmed);
    assert!(waits.text.contains("nothing shows that it arrived"), "{}", waits.text);
    assert_eq!(kit.take().await, [first], "the session itself takes it");
}

#[tokio::test]
async fn a_way_that_fails_hands_nothing_over_and_is_tried_without_a_bound() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Fails], &kit)]);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("hi", None).await;
    for _ in 0..MAX_ATTEMPTS + 2 {
        assert_eq!(kit.next_in_time().await.1.attempt.messages[0].1, [seq]);
    }
}

#[tokio::test]
async fn a_hand_over_of_which_nobody_knows_whether_it_was_stored_holds_nothing() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Works], &kit)]);
    kit.loses_next.store(true, Ordering::Relaxed);
    kit.reports(SessionEvent::TurnEnded);
    let seq = kit.send("hi", None).await;
    let (_, block, _) = kit.next().await;
    assert_eq!(block.attempt.messages[0].1, [seq], "it is tried again by this daemon");
    assert_eq!(kit.next_change().await, (seq, DELIVERED, Some(Surface::NativeInbox)));
    assert!(!kit.loses_next.load(Ordering::Relaxed) && kit.handed.try_recv().is_err(), "once");
}

#[tokio::test]
async fn what_waited_when_the_daemon_started_wakes_a_session_that_is_known_by_then() {
    let mut kit = Kit::new().await;
    let seq = kit.send("hi", None).await;
    kit.restart().await;
    kit.reports(SessionEvent::TurnEnded);
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Works], &kit)]);
    assert_eq!(kit.next().await.1.attempt.messages[0].1, [seq]);
    assert_eq!(kit.next_change().await, (seq, DELIVERED, Some(Surface::NativeInbox)));
}

#[tokio::test]
async fn two_agents_that_answer_every_message_with_a_message_come_to_rest() {
    let mut kit = Kit::new().await;
    let _driver = kit.drive(&[Scripted::scripted(WayName::NativeInbox, &[Does::Works], &kit)]);
    for name in ["a", "b"] {
        kit.reports_of(name, SessionEvent::TurnEnded);
    }
    kit.write("a", "b").await;
    let began = kit.now();
    for _ in 0..2 * Policy::default().max_wakes {
        let (_, block, at) = kit.next().await;
        assert_eq!(at, began);
        let answers = if block.attempt.agent_id == testing::id("a") { ("a", "b") } else { ("b", "a") };
        kit.write(answers.0, answers.1).await;
    }
    // The last answer waits until the first wake is an hour ago.
    kit.clock.advance(Duration::from_secs(3590));
    let (_, _, again) = kit.next_in_time().await;
    assert!(again.since(began) >= Duration::from_secs(3600), "{:?}", again.since(began));
}
