//! `tt`: the command line as a program. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    tt_client::main().into()
}
