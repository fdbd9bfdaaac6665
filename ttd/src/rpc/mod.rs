//! The server: accepts connections, checks who is at the other end, and hands requests to the method groups, one file
//! each. No SQL here, and no rules.

mod connections;
mod daemon;
mod events;
mod messages;
mod news;
mod notes;
mod register;
mod rooms;
mod stick;
mod view;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use connections::{Call, Connection, Connections, MAX_CONNECTIONS, Session, Tracked};
use jsonrpsee::RpcModule;
use jsonrpsee::server::{
    BatchRequestConfig, HttpRequest, Methods, ServerConfig, StopHandle, serve_with_graceful_shutdown, stop_channel,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tower::Service;
use tt_proto::hello::Program;
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES, WallTime};

use crate::hub::Owner;
use crate::identity;
use crate::lifecycle::Options;
use crate::lifecycle::idle::Activity;
use crate::place::{self, Place};
use crate::rooms::{Commander, Rooms};

/// Subscriptions one connection may hold.
const MAX_SUBSCRIPTIONS: u32 = 32;

/// Messages buffered for one connection before whoever writes to it has to wait.
const MESSAGE_BUFFER: u32 = 64;

/// Calls that may come in one request: a greeting, and what the client came for.
const MAX_BATCH: u32 = 2;

/// How long calls under way may take to finish once the daemon was told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// Looks at the disk under way at once. They share their threads with the readers of the database, which must not wait for a
/// mount that hangs.
const MAX_LOOKS: usize = 4;

/// How long one waits for others to end. Shorter than a client waits for us.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

/// How long to hold off accepting when the process has run out of descriptors.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(20);

/// What every method group needs.
#[derive(Debug)]
pub struct Shared {
    pub options: Options,
    pub rooms: Rooms,
    pub activity: Activity,
    pub connections: Connections,
    pub user: String,
    /// Under its true name.
    home: Option<PathBuf>,
    pub program: Option<Program>,
    pub started: Instant,
    pub started_at: WallTime,
    /// True once the daemon is to stop.
    pub stop: watch::Sender<bool>,
    /// How far each member's waits have told it who came and went.
    comings: Mutex<HashMap<Owner, i64>>,
    /// The newest event when this daemon started. What came after it no wait has told yet.
    newest_at_start: i64,
    looks: Arc<Semaphore>,
    /// What the processes above our callers were started with.
    memory: identity::Memory,
}

impl Shared {
    pub fn new(options: Options, rooms: Rooms, stop: watch::Sender<bool>, newest_at_start: i64) -> Self {
        let uid = nix::unistd::getuid();
        let user = nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        Self {
            started_at: rooms.clock().wall(),
            home: options.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone())),
            options,
            rooms,
            activity: Activity::new(),
            connections: Connections::default(),
            user,
            program: daemon::program(),
            started: Instant::now(),
            stop,
            comings: Mutex::default(),
            newest_at_start,
            looks: Arc::new(Semaphore::new(MAX_LOOKS)),
            memory: identity::Memory::default(),
        }
    }

    /// From where on a member's next wait tells who came and went: its last wait; its join before the first; and the start
    /// of this daemon where an earlier one heard the rest.
    fn comings_cursor(&self, owner: &Owner) -> i64 {
        let comings = self.comings.lock().unwrap_or_else(PoisonError::into_inner);
        comings.get(owner).copied().unwrap_or(self.newest_at_start)
    }

    /// A member hears of what comes after its join, unless a wait has told it of something already.
    fn start_comings_cursor(&self, owner: Owner, joined_at: i64) {
        self.comings.lock().unwrap_or_else(PoisonError::into_inner).entry(owner).or_insert(joined_at);
    }

    fn set_comings_cursor(&self, owner: Owner, cursor: i64) {
        self.comings.lock().unwrap_or_else(PoisonError::into_inner).insert(owner, cursor);
    }

    /// The caller of a command, seen alive by making it.
    fn commander(&self, call: &Call, idempotency_key: Option<String>) -> Result<Commander, Error> {
        let identity = call.identity()?.clone();
        self.rooms.seen(&identity.agent_id);
        Ok(Commander { identity, idempotency_key })
    }

    /// What to find out on the disk about a path the caller named. Run it where blocking is allowed.
    async fn look_at<T>(
        &self,
        cwd: Option<&Path>,
        path: &str,
        look: impl FnOnce(Place) -> T + Send + 'static,
    ) -> Result<impl FnOnce() -> Result<T, Error> + Send + 'static, Error> {
        let (asked, home) = (place::asked(path, cwd)?, self.home.clone());
        let stuck = || {
            let message = format!("{} was not looked at: other looks at the disk do not end", asked.display());
            Error::new(ErrorCode::StorageUnavailable, message).hint("find the network mount that hangs")
        };
        let permit = tokio::time::timeout(LOOK_PATIENCE, self.looks.clone().acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or_else(stuck)?;
        Ok(move || {
            let _permit = permit;
            Place::find(&asked, home.as_deref()).map(look)
        })
    }

    /// All methods and streams of the protocol.
    fn methods(self: &Arc<Self>) -> Result<Methods, Error> {
        let mut module = RpcModule::from_arc(self.clone());
        daemon::register_all(&mut module)?;
        rooms::register_all(&mut module)?;
        stick::register_all(&mut module)?;
        notes::register_all(&mut module)?;
        messages::register_all(&mut module)?;
        events::register_all(&mut module)?;
        Ok(module.into())
    }
}

