//! What people see: every screen on a wide terminal, on a narrow one, and where no terminal is.
//!
//! The screens are kept in `tests/screens/`. After a change that is meant, look at what changed and keep it:
//!
//! ```text
//! ACCEPT_SCREENS=1 cargo test --test suite_client screens && git diff tests/screens
//! ```
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use tt_tests::{Cast, Home, InProcess, Running, home, run, terminal};
use ttd::clock::Clock;

const WIDE: u16 = 100;
const NARROW: u16 = 60;

/// How many minutes the daemon's time of day is ahead of ours. What happens now is "just now" for as long, and not only for
/// the minute that a slow machine may need for one screen.
const AHEAD: i64 = 10;

/// A daemon whose members live and die at a word, and whose clock can be turned, with a repository to work in.
struct Stage {
    _daemon: InProcess,
    clock: Clock,
    cast: Arc<Cast>,
    home: Home,
    shop: PathBuf,
}

impl Stage {
    fn new(home: Home) -> Self {
        let cast = Arc::new(Cast::default());
        let shop = home.path().join("shop");
        std::fs::create_dir_all(shop.join(".git")).unwrap();
        let mut options = home.options();
        options.processes = cast.clone();
        let clock = options.clock.clone();
        clock.turn_wall(AHEAD * 60_000);
        Self { _daemon: InProcess::start(options), clock, cast, home, shop }
    }

    /// `tt` in the shop, called by this member; an agent has a process of its own.
    fn tt(&self, who: &str, args: &[&str]) -> Command {
        let mut command = self.home.tt(args);
        command.env("TT_HARNESS_AGENT_ID", who).env("TZ", noon()).current_dir(&self.shop);
        if !who.starts_with("human:") {
            command.env("CLAUDECODE", "1").env("CLAUDE_PID", player(who).to_string());
        }
        command
    }

    fn run(&self, who: &str, args: &[&str]) {
        run::finish(&mut self.tt(who, args)).ok();
    }

    fn state(&self) -> Value {
        run::finish(&mut self.tt("human:watcher", &["state", "--json"])).ok().json()
    }

    /// Looks at the room until it is as it should be.
    fn until(&self, there: impl Fn(&Value) -> bool) {
        let started = std::time::Instant::now();
        loop {
            let state = self.state();
            if there(&state) {
                return;
            }
            assert!(started.elapsed() < tt_tests::LIMIT, "{state}");
        }
    }

    /// Starts a wait, and returns once it has its place.
    fn wait(&self, who: &str, place: usize) -> Running {
        let waiting = Running::start(&mut self.tt(who, &["wait", "--no-events", "--text"]));
        self.until(|state| state["queue"][place] == who);
        waiting
    }

    /// Ends a member's process, and returns once the room knows.
    fn kill(&self, who: &str) {
        self.cast.kill(player(who));
        let dead = |member: &Value| member["agent_id"] == who && member["liveness"] == "gone";
        self.until(|state| state["members"].as_array().unwrap().iter().any(dead));
    }

    /// Does something that, by the wall clock, happened hours ago.
    fn hours_ago(&self, hours: i64, past: impl FnOnce()) {
        // Ten minutes more, so that the hour shown is the same however long the test takes.
        let back = (hours * 60 + AHEAD + 10) * 60_000;
        self.clock.turn_wall(-back);
        past();
        self.clock.turn_wall(back);
    }

    /// Compares what a command shows with what is kept under this name.
    fn screen(&self, name: &str, who: &str, args: &[&str]) {
        screen(name, &self.home, || {
            let mut command = self.tt(who, args);
            command.arg("--text");
            command
        });
    }
}

/// A time zone in which it is about noon, so that what happened hours ago was today.
fn noon() -> String {
    let since_epoch = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let hour = i64::try_from(since_epoch / 3600 % 24).unwrap();
    // East of Greenwich is negative there.
    format!("NOON{:+}", hour - 12)
}

fn player(who: &str) -> u32 {
    let numbers = [("claude:1", 1), ("codex:1", 2), ("gemini:1", 3), ("opencode:1", 4)];
    Cast::player(numbers.iter().find(|(name, _)| *name == who).map_or(9, |(_, number)| *number))
}

/// Compares what a command shows with what is kept under this name.
fn screen(name: &str, home: &Home, command: impl Fn() -> Command) {
    let mut shown = String::new();
    for columns in [WIDE, NARROW] {
        let screen = terminal::run(&mut command(), columns);
        let plain = terminal::run(command().env("NO_COLOR", "1"), columns);
        assert_eq!(screen.overlong, Vec::<String>::new(), "{name}: written past {columns} columns");
        assert_eq!(settled(&screen.text, home), settled(&plain.text, home), "{name}: colours move nothing");
        assert!(!plain.bytes.contains(&0x1b), "{name}: NO_COLOR has no colours");
        shown.push_str(&format!("== {columns} columns\n{}\n", settled(&screen.text, home)));
    }
    let piped = run::finish(&mut command());
    let text = format!("{}{}", piped.stdout, piped.stderr);
    assert!(!text.contains('\x1b'), "{name}: colours without a terminal");
    shown.push_str(&format!("== no terminal\n{}", settled(&text, home)));
    compare(name, &shown);
}

