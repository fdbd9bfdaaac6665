//! Thirty agents, each a process, that send five messages a second and follow their inboxes: nothing may be lost, and the
//! daemon may not grow.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::time::Duration;

use tt_proto::RoomId;
use tt_proto::message::MessageSent;
use tt_proto::requests::{ConfirmMessages, JoinPath, SendMessage, TakeMessages};

use crate::Fallible;
use crate::memory::resident_mib;
use crate::roles::{client, key, report, told};
use crate::samples::{Samples, now};
use crate::scratch::Scratch;
use crate::table;

const AGENTS: usize = 30;
const EACH_SECOND: u64 = 5;

/// The daemon may grow by this much between the first third of the soak and its end, no more.
const FLAT_MIB: f64 = 2.0;

/// Runs the soak. True when nothing was lost or repeated and memory stayed flat.
pub(crate) async fn run(seconds: u64) -> Fallible<bool> {
    let scratch = Scratch::serving().await?;
    let (_client, room) = scratch.member("bench:host").await?;
    let messages = usize::try_from(seconds * EACH_SECOND)?;
    let mut agents = Vec::new();
    for n in 0..AGENTS {
        let role = ["agent", room.as_str(), &n.to_string(), &messages.to_string()];
        agents.push(scratch.player(&format!("bench:agent-{n}"), &role)?);
    }
    for agent in &mut agents {
        agent.line()?;
    }
    for agent in &mut agents {
        agent.tell("go")?;
    }
    let pid = scratch.daemon_pid()?;
    tokio::time::sleep(Duration::from_secs(seconds / 3)).await;
    let early = resident_mib(pid)?;
    tokio::time::sleep(Duration::from_secs(seconds - seconds / 3)).await;
    let late = resident_mib(pid)?;
    let mut latency = Samples::default();
    let (mut lost, mut repeated) = (0, 0);
    for agent in &mut agents {
        let line = agent.line()?;
        let numbers: Vec<u64> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [missing, twice, ref times @ ..] = numbers[..] else { return Err("an agent reported nothing".into()) };
        lost += missing;
        repeated += twice;
        times.iter().for_each(|time| latency.add(0, *time));
    }
    table::write(&format!(
        "{AGENTS} agents, {EACH_SECOND} messages a second each, {seconds} s: {} deliveries, {lost} lost, {repeated} repeated",
        latency.count()
    ));
    table::write(&format!(
        "send to inbox of another process: p50 {:.0} µs, p99 {:.0} µs, max {:.0} µs",
        latency.p50(),
        latency.p99(),
        latency.max()
    ));
    table::write(&format!("daemon memory: {early:.1} MiB after a third of it, {late:.1} MiB at the end"));
    Ok(lost == 0 && repeated == 0 && late - early <= FLAT_MIB)
}

/// One agent: sends on one connection, follows on another, and reports what it missed, what came twice and how long each
/// message of the others took.
pub(crate) async fn agent(room: RoomId, number: u64, messages: usize) -> Fallible<()> {
    let (mut sender, follower) = (client().await?, client().await?);
    let path = std::env::current_dir()?.display().to_string();
    sender.call(JoinPath { context_path: path.clone(), ..Default::default() }).await?;
    report("ready")?;
    told()?;
    let expected = messages * (AGENTS - 1);
    let (times, seen, twice) = (RefCell::new(Vec::new()), RefCell::new(HashSet::new()), Cell::new(0));
    let follow = async {
        let rpc = follower.rpc();
        while seen.borrow().len() < expected {
            let taken = rpc
                .call(TakeMessages {
                    room_id: room.clone(),
                    surface: "follow".into(),
                    max_wait_ms: Some(90_000),
                    ..Default::default()
                })
                .await?;
            let at = now();
            for event in &taken.events {
                let Some(payload) = &event.payload else { continue };
                let said: MessageSent = serde_json::from_str(payload.as_str())?;
                times.borrow_mut().push(at.saturating_sub(said.body.parse()?));
                twice.set(twice.get() + u64::from(!seen.borrow_mut().insert(event.event_seq)));
            }
            let seqs = taken.events.iter().map(|event| event.event_seq).collect();
            rpc.call(ConfirmMessages { room_id: room.clone(), surface: "follow".into(), event_seqs: seqs }).await?;
        }
        Fallible::Ok(())
    };
    let send = async {
        // Not all in the same instant.
        let beat = Duration::from_millis(1000 / EACH_SECOND);
        tokio::time::sleep(beat * u32::try_from(number)? / u32::try_from(AGENTS)?).await;
        let mut beats = tokio::time::interval(beat);
        for _ in 0..messages {
            beats.tick().await;
            sender
                .rpc()
                .call(SendMessage {
                    room_id: room.clone(),
                    body: now().to_string(),
                    idempotency_key: key(),
                    ..Default::default()
                })
                .await?;
        }
        Fallible::Ok(())
    };
    let both = async { tokio::try_join!(follow, send) };
    let patience = Duration::from_secs(u64::try_from(messages)? / EACH_SECOND + 20);
    // What has not come long after the last was sent is lost.
    if let Ok(done) = tokio::time::timeout(patience, both).await {
        done?;
    }
    let (times, seen) = (times.into_inner(), seen.into_inner());
    let times: Vec<String> = times.iter().map(u64::to_string).collect();
    report(&format!("{} {} {}", expected.saturating_sub(seen.len()), twice.get(), times.join(" ")))
}
