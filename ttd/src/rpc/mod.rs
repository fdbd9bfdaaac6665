//! The server: accepts connections, checks who is at the other end, and hands requests to the method groups, one file
//! each. No SQL here, and no rules.

mod connections;
mod daemon;
mod events;
mod messages;
mod notes;
mod register;
mod rooms;
mod turns;
mod wait_updates;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use connections::{Call, Connection, Connections, MAX_CONNECTIONS, Session, TrackedStream};
use jsonrpsee::RpcModule;
use jsonrpsee::server::{
    BatchRequestConfig, HttpRequest, Methods, ServerConfig, StopHandle, serve_with_graceful_shutdown, stop_channel,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tower::Service;
use tt_proto::hello::Program;
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, WallTime};
use tt_rules::Caller;

use crate::engine::{CommandContext, Engine};
use crate::identity;
use crate::lifecycle::Options;
use crate::lifecycle::idle::Activity;
use crate::listeners::Inbox;
use crate::workspace::{self, Directory};

/// Subscriptions one connection may hold.
const MAX_SUBSCRIPTIONS: u32 = 32;

/// Outgoing messages buffered for one connection. A task that has one more waits.
const MAX_BUFFERED_MESSAGES: u32 = 64;

/// Calls in one request: a greeting, and the call the client was started for.
const MAX_BATCH: u32 = 2;

/// How long calls in progress may take to finish once the daemon was told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Filesystem lookups in progress at once. They share their threads with the queries, which must not wait for a mount that
/// hangs.
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
    /// Up to which event each member's waits have reported who joined and left.
    membership_cursors: Mutex<HashMap<Inbox, i64>>,
    /// The newest event when this daemon started. No wait has reported what came after it.
    newest_at_start: i64,
    lookups: Arc<Semaphore>,
    /// The command lines of processes above callers.
    memory: identity::Memory,
}

impl Shared {
    pub fn new(options: Options, engine: Engine, stop: watch::Sender<bool>, newest_at_start: i64) -> Self {
        let uid = nix::unistd::getuid();
        let user = nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        Self {
            started_at: engine.clock().wall(),
            home: options.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone())),
            options,
            engine,
            activity: Activity::new(),
            connections: Connections::default(),
            user,
            program: daemon::program(),
            started: Instant::now(),
            stop,
            membership_cursors: Mutex::default(),
            newest_at_start,
            lookups: Arc::new(Semaphore::new(MAX_LOOKUPS)),
            memory: identity::Memory::default(),
        }
    }

    /// The event after which a member's next wait reports joins and leaves: that of its last wait, or else of its join; or
    /// the start of this daemon, if an earlier one reported the rest.
    fn membership_cursor(&self, inbox: &Inbox) -> i64 {
        let cursors = self.membership_cursors.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.get(inbox).copied().unwrap_or(self.newest_at_start)
    }

    fn set_membership_cursor(&self, inbox: Inbox, cursor: i64) {
        self.membership_cursors.lock().unwrap_or_else(PoisonError::into_inner).insert(inbox, cursor);
    }

    /// The context of a command. Making a call is a sign of life.
    fn context(&self, call: &Call, idempotency_key: Option<String>) -> Result<CommandContext, Error> {
        let context = CommandContext { idempotency_key, ..self.silent_context(call)? };
        self.engine.seen(context.agent_id());
        Ok(context)
    }

    /// The context of a command in the middle of a call.
    fn silent_context(&self, call: &Call) -> Result<CommandContext, Error> {
        let caller = Caller { identity: call.identity()?.clone(), connection: call.connection.id() };
        Ok(CommandContext { caller, idempotency_key: None })
    }

    /// A filesystem lookup about a path the caller named, once there is room for it. Run it on a blocking thread.
    async fn lookup<T>(
        &self,
        cwd: Option<&Path>,
        path: &str,
        look: impl FnOnce(Directory) -> T + Send + 'static,
    ) -> Result<impl FnOnce() -> Result<T, Error> + Send + 'static, Error> {
        let (asked, home) = (workspace::absolute(path, cwd)?, self.home.clone());
        let stuck = || {
            let message = format!("{} was not looked up: earlier filesystem lookups do not end", asked.display());
            Error::new(ErrorCode::StorageUnavailable, message).hint("find the network mount that hangs")
        };
        let permit = tokio::time::timeout(LOOKUP_TIMEOUT, self.lookups.clone().acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(stuck)?;
        Ok(move || {
            let _permit = permit;
            Directory::find(&asked, home.as_deref()).map(look)
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
        events::register_all(&mut module)?;
        Ok(module.into())
    }
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
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => accept(&shared, stream, &methods, &stop_handle),
            Err(e) => {
                tracing::warn!("accept: {e}");
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

/// Serves a connection, unless it comes from a process of another user. The permissions of a directory can be changed; the
/// credentials the kernel reports cannot.
fn accept(shared: &Arc<Shared>, stream: UnixStream, methods: &Methods, stop: &StopHandle) {
    let peer = match stream.peer_cred() {
        Ok(peer) => peer,
        Err(e) => return tracing::warn!("no peer credentials: {e}"),
    };
    if peer.uid() != nix::unistd::getuid().as_raw() {
        return tracing::warn!(uid = peer.uid(), pid = peer.pid(), "refused a process of another user");
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let (stream, connection) =
        shared.connections.admit(stream, pid, shared.activity.clone(), shared.engine.listeners().clone());
    let rpc = jsonrpsee::server::Server::builder().set_config(limits()).to_service_builder();
    let mut service = rpc.build(methods.clone(), stop.clone());
    let service = tower::service_fn(move |mut request: HttpRequest<hyper::body::Incoming>| {
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
    use crate::liveness::Watch;

    #[tokio::test]
    async fn the_methods_of_the_table_are_registered_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(Paths::resolve(&Environment::of([("HOME", dir.path().to_str().unwrap())])).unwrap());
        let (clock, policy) = (options.clock.clone(), options.policy.clone());
        let file = dir.path().join("rooms.sqlite");
        let store = SqliteStore::open(&file, Arc::new(clock.clone()), policy.clone()).unwrap();
        let (processes, _) = Watch::new(options.processes.clone());
        let engine = Engine::new(Arc::new(store), clock, Arc::new(processes), policy);
        let shared = Arc::new(Shared::new(options, engine, watch::Sender::new(false), 0));
        let methods = shared.methods().unwrap();
        let registered: BTreeSet<&str> = methods.method_names().collect();
        let streams = STREAMS.iter().flat_map(|stream| [stream.subscribe, stream.unsubscribe]);
        let expected: BTreeSet<&str> = METHODS.iter().map(|method| method.name).chain(streams).collect();
        assert_eq!(registered, expected);
    }
}
