//! The way to the daemon: connect, say hello, start it when there is none, replace it when it is older, and come back
//! when it goes away. One place, used by every command.

mod replace;
mod rpc;
mod start;
mod transport;

use std::path::PathBuf;
use std::time::Duration;

use jsonrpsee::core::ClientError;
use tokio::time::Instant;
use tt_proto::api::DaemonApiClient;
use tt_proto::hello::{CAPABILITIES, Hello, Signals, Welcome};
use tt_proto::paths::{Environment, Paths, is_private_dir};
use tt_proto::{Error, ErrorCode, PROTOCOL, VERSION};

pub use replace::{LockState, lock_state, stop, wait_until_gone};
pub use rpc::Rpc;
pub use start::{Started, daemon_program, start};
use transport::{Mute, Opened};

use crate::runtime::in_a_runtime;

/// No ordinary call takes longer than this on a daemon that works.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How long to let a daemon that just hung up finish going away before looking again.
const GOING_AWAY: Duration = Duration::from_millis(5);

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
    /// The daemon to start; looked for beside this program when not given.
    pub daemon: Option<PathBuf>,
    pub deadline: Duration,
    pub wire: Wire,
    /// Where the caller stands: the welcome tells which room that is in.
    pub context_path: Option<String>,
}

/// How calls travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// One at a time: for a command that is over at once.
    Short,
    /// Many at a time, and streams of events: for whoever stays.
    Long,
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
            wire: Wire::Long,
            context_path: None,
            env,
        })
    }

    fn hello(&self) -> Hello {
        Hello {
            protocol: self.protocol,
            version: self.version.clone(),
            capabilities: CAPABILITIES.iter().map(|c| (*c).to_owned()).collect(),
            signals: self.signals.clone(),
            cwd: self.cwd.as_ref().map(|d| d.display().to_string()),
            context_path: self.context_path.clone(),
        }
    }
}

/// A connection that has said hello, and finds its way back when it is cut.
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
        // Asked once. Whoever comes back later knows its room, and the path may be gone by then.
        let settings = Settings { context_path: None, ..settings };
        Ok(Self { settings, rpc, welcome })
    }

    /// The same with a first call, which does not wait for the welcome. Where anything is out of the ordinary it is made again
    /// after that, so it must be safe to repeat, like any other.
    pub async fn connect_and<T>(
        settings: Settings,
        first: impl AsyncFn(&Rpc) -> Result<T, ClientError>,
    ) -> Result<(Self, Result<T, Error>), Error> {
        if let Some(rpc) = rush(&settings)? {
            let answer = match rpc.within(settings.deadline, &first).await.ok_or_else(|| busy(&settings))? {
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

    /// Makes one call. A connection that was cut is opened again and the call repeated, so `call` must be safe to repeat:
    /// a read, or a write with an idempotency key.
    pub async fn call<T>(&mut self, call: impl AsyncFn(&Rpc) -> Result<T, ClientError>) -> Result<T, Error> {
        self.call_within(self.settings.deadline, call).await
    }

    /// The same for a call that may take longer than an ordinary one.
    pub async fn call_within<T>(
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
                // It was answered, and perhaps carried out: asking again would not make the answer readable.
                Err(ClientError::ParseError(e)) => return Err(unreadable(&e)),
                Err(cut) => cut.to_string(),
            };
            // A daemon that kept the call for a while did not die of it: it was restarted, however often that was before.
            if asked.elapsed() >= self.settings.deadline / 10 {
                cut_since = None;
            }
            if cut_since.get_or_insert_with(Instant::now).elapsed() >= self.settings.deadline {
                return Err(unreachable(&self.settings, &cut));
            }
            in_a_runtime().await;
            tokio::time::sleep(GOING_AWAY).await;
            (self.rpc, self.welcome) = reach(&self.settings).await?;
        }
    }
}

/// Opens a connection whose greeting goes out with the first call, if that is as easy as it is nearly always.
fn rush(settings: &Settings) -> Result<Option<Rpc>, Error> {
    is_private_dir(settings.paths.socket_dir())?;
    match transport::open(&settings.paths.socket, settings.deadline) {
        Opened::Stream(stream) => Ok(transport::speak_at_once(stream, settings.hello(), settings.deadline).ok()),
        Opened::Nobody => Ok(None),
        // Waited for once is waited for enough.
        Opened::Busy => Err(busy(settings)),
        Opened::Failed(error) => Err(error),
    }
}

/// Opens a connection that has said hello, whatever it takes.
async fn reach(settings: &Settings) -> Result<(Rpc, Welcome), Error> {
    in_a_runtime().await;
    is_private_dir(settings.paths.socket_dir())?;
    let mut give_up = Instant::now() + settings.deadline;
    let (mut started, mut replaced) = (false, false);
    loop {
        let stream = match transport::open(&settings.paths.socket, settings.deadline) {
            Opened::Stream(stream) => stream,
            Opened::Nobody if started && Instant::now() >= give_up => {
                return Err(unreachable(settings, "it starts, and then nobody listens"));
            }
            Opened::Nobody if settings.autostart => {
                start(settings).await?;
                // A start may take its time; the daemon that came of it has all of its own to answer.
                if !std::mem::replace(&mut started, true) {
                    give_up = Instant::now() + settings.deadline;
                }
                continue;
            }
            Opened::Nobody => {
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
            Err(Greeting::Refused(rpc, error)) => {
                let pid = replace::outdated(settings, &error).filter(|_| !replaced);
                let Some(pid) = pid else { return Err(error) };
                replaced = true;
                replace::replace(settings, &rpc, pid).await?;
                give_up = Instant::now() + settings.deadline;
            }
            Err(Greeting::Failed(error)) => return Err(error),
            // It was on its way out, or made room for others: the next try meets its successor.
            Err(Greeting::HungUp(why)) if Instant::now() >= give_up => return Err(unreachable(settings, &why)),
            Err(Greeting::HungUp(_)) => tokio::time::sleep(GOING_AWAY).await,
        }
    }
}

/// Why a greeting failed.
enum Greeting {
    HungUp(String),
    Refused(Box<Rpc>, Error),
    /// Another try would end the same way.
    Failed(Error),
}

async fn greet(
    settings: &Settings,
    stream: std::os::unix::net::UnixStream,
    patience: Duration,
) -> Result<(Rpc, Welcome), Greeting> {
    let rpc = transport::speak(stream, settings.wire, patience).await.map_err(|mute| match mute {
        Mute::HungUp(why) => Greeting::HungUp(why),
        Mute::TimedOut => Greeting::Failed(busy(settings)),
        Mute::Stranger(uid) => Greeting::Failed(stranger(settings, uid)),
    })?;
    match rpc.hello(settings.hello()).await {
        Ok(welcome) => Ok((rpc, welcome)),
        Err(ClientError::Call(refusal)) => Err(Greeting::Refused(Box::new(rpc), Error::from(&refusal))),
        Err(ClientError::RequestTimeout) => Err(Greeting::Failed(busy(settings))),
        Err(ClientError::ParseError(e)) => Err(Greeting::Failed(unreadable(&e))),
        Err(cut) => Err(Greeting::HungUp(cut.to_string())),
    }
}

fn stranger(settings: &Settings, uid: u32) -> Error {
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
