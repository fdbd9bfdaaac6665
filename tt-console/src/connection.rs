//! The way to the daemon: what it streams and answers comes in as updates, what a person does goes out as requests.
//!
//! Nothing polls. Each room is followed by a subscription to its log, from the moment at which its state was read; a change in it
//! makes the console look at the room again, once for however many changes came meanwhile. What a person does goes over a connection
//! of its own, in order, which opens itself again and repeats what was cut off under the same key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tt_client::connect::{Client, DEADLINE, Settings};
use tt_proto::delivery::{DeliveryState, Surface};
use tt_proto::requests::{
    GetMessageStatus, GetRoomEvents, GetRoomState, ListInbox, ListNotes, ListRooms, ListWaiting, Method,
    SubscribeDeliveries, SubscribeEvents,
};
use tt_proto::{AgentId, Error, ErrorCode, RoomId};

use crate::deeds;
use crate::exchange::{InboxLine, Request, Update};
use crate::timeline::PAGE;

/// How long to wait before a daemon is tried again that could not be reached or started.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How many rooms one connection follows: a daemon allows 32 subscriptions on each.
const ROOMS_PER_CONNECTION: usize = 28;

/// How many rooms are followed at all. Those with the newest events come first.
const MAX_FOLLOWED: usize = 280;

/// How many updates wait for the screen. The daemon keeps the rest.
const MAX_UPDATES: usize = 256;

/// How many rooms' messages the inbox lists, and how many of each.
const MAX_INBOX: usize = 100;

/// How many events a search finds.
const MAX_FOUND: usize = 200;

/// Starts the connection. It ends when the sender of requests is dropped.
pub(crate) fn start(settings: Settings) -> (UnboundedSender<Request>, Receiver<Update>) {
    let (updates, receiver) = mpsc::channel(MAX_UPDATES);
    let (sender, requests) = mpsc::unbounded_channel();
    let (deeds, deeds_to_do) = mpsc::unbounded_channel();
    // The calls of a client that repeats them stay on their thread.
    tokio::task::spawn_local(deeds::carry_out(settings.clone(), deeds_to_do, updates.clone()));
    tokio::spawn(run(settings, requests, deeds, updates));
    (sender, receiver)
}

