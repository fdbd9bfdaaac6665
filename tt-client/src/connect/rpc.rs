//! An open connection to the daemon. There are two kinds, because most of a short command's time is start-up: HTTP makes one
//! call at a time and blocks for the response, with no handshake, task, timer or runtime; WebSocket has many calls under way
//! and streams.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jsonrpsee::core::ClientError;
use jsonrpsee::core::client::{Client as WebSocketClient, ClientT, Subscription, SubscriptionClientT};
use jsonrpsee::core::traits::ToRpcParams;
use jsonrpsee::types::{ErrorObjectOwned, Id, Request};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tt_proto::hello::Greeting;
use tt_proto::requests::{Hello, Method, Stream, Welcome};
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};

/// A response whose head is longer than this is not from the daemon.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A socket's own time-out is rounded to the ticks of the kernel. Where less than this is left, as for a prompt, `poll` is
/// used instead; elsewhere the socket's time-out is cheaper.
const MIN_SOCKET_TIMEOUT: Duration = Duration::from_millis(50);

/// A connection to call on.
#[derive(Debug)]
pub enum Rpc {
    Http(Box<HttpConnection>),
    WebSocket(WebSocketClient),
}

/// A connection that makes one call at a time.
#[derive(Debug)]
pub struct HttpConnection(Mutex<HttpState>);

#[derive(Debug)]
struct HttpState {
    /// Taken out while a call is under way: a call that timed out leaves its response behind, and the next call must not
    /// read that.
    stream: Option<UnixStream>,
    /// Sent together with the first call.
    greeting: Option<Greeting>,
    welcome: Option<Welcome>,
    /// How long a call may take.
    timeout: Duration,
}

/// A JSON-RPC response.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorObjectOwned>,
}

impl HttpConnection {
    /// Takes a blocking socket. The greeting, if there is one, is sent together with the first call.
    pub(super) fn new(stream: UnixStream, greeting: Option<Greeting>, timeout: Duration) -> Self {
        Self(Mutex::new(HttpState { stream: Some(stream), greeting, welcome: None, timeout }))
    }

    fn request<R: DeserializeOwned>(&self, method: &str, params: &RawValue) -> Result<R, ClientError> {
        let body = body(method, params)?;
        if body.len() > MAX_REQUEST_BYTES as usize {
            // Refused as the daemon would: a connection that was cut would be tried again.
            let refusal = Error::new(ErrorCode::InvalidInput, format!("a call of {} bytes is too long", body.len()));
            return Err(ClientError::Call(refusal.into()));
        }
        let mut state = self.lock();
        match state.greeting.take() {
            None => parse_response(&state.exchange(&body)?),
            Some(hello) => {
                let hello = self::body(Hello::NAME, &to_raw_value(&Hello { hello })?)?;
                let responses = state.exchange(&format!("[{hello},{body}]"))?;
                // The responses come in order. A daemon that does not support batches refuses both with one error.
                let [welcome, response] = serde_json::from_slice::<[&RawValue; 2]>(&responses).map_err(cut)?;
                state.welcome = parse_response(welcome.get().as_bytes()).ok();
                parse_response(response.get().as_bytes())
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HttpState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn body(method: &str, params: &RawValue) -> Result<String, ClientError> {
    Ok(serde_json::to_string(&Request::borrowed(method, Some(params), Id::Number(0)))?)
}

fn parse_response<R: DeserializeOwned>(response: &[u8]) -> Result<R, ClientError> {
    let response: Response<'_> = serde_json::from_slice(response)?;
    match (response.result, response.error) {
        (_, Some(error)) => Err(ClientError::Call(error)),
        (result, None) => Ok(serde_json::from_str(result.map_or("null", RawValue::get))?),
    }
}

fn cut(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Transport(why.into())
}

impl HttpState {
    /// Sends a request and reads its response.
    fn exchange(&mut self, body: &str) -> Result<Vec<u8>, ClientError> {
        let mut stream = self.stream.take().ok_or_else(|| cut("the last call timed out"))?;
        let give_up = Instant::now() + self.timeout;
        let request = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::TimedOut => ClientError::RequestTimeout,
            _ => cut(e),
        };
        write_all(&mut stream, request.as_bytes(), give_up).map_err(failed)?;
        let answer = read_answer(&mut stream, give_up).map_err(failed)?;
        self.stream = Some(stream);
        Ok(answer)
    }
}

/// How long is left until a call is given up.
fn left(give_up: Instant) -> std::io::Result<Duration> {
    let left = give_up.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn write_all(stream: &mut UnixStream, mut bytes: &[u8], give_up: Instant) -> std::io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(give_up)?))?;
        match stream.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(e) if [ErrorKind::Interrupted, ErrorKind::WouldBlock].contains(&e.kind()) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads what there is, once there is something.
fn read_some(stream: &mut UnixStream, bytes: &mut [u8], give_up: Instant) -> std::io::Result<usize> {
    loop {
        let left = left(give_up)?;
        if left < MIN_SOCKET_TIMEOUT {
            let left = PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLIN)], left) {
                Ok(0) | Err(Errno::EINTR) => continue,
                ready => ready?,
            };
        } else {
            stream.set_read_timeout(Some(left))?;
        }
        match stream.read(bytes) {
            Err(e) if [ErrorKind::Interrupted, ErrorKind::WouldBlock].contains(&e.kind()) => {}
            read => return read,
        }
    }
}

