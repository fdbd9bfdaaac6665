//! A daemon in this process, for the targets that need one.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tt_client::connect::Settings;
use tt_proto::paths::{Environment, Paths};
use tt_tests::{InProcess, Wire};
use ttd::lifecycle::Options;

/// The resident memory of this process may not exceed this, whatever the daemon is sent.
const MAX_MEMORY_KIB: u64 = 1024 * 1024;

/// A daemon with a home of its own, and one workspace with a room.
pub struct Daemon {
    // Dropped in this order: the daemon stops before its files go.
    _process: InProcess,
    env: Environment,
    paths: Paths,
    home: tempfile::TempDir,
}

impl Default for Daemon {
    fn default() -> Self {
        Self::start()
    }
}

impl Daemon {
    pub fn start() -> Self {
        let home = tempfile::Builder::new().prefix("tt-fuzz").tempdir().unwrap_or_else(|e| panic!("no home: {e}"));
        let env = Environment::of([("HOME", home.path().as_os_str())]);
        let paths = Paths::resolve(&env).unwrap_or_else(|e| panic!("{e}"));
        for workspace in ["a/.git", "b/.git", "c/src"] {
            std::fs::create_dir_all(home.path().join(workspace)).unwrap_or_else(|e| panic!("{workspace}: {e}"));
        }
        Self { _process: InProcess::start(Options::new(paths.clone())), env, paths, home }
    }

    pub fn socket(&self) -> &Path {
        &self.paths.socket
    }

    pub fn workspace(&self) -> PathBuf {
        self.home.path().join("a")
    }

    /// The settings of a client of this daemon, which never starts another.
    pub fn settings(&self) -> Settings {
        let settings = Settings::from_environment(self.env.clone()).unwrap_or_else(|e| panic!("{e}"));
        Settings { autostart: false, cwd: Some(self.workspace()), ..settings }
    }

    /// A WebSocket that has greeted the daemon as this agent.
    pub fn connect(&self, agent: &str) -> Connection {
        let mut connection = Connection { wire: Wire::upgraded(self.socket()), calls: 0 };
        let hello = json!({
            "protocol": tt_proto::PROTOCOL, "version": tt_proto::VERSION, "capabilities": tt_proto::hello::CAPABILITIES,
            "signals": {"env": {"TT_HARNESS_AGENT_ID": agent}}, "cwd": self.workspace(), "context_path": null
        });
        connection.call("hello", &json!({ "hello": hello }));
        connection
    }

    /// Fails if the daemon does not answer somebody else, or has grown too much.
    pub fn check(&self) -> Result<(), String> {
        let answer = Wire::try_connect(self.socket())
            .map_err(|e| format!("the daemon is gone: {e}"))?
            .post(r#"{"jsonrpc":"2.0","id":1,"method":"daemon_status","params":{}}"#);
        crate::ensure!(answer["result"]["pid"] == std::process::id(), "the daemon is not well: {answer}");
        let memory = memory_kib();
        crate::ensure!(memory < MAX_MEMORY_KIB, "the daemon takes {memory} KiB");
        Ok(())
    }
}

/// The resident memory of this process, where the system tells.
fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// A WebSocket to the daemon.
pub struct Connection {
    wire: Wire,
    calls: u64,
}

impl Connection {
    /// Makes a call that must be answered, and returns the answer.
    pub fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(&Value::from(method).to_string(), &params.to_string());
        match self.answers_to(&[id.into()]) {
            Ok(answers) => answers.into_iter().next_back().unwrap_or_default(),
            Err(e) => panic!("{method}: {e}"),
        }
    }

    /// Sends a call whose method and parameters are JSON already. Returns its id.
    pub fn send(&mut self, method: &str, params: &str) -> u64 {
        self.calls += 1;
        let id = self.calls;
        self.wire.text(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":{method},"params":{params}}}"#));
        id
    }

    /// Sends a whole message.
    pub fn send_text(&mut self, text: &str) {
        self.wire.text(text);
    }

    /// All answers until there is one under each of these ids. Notifications of streams are passed over.
    pub fn answers_to(&mut self, ids: &[Value]) -> Result<Vec<Value>, String> {
        let mut answers: Vec<Value> = Vec::new();
        while !ids.iter().all(|id| answers.iter().any(|answer| answer["id"] == *id)) {
            let message = self.wire.message().ok_or("the daemon closed the connection")?;
            // A ping has no text.
            if message.is_empty() {
                continue;
            }
            let answer: Value = serde_json::from_str(&message).map_err(|e| format!("{e}: {message}"))?;
            if answer.get("method").is_none() {
                answers.push(answer);
            }
        }
        Ok(answers)
    }
}
