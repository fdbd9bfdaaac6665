//! Sixteen processes fight over one room while their daemon is killed again and again.
//!
//! Each process writes down what it was told as it is told. Afterwards the log is replayed and must come to exactly what
//! is stored; whatever anybody was told must stand in it; and what was acknowledged must not be lost.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use tt_client::connect::{Client, Settings};
use tt_proto::paths::Environment;
use tt_proto::requests::{Heartbeat, JoinPath, PassStick, ReleaseStick, TakeoverStick, WaitForTurn};
use tt_proto::turn::WaitStatus;
use tt_proto::{AgentId, Error, ErrorCode, LeaseId, RoomId};
use tt_tests::scene::handoff;
use tt_tests::{LIMIT, Turn, home};

const PROCESSES: usize = 16;
const KILLS: usize = 25;

/// The daemon is killed each time this many turns have been told.
const TURNS_A_KILL: usize = 20;

/// What a process was told, one line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Report {
    /// It has the stick.
    YourTurn { agent: String, turn: i64, lease: String, handoff: Option<String>, by_takeover: bool },
    /// It gave the stick away, and the daemon said under which number of the log.
    Gave { agent: String, event_seq: i64, handoff: String },
    /// Something that must never be.
    Broken(String),
}

/// A line that is there as a whole or not at all, whenever the process ends.
fn say(report: &Report) {
    let line = format!("report {}\n", serde_json::to_string(report).unwrap());
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

#[test]
fn sixteen_processes_fight_while_the_daemon_is_killed_and_the_log_tells_the_truth() {
    let home = home!();
    let (sender, reports) = mpsc::channel();
    let mut children = Vec::new();
    for number in 0..PROCESSES {
        let mut child = home.command(std::env::current_exe().unwrap());
        child.args(["--exact", "one_of_sixteen", "--ignored", "--nocapture"]);
        child.env("TT_FIGHT_PATH", home.path()).env("TT_HARNESS_AGENT_ID", name(number));
        child.env("TALKING_STICK_DAEMON", home.ttd_path());
        // Short enough that whoever dawdles loses the stick.
        for (key, value) in [
            ("OWNER_LEASE_TTL", "150ms"),
            ("OWNER_ACTIVITY_TTL", "80ms"),
            ("CLAIM_TTL", "60ms"),
            ("WAITER_GRACE", "10ms"),
        ] {
            child.env(format!("TALKING_STICK_{key}"), value);
        }
        let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.unwrap();
        let (lines, sender) = (BufReader::new(child.stdout.take().unwrap()).lines(), sender.clone());
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Some((_, report)) = line.split_once("report ") {
                    let _ = sender.send(serde_json::from_str::<Report>(report).unwrap());
                }
            }
        });
        children.push(child);
    }
    drop(sender);

    let mut all = Vec::new();
    let mut killed = BTreeSet::new();
    while killed.len() < KILLS {
        let mut turns = 0;
        while turns < TURNS_A_KILL {
            let report = reports.recv_timeout(LIMIT);
            let report = report.unwrap_or_else(|e| panic!("no progress after {} kills: {e}", killed.len()));
            turns += usize::from(matches!(report, Report::YourTurn { .. }));
            all.push(report);
        }
        // Between two daemons there may be none to kill.
        if let Some(pid) = home.daemon() {
            tt_tests::home::send(pid, nix::sys::signal::Signal::SIGKILL);
            killed.insert(pid);
        }
    }
    for child in &mut children {
        drop(child.stdin.take());
    }
    // Whatever they were still told counts too.
    while let Ok(report) = reports.recv_timeout(LIMIT) {
        all.push(report);
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    home.run(&["daemon", "start"]).ok();
    home.run(&["daemon", "stop"]).ok();
    println!("{}", judge(&all, &Connection::open(home.paths().database()).unwrap()));
}

fn name(number: usize) -> String {
    format!("fighter:{number}")
}

