//! What must be known of a path before it is used: whether a directory lies on a disk of this machine (the daemon refuses one that
//! does not; `tt doctor` says so before), and whether a file is an ordinary one.

use std::fs::{Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

/// Reads a file that a user or another program wrote. Anything but an ordinary file is refused (`InvalidInput`, or `IsADirectory`)
/// and not waited for: a pipe would block its reader, and a device may never end.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened, because opening a device can have an effect; and afterwards, because it may be another file.
    check_ordinary(&std::fs::metadata(path)?)?;
    let mut file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    check_ordinary(&file.metadata()?)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn check_ordinary(meta: &Metadata) -> io::Result<()> {
    if meta.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a directory"));
    }
    if !meta.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file but a pipe, a socket or a device"));
    }
    Ok(())
}

/// What a directory lies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    Local,
    /// On another machine, by the name people know it under.
    Network(&'static str),
}

/// Asks the kernel. What it cannot tell counts as local: a wrong refusal would lock a user out.
pub fn filesystem(dir: &Path) -> Filesystem {
    nix::sys::statfs::statfs(dir).map_or(Filesystem::Local, |stat| classify(&stat))
}

#[cfg(target_os = "linux")]
fn classify(stat: &nix::sys::statfs::Statfs) -> Filesystem {
    by_magic(stat.filesystem_type().0 as u32)
}

#[cfg(target_os = "linux")]
fn by_magic(magic: u32) -> Filesystem {
    match magic {
        0x6969 => Filesystem::Network("nfs"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Filesystem::Network("smb"),
        0x5346_414f | 0x6b41_4653 => Filesystem::Network("afs"),
        0x7375_7245 => Filesystem::Network("coda"),
        0x00c3_6400 => Filesystem::Network("ceph"),
        0x0bd0_0bd0 => Filesystem::Network("lustre"),
        0x0102_1997 => Filesystem::Network("9p"),
        _ => Filesystem::Local,
    }
}

#[cfg(target_os = "macos")]
fn classify(stat: &nix::sys::statfs::Statfs) -> Filesystem {
    if stat.flags().contains(nix::mount::MntFlags::MNT_LOCAL) {
        Filesystem::Local
    } else {
        Filesystem::Network("remote")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ordinary_files_are_read_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let [file, pipe, link] = ["file", "pipe", "link"].map(|name| dir.path().join(name));
        std::fs::write(&file, b"\xff").unwrap();
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read_file(&file).unwrap(), b"\xff");
        assert_eq!(read_file(&link).unwrap(), b"\xff");
        for other in [&pipe, Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert_eq!(read_file(other).unwrap_err().kind(), ErrorKind::InvalidInput, "{}", other.display());
        }
        assert_eq!(read_file(dir.path()).unwrap_err().kind(), ErrorKind::IsADirectory);
        assert_eq!(read_file(&dir.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn disks_of_other_machines_are_told_from_our_own() {
        for (magic, expected) in [
            (0x6969, Filesystem::Network("nfs")),
            (0xfe53_4d42, Filesystem::Network("smb")),
            (0xef53, Filesystem::Local),
            (0x0102_1994, Filesystem::Local),
            (0x9123_683e, Filesystem::Local),
        ] {
            assert_eq!(by_magic(magic), expected, "{magic:#x}");
        }
        assert_eq!(filesystem(Path::new("/proc")), Filesystem::Local);
    }
}
