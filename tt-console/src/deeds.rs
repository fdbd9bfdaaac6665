//! What a person does goes out in the order in which it was done, over a connection that is opened again when it is cut. Every
//! write has a key of its own, so that a repetition changes nothing.

use tokio::sync::mpsc::{Sender, UnboundedReceiver};
use tt_client::connect::{Client, Settings};
use tt_client::fresh_key;
use tt_client::text::names;
use tt_proto::delivery::{DeliveryState, Recipient};
use tt_proto::policy::PolicyOverrides;
use tt_proto::requests::{
    AddNote, AddReminder, ConfirmMessages, KickMember, Method, Reply, ResolveNote, SendMessage, Sent, SetRoomPolicy,
    TakeoverStick, WaitForTurn, WithdrawMessage,
};
use tt_proto::turn::WaitStatus;
use tt_proto::{Error, ErrorCode, RoomId};

use crate::connection::{SURFACE, describe};
use crate::exchange::{Deed, Letter, Request, Update};

/// Does everything that is asked for, until the console ends.
pub(crate) async fn carry_out(settings: Settings, mut deeds: UnboundedReceiver<Request>, updates: Sender<Update>) {
    let mut hand = Hand { settings, client: None };
    while let Some(request) = deeds.recv().await {
        let update = match request {
            Request::Do(room, Deed::Send(letter)) => hand.send(&room, letter).await,
            Request::Do(room, Deed::Reply { seq, body }) => match hand.reply(&room, seq, body).await {
                Ok(sent) => Update::Sent(sent_text(&sent)),
                Err(e) => Update::NotSent { error: describe(&e), to: Vec::new() },
            },
            Request::Do(room, deed) => match hand.do_deed(&room, deed).await {
                Ok(done) => Update::Done(done),
                Err(e) => Update::Refused(describe(&e)),
            },
            // A refused confirmation is another surface's matter: it shows the message too.
            Request::Confirm { room, seqs } => {
                let _ = hand.confirm(&room, seqs).await;
                continue;
            }
            _ => continue,
        };
        if updates.send(update).await.is_err() {
            return;
        }
    }
}

struct Hand {
    settings: Settings,
    client: Option<Client>,
}

impl Hand {
    async fn client(&mut self) -> Result<&mut Client, Error> {
        let client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(self.settings.clone()).await?,
        };
        Ok(self.client.insert(client))
    }

    /// Makes a call that only a member may make. A person that is no member yet joins with it, unless it is refused.
    async fn call<M: Method + Clone>(&mut self, request: M) -> Result<M::Answer, Error> {
        let client = self.client().await?;
        match client.call(request.clone()).await {
            Err(e) if e.code == ErrorCode::UnknownMember => client.call_and_join(request).await,
            answer => answer,
        }
    }

    async fn send(&mut self, room: &RoomId, letter: Letter) -> Update {
        let mut sent = Vec::new();
        for (at, to) in letter.to.iter().enumerate() {
            let request = SendMessage {
                room_id: room.clone(),
                body: letter.body.clone(),
                to: Some(to.clone()),
                delivery_hint: Some(letter.hint.as_str().to_owned()),
                expects_reply: letter.is_question.then_some(true),
                idempotency_key: fresh_key(),
                ..Default::default()
            };
            match self.call(request).await {
                Ok(answer) => sent.push(sent_text(&answer)),
                // Those before it have their message and do not get it again.
                Err(e) => return Update::NotSent { error: describe(&e), to: letter.to[at..].to_vec() },
            }
        }
        Update::Sent(sent.join("; "))
    }

    async fn reply(&mut self, room: &RoomId, seq: i64, body: String) -> Result<Sent, Error> {
        self.call(Reply { room_id: room.clone(), event_seq: seq, body, idempotency_key: fresh_key() }).await
    }

    async fn confirm(&mut self, room: &RoomId, event_seqs: Vec<i64>) -> Result<(), Error> {
        let request = ConfirmMessages { room_id: room.clone(), surface: SURFACE.as_str().to_owned(), event_seqs };
        self.client().await?.call(request).await.map(|_| ())
    }

    async fn do_deed(&mut self, room: &RoomId, deed: Deed) -> Result<String, Error> {
        let (room_id, idempotency_key) = (room.clone(), fresh_key());
        Ok(match deed {
            Deed::Send(_) | Deed::Reply { .. } => String::new(),
            Deed::Withdraw { seq } => {
                let answer = self.call(WithdrawMessage { room_id, event_seq: seq, idempotency_key }).await?;
                match answer.too_late {
                    0 => format!("message {seq} was withdrawn"),
                    late => format!("withdrawn from {}; too late for {late}", answer.withdrawn),
                }
            }
            Deed::Claim => {
                let claim = WaitForTurn { room_id, max_wait_ms: Some(0), claim: Some(true), ..Default::default() };
                let wait = self.call(claim).await?;
                match wait.status {
                    WaitStatus::YourTurn => format!("you hold the stick: turn {}. Release it with e", wait.turn_id),
                    _ => "somebody else was faster: the stick is not free".to_owned(),
                }
            }
            Deed::TakeOver { turn, reason, operator } => {
                let takeover = TakeoverStick {
                    room_id,
                    expected_turn_id: turn,
                    reason,
                    operator_override: Some(operator),
                    idempotency_key,
                };
                format!("you hold the stick: turn {}. Release it with e", self.call(takeover).await?.turn_id)
            }
            Deed::Kick { agent, name } => {
                let kick = KickMember {
                    room_id,
                    target_agent_id: agent,
                    force: Some(true),
                    idempotency_key,
                    ..Default::default()
                };
                self.call(kick).await?;
                format!("{name} was removed")
            }
            Deed::Guard(guard) => {
                let policy = PolicyOverrides { guard: Some(guard), ..PolicyOverrides::default() };
                self.call(SetRoomPolicy { room_id, policy, idempotency_key }).await?;
                format!("the guard is set to {}", guard.as_str())
            }
            Deed::AddNote(body) => {
                self.call(AddNote { room_id, body, idempotency_key, ..Default::default() }).await?;
                "the note was added".to_owned()
            }
            Deed::ResolveNote(note_id) => {
                self.call(ResolveNote { room_id, note_id, idempotency_key }).await?;
                "the note is resolved".to_owned()
            }
            Deed::Remind { to, in_ms, body } => {
                let reminder = AddReminder { room_id, body, in_ms, to, idempotency_key, ..Default::default() };
                let due = self.call(reminder).await?.due_at;
                format!("the reminder comes at {}", tt_client::text::render::clock(due, tt_client::text::render::now()))
            }
        })
    }
}

/// What became of a message at once.
fn sent_text(sent: &Sent) -> String {
    let one = |recipient: &Recipient| {
        let name = names::called(&recipient.agent_id, recipient.display_name.as_deref());
        match (&recipient.state, &recipient.waits) {
            (DeliveryState::Pending, Some(waits)) => format!("{name} ({})", waits.text),
            _ => name,
        }
    };
    match sent.recipients.as_slice() {
        [] => "sent; nobody else is here to read it".to_owned(),
        [only] if sent.more == 0 => format!("sent to {}", one(only)),
        several => format!("sent to {} members", several.len() + sent.more),
    }
}
