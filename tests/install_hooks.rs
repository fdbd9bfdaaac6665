//! `tt install` and hooks: they come and go to the byte, those of other tools stay as they are, and trust is given by people.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::fs;

use serde_json::Value;
use tt_harness::Hooks;
use tt_tests::{Home, home, run};

use super::install::{doctor_on, everything, shown, with_files, write};

/// The harnesses with a hook file, and that file.
const HOOK_FILES: [(&str, &str); 3] =
    [("claude", ".claude/settings.json"), ("codex", ".codex/hooks.json"), ("gemini", ".gemini/settings.json")];

const PLUGIN: &str = ".config/opencode/plugins/talking-stick.js";

fn read(home: &Home, name: &str) -> String {
    fs::read_to_string(home.path().join(name)).unwrap_or_default()
}

/// The shell lines of an event, in order.
fn lines(text: &str, event: &str) -> Vec<String> {
    let file: Value = serde_json::from_str(text).unwrap();
    let groups = file["hooks"][event].as_array().cloned().unwrap_or_default();
    let hooks = groups.iter().flat_map(|group| group["hooks"].as_array().cloned().unwrap_or_default());
    hooks.map(|hook| hook["command"].as_str().unwrap().to_owned()).collect()
}

fn events(harness: &str) -> Vec<&'static str> {
    match &tt_harness::by_name(harness).unwrap().hooks {
        Hooks::File(file) => file.events.iter().map(|event| event.name).collect(),
        Hooks::Plugin(_) => Vec::new(),
    }
}

#[test]
fn hooks_come_and_go_to_the_byte_whatever_the_file_looks_like() {
    let (home, other) = (home!(), home!());
    let elsewhere = other.for_everyone(home.tt_path());
    for (harness, name) in HOOK_FILES {
        let event = events(harness)[1];
        let theirs = r#"{ "matcher": "Bash", "hooks": [{ "type": "command", "command": "lint" }] }"#;
        let shapes = [
            "{}".to_owned(),
            "{\r\n  \"a\": 1\r\n}\r\n".to_owned(),
            "{\n\t\"hooks\": {\n\t}\n}".to_owned(),
            format!("{{\"hooks\":{{\"{event}\":[]}}}}"),
            format!("{{ \"hooks\": {{ \"{event}\": [{theirs}, {theirs}] }}, \"z\": 0 }}\n"),
            format!("{{\n  \"hooks\": {{\n    \"Mine\": [\n      {theirs}\n    ]\n  }}\n}}\n"),
        ];
        for shape in shapes {
            write(&home, name, &shape);
            let before = everything(home.path());
            let printed = home.run(&["install", harness, "--print", "--json"]).ok().json();
            assert_eq!(everything(home.path()), before, "--print changes nothing");
            home.run(&["install", harness]).ok();
            let installed = read(&home, name);
            let path = home.path().join(name).display().to_string();
            let change = printed["changes"].as_array().unwrap().iter().find(|change| change["path"] == path).unwrap();
            assert_eq!(shown(&shape, change), installed, "{change}");
            let ours = format!("'{}' hook --harness {harness} ", home.tt_path().display());
            for event in events(harness) {
                let lines = lines(&installed, event);
                assert!(lines.last().unwrap().contains(&ours), "{event}: {lines:?}");
                let theirs = if serde_json::from_str::<Value>(&shape).unwrap()["hooks"][event].is_array() {
                    self::lines(&shape, event)
                } else {
                    Vec::new()
                };
                assert_eq!(lines[..lines.len() - 1], theirs, "other hooks stay, in their order");
            }
            home.run(&["install", harness]).ok();
            assert_eq!(read(&home, name), installed, "a second time changes nothing");
            run::finish(home.command(&elsewhere).args(["install", harness])).ok();
            let moved = read(&home, name);
            assert!(moved.contains("everyone/tt") && !moved.contains(home.tt_path().to_str().unwrap()), "{moved}");
            assert!(events(harness).iter().all(|event| lines(&moved, event).len() == lines(&installed, event).len()));
            home.run(&["uninstall", harness]).ok();
            assert_eq!(everything(home.path()), before, "{harness}: {shape:?} became {installed}");
        }
        fs::remove_file(home.path().join(name)).unwrap();
        let before = everything(home.path());
        home.run(&["install", harness]).ok();
        home.run(&["uninstall", harness]).ok();
        assert_eq!(everything(home.path()), before, "a file that only we made");
    }
}

