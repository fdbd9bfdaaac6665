//! Turns: given away, and lost with the process that held them.

use std::time::Duration;

use tt_client::connect::Client;
use tt_proto::RoomId;
use tt_proto::requests::{GetRoomState, ReleaseStick, WaitForTurn};
use tt_proto::turn::WaitStatus;

use crate::limits::{Commits, Echo};
use crate::roles::{handoff, key};
use crate::samples::{Samples, now};
use crate::scratch::{Scratch, program};
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

/// Returns once so many members of the room wait. Not part of what is measured.
async fn until_waiting(client: &Client, room: &RoomId, agent: &str) -> Fallible<()> {
    loop {
        let state = client.rpc().call(GetRoomState { room_id: room.clone(), ..Default::default() }).await?;
        if state.members.iter().any(|m| m.agent_id.as_str() == agent && m.waiting) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// From a release to `your_turn` in another process.
pub(crate) async fn release_to_turn(effort: Effort) -> Fallible<Row> {
    let scratch = Scratch::serving().await?;
    let (client, room) = scratch.member("bench:holder").await?;
    scratch.member("bench:waiter").await?;
    let rpc = client.rpc();
    let commits = Commits::new()?;
    let mut echo = Echo::of(&scratch, 400)?;
    let mut held = rpc
        .call(WaitForTurn { room_id: room.clone(), max_wait_ms: Some(0), claim: Some(true), ..Default::default() })
        .await?;
    let mut waiter = scratch.player("bench:waiter", &["wait", room.as_str()])?;
    waiter.line()?;
    let (mut told, mut commit, mut echoes) = (Samples::default(), Samples::default(), Samples::default());
    let warm_up = 20;
    for round in 0..warm_up + effort.of(2_000, 500) {
        commits.sample(&mut commit)?;
        echo.sample(&mut echoes)?;
        until_waiting(&client, &room, "bench:waiter").await?;
        if held.status != WaitStatus::YourTurn {
            return Err(format!("the turn did not come back: {held:?}").into());
        }
        let lease = held.lease_id.take().ok_or("a turn without a lease")?;
        let from = now();
        rpc.call(ReleaseStick {
            room_id: room.clone(),
            lease_id: lease,
            expected_turn_id: held.turn_id,
            handoff: handoff()?,
            idempotency_key: key(),
        })
        .await?;
        let at = waiter.time()?;
        if round >= warm_up {
            told.add(from, at);
        }
        waiter.tell("release")?;
        held = rpc.call(WaitForTurn { room_id: room.clone(), max_wait_ms: Some(10_000), ..Default::default() }).await?;
    }
    let row = Row::times("turn", "release to your_turn in another process", &told, Target::MostTimes(2.0));
    Ok(row.against("commit + echo p50", commit.p50() + echoes.p50()))
}

/// From the end of the holder's process to the answer of whoever waits.
pub(crate) async fn holder_killed(effort: Effort) -> Fallible<Row> {
    let scratch = Scratch::serving().await?;
    let (client, room) = scratch.member("bench:watcher").await?;
    scratch.member("bench:waiter").await?;
    let tt = program("tt")?.display().to_string();
    let mut samples = Samples::default();
    let warm_up = 3;
    // The waiter joins each round, so that the holder finds the room idle.
    for round in 0..warm_up + effort.of(200, 40) {
        let mut holder = scratch.player("bench:holder", &["session", &tt])?;
        if holder.line()? != "held" {
            return Err("the holder did not get the stick".into());
        }
        let mut waiter = scratch.player("bench:waiter", &["wait", room.as_str()])?;
        waiter.line()?;
        until_waiting(&client, &room, "bench:waiter").await?;
        let from = now();
        holder.kill()?;
        let line = waiter.line()?;
        let Some((at, "TakeoverAvailable")) = line.split_once(' ') else {
            return Err(format!("the waiter was told {line:?}").into());
        };
        let at = at.parse()?;
        if round >= warm_up {
            samples.add(from, at);
        }
        waiter.tell("release")?;
        until_idle(&client, &room).await?;
    }
    let what = "holder killed to waiter told";
    Ok(Row::times("killed", what, &samples, Target::Most(20_000.0)).by_p99())
}

/// Returns once nobody holds the stick.
async fn until_idle(client: &Client, room: &RoomId) -> Fallible<()> {
    while client.rpc().call(GetRoomState { room_id: room.clone(), ..Default::default() }).await?.room.owner.is_some() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
