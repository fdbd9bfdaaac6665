//! Linux: `/proc`, and a pidfd for each process that is watched.
#![expect(unsafe_code, reason = "pidfd_open has no safe wrapper; the descriptor it returns is owned at once")]

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{ControllingTerminal, Exit, Process};

/// A descriptor that becomes readable when the process ends.
pub(super) fn open(pid: u32) -> io::Result<Exit> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::NotFound)?;
    // SAFETY: the call takes two integers; what it returns is a new descriptor that nobody else owns. An `OwnedFd` names
    // the same open descriptor for as long as it lives, which is what registering it asks for.
    let pidfd = unsafe {
        let fd = match libc::syscall(libc::SYS_pidfd_open, pid, 0) {
            -1 => return Err(no_such_process(io::Error::last_os_error())),
            fd => OwnedFd::from_raw_fd(RawFd::try_from(fd).map_err(io::Error::other)?),
        };
        AsyncFd::register_with_interest(fd, Interest::READABLE)?
    };
    Ok(Box::pin(async move { pidfd.readable().await.map(|_| ()) }))
}

fn no_such_process(e: io::Error) -> io::Error {
    if e.raw_os_error() == Some(libc::ESRCH) { io::ErrorKind::NotFound.into() } else { e }
}

/// Reads one process. None if it has ended and only its parent has not noticed yet. An error proves nothing: a file that is
/// not there may be hidden from this user.
pub(super) fn process(pid: u32, boot_id: &str) -> io::Result<Option<Process>> {
    let stat = read(&format!("/proc/{pid}/stat"))?;
    let parsed = std::str::from_utf8(&stat).ok().and_then(|stat| parse_stat(pid, stat, boot_id));
    let (process, ended) = parsed.ok_or(io::ErrorKind::InvalidData)?;
    Ok((!ended).then_some(process))
}

pub(super) fn cwd(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/cwd")).ok()
}