#[test]
fn without_hooks_the_rest_is_installed_and_hooks_that_are_there_go() {
    let home = with_files();
    let before = everything(home.path());
    home.run(&["install", "--all", "--no-hooks"]).ok();
    let without = everything(home.path());
    assert!(!without.values().any(|text| text.contains("hook --harness")), "{without:?}");
    assert!(!home.path().join(PLUGIN).exists() && !home.path().join(".codex/hooks.json").exists());
    assert!(read(&home, ".claude.json").contains("talking-stick"));
    home.run(&["install", "--all"]).ok();
    assert!(read(&home, PLUGIN).contains(&format!("const TT = \"{}\"", home.tt_path().display())));
    assert!(HOOK_FILES.iter().all(|(_, name)| read(&home, name).contains("hook --harness")));
    home.run(&["install", "--all", "--no-hooks"]).ok();
    assert!(HOOK_FILES.iter().all(|(_, name)| !read(&home, name).contains("hook --harness")));
    assert!(!home.path().join(PLUGIN).exists());
    home.run(&["uninstall", "--all"]).ok();
    assert_eq!(everything(home.path()), before);
}

#[test]
fn trust_is_recorded_only_for_somebody_who_says_so() {
    let home = with_files();
    write(&home, ".codex/hooks.json", r#"{"hooks":{"Stop":[{"hooks":[{"type":"command","command":"mine"}]}]}}"#);
    let before = everything(home.path());
    let codex = || {
        let report = home.run(&["--no-autostart", "doctor", "--json"]).json();
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["name"] == "codex").unwrap()
    };
    let text = home.run(&["install", "--all"]).ok().stdout;
    assert!(!read(&home, ".codex/config.toml").contains("trusted_hash"));
    for part in
        ["Codex runs the hooks only after you trust them", "Trust all and continue", "--trust-hooks", "tt doctor"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let untrusted = |args: &[&str]| home.run(&[&["install", "--json"], args].concat()).ok().json()["untrusted"].clone();
    assert_eq!(untrusted(&["codex"])[0]["harness"], "codex", "as long as it has not happened");
    assert_eq!(untrusted(&["claude"]), serde_json::Value::Null);
    let check = codex();
    assert_eq!(check["status"], "warning", "{check}");
    assert!(
        check["finding"].as_str().unwrap().contains("trust")
            && check["remedy"].as_str().unwrap().contains("Trust all and continue")
            && check["remedy"].as_str().unwrap().contains("--trust-hooks")
    );
    let printed = home.run(&["install", "codex", "--trust-hooks", "--print", "--json"]).ok().json();
    assert!(
        printed.to_string().contains("trusted_hash") && !read(&home, ".codex/config.toml").contains("trusted_hash")
    );
    assert_eq!(untrusted(&["codex", "--trust-hooks"]), serde_json::Value::Null);
    let config = read(&home, ".codex/config.toml");
    assert_eq!(config.matches("trusted_hash").count(), events("codex").len(), "{config}");
    let (stop, mine) = (":stop:1:0\"]", ":stop:0:0\"]");
    assert!(config.contains(stop) && !config.contains(mine), "our hook is the second of its event: {config}");
    assert_eq!(codex()["status"], "ok", "{}", codex());
    home.run(&["install", "codex"]).ok();
    assert_eq!(read(&home, ".codex/config.toml"), config, "trust that was given stays");
    // Somebody else's hook in front of ours moves it, and with it what the trust is about.
    let hooks = read(&home, ".codex/hooks.json").replace(r#""Stop":["#, r#""Stop":[{"hooks":[]},"#);
    write(&home, ".codex/hooks.json", &hooks);
    assert_eq!(codex()["status"], "warning", "{}", codex());
    write(&home, ".codex/hooks.json", &hooks.replace(r#"{"hooks":[]},"#, ""));
    home.run(&["uninstall", "--all"]).ok();
    assert_eq!(everything(home.path()), before);
    home.run(&["install", "codex", "--trust-hooks", "--no-hooks", "--json"]).refused(2);
}

#[test]
fn a_hook_file_of_another_shape_is_refused_and_kept() {
    let shapes = [
        "[]",
        "7",
        "null",
        "\"x\"",
        "{\"hooks\": []}",
        "{\"hooks\": null}",
        "{\"hooks\": \"x\"}",
        "{\"hooks\": {\"SessionStart\": {}}}",
        "{\"hooks\": {\"SessionStart\": 7}}",
        "{\"hooks\": {",
    ];
    let home = with_files();
    for (harness, name) in HOOK_FILES {
        let kept = read(&home, name);
        for shape in shapes {
            write(&home, name, shape);
            let before = everything(home.path());
            let error = home.run(&["install", harness, "--json"]).refused(3);
            assert!(error["path"].as_str().unwrap().ends_with(name), "{shape}: {error}");
            let check = doctor_on(&home, harness);
            assert_eq!((&check["status"], &check["error"]), (&"failed".into(), &"invalid_input".into()), "{shape}");
            assert_eq!(everything(home.path()), before, "{harness} {shape}");
        }
        if kept.is_empty() { fs::remove_file(home.path().join(name)).unwrap() } else { write(&home, name, &kept) }
    }
}
