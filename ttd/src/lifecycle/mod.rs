//! Starting, serving and stopping, in the one order that leaves no gap: directory, log, lock, database, socket, ready;
//! and back again. Each step exists because someone shipped the bug it prevents; see `docs/architecture.md`.

pub mod config;
pub mod data_dir;
pub mod descriptors;
pub mod detach;
pub mod idle;
pub mod lock;
pub mod log;
pub mod memory;
pub mod socket;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tt_proto::filesystem::{Filesystem, filesystem};
use tt_proto::paths::{Environment, Paths};
use tt_proto::policy::Policy;
use tt_proto::time::parse_duration;
use tt_proto::{Error, ErrorCode, MIN_PROTOCOL, VERSION};
use tt_store::sqlite::SqliteStore;

use crate::background;
use crate::clock::Clock;
use crate::delivery::ways::{self, Way};
use crate::delivery::{Recipients, driver};
use crate::engine::Engine;
use crate::identity;
use crate::liveness::{Kernel, LOOK_TIMEOUT, Looks, Processes, Watch};
use crate::rpc::{self, Shared};
use crate::sessions::Sessions;
use descriptors::Descriptors;
use lock::{Acquired, Lock};
use socket::{OwnFile, Socket};

/// With nothing to do for this long, a daemon that a client started leaves.
const IDLE_EXIT: Duration = Duration::from_secs(15 * 60);

/// How a daemon is to run.
#[derive(Clone)]
pub struct Options {
    pub paths: Paths,
    pub version: String,
    pub min_protocol: u32,
    /// None: stay for ever.
    pub idle_exit: Option<Duration>,
    /// Started by systemd or launchd, which decide when it ends.
    pub supervised: bool,
    pub processes: Arc<dyn Processes>,
    /// How long a look at a process is waited for.
    pub look_timeout: Duration,
    pub clock: Clock,
    pub policy: Policy,
    /// The ways by which messages reach a model; all there are, if none are given.
    pub ways: Option<Vec<Arc<dyn Way>>>,
    pub home: Option<PathBuf>,
    pub filesystem: fn(&Path) -> Filesystem,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("paths", &self.paths).field("version", &self.version).finish_non_exhaustive()
    }
}

impl Options {
    pub fn new(paths: Paths) -> Self {
        Self {
            paths,
            version: VERSION.to_owned(),
            min_protocol: MIN_PROTOCOL,
            idle_exit: Some(IDLE_EXIT),
            supervised: false,
            processes: Arc::new(Kernel::new()),
            look_timeout: LOOK_TIMEOUT,
            clock: Clock::new(),
            policy: Policy::default(),
            ways: None,
            home: None,
            filesystem,
        }
    }

    /// What the environment says, on top of the defaults.
    pub fn from_environment(env: &Environment) -> Result<Self, Error> {
        let mut options = Self::new(Paths::resolve(env)?);
        options.home = env.home().ok();
        options.policy = config::policy(&options.paths, env)?;
        if let Some(text) = env.get_str("TALKING_STICK_IDLE_EXIT") {
            options.idle_exit = match text {
                "never" => None,
                text => Some(parse_duration(text).ok_or_else(|| {
                    Error::new(ErrorCode::InvalidInput, format!("TALKING_STICK_IDLE_EXIT={text} is not a duration"))
                        .hint("use a number with ms, s, m, h or d, or never")
                })?),
            };
        }
        Ok(options)
    }
}

/// A start that went well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ready {
    pub pid: u32,
    /// Another daemon was there first and serves.
    pub already_running: bool,
}

/// A daemon that holds the lock, has its database open and its socket listening, and only needs to be served.
#[derive(Debug)]
pub struct Daemon {
    options: Options,
    store: SqliteStore,
    socket: Socket,
    lock: Lock,
    stop: watch::Sender<bool>,
    user: String,
}

