//! The daemon of Codex, played on a socket: it knows threads, says what they do, closes them at a word, and can misbehave.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use soketto::handshake::Server;
use soketto::handshake::server::Response;
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast;
use tokio_util::compat::TokioAsyncReadCompatExt;

/// A message that is larger than any the daemon of Codex sends.
const HUGE_BYTES: usize = 5 * 1024 * 1024;

/// The turn that every thread is in.
const TURN: &str = "turn-1";

/// How the server behaves towards its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    Correct,
    /// Answers every call with something that is no JSON.
    Garbage,
    /// Answers every call with JSON that makes no sense.
    Nonsense,
    /// Answers every call with a message that is far too large.
    Huge,
    /// Hangs up at the first call.
    HangsUp,
    /// Takes a message and hangs up before it answers.
    LosesTurns,
    /// Never answers a call.
    Silent,
    /// Speaks something else.
    NoWebSocket,
    /// Accepts connections and never says a word.
    Mute,
}

/// What is sent to every client.
#[derive(Debug, Clone)]
enum News {
    Text(String),
    HangUp,
}

#[derive(Debug, Default)]
struct State {
    threads: BTreeMap<String, Value>,
    /// The method and the thread of every call that was received.
    calls: Vec<(String, String)>,
    connections: usize,
    ended: usize,
    /// Sent before the next answer.
    before_answer: Option<Value>,
    /// What each thread was sent: the id of the message and its text.
    messages: BTreeMap<String, Vec<(String, String)>>,
    /// Threads that Codex keeps for itself.
    ephemeral: Vec<String>,
}

/// A server on a thread of its own. It lives as long as the test.
#[derive(Debug, Clone)]
pub struct CodexServer {
    state: Arc<Mutex<State>>,
    news: broadcast::Sender<News>,
}

