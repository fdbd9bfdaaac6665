//! How `tt` is linked. For a short command half the time goes by before its first line runs, and most of that is the dynamic
//! linker; `docs/performance.md` has the figures. Elsewhere than on Linux with a shared glibc, and in a build for another
//! machine, all stays as it is.
#![expect(clippy::disallowed_methods, reason = "Cargo speaks to a build script through its environment")]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let native = std::env::var("TARGET").is_ok_and(|target| set("HOST", &target));
    let features = std::env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let shared = !features.split(',').any(|feature| feature == "crt-static");
    if !(native && shared && set("CARGO_CFG_TARGET_OS", "linux") && set("CARGO_CFG_TARGET_ENV", "gnu")) {
        return;
    }
    // At a fixed address none of its 6,500 pointers have to be adjusted, on thirty pages that every start would copy.
    println!("cargo::rustc-link-arg-bin=tt=-no-pie");
    // The unwinder out of the compiler's archive, where it has one, is one shared library less to find and map.
    let linker = std::env::var("RUSTC_LINKER").unwrap_or_else(|_| "cc".to_owned());
    let archive = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output().ok();
    let archive = archive.and_then(|found| String::from_utf8(found.stdout).ok());
    // Without one the name comes back as it was.
    if archive.is_some_and(|path| Path::new(path.trim()).is_absolute()) {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}
