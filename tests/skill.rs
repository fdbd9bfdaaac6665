//! The skill tells the truth: it has the form harnesses read, and every command it quotes works.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

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
    // Somebody to ask, who asks something itself.
    let as_claude = |args: &[&str]| run::finish(home.tt(args).env("TT_HARNESS_AGENT_ID", "claude:1"));
    as_claude(&["join"]).ok();
    run::finish(home.tt(&["join"]).env("CODEX_THREAD_ID", "t-1")).ok();
    let asked = as_claude(&["ask", "codex", "old column?", "--no-wait"]).ok().json();
    let question = asked["event_seq"].clone();
    for command in commands {
        if command.starts_with("tt take") {
            // From somebody who held the stick and whose process is gone.
            let claude = Harness::new(&home, "claude").env("CLAUDECODE", "1").env("CLAUDE_CODE_SESSION_ID", "s-1");
            assert_eq!(claude.straight(&["try"]).tt.ok().json()["status"], "your_turn");
        }
        // A wait lasts until something happens, and here nothing does.
        let bounded = match command {
            "tt wait" => format!("{command} --timeout 1s"),
            _ => command.replace("--timeout 5m", "--timeout 1s").replace("reply 42", &format!("reply {question}")),
        };
        let mut shell = home.command("/bin/sh");
        let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
        shell
            .args(["-c", &bounded])
            .env("PATH", path)
            .env("CODEX_THREAD_ID", "t-1")
            .env("TALKING_STICK_WAITER_GRACE", "0s");
        let finished = run::finish(&mut shell);
        // 5: nothing came in time.
        let waits = command == "tt wait" || command.starts_with("tt ask");
        let expected: &[Option<i32>] = if waits { &[Some(0), Some(5)] } else { &[Some(0)] };
        assert!(expected.contains(&finished.code), "{command}: {finished:?}");
    }
    // What is quoted in a sentence with an ellipsis is run with something in its place, by another agent who has the stick.
    let claude = [("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s-2"), ("TALKING_STICK_WAITER_GRACE", "0s")];
    run::finish(home.tt(&["join"]).env("CODEX_THREAD_ID", "t-1")).ok();
    let mut filled_in = 0;
    for quoted in SKILL.split('`').filter(|text| text.starts_with("tt ") && text.contains('…')) {
        assert_eq!(run::finish(home.tt(&["try"]).envs(claude)).ok().json()["status"], "your_turn");
        let command = quoted.replace("\"…\"", "hello").replace('…', "--status s --next-action n");
        let args: Vec<&str> = command.split_whitespace().skip(1).collect();
        run::finish(home.tt(&args).envs(claude)).ok();
        filled_in += 1;
    }
    assert!(filled_in >= 2, "this test would not notice");
    // Commands that are named in passing exist, and so do the options.
    for quoted in SKILL.split('`').filter(|text| text.starts_with("tt ")) {
        let words: Vec<&str> =
            quoted.split_whitespace().skip(1).take_while(|w| w.chars().all(|c| c.is_ascii_lowercase())).collect();
        let words = if matches!(words[0], "msg" | "notes") { &words[..2] } else { &words[..1] };
        let help: Vec<&str> = words.iter().copied().chain(["--help"]).collect();
        assert!(home.run(&help).ok().stdout.contains("Usage"), "{quoted}");
    }
    for option in SKILL.split('`').filter(|text| text.starts_with("--") && !text.contains(char::is_whitespace)) {
        let help = |args: &[&str]| home.run(args).ok().stdout;
        let helps = [help(&["msg", "send", "--help"]), help(&["take", "--help"]), help(&["release", "--help"])];
        assert!(helps.iter().any(|help| help.contains(option)), "{option}");
    }
}

#[test]
fn every_tool_the_skill_names_is_there() {
    let home = home!();
    let mut server = home.tt(&["mcp"]);
    let mut server = server.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let hello = r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}"#;
    let mut stdin = server.stdin.take().unwrap();
    write!(
        stdin,
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{hello}}}\n\
         {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}}\n\
         {{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}}\n"
    )
    .unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut answers = lines.map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap());
    let listed = answers.find(|answer| answer["id"] == 2).unwrap();
    let tools: Vec<&str> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    drop(stdin);
    assert!(server.wait().unwrap().success());
    let named: Vec<&str> = SKILL
        .lines()
        .filter(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(2)?.split('`').nth(1))
        .collect();
    assert!(named.len() >= 8, "{named:?}");
    assert!(named.iter().all(|name| tools.contains(name)), "{named:?} {tools:?}");
}

#[test]
fn the_skill_says_how_to_receive_and_what_to_do_while_waiting_or_without_any_of_it() {
    let section = SKILL.split("\n## Receiving while you work\n").nth(1).unwrap().split("\n## ").next().unwrap();
    for said in ["`tt msg recv --follow` under it", "Where hooks are installed", "`tt wait` between two steps"] {
        assert!(section.contains(said), "{said}");
    }
    assert!(
        section.contains("While you wait, read, review, plan") && section.contains("If neither the MCP tools nor `tt`")
    );
    assert!(!SKILL.contains("joined or left."), "joins and leaves end no wait");
}
