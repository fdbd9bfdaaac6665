//! What `tt` promises whoever calls it: exit codes, where answers and errors go, and a demo that leaves nothing behind.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use tt_proto::ErrorCode;
use tt_proto::requests::{ConfirmMessages, LeaveRoom};
use tt_tests::{Lines, Member, Running, block_on, home, process, run};

#[test]
fn exit_codes_tell_usage_refusal_and_no_daemon_apart() {
    let home = home!();
    assert_eq!(home.run(&["whoami"]).code, Some(0));
    for wrong in [&["no-such-command"][..], &["whoami", "--no-such-flag"], &["--json", "--text", "whoami"], &[]] {
        let finished = home.run(wrong);
        assert_eq!((finished.code, finished.stdout.as_str()), (Some(2), ""), "{finished:?}");
        assert!(finished.stderr.contains("Usage"), "{finished:?}");
    }
    run::finish(home.tt(&["--json", "whoami"]).env("TT_HARNESS_AGENT_ID", "two words")).refused(3);
    home.run(&["daemon", "stop"]).ok();
    home.run(&["--json", "--no-autostart", "whoami"]).refused(4);
}

/// The type in an ELF header that says the kernel may load the program at any address.
#[cfg(target_os = "linux")]
const ET_DYN: u16 = 3;

#[cfg(target_os = "linux")]
#[test]
fn the_client_is_position_independent() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_tt")).unwrap();
    let header: [u8; 18] = program[..18].try_into().unwrap();
    assert_eq!(header[..4], *b"\x7fELF");
    let little_endian = header[5] == 1;
    let bytes = [header[16], header[17]];
    let kind = if little_endian { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) };
    assert_eq!(kind, ET_DYN);
}

#[test]
fn errors_are_json_for_an_agent_and_text_for_a_person() {
    let home = home!();
    let args = ["--no-autostart", "whoami"];
    home.run(&args).refused_in_text(4, "tt daemon start");
    for signal in
        ["CLAUDECODE", "CODEX_THREAD_ID", "GEMINI_CLI", "GEMINI_SESSION_ID", "OPENCODE", "TT_HARNESS_AGENT_ID"]
    {
        let error = run::finish(home.tt(&args).env(signal, "1")).refused(4);
        assert_eq!(error["error"], "daemon_unreachable", "{signal}");
    }
    run::finish(home.tt(&["--text", "--no-autostart", "whoami"]).env("CLAUDECODE", "1"))
        .refused_in_text(4, "tt daemon start");
    home.run(&["--json", "--no-autostart", "whoami"]).refused(4);
}

#[test]
fn bad_settings_are_refused_before_anything_happens() {
    let home = home!();
    let long = format!("/tmp/{}", "s".repeat(200));
    let error = run::finish(home.tt(&["--json", "whoami"]).env("TALKING_STICK_SOCKET", long)).refused(3);
    assert_eq!(error["error"], "invalid_input");
    let nowhere = home.path().join("nowhere/ttd");
    let error = run::finish(home.tt(&["--json", "whoami"]).env("TALKING_STICK_DAEMON", nowhere)).refused(4);
    assert!(error["message"].as_str().unwrap().contains("nowhere/ttd"), "{error}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let home = home!();
    home.start();
    let mut shell = home.command("/bin/bash");
    shell.args(["-c", "\"$1\" whoami --explain | true; exit ${PIPESTATUS[0]}", "bash"]).arg(home.tt_path());
    let finished = run::finish(&mut shell);
    assert!(finished.stderr.is_empty() && finished.code == Some(0), "{finished:?}");
}

/// A descriptor that was closed before `tt` began must not become its connection, with output written into that.
#[test]
fn closed_standard_streams_are_no_error() {
    let home = home!();
    home.run(&["join"]).ok();
    for closed in [">&-", "<&- >&-", "<&- >&- 2>&-"] {
        let mut shell = home.command("/bin/bash");
        shell.args(["-c", &format!("exec \"$1\" msg send room {closed:?} {closed}"), "bash"]).arg(home.tt_path());
        let finished = run::finish(&mut shell);
        assert_eq!(finished.code, Some(0), "{closed}: {finished:?}");
    }
    let log = home.run(&["--json", "events"]).ok().stdout;
    assert_eq!(log.matches("message_sent").count(), 3, "{log}");
}

#[test]
fn status_tells_a_daemon_that_runs_from_one_that_does_not() {
    let home = home!();
    let status = home.status();
    assert_eq!(status["status"], "not_running");
    assert_eq!(status["data_dir"], home.paths().data_dir.to_str().unwrap());
    assert!(!home.paths().data_dir.exists(), "looking makes nothing");
    let pid = home.start();
    let status = home.status();
    assert_eq!((status["status"].as_str(), status["pid"].as_u64()), (Some("running"), Some(u64::from(pid))));
    assert_eq!(status["supervised"], false);
    let text = home.run(&["daemon", "status"]).ok().stdout;
    assert!(text.contains("ttd is running") && text.contains(&pid.to_string()), "{text}");
    assert_eq!(home.run(&["--json", "daemon", "stop"]).ok().json()["status"], "stopped");
    assert_eq!(home.run(&["--json", "daemon", "stop"]).ok().json()["status"], "not_running");
}

#[test]
fn ttd_explains_itself_to_whoever_runs_it_by_hand() {
    let home = home!();
    assert!(run::finish(home.ttd().arg("--help")).ok().stdout.contains("Usage"));
    assert!(run::finish(home.ttd().arg("--version")).ok().stdout.starts_with("ttd "));
    let wrong = run::finish(home.ttd().arg("--no-such-flag"));
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(2), ""));
    assert!(wrong.stderr.contains("--no-such-flag"), "{wrong:?}");
    assert!(!home.paths().data_dir.exists());
}

