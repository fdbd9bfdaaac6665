//! A terminal of a given width: a program that runs on it and the screen it leaves, or a shell at which a person types.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use nix::pty::{Winsize, openpty};

use crate::run::Running;
use crate::{Home, LIMIT, within};

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
    let (mut ours, theirs) = open(columns);
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

/// The two ends of a new terminal: what a person has, and what programs have.
#[track_caller]
fn open(columns: u16) -> (File, File) {
    let size = Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap_or_else(|e| panic!("no terminal: {e}"));
    (File::from(pty.master), File::from(pty.slave))
}

/// Nothing that a program here writes.
const END: &[u8] = b"\x00\x1b~end\x00";

fn parser(columns: u16) -> vt100::Parser {
    let size = |n: u16| NonZeroU16::new(n).unwrap_or(NonZeroU16::MIN);
    vt100::Parser::new(size(ROWS), size(columns), 0)
}

/// What a terminal makes of these bytes.
fn show(bytes: Vec<u8>, columns: u16, code: Option<i32>) -> Screen {
    let mut terminal = parser(columns);
    terminal.process(&bytes);
    let screen = terminal.screen();
    let rows: Vec<String> = screen.rows(0, columns).map(|row| row.trim_end().to_owned()).collect();
    let broken = |(number, _): &(usize, &String)| screen.row_wrapped(u16::try_from(*number).unwrap_or(0));
    let overlong = rows.iter().enumerate().filter(broken).map(|(_, row)| row.clone()).collect();
    let text = rows.join("\n").trim_end().to_owned() + "\n";
    Screen { code, text, bytes, overlong }
}

/// Wide enough that no line here is broken.
const COLUMNS: u16 = 250;

/// What Ctrl-C sends.
pub const CTRL_C: &str = "\x03";

/// A terminal with an interactive shell, which leads its session as the shell of a person does. What is typed goes to the
/// program in the foreground, and Ctrl-C interrupts it. Dropping it closes the terminal.
pub struct Terminal {
    _shell: Running,
    keyboard: File,
    screen: Arc<SharedScreen>,
}

#[derive(Default)]
struct SharedScreen {
    text: Mutex<String>,
    changed: Condvar,
}

impl SharedScreen {
    fn lock(&self) -> MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terminal {
    /// A person's: `sh` in the workspace, with `tt` on its path.
    #[track_caller]
    pub fn of_person(home: &Home) -> Self {
        Self::open(home, &["/bin/sh"])
    }

    /// A terminal on which this shell runs.
    #[track_caller]
    pub fn open(home: &Home, shell: &[&str]) -> Self {
        let (mut ours, theirs) = open(COLUMNS);
        let path = format!(
            "{}:/usr/bin:/bin",
            home.tt_path().parent().map_or_else(String::new, |dir| dir.display().to_string())
        );
        let mut command = home.command("setsid");
        command.arg("--ctty").args(shell).current_dir(home.workspace());
        command.env("PATH", path).env("TERM", "xterm").env("NO_COLOR", "1").env("PS1", "$ ");
        let shell = Running::on_terminal(&mut command, &theirs);
        let keyboard = ours.try_clone().unwrap_or_else(|e| panic!("no terminal: {e}"));
        let screen = Arc::<SharedScreen>::default();
        let shown = screen.clone();
        std::thread::spawn(move || {
            let (mut parser, mut some) = (parser(COLUMNS), [0; 4096]);
            // The end is an error, when the last program has closed the terminal.
            while let Ok(n @ 1..) = ours.read(&mut some) {
                parser.process(&some[..n]);
                *shown.lock() = parser.screen().contents();
                shown.changed.notify_all();
            }
        });
        Self { _shell: shell, keyboard, screen }
    }

    /// Types these characters.
    #[track_caller]
    pub fn type_keys(&mut self, keys: &str) {
        let typed = self.keyboard.write_all(keys.as_bytes());
        assert!(typed.is_ok(), "the terminal is gone: {typed:?}");
    }

    /// Types a line and ends it with Enter.
    #[track_caller]
    pub fn type_line(&mut self, line: &str) {
        self.type_keys(&format!("{line}\r"));
    }

    /// Types a command, waits for its end, and returns what it wrote and its exit status.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> (String, i32) {
        let before = self.text();
        self.type_line(line);
        let status = self.status();
        let after = self.text();
        let written = after.strip_prefix(before.trim_end()).unwrap_or(&after).trim_start();
        let written = written.strip_prefix(line).unwrap_or(written);
        (written.rsplit_once("$ echo").map_or(written, |(written, _)| written).trim().to_owned(), status)
    }

    /// The exit status of the last command, once the shell is back.
    #[track_caller]
    pub fn status(&mut self) -> i32 {
        // Numbered by what the screen shows already, so that an earlier answer is not taken for this one.
        let number = self.text().matches("status of").count();
        self.type_line(&format!("echo status of {number} is $?."));
        let mark = format!("status of {number} is ");
        let answer = |text: &str| {
            let digits = |rest: &str| rest.split('.').next().and_then(|digits| digits.parse::<i32>().ok());
            text.split(&mark).skip(1).find_map(digits)
        };
        self.until(|text| answer(text).is_some());
        answer(&self.text()).unwrap_or(-1)
    }

    /// Everything on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().clone()
    }

    /// Waits until the screen shows this.
    #[track_caller]
    pub fn until_shows(&self, expected: &str) {
        self.until(|text| text.contains(expected));
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    pub fn until(&self, is_so: impl Fn(&str) -> bool) {
        let shown = self.screen.changed.wait_timeout_while(self.screen.lock(), LIMIT, |text| !is_so(text));
        let (text, waited) = shown.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "the screen does not show it:\n{}", *text);
    }
}
