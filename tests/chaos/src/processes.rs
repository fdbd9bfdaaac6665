//! The processes of this machine, as far as they run a program of this world.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::Fallible;

/// The pids of the processes that run this file.
pub(crate) fn running(program: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)).collect()
}

pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(pid: u32) -> Fallible<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// The resident memory of a process, in KiB.
pub(crate) fn memory_kib(pid: u32) -> Fallible<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Limits the descriptors of a process; without a number, to what it had allowed itself.
pub(crate) fn limit_descriptors(pid: u32, limit: Option<usize>) -> Fallible<()> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits"))?;
    let hard =
        limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().nth(1)?.parse().ok());
    let limit = limit.unwrap_or(hard.map_or(4096, |hard: usize| hard.min(4096)));
    let mut prlimit = std::process::Command::new("prlimit");
    let limited = prlimit.args(["--pid", &pid.to_string(), &format!("--nofile={limit}:")]).output()?;
    if limited.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&limited.stderr).into()) }
}
