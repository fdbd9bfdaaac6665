//! `hello`, `whoami`, `daemon_status`, `daemon_stop`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use jsonrpsee::Extensions;
use tt_proto::hello::{Anchor, CAPABILITIES, Greeting, Identity, Program, Signals};
use tt_proto::requests::{
    DaemonStatus, DaemonStatusAnswer, DaemonStop, Hello, Stopping, Welcome, Whoami, WhoamiAnswer,
};
use tt_proto::room::nobody_joined;
use tt_proto::{Error, ErrorCode, PROTOCOL, RoomId};

use super::register::{Module, register};
use super::{Call, Session, Shared};
use crate::identity::{self, Caller};
use crate::liveness::Processes;
use crate::workspace::{self, Directory};

/// The most bytes of variables and paths in a greeting.
const MAX_GREETING_BYTES: usize = 32 * 1024;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<Hello, _>(module, hello)?;
    register::<Whoami, _>(module, whoami)?;
    register::<DaemonStatus, _>(module, daemon_status)?;
    register::<DaemonStop, _>(module, daemon_stop)
}

async fn hello(shared: Arc<Shared>, extensions: Extensions, request: Hello) -> Result<Welcome, Error> {
    let Hello { hello } = request;
    let call = Call::of(&extensions)?;
    check_protocol(&shared, &hello)?;
    check_size(&hello)?;
    let (identity, room_id) = identify(&shared, &call, &hello).await?;
    let server = find_server(&shared, &call, &identity, &hello.signals).await?;
    let (identity, conversation) = shared.sessions.bind(identity, &hello.signals, server).await;
    // An identity is for the life of a connection: a second hello may repeat it but never change it.
    let session = || Session {
        identity: identity.clone(),
        member: OnceLock::new(),
        signals: hello.signals.clone(),
        conversation: conversation.clone(),
        cwd: hello.cwd.as_ref().map(Into::into),
        here: Mutex::new(Err(nowhere())),
        joins: AtomicBool::new(false),
    };
    let session = call.connection.session.get_or_init(session);
    let bound = &session.identity;
    if bound.agent_id != identity.agent_id {
        return Err(Error::new(ErrorCode::InvalidInput, "this connection already belongs to another identity")
            .hint("open a new connection for another identity")
            .detail("agent_id", bound.agent_id.as_str()));
    }
    session.joins.store(hello.joins, Ordering::Relaxed);
    if let Some(path) = &hello.context_path {
        let here = room_id.clone().ok_or_else(|| nobody_joined(path));
        *session.here.lock().unwrap_or_else(PoisonError::into_inner) = here;
        shared.engine.seen(&bound.agent_id);
    }
    let inbox = room_id.as_ref().map(|room_id| shared.engine.unread().get(&(room_id.clone(), bound.agent_id.clone())));
    tracing::debug!(agent_id = %bound.agent_id, pid = call.connection.pid, version = hello.version, "hello");
    Ok(Welcome {
        protocol: PROTOCOL,
        min_protocol: shared.options.min_protocol,
        version: shared.options.version.clone(),
        capabilities: CAPABILITIES.iter().map(|c| (*c).to_owned()).collect(),
        identity: bound.clone(),
        pid: std::process::id(),
        supervised: shared.options.supervised,
        program: shared.program.clone(),
        log: shared.options.paths.log().display().to_string(),
        room_id,
        inbox: inbox.unwrap_or_default(),
    })
}

async fn whoami(shared: Arc<Shared>, extensions: Extensions, request: Whoami) -> Result<WhoamiAnswer, Error> {
    let Whoami { explain } = request;
    let call = Call::of(&extensions)?;
    let session = call.session()?;
    let mut explanation = if explain.unwrap_or(false) {
        let (pid, signals) = (call.connection.pid, session.signals.clone());
        let this = shared.clone();
        let explain = move |processes: &dyn Processes| {
            let caller = Caller { pid, user: &this.user, signals: &signals };
            identity::explain_and_remember(&caller, processes, &this.memory)
        };
        shared.looks.run(explain).await.map_err(identity::unidentified)??
    } else {
        Vec::new()
    };
    if explain.unwrap_or(false) {
        explanation.extend(shared.sessions.explain(session.identity()));
    }
    Ok(WhoamiAnswer { identity: session.identity().clone(), explanation })
}

async fn daemon_status(
    shared: Arc<Shared>,
    extensions: Extensions,
    _: DaemonStatus,
) -> Result<DaemonStatusAnswer, Error> {
    let _call = Call::of(&extensions)?;
    let paths = &shared.options.paths;
    let uptime = shared.started.elapsed();
    Ok(DaemonStatusAnswer {
        status: "running".into(),
        pid: std::process::id(),
        version: shared.options.version.clone(),
        protocol: PROTOCOL,
        started_at: shared.started_at,
        uptime_ms: u64::try_from(uptime.as_millis()).unwrap_or(u64::MAX),
        supervised: shared.options.supervised,
        data_dir: paths.data_dir.display().to_string(),
        socket: paths.socket.display().to_string(),
        log: paths.log().display().to_string(),
        connections: shared.connections.count(),
        calls: shared.activity.count(),
        waiters: shared.engine.waiters().count(),
        remembered: shared.engine.remembered(),
        schema: shared.engine.read(|reader| reader.schema()).await?,
        idle_exit_ms: shared.options.idle_exit.map(|d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)),
    })
}

