use std::cell::RefCell;

use tt_proto::WallTime;
use tt_rules::{DeadlineTime, Now};

use super::*;

/// A registry, a machine whose processes can end, and a clock that counts seconds.
struct World {
    registry: Registry,
    ended: RefCell<BTreeSet<u32>>,
    now: i64,
}

fn at(seconds: i64) -> LeaseTime {
    LeaseTime::from_millis(seconds * 1000)
}

fn process(pid: u32) -> Anchor {
    Anchor { host_id: "h".into(), pid, process_started_at: format!("t{pid}") }
}

/// A caller of Claude Code: one process is in one session at a time.
fn claude(pid: u32, session: &str) -> CallFacts {
    CallFacts {
        harness: "claude".into(),
        session_id: Some(session.to_owned()),
        fresh: true,
        derived_id: AgentId::trusted(format!("claude:{session}")),
        fixed_id: false,
        process: Some(process(pid)),
        server: None,
    }
}

/// A caller that only its process identifies.
fn gemini(pid: u32, session: Option<&str>) -> CallFacts {
    CallFacts {
        harness: "gemini".into(),
        session_id: session.map(str::to_owned),
        derived_id: AgentId::trusted(format!("gemini:p{pid}")),
        ..claude(pid, "")
    }
}

/// A caller whose process runs many sessions.
fn codex(thread: &str) -> CallFacts {
    CallFacts {
        harness: "codex".into(),
        derived_id: AgentId::trusted(format!("codex:{thread}")),
        process: None,
        server: Some(process(900)),
        ..claude(0, thread)
    }
}

fn report(event: SessionEvent, reason: Option<&str>, at: LeaseTime) -> Report {
    Report { reason: reason.map(str::to_owned), ..Report::of(event, at) }
}

impl World {
    fn new() -> Self {
        Self { registry: Registry::default(), ended: RefCell::default(), now: 100 }
    }

    fn alive(&self) -> impl Fn(&Anchor) -> Liveness + use<> {
        let ended = self.ended.borrow().clone();
        move |anchor| if ended.contains(&anchor.pid) { Liveness::Gone } else { Liveness::Alive }
    }

    fn kill(&self, pid: u32) {
        self.ended.borrow_mut().insert(pid);
    }

    fn call(&mut self, call: &CallFacts) -> Option<Bound> {
        let alive = self.alive();
        self.now += 1;
        self.registry.bind(call, &alive, at(self.now)).0
    }

    /// The member that makes a call.
    fn who(&mut self, call: &CallFacts) -> String {
        self.call(call).unwrap().agent_id.to_string()
    }

    /// A hook that began now.
    fn hook(&mut self, call: &CallFacts, event: SessionEvent, reason: Option<&str>) -> String {
        self.now += 1;
        self.late_hook(call, event, reason, self.now)
    }

    /// A hook that began at some time, and arrives now.
    fn late_hook(&mut self, call: &CallFacts, event: SessionEvent, reason: Option<&str>, began: i64) -> String {
        let alive = self.alive();
        let report = report(event, reason, at(began));
        self.registry.report(call, &report, &alive, at(self.now)).0.agent_id.to_string()
    }

    fn file(&mut self, pid: u32, session: &str, status: SessionStatus) -> Changes {
        let alive = self.alive();
        self.now += 1;
        let record = FileRecord {
            session_id: session.into(),
            status: Some(status),
            says: status.as_str().into(),
            at: at(self.now),
            status_at: at(self.now),
            inbox: None,
        };
        let derived = AgentId::trusted(format!("claude:{session}"));
        self.registry.file_says("claude", &process(pid), derived, &record, &alive, at(self.now))
    }

    fn lives(&self, agent: &str) -> Option<Liveness> {
        let alive = self.alive();
        self.registry.liveness(&AgentId::trusted(agent), &alive, at(self.now)).map(|verdict| verdict.liveness)
    }

    fn status(&self, agent: &str) -> SessionStatus {
        let alive = self.alive();
        let (lease, millis) = (at(self.now), at(self.now).as_millis());
        let now = Now { lease, deadline: DeadlineTime::from_millis(millis), wall: WallTime::from_millis(millis) };
        self.registry.of_agent(&AgentId::trusted(agent)).unwrap().view(&alive, &now).status
    }
}

use SessionEvent::{Prompt, SessionEnded, SessionStarted, ToolEnded, ToolStarted, TurnEnded};

