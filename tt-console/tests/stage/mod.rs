//! A daemon in the test's process whose members live and die at a word, and the console in a real terminal.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use nix::pty::{Winsize, openpty};
use tt_client::connect::{Client, Settings};
use tt_proto::RoomId;
use tt_proto::paths::Environment;
use tt_proto::requests::{JoinPath, Method, SendMessage, Sent};
use tt_tests::{Cast, Home, InProcess, LIMIT, Running};

/// How many minutes the daemon's time of day is ahead of ours: what happens in a test is new on a slow machine too.
const AHEAD: i64 = 10;

/// How long a screen has to stay as it is to be accepted.
const SETTLED: Duration = Duration::from_millis(700);

pub(crate) struct Stage {
    pub(crate) daemon: Option<InProcess>,
    pub(crate) cast: Arc<Cast>,
    pub(crate) home: Home,
}

impl Stage {
    pub(crate) fn new() -> Self {
        // No other program is needed: the daemon runs here.
        let home = Home::new("/nonexistent/tt", "/nonexistent/ttd");
        let cast = Arc::new(Cast::default());
        let mut options = home.options();
        options.processes = cast.clone();
        options.clock.turn_wall(AHEAD * 60_000);
        Self { daemon: Some(InProcess::start(options)), cast, home }
    }

    /// Stops the daemon.
    pub(crate) fn stop(&mut self) {
        self.daemon = None;
    }

    pub(crate) fn start_again(&mut self) {
        let mut options = self.home.options();
        options.processes = self.cast.clone();
        options.clock.turn_wall(AHEAD * 60_000);
        self.daemon = Some(InProcess::start(options));
    }

    /// A workspace of this name.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        let dir = self.home.path().join(name);
        std::fs::create_dir_all(dir.join(".git")).unwrap();
        dir
    }

    fn settings(&self, id: &str, player: Option<usize>) -> Settings {
        let home = self.home.path().to_str().unwrap().to_owned();
        let mut vars = vec![("HOME", home), ("TT_HARNESS_AGENT_ID", id.to_owned())];
        if let Some(player) = player {
            vars.push(("CLAUDECODE", "1".to_owned()));
            vars.push(("CLAUDE_PID", Cast::player(player).to_string()));
        }
        let mut settings = Settings::from_environment(Environment::of(vars)).unwrap();
        settings.autostart = false;
        settings
    }

    /// Joins a workspace. An agent has a process of its own, a player.
    pub(crate) async fn join(&self, dir: &Path, id: &str, name: &str, player: Option<usize>) -> Actor {
        let mut client = Client::connect(self.settings(id, player)).await.unwrap();
        let join = JoinPath {
            context_path: dir.display().to_string(),
            display_name: Some(name.to_owned()),
            idempotency_key: tt_client::fresh_key(),
            ..Default::default()
        };
        let joined = client.call(join).await.unwrap();
        Actor { room: joined.room_id, client }
    }

    /// The console of a person, in a workspace, on a terminal of this size.
    pub(crate) fn console(&self, dir: &Path, size: (u16, u16)) -> Console {
        let mut command = self.home.command("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_tt-console")]).current_dir(dir);
        command.env("TT_HARNESS_AGENT_ID", "human:alice").env("TT_NO_AUTOSTART", "1");
        command.env("TERM", "xterm-256color").env("TZ", noon());
        Console::start(command, size)
    }
}

/// A member.
pub(crate) struct Actor {
    pub(crate) room: RoomId,
    pub(crate) client: Client,
}

impl Actor {
    pub(crate) async fn call<M: Method>(&mut self, request: impl FnOnce(RoomId) -> M) -> M::Answer {
        self.client.call(request(self.room.clone())).await.unwrap()
    }

    pub(crate) async fn send(&mut self, to: &str, body: &str, is_question: bool) -> Sent {
        let (to, body) = (Some(to.to_owned()), body.to_owned());
        let expects_reply = is_question.then_some(true);
        self.call(|room_id| SendMessage { room_id, body, to, expects_reply, ..Default::default() }).await
    }
}

/// A time zone in which it is about noon, so that what happened hours ago was today.
fn noon() -> String {
    let hour = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() / 3600 % 24).unwrap();
    format!("NOON{:+}", hour - 12)
}

/// The console on a terminal. Dropping it ends it.
pub(crate) struct Console {
    pub(crate) running: Running,
    keyboard: File,
    terminal: PathBuf,
    size: (u16, u16),
    screen: Arc<Screen>,
}

struct Screen {
    parser: Mutex<vt100::Parser>,
    changed: Condvar,
    /// All that was written.
    bytes: Mutex<Vec<u8>>,
}