async fn daemon_stop(shared: Arc<Shared>, extensions: Extensions, _: DaemonStop) -> Result<Stopping, Error> {
    let call = Call::of(&extensions)?;
    tracing::info!(pid = call.connection.pid, "asked to stop");
    shared.stop.send_replace(true);
    Ok(Stopping { status: "stopping".into(), pid: std::process::id() })
}

/// The caller's identity and room.
async fn identify(shared: &Arc<Shared>, call: &Call, hello: &Greeting) -> Result<(Identity, Option<RoomId>), Error> {
    let cwd = hello.cwd.as_deref().map(Path::new);
    let asked = hello.context_path.as_deref().map(|path| workspace::absolute(path, cwd)).transpose()?;
    let (this, pid, signals) = (shared.clone(), call.connection.pid, hello.signals.clone());
    let look = move |processes: &dyn Processes| {
        let caller = Caller { pid, user: &this.user, signals: &signals };
        let identity = identity::derive_and_remember(&caller, processes, &this.memory);
        (identity, asked.as_deref().and_then(|asked| known_room(&this, asked, processes.cwd(pid?))))
    };
    let (identity, known) = shared.looks.run(look).await.map_err(identity::unidentified)?;
    let identity = identity?;
    let Some(path) = hello.context_path.as_deref().filter(|_| known.is_none()) else { return Ok((identity, known)) };
    // Only the disk tells, which may take long.
    let look = shared.lookup(cwd, path, |directory| directory.candidates()).await?;
    let find =
        |paths: Vec<PathBuf>, reader: &dyn tt_store::Reader| reader.room_at(&mut paths.iter().map(PathBuf::as_path));
    Ok((identity, shared.engine.read_after(look, find).await?))
}

/// The room of a path, if that is the working directory of the caller and known to have one.
fn known_room(shared: &Shared, asked: &Path, cwd: Option<PathBuf>) -> Option<RoomId> {
    let directory = Directory::of_process(asked, cwd, shared.home.as_deref())?;
    // A room above it may be outside of its repository, which only the disk can tell.
    shared.engine.store().known_room_at(&mut std::iter::once(directory.path()))
}

/// The process that runs the caller's session and others, where there is one that is not known yet.
pub(super) async fn find_server(
    shared: &Arc<Shared>,
    call: &Call,
    identity: &Identity,
    signals: &Signals,
) -> Result<Option<Anchor>, Error> {
    let Some(harness) = identity.harness.clone().filter(|_| shared.sessions.lacks_server(identity)) else {
        return Ok(None);
    };
    let (pid, signals, this) = (call.connection.pid, signals.clone(), shared.clone());
    let find = move |processes: &dyn Processes| {
        let caller = Caller { pid, user: &this.user, signals: &signals };
        identity::find_server(&caller, &harness, processes)
    };
    shared.looks.run(find).await.map_err(identity::unidentified)
}

/// Why a connection that named no path stands in no room.
fn nowhere() -> Error {
    Error::new(ErrorCode::InvalidInput, "this connection said hello without a context_path")
        .hint("name the room by its id")
}

/// What a greeting says is kept for as long as the connection lasts.
fn check_size(hello: &Greeting) -> Result<(), Error> {
    let signals = &hello.signals;
    let variables = signals.env.iter().map(|(name, value)| name.len() + value.len());
    let others = [&signals.client_info, &signals.session_id, &hello.cwd, &hello.context_path];
    let bytes = variables.sum::<usize>() + others.into_iter().flatten().map(String::len).sum::<usize>();
    if bytes > MAX_GREETING_BYTES {
        let message =
            format!("the greeting has {bytes} bytes of variables and paths; {MAX_GREETING_BYTES} is the most");
        return Err(
            Error::new(ErrorCode::InvalidInput, message).hint("send only the variables that identify the caller")
        );
    }
    Ok(())
}

/// A client may speak any protocol number this daemon serves. What it may do about another is for it to decide, so the
/// refusal says all it needs.
fn check_protocol(shared: &Shared, hello: &Greeting) -> Result<(), Error> {
    let served = shared.options.min_protocol..=PROTOCOL;
    if served.contains(&hello.protocol) {
        return Ok(());
    }
    let hint = if hello.protocol > PROTOCOL {
        format!("restart the daemon with the newer version: stop pid {}, then run tt again", std::process::id())
    } else {
        format!("install tt {} or newer", shared.options.version)
    };
    Err(Error::new(
        ErrorCode::ProtocolMismatch,
        format!(
            "tt {} speaks protocol {}; ttd {} serves {} to {PROTOCOL}",
            hello.version, hello.protocol, shared.options.version, shared.options.min_protocol
        ),
    )
    .hint(hint)
    .detail("daemon_protocol", PROTOCOL)
    .detail("daemon_version", shared.options.version.as_str())
    .detail("daemon_pid", std::process::id())
    .detail("supervised", shared.options.supervised)
    .detail("program", serde_json::to_value(&shared.program).unwrap_or_default()))
}

/// The program this process runs, as a client can compare it with the one beside it.
pub(super) fn program() -> Option<Program> {
    let path = std::env::current_exe().ok()?;
    let meta = std::fs::metadata(&path).ok()?;
    Some(Program { path: path.display().to_string(), device: meta.dev(), inode: meta.ino() })
}
