//! `ttd`: the daemon as a program. Everything is in the library.

fn main() -> std::process::ExitCode {
    ttd::main()
}
