//! The client of a command that keeps running: asynchronous, with many calls under way and streams of events.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use jsonrpsee::client_transport::ws::{Url, WsHandshakeError, WsTransportClientBuilder};
use jsonrpsee::core::ClientError;
use jsonrpsee::core::client::{Client as JsonRpcClient, ClientBuilder, ClientT, Subscription, SubscriptionClientT};
use jsonrpsee::core::traits::ToRpcParams;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};
use tt_proto::requests::{DaemonStop, Hello, Method, Stream, Welcome};
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};

use super::attempts::{Attempts, Next, Retry};
use super::{CallError, GreetError, RECONNECT_DELAY, Settings, replace, socket};

/// Every call has its own deadline, so the limit for all of them is longer than any wait.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(24 * 60 * 60);

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
        Ok(Self { settings: settings.without_context_path(), rpc, welcome })
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

    /// Makes one call that also makes the caller a member of the room, if the call succeeds. Later calls do not.
    pub async fn call_and_join<M: Method>(&mut self, request: M) -> Result<M::Answer, Error> {
        self.join_by_calls(true).await?;
        let answer = self.call(request).await;
        // What the call did must not be lost because this fails. A new connection does not join.
        let _ = self.join_by_calls(false).await;
        answer
    }

    async fn join_by_calls(&mut self, joins: bool) -> Result<(), Error> {
        self.settings.joins = joins;
        let hello = Hello { hello: self.settings.greeting() };
        self.call(hello).await.map(|_| ())
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
        let mut retry = Retry::default();
        loop {
            let asked = Instant::now();
            let error = match tokio::time::timeout(deadline, call(&self.rpc)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => CallError::from(error),
                Err(_) => CallError::TimedOut,
            };
            retry.after(&self.settings, error, asked.elapsed())?;
            tokio::time::sleep(RECONNECT_DELAY).await;
            (self.rpc, self.welcome) = reach(&self.settings).await?;
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Rpc(JsonRpcClient);

impl Rpc {
    /// Makes a call, once.
    pub async fn call<M: Method>(&self, request: M) -> Result<M::Answer, ClientError> {
        self.request(M::NAME, &request).await
    }

    /// Makes a call by its name, for parameters and answers that are passed through.
    pub async fn request<R: DeserializeOwned>(&self, name: &str, params: &impl Serialize) -> Result<R, ClientError> {
        self.0.request(name, RawParams(to_raw_value(params)?)).await
    }

    /// Starts a stream.
    pub async fn subscribe<S: Stream>(&self, request: &S) -> Result<Subscription<S::Item>, ClientError> {
        self.0.subscribe(S::SUBSCRIBE, RawParams(to_raw_value(request)?), S::UNSUBSCRIBE).await
    }

    /// Whether the daemon has not closed the connection yet.
    pub fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    /// Resolves when the daemon has closed the connection.
    pub async fn on_disconnect(&self) {
        self.0.on_disconnect().await;
    }
}

/// Parameters that are JSON already.
struct RawParams(Box<RawValue>);

impl ToRpcParams for RawParams {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        Ok(Some(self.0))
    }
}

/// Opens a connection and greets the daemon, starting or replacing it if need be.
async fn reach(settings: &Settings) -> Result<(Rpc, Welcome), Error> {
    let mut attempts = Attempts::new(settings)?;
    loop {
        let stream;
        (attempts, stream) = blocking(move || {
            let stream = attempts.open();
            (attempts, stream)
        })
        .await?;
        let (rpc, result) = greet(settings, stream?, attempts.time_left()).await;
        match (attempts.after_greeting(result)?, rpc) {
            (Next::Keep(welcome), Some(rpc)) => return Ok((rpc, *welcome)),
            (Next::Replace { pid }, rpc) => {
                let agreed = match rpc {
                    Some(rpc) => ask_to_stop(&rpc, settings.deadline).await,
                    None => false,
                };
                let settings = settings.clone();
                blocking(move || replace::replace(&settings, pid, agreed)).await??;
                attempts.restart_deadline();
            }
            (Next::Keep(_) | Next::Retry, _) => tokio::time::sleep(RECONNECT_DELAY).await,
        }
    }
}

async fn ask_to_stop(rpc: &Rpc, deadline: Duration) -> bool {
    matches!(tokio::time::timeout(deadline, rpc.call(DaemonStop {})).await, Ok(Ok(_)))
}

/// Runs synchronous code that may block on a thread for that.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::new(ErrorCode::DaemonUnreachable, format!("the connection could not be opened: {e}")))
}

/// Makes a JSON-RPC client of a connected socket and greets the daemon. There is no client if the handshake failed.
async fn greet(
    settings: &Settings,
    stream: UnixStream,
    timeout: Duration,
) -> (Option<Rpc>, Result<Welcome, GreetError>) {
    let timed_out = GreetError::Call(CallError::TimedOut);
    let give_up = tokio::time::Instant::now() + timeout;
    let rpc = match tokio::time::timeout_at(give_up, handshake(stream, timeout)).await {
        Ok(Ok(rpc)) => rpc,
        Ok(Err(error)) => return (None, Err(error)),
        Err(_) => return (None, Err(timed_out)),
    };
    let hello = rpc.call(Hello { hello: settings.greeting() });
    let result = match tokio::time::timeout_at(give_up, hello).await {
        Ok(result) => result.map_err(|e| GreetError::Call(e.into())),
        Err(_) => Err(timed_out),
    };
    (Some(rpc), result)
}

async fn handshake(stream: UnixStream, timeout: Duration) -> Result<Rpc, GreetError> {
    socket::check_peer(&stream)?;
    stream.set_nonblocking(true).map_err(GreetError::hung_up)?;
    let stream = tokio::net::UnixStream::from_std(stream).map_err(GreetError::hung_up)?;
    let url = Url::parse("ws://localhost/").map_err(GreetError::hung_up)?;
    let transport = WsTransportClientBuilder::default()
        .max_request_size(MAX_REQUEST_BYTES)
        .max_response_size(MAX_RESPONSE_BYTES)
        .connection_timeout(timeout);
    let (sender, receiver) = transport.build_with_stream(url, stream).await.map_err(|e| match e {
        WsHandshakeError::Timeout(_) => GreetError::Call(CallError::TimedOut),
        e => GreetError::hung_up(e),
    })?;
    Ok(Rpc(ClientBuilder::default().request_timeout(MAX_REQUEST_TIME).build_with_tokio(sender, receiver)))
}
