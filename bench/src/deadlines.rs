//! Questions that nobody answers: how long after its deadline the asker knows of it, by one daemon and by the next one.

use std::time::Duration;

use tt_client::connect::Client;
use tt_proto::RoomId;
use tt_proto::requests::{SendMessage, TakeMessages};

use crate::roles::key;
use crate::samples::{Samples, now};
use crate::scratch::Scratch;
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

/// Questions that are open at once, and the time between their deadlines.
const QUESTIONS: u64 = 20;
const PAUSE: Duration = Duration::from_millis(13);

/// When the first of them is over: the others have been asked before, and where the daemon is killed, the next one serves.
const FIRST: Duration = Duration::from_millis(400);
const FIRST_AFTER_KILL: Duration = Duration::from_secs(2);

const MAX_LATE_US: f64 = 50_000.0;

struct Question {
    event_seq: i64,
    deadline: u64,
}

pub(crate) async fn run(effort: Effort) -> Fallible<Vec<Row>> {
    let mut scratch = Scratch::serving().await?;
    scratch.member("bench:other").await?;
    let (mut client, room) = scratch.member("bench:asker").await?;
    let (mut late, mut late_after_kill) = (Samples::default(), Samples::default());
    for _ in 0..effort.of(20, 5) {
        let questions = ask(&client, &room, FIRST).await?;
        hear(&client, &room, &questions, &mut late).await?;
    }
    for _ in 0..effort.of(10, 5) {
        let questions = ask(&client, &room, FIRST_AFTER_KILL).await?;
        scratch.kill_daemon()?;
        scratch.start().await?;
        (client, _) = scratch.member("bench:asker").await?;
        hear(&client, &room, &questions, &mut late_after_kill).await?;
    }
    let row = |name, what, samples: &Samples| Row::times(name, what, samples, Target::Most(MAX_LATE_US)).by_p99();
    Ok(vec![
        row("deadline", "deadline of a question to its asker told, in another process", &late),
        row("deadline-killed", "the same, asked before the daemon was killed", &late_after_kill),
    ])
}

async fn ask(client: &Client, room: &RoomId, first: Duration) -> Fallible<Vec<Question>> {
    let mut questions = Vec::new();
    for n in 0..QUESTIONS {
        let timeout = first + PAUSE * u32::try_from(n)?;
        // From before the call, so that the question is over no earlier than this.
        let deadline = now() + u64::try_from(timeout.as_nanos())?;
        let sent = client.rpc().call(SendMessage {
            room_id: room.clone(),
            body: "why?".into(),
            to: Some("bench:other".into()),
            expects_reply: Some(true),
            timeout_ms: Some(u64::try_from(timeout.as_millis())?),
            idempotency_key: key(),
            ..Default::default()
        });
        questions.push(Question { event_seq: sent.await?.event_seq, deadline });
    }
    Ok(questions)
}

/// Waits for what becomes of each question.
async fn hear(client: &Client, room: &RoomId, questions: &[Question], late: &mut Samples) -> Fallible<()> {
    for question in questions {
        let take = TakeMessages {
            room_id: room.clone(),
            surface: "wait".into(),
            max_wait_ms: Some(10_000),
            about: Some(question.event_seq),
            ..Default::default()
        };
        let taken = client.rpc().call(take).await?;
        late.add(question.deadline, now());
        if taken.events.is_empty() {
            return Err("a question had no end".into());
        }
    }
    Ok(())
}
