//! Reaches the daemon: connects, greets it, starts it if there is none, replaces it if it is older, and reconnects when it
//! goes away. Every command uses this.

mod replace;
mod rpc;
mod start;
mod transport;

use std::path::PathBuf;
use std::time::Duration;

use jsonrpsee::core::ClientError;
use jsonrpsee::core::client::Subscription;
use tokio::time::Instant;
use tt_proto::hello::{CAPABILITIES, Greeting, Signals};
use tt_proto::paths::{Environment, Paths, is_private_dir};
use tt_proto::requests::{Hello, Method, Stream, Welcome};
use tt_proto::{Error, ErrorCode, PROTOCOL, VERSION};

pub use replace::{LockState, lock_state, stop, wait_until_gone};
pub use rpc::Rpc;
pub use start::{Started, daemon_program, start};
use transport::{HandshakeError, Opened};

use crate::runtime::in_a_runtime;

/// No ordinary call takes longer than this on a daemon that works.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How long to wait before connecting again to a daemon that closed the connection.
const RECONNECT_DELAY: Duration = Duration::from_millis(5);

/// What a client needs to know before it connects.
#[derive(Debug, Clone)]
pub struct Settings {
    pub env: Environment,
    pub paths: Paths,
    pub signals: Signals,
    pub cwd: Option<PathBuf>,
    pub autostart: bool,
    pub version: String,
    pub protocol: u32,
    /// The daemon to start; by default the one in the directory of this program.
    pub daemon: Option<PathBuf>,
    pub deadline: Duration,
    pub transport: Transport,
    /// A path of the workspace the caller is about: the answer to the greeting names its room.
    pub context_path: Option<String>,
}

/// How calls travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One call at a time: for a command that ends at once.
    Http,
    /// Many calls at a time, and streams of events: for a command that keeps running.
    WebSocket,
}

impl Settings {
    pub fn from_environment(env: Environment) -> Result<Self, Error> {
        Ok(Self {
            paths: Paths::resolve(&env)?,
            signals: crate::signals::from_environment(&env),
            cwd: std::env::current_dir().ok(),
            autostart: !env.flag("TT_NO_AUTOSTART"),
            version: VERSION.to_owned(),
            protocol: PROTOCOL,
            daemon: env.get("TALKING_STICK_DAEMON").map(PathBuf::from),
            deadline: DEADLINE,
            transport: Transport::WebSocket,
            context_path: None,
            env,
        })
    }

    fn greeting(&self) -> Greeting {
        Greeting {
            protocol: self.protocol,
            version: self.version.clone(),
            capabilities: CAPABILITIES.iter().map(|c| (*c).to_owned()).collect(),
            signals: self.signals.clone(),
            cwd: self.cwd.as_ref().map(|d| d.display().to_string()),
            context_path: self.context_path.clone(),
        }
    }
}

/// A connection that has greeted the daemon, and reconnects when it is cut.
#[derive(Debug)]
pub struct Client {
    settings: Settings,
    rpc: Rpc,
    welcome: Welcome,
}

