//! A person at real terminals: what is typed, Ctrl-C, questions, the editor, and two terminals at once.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::PathBuf;

use serde_json::Value;
use tt_tests::terminal::{CTRL_C, Terminal};
use tt_tests::{Home, LIMIT, home, run};

fn agent(home: &Home, args: &[&str]) -> Value {
    run::finish(&mut home.tt_as("codex:1", args)).ok().json()
}

/// Looks at the room until it is as it should be.
#[track_caller]
fn until(home: &Home, is_so: impl Fn(&Value) -> bool) -> Value {
    let started = std::time::Instant::now();
    loop {
        let state = agent(home, &["state"]);
        if is_so(&state) {
            return state;
        }
        assert!(started.elapsed() < LIMIT, "{state}");
    }
}

fn is_person(agent_id: &Value) -> bool {
    agent_id.as_str().is_some_and(|id| id.starts_with("human:"))
}

#[test]
fn two_terminals_of_a_person_show_everything_and_end_without_json() {
    let home = home!();
    agent(&home, &["join", "--name", "codex"]);
    let mut terminals = [Terminal::of_person(&home), Terminal::of_person(&home)];
    assert_eq!(terminals[0].run("tt join").1, 0);
    let person = until(&home, |state| state["members"].as_array().unwrap().iter().any(|m| is_person(&m["agent_id"])));
    let person = person["members"].as_array().unwrap().iter().find(|m| is_person(&m["agent_id"])).unwrap().clone();
    let person = person["agent_id"].as_str().unwrap();
    for command in ["tt recv --follow", "tt log --follow"] {
        for terminal in &mut terminals {
            terminal.type_line(command);
            // A terminal shows what comes after it began to follow.
            let greeting = format!("are you there, {}", terminal.text().len());
            let started = std::time::Instant::now();
            while !terminal.text().contains(&greeting) {
                agent(&home, &["send", person, &greeting]);
                assert!(started.elapsed() < LIMIT, "{}", terminal.text());
            }
        }
        let news = format!("news after {command}");
        agent(&home, &["send", person, &news]);
        for terminal in &mut terminals {
            terminal.until_shows(&news);
        }
        if command == "tt log --follow" {
            // Nothing of this is addressed to the person.
            agent(&home, &["try"]);
            agent(&home, &["release", "-m", "what codex did", "-n", "go on"]);
            for terminal in &mut terminals {
                terminal.until_shows("status: what codex did");
            }
        }
        for terminal in &mut terminals {
            terminal.type_keys(CTRL_C);
            assert_eq!(terminal.status(), 0);
            assert!(!terminal.text().contains('{'), "{}", terminal.text());
            assert!(!terminal.text().contains("^C$"), "the prompt has a line of its own: {}", terminal.text());
        }
    }
    assert_eq!(agent(&home, &["state"])["members"].as_array().unwrap().iter().filter(|m| m["unread"] == 1).count(), 0);
}

#[test]
fn a_message_is_a_persons_if_it_was_typed_at_a_terminal_with_no_harness_above() {
    let home = home!();
    agent(&home, &["join", "--name", "codex"]);
    let is_marked = || {
        let read = run::finish(&mut home.tt_as("codex:1", &["recv"])).ok().json();
        (read["payload"]["body"].as_str().unwrap().to_owned(), read["payload"]["from_person"] == true)
    };
    let mut terminal = Terminal::of_person(&home);
    assert_eq!(terminal.run("tt send codex 'stop the migration'").1, 0);
    assert_eq!(is_marked(), ("stop the migration".into(), true));
    // A harness at the terminal, which its children do not admit to.
    let harness = home.script("bin/claude", "#!/bin/sh\ntt send codex \"$1\"\n").display().to_string();
    assert_eq!(terminal.run(&format!("{harness} 'below a harness'")).1, 0);
    assert_eq!(is_marked(), ("below a harness".into(), false));
    // A session of its own, without a terminal.
    assert_eq!(terminal.run("setsid --wait tt send codex 'no terminal' < /dev/null > /dev/null 2>&1").1, 0);
    assert_eq!(is_marked(), ("no terminal".into(), false));
    // What an agent claims counts for nothing.
    assert_eq!(terminal.run("TT_HARNESS_AGENT_ID=gemini:1 tt send codex 'an agent'").1, 0);
    assert_eq!(is_marked(), ("an agent".into(), false));
}

