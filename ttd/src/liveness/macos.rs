//! macOS: `libproc` and `sysctl`, and a kqueue for each process that is watched.
#![expect(unsafe_code, reason = "proc_pidinfo and sysctl have no safe wrapper; each call checks the size it got back")]

use std::ffi::c_void;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, RawFd};

use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Exit, Process};

/// A kqueue is itself a descriptor, readable once the process has ended.
struct ExitQueue(Kqueue);

impl AsRawFd for ExitQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

pub(super) fn open(pid: u32) -> io::Result<Exit> {
    let queue = Kqueue::new()?;
    let exit = KEvent::new(
        usize::try_from(pid).map_err(io::Error::other)?,
        EventFilter::EVFILT_PROC,
        EvFlags::EV_ADD | EvFlags::EV_ONESHOT,
        FilterFlag::NOTE_EXIT,
        0,
        0,
    );
    queue.kevent(&[exit], &mut [], None).map_err(|e| match e {
        nix::errno::Errno::ESRCH => io::ErrorKind::NotFound.into(),
        e => io::Error::from(e),
    })?;
    // SAFETY: the queue owns its descriptor and names the same one for as long as it lives.
    let queue = unsafe { AsyncFd::register_with_interest(ExitQueue(queue), Interest::READABLE)? };
    Ok(Box::pin(async move { queue.readable().await.map(|_| ()) }))
}

/// Reads one process. None if it has ended and only its parent has not noticed yet.
pub(super) fn process(pid: u32, _boot_id: &str) -> io::Result<Option<Process>> {
    let raw = i32::try_from(pid).map_err(io::Error::other)?;
    let info = bsd_info(raw).ok_or_else(|| io::Error::other("the kernel does not describe this process"))?;
    if info.pbi_status == libc::SZOMB {
        return Ok(None);
    }
    let session = nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(raw))).map_or(0, |p| p.as_raw().unsigned_abs());
    Ok(Some(Process {
        pid,
        parent: info.pbi_ppid,
        session,
        started_at: format!("{}.{:06}", info.pbi_start_tvsec, info.pbi_start_tvusec),
        name: text(&info.pbi_comm),
        arguments_at: None,
    }))
}

/// There are no pid namespaces.
pub(super) fn namespace() -> Option<String> {
    None
}

pub(super) fn shows_our_namespace() -> bool {
    true
}

pub(super) fn shares_namespace(_pid: u32) -> bool {
    true
}

fn bsd_info(pid: i32) -> Option<libc::proc_bsdinfo> {
    let mut info = MaybeUninit::<libc::proc_bsdinfo>::uninit();
    let size = i32::try_from(size_of::<libc::proc_bsdinfo>()).ok()?;
    // SAFETY: the buffer is of the size we pass, and is read only when the kernel says it filled all of it.
    unsafe {
        let got = libc::proc_pidinfo(pid, libc::PROC_PIDTBSDINFO, 0, info.as_mut_ptr().cast::<c_void>(), size);
        (got == size).then(|| info.assume_init())
    }
}

pub(super) fn arguments(pid: u32) -> Vec<String> {
    i32::try_from(pid).ok().and_then(read_arguments).unwrap_or_default()
}

/// `KERN_PROCARGS2`: the count, the program's path, padding, then the arguments, each closed by NUL.
fn read_arguments(pid: i32) -> Option<Vec<String>> {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid];
    let mut buffer = vec![0_u8; 64 * 1024];
    let mut length = buffer.len();
    // SAFETY: name and buffer are valid for the lengths passed; the kernel writes at most `length` bytes.
    let failed = unsafe {
        libc::sysctl(name.as_mut_ptr(), 3, buffer.as_mut_ptr().cast::<c_void>(), &mut length, std::ptr::null_mut(), 0)
    };
    if failed != 0 {
        return None;
    }
    buffer.truncate(length);
    let count = usize::try_from(i32::from_ne_bytes(buffer.get(..4)?.try_into().ok()?)).ok()?;
    let rest = buffer.get(4..)?;
    let program_end = rest.iter().position(|b| *b == 0)?;
    let rest = &rest[program_end..];
    let first = rest.iter().position(|b| *b != 0)?;
    Some(rest[first..].split(|b| *b == 0).take(count).map(|a| String::from_utf8_lossy(a).into_owned()).collect())
}

fn text(field: &[libc::c_char]) -> String {
    let bytes: Vec<u8> = field.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The moment the kernel started, which no two starts share.
pub(super) fn boot_id() -> String {
    let mut name = [libc::CTL_KERN, libc::KERN_BOOTTIME];
    let mut at = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of::<libc::timeval>();
    // SAFETY: name and buffer are valid for the lengths passed; the kernel writes at most `length` bytes.
    let failed = unsafe {
        libc::sysctl(name.as_mut_ptr(), 2, (&raw mut at).cast::<c_void>(), &mut length, std::ptr::null_mut(), 0)
    };
    if failed == 0 { at.tv_sec.to_string() } else { String::new() }
}

/// Something that names this machine and stays.
pub(super) fn host_key() -> String {
    nix::unistd::gethostname().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