/// What differs from run to run, made the same: the home, the version, ids, sizes, and what is left of a lease. Each keeps its
/// width, so that lines break where they did. Times are hours old, or just now.
fn settled(text: &str, home: &Home) -> String {
    let same_width = |path: &str| format!("{:x<width$}", "/home/someone", width = path.len());
    let mut text = text.to_owned();
    for path in [home.path().canonicalize().unwrap(), home.path().to_owned()] {
        let path = path.display().to_string();
        text = text.replace(&path, &same_width(&path));
    }
    text = text.replace(env!("CARGO_PKG_VERSION"), "0.0.0");
    // A lease of 45 minutes and a reservation of 20, each not older than what is shown as new.
    for left in 0..AHEAD {
        text = text.replace(&format!("after {}m without", 45 + AHEAD - left), "after 44m without");
        text = text.replace(&format!("not there in {}m", 20 + AHEAD - left), "not there in 19m");
    }
    for tenth in 0..100 {
        text = text.replace(&format!("{:.1} MB", f64::from(tenth) / 10.0), "0.0 MB");
    }
    let lines: Vec<String> = text.split('\n').map(without_ids).collect();
    lines.join("\n")
}

/// A UUID and a time of day have their shape left.
fn without_ids(line: &str) -> String {
    let is_id = |word: &str| {
        word.len() == 36
            && word
                .char_indices()
                .all(|(at, c)| if [8, 13, 18, 23].contains(&at) { c == '-' } else { c.is_ascii_hexdigit() })
    };
    let is_clock = |word: &str| {
        let digit = |(at, c): (usize, char)| if at == 2 { c == ':' } else { c.is_ascii_digit() };
        word.len() == 5 && word.char_indices().all(digit)
    };
    let id = |word: &str| {
        let bare = word.trim_end_matches(')');
        if is_clock(bare) {
            format!("12:34{}", &word[bare.len()..])
        } else if is_id(word) {
            "01234567-89ab-cdef-0123-456789abcdef".to_owned()
        } else if word.len() == 8 && word.chars().all(|c| c.is_ascii_hexdigit()) {
            "01234567".to_owned()
        } else {
            word.to_owned()
        }
    };
    line.split(' ').map(id).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn compare(name: &str, shown: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/screens").join(format!("{name}.txt"));
    if std::env::var_os("ACCEPT_SCREENS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        return std::fs::write(file, shown).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == shown,
        "tests/screens/{name}.txt is not what is shown now. It was:\n\n{kept}\nIt is:\n\n{shown}\n\
         If that is meant: ACCEPT_SCREENS=1 cargo test --test screens"
    );
}

const LONG: &str = "Run it on a copy of production first, compare the counts of rows in both columns, and only then drop the trigger \
                    that keeps them in step; the backfill takes about twenty minutes on the staging machine.";

/// A hook of a member's harness reports something.
fn report(stage: &Stage, who: &str, request: Value) {
    let mut caller = tt_tests::golden::Caller::connect(&stage.home.paths().socket);
    let env = json!({"TT_HARNESS_AGENT_ID": who, "CLAUDECODE": "1", "CLAUDE_PID": player(who).to_string()});
    let hello = json!({"protocol": tt_proto::PROTOCOL, "version": "0", "signals": {"env": env, "hook": true}});
    for (method, params) in [("hello", json!({"hello": hello})), ("report_session", request)] {
        caller.send(method, Some(params));
        let answer = caller.receive();
        assert!(answer.get("result").is_some(), "{answer}");
    }
}

#[test]
fn sessions_and_what_they_said() {
    let stage = Stage::new(home!());
    stage.screen("sessions-none", "human:alice", &["sessions"]);
    stage.run("human:alice", &["join"]);
    let transcript = stage.shop.join("transcript.jsonl");
    let said = [
        json!({"type": "user", "message": {"role": "user", "content": "split the address"}}),
        json!({"type": "assistant", "message": {"role": "assistant", "content": [
            {"type": "text", "text": format!("First the model:\n  fn split()\u{1b}[2J {LONG}")},
            {"type": "tool_use", "name": "Bash", "input": {"command": "cargo test"}}
        ]}}),
    ];
    std::fs::write(&transcript, said.map(|line| format!("{line}\n")).concat()).unwrap();
    for who in ["claude:1", "codex:1", "gemini:1"] {
        stage.run(who, &["join"]);
    }
    let started = |who: &str, session: &str| {
        let start = json!({"harness": "claude", "session_id": session, "event": "session_started", "reason": "startup",
            "cwd": stage.shop, "transcript_path": transcript});
        report(&stage, who, start);
    };
    started("claude:1", "s-1");
    started("codex:1", "s-2");
    started("gemini:1", "s-3");
    let two_hours_ago = stage.clock.wall() - std::time::Duration::from_secs((2 * 60 + 2 * 10) * 60);
    let tool = json!({"harness": "claude", "session_id": "s-4", "event": "tool_started", "tool_name": "Bash",
        "at": two_hours_ago});
    report(&stage, "opencode:1", tool);
    let ask = json!({"harness": "claude", "session_id": "s-2", "event": "permission_asked", "tool_name": "Bash"});
    report(&stage, "codex:1", ask);
    stage.kill("gemini:1");
    stage.screen("sessions", "human:alice", &["sessions", "--all"]);
    stage.run("claude:1", &["quiet", "2h"]);
    stage.screen("state-sessions", "human:alice", &["state"]);
    stage.screen("peek", "human:alice", &["peek", "claude:1"]);
    stage.screen("error-no-session", "human:alice", &["peek", "human:alice"]);
}

#[test]
fn a_room_at_work() {
    let stage = Stage::new(home!());
    stage.screen("state-no-room", "human:alice", &["state"]);
    stage.hours_ago(5, || {
        stage.run("human:alice", &["join", "--name", "alice"]);
        for agent in ["claude:1", "codex:1", "gemini:1", "opencode:1"] {
            stage.run(agent, &["join"]);
        }
    });
    stage.screen("state-idle", "human:alice", &["state"]);
    stage.hours_ago(4, || {
        stage.run("claude:1", &["try"]);
        stage.run("claude:1", &["msg", "send", "codex", "keep the old column for now?"]);
        stage.run("codex:1", &["msg", "send", "claude", "yes, until the backfill is done", "--interrupt"]);
        stage.run("claude:1", &["notes", "add", "the cart rounds twice:\n  once in the model\n  once in the view"]);
    });
    stage.hours_ago(3, || {
        let handoff = [
            "--status",
            "Migration written, not run.",
            "--next-action",
            LONG,
            "--question",
            "Is the backfill idempotent?",
        ];
        let more = [
            "--artifact",
            "migrations/007_split_the_address_into_its_parts.sql:10-48=review",
            "--do-not",
            "drop the old column",
        ];
        stage.run("claude:1", &[&["release"][..], &handoff, &more].concat());
    });
    stage.screen("state-handed-over", "human:alice", &["state"]);
    stage.hours_ago(2, || {
        stage.run("codex:1", &["try"]);
        stage.run("codex:1", &["msg", "send", "alice", LONG]);
        stage.run(
            "codex:1",
            &["msg", "send", "room", "first line\nsecond line, indented:\n    let x = 1;", "--important"],
        );
    });
    let waiting = [stage.wait("gemini:1", 0), stage.wait("claude:1", 1)];
    stage.kill("opencode:1");
    stage.screen("state", "human:alice", &["state"]);
    stage.screen("state-holder", "codex:1", &["state"]);
    stage.screen("status", "human:alice", &["status"]);
    stage.screen("list", "human:alice", &["list"]);
    stage.screen("notes", "human:alice", &["notes", "list"]);
    stage.screen("msg-recv", "human:alice", &["msg", "recv", "--after", "0"]);
    stage.screen("join-again", "human:alice", &["join"]);

    stage.kill("codex:1");
    let told = waiting.map(|wait| wait.finish().ok().stdout);
    assert_eq!(told[0], "may be taken over from codex (owner gone): tt take --reason \"…\"\n");
    stage.screen("state-takeover", "human:alice", &["state"]);
    stage.hours_ago(1, || stage.run("gemini:1", &["take", "--reason", "codex crashed"]));
    stage.screen("events", "human:alice", &["events"]);
}

#[test]
fn messages_and_how_far_they_have_come() {
    let stage = Stage::new(home!());
    for who in ["human:alice", "claude:1", "codex:1"] {
        stage.run(who, &["join"]);
    }
    stage.screen("inbox-empty", "codex:1", &["inbox"]);
    stage.run("claude:1", &["send", "codex", LONG]);
    stage.run("claude:1", &["send", "codex", "when you have a minute", "--when-idle"]);
    stage.run("claude:1", &["ask", "codex", "keep the old column\nfor now?", "--no-wait"]);
    stage.screen("inbox", "human:alice", &["inbox", "--all"]);
    stage.screen("inbox-questions", "codex:1", &["inbox", "--questions"]);
    stage.run("codex:1", &["recv"]);
    stage.screen("msg-status-question", "claude:1", &["msg", "status", "6"]);
    stage.run("codex:1", &["reply", "6", "yes, until the backfill is done"]);
    stage.run("claude:1", &["send", "codex", "forget it"]);
    stage.run("claude:1", &["msg", "withdraw", "8"]);
    stage.screen("msg-sent", "claude:1", &["msg", "sent"]);
    stage.screen("error-reply", "claude:1", &["reply", "6", "me too"]);
    stage.screen("remind-none", "claude:1", &["remind", "list"]);
    stage.screen("error-remind", "claude:1", &["remind", "5m", "look", "--every", "1s", "--times", "3"]);
}

#[test]
fn names_and_words_of_every_script_keep_their_columns() {
    let stage = Stage::new(home!());
    stage.run("human:alice", &["join", "--name", "alice"]);
    stage.run("claude:1", &["join", "--name", "雪だるま ☃\u{fe0f} 👍🏽"]);
    stage.run("codex:1", &["join", "--name", "مرحبا بكم"]);
    stage.run("gemini:1", &["join", "--name", "e\u{301}cole d'e\u{301}te\u{301}"]);
    stage.run("opencode:1", &["join", "--name", "the-one-who-reviews-whatever-the-others-wrote-since-yesterday"]);
    stage.run("claude:1", &["try"]);
    let cjk = "移行は書き終えましたが、まだ実行していません。まず本番の複製で実行し、両方の列の行数を比べてから、古い列を捨ててください。";
    stage.run("claude:1", &["msg", "send", "room", cjk]);
    let arabic = "اكتمل الترحيل ولم يُشغَّل بعد. شغّله أولا على نسخة من قاعدة البيانات ثم قارن عدد الصفوف في العمودين قبل حذف القديم.";
    stage.run("codex:1", &["msg", "send", "alice", arabic]);
    let mixed = "naïve café 🇨🇭 👩🏽\u{200d}💻 ✔\u{fe0f} done: https://example.org/a/path/that/is/longer/than/a/narrow/terminal/is/wide?and=it&goes=on";
    stage.run("opencode:1", &["msg", "send", "alice", mixed]);
    stage.run("claude:1", &["pass", "opencode:1", "--status", cjk, "--next-action", mixed]);
    stage.screen("scripts-state", "human:alice", &["state"]);
    stage.screen("scripts-msg-recv", "human:alice", &["msg", "recv", "--after", "0"]);
    stage.screen("scripts-list", "human:alice", &["list"]);
}

#[test]
fn what_goes_wrong() {
    let stage = Stage::new(home!());
    stage.run("claude:1", &["join"]);
    stage.run("codex:1", &["join"]);
    stage.run("claude:1", &["try"]);
    let show = |name: &str, args: &[&str]| stage.screen(name, "codex:1", args);
    show("error-not-the-holder", &["release", "--status", "done", "--next-action", "go on"]);
    show("error-no-takeover", &["take", "--reason", "impatience"]);
    show("error-unknown-member", &["msg", "send", "cluade", "hello"]);
    show("error-still-there", &["kick", "claude"]);
    stage.screen("error-empty-handoff", "claude:1", &["release", "--status", "", "--next-action", "go on"]);
    show("error-no-such-path", &["state", "../shpo"]);
    show("error-usage", &["relase"]);
    let elsewhere = || {
        let mut command = stage.home.tt(&["state"]);
        command.env("TT_HARNESS_AGENT_ID", "human:alice").arg("--text");
        command
    };
    screen("error-no-room", &stage.home, elsewhere);
    let silent = home!();
    screen("error-no-daemon", &silent, || silent.tt(&["state", "--no-autostart"]));
}

#[test]
fn the_doctor() {
    let stage = Stage::new(home!());
    let bin = stage.home.path().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::os::unix::fs::symlink(stage.home.tt_path(), bin.join("tt")).unwrap();
    std::os::unix::fs::symlink(stage.home.ttd_path(), bin.join("ttd")).unwrap();
    for dir in [".claude", ".codex"] {
        std::fs::create_dir_all(stage.home.path().join(dir)).unwrap();
    }
    // A room that everybody has left.
    stage.run("human:alice", &["join"]);
    stage.run("human:alice", &["notes", "add", "the cart rounds twice"]);
    stage.run("human:alice", &["leave"]);
    stage.run("human:alice", &["install", "codex"]);
    std::fs::write(stage.home.path().join(".agents/skills/talking-stick/SKILL.md"), "an older one").unwrap();
    screen("doctor", &stage.home, || {
        // However slow this machine is at the moment, a hook takes less than that.
        let mut command = stage.tt("human:alice", &["doctor", "--slow-hook", "150s", "--text"]);
        command.env("PATH", &bin).env("TALKING_STICK_DAEMON", bin.join("ttd"));
        command
    });
}
