//! Whatever is typed, `tt` neither panics nor hangs, and every failure has a code of the list and an exit status of the table.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tt_proto::ErrorCode;
use tt_tests::{Running, home};

/// Words that mean something to some command, and words that mean nothing to any.
fn word() -> impl Strategy<Value = String> {
    let known = [
        "join",
        "leave",
        "list",
        "doctor",
        "state",
        "wait",
        "try",
        "release",
        "pass",
        "take",
        "heartbeat",
        "kick",
        "msg",
        "send",
        "recv",
        "notes",
        "add",
        "resolve",
        "events",
        "status",
        "whoami",
        "completions",
        "bash",
        "room",
        "human:root",
        "codex",
        "--timeout",
        "10ms",
        "--claim",
        "--park",
        "--reason",
        "--operator",
        "--status",
        "--next-action",
        "--artifact",
        "a.rs:1-2=edit",
        "--json",
        "--text",
        "--no-autostart",
        "--hook",
        "--path",
        ".",
        "/",
        "/nonexistent",
        "--after",
        "0",
        "-1",
        "99999999999999999999",
        "--limit",
        "--event",
        "claim",
        "gossip",
        "--target",
        "any",
        "self",
        "--from",
        "--max-replay",
        "--all",
        "--force",
        "--name",
        "--help",
        "--version",
        "--",
        "-",
        "",
        "--wait",
        "ask",
        "reply",
        "inbox",
        "--questions",
        "sent",
        "withdraw",
        "remind",
        "cancel",
        "--every",
        "1s",
        "--times",
        "3",
        "--to",
        "-5m",
        "quiet",
        "off",
        "--when-idle",
        "--interrupt",
        "--notify-on-delivery",
        "--notify-after",
        "--no-wait",
        "policy",
        "max_wakes",
    ];
    prop_oneof![
        8 => prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => "[ -~]{0,12}",
        1 => "\\PC{0,6}",
    ]
}

#[test]
fn nothing_that_can_be_typed_panics_hangs_or_fails_without_a_code() {
    let home = home!();
    std::fs::create_dir_all(home.path().join("repo/.git")).unwrap();
    home.start();
    let codes: Vec<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let typed = prop::collection::vec(word(), 0..7);
    let outcome = runner.run(&typed, |words| {
        // A wait without an end is meant to last; everything else must end by itself.
        prop_assume!(!words.iter().any(|w| matches!(
            w.as_str(),
            "wait"
                | "--wait"
                | "--follow"
                | "watch"
                | "console"
                | "ui"
                | "demo"
                | "mcp"
                | "daemon"
                | "service"
                | "prompt"
                | "install"
                | "uninstall"
        )));
        let args: Vec<&str> = words.iter().map(String::as_str).filter(|w| !w.contains('\0')).collect();
        let mut command = home.tt(&args);
        command.env("TT_HARNESS_AGENT_ID", "codex:property").current_dir(home.path().join("repo"));
        let finished = Running::start(&mut command).finish();
        prop_assert!(!finished.stderr.contains("panicked"), "{args:?}: {finished:?}");
        match finished.code {
            Some(0) => {}
            Some(code @ 1..=4) => {
                prop_assert!(finished.stdout.is_empty() || code == 1, "{args:?}: {finished:?}");
                if args.contains(&"--text") {
                    return Ok(());
                }
                let error: serde_json::Value = serde_json::from_str(finished.stderr.lines().last().unwrap_or_default())
                    .map_err(|e| TestCaseError::fail(format!("{args:?}: {e}: {finished:?}")))?;
                let named = error["error"].as_str().unwrap_or_default();
                prop_assert!(codes.contains(&named), "{args:?}: {finished:?}");
                prop_assert!((code == 4) == (named == "daemon_unreachable"), "{args:?}: {finished:?}");
            }
            other => prop_assert!(false, "{args:?} ended with {other:?}: {finished:?}"),
        }
        Ok(())
    });
    outcome.unwrap();
}