#[test]
fn a_cleared_conversation_goes_on_as_the_same_member() {
    let mut world = World::new();
    assert_eq!(world.hook(&claude(1, "a"), SessionStarted, Some("startup")), "claude:a");
    world.hook(&claude(1, "a"), SessionEnded, Some("clear"));
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive), "it may be about to go on");
    assert_eq!(world.hook(&claude(1, "b"), SessionStarted, Some("clear")), "claude:a");
    world.now += 60;
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive));
    assert_eq!(world.who(&claude(1, "b")), "claude:a", "its shell names the new conversation");
    assert_eq!(world.who(&claude(1, "a")), "claude:a", "its MCP server still names the old one");
    world.kill(1);
    assert_eq!(world.lives("claude:a"), Some(Liveness::Gone));
    let sessions: Vec<&str> = world.registry.sessions().map(|s| s.key.session_id.as_str()).collect();
    assert_eq!(sessions, ["a", "b"]);
}

#[test]
fn only_a_conversation_that_goes_on_as_a_member_has_to_be_told_what_that_has() {
    let mut world = World::new();
    let is_untold = |world: &World, agent: &str| world.registry.untold(&AgentId::trusted(agent)).is_some();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(2, "x"), SessionStarted, Some("startup"));
    assert!(!is_untold(&world, "claude:a"));
    world.hook(&claude(2, "y"), SessionStarted, Some("resume"));
    assert!(!is_untold(&world, "claude:x") && !is_untold(&world, "claude:y"), "a member of its own");
    world.hook(&claude(1, "b"), SessionStarted, Some("clear"));
    let (switched, has_forgotten) = (world.now, |world: &World, now: i64| {
        world.registry.untold(&AgentId::trusted("claude:a")).is_some_and(|session| session.has_forgotten(at(now)))
    });
    assert_eq!([1, 2].map(|later| has_forgotten(&world, switched + later)), [false, true]);
    // Another one at once: there is time again, and one is told for both.
    world.now += 1;
    world.hook(&claude(1, "c"), SessionStarted, Some("clear"));
    assert!(!has_forgotten(&world, switched + 2) && is_untold(&world, "claude:a"));
    let settled = world.registry.settle_untold(&AgentId::trusted("claude:a"));
    assert!(!is_untold(&world, "claude:a") && settled.sessions.len() == 2, "{settled:?}");
    assert_eq!(world.registry.settle_untold(&AgentId::trusted("claude:a")), Changes::default());
    // A guess that was wrong: the conversation is another member, and has nothing to be told.
    let guessed = world.file(1, "d", SessionStatus::Idle);
    assert_eq!(guessed.untold, ["claude:a"].map(AgentId::trusted).into());
    assert_eq!(world.hook(&claude(1, "d"), SessionStarted, Some("resume")), "claude:d");
    assert!(!is_untold(&world, "claude:a") && !is_untold(&world, "claude:d"));
}

#[test]
fn hooks_of_a_switch_may_arrive_in_any_order() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.now = 110;
    assert_eq!(world.late_hook(&claude(1, "b"), SessionStarted, Some("clear"), 106), "claude:a");
    world.late_hook(&claude(1, "a"), SessionEnded, Some("clear"), 105);
    world.late_hook(&claude(1, "a"), ToolEnded, None, 104);
    world.now = 200;
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive));
    assert_eq!(world.status("claude:a"), SessionStatus::Idle, "what the old one did is over");
    assert_eq!(world.who(&claude(1, "b")), "claude:a");
}

#[test]
fn a_resumed_conversation_is_its_own_member_and_the_one_left_is_gone() {
    let mut world = World::new();
    world.hook(&claude(1, "old"), SessionStarted, Some("startup"));
    world.kill(1);
    world.hook(&claude(2, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(2, "a"), SessionEnded, Some("resume"));
    assert_eq!(world.hook(&claude(2, "old"), SessionStarted, Some("resume")), "claude:old");
    assert_eq!(world.lives("claude:old"), Some(Liveness::Alive));
    assert_eq!(world.lives("claude:a"), Some(Liveness::Gone));
    let stale = CallFacts { fresh: false, ..claude(2, "a") };
    assert_eq!(world.who(&stale), "claude:old", "the environment of an MCP server is that of its start");
}

#[test]
fn a_branch_is_another_member() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    assert_eq!(world.hook(&claude(1, "b"), SessionStarted, Some("branch")), "claude:b");
    assert_eq!((world.lives("claude:a"), world.lives("claude:b")), (Some(Liveness::Gone), Some(Liveness::Alive)));
}

