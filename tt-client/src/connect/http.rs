//! The client of a short command: synchronous, one call at a time.

use std::thread;
use std::time::{Duration, Instant};

use tt_proto::paths::is_private_dir;
use tt_proto::requests::{DaemonStop, Hello, Method, Welcome};
use tt_proto::{Error, ErrorCode};

use super::attempts::{Attempts, Next, Retry};
use super::http_connection::HttpConnection;
use super::socket::{self, Opened};
use super::{CallError, GreetError, RECONNECT_DELAY, Settings, busy, replace};

/// A connection that has greeted the daemon, and reconnects when it is cut.
#[derive(Debug)]
pub struct HttpClient {
    settings: Settings,
    connection: HttpConnection,
    welcome: Welcome,
}

/// A client that has just connected, and the answer to its first call.
type Connected<A> = (HttpClient, Result<A, Error>);

impl HttpClient {
    /// Connects, starting the daemon if there is none and it may be started.
    pub fn connect(settings: Settings) -> Result<Self, Error> {
        let (connection, welcome) = reach(&settings)?;
        Ok(Self { settings: settings.without_context_path(), connection, welcome })
    }

    /// Connects and makes a first call, which is sent together with the greeting. If that does not work the call is made
    /// again after an ordinary connect, so it must be safe to repeat, like any other.
    pub fn connect_and_call<M: Method>(settings: Settings, first: &M) -> Result<Connected<M::Answer>, Error> {
        if let Some(connected) = Self::try_connect_and_call(&settings, first)? {
            return Ok(connected);
        }
        let (connection, welcome) = reach(&settings)?;
        let mut client = Self { settings, connection, welcome };
        let answer = client.call(first);
        client.settings.context_path = None;
        Ok((client, answer))
    }

    /// Connects and makes a first call in one request, without starting, replacing or waiting for a daemon. None if that is
    /// necessary, or if the call did not get through.
    pub fn try_connect_and_call<M: Method>(
        settings: &Settings,
        first: &M,
    ) -> Result<Option<Connected<M::Answer>>, Error> {
        is_private_dir(settings.paths.socket_dir())?;
        let stream = match socket::open(&settings.paths.socket, settings.deadline) {
            Opened::Stream(stream) => stream,
            Opened::NoDaemon => return Ok(None),
            // It has had its time already.
            Opened::Busy => return Err(busy(settings)),
            Opened::Failed(error) => return Err(error),
        };
        if socket::check_peer(&stream).is_err() {
            return Ok(None);
        }
        let mut connection = HttpConnection::new(stream);
        let (welcome, answer) = match connection.greet_and_call(settings.greeting(), first, settings.deadline) {
            Ok(both) => both,
            Err(CallError::TimedOut) => return Err(busy(settings)),
            Err(_) => return Ok(None),
        };
        let answer = match answer {
            Ok(answer) => Ok(answer),
            // A daemon that is stopping says so; the next one takes the call. One that does not know whether it carried the
            // call out finds out when it is repeated.
            Err(CallError::Refused(error))
                if !matches!(error.code, ErrorCode::DaemonUnreachable | ErrorCode::OutcomeUnknown) =>
            {
                Err(error)
            }
            Err(_) => return Ok(None),
        };
        let Some(welcome) = welcome.filter(|welcome| !replace::should_replace(settings, welcome)) else {
            return Ok(None);
        };
        let settings = settings.clone().without_context_path();
        Ok(Some((Self { settings, connection, welcome }, answer)))
    }

    /// Gives the calls from now on this long.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.settings.deadline = deadline;
    }

    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// From now on a member's call also makes the caller a member of the room, if the call succeeds.
    pub fn join_by_calls(&mut self) -> Result<(), Error> {
        self.settings.joins = true;
        let hello = Hello { hello: self.settings.greeting() };
        self.call(&hello).map(|_| ())
    }

    /// Makes one call. A connection that was cut is opened again and the call repeated, so it must be safe to repeat: a read,
    /// or a write with an idempotency key.
    pub fn call<M: Method>(&mut self, request: &M) -> Result<M::Answer, Error> {
        self.call_within(self.settings.deadline, request)
    }

    /// Makes one call that may take longer than an ordinary one, and repeats it on a new connection if it is cut.
    pub fn call_within<M: Method>(&mut self, deadline: Duration, request: &M) -> Result<M::Answer, Error> {
        let mut retry = Retry::default();
        loop {
            let asked = Instant::now();
            match self.connection.call(request, deadline) {
                Ok(answer) => return Ok(answer),
                Err(error) => retry.after(&self.settings, error, asked.elapsed())?,
            }
            thread::sleep(RECONNECT_DELAY);
            (self.connection, self.welcome) = reach(&self.settings)?;
        }
    }

    /// Asks this daemon, and not its successor, to stop. Returns whether it agreed.
    pub(super) fn ask_to_stop(&mut self) -> bool {
        ask_to_stop(&mut self.connection, &self.settings)
    }
}

fn ask_to_stop(connection: &mut HttpConnection, settings: &Settings) -> bool {
    connection.call(&DaemonStop {}, settings.deadline).is_ok()
}

/// Opens a connection and greets the daemon, starting or replacing it if need be.
fn reach(settings: &Settings) -> Result<(HttpConnection, Welcome), Error> {
    let mut attempts = Attempts::new(settings)?;
    loop {
        let stream = attempts.open()?;
        let peer = socket::check_peer(&stream);
        let mut connection = HttpConnection::new(stream);
        let result = peer.and_then(|()| {
            let hello = Hello { hello: settings.greeting() };
            connection.call(&hello, attempts.time_left()).map_err(GreetError::Call)
        });
        match attempts.after_greeting(result)? {
            Next::Keep(welcome) => return Ok((connection, *welcome)),
            Next::Replace { pid } => {
                let agreed = ask_to_stop(&mut connection, settings);
                replace::replace(settings, pid, agreed)?;
                attempts.restart_deadline();
            }
            Next::Retry => thread::sleep(RECONNECT_DELAY),
        }
    }
}