#[test]
fn the_demo_plays_to_its_end_and_leaves_nothing_behind() {
    let home = home!();
    let demo = Running::start(&mut home.tt(&["demo", "--fast"]));
    let scratch = PathBuf::from(format!("/tmp/tt-demo-{}", demo.pid()));
    let shown = demo.finish().ok().stdout;
    for expected in [
        "claude holds the stick",
        "keep the old column for now?",
        "[question]",
        "yes, until the backfill is done",
        "codex: answered by 5",
        "your turn: 2 (sequence)",
        "taken over from codex",
        "process exited",
    ] {
        assert!(shown.contains(expected), "no {expected} in {shown}");
    }
    assert!(!scratch.exists());
    if cfg!(target_os = "linux") {
        assert_eq!(process::serving(&scratch), Vec::<u32>::new(), "a daemon was left behind");
    }
    assert!(!home.paths().data_dir.exists(), "the demo has a home of its own");
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing_behind() {
    let home = home!();
    // In a pause at the start, and while an agent waits.
    for (moment, signal) in [("Two agents", Signal::SIGINT), ("tt wait", Signal::SIGTERM)] {
        let (reader, writer) = std::io::pipe().unwrap();
        let demo = Running::writing_to(&mut home.tt(&["demo"]), writer);
        let lines = Lines::of(reader);
        while !lines.next().unwrap().contains(moment) {}
        demo.signal(signal);
        let scratch = PathBuf::from(format!("/tmp/tt-demo-{}", demo.pid()));
        let ended = demo.finish();
        assert!(
            ended.code == Some(1) && ended.stderr.contains("everything it made was removed"),
            "{moment}: {ended:?}"
        );
        assert!(!scratch.exists(), "{moment}");
        if cfg!(target_os = "linux") {
            assert_eq!(process::serving(&scratch), Vec::<u32>::new(), "{moment}: a process was left behind");
        }
    }
}

#[test]
fn the_prompt_is_silent_without_a_daemon_and_short_with_one() {
    let home = home!();
    std::fs::create_dir_all(home.path().join("repo/.git")).unwrap();
    let in_repo = |args: &[&str]| run::finish(home.tt(args).current_dir(home.path().join("repo"))).ok().stdout;
    assert_eq!(in_repo(&["status", "--prompt"]), "");
    assert_eq!(home.daemon(), None, "a prompt starts no daemon");
    in_repo(&["join"]);
    in_repo(&["try"]);
    // On a busy machine the prompt rather says nothing; whatever it says is the truth.
    let shown: Vec<String> = (0..50).map(|_| in_repo(&["status", "--prompt"])).collect();
    assert!(shown.iter().all(|piece| piece.is_empty() || piece == "⚑T1 "), "{shown:?}");
    assert!(in_repo(&["status"]).contains("you hold the stick"));
    // A daemon that is there and does not answer is not waited for; how short that is, ttbench measures.
    tt_tests::process::freeze(home.daemon().unwrap());
    let stopped = in_repo(&["status", "--prompt"]);
    tt_tests::home::send(home.daemon().unwrap(), Signal::SIGCONT);
    assert_eq!(stopped, "");
    assert!(in_repo(&["status"]).contains("you hold the stick"));
}

#[test]
fn the_prompt_is_installed_once_and_taken_away_without_a_trace() {
    let home = home!();
    let bashrc = home.path().join(".bashrc");
    std::fs::write(&bashrc, "alias ll='ls -l'\n").unwrap();
    assert!(home.run(&["prompt", "install", "bash"]).ok().stdout.starts_with("installed"));
    let once = std::fs::read_to_string(&bashrc).unwrap();
    assert!(home.run(&["prompt", "install", "bash"]).ok().stdout.starts_with("already installed"));
    assert_eq!(std::fs::read_to_string(&bashrc).unwrap(), once);
    home.run(&["prompt", "uninstall", "bash"]).ok();
    assert_eq!(std::fs::read_to_string(&bashrc).unwrap(), "alias ll='ls -l'\n");
    for kept in ["", "no end", "caf\u{e9}\n\n"] {
        std::fs::write(&bashrc, kept).unwrap();
        home.run(&["prompt", "install", "bash"]).ok();
        home.run(&["prompt", "uninstall", "bash"]).ok();
        assert_eq!(std::fs::read_to_string(&bashrc).unwrap(), kept, "to the byte");
    }
    home.run(&["prompt", "install", "fish"]).ok();
    home.run(&["prompt", "uninstall", "fish"]).ok();
    assert!(!home.path().join(".config/fish/conf.d/talking-stick.fish").exists());
}

#[test]
fn the_doctor_finds_what_is_wrong_and_names_the_remedy() {
    let home = home!();
    let well = home.run(&["doctor", "--json"]).ok().json();
    assert!(well["checks"].as_array().unwrap().iter().all(|check| check["status"] != "failed"), "{well}");
    home.run(&["daemon", "stop"]).ok();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(home.paths().data_dir, open).unwrap();
    let ill = home.run(&["doctor", "--json"]);
    assert_eq!(ill.code, Some(1), "{ill:?}");
    let directory =
        ill.json()["checks"].as_array().unwrap().iter().find(|c| c["name"] == "directory").cloned().unwrap();
    assert_eq!(directory["status"], "failed");
    assert!(directory["remedy"].as_str().unwrap().contains("chmod 700"), "{directory}");
}

/// More rooms than one answer has room for, because their paths are long.
#[test]
fn the_doctor_counts_all_rooms() {
    let home = home!();
    let deep: PathBuf = (0..15).map(|_| "d".repeat(200)).collect();
    let rooms: Vec<PathBuf> = (0..90).map(|n| home.path().join(&deep).join(format!("room-{n}"))).collect();
    block_on(async {
        for room in &rooms {
            std::fs::create_dir_all(room).unwrap();
            Member::join_at(home.settings_of("a"), room.to_str().unwrap()).await;
        }
        let dormant = home.path().join("zzz-dormant");
        std::fs::create_dir(&dormant).unwrap();
        home.come_and_go(1, dormant).await;
    });
    let report = home.run(&["doctor", "--json"]).json();
    let finding = |name: &str| report["checks"].as_array().unwrap().iter().find(|c| c["name"] == name).cloned();
    let rooms = finding("rooms").unwrap()["finding"].as_str().unwrap().to_owned();
    assert!(rooms.starts_with("90 with members, 1 dormant"), "{rooms}");
    assert!(finding("dormant").unwrap()["finding"].as_str().unwrap().contains("zzz-dormant"), "{report}");
}

/// The figures are those of the disk, each for the files that it names and for no others.
#[test]
fn the_doctor_says_how_large_our_files_are() {
    let home = home!();
    let dir = home.make_data_dir();
    for (name, size) in [
        ("rooms.sqlite", 12_345_678),
        ("rooms.sqlite-wal", 4_440_000),
        ("rooms.sqlite.backup-107", 2_000_000),
        ("rooms.sqlite.backup-108", 3_060_000),
        ("ttd.log", 710_000),
        ("ttd.log.1", 50_000),
        ("notes.txt", 77_000_000),
        ("rooms.sqlite.mine", 88_000_000),
    ] {
        std::fs::File::create(dir.join(name)).unwrap().set_len(size).unwrap();
    }
    let report = home.run(&["--no-autostart", "doctor", "--json"]).json();
    let sizes = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "sizes").unwrap();
    assert_eq!(sizes["finding"], "database 12.3 MB, write-ahead log 4.4 MB, backups 5.1 MB, log 0.8 MB", "{report}");
}

