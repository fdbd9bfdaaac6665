//! A harness that calls the tools of `tt mcp`. The answers carry its messages.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Actor;
use super::person::{number, text};
use crate::Fallible;
use crate::journal::{self, Fact};
use crate::stage::{PAUSE, Stage};

/// A tool that takes longer hangs.
const CALL_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Mcp;

impl Actor for Mcp {
    fn kind(&self) -> &'static str {
        "mcp"
    }

    fn count(&self) -> usize {
        2
    }

    fn play(&self, stage: &mut Stage) -> Fallible<()> {
        while !stage.is_over() {
            let mut server = Server::start(stage)?;
            server.play(stage)?;
            server.end()?;
        }
        Ok(())
    }
}

/// `tt mcp` with its answers in a file, so that what it has shown stays when the harness is killed.
struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    answers: std::fs::File,
    unread: String,
    calls: u64,
}

impl Server {
    fn start(stage: &mut Stage) -> Fallible<Self> {
        let (stdout, path) = stage.output("mcp")?;
        let mut command = stage.tt(&["mcp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::null()).spawn()?;
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, answers: std::fs::File::open(path)?, unread: String::new(), calls: 0 })
    }

    /// The answer to a request; none when the server was killed.
    fn request(&mut self, stage: &mut Stage, method: &str, params: &Value) -> Fallible<Option<Value>> {
        self.calls += 1;
        let id = self.calls;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        if self.stdin.as_mut().is_none_or(|stdin| writeln!(stdin, "{line}").is_err()) {
            return Ok(None);
        }
        let asked = Instant::now();
        loop {
            self.answers.read_to_string(&mut self.unread)?;
            while let Some((line, rest)) = self.unread.split_once('\n') {
                let message: Value = serde_json::from_str(line)?;
                self.unread = rest.to_owned();
                if message["id"] == id {
                    return Ok(Some(message["result"].clone()));
                }
            }
            if let Some(status) = self.child.try_wait()? {
                use std::os::unix::process::ExitStatusExt;
                if status.signal() != Some(9) {
                    stage.write(Fact::Broken { what: format!("tt mcp ended with {status}") })?;
                }
                return Ok(None);
            }
            if asked.elapsed() > CALL_LIMIT {
                stage.write(Fact::Broken { what: format!("{method} {params} hangs for {CALL_LIMIT:?}") })?;
                return Ok(None);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Calls a tool. None when it was refused, Err in the answer when the server was killed.
    fn call(&mut self, stage: &mut Stage, tool: &str, arguments: &Value) -> Fallible<Result<Option<Value>, Killed>> {
        let params = json!({"name": tool, "arguments": arguments});
        let Some(result) = self.request(stage, "tools/call", &params)? else { return Ok(Err(Killed)) };
        let content = result["structuredContent"].clone();
        if result["isError"] != true {
            return Ok(Ok(Some(content)));
        }
        stage.refused(tool, content["error"].as_str().unwrap_or_default(), &content.to_string())?;
        Ok(Ok(None))
    }

    fn play(&mut self, stage: &mut Stage) -> Fallible<()> {
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {},
                           "clientInfo": {"name": "chaos", "version": "1"}});
        if self.request(stage, "initialize", &hello)?.is_none() {
            return Ok(());
        }
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.stdin.as_mut().map(|stdin| writeln!(stdin, "{initialized}"));
        let path = stage.places.workspace().display().to_string();
        let room = loop {
            match self.call(stage, "join_path", &json!({"context_path": path}))? {
                Ok(Some(joined)) => break joined["room_id"].clone(),
                Ok(None) if stage.is_over() => return Ok(()),
                Ok(None) => std::thread::sleep(Duration::from_millis(50)),
                Err(Killed) => return Ok(()),
            }
        };
        for _ in 0..stage.dice.between(10, 80) {
            if stage.is_over() {
                break;
            }
            let done = match stage.dice.between(0, 10) {
                0..=4 => self.send(stage, &room)?,
                5..=7 => self.take_turn(stage, &room)?,
                _ => self.call(stage, "get_room_state", &json!({"room_id": room}))?.map(|_| ()),
            };
            if done.is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(stage.dice.between(0, 100)));
        }
        Ok(())
    }

    fn send(&mut self, stage: &mut Stage, room: &Value) -> Fallible<Result<(), Killed>> {
        let (body, to) = (stage.next_body(), stage.someone());
        let mut arguments = json!({"room_id": room, "body": body});
        if let Some(to) = to {
            arguments["to_agent_id"] = to.into();
        }
        match self.call(stage, "send_message", &arguments)? {
            Ok(Some(sent)) => {
                let (event_seq, event_id) = (number(&sent, "event_seq"), text(&sent, "event_id"));
                stage.write(Fact::Sent { event_seq, event_id, body })?;
                Ok(Ok(()))
            }
            Ok(None) => Ok(Ok(())),
            Err(killed) => Ok(Err(killed)),
        }
    }

    fn take_turn(&mut self, stage: &mut Stage, room: &Value) -> Fallible<Result<(), Killed>> {
        let wait = json!({"room_id": room, "max_wait_ms": stage.dice.between(0, 500), "claim": true});
        let turn = match self.call(stage, "wait_for_turn", &wait)? {
            Ok(Some(turn)) if turn["status"] == "your_turn" => turn,
            Ok(_) => return Ok(Ok(())),
            Err(killed) => return Ok(Err(killed)),
        };
        let (turn_id, lease_id) = (number(&turn, "turn_id"), text(&turn, "lease_id"));
        stage.write(Fact::Turn { turn_id, lease_id: lease_id.clone(), by_takeover: false })?;
        let release = json!({"room_id": room, "lease_id": lease_id, "expected_turn_id": turn_id,
                             "handoff": {"status": "done", "next_action": "go on"}});
        let asked_at = journal::now();
        match self.call(stage, "release_stick", &release)? {
            Ok(Some(gave)) => {
                stage.write(Fact::Gave { turn_id, event_seq: number(&gave, "event_seq"), asked_at })?;
                Ok(Ok(()))
            }
            Ok(None) => Ok(Ok(())),
            Err(killed) => Ok(Err(killed)),
        }
    }

    /// The harness closes its end, and the server ends by itself.
    fn end(mut self) -> Fallible<()> {
        self.stdin = None;
        self.child.wait()?;
        Ok(())
    }
}

/// The server was killed.
struct Killed;
