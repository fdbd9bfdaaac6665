//! A session of Claude Code: a process that tells by hooks and by its session file what it does, is handed messages by its hooks,
//! goes from one conversation to another, and calls `tt` as the member that its conversation is. A hook that the daemon does not
//! hear is lost.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::person::{self, text};
use super::{Actor, person::take_turn};
use crate::Fallible;
use crate::control;
use crate::journal::{self, Fact};
use crate::stage::{PAUSE, Stage};

/// A hook that takes longer hangs. It gives up after a fraction of a second, but it can be stopped for a while.
const HOOK_LIMIT: Duration = Duration::from_secs(60);

/// After this time the daemon has heard everything that was said while it stood still.
const SETTLE: Duration = Duration::from_millis(300);

/// Longer than a process may take to open the next conversation after it ended one.
const ENDED: Duration = Duration::from_millis(2500);

/// The variable that names the conversation in which a command runs.
const CONVERSATION: &str = "CLAUDE_CODE_SESSION_ID";

#[derive(Debug)]
pub(crate) struct Session;

impl Actor for Session {
    fn kind(&self) -> &'static str {
        "session"
    }

    fn count(&self) -> usize {
        2
    }

    fn is_anonymous(&self, _: usize) -> bool {
        true
    }

    fn has_fixed_id(&self) -> bool {
        false
    }

    fn play(&self, stage: &mut Stage) -> Fallible<()> {
        let mut process = Process::new(stage)?;
        process.open("startup", None)?;
        while !process.stage.is_over() {
            match process.stage.dice.between(0, 20) {
                0..=2 => process.work()?,
                3..=4 => process.edit()?,
                5..=9 => person::send(process.stage)?,
                10..=12 => take_turn(process.stage)?,
                13..=14 => process.write_file("idle")?,
                15..=16 => process.look()?,
                17 => process.clear()?,
                18 => process.resume()?,
                _ => process.end_and_return()?,
            }
            std::thread::sleep(Duration::from_millis(process.stage.dice.between(0, 150)));
        }
        Ok(())
    }
}

/// The process of the harness, which is in one conversation at a time.
struct Process<'a> {
    stage: &'a mut Stage,
    file: PathBuf,
    /// When this process was started, as the kernel and the session file say it.
    started: String,
    conversation: String,
    older: Vec<String>,
    /// Who it is in this conversation.
    agent_id: String,
}

impl<'a> Process<'a> {
    fn new(stage: &'a mut Stage) -> Fallible<Self> {
        let dir = stage.places.dir().join("home/.claude/sessions");
        std::fs::create_dir_all(&dir)?;
        let pid = std::process::id();
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let after_name = stat.rsplit_once(") ").ok_or("no name in /proc/self/stat")?.1;
        let started = after_name.split(' ').nth(19).ok_or("no start time in /proc/self/stat")?.to_owned();
        stage.variables.push(("CLAUDECODE".into(), "1".into()));
        stage.variables.push(("CLAUDE_PID".into(), pid.to_string().into()));
        let (file, older) = (dir.join(format!("{pid}.json")), Vec::new());
        Ok(Self { stage, file, started, conversation: String::new(), older, agent_id: String::new() })
    }

    /// Opens a conversation, a new one unless told which.
    fn open(&mut self, source: &str, conversation: Option<String>) -> Fallible<()> {
        let conversation = conversation.unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
        if !self.conversation.is_empty() && self.conversation != conversation {
            self.older.push(self.conversation.clone());
        }
        self.older.retain(|older| *older != conversation);
        self.stage.variables.retain(|(name, _)| name != CONVERSATION);
        self.stage.variables.push((CONVERSATION.into(), conversation.clone().into()));
        self.conversation = conversation;
        // The file and the hook overtake each other.
        if self.stage.dice.one_in(2) {
            self.write_file("idle")?;
            self.hook("session_started", json!({"source": source}))?;
        } else {
            self.hook("session_started", json!({"source": source}))?;
            self.write_file("idle")?;
        }
        self.settle()
    }

    /// Finds out which member this conversation is, once the daemon has heard of it. If all that told of it was lost, the next
    /// prompt tells.
    fn settle(&mut self) -> Fallible<()> {
        let mut last = None;
        while !self.stage.is_over() {
            let joined = self.stage.run(&["join", "--json"], None)?.json();
            let agent_id = joined.map(|joined| text(&joined, "agent_id"));
            if let Some(agent_id) = agent_id.clone() {
                self.stage.write(Fact::Joined { agent_id })?;
            }
            if agent_id.is_some() && agent_id == self.known_as()? {
                if agent_id == last {
                    self.agent_id = agent_id.unwrap_or_default();
                    return self.stage.write(Fact::Lives { agent_id: self.agent_id.clone() });
                }
            } else if agent_id.is_some() {
                self.hook("prompt", json!({}))?;
            }
            last = agent_id;
            std::thread::sleep(SETTLE);
        }
        Ok(())
    }

