//! Asks the daemon of a harness which of its sessions are open and what they do. Codex has one: JSON-RPC without the version
//! field, over a WebSocket on a Unix socket.
//!
//! There is one connection for each such daemon, made when a session of it is first heard of. Nothing is asked
//! regularly: the daemon reports changes. If it cannot be reached, answers late or answers something else, then nothing
//! is known of its sessions from here.
//!
//! The connection that follows only listens. It must not become a subscriber of a thread: Codex keeps a thread open for as long as
//! somebody is subscribed to it, and its member would never be gone.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use soketto::handshake::{Client, ServerResponse};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{self, Receiver, UnboundedReceiver};
use tokio::time::timeout;
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};
use tt_proto::hello::Anchor;
use tt_proto::session::SessionStatus;
use tt_proto::{VERSION, WallTime};

use super::evidence::ServerSays;

/// How long connecting may take, and how long an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest message that is read.
const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// Messages that were read and not looked at yet.
const MAX_UNREAD_MESSAGES: usize = 64;

/// What the daemon said of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadNews {
    pub session_id: String,
    pub says: ServerSays,
    /// What the session does, in the daemon's words.
    pub status: Option<(SessionStatus, String)>,
    /// When the daemon said so, if it told.
    pub at: Option<WallTime>,
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("the socket belongs to another process")]
    OtherProcess,
    #[error("it does not speak WebSocket: {0}")]
    Handshake(String),
    #[error("it did not answer in time")]
    TimedOut,
    #[error("it closed the connection, or sent what cannot be read")]
    Closed,
}

/// Follows the daemon at a socket until it ends or misbehaves. `wanted` names sessions to ask about.
pub async fn follow(
    socket: &Path,
    server: &Anchor,
    wanted: &mut UnboundedReceiver<String>,
    tell: impl Fn(ThreadNews),
) -> Result<(), Ended> {
    let mut link = Link::open(socket, server, &tell).await?;
    loop {
        tokio::select! {
            session_id = wanted.recv() => {
                let Some(session_id) = session_id else { return Ok(()) };
                let params = json!({"threadId": session_id, "includeTurns": false});
                let answer = link.ask("thread/read", params, &tell).await?;
                if let Some(status) = answer.pointer("/result/thread/status") {
                    read_status(&session_id, status, None).into_iter().for_each(&tell);
                }
            }
            message = link.incoming.recv() => {
                let message = message.ok_or(Ended::Closed)?;
                link.note(&message, &tell).await?;
            }
        }
    }
}

/// An open connection.
pub struct Link {
    sender: soketto::Sender<Compat<UnixStream>>,
    incoming: Receiver<Value>,
    next_id: u64,
    /// Reads until it is dropped with the link.
    _reader: tokio::task::JoinSet<()>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("next_id", &self.next_id).finish_non_exhaustive()
    }
}

impl Link {
    /// Connects to the daemon that is this process, and greets it. What it reports meanwhile is told.
    pub async fn open(socket: &Path, server: &Anchor, tell: &impl Fn(ThreadNews)) -> Result<Self, Ended> {
        let mut link = timeout(CONNECT_TIMEOUT, Self::connect(socket, server)).await.map_err(|_| Ended::TimedOut)??;
        let client = json!({"name": "talking-stick", "title": "Talking Stick", "version": VERSION});
        let hello = json!({"clientInfo": client, "capabilities": {"experimentalApi": true}});
        link.ask("initialize", hello, tell).await?;
        link.send(json!({"method": "initialized"})).await?;
        Ok(link)
    }

    /// Makes a call, and returns its result, or the words in which it was refused.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Result<Value, String>, Ended> {
        let mut answer = self.ask(method, params, &|_| {}).await?;
        match answer.get_mut("result") {
            Some(result) => Ok(Ok(result.take())),
            None => {
                let message = answer.pointer("/error/message").and_then(Value::as_str);
                Ok(Err(message.ok_or(Ended::Closed)?.to_owned()))
            }
        }
    }

    async fn connect(socket: &Path, server: &Anchor) -> Result<Self, Ended> {
        let stream = UnixStream::connect(socket).await.map_err(Ended::Connect)?;
        let peer = stream.peer_cred().map_err(Ended::Connect)?;
        // Another daemon at this path knows nothing of the sessions of that one.
        if peer.uid() != nix::unistd::getuid().as_raw() || peer.pid().map(|pid| pid.cast_unsigned()) != Some(server.pid)
        {
            return Err(Ended::OtherProcess);
        }
        let mut client = Client::new(stream.compat(), "localhost", "/");
        match client.handshake().await {
            Ok(ServerResponse::Accepted { .. }) => {}
            Ok(other) => return Err(Ended::Handshake(format!("{other:?}"))),
            Err(e) => return Err(Ended::Handshake(e.to_string())),
        }
        let mut builder = client.into_builder();
        builder.set_max_message_size(MAX_MESSAGE_BYTES);
        builder.set_max_frame_size(MAX_MESSAGE_BYTES);
        let (sender, mut receiver) = builder.finish();
        let (messages, incoming) = mpsc::channel(MAX_UNREAD_MESSAGES);
        let mut reader = tokio::task::JoinSet::new();
        // A task of its own, because reading must not be broken off in the middle of a message.
        reader.spawn(async move {
            let mut bytes = Vec::new();
            while receiver.receive_data(&mut bytes).await.is_ok() {
                let Ok(message) = serde_json::from_slice(&bytes) else { return };
                if messages.send(message).await.is_err() {
                    return;
                }
                bytes.clear();
            }
        });
        Ok(Self { sender, incoming, next_id: 1, _reader: reader })
    }

    async fn send(&mut self, message: Value) -> Result<(), Ended> {
        let write = async {
            self.sender.send_text(message.to_string()).await?;
            self.sender.flush().await
        };
        timeout(ANSWER_TIMEOUT, write).await.map_err(|_| Ended::TimedOut)?.map_err(|_| Ended::Closed)
    }

    /// Makes a call without waiting for the answer, and returns its id.
    async fn send_call(&mut self, method: &str, params: Value) -> Result<u64, Ended> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(json!({"id": id, "method": method, "params": params})).await?;
        Ok(id)
    }

    /// Makes a call. What the daemon reports in the meantime is told.
    async fn ask(&mut self, method: &str, params: Value, tell: &impl Fn(ThreadNews)) -> Result<Value, Ended> {
        let id = self.send_call(method, params).await?;
        let answer = async {
            loop {
                let message = self.incoming.recv().await.ok_or(Ended::Closed)?;
                if message.get("method").is_none() && message.get("id").and_then(Value::as_u64) == Some(id) {
                    return Ok(message);
                }
                self.note(&message, tell).await?;
            }
        };
        timeout(ANSWER_TIMEOUT, answer).await.map_err(|_| Ended::TimedOut)?
    }

    /// Tells what the daemon reports. A subscription that it gave us is ended.
    async fn note(&mut self, message: &Value, tell: &impl Fn(ThreadNews)) -> Result<(), Ended> {
        if let Some(thread) = subscribed_to(message) {
            self.send_call("thread/unsubscribe", json!({"threadId": thread})).await?;
        }
        read_notification(message).into_iter().for_each(tell);
        Ok(())
    }
}

