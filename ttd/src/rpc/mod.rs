//! The server: accepts connections, checks who is at the other end, and hands requests to the method groups, one file
//! each. No SQL here, and no rules.

mod connections;
mod daemon;
mod debt;
mod deliveries;
mod events;
pub(crate) mod guard;
mod messages;
mod notes;
mod register;
mod reminders;
mod rooms;
mod sessions;
mod speech;
mod tracked_stream;
mod turns;
mod wait_updates;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use connections::{
    Call, Connection, Connections, MAX_CLOSING, MAX_CONNECTIONS, MAX_SUBSCRIPTIONS_IN_ALL, Session, Vacancy,
};
use jsonrpsee::RpcModule;
use jsonrpsee::server::{
    BatchRequestConfig, HttpRequest, Methods, ServerConfig, StopHandle, serve_with_graceful_shutdown, stop_channel,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tower::Service;
pub use tracked_stream::TrackedStream;
use tt_proto::hello::Program;
use tt_proto::paths::short_hash;
use tt_proto::requests::Method;
use tt_proto::{AgentId, Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, RoomId, WallTime};
use tt_rules::Caller;
use tt_store::RequestKey;

use crate::background;
use crate::delivery::Recipients;
use crate::engine::{CommandContext, Engine};
use crate::identity;
use crate::lifecycle::Options;
use crate::lifecycle::descriptors::Descriptors;
use crate::lifecycle::idle::Activity;
use crate::liveness::Looks;
use crate::sessions::Sessions;
use crate::workspace::{self, Directory};

/// Subscriptions one connection may hold.
const MAX_SUBSCRIPTIONS: u32 = 32;

/// Outgoing messages buffered for one connection. A task that has one more waits. Their bytes are limited as well; see `debt.rs`.
const MAX_BUFFERED_MESSAGES: u32 = 64;

/// Calls in one request: a greeting, and the call the client was started for.
const MAX_BATCH: u32 = 2;

/// How long calls in progress may take to finish once the daemon was told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Lookups of files in progress at once. They share their threads with the queries, which must not wait for a mount that hangs.
const MAX_LOOKUPS: usize = 4;

/// How long a lookup waits for others to end. Shorter than the deadline of a client.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to stop accepting when the process has run out of descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(20);

/// What every method group needs.
#[derive(Debug)]
pub struct Shared {
    pub options: Options,
    pub engine: Engine,
    pub sessions: Sessions,
    pub recipients: Recipients,
    pub activity: Activity,
    pub connections: Connections,
    pub user: String,
    /// Canonical.
    home: Option<PathBuf>,
    pub program: Option<Program>,
    pub started: Instant,
    pub started_at: WallTime,
    /// True once the daemon is to stop.
    pub stop: watch::Sender<bool>,
    lookups: Arc<Semaphore>,
    /// The command lines of processes above callers.
    memory: identity::Memory,
    looks: Looks,
}

impl Shared {
    pub fn new(
        options: Options,
        user: String,
        looks: Looks,
        descriptors: Descriptors,
        engine: Engine,
        recipients: Recipients,
        stop: watch::Sender<bool>,
    ) -> Self {
        Self {
            started_at: engine.clock().wall(),
            home: options.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone())),
            options,
            engine,
            sessions: recipients.sessions().clone(),
            recipients,
            activity: Activity::new(),
            connections: Connections::new(descriptors.connections),
            user,
            program: daemon::program(),
            started: Instant::now(),
            stop,
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            memory: identity::Memory::default(),
            looks,
        }
    }

    /// The context of a command that writes. Which member the caller is must be stored before: a daemon that is killed and
    /// started again would take the caller for another one.
    async fn context(&self, call: &Call) -> Result<CommandContext, Error> {
        if self.sessions.has_unsaved() {
            background::save_sessions(&self.engine, &self.sessions).await?;
        }
        self.reading_context(call)
    }

    /// The context of a command that may change nothing. Making a call is a sign of life.
    fn reading_context(&self, call: &Call) -> Result<CommandContext, Error> {
        let context = self.silent_context(call)?;
        self.engine.seen(context.agent_id());
        Ok(context)
    }

    /// The context of a command that a request with an idempotency key gives. `room_id` is the room it is about, however the
    /// request calls it.
    async fn keyed_context<M: Method>(
        &self,
        call: &Call,
        request: &M,
        room_id: Option<&RoomId>,
    ) -> Result<CommandContext, Error> {
        let context = self.context(call).await?;
        let key = request_key(context.agent_id(), request, room_id)?;
        Ok(CommandContext { key, ..context })
    }

    /// Notes that the conversation of a call learns from its answer which turn it holds.
    async fn knows_its_turn(&self, call: &Call) -> Result<(), Error> {
        let session = call.session()?;
        let me = &session.identity().agent_id;
        let is_left = session.conversation.as_ref().is_some_and(|of_call| self.sessions.is_left(&of_call.key));
        if self.sessions.is_untold(me) && !is_left && !self.is_subagents(call) {
            let _alone = self.sessions.tells_alone().await;
            self.sessions.settle_untold(me);
        }
        Ok(())
    }

    /// Whether a call is a subagent's, as far as hooks have told.
    fn is_subagents(&self, call: &Call) -> bool {
        let Some(session) = call.connection.session.get() else { return false };
        let in_shell = session.conversation.as_ref().is_some_and(|conversation| conversation.is_subagents);
        let tool_use = session.signals.tool_use_id.as_ref();
        in_shell || tool_use.is_some_and(|tool_use| self.sessions.is_subagents(tool_use))
    }

    /// Resolves, with the error for a caller that listens, when the conversation it belongs to is not open any more: what
    /// it would be handed reaches nobody.
    async fn conversation_left(&self, call: &Call) -> Error {
        let conversation = call.connection.session.get().and_then(|session| session.conversation.as_ref());
        let Some(conversation) = conversation else { return std::future::pending().await };
        self.sessions.left(&conversation.key).await;
        let id = &conversation.key.session_id;
        Error::new(ErrorCode::ConversationLeft, format!("conversation {id} is not open any more"))
            .detail("session_id", id.as_str())
    }

    /// The context of a command in the middle of a call.
    fn silent_context(&self, call: &Call) -> Result<CommandContext, Error> {
        let session = call.session()?;
        let joins = session.joins.load(Ordering::Relaxed);
        let caller = Caller { identity: session.identity().clone(), connection: call.connection.id(), joins };
        Ok(CommandContext { caller, key: None })
    }

    /// Whether a call comes from a person at a terminal, as far as its processes show. Only the kernel is asked; what the
    /// caller says of itself can only speak against it.
    async fn is_at_terminal(&self, call: &Call) -> Result<bool, Error> {
        let (Some(pid), true) = (call.connection.pid, call.identity()?.is_person()) else { return Ok(false) };
        // A process that cannot be looked at shows nothing, and must not hold up the message.
        let look = self.looks.run(move |processes| identity::is_at_terminal(pid, processes));
        Ok(look.await.unwrap_or(false))
    }

    /// A filesystem lookup about a path the caller named, once there is room for it. Run it on a blocking thread.
    async fn lookup<T>(
        &self,
        cwd: Option<&Path>,
        path: &str,
        look: impl FnOnce(Directory) -> T + Send + 'static,
    ) -> Result<impl FnOnce() -> Result<T, Error> + Send + 'static, Error> {
        let (asked, home) = (workspace::absolute(path, cwd)?, self.home.clone());
        let permit = self.lookup_permit(|| asked.display().to_string()).await?;
        Ok(move || {
            let _permit = permit;
            Directory::find(&asked, home.as_deref()).map(look)
        })
    }

    /// Waits until there is room for a lookup that may block.
    async fn lookup_permit(&self, what: impl FnOnce() -> String) -> Result<OwnedSemaphorePermit, Error> {
        let permit = tokio::time::timeout(LOOKUP_TIMEOUT, self.lookups.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| {
            let message = format!("{} was not looked up: earlier lookups do not end", what());
            Error::new(ErrorCode::StorageUnavailable, message).hint("find the network mount that hangs")
        })
    }

    /// All methods and streams of the protocol.
    fn methods(self: &Arc<Self>) -> Result<Methods, Error> {
        let mut module = RpcModule::from_arc(self.clone());
        daemon::register_all(&mut module)?;
        rooms::register_all(&mut module)?;
        turns::register_all(&mut module)?;
        notes::register_all(&mut module)?;
        messages::register_all(&mut module)?;
        deliveries::register_all(&mut module)?;
        reminders::register_all(&mut module)?;
        events::register_all(&mut module)?;
        sessions::register_all(&mut module)?;
        guard::register_all(&mut module)?;
        Ok(module.into())
    }
}