pub(super) fn arguments(pid: u32) -> Vec<String> {
    let cmdline = read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = cmdline.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// A variable of the environment in which a process was started.
pub(super) fn variable(pid: u32, name: &str) -> Option<OsString> {
    let environment = read(&format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(OsString::from_vec(value.to_vec()))
}

/// The pids of all processes that `/proc` shows.
pub(super) fn pids() -> Option<Vec<u32>> {
    let entries = std::fs::read_dir("/proc").ok()?;
    Some(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Whether a process has a controlling terminal.
pub(super) fn has_terminal(pid: u32) -> Option<bool> {
    let stat = read(&format!("/proc/{pid}/stat")).ok()?;
    let stat = std::str::from_utf8(&stat).ok()?;
    // Field 7 of proc_pid_stat(5), counted from the state, which is field 3.
    let terminal = stat.get(stat.rfind(')')? + 2..)?.split_ascii_whitespace().nth(4)?;
    Some(terminal != "0")
}

/// The controlling terminal of a process.
pub(super) fn terminal(pid: u32) -> Option<ControllingTerminal> {
    let stat = read(&format!("/proc/{pid}/stat")).ok()?;
    parse_terminal(std::str::from_utf8(&stat).ok()?)
}

fn parse_terminal(stat: &str) -> Option<ControllingTerminal> {
    // Fields 5, 7 and 8 of proc_pid_stat(5): its process group, its terminal, and the group that reads from that.
    let mut fields = stat.get(stat.rfind(')')? + 2..)?.split_ascii_whitespace().skip(2);
    let group: i64 = fields.next()?.parse().ok()?;
    let device: i32 = fields.nth(1)?.parse().ok()?;
    let foreground: i64 = fields.next()?.parse().ok()?;
    let device = device.cast_unsigned();
    let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
    let number = libc::makedev(major, minor);
    (device != 0).then_some(ControllingTerminal { device: number, is_foreground: group == foreground })
}

/// Reads a file of `/proc` in few calls. Such a file reports a length of zero, so an ordinary read begins with a few bytes.
fn read(path: &str) -> io::Result<Vec<u8>> {
    let mut file = std::fs::File::open(path)?;
    let mut bytes = vec![0; 4096];
    let mut length = 0;
    loop {
        match file.read(&mut bytes[length..]) {
            Ok(read) => length += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        }
        // What did not fill the space was the rest of it.
        if length < bytes.len() {
            bytes.truncate(length);
            return Ok(bytes);
        }
        bytes.resize(2 * length, 0);
    }
}

/// `pid (name) state ppid pgrp session … starttime …`; the name may hold spaces and brackets, so it ends at the last one.
/// Also tells whether the process has ended.
fn parse_stat(pid: u32, stat: &str, boot_id: &str) -> Option<(Process, bool)> {
    let name = stat.get(stat.find('(')? + 1..stat.rfind(')')?)?;
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split_ascii_whitespace().collect();
    // Counted from the state, which is field 3 of proc_pid_stat(5).
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    // A main thread that has ended is a zombie for as long as other threads of its process live.
    let ended = matches!(*fields.first()?, "Z" | "X") && number(20)? <= 1;
    let process = Process {
        pid,
        parent: u32::try_from(number(4)?).ok()?,
        session: u32::try_from(number(6)?).ok()?,
        has_terminal: number(7)? != 0,
        // Ticks since boot repeat after a reboot; the boot id tells them apart.
        started_at: format!("{}@{boot_id}", number(22)?),
        name: name.to_owned(),
        arguments_at: number(48).zip(number(49)).filter(|(from, to)| from < to),
    };
    Some((process, ended))
}

/// The pid namespace of this process; none if it is the one that the machine started with.
pub(super) fn namespace() -> Option<String> {
    // `PROC_PID_INIT_INO` of the kernel.
    const INITIAL: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(link) => link.to_str().filter(|name| *name != INITIAL).map(str::to_owned),
        // An id that no other process can have, so that nothing is concluded from what others wrote.
        Err(_) => Some(uuid::Uuid::new_v4().to_string()),
    }
}

/// Whether `/proc` shows the pids of our own namespace. In a namespace without a `/proc` of its own it shows those of another.
pub(super) fn shows_our_namespace() -> bool {
    namespaces_of("self") == Some(1)
}

/// Whether a process is in the pid namespace that `/proc` shows, and not in one below it.
pub(super) fn shares_namespace(pid: u32) -> bool {
    namespaces_of(&pid.to_string()) == Some(1)
}

/// In how many nested namespaces a process has a pid, counted from the one that `/proc` shows.
fn namespaces_of(process: &str) -> Option<usize> {
    let status = read(&format!("/proc/{process}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let pids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(pids.split_ascii_whitespace().count())
}

pub(super) fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().chars().take(8).collect()
}

/// Something that names this machine and stays.
pub(super) fn host_key() -> String {
    match std::fs::read_to_string("/etc/machine-id") {
        Ok(id) if !id.trim().is_empty() => id.trim().to_owned(),
        _ => nix::unistd::gethostname().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let tail = (7..=21).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        let stat = format!("42 (a) b (c) S 7 8 9 {tail} 123456 0 0");
        // Field 6 is the session, field 20 the number of threads and field 22 the start time.
        let (process, ended) = parse_stat(42, &stat, "boot").unwrap();
        assert!(!ended);
        assert_eq!((process.parent, process.session, process.name.as_str()), (7, 9, "a) b (c"));
        assert_eq!((process.started_at.as_str(), process.arguments_at), ("123456@boot", None));
        let whole = format!("{stat} {} 4096 4100 0", (25..=47).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        assert_eq!(parse_stat(42, &whole, "boot").unwrap().0.arguments_at, Some((4096, 4100)));
        let zombie = stat.replace(") S ", ") Z ");
        assert!(!parse_stat(42, &zombie, "boot").unwrap().1, "19 other threads live on");
        assert!(parse_stat(42, &zombie.replace(" 20 ", " 1 "), "boot").unwrap().1);
        let without = stat.replace(" 9 7 ", " 9 0 ");
        assert!(process.has_terminal && !parse_stat(42, &without, "boot").unwrap().0.has_terminal);
        assert_eq!(parse_stat(42, "42 (x", "boot"), None);
    }

    #[test]
    fn the_terminal_of_a_process_is_read() {
        let read = |fields: &str| parse_terminal(&format!("7 (a ) b) S 1 {fields} 4194304"));
        let terminal = |(major, minor), is_foreground| {
            Some(ControllingTerminal { device: libc::makedev(major, minor), is_foreground })
        };
        assert_eq!(read("40 40 34817 40"), terminal((136, 1), true));
        assert_eq!(read("40 40 34817 41"), terminal((136, 1), false));
        // Minor numbers past 255 are in the upper bits.
        assert_eq!(read("40 40 1083436 40"), terminal((136, 300), true));
        assert_eq!(read("40 40 0 -1"), None);
    }
}