impl CodexServer {
    /// Starts to serve at this path.
    pub fn start(socket: &Path, manner: Manner) -> Self {
        std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let server = Self { state: Arc::default(), news: broadcast::Sender::new(64) };
        let this = server.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = UnixListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let this = this.clone();
                    tokio::spawn(async move {
                        this.state().connections += 1;
                        this.serve(stream, manner).await;
                        this.state().ended += 1;
                    });
                }
            });
        });
        server
    }

    /// A thread is loaded and does this.
    pub fn set(&self, thread: &str, status: &str) {
        self.set_flags(thread, status, &[]);
    }

    /// A thread is loaded, does this and waits for that.
    pub fn set_flags(&self, thread: &str, status: &str, flags: &[&str]) {
        let status = json!({"type": status, "activeFlags": flags});
        self.state().threads.insert(thread.to_owned(), status.clone());
        self.tell(json!({"method": "thread/status/changed", "params": {"threadId": thread, "status": status}}));
    }

    /// A thread is unloaded.
    pub fn close(&self, thread: &str) {
        self.state().threads.remove(thread);
        self.tell(json!({"method": "thread/closed", "params": {"threadId": thread}}));
    }

    /// A turn begins, and every client is told as if it were a subscriber.
    pub fn begin_turn(&self, thread: &str) {
        self.tell(turn_started(thread));
    }

    /// A turn begins just before the next call is answered.
    pub fn begin_turn_before_next_answer(&self, thread: &str) {
        self.state().before_answer = Some(turn_started(thread));
    }

    /// Misbehaves once, towards the clients that are connected.
    pub fn disturb(&self, manner: Manner) {
        let _ = self.news.send(match manner {
            Manner::HangsUp => News::HangUp,
            Manner::Huge => News::Text(huge()),
            _ => News::Text("}{ no JSON".to_owned()),
        });
    }

    /// A thread is unloaded, and all clients are lost before they are told.
    pub fn close_silently(&self, thread: &str) {
        self.state().threads.remove(thread);
        let _ = self.news.send(News::HangUp);
    }

    /// A thread that Codex keeps for itself is loaded.
    pub fn set_ephemeral(&self, thread: &str) {
        self.state().ephemeral.push(thread.to_owned());
        self.set(thread, "idle");
    }

    /// What a thread was sent: the ids and the texts of the messages.
    pub fn messages(&self, thread: &str) -> Vec<(String, String)> {
        self.state().messages.get(thread).cloned().unwrap_or_default()
    }

    /// How many connections there have been.
    pub fn connections(&self) -> usize {
        self.state().connections
    }

    /// How many of them are over.
    pub fn ended(&self) -> usize {
        self.state().ended
    }

    /// How often this was called about this thread.
    pub fn calls(&self, method: &str, thread: &str) -> usize {
        self.state().calls.iter().filter(|call| call.0 == method && call.1 == thread).count()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, news: Value) {
        let _ = self.news.send(News::Text(news.to_string()));
    }

    async fn serve(&self, mut stream: UnixStream, manner: Manner) {
        match manner {
            Manner::NoWebSocket => {
                let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n\r\n").await;
                return;
            }
            Manner::Mute => return std::future::pending().await,
            _ => {}
        }
        let mut server = Server::new(stream.compat());
        let key = server.receive_request().await.unwrap().key();
        server.send_response(&Response::Accept { key, protocol: None }).await.unwrap();
        let (mut sender, mut receiver) = server.into_builder().finish();
        let mut news = self.news.subscribe();
        let (calls, mut received) = tokio::sync::mpsc::unbounded_channel();
        // Ended with this one, which closes the connection.
        let mut reader = tokio::task::JoinSet::new();
        reader.spawn(async move {
            let mut bytes = Vec::new();
            while receiver.receive_data(&mut bytes).await.is_ok() {
                let _ = calls.send(serde_json::from_slice::<Value>(&bytes).unwrap());
                bytes.clear();
            }
        });
        loop {
            let text = tokio::select! {
                call = received.recv() => {
                    let Some(call) = call else { return };
                    let first = self.state().before_answer.take();
                    if let Some(first) = first
                        && sender.send_text(first.to_string()).await.is_err()
                    {
                        return;
                    }
                    let answer = self.answer(&call);
                    match manner {
                        Manner::Garbage => "}{ no JSON".to_owned(),
                        Manner::Huge => huge(),
                        Manner::HangsUp => return,
                        Manner::LosesTurns if call["method"] == "turn/start" => return,
                        Manner::Silent => continue,
                        Manner::Nonsense => json!({"id": call["id"], "result": {"thread": {"status": [7, null]}}}).to_string(),
                        _ => match answer {
                            Some(answer) => answer.to_string(),
                            None => continue,
                        },
                    }
                }
                Ok(news) = news.recv() => match news {
                    News::Text(text) => text,
                    News::HangUp => return,
                },
            };
            if sender.send_text(text).await.is_err() || sender.flush().await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, call: &Value) -> Option<Value> {
        let method = call["method"].as_str()?;
        let thread = call["params"]["threadId"].as_str().unwrap_or_default();
        let mut state = self.state();
        state.calls.push((method.to_owned(), thread.to_owned()));
        let id = call.get("id")?;
        let status = state.threads.get(thread).cloned().unwrap_or(json!({"type": "notLoaded"}));
        let is_ephemeral = state.ephemeral.iter().any(|ephemeral| ephemeral == thread);
        let kind = status["type"].clone();
        Some(match method {
            "thread/read" => {
                let thread = json!({"id": thread, "status": status, "ephemeral": is_ephemeral, "parentThreadId": null});
                json!({"id": id, "result": {"thread": thread}})
            }
            "thread/loaded/list" => {
                let ids: Vec<&String> = state.threads.keys().collect();
                json!({"id": id, "result": {"data": ids, "nextCursor": null}})
            }
            "thread/turns/list" => {
                let running = if kind == "active" { "inProgress" } else { "completed" };
                let sent = state.messages.get(thread).into_iter().flatten();
                let items: Vec<Value> = sent.map(|(id, _)| json!({"type": "userMessage", "clientId": id})).collect();
                json!({"id": id, "result": {"data": [{"id": TURN, "status": running, "items": items}]}})
            }
            "turn/start" | "turn/steer" => {
                let params = &call["params"];
                let fits = match method {
                    "turn/start" => kind == "idle",
                    _ => kind == "active" && params["expectedTurnId"] == TURN,
                };
                if !fits {
                    return Some(json!({"id": id, "error": {"code": -32600, "message": format!("not {method}")}}));
                }
                let text = params["input"][0]["text"].as_str().unwrap_or_default().to_owned();
                let message_id = params["clientUserMessageId"].as_str().unwrap_or_default().to_owned();
                state.messages.entry(thread.to_owned()).or_default().push((message_id, text));
                json!({"id": id, "result": {"turn": {"id": TURN}, "turnId": TURN}})
            }
            _ => json!({"id": id, "result": {}}),
        })
    }
}

fn turn_started(thread: &str) -> Value {
    json!({"method": "turn/started", "params": {"threadId": thread, "turn": {"id": "1"}}})
}

fn huge() -> String {
    json!({"method": "thread/closed", "params": {"threadId": "t-1", "more": "x".repeat(HUGE_BYTES)}}).to_string()
}
