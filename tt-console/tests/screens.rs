//! What a person sees: the console in a real terminal, driven by keys, at three sizes. The screens are kept in `tests/screens/`, text
//! and colours. After a change that is meant, look at what changed and keep it:
//!
//! ```text
//! ACCEPT_SCREENS=1 cargo test -p tt-console && git diff tt-console/tests/screens
//! ```

mod stage;

use stage::{Console, Stage};
use tt_proto::handoff::RawJson;
use tt_proto::requests::{AddNote, ReleaseStick, Reply, TakeMessages, WaitForTurn};
use tt_tests::{Cast, block_on};

const SIZES: [(u16, u16); 3] = [(60, 20), (100, 30), (200, 50)];

/// The console at every size.
fn consoles(stage: &Stage, dir: &std::path::Path) -> Vec<Console> {
    SIZES.map(|size| stage.console(dir, size)).into()
}

#[test]
fn an_empty_list_says_what_to_do() {
    let stage = Stage::new();
    let dir = stage.dir("shop");
    for console in consoles(&stage, &dir) {
        console.until_shows("you are");
        console.compare(&stage, "empty");
    }
}

#[test]
fn a_room_at_work_a_crash_and_its_takeover() {
    block_on(async {
        let stage = Stage::new();
        let (dir, other) = (stage.dir("shop"), stage.dir("api"));
        let _alice = stage.join(&dir, "human:alice", "alice", None).await;
        let mut claude = stage.join(&dir, "claude:1", "claude", Some(1)).await;
        let mut codex = stage.join(&dir, "codex:1", "codex", Some(2)).await;
        let _gemini = stage.join(&other, "gemini:1", "gemini", Some(3)).await;
        let note = "the cart rounds twice:\n  once in the model, once in the view".to_owned();
        claude.call(|room_id| AddNote { room_id, body: note, ..Default::default() }).await;
        let claim = |room_id| WaitForTurn { room_id, max_wait_ms: Some(0), claim: Some(true), ..Default::default() };
        let turn = claude.call(claim).await;
        let handoff = r#"{"status":"Migration written, not run.","next_action":"Run it on a copy first."}"#;
        let release = |room_id| ReleaseStick {
            room_id,
            lease_id: turn.lease_id.clone().unwrap(),
            expected_turn_id: turn.turn_id,
            handoff: RawJson::parse(handoff.to_owned()).unwrap(),
            idempotency_key: None,
        };
        claude.call(release).await;
        codex.call(claim).await;
        let mut consoles = consoles(&stage, &dir);
        for console in &mut consoles {
            console.until_shows("codex <1m");
        }
        for console in consoles.iter_mut().take(1) {
            console.compare(&stage, "rooms");
        }
        for console in &mut consoles {
            console.keys("\t");
            console.until_shows("codex holds the stick");
            console.compare(&stage, "room");
        }
        stage.cast.kill(Cast::player(2));
        for console in &mut consoles {
            console.until_shows("codex left");
            console.until_shows("may be taken over");
            console.keys("t");
            console.until_shows("Take the stick over from codex");
            console.keys("it crashed");
            console.until_shows("it crashed");
            console.compare(&stage, "crash");
        }
        consoles[1].keys("\r");
        for console in [&consoles[1], &consoles[2]] {
            console.until_shows("you hold the stick");
        }
        consoles[1].compare(&stage, "taken-over");
    });
}

