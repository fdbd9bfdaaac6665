//! A connection as the API's callers see it. Two kinds, because starting up is most of what a short command does: one call
//! at a time as HTTP requests, with no handshake, task or timer; or a WebSocket with many calls at once and streams.

use std::fmt::Debug;

use jsonrpsee::core::ClientError;
use jsonrpsee::core::client::{BatchResponse, Client as WebSocket, ClientT, Subscription, SubscriptionClientT};
use jsonrpsee::core::params::BatchRequestBuilder;
use jsonrpsee::core::traits::ToRpcParams;
use jsonrpsee::types::{ErrorObjectOwned, Id, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tt_proto::{Error, ErrorCode, MAX_REQUEST_BYTES, MAX_RESPONSE_BYTES};

/// More than this is no head of an answer of ours.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// A connection to call on.
#[derive(Debug)]
pub enum Rpc {
    Short(Short),
    Long(WebSocket),
}

/// One call at a time.
#[derive(Debug)]
pub struct Short(Mutex<Option<UnixStream>>);

/// What a call is answered with.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorObjectOwned>,
}

impl Short {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self(Mutex::new(Some(stream)))
    }

    async fn request<R: DeserializeOwned>(&self, method: &str, params: impl ToRpcParams) -> Result<R, ClientError> {
        let params = params.to_rpc_params()?;
        let body = serde_json::to_string(&Request::borrowed(method, params.as_deref(), Id::Number(0)))?;
        if body.len() > MAX_REQUEST_BYTES as usize {
            // Refused as the daemon would: a connection that was cut would be tried again.
            let refusal = Error::new(ErrorCode::InvalidInput, format!("a call of {} bytes is too long", body.len()));
            return Err(ClientError::Call(refusal.into()));
        }
        let mut connection = self.0.lock().await;
        // Taken out for as long as a call is under way: one that was given up leaves its answer behind, and the next call
        // must not read that.
        let mut stream = connection.take().ok_or_else(|| cut("the last call was given up"))?;
        let (head, answer) = exchange(&mut stream, &body).await.map_err(cut)?;
        *connection = Some(stream);
        let answer: Answer<'_> = serde_json::from_slice(&answer)
            .map_err(|e| if head.is_success() { e.into() } else { cut(format!("HTTP status {}", head.status)) })?;
        match (answer.result, answer.error) {
            (_, Some(error)) => Err(ClientError::Call(error)),
            (result, None) => Ok(serde_json::from_str(result.map_or("null", RawValue::get))?),
        }
    }
}

fn cut(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ClientError {
    ClientError::Transport(why.into())
}

/// Sends a call and reads its answer to the end.
async fn exchange(stream: &mut UnixStream, body: &str) -> std::io::Result<(Head, Vec<u8>)> {
    let request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut read = Vec::with_capacity(4096);
    let head = loop {
        if let Some(head) = Head::parse(&read)? {
            break head;
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    };
    let mut answer = read.split_off(head.length);
    // An answer that is longer than it says would be read as the next one.
    if answer.len() > head.body {
        return Err(bad("more was answered than asked"));
    }
    answer.reserve_exact(head.body - answer.len());
    while answer.len() < head.body {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
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
        Rpc::Short(Short::new(ours)).request("number", jsonrpsee::core::rpc_params![]).await
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
        let rpc = Rpc::Short(Short::new(ours));
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
