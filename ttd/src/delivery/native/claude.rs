//! Claude Code takes messages for a running session on a socket of its process: one line of JSON each. It answers nothing; once
//! it has read to the end it closes the connection. A message for another session than the one that its process is in now is
//! dropped without a word, which keeps it from reaching a conversation that `/clear` began.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tt_proto::hello::Anchor;

use super::NotSent;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How long it may take to read a message.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The most that is read of an answer, which nobody looks at.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Hands a text to a session. `Ok`: the process has read it. `look` says whether this is still the moment, right before the text goes.
pub async fn send(
    socket: &Path,
    process: &Anchor,
    session_id: &str,
    text: &str,
    look: impl AsyncFnOnce() -> Result<(), NotSent>,
) -> Result<(), NotSent> {
    let connecting = timeout(CONNECT_TIMEOUT, super::connect(socket, process)).await;
    let mut stream = connecting.map_err(|_| NotSent::refused("it accepts no connection"))?.map_err(NotSent::refused)?;
    let line = line(session_id, text);
    look().await?;
    let deliver = async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await?;
        let mut answer = [0; 1024];
        let mut bytes = 0;
        loop {
            match stream.read(&mut answer).await? {
                0 => return Ok(()),
                read => bytes += read,
            }
            if bytes > MAX_ANSWER_BYTES {
                return Err(std::io::Error::other("it answers without an end"));
            }
        }
    };
    // A part of a line is dropped, but nothing tells how much was read.
    timeout(READ_TIMEOUT, deliver).await.map_err(|_| NotSent::unclear("it does not read"))?.map_err(NotSent::unclear)
}

/// A text as it crosses the socket.
fn line(session_id: &str, text: &str) -> String {
    let message = json!({"role": "user", "content": text});
    format!("{}\n", json!({"type": "user", "message": message, "session_id": session_id}))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use serde_json::Value;

    #[test]
    fn a_text_is_one_line_whatever_is_in_it() {
        let text = "first\nsecond \"quoted\" \\ 日本語\u{2028}";
        let line = line("s-1", text);
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value, json!({"type": "user", "message": {"role": "user", "content": text}, "session_id": "s-1"}));
    }

    fn ourselves() -> Anchor {
        Anchor { host_id: "h".into(), pid: std::process::id(), process_started_at: "1".into() }
    }

    /// A process that takes one connection and does this with it.
    fn inbox(
        serve: impl FnOnce(std::os::unix::net::UnixStream) + Send + 'static,
    ) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            if let Ok((stream, _)) = listener.accept() {
                serve(stream);
            }
        });
        (dir, socket)
    }

    fn read_all(mut stream: &std::os::unix::net::UnixStream) -> String {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
        text
    }

    #[tokio::test]
    async fn what_was_read_to_its_end_was_handed_over() {
        let (sender, received) = std::sync::mpsc::channel();
        let (_dir, socket) = inbox(move |stream| sender.send(read_all(&stream)).unwrap());
        assert_eq!(send(&socket, &ourselves(), "s-1", "hello", async || Ok(())).await, Ok(()));
        assert_eq!(received.recv().unwrap(), line("s-1", "hello"));
    }

    #[tokio::test]
    async fn a_dead_socket_and_the_socket_of_another_process_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join("s");
        drop(UnixListener::bind(&dead).unwrap());
        for socket in [&dead, &dir.path().join("absent")] {
            assert!(matches!(send(socket, &ourselves(), "s", "x", async || Ok(())).await, Err(NotSent::Refused(_))));
        }
        let (sender, received) = std::sync::mpsc::channel();
        let (_dir, socket) = inbox(move |stream| sender.send(read_all(&stream)).unwrap());
        let another = Anchor { pid: 1, ..ourselves() };
        assert!(matches!(send(&socket, &another, "s", "x", async || Ok(())).await, Err(NotSent::Refused(_))));
        assert_eq!(received.recv().unwrap(), "", "not a byte went to another process");
    }

    #[tokio::test]
    async fn not_a_byte_goes_to_a_session_that_has_begun_to_do_something_else() {
        for refusal in [NotSent::Asking, NotSent::Busy] {
            let (sender, received) = std::sync::mpsc::channel();
            let (_dir, socket) = inbox(move |stream| sender.send(read_all(&stream)).unwrap());
            let refused = refusal.clone();
            assert_eq!(send(&socket, &ourselves(), "s", "x", async || Err(refused)).await, Err(refusal));
            assert_eq!(received.recv().unwrap(), "");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_process_that_hangs_or_babbles_was_sent_may_have_arrived() {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (_dir, socket) = inbox(move |stream| {
            let _ = wait.recv();
            drop(stream);
        });
        assert!(matches!(send(&socket, &ourselves(), "s", "x", async || Ok(())).await, Err(NotSent::Unclear(_))));
        drop(done);
        let (_dir, socket) = inbox(|stream| {
            let mut stream = &stream;
            while std::io::Write::write_all(&mut stream, &[b'x'; 4096]).is_ok() {}
        });
        assert!(matches!(send(&socket, &ourselves(), "s", "x", async || Ok(())).await, Err(NotSent::Unclear(_))));
    }

    #[tokio::test]
    async fn one_that_hangs_up_may_have_read_it() {
        // Larger than what a socket holds, so that it cannot be written whole.
        let (_dir, socket) = inbox(drop);
        let large = "x".repeat(8 * 1024 * 1024);
        assert!(matches!(send(&socket, &ourselves(), "s", &large, async || Ok(())).await, Err(NotSent::Unclear(_))));
    }
}
