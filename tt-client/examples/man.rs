//! Writes the manual pages: `cargo run --example man -- DIR`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("target/man"), PathBuf::from);
    std::fs::create_dir_all(&dir)?;
    clap_mangen::generate_to(tt_client::command_line(), &dir)
}
