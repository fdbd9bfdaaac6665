//! The terminal: entered and left in one place, so that it is given back as it was, also after a panic.

use std::io::{BufWriter, Stdout, Write};
use std::process::{Command, Stdio};

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use tt_proto::escape::escape_text;
use tt_proto::paths::Environment;

pub(crate) type Screen = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// How many bytes of a frame are gathered before they are written.
const FRAME_BYTES: usize = 64 * 1024;

/// Takes the terminal. A panic gives it back before it is reported.
pub(crate) fn enter() -> std::io::Result<Screen> {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        leave();
        report(panic);
    }));
    take()?;
    screen()
}

fn screen() -> std::io::Result<Screen> {
    Terminal::new(CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, std::io::stdout())))
}

/// Forgets what is on the terminal, so that the next frame draws all of it. `Terminal::clear` would ask the terminal where its cursor
/// is, and a terminal that was just given back may not answer.
pub(crate) fn renew(old: &mut Screen) -> std::io::Result<()> {
    execute!(std::io::stdout(), Clear(ClearType::All))?;
    *old = screen()?;
    Ok(())
}

fn take() -> std::io::Result<()> {
    enable_raw_mode()?;
    execute!(std::io::stdout(), EnterAlternateScreen, EnableMouseCapture, EnableBracketedPaste)
}

/// Gives the terminal back. A terminal that is gone needs nothing.
pub(crate) fn leave() {
    let _ = execute!(std::io::stdout(), DisableBracketedPaste, DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Gives the terminal back for as long as something else has it.
pub(crate) fn lend<T>(screen: &mut Screen, work: impl FnOnce() -> T) -> std::io::Result<T> {
    leave();
    let result = work();
    take()?;
    renew(screen)?;
    Ok(result)
}

/// Stops this program as a shell expects it of Ctrl-Z, and returns when it goes on.
pub(crate) fn stop() {
    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
}

/// Runs a program on the terminal. A failure is left on the screen until it was read.
pub(crate) fn run(program: &mut Command) {
    let problem = match program.status() {
        Ok(status) if status.success() => return,
        Ok(_) => String::new(),
        Err(e) => format!("{}: {e}\n", program.get_program().display()),
    };
    let _ = write!(std::io::stderr(), "{problem}press Enter to go back to the console ");
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Puts a text into the clipboard of the terminal.
pub(crate) fn copy(text: &str) -> std::io::Result<()> {
    send(&format!("\x1b]52;c;{}\x07", base64(text.as_bytes())))
}

/// Rings, and tells the desktop where that is possible.
pub(crate) fn alert(env: &Environment, text: &str) -> std::io::Result<()> {
    let text = escape_text(text);
    let is_desktop = ["WAYLAND_DISPLAY", "DISPLAY"].iter().any(|name| env.get(name).is_some());
    let mut notify = Command::new("notify-send");
    notify.args(["--", "Talking Stick", &text]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if is_desktop && let Ok(mut child) = notify.spawn() {
        std::thread::spawn(move || child.wait());
        return send("\x07");
    }
    // A semicolon would begin another field.
    let text = text.replace(';', ",");
    let is_777 = env.get_str("TERM").is_some_and(|term| term.starts_with("rxvt") || term.starts_with("foot"));
    match is_777 || env.get("VTE_VERSION").is_some() {
        true => send(&format!("\x07\x1b]777;notify;Talking Stick;{text}\x07")),
        false => send(&format!("\x07\x1b]9;{text}\x07")),
    }
}

fn send(sequence: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    out.write_all(sequence.as_bytes())?;
    out.flush()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clipboard_gets_what_was_copied() {
        for (plain, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }
}