/// One event of the log, as far as the stick is concerned.
#[derive(Debug)]
struct Row {
    seq: i64,
    turn: i64,
    kind: String,
    from: String,
    to: Option<String>,
    handoff: Option<String>,
}

/// Compares what everybody was told with what the log says, and tells what there was of it.
fn judge(reports: &[Report], database: &Connection) -> String {
    let rows: Vec<Row> = database
        .prepare("SELECT event_seq, turn_id, event_type, from_agent_id, to_agent_id, handoff_json FROM room_events ORDER BY 1")
        .unwrap()
        .query_map([], |r| {
            // Nobody sends a notice.
            let from = r.get::<_, Option<String>>(3)?.unwrap_or_default();
            Ok(Row { seq: r.get(0)?, turn: r.get(1)?, kind: r.get(2)?, from, to: r.get(4)?, handoff: r.get(5)? })
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();

    // Replay: who held each turn, and what was handed over with it.
    let mut grants: BTreeMap<i64, (&str, Option<&str>, bool)> = BTreeMap::new();
    let (mut turn, mut owner, mut reserved_for, mut pending) = (0, None, None, None);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows {
        *kinds.entry(&row.kind).or_default() += 1;
        match row.kind.as_str() {
            "claim" => {
                assert_eq!((row.turn, owner), (turn + 1, None), "{row:?}");
                assert!(reserved_for.is_none_or(|agent| agent == row.from), "{row:?} was kept for {reserved_for:?}");
                turn = row.turn;
                owner = Some(row.from.as_str());
                reserved_for = None;
                grants.insert(turn, (&row.from, pending.take(), false));
            }
            "takeover" => {
                assert_eq!(row.turn, turn + 1, "{row:?}");
                assert_eq!(row.to.as_deref(), owner.or(reserved_for), "{row:?}");
                turn = row.turn;
                owner = Some(row.from.as_str());
                (reserved_for, pending) = (None, None);
                grants.insert(turn, (&row.from, None, true));
            }
            "release" | "pass" => {
                assert_eq!((row.turn, owner), (turn, Some(row.from.as_str())), "{row:?}");
                owner = None;
                pending = row.handoff.as_deref();
                reserved_for = row.to.as_deref().filter(|_| row.kind == "pass");
            }
            "reservation_expired" => assert_eq!(reserved_for, row.to.as_deref(), "{row:?}"),
            // The one who lost the stick is told.
            "message_sent" => assert!(row.from.is_empty(), "{row:?}"),
            _ => assert!(matches!(row.kind.as_str(), "member_joined" | "member_left"), "{row:?}"),
        }
    }

    // It comes to exactly what is stored.
    let stored: (i64, Option<String>, Option<String>, String, Option<String>) = database
        .query_row(
            "SELECT turn_id, owner, reserved_for, state,
               (SELECT handoff_json FROM room_events WHERE event_seq = pending_handoff_event_seq) FROM path_rooms",
            [],
            |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?)),
        )
        .unwrap();
    let state = if owner.is_some() {
        "owned"
    } else if reserved_for.is_some() {
        "reserved"
    } else {
        "idle"
    };
    let text = |agent: Option<&str>| agent.map(str::to_owned);
    assert_eq!(stored, (turn, text(owner), text(reserved_for), state.to_owned(), text(pending)));

    // Nobody was told anything that it does not show.
    let mut leases: BTreeMap<i64, &str> = BTreeMap::new();
    let mut told = 0;
    for report in reports {
        match report {
            Report::YourTurn { agent, turn, lease, handoff, by_takeover } => {
                told += 1;
                let Some((holder, handed, taken)) = grants.get(turn) else { panic!("no such turn: {report:?}") };
                assert_eq!(holder, agent, "{report:?}");
                assert!(!by_takeover || *taken, "{report:?}");
                assert_eq!(handoff.as_deref(), *handed, "{report:?}");
                let first = leases.entry(*turn).or_insert(lease);
                assert_eq!(first, lease, "turn {turn} has two leases");
            }
            Report::Gave { agent, event_seq, handoff } => {
                let row = rows.iter().find(|row| row.seq == *event_seq);
                let Some(row) = row else { panic!("acknowledged and lost: {report:?}") };
                assert_eq!((&row.from, row.handoff.as_ref()), (agent, Some(handoff)), "{report:?}");
            }
            Report::Broken(what) => panic!("{what}"),
        }
    }
    let unique: BTreeSet<_> = leases.values().collect();
    assert_eq!(unique.len(), leases.len(), "a lease was used for two turns");
    assert!(told >= KILLS * TURNS_A_KILL && turn >= i64::try_from(KILLS * TURNS_A_KILL / 2).unwrap());
    for kind in ["claim", "release", "pass", "takeover"] {
        assert!(kinds.contains_key(kind), "no {kind} in {kinds:?}");
    }
    format!("{KILLS} kills, {turn} turns, {told} told, {kinds:?}")
}

