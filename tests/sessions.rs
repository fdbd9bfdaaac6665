//! Sessions on a real daemon over a real socket: which member a conversation is, who counts as gone, and who is handed
//! messages. The harnesses are played; `tests/harness/` has the real ones.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tt_proto::room::{Liveness, Member, MemberStatus, Takeover};
use tt_proto::turn::TakeoverReason;
use tt_tests::golden::Caller;
use tt_tests::{Cast, CodexServer, Home, InProcess, LIMIT, Manner, home};
use ttd::clock::Clock;
use ttd::liveness::{Exit, Kernel, Process, Processes};

/// Long enough for a daemon that leaves by itself to do so.
const A_WHILE: Duration = Duration::from_millis(300);

/// Longer than a process may take to open the next conversation after it ended one.
const ENDED: Duration = Duration::from_secs(2);

/// A daemon, and a repository to work in.
struct Stage {
    daemon: Option<InProcess>,
    /// Unless a test wants another, one that stands still until it is told to go on, however busy the machine is.
    clock: Clock,
    processes: Arc<dyn Processes>,
    home: Home,
}

impl Stage {
    fn new(home: Home, processes: Arc<dyn Processes>) -> Self {
        Self::with_clock(home, processes, Clock::stopped(2_000_000_000_000))
    }

    fn with_clock(home: Home, processes: Arc<dyn Processes>, clock: Clock) -> Self {
        std::fs::create_dir_all(home.path().join("shop/.git")).unwrap();
        let mut stage = Self { daemon: None, clock, processes, home };
        stage.restart();
        stage
    }

    fn restart(&mut self) {
        self.daemon = None;
        let mut options = self.home.options();
        options.processes = self.processes.clone();
        options.clock = self.clock.clone();
        options.home = Some(self.home.path().to_owned());
        self.daemon = Some(InProcess::start(options));
    }

    /// What happens from now on is later than what has happened.
    fn go_on(&self) {
        self.clock.advance(Duration::from_millis(1));
    }

    /// A connection that said hello with these signals.
    fn connect(&self, signals: Value) -> Caller {
        let mut caller = Caller::connect(&self.home.paths().socket);
        let hello = json!({"protocol": tt_proto::PROTOCOL, "version": "0", "signals": signals,
            "context_path": self.home.path().join("shop")});
        call(&mut caller, "hello", json!({"hello": hello}));
        caller
    }

    fn whoami(&self, signals: Value) -> Value {
        call(&mut self.connect(signals), "whoami", json!({}))
    }

    fn join(&self, signals: Value) -> (Caller, String) {
        let path = json!({"context_path": self.home.path().join("shop")});
        let joined = call(&mut self.connect(signals.clone()), "join_path", path);
        // Once more, because for the first connection there may have been no room here.
        (self.connect(signals), joined["agent_id"].as_str().unwrap().to_owned())
    }

    /// A hook reports something, and is told which member its session is.
    fn report(&self, signals: Value, harness: &str, session: &str, event: &str, more: Value) -> String {
        self.reported(signals, harness, session, event, more)["agent_id"].as_str().unwrap().to_owned()
    }

    /// What a hook is answered that reports something.
    fn reported(&self, mut signals: Value, harness: &str, session: &str, event: &str, more: Value) -> Value {
        self.go_on();
        signals["hook"] = true.into();
        signals["session_id"] = session.into();
        let mut caller = self.connect(signals);
        let mut request = json!({"harness": harness, "session_id": session, "event": event});
        request.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        call(&mut caller, "report_session", request)
    }

    /// The room, and who has the stick.
    fn state(&self) -> Value {
        call(
            &mut self.connect(json!({"env": {"TT_HARNESS_AGENT_ID": "watcher"}})),
            "get_room_state",
            json!({"room_id": "here"}),
        )
    }

    /// A session that is not gone.
    fn session(&self, id: &str) -> Option<Value> {
        let list = call(&mut self.connect(json!({"env": {}})), "list_sessions", json!({}));
        list["sessions"].as_array().unwrap().iter().find(|session| session["session_id"] == id).cloned()
    }

    /// The members of the room by id, with status and liveness.
    fn members(&self) -> Vec<(String, MemberStatus, Liveness)> {
        let members: Vec<Member> = serde_json::from_value(self.state()["members"].clone()).unwrap();
        let shown = |member: Member| (member.agent_id.to_string(), member.status, member.liveness);
        members.into_iter().map(shown).collect()
    }

    fn liveness(&self, agent: &str) -> Liveness {
        let members = self.members();
        members.into_iter().find(|member| member.0 == agent).unwrap_or_else(|| panic!("{agent} is no member")).2
    }

    /// Looks until a member is as it should be.
    #[track_caller]
    fn until_liveness(&self, agent: &str, expected: Liveness) {
        self.until(|| self.liveness(agent) == expected);
    }

