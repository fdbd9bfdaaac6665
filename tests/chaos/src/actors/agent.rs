//! An agent with a connection that stays: it sends, takes and confirms messages, asks and answers questions, sets reminders, waits
//! for the stick, works with it and gives it on, and takes it over from those who no longer answer.

use std::time::Duration;

use tt_client::connect::{Client, Settings};
use tt_proto::event::Event;
use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::message::MessageSent;
use tt_proto::paths::Environment;
use tt_proto::requests::{
    AddNote, AddReminder, ConfirmMessages, Heartbeat, JoinPath, Method, PassStick, ReleaseStick, Reply, ReturnMessages,
    SendMessage, Sent, TakeMessages, TakeoverStick, WaitForTurn,
};
use tt_proto::turn::WaitStatus;
use tt_proto::{AgentId, Error, LeaseId, RoomId};

use super::Actor;
use crate::Fallible;
use crate::journal::{self, Fact};
use crate::stage::Stage;

/// How often a call that got no answer is repeated under its key.
const MAX_REPEATS: usize = 6;

/// The errors after which a call is repeated: it may work by now, or its outcome is unknown.
const REPEATED: &[&str] =
    &["daemon_unreachable", "storage_unavailable", "outcome_unknown", "overloaded", "message_held"];

/// How long a call may take beyond its own wait.
const CALL_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Agent;

impl Actor for Agent {
    fn kind(&self) -> &'static str {
        "agent"
    }

    fn count(&self) -> usize {
        4
    }

    fn play(&self, stage: &mut Stage) -> Fallible<()> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(play(stage))
    }
}