impl Daemon {
    /// Everything up to being ready. None when another daemon already serves.
    pub fn start(mut options: Options, passed: listenfd::ListenFd) -> Result<Option<Self>, Error> {
        let user = identity::user_name()?;
        data_dir::prepare(&options.paths, options.filesystem)?;
        let activated = passed.len() > 0;
        let Acquired::Held(lock) = lock::acquire(&options.paths, activated)? else { return Ok(None) };
        if !activated {
            lock::wait_for_stray(&options.paths)?;
        }
        let database = options.paths.database();
        let boot_id = Kernel::new().boot_id().to_owned();
        let (offsets, now) = (options.clock.offsets(), options.clock.now().lease);
        options.clock.set_offsets(SqliteStore::clock_offsets(&database, &boot_id, offsets, now)?);
        let (lock_file, clock) = (options.paths.lock(), Arc::new(options.clock.clone()));
        let store = SqliteStore::open_beside(&database, &[&lock_file], clock, options.policy.clone())?;
        let socket = match Socket::activated(passed)? {
            Some(socket) => {
                options.supervised = true;
                socket
            }
            None => Socket::bind(&options.paths)?,
        };
        if options.supervised {
            options.idle_exit = None;
        }
        tracing::info!(version = options.version, socket = %options.paths.socket.display(), "ready");
        Ok(Some(Self { options, store, socket, lock, stop: watch::Sender::new(false), user }))
    }

    /// A handle that tells the daemon to stop.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Serves until it is told to stop, then drains and closes. The lock is released last: the daemon that gets it next finds
    /// everything in order.
    pub async fn serve(self) -> Result<(), Error> {
        let Self { options, store, socket, lock, stop, user } = self;
        let cannot =
            |e: std::io::Error| Error::new(ErrorCode::StorageUnavailable, format!("cannot serve the socket: {e}"));
        let (listener, own) = socket.into_parts().map_err(cannot)?;
        let looks = Looks::new(options.processes.clone(), options.look_timeout);
        let descriptors = Descriptors::of_this_process();
        let (watch, exits) = Watch::new(looks.clone(), descriptors.watches);
        let (clock, policy) = (options.clock.clone(), options.policy.clone());
        let home = options.home.clone();
        let (sessions, changes) = Sessions::new(watch, looks.clone(), clock.clone(), user.clone(), home);
        let engine = Engine::new(Arc::new(store), clock, Arc::new(sessions.clone()), policy);
        // Before anything can happen.
        let stored =
            engine.read(|reader| Ok((reader.newest_event(None)?, reader.unread()?, reader.sessions()?))).await?;
        let (newest, unread, stored) = stored;
        engine.unread().load(unread);
        engine.membership_cursors().start_all(newest);
        let ways = options.ways.clone().unwrap_or_else(|| ways::all(&sessions));
        let recipients = Recipients::new(engine.listeners().clone(), sessions.clone(), ways);
        // Before there can be evidence of a session.
        let (wake, wakes) = mpsc::unbounded_channel();
        if recipients.any_starts() {
            engine.listeners().tell_driver(wake.clone());
            sessions.tell_driver(wake);
        }
        sessions.restore(stored);
        let shared = Shared::new(options, user, looks, descriptors, engine.clone(), recipients.clone(), stop);
        let shared = Arc::new(shared);
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(leave_when_lost(shared.clone()));
        tasks.spawn(memory::give_back(shared.connections.clone()));
        tasks.spawn(background::run(engine.clone(), sessions.clone(), exits, changes));
        if recipients.any_starts() {
            tasks.spawn(driver::run(engine.clone(), recipients, wakes));
        }
        if let Some(rest) = shared.options.idle_exit {
            tasks.spawn(leave_when_idle(shared.clone(), rest));
        }
        let served = rpc::serve(shared, listener, || own.into_iter().for_each(OwnFile::remove)).await;
        tasks.shutdown().await;
        let lost = engine.store().lost().borrow().clone();
        let served = served.and(lost.map_or(Ok(()), Err));
        if served.is_ok() {
            background::store_presence(&engine).await;
            background::save_sessions_at_last(&engine, &sessions).await;
        }
        engine.store().close();
        tracing::info!("stopped");
        drop(lock);
        served
    }
}

/// Tells a daemon to stop, from a signal or a test.
#[derive(Debug, Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A daemon whose files are gone can keep no promise, and another one may serve those that are there now.
async fn leave_when_lost(shared: Arc<Shared>) {
    if shared.engine.store().lost().wait_for(Option::is_some).await.is_ok() {
        shared.stop.send_replace(true);
    }
}

async fn leave_when_idle(shared: Arc<Shared>, rest: Duration) {
    shared.activity.rested(rest).await;
    // A hook starts no daemon in the middle of a session, so one that left would miss what happens there. And what is due at
    // a certain time would be late.
    while shared.sessions.any_lives()
        || shared.engine.timers().has_deadlines()
        || background::anyone_holds(&shared.engine).await
    {
        tokio::time::sleep(rest).await;
        shared.activity.rested(rest).await;
    }
    tracing::info!("nothing to do for {rest:?}; leaving");
    shared.stop.send_replace(true);
}
