//! JSON-RPC over HTTP on a blocking socket, one call at a time. Deadlines are the socket's own time-outs.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use jsonrpsee::types::{ErrorObjectOwned, Id, Request};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tt_proto::hello::Greeting;
use tt_proto::requests::{Hello, Method, Welcome};
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};

use super::CallError;

/// A response whose head is longer than this is not from the daemon.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A socket's own time-out is rounded to the ticks of the kernel. Where less than this is left, as for a prompt, `poll` is
/// used instead; elsewhere the socket's time-out is cheaper.
const MIN_SOCKET_TIMEOUT: Duration = Duration::from_millis(50);

/// A connection that makes one call at a time.
#[derive(Debug)]
pub(super) struct HttpConnection {
    /// Taken out while a call is under way: a call that timed out leaves its response behind, and the next call must not
    /// read that.
    stream: Option<UnixStream>,
}

/// The ids of the calls in one request. A connection has one request under way, so they need not differ between requests.
const CALL_ID: u64 = 0;
const HELLO_ID: u64 = 1;

/// A JSON-RPC response.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    id: Id<'a>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorObjectOwned>,
}

impl HttpConnection {
    /// Takes a blocking socket whose peer was checked.
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream: Some(stream) }
    }

    /// Makes a call, once.
    pub(super) fn call<M: Method>(&mut self, request: &M, timeout: Duration) -> Result<M::Answer, CallError> {
        self.request(M::NAME, request, timeout)
    }

    fn request<R: DeserializeOwned>(
        &mut self,
        method: &str,
        params: &impl Serialize,
        timeout: Duration,
    ) -> Result<R, CallError> {
        let response = self.exchange(&body(CALL_ID, method, params)?, timeout)?;
        let response: Response<'_> = serde_json::from_slice(&response).map_err(CallError::Unreadable)?;
        // A daemon that could not read the request does not know its id, and says so in an error.
        let is_anonymous_error = response.id == Id::Null && response.error.is_some();
        if !is_anonymous_error && !response.answers(CALL_ID) {
            return Err(other_call(&response.id));
        }
        parse_result(response)
    }

    /// Greets the daemon and makes a call in one request. The greeting has no answer if it was refused.
    pub(super) fn greet_and_call<M: Method>(
        &mut self,
        greeting: Greeting,
        request: &M,
        timeout: Duration,
    ) -> Result<Greeted<M::Answer>, CallError> {
        self.greet_and_request(greeting, M::NAME, request, timeout)
    }

    fn greet_and_request<R: DeserializeOwned>(
        &mut self,
        greeting: Greeting,
        method: &str,
        params: &impl Serialize,
        timeout: Duration,
    ) -> Result<Greeted<R>, CallError> {
        let hello = body(HELLO_ID, Hello::NAME, &Hello { hello: greeting })?;
        let call = body(CALL_ID, method, params)?;
        let responses = self.exchange(&format!("[{hello},{call}]"), timeout)?;
        // A daemon that does not support batches refuses both with one error.
        let not_both = |e: serde_json::Error| CallError::Cut(e.to_string());
        let responses: [Response<'_>; 2] = serde_json::from_slice(&responses).map_err(not_both)?;
        // The responses to a batch may come in any order.
        let (welcome, response) = match responses {
            [welcome, response] if welcome.answers(HELLO_ID) && response.answers(CALL_ID) => (welcome, response),
            [response, welcome] if welcome.answers(HELLO_ID) && response.answers(CALL_ID) => (welcome, response),
            [one, _] => return Err(other_call(&one.id)),
        };
        Ok((parse_result(welcome).ok(), parse_result(response)))
    }

    /// Sends a request and reads its response.
    fn exchange(&mut self, body: &str, timeout: Duration) -> Result<Vec<u8>, CallError> {
        let mut stream = self.stream.take().ok_or_else(|| CallError::Cut("the last call timed out".into()))?;
        let give_up = Instant::now() + timeout;
        let request = format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let failed = |e: std::io::Error| match e.kind() {
            ErrorKind::TimedOut => CallError::TimedOut,
            _ => CallError::Cut(e.to_string()),
        };
        write_all(&mut stream, request.as_bytes(), give_up).map_err(failed)?;
        let response = read_response(&mut stream, give_up).map_err(failed)?;
        self.stream = Some(stream);
        Ok(response)
    }
}

/// The answers to a greeting, unless it was refused, and to the call that was sent with it.
type Greeted<R> = (Option<Welcome>, Result<R, CallError>);

fn body(id: u64, method: &str, params: &impl Serialize) -> Result<String, CallError> {
    let params = to_raw_value(params).map_err(CallError::Unreadable)?;
    let request = Request::borrowed(method, Some(&params), Id::Number(id));
    let body = serde_json::to_string(&request).map_err(CallError::Unreadable)?;
    if body.len() > MAX_REQUEST_BYTES as usize {
        // Refused as the daemon would: a connection that was cut would be tried again.
        let refusal = Error::new(ErrorCode::InvalidInput, format!("a call of {} bytes is too long", body.len()));
        return Err(CallError::Refused(refusal));
    }
    Ok(body)
}

impl Response<'_> {
    fn answers(&self, id: u64) -> bool {
        self.id == Id::Number(id)
    }
}

/// The error of a response to a call that was not made: what else comes on this connection cannot be trusted either.
fn other_call(id: &Id<'_>) -> CallError {
    CallError::Cut(format!("the answer is to another call: {id:?}"))
}

