//! Process identity: what the kernel says about a pid, and about the processes above it.
//!
//! A pid alone names nothing, since pids are used again; a pid with its start time and its pid namespace names one process
//! for ever. That a process has ended needs proof: the kernel says that there is no such process, or that the pid has gone to
//! another one. Anything else (no descriptor left, a file that is hidden or hangs, another namespace) proves nothing.
//! No rule about members lives here.

#[cfg(target_os = "linux")]
mod linux;
mod looks;
#[cfg(target_os = "macos")]
mod macos;
mod threads;
mod watch;

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(target_os = "macos")]
use macos as platform;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;

pub use looks::{LookTimeout, Looks};
use nix::errno::Errno;
use tt_proto::hello::Anchor;
use tt_proto::paths::short_hash;
pub use watch::Watch;

/// The most ancestors that are looked at. No real chain of parents is longer.
pub(crate) const MAX_ANCESTORS: usize = 64;

/// One process as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// The pid of the process that leads its session; a login shell, usually.
    pub session: u32,
    /// Whether it has a controlling terminal.
    pub has_terminal: bool,
    /// Opaque, and different for any later process of the same pid.
    pub started_at: String,
    /// The kernel's short name.
    pub name: String,
    /// The address of its arguments in its memory, which changes when it runs another program. None if the kernel does not
    /// tell, as for processes of other users.
    pub arguments_at: Option<(u64, u64)>,
}

/// The terminal that controls a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllingTerminal {
    /// The number of its device, as `stat` tells it.
    pub device: u64,
    /// What is typed there comes to the group of this process.
    pub is_foreground: bool,
}

/// Where processes are looked up. The machine's own table, or a made-up one in tests.
pub trait Processes: Send + Sync {
    /// `NotFound` only if it is proven that there is no such process.
    fn get(&self, pid: u32) -> io::Result<Process>;

    /// The command line of a process, or nothing if it cannot be read. It is in the memory of that process, so reading it
    /// can block.
    fn arguments(&self, process: &Process) -> Vec<String>;

    /// The working directory of a process as the kernel names it, if that needs no look at the filesystem.
    fn cwd(&self, _pid: u32) -> Option<PathBuf> {
        None
    }

    /// A variable of the environment in which a process was started, if it can be read. May block.
    fn variable(&self, _pid: u32, _name: &str) -> Option<OsString> {
        None
    }

    /// Whether a process has a controlling terminal; none if that cannot be told.
    fn has_terminal(&self, _pid: u32) -> Option<bool> {
        None
    }

    /// The controlling terminal of a process; none if it has none, or that cannot be told.
    fn terminal(&self, _pid: u32) -> Option<ControllingTerminal> {
        None
    }

    /// The pids of all processes that can be seen; none if that cannot be told.
    fn pids(&self) -> Option<Vec<u32>> {
        None
    }

    /// When a process began, which tells it from a later one with the same pid.
    fn started_at(&self, pid: u32) -> io::Result<String> {
        self.get(pid).map(|process| process.started_at)
    }

    /// Whether a process calls processes by the pids that this table has: it is in our pid namespace, not in one below.
    fn shares_namespace(&self, _pid: u32) -> bool {
        true
    }

    /// Names this machine and this pid namespace. A pid means something only together with it.
    fn host_id(&self) -> String;

    /// Names this machine.
    fn machine_id(&self) -> String {
        self.host_id()
    }

    /// What earlier versions wrote in place of the host id.
    fn earlier_host_ids(&self) -> Vec<String> {
        Vec::new()
    }

    /// Starts to watch a process; the future resolves when it ends. Its start time must be checked after this returns.
    /// `NotFound` when there is no such process. Called inside the runtime.
    fn open(&self, pid: u32) -> io::Result<Exit>;

    /// The process and its ancestors, nearest first, each looked up when the iterator reaches it.
    fn lineage(&self, pid: u32) -> Box<dyn Iterator<Item = Process> + '_> {
        let mut next = pid;
        let lookup = move || {
            let process = if next > 0 { self.get(next).ok() } else { None }?;
            next = process.parent;
            Some(process)
        };
        Box::new(std::iter::from_fn(lookup).take(MAX_ANCESTORS))
    }

    fn anchor(&self, process: &Process) -> Anchor {
        Anchor { host_id: self.host_id(), pid: process.pid, process_started_at: process.started_at.clone() }
    }
}

/// Resolves when a process has ended.
pub type Exit = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;

/// The processes of this machine.
#[derive(Debug, Clone)]
pub struct Kernel {
    machine_id: String,
    /// The pid namespace; none for the one that the machine started with.
    namespace: Option<String>,
    boot_id: String,
    /// Whether pids mean the same in the kernel's table of processes as they do for us.
    shows_our_namespace: bool,
}

impl Kernel {
    pub fn new() -> Self {
        Self {
            machine_id: platform::host_key(),
            namespace: platform::namespace(),
            boot_id: platform::boot_id(),
            shows_our_namespace: platform::shows_our_namespace(),
        }
    }