async fn run(
    settings: Settings,
    mut requests: UnboundedReceiver<Request>,
    deeds: UnboundedSender<Request>,
    updates: Sender<Update>,
) {
    loop {
        let reader = match Client::connect(settings.clone()).await {
            Ok(client) => Arc::new(Reader::new(client, settings.clone(), updates.clone())),
            Err(e) => {
                if updates.send(Update::Disconnected(e.message)).await.is_err() {
                    return;
                }
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
        };
        // What was asked of the last connection is asked again by the model where it still matters. Deeds are not lost.
        while let Ok(request) = requests.try_recv() {
            if is_deed(&request) {
                let _ = deeds.send(request);
            }
        }
        let identity = &reader.client.welcome().identity;
        let connected = Update::Connected { me: identity.agent_id.clone(), name: identity.display_name.clone() };
        if updates.send(connected).await.is_err() {
            return;
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(reader.clone().answer(Request::Rooms));
        loop {
            tokio::select! {
                () = reader.client.rpc().on_disconnect() => break,
                request = requests.recv() => match request {
                    None => return,
                    Some(request) if is_deed(&request) => {
                        let _ = deeds.send(request);
                    }
                    Some(request) => {
                        tasks.spawn(reader.clone().answer(request));
                    }
                },
                Some(_) = tasks.join_next() => {}
            }
        }
        reader.lock().tasks.abort_all();
        let lost = "the daemon closed the connection; connecting again".to_owned();
        if updates.send(Update::Disconnected(lost)).await.is_err() {
            return;
        }
    }
}

fn is_deed(request: &Request) -> bool {
    matches!(request, Request::Do(..) | Request::Confirm { .. })
}

/// One connection that reads and follows.
struct Reader {
    client: Client,
    settings: Settings,
    me: AgentId,
    updates: Sender<Update>,
    followed: Mutex<Followed>,
}

#[derive(Default)]
struct Followed {
    rooms: HashMap<RoomId, Arc<Follow>>,
    tasks: JoinSet<()>,
    /// The room whose deliveries are followed.
    deliveries: Option<tokio::task::AbortHandle>,
}

/// A room that is followed.
struct Follow {
    /// Wakes the look at the room.
    look: Notify,
    /// Whether its events are followed by now, or will not be.
    is_ready: watch::Sender<bool>,
}

impl Reader {
    fn new(client: Client, settings: Settings, updates: Sender<Update>) -> Self {
        let me = client.welcome().identity.agent_id.clone();
        Self { client, settings, me, updates, followed: Mutex::default() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call<M: Method>(&self, request: M) -> Result<M::Answer, Error> {
        call(&self.client, request).await
    }

    async fn tell(&self, update: Update) {
        // Nobody listens any more when the console ends.
        let _ = self.updates.send(update).await;
    }

    /// Answers one request, or says why not. A connection that was cut is said elsewhere.
    async fn answer(self: Arc<Self>, request: Request) {
        let answer = self.try_answer(request).await;
        if let Err(e) = answer
            && e.code != ErrorCode::DaemonUnreachable
        {
            self.tell(Update::Refused(describe(&e))).await;
        }
    }

    async fn try_answer(self: &Arc<Self>, request: Request) -> Result<(), Error> {
        let update = match request {
            Request::Rooms => return self.list_rooms().await,
            Request::Look(room) => {
                if let Some(follow) = self.lock().rooms.get(&room) {
                    follow.look.notify_one();
                }
                return Ok(());
            }
            Request::Open(room) => return self.open(room).await,
            Request::Before { room, seq } => {
                let page = GetRoomEvents { before_event_seq: Some(seq), ..page_of(&room) };
                Update::Before { page: Box::new(self.call(page).await?), room, seq }
            }
            Request::After { room, seq } => {
                let page = GetRoomEvents { after_event_seq: Some(seq), ..page_of(&room) };
                Update::After { page: Box::new(self.call(page).await?), room, seq }
            }
            Request::Around { room, seq } => {
                let page = GetRoomEvents { before_event_seq: Some(seq.saturating_add(1)), ..page_of(&room) };
                Update::Around { page: Box::new(self.call(page).await?), room, seq }
            }
            Request::MessageStatus { room, seq } => {
                let status = self.call(GetMessageStatus { room_id: room.clone(), event_seq: seq }).await?;
                Update::Recipients { room, seq, recipients: status.recipients }
            }
            Request::Search { room, words } => {
                let search = GetRoomEvents { grep: Some(words.clone()), limit: Some(MAX_FOUND), ..page_of(&room) };
                Update::Found { events: self.call(search).await?.events, room, words }
            }
            Request::Notes(room) => Update::Notes { notes: self.notes(&room).await?, room },
            Request::Inbox => Update::Inbox(self.inbox().await?),
            Request::Do(..) | Request::Confirm { .. } => return Ok(()),
        };
        self.tell(update).await;
        Ok(())
    }

    async fn notes(&self, room: &RoomId) -> Result<Vec<tt_proto::note::Note>, Error> {
        Ok(self.call(ListNotes { room_id: room.clone(), ..Default::default() }).await?.notes)
    }

    async fn list_rooms(self: &Arc<Self>) -> Result<(), Error> {
        let mut rooms = Vec::new();
        loop {
            let after_path = rooms.last().map(|room: &tt_proto::room::RoomSummary| room.canonical_path.clone());
            let page = self.call(ListRooms { after_path, ..Default::default() }).await?;
            let more = page.more && !page.rooms.is_empty();
            rooms.extend(page.rooms);
            if !more {
                break;
            }
        }
        let mut newest: Vec<(tt_proto::WallTime, RoomId)> =
            rooms.iter().map(|room| (room.updated_at, room.room_id.clone())).collect();
        newest.sort_by(|one, other| other.cmp(one));
        self.tell(Update::Rooms(rooms)).await;
        self.follow_all(newest.into_iter().map(|(_, room)| room).take(MAX_FOLLOWED).collect()).await
    }

    /// Follows the rooms that are not followed yet, on as many connections as that takes.
    async fn follow_all(self: &Arc<Self>, rooms: Vec<RoomId>) -> Result<(), Error> {
        let new: Vec<RoomId> = {
            let followed = self.lock();
            rooms.into_iter().filter(|room| !followed.rooms.contains_key(room)).collect()
        };
        for rooms in new.chunks(ROOMS_PER_CONNECTION) {
            let client = Arc::new(Client::connect(self.settings.clone()).await?);
            let mut followed = self.lock();
            for room in rooms {
                let follow = Arc::new(Follow { look: Notify::new(), is_ready: watch::Sender::new(false) });
                followed.rooms.insert(room.clone(), follow.clone());
                followed.tasks.spawn(self.clone().look_on(room.clone(), follow.clone()));
                let (this, client, room) = (self.clone(), client.clone(), room.clone());
                followed.tasks.spawn(async move {
                    this.follow(&client, room, &follow).await;
                    follow.is_ready.send_replace(true);
                });
            }
        }
        Ok(())
    }

    /// Passes on what happens in a room, and has it looked at.
    async fn follow(&self, client: &Client, room: RoomId, follow: &Follow) {
        let Ok(state) = self.call(GetRoomState { room_id: room.clone(), ..Default::default() }).await else { return };
        let mut cursor = state.cursor_event_seq;
        follow.look.notify_one();
        loop {
            let (after_event_seq, target_agent_id) = (Some(cursor), Some("any".to_owned()));
            let all = SubscribeEvents { room_id: room.clone(), after_event_seq, target_agent_id, ..Default::default() };
            let Ok(mut items) = client.rpc().subscribe(&all).await else { return };
            follow.is_ready.send_replace(true);
            // A stream that was not read fast enough breaks off. The next one goes on where it was.
            while let Some(Ok(item)) = items.next().await {
                cursor = item.cursor_event_seq;
                if let Some(event) = item.event {
                    self.tell(Update::Event { room: room.clone(), event: Box::new(event) }).await;
                    follow.look.notify_one();
                }
                if item.resync.is_some_and(|resync| resync.reason == "room_deleted") {
                    self.lock().rooms.remove(&room);
                    return self.tell(Update::RoomDeleted(room)).await;
                }
            }
            if !client.rpc().is_connected() {
                return;
            }
        }
    }

    /// Looks at a room whenever it may have changed.
    async fn look_on(self: Arc<Self>, room: RoomId, follow: Arc<Follow>) {
        loop {
            follow.look.notified().await;
            let Ok(state) = self.call(GetRoomState { room_id: room.clone(), ..Default::default() }).await else {
                return;
            };
            let is_member = state.members.iter().any(|member| member.agent_id == self.me && member.status.is_member());
            let questions = if is_member { self.questions(&room).await.unwrap_or_default() } else { Vec::new() };
            self.tell(Update::State { room: room.clone(), state: Box::new(state), questions }).await;
        }
    }

    /// The questions to us that are not answered and not over.
    async fn questions(&self, room: &RoomId) -> Result<Vec<i64>, Error> {
        let request = ListWaiting { room_id: room.clone(), questions: Some(true), ..Default::default() };
        let open = self.call(request).await?.deliveries.into_iter();
        Ok(open.filter(|delivery| !delivery.recipient.is_over).map(|delivery| delivery.event_seq).collect())
    }

    async fn open(self: &Arc<Self>, room: RoomId) -> Result<(), Error> {
        if let Some(last) = self.lock().deliveries.take() {
            last.abort();
        }
        // Followed before anything is read, so that no change is missed between the two.
        let any = SubscribeDeliveries { room_id: room.clone(), target_agent_id: Some("any".to_owned()) };
        let mut items = self.client.rpc().subscribe(&any).await.map_err(failure)?;
        let (this, followed) = (self.clone(), room.clone());
        let following = self.lock().tasks.spawn(async move {
            while let Some(Ok(item)) = items.next().await {
                if let Some(change) = item.delivery {
                    this.tell(Update::Delivery(Box::new(change))).await;
                }
                if item.resync.is_some() {
                    this.tell(Update::DeliveriesMissed(followed.clone())).await;
                }
            }
        });
        self.lock().deliveries = Some(following);
        self.follow_all(vec![room.clone()]).await?;
        let follow = self.lock().rooms.get(&room).cloned();
        if let Some(follow) = follow {
            let mut is_ready = follow.is_ready.subscribe();
            let _ = tokio::time::timeout(DEADLINE, is_ready.wait_for(|is_ready| *is_ready)).await;
        }
        let state = self.call(GetRoomState { room_id: room.clone(), all: Some(true) }).await?;
        let (page, notes) = (self.call(page_of(&room)).await?, self.notes(&room).await?);
        self.tell(Update::Opened { room, page: Box::new(page), members: state.members, notes }).await;
        Ok(())
    }

    async fn inbox(&self) -> Result<Vec<InboxLine>, Error> {
        let mut lines = Vec::new();
        let rooms = self.call(ListInbox {}).await?.rooms;
        let mut rooms: Vec<RoomId> = rooms.into_iter().map(|room| room.room_id).collect();
        let followed: Vec<RoomId> = self.lock().rooms.keys().cloned().collect();
        rooms.extend(followed);
        let mut looked = std::collections::HashSet::new();
        for room in rooms.into_iter().filter(|room| looked.insert(room.clone())).take(MAX_INBOX) {
            for questions in [false, true] {
                let request = ListWaiting {
                    room_id: room.clone(),
                    questions: Some(questions),
                    limit: Some(MAX_INBOX),
                    ..Default::default()
                };
                // A room in which we are no member has nothing for us.
                let Ok(waiting) = self.call(request).await else { break };
                for delivery in waiting.deliveries {
                    let is_known = lines.iter().any(|line: &InboxLine| line.seq == delivery.event_seq);
                    let waits = delivery.recipient.state == DeliveryState::Pending || questions;
                    if is_known || !waits || delivery.recipient.is_over {
                        continue;
                    }
                    lines.push(InboxLine {
                        room: room.clone(),
                        seq: delivery.event_seq,
                        from: delivery.from_agent_id,
                        at: delivery.sent_at,
                        is_question: delivery.expects_reply,
                        excerpt: tt_proto::escape::escape_text(&delivery.excerpt),
                    });
                }
            }
        }
        lines.sort_by_key(|line| std::cmp::Reverse((line.is_question, line.at)));
        Ok(lines)
    }
}

fn page_of(room: &RoomId) -> GetRoomEvents {
    GetRoomEvents { room_id: room.clone(), limit: Some(PAGE), ..Default::default() }
}

/// Makes one call, once.
async fn call<M: Method>(client: &Client, request: M) -> Result<M::Answer, Error> {
    match tokio::time::timeout(DEADLINE, client.rpc().call(request)).await {
        Ok(answer) => answer.map_err(failure),
        Err(_) => Err(Error::new(ErrorCode::DaemonUnreachable, "the daemon did not answer in time")),
    }
}

fn failure(error: tt_client::connect::ClientError) -> Error {
    match error {
        tt_client::connect::ClientError::Call(refusal) => Error::from(&refusal),
        cut => Error::new(ErrorCode::DaemonUnreachable, cut.to_string()),
    }
}

/// An error on one line, with what to do about it.
pub(crate) fn describe(error: &Error) -> String {
    let text = if error.hint.is_empty() { error.message.clone() } else { format!("{}; {}", error.message, error.hint) };
    tt_proto::escape::escape_text(&text)
}

/// The surface that shows messages here.
pub(crate) const SURFACE: Surface = Surface::Follow;
