//! `tt service`: what systemd is given, and what is taken back. No service manager is touched: a program of its name
//! stands in and keeps account.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tt_tests::{Finished, Home, home, run};

/// Writes down what it is asked, one call a line.
const RECORDER: &str = "#!/bin/sh\necho \"$*\" >> \"$HOME/asked\"\n";

fn service(home: &Home, args: &[&str], env: &[(&str, &Path)]) -> Finished {
    home.script("bin/systemctl", RECORDER);
    let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
    run::finish(home.tt(&["--json", "service"]).args(args).env("PATH", path).envs(env.iter().copied()))
}

fn asked(home: &Home) -> Vec<String> {
    let text = std::fs::read_to_string(home.path().join("asked")).unwrap_or_default();
    let _ = std::fs::remove_file(home.path().join("asked"));
    text.lines().map(str::to_owned).collect()
}

fn units(home: &Home) -> [PathBuf; 2] {
    ["ttd.socket", "ttd.service"].map(|name| home.path().join(".config/systemd/user").join(name))
}

/// What systemd itself thinks of the units.
fn verify(home: &Home, units: &[PathBuf; 2]) {
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        return tt_tests::not_run("systemd's own check of the units", "systemd-analyze is not installed");
    }
    let mut analyze: Command = home.command("systemd-analyze");
    analyze.env("XDG_RUNTIME_DIR", home.path()).args(["--user", "verify"]).args(units);
    let verdict = run::finish(&mut analyze);
    assert!(verdict.code == Some(0) && verdict.stderr.is_empty(), "{verdict:?}");
}

fn line<'a>(unit: &'a str, key: &str) -> Option<&'a str> {
    unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

#[test]
fn installing_writes_the_units_and_asks_systemd_to_use_them() {
    let home = home!();
    home.start();
    let [socket, unit] = units(&home);
    for _ in 0..2 {
        let answer = service(&home, &["install"], &[]).ok().json();
        assert_eq!(answer["status"], "installed");
        assert_eq!(answer["files"][0], socket.to_str().unwrap());
        assert_eq!(asked(&home), ["--user daemon-reload", "--user enable --now ttd.socket"]);
        assert_eq!(home.daemon(), None, "the daemon of before must make way");
    }
    let text = std::fs::read_to_string(&socket).unwrap();
    assert_eq!(line(&text, "ListenStream"), home.paths().socket.to_str());
    assert_eq!(line(&text, "SocketMode"), Some("0600"));
    assert_eq!(line(&text, "DirectoryMode"), Some("0700"));
    let text = std::fs::read_to_string(&unit).unwrap();
    assert_eq!(line(&text, "ExecStart"), Some(&*format!("\"{}\"", home.ttd_path().display())));
    assert_eq!(line(&text, "Environment"), None);
    verify(&home, &[socket, unit]);
}

#[test]
fn uninstalling_takes_everything_back_and_may_be_repeated() {
    let home = home!();
    service(&home, &["install"], &[]).ok();
    asked(&home);
    assert_eq!(service(&home, &["uninstall"], &[]).ok().json()["status"], "uninstalled");
    assert_eq!(asked(&home), ["--user disable --now ttd.socket ttd.service", "--user daemon-reload"]);
    assert!(units(&home).iter().all(|unit| !unit.exists()));
    assert_eq!(service(&home, &["uninstall"], &[]).ok().json()["status"], "not_installed");
    assert_eq!(asked(&home), Vec::<String>::new());
    home.run(&["whoami"]).ok();
}