#[test]
fn without_hooks_the_session_file_leaves_no_ghost() {
    let mut world = World::new();
    assert_eq!(world.who(&claude(1, "a")), "claude:a");
    world.file(1, "a", SessionStatus::Busy);
    world.file(1, "b", SessionStatus::Idle);
    assert_eq!(world.who(&claude(1, "b")), "claude:a", "nothing tells, so the member goes on");
    assert_eq!(world.lives("claude:b"), None);
    // Back to the first: it is known, and its id went to the second.
    world.file(1, "a", SessionStatus::Idle);
    let first = world.who(&claude(1, "a"));
    assert_ne!(first, "claude:a");
    assert_eq!((world.lives(&first), world.lives("claude:a")), (Some(Liveness::Alive), Some(Liveness::Gone)));
}

#[test]
fn a_hook_corrects_what_the_file_led_to_believe() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.file(1, "older", SessionStatus::Idle);
    assert_eq!(world.who(&claude(1, "older")), "claude:a", "a guess");
    assert_eq!(world.hook(&claude(1, "older"), SessionStarted, Some("resume")), "claude:older");
    assert_eq!(world.lives("claude:a"), Some(Liveness::Gone));
    assert_eq!(world.who(&claude(1, "older")), "claude:older");
}

#[test]
fn a_call_of_a_new_conversation_in_a_known_process_leaves_no_ghost() {
    let mut world = World::new();
    world.who(&claude(1, "a"));
    assert_eq!(world.who(&claude(1, "b")), "claude:a");
    assert_eq!(world.registry.sessions().filter(|s| s.agent_id.as_str() == "claude:b").count(), 0);
}

#[test]
fn a_conversation_whose_id_was_taken_over_gets_another_when_it_is_opened_again() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(1, "b"), SessionStarted, Some("clear"));
    let again = world.hook(&claude(2, "a"), SessionStarted, Some("resume"));
    assert_ne!(again, "claude:a");
    assert_eq!((world.who(&claude(1, "b")), world.who(&claude(2, "a"))), ("claude:a".into(), again.clone()));
    world.kill(2);
    assert_eq!((world.lives("claude:a"), world.lives(&again)), (Some(Liveness::Alive), Some(Liveness::Gone)));
}

#[test]
fn a_headless_run_beside_a_living_session_moves_nothing() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    assert_eq!(world.hook(&claude(2, "a"), SessionStarted, Some("resume")), "claude:a");
    let bound = world.call(&claude(2, "a")).unwrap();
    assert_eq!((bound.agent_id.as_str(), bound.anchor), ("claude:a", Some(process(1))));
    world.hook(&claude(2, "a"), SessionEnded, Some("other"));
    world.kill(2);
    world.now += 60;
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive), "the run ended alone");
    world.hook(&claude(3, "a"), SessionStarted, Some("resume"));
    world.kill(1);
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive), "it goes on in the other");
    assert_eq!(world.call(&claude(3, "a")).unwrap().anchor, Some(process(3)));
}

#[test]
fn the_end_of_a_run_that_cannot_be_seen_beside_a_living_session_ends_nothing() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    let unseen = CallFacts { process: None, ..claude(0, "a") };
    assert_eq!(world.hook(&unseen, SessionStarted, Some("resume")), "claude:a");
    world.hook(&unseen, SessionEnded, Some("other"));
    world.now += 60;
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive), "its own process runs");
    world.hook(&claude(1, "a"), SessionEnded, Some("other"));
    world.now += 60;
    assert_eq!(world.lives("claude:a"), Some(Liveness::Gone), "it said so itself");
}

#[test]
fn the_end_of_a_run_beside_a_session_that_cannot_be_looked_at_ends_nothing() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(2, "a"), SessionStarted, Some("resume"));
    let hidden = |anchor: &Anchor| if anchor.pid == 1 { Liveness::Unknown } else { Liveness::Alive };
    world.now += 1;
    let (ended, at_last) = (report(SessionEnded, Some("other"), at(world.now)), at(world.now + 60));
    world.registry.report(&claude(2, "a"), &ended, &hidden, at(world.now));
    let verdict = |world: &World, alive: Alive<'_>| {
        world.registry.liveness(&AgentId::trusted("claude:a"), alive, at_last).unwrap().liveness
    };
    assert_eq!(verdict(&world, &hidden), Liveness::Unknown, "no proof");
    assert_eq!(verdict(&world, &world.alive()), Liveness::Alive, "it can be seen again");
}