/// The key of a request, if it has one. A request that is sent again in another notation has the same hash.
fn request_key<M: Method>(agent: &AgentId, request: &M, room_id: Option<&RoomId>) -> Result<Option<RequestKey>, Error> {
    let unreadable = |e: serde_json::Error| Error::new(ErrorCode::InvalidInput, format!("a parameter is no JSON: {e}"));
    let mut body = serde_json::to_value(request).map_err(unreadable)?;
    let Some(fields) = body.as_object_mut() else { return Ok(None) };
    let Some(serde_json::Value::String(key)) = fields.remove("idempotency_key") else { return Ok(None) };
    // How long the caller waits for what comes of it. Repeated, it waits for the rest.
    fields.remove("wait_ms");
    if let Some(room_id) = room_id {
        fields.insert("room_id".into(), room_id.as_str().into());
    }
    body.sort_all_objects();
    let hash = short_hash([M::NAME.as_bytes(), body.to_string().as_bytes()]);
    RequestKey::new(agent, key, hash).map(Some)
}

/// Runs a function on a blocking thread.
async fn blocking<T: Send + 'static>(look: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let ended = tokio::task::spawn_blocking(look).await;
    ended.map_err(|e| Error::new(ErrorCode::StorageUnavailable, format!("a lookup failed inside the daemon: {e}")))?
}