    #[track_caller]
    fn until(&self, there: impl Fn() -> bool) {
        let started = Instant::now();
        while !there() {
            assert!(started.elapsed() < LIMIT, "{:?}", self.members());
            std::thread::yield_now();
        }
    }
}

#[track_caller]
fn call(caller: &mut Caller, method: &str, params: Value) -> Value {
    caller.send(method, Some(params));
    let answer = caller.receive();
    assert!(answer.get("result").is_some(), "{method}: {answer}");
    answer["result"].clone()
}

/// A caller in a session of Claude Code whose process is this player.
fn claude(player: usize, session: &str) -> Value {
    json!({"env": {
        "CLAUDECODE": "1", "CLAUDE_PID": Cast::player(player).to_string(), "CLAUDE_CODE_SESSION_ID": session
    }})
}

/// A caller in a session of OpenCode, which tells its session to its plugin alone.
fn opencode(player: usize) -> Value {
    json!({"env": {"OPENCODE": "1", "OPENCODE_PID": Cast::player(player).to_string()}})
}

/// Takes the stick, and returns what releasing it needs.
fn take_stick(caller: &mut Caller) -> Value {
    let turn = call(caller, "wait_for_turn", json!({"room_id": "here", "claim": true, "max_wait_ms": 0}));
    assert_eq!(turn["status"], "your_turn", "{turn}");
    json!({"room_id": "here", "lease_id": turn["lease_id"], "expected_turn_id": turn["turn_id"],
        "handoff": {"status": "done", "next_action": "go on"}})
}

/// Why the stick may be taken over; none if it may not.
fn takeover(caller: &mut Caller) -> Option<TakeoverReason> {
    let room = call(caller, "get_room_state", json!({"room_id": "here"}));
    // Left out where it is not available.
    room.get("takeover").and_then(|takeover| serde_json::from_value::<Takeover>(takeover.clone()).unwrap().reason)
}

#[test]
fn a_cleared_conversation_keeps_the_stick_and_releases_it() {
    let mut stage = Stage::new(home!(), Arc::new(Cast::default()));
    let (mut first, me) = stage.join(claude(1, "s-1"));
    let (mut other, _) = stage.join(claude(2, "x"));
    let lease = take_stick(&mut first);
    stage.report(claude(1, "s-1"), "claude", "s-1", "session_ended", json!({"reason": "clear"}));
    assert_eq!(takeover(&mut other), None, "the process may be about to go on");
    let next = stage.report(claude(1, "s-2"), "claude", "s-2", "session_started", json!({"reason": "clear"}));
    assert_eq!(next, me);
    // A daemon that is started again knows it too.
    stage.restart();
    let mut second = stage.connect(claude(1, "s-2"));
    assert_eq!(call(&mut second, "whoami", json!({}))["agent_id"], me.as_str());
    call(&mut second, "release_stick", lease);
    let members: Vec<String> = stage.members().into_iter().map(|member| member.0).collect();
    assert_eq!(members.iter().filter(|id| **id == me).count(), 1);
    assert_eq!(members.len(), 2, "no ghost: {members:?}");
}

/// What tells that `/clear` opened another conversation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ToldBy {
    /// A hook whose text reaches the model.
    Hook,
    /// A hook that can say nothing.
    MuteHook,
    File,
    Call,
}