#[test]
fn of_two_processes_the_one_that_can_be_seen_speaks_for_the_session() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(2, "a"), SessionStarted, Some("resume"));
    let hidden = |anchor: &Anchor| if anchor.pid == 1 { Liveness::Unknown } else { Liveness::Alive };
    let verdict = world.registry.liveness(&AgentId::trusted("claude:a"), &hidden, at(world.now)).unwrap();
    assert_eq!(verdict.liveness, Liveness::Alive, "{}", verdict.because);
}

#[test]
fn a_session_that_ended_and_its_process_too_comes_back_in_another() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(1, "a"), SessionEnded, Some("prompt_input_exit"));
    world.kill(1);
    assert_eq!(world.lives("claude:a"), Some(Liveness::Gone));
    assert_eq!(world.hook(&claude(2, "a"), SessionStarted, Some("resume")), "claude:a");
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive));
}

#[test]
fn where_only_hooks_see_the_session_its_process_speaks_for_it() {
    let mut world = World::new();
    assert_eq!(world.call(&gemini(1, None)), None, "nothing is known yet: the process decides");
    assert_eq!(world.hook(&gemini(1, Some("s")), SessionStarted, Some("startup")), "gemini:p1");
    assert_eq!(world.who(&gemini(1, None)), "gemini:p1", "MCP, shell and hook are one member");
    world.kill(1);
    assert_eq!(world.lives("gemini:p1"), Some(Liveness::Gone));
    assert_eq!(world.hook(&gemini(2, Some("s")), SessionStarted, Some("resume")), "gemini:p1");
    assert_eq!(world.who(&gemini(2, None)), "gemini:p1", "a resumed session is the same member");
    assert_eq!(world.hook(&gemini(2, Some("t")), SessionStarted, Some("clear")), "gemini:p1");
    assert_eq!(world.who(&gemini(3, Some("u"))), "gemini:p3");
}

#[test]
fn a_closed_terminal_leaves_its_session_unknown() {
    let mut world = World::new();
    world.hook(&gemini(1, Some("s")), SessionStarted, Some("startup"));
    assert_eq!(world.registry.orphan(&process(1)).agents.len(), 1);
    assert_eq!(world.lives("gemini:p1"), Some(Liveness::Unknown));
    assert_eq!(world.registry.orphan(&process(7)), Changes::default());
}

#[test]
fn sessions_that_share_a_process_live_and_die_alone() {
    let mut world = World::new();
    let (key, other) = (SessionKey::new("codex", "a"), SessionKey::new("codex", "b"));
    assert_eq!((world.who(&codex("a")), world.who(&codex("b"))), ("codex:a".into(), "codex:b".into()));
    assert_eq!(world.lives("codex:a"), Some(Liveness::Unknown), "nobody has asked yet");
    let says = |world: &mut World, key, says| {
        world.now += 1;
        world.registry.server_says(key, &process(900), says, None, at(world.now))
    };
    says(&mut world, &key, ServerSays::Open);
    says(&mut world, &other, ServerSays::Open);
    assert_eq!(says(&mut world, &key, ServerSays::Open), Changes::default(), "nothing new");
    says(&mut world, &key, ServerSays::Closed);
    assert_eq!((world.lives("codex:a"), world.lives("codex:b")), (Some(Liveness::Gone), Some(Liveness::Alive)));
    says(&mut world, &key, ServerSays::Open);
    assert_eq!(world.lives("codex:a"), Some(Liveness::Alive), "resumed");
    assert_eq!(world.registry.server_says(&key, &process(901), ServerSays::Closed, None, at(999)), Changes::default());
    world.kill(900);
    world.registry.lose_server(&process(900));
    assert_eq!(world.lives("codex:b"), Some(Liveness::Unknown), "never gone because a shared process ended");
    world.hook(&codex("b"), SessionEnded, None);
    assert_eq!(world.lives("codex:b"), Some(Liveness::Gone), "a hook said so");
}

#[test]
fn a_session_that_calls_after_it_was_closed_has_to_be_asked_about() {
    let mut world = World::new();
    let key = SessionKey::new("codex", "a");
    let says = |world: &mut World, says| world.registry.server_says(&key, &process(900), says, None, at(world.now));
    world.who(&codex("a"));
    says(&mut world, ServerSays::Open);
    assert_eq!(world.registry.unasked_of(&process(900)), Vec::<String>::new());
    says(&mut world, ServerSays::Closed);
    assert_eq!(world.registry.unasked_of(&process(900)), Vec::<String>::new(), "it is known");
    world.who(&codex("a"));
    assert_eq!(world.lives("codex:a"), Some(Liveness::Unknown), "it was resumed, or something of it is left");
    assert_eq!(world.registry.unasked_of(&process(900)), ["a"]);
    assert_eq!(world.registry.unasked_of(&process(901)), Vec::<String>::new());
}