#[test]
fn the_doctor_says_how_much_a_dormant_room_keeps_and_the_largest_first() {
    let home = home!();
    let [large, small] = ["zz-large", "aa-small"].map(|name| home.path().join(name));
    let text = "ä".repeat(2000);
    let room = block_on(async {
        for n in 0..11 {
            let dir = home.path().join(format!("room-{n}"));
            std::fs::create_dir(&dir).unwrap();
            home.come_and_go(1, dir).await;
        }
        for dir in [&large, &small] {
            std::fs::create_dir(dir).unwrap();
        }
        let mut a = Member::connect(home.settings_of("a"), small.to_str().unwrap()).await;
        a.note(&text).await.unwrap();
        a.call(|room_id| LeaveRoom { room_id, ..Default::default() }).await;
        let mut a = Member::connect(home.settings_of("a"), large.to_str().unwrap()).await;
        let mut b = Member::connect(home.settings_of("b"), large.to_str().unwrap()).await;
        // Two of these stay unread.
        for _ in 0..3 {
            a.say(Some("b"), &text).await;
        }
        let taken = b.take(0).await.events[0].event_seq;
        b.call(|room_id| ConfirmMessages { room_id, surface: "recv".into(), event_seqs: vec![taken] }).await;
        let turn = a.claim().await;
        a.release(&turn, &text.repeat(10)).await;
        a.note(&text).await.unwrap();
        for member in [&mut a, &mut b] {
            member.call(|room_id| LeaveRoom { room_id, ..Default::default() }).await;
        }
        a.room.to_string()
    });
    let report = home.run(&["doctor", "--json"]).json();
    let checks = report["checks"].as_array().unwrap();
    let dormant: Vec<&str> =
        checks.iter().filter(|c| c["name"] == "dormant").map(|c| c["finding"].as_str().unwrap()).collect();
    assert_eq!((dormant.len(), dormant[10]), (11, "and 3 smaller ones: tt list"), "{dormant:?}");
    let of = |dir: &Path| format!("{}: ", dir.canonicalize().unwrap().display());
    let kept = dormant[0].strip_prefix(&of(&large)).unwrap_or_else(|| panic!("{dormant:?}"));
    assert!(dormant[1].starts_with(&of(&small)), "{dormant:?}");
    let database = rusqlite::Connection::open(home.paths().database()).unwrap();
    let events = "SELECT count(*) FROM room_events WHERE room_id = ?1";
    let events = database.query_row(events, [&room], |row| row.get::<_, i64>(0)).unwrap() as usize;
    let words: Vec<&str> = kept.split(' ').collect();
    let [count, "events,", kib, "KiB,", "2", "unread"] = words[..] else { panic!("{kept}") };
    assert_eq!(count.parse(), Ok(events), "{kept}");
    // Three messages, a handoff and a note, in bytes; what each event is wrapped in is small.
    let (kib, written) = (kib.parse::<usize>().unwrap(), text.len() * (3 + 10 + 1));
    assert!(
        ((written / 1024)..=(written + events * 300) / 1024).contains(&kib),
        "{kept}, {written} bytes were written"
    );
}