#[test]
fn a_question_is_asked_and_answered_and_a_message_waits() {
    block_on(async {
        let mut stage = Stage::new();
        let dir = stage.dir("shop");
        let mut alice = stage.join(&dir, "human:alice", "alice", None).await;
        let mut claude = stage.join(&dir, "claude:1", "claude", Some(1)).await;
        let _codex = stage.join(&dir, "codex:1", "codex", Some(2)).await;
        let hostile = "a\u{1b}[2Jb\u{202e}c\u{7}  漢字漢字 👩🏽\u{200d}💻\n  indented\tand a tab";
        claude.send("codex", hostile, false).await;
        let asked = claude.send("alice", "keep the old column for now?", true).await;
        let mut consoles = consoles(&stage, &dir);
        for console in &mut consoles {
            console.keys("\t");
            console.until_shows("keep the old column");
            console.until_shows("waits");
            console.compare(&stage, "question");
        }
        // The console answers, and the question says so everywhere.
        consoles[0].keys("r");
        consoles[0].until_shows("Answer");
        consoles[0].keys("yes, until the backfill is done");
        consoles[0].compare(&stage, "answering");
        consoles[0].keys("\r");
        for console in &consoles {
            console.until_shows("answered");
            console.compare(&stage, "answered");
        }
        let taken = claude.call(|room_id| TakeMessages { room_id, surface: "recv".into(), ..Default::default() }).await;
        assert_eq!(taken.events.len(), 1, "the answer arrived");
        let _ = (&asked, &mut alice);
        // A message to a member, by the first letters of its name.
        let console = &mut consoles[1];
        console.keys("wcod\t");
        console.until_shows("to: codex");
        console.keys("\rhello");
        console.until_shows("hello");
        console.keys("\r");
        console.until_shows("sent to codex");
        console.compare(&stage, "sent");
        // The daemon goes, and comes back.
        stage.stop();
        consoles[2].until_shows("no daemon");
        stage.start_again();
        consoles[2].until_shows("connected again");
        let mut claude = stage.join(&dir, "claude:1", "claude", Some(1)).await;
        claude.send("room", "after the restart", false).await;
        for console in &consoles {
            console.until_shows("after the restart");
        }
        for console in consoles {
            let bytes = console.bytes();
            assert!(!bytes.windows(6).any(|window| window == b"a\x1b[2Jb"), "what others write drives no terminal");
            console.quit();
        }
    });
}

#[test]
fn the_help_can_be_read_at_every_size_and_a_terminal_may_change_its_size() {
    block_on(async {
        let stage = Stage::new();
        let dir = stage.dir("shop");
        let _alice = stage.join(&dir, "human:alice", "alice", None).await;
        let mut consoles = consoles(&stage, &dir);
        for console in &mut consoles {
            console.until_shows("you are alice");
            console.keys("?");
            console.until_shows("write a message");
            console.compare(&stage, "help");
        }
        let console = &mut consoles[1];
        console.resize(60, 20);
        console.until(|text| text.contains("Help") && text.lines().all(|line| line.trim_end().chars().count() <= 60));
        console.resize(20, 4);
        console.until_shows("too small");
        console.resize(200, 50);
        console.keys("\u{1b}");
        console.until_shows("Members");
    });
}

#[test]
fn replies_keep_their_draft_when_they_are_refused() {
    block_on(async {
        let stage = Stage::new();
        let dir = stage.dir("shop");
        let _alice = stage.join(&dir, "human:alice", "alice", None).await;
        let mut claude = stage.join(&dir, "claude:1", "claude", Some(1)).await;
        let mut console = stage.console(&dir, (100, 30));
        console.until_shows("you are alice");
        console.keys("wnobody\rwhat I wrote");
        console.until_shows("what I wrote");
        console.keys("\r");
        console.until_shows("nobody here is called");
        console.until_shows("what I wrote");
        // Esc keeps it, and w goes on with it.
        console.keys("\u{1b}");
        console.until_shows("is kept");
        console.keys("w");
        console.until_shows("what I wrote");
        console.keys("\u{1b}[Z\u{15}claude\r");
        console.until_shows("to: claude");
        console.keys("\r");
        console.until_shows("sent to claude");
        let taken = claude.call(|room_id| TakeMessages { room_id, surface: "recv".into(), ..Default::default() }).await;
        assert_eq!(taken.events.len(), 1);
        assert!(taken.events[0].payload.as_ref().unwrap().as_str().contains("what I wrote"));
        let reply = |room_id| Reply {
            room_id,
            event_seq: taken.events[0].event_seq,
            body: "seen".into(),
            idempotency_key: None,
        };
        claude.call(reply).await;
        console.until_shows("seen");
    });
}

#[test]
fn the_terminal_is_lent_to_a_shell_and_drawn_anew_after_it() {
    block_on(async {
        let stage = Stage::new();
        let dir = stage.dir("shop");
        let _alice = stage.join(&dir, "human:alice", "alice", None).await;
        let mut console = stage.console(&dir, (100, 30));
        console.until_shows("you are alice");
        console.keys("s");
        // What is typed before the shell asks for it could still be the console's.
        console.until(|text| !text.contains("Members") && (text.contains("# ") || text.contains("$ ")));
        console.keys("echo here is $PWD; exit\r");
        console.until_shows("you are alice");
        // Keys reach it again, and the screen can be drawn anew.
        console.keys("\x0c?");
        console.until_shows("write a message");
        console.keys("\u{1b}");
        console.until(|text| !text.contains("write a message"));
        let bytes = String::from_utf8_lossy(&console.bytes()).into_owned();
        assert!(bytes.contains(&format!("here is {}", dir.canonicalize().unwrap_or(dir).display())), "{bytes}");
        console.quit();
    });
}