#[test]
fn after_a_clear_the_turn_is_kept_if_a_hook_told_of_it_and_else_released_whenever_the_daemon_is_restarted() {
    for told_by in [ToldBy::Hook, ToldBy::MuteHook, ToldBy::File, ToldBy::Call] {
        for restarted in ["never", "before", "between", "after", "later"] {
            let case = format!("{told_by:?}, {restarted}");
            let mut stage = Stage::new(home!(), Arc::new(Cast::default()));
            if told_by == ToldBy::File {
                write_session_file(&stage, 1, "s-1");
            }
            let (mut first, me) = stage.join(claude(1, "s-1"));
            stage.join(claude(2, "x"));
            let lease = take_stick(&mut first);
            drop(first);
            let restart_if = |stage: &mut Stage, when: &str| (restarted == when).then(|| stage.restart());
            restart_if(&mut stage, "before");
            if matches!(told_by, ToldBy::Hook | ToldBy::MuteHook) {
                stage.report(claude(1, "s-1"), "claude", "s-1", "session_ended", json!({"reason": "clear"}));
            }
            restart_if(&mut stage, "between");
            match told_by {
                ToldBy::Hook | ToldBy::MuteHook => {
                    let (cwd, can_speak) = (stage.home.path().join("shop"), told_by == ToldBy::Hook);
                    let next = json!({"reason": "clear", "cwd": cwd, "can_speak": can_speak});
                    let answer = stage.reported(claude(1, "s-2"), "claude", "s-2", "session_started", next);
                    assert_eq!(answer["agent_id"], me.as_str(), "{case}");
                    let said = answer["say"]["text"].as_str().unwrap_or_default();
                    assert_eq!(said.contains("You hold the stick (turn 1"), can_speak, "{case}: {answer}");
                }
                ToldBy::File => {
                    write_session_file(&stage, 1, "s-2");
                    stage.until(|| stage.session("s-2").is_some());
                }
                ToldBy::Call => {
                    stage.go_on();
                    stage.whoami(claude(1, "s-2"));
                }
            }
            restart_if(&mut stage, "after");
            stage.clock.advance(ENDED - Duration::from_millis(10));
            assert_eq!(stage.state()["room"]["owner"], me.as_str(), "{case}: it is freed too early");
            stage.clock.advance(10 * ENDED);
            restart_if(&mut stage, "later");
            let mut second = stage.connect(claude(1, "s-2"));
            assert_eq!(call(&mut second, "whoami", json!({}))["agent_id"], me.as_str(), "{case}");
            assert_eq!(stage.liveness(&me), Liveness::Alive, "{case}");
            if told_by == ToldBy::Hook {
                (0..20).for_each(|_| assert_eq!(stage.state()["room"]["owner"], me.as_str(), "{case}"));
                assert_eq!(takeover(&mut stage.connect(claude(2, "x"))), None, "{case}");
                call(&mut second, "release_stick", lease);
            } else {
                let began = Instant::now();
                while !stage.state()["room"]["owner"].is_null() {
                    assert!(began.elapsed() < LIMIT, "{case}: {}", stage.state());
                }
                let handoff = stage.state()["pending_handoff"].clone();
                let status = handoff["status"].as_str().unwrap();
                assert!(handoff["automatic"] == true && status.contains("does not know of it"), "{case}: {handoff}");
            }
            assert_eq!(stage.members().len(), 2, "no ghost: {case}: {:?}", stage.members());
        }
    }
}

#[test]
fn a_conversation_that_asks_for_its_turn_knows_of_it() {
    let stage = Stage::new(home!(), Arc::new(Cast::default()));
    let (mut first, me) = stage.join(claude(1, "s-1"));
    stage.join(claude(2, "x"));
    let lease = take_stick(&mut first);
    drop(first);
    stage.go_on();
    let mut second = stage.connect(claude(1, "s-2"));
    take_stick(&mut second);
    stage.clock.advance(10 * ENDED);
    (0..20).for_each(|_| assert_eq!(stage.state()["room"]["owner"], me.as_str()));
    call(&mut second, "release_stick", lease);
}

#[test]
fn a_conversation_that_ended_for_good_is_told_to_who_waits_also_after_a_restart() {
    for restarted in [false, true] {
        let mut stage = Stage::new(home!(), Arc::new(Cast::default()));
        let (mut first, me) = stage.join(claude(1, "s-1"));
        let (mut other, _) = stage.join(claude(2, "x"));
        take_stick(&mut first);
        stage.report(claude(1, "s-1"), "claude", "s-1", "session_ended", json!({"reason": "other"}));
        drop(first);
        if restarted {
            stage.restart();
            other = stage.connect(claude(2, "x"));
        }
        let watcher = json!({"env": {"TT_HARNESS_AGENT_ID": "watcher"}});
        let waits =
            |stage: &Stage| call(&mut stage.connect(watcher.clone()), "daemon_status", json!({}))["waiters"] == 1;
        other.send("wait_for_turn", Some(json!({"room_id": "here", "park": true, "max_wait_ms": 60_000})));
        stage.until(|| waits(&stage));
        stage.clock.advance(ENDED);
        let told = other.receive();
        assert_eq!(told["result"]["status"], "takeover_available", "after a restart: {restarted}: {told}");
        assert_eq!(stage.liveness(&me), Liveness::Gone);
    }
}

#[test]
fn nothing_is_written_as_a_member_whose_session_cannot_be_stored() {
    let mut stage = Stage::new(home!(), Arc::new(Cast::default()));
    let (_, me) = stage.join(claude(1, "s-1"));
    let database = rusqlite::Connection::open(stage.home.paths().data_dir.join("rooms.sqlite")).unwrap();
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON sessions BEGIN SELECT RAISE(FAIL, 'the disk fails'); END";
    database.execute_batch(refuse).unwrap();
    // A conversation of its own: a daemon that does not know that would take it for what became of the first.
    let own = stage.report(claude(1, "s-2"), "claude", "s-2", "session_started", json!({"reason": "resume"}));
    assert_ne!(own, me);
    let mut caller = stage.connect(claude(1, "s-2"));
    assert_eq!(
        call(&mut caller, "get_room_state", json!({"room_id": "here"}))["room"]["turn_id"],
        0,
        "looking is no writing"
    );
    let path = json!({"context_path": stage.home.path().join("shop")});
    caller.send("join_path", Some(path.clone()));
    let refused = caller.receive();
    assert_eq!(refused["error"]["data"]["error"], "storage_unavailable", "{refused}");
    database.execute_batch("DROP TRIGGER refuse").unwrap();
    assert_eq!(call(&mut caller, "join_path", path)["agent_id"], own.as_str());
    assert_eq!(stored_agent(&stage, "s-2"), Some(own.clone()), "before it was answered");
    stage.restart();
    assert_eq!(stage.whoami(claude(1, "s-2"))["agent_id"], own.as_str());
}

