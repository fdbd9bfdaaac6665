//! The examples in `corpus/`: inputs as people and programs write them, and inputs that once broke something.

use std::path::{Path, PathBuf};

/// The directory of a target's examples.
pub fn dir(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// The examples of a target, in the order of their names.
pub fn read(target: &str) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(dir(target))?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(&path).map(|input| (path, input))).collect()
}