    /// The member that this conversation is for the daemon, if it takes it for the one that is open.
    fn known_as(&mut self) -> Fallible<Option<String>> {
        let Some(list) = self.stage.run(&["sessions", "--json"], None)?.json() else { return Ok(None) };
        let is_this = |session: &&Value| session["session_id"] == self.conversation.as_str();
        Ok(list["sessions"].as_array().into_iter().flatten().find(is_this).map(|session| text(session, "agent_id")))
    }

    /// A prompt, some tools, and the end of the turn.
    fn work(&mut self) -> Fallible<()> {
        self.hook("prompt", json!({}))?;
        for _ in 0..self.stage.dice.between(0, 3) {
            let tool = json!({"tool_name": "Bash", "tool_use_id": uuid::Uuid::now_v7().to_string()});
            self.hook("tool_started", tool.clone())?;
            self.hook("tool_ended", tool)?;
        }
        if self.stage.dice.one_in(3) { self.write_file("busy") } else { self.end_turn() }
    }

    /// Edits a few files, as far as the guard lets it. Nobody may edit in the turn of another; the turn that an edit was given ends
    /// with the turn of the session.
    fn edit(&mut self) -> Fallible<()> {
        self.hook("prompt", json!({}))?;
        for n in 0..self.stage.dice.between(1, 4) {
            let file = format!("f{}", self.stage.dice.between(0, 5));
            // By turns, so that what the daemon heard last tells the one edit from the other.
            let name = if n % 2 == 0 { "Write" } else { "Edit" };
            let (failures, asked_at) = (self.failed_hooks(), journal::now());
            let said = self.hook("tool_started", json!({"tool_name": name, "tool_input": {"file_path": &file}}))?;
            let answered_at = journal::now();
            // Nobody knows what a harness makes of a hook that was killed.
            let Some(said) = said else { break };
            let said = &said["hookSpecificOutput"];
            if said["permissionDecision"] == "deny" {
                break;
            }
            std::fs::write(self.stage.places.workspace().join(file), &self.agent_id)?;
            let told = said["additionalContext"].as_str().unwrap_or_default();
            let turn = told.split_once("it is yours now (turn ").and_then(|(_, rest)| rest.split_once(')'));
            if let Some(turn_id) = turn.and_then(|(turn, _)| turn.parse().ok()) {
                self.stage.write(Fact::Given { turn_id })?;
            }
            // Without an answer of the daemon an edit goes ahead, and no promise is broken. There was one if a daemon that has run
            // since heard of it, and the hook complains of nothing.
            if self.was_heard(name)? && failures.is_some() && self.failed_hooks() == failures {
                self.stage.write(Fact::Edited { asked_at, answered_at })?;
            }
            self.hook("tool_ended", json!({"tool_name": name}))?;
        }
        self.end_turn()
    }