/// The thread whose turns are reported to us, which means that we are subscribed to it. Some versions of Codex subscribe every
/// connection to every new thread.
fn subscribed_to(message: &Value) -> Option<&str> {
    let is_turn = message.get("method")? == "turn/started";
    message.pointer("/params/threadId").and_then(Value::as_str).filter(|_| is_turn)
}

/// What a notification says of a session.
pub fn read_notification(message: &Value) -> Option<ThreadNews> {
    let at = message.get("emittedAtMs").and_then(Value::as_i64).map(WallTime::from_millis);
    let params = message.get("params")?;
    let session_id = || params.get("threadId").and_then(Value::as_str);
    match message.get("method")?.as_str()? {
        "thread/status/changed" => read_status(session_id()?, params.get("status")?, at),
        "thread/closed" => {
            Some(ThreadNews { session_id: session_id()?.to_owned(), says: ServerSays::Closed, status: None, at })
        }
        "thread/started" => read_status(params.pointer("/thread/id")?.as_str()?, params.pointer("/thread/status")?, at),
        _ => None,
    }
}

/// Reads the status of a session. None for one that is not known.
pub fn read_status(session_id: &str, status: &Value, at: Option<WallTime>) -> Option<ThreadNews> {
    let flags = status.get("activeFlags").and_then(Value::as_array);
    let asks =
        flags.is_some_and(|flags| flags.iter().any(|flag| flag == "waitingOnApproval" || flag == "waitingOnUserInput"));
    let kind = status.get("type").and_then(Value::as_str)?;
    let (says, status) = match kind {
        "notLoaded" => (ServerSays::Closed, None),
        "idle" | "systemError" => (ServerSays::Open, Some(SessionStatus::Idle)),
        "active" if asks => (ServerSays::Open, Some(SessionStatus::Asking)),
        "active" => (ServerSays::Open, Some(SessionStatus::Busy)),
        _ => return None,
    };
    let status = status.map(|status| (status, kind.to_owned()));
    Some(ThreadNews { session_id: session_id.to_owned(), says, status, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_is_reported_means_a_subscription() {
        let of = |text: &str| subscribed_to(&serde_json::from_str(text).unwrap()).map(str::to_owned);
        assert_eq!(of(r#"{"method":"turn/started","params":{"threadId":"t"}}"#).as_deref(), Some("t"));
        for other in [r#"{"method":"turn/started"}"#, r#"{"method":"thread/started","params":{"threadId":"t"}}"#, "[]"]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn notifications_are_read_and_unknown_ones_are_left() {
        let news = |text: &str| {
            let news = read_notification(&serde_json::from_str(text).unwrap())?;
            Some((news.session_id, news.says, news.status.map(|(status, _)| status)))
        };
        let status = |status: &str| {
            news(&format!(r#"{{"method":"thread/status/changed","params":{{"threadId":"t","status":{status}}}}}"#))
        };
        let open = |status| Some(("t".to_owned(), ServerSays::Open, Some(status)));
        assert_eq!(status(r#"{"type":"idle"}"#), open(SessionStatus::Idle));
        assert_eq!(status(r#"{"type":"active","activeFlags":[]}"#), open(SessionStatus::Busy));
        assert_eq!(status(r#"{"type":"active","activeFlags":["waitingOnApproval"]}"#), open(SessionStatus::Asking));
        assert_eq!(status(r#"{"type":"notLoaded"}"#), Some(("t".to_owned(), ServerSays::Closed, None)));
        assert_eq!(
            news(r#"{"method":"thread/closed","params":{"threadId":"t"}}"#),
            Some(("t".to_owned(), ServerSays::Closed, None))
        );
        for other in [r#"{"type":"levitating"}"#, r#"{}"#, "7", "null"] {
            assert_eq!(status(other), None, "{other}");
        }
        for other in ["{}", "[]", "7", r#"{"method":"thread/closed"}"#, r#"{"method":7,"params":{}}"#] {
            assert_eq!(news(other), None, "{other}");
        }
    }
}
