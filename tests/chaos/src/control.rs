//! The library in the daemon that makes disks fail and clocks jump: built from `faults.c` where there is a C compiler, and
//! told what to do through a file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Fallible;

/// The fields of `struct control` in `faults.c`, each eight bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field {
    Error,
    Percent,
    SyncDelayMs,
    WallMs,
    BootMs,
    Failed,
}

const FIELDS: u64 = 6;

#[derive(Debug)]
pub(crate) struct Control {
    file: File,
    path: PathBuf,
    library: PathBuf,
}

impl Control {
    /// Builds the library. The error says why that is not possible here.
    pub(crate) fn build(dir: &Path) -> Fallible<Self> {
        let (source, library, path) = (dir.join("faults.c"), dir.join("faults.so"), dir.join("control"));
        std::fs::write(&source, include_str!("faults.c"))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl");
        let built = compiler.output()?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned().into());
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.set_len(FIELDS * 8)?;
        Ok(Self { file, path, library })
    }

    /// The variables that load the library into a program.
    pub(crate) fn variables(&self) -> [(&'static str, &Path); 2] {
        [("LD_PRELOAD", &self.library), ("TT_CHAOS_CONTROL", &self.path)]
    }

    pub(crate) fn set(&self, field: Field, value: i64) -> Fallible<()> {
        Ok(self.file.write_all_at(&value.to_ne_bytes(), field as u64 * 8)?)
    }

    pub(crate) fn get(&self, field: Field) -> Fallible<i64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, field as u64 * 8)?;
        Ok(i64::from_ne_bytes(bytes))
    }
}
