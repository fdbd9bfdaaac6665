//! `tt watch`, and `tt console` where the console is not installed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::process::Stdio;

use serde_json::Value;
use tt_tests::{Home, Lines, home, run};

/// What `tt watch` writes for an agent: pairs of what it is and the number of the event.
struct Watch {
    process: std::process::Child,
    lines: Lines,
}

impl Watch {
    fn start(home: &Home, args: &[&str]) -> Self {
        let mut command = home.tt_as("watcher:1", &[&["watch"], args].concat());
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        Self { lines: Lines::of(process.stdout.take().unwrap()), process }
    }

    /// The next line that is so.
    #[track_caller]
    fn until(&self, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.lines.json();
            if is_so(&line) {
                return line;
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn several_rooms_are_watched_with_what_becomes_of_their_messages_through_a_restart() {
    let home = home!();
    let other = home.path().join("other");
    std::fs::create_dir_all(other.join(".git")).unwrap();
    let run = |agent: &str, args: &[&str]| run::finish(&mut home.tt_as(agent, args)).ok().json();
    run("a:1", &["join"]);
    run("b:1", &["join"]);
    run("a:1", &["join", other.to_str().unwrap()]);
    let watch = Watch::start(&home, &["--newest", "1", ".", other.to_str().unwrap()]);
    let begun = [watch.lines.json(), watch.lines.json()];
    assert!(begun.iter().all(|line| line["event_type"] == "member_joined"), "{begun:?}");
    let seq = run("a:1", &["send", "b:1", "hello"])["event_seq"].clone();
    let sent = watch.until(|line| line["event_seq"] == seq);
    assert_eq!(sent["payload"]["body"], "hello");
    run("b:1", &["recv"]);
    let delivered = watch.until(|line| line["state"] == "delivered");
    assert_eq!((&delivered["event_seq"], &delivered["surface"]), (&seq, &Value::from("recv")));
    run("a:1", &["notes", "add", "in the other room", "--path", other.to_str().unwrap()]);
    watch.until(|line| line["event_type"] == "note_added" && line["room_id"] != sent["room_id"]);
    run("a:1", &["daemon", "restart"]);
    run("a:1", &["send", "b:1", "after the restart"]);
    watch.until(|line| line["payload"]["body"] == "after the restart");
}

#[test]
fn the_console_is_started_where_it_is_and_named_where_it_is_missing() {
    let home = home!();
    let tt = home.for_everyone(home.tt_path());
    let missing = run::finish(home.command(&tt).args(["console", "--text"]));
    missing.refused_in_text(1, "cargo install --path tt-console");
    home.script("everyone/tt-console", "#!/bin/sh\necho the console of \"$1\"\n");
    for name in ["console", "ui"] {
        let started = run::finish(home.command(&tt).args([name, "shop"])).ok();
        assert_eq!(started.stdout, "the console of shop\n");
    }
}
