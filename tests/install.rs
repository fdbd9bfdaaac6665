//! `tt install` in homes of its own: what was there stays, what comes is exact, and all of it can be taken back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use tt_tests::{Home, home};

/// Files as people have them, with what only people put there.
const FILES: &[(&str, &str)] = &[
    (".claude.json", "{\n  \"numStartups\": 7,\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}"),
    (".codex/config.toml", "# mine\nmodel = \"m\" # why\n\n[mcp_servers.other]\ncommand = \"x\"\r\n"),
    (".gemini/settings.json", "{\n\t// a comment\n\t\"theme\": \"dark\",\n}\n"),
    (".config/opencode/opencode.json", "{\"$schema\":\"https://opencode.ai/config.json\"}"),
];

fn write(home: &Home, name: &str, text: &str) {
    let path = home.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Every file of the home, with its content.
fn everything(dir: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => all.extend(everything(&path)),
            false => _ = all.insert(path.display().to_string(), fs::read_to_string(&path).unwrap()),
        }
    }
    all
}

fn with_files() -> Home {
    let home = home!();
    FILES.iter().for_each(|(name, text)| write(&home, name, text));
    write(&home, ".claude/settings.json", "{}");
    home
}

#[test]
fn uninstall_restores_every_byte() {
    let home = with_files();
    let before = everything(home.path());
    let printed = home.run(&["install", "--all", "--print", "--json"]).ok().json();
    assert_eq!(everything(home.path()), before, "--print changes nothing");
    assert_eq!(printed["applied"], false);
    let shown: Vec<&str> = printed["changes"].as_array().unwrap().iter().filter_map(|c| c["diff"].as_str()).collect();
    assert!(shown.iter().any(|diff| diff.contains("[mcp_servers.talking-stick]")), "{printed}");
    home.run(&["install", "--all"]).ok();
    let installed = everything(home.path());
    for (name, text) in FILES {
        let now = &installed[&home.path().join(name).display().to_string()];
        assert!(now.contains("talking-stick") && now.contains(home.tt_path().to_str().unwrap()), "{now}");
        let mut rest = now.chars();
        assert!(text.chars().filter(|c| !c.is_whitespace()).all(|c| rest.any(|n| n == c)), "{now}");
    }
    for skill in [".claude/skills/talking-stick/SKILL.md", ".agents/skills/talking-stick/SKILL.md"] {
        assert!(installed[&home.path().join(skill).display().to_string()].starts_with("---\nname: talking-stick\n"));
    }
    home.run(&["install", "--all"]).ok();
    assert_eq!(everything(home.path()), installed, "a second time changes nothing");
    home.run(&["uninstall", "codex"]).ok();
    assert!(home.path().join(".agents/skills/talking-stick/SKILL.md").exists(), "others still read it");
    home.run(&["uninstall", "--all"]).ok();
    assert_eq!(everything(home.path()), before);
}

#[test]
fn what_the_user_changed_meanwhile_stays() {
    let home = with_files();
    home.run(&["install", "--all"]).ok();
    let claude = home.path().join(".claude.json");
    let changed = fs::read_to_string(&claude).unwrap().replace("\"numStartups\": 7", "\"numStartups\": 8");
    fs::write(&claude, changed).unwrap();
    let codex = home.path().join(".codex/config.toml");
    fs::write(&codex, fs::read_to_string(&codex).unwrap() + "\n[later]\nx = 1 # mine\n").unwrap();
    home.run(&["uninstall", "--all"]).ok();
    let claude: Value = serde_json::from_str(&fs::read_to_string(claude).unwrap()).unwrap();
    assert_eq!(claude, serde_json::json!({"numStartups": 8, "mcpServers": {"other": {"command": "x"}}}));
    let codex = fs::read_to_string(codex).unwrap();
    assert!(
        codex.contains("x = 1 # mine") && codex.contains("model = \"m\" # why") && !codex.contains("talking-stick"),
        "{codex}"
    );
}

#[test]
fn a_harness_that_is_not_there_is_skipped_and_files_that_are_not_come_and_go() {
    let home = home!();
    let before = everything(home.path());
    let answer = home.run(&["install", "--all", "--json"]).ok().json();
    // A program on the path of the machine may be found; a home without any of them has none.
    let skipped =
        |answer: &Value| answer["changes"].as_array().unwrap().iter().filter(|c| c["action"] == "skipped").count();
    if skipped(&answer) == 4 {
        assert_eq!(everything(home.path()), before);
    }
    home.run(&["uninstall", "--all"]).ok();
    fs::create_dir_all(home.path().join(".codex")).unwrap();
    home.run(&["install", "codex"]).ok();
    let config = home.path().join(".codex/config.toml");
    assert!(fs::read_to_string(&config).unwrap().starts_with("[mcp_servers.talking-stick]\n"));
    home.run(&["uninstall", "codex"]).ok();
    assert!(!config.exists() && !home.path().join(".agents/skills/talking-stick").exists());
    assert_eq!(everything(home.path()), before);
}

#[test]
fn a_file_that_cannot_be_read_is_never_overwritten() {
    for (name, harness) in
        [(".claude.json", "claude"), (".codex/config.toml", "codex"), (".gemini/settings.json", "gemini")]
    {
        for bad in ["{ \"a\": ", "[x\n", "{\"mcpServers\": 1}\nmcp_servers = 1"] {
            let home = home!();
            fs::create_dir_all(home.path().join(".claude")).unwrap();
            write(&home, name, bad);
            for command in ["install", "uninstall"] {
                let error = home.run(&[command, harness, "--json"]).refused(3);
                assert_eq!(error["error"], "invalid_input", "{error}");
                assert!(error["path"].as_str().unwrap().ends_with(name), "{error}");
                assert_eq!(fs::read_to_string(home.path().join(name)).unwrap(), bad);
            }
        }
    }
}

#[test]
fn links_and_permissions_stay() {
    let home = home!();
    write(&home, "dotfiles/codex.toml", "a = 1\n");
    let real = home.path().join("dotfiles/codex.toml");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    fs::create_dir_all(home.path().join(".codex")).unwrap();
    std::os::unix::fs::symlink(&real, home.path().join(".codex/config.toml")).unwrap();
    home.run(&["install", "codex"]).ok();
    assert!(home.path().join(".codex/config.toml").is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("talking-stick"));
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    home.run(&["uninstall", "codex"]).ok();
    assert_eq!(fs::read_to_string(&real).unwrap(), "a = 1\n");
    assert!(home.path().join(".codex/config.toml").is_symlink());
}
