//! Messages: sent, sent by many, and heard by one and by a hundred.

use tt_client::connect::HttpClient;
use tt_proto::RoomId;
use tt_proto::requests::SendMessage;

use crate::limits::{BODY, Commits, Echo};
use crate::roles::key;
use crate::samples::{Samples, now};
use crate::scratch::{Player, Scratch};
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

/// Samples of one side before the other has its turn.
const BLOCK: usize = 50;

/// Agents that send at once, and the rooms they are in: four agents on a repository is what users have.
const WRITERS: usize = 64;
const ROOMS: usize = 16;

/// A member that can send.
struct Sender {
    client: HttpClient,
    room: RoomId,
}

impl Sender {
    fn of(scratch: &Scratch) -> Fallible<Self> {
        let (client, room) = scratch.http_member("bench:sender")?;
        scratch.http_member("bench:other")?;
        Ok(Self { client, room })
    }

    fn send(&mut self) -> Fallible<()> {
        self.client.call(&SendMessage {
            room_id: self.room.clone(),
            body: BODY.into(),
            idempotency_key: key(),
            ..Default::default()
        })?;
        Ok(())
    }
}

/// The durable send, and the way of a message to a subscriber in another process.
pub(crate) async fn send_and_subscriber(effort: Effort) -> Fallible<Vec<Row>> {
    let (alone, heard) = (Scratch::serving().await?, Scratch::serving().await?);
    let (mut quiet, mut loud) = (Sender::of(&alone)?, Sender::of(&heard)?);
    let mut subscriber = heard.player("bench:subscriber", &["subscribe", loud.room.as_str(), "1"])?;
    subscriber.line()?;
    let commits = Commits::new()?;
    let mut echo = Echo::of(&alone, 400)?;
    for _ in 0..100 {
        quiet.send()?;
        loud.send()?;
        subscriber.line()?;
    }
    let (mut sent, mut arrived, mut commit, mut echoes) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    for _ in 0..effort.of(4_000, 1_000) / BLOCK {
        for _ in 0..BLOCK {
            commits.sample(&mut commit)?;
        }
        for _ in 0..BLOCK {
            echo.sample(&mut echoes)?;
        }
        for _ in 0..BLOCK {
            let from = now();
            quiet.send()?;
            sent.add(from, now());
        }
        for _ in 0..BLOCK {
            let from = now();
            loud.send()?;
            arrived.add(from, subscriber.time()?);
        }
    }
    let send = Row::times("send", "durable send, 1 writer", &sent, Target::MostTimes(1.6));
    let send = send.reached(Target::MostTimes(2.3));
    let subscriber =
        Row::times("subscriber", "send to subscriber in another process", &arrived, Target::MostTimes(2.0));
    let subscriber = subscriber.reached(Target::MostTimes(2.3));
    Ok(vec![
        send.against("commit p50", commit.p50()),
        subscriber.against("commit + echo p50", commit.p50() + echoes.p50()),
    ])
}

/// Many agents at once, each waiting for the answer to its own message.
pub(crate) async fn writers(effort: Effort) -> Fallible<Vec<Row>> {
    let scratch = Scratch::serving().await?;
    let daemon = scratch.daemon_pid()?;
    let mut writers = many_writers(&scratch)?;
    let commits = Commits::new()?;
    let (rounds, each) = (effort.of(10, 3), effort.of(20_000, 6_000));
    writers.tell("2000")?;
    writers.line()?;
    let (mut commit, mut elapsed, mut elapsed_in_calls) = (Samples::default(), 0, 0);
    let mut busy = 0;
    for _ in 0..rounds {
        for _ in 0..effort.of(1_000, 500) {
            commits.sample(&mut commit)?;
        }
        writers.tell(&format!("calls {each}"))?;
        elapsed_in_calls += writers.time()?;
        let before = writer_cpu(daemon)?;
        writers.tell(&each.to_string())?;
        elapsed += writers.time()?;
        busy += writer_cpu(daemon)? - before;
    }
    let sent = rounds * each;
    let a_second = |elapsed: u64| sent as f64 * 1e9 / elapsed as f64;
    let rate = a_second(elapsed);
    let what = format!("durable sends a second, {WRITERS} writers at once, {} in a room", WRITERS / ROOMS);
    let row = Row::number("writers", &what, "1/s", rate, sent, Target::LeastTimes(10.0));
    let row = row.reached(Target::LeastTimes(2.0)).against("commits 1/s", 1e6 / commit.p50());
    // What the transport alone can carry. It is held against the sends, to tell whether it is what they wait for.
    let calls = a_second(elapsed_in_calls);
    let what = "calls a second of the same 64 that write nothing";
    let calls =
        Row::number("writers-calls", what, "1/s", calls, sent, Target::LeastTimes(2.0)).against("sends 1/s", rate);
    let cpu = busy as f64 / 1e3 / sent as f64;
    let what = "CPU time of the daemon's writer thread for each of these sends";
    let cpu = Row::number("writer-cpu", what, "µs", cpu, sent, Target::Most(40.0)).reached(Target::Most(76.0));
    Ok(vec![row, calls, cpu])
}

/// The CPU time of the daemon's writer thread so far, in nanoseconds.
fn writer_cpu(daemon: u32) -> Fallible<u64> {
    for thread in std::fs::read_dir(format!("/proc/{daemon}/task"))? {
        let thread = thread?.path();
        if std::fs::read_to_string(thread.join("comm"))?.trim() == "writer" {
            let time = std::fs::read_to_string(thread.join("schedstat"))?;
            return Ok(time.split_ascii_whitespace().next().ok_or("no CPU time")?.parse()?);
        }
    }
    Err("the daemon has no writer thread".into())
}

/// A process in which 64 agents wait for the word to send.
pub(crate) fn many_writers(scratch: &Scratch) -> Fallible<Player> {
    let mut player = scratch.player("bench:writers", &["write", &ROOMS.to_string(), &WRITERS.to_string()])?;
    player.line()?;
    Ok(player)
}

/// One message, and the last of a hundred subscribers, each a process of its own, that has it.
pub(crate) async fn fanout(effort: Effort) -> Fallible<Row> {
    let scratch = Scratch::serving().await?;
    let mut sender = Sender::of(&scratch)?;
    let mut subscribers = Vec::new();
    for _ in 0..100 {
        subscribers.push(scratch.player("bench:subscriber", &["subscribe", sender.room.as_str(), "1"])?);
    }
    for subscriber in &mut subscribers {
        subscriber.line()?;
    }
    let mut samples = Samples::default();
    let warm_up = 20;
    for round in 0..warm_up + effort.of(1_000, 200) {
        let from = now();
        sender.send()?;
        let mut last = 0;
        for subscriber in &mut subscribers {
            last = last.max(subscriber.time()?);
        }
        if round >= warm_up {
            samples.add(from, last);
        }
    }
    let what = "one message to 100 subscribers (100 processes), last one has it";
    Ok(Row::times("fanout", what, &samples, Target::Most(10_000.0)).by_p99())
}
