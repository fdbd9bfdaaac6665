//! Records the JSON that crosses the socket and compares it with the files in `tests/golden/`.
//!
//! A [`Caller`] sends raw JSON over a WebSocket. A [`Recorder`] keeps every exchange with the values that change from run to
//! run replaced by placeholders, and writes or checks one file per method.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::Wire;

/// Setting this variable rewrites the files instead of checking them.
pub const ACCEPT_VARIABLE: &str = "ACCEPT_GOLDEN";

/// The file that holds the events of every type.
const EVENTS_FILE: &str = "events.json";

/// The file that holds every error code with the fields it was seen with.
const ERRORS_FILE: &str = "errors.json";

/// A connection that sends requests as they are written.
#[derive(Debug)]
pub struct Caller {
    wire: Wire,
    next_id: u64,
}

impl Caller {
    #[track_caller]
    pub fn connect(socket: &Path) -> Self {
        Self { wire: Wire::upgraded(socket), next_id: 1 }
    }

    /// Sends a request and does not wait for its answer. Without params the request has no such field.
    #[track_caller]
    pub fn send(&mut self, method: &str, params: Option<Value>) -> Value {
        let mut request = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method});
        if let Some(params) = params {
            request["params"] = params;
        }
        self.next_id += 1;
        self.send_text(&request.to_string());
        request
    }

    #[track_caller]
    pub fn send_text(&mut self, text: &str) {
        assert!(self.wire.text(text), "the daemon does not read");
    }

    /// The next message of the daemon: an answer, or an item of a subscription.
    #[track_caller]
    pub fn receive(&mut self) -> Value {
        self.receive_unless_closed().unwrap_or_else(|| panic!("the daemon closed the connection"))
    }

    /// The next message of the daemon; none when it closes the connection instead.
    #[track_caller]
    pub fn receive_unless_closed(&mut self) -> Option<Value> {
        let text = self.wire.message()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
    }
}

/// Every exchange so far, with placeholders.
#[derive(Debug, Default)]
pub struct Recorder {
    methods: BTreeMap<String, Vec<Value>>,
    events: BTreeMap<String, Vec<Value>>,
    error_fields: BTreeMap<String, BTreeSet<String>>,
}

impl Recorder {
    /// The methods of which a call that succeeded was recorded.
    pub fn answered_methods(&self) -> BTreeSet<&str> {
        let succeeded = |cases: &[Value]| cases.iter().any(|case| !case["answer"]["result"].is_null());
        self.methods.iter().filter(|(_, cases)| succeeded(cases)).map(|(method, _)| method.as_str()).collect()
    }

    /// The event types that were recorded.
    pub fn event_types(&self) -> BTreeSet<&str> {
        self.events.keys().map(String::as_str).collect()
    }

    /// Makes a call and records it, whatever its answer is.
    #[track_caller]
    pub fn exchange(&mut self, caller: &mut Caller, case: &str, method: &str, params: Option<Value>) -> Value {
        let request = caller.send(method, params);
        let answer = caller.receive();
        assert_eq!(answer["id"], request["id"], "{answer}");
        self.keep(method, case, request, &answer);
        answer
    }

    /// Makes a call that must succeed, and returns its result.
    #[track_caller]
    pub fn succeeds(&mut self, caller: &mut Caller, case: &str, method: &str, params: Value) -> Value {
        let answer = self.exchange(caller, case, method, Some(params));
        assert!(answer.get("result").is_some(), "{method}, {case}: {answer}");
        answer["result"].clone()
    }

    /// Makes a call that must fail with this error code, and returns the error's data.
    #[track_caller]
    pub fn fails(&mut self, caller: &mut Caller, code: &str, case: &str, method: &str, params: Value) -> Value {
        let answer = self.exchange(caller, &format!("{code}: {case}"), method, Some(params));
        assert_eq!(answer["error"]["data"]["error"], code, "{method}, {case}: {answer}");
        answer["error"]["data"].clone()
    }

