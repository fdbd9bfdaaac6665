//! A connection as the API's callers see it. Two kinds, because starting up is most of what a short command does: one call
//! at a time as HTTP requests, with no handshake, task or timer; or a WebSocket with many calls at once and streams.

use std::fmt::Debug;

use jsonrpsee::core::ClientError;
use jsonrpsee::core::client::{BatchResponse, Client as WebSocket, ClientT, Subscription, SubscriptionClientT};
use jsonrpsee::core::params::BatchRequestBuilder;
use jsonrpsee::core::rpc_params;
use jsonrpsee::core::traits::ToRpcParams;
use jsonrpsee::types::{ErrorObjectOwned, Id, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tt_proto::hello::{Hello, Welcome};
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};

/// More than this is no head of an answer of ours.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A connection to call on.
#[derive(Debug)]
pub enum Rpc {
    Short(Box<Short>),
    Long(WebSocket),
}

/// One call at a time.
#[derive(Debug)]
pub struct Short(Mutex<Line>);

#[derive(Debug)]
struct Line {
    /// Taken out for as long as a call is under way: one that was given up leaves its answer behind, and the next call must
    /// not read that.
    stream: Option<UnixStream>,
    hello: Option<Hello>,
    welcome: Option<Welcome>,
}

/// What a call is answered with.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorObjectOwned>,
}

impl Short {
    /// A greeting, if there is one, goes out together with the first call.
    pub(super) fn new(stream: UnixStream, hello: Option<Hello>) -> Self {
        Self(Mutex::new(Line { stream: Some(stream), hello, welcome: None }))
    }

    async fn request<R: DeserializeOwned>(&self, method: &str, params: impl ToRpcParams) -> Result<R, ClientError> {
        let body = body(method, params)?;
        if body.len() > MAX_REQUEST_BYTES as usize {
            // Refused as the daemon would: a connection that was cut would be tried again.
            let refusal = Error::new(ErrorCode::InvalidInput, format!("a call of {} bytes is too long", body.len()));
            return Err(ClientError::Call(refusal.into()));
        }
        let mut line = self.0.lock().await;
        let (head, answer) = line.exchange(&body).await?;
        understand(&head, &answer)
    }
}

fn body(method: &str, params: impl ToRpcParams) -> Result<String, ClientError> {
    let params = params.to_rpc_params()?;
    Ok(serde_json::to_string(&Request::borrowed(method, params.as_deref(), Id::Number(0)))?)
}

fn understand<R: DeserializeOwned>(head: &Head, answer: &[u8]) -> Result<R, ClientError> {
    let answer: Answer<'_> = serde_json::from_slice(answer)
        .map_err(|e| if head.is_success() { e.into() } else { cut(format!("HTTP status {}", head.status)) })?;
    match (answer.result, answer.error) {
        (_, Some(error)) => Err(ClientError::Call(error)),
        (result, None) => Ok(serde_json::from_str(result.map_or("null", RawValue::get))?),
    }
}

fn cut(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Transport(why.into())
}

impl Line {
    /// Sends a call, after the greeting if there is one, and reads what is answered.
    async fn exchange(&mut self, body: &str) -> Result<(Head, Vec<u8>), ClientError> {
        let mut stream = self.stream.take().ok_or_else(|| cut("the last call was given up"))?;
        let hello = self.hello.take().map(|hello| self::body("hello", rpc_params![hello])).transpose()?;
        let requests: String = hello.iter().map(String::as_str).chain([body]).map(request).collect();
        stream.write_all(requests.as_bytes()).await.map_err(cut)?;
        let mut read = Vec::with_capacity(4096);
        if hello.is_some() {
            let (head, answer) = read_answer(&mut stream, &mut read).await.map_err(cut)?;
            self.welcome = understand(&head, &answer).ok();
        }
        let answer = read_answer(&mut stream, &mut read).await.map_err(cut)?;
        // It would be read as the answer to the next call.
        if !read.is_empty() {
            return Err(cut("more was answered than asked"));
        }
        self.stream = Some(stream);
        Ok(answer)
    }
}