    /// Identifies the current boot of the machine.
    pub fn boot_id(&self) -> &str {
        &self.boot_id
    }
}

impl Default for Kernel {
    fn default() -> Self {
        Self::new()
    }
}

impl Processes for Kernel {
    fn get(&self, pid: u32) -> io::Result<Process> {
        let found = match self.shows_our_namespace {
            true => platform::process(pid, &self.boot_id),
            false => Err(io::ErrorKind::Unsupported.into()),
        };
        match found {
            Ok(Some(process)) => Ok(process),
            Ok(None) => Err(io::ErrorKind::NotFound.into()),
            Err(_) if is_proven_gone(pid) => Err(io::ErrorKind::NotFound.into()),
            // The file is not there, and the process is: it is hidden from us.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(io::ErrorKind::PermissionDenied.into()),
            Err(e) => Err(e),
        }
    }

    fn arguments(&self, process: &Process) -> Vec<String> {
        platform::arguments(process.pid)
    }

    #[cfg(target_os = "linux")]
    fn cwd(&self, pid: u32) -> Option<PathBuf> {
        platform::cwd(pid)
    }

    fn shares_namespace(&self, pid: u32) -> bool {
        platform::shares_namespace(pid)
    }

    #[cfg(target_os = "linux")]
    fn variable(&self, pid: u32, name: &str) -> Option<OsString> {
        platform::variable(pid, name)
    }

    #[cfg(target_os = "linux")]
    fn pids(&self) -> Option<Vec<u32>> {
        self.shows_our_namespace.then(platform::pids)?
    }

    #[cfg(target_os = "linux")]
    fn has_terminal(&self, pid: u32) -> Option<bool> {
        platform::has_terminal(pid)
    }

    #[cfg(target_os = "linux")]
    fn terminal(&self, pid: u32) -> Option<ControllingTerminal> {
        self.shows_our_namespace.then(|| platform::terminal(pid))?
    }

    fn host_id(&self) -> String {
        match &self.namespace {
            None => self.machine_id(),
            Some(namespace) => short_hash([self.machine_id.as_bytes(), namespace.as_bytes()]),
        }
    }

    fn machine_id(&self) -> String {
        short_hash([self.machine_id.as_bytes()])
    }

    /// 0.1.x wrote the plain name of the machine, or nothing, which says nothing of the namespace.
    fn earlier_host_ids(&self) -> Vec<String> {
        match self.namespace {
            None => vec![
                nix::unistd::gethostname().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default(),
                String::new(),
            ],
            Some(_) => Vec::new(),
        }
    }

    fn open(&self, pid: u32) -> io::Result<Exit> {
        platform::open(pid)
    }
}

/// Whether the kernel says that there is no such process. Needs no descriptor and no `/proc`.
fn is_proven_gone(pid: u32) -> bool {
    match libc::pid_t::try_from(pid) {
        Ok(0) => false,
        Ok(pid) => nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) == Err(Errno::ESRCH),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_name_a_parent_and_a_start_time_that_stays() {
        let kernel = Kernel::new();
        let me = kernel.get(std::process::id()).unwrap();
        assert_eq!(me.parent, nix::unistd::getppid().as_raw() as u32);
        assert!(!me.started_at.is_empty() && !me.name.is_empty());
        let arguments = std::env::args().collect::<Vec<_>>();
        assert_eq!(kernel.arguments(&me), arguments);
        assert!(me.arguments_at.is_some() || cfg!(not(target_os = "linux")));
        assert_eq!(kernel.get(std::process::id()).unwrap(), me);
    }

    #[test]
    fn the_lineage_starts_with_the_process_and_ends_at_the_top() {
        let kernel = Kernel::new();
        let lineage: Vec<Process> = kernel.lineage(std::process::id()).collect();
        assert_eq!(lineage[0].pid, std::process::id());
        for pair in lineage.windows(2) {
            assert_eq!(pair[0].parent, pair[1].pid);
        }
        assert_eq!(lineage.last().unwrap().parent, 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_environment_of_a_process_is_the_one_it_was_started_in() {
        let mut child = std::process::Command::new("cat");
        child.env_clear().env("HOME", "/somewhere").env("HOMELAND", "x").stdin(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        let kernel = Kernel::new();
        assert_eq!(kernel.variable(child.id(), "HOME").as_deref(), Some("/somewhere".as_ref()));
        assert_eq!(kernel.variable(child.id(), "HOM"), None);
        assert_eq!(kernel.has_terminal(child.id()), kernel.has_terminal(std::process::id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!((kernel.variable(child.id(), "HOME"), kernel.has_terminal(child.id())), (None, None));
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_reported() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let exit = Kernel::new().open(child.id()).unwrap();
        drop(child.stdin.take());
        exit.await.unwrap();
        child.wait().unwrap();
        let error = Kernel::new().open(child.id()).err().unwrap();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn a_child_that_was_reaped_is_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(Kernel::new().get(pid).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
