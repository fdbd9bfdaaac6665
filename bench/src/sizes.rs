//! Whether a long log or many rooms make anything slower: the same calls against databases of three sizes, and how long a search
//! takes in the longest log.

use std::sync::Arc;

use rusqlite::{Connection, params};
use tt_client::connect::Client;
use tt_proto::RoomId;
use tt_proto::policy::Policy;
use tt_proto::requests::{GetRoomEvents, GetRoomState, SendMessage, TakeMessages};
use tt_store::sqlite::SqliteStore;
use tt_store::{Maintenance, Store};

use crate::limits::BODY;
use crate::roles::key;
use crate::samples::{Samples, now};
use crate::scratch::Scratch;
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

const EVENTS: [usize; 3] = [1_000, 100_000, 1_000_000];
const ROOMS: [usize; 3] = [1, 100, 10_000];
const DELIVERED: [usize; 2] = [100, 100_000];

/// How much of its log a reader that comes back replays.
const TAIL: i64 = 100;

/// Samples of one size before the next has its turn.
const BLOCK: usize = 20;

/// How many events are added to the full-text index at once.
const INDEX_STEP: usize = 10_000;

/// The most that a search may take, in microseconds: for a word of one event, and for a word of every event.
const MAX_SEARCH_TIMES: [f64; 2] = [5_000.0, 60_000.0];

const CALLS: [&str; 3] = ["send", "tail", "state"];

/// What delivered messages could slow down.
const DELIVERY_CALLS: [&str; 3] = ["send", "take", "state"];

pub(crate) async fn run(effort: Effort) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    let mut events = Vec::new();
    // A million rows take their time to write; a quick run leaves them out.
    for size in EVENTS.into_iter().take(effort.of(3, 2)) {
        events.push((size, House::with(1, size, false).await?));
    }
    rows.extend(compare("events", &events, &CALLS, effort).await?);
    if let Some((size, house)) = events.last() {
        rows.extend(search(*size, house, effort).await?);
    }
    drop(events);
    let mut rooms = Vec::new();
    for size in ROOMS {
        rooms.push((size, House::with(size, 20, false).await?));
    }
    rows.extend(compare("rooms", &rooms, &CALLS, effort).await?);
    drop(rooms);
    let mut delivered = Vec::new();
    for size in DELIVERED {
        delivered.push((size, House::with(1, size, true).await?));
    }
    rows.extend(compare("delivered", &delivered, &DELIVERY_CALLS, effort).await?);
    Ok(rows)
}

/// A daemon on a database of a given size, and a member of one of its rooms.
struct House {
    client: Client,
    room: RoomId,
    _scratch: Scratch,
}

impl House {
    /// `delivered`: each message was handed over to the member, some as a question that it answered.
    async fn with(rooms: usize, events_each: usize, delivered: bool) -> Fallible<Self> {
        let mut scratch = Scratch::new()?;
        let own = scratch.workspace().canonicalize()?.display().to_string();
        fill(&scratch, &own, rooms, events_each)?;
        if delivered {
            deliver(&scratch)?;
        }
        index(&scratch).await?;
        scratch.start().await?;
        scratch.member("bench:other").await?;
        let (client, room) = scratch.member("bench:sender").await?;
        Ok(Self { client, room, _scratch: scratch })
    }

    async fn call(&self, call: &str) -> Fallible<()> {
        let (rpc, room) = (self.client.rpc(), self.room.clone());
        match call {
            "send" => drop(
                rpc.call(SendMessage {
                    room_id: room,
                    body: BODY.into(),
                    idempotency_key: key(),
                    ..Default::default()
                })
                .await?,
            ),
            "take" => {
                let take = TakeMessages { room_id: room, surface: "recv".into(), ..Default::default() };
                rpc.call(take).await?;
            }
            "state" => drop(rpc.call(GetRoomState { room_id: room, ..Default::default() }).await?),
            _ => {
                let newest =
                    rpc.call(GetRoomState { room_id: room.clone(), ..Default::default() }).await?.cursor_event_seq;
                self.tail(newest).await?;
            }
        }
        Ok(())
    }

    /// Searches for events with this word, as `tt events --grep` does. Returns how many came.
    async fn find(&self, word: &str) -> Fallible<usize> {
        let search = GetRoomEvents { room_id: self.room.clone(), grep: Some(word.to_owned()), ..Default::default() };
        Ok(self.client.rpc().call(search).await?.events.len())
    }

    async fn tail(&self, newest: i64) -> Fallible<()> {
        let after = Some((newest - TAIL).max(0));
        self.client
            .rpc()
            .call(GetRoomEvents {
                room_id: self.room.clone(),
                after_event_seq: after,
                limit: Some(20),
                ..Default::default()
            })
            .await?;
        Ok(())
    }
}