pub(super) async fn play(stage: &mut Stage) -> Fallible<()> {
    let settings = Settings::from_environment(Environment::of(stage.variables.clone()))?;
    while !stage.is_over() {
        let joined = match Client::connect(settings.clone()).await {
            Ok(client) => Connected::join(stage, client).await?,
            Err(error) => {
                stage.refused("connect", error.code.as_str(), &error.message)?;
                None
            }
        };
        match joined {
            Some(mut connected) => connected.act(stage).await?,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    Ok(())
}

/// A key no two writes share.
fn fresh_key() -> Option<String> {
    Some(uuid::Uuid::now_v7().to_string())
}

struct Connected {
    client: Client,
    room: RoomId,
}

/// A turn the agent was told it has.
struct Turn {
    id: i64,
    lease: LeaseId,
}

impl Connected {
    async fn join(stage: &mut Stage, mut client: Client) -> Fallible<Option<Self>> {
        let path = stage.places.workspace().display().to_string();
        let join = JoinPath { context_path: path, idempotency_key: fresh_key(), ..Default::default() };
        match client.call(join).await {
            Ok(joined) => Ok(Some(Self { client, room: joined.room_id })),
            Err(error) => {
                stage.refused("join_path", error.code.as_str(), &error.message)?;
                Ok(None)
            }
        }
    }

    /// Some actions on one connection, then a new one.
    async fn act(&mut self, stage: &mut Stage) -> Fallible<()> {
        for _ in 0..stage.dice.between(5, 60) {
            if stage.is_over() {
                return Ok(());
            }
            match stage.dice.between(0, 20) {
                0..=6 => self.send(stage).await?,
                7 => self.ask(stage).await?,
                8 => self.remind(stage).await?,
                9..=13 => self.receive(stage).await?,
                14..=18 => self.wait(stage).await?,
                _ => self.note(stage).await?,
            }
            let pause = stage.dice.between(0, 60);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        Ok(())
    }

    /// Makes a call, and again while its outcome is unknown. None when it was refused.
    async fn call<M: Method + Clone>(&mut self, stage: &mut Stage, request: M) -> Fallible<Option<M::Answer>> {
        for _ in 0..MAX_REPEATS {
            let error: Error = match self.client.call_within(CALL_LIMIT, request.clone()).await {
                Ok(answer) => return Ok(Some(answer)),
                Err(error) => error,
            };
            stage.refused(M::NAME, error.code.as_str(), &format!("{error:?}"))?;
            if !REPEATED.contains(&error.code.as_str()) {
                return Ok(None);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(None)
    }

    async fn send(&mut self, stage: &mut Stage) -> Fallible<()> {
        let (body, to) = (stage.next_body(), stage.someone());
        let hint = ["normal", "normal", "idle", "important", "interrupt"][stage.dice.between(0, 4) as usize];
        let request = SendMessage {
            room_id: self.room.clone(),
            body: body.clone(),
            to: Some(to.unwrap_or_else(|| "room".into())),
            delivery_hint: Some(hint.into()),
            idempotency_key: fresh_key(),
            ..Default::default()
        };
        self.say(stage, request, body).await
    }

    async fn say<M: Method<Answer = Sent> + Clone>(
        &mut self,
        stage: &mut Stage,
        request: M,
        body: String,
    ) -> Fallible<()> {
        match self.call(stage, request).await? {
            Some(sent) => {
                stage.write(Fact::Sent { event_seq: sent.event_seq, event_id: sent.event_id.to_string(), body })
            }
            None => Ok(()),
        }
    }

    /// A question with a deadline, to somebody or to everybody. It ends, whatever happens.
    async fn ask(&mut self, stage: &mut Stage) -> Fallible<()> {
        let (body, to) = (stage.next_body(), stage.someone());
        let request = SendMessage {
            room_id: self.room.clone(),
            body: body.clone(),
            to: Some(to.unwrap_or_else(|| "room".into())),
            expects_reply: Some(true),
            timeout_ms: Some(stage.dice.between(200, 4000)),
            notify_on_delivery: Some(stage.dice.one_in(3)),
            idempotency_key: fresh_key(),
            ..Default::default()
        };
        self.say(stage, request, body).await
    }

    /// A reminder for itself. It comes once.
    async fn remind(&mut self, stage: &mut Stage) -> Fallible<()> {
        let (body, in_ms) = (stage.next_body(), stage.dice.between(100, 3000));
        let room_id = self.room.clone();
        let request = AddReminder { room_id, body, in_ms, idempotency_key: fresh_key(), ..Default::default() };
        self.call(stage, request).await?;
        Ok(())
    }

    /// Answers some of the questions among what it was shown.
    async fn answer(&mut self, stage: &mut Stage, events: &[Event]) -> Fallible<()> {
        for event in events {
            let payload =
                event.payload.as_ref().and_then(|json| serde_json::from_str::<MessageSent>(json.as_str()).ok());
            if !payload.is_some_and(|payload| payload.expects_reply) || stage.dice.one_in(3) {
                continue;
            }
            let (room_id, event_seq, body) = (self.room.clone(), event.event_seq, stage.next_body());
            let reply = Reply { room_id, event_seq, body: body.clone(), idempotency_key: fresh_key() };
            self.say(stage, reply, body).await?;
        }
        Ok(())
    }

    async fn receive(&mut self, stage: &mut Stage) -> Fallible<()> {
        let take = TakeMessages {
            room_id: self.room.clone(),
            surface: "recv".into(),
            limit: Some(50),
            max_wait_ms: Some(stage.dice.between(0, 300)),
            ..Default::default()
        };
        let Some(taken) = self.call(stage, take).await? else { return Ok(()) };
        let event_seqs: Vec<i64> = taken.events.iter().map(|event| event.event_seq).collect();
        if event_seqs.is_empty() {
            return Ok(());
        }
        if stage.dice.one_in(10) {
            self.call(stage, ReturnMessages { room_id: self.room.clone(), event_seqs }).await?;
            return Ok(());
        }
        for event_seq in &event_seqs {
            stage.write(Fact::Shown { event_seq: *event_seq })?;
        }
        let confirm =
            ConfirmMessages { room_id: self.room.clone(), surface: "recv".into(), event_seqs: event_seqs.clone() };
        if self.call(stage, confirm).await?.is_some() {
            stage.write(Fact::Confirmed { event_seqs })?;
        }
        self.answer(stage, &taken.events).await
    }

    async fn note(&mut self, stage: &mut Stage) -> Fallible<()> {
        let (room_id, body) = (self.room.clone(), stage.next_body());
        let note = AddNote { room_id, body, idempotency_key: fresh_key(), ..Default::default() };
        match self.call(stage, note).await? {
            Some(noted) => stage.write(Fact::Noted { note_id: noted.note_id.to_string() }),
            None => Ok(()),
        }
    }

    async fn wait(&mut self, stage: &mut Stage) -> Fallible<()> {
        let wait = WaitForTurn {
            room_id: self.room.clone(),
            max_wait_ms: Some(stage.dice.between(0, 800)),
            claim: Some(true),
            ..Default::default()
        };
        let Some(wait) = self.call(stage, wait).await? else { return Ok(()) };
        match (wait.status, wait.lease_id) {
            (WaitStatus::YourTurn, Some(lease)) => self.work(stage, Turn { id: wait.turn_id, lease }, false).await,
            (WaitStatus::TakeoverAvailable, _) => self.take_over(stage, wait.turn_id).await,
            (WaitStatus::NotYet, _) => Ok(()),
            (status, _) => stage.write(Fact::Broken { what: format!("a wait ended with {status:?}") }),
        }
    }

    async fn take_over(&mut self, stage: &mut Stage, expected_turn_id: i64) -> Fallible<()> {
        let take = TakeoverStick {
            room_id: self.room.clone(),
            expected_turn_id,
            reason: "it does not answer".into(),
            idempotency_key: fresh_key(),
            ..Default::default()
        };
        match self.call(stage, take).await? {
            Some(taken) => self.work(stage, Turn { id: taken.turn_id, lease: taken.lease_id }, true).await,
            None => Ok(()),
        }
    }

    /// Has the stick for a while, and gives it on; sometimes it forgets to.
    async fn work(&mut self, stage: &mut Stage, turn: Turn, by_takeover: bool) -> Fallible<()> {
        stage.write(Fact::Turn { turn_id: turn.id, lease_id: turn.lease.to_string(), by_takeover })?;
        for _ in 0..stage.dice.between(0, 3) {
            tokio::time::sleep(Duration::from_millis(stage.dice.between(1, 100))).await;
            let (room_id, lease_id, asked_at) = (self.room.clone(), turn.lease.clone(), journal::now());
            let renew = Heartbeat { room_id, lease_id, expected_turn_id: turn.id };
            if self.call(stage, renew).await?.is_some() {
                stage.write(Fact::Renewed { turn_id: turn.id, asked_at })?;
            }
        }
        if stage.dice.one_in(12) {
            return Ok(());
        }
        let handoff = RawJson::of(&Handoff {
            status: format!("{} had turn {}", stage.name, turn.id),
            next_action: "go on".into(),
            artifacts: Vec::new(),
            open_questions: Vec::new(),
            do_not: Vec::new(),
        })?;
        let (room_id, lease_id, idempotency_key) = (self.room.clone(), turn.lease.clone(), fresh_key());
        let to = if stage.dice.one_in(5) { stage.someone() } else { None };
        let asked_at = journal::now();
        let gave = match to {
            Some(to) => {
                let to_agent_id = AgentId::trusted(to);
                let expected_turn_id = turn.id;
                let pass = PassStick { room_id, lease_id, expected_turn_id, to_agent_id, handoff, idempotency_key };
                self.call(stage, pass).await?
            }
            None => {
                let expected_turn_id = turn.id;
                self.call(stage, ReleaseStick { room_id, lease_id, expected_turn_id, handoff, idempotency_key }).await?
            }
        };
        match gave {
            Some(gave) => stage.write(Fact::Gave { turn_id: turn.id, event_seq: gave.event_seq, asked_at }),
            None => Ok(()),
        }
    }
}