#[test]
fn a_thread_that_ran_alone_lives_on_in_a_shared_process() {
    let mut world = World::new();
    let alone = CallFacts { process: Some(process(1)), server: None, ..codex("a") };
    assert_eq!(world.who(&alone), "codex:a");
    world.kill(1);
    assert_eq!(world.lives("codex:a"), Some(Liveness::Gone));
    assert_eq!(world.who(&codex("a")), "codex:a");
    world.registry.server_says(&SessionKey::new("codex", "a"), &process(900), ServerSays::Open, None, at(world.now));
    assert_eq!(world.lives("codex:a"), Some(Liveness::Alive));
}

#[test]
fn a_new_thread_in_a_shared_process_is_another_member() {
    let mut world = World::new();
    world.hook(&codex("a"), SessionStarted, Some("startup"));
    assert_eq!(world.hook(&codex("b"), SessionStarted, Some("startup")), "codex:b");
    assert_eq!(world.lives("codex:a"), Some(Liveness::Unknown), "until the daemon of the harness closes it");
}

#[test]
fn a_process_with_several_threads_speaks_for_the_one_that_was_heard_last() {
    let mut world = World::new();
    let own = |thread| CallFacts { process: Some(process(1)), server: None, ..codex(thread) };
    assert_eq!(world.who(&own("a")), "codex:a");
    assert_eq!(world.lives("codex:a"), Some(Liveness::Alive), "as with codex exec");
    assert_eq!(world.hook(&own("b"), SessionStarted, Some("clear")), "codex:b", "another member");
    assert_eq!((world.lives("codex:a"), world.lives("codex:b")), (Some(Liveness::Unknown), Some(Liveness::Alive)));
    assert_eq!(world.who(&own("a")), "codex:a", "both may be open");
    assert_eq!((world.lives("codex:a"), world.lives("codex:b")), (Some(Liveness::Alive), Some(Liveness::Unknown)));
    world.hook(&own("b"), SessionEnded, None);
    assert_eq!(world.lives("codex:b"), Some(Liveness::Gone));
    world.kill(1);
    assert_eq!(world.lives("codex:a"), Some(Liveness::Gone));
}

#[test]
fn a_subagent_in_the_background_does_not_make_its_session_busy() {
    let mut world = World::new();
    let subagent = |world: &mut World, event| {
        world.now += 1;
        let (alive, now) = (world.alive(), at(world.now));
        world.registry.report(
            &claude(1, "a"),
            &Report { subagent_id: Some("s".into()), ..report(event, None, now) },
            &alive,
            now,
        );
    };
    world.hook(&claude(1, "a"), Prompt, None);
    subagent(&mut world, ToolStarted);
    assert_eq!(world.status("claude:a"), SessionStatus::Busy);
    world.hook(&claude(1, "a"), TurnEnded, None);
    subagent(&mut world, ToolEnded);
    assert_eq!(world.status("claude:a"), SessionStatus::Idle, "it goes on without its session");
    subagent(&mut world, SessionEvent::PermissionAsked);
    assert_eq!(world.status("claude:a"), SessionStatus::Asking, "the user is asked all the same");
    subagent(&mut world, ToolEnded);
    assert_eq!(world.status("claude:a"), SessionStatus::Busy);
}

#[test]
fn signs_count_by_when_they_were_so() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(1, "a"), Prompt, None);
    assert_eq!(world.status("claude:a"), SessionStatus::Busy);
    world.hook(&claude(1, "a"), TurnEnded, None);
    world.late_hook(&claude(1, "a"), ToolEnded, None, world.now - 1);
    assert_eq!(world.status("claude:a"), SessionStatus::Idle);
    world.late_hook(&claude(1, "a"), Prompt, None, world.now + 1_000_000);
    world.hook(&claude(1, "a"), TurnEnded, None);
    assert_eq!(world.status("claude:a"), SessionStatus::Idle, "a clock that was wrong does not win for ever");
}

