//! What this program plays in another process: an echo, subscribers, a waiter, writers, a session that dies.

use std::io::{BufRead, Read, Write};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use jsonrpsee::core::client::Subscription;
use tt_client::connect::{Client, HttpClient};
use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::paths::Environment;
use tt_proto::requests::{
    EventItem, JoinPath, ReleaseStick, SendMessage, SubscribeEvents, TakeoverStick, WaitForTurn, Whoami,
};
use tt_proto::turn::WaitStatus;
use tt_proto::{AgentId, RoomId};

use crate::Fallible;
use crate::limits::BODY;
use crate::samples::now;
use crate::scratch::settings;

pub(crate) async fn play(role: &[String]) -> Fallible<()> {
    let words: Vec<&str> = role.iter().map(String::as_str).collect();
    match words[..] {
        ["echo", socket, size] => echo(socket, size.parse()?),
        ["subscribe", room, connections] => subscribe(room.into(), connections.parse()?).await,
        ["wait", room] => wait(room.into()).await,
        ["write", rooms, writers] => write(rooms.parse()?, writers.parse()?),
        ["session", tt] => session(tt),
        ["agent", room, number, messages] => crate::soak::agent(room.into(), number.parse()?, messages.parse()?).await,
        _ => Err(format!("there is no such role: {role:?}").into()),
    }
}

/// Writes one line at once.
pub(crate) fn report(line: &str) -> Fallible<()> {
    let mut out = std::io::stdout().lock();
    Ok(writeln!(out, "{line}").and_then(|()| out.flush())?)
}

/// The next thing this role is told; none once it is over.
pub(crate) fn told() -> Fallible<Option<String>> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0).then(|| line.trim_end().to_owned()))
}

/// A WebSocket of the agent that the environment names.
pub(crate) async fn client() -> Fallible<Client> {
    let env = Environment::of_this_process();
    let agent = env.get_str("TT_HARNESS_AGENT_ID").unwrap_or("bench:role").to_owned();
    Ok(Client::connect(settings(env, &agent)?).await?)
}

pub(crate) fn key() -> Option<String> {
    Some(uuid::Uuid::now_v7().to_string())
}

/// A handoff that says as much as a real one.
pub(crate) fn handoff() -> Fallible<RawJson> {
    Ok(RawJson::of(&Handoff {
        status: BODY.into(),
        next_action: "review it".into(),
        artifacts: Vec::new(),
        open_questions: Vec::new(),
        do_not: Vec::new(),
    })?)
}

fn echo(socket: &str, size: usize) -> Fallible<()> {
    let listener = UnixListener::bind(socket)?;
    report("ready")?;
    let (mut stream, _) = listener.accept()?;
    let mut bytes = vec![0; size];
    while stream.read_exact(&mut bytes).is_ok() {
        stream.write_all(&bytes)?;
    }
    Ok(())
}

/// Follows a room on so many connections and reports when each event has reached the last of them.
async fn subscribe(room: RoomId, connections: usize) -> Fallible<()> {
    let mut all: Vec<(Client, Subscription<EventItem>)> = Vec::with_capacity(connections);
    for _ in 0..connections {
        let client = client().await?;
        let subscription = client
            .rpc()
            .subscribe(&SubscribeEvents {
                room_id: room.clone(),
                target_agent_id: Some("any".into()),
                ..Default::default()
            })
            .await?;
        all.push((client, subscription));
    }
    report("ready")?;
    loop {
        let mut last = (0, 0);
        for (_, subscription) in &mut all {
            let Some(item) = subscription.next().await else { return Ok(()) };
            last = (now(), item?.cursor_event_seq);
        }
        report(&format!("{} {}", last.0, last.1))?;
    }
}

