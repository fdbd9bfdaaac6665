//! Completions in the shells themselves, where they are installed.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::Path;

use tt_tests::terminal::Terminal;
use tt_tests::{Home, home, not_run, run};

/// Ctrl-U, which takes back what was typed.
const DELETE_LINE: &str = "\x15";

/// What is typed, and the line that one press of Tab makes of it.
const TYPED: [(&str, &str); 8] = [
    ("tt ki", "tt kick"),
    ("tt kick co", "tt kick codex"),
    ("tt msg send co", "tt msg send codex"),
    ("tt recv --from co", "tt recv --from codex"),
    ("tt ask co", "tt ask codex"),
    ("tt remind 1h --to co", "tt remind 1h --to codex"),
    ("tt log --event claim,rel", "tt log --event claim,release"),
    ("tt notes res", "tt notes resolve"),
];

/// A room with two members and a note, of which this is the short id.
fn room(home: &Home) -> String {
    let tt = |agent: &str, args: &[&str]| run::finish(&mut home.tt_as(agent, args)).ok().json();
    tt("codex:1", &["join", "--name", "codex"]);
    let note = tt("codex:1", &["notes", "add", "flaky test"]);
    run::finish(home.tt(&["join"]).current_dir(home.workspace())).ok();
    note["note_id"].as_str().unwrap()[..8].to_owned()
}

fn is_installed(shell: &str) -> bool {
    let is_there = ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|dir| Path::new(dir).join(shell).exists());
    if !is_there {
        not_run(&format!("completions in {shell}"), "it is not installed");
    }
    is_there
}

/// Types into an interactive shell and presses Tab.
fn complete_at_terminal(shell: &[&str], prepare: &str) {
    if !is_installed(shell[0]) {
        return;
    }
    let home = home!();
    let note = room(&home);
    let workspace = home.workspace().canonicalize().unwrap().display().to_string();
    let mut terminal = Terminal::open(&home, shell);
    assert_eq!(terminal.run(prepare).1, 0, "{}", terminal.text());
    let own = [
        ("tt notes resolve ", format!("tt notes resolve {note}")),
        ("tt state ", format!("tt state {workspace}")),
        ("tt state --path ", format!("tt state --path {workspace}")),
    ];
    let typed = TYPED.iter().map(|(typed, line)| (*typed, (*line).to_owned()));
    for (typed, line) in typed.chain(own) {
        terminal.type_keys(&format!("{typed}\t"));
        terminal.until(|text| text.lines().last().is_some_and(|last| last.trim_end().ends_with(&line)));
        terminal.type_keys(DELETE_LINE);
        terminal.until(|text| text.lines().last().is_some_and(|last| last.trim_end() == "$"));
    }
}

#[test]
fn bash_completes_what_only_the_daemon_knows() {
    complete_at_terminal(&["bash", "--norc", "--noprofile"], "source <(tt completions bash)");
}

#[test]
fn zsh_completes_what_only_the_daemon_knows() {
    let prepare = "autoload -Uz compinit && compinit -u -D && source <(tt completions zsh)";
    complete_at_terminal(&["zsh", "-f"], prepare);
}

#[test]
fn fish_completes_what_only_the_daemon_knows() {
    if !is_installed("fish") {
        return;
    }
    let home = home!();
    let note = room(&home);
    let script = "\"$TT\" completions fish | source; for typed in $argv; complete -C \"$typed\"; end";
    let complete = |typed: &str| {
        let mut fish = home.command("fish");
        let path = format!("{}:/usr/bin:/bin", home.tt_path().parent().unwrap().display());
        fish.args(["--no-config", "-c", script, typed]).env("PATH", path).env("TT", home.tt_path());
        run::finish(fish.current_dir(home.workspace())).ok().stdout
    };
    for (typed, line) in TYPED {
        let word = line.rsplit(' ').next().unwrap();
        let found = complete(typed);
        assert_eq!(found.split(['\t', '\n']).next(), Some(word), "{typed}: {found}");
        assert_eq!(found.lines().count(), 1, "{typed}: {found}");
    }
    assert_eq!(complete("tt notes resolve "), format!("{note}\tflaky test\n"));
    let workspace = home.workspace().canonicalize().unwrap();
    assert!(complete("tt state --path ").contains(workspace.to_str().unwrap()));
}