/// Runs what may block where that is allowed.
async fn blocking<T: Send + 'static>(look: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let ended = tokio::task::spawn_blocking(look).await;
    ended.map_err(|e| Error::new(ErrorCode::StorageUnavailable, format!("a look failed inside the daemon: {e}")))?
}

/// Resolves once the daemon is to stop.
async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// What a call that waits is told when the daemon stops.
fn leaving() -> Error {
    Error::new(tt_proto::ErrorCode::DaemonUnreachable, "the daemon is stopping")
        .hint("call again; that starts a new one")
}

/// Serves until told to stop, then lets the calls under way finish. `close_listener` runs between the two: after it no
/// new client can come in.
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
            Ok((stream, _)) => greet(&shared, stream, &methods, &stop_handle),
            Err(e) => {
                tracing::warn!("accept: {e}");
                tokio::time::sleep(OUT_OF_DESCRIPTORS).await;
            }
        }
    }
    close_listener();
    drop(listener);
    let _ = server.stop();
    drop(stop_handle);
    if tokio::time::timeout(DRAIN, server.clone().stopped()).await.is_err() {
        tracing::warn!(calls = shared.activity.count(), "still busy after {DRAIN:?}; hanging up");
        shared.connections.hang_up_all();
        let _ = tokio::time::timeout(DRAIN, server.stopped()).await;
    }
    Ok(())
}

/// Turns away a process of another user; the permissions of a directory can be changed, what the kernel says cannot.
fn greet(shared: &Arc<Shared>, stream: UnixStream, methods: &Methods, stop: &StopHandle) {
    let peer = match stream.peer_cred() {
        Ok(peer) => peer,
        Err(e) => return tracing::warn!("no peer credentials: {e}"),
    };
    if peer.uid() != nix::unistd::getuid().as_raw() {
        return tracing::warn!(uid = peer.uid(), pid = peer.pid(), "refused a process of another user");
    }
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
    let (stream, connection) = shared.connections.admit(stream, pid, shared.activity.clone());
    let rpc = jsonrpsee::server::Server::builder().set_config(limits()).to_service_builder();
    let mut service = rpc.build(methods.clone(), stop.clone());
    let service = tower::service_fn(move |mut request: HttpRequest<hyper::body::Incoming>| {
        request.extensions_mut().insert(connection.clone());
        service.call(request)
    });
    let stopped = stop.clone().shutdown();
    // How a connection ends, in order or in garbage, concerns nobody else.
    tokio::spawn(serve_with_graceful_shutdown(stream, service, stopped));
}

fn limits() -> ServerConfig {
    ServerConfig::builder()
        .max_connections(u32::MAX)
        .max_request_body_size(MAX_REQUEST_BYTES)
        .max_response_body_size(MAX_RESPONSE_BYTES)
        .max_subscriptions_per_connection(MAX_SUBSCRIPTIONS)
        .set_message_buffer_capacity(MESSAGE_BUFFER)
        .set_batch_request_config(BatchRequestConfig::Limit(MAX_BATCH))
        .disable_ws_ping()
        .build()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tt_proto::paths::{Environment, Paths};
    use tt_proto::requests::{METHODS, STREAMS};

    use super::*;
    use crate::liveness::Watch;
    use crate::store::Store;

    #[tokio::test]
    async fn the_methods_of_the_table_are_registered_and_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new(Paths::resolve(&Environment::of([("HOME", dir.path().to_str().unwrap())])).unwrap());
        let store = Store::open(&dir.path().join("rooms.sqlite")).unwrap();
        let (exits, _) = Watch::new(options.processes.clone());
        let rooms = Rooms::new(store, options.clock.clone(), exits, options.policy.clone());
        let shared = Arc::new(Shared::new(options, rooms, watch::Sender::new(false), 0));
        let methods = shared.methods().unwrap();
        let registered: BTreeSet<&str> = methods.method_names().collect();
        let streams = STREAMS.iter().flat_map(|stream| [stream.subscribe, stream.unsubscribe]);
        let expected: BTreeSet<&str> = METHODS.iter().map(|method| method.name).chain(streams).collect();
        assert_eq!(registered, expected);
    }
}