/// Waits for the turn, reports when it came, and gives it back when told.
async fn wait(room: RoomId) -> Fallible<()> {
    let client = client().await?;
    let rpc = client.rpc();
    report("ready")?;
    loop {
        let waited =
            rpc.call(WaitForTurn { room_id: room.clone(), max_wait_ms: Some(90_000), ..Default::default() }).await?;
        let at = now();
        let (lease, turn) = match waited.status {
            WaitStatus::YourTurn => (waited.lease_id.ok_or("a turn without a lease")?, waited.turn_id),
            WaitStatus::TakeoverAvailable => {
                let why = "the measurement ended its holder".to_owned();
                let taken = rpc
                    .call(TakeoverStick {
                        room_id: room.clone(),
                        expected_turn_id: waited.turn_id,
                        reason: why,
                        idempotency_key: key(),
                        ..Default::default()
                    })
                    .await?;
                (taken.lease_id, taken.turn_id)
            }
            WaitStatus::NotYet => continue,
            WaitStatus::Closed | WaitStatus::Removed => return Ok(()),
        };
        report(&format!("{at} {:?}", waited.status))?;
        if told()?.is_none() {
            return Ok(());
        }
        rpc.call(ReleaseStick {
            room_id: room.clone(),
            lease_id: lease,
            expected_turn_id: turn,
            handoff: handoff()?,
            idempotency_key: key(),
        })
        .await?;
    }
}

/// Agents in so many rooms, each with a thread and a connection of its own, that send to a neighbour as fast as they are
/// answered; as many messages together as they are told each time. Told `calls` and a number, they make calls that write
/// nothing instead.
fn write(rooms: usize, writers: usize) -> Fallible<()> {
    let round = Arc::new(Round {
        left: AtomicUsize::new(0),
        sending: AtomicBool::new(true),
        begin: Barrier::new(writers + 1),
        end: Barrier::new(writers + 1),
    });
    for n in 0..writers {
        let round = round.clone();
        std::thread::spawn(move || {
            if let Err(e) = writer(n, rooms, writers, &round) {
                crate::table::complain(&format!("writer {n}: {e}"));
                // The others would wait for it for ever.
                std::process::exit(1);
            }
        });
    }
    // All have joined.
    round.end.wait();
    report("ready")?;
    while let Some(line) = told()? {
        let calls = line.strip_prefix("calls ");
        round.sending.store(calls.is_none(), Ordering::Relaxed);
        round.left.store(calls.unwrap_or(&line).parse()?, Ordering::Relaxed);
        let from = now();
        round.begin.wait();
        round.end.wait();
        report(&(now() - from).to_string())?;
    }
    Ok(())
}

/// What the writers do together.
struct Round {
    left: AtomicUsize,
    /// Whether they send, or make calls that write nothing.
    sending: AtomicBool,
    begin: Barrier,
    end: Barrier,
}

fn writer(n: usize, rooms: usize, writers: usize, round: &Round) -> Fallible<()> {
    let dir = std::env::current_dir()?.join(format!("room-{}", n % rooms));
    std::fs::create_dir_all(&dir)?;
    let path = dir.display().to_string();
    let settings = settings(Environment::of_this_process(), &format!("bench:writer-{n}"))?;
    let mut client = HttpClient::connect(settings)?;
    let joined = client.call(&JoinPath { context_path: path, force_new: Some(true), ..Default::default() })?;
    let room = joined.room_id;
    let to = AgentId::trusted(format!("bench:writer-{}", (n + rooms) % writers));
    round.end.wait();
    loop {
        round.begin.wait();
        let sending = round.sending.load(Ordering::Relaxed);
        while round.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            if !sending {
                client.call(&Whoami::default())?;
                continue;
            }
            client.call(&SendMessage {
                room_id: room.clone(),
                body: BODY.into(),
                to_agent_id: Some(to.clone()),
                idempotency_key: key(),
                ..Default::default()
            })?;
        }
        round.end.wait();
    }
}

/// Leads a session in which somebody takes the stick, and stays until it is killed.
fn session(tt: &str) -> Fallible<()> {
    nix::unistd::setsid()?;
    let took = std::process::Command::new(tt).args(["try", "--json"]).stdout(std::process::Stdio::null()).status()?;
    report(if took.success() { "held" } else { "failed" })?;
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}