#[test]
fn an_id_that_the_user_chose_stays() {
    let mut world = World::new();
    let chosen = |session| CallFacts { derived_id: AgentId::trusted("me"), fixed_id: true, ..claude(1, session) };
    assert_eq!(world.hook(&chosen("a"), SessionStarted, Some("startup")), "me");
    let elsewhere = CallFacts { process: Some(process(2)), ..chosen("b") };
    assert_eq!(world.hook(&elsewhere, SessionStarted, Some("startup")), "me");
    world.kill(1);
    assert_eq!(world.lives("me"), Some(Liveness::Alive), "the newest session counts");
}

#[test]
fn a_guess_that_a_hook_confirms_is_no_guess_any_more() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.file(1, "b", SessionStatus::Idle);
    assert_eq!(world.hook(&claude(1, "b"), SessionStarted, Some("clear")), "claude:a", "the file was first");
    assert_eq!(
        world.hook(&claude(1, "b"), SessionStarted, Some("resume")),
        "claude:a",
        "the user picked the same one again"
    );
    assert_eq!(world.hook(&claude(2, "b"), SessionStarted, Some("resume")), "claude:a", "a headless run beside it");
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive));
}

#[test]
fn a_guess_is_settled_by_its_own_process_alone() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.file(1, "b", SessionStatus::Idle);
    assert_eq!(world.hook(&claude(2, "b"), SessionStarted, Some("resume")), "claude:a", "a headless run beside it");
    assert_eq!(world.call(&claude(1, "b")).unwrap().anchor, Some(process(1)));
    world.kill(2);
    assert_eq!(world.lives("claude:a"), Some(Liveness::Alive));
    let unseen = CallFacts { process: None, ..claude(0, "b") };
    assert_eq!(world.hook(&unseen, SessionStarted, Some("resume")), "claude:a");
    assert_eq!(world.hook(&claude(1, "b"), SessionStarted, Some("resume")), "claude:b", "its own process knows");
    assert_eq!((world.lives("claude:a"), world.lives("claude:b")), (Some(Liveness::Gone), Some(Liveness::Alive)));
}

#[test]
fn a_session_that_was_heard_of_from_an_unseen_process_is_not_gone_by_an_earlier_one() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    let unseen = CallFacts { process: None, ..claude(0, "a") };
    assert_eq!(world.who(&unseen), "claude:a");
    world.kill(1);
    assert_eq!(world.lives("claude:a"), Some(Liveness::Gone), "it ran, so the call came from below it");
    assert_eq!(world.who(&unseen), "claude:a");
    assert_eq!(world.lives("claude:a"), Some(Liveness::Unknown), "it goes on where it cannot be seen");
    // A daemon that could not look at the process noted nothing that another one would take for its end.
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    let cannot_look = |_: &Anchor| Liveness::Unknown;
    world.registry.bind(&unseen, &cannot_look, at(world.now + 1));
    world.kill(1);
    assert_eq!(world.lives("claude:a"), Some(Liveness::Unknown));
}

#[test]
fn a_conversation_that_is_opened_again_where_its_process_cannot_be_seen_is_not_left_for_any_daemon() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(1, "b"), SessionStarted, Some("resume"));
    let key = SessionKey::new("claude", "a");
    assert!(world.registry.is_left(&key));
    // Of a daemon in another pid namespace.
    let unseen = CallFacts { process: None, ..claude(0, "a") };
    world.now += 1;
    let (bound, changes) = world.registry.bind(&unseen, &|_| Liveness::Unknown, at(world.now));
    assert_eq!(bound.unwrap().agent_id.as_str(), "claude:a");
    assert!(!world.registry.is_left(&key), "who listens for it is not ended");
    assert!(changes.sessions.contains(&key), "the next daemon knows");
    // Which sees the process again, as it was before.
    assert_eq!(world.who(&claude(1, "a")), "claude:a", "its calls are not taken for those of the other conversation");
    assert_eq!(world.lives("claude:b"), Some(Liveness::Gone));
}

#[test]
fn what_ended_and_goes_on_has_to_be_stored() {
    let mut world = World::new();
    world.hook(&claude(1, "a"), SessionStarted, Some("startup"));
    world.hook(&claude(1, "a"), SessionEnded, Some("other"));
    world.now += 1;
    let (alive, now) = (world.alive(), at(world.now));
    let prompt = report(Prompt, None, now);
    let changes = world.registry.report(&claude(1, "a"), &prompt, &alive, now).1;
    assert_eq!(changes.sessions, [SessionKey::new("claude", "a")].into());
    assert_eq!(world.registry.get(&SessionKey::new("claude", "a")).unwrap().ended_at, None);
}
