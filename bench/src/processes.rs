//! Whole processes: what a person or an agent waits for when it runs `tt`.

use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::unistd::Pid;

use crate::limits::{BODY, spawn};
use crate::samples::{Samples, now};
use crate::scratch::{Player, Scratch};
use crate::table::{Row, Target};
use crate::{Effort, Fallible};

/// Rounds that do not count.
const WARM_UP: usize = 10;

/// A daemon with two members, one of whom is about to send.
async fn two_members() -> Fallible<Scratch> {
    let scratch = Scratch::serving().await?;
    scratch.http_member("bench:sender")?;
    scratch.http_member("bench:reader")?;
    Ok(scratch)
}

const SEND: [&str; 4] = ["msg", "send", "bench:reader", BODY];

/// Runs a program to its end, silently, and adds how long that took.
fn sample(mut command: Command, samples: &mut Samples) -> Fallible<()> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    time(command, samples)
}

/// Runs a program to its end with the input and output it has, and adds how long that took.
fn time(mut command: Command, samples: &mut Samples) -> Fallible<()> {
    let from = now();
    let ended = command.status()?;
    let until = now();
    if !ended.success() {
        return Err(format!("{command:?}: {ended}").into());
    }
    samples.add(from, until);
    Ok(())
}

/// `tt msg send` from its start to its end: by somebody whose name is given, and by a session of a harness.
pub(crate) async fn whole_send(effort: Effort) -> Fallible<Vec<Row>> {
    let scratch = two_members().await?;
    let [mut named, mut claude, mut spawned] = [(); 3].map(|()| Samples::default());
    sample(scratch.tt_in_claude(&["join"])?, &mut Samples::default())?;
    for round in 0..WARM_UP + effort.of(500, 100) {
        if round == WARM_UP {
            [named, claude, spawned] = [(); 3].map(|()| Samples::default());
        }
        spawn(&scratch, &mut spawned)?;
        sample(scratch.tt("bench:sender", &SEND)?, &mut named)?;
        sample(scratch.tt_in_claude(&SEND)?, &mut claude)?;
    }
    let mut rows = Vec::new();
    for (name, what, samples) in
        [("tt-send", "tt msg send", &named), ("tt-send-claude", "tt msg send by a session of Claude Code", &claude)]
    {
        let row = Row::times(name, &format!("{what}, whole process"), samples, Target::MostTimes(3.3));
        rows.push(row.against("/bin/true p50", spawned.p50()));
        // A time says as much about the machine as about us, and this one is near its target: no reason to fail a quick run.
        if !effort.quick {
            let name = format!("{name}-time");
            rows.push(Row::times(&name, &format!("{what}, as a time"), samples, Target::Most(3_000.0)));
        }
    }
    Ok(rows)
}

const HOOK_INPUT: &str = r#"{"session_id":"bench","cwd":"/","hook_event_name":"PreToolUse","tool_name":"Read"}"#;

/// However bad things are, no hook may take longer, in microseconds.
const LONGEST_HOOK: Target = Target::Most(250_000.0);

