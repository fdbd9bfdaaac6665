//! macOS: `libproc` and `sysctl`.
#![expect(unsafe_code, reason = "proc_pidinfo and sysctl have no safe wrapper; each call checks the size it got back")]

use std::ffi::c_void;
use std::mem::{MaybeUninit, size_of};

use super::Process;

/// Reads one process. A zombie counts as gone: it will never act again.
pub(super) fn process(pid: u32, _boot_id: &str) -> Option<Process> {
    let raw = i32::try_from(pid).ok()?;
    let info = bsd_info(raw)?;
    if info.pbi_status == libc::SZOMB {
        return None;
    }
    let session = nix::unistd::getsid(Some(nix::unistd::Pid::from_raw(raw))).map_or(0, |p| p.as_raw().unsigned_abs());
    Some(Process {
        pid,
        parent: info.pbi_ppid,
        session,
        started_at: format!("{}.{:06}", info.pbi_start_tvsec, info.pbi_start_tvusec),
        name: text(&info.pbi_comm),
        argv: arguments(raw).unwrap_or_default(),
    })
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

/// `KERN_PROCARGS2`: the count, the program's path, padding, then the arguments, each closed by NUL.
fn arguments(pid: i32) -> Option<Vec<String>> {
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

/// Start times are wall-clock microseconds here and need no boot to tell them apart.
pub(super) fn boot_id() -> String {
    String::new()
}

/// Something that names this machine and stays.
pub(super) fn host_key() -> String {
    nix::unistd::gethostname().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