#[test]
fn paths_that_systemd_would_read_otherwise_arrive_as_they_are() {
    let home = home!();
    let odd = home.path().join("a b%h$HOME\\x\"q");
    // systemd allows no program with quotes or backslashes in its name.
    let programs = home.path().join("a b%h$HOME");
    std::fs::create_dir(&programs).unwrap();
    let daemon = programs.join("ttd");
    std::os::unix::fs::symlink(home.ttd_path(), &daemon).unwrap();
    let data_dir = odd.join("data");
    service(&home, &["install"], &[("TALKING_STICK_DAEMON", &daemon), ("TALKING_STICK_DATA_DIR", &data_dir)]).ok();
    let [socket, unit] = units(&home);
    let dir = home.path().display();
    let text = std::fs::read_to_string(&unit).unwrap();
    let program = format!("\"{dir}/a b%%h$HOME/ttd\"");
    assert_eq!(line(&text, "ExecStart"), Some(&*program));
    let variable = format!("\"TALKING_STICK_DATA_DIR={dir}/a b%%h$HOME\\\\x\\\"q/data\"");
    assert_eq!(line(&text, "Environment"), Some(&*variable));
    let text = std::fs::read_to_string(&socket).unwrap();
    assert_eq!(line(&text, "ListenStream"), Some(&*format!("{dir}/a b%%h$HOME\\x\"q/data/ttd.sock")));
    verify(&home, &[socket, unit]);
}

#[test]
fn a_relative_directory_means_the_same_to_systemd() {
    let home = home!();
    service(&home, &["install"], &[("TALKING_STICK_DATA_DIR", Path::new("here"))]).ok();
    let [socket, unit] = units(&home);
    let here = home.path().canonicalize().unwrap().join("here");
    let text = std::fs::read_to_string(&unit).unwrap();
    assert_eq!(line(&text, "Environment"), Some(&*format!("\"TALKING_STICK_DATA_DIR={}\"", here.display())));
    verify(&home, &[socket, unit]);
}

#[test]
fn without_a_service_manager_the_files_are_there_and_the_rest_is_said() {
    let home = home!();
    let empty = home.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let error = run::finish(home.tt(&["--json", "service", "install"]).env("PATH", &empty)).refused(1);
    assert!(error["hint"].as_str().unwrap().contains("systemctl --user daemon-reload"), "{error}");
    assert!(units(&home).iter().all(|unit| unit.exists()));

    home.script("bin/systemctl", "#!/bin/sh\necho 'Failed to connect to bus' >&2\nexit 1\n");
    let error = run::finish(home.tt(&["--json", "service", "install"]).env("PATH", home.path().join("bin"))).refused(1);
    assert!(error["message"].as_str().unwrap().contains("Failed to connect to bus"), "{error}");
}

#[test]
fn a_path_with_a_line_break_never_reaches_a_unit_file() {
    let home = home!();
    let odd = home.path().join("x\nExecStartPre=evil\n");
    let program = odd.join("ttd");
    std::fs::create_dir(&odd).unwrap();
    std::os::unix::fs::symlink(home.ttd_path(), &program).unwrap();
    let names = ["TALKING_STICK_DAEMON", "TALKING_STICK_DATA_DIR", "TALKING_STICK_SOCKET"];
    for (name, value) in names.into_iter().zip([&program, &odd, &odd.join("s")]) {
        let error = service(&home, &["install"], &[(name, value)]).refused(3);
        assert_eq!(error["error"], "invalid_input", "{error}");
        assert!(units(&home).iter().all(|unit| !unit.exists()), "{name}");
        assert_eq!(asked(&home), Vec::<String>::new(), "{name}");
    }
}

/// What is in them is run as the user: nobody else may write there, whatever the umask, and systemd reads them.
#[test]
fn directories_and_units_are_made_with_the_same_permissions_whatever_the_umask() {
    for umask in ["000", "022", "077", "777"] {
        let home = home!();
        home.script("bin/systemctl", RECORDER);
        let mut shell = home.command("/bin/sh");
        shell.args(["-c", "umask $1; \"$2\" service install", "sh", umask]).arg(home.tt_path());
        let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
        run::finish(shell.env("PATH", path)).ok();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for dir in [".config", ".config/systemd", ".config/systemd/user"] {
            assert_eq!(mode(&home.path().join(dir)), 0o755, "{dir} with umask {umask}");
        }
        for unit in units(&home) {
            assert_eq!(mode(&unit), 0o644, "{} with umask {umask}", unit.display());
        }
    }
}
