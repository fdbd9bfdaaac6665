//! Who the daemon takes a caller for, seen from real processes: a program with a harness's name, real shells below it,
//! `tt` at the bottom.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use serde_json::Value;
use tt_tests::{Harness, home, run};

const WHOAMI: &[&str] = &["whoami"];
const EXPLAIN: &[&str] = &["whoami", "--explain", "--json"];

fn finding<'a>(whoami: &'a Value, rule: &str) -> &'a str {
    let steps = whoami["explanation"].as_array().unwrap();
    let step = steps.iter().find(|step| step["rule"] == rule);
    step.unwrap_or_else(|| panic!("no {rule} in {whoami}"))["finding"].as_str().unwrap()
}

#[test]
fn a_call_through_three_shells_is_the_same_member_as_one_made_straight() {
    let home = home!();
    for (name, variables) in [
        ("claude", &[("CLAUDECODE", "1"), ("CLAUDE_CODE_SESSION_ID", "s-1")][..]),
        ("codex", &[("CODEX_THREAD_ID", "t-1")]),
    ] {
        let harness = variables.iter().fold(Harness::new(&home, name), |h, (name, value)| h.env(name, value));
        let (straight, deep) = (harness.straight(EXPLAIN), harness.through_shells(EXPLAIN));
        let (near, far) = (straight.tt.ok().json(), deep.tt.ok().json());
        assert_eq!(near["agent_id"], far["agent_id"]);
        assert!(near["agent_id"].as_str().unwrap().starts_with(&format!("{name}:")), "{near}");
        assert_eq!(near["found_by"], "env");
        assert_eq!(near["session_id"], variables.last().unwrap().1);
        assert_eq!(near["anchor"]["pid"], straight.pid);
        assert_eq!(far["anchor"]["pid"], deep.pid, "{far}");
        // tt, the shells, and the harness above them.
        let chain: Vec<&str> = finding(&far, "process").split(" < ").collect();
        assert!(chain[0].starts_with("tt (") && chain.len() >= 6, "{chain:?}");
        assert!(chain[4..].iter().any(|link| link.starts_with(&format!("{name} ("))), "{chain:?}");
    }
}

/// Without a session id only the processes can tell, so both calls come from one harness.
#[test]
fn without_a_session_id_the_harness_process_makes_them_one() {
    let home = home!();
    let both = home.script(
        "both",
        "#!/bin/sh\ntt=$1\n\"$tt\" whoami --explain --json\nsh -c 'bash -c \"sh -c \\\"\\$0 whoami --explain --json; exit\\\" $0; \
         exit\" $0; exit' \"$tt\"\n",
    );
    for (name, variable) in [("gemini", "GEMINI_CLI"), ("opencode", "OPENCODE"), ("claude", "CLAUDECODE")] {
        let played = Harness::new(&home, name).env(variable, "1").script(&both);
        let answers: Vec<Value> = played.tt.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [near, far] = &answers[..] else { panic!("{played:?}") };
        assert_eq!(near["agent_id"], far["agent_id"], "{near} {far}");
        assert!(near["agent_id"].as_str().unwrap().starts_with(&format!("{name}:")), "{near}");
        for answer in [near, far] {
            assert_eq!(answer["anchor"]["pid"], played.pid, "{answer}");
            assert_eq!(answer["session_id"], Value::Null);
        }
        assert!(finding(far, "process").split(" < ").count() >= 6, "{far}");
        let other = Harness::new(&home, name).env(variable, "1").straight(EXPLAIN).tt.ok().json();
        assert_ne!(other["agent_id"], near["agent_id"], "two sessions of one harness are two members");
    }
}

#[test]
fn the_override_is_taken_to_the_letter() {
    let home = home!();
    let harness =
        Harness::new(&home, "codex").env("CODEX_THREAD_ID", "t-1").env("TT_HARNESS_AGENT_ID", "codex:Review-1");
    let whoami = harness.through_shells(EXPLAIN).tt.ok().json();
    assert_eq!((whoami["agent_id"].as_str(), whoami["found_by"].as_str()), (Some("codex:Review-1"), Some("override")));
    assert!(finding(&whoami, "TT_HARNESS_AGENT_ID").contains("codex:Review-1"));

    let bad = Harness::new(&home, "codex").env("TT_HARNESS_AGENT_ID", "two words").straight(WHOAMI);
    assert_eq!(bad.tt.refused(3)["error"], "invalid_input");
}

#[test]
fn a_harness_above_counts_only_when_it_is_exported() {
    let home = home!();
    let plain = Harness::new(&home, "codex").through_shells(EXPLAIN).tt.ok().json();
    assert!(plain["agent_id"].as_str().unwrap().starts_with("human:"), "{plain}");
    let exported = Harness::new(&home, "codex").env("TT_HARNESS_EXPORT", "1").through_shells(EXPLAIN);
    let (pid, exported) = (exported.pid, exported.tt.ok().json());
    assert_eq!((exported["harness"].as_str(), exported["found_by"].as_str()), (Some("codex"), Some("ancestry")));
    assert_eq!(exported["anchor"]["pid"], pid);
    let nobody = Harness::new(&home, "vim").env("TT_HARNESS_EXPORT", "1").straight(EXPLAIN).tt.ok().json();
    assert!(nobody["agent_id"].as_str().unwrap().starts_with("human:"), "{nobody}");
}

