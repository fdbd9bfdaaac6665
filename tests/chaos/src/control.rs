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

const PRELOAD: &str = "LD_PRELOAD";
const CONTROL: &str = "TT_CHAOS_CONTROL";

/// The names of the library and of the file, in the directory of the world.
const LIBRARY_FILE: &str = "faults.so";
const CONTROL_FILE: &str = "control";

/// The variables that load the library of a world, for a process of an actor. None where it could not be built.
pub(crate) fn variables_in(dir: &Path) -> Vec<(&'static str, PathBuf)> {
    let variables = [(PRELOAD, dir.join(LIBRARY_FILE)), (CONTROL, dir.join(CONTROL_FILE))];
    if variables.iter().all(|(_, path)| path.exists()) { variables.into() } else { Vec::new() }
}

/// The time of day in a world, in milliseconds.
pub(crate) fn wall_millis(dir: &Path) -> i64 {
    let mut ahead = [0; 8];
    let offset = Field::WallMs as u64 * 8;
    let known = File::open(dir.join(CONTROL_FILE)).and_then(|file| file.read_exact_at(&mut ahead, offset));
    let ahead = known.map_or(0, |()| i64::from_ne_bytes(ahead));
    let real = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
    i64::try_from(real).unwrap_or(0) + ahead
}

#[derive(Debug)]
pub(crate) struct Control {
    file: File,
    path: PathBuf,
    library: PathBuf,
}

impl Control {
    /// Builds the library. The error says why that is not possible here.
    pub(crate) fn build(dir: &Path) -> Fallible<Self> {
        let (source, library, path) = (dir.join("faults.c"), dir.join(LIBRARY_FILE), dir.join(CONTROL_FILE));
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
        [(PRELOAD, &self.library), (CONTROL, &self.path)]
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