/// One of the processes: it fights until its standard input closes.
#[test]
#[ignore = "run by the test above, sixteen times"]
fn one_of_sixteen() {
    let env = Environment::of_this_process();
    let path = env.get_str("TT_FIGHT_PATH").map(str::to_owned).unwrap();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let settings = Settings::from_environment(env).unwrap();
    let fight = async {
        loop {
            match Fighter::join(settings.clone(), &path).await {
                Ok(mut fighter) => {
                    let Err(error) = fighter.fight().await;
                    assert_eq!(error.code, ErrorCode::DaemonUnreachable, "{error:?}");
                }
                Err(error) => assert_eq!(error.code, ErrorCode::DaemonUnreachable, "{error:?}"),
            }
        }
    };
    // It is ended from outside.
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(fight)
}

struct Fighter {
    client: Client,
    agent: String,
    room: RoomId,
    /// What the fighter does next follows from this number, which is its own.
    dice: u64,
    turns: u64,
}

impl Fighter {
    async fn join(settings: Settings, path: &str) -> Result<Self, Error> {
        let mut client = Client::connect(settings).await?;
        let joined = client.call(JoinPath { context_path: path.to_owned(), ..Default::default() }).await?;
        let agent = joined.agent_id.to_string();
        let dice = u64::from(std::process::id());
        Ok(Self { client, agent, room: joined.room_id, dice, turns: 0 })
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) % sides
    }

    /// Ends only when no daemon can be reached.
    async fn fight(&mut self) -> Result<std::convert::Infallible, Error> {
        loop {
            let room = &self.room;
            let wait = WaitForTurn {
                room_id: room.clone(),
                max_wait_ms: Some(2_000),
                claim: Some(true),
                ..Default::default()
            };
            let wait = self.client.call_within(LIMIT, wait).await?;
            match wait.status {
                WaitStatus::YourTurn => {
                    let turn = Turn::of(&wait);
                    let handoff = wait.handoff.map(|words| words.as_str().to_owned());
                    self.has(&turn, handoff, false);
                    self.play(turn).await?;
                }
                WaitStatus::TakeoverAvailable => self.take(wait.turn_id).await?,
                WaitStatus::NotYet => {}
                WaitStatus::Closed | WaitStatus::Removed => say(&Report::Broken(format!("{wait:?}"))),
            }
        }
    }

    fn has(&self, turn: &Turn, handoff: Option<String>, by_takeover: bool) {
        let (agent, lease) = (self.agent.clone(), turn.lease.to_string());
        say(&Report::YourTurn { agent, turn: turn.id, lease, handoff, by_takeover });
    }

    /// A refusal that somebody in a fight must reckon with.
    fn lost<T>(answer: Result<T, Error>) -> Result<Option<T>, Error> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(e) if e.code == ErrorCode::DaemonUnreachable => Err(e),
            Err(e) => {
                let expected = [
                    ErrorCode::TurnMismatch,
                    ErrorCode::StaleLease,
                    ErrorCode::TakeoverNotAvailable,
                    ErrorCode::TakeoverIneligible,
                ];
                if !expected.contains(&e.code) {
                    say(&Report::Broken(format!("{e:?}")));
                }
                Ok(None)
            }
        }
    }

    async fn take(&mut self, expected: i64) -> Result<(), Error> {
        let key = LeaseId::fresh().to_string();
        let room = &self.room;
        let take = {
            let (room, key) = (room.clone(), Some(key.clone()));
            TakeoverStick {
                room_id: room,
                expected_turn_id: expected,
                reason: "it sleeps".into(),
                idempotency_key: key,
                ..Default::default()
            }
        };
        if let Some(taken) = Self::lost(self.client.call(take).await)? {
            let turn = Turn { id: taken.turn_id, lease: taken.lease_id };
            self.has(&turn, None, true);
            self.play(turn).await?;
        }
        Ok(())
    }

    async fn play(&mut self, turn: Turn) -> Result<(), Error> {
        self.turns += 1;
        match self.roll(12) {
            // It dawdles, and may find that the stick is gone.
            0 => tokio::time::sleep(Duration::from_millis(100 + self.roll(150))).await,
            1 => {
                let (room, turn) = (&self.room, &turn);
                let beat = Heartbeat { room_id: room.clone(), lease_id: turn.lease.clone(), expected_turn_id: turn.id };
                Self::lost(self.client.call(beat).await)?;
            }
            _ => {}
        }
        let words = handoff(&format!("{} {} {}", self.agent, turn.id, self.turns));
        let to = (self.roll(5) == 0).then(|| AgentId::trusted(name(self.roll(PROCESSES as u64) as usize)));
        let to = to.filter(|to| to.as_str() != self.agent);
        let key = LeaseId::fresh().to_string();
        let (room, turn) = (&self.room, &turn);
        let (room_id, lease_id, expected_turn_id) = (room.clone(), turn.lease.clone(), turn.id);
        let (handoff, idempotency_key) = (words.clone(), Some(key));
        let gave = match to {
            None => {
                let release = ReleaseStick { room_id, lease_id, expected_turn_id, handoff, idempotency_key };
                self.client.call(release).await
            }
            Some(to_agent_id) => {
                let pass = PassStick { room_id, lease_id, expected_turn_id, to_agent_id, handoff, idempotency_key };
                self.client.call(pass).await
            }
        };
        match gave {
            // Not everybody has joined yet.
            Err(e) if e.code == ErrorCode::UnknownTarget => return Ok(()),
            gave => {
                if let Some(gave) = Self::lost(gave)? {
                    let (agent, handoff) = (self.agent.clone(), words.as_str().to_owned());
                    say(&Report::Gave { agent, event_seq: gave.event_seq, handoff });
                }
            }
        }
        self.try_it_again(turn).await
    }

    /// The turn is over: nothing sent in its name may be accepted.
    async fn try_it_again(&mut self, turn: &Turn) -> Result<(), Error> {
        let room = &self.room;
        let again = {
            let (room, lease) = (room.clone(), turn.lease.clone());
            ReleaseStick {
                room_id: room,
                lease_id: lease,
                expected_turn_id: turn.id,
                handoff: handoff("stale"),
                ..Default::default()
            }
        };
        if Self::lost(self.client.call(again).await)?.is_some() {
            say(&Report::Broken(format!("{turn:?} was given away twice")));
        }
        let beat = Heartbeat { room_id: room.clone(), lease_id: turn.lease.clone(), expected_turn_id: turn.id };
        if Self::lost(self.client.call(beat).await)?.is_some() {
            say(&Report::Broken(format!("{turn:?} is over and its heart still beats")));
        }
        Ok(())
    }
}