/// The hook of a tool call, from its start to its end: with a daemon, and with one that does not answer, was killed or is absent.
pub(crate) async fn hook(effort: Effort) -> Fallible<Vec<Row>> {
    let scratch = two_members().await?;
    let input = scratch.workspace().join("input");
    std::fs::write(&input, HOOK_INPUT)?;
    let run_hook = |samples: &mut Samples| -> Fallible<()> {
        let mut command = scratch.tt_in_claude(&["hook", "--harness", "claude", "tool_started"])?;
        command.stdin(std::fs::File::open(&input)?).stdout(Stdio::null());
        time(command, samples)
    };
    let (mut hooks, mut spawned) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + effort.of(500, 100) {
        if round == WARM_UP {
            [hooks, spawned] = [(); 2].map(|()| Samples::default());
        }
        spawn(&scratch, &mut spawned)?;
        run_hook(&mut hooks)?;
    }
    let row = Row::times("hook", "tt hook of a tool call, whole process", &hooks, Target::MostTimes(3.0));
    let mut rows = vec![row.against("/bin/true p50", spawned.p50())];
    let mut add = |name: &str, when: &str| -> Fallible<()> {
        let mut samples = Samples::default();
        (0..effort.of(20, 5)).try_for_each(|_| run_hook(&mut samples))?;
        rows.push(Row::times(name, &format!("tt hook, whole process, {when}"), &samples, LONGEST_HOOK).by_p99());
        Ok(())
    };
    let daemon = Pid::from_raw(i32::try_from(scratch.daemon_pid()?)?);
    kill(daemon, Signal::SIGSTOP)?;
    let stopped = add("hook-mute", "with a daemon that does not answer");
    // Its log cannot be written either.
    let log = scratch.data_dir().join("hooks.log");
    let _ = std::fs::remove_file(&log);
    std::os::unix::fs::symlink("/dev/full", log)?;
    let full = add("hook-full", "with such a daemon and a full disk");
    kill(daemon, Signal::SIGKILL)?;
    stopped.and(full)?;
    add("hook-killed", "with the socket of a daemon that was killed")?;
    std::fs::remove_file(scratch.socket()?)?;
    add("hook-absent", "without a daemon")?;
    Ok(rows)
}

/// The input of a hook before an edit, and of one after a tool.
const EDIT_INPUT: &str = r#"{"session_id":"bench","cwd":"/","hook_event_name":"PreToolUse","tool_name":"Write","tool_input":{"file_path":"f"}}"#;
const SPOKEN_INPUT: &str = r#"{"session_id":"bench","cwd":"/","hook_event_name":"PostToolUse","tool_name":"Read"}"#;

/// A hook that hands over one message, a hook before an edit, and an edit whose decision hangs.
pub(crate) async fn speaking_hook(effort: Effort) -> Fallible<Vec<Row>> {
    let scratch = two_members().await?;
    let me: serde_json::Value = serde_json::from_slice(&scratch.tt_in_claude(&["join", "--json"])?.output()?.stdout)?;
    let me = me["agent_id"].as_str().ok_or("a session without an id")?.to_owned();
    let (edit, spoken) = (scratch.workspace().join("edit"), scratch.workspace().join("spoken"));
    let file = serde_json::Value::from(scratch.workspace().join("f").to_string_lossy());
    std::fs::write(&edit, EDIT_INPUT.replace("\"f\"", &file.to_string()))?;
    std::fs::write(&spoken, SPOKEN_INPUT)?;
    let run = |event: &str, input: &std::path::Path, samples: &mut Samples| -> Fallible<()> {
        let mut command = scratch.tt_in_claude(&["hook", "--harness", "claude", event])?;
        command.stdin(std::fs::File::open(input)?).stdout(Stdio::null());
        time(command, samples)
    };
    let [mut spawned, mut speaking, mut edits] = [(); 3].map(|()| Samples::default());
    for round in 0..WARM_UP + effort.of(300, 60) {
        if round == WARM_UP {
            [spawned, speaking, edits] = [(); 3].map(|()| Samples::default());
        }
        spawn(&scratch, &mut spawned)?;
        run("tool_started", &edit, &mut edits)?;
        sample(scratch.tt("bench:sender", &["msg", "send", &me, BODY])?, &mut Samples::default())?;
        run("tool_ended", &spoken, &mut speaking)?;
    }
    let unread = scratch.tt_in_claude(&["inbox", "--json"])?.output()?.stdout;
    if String::from_utf8_lossy(&unread).contains("\"event_seq\"") {
        return Err("a message was left behind".into());
    }
    let spoke = Row::times(
        "hook-message",
        "tt hook that hands over a message, whole process",
        &speaking,
        Target::MostTimes(4.0),
    );
    let edited =
        Row::times("hook-edit", "tt hook before an edit by the holder, whole process", &edits, Target::MostTimes(4.0));
    let mut rows = vec![spoke.against("/bin/true p50", spawned.p50()), edited.against("/bin/true p50", spawned.p50())];
    let daemon = Pid::from_raw(i32::try_from(scratch.daemon_pid()?)?);
    kill(daemon, Signal::SIGSTOP)?;
    let mut hung = Samples::default();
    let sampled = (0..effort.of(5, 2)).try_for_each(|_| run("tool_started", &edit, &mut hung));
    kill(daemon, Signal::SIGCONT)?;
    sampled?;
    let what = "tt hook before an edit, whole process, with a daemon that does not answer";
    rows.push(Row::times("hook-edit-mute", what, &hung, Target::Most(2_000_000.0)).by_p99());
    kill(daemon, Signal::SIGKILL)?;
    let mut hung = Samples::default();
    (0..effort.of(5, 2)).try_for_each(|_| check_commit(&scratch, &mut hung))?;
    let what = "tt guard check before a commit, whole process, with a daemon that is busy for a second and then does not answer";
    rows.push(Row::times("guard-check-mute", what, &hung, Target::Most(2_000_000.0)).by_p99());
    Ok(rows)
}

