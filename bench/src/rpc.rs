//! One call on an open connection that needs nothing from the disk.

use tt_proto::requests::Whoami;

use crate::limits::Echo;
use crate::samples::{Samples, now};
use crate::scratch::Scratch;
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

/// Samples of one side before the other has its turn.
const BLOCK: usize = 100;

pub(crate) async fn round_trip(effort: Effort) -> Fallible<Row> {
    let scratch = Scratch::serving().await?;
    let mut client = scratch.http_client("bench:caller")?;
    let answer = serde_json::to_string(&client.call(&Whoami::default())?)?;
    let envelope = "{\"jsonrpc\":\"2.0\",\"id\":1000,\"result\":}".len();
    let mut echo = Echo::of(&scratch, answer.len() + envelope)?;
    for _ in 0..500 {
        client.call(&Whoami::default())?;
    }
    let (mut calls, mut echoes) = (Samples::default(), Samples::default());
    for _ in 0..effort.of(20_000, 4_000) / BLOCK {
        for _ in 0..BLOCK {
            echo.sample(&mut echoes)?;
        }
        for _ in 0..BLOCK {
            let from = now();
            client.call(&Whoami::default())?;
            calls.add(from, now());
        }
    }
    let what = "RPC round trip on an open connection";
    Ok(Row::times("rpc", what, &calls, Target::MostTimes(8.0)).against("echo p50", echoes.p50()))
}
