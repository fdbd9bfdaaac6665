//! A terminal of a given width: a program that runs on it, and the screen it leaves.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::Command;

use nix::pty::{Winsize, openpty};

use crate::run::Running;
use crate::{LIMIT, within};

/// More lines than any program here writes, so that nothing scrolls away.
const ROWS: u16 = 500;

/// What a program left on the screen.
#[derive(Debug)]
pub struct Screen {
    /// None when a signal ended it.
    pub code: Option<i32>,
    /// The lines as one sees them, without the empty ones at the end.
    pub text: String,
    /// All that was written.
    pub bytes: Vec<u8>,
    /// Lines the terminal had to break because the program wrote past its edge.
    pub overlong: Vec<String>,
}

/// Runs a program to its end on a terminal of this many columns.
#[track_caller]
pub fn run(command: &mut Command, columns: u16) -> Screen {
    let size = Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap_or_else(|e| panic!("no terminal: {e}"));
    let (mut ours, theirs) = (File::from(pty.master), File::from(pty.slave));
    // A terminal has no end that can be seen from here, as long as any process has it open. So we write one ourselves.
    let reading = std::thread::spawn(move || {
        let (mut bytes, mut some) = (Vec::new(), [0; 4096]);
        while !bytes.ends_with(END) {
            match ours.read(&mut some) {
                Ok(0) | Err(_) => break,
                Ok(n) => bytes.extend(&some[..n]),
            }
        }
        bytes
    });
    let finished = Running::on_terminal(command.env("TERM", "xterm-256color"), &theirs).finish();
    let ended = (&theirs).write_all(END);
    assert!(ended.is_ok(), "the terminal is gone: {ended:?}");
    let bytes = within(LIMIT, move || reading.join().unwrap_or_default());
    let mut bytes = bytes.unwrap_or_else(|| panic!("the terminal shows no end"));
    bytes.truncate(bytes.len().saturating_sub(END.len()));
    drop(theirs);
    show(bytes, columns, finished.code)
}

/// Nothing that a program here writes.
const END: &[u8] = b"\x00\x1b~end\x00";

/// What a terminal makes of these bytes.
fn show(bytes: Vec<u8>, columns: u16, code: Option<i32>) -> Screen {
    let size = |n: u16| NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN);
    let mut terminal = vt100::Parser::new(size(ROWS), size(columns), 0);
    terminal.process(&bytes);
    let screen = terminal.screen();
    let rows: Vec<String> = screen.rows(0, columns).map(|row| row.trim_end().to_owned()).collect();
    let broken = |(number, _): &(usize, &String)| screen.row_wrapped(u16::try_from(*number).unwrap_or(0));
    let overlong = rows.iter().enumerate().filter(broken).map(|(_, row)| row.clone()).collect();
    let text = rows.join("\n").trim_end().to_owned() + "\n";
    Screen { code, text, bytes, overlong }
}
