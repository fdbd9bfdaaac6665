//! Bytes on the daemon's socket: HTTP, WebSocket frames, and what is neither. The daemon answers or hangs up, and goes on
//! serving others.
//!
//! An input that begins with `ws` is sent after a WebSocket was opened, without the two letters.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tt_tests::Wire;
use tt_tests::wire::TEXT;

use crate::daemon::Daemon;
use crate::generate::{json, text};
use crate::{Random, Target, Verdict, ensure};

/// The daemon is looked at after this many connections.
const INPUTS_PER_CHECK: u64 = 200;

/// No answer and no end of a connection takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// How long the daemon may take to answer before the connection is half closed. It need not have answered by then.
const ANSWER_TIME: Duration = Duration::from_millis(3);

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

#[derive(Default)]
pub(super) struct Frames {
    inputs: u64,
    daemon: Option<Daemon>,
}

impl Target for Frames {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{}}}"#,
            json(random, 0),
            random.pick(&["whoami", "list_rooms", "daemon_status", "x"]),
            json(random, 2)
        );
        if random.one_in(3) {
            let length = if random.one_in(4) { random.below(1 << 40) } else { call.len() };
            let method = random.pick(&["POST", "GET", "PUT", "\0"]);
            return format!(
                "{method} / HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{call}",
                text(random).replace(['\r', '\n'], "")
            )
            .into_bytes();
        }
        let mut input = b"ws".to_vec();
        for _ in 0..=random.below(3) {
            let body = if random.one_in(3) { text(random) } else { call.clone() };
            let kind = if random.one_in(3) { random.byte() & 0x7f } else { TEXT };
            let length = if random.one_in(8) { random.number() >> random.below(64) } else { body.len() as u64 };
            input.extend(Wire::head(kind, !random.one_in(4), length));
            input.extend(body.bytes());
        }
        input
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        // It would be obeyed.
        if input.windows(11).any(|bytes| bytes == b"daemon_stop") {
            return Ok(Verdict::Refused);
        }
        let daemon = self.daemon.get_or_insert_with(Daemon::start);
        let answer = exchange(daemon, input).map_err(|e| format!("no end after {input:?}: {e}"))?;
        self.inputs += 1;
        if self.inputs.is_multiple_of(INPUTS_PER_CHECK) {
            daemon.check()?;
        }
        let text = String::from_utf8_lossy(&answer);
        ensure!(!text.contains("panicked"), "{text}");
        Ok(if answer.is_empty() { Verdict::Refused } else { Verdict::Accepted })
    }
}

/// Sends the input and reads until the daemon hangs up, which it does when it sees that nothing more will come.
fn exchange(daemon: &Daemon, input: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(daemon.socket())?;
    stream.set_write_timeout(Some(LIMIT))?;
    let bytes = match input.strip_prefix(b"ws") {
        Some(frames) => {
            stream.write_all(UPGRADE)?;
            frames
        }
        None => input,
    };
    // A daemon that has seen enough hangs up in the middle.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    // A moment to answer; what is incomplete gets none. A connection that is half closed is dropped at once.
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    let _ = stream.read_to_end(&mut answer);
    let _ = stream.shutdown(Shutdown::Write);
    stream.set_read_timeout(Some(LIMIT))?;
    match stream.read_to_end(&mut answer) {
        Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => Err(e),
        _ => Ok(answer),
    }
}
