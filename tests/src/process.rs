//! What the kernel shows of a process that a test looks at.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::signal::Signal;
use tt_proto::paths::Paths;

use crate::LIMIT;

/// A process' environment as it was started with.
pub fn environment(pid: u32) -> BTreeMap<String, String> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let pairs = bytes.split(|byte| *byte == 0).filter(|pair| !pair.is_empty());
    let pair = |pair: &[u8]| {
        let text = String::from_utf8_lossy(pair).into_owned();
        let (name, value) = text.split_once('=').unwrap_or((text.as_str(), ""));
        (name.to_owned(), value.to_owned())
    };
    pairs.map(pair).collect()
}

/// Its open descriptors and what each leads to.
pub fn descriptors(pid: u32) -> BTreeMap<u32, PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, std::fs::read_link(entry.path()).ok()?)))
        .collect()
}

pub fn working_directory(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

/// Makes a process stand still, and returns when each of its threads does: on a busy machine the signal takes its time.
#[track_caller]
pub fn freeze(pid: u32) {
    crate::home::send(pid, Signal::SIGSTOP);
    let give_up = Instant::now() + LIMIT;
    while cfg!(target_os = "linux") && !stands_still(pid) {
        assert!(Instant::now() < give_up, "process {pid} does not stand still");
        std::thread::yield_now();
    }
}

fn stands_still(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
    states.all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
}

/// The most memory it ever had in use, in KiB.
pub fn peak_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// What one thread of a process has done so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thread {
    pub name: String,
    /// Time on a processor, in ticks of the kernel.
    pub ticks: u64,
    /// How often it went to sleep.
    pub voluntary_switches: u64,
}

/// The threads of a process and what each has done. One that ends meanwhile is left out.
pub fn threads(pid: u32) -> BTreeMap<u32, Thread> {
    let all = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let thread = |dir: &Path| {
        let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        // User and system time are the 14th and 15th field of the line.
        let ticks = rest.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let status = std::fs::read_to_string(dir.join("status")).ok()?;
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some(Thread { name: name.to_owned(), ticks, voluntary_switches: switches.trim().parse().ok()? })
    };
    all.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, thread(&entry.path())?))).collect()
}

/// The memory a process has in use, in KiB.
pub fn memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Every process whose environment names this data directory.
pub fn serving(data_dir: &Path) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let names_it = |pid: &u32| {
        environment(*pid).get("TALKING_STICK_DATA_DIR").is_some_and(|dir| Path::new(dir).starts_with(data_dir))
    };
    pids.filter(names_it).collect()
}

/// Whether a process was started on the files of this home.
pub fn serves(pid: u32, paths: &Paths) -> bool {
    if cfg!(not(target_os = "linux")) {
        return true;
    }
    let environment = environment(pid);
    let home = paths.data_dir.ancestors().nth(3);
    environment.get("TALKING_STICK_DATA_DIR").is_some_and(|dir| Path::new(dir) == paths.data_dir)
        || environment.get("HOME").map(Path::new) == home
}
