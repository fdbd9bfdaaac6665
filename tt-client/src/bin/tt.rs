//! `tt`: the command line as a program. Everything is in the library.

fn main() -> std::process::ExitCode {
    tt_client::main()
}