#[test]
fn an_empty_inbox_is_said_to_a_person_and_not_to_an_agent() {
    let home = home!();
    run::finish(&mut home.tt_as("codex:1", &["join"])).ok();
    for args in [&["msg", "recv"][..], &["msg", "recv", "--wait", "--timeout", "1ms"]] {
        assert_eq!(run::finish(&mut home.tt_as("codex:1", args)).ok().stdout, "");
        let person = run::finish(&mut home.tt_as("codex:1", &[args, &["--text"]].concat())).ok().stdout;
        assert_eq!(person, "no new messages; earlier ones: tt msg recv --after 0\n");
    }
}

#[test]
fn wrong_usage_is_json_for_an_agent_and_near_matches_are_suggested() {
    let home = home!();
    let error = run::finish(home.tt(&["relase"]).env("CODEX_THREAD_ID", "1")).refused(2);
    assert_eq!(error["error"], "invalid_input");
    assert!(error["hint"].as_str().unwrap().contains("release"), "{error}");
    let person = home.run(&["relase"]);
    assert!(person.code == Some(2) && person.stderr.contains("release"), "{person:?}");
}

/// Every command of the tree, the groups included, by the words that call it.
fn all_commands() -> Vec<(Vec<String>, clap::Command)> {
    fn below(words: &[String], command: &clap::Command, all: &mut Vec<(Vec<String>, clap::Command)>) {
        all.push((words.to_vec(), command.clone()));
        for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
            below(&[words, &[sub.get_name().to_owned()]].concat(), sub, all);
        }
    }
    let mut all = Vec::new();
    below(&["tt".to_owned()], &tt_client::command_line(), &mut all);
    all
}

#[test]
fn every_command_has_an_example_that_it_understands() {
    let home = home!();
    let all = all_commands();
    assert!(all.len() > 35, "{}", all.len());
    for (words, command) in all {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let (_, examples) = help.split_once("Example").unwrap_or_else(|| panic!("{words:?} has no example"));
        let called = words.join(" ");
        let mut understood = 0;
        for line in examples.lines().map(str::trim).filter(|line| line.starts_with("tt ")) {
            // What the shell makes of it, up to where its output goes.
            let line = line.split(" > ").next().unwrap().split(" && ").next().unwrap();
            let typed =
                run::finish(home.command("/bin/sh").args(["-c", &format!("printf '%s\\n' {line}")])).ok().stdout;
            assert!(line.starts_with(&called), "{called}: its example is another command's: {line}");
            let parsed = tt_client::command_line().try_get_matches_from(typed.lines());
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
            understood += 1;
        }
        assert!(understood > 0, "{called} has no example that can be typed: {help}");
    }
}