#[test]
fn a_person_alone_with_a_free_stick_is_told_at_once_how_to_take_it_while_the_wait_goes_on() {
    let home = home!();
    let mut terminal = Terminal::of_person(&home);
    assert_eq!(terminal.run("tt join").1, 0);
    terminal.type_line("tt wait");
    terminal.until_shows("you are alone and the stick is free: tt try takes it");
    home.until_waiting("workspace");
    assert!(!terminal.text().contains("your turn"), "{}", terminal.text());
    // With somebody else there, the free stick goes to who waits for it.
    agent(&home, &["join", "--name", "codex"]);
    terminal.until_shows("your turn: 1");
    assert_eq!(terminal.status(), 0);
}

#[test]
fn a_command_that_is_interrupted_gives_the_stick_back_with_a_handoff() {
    let home = home!();
    agent(&home, &["join"]);
    let mut terminal = Terminal::of_person(&home);
    // Interrupted before that, it has nothing to report but that the command was not started.
    std::fs::write(home.workspace().join("log"), "began\n").unwrap();
    terminal.type_line("tt run -m 'long build' -- tail -f log");
    terminal.until_shows("began");
    assert!(is_person(&agent(&home, &["state"])["room"]["owner"]));
    terminal.type_keys(CTRL_C);
    assert_eq!(terminal.status(), 130);
    let state = agent(&home, &["state"]);
    let status = state["pending_handoff"]["status"].as_str().unwrap();
    assert!(status.contains("long build") && status.contains("`tail -f log`: ended by SIGINT"), "{state}");
    assert_eq!(state["room"].get("owner"), None);
}

#[test]
fn a_command_that_is_interrupted_while_it_waits_for_the_stick_leaves_the_queue_and_takes_nothing() {
    let home = home!();
    agent(&home, &["join", "--name", "codex"]);
    agent(&home, &["try"]);
    let mut terminal = Terminal::of_person(&home);
    terminal.type_line("tt run -- touch ran");
    terminal.until_shows("waiting for the stick: codex has it");
    until(&home, |state| state["queue"].as_array().is_some_and(|queue| queue.iter().any(is_person)));
    terminal.type_keys(CTRL_C);
    terminal.until_shows("interrupted while waiting for the stick; nothing was run");
    assert_eq!(terminal.status(), 130);
    let state = agent(&home, &["state"]);
    assert_eq!((&state["room"]["owner"], state.get("queue")), (&"codex:1".into(), None), "{state}");
    assert_eq!(state.get("pending_handoff"), None);
    // The stick goes to nobody who is no longer there.
    agent(&home, &["release", "-m", "done", "-n", "go on"]);
    assert_eq!(agent(&home, &["state"])["room"].get("owner"), None);
    assert!(!home.workspace().join("ran").exists());
    // One that the person holds already stays with it, also when a command is interrupted.
    assert_eq!(terminal.run("tt try").1, 0);
    std::fs::write(home.workspace().join("log"), "began\n").unwrap();
    terminal.type_line("tt run -- tail -f log");
    terminal.until_shows("began");
    terminal.type_keys(CTRL_C);
    assert_eq!(terminal.status(), 130);
    assert!(is_person(&agent(&home, &["state"])["room"]["owner"]));
}

#[test]
fn a_room_is_deleted_only_after_a_yes() {
    let home = home!();
    let mut terminal = Terminal::of_person(&home);
    assert_eq!(terminal.run("tt join").1, 0);
    assert_eq!(terminal.run("tt notes add 'the cart rounds twice'").1, 0);
    let room = home.workspace().canonicalize().unwrap();
    // While somebody else is there, there is nothing to ask.
    agent(&home, &["join"]);
    let (shown, status) = terminal.run("tt room delete");
    assert!(status == 3 && shown.contains("other members are in this room: codex:1"), "{shown}");
    agent(&home, &["leave"]);
    let rooms = || home.run(&["list", "--json"]).ok().json()["rooms"].as_array().unwrap().len();
    // Enter, a no, and the end of the input.
    for answer in ["\r", "n\r", "\x04"] {
        terminal.type_line("clear; tt room delete");
        terminal.until_shows(&format!("Delete {} with 4 events", room.display()));
        terminal.until_shows("It cannot be undone. [y/N]");
        terminal.type_keys(answer);
        terminal.until_shows("nothing was deleted");
        assert_eq!((terminal.status(), rooms()), (3, 1), "{answer:?}");
    }
    terminal.type_line("clear; tt room delete");
    terminal.until_shows("[y/N]");
    terminal.type_line("y");
    terminal.until_shows(&format!("deleted {}", room.display()));
    assert_eq!((terminal.status(), rooms()), (0, 0));
    // Nobody can be asked, and an agent never is, though it may have a terminal too.
    assert_eq!(terminal.run("tt join").1, 0);
    assert_eq!(terminal.run("tt leave").1, 0);
    let (shown, status) = terminal.run("CLAUDECODE=1 tt room delete");
    assert!(status == 3 && shown.contains("--yes"), "{shown}");
    let piped = run::finish(home.tt(&["room", "delete", "--json"]).current_dir(&room));
    assert!(piped.refused(3)["hint"].as_str().unwrap().contains("--yes"));
    assert_eq!(rooms(), 1);
}

