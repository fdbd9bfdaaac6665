//! Whether a directory lies on a disk of this machine. The daemon refuses one that does not; `tt doctor` says so before.

use std::path::Path;

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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

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