fn request(body: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Reads an answer to its end, and leaves in `read` what came after it.
async fn read_answer(stream: &mut UnixStream, read: &mut Vec<u8>) -> std::io::Result<(Head, Vec<u8>)> {
    let mut head = Head::parse(read)?;
    while head.as_ref().is_none_or(|head| read.len() < head.length + head.body) {
        if stream.read_buf(read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if head.is_none() {
            head = Head::parse(read)?;
        }
        if let Some(head) = &head {
            read.reserve((head.length + head.body).saturating_sub(read.len()));
        }
    }
    let head = head.ok_or_else(|| bad("no head"))?;
    let answer = read.drain(..head.length + head.body).skip(head.length).collect();
    Ok((head, answer))
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

    fn is_success(&self) -> bool {
        self.status == 200
    }
}

impl Rpc {
    /// What the greeting that went out with the first call was answered with, unless that was a refusal.
    pub(super) async fn welcome(&self) -> Option<Welcome> {
        match self {
            Self::Short(rpc) => rpc.0.lock().await.welcome.take(),
            Self::Long(_) => None,
        }
    }
}

impl ClientT for Rpc {
    async fn notification<Params>(&self, method: &str, params: Params) -> Result<(), ClientError>
    where
        Params: ToRpcParams + Send,
    {
        match self {
            Self::Short(_) => Err(ClientError::HttpNotImplemented),
            Self::Long(rpc) => rpc.notification(method, params).await,
        }
    }

    async fn request<R, Params>(&self, method: &str, params: Params) -> Result<R, ClientError>
    where
        R: DeserializeOwned,
        Params: ToRpcParams + Send,
    {
        match self {
            Self::Short(rpc) => rpc.request(method, params).await,
            Self::Long(rpc) => rpc.request(method, params).await,
        }
    }

    async fn batch_request<'a, R>(&self, batch: BatchRequestBuilder<'a>) -> Result<BatchResponse<'a, R>, ClientError>
    where
        R: DeserializeOwned + Debug + 'a,
    {
        match self {
            Self::Short(_) => Err(ClientError::HttpNotImplemented),
            Self::Long(rpc) => rpc.batch_request(batch).await,
        }
    }
}

impl SubscriptionClientT for Rpc {
    async fn subscribe<'a, Notif, Params>(
        &self,
        subscribe_method: &'a str,
        params: Params,
        unsubscribe_method: &'a str,
    ) -> Result<Subscription<Notif>, ClientError>
    where
        Params: ToRpcParams + Send,
        Notif: DeserializeOwned,
    {
        match self {
            Self::Short(_) => Err(ClientError::HttpNotImplemented),
            Self::Long(rpc) => rpc.subscribe(subscribe_method, params, unsubscribe_method).await,
        }
    }

    async fn subscribe_to_method<Notif>(&self, method: &str) -> Result<Subscription<Notif>, ClientError>
    where
        Notif: DeserializeOwned,
    {
        match self {
            Self::Short(_) => Err(ClientError::HttpNotImplemented),
            Self::Long(rpc) => rpc.subscribe_to_method(method).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A daemon that reads one request and answers with these bytes, in these pieces.
    async fn answered(pieces: &[&str]) -> Result<u32, ClientError> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let pieces: Vec<String> = pieces.iter().map(|&piece| piece.to_owned()).collect();
        tokio::spawn(async move {
            let _ = theirs.read(&mut [0; 4096]).await;
            for piece in pieces {
                theirs.write_all(piece.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        Rpc::Short(Box::new(Short::new(ours, None))).request("number", jsonrpsee::core::rpc_params![]).await
    }

    /// What a call is answered with and what its greeting was, by a daemon that answers with these bytes, cut up there.
    async fn greeted(bytes: &str, at: usize) -> (Result<u32, ClientError>, Option<Welcome>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let hello = serde_json::from_value(serde_json::json!({"protocol": 1, "version": "1"})).unwrap();
        let rpc = Rpc::Short(Box::new(Short::new(ours, Some(hello))));
        let (one, two) = (bytes[..at].to_owned(), bytes[at..].to_owned());
        let daemon = tokio::spawn(async move {
            let mut asked = vec![0; 4096];
            let length = theirs.read(&mut asked).await.unwrap();
            for piece in [one, two] {
                theirs.write_all(piece.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
            }
            String::from_utf8(asked[..length].to_vec()).unwrap()
        });
        let answer = rpc.request("number", jsonrpsee::core::rpc_params![]).await;
        let asked = daemon.await.unwrap();
        let methods: Vec<usize> = ["\"hello\"", "\"number\""].map(|method| asked.find(method).unwrap()).into();
        assert!(methods.is_sorted() && asked.matches("POST / ").count() == 2, "{asked}");
        (answer, rpc.welcome().await)
    }

    fn answer(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn a_greeting_goes_out_with_the_first_call_and_each_gets_its_own_answer() {
        let welcome = r#"{"jsonrpc":"2.0","id":0,"result":{"protocol":1,"min_protocol":1,"version":"7","capabilities":[],"identity":{"agent_id":"a","display_name":"a","found_by":"user","user":"u"},"pid":7,"supervised":false,"log":"/l"}}"#;
        let number = r#"{"jsonrpc":"2.0","id":0,"result":7}"#;
        let whole = answer(welcome) + &answer(number);
        for at in 1..whole.len() {
            let (answer, welcome) = greeted(&whole, at).await;
            assert_eq!((answer.unwrap(), welcome.unwrap().pid), (7, 7), "cut at {at}");
        }
        let refusal = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"no"}}"#;
        let (call, welcome) = greeted(&(answer(refusal) + &answer(refusal)), 10).await;
        assert!(matches!(call, Err(ClientError::Call(_))) && welcome.is_none(), "{call:?} {welcome:?}");
        let (call, _) = greeted(&(whole + "x"), 10).await;
        assert!(matches!(call, Err(ClientError::Transport(_))), "{call:?}");
    }

    #[tokio::test]
    async fn an_answer_is_read_however_it_is_cut_up() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-type: x\r\nCONTENT-length:  35\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":7}";
        for at in 1..whole.len() {
            let (one, two) = whole.split_at(at);
            assert_eq!(answered(&[one, two]).await.unwrap(), 7, "cut at {at}");
        }
    }

    #[tokio::test]
    async fn what_is_no_answer_is_a_cut_connection_and_never_a_hang() {
        let not_answers: [&[&str]; 7] = [
            &[],
            &["HTTP/1.1 200 OK\r\ncontent-length: 35\r\n\r\n{"],
            &["HTTP/1.1 200 OK\r\n\r\n{}"],
            &["HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{}"],
            &["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}{}"],
            &["HTTP/1.1 500 Oh\r\ncontent-length: 2\r\n\r\nno"],
            &["\u{1}\u{2}\r\n\r\n"],
        ];
        for pieces in not_answers {
            let answer = answered(pieces).await;
            assert!(matches!(answer, Err(ClientError::Transport(_))), "{pieces:?}: {answer:?}");
        }
        let endless = "x".repeat(MAX_HEAD_BYTES + 2);
        assert!(matches!(answered(&[&endless]).await, Err(ClientError::Transport(_))));
        let unreadable = answered(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"]).await;
        assert!(matches!(unreadable, Err(ClientError::ParseError(_))), "{unreadable:?}");
    }

    #[tokio::test]
    async fn the_answer_to_a_call_that_was_given_up_is_never_taken_for_the_next_ones() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let rpc = Rpc::Short(Box::new(Short::new(ours, None)));
        let given_up = rpc.request::<u32, _>("one", jsonrpsee::core::rpc_params![]);
        tokio::select! {
            biased;
            _ = given_up => panic!("nobody answered"),
            _ = theirs.readable() => {}
        }
        // Whether or not it is still listened to, the answer to the first call comes.
        let late = b"HTTP/1.1 200 OK\r\ncontent-length: 35\r\n\r\n{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":1}";
        let _ = theirs.write_all(late).await;
        let next = rpc.request::<u32, _>("two", jsonrpsee::core::rpc_params![]).await;
        assert!(matches!(next, Err(ClientError::Transport(_))), "{next:?}");
    }
}
