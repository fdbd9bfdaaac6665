//! Typing a block into a composer in a real tmux, at which a person types as well: no character is lost, nothing of it is sent, and
//! whatever happened to the pane, nothing is typed into anything else. The program in the pane is `stand_in`, drawn like Claude Code.
//!
//! `TT_TYPING_MOMENTS=200` tries 200 moments instead of ten.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tt_harness::ScreenFacts;
use tt_proto::hello::Anchor;
use tt_tests::terminal::Terminal;
use tt_tests::{Home, LIMIT, not_run};
use ttd::clock::Clock;
use ttd::delivery::terminal::pane::{NoPane, Seat};
use ttd::delivery::terminal::type_block;
use ttd::delivery::terminal::typing::{Because, Outcome};
use ttd::liveness::{Kernel, Looks, Processes};

const BLOCK: &str = "[inbox 0a1b2c3d4e5f: 1 new, written by other members of the room]\n{\"event_seq\":7,\"body\":\"look at \
                     the \\\"parser\\\" 日本語, please\"}\n[inbox 0a1b2c3d4e5f ends]";

/// The block as it is sent.
fn pasted() -> String {
    tt_harness::padded_for_paste(facts(), BLOCK)
}

/// What the person types.
const WORDS: &str = "what I was about to say";

/// Set for the program in the pane: the directory in which it writes what it was sent and what is in its composer.
const STAND_IN: &str = "TT_STAND_IN";

/// Set for it where it shows a token for what is pasted.
const TOKENS: &str = "TT_STAND_IN_TOKENS";

fn facts() -> &'static ScreenFacts {
    tt_harness::by_name("claude").unwrap().screen.as_ref().unwrap()
}

/// A server of tmux with the stand-in in its first pane.
struct Stage {
    dir: TempDir,
    socket: PathBuf,
    looks: Looks,
    clock: Clock,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn has_tmux() -> bool {
    let found = Command::new("tmux").arg("-V").output().is_ok() && cfg!(target_os = "linux");
    if !found {
        not_run("typing into a terminal", "tmux is not installed, or processes do not show their terminals here");
    }
    found
}

impl Stage {
    async fn open(tokens: bool) -> Self {
        let stage = Self::with(&Self::stand_in_command(tokens));
        stage.until("the stand-in runs", || stage.composer().is_some()).await;
        stage
    }

    fn with(command: &str) -> Self {
        // The address of a socket must be short.
        let dir = tempfile::Builder::new().prefix("tt").tempdir_in("/tmp").unwrap();
        let socket = dir.path().join("s");
        let stage = Self { socket, looks: Looks::new(Arc::new(Kernel::new())), clock: Clock::new(), dir };
        stage.start_server(command);
        stage
    }

    fn start_server(&self, command: &str) {
        let exported = format!("{STAND_IN}={}", self.dir.path().display());
        self.tmux(&["new-session", "-d", "-x", "120", "-y", "40", "-e", &exported, command]);
    }