#[test]
fn every_error_is_explained_where_it_says_it_is() {
    let page = include_str!("../docs/troubleshooting.md");
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    for code in ErrorCode::ALL {
        let section = page.split(&format!("### {code}\n")).nth(1).unwrap_or_else(|| panic!("{code} is not explained"));
        assert!(section.trim_start().lines().next().is_some_and(|line| line.len() > 10), "{code} is not explained");
    }
    assert_eq!(sections.len(), ErrorCode::ALL.len(), "a section is about no code: {sections:?}");
    let home = home!();
    let error = home.run(&["--json", "--no-autostart", "whoami"]).refused(4);
    assert_eq!(error["see"], "tt help errors daemon_unreachable");
    home.run(&["--no-autostart", "whoami"]).refused_in_text(4, "tt help errors daemon_unreachable");
    let section = home.run(&["help", "errors", "daemon_unreachable"]).ok().stdout;
    assert!(section.starts_with("daemon_unreachable\n") && section.lines().count() > 2, "{section}");
    assert!(home.run(&["help", "errors"]).ok().stdout.contains("stale_lease\n"));
    assert!(home.run(&["help", "release"]).ok().stdout.contains("--next-action"));
    home.run(&["help", "errors", "nothing", "--json"]).refused(3);
}

#[test]
fn a_room_that_may_have_been_meant_is_named() {
    let home = home!();
    let dir = |path: &str| {
        let dir = home.path().join(path);
        std::fs::create_dir_all(&dir).unwrap();
        dir.canonicalize().unwrap().display().to_string()
    };
    let (shop, api, other) = (dir("work/shop"), dir("work/shop/api"), dir("other"));
    home.run(&["join", &shop, "--force-new"]).ok();
    let look = |path: &str| home.run(&["state", path, "--json"]).refused(3);
    let above = look(&dir("work"));
    assert_eq!((above["error"].as_str(), &above["near_matches"][0]), (Some("room_not_found"), &shop.clone().into()));
    let slip = look(&shop.replace("shop", "shpo"));
    assert_eq!((slip["error"].as_str(), &slip["near_matches"][0]), (Some("invalid_input"), &shop.clone().into()));
    let beside = look(&dir("work/shops"));
    assert!(beside["hint"].as_str().unwrap().contains(&shop), "{beside}");
    let far = look(&other);
    assert!(far["message"].as_str().unwrap().contains(&other) && far["near_matches"].is_null(), "{far}");
    let spaced = look(&dir("my shop"));
    assert!(spaced["hint"].as_str().unwrap().contains("/my shop'"), "one word for the shell: {spaced}");
    home.run(&["state", &api]).ok();
    home.run(&["daemon", "stop"]).ok();
    home.run(&["state", &other, "--json", "--no-autostart"]).refused(4);
}

#[test]
fn a_mistyped_member_is_suggested_whatever_it_is_typed_for() {
    let home = home!();
    let shop = home.workspace();
    run::finish(&mut home.tt_as("claude:1", &["join"])).ok();
    run::finish(&mut home.tt_as("codex:1", &["join"])).ok();
    run::finish(&mut home.tt_as("claude:1", &["try"])).ok();
    let handoff = ["--status", "done", "--next-action", "go on"];
    let pass = [&["pass", "cdoex"][..], &handoff].concat();
    for (typed, code) in [
        (&["msg", "send", "cdoex", "hello"][..], "unknown_recipient"),
        (&["kick", "cdoex"], "unknown_target"),
        (&["events", "--from", "cdoex"], "unknown_recipient"),
        (&["msg", "recv", "--from", "cdoex"], "unknown_recipient"),
        (&pass, "unknown_recipient"),
    ] {
        let error = run::finish(home.tt_as("claude:1", typed).current_dir(&shop)).refused(3);
        assert_eq!(error["error"], code, "{typed:?}");
        assert_eq!(error["near_matches"][0], "codex:1", "{typed:?}: {error}");
    }
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let home = home!();
    let scripts = ["bash", "zsh", "fish"].map(|shell| (shell, home.run(&["completions", shell]).ok().stdout));
    for (words, command) in all_commands() {
        assert!(command.get_about().is_some(), "{words:?} says nothing of itself");
        for (shell, script) in &scripts {
            assert!(script.contains(command.get_name()), "{shell}: {words:?}");
        }
    }
    for (shell, script) in &scripts {
        let file = home.path().join(shell);
        std::fs::write(&file, script).unwrap();
        match home.command(shell).arg("-n").arg(&file).output() {
            Ok(read) => assert!(read.status.success(), "{shell} cannot read its completions: {read:?}"),
            Err(e) => tt_tests::not_run(&format!("{shell} reads its completions"), &e.to_string()),
        }
    }
    let pages = home.path().join("man");
    std::fs::create_dir(&pages).unwrap();
    clap_mangen::generate_to(tt_client::command_line(), &pages).unwrap();
    for (words, _) in all_commands() {
        assert!(pages.join(format!("{}.1", words.join("-"))).is_file(), "no manual page for {words:?}");
    }
}