/// The member that a session is stored as.
fn stored_agent(stage: &Stage, session: &str) -> Option<String> {
    let database = rusqlite::Connection::open(stage.home.paths().data_dir.join("rooms.sqlite")).unwrap();
    let sql = "SELECT agent_id FROM sessions WHERE session_id = ?1";
    database.query_row(sql, [session], |row| row.get(0)).ok()
}

#[test]
fn the_member_of_a_conversation_that_was_left_is_gone_and_its_stick_can_be_taken() {
    let stage = Stage::new(home!(), Arc::new(Cast::default()));
    let (mut first, me) = stage.join(claude(1, "s-1"));
    let (mut other, _) = stage.join(claude(2, "x"));
    take_stick(&mut first);
    let resumed = stage.report(claude(1, "older"), "claude", "older", "session_started", json!({"reason": "resume"}));
    assert_ne!(resumed, me);
    stage.until_liveness(&me, Liveness::Gone);
    assert_eq!(takeover(&mut other), Some(TakeoverReason::OwnerGone));
    assert_eq!(stage.whoami(claude(1, "older"))["agent_id"], resumed.as_str());
}

#[test]
fn a_clock_that_is_set_makes_nobody_gone_and_keeps_nobody_alive() {
    const YEAR: i64 = 365 * 24 * 3600 * 1000;
    let mut stage = Stage::new(home!(), Arc::new(Cast::default()));
    let open = |stage: &Stage, session: &str| {
        stage.report(claude(1, session), "claude", session, "session_started", json!({"reason": "resume"}))
    };
    let (_, me) = stage.join(claude(1, "s-1"));
    for turned in [10 * YEAR, -10 * YEAR, -3 * YEAR, 3 * YEAR] {
        stage.clock.turn_wall(turned);
        let other = open(&stage, "s-2");
        assert_ne!(other, me);
        stage.until_liveness(&me, Liveness::Gone);
        stage.clock.turn_wall(-turned);
        assert_eq!(open(&stage, "s-1"), me);
        stage.until_liveness(&me, Liveness::Alive);
        stage.clock.turn_wall(turned);
        assert_eq!(stage.liveness(&me), Liveness::Alive);
        stage.restart();
        assert_eq!(stage.liveness(&me), Liveness::Alive, "also to the next daemon");
        stage.report(claude(1, "s-1"), "claude", "s-1", "session_ended", json!({"reason": "other"}));
        stage.clock.advance(ENDED);
        stage.until_liveness(&me, Liveness::Gone);
        stage.report(claude(1, "s-1"), "claude", "s-1", "prompt", json!({}));
        stage.until_liveness(&me, Liveness::Alive);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_hook_that_began_before_the_clock_was_set_counts_as_of_when_it_began() {
    let stage = Stage::with_clock(home!(), Arc::new(Cast::default()), Clock::new());
    let began = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    let began_ms = began.tv_sec() * 1000 + began.tv_nsec() / 1_000_000 - 1000;
    let at = stage.clock.wall() - Duration::from_secs(1);
    stage.join(claude(1, "s-1"));
    // Its daemon stood still meanwhile, and the clock was set.
    stage.clock.turn_wall(-7_200_000);
    let late = json!({"reason": "other", "at": at.to_string(), "began_ms": began_ms});
    stage.report(claude(1, "s-1"), "claude", "s-1", "session_ended", late);
    let session = stage.session("s-1").unwrap();
    assert!(session["because"].as_str().unwrap().ends_with("runs"), "it was heard of since: {session}");
}

#[test]
fn without_hooks_the_session_file_tells_and_leaves_no_ghost() {
    let stage = Stage::new(home!(), Arc::new(Cast::default()));
    let dir = stage.home.path().join(".claude/sessions");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join(format!("{}.json", Cast::player(1)));
    let record = |session: &str, status: &str| {
        json!({"procStart": "the beginning", "sessionId": session, "status": status}).to_string()
    };
    std::fs::write(&file, record("s-1", "busy")).unwrap();
    let (mut first, me) = stage.join(claude(1, "s-1"));
    let lease = take_stick(&mut first);
    let session = |id: &str| stage.session(id);
    stage.until(|| session("s-1").is_some_and(|session| session["status"] == "busy"));
    // Half of it is no news.
    stage.go_on();
    let text = record("s-2", "idle");
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    std::fs::write(&file, &text).unwrap();
    stage.until(|| session("s-2").is_some_and(|session| session["agent_id"] == me.as_str()));
    assert_eq!(session("s-1"), None, "it was left");
    let mut second = stage.connect(claude(1, "s-2"));
    call(&mut second, "release_stick", lease);
    assert_eq!(stage.members().len(), 1, "{:?}", stage.members());
}

/// Players that cannot be seen for a while, as where no descriptor is left.
#[derive(Debug, Default)]
struct HiddenForNow {
    cast: Cast,
    hidden: AtomicBool,
}

impl HiddenForNow {
    fn look(&self, pid: u32) -> std::io::Result<()> {
        let is_hidden = self.hidden.load(Ordering::SeqCst) && pid == Cast::player(1);
        if is_hidden { Err(std::io::Error::from_raw_os_error(nix::libc::EMFILE)) } else { Ok(()) }
    }
}

impl Processes for HiddenForNow {
    fn get(&self, pid: u32) -> std::io::Result<Process> {
        self.look(pid).and_then(|()| self.cast.get(pid))
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        self.cast.arguments(process)
    }

    fn host_id(&self) -> String {
        self.cast.host_id()
    }

    fn machine_id(&self) -> String {
        self.cast.machine_id()
    }

    fn open(&self, pid: u32) -> std::io::Result<Exit> {
        self.look(pid).and_then(|()| self.cast.open(pid))
    }
}

#[test]
fn the_file_of_a_process_that_could_not_be_seen_at_first_is_watched_from_its_next_call_on() {
    let processes = Arc::new(HiddenForNow::default());
    let mut stage = Stage::new(home!(), processes.clone());
    write_session_file(&stage, 1, "s-1");
    let (mut first, me) = stage.join(claude(1, "s-1"));
    take_stick(&mut first);
    drop(first);
    processes.hidden.store(true, Ordering::SeqCst);
    stage.restart();
    assert_eq!(stage.liveness(&me), Liveness::Unknown);
    processes.hidden.store(false, Ordering::SeqCst);
    assert_eq!(stage.whoami(claude(1, "s-1"))["agent_id"], me.as_str());
    write_session_file(&stage, 1, "s-2");
    stage.until(|| stage.session("s-2").is_some_and(|session| session["agent_id"] == me.as_str()));
    assert_eq!(stage.liveness(&me), Liveness::Alive);
}

/// Writes the file in which Claude Code records the session of a player.
fn write_session_file(stage: &Stage, player: usize, session: &str) {
    stage.go_on();
    let dir = stage.home.path().join(".claude/sessions");
    std::fs::create_dir_all(&dir).unwrap();
    let record = json!({"procStart": "the beginning", "sessionId": session, "status": "idle"});
    std::fs::write(dir.join(format!("{}.json", Cast::player(player))), record.to_string()).unwrap();
}

#[test]
fn a_headless_run_after_a_switch_that_the_file_told_first_moves_nothing() {
    let stage = Stage::new(home!(), Arc::new(Cast::default()));
    write_session_file(&stage, 1, "s-1");
    let (mut first, me) = stage.join(claude(1, "s-1"));
    take_stick(&mut first);
    write_session_file(&stage, 1, "s-2");
    stage.until(|| stage.session("s-2").is_some());
    assert_eq!(stage.report(claude(1, "s-2"), "claude", "s-2", "session_started", json!({"reason": "clear"})), me);
    assert_eq!(stage.report(claude(2, "s-2"), "claude", "s-2", "session_started", json!({"reason": "resume"})), me);
    assert_eq!((stage.liveness(&me), takeover(&mut first)), (Liveness::Alive, None));
}

#[test]
fn a_guess_is_corrected_also_after_a_restart() {
    let mut stage = Stage::new(home!(), Arc::new(Cast::default()));
    write_session_file(&stage, 1, "s-1");
    let (mut first, me) = stage.join(claude(1, "s-1"));
    stage.join(claude(2, "x"));
    take_stick(&mut first);
    write_session_file(&stage, 1, "older");
    stage.until(|| stage.session("older").is_some_and(|session| session["agent_id"] == me.as_str()));
    drop(first);
    stage.restart();
    let resumed = stage.report(claude(1, "older"), "claude", "older", "session_started", json!({"reason": "resume"}));
    assert_ne!(resumed, me);
    stage.until_liveness(&me, Liveness::Gone);
    assert_eq!(takeover(&mut stage.connect(claude(2, "x"))), Some(TakeoverReason::OwnerGone));
}

#[test]
fn a_headless_run_beside_a_living_session_does_not_move_its_anchor() {
    let cast = Arc::new(Cast::default());
    let stage = Stage::new(home!(), cast.clone());
    let (mut living, me) = stage.join(claude(1, "s-1"));
    let (mut headless, same) = stage.join(claude(2, "s-1"));
    assert_eq!(me, same);
    for caller in [&mut living, &mut headless] {
        assert_eq!(call(caller, "whoami", json!({}))["anchor"]["pid"], Cast::player(1));
        call(caller, "send_message", json!({"room_id": "here", "body": "x"}));
    }
    stage.report(claude(2, "s-1"), "claude", "s-1", "session_ended", json!({"reason": "other"}));
    cast.kill(Cast::player(2));
    assert_eq!(stage.liveness(&me), Liveness::Alive);
    cast.kill(Cast::player(1));
    stage.until_liveness(&me, Liveness::Gone);
}

#[test]
fn a_session_that_only_its_plugin_sees_is_the_same_member_when_it_is_resumed() {
    let cast = Arc::new(Cast::default());
    let mut stage = Stage::new(home!(), cast.clone());
    let (_, me) = stage.join(opencode(1));
    assert_eq!(stage.report(opencode(1), "opencode", "ses_1", "session_started", json!({})), me);
    cast.kill(Cast::player(1));
    stage.until_liveness(&me, Liveness::Gone);
    stage.restart();
    assert_eq!(stage.report(opencode(2), "opencode", "ses_1", "session_started", json!({})), me);
    let (_, again) = stage.join(opencode(2));
    assert_eq!(again, me, "MCP and shell too, which do not name the session");
    assert_eq!(stage.liveness(&me), Liveness::Alive);
}

#[test]
fn a_message_is_kept_from_a_subagent_and_handed_to_the_conversation() {
    let stage = Stage::new(home!(), Arc::new(Cast::default()));
    let (_, me) = stage.join(claude(1, "s-1"));
    let (mut other, _) = stage.join(claude(2, "x"));
    call(&mut other, "send_message", json!({"room_id": "here", "body": "for you", "to_agent_id": me}));
    let tool = json!({"tool_use_id": "toolu_sub", "subagent_id": "agent-1", "tool_name": "mcp__talking-stick"});
    stage.report(claude(1, "s-1"), "claude", "s-1", "tool_started", tool);
    let with_tool = |tool: &str| {
        let mut signals = claude(1, "s-1");
        signals["tool_use_id"] = tool.into();
        signals["client_info"] = "claude-code".into();
        stage.connect(signals)
    };
    let take = json!({"room_id": "here", "surface": "tool_response"});
    let mut subagent = with_tool("toolu_sub");
    assert_eq!(call(&mut subagent, "take_messages", take.clone())["events"], json!([]));
    let wait = json!({"room_id": "here", "park": true, "max_wait_ms": 0, "include_events": true});
    let waited = call(&mut subagent, "wait_for_turn", wait);
    assert!(waited.get("events").is_none_or(|events| *events == json!([])), "{waited}");
    let taken = call(&mut with_tool("toolu_main"), "take_messages", take);
    assert_eq!(taken["events"][0]["payload"]["body"], "for you", "{taken}");
}

#[test]
fn a_message_is_kept_from_a_subagent_that_runs_tt_in_a_shell() {
    let stage = Stage::new(home!(), Arc::new(Cast::default()));
    let (_, me) = stage.join(claude(1, "s-1"));
    let (mut other, _) = stage.join(claude(2, "x"));
    call(&mut other, "send_message", json!({"room_id": "here", "body": "for you", "to_agent_id": me}));
    let tool = |event: &str| {
        let tool = json!({"tool_use_id": "toolu_1", "subagent_id": "agent-1", "tool_name": "Bash", "runs_tt": true});
        stage.report(claude(1, "s-1"), "claude", "s-1", event, tool);
    };
    let mut before = stage.connect(claude(1, "s-1"));
    tool("tool_started");
    let take = json!({"room_id": "here", "surface": "wait"});
    let mut subagent = stage.connect(claude(1, "s-1"));
    assert_eq!(call(&mut subagent, "take_messages", take.clone())["events"], json!([]));
    let wait = json!({"room_id": "here", "park": true, "max_wait_ms": 0, "include_events": true});
    let waited = call(&mut subagent, "wait_for_turn", wait);
    assert!(waited.get("events").is_none_or(|events| *events == json!([])), "{waited}");
    tool("tool_ended");
    assert_eq!(call(&mut subagent, "take_messages", take.clone())["events"], json!([]), "it is still its connection");
    let taken = call(&mut before, "take_messages", take.clone());
    assert_eq!(taken["events"][0]["payload"]["body"], "for you", "what the conversation listened with before: {taken}");
    drop(before);
    let mut after = stage.connect(claude(1, "s-1"));
    stage.until(|| call(&mut stage.connect(claude(1, "s-1")), "list_inbox", json!({}))["rooms"] != json!([]));
    let taken = call(&mut after, "take_messages", take);
    assert_eq!(taken["events"][0]["payload"]["body"], "for you", "{taken}");
}

#[test]
fn who_listens_for_a_conversation_that_was_left_is_ended() {
    let stage = Stage::new(home!(), Arc::new(Cast::default()));
    let (mut waits, me) = stage.join(claude(1, "s-1"));
    let mut receives = stage.connect(claude(1, "s-1"));
    let (mut other, _) = stage.join(claude(2, "x"));
    let wait = json!({"room_id": "here", "park": true, "max_wait_ms": 60_000, "include_events": true});
    let take = json!({"room_id": "here", "surface": "wait", "max_wait_ms": 60_000});
    waits.send("wait_for_turn", Some(wait.clone()));
    receives.send("take_messages", Some(take.clone()));
    stage.until(|| call(&mut stage.connect(claude(2, "x")), "daemon_status", json!({}))["waiters"] == 1);
    assert_eq!(stage.report(claude(1, "s-2"), "claude", "s-2", "session_started", json!({"reason": "clear"})), me);
    for listener in [&mut waits, &mut receives] {
        let ended = listener.receive();
        assert_eq!(ended["error"]["data"]["error"], "conversation_left", "{ended}");
    }
    // One that was started in that conversation cannot begin again either, and the message is for the new one.
    call(&mut other, "send_message", json!({"room_id": "here", "body": "for you", "to_agent_id": me}));
    let mut stale = stage.connect(claude(1, "s-1"));
    for (method, params) in [("wait_for_turn", wait), ("take_messages", take.clone())] {
        stale.send(method, Some(params));
        let refused = stale.receive();
        assert_eq!(refused["error"]["data"]["error"], "conversation_left", "{refused}");
    }
    let taken = call(&mut stage.connect(claude(1, "s-2")), "take_messages", take);
    assert_eq!(taken["events"][0]["payload"]["body"], "for you", "{taken}");
}

/// Every caller's parent is the process of this test, which plays the process in which Codex runs all threads.
#[derive(Debug, Default)]
struct SharedProcess(Kernel);

impl Processes for SharedProcess {
    fn get(&self, pid: u32) -> std::io::Result<Process> {
        let process = self.0.get(pid)?;
        let name = if pid == std::process::id() { "codex".into() } else { process.name.clone() };
        Ok(Process { parent: std::process::id(), name, ..process })
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        let shared = process.pid == std::process::id();
        if shared { vec!["codex".into(), "app-server".into()] } else { self.0.arguments(process) }
    }

    fn host_id(&self) -> String {
        self.0.host_id()
    }

    fn machine_id(&self) -> String {
        self.0.machine_id()
    }

    fn open(&self, pid: u32) -> std::io::Result<Exit> {
        self.0.open(pid)
    }
}

fn codex(thread: &str) -> Value {
    json!({"env": {}, "client_info": "codex-mcp-client", "session_id": thread})
}

fn codex_socket(stage: &Stage) -> std::path::PathBuf {
    stage.home.path().join(".codex/app-server-control/app-server-control.sock")
}

#[test]
fn threads_that_share_a_process_live_and_die_alone() {
    let mut stage = Stage::new(home!(), Arc::new(SharedProcess::default()));
    let server = CodexServer::start(&codex_socket(&stage), Manner::Correct);
    server.set("t-1", "active");
    server.set("t-2", "idle");
    let (mut first, one) = stage.join(codex("t-1"));
    let (mut second, two) = stage.join(codex("t-2"));
    assert_eq!(call(&mut first, "whoami", json!({}))["anchor"], Value::Null, "a shared process is no anchor");
    stage.until_liveness(&one, Liveness::Alive);
    stage.until_liveness(&two, Liveness::Alive);
    take_stick(&mut first);
    assert_eq!(takeover(&mut second), None);
    server.close("t-2");
    stage.until_liveness(&two, Liveness::Gone);
    assert_eq!(stage.liveness(&one), Liveness::Alive, "only the one that was closed");
    // A daemon that is started again asks, and finds out what was closed meanwhile.
    stage.daemon = None;
    server.close("t-1");
    stage.restart();
    stage.until_liveness(&one, Liveness::Gone);
    server.set("t-2", "idle");
    let (mut second, _) = stage.join(codex("t-2"));
    stage.until_liveness(&two, Liveness::Alive);
    assert_eq!(takeover(&mut second), Some(TakeoverReason::OwnerGone));
}

#[test]
fn a_daemon_that_misbehaves_or_is_absent_makes_nobody_gone() {
    use Manner::{Garbage, HangsUp, Huge, Mute, NoWebSocket, Nonsense, Silent};
    for manner in [Garbage, Nonsense, Huge, HangsUp, Silent, NoWebSocket, Mute].map(Some).into_iter().chain([None]) {
        let stage = Stage::new(home!(), Arc::new(SharedProcess::default()));
        let server = manner.map(|manner| CodexServer::start(&codex_socket(&stage), manner));
        let (mut caller, me) = stage.join(codex("t-1"));
        take_stick(&mut caller);
        if let (Some(server), Some(manner)) = (&server, manner) {
            let was_met = || match manner {
                Mute => server.connections() > 0,
                Silent => server.calls("initialize", "") > 0,
                // It is asked one after the other, so the answer about the first was read.
                Nonsense => server.calls("thread/read", "t-2") > 0,
                _ => server.ended() > 0,
            };
            stage.join(codex("t-2"));
            stage.until(was_met);
        }
        assert_eq!(stage.liveness(&me), Liveness::Unknown, "{manner:?}");
        // A hook knows without it.
        stage.report(codex("t-1"), "codex", "t-1", "session_ended", json!({}));
        stage.until_liveness(&me, Liveness::Gone);
    }
}

#[test]
fn the_daemon_stays_while_a_session_lives() {
    let cast = Arc::new(Cast::default());
    let mut stage = Stage::new(home!(), cast.clone());
    stage.join(claude(1, "s-1"));
    stage.daemon = None;
    let mut options = stage.home.options();
    (options.processes, options.idle_exit) = (cast.clone(), Some(Duration::from_millis(50)));
    let daemon = InProcess::start(options);
    assert!(!daemon.ended_within(A_WHILE), "it left a session alone");
    cast.kill(Cast::player(1));
    assert!(daemon.ended_within(LIMIT), "it stayed for the dead");
}

#[test]
fn a_daemon_that_is_lost_is_asked_again_and_makes_nobody_gone() {
    for trouble in [Manner::Garbage, Manner::Huge, Manner::HangsUp] {
        let stage = Stage::new(home!(), Arc::new(SharedProcess::default()));
        let server = CodexServer::start(&codex_socket(&stage), Manner::Correct);
        server.set("t-1", "active");
        let (mut holder, one) = stage.join(codex("t-1"));
        take_stick(&mut holder);
        stage.until_liveness(&one, Liveness::Alive);
        server.disturb(trouble);
        stage.until(|| {
            let liveness = stage.liveness(&one);
            assert_ne!(liveness, Liveness::Gone, "{trouble:?}");
            server.connections() > 1 && liveness == Liveness::Alive
        });
    }
}

#[test]
fn what_was_closed_while_nobody_listened_is_found_out() {
    let stage = Stage::new(home!(), Arc::new(SharedProcess::default()));
    let server = CodexServer::start(&codex_socket(&stage), Manner::Correct);
    server.set("t-1", "active");
    server.set("t-2", "active");
    let (mut holder, one) = stage.join(codex("t-1"));
    let (mut other, two) = stage.join(codex("t-2"));
    take_stick(&mut holder);
    stage.until_liveness(&one, Liveness::Alive);
    stage.until_liveness(&two, Liveness::Alive);
    server.close_silently("t-1");
    stage.until_liveness(&one, Liveness::Gone);
    stage.until_liveness(&two, Liveness::Alive);
    assert_eq!(takeover(&mut other), Some(TakeoverReason::OwnerGone));
}

#[test]
fn nobody_is_kept_open_by_a_subscription_of_ours() {
    let stage = Stage::new(home!(), Arc::new(SharedProcess::default()));
    let server = CodexServer::start(&codex_socket(&stage), Manner::Correct);
    server.set("t-1", "active");
    let (_, me) = stage.join(codex("t-1"));
    stage.until_liveness(&me, Liveness::Alive);
    assert_eq!(server.calls("thread/unsubscribe", "t-1"), 0);
    server.begin_turn("t-1");
    stage.until(|| server.calls("thread/unsubscribe", "t-1") == 1);
    // Also when it comes while an answer is waited for.
    server.begin_turn_before_next_answer("t-1");
    let (_, _other) = stage.join(codex("t-2"));
    stage.until(|| server.calls("thread/unsubscribe", "t-1") == 2);
}

#[test]
fn whoami_says_which_evidence_decided() {
    let stage = Stage::new(home!(), Arc::new(Cast::default()));
    stage.report(claude(1, "s-1"), "claude", "s-1", "tool_started", json!({"tool_name": "Bash"}));
    let whoami = call(&mut stage.connect(claude(1, "s-1")), "whoami", json!({"explain": true}));
    let finding = |rule: &str| {
        let steps = whoami["explanation"].as_array().unwrap();
        steps.iter().find(|step| step["rule"] == rule).unwrap_or_else(|| panic!("{whoami}"))["finding"].to_string()
    };
    assert!(finding("liveness").contains(&format!("alive: its process {} runs", Cast::player(1))), "{whoami}");
    assert!(finding("status").contains("busy: hook says tool_started Bash"), "{whoami}");
}