#[test]
fn a_person_reads_text_and_an_agent_json() {
    let home = home!();
    let person = home.run(WHOAMI).ok().stdout;
    assert!(person.starts_with("human:") && person.lines().count() == 1, "{person}");
    let explained = home.run(&["whoami", "--explain"]).ok().stdout;
    for rule in ["process", "TT_HARNESS_AGENT_ID", "environment", "TT_HARNESS_EXPORT", "person", "anchor"] {
        assert!(explained.contains(rule), "no {rule} in {explained}");
    }
    assert!(!explained.contains('\u{1b}'), "no colours where there is no terminal");
    assert_eq!(home.run(&["whoami", "--json"]).ok().json()["agent_id"], person.trim());

    let agent = run::finish(home.tt(WHOAMI).env("CODEX_THREAD_ID", "t-1")).ok();
    assert!(agent.json()["agent_id"].as_str().unwrap().starts_with("codex:"));
    assert_eq!(agent.stdout.lines().count(), 1);
    let text = run::finish(home.tt(&["whoami", "--text"]).env("CODEX_THREAD_ID", "t-1")).ok().stdout;
    assert!(text.starts_with("codex:") && text.contains("t-1"), "{text}");
    assert!(agent.json()["explanation"].is_null(), "only when asked for");
}

#[test]
fn what_the_environment_says_cannot_drive_the_terminal() {
    let home = home!();
    let tt = run::finish(home.tt(&["whoami", "--explain", "--text"]).env("CODEX_THREAD_ID", "a\u{1b}[2Jb\nc")).ok();
    assert!(!tt.stdout.contains('\u{1b}') && tt.stdout.contains("\\u{1b}"), "{}", tt.stdout);
}

#[test]
fn the_identity_is_the_callers_and_not_that_of_whoever_started_the_daemon() {
    let home = home!();
    let starter = run::finish(home.tt(WHOAMI).env("CODEX_THREAD_ID", "t-1")).ok().json();
    let other = run::finish(home.tt(WHOAMI).env("CODEX_THREAD_ID", "t-2")).ok().json();
    assert_ne!(starter["agent_id"], other["agent_id"]);
    assert!(home.run(WHOAMI).ok().stdout.starts_with("human:"));
    home.kill_daemon();
    let again = run::finish(home.tt(WHOAMI).env("CODEX_THREAD_ID", "t-1")).ok().json();
    assert_eq!(starter["agent_id"], again["agent_id"], "an id outlives the daemon");
}

/// What a hook writes is read by its harness, and what it ends with is shown to the user.
#[test]
fn a_heartbeat_from_a_hook_says_nothing_and_has_nothing_to_complain_of() {
    let home = home!();
    let codex = |args: &[&str]| {
        let mut command = home.tt(args);
        command.env("CODEX_THREAD_ID", "t-1");
        command
    };
    let beat = || {
        let script = "echo '{\"hook_event_name\":\"PostToolUse\",\"session_id\":\"t-1\"}' | \"$0\" --hook heartbeat";
        let mut shell = home.command("/bin/sh");
        let finished = run::finish(shell.args(["-c", script]).arg(home.tt_path()).env("CODEX_THREAD_ID", "t-1"));
        assert_eq!((finished.code, &*finished.stdout, &*finished.stderr), (Some(0), "", ""), "{finished:?}");
    };
    beat();
    home.run(&["join"]).ok();
    home.run(&["try"]).ok();
    beat();
    let members = home.run(&["state", "--json"]).ok().json()["members"].as_array().unwrap().len();
    assert_eq!(members, 1, "a hook makes nobody a member");
    home.run(&["release", "--status", "s", "--next-action", "n"]).ok();
    run::finish(&mut codex(&["wait"])).ok();
    let expires = || home.run(&["state", "--json"]).ok().json()["room"]["lease_expires_at"].clone();
    let before = expires();
    assert!(before.is_string());
    beat();
    assert_ne!(expires(), before, "and it is a sign of life");
    assert!(run::finish(&mut codex(&["heartbeat"])).ok().stdout.contains("lease_expires_at"));
}

/// Codex tells a hook its session on standard input only; its shell tool has it in the environment.
#[test]
fn a_hook_is_the_member_that_its_session_is() {
    let home = home!();
    let hook = home.script(
        "hook",
        "#!/bin/sh\necho '{\"hook_event_name\":\"PostToolUse\",\"session_id\":\"t-1\"}' | \"$1\" --hook whoami\n\
         CODEX_THREAD_ID=t-1 \"$1\" whoami\nexit\n",
    );
    // Started from another harness's shell, whose variables it inherits.
    let played = Harness::new(&home, "codex").env("CLAUDECODE", "1").env("CLAUDE_CODE_SESSION_ID", "s-1").script(&hook);
    let answers: Vec<Value> = played.tt.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [hook, shell] = &answers[..] else { panic!("{played:?}") };
    assert_eq!((&hook["agent_id"], &hook["display_name"]), (&shell["agent_id"], &Value::from("codex")), "{hook}");
    assert_eq!(hook["anchor"], shell["anchor"]);
    let error = run::finish(&mut home.tt(&["--hook", "whoami"])).refused(3);
    assert_eq!(error["error"], "invalid_input", "{error}");
}