/// How long nobody can connect to a daemon that is busy.
const BUSY: Duration = Duration::from_secs(1);

/// What git waits for before a commit, in the place of a daemon whose queue is full for a while, and which then answers nobody.
fn check_commit(scratch: &Scratch, samples: &mut Samples) -> Fallible<()> {
    let path = scratch.socket()?;
    let _ = std::fs::remove_file(&path);
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    bind(listener.as_raw_fd(), &UnixAddr::new(&path)?)?;
    listen(&listener, Backlog::new(0)?)?;
    let listener = UnixListener::from(listener);
    let _first = UnixStream::connect(&path)?;
    std::thread::scope(|scope| {
        let accepts = scope.spawn(|| {
            std::thread::sleep(BUSY);
            listener.accept().map(|(stream, _)| stream)
        });
        let mut check = scratch.tt("bench:sender", &["guard", "check", "commit", &std::process::id().to_string()])?;
        check.stdin(Stdio::null()).stdout(Stdio::null());
        time(check, samples)?;
        drop(accepts.join());
        Ok(())
    })
}

/// A prompt that asks a daemon which does not answer.
pub(crate) async fn mute_prompt(effort: Effort) -> Fallible<Row> {
    let scratch = two_members().await?;
    let daemon = Pid::from_raw(i32::try_from(scratch.daemon_pid()?)?);
    let mut samples = Samples::default();
    kill(daemon, Signal::SIGSTOP)?;
    let sampled = (0..effort.of(200, 40))
        .try_for_each(|_| sample(scratch.tt("bench:sender", &["status", "--prompt"])?, &mut samples));
    kill(daemon, Signal::SIGCONT)?;
    sampled?;
    let what = "tt status --prompt, whole process, with a daemon that does not answer";
    Ok(Row::times("prompt-mute", what, &samples, Target::Most(5_000.0)))
}

/// `tt msg send` from its start to the line that another member's `tt msg recv --follow` prints.
pub(crate) async fn line(effort: Effort) -> Fallible<Row> {
    let scratch = two_members().await?;
    let mut follower = Player::spawn(scratch.tt("bench:reader", &["msg", "recv", "--follow", "--json"])?)?;
    let (mut lines, mut spawned) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + effort.of(500, 150) {
        let mut limit = Samples::default();
        spawn(&scratch, &mut limit)?;
        let mut command = scratch.tt("bench:sender", &SEND)?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let from = now();
        let mut child = command.spawn()?;
        follower.line()?;
        let printed = now();
        child.wait()?;
        if round >= WARM_UP {
            spawned.extend(limit);
            lines.add(from, printed);
        }
    }
    let what = "exec(tt msg send) to the line on tt msg recv --follow";
    Ok(Row::times("tt-line", what, &lines, Target::MostTimes(4.0)).against("/bin/true p50", spawned.p50()))
}