impl Console {
    fn start(mut command: Command, size: (u16, u16)) -> Self {
        let (columns, rows) = size;
        let winsize = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&winsize), None).unwrap();
        let terminal = nix::unistd::ttyname(&pty.slave).unwrap();
        let (mut ours, theirs) = (File::from(pty.master), File::from(pty.slave));
        let running = Running::on_terminal(&mut command, &theirs);
        let keyboard = ours.try_clone().unwrap();
        let parser = vt100::Parser::new(NonZeroU16::new(rows).unwrap(), NonZeroU16::new(columns).unwrap(), 0);
        let screen = Arc::new(Screen { parser: Mutex::new(parser), changed: Condvar::new(), bytes: Mutex::default() });
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(n @ 1..) = ours.read(&mut some) {
                shown.bytes.lock().unwrap().extend(&some[..n]);
                shown.parser.lock().unwrap().process(&some[..n]);
                shown.changed.notify_all();
            }
        });
        Self { running, keyboard, terminal, size, screen }
    }

    #[track_caller]
    pub(crate) fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Gives the terminal another size.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        let size = |n: u16| NonZeroU16::new(n).unwrap();
        self.screen.parser.lock().unwrap().screen_mut().set_size(size(rows), size(columns));
        self.size = (columns, rows);
        let mut stty = Command::new("stty");
        stty.arg("-F").arg(&self.terminal).args(["cols", &columns.to_string(), "rows", &rows.to_string()]);
        assert!(stty.status().unwrap().success());
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.screen.bytes.lock().unwrap().clone()
    }

    /// Waits until the screen shows this.
    #[track_caller]
    pub(crate) fn until_shows(&self, expected: &str) {
        self.until(|text| text.contains(expected));
    }

    #[track_caller]
    pub(crate) fn until(&self, is_so: impl Fn(&str) -> bool) {
        let shown = self.screen.changed.wait_timeout_while(self.screen.parser.lock().unwrap(), LIMIT, |parser| {
            !is_so(&parser.screen().contents())
        });
        let (parser, waited) = shown.unwrap();
        assert!(!waited.timed_out(), "the screen does not show it:\n{}", parser.screen().contents());
    }

    /// Ends it with a key, and returns what is on the screen then.
    pub(crate) fn quit(mut self) -> String {
        self.keys("q");
        let Self { running, screen, .. } = self;
        assert_eq!(running.finish().code, Some(0));
        let parser = screen.parser.lock().unwrap();
        parser.screen().contents()
    }

    /// Compares the screen, text and colours, with what is kept under this name. It may still be changing.
    #[track_caller]
    pub(crate) fn compare(&self, stage: &Stage, name: &str) {
        let name = format!("{name}-{}", self.size.0);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screens").join(format!("{name}.txt"));
        if std::env::var_os("ACCEPT_SCREENS").is_some() {
            std::thread::sleep(SETTLED);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            return std::fs::write(file, picture(self.screen.parser.lock().unwrap().screen(), &stage.home)).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap_or_default();
        let parser = self.screen.parser.lock().unwrap();
        let is_other = |parser: &mut vt100::Parser| picture(parser.screen(), &stage.home) != kept;
        let (parser, waited) = self.screen.changed.wait_timeout_while(parser, LIMIT, is_other).unwrap();
        assert!(
            !waited.timed_out(),
            "tests/screens/{name}.txt is not what is shown. It was:\n{kept}\nIt is:\n{}\nIf that is meant: \
             ACCEPT_SCREENS=1 cargo test -p tt-console",
            picture(parser.screen(), &stage.home)
        );
    }
}

/// The text of a screen, and below it the style of each character: b bold, d dim, r reversed, and the first letter of a colour.
fn picture(screen: &vt100::Screen, home: &Home) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let (mut text, mut styles) = (String::new(), String::new());
    for row in screen.rows(0, columns) {
        text.push_str(settled(&row, home).trim_end());
        text.push('\n');
    }
    for row in 0..rows {
        let mut line = String::new();
        for column in 0..columns {
            let Some(cell) = screen.cell(row, column) else { continue };
            line.push(match cell.fgcolor() {
                vt100::Color::Default if cell.inverse() => 'r',
                vt100::Color::Default if cell.bold() => 'b',
                vt100::Color::Default if cell.dim() => 'd',
                vt100::Color::Default => ' ',
                vt100::Color::Idx(1) => 'R',
                vt100::Color::Idx(2) => 'G',
                vt100::Color::Idx(3) => 'Y',
                _ => '?',
            });
        }
        styles.push_str(line.trim_end());
        styles.push('\n');
    }
    format!("{text}== styles\n{styles}")
}

/// What differs from run to run, made the same in the same width: the home, ids and times of day.
fn settled(text: &str, home: &Home) -> String {
    let mut text = text.to_owned();
    for path in [home.path().canonicalize().unwrap(), home.path().to_owned()] {
        let path = path.display().to_string();
        text = text.replace(&path, &format!("{:x<width$}", "/home/someone", width = path.len()));
    }
    let mut chars: Vec<char> = text.chars().collect();
    for at in 0..chars.len().saturating_sub(4) {
        let is_clock = (0..5).all(|i| if i == 2 { chars[at + i] == ':' } else { chars[at + i].is_ascii_digit() });
        if is_clock {
            chars[at..at + 5].copy_from_slice(&['1', '2', ':', '3', '4']);
        }
    }
    chars.into_iter().collect()
}