#[test]
fn the_doctor_sees_which_harness_was_told_and_which_was_told_otherwise() {
    let home = home!();
    let check = |name: &str| {
        let report = home.run(&["doctor", "--json"]).json();
        let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).cloned();
        found.map(|check| (check["status"].as_str().unwrap().to_owned(), check.to_string()))
    };
    assert_eq!(check("claude"), None);
    let names: Vec<&str> = tt_harness::ALL.iter().map(|harness| harness.name).collect();
    assert!(check("harnesses").is_some_and(|(_, text)| text.contains(&format!("none of {} is", names.join(", ")))));
    std::fs::create_dir(home.path().join(".claude")).unwrap();
    let (status, text) = check("claude").unwrap();
    assert!(status == "warning" && text.contains("lacks the MCP server, the hooks and the skill"), "{text}");
    assert!(text.contains("tt install claude"), "{text}");
    home.run(&["install", "claude"]).ok();
    assert_eq!(check("claude").unwrap().0, "ok");
    let skill = home.path().join(".claude/skills/talking-stick/SKILL.md");
    std::fs::write(&skill, "an older one").unwrap();
    let (status, text) = check("claude").unwrap();
    assert!(status == "warning" && text.contains("has the skill of another version"), "{text}");
    std::fs::remove_file(&skill).unwrap();
    let config = home.path().join(".claude.json");
    let moved = std::fs::read_to_string(&config).unwrap().replace(home.tt_path().to_str().unwrap(), "/elsewhere/tt");
    std::fs::write(&config, moved).unwrap();
    let (_, text) = check("claude").unwrap();
    assert!(text.contains("has the MCP server of another version") && text.contains("lacks the skill"), "{text}");
    std::fs::write(&config, "{ not json").unwrap();
    let report = home.run(&["doctor", "--json"]);
    assert_eq!(report.code, Some(1), "{report:?}");
    let (status, text) = check("claude").unwrap();
    assert!(status == "failed" && text.contains("fix the file"), "{text}");
}

#[test]
fn the_doctor_names_a_harness_version_it_does_not_know() {
    let home = home!();
    let tested = tt_harness::by_name("gemini").unwrap().tested_version;
    let says = |version: &str| {
        home.script("bin/gemini", &format!("#!/bin/sh\necho {version}\n"));
        let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
        let report = run::finish(home.tt(&["doctor", "--json"]).env("PATH", path)).json();
        let check = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "gemini").cloned();
        check.unwrap()["finding"].as_str().unwrap().to_owned()
    };
    assert!(!says(tested).contains("version"), "{}", says(tested));
    let other = says("99.1.2");
    assert!(other.contains("Gemini CLI 99.1.2 is not the version that was tested"), "{other}");
}

/// Missing, of another version, removed by hand in part, slow. Untrusted ones are in `install_hooks.rs`.
#[test]
fn the_doctor_sees_what_is_wrong_with_hooks() {
    let home = home!();
    std::fs::create_dir(home.path().join(".gemini")).unwrap();
    let check = |name: &str, slow: &str| {
        let report = home.run(&["--no-autostart", "doctor", "--slow-hook", slow, "--json"]).json();
        let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).cloned().unwrap();
        (found["status"].as_str().unwrap().to_owned(), found.to_string())
    };
    home.run(&["install", "gemini", "--no-hooks"]).ok();
    let (status, text) = check("gemini", "10m");
    assert!(status == "warning" && text.contains("lacks the hooks\"") && text.contains("tt install gemini"), "{text}");
    home.run(&["install", "gemini"]).ok();
    assert_eq!(check("gemini", "10m").0, "ok");
    let file = home.path().join(".gemini/settings.json");
    let installed = std::fs::read_to_string(&file).unwrap();
    let stale = [
        installed.replace(&format!("'{}' hook", home.tt_path().display()), "'/elsewhere/tt' hook"),
        installed.replace(" tool_started", " an_event_of_before"),
        installed.replace("\"AfterTool\"", "\"AfterToolOfBefore\""),
    ];
    for text in stale {
        assert_ne!(text, installed);
        std::fs::write(&file, text).unwrap();
        let (status, text) = check("gemini", "10m");
        assert!(status == "warning" && text.contains("has the hooks of another version"), "{text}");
    }
    home.run(&["install", "gemini"]).ok();
    assert_eq!(check("gemini", "10m").0, "ok", "installing again makes it right");
    assert_eq!(check("hooks", "10m").0, "ok");
    let (status, text) = check("hooks", "0ms");
    assert!(status == "warning" && text.contains("an agent waits for two with every tool call"), "{text}");
}

#[test]
fn the_doctor_sees_whether_agents_can_call_tt() {
    let home = home!();
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let path = |dirs: &str| {
        let report = run::finish(home.tt(&["doctor", "--json"]).env("PATH", dirs)).json();
        let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "path").cloned().unwrap();
        (found["status"].as_str().unwrap().to_owned(), found["finding"].as_str().unwrap().to_owned())
    };
    let bin_text = bin.to_str().unwrap();
    assert!(matches!(path(bin_text), (status, finding) if status == "warning" && finding.contains("not on the PATH")));
    std::os::unix::fs::symlink(home.tt_path(), bin.join("tt")).unwrap();
    assert_eq!(path(bin_text).0, "ok");
    home.script("first/tt", "#!/bin/sh\n");
    let first = format!("{}:{bin_text}", home.path().join("first").display());
    assert!(matches!(path(&first), (status, finding) if status == "warning" && finding.contains("first/tt")));
}