impl Client {
    /// Connects, starting the daemon if there is none and it may be started.
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        let (rpc, welcome) = reach(&settings).await?;
        // The room is asked for once: after a reconnect it is known, and the path may be gone by then.
        let settings = Settings { context_path: None, ..settings };
        Ok(Self { settings, rpc, welcome })
    }

    /// Connects and makes a first call, which is sent together with the greeting. If that does not work the call is made
    /// again after an ordinary connect, so it must be safe to repeat, like any other.
    pub async fn connect_and_call<M: Method>(
        settings: Settings,
        first: M,
    ) -> Result<(Self, Result<M::Answer, Error>), Error> {
        if let Some(rpc) = connect_fast(&settings)? {
            let call = async |rpc: &Rpc| rpc.request(M::NAME, &first).await;
            let answer = match rpc.within(settings.deadline, call).await.ok_or_else(|| busy(&settings))? {
                Ok(answer) => Some(Ok(answer)),
                Err(ClientError::Call(refusal)) => Some(Err(Error::from(&refusal))),
                Err(_) => None,
            };
            let stopping = |e: &Error| e.code == ErrorCode::DaemonUnreachable;
            let answer = answer.filter(|answer| !answer.as_ref().is_err_and(stopping));
            let welcome = rpc.welcome().filter(|welcome| !replace::should_replace(&settings, welcome));
            if let (Some(welcome), Some(answer)) = (welcome, answer) {
                let settings = Settings { context_path: None, ..settings };
                return Ok((Self { settings, rpc, welcome }, answer));
            }
        }
        let (rpc, welcome) = reach(&settings).await?;
        let mut client = Self { settings, rpc, welcome };
        let answer = client.call(first).await;
        client.settings.context_path = None;
        Ok((client, answer))
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The connection as it is now, for a call that must not be repeated.
    pub fn rpc(&self) -> &Rpc {
        &self.rpc
    }

    /// Makes one call. A connection that was cut is opened again and the call repeated, so it must be safe to repeat: a read,
    /// or a write with an idempotency key.
    pub async fn call<M: Method>(&mut self, request: M) -> Result<M::Answer, Error> {
        self.call_within(self.settings.deadline, request).await
    }

    /// Makes one call that may take longer than an ordinary one, and repeats it on a new connection if it is cut.
    pub async fn call_within<M: Method>(&mut self, deadline: Duration, request: M) -> Result<M::Answer, Error> {
        self.repeat_within(deadline, async |rpc: &Rpc| rpc.request(M::NAME, &request).await).await
    }

    /// Starts a stream, on a new connection if this one was cut.
    pub async fn subscribe<S: Stream>(&mut self, request: S) -> Result<Subscription<S::Item>, Error> {
        self.repeat_within(self.settings.deadline, async |rpc: &Rpc| rpc.subscribe(&request).await).await
    }

    /// Makes a call and repeats it on a new connection if it is cut. `call` makes the request anew for every attempt.
    pub async fn repeat_within<T>(
        &mut self,
        deadline: Duration,
        call: impl AsyncFn(&Rpc) -> Result<T, ClientError>,
    ) -> Result<T, Error> {
        let mut cut_since: Option<Instant> = None;
        loop {
            let asked = Instant::now();
            let cut = match self.rpc.within(deadline, &call).await.ok_or_else(|| busy(&self.settings))? {
                Ok(answer) => return Ok(answer),
                // A daemon that is stopping says so; the next one takes the call.
                Err(ClientError::Call(refusal)) => match Error::from(&refusal) {
                    stopping if stopping.code == ErrorCode::DaemonUnreachable => stopping.message,
                    error => return Err(error),
                },
                // It was answered, and perhaps carried out: repeating it would not make the answer readable.
                Err(ClientError::ParseError(e)) => return Err(unreadable(&e)),
                Err(cut) => cut.to_string(),
            };
            // A daemon that had the call for a while did not crash because of it: it was restarted.
            if asked.elapsed() >= self.settings.deadline / 10 {
                cut_since = None;
            }
            if cut_since.get_or_insert_with(Instant::now).elapsed() >= self.settings.deadline {
                return Err(unreachable(&self.settings, &cut));
            }
            in_a_runtime().await;
            tokio::time::sleep(RECONNECT_DELAY).await;
            (self.rpc, self.welcome) = reach(&self.settings).await?;
        }
    }
}

/// Opens a connection whose greeting is sent with the first call. None if that is not possible, which is rare.
fn connect_fast(settings: &Settings) -> Result<Option<Rpc>, Error> {
    is_private_dir(settings.paths.socket_dir())?;
    match transport::open(&settings.paths.socket, settings.deadline) {
        Opened::Stream(stream) => {
            Ok(transport::handshake_with_first_call(stream, settings.greeting(), settings.deadline).ok())
        }
        Opened::NoDaemon => Ok(None),
        // It has had its time already.
        Opened::Busy => Err(busy(settings)),
        Opened::Failed(error) => Err(error),
    }
}