fn parse_result<R: DeserializeOwned>(response: Response<'_>) -> Result<R, CallError> {
    match (response.result, response.error) {
        (_, Some(error)) => Err(CallError::Refused(Error::from(&error))),
        (result, None) => serde_json::from_str(result.map_or("null", RawValue::get)).map_err(CallError::Unreadable),
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

/// Reads at least one byte, or none at the end of the stream.
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

/// Reads a response to its end.
fn read_response(stream: &mut UnixStream, give_up: Instant) -> std::io::Result<Vec<u8>> {
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

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// The bytes up to the body.
    length: usize,
    /// The bytes of the body.
    body: usize,
}

impl Head {
    /// Parses the head. None as long as it is incomplete.
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// No test takes as long.
    const LIMIT: Duration = Duration::from_secs(60);

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

    fn answered(pieces: &[&str]) -> Result<u32, CallError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let daemon = daemon(theirs, pieces);
        let answer = HttpConnection::new(ours).request("number", &(), LIMIT);
        daemon.join().unwrap();
        answer
    }

    /// What a call is answered with and what its greeting was, by a daemon that answers with these bytes, cut up there.
    fn greeted(bytes: &str, at: usize) -> (Result<u32, CallError>, Option<Welcome>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let hello = serde_json::from_value(serde_json::json!({"protocol": 1, "version": "1"})).unwrap();
        let daemon = daemon(theirs, &[&bytes[..at], &bytes[at..]]);
        let greeted = HttpConnection::new(ours).greet_and_request(hello, "number", &(), LIMIT);
        let asked = daemon.join().unwrap();
        let methods: Vec<usize> = ["\"hello\"", "\"number\""].map(|method| asked.find(method).unwrap()).into();
        assert!(methods.is_sorted() && asked.matches("POST / ").count() == 1, "{asked}");
        match greeted {
            Ok((welcome, answer)) => (answer, welcome),
            Err(error) => (Err(error), None),
        }
    }

    fn answer(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn a_greeting_goes_out_with_the_first_call_and_each_gets_its_own_answer() {
        let welcome = r#"{"jsonrpc":"2.0","id":1,"result":{"protocol":1,"min_protocol":1,"version":"7","capabilities":[],"identity":{"agent_id":"a","display_name":"a","found_by":"user","user":"u"},"pid":7,"supervised":false,"log":"/l"}}"#;
        let number = r#"{"jsonrpc":"2.0","id":0,"result":7}"#;
        let whole = answer(&format!("[{welcome},{number}]"));
        for at in 1..whole.len() {
            let (answer, welcome) = greeted(&whole, at);
            assert_eq!((answer.unwrap(), welcome.unwrap().pid), (7, 7), "cut at {at}");
        }
        let (reversed, greeting) = greeted(&answer(&format!("[{number},{welcome}]")), 10);
        assert_eq!((reversed.unwrap(), greeting.unwrap().pid), (7, 7), "in any order");
        let refusal = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no"}}"#;
        let refused_greeting = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#;
        let (call, none) = greeted(&answer(&format!("[{refused_greeting},{refusal}]")), 10);
        assert!(matches!(call, Err(CallError::Refused(_))) && none.is_none(), "{call:?} {none:?}");
        for (what, not_both) in [
            ("more than was asked", whole + "x"),
            ("a daemon that takes one call at a time", answer(refusal)),
            ("one answer", answer(&format!("[{welcome}]"))),
            ("two answers to one call", answer(&format!("[{number},{number}]"))),
            ("the answer to another call", answer(&format!("[{welcome},{}]", number.replace("\"id\":0", "\"id\":2")))),
        ] {
            let (call, none) = greeted(&not_both, 10);
            assert!(matches!(call, Err(CallError::Cut(_))) && none.is_none(), "{what}: {call:?}");
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
        let not_answers: [&[&str]; 10] = [
            &["HTTP/1.1 200 OK\r\ncontent-length: 38\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":7}"],
            &["HTTP/1.1 200 OK\r\ncontent-length: 35\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":7}"],
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
            assert!(matches!(answer, Err(CallError::Cut(_))), "{pieces:?}: {answer:?}");
        }
        let endless = "x".repeat(MAX_HEAD_BYTES + 2);
        assert!(matches!(answered(&[&endless]), Err(CallError::Cut(_))));
        let unreadable = answered(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"]);
        assert!(matches!(unreadable, Err(CallError::Unreadable(_))), "{unreadable:?}");
    }

    #[test]
    fn the_answer_to_a_call_that_was_given_up_is_never_taken_for_the_next_ones() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = HttpConnection::new(ours);
        let given_up = connection.request::<u32>("one", &(), Duration::from_millis(1));
        assert!(matches!(given_up, Err(CallError::TimedOut)), "{given_up:?}");
        // Whether or not it is still listened to, the answer to the first call comes.
        let late = b"HTTP/1.1 200 OK\r\ncontent-length: 35\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":1}";
        let _ = theirs.write_all(late);
        let next = connection.request::<u32>("two", &(), LIMIT);
        assert!(matches!(next, Err(CallError::Cut(_))), "{next:?}");
    }

    #[test]
    fn a_daemon_that_answers_byte_by_byte_is_given_up_in_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = HttpConnection::new(ours);
        // Each byte comes well within the time there is for all of them, which is not enough for a million.
        let drip = thread::spawn(move || {
            theirs.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").unwrap();
            while theirs.write_all(b"x").is_ok() {
                thread::yield_now();
            }
        });
        let given_up = connection.request::<u32>("one", &(), Duration::from_millis(20));
        assert!(matches!(given_up, Err(CallError::TimedOut)), "{given_up:?}");
        drip.join().unwrap();
    }
}