/// Writes rooms and logs straight into the tables; through the daemon a million would take minutes.
fn fill(scratch: &Scratch, own: &str, rooms: usize, events_each: usize) -> Fallible<()> {
    SqliteStore::create(&scratch.database())?;
    let connection = Connection::open(scratch.database())?;
    connection.execute_batch("PRAGMA synchronous = OFF; BEGIN")?;
    let wall = ttd::clock::wall().to_string();
    let mut room = connection
        .prepare("INSERT INTO path_rooms (room_id, canonical_path, state, updated_at) VALUES (?1, ?2, 'idle', ?3)")?;
    let mut members = connection.prepare(
        "INSERT INTO room_members (room_id, agent_id, ordinal, status, joined_at, last_seen_at)
         VALUES (?1, 'bench:other', 1, 'active', ?2, ?2), (?1, 'bench:sender', 2, 'active', ?2, ?2)",
    )?;
    // Random ids, where the daemon makes them in order: no better for it.
    let mut events = connection.prepare(
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
         INSERT INTO room_events (event_id, room_id, turn_id, event_type, from_agent_id, created_at, payload_json)
         SELECT lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-' || hex(randomblob(2)) || '-' ||
                hex(randomblob(2)) || '-' || hex(randomblob(6))), ?1, 1, 'message_sent', 'bench:other', ?3,
                json_object('body', ?4 || ' item' || i, 'delivery_hint', 'normal') FROM n",
    )?;
    for n in 0..rooms {
        let id = RoomId::fresh();
        let path = if n == rooms / 2 { own.to_owned() } else { format!("{own}-{n}") };
        room.execute(params![id.as_str(), path, wall])?;
        members.execute(params![id.as_str(), wall])?;
        events.execute(params![id.as_str(), i64::try_from(events_each)?, wall, BODY])?;
    }
    Ok(connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?)
}

/// Marks every message as handed over long ago.
fn deliver(scratch: &Scratch) -> Fallible<()> {
    let connection = Connection::open(scratch.database())?;
    Ok(connection.execute_batch(
        "INSERT INTO deliveries (event_seq, recipient_agent_id, room_id, from_agent_id, state, surface, expects_reply)
         SELECT event_seq, 'bench:sender', room_id, from_agent_id, iif(event_seq % 3, 'delivered', 'answered'), 'recv',
                event_seq % 2 FROM room_events;
         PRAGMA wal_checkpoint(TRUNCATE)",
    )?)
}

/// Fills the full-text index, as the daemon would in small steps.
async fn index(scratch: &Scratch) -> Fallible<()> {
    let clock = Arc::new(ttd::clock::Clock::default());
    let store = SqliteStore::open_volatile(&scratch.database(), clock, Policy::default())?;
    while store.reader()?.has_unindexed_events()? {
        store.maintain(Maintenance::IndexEvents { limit: INDEX_STEP }).await??;
    }
    Ok(())
}

/// Searches for a word that one event has, and for one that every event has.
async fn search(size: usize, house: &House, effort: Effort) -> Fallible<Vec<Row>> {
    let rare = format!("item{}", size / 2);
    let searches =
        [("search", rare.as_str(), "a word of one event"), ("search-common", "renderer", "a word of every event")];
    let mut rows = Vec::new();
    for ((name, word, what), most) in searches.into_iter().zip(MAX_SEARCH_TIMES) {
        let expected = if name == "search" { 1 } else { 50 };
        let mut samples = Samples::default();
        for round in 0..effort.of(200, 40) + 10 {
            let from = now();
            let found = house.find(word).await?;
            if found != expected {
                return Err(format!("a search for {word} found {found} events").into());
            }
            if round >= 10 {
                samples.add(from, now());
            }
        }
        let name = format!("sizes-events-{size}-{name}");
        rows.push(Row::times(&name, &format!("search for {what} among {size}"), &samples, Target::Most(most)));
    }
    Ok(rows)
}

/// Samples each call on each house in turns and holds the larger ones against the smallest.
async fn compare(of: &str, houses: &[(usize, House)], calls: &[&str], effort: Effort) -> Fallible<Vec<Row>> {
    let mut rows = Vec::new();
    for call in calls.iter().copied() {
        let mut samples = vec![Samples::default(); houses.len()];
        for (_, house) in houses {
            for _ in 0..50 {
                house.call(call).await?;
            }
        }
        for _ in 0..effort.of(2_000, 400) / BLOCK {
            for ((_, house), samples) in houses.iter().zip(&mut samples) {
                let newest = house
                    .client
                    .rpc()
                    .call(GetRoomState { room_id: house.room.clone(), ..Default::default() })
                    .await?
                    .cursor_event_seq;
                for _ in 0..BLOCK {
                    let from = now();
                    match call {
                        "tail" => house.tail(newest).await?,
                        call => house.call(call).await?,
                    }
                    samples.add(from, now());
                }
            }
        }
        let smallest = samples[0].p50();
        for ((size, _), samples) in houses.iter().zip(&samples).skip(1) {
            let name = format!("sizes-{of}-{size}-{call}");
            let row = Row::times(&name, &format!("{call} at {size} {of}"), samples, Target::MostTimes(1.3));
            rows.push(row.against(&format!("at {} {of} p50", houses[0].0), smallest));
        }
    }
    Ok(rows)
}
