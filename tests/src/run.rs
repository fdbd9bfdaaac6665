//! Running programs: started, waited for by the event of their exit, and ended when a test is over.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeWriter, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde_json::Value;

use crate::LIMIT;

/// A program that has ended, and all it wrote.
#[derive(Debug, Clone)]
pub struct Finished {
    /// None when a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// Expects success.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Standard output as one JSON object.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// The typed error on standard error, after a failure with this exit code that left standard output empty.
    #[track_caller]
    pub fn refused(&self, code: i32) -> Value {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.stdout, "", "standard output is for answers");
        let error: Value = serde_json::from_str(&self.stderr).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"));
        for field in ["error", "message", "hint"] {
            assert!(error[field].as_str().is_some_and(|text| !text.is_empty()), "no {field} in {error}");
        }
        error
    }

    /// The same for a person: text on standard error, with the hint among it.
    #[track_caller]
    pub fn refused_in_text(&self, code: i32, hint: &str) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(code), ""), "{self:?}");
        assert!(self.stderr.starts_with("tt: ") && self.stderr.contains(hint), "{self:?}");
    }
}

/// A program under way. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    exited: Receiver<()>,
    stdout: Option<Receiver<String>>,
    stderr: Option<Receiver<String>>,
    shown: String,
    reaped: bool,
}

impl Running {
    /// Starts the command with its output collected. Standard input is null unless the command says otherwise.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        Self::spawn(command.stdin(Stdio::null()))
    }

    /// Starts the command with the standard input it has.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        Self::with_stdout(command, Stdio::piped())
    }

    /// Starts the command with its standard output given: the end of a pipe that the test reads, lets run full, or closes.
    #[track_caller]
    pub fn writing_to(command: &mut Command, stdout: impl Into<Stdio>) -> Self {
        Self::talking_to(command.stdin(Stdio::null()), stdout)
    }

    /// Starts the command with the standard input it has, and with its standard output given.
    #[track_caller]
    pub fn talking_to(command: &mut Command, stdout: impl Into<Stdio>) -> Self {
        let running = Self::with_stdout(command, stdout.into());
        // The command keeps its end of the pipe open for as long as it could be started again.
        command.stdout(Stdio::null());
        running
    }

    /// Starts the command on a terminal: all it reads and writes is there.
    #[track_caller]
    pub fn on_terminal(command: &mut Command, terminal: &File) -> Self {
        let end = || terminal.try_clone().map_or_else(|e| panic!("no terminal: {e}"), Stdio::from);
        let running = Self::with_streams(command.stdin(end()), end(), end());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        running
    }

    #[track_caller]
    fn with_stdout(command: &mut Command, stdout: Stdio) -> Self {
        Self::with_streams(command, stdout, Stdio::piped())
    }

    #[track_caller]
    fn with_streams(command: &mut Command, stdout: Stdio, stderr: Stdio) -> Self {
        let shown = format!("{command:?}");
        command.stdout(stdout).stderr(stderr);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
        let (sender, exited) = mpsc::channel();
        let pid = Pid::from_raw(child.id().try_into().unwrap_or(i32::MAX));
        // The exit is seen but not reaped: the pid stays this child's for as long as this value lives.
        std::thread::spawn(move || {
            while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::errno::Errno::EINTR) {}
            sender.send(())
        });
        let (stdout, stderr) = (child.stdout.take().map(collect), child.stderr.take().map(collect));
        Self { child, exited, stdout, stderr, shown, reaped: false }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The writing end of its standard input, where the command has one.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    pub fn signal(&self, signal: Signal) {
        if !self.reaped {
            let _ = kill(Pid::from_raw(self.child.id().try_into().unwrap_or(i32::MAX)), signal);
        }
    }

    /// Whether it ended, waiting for that no longer than `limit`.
    pub fn ended_within(&self, limit: Duration) -> bool {
        !matches!(self.exited.recv_timeout(limit), Err(mpsc::RecvTimeoutError::Timeout))
    }

    /// Waits for it to end by itself.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        let ended = self.ended_within(LIMIT);
        if !ended {
            self.signal(Signal::SIGKILL);
        }
        let status = self.child.wait();
        self.reaped = true;
        let text = |stream: Option<Receiver<String>>| {
            stream.map(|s| s.recv_timeout(LIMIT).unwrap_or_else(|_| "(its output stayed open)".into()))
        };
        let (stdout, stderr) = (text(self.stdout.take()), text(self.stderr.take()));
        let code = status.ok().and_then(|status| status.code());
        let finished = Finished { code, stdout: stdout.unwrap_or_default(), stderr: stderr.unwrap_or_default() };
        assert!(ended, "still running after {LIMIT:?}: {}: {finished:?}", self.shown);
        finished
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, text) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        sender.send(String::from_utf8_lossy(&bytes).into_owned())
    });
    text
}

/// The lines a program writes, as they come.
#[derive(Debug)]
pub struct Lines(Receiver<String>);

impl Lines {
    /// Reads from now on. A line that was broken off is left out.
    pub fn of(stream: impl Read + Send + 'static) -> Self {
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok() && line.ends_with('\n') {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Self(lines)
    }

    /// The next line; none when there are no more.
    #[track_caller]
    pub fn next(&self) -> Option<String> {
        match self.0.recv_timeout(LIMIT) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line came in {LIMIT:?}"),
        }
    }

    /// The next line, which is a JSON object.
    #[track_caller]
    pub fn json(&self) -> Value {
        let line = self.next().unwrap_or_else(|| panic!("there are no more lines"));
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    }

    /// All lines up to the end, each a JSON object.
    #[track_caller]
    pub fn all(&self) -> Vec<Value> {
        let parse = |line: String| serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        std::iter::from_fn(|| self.next()).map(parse).collect()
    }

    /// Whether no line is there at this moment.
    pub fn silent(&self) -> bool {
        self.0.try_recv().is_err()
    }
}

/// Waits until a pipe that nobody reads takes no more: whoever writes to it stands still from then on.
#[track_caller]
pub fn wait_until_full(pipe: &PipeWriter) {
    let give_up = Instant::now() + LIMIT;
    let mut end = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
    while poll(&mut end, PollTimeout::ZERO) != Ok(0) {
        assert!(Instant::now() < give_up, "nobody fills the pipe");
        std::thread::yield_now();
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn finish(command: &mut Command) -> Finished {
    Running::start(command).finish()
}
