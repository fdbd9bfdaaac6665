//! No layer reaches into another: each has a list of what it must not depend on or name. docs/architecture.md explains why.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// How SQL statements begin, in the capitals in which this project writes them.
const SQL: &[&str] = &[
    "SELECT ",
    "INSERT INTO ",
    "INSERT OR ",
    "DELETE FROM ",
    "CREATE TABLE ",
    "CREATE INDEX ",
    "ALTER TABLE ",
    "DROP TABLE ",
    "PRAGMA ",
    "BEGIN IMMEDIATE",
    " SET ",
    "VACUUM",
];

/// Modules of the standard library by which code reaches the world outside its arguments.
const OUTSIDE_WORLD: &[&str] = &[
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The Rust files below a directory, or one file, as (path from the root, text without its tests). A file `tests.rs` has nothing
/// but tests.
fn sources(path: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pending = vec![root().join(path)];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap().to_owned();
            found.push((path.strip_prefix(root()).unwrap().display().to_string(), code));
        }
    }
    assert!(!found.is_empty(), "there is no source in {path}");
    found
}

/// The lines of code below a path that contain one of these words, as `file:line: text`. Comments do not count.
fn lines_with(path: &str, words: &[&str]) -> Vec<String> {
    let mut hits = Vec::new();
    for (file, text) in sources(path) {
        for (index, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if !code.starts_with("//") && words.iter().any(|word| code.contains(word)) {
                hits.push(format!("{file}:{}: {code}", index + 1));
            }
        }
    }
    hits
}

#[track_caller]
fn assert_free_of(paths: &[&str], words: &[&str]) {
    let hits: Vec<String> = paths.iter().flat_map(|path| lines_with(path, words)).collect();
    assert!(hits.is_empty(), "{}", hits.join("\n"));
}

/// The names of the crates a crate is built with, itself included.
fn dependencies(package: &str) -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--package", package]);
    let output = cargo.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn rules_protocol_and_harness_facts_are_built_without_a_runtime_or_a_database() {
    for package in ["tt-rules", "tt-proto", "tt-harness"] {
        let found = dependencies(package);
        assert!(found.contains(&package.to_owned()), "{found:?}");
        for forbidden in ["tokio", "jsonrpsee", "rusqlite", "r2d2", "tt-store", "ttd", "tt-client"] {
            assert!(!found.contains(&forbidden.to_owned()), "{package} is built with {forbidden}");
        }
    }
    assert!(dependencies("tt-store").contains(&"rusqlite".to_owned()), "this test would not notice");
}

#[test]
fn only_the_store_speaks_sql() {
    assert_free_of(&["proto/src", "harness/src", "ttd/rules/src", "ttd/src", "tt-client/src"], SQL);
    assert_free_of(&["proto/src", "harness/src", "ttd/rules/src", "ttd/src", "tt-client/src"], &["rusqlite", "r2d2"]);
    for word in ["SELECT ", "INSERT INTO ", "DELETE FROM ", " SET ", "PRAGMA "] {
        assert!(!lines_with("ttd/store/src/sqlite", &[word]).is_empty(), "this test would not notice {word}");
    }
}

#[test]
fn only_the_start_of_the_daemon_knows_which_storage_engine_it_is() {
    let hits = lines_with("ttd/src", &["tt_store::sqlite"]);
    let allowed = |hit: &String| hit.starts_with("ttd/src/lifecycle/") || hit.starts_with("ttd/src/clock.rs");
    assert!(hits.iter().all(allowed), "{}", hits.join("\n"));
    let outside_sqlite = ["ttd/store/src/lib.rs"];
    assert_free_of(&outside_sqlite, &["rusqlite", "r2d2"]);
    assert_free_of(&outside_sqlite, SQL);
}

#[test]
fn the_rules_know_the_world_by_their_arguments_alone() {
    assert_free_of(&["ttd/rules/src"], OUTSIDE_WORLD);
    assert!(!lines_with("ttd/src", OUTSIDE_WORLD).is_empty(), "this test would not notice");
}

#[test]
fn the_remote_procedure_calls_decide_nothing_and_write_nothing() {
    assert_free_of(&["ttd/src/rpc"], &["UnitOfWork", ".submit(", "Maintenance", "decide("]);
    assert!(!lines_with("ttd/src/engine.rs", &["UnitOfWork", "decide("]).is_empty(), "this test would not notice");
}

#[test]
fn only_bounded_looks_have_the_process_table() {
    let hits = lines_with("ttd/src", &["Arc<dyn Processes>", "Kernel::new()"]);
    // The start of the daemon hands it on.
    let (allowed, others): (Vec<&String>, Vec<&String>) = hits
        .iter()
        .partition(|hit| hit.starts_with("ttd/src/liveness/") || hit.starts_with("ttd/src/lifecycle/mod.rs:"));
    assert!(others.is_empty(), "{others:?}");
    assert!(!allowed.is_empty(), "this test would not notice");
}

#[test]
fn the_client_reaches_the_daemon_over_its_socket_only() {
    let hits = lines_with("tt-client/src", &["ttd::", "tt_rules", "tt_store"]);
    let (programs, others): (Vec<&String>, Vec<&String>) =
        hits.iter().partition(|hit| hit.starts_with("tt-client/src/bin/ttd.rs:"));
    assert!(others.is_empty(), "{others:?}");
    assert_eq!(programs.len(), 1, "the program ttd is the daemon itself: {programs:?}");
}

#[test]
fn the_console_is_a_client_whose_screen_follows_from_what_it_was_told() {
    assert_free_of(&["tt-console/src"], &["ttd::", "tt_rules", "tt_store"]);
    assert_free_of(&["tt-console/src"], SQL);
    let pure =
        ["model", "update", "keys", "timeline", "input", "exchange"].map(|file| format!("tt-console/src/{file}.rs"));
    let pure: Vec<&str> = pure.iter().map(String::as_str).chain(["tt-console/src/view"]).collect();
    assert_free_of(&pure, OUTSIDE_WORLD);
    assert_free_of(&pure, &["tokio", "render::now", "Client"]);
    assert!(!lines_with("tt-console/src", OUTSIDE_WORLD).is_empty(), "this test would not notice");
}
