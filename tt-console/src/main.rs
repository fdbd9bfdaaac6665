use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(tt_console::main())
}
