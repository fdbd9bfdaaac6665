//! Every file of tests is part of some test target. A file that no target names would never be compiled, and its tests never run.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const MANIFEST: &str = include_str!("../tt-client/Cargo.toml");

fn tests_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests").canonicalize().unwrap()
}

/// The Rust files below a directory, but for those of crates: the kit, and programs.
fn files_below(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && path != tests_dir().join("src") && !path.join("Cargo.toml").exists() {
            files_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.insert(path);
        }
    }
}

/// A file and those that its `mod` lines name. The modules of a target's main file lie beside it.
fn reach(file: &Path, is_main: bool, reached: &mut BTreeSet<PathBuf>) {
    assert!(reached.insert(file.to_owned()), "{} is compiled twice", file.display());
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let dir = if is_main { file.parent().unwrap().to_owned() } else { file.with_extension("") };
    for module in text.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')) {
        reach(&dir.join(format!("{module}.rs")), false, reached);
    }
}

#[test]
fn no_file_of_tests_is_forgotten() {
    let mut reached = BTreeSet::new();
    let paths = MANIFEST.lines().filter_map(|line| line.strip_prefix("path = \"../tests/")?.strip_suffix('"'));
    for target in paths {
        reach(&tests_dir().join(target), true, &mut reached);
    }
    let mut present = BTreeSet::new();
    files_below(&tests_dir(), &mut present);
    let forgotten: Vec<&PathBuf> = present.difference(&reached).collect();
    assert!(forgotten.is_empty(), "no target in tt-client/Cargo.toml and no `mod` line names {forgotten:?}");
}
