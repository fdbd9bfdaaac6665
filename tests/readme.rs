//! The README's commands work as they stand: each console block is typed into the shell its prompt names.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};

use tt_tests::{Home, Lines, home};

const README: &str = include_str!("../README.md");

/// The lines of the console blocks, as (who, command).
fn typed() -> Vec<(String, String)> {
    let blocks = README.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines = blocks.flat_map(|block| block.lines());
    lines.map(|line| line.split_once("$ ").unwrap()).map(|(who, command)| (who.into(), command.into())).collect()
}

/// Runs each line it is sent and marks the end of its output.
const AGENT: &str = "#!/bin/sh\nwhile IFS= read -r line; do eval \"$line\"; echo ::done; done\n";

/// An agent: a process with the name of its harness, which runs what is typed as its children.
struct Agent {
    process: Child,
    commands: ChildStdin,
    lines: Lines,
}

impl Agent {
    fn start(home: &Home, name: &str) -> Self {
        let path = format!("{}:/usr/bin:/bin", home.tt_path().parent().unwrap().display());
        let session = if name == "claude" { "CLAUDE_CODE_SESSION_ID" } else { "CODEX_THREAD_ID" };
        let mut command = home.command(home.script(&format!("bin/{name}"), AGENT));
        command.env("PATH", path).env(session, "readme").current_dir(home.path().join("repo"));
        if name == "claude" {
            command.env("CLAUDECODE", "1");
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, lines) = (process.stdin.take().unwrap(), Lines::of(process.stdout.take().unwrap()));
        Self { process, commands, lines }
    }

    fn type_line(&mut self, line: &str) {
        writeln!(self.commands, "{line}").unwrap();
    }

    /// What the command that was typed last has written. All there was, if the agent was killed.
    fn output(&mut self) -> String {
        std::iter::from_fn(|| self.lines.next()).take_while(|line| line != "::done\n").collect()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn the_walk_through_works_as_it_stands() {
    let home = home!();
    std::fs::create_dir_all(home.path().join("repo/.git")).unwrap();
    let lines = typed();
    assert!(lines.len() >= 14, "{lines:?}");
    let mut agents: BTreeMap<String, Agent> = BTreeMap::new();
    let mut answers = Vec::new();
    let mut waiting: Option<String> = None;
    for (who, command) in &lines {
        let agent = agents.entry(who.clone()).or_insert_with(|| Agent::start(&home, who));
        // A wait blocks its shell: what is typed there next waits for it to return.
        if waiting.as_ref() == Some(who) {
            waiting = None;
            answers.push((who.clone(), agent.output()));
        }
        agent.type_line(command);
        if command == "tt wait" {
            // Nobody types on before the wait is there.
            home.until_waiting("repo");
            waiting = Some(who.clone());
        } else {
            answers.push((who.clone(), agent.output()));
        }
    }
    let all: String = answers.iter().map(|(_, text)| text.as_str()).collect();
    for expected in [
        "keep the old column for now?",
        "yes, until the backfill is done",
        "run it on a copy first",
        "\"turn_id\":2",
        "\"status\":\"takeover_available\"",
        "\"reason\":\"owner_gone\"",
        "\"turn_id\":3",
    ] {
        assert!(all.contains(expected), "{expected} is not in {answers:?}");
    }
    // What is recorded on two terminals is this session.
    let recorded = include_str!("../docs/walkthrough.md");
    for (who, command) in &lines {
        let shown = format!("{who}$ {command}");
        assert!(recorded.replace('\n', "").contains(&shown), "docs/walkthrough.md has no {shown}: run .ci/walkthrough");
    }
}

#[test]
fn the_readme_starts_with_two_commands_and_then_the_install() {
    let plain: Vec<&str> = README.split("```\n").skip(1).step_by(2).collect();
    assert_eq!(plain[0], "cargo run --release -- demo\ncargo test --workspace\n");
    assert_eq!(plain[1], "cargo install --path tt-client --locked\n");
    let ci = include_str!("../.ci/run");
    for command in plain[0].lines() {
        assert!(ci.contains(command), "CI does not run `{command}`");
    }
}

/// The commands in the first column of the table, as words. A name without `tt` belongs to the group of the one before.
fn table() -> Vec<Vec<&'static str>> {
    let table = README.split("## Commands").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut commands: Vec<Vec<&str>> = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| `tt")) {
        for name in row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
            commands.push(match name.strip_prefix("tt ") {
                Some(rest) => rest.split(' ').collect(),
                None => {
                    let before = commands.last().unwrap();
                    before[..before.len() - 1].iter().copied().chain([name]).collect()
                }
            });
        }
    }
    commands
}

#[test]
fn every_command_of_the_table_exists() {
    let home = home!();
    let commands = table();
    assert!(commands.len() >= 30, "{commands:?}");
    for command in commands {
        let help = home.run(&[&command[..], &["--help"]].concat()).ok();
        assert!(help.stdout.contains("Usage"), "{command:?}");
    }
    assert!(!home.paths().data_dir.exists(), "--help changes nothing");
}

#[test]
fn every_command_is_in_the_table() {
    fn check(words: &[&str], command: &clap::Command, listed: &[Vec<&str>], missing: &mut Vec<String>) {
        let mut subcommands =
            command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()).peekable();
        if subcommands.peek().is_none() && !listed.iter().any(|command| command == words) {
            missing.push(words.join(" "));
        }
        for sub in subcommands {
            check(&[words, &[sub.get_name()]].concat(), sub, listed, missing);
        }
    }
    let mut missing = Vec::new();
    check(&[], &tt_client::command_line(), &table(), &mut missing);
    assert!(missing.is_empty(), "the README does not list {missing:?}");
}