/// Resolves when the daemon is told to stop.
async fn stopping(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// The error of a waiting call when the daemon stops.
fn stopping_error() -> Error {
    Error::new(tt_proto::ErrorCode::DaemonUnreachable, "the daemon is stopping")
        .hint("call again; that starts a new one")
}

/// Serves until told to stop, then lets the calls in progress finish. `close_listener` runs in between: after it no client
/// can connect.
pub async fn serve(shared: Arc<Shared>, listener: UnixListener, close_listener: impl FnOnce()) -> Result<(), Error> {
    let methods = shared.methods()?;
    let (stop_handle, server) = stop_channel();
    let mut stop = shared.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = next(&shared.connections, &listener) => accepted,
        };
        match accepted {
            Ok((vacancy, stream)) => accept(&shared, vacancy, stream, &methods, &stop_handle),
            Err(e) => {
                tracing::warn!("accept: {e}");
                // Somebody has lowered the limit since the descriptors were shared out, or the whole machine has none left.
                if matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
                    shared.connections.close_one();
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
    close_listener();
    drop(listener);
    let _ = server.stop();
    drop(stop_handle);
    if tokio::time::timeout(DRAIN_TIMEOUT, server.clone().stopped()).await.is_err() {
        tracing::warn!(
            calls = shared.activity.count(),
            "calls are still in progress after {DRAIN_TIMEOUT:?}; closing their connections"
        );
        shared.connections.close_all();
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, server.stopped()).await;
    }
    Ok(())
}

/// The next connection. It is accepted only when there is a descriptor for it, so that a burst waits in the kernel and leaves the
/// other descriptors alone.
async fn next(connections: &Connections, listener: &UnixListener) -> io::Result<(Vacancy, UnixStream)> {
    let vacancy = connections.vacancy().await;
    listener.accept().await.map(|(stream, _)| (vacancy, stream))
}

/// Serves a connection, unless it comes from a process of another user. The permissions of a directory can be changed; the
/// credentials the kernel reports cannot.
fn accept(shared: &Arc<Shared>, vacancy: Vacancy, stream: UnixStream, methods: &Methods, stop: &StopHandle) {
    // A client that is cut off before it was greeted tries again, and reaches the daemon of the files that are there now.
    if shared.engine.store().check().is_err() {
        return;
    }
    let peer = match stream.peer_cred() {
        Ok(peer) => peer,
        Err(e) => return tracing::warn!("no peer credentials: {e}"),
    };
    if peer.uid() != nix::unistd::getuid().as_raw() {
        return tracing::warn!(uid = peer.uid(), pid = peer.pid(), "refused a process of another user");
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let (activity, listeners) = (shared.activity.clone(), shared.engine.listeners().clone());
    let admitted = shared.connections.admit(vacancy, stream, pid, activity, listeners);
    let Some((stream, connection)) = admitted else {
        return tracing::warn!(pid, "refused a connection: all others are in use, and no process has several");
    };
    let rpc = jsonrpsee::server::Server::builder().set_config(limits()).to_service_builder();
    let mut service = rpc.build(methods.clone(), stop.clone());
    let service = tower::service_fn(move |mut request: HttpRequest<hyper::body::Incoming>| {
        if request.headers().contains_key("upgrade") {
            connection.upgrade();
        }
        request.extensions_mut().insert(connection.clone());
        service.call(request)
    });
    let stopped = stop.clone().shutdown();
    // How a connection ends concerns no other.
    tokio::spawn(serve_with_graceful_shutdown(stream, service, stopped));
}

fn limits() -> ServerConfig {
    ServerConfig::builder()
        .max_connections(u32::MAX)
        .max_request_body_size(MAX_REQUEST_BYTES)
        .max_response_body_size(MAX_RESPONSE_BYTES)
        .max_subscriptions_per_connection(MAX_SUBSCRIPTIONS)
        .set_message_buffer_capacity(MAX_BUFFERED_MESSAGES)
        .set_batch_request_config(BatchRequestConfig::Limit(MAX_BATCH))
        .disable_ws_ping()
        .build()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tt_proto::paths::{Environment, Paths};
    use tt_proto::requests::{METHODS, STREAMS};
    use tt_store::sqlite::SqliteStore;

    use super::*;
    use crate::delivery::ways;
    use crate::liveness::Watch;

    #[test]
    fn a_request_is_recognised_in_any_notation_and_no_other_is() {
        use tt_proto::requests::{AddNote, LeaveRoom, ReleaseStick};
        let key = |request: &AddNote| request_key(&AgentId::trusted("a"), request, Some(&"r".into())).unwrap().unwrap();
        let note: AddNote = serde_json::from_str(r#"{"room_id":"r","body":"b","idempotency_key":"k"}"#).unwrap();
        let here = r#"{"idempotency_key":"k", "body":"\u0062", "turn_id":null, "room_id":"here"}"#;
        assert_eq!(key(&note), key(&serde_json::from_str(here).unwrap()));
        assert_ne!(key(&note), key(&AddNote { body: "c".into(), ..note.clone() }));
        let leave = LeaveRoom { room_id: "r".into(), idempotency_key: Some("k".into()) };
        let other = request_key(&AgentId::trusted("a"), &leave, Some(&"r".into())).unwrap().unwrap();
        assert_ne!(key(&note).request_hash, other.request_hash);
        let release = |handoff: &str| {
            let handoff = tt_proto::handoff::RawJson::parse(handoff.into()).unwrap();
            let request = ReleaseStick { handoff, idempotency_key: Some("k".into()), ..Default::default() };
            request_key(&AgentId::trusted("a"), &request, None).unwrap().unwrap().request_hash
        };
        assert_eq!(release(r#"{"a":1,"b":2}"#), release(r#"{ "b": 2, "a": 1 }"#));
        assert_ne!(release(r#"{"a":1}"#), release(r#"{"a":2}"#));
        let without = AddNote { idempotency_key: None, ..note };
        assert_eq!(request_key(&AgentId::trusted("a"), &without, None).unwrap(), None);
    }

    #[tokio::test]
    async fn the_methods_of_the_table_are_registered_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(Paths::resolve(&Environment::of([("HOME", dir.path().to_str().unwrap())])).unwrap());
        let (clock, policy) = (options.clock.clone(), options.policy.clone());
        let file = dir.path().join("rooms.sqlite");
        let store = SqliteStore::open(&file, Arc::new(clock.clone()), policy.clone()).unwrap();
        let looks = Looks::new(options.processes.clone(), options.look_timeout);
        let descriptors = Descriptors::of_this_process();
        let (processes, _) = Watch::new(looks.clone(), descriptors.watches);
        let (sessions, _) = Sessions::new(processes, looks.clone(), clock.clone(), "someone".into(), None);
        let engine = Engine::new(Arc::new(store), clock, Arc::new(sessions.clone()), policy);
        let stop = watch::Sender::new(false);
        let ways = ways::all(&sessions);
        let recipients = Recipients::new(engine.listeners().clone(), sessions, ways);
        let shared = Shared::new(options, "someone".into(), looks, descriptors, engine, recipients, stop);
        let shared = Arc::new(shared);
        let methods = shared.methods().unwrap();
        let registered: BTreeSet<&str> = methods.method_names().collect();
        let streams = STREAMS.iter().flat_map(|stream| [stream.subscribe, stream.unsubscribe]);
        let expected: BTreeSet<&str> = METHODS.iter().map(|method| method.name).chain(streams).collect();
        assert_eq!(registered, expected);
    }
}