/// Reads an answer to its end.
fn read_answer(stream: &mut UnixStream, give_up: Instant) -> std::io::Result<Vec<u8>> {
    let (mut read, mut piece) = (Vec::new(), [0; 4096]);
    let mut head = None;
    while head.as_ref().is_none_or(|head: &Head| read.len() < head.length + head.body) {
        let length = read_some(stream, &mut piece, give_up)?;
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&piece[..length]);
        if head.is_none() {
            head = Head::parse(&read)?;
        }
    }
    let head = head.ok_or_else(|| bad("no head"))?;
    // It would be read as the answer to the next call.
    if read.len() > head.length + head.body {
        return Err(bad("more was answered than asked"));
    }
    if head.status != 200 {
        return Err(bad("the answer is not one of success"));
    }
    Ok(read.split_off(head.length))
}

fn bad(what: &'static str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what)
}

/// What an answer's head says.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// The bytes up to the body.
    length: usize,
    /// The bytes of the body.
    body: usize,
}

impl Head {
    /// The head, once it is there as a whole.
    fn parse(read: &[u8]) -> std::io::Result<Option<Self>> {
        let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if read.len() > MAX_HEAD_BYTES { Err(bad("no end to the head of an answer")) } else { Ok(None) };
        };
        let text = std::str::from_utf8(&read[..end]).map_err(|_| bad("the head of an answer is not text"))?;
        let mut lines = text.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
        let length = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
        });
        match (status, length) {
            (_, Some(body)) if body > MAX_RESPONSE_BYTES as usize => Err(bad("the answer is too long")),
            (Some(status), Some(body)) => Ok(Some(Self { status, length: end + 4, body })),
            _ => Err(bad("not the head of an answer")),
        }
    }
}

/// Parameters that are JSON already.
struct RawParams(Box<RawValue>);

impl ToRpcParams for RawParams {
    fn to_rpc_params(self) -> Result<Option<Box<RawValue>>, serde_json::Error> {
        Ok(Some(self.0))
    }
}

impl Rpc {
    /// Makes a call, once.
    pub async fn call<M: Method>(&self, request: M) -> Result<M::Answer, ClientError> {
        self.request(M::NAME, &request).await
    }

