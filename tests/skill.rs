//! The skill tells the truth: it has the form harnesses read, and every command it quotes works.

use tt_tests::{Harness, home, run};

const SKILL: &str = include_str!("../skills/talking-stick/SKILL.md");

#[test]
fn the_skill_has_the_form_that_harnesses_read() {
    let (_, rest) = SKILL.split_once("---\nname: talking-stick\n").unwrap();
    let (front, _) = rest.split_once("\n---\n").unwrap();
    let description = front.strip_prefix("description: ").unwrap();
    assert!(description.lines().count() == 1 && description.len() <= 1024, "{description}");
    assert!(SKILL.lines().count() < 200);
}

#[test]
fn every_command_the_skill_quotes_works() {
    let home = home!();
    home.script("bin/tt", &format!("#!/bin/sh\nexec {} \"$@\"\n", home.tt_path().display()));
    let commands: Vec<&str> = SKILL.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands {
        if command.starts_with("tt take") {
            // From somebody who held the stick and whose process is gone.
            let claude = Harness::new(&home, "claude").env("CLAUDECODE", "1").env("CLAUDE_CODE_SESSION_ID", "s-1");
            assert_eq!(claude.straight(&["try"]).tt.ok().json()["status"], "your_turn");
        }
        let mut shell = home.command("/bin/sh");
        let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
        shell
            .args(["-c", command])
            .env("PATH", path)
            .env("CODEX_THREAD_ID", "t-1")
            .env("TALKING_STICK_WAITER_GRACE", "0s");
        let finished = run::finish(&mut shell);
        assert_eq!(finished.code, Some(0), "{command}: {finished:?}");
    }
    // Commands that are named in passing exist, too.
    for quoted in SKILL.split('`').filter(|text| text.starts_with("tt ")) {
        let words: Vec<&str> =
            quoted.split_whitespace().skip(1).take_while(|w| w.chars().all(|c| c.is_ascii_lowercase())).collect();
        let words = if matches!(words[0], "msg" | "notes") { &words[..2] } else { &words[..1] };
        let help: Vec<&str> = words.iter().copied().chain(["--help"]).collect();
        assert!(home.run(&help).ok().stdout.contains("Usage"), "{quoted}");
    }
}