/// The files in which handoffs were written.
fn drafts(home: &Home) -> Vec<PathBuf> {
    let files = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("tt-handoff-")).collect()
}

#[test]
fn a_person_who_says_nothing_writes_the_handoff_in_the_editor() {
    let home = home!();
    agent(&home, &["join"]);
    let mut terminal = Terminal::of_person(&home);
    let home_dir = home.path().display().to_string();
    assert_eq!(terminal.run(&format!("export TMPDIR={home_dir}")).1, 0);
    terminal.run("tt try");
    // Left as it was, or given up: nothing is released, and nothing is left behind.
    for editor in ["true", "false"] {
        let (shown, status) = terminal.run(&format!("EDITOR={editor} tt release"));
        assert!(shown.contains("nothing was released"), "{shown}");
        assert_eq!((status, drafts(&home).len()), (3, 0));
    }
    // Ctrl-C is for the editor: the program that waits for it lives on.
    let edit = "#!/bin/sh\nkill -INT $PPID\ngrep -q '^next:$' \"$2\" || exit 1\nsed -i -e \"s/^status:/status: $1/\" -e 's/^next:/next: review it/' \"$2\"\n";
    let editor = home.script("edit", edit).display().to_string();
    let (shown, status) = terminal.run(&format!("EDITOR='{editor} green' tt release --do-not 'rename Token'"));
    assert_eq!(status, 0, "{shown}");
    let handoff = agent(&home, &["state"])["pending_handoff"].clone();
    assert_eq!((&handoff["status"], &handoff["next_action"]), (&"green".into(), &"review it".into()));
    assert_eq!(handoff["do_not"][0], "rename Token", "what was said on the command line is kept");
    assert_eq!(drafts(&home).len(), 0);
    // Nobody can be asked, and an agent never is, though it may have a terminal too.
    for command in ["tt release < /dev/null", "tt release | cat >&2", "CLAUDECODE=1 tt release"] {
        let (shown, _) = terminal.run(&format!("EDITOR={editor} {command}"));
        assert!(shown.contains("no status"), "{command}: {shown}");
    }
    agent(&home, &["try"]);
    agent(&home, &["release", "-m", "looked at", "-n", "go on"]);
    assert_eq!(terminal.run("tt try").1, 0);
    let (shown, status) = terminal.run(&format!("EDITOR='{editor} blue' tt pass codex"));
    assert_eq!(status, 0, "{shown}");
    let state = agent(&home, &["state"]);
    assert_eq!(
        (&state["room"]["reserved_for"], &state["pending_handoff"]["status"]),
        (&"codex:1".into(), &"blue".into())
    );
    // Whatever prevents the release, what was written is kept.
    agent(&home, &["try"]);
    agent(&home, &["release", "-m", "looked at", "-n", "go on"]);
    assert_eq!(terminal.run("tt try").1, 0);
    let slow = "#!/bin/sh\nsed -i -e 's/^status:/status: long words/' -e 's/^next:/next: x/' \"$1\"\necho written\nread -r go\n";
    let slow = home.script("slow", slow).display().to_string();
    terminal.type_line(&format!("clear; EDITOR={slow} tt release"));
    terminal.until_shows("written");
    agent(&home, &["take", "--operator", "--reason", "a person told me to"]);
    terminal.type_line("");
    terminal.until_shows("what you wrote is in");
    assert_eq!(terminal.status(), 3);
    let kept = drafts(&home);
    assert!(std::fs::read_to_string(&kept[0]).unwrap().contains("status: long words"));
}
