//! The daemon of Codex takes messages for its threads: it starts a turn in one that is idle, and adds to the turn of one that
//! works. Each message has an id of the sender's, which the thread's history shows again.
//!
//! A thread stays open for a minute after its terminal has quit, and a turn that is started in it would run with nobody there. The
//! daemon does not tell who is connected, so a message is handed over only if there are at least as many terminals as open
//! threads.

use std::path::Path;

use serde_json::{Value, json};
use tt_proto::hello::Anchor;
use tt_proto::session::SessionStatus;

use super::NotSent;
use crate::sessions::codex::{Ended, Link, read_status};
use crate::sessions::evidence::ServerSays;

/// With more open threads than this, none is handed a message.
const MAX_THREADS: usize = 32;

/// How many of a thread's last turns are searched for a message.
const TURNS_SEARCHED: usize = 5;

/// A thread of a daemon.
#[derive(Debug, Clone, Copy)]
pub struct Thread<'a> {
    pub socket: &'a Path,
    pub server: &'a Anchor,
    pub id: &'a str,
}

/// Hands a text to a thread, under an id. `Ok`: the daemon has taken it. `terminals`: how many terminals are connected to the daemon,
/// at most; none if that cannot be told.
pub async fn send(thread: Thread<'_>, terminals: Option<usize>, message_id: &str, text: &str) -> Result<(), NotSent> {
    let mut link = Link::open(thread.socket, thread.server, &|_| {}).await.map_err(NotSent::refused)?;
    let read = ask(&mut link, "thread/read", json!({"threadId": thread.id, "includeTurns": false})).await?;
    let found = read.get("thread").ok_or_else(|| NotSent::refused("the thread is not known"))?;
    if found.get("canAcceptDirectInput").and_then(Value::as_bool) == Some(false) {
        return Err(NotSent::refused("the thread takes no messages"));
    }
    let status = found.get("status").and_then(|status| read_status(thread.id, status, None));
    let status = match status {
        Some(news) if news.says == ServerSays::Open => news.status.map(|(status, _)| status),
        _ => return Err(NotSent::refused("the thread is closed")),
    };
    if terminals.is_none_or(|terminals| terminals == 0) || count_open(&mut link).await? > terminals.unwrap_or(0) {
        return Err(NotSent::Unwatched);
    }
    let input = json!([{"type": "text", "text": text}]);
    let mut params = json!({"threadId": thread.id, "input": input, "clientUserMessageId": message_id});
    let method = match status {
        Some(SessionStatus::Idle) => "turn/start",
        Some(SessionStatus::Busy) => {
            let turn = running_turn(&mut link, thread.id).await?;
            params["expectedTurnId"] = turn.ok_or_else(|| NotSent::refused("its turn just ended"))?.into();
            "turn/steer"
        }
        Some(SessionStatus::Asking) => return Err(NotSent::Asking),
        _ => return Err(NotSent::refused("it is not known what the thread does")),
    };
    // From here on the message may have been taken although no answer came.
    link.call(method, params).await.map_err(NotSent::unclear)?.map_err(NotSent::Refused)?;
    Ok(())
}

/// Whether the history of a thread shows a message with this id. None if it cannot be told.
pub async fn has(thread: Thread<'_>, message_id: &str) -> Option<bool> {
    let mut link = Link::open(thread.socket, thread.server, &|_| {}).await.ok()?;
    let turns = last_turns(&mut link, thread.id, TURNS_SEARCHED, "full").await.ok()?;
    let items = turns.iter().filter_map(|turn| turn.get("items")?.as_array()).flatten();
    Some(items.filter_map(|item| item.get("clientId")?.as_str()).any(|id| id == message_id))
}

/// How many threads are open that a terminal may show: not those that Codex keeps for itself, nor those of subagents.
async fn count_open(link: &mut Link) -> Result<usize, NotSent> {
    let loaded = ask(link, "thread/loaded/list", json!({"limit": MAX_THREADS})).await?;
    let ids: Vec<&str> =
        loaded.get("data").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if loaded.get("nextCursor").is_some_and(|cursor| !cursor.is_null()) || ids.len() > MAX_THREADS {
        return Err(NotSent::Unwatched);
    }
    let mut open = 0;
    for id in ids {
        // One that was closed meanwhile is not open.
        let params = json!({"threadId": id, "includeTurns": false});
        if let Ok(read) = link.call("thread/read", params).await.map_err(NotSent::refused)? {
            open += usize::from(read.get("thread").is_some_and(is_for_a_terminal));
        }
    }
    Ok(open)
}

fn is_for_a_terminal(thread: &Value) -> bool {
    let is_ephemeral = thread.get("ephemeral").and_then(Value::as_bool).unwrap_or(false);
    let has_parent = thread.get("parentThreadId").is_some_and(Value::is_string);
    let is_loaded = thread.pointer("/status/type").and_then(Value::as_str) != Some("notLoaded");
    is_loaded && !is_ephemeral && !has_parent
}

/// The turn that a thread is in.
async fn running_turn(link: &mut Link, thread: &str) -> Result<Option<String>, NotSent> {
    let turns = last_turns(link, thread, 1, "notLoaded").await?;
    let last = turns.first().filter(|turn| turn.get("status").and_then(Value::as_str) == Some("inProgress"));
    Ok(last.and_then(|turn| turn.get("id")?.as_str()).map(str::to_owned))
}

/// The last turns of a thread, the newest first.
async fn last_turns(link: &mut Link, thread: &str, limit: usize, items: &str) -> Result<Vec<Value>, NotSent> {
    let params = json!({"threadId": thread, "limit": limit, "sortDirection": "desc", "itemsView": items});
    let mut page = ask(link, "thread/turns/list", params).await?;
    match page.get_mut("data").map(Value::take) {
        Some(Value::Array(turns)) => Ok(turns),
        _ => Err(NotSent::refused("the turns of the thread are not known")),
    }
}

/// Asks for something that changes nothing.
async fn ask(link: &mut Link, method: &str, params: Value) -> Result<Value, NotSent> {
    let answer: Result<Result<Value, String>, Ended> = link.call(method, params).await;
    answer.map_err(NotSent::refused)?.map_err(NotSent::Refused)
}
