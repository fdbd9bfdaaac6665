//! A client that speaks bytes: good WebSocket, bad WebSocket, and none at all.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::LIMIT;

/// A connection under a test's full control. Reads and writes are limited in time.
#[derive(Debug)]
pub struct Wire(UnixStream);

/// The kinds of WebSocket frame a test sends.
pub const TEXT: u8 = 1;
pub const CONTINUATION: u8 = 0;

/// The kind of frame that ends a WebSocket.
const CLOSE: u8 = 8;

impl Wire {
    /// Connects and sends nothing.
    #[track_caller]
    pub fn connect(socket: &Path) -> Self {
        Self::try_connect(socket).unwrap_or_else(|e| panic!("cannot connect to {}: {e}", socket.display()))
    }

    pub fn try_connect(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        Ok(Self(stream))
    }

    /// Connects and becomes a WebSocket.
    #[track_caller]
    pub fn upgraded(socket: &Path) -> Self {
        let mut wire = Self::connect(socket);
        wire.send(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(wire.0.read(&mut byte).unwrap_or(0), 1, "no answer to the upgrade: {answer:?}");
            answer.push(byte[0]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
        wire
    }

    /// Sends bytes; what the daemon did not want to read is its own affair.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// One HTTP request with this body, and the JSON it is answered with.
    #[track_caller]
    pub fn post(mut self, body: &str) -> serde_json::Value {
        let head = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
        self.send(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        let mut answer = String::new();
        self.0.read_to_string(&mut answer).unwrap_or_else(|e| panic!("no answer: {e}"));
        let json = answer.split_once("\r\n\r\n").map_or("", |(_, json)| json);
        serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {answer}"))
    }

    /// The head of a masked frame that announces `length` bytes. The mask is zero, so that data goes as it is.
    pub fn head(kind: u8, last: bool, length: u64) -> Vec<u8> {
        let mut head = vec![kind | if last { 0x80 } else { 0 }];
        match length {
            0..=125 => head.push(0x80 | length as u8),
            126..=0xffff => {
                head.push(0x80 | 126);
                head.extend((length as u16).to_be_bytes());
            }
            _ => {
                head.push(0x80 | 127);
                head.extend(length.to_be_bytes());
            }
        }
        head.extend([0; 4]);
        head
    }

    /// Sends a whole text message.
    pub fn text(&mut self, text: &str) -> bool {
        let head = Self::head(TEXT, true, text.len() as u64);
        self.send(&head) && self.send(text.as_bytes())
    }

    /// The next text message of the daemon.
    #[track_caller]
    pub fn answer(&mut self) -> String {
        self.message().unwrap_or_else(|| panic!("the daemon closed the connection"))
    }

    /// The next text message of the daemon; none when it closes the connection instead.
    #[track_caller]
    pub fn message(&mut self) -> Option<String> {
        let mut exact = |length: usize| {
            let mut bytes = vec![0; length];
            self.0.read_exact(&mut bytes).unwrap_or_else(|e| panic!("no answer: {e}"));
            bytes
        };
        let head = exact(2);
        let length = match head[1] & 0x7f {
            126 => exact(2).iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            127 => exact(8).iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
            short => usize::from(short),
        };
        let text = String::from_utf8_lossy(&exact(length)).into_owned();
        (head[0] & 0x0f != CLOSE).then_some(text)
    }

    /// All that comes until the daemon hangs up.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the daemon did not hang up; it said {:?}", String::from_utf8_lossy(&bytes))
            }
            _ => bytes,
        }
    }

    /// Gives up soon on writes that nobody reads.
    pub fn impatient(&mut self) {
        let _ = self.0.set_write_timeout(Some(Duration::from_secs(2)));
    }

    /// The same connection, to send on one thread and listen on another.
    #[track_caller]
    pub fn second(&self) -> Self {
        Self(self.0.try_clone().unwrap_or_else(|e| panic!("{e}")))
    }
}