/// Opens a connection and greets the daemon, starting or replacing it if need be.
async fn reach(settings: &Settings) -> Result<(Rpc, Welcome), Error> {
    in_a_runtime().await;
    is_private_dir(settings.paths.socket_dir())?;
    let mut give_up = Instant::now() + settings.deadline;
    let (mut started, mut replaced) = (false, false);
    loop {
        let stream = match transport::open(&settings.paths.socket, settings.deadline) {
            Opened::Stream(stream) => stream,
            Opened::NoDaemon if started && Instant::now() >= give_up => {
                return Err(unreachable(settings, "it starts, and then nobody listens"));
            }
            Opened::NoDaemon if settings.autostart => {
                start(settings).await?;
                // A start may take long; the new daemon has the whole deadline to answer.
                if !std::mem::replace(&mut started, true) {
                    give_up = Instant::now() + settings.deadline;
                }
                continue;
            }
            Opened::NoDaemon => {
                return Err(Error::new(ErrorCode::DaemonUnreachable, "no daemon is running, and autostart is off")
                    .hint("start it with `tt daemon start`, or drop --no-autostart and TT_NO_AUTOSTART"));
            }
            Opened::Busy => return Err(busy(settings)),
            Opened::Failed(error) => return Err(error),
        };
        let left = give_up.saturating_duration_since(Instant::now());
        let answer = tokio::time::timeout_at(give_up, greet(settings, stream, left)).await;
        match answer.map_err(|_| busy(settings))? {
            Ok((rpc, welcome)) => {
                if !replaced && replace::should_replace(settings, &welcome) {
                    replaced = true;
                    replace::replace(settings, &rpc, welcome.pid).await?;
                    give_up = Instant::now() + settings.deadline;
                    continue;
                }
                return Ok((rpc, welcome));
            }
            Err(GreetError::Refused(rpc, error)) => {
                let pid = replace::outdated(settings, &error).filter(|_| !replaced);
                let Some(pid) = pid else { return Err(error) };
                replaced = true;
                replace::replace(settings, &rpc, pid).await?;
                give_up = Instant::now() + settings.deadline;
            }
            Err(GreetError::Failed(error)) => return Err(error),
            // It was stopping, or closed this connection to make room: the next attempt reaches its successor.
            Err(GreetError::HungUp(why)) if Instant::now() >= give_up => return Err(unreachable(settings, &why)),
            Err(GreetError::HungUp(_)) => tokio::time::sleep(RECONNECT_DELAY).await,
        }
    }
}

/// Why a greeting failed.
enum GreetError {
    HungUp(String),
    Refused(Box<Rpc>, Error),
    /// Another attempt would fail in the same way.
    Failed(Error),
}

async fn greet(
    settings: &Settings,
    stream: std::os::unix::net::UnixStream,
    timeout: Duration,
) -> Result<(Rpc, Welcome), GreetError> {
    let rpc = transport::handshake(stream, settings.transport, timeout).await.map_err(|e| match e {
        HandshakeError::HungUp(why) => GreetError::HungUp(why),
        HandshakeError::TimedOut => GreetError::Failed(busy(settings)),
        HandshakeError::OtherUser(uid) => GreetError::Failed(other_user(settings, uid)),
    })?;
    match rpc.call(Hello { hello: settings.greeting() }).await {
        Ok(welcome) => Ok((rpc, welcome)),
        Err(ClientError::Call(refusal)) => Err(GreetError::Refused(Box::new(rpc), Error::from(&refusal))),
        Err(ClientError::RequestTimeout) => Err(GreetError::Failed(busy(settings))),
        Err(ClientError::ParseError(e)) => Err(GreetError::Failed(unreadable(&e))),
        Err(cut) => Err(GreetError::HungUp(cut.to_string())),
    }
}

fn other_user(settings: &Settings, uid: u32) -> Error {
    let socket = settings.paths.socket.display();
    Error::new(ErrorCode::DaemonUnreachable, format!("{socket} is served by uid {uid}, not by you; nothing was sent"))
        .hint(format!("find out who put it there, remove it (rm '{socket}') and try again"))
        .detail("path", socket.to_string())
}

fn unreadable(why: &serde_json::Error) -> Error {
    Error::new(ErrorCode::ProtocolMismatch, format!("the daemon's answer could not be read: {why}"))
}

fn busy(settings: &Settings) -> Error {
    Error::new(
        ErrorCode::DaemonUnreachable,
        format!("the daemon is running but did not answer within {} s", settings.deadline.as_secs_f32()),
    )
    .hint("it may be overloaded or stuck: try again, then run `tt daemon restart`")
    .detail("log", settings.paths.log().display().to_string())
}

fn unreachable(settings: &Settings, why: &str) -> Error {
    Error::new(ErrorCode::DaemonUnreachable, format!("the daemon keeps hanging up: {why}"))
        .hint(format!("look at {}, then run `tt daemon restart`", settings.paths.log().display()))
        .detail("log", settings.paths.log().display().to_string())
}
