//! Links the unwinder and the arithmetic of wide integers into the programs instead of loading them as a shared library
//! (libgcc_s). `tt` runs for two milliseconds, and a library that is opened, mapped and relocated is a noticeable part of that.

use std::path::Path;
use std::process::Command;

#[expect(clippy::disallowed_methods, reason = "Cargo tells a build script about the target in its environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    let is = |name: &str, value: &str| variable(name).is_some_and(|found| found == value);
    let links_glibc = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if !links_glibc || variable("HOST") != variable("TARGET") {
        return;
    }
    // Without the static library the shared one is linked, as usual.
    let linker = variable("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let found = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output();
    let path = found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if Path::new(&path).is_absolute() && Path::new(&path).is_file() {
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
        println!("cargo::rustc-link-lib=static:-bundle=gcc");
    }
}
