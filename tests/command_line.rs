//! What `tt` promises whoever calls it: exit codes, where answers and errors go, and a demo that leaves nothing behind.

use std::path::PathBuf;

use tt_tests::{Running, home, process, run};

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
        "keep the old column",
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

#[test]
fn wrong_usage_is_json_for_an_agent_and_near_matches_are_suggested() {
    let home = home!();
    let error = run::finish(home.tt(&["relase"]).env("CODEX_THREAD_ID", "1")).refused(2);
    assert_eq!(error["error"], "invalid_input");
    assert!(error["hint"].as_str().unwrap().contains("release"), "{error}");
    let person = home.run(&["relase"]);
    assert!(person.code == Some(2) && person.stderr.contains("release"), "{person:?}");
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let home = home!();
    let script = home.run(&["completions", "bash"]).ok().stdout;
    for command in tt_client::command_line().get_subcommands() {
        assert!(script.contains(command.get_name()), "{}", command.get_name());
        assert!(command.get_about().is_some(), "{} says nothing of itself", command.get_name());
    }
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