    fn stand_in_command(tokens: bool) -> String {
        let program = std::env::current_exe().unwrap();
        let tokens = if tokens { format!("{TOKENS}=1 ") } else { String::new() };
        format!("exec env {tokens}{} --ignored --exact --nocapture terminal_way::stand_in", program.display())
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(&self.socket).args(["-f", "/dev/null", "-u"]).args(arguments);
        let output = tmux.env_remove("TMUX").output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    async fn until(&self, what: &str, mut so: impl FnMut() -> bool) {
        let give_up = Instant::now() + LIMIT;
        while !so() {
            assert!(Instant::now() < give_up, "it never happened: {what}\n{}", self.tmux(&["capture-pane", "-p"]));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What is in the composer of the stand-in.
    fn composer(&self) -> Option<String> {
        std::fs::read_to_string(self.dir.path().join("composer")).ok()
    }

    /// What the stand-in was sent.
    fn sent(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.dir.path().join("sent")).unwrap_or_default();
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The process that the first pane was started with.
    fn process(&self) -> Anchor {
        let pid: u32 = self.tmux(&["display-message", "-p", "-t", "%0", "#{pane_pid}"]).trim().parse().unwrap();
        let kernel = Kernel::new();
        kernel.anchor(&kernel.get(pid).unwrap())
    }

    async fn seat(&self) -> Seat {
        Seat::find(&self.looks, &self.process()).await.unwrap()
    }

    async fn type_into(&self, seat: &Seat) -> Outcome {
        type_block(seat, facts(), ("tt-test", BLOCK), false, &self.looks, &self.clock).await
    }

    /// A person who is attached.
    fn attach(&self, home: &Home) -> Terminal {
        let socket = self.socket.to_str().unwrap();
        Terminal::open(home, &["tmux", "-u", "-S", socket, "attach"])
    }

    /// Nothing was typed by us that is left anywhere.
    #[track_caller]
    fn assert_untouched(&self) {
        assert_eq!((self.composer().as_deref(), self.sent().len()), (Some(""), 0));
        assert_eq!(self.tmux(&["list-buffers"]), "", "what was to be pasted is not kept");
    }
}

fn home() -> Home {
    Home::new(env!("CARGO_BIN_EXE_tt"), env!("CARGO_BIN_EXE_ttd"))
}

/// A generator of numbers that is the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A person begins to type at this moment, while a block is typed. Returns whether the block was sent.
async fn moment(seed: u64, begins: Duration) -> bool {
    let home = home();
    let stage = Stage::open(seed % 2 == 1).await;
    let mut person = stage.attach(&home);
    let attached = || stage.tmux(&["list-clients", "-F", "#{client_width}"]).trim() == "250";
    stage.until("somebody is attached", attached).await;
    let seat = stage.seat().await;
    // What the person did last must be a while ago: to attach counts.
    let last =
        || stage.tmux(&["display-message", "-p", "-t", "%0", "#{session_activity}"]).trim().parse::<i64>().unwrap();
    stage.until("it is quiet", || stage.clock.now().wall.as_millis() / 1000 - last() > 4).await;

    let mut numbers = Numbers(seed);
    let typing = std::thread::spawn(move || {
        std::thread::sleep(begins);
        for c in WORDS.chars() {
            person.type_keys(&c.to_string());
            std::thread::sleep(Duration::from_millis(10 + numbers.below(150)));
        }
        person
    });
    let outcome = stage.type_into(&seat).await;
    let person = tokio::task::spawn_blocking(|| typing.join().unwrap()).await.unwrap();
    let is_whole = || stage.composer().as_deref() == Some(WORDS);
    stage.until(&format!("all that was typed is there: seed {seed}, {outcome:?}"), is_whole).await;
    let sent = stage.sent();
    match outcome {
        Outcome::Entered => assert_eq!(sent, [pasted()], "seed {seed}"),
        Outcome::NotNow(Because::Draft) => assert_eq!(sent, [""; 0], "seed {seed}"),
        other => panic!("seed {seed}: {other:?}"),
    }
    drop(person);
    !sent.is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_types_at_any_moment_loses_no_character_and_sends_nothing_of_it() {
    if !has_tmux() {
        return;
    }
    let moments: u64 = std::env::var_os("TT_TYPING_MOMENTS").map_or(10, |n| n.to_str().unwrap().parse().unwrap());
    let (mut sent, mut numbers) = (0, Numbers(moments));
    for batch in (0..moments).collect::<Vec<u64>>().chunks(10) {
        // Before it is pasted, between that and Enter, and after it.
        let begins = |seed: &u64| Duration::from_millis(seed % 10 * 130 + numbers.below(130));
        let batch: Vec<(u64, Duration)> = batch.iter().copied().zip(batch.iter().map(begins)).collect();
        let running: Vec<_> = batch.into_iter().map(|(seed, begins)| tokio::spawn(moment(seed, begins))).collect();
        for moment in running {
            sent += u64::from(moment.await.unwrap());
        }
    }
    assert!(sent > 0 && sent < moments, "{sent} of {moments} blocks were sent");
    let (longest, median) = window().await;
    eprintln!(
        "{moments} moments, {sent} blocks sent; from the last look to Enter {median:.1?} (at most {longest:.1?}), in which a key \
         keeps Enter from being pressed"
    );
}

/// How long it takes from a look to what is typed after it: at most, and as a rule.
async fn window() -> (Duration, Duration) {
    use ttd::delivery::terminal::tmux::{Act, Guard};
    let stage = Stage::open(false).await;
    let seat = stage.seat().await;
    let mut times = Vec::new();
    for _ in 0..21 {
        let look = seat.tmux.look(&seat.pane).await.unwrap();
        let began = Instant::now();
        let guard = Guard::Untouched(look.mark);
        assert!(seat.is_taken(&stage.looks).await);
        assert!(seat.tmux.act(&seat.pane, "none", &guard, &Act::Keys(vec![("C-u", 1)])).await.unwrap());
        times.push(began.elapsed());
    }
    times.sort();
    (times[20], times[10])
}

#[tokio::test]
async fn a_key_between_a_look_and_what_is_typed_after_it_keeps_it_from_being_typed() {
    if !has_tmux() {
        return;
    }
    use ttd::delivery::terminal::tmux::{Act, Guard};
    let home = home();
    let stage = Stage::open(false).await;
    let mut person = stage.attach(&home);
    let seat = stage.seat().await;
    let last = |look: &ttd::delivery::terminal::tmux::Look| look.mark.last_key();
    let mut look = seat.tmux.look(&seat.pane).await.unwrap();
    let give_up = Instant::now() + LIMIT;
    while last(&look).is_none_or(|last| stage.clock.now().wall.as_millis() / 1000 <= i64::try_from(last).unwrap()) {
        assert!(Instant::now() < give_up, "nobody is attached");
        look = seat.tmux.look(&seat.pane).await.unwrap();
    }
    person.type_keys("x");
    stage.until("it was typed", || stage.composer().as_deref() == Some("x")).await;
    let enter = Act::Keys(vec![("Enter", 1)]);
    let guard = Guard::Untouched(look.mark.clone());
    assert_eq!(seat.tmux.act(&seat.pane, "none", &guard, &enter).await, Ok(false));
    assert_eq!(seat.tmux.act(&seat.pane, "none", &Guard::SamePane(look.mark), &enter).await, Ok(true));
    stage.until("it was sent", || stage.sent() == ["x"]).await;
}

#[tokio::test]
async fn a_block_is_typed_where_nobody_is_attached_in_copy_mode_and_behind_another_pane() {
    if !has_tmux() {
        return;
    }
    let stage = Stage::open(false).await;
    stage.tmux(&["split-window", "-d", "-t", "%0", "cat"]);
    stage.tmux(&["copy-mode", "-t", "%0"]);
    stage.tmux(&["select-pane", "-t", "%1"]);
    stage.tmux(&["resize-pane", "-Z", "-t", "%1"]);
    let seat = stage.seat().await;
    let outcome = stage.type_into(&seat).await;
    assert_eq!(outcome, Outcome::Entered);
    assert_eq!((stage.sent(), stage.composer().as_deref()), (vec![pasted()], Some("")));
    assert_eq!(stage.tmux(&["display-message", "-p", "-t", "%0", "#{pane_in_mode}"]).trim(), "0");
    assert_eq!(stage.tmux(&["capture-pane", "-p", "-t", "%1"]).trim(), "", "the other pane was left alone");
}

#[tokio::test]
async fn nothing_is_typed_where_more_panes_would_get_it_or_there_is_a_draft() {
    if !has_tmux() {
        return;
    }
    let stage = Stage::open(false).await;
    stage.tmux(&["split-window", "-d", "-t", "%0", "cat"]);
    stage.tmux(&["set-option", "-w", "synchronize-panes", "on"]);
    let seat = stage.seat().await;
    assert_eq!(stage.type_into(&seat).await, Outcome::NotNow(Because::NoComposer));
    stage.assert_untouched();
    assert_eq!(stage.tmux(&["capture-pane", "-p", "-t", "%1"]).trim(), "");
    stage.tmux(&["set-option", "-w", "synchronize-panes", "off"]);
    stage.tmux(&["send-keys", "-t", "%0", "-l", "fix the \"parser\" \\"]);
    stage.until("the draft is shown", || stage.composer().is_some_and(|text| text.ends_with('\\'))).await;
    assert_eq!(stage.type_into(&seat).await, Outcome::NotNow(Because::Draft));
    assert_eq!((stage.composer().unwrap().as_str(), stage.sent().len()), ("fix the \"parser\" \\", 0));
}

/// A person has stopped the harness with Ctrl-Z, ended it, or runs something else in its pane.
#[tokio::test]
async fn nothing_is_typed_into_what_took_the_place_of_the_process() {
    if !has_tmux() {
        return;
    }
    // In a shell with job control, as a person would start it.
    let stage = Stage::with("env PS1= sh -i");
    let command = Stage::stand_in_command(false).replacen("exec ", "", 1);
    stage.tmux(&["send-keys", "-t", "%0", "-l", &command]);
    stage.tmux(&["send-keys", "-t", "%0", "Enter"]);
    stage.until("the stand-in runs", || stage.composer().is_some()).await;
    let pid: u32 = std::fs::read_to_string(stage.dir.path().join("pid")).unwrap().parse().unwrap();
    let kernel = Kernel::new();
    let process = kernel.anchor(&kernel.get(pid).unwrap());
    let seat = Seat::find(&stage.looks, &process).await.unwrap();
    assert!(seat.is_taken(&stage.looks).await);

    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let found = || async { Seat::find(&stage.looks, &process).await.map(drop) };
    let give_up = Instant::now() + LIMIT;
    while found().await != Err(NoPane::InBackground) {
        assert!(Instant::now() < give_up, "the shell does not take the terminal back");
    }
    assert!(!seat.is_taken(&stage.looks).await);
    let before = stage.tmux(&["capture-pane", "-p", "-t", "%0"]);
    assert!(matches!(stage.type_into(&seat).await, Outcome::Failed(_)));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    stage.until("it ended", || kernel.get(pid.as_raw().cast_unsigned()).is_err()).await;
    assert_eq!(found().await, Err(NoPane::Ended));
    assert!(matches!(stage.type_into(&seat).await, Outcome::Failed(_)));
    let after = stage.tmux(&["capture-pane", "-p", "-t", "%0"]);
    assert!(!after.contains("inbox"), "{before}\n{after}");
    stage.tmux(&["respawn-pane", "-k", "-t", "%0", "cat"]);
    assert!(matches!(stage.type_into(&seat).await, Outcome::Failed(_)));
    assert_eq!(stage.tmux(&["capture-pane", "-p", "-t", "%0"]).trim(), "");
    stage.tmux(&["kill-pane", "-t", "%0"]);
    assert!(matches!(stage.type_into(&seat).await, Outcome::Failed(_)));
}

#[tokio::test]
async fn nothing_is_typed_into_the_panes_of_a_server_that_was_started_again() {
    if !has_tmux() {
        return;
    }
    let stage = Stage::open(false).await;
    let (seat, process) = (stage.seat().await, stage.process());
    stage.tmux(&["kill-server"]);
    stage.until("the server ended", || stage.tmux(&["list-panes"]).is_empty()).await;
    assert!(matches!(stage.type_into(&seat).await, Outcome::Failed(_)));
    stage.start_server("cat");
    // Its first pane has the same name.
    assert!(!stage.tmux(&["list-panes", "-t", "%0"]).is_empty());
    assert!(matches!(stage.type_into(&seat).await, Outcome::Failed(_)));
    assert!(Seat::find(&stage.looks, &process).await.is_err());
    assert_eq!(stage.tmux(&["capture-pane", "-p", "-t", "%0"]).trim(), "");
}

/// Not a test: the program in the pane, drawn like the composer of Claude Code.
#[test]
#[ignore = "the program that the tests here run in a terminal"]
fn stand_in() {
    let Some(dir) = std::env::var_os(STAND_IN).map(PathBuf::from) else { return };
    let mut stand_in = StandIn { tokens: std::env::var_os(TOKENS).is_some(), ..StandIn::default() };
    let raw = nix::sys::termios::tcgetattr(std::io::stdin()).map(|mut attributes| {
        nix::sys::termios::cfmakeraw(&mut attributes);
        attributes
    });
    nix::sys::termios::tcsetattr(std::io::stdin(), nix::sys::termios::SetArg::TCSANOW, &raw.unwrap()).unwrap();
    nix::unistd::write(std::io::stdout(), b"\x1b[?2004h").unwrap();
    std::fs::write(dir.join("pid"), std::process::id().to_string()).unwrap();
    stand_in.draw(&dir);
    let (mut pending, mut some) = (Vec::new(), [0; 4096]);
    while let Ok(n @ 1..) = std::io::stdin().read(&mut some) {
        pending.extend(&some[..n]);
        while let Some(used) = stand_in.read(&pending, &dir) {
            pending.drain(..used);
        }
        stand_in.draw(&dir);
    }
}

/// One character, or a text behind a token.
type Piece = String;

#[derive(Default)]
struct StandIn {
    tokens: bool,
    pasted: usize,
    pieces: Vec<Piece>,
    cursor: usize,
}

const PASTE: (&[u8], &[u8]) = (b"\x1b[200~", b"\x1b[201~");

impl StandIn {
    fn insert(&mut self, piece: Piece) {
        self.pieces.insert(self.cursor, piece);
        self.cursor += 1;
    }

    /// Reads one key or one paste, and returns how many bytes that were. None if it is not there whole.
    fn read(&mut self, bytes: &[u8], dir: &Path) -> Option<usize> {
        if bytes.starts_with(PASTE.0) {
            let end = bytes.windows(PASTE.1.len()).position(|window| window == PASTE.1)?;
            let text = String::from_utf8_lossy(&bytes[PASTE.0.len()..end]).replace('\r', "\n");
            match self.tokens {
                true => {
                    self.pasted += 1;
                    self.insert(text);
                }
                false => text.chars().for_each(|c| self.insert(c.to_string())),
            }
            return Some(end + PASTE.1.len());
        }
        for (key, name) in
            [(&b"\x1b[D"[..], 'l'), (b"\x1bOD", 'l'), (b"\x1b[C", 'r'), (b"\x1bOC", 'r'), (b"\x1b[3~", 'd')]
        {
            if bytes.starts_with(key) {
                match name {
                    'l' => self.cursor = self.cursor.saturating_sub(1),
                    'r' => self.cursor = (self.cursor + 1).min(self.pieces.len()),
                    _ if self.cursor < self.pieces.len() => drop(self.pieces.remove(self.cursor)),
                    _ => {}
                }
                return Some(key.len());
            }
        }
        match bytes.first()? {
            b'\r' => {
                let text = self.pieces.concat();
                let mut log = std::fs::OpenOptions::new().create(true).append(true).open(dir.join("sent")).unwrap();
                writeln!(log, "{}", serde_json::to_string(&text).unwrap()).unwrap();
                (self.pieces, self.cursor) = (Vec::new(), 0);
                Some(1)
            }
            0x15 => {
                let start = self.pieces[..self.cursor].iter().rposition(|piece| piece == "\n").map_or(0, |at| at + 1);
                self.pieces.drain(start..self.cursor);
                self.cursor = start;
                Some(1)
            }
            0x7f => {
                if self.cursor > 0 {
                    self.cursor -= 1;
                    self.pieces.remove(self.cursor);
                }
                Some(1)
            }
            0x1b if bytes.len() < 3 => None,
            _ => {
                let length = (1..=bytes.len().min(4)).find(|n| std::str::from_utf8(&bytes[..*n]).is_ok())?;
                self.insert(String::from_utf8_lossy(&bytes[..length]).into_owned());
                Some(length)
            }
        }
    }

    fn draw(&self, dir: &Path) {
        // In one step, so that nobody reads a half.
        std::fs::write(dir.join("new"), self.pieces.concat()).unwrap();
        std::fs::rename(dir.join("new"), dir.join("composer")).unwrap();
        let size = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        let (mut lines, mut column, mut cursor) = (vec![String::new()], 0, (0, 0));
        for (at, piece) in self.pieces.iter().chain([&String::new()]).enumerate() {
            if at == self.cursor {
                cursor = (column, lines.len() - 1);
            }
            let is_token = piece.chars().count() > 1;
            let lines_in_it = piece.matches('\n').count();
            let shown =
                if is_token { format!("[Pasted text #{} +{lines_in_it} lines]", self.pasted) } else { piece.clone() };
            for c in shown.chars() {
                if c == '\n' || column + 2 > size - 4 {
                    lines.push(String::new());
                    column = 0;
                }
                if c != '\n' {
                    lines.last_mut().unwrap().push(c);
                    column += if c.is_ascii() { 1 } else { 2 };
                }
            }
        }
        let rule = "─".repeat(size.min(40));
        let mut screen = format!("\x1b[?25l\x1b[2J\x1b[Hready\r\n{rule}\r\n");
        for (at, line) in lines.iter().enumerate() {
            screen.push_str(&format!("{}{line}\r\n", if at == 0 { "❯ " } else { "  " }));
        }
        screen.push_str(&format!("{rule}\r\n  manual mode\x1b[{};{}H", cursor.1 + 3, cursor.0 + 3));
        // In one piece, so that nobody sees a half.
        nix::unistd::write(std::io::stdout(), screen.as_bytes()).unwrap();
    }
}