#[test]
fn a_name_in_the_prompt_is_never_a_command() {
    let home = home!();
    let shop = home.workspace();
    let name = "$(touch ran)`touch ran`%F{red}\\w";
    run::finish(&mut home.tt_as("codex:1", &["join", "--name", name])).ok();
    run::finish(&mut home.tt_as("codex:1", &["try"])).ok();
    let piece = prompt(&home, "human:alice", &shop);
    assert_eq!(piece, "⚑__touch_ran__touch_r… ");
    let mut shell = home.command("/bin/bash");
    shell.args(["-c", "PS1=$1; printf %s \"${PS1@P}\"", "bash", &piece]).current_dir(&shop);
    assert_eq!(run::finish(&mut shell).ok().stdout, piece, "expanded, it says the same");
    assert!(!shop.join("ran").exists());
}

#[test]
fn the_client_links_no_database() {
    let home = home!();
    let program = std::fs::read(home.tt_path()).unwrap();
    let marker = b"SQLite format 3";
    assert!(!program.windows(marker.len()).any(|window| window == marker), "tt links SQLite");
    let daemon = std::fs::read(home.ttd_path()).unwrap();
    assert!(daemon.windows(marker.len()).any(|window| window == marker), "this test would not notice");
}

#[test]
fn a_status_tells_a_stick_that_is_held_from_one_that_was_given_and_from_none() {
    let home = home!();
    let shop = home.workspace();
    let text = |who: &str| run::finish(&mut home.tt_as(who, &["status", "--text"])).ok().stdout;
    run::finish(&mut home.tt_as("human:alice", &["join", "--name", "alice"])).ok();
    let waiting = Running::start(&mut home.tt_as("human:alice", &["wait"]));
    home.until_waiting("workspace");
    assert_eq!(text("human:alice"), "you are next\n", "nobody holds it");
    drop(waiting);
    run::finish(&mut home.tt_as("codex:1", &["join"])).ok();
    run::finish(&mut home.tt_as("codex:1", &["try"])).ok();
    let held = text("human:alice");
    assert!(held.starts_with("codex holds the stick: turn 1 for ") && held.ends_with(", working\n"), "{held}");
    assert!(
        run::finish(&mut home.tt_as("human:alice", &["state", "--text"]))
            .ok()
            .stdout
            .contains("codex holds the stick: turn 1")
    );
    run::finish(&mut home.tt_as("codex:1", &["pass", "alice", "--status", "done", "--next-action", "go on"])).ok();
    assert_eq!(text("codex:1"), "alice has the stick next\n");
    assert_eq!(text("human:alice"), "it is yours next: tt wait\n");
    let json = run::finish(&mut home.tt_as("codex:1", &["status", "--json"])).ok().json();
    assert_eq!(
        (&json["status"], &json["holder"], &json["reserved_for"]),
        (&"reserved".into(), &serde_json::Value::Null, &"human:alice".into())
    );
    for (who, word) in [("codex:1", "⚑next:alice "), ("human:alice", "⚑next:you ")] {
        assert_eq!(prompt(&home, who, &shop), word);
    }
}

/// What the prompt says. It has a few milliseconds and says nothing otherwise; so it is asked until it has something to say.
#[track_caller]
fn prompt(home: &tt_tests::Home, who: &str, dir: &std::path::Path) -> String {
    let give_up = std::time::Instant::now() + tt_tests::LIMIT;
    loop {
        let piece = run::finish(home.tt_as(who, &["status", "--prompt"]).current_dir(dir)).ok().stdout;
        if !piece.is_empty() {
            return piece;
        }
        assert!(std::time::Instant::now() < give_up, "the prompt never says anything");
    }
}

