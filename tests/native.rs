//! Handing messages to the daemon of Codex, played on a socket: what is taken, what is refused before anything was handed over, and
//! what may have arrived or not.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::PathBuf;

use tempfile::TempDir;
use tt_proto::hello::Anchor;
use tt_tests::{CodexServer, Manner};
use ttd::delivery::native::NotSent;
use ttd::delivery::native::codex::{self, Thread};

struct Stage {
    _dir: TempDir,
    socket: PathBuf,
    server: CodexServer,
    process: Anchor,
}

fn stage(manner: Manner) -> Stage {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("s");
    let server = CodexServer::start(&socket, manner);
    let process = Anchor { host_id: "h".into(), pid: std::process::id(), process_started_at: "1".into() };
    Stage { _dir: dir, socket, server, process }
}

impl Stage {
    fn thread<'a>(&'a self, id: &'a str) -> Thread<'a> {
        Thread { socket: &self.socket, server: &self.process, id }
    }

    async fn send(&self, id: &str, terminals: usize) -> Result<(), NotSent> {
        codex::send(self.thread(id), Some(terminals), "tag", "text\n\"two\"").await
    }
}

fn sent() -> Vec<(String, String)> {
    vec![("tag".to_owned(), "text\n\"two\"".to_owned())]
}

#[tokio::test]
async fn an_idle_thread_is_given_a_turn_and_a_running_turn_the_message() {
    let stage = stage(Manner::Correct);
    stage.server.set("idle", "idle");
    stage.server.set("busy", "active");
    stage.server.set_ephemeral("title");
    for thread in ["idle", "busy"] {
        assert_eq!(codex::has(stage.thread(thread), "tag").await, Some(false));
        assert_eq!(stage.send(thread, 2).await, Ok(()), "{thread}");
        assert_eq!(stage.server.messages(thread), sent(), "{thread}");
        assert_eq!(codex::has(stage.thread(thread), "tag").await, Some(true));
    }
    assert_eq!((stage.server.calls("turn/start", "idle"), stage.server.calls("turn/steer", "busy")), (1, 1));
}

#[tokio::test]
async fn nothing_is_handed_to_a_thread_that_asks_or_is_closed_or_that_nobody_may_watch() {
    let stage = stage(Manner::Correct);
    stage.server.set_flags("asking", "active", &["waitingOnApproval"]);
    stage.server.set("idle", "idle");
    assert_eq!(stage.send("asking", 2).await, Err(NotSent::Asking));
    assert!(matches!(stage.send("absent", 2).await, Err(NotSent::Refused(_))));
    // One of the two threads has lost its terminal, and nothing tells which.
    assert_eq!(stage.send("idle", 1).await, Err(NotSent::Unwatched));
    assert_eq!(stage.send("idle", 0).await, Err(NotSent::Unwatched));
    assert_eq!(codex::send(stage.thread("idle"), None, "tag", "text").await, Err(NotSent::Unwatched));
    stage.server.close("asking");
    assert_eq!(stage.send("idle", 1).await, Ok(()));
    assert_eq!(stage.server.messages("idle"), sent(), "once");
}

#[tokio::test]
async fn a_server_that_misbehaves_from_the_beginning_was_handed_nothing() {
    for manner in [Manner::Garbage, Manner::Nonsense, Manner::Huge, Manner::HangsUp, Manner::NoWebSocket] {
        let stage = stage(manner);
        stage.server.set("idle", "idle");
        assert!(matches!(stage.send("idle", 1).await, Err(NotSent::Refused(_))), "{manner:?}");
        assert_eq!(codex::has(stage.thread("idle"), "tag").await, None, "{manner:?}");
    }
    let another = stage(Manner::Correct);
    let process = Anchor { pid: 1, ..another.process.clone() };
    let thread = Thread { server: &process, ..another.thread("idle") };
    assert!(matches!(codex::send(thread, Some(1), "tag", "text").await, Err(NotSent::Refused(_))));
    std::fs::remove_file(&another.socket).unwrap();
    assert!(matches!(another.send("idle", 1).await, Err(NotSent::Refused(_))));
}

#[tokio::test]
async fn a_server_that_falls_silent_with_the_message_may_have_taken_it() {
    let stage = stage(Manner::LosesTurns);
    stage.server.set("idle", "idle");
    assert!(matches!(stage.send("idle", 1).await, Err(NotSent::Unclear(_))));
    assert_eq!(stage.server.messages("idle"), sent());
}
