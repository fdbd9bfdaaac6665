//! `tt install` in homes of its own: what was there stays, what comes is exact, and all of it can be taken back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use tt_tests::{Home, home, run};

/// Files as people have them, with what only people put there.
const FILES: &[(&str, &str)] = &[
    (".claude.json", "{\n  \"numStartups\": 7,\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}"),
    (".codex/config.toml", "# mine\nmodel = \"m\" # why\n\n[mcp_servers.other]\ncommand = \"x\"\r\n"),
    (".gemini/settings.json", "{\n\t// a comment\n\t\"theme\": \"dark\",\n}\n"),
    (".config/opencode/opencode.json", "{\"$schema\":\"https://opencode.ai/config.json\"}"),
];

pub(super) fn write(home: &Home, name: &str, text: &str) {
    let path = home.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Every file of the home, with its content.
pub(super) fn everything(dir: &Path) -> BTreeMap<String, String> {
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

pub(super) fn with_files() -> Home {
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
    for harness in ["claude", "codex", "gemini", "opencode"] {
        let named = |change: &Value| change["harness"] == harness;
        assert!(printed["changes"].as_array().unwrap().iter().any(named), "as it is typed: {harness} in {printed}");
    }
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
fn a_person_is_told_what_changed_and_what_to_restart() {
    let home = with_files();
    let text = |args: &[&str]| home.run(&[args, &["--text"]].concat()).ok().stdout;
    let path = |name: &str| home.path().canonicalize().unwrap().join(name).display().to_string();
    let printed = text(&["install", "--all", "--print"]);
    for (name, was) in [(".claude/skills/talking-stick/SKILL.md", "/dev/null"), (".codex/config.toml", "")] {
        let was = if was.is_empty() { path(name) } else { was.to_owned() };
        let head = format!("--- {was}\n+++ {}\n@@ ", path(name));
        assert!(printed.contains(&head), "no {head} in {printed}");
    }
    assert_eq!(printed.matches("+name: talking-stick").count(), 1, "the skill is shown once: {printed}");
    assert!(
        printed
            .contains(&format!("{}: would be created\n    as above\n", path(".agents/skills/talking-stick/SKILL.md")))
    );
    assert!(!printed.contains("restart"), "nothing was changed: {printed}");
    let installed = text(&["install", "--all"]);
    assert!(installed.contains(&format!("{}: changed\n", path(".codex/config.toml"))), "{installed}");
    assert!(
        installed.contains(&format!("{}: created\n", path(".claude/skills/talking-stick/SKILL.md"))),
        "{installed}"
    );
    let restart = "restart what is running, so that it uses this: Claude Code, Codex, Gemini CLI, OpenCode\n";
    let (_, trust) = installed.split_once(restart).unwrap();
    assert!(trust.starts_with("Codex runs the hooks only after you trust them"), "{installed}");
    let again = text(&["install", "--all"]);
    assert!(again.contains("up to date") && !again.contains("restart"), "{again}");
    assert_eq!(home.run(&["uninstall", "codex", "--json"]).ok().json()["restart"], serde_json::json!(["codex"]));
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
    // Claude Code rewrites its file all the time; a section that only we had in it goes with us.
    write(&home, ".claude.json", "{\"numStartups\": 8}");
    home.run(&["install", "claude"]).ok();
    let path = home.path().join(".claude.json");
    let rewritten: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    fs::write(&path, serde_json::to_string_pretty(&rewritten).unwrap().replace("8", "9")).unwrap();
    home.run(&["uninstall", "claude"]).ok();
    assert_eq!(fs::read_to_string(&path).unwrap(), "{\n  \"numStartups\": 9\n}");
    let text = fs::read_to_string(&codex).unwrap();
    assert!(
        text.contains("x = 1 # mine") && text.contains("model = \"m\" # why") && !text.contains("talking-stick"),
        "{text}"
    );
    // Codex adds its tables after ours; the comments that ended the user's file are then above our header, and not ours.
    let (mine, added) = ("a = 1\n\n# notes to myself\n# [off]\n", "\n[projects.\"/p\"]\ntrust_level = \"trusted\"\n");
    fs::write(&codex, mine).unwrap();
    home.run(&["install", "codex"]).ok();
    fs::write(&codex, fs::read_to_string(&codex).unwrap() + added).unwrap();
    home.run(&["uninstall", "codex"]).ok();
    assert_eq!(fs::read_to_string(&codex).unwrap(), format!("{mine}{added}"));
}

#[test]
fn a_harness_that_is_not_there_is_skipped_and_files_that_are_not_come_and_go() {
    let home = home!();
    let before = everything(home.path());
    let answer = home.run(&["install", "--all", "--json"]).ok().json();
    // A program on the path of the machine may be found; a home without any of them has none.
    let skipped =
        |answer: &Value| answer["changes"].as_array().unwrap().iter().filter(|c| c["action"] == "skipped").count();
    if skipped(&answer) == tt_harness::ALL.len() {
        assert_eq!(everything(home.path()), before);
    }
    home.run(&["uninstall", "--all"]).ok();
    fs::create_dir_all(home.path().join(".codex")).unwrap();
    home.run(&["install", "codex"]).ok();
    let config = home.path().join(".codex/config.toml");
    assert!(fs::read_to_string(&config).unwrap().starts_with("[mcp_servers.talking-stick]\n"));
    home.run(&["uninstall", "codex"]).ok();
    assert!(!config.exists() && !home.path().join(".agents").exists());
    assert_eq!(everything(home.path()), before);
}

#[test]
fn a_file_that_cannot_be_read_is_never_overwritten_and_stops_all_of_it() {
    for (name, _) in FILES {
        for bad in ["{ \"a\": ", "[x\n", "{\"mcpServers\": 1, \"mcp\": 1}\nmcp_servers = 1", "\u{1}", "{}{}"] {
            let home = with_files();
            write(&home, name, bad);
            let before = everything(home.path());
            for command in ["install", "uninstall"] {
                let error = home.run(&[command, "--all", "--json"]).refused(3);
                assert_eq!(error["error"], "invalid_input", "{error}");
                assert!(error["path"].as_str().unwrap().ends_with(name), "{error}");
                assert_eq!(everything(home.path()), before, "{command} {name} {bad:?}");
            }
        }
        let home = with_files();
        fs::write(home.path().join(name), b"\xff\xfe{}").unwrap();
        home.run(&["install", "--all", "--json"]).refused(3);
        assert_eq!(fs::read(home.path().join(name)).unwrap(), b"\xff\xfe{}");
    }
}

#[test]
fn an_entry_that_is_not_an_object_is_refused_and_kept() {
    for (name, section) in [
        (".claude.json", "mcpServers"),
        (".gemini/settings.json", "mcpServers"),
        (".config/opencode/opencode.json", "mcp"),
    ] {
        for value in ["null", "true", "7", "\"x\"", "[]"] {
            let home = with_files();
            write(&home, name, &format!("{{\"{section}\": {{\"talking-stick\": {value}}}}}"));
            let before = everything(home.path());
            for command in ["install", "uninstall"] {
                let error = home.run(&[command, "--all", "--json"]).refused(3);
                let message = error["message"].as_str().unwrap();
                assert!(message.contains("an object was expected as the value of \"talking-stick\""), "{error}");
                assert_eq!(everything(home.path()), before, "{command} {name} {value}");
            }
        }
    }
}

/// Whatever the file looks like: in, again, from elsewhere, and out.
#[test]
fn every_shape_of_file_comes_back_to_the_byte() {
    let json = |section: &str| {
        let shapes = [
            "{}",
            "{ }",
            "{\n}\n",
            "\u{feff}{\r\n  \"a\": 1\r\n}\r\n",
            "{\"a\":[1,{\"b\":\"}\"}]}",
            "{\n\t\"a\": 1,\n\t\"SECTION\": {}\n}",
            "{\"SECTION\":{\"other\":{\"command\":\"x\"}},\"z\":0}\n\n",
            "// mine\n{\n  \"SECTION\": { // none yet\n  },\n}\n",
            "{\n  \"SECTION\": {\n    \"other\": {}, // keep\n  },\n  /* end */\n}\n",
            "",
            "\n",
        ];
        shapes.map(|shape| shape.replace("SECTION", section)).to_vec()
    };
    let toml = [
        "",
        "\n",
        "a = 1",
        "# only a comment",
        "a = 1\r\n\r\n[mcp_servers.other]\r\ncommand = 'x'\r\n",
        "mcp_servers.other.command = \"x\"\n\n[z]\na = 1\n",
        "mcp_servers = { other = { command = \"x\" } }\n[z]\na = 1\n",
        "[mcp_servers]\n[mcp_servers.other] # mine\ncommand = \"x\"\n\n[z] # last\n",
        "\u{feff}a = \"\"\"\n[mcp_servers.talking-stick]\n\"\"\"\n",
    ];
    let homes: Vec<(&str, &str, Vec<String>)> = vec![
        ("claude", ".claude.json", json("mcpServers")),
        ("codex", ".codex/config.toml", toml.map(str::to_owned).to_vec()),
        ("gemini", ".gemini/settings.json", json("mcpServers")),
        ("opencode", ".config/opencode/opencode.jsonc", json("mcp")),
    ];
    let (home, other) = (home!(), home!());
    let elsewhere = other.for_everyone(home.tt_path());
    fs::create_dir_all(home.path().join(".claude")).unwrap();
    for (harness, name, shapes) in homes {
        for shape in shapes {
            write(&home, name, &shape);
            let before = everything(home.path());
            let printed = home.run(&["install", harness, "--print", "--json"]).ok().json();
            home.run(&["install", harness]).ok();
            let installed = fs::read_to_string(home.path().join(name)).unwrap();
            assert_ne!(installed, shape);
            assert_eq!(shown(&shape, &printed["changes"][0]), installed, "--print shows the change: {printed}");
            let backup = home.path().join(format!("{name}.before-talking-stick"));
            assert_eq!(fs::read_to_string(&backup).unwrap(), shape);
            assert_eq!(fs::metadata(&backup).unwrap().permissions().mode() & 0o777, 0o600, "it may hold secrets");
            let again = home.run(&["install", harness, "--json"]).ok().json();
            assert_eq!(again["changes"][0]["action"], "unchanged", "{again}");
            run::finish(home.command(&elsewhere).args(["install", harness])).ok();
            let moved = fs::read_to_string(home.path().join(name)).unwrap();
            assert!(moved.contains("everyone/tt") && !moved.contains(home.tt_path().to_str().unwrap()), "{moved}");
            home.run(&["uninstall", harness]).ok();
            assert_eq!(everything(home.path()), before, "{harness}: {shape:?} became {installed:?}");
            home.run(&["uninstall", harness]).ok();
            assert_eq!(everything(home.path()), before, "a second time");
        }
    }
}

/// Files that only we made, made again by a `tt` that is elsewhere: there was nothing before us, whatever we wrote since.
#[test]
fn what_only_we_made_is_gone_afterwards() {
    let (home, other) = (home!(), home!());
    let elsewhere = other.for_everyone(home.tt_path());
    for dir in [".claude", ".codex", ".gemini", ".config/opencode"] {
        fs::create_dir_all(home.path().join(dir)).unwrap();
    }
    let before = everything(home.path());
    let names = [".claude.json", ".codex/config.toml", ".gemini/settings.json", ".config/opencode/opencode.json"];
    let moved = || {
        home.run(&["install", "--all"]).ok();
        run::finish(home.command(&elsewhere).args(["install", "--all"])).ok();
        for name in names {
            let text = fs::read_to_string(home.path().join(name)).unwrap();
            assert!(text.contains("everyone/tt"), "{text}");
        }
    };
    moved();
    home.run(&["uninstall", "--all"]).ok();
    assert_eq!(everything(home.path()), before);
    // What the harness added between the two stays, and nothing of ours with it.
    home.run(&["install", "codex"]).ok();
    let codex = home.path().join(".codex/config.toml");
    let added = "[projects.\"/p\"]\ntrust_level = \"trusted\"\n";
    fs::write(&codex, fs::read_to_string(&codex).unwrap() + "\n" + added).unwrap();
    moved();
    home.run(&["uninstall", "--all"]).ok();
    assert_eq!(fs::read_to_string(&codex).unwrap().trim_start(), added);
    fs::remove_file(&codex).unwrap();
    assert_eq!(everything(home.path()), before);
}

/// Applies a change as it was shown, the way `patch` would: each hunk of the unified diff at the lines it names.
pub(super) fn shown(from: &str, change: &Value) -> String {
    let diff = change["diff"].as_str().unwrap().strip_prefix("@@ ").unwrap();
    let lines: Vec<&str> = from.split_inclusive('\n').collect();
    let (mut result, mut copied) = (String::new(), 0);
    for hunk in diff.split("\n@@ ") {
        let (head, body) = hunk.split_once('\n').unwrap();
        // A range is its first line and its length, which is left out when it is one.
        let range = |sign: char| {
            let range = head.split(' ').find_map(|word| word.strip_prefix(sign)).unwrap();
            let (at, length) = range.split_once(',').unwrap_or((range, "1"));
            (at.parse::<usize>().unwrap(), length.parse::<usize>().unwrap())
        };
        let side = |signs: [char; 2]| {
            let (mut lines, mut ours) = (Vec::<String>::new(), false);
            for line in body.split_terminator('\n') {
                match line.strip_prefix(signs) {
                    Some(line) => lines.push(format!("{line}\n")),
                    None if ours && line.starts_with('\\') => _ = lines.last_mut().unwrap().pop(),
                    None => {}
                }
                ours = line.starts_with(signs);
            }
            lines
        };
        let ((at, gone), (_, come)) = (range('-'), range('+'));
        let (old, new) = (side([' ', '-']), side([' ', '+']));
        assert_eq!((old.len(), new.len()), (gone, come), "{head}");
        let at = if gone == 0 { at } else { at - 1 };
        assert_eq!(lines[at..at + gone], old);
        result += &(lines[copied..at].concat() + &new.concat());
        copied = at + gone;
    }
    result + &lines[copied..].concat()
}

#[test]
fn what_is_not_to_be_written_is_not() {
    let home = with_files();
    let path = home.path().join(".codex/config.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let mut before = everything(home.path());
    let error = home.run(&["install", "codex", "--json"]).refused(3);
    assert!(error["message"].as_str().unwrap().contains("read-only"), "{error}");
    assert_eq!(everything(home.path()), before);
    fs::remove_file(&path).unwrap();
    before.remove(path.to_str().unwrap()).unwrap();
    std::os::unix::fs::symlink("nowhere", &path).unwrap();
    let error = home.run(&["install", "codex", "--json"]).refused(3);
    assert!(error["message"].as_str().unwrap().contains("link"), "{error}");
    assert!(path.is_symlink());
    fs::remove_file(&path).unwrap();
    assert_eq!(everything(home.path()), before);
    fs::create_dir(&path).unwrap();
    home.run(&["install", "codex", "--json"]).refused(3);
    assert_eq!(everything(home.path()), before);
}

#[test]
fn a_skill_of_the_users_own_comes_back_and_an_edited_one_stays() {
    let home = with_files();
    let skill = ".agents/skills/talking-stick/SKILL.md";
    write(&home, skill, "---\nname: mine\n---\n");
    let before = everything(home.path());
    home.run(&["install", "--all"]).ok();
    home.run(&["uninstall", "--all"]).ok();
    assert_eq!(everything(home.path()), before);
    home.run(&["install", "--all"]).ok();
    let edited = fs::read_to_string(home.path().join(skill)).unwrap() + "\nmy own advice\n";
    write(&home, skill, &edited);
    let answer = home.run(&["uninstall", "--all", "--json"]).ok().json();
    assert!(answer["changes"].as_array().unwrap().iter().any(|change| change["action"] == "kept"), "{answer}");
    assert_eq!(fs::read_to_string(home.path().join(skill)).unwrap(), edited);
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

/// Any value where an object is expected: refused with its place, by `tt install`, `tt uninstall` and `tt doctor` alike.
#[test]
fn any_value_in_the_place_of_an_object_is_refused_and_kept() {
    let values = ["null", "true", "0", "-1e9", "\"\"", "\"talking-stick\"", "[]", "[[]]", "[{}]"];
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (harness, name, section) in [
        ("claude", ".claude.json", "mcpServers"),
        ("gemini", ".gemini/settings.json", "mcpServers"),
        ("opencode", ".config/opencode/opencode.json", "mcp"),
    ] {
        let home = with_files();
        for value in values.into_iter().chain([deep.as_str()]) {
            for text in [
                value.to_owned(),
                format!("{{\"{section}\": {value}}}"),
                format!("{{\"{section}\": {{\"talking-stick\": {value}}}}}"),
            ] {
                write(&home, name, &text);
                let before = everything(home.path());
                for command in ["install", "uninstall"] {
                    let error = home.run(&[command, harness, "--json"]).refused(3);
                    assert!(error["message"].as_str().unwrap().contains(name), "{error}");
                }
                let check = doctor_on(&home, harness);
                let failed = (&"failed".into(), &"invalid_input".into());
                assert_eq!((&check["status"], &check["error"]), failed, "{text:.80}");
                let finding = check["finding"].as_str().unwrap();
                assert!(finding.contains(name) && finding.len() < 1000, "{finding}");
                assert_eq!(everything(home.path()), before, "{text:.80}");
            }
        }
    }
}

/// A file that is there and empty has no settings, and nothing is wrong with it.
#[test]
fn the_doctor_takes_an_empty_file_for_one_without_settings() {
    for (harness, name) in SETTINGS {
        let home = with_files();
        for text in ["", " \n", "\u{feff}"] {
            write(&home, name, text);
            let check = doctor_on(&home, harness);
            assert_eq!(check["status"], "warning", "{name} {text:?}: {check}");
            assert!(check["finding"].as_str().unwrap().starts_with("lacks the MCP server"), "{name} {text:?}: {check}");
            assert_eq!(fs::read_to_string(home.path().join(name)).unwrap(), text);
        }
    }
}

/// What `tt doctor` says of a harness.
pub(super) fn doctor_on(home: &Home, harness: &str) -> Value {
    let report = home.run(&["--no-autostart", "doctor", "--json"]);
    let report = serde_json::from_str::<Value>(&report.stdout).unwrap_or_else(|e| panic!("{e}: {report:?}"));
    let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == harness);
    check.unwrap_or_else(|| panic!("{harness}: {report}")).clone()
}

/// Every file of a harness that `tt install` reads.
const SETTINGS: &[(&str, &str)] = &[
    ("claude", ".claude.json"),
    ("claude", ".claude/settings.json"),
    ("codex", ".codex/config.toml"),
    ("codex", ".codex/hooks.json"),
    ("gemini", ".gemini/settings.json"),
    ("opencode", ".config/opencode/opencode.json"),
];

/// Reading a pipe would wait for a writer, and reading a device may never end.
#[test]
fn what_is_not_an_ordinary_file_is_refused_at_once() {
    let home = home!();
    let pipe = home.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let socket = home.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (harness, name) in SETTINGS {
        let config = home.path().join(name);
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        fs::create_dir_all(home.path().join(".claude")).unwrap();
        let others = [&socket, Path::new("/dev/zero"), Path::new("/dev/tty")];
        let others = if *name == ".codex/config.toml" { &others[..] } else { &others[1..2] };
        for target in [&[pipe.as_path()], others].concat() {
            std::os::unix::fs::symlink(target, &config).unwrap();
            refused_unread(&home, harness, name);
            fs::remove_file(&config).unwrap();
        }
        fs::rename(&pipe, &config).unwrap();
        refused_unread(&home, harness, name);
        fs::rename(&config, &pipe).unwrap();
    }
    // The skill and the copy of the old file are read as well.
    let skill = home.path().join(".agents/skills/talking-stick/SKILL.md");
    fs::create_dir_all(skill.parent().unwrap()).unwrap();
    fs::rename(&pipe, &skill).unwrap();
    refused_unread(&home, "codex", "SKILL.md");
    // And the file that a shell reads when it starts.
    fs::rename(&skill, &pipe).unwrap();
    let bashrc = home.path().join(".bashrc");
    for target in [pipe.as_path(), Path::new("/dev/null")] {
        std::os::unix::fs::symlink(target, &bashrc).unwrap();
        for command in ["install", "uninstall"] {
            let error = home.run(&["prompt", command, "bash", "--json"]).refused(1);
            assert_eq!(error["error"], "invalid_input", "{error}");
            assert!(error["message"].as_str().unwrap().contains("a pipe, a socket or a device"), "{error}");
        }
        let still = fs::metadata(&bashrc).unwrap().file_type();
        assert!(bashrc.is_symlink() && !still.is_file(), "{}: {still:?}", target.display());
        fs::remove_file(&bashrc).unwrap();
    }
}

#[track_caller]
fn refused_unread(home: &Home, harness: &str, name: &str) {
    let says = |message: &Value| {
        let message = message.as_str().unwrap_or_else(|| panic!("{message}"));
        message.contains("a pipe, a socket or a device") && message.contains(name)
    };
    for command in ["install", "uninstall"] {
        let error = home.run(&[command, harness, "--json"]).refused(3);
        assert!(says(&error["message"]), "{command}: {error}");
    }
    let check = doctor_on(home, harness);
    assert_eq!((&check["status"], &check["error"]), (&"failed".into(), &"invalid_input".into()), "{check}");
    assert!(says(&check["finding"]), "{check}");
}

/// Several at once, as when a script sets up every terminal: each file has one change, and the copy of the original survives.
#[test]
fn installs_at_the_same_time_do_not_disturb_each_other() {
    let home = with_files();
    let before = everything(home.path());
    let all_at_once = |command: &str| {
        let running: Vec<_> = (0..6).map(|_| run::Running::start(&mut home.tt(&[command, "--all"]))).collect();
        running.into_iter().for_each(|running| _ = running.finish().ok());
    };
    for _ in 0..2 {
        all_at_once("install");
        let installed = everything(home.path());
        for (name, text) in FILES {
            let path = home.path().join(name).display().to_string();
            // Gemini CLI has its hooks in the same file.
            let hooks = installed[&path].matches(" hook --harness ").count();
            assert!(hooks == 0 || hooks == 7, "{}", installed[&path]);
            assert_eq!(installed[&path].matches("talking-stick").count(), 1 + hooks, "{}", installed[&path]);
            assert_eq!(installed[&format!("{path}.before-talking-stick")], *text, "the copy survives");
        }
        assert!(!installed.keys().any(|path| path.ends_with(".new")), "{:?}", installed.keys());
        all_at_once("uninstall");
        assert_eq!(everything(home.path()), before);
    }
}

/// A tt that is stopped in the middle of a change does not hang the next one for ever.
#[test]
fn a_lock_that_is_never_given_back_is_reported() {
    let home = with_files();
    let dir = fs::File::open(home.path().join(".codex")).unwrap();
    dir.lock().unwrap();
    let error = home.run(&["install", "codex", "--json"]).refused(3);
    assert!(error["message"].as_str().unwrap().contains("another tt"), "{error}");
    drop(dir);
    home.run(&["install", "codex"]).ok();
}

#[test]
fn directories_are_made_with_the_same_permissions_whatever_the_umask() {
    for umask in ["000", "022", "077", "777"] {
        let home = home!();
        fs::create_dir(home.path().join(".codex")).unwrap();
        let mut shell = home.command("/bin/sh");
        let commands = "umask $1; \"$2\" install codex && \"$2\" whoami && \"$2\" prompt install fish";
        shell.args(["-c", commands, "sh", umask]).arg(home.tt_path());
        run::finish(&mut shell).ok();
        let mode = |dir: &Path| fs::metadata(dir).unwrap().permissions().mode() & 0o7777;
        for dir in [
            ".agents",
            ".agents/skills",
            ".agents/skills/talking-stick",
            ".config",
            ".config/fish",
            ".config/fish/conf.d",
        ] {
            assert_eq!(mode(&home.path().join(dir)), 0o755, "{dir} with umask {umask}");
        }
        assert_eq!(mode(&home.paths().data_dir), 0o700, "umask {umask}");
        for file in [".codex/config.toml", ".config/fish/conf.d/talking-stick.fish"] {
            assert_eq!(mode(&home.path().join(file)), 0o600, "{file} with umask {umask}");
        }
    }
}