#[test]
fn the_prompt_appears_once_however_often_its_file_is_read_and_keeps_the_status() {
    let home = home!();
    home.script("bin/tt", "#!/bin/sh\nprintf 'P '\n");
    let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
    let write = |file: &str, text: &str| {
        let file = home.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write(".config/fish/functions/fish_prompt.fish", "function fish_prompt\n    echo \"$status $pipestatus>\"\nend\n");
    let twice = |file: &str| format!(". {file}; . {file}");
    for (shell, script, shown) in [
        ("bash", format!("PS1='$?>'; {}; false; printf %s \"${{PS1@P}}\"", twice("~/.bashrc")), "P 1>"),
        ("zsh", format!("PROMPT='$?>'; {}; false; print -nP \"$PROMPT\"", twice("~/.zshrc")), "P 1>"),
        (
            "fish",
            format!("{}; true | false; fish_prompt", twice("~/.config/fish/conf.d/talking-stick.fish")),
            "P 1 0 1>\n",
        ),
    ] {
        home.run(&["prompt", "install", shell]).ok();
        let quiet = if shell == "bash" { "--norc" } else { "-f" };
        let mut command = home.command(shell);
        match shell {
            "fish" => command.args(["-i", "-c", &script]),
            _ => command.args([quiet, "-c", &script]),
        };
        match command.env("PATH", &path).stdin(std::process::Stdio::null()).output() {
            Ok(said) => assert_eq!(String::from_utf8_lossy(&said.stdout), shown, "{shell}: {said:?}"),
            Err(e) => tt_tests::not_run(&format!("the prompt of {shell}"), &e.to_string()),
        }
    }
}

#[test]
fn an_agent_is_told_which_values_there_are_what_is_missing_and_that_a_command_is() {
    let home = home!();
    let wrong = |args: &[&str]| run::finish(home.tt(args).env("CODEX_THREAD_ID", "1")).refused(2);
    let says = |error: &serde_json::Value, field: &str, words: &[&str]| {
        let said = error[field].as_str().unwrap();
        words.iter().for_each(|word| assert!(said.contains(word), "no {word} in {error}"));
    };
    says(&wrong(&["prompt", "install", "tcsh"]), "message", &["tcsh", "possible values: bash, zsh, fish"]);
    says(&wrong(&["msg", "send"]), "message", &["<WHO>", "<BODY>"]);
    says(&wrong(&["take"]), "message", &["--reason"]);
    for (bare, usage, commands) in
        [(&[][..], "Usage: tt", "wait, standby, try"), (&["msg"], "Usage: tt msg", "send, recv")]
    {
        let error = wrong(bare);
        assert_eq!(error["message"], "a command is missing");
        says(&error, "hint", &[usage, commands]);
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
        return tt_tests::not_run("an answer that cannot be written", "there is no /dev/full");
    };
    let home = home!();
    let finished = Running::writing_to(&mut home.tt(&["whoami", "--json"]), full).finish();
    let error: serde_json::Value = serde_json::from_str(&finished.stderr).unwrap();
    assert_eq!((finished.code, &error["error"]), (Some(1), &"storage_unavailable".into()), "{finished:?}");
}

#[test]
fn the_list_takes_its_path_as_a_flag_too() {
    let home = home!();
    for dir in ["one", "two"] {
        let dir = home.path().join(dir);
        std::fs::create_dir(&dir).unwrap();
        home.run(&["join", dir.to_str().unwrap(), "--force-new"]).ok();
    }
    let rooms = |args: &[&str]| {
        let listed = home.run(&[&["list", "--json"], args].concat()).ok().json();
        listed["rooms"].as_array().unwrap().iter().map(|room| room["canonical_path"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(rooms(&[]).len(), 2);
    let one = rooms(&["--path", "one"]);
    assert!(one == rooms(&["one"]) && one.len() == 1 && one[0].contains("/one"), "{one:?}");
}

#[test]
fn a_kick_names_whom_it_removed() {
    let home = home!();
    run::finish(&mut home.tt_as("claude:1", &["join"])).ok();
    run::finish(&mut home.tt_as("codex:1", &["join", "--name", "reviewer"])).ok();
    let kicked = run::finish(&mut home.tt_as("claude:1", &["kick", "reviewer", "--force", "--text"])).ok().stdout;
    assert_eq!(kicked, "kicked reviewer (codex:1)\n");
}

#[test]
fn a_policy_is_set_for_one_room_and_shown_as_it_is_set() {
    let home = home!();
    let tt = |args: &[&str]| run::finish(&mut home.tt_as("codex:1", args));
    tt(&["join"]).ok();
    assert_eq!(tt(&["room", "policy", "ask_expiry", "20m"]).ok().json()["policy"]["ask_expiry_ms"], 1_200_000);
    assert_eq!(tt(&["room", "policy", "ways", "all", "--text"]).ok().stdout.split_whitespace().last(), Some("all"));
    let shown = tt(&["room", "policy", "--text"]).ok().stdout;
    for line in [["ask_expiry", "20m"], ["ways", "all"], ["wait_max", "110s"], ["max_wakes", "20"]] {
        assert!(shown.lines().any(|shown| shown.split_whitespace().eq(line)), "{line:?} is not in {shown}");
    }
    assert_eq!(tt(&["room", "policy", "speed", "3"]).refused(3)["error"], "invalid_input");
    assert_eq!(tt(&["room", "policy", "max_wakes", "often"]).refused(3)["error"], "invalid_input");
    assert_eq!(tt(&["room", "policy", "max_wakes"]).code, Some(2), "a key without its value");
    assert_eq!(tt(&["room", "policy"]).ok().json()["policy"]["max_wakes"], 20);
}