    /// Makes a call by its name, for parameters and answers that are passed through.
    pub async fn request<R: DeserializeOwned>(&self, name: &str, params: &impl Serialize) -> Result<R, ClientError> {
        let params = to_raw_value(params)?;
        match self {
            Self::Http(connection) => connection.request(name, &params),
            Self::WebSocket(client) => client.request(name, RawParams(params)).await,
        }
    }

    /// Starts a stream. Only a WebSocket can carry one.
    pub async fn subscribe<S: Stream>(&self, request: &S) -> Result<Subscription<S::Item>, ClientError> {
        match self {
            Self::Http(_) => Err(ClientError::HttpNotImplemented),
            Self::WebSocket(client) => {
                client.subscribe(S::SUBSCRIBE, RawParams(to_raw_value(request)?), S::UNSUBSCRIBE).await
            }
        }
    }

    /// The answer to the greeting that was sent with the first call, unless it was refused.
    pub(super) fn welcome(&self) -> Option<Welcome> {
        match self {
            Self::Http(connection) => connection.lock().welcome.take(),
            Self::WebSocket(_) => None,
        }
    }

    /// Makes a call within a deadline; none if it took longer.
    pub(super) async fn within<T>(
        &self,
        deadline: Duration,
        call: impl AsyncFn(&Rpc) -> Result<T, ClientError>,
    ) -> Option<Result<T, ClientError>> {
        match self {
            Self::Http(connection) => {
                let usual = std::mem::replace(&mut connection.lock().timeout, deadline);
                let answer = call(self).await;
                connection.lock().timeout = usual;
                Some(answer).filter(|answer| !matches!(answer, Err(ClientError::RequestTimeout)))
            }
            Self::WebSocket(_) => tokio::time::timeout(deadline, call(self)).await.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn connection(stream: UnixStream, greeting: Option<Greeting>) -> HttpConnection {
        HttpConnection::new(stream, greeting, Duration::from_secs(60))
    }

    /// A daemon that reads one request, answers with these bytes in these pieces, and tells what it was asked.
    fn daemon(mut theirs: UnixStream, pieces: &[&str]) -> thread::JoinHandle<String> {
        let pieces: Vec<String> = pieces.iter().map(|&piece| piece.to_owned()).collect();
        thread::spawn(move || {
            let mut asked = vec![0; 4096];
            let length = theirs.read(&mut asked).unwrap();
            for piece in pieces {
                // The client may have seen enough.
                let _ = theirs.write_all(piece.as_bytes());
                thread::yield_now();
            }
            String::from_utf8(asked[..length].to_vec()).unwrap()
        })
    }

    fn answered(pieces: &[&str]) -> Result<u32, ClientError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let daemon = daemon(theirs, pieces);
        let answer = connection(ours, None).request("number", RawValue::NULL);
        daemon.join().unwrap();
        answer
    }

    /// What a call is answered with and what its greeting was, by a daemon that answers with these bytes, cut up there.
    fn greeted(bytes: &str, at: usize) -> (Result<u32, ClientError>, Option<Welcome>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let hello = serde_json::from_value(serde_json::json!({"protocol": 1, "version": "1"})).unwrap();
        let rpc = connection(ours, Some(hello));
        let daemon = daemon(theirs, &[&bytes[..at], &bytes[at..]]);
        let answer = rpc.request("number", RawValue::NULL);
        let asked = daemon.join().unwrap();
        let methods: Vec<usize> = ["\"hello\"", "\"number\""].map(|method| asked.find(method).unwrap()).into();
        assert!(methods.is_sorted() && asked.matches("POST / ").count() == 1, "{asked}");
        let welcome = rpc.lock().welcome.take();
        (answer, welcome)
    }

    fn answer(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn a_greeting_goes_out_with_the_first_call_and_each_gets_its_own_answer() {
        let welcome = r#"{"jsonrpc":"2.0","id":0,"result":{"protocol":1,"min_protocol":1,"version":"7","capabilities":[],"identity":{"agent_id":"a","display_name":"a","found_by":"user","user":"u"},"pid":7,"supervised":false,"log":"/l"}}"#;
        let number = r#"{"jsonrpc":"2.0","id":0,"result":7}"#;
        let whole = answer(&format!("[{welcome},{number}]"));
        for at in 1..whole.len() {
            let (answer, welcome) = greeted(&whole, at);
            assert_eq!((answer.unwrap(), welcome.unwrap().pid), (7, 7), "cut at {at}");
        }
        let refusal = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no"}}"#;
        let (call, none) = greeted(&answer(&format!("[{refusal},{refusal}]")), 10);
        assert!(matches!(call, Err(ClientError::Call(_))) && none.is_none(), "{call:?} {none:?}");
        for (what, not_both) in [
            ("more than was asked", whole + "x"),
            ("a daemon that takes one call at a time", answer(refusal)),
            ("one answer", answer(&format!("[{welcome}]"))),
        ] {
            let (call, none) = greeted(&not_both, 10);
            assert!(matches!(call, Err(ClientError::Transport(_))) && none.is_none(), "{what}: {call:?}");
        }
    }

    #[test]
    fn an_answer_is_read_however_it_is_cut_up() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-type: x\r\nCONTENT-length:  35\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":7}";
        for at in 1..whole.len() {
            let (one, two) = whole.split_at(at);
            assert_eq!(answered(&[one, two]).unwrap(), 7, "cut at {at}");
        }
    }

    #[test]
    fn what_is_no_answer_is_a_cut_connection_and_never_a_hang() {
        let not_answers: [&[&str]; 8] = [
            &[],
            &["HTTP/1.1 200 OK\r\ncontent-length: 35\r\n\r\n{"],
            &["HTTP/1.1 200 OK\r\n\r\n{}"],
            &["HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{}"],
            &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}{}"],
            &["HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno"],
            &["HTTP/1.1 500 Oh\r\ncontent-length: 35\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":7}"],
            &["\u{1}\u{2}\r\n\r\n"],
        ];
        for pieces in not_answers {
            let answer = answered(pieces);
            assert!(matches!(answer, Err(ClientError::Transport(_))), "{pieces:?}: {answer:?}");
        }
        let endless = "x".repeat(MAX_HEAD_BYTES + 2);
        assert!(matches!(answered(&[&endless]), Err(ClientError::Transport(_))));
        let unreadable = answered(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"]);
        assert!(matches!(unreadable, Err(ClientError::ParseError(_))), "{unreadable:?}");
    }

    #[test]
    fn the_answer_to_a_call_that_was_given_up_is_never_taken_for_the_next_ones() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let rpc = connection(ours, None);
        rpc.lock().timeout = Duration::from_millis(1);
        let given_up = rpc.request::<u32>("one", RawValue::NULL);
        assert!(matches!(given_up, Err(ClientError::RequestTimeout)), "{given_up:?}");
        // Whether or not it is still listened to, the answer to the first call comes.
        let late = b"HTTP/1.1 200 OK\r\ncontent-length: 35\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":1}";
        let _ = theirs.write_all(late);
        let next = rpc.request::<u32>("two", RawValue::NULL);
        assert!(matches!(next, Err(ClientError::Transport(_))), "{next:?}");
    }

    #[test]
    fn a_daemon_that_answers_byte_by_byte_is_given_up_in_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let rpc = connection(ours, None);
        rpc.lock().timeout = Duration::from_millis(20);
        // Each byte comes well within the time there is for all of them, which is not enough for a million.
        let drip = thread::spawn(move || {
            theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").unwrap();
            while theirs.write_all(b"x").is_ok() {
                thread::yield_now();
            }
        });
        let given_up = rpc.request::<u32>("one", RawValue::NULL);
        assert!(matches!(given_up, Err(ClientError::RequestTimeout)), "{given_up:?}");
        drip.join().unwrap();
    }
}