    /// Keeps a request and its answer.
    pub fn keep(&mut self, method: &str, case: &str, request: Value, answer: &Value) {
        self.note_contents(answer);
        let entry =
            json!({"case": case, "request": with_placeholders(request), "answer": with_placeholders(answer.clone())});
        self.methods.entry(method.to_owned()).or_default().push(entry);
    }

    /// Keeps an item that a subscription was sent.
    pub fn keep_item(&mut self, method: &str, case: &str, item: &Value) {
        self.note_contents(item);
        let entry = json!({"case": case, "notification": with_placeholders(item.clone())});
        self.methods.entry(method.to_owned()).or_default().push(entry);
    }

    /// Collects the events and typed errors inside a message.
    fn note_contents(&mut self, message: &Value) {
        match message {
            Value::Object(fields) => {
                if let Some(event_type) = fields.get("event_type").and_then(Value::as_str) {
                    let event = with_placeholders(message.clone());
                    let seen = self.events.entry(event_type.to_owned()).or_default();
                    if !seen.contains(&event) {
                        seen.push(event);
                    }
                }
                if let Some(code) = fields.get("error").and_then(Value::as_str) {
                    self.error_fields.entry(code.to_owned()).or_default().extend(fields.keys().cloned());
                }
                fields.values().for_each(|value| self.note_contents(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.note_contents(item)),
            _ => {}
        }
    }

    /// Compares everything that was recorded with the files of a directory, or writes them when asked to.
    /// Each of `codes` has an entry in the list of errors, with or without an occurrence on the wire.
    #[track_caller]
    pub fn check(&self, dir: &Path, codes: impl IntoIterator<Item = &'static str>) {
        let fields_of = |code: &'static str| (code, self.error_fields.get(code).cloned().unwrap_or_default());
        let errors: BTreeMap<_, _> = codes.into_iter().map(fields_of).collect();
        let foreign: Vec<_> = self.error_fields.keys().filter(|code| !errors.contains_key(code.as_str())).collect();
        assert!(foreign.is_empty(), "codes that are not listed: {foreign:?}");
        let mut files =
            BTreeMap::from([(EVENTS_FILE.to_owned(), json!(self.events)), (ERRORS_FILE.to_owned(), json!(errors))]);
        files.extend(self.methods.iter().map(|(method, cases)| (format!("{method}.json"), json!(cases))));
        if std::env::var_os(ACCEPT_VARIABLE).is_some() {
            return write_all(dir, &files);
        }
        let mut differences = Vec::new();
        for (name, recorded) in &files {
            let text = std::fs::read_to_string(dir.join(name)).unwrap_or_default();
            let expected: Value = serde_json::from_str(&text).unwrap_or_default();
            describe_differences(&format!("{name}: "), &expected, recorded, &mut differences);
        }
        for name in names_in(dir).difference(&files.keys().cloned().collect()) {
            differences.push(format!("{name}: nothing was recorded for it"));
        }
        assert!(
            differences.is_empty(),
            "the wire is not what {} says. If that is intended: {ACCEPT_VARIABLE}=1 cargo test --test golden\n{}",
            dir.display(),
            differences.join("\n"),
        );
    }
}

#[track_caller]
fn write_all(dir: &Path, files: &BTreeMap<String, Value>) {
    for name in names_in(dir).difference(&files.keys().cloned().collect()) {
        std::fs::remove_file(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    for (name, value) in files {
        let text = serde_json::to_string_pretty(&sorted(value)).unwrap_or_default() + "\n";
        std::fs::write(dir.join(name), text).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(".json")).collect()
}

/// Lists where two values differ. The order of an object's fields is not part of the wire.
fn describe_differences(at: &str, expected: &Value, recorded: &Value, differences: &mut Vec<String>) {
    match (expected, recorded) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            for key in keys {
                match (left.get(key), right.get(key)) {
                    (Some(left), Some(right)) => {
                        describe_differences(&format!("{at}/{key}"), left, right, differences);
                    }
                    (Some(left), None) => differences.push(format!("{at}/{key}: {left} is missing now")),
                    (None, right) => differences.push(format!("{at}/{key}: {} is new", right.unwrap_or(&Value::Null))),
                }
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (number, (left, right)) in left.iter().zip(right).enumerate() {
                let case = left.get("case").and_then(Value::as_str).map_or_else(|| number.to_string(), str::to_owned);
                describe_differences(&format!("{at}/{case}"), left, right, differences);
            }
        }
        _ if expected == recorded => {}
        _ => differences.push(format!("{at}: was {expected}, is {recorded}")),
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let ordered: BTreeMap<&String, Value> = fields.iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(ordered.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Replaces what changes from run to run (ids, times, process ids, paths, versions) and the wording of texts.
fn with_placeholders(mut value: Value) -> Value {
    replace("", &mut value);
    value
}

fn replace(key: &str, value: &mut Value) {
    if let Some(placeholder) = placeholder(key, value) {
        *value = placeholder.into();
        return;
    }
    match value {
        Value::Object(fields) => replace_in_object(key, fields),
        Value::Array(items) => {
            items.iter_mut().for_each(|item| replace(key, item));
            // How many steps an explanation has depends on the processes above the test.
            if key == "explanation" {
                items.dedup();
            }
        }
        _ => {}
    }
}

fn replace_in_object(key: &str, fields: &mut Map<String, Value>) {
    let is_template = key == "handoff_template";
    for (name, value) in fields.iter_mut() {
        match (is_template, &*value) {
            (true, Value::String(_)) => *value = "<text>".into(),
            _ => replace(name, value),
        }
    }
}

/// The placeholder for a value under this key; none where the value itself is part of the wire.
fn placeholder(key: &str, value: &Value) -> Option<String> {
    match (key, value) {
        ("id", Value::Number(_)) => Some("<id>".into()),
        // A subscription is answered with its id alone, and is ended by a list of just that.
        ("subscription" | "result" | "params", Value::Number(_)) | ("subscription", Value::String(_)) => {
            Some("<subscription>".into())
        }
        ("pid" | "daemon_pid" | "device" | "inode" | "uptime_ms" | "schema", Value::Number(_))
        | ("connections" | "calls" | "waiters" | "remembered" | "host_id" | "process_started_at" | "user", _)
        | ("version" | "daemon_version" | "CLAUDE_PID", Value::String(_)) => Some(format!("<{key}>")),
        ("message" | "hint" | "warning" | "finding", Value::String(_)) | ("data", Value::String(_)) => {
            Some("<text>".into())
        }
        (
            "event_seq"
            | "event_seqs"
            | "cursor_event_seq"
            | "after_event_seq"
            | "pending_handoff_event_seq"
            | "from_seq"
            | "to_seq"
            | "answered_by"
            | "reply_to"
            | "about",
            Value::Number(number),
        ) if number.as_i64().is_some_and(|number| number > 0) => Some("<event_seq>".into()),
        ("idempotency_key", _) => None,
        (_, Value::String(text)) if uuid::Uuid::parse_str(text).is_ok() => Some(format!("<{key}>")),
        (_, Value::String(text)) if is_time(text) => Some("<time>".into()),
        (_, Value::String(text)) if text.starts_with('/') => Some("<path>".into()),
        // A framed block has a new tag each time.
        ("text", Value::String(text)) if text.starts_with("[inbox ") || text.starts_with("[talking-stick ") => {
            Some("<block>".into())
        }
        (_, Value::String(text)) if text.len() > 1000 => Some("<long text>".into()),
        _ => None,
    }
}

/// Whether a text is a time of the wire, `2026-01-02T03:04:05.678Z`.
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape == "0000-00-00T00:00:00.000Z"
}