/// A question to an agent that listens, from the start of `tt ask` to its end: the question is shown, `tt reply` answers it, and the
/// answer is back.
pub(crate) async fn ask(effort: Effort) -> Fallible<Row> {
    let scratch = two_members().await?;
    let mut asked = Player::spawn(scratch.tt("bench:reader", &["msg", "recv", "--follow", "--json"])?)?;
    let (mut answers, mut sends) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + effort.of(300, 80) {
        if round == WARM_UP {
            [answers, sends] = [(); 2].map(|()| Samples::default());
        }
        sample(scratch.tt("bench:sender", &SEND)?, &mut sends)?;
        asked.line()?;
        let mut command = scratch.tt("bench:sender", &["ask", "bench:reader", BODY])?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let from = now();
        let mut asking = command.spawn()?;
        let question: serde_json::Value = serde_json::from_str(&asked.line()?)?;
        let event_seq = question["event_seq"].to_string();
        let mut reply = scratch.tt("bench:reader", &["reply", &event_seq, BODY])?;
        let replied = reply.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        let ended = asking.wait()?;
        let until = now();
        if !replied.success() || !ended.success() {
            return Err(format!("tt reply: {replied}, tt ask: {ended}").into());
        }
        answers.add(from, until);
    }
    let what = "tt ask, whole process, answered at once by a process of its own";
    Ok(Row::times("ask", what, &answers, Target::MostTimes(5.0)).against("tt msg send p50", sends.p50()))
}

/// No daemon and no database yet, to the end of the first `tt`.
pub(crate) async fn cold(effort: Effort) -> Fallible<Row> {
    let mut samples = Samples::default();
    for _ in 0..effort.of(60, 15) {
        let scratch = Scratch::new()?;
        let mut command = scratch.tt("bench:first", &["list"])?;
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let from = now();
        let ended = command.status()?;
        let until = now();
        let stopped = scratch.tt("bench:first", &["daemon", "stop"])?.stdout(Stdio::null()).status()?;
        if !ended.success() || !stopped.success() {
            return Err(format!("tt list: {ended}, tt daemon stop: {stopped}").into());
        }
        samples.add(from, until);
    }
    Ok(Row::times("cold", "cold: no daemon, no database, to the first answer", &samples, Target::Most(60_000.0)))
}

/// The keys of a large settings file.
const KEYS: usize = 50_000;

/// `tt install` into a settings file of many keys, in both formats.
pub(crate) async fn install(effort: Effort) -> Fallible<Vec<Row>> {
    let json: Vec<String> = (0..KEYS).map(|n| format!("\n    \"key {n}\": {{ \"command\": \"{n}\" }}")).collect();
    let json = format!("{{\n  \"mcpServers\": {{{}\n  }}\n}}\n", json.join(","));
    let toml: String = (0..KEYS).map(|n| format!("key{n} = {n}\n")).collect();
    let mut rows = Vec::new();
    for (name, harness, file, text) in
        [("install-json", "claude", ".claude.json", json), ("install-toml", "codex", ".codex/config.toml", toml)]
    {
        let (scratch, mut samples) = (Scratch::new()?, Samples::default());
        let file = scratch.home().join(file);
        // A harness without its directory is not installed, and skipped.
        std::fs::create_dir_all(scratch.home().join(format!(".{harness}")))?;
        for _ in 0..effort.of(20, 5) {
            std::fs::write(&file, &text)?;
            sample(scratch.tt("bench:first", &["install", harness])?, &mut samples)?;
            if !std::fs::read_to_string(&file)?.contains("talking-stick") {
                return Err(format!("{} was not changed", file.display()).into());
            }
        }
        let what = format!("tt install {harness} into a file of {KEYS} keys, whole process");
        rows.push(Row::times(name, &what, &samples, Target::Most(1_000_000.0)));
    }
    Ok(rows)
}
