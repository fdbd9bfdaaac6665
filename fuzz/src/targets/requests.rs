//! Calls to a real daemon: each has exactly one answer, an error says what to do, and the daemon goes on.
//!
//! An input is the name of a method on one line and its parameters below. `@home`, `@room`, `@agent`, `@lease` and `"@turn"`
//! stand for those of the daemon, so that an input fits every daemon.

use serde_json::{Value, json};
use tt_proto::requests::{METHODS, STREAMS};

use super::tool_arguments::parameters;
use crate::daemon::{Connection, Daemon};
use crate::generate::{json, object};
use crate::{Random, Target, Verdict, ensure};

/// A new daemon is started after this many calls: its database grows, and starting is part of its work.
const CALLS_PER_DAEMON: u64 = 20_000;

/// A new connection is opened after this many calls, and the daemon's memory looked at.
const CALLS_PER_CONNECTION: u64 = 500;

/// What ends the daemon, or a call that would wait.
const NOT_CALLED: &[&str] = &["daemon_stop"];

#[derive(Default)]
pub(super) struct Requests {
    calls: u64,
    open: Option<Open>,
}

struct Open {
    connection: Connection,
    /// What the daemon has in the place of each `@` word.
    words: Vec<(&'static str, String)>,
    daemon: Daemon,
}

impl Target for Requests {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let method = random.pick(METHODS).name;
        let stream = random.pick(STREAMS);
        let (method, parameters) = match random.below(20) {
            0 => (stream.subscribe, format!(r#"{{"room_id":"@room","after_event_seq":{}}}"#, random.below(9))),
            1 => (method, json(random, 3)),
            2 => (stream.unsubscribe, json(random, 1)),
            _ => {
                let parameters = parameters(random, method);
                (method, object(random, &parameters))
            }
        };
        format!("{method}\n{parameters}").into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let text = String::from_utf8_lossy(input);
        let (method, parameters) = text.split_once('\n').unwrap_or((&text, "null"));
        if NOT_CALLED.contains(&method) || waits(method, parameters) {
            return Ok(Verdict::Refused);
        }
        if self.calls.is_multiple_of(CALLS_PER_DAEMON) {
            // The old one stops first: one process, one daemon at a time.
            self.open = None;
        }
        self.calls += 1;
        let open = self.open.get_or_insert_with(Open::new);
        let verdict = open.call(method, parameters);
        if self.calls.is_multiple_of(CALLS_PER_CONNECTION) {
            open.daemon.check()?;
            open.reconnect();
        }
        if verdict.is_err() {
            self.open = None;
        }
        verdict
    }
}

/// Whether a call may take longer than a moment: one of a method that waits, unless it says that it does not.
fn waits(method: &str, parameters: &str) -> bool {
    let has = |name: &str| {
        METHODS.iter().any(|info| info.name == method.trim() && info.fields.iter().any(|field| field.name == name))
    };
    // A question waits only where it says so.
    if has("wait_ms") && (parameters.contains("wait_ms") || parameters.contains("\\u") || parameters.starts_with('[')) {
        return true;
    }
    let can_wait = has("max_wait_ms");
    let says_not = serde_json::from_str::<Value>(parameters).is_ok_and(|value| value["max_wait_ms"] == 0)
        && parameters.matches("wait_ms").count() == 1
        && !parameters.contains("\\u");
    can_wait && !says_not
}

impl Open {
    fn new() -> Self {
        let daemon = Daemon::start();
        let mut other = daemon.connect("claude:1");
        other.call("join_path", &json!({ "context_path": daemon.workspace() }));
        let connection = daemon.connect("codex:1");
        let mut open = Self { connection, words: Vec::new(), daemon };
        open.learn();
        open
    }

    fn reconnect(&mut self) {
        self.connection = self.daemon.connect("codex:1");
        self.learn();
    }

    /// Joins, takes the stick if it is free, and learns what the words stand for.
    fn learn(&mut self) {
        let joined = self.connection.call("join_path", &json!({ "context_path": self.daemon.workspace() }));
        let room = joined["result"]["room_id"].as_str().unwrap_or_default().to_owned();
        let wait = json!({ "room_id": room, "max_wait_ms": 0, "claim": true });
        let turn = self.connection.call("wait_for_turn", &wait)["result"].clone();
        let home = self.daemon.workspace().parent().map(|dir| dir.display().to_string()).unwrap_or_default();
        self.words = vec![
            ("\"@turn\"", turn["turn_id"].as_i64().unwrap_or(0).to_string()),
            ("@lease", turn["lease_id"].as_str().unwrap_or("none").to_owned()),
            ("@room", room),
            ("@agent", "claude:1".into()),
            ("@home", home),
        ];
    }

    fn call(&mut self, method: &str, parameters: &str) -> Result<Verdict, String> {
        let parameters = self.words.iter().fold(parameters.to_owned(), |text, (word, with)| text.replace(word, with));
        // What is no JSON is answered too, under no id. Numbers beyond every type are JSON.
        let is_json = tt_proto::handoff::RawJson::parse(parameters.clone()).is_ok();
        let id = self.connection.send(&Value::from(method).to_string(), &parameters);
        let own = if is_json { Value::from(id) } else { Value::Null };
        // Another call after it: a second answer to the first one would come before or with the answer to this one.
        let next = self.connection.send("\"whoami\"", "{}");
        let answers = self.connection.answers_to(&[own.clone(), next.into()])?;
        ensure!(answers.len() == 2, "{} answers to two calls: {answers:?}", answers.len());
        let Some(answer) = answers.iter().find(|answer| answer["id"] == own) else {
            return Err(format!("no answer to the call: {answers:?}"));
        };
        match (answer.get("result"), answer.get("error")) {
            (Some(_), None) => Ok(Verdict::Accepted),
            (None, Some(error)) => {
                ensure!(error["code"].is_i64() && error["message"].is_string(), "{answer}");
                let is_own = error["data"].is_object();
                let has = |field: &str| error["data"][field].as_str().is_some_and(|text| !text.is_empty());
                ensure!(
                    !is_own || (has("error") && has("message") && has("hint")),
                    "an error without a way out: {answer}"
                );
                Ok(Verdict::Refused)
            }
            _ => Err(format!("neither an answer nor an error: {answer}")),
        }
    }
}