    /// How many hooks before a tool have failed, of any session. None if a hook could not write that down, because the disk is full.
    fn failed_hooks(&self) -> Option<usize> {
        let path = self.stage.places.data().join("hooks.log");
        let mut log = File::options().append(true).create(true).open(&path).ok()?;
        log.write_all(&[b'.'; 512]).and_then(|()| log.write_all(b"\n")).ok()?;
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.lines().filter(|line| line.contains("tool_started")).count())
    }

    /// Whether the newest that hooks told the daemon of this conversation is that this tool starts.
    fn was_heard(&mut self, tool: &str) -> Fallible<bool> {
        let Some(list) = self.stage.run(&["sessions", "--json"], None)?.json() else { return Ok(false) };
        let is_this = |session: &&Value| session["session_id"] == self.conversation.as_str();
        let session = list["sessions"].as_array().into_iter().flatten().find(is_this);
        let evidence = session.and_then(|session| session["evidence"].as_array()).into_iter().flatten();
        let of_hooks = evidence.into_iter().find(|evidence| evidence["source"] == "hook");
        Ok(of_hooks.is_some_and(|evidence| evidence["says"] == format!("tool_started {tool}")))
    }

    /// Ends the turn. If the stop is held, it is tried once more.
    fn end_turn(&mut self) -> Fallible<()> {
        let held = self.hook("turn_ended", json!({}))?.unwrap_or_default();
        if held["decision"] == "block" {
            self.hook("turn_ended", json!({"stop_hook_active": true}))?;
        }
        Ok(())
    }

    fn clear(&mut self) -> Fallible<()> {
        self.hook("session_ended", json!({"reason": "clear"}))?;
        self.open("clear", None)
    }

    /// Goes back to an earlier conversation of this process.
    fn resume(&mut self) -> Fallible<()> {
        let count = u64::try_from(self.older.len())?;
        let Some(older) = self.older.get(usize::try_from(self.stage.dice.between(0, count))?).cloned() else {
            return Ok(());
        };
        self.hook("session_ended", json!({"reason": "other"}))?;
        self.open("resume", Some(older))
    }

    /// Ends the conversation and goes on with it after everybody had time to notice.
    fn end_and_return(&mut self) -> Fallible<()> {
        self.hook("session_ended", json!({"reason": "other"}))?;
        std::thread::sleep(ENDED);
        self.open("resume", Some(self.conversation.clone()))
    }

    /// Asks about the room. Somebody who asks is not gone.
    fn look(&mut self) -> Fallible<()> {
        let Some(state) = self.stage.run(&["state", "--all", "--json"], None)?.json() else { return Ok(()) };
        let me = |member: &&Value| member["agent_id"] == self.agent_id.as_str();
        let me = state["members"].as_array().into_iter().flatten().find(me).cloned();
        if me.as_ref().is_some_and(|me| me["liveness"] == "gone") {
            let what = format!("it asks from conversation {}, and is told that it is gone: {me:?}", self.conversation);
            self.stage.write(Fact::Broken { what })?;
        }
        Ok(())
    }

    /// Runs a hook: it succeeds whatever happens, and says nothing but what the harness understands. What it says is kept for the
    /// checks, and returned unless the hook was killed.
    fn hook(&mut self, event: &str, more: Value) -> Fallible<Option<Value>> {
        let name = name_in_claude(event);
        let mut input =
            json!({"session_id": self.conversation, "hook_event_name": name, "cwd": self.stage.places.workspace()});
        input.as_object_mut().into_iter().for_each(|input| input.extend(more.as_object().cloned().unwrap_or_default()));
        let input = match self.stage.dice.between(0, 12) {
            // Cut off, and of a size that no pipe holds.
            0 => input.to_string()[..5].to_owned(),
            1 => {
                json!({"tool_response": "x".repeat(1 << 20), "session_id": self.conversation, "of": input}).to_string()
            }
            _ => input.to_string(),
        };
        let (stdout, path) = self.stage.output("hook")?;
        let errors = path.with_extension("err");
        let mut command = self.stage.tt(&["hook", "--harness", "claude", event]);
        // The clock of the world is the daemon's. The library makes no other difference here: a hook writes no files.
        command.envs(control::variables_in(self.stage.places.dir()));
        let mut hook = command.stdin(Stdio::piped()).stdout(stdout).stderr(File::create(&errors)?).spawn()?;
        let mut stdin = hook.stdin.take();
        // A hook that was killed reads nothing.
        let written = stdin.as_mut().map(|stdin| stdin.write_all(input.as_bytes()));
        drop((written, stdin));
        let began = Instant::now();
        let status = loop {
            match hook.try_wait()? {
                Some(status) => break status,
                None if began.elapsed() > HOOK_LIMIT => {
                    self.stage.write(Fact::Broken { what: format!("tt hook {event} hangs") })?;
                    hook.kill()?;
                    break hook.wait()?;
                }
                None => std::thread::sleep(PAUSE),
            }
        };
        use std::os::unix::process::ExitStatusExt;
        let [said, complained] = [&path, &errors].map(|file| std::fs::read_to_string(file).unwrap_or_default());
        let _ = std::fs::remove_file(errors);
        if said.is_empty() {
            let _ = std::fs::remove_file(path);
        }
        // One that was killed may have said half of it.
        if status.signal() == Some(9) {
            return Ok(None);
        }
        let answer: Value = serde_json::from_str(if said.is_empty() { "null" } else { &said }).unwrap_or_default();
        let is_hold = event == "turn_ended" && answer["decision"] == "block";
        let is_fit = said.is_empty() || answer["hookSpecificOutput"]["hookEventName"] == name || is_hold;
        if !(status.success() && complained.is_empty() && is_fit) {
            let what = format!("tt hook {event} ended with {status} and said {said:?} {complained:?}");
            self.stage.write(Fact::Broken { what })?;
        }
        Ok(Some(answer))
    }

    /// Writes the session file. Now and then it names an earlier process with this pid first, or is half written for a while.
    fn write_file(&mut self, status: &str) -> Fallible<()> {
        let at = control::wall_millis(self.stage.places.dir());
        let record = |started: &str, conversation: &str| {
            json!({"pid": std::process::id(), "procStart": started, "sessionId": conversation, "status": status,
                "updatedAt": at, "statusUpdatedAt": at})
            .to_string()
        };
        if self.stage.dice.one_in(4) {
            std::fs::write(&self.file, record("1", "a conversation of another process"))?;
        }
        let whole = record(&self.started, &self.conversation);
        let mut file = File::create(&self.file)?;
        let (first, rest) = whole.split_at(whole.len() / 2);
        file.write_all(first.as_bytes())?;
        if self.stage.dice.one_in(3) {
            std::thread::sleep(Duration::from_millis(self.stage.dice.between(1, 40)));
        }
        Ok(file.write_all(rest.as_bytes())?)
    }
}

/// What Claude Code calls an event.
fn name_in_claude(event: &str) -> &'static str {
    match event {
        "session_started" => "SessionStart",
        "prompt" => "UserPromptSubmit",
        "tool_started" => "PreToolUse",
        "tool_ended" => "PostToolUse",
        "turn_ended" => "Stop",
        _ => "SessionEnd",
    }
}
