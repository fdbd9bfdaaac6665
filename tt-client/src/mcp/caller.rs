//! Finds out which session makes a tool call: from the environment that the harness gave this process, from the name of its
//! MCP client, and from the call itself. Each call has a connection of its own, so that one process can serve several
//! sessions and a cancelled call leaves nothing behind.

use std::cell::RefCell;
use std::path::Path;

use serde_json::Value;
use tt_harness::{Harness, SessionFiles};
use tt_proto::Error;
use tt_proto::filesystem::read_file;
use tt_proto::hello::{Anchor, FoundBy};
use tt_proto::paths::Environment;

use crate::connect::{Client, Settings};

/// Connects to the daemon on behalf of the session that makes a call.
pub(super) struct Callers {
    settings: Settings,
    /// The process above this one that records its session in a file, once the daemon has found it.
    recorded: RefCell<Option<(&'static Harness, Anchor)>>,
}

impl Callers {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, recorded: RefCell::default() }
    }

    /// A connection bound to the session this call belongs to.
    pub(super) async fn connect(&self, client_info: Option<String>, meta: &Value) -> Result<Client, Error> {
        let mut settings = Settings { context_path: Some(".".into()), ..self.settings.clone() };
        let recorded = |(harness, anchor): &(&Harness, Anchor)| recorded_session(harness, &self.settings.env, anchor);
        settings.signals.session_id = session_in_call(client_info.as_deref(), meta)
            .or_else(|| self.recorded.borrow().as_ref().and_then(recorded));
        settings.signals.tool_use_id = tool_use_in_call(client_info.as_deref(), meta);
        settings.signals.client_info = client_info;
        let client = Client::connect(settings.clone()).await?;
        let identity = &client.welcome().identity;
        let harness = identity.harness.as_deref().and_then(tt_harness::by_name);
        let records = |harness: &&Harness| harness.session_files.is_some() && identity.found_by != FoundBy::Override;
        let Some((harness, anchor)) = harness.filter(records).zip(identity.anchor.clone()) else { return Ok(client) };
        let current = recorded_session(harness, &settings.env, &anchor);
        *self.recorded.borrow_mut() = Some((harness, anchor));
        match current {
            // The environment names the session in which this process was started; the harness may have resumed another.
            Some(session) if Some(&session) != identity.session_id.as_ref() => {
                settings.signals.session_id = Some(session);
                Client::connect(settings).await
            }
            _ => Ok(client),
        }
    }
}

/// The session that the call itself names.
fn session_in_call(client_info: Option<&str>, meta: &Value) -> Option<String> {
    let keys = tt_harness::by_mcp_client(client_info?)?.mcp_session_keys;
    keys.iter().find_map(|key| text(meta, key))
}

/// The tool use that the call is made for.
fn tool_use_in_call(client_info: Option<&str>, meta: &Value) -> Option<String> {
    text(meta, tt_harness::by_mcp_client(client_info?)?.mcp_tool_use_key?)
}

fn text(meta: &Value, key: &str) -> Option<String> {
    meta.get(key).and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned)
}

/// The session that a process of the harness is in now, according to the file it keeps about that.
fn recorded_session(harness: &Harness, env: &Environment, anchor: &Anchor) -> Option<String> {
    let files = harness.session_files.as_ref()?;
    let config_dir = match harness.config_dir.from_variable(|name| env.get(name)) {
        Some(dir) => dir,
        None => harness.config_dir.below_home(Path::new(env.get("HOME")?)),
    };
    read_session(files, &config_dir.join(files.dir), anchor)
}

/// Reads the session of a process. None if there is no valid file, or if it was written by an earlier process with the same
/// pid.
fn read_session(files: &SessionFiles, dir: &Path, anchor: &Anchor) -> Option<String> {
    let text = read_file(&dir.join(format!("{}.json", anchor.pid))).ok()?;
    let record: Value = serde_json::from_slice(&text).ok()?;
    let started = match record.get(files.process_start_key)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    // The daemon appends the boot id to the ticks.
    let is_same = anchor.process_started_at.split('@').next() == Some(started.as_str());
    let session = record.get(files.session_id_key)?.as_str()?;
    (is_same && !session.is_empty()).then(|| session.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_codex_names_its_thread_with_a_call() {
        let meta = json!({"threadId": "t-1"});
        assert_eq!(session_in_call(Some("codex-mcp-client"), &meta).as_deref(), Some("t-1"));
        assert_eq!(session_in_call(Some("inspector"), &meta), None);
        assert_eq!(session_in_call(Some("codex-mcp-client"), &json!({"threadId": ""})), None);
        assert_eq!(session_in_call(None, &Value::Null), None);
    }

    #[test]
    fn a_subagent_of_codex_calls_as_the_session_it_works_for() {
        let meta = json!({"threadId": "t-2", "sessionId": "t-1"});
        assert_eq!(session_in_call(Some("codex-mcp-client"), &meta).as_deref(), Some("t-1"));
        assert_eq!(session_in_call(Some("claude-code"), &meta), None);
    }

    #[test]
    fn claude_names_the_tool_use_of_a_call() {
        let meta = json!({"claudecode/toolUseId": "toolu_1"});
        assert_eq!(tool_use_in_call(Some("claude-code"), &meta).as_deref(), Some("toolu_1"));
        assert_eq!(tool_use_in_call(Some("codex-mcp-client"), &meta), None);
    }

    #[test]
    fn the_session_of_an_earlier_process_is_ignored() {
        let files = tt_harness::by_name("claude").unwrap().session_files.as_ref().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let anchor = |started: &str| Anchor { host_id: "h".into(), pid: 42, process_started_at: started.into() };
        assert_eq!(read_session(files, dir.path(), &anchor("123@boot")), None, "no file");
        let write = |text: &str| std::fs::write(dir.path().join("42.json"), text).unwrap();
        for good in [r#"{"pid":42,"procStart":"123","sessionId":"s-2"}"#, r#"{"procStart":123,"sessionId":"s-2"}"#] {
            write(good);
            assert_eq!(read_session(files, dir.path(), &anchor("123@boot")).as_deref(), Some("s-2"));
            assert_eq!(read_session(files, dir.path(), &anchor("124@boot")), None);
        }
        for bad in ["", "{", "{}", r#"{"procStart":"123"}"#, r#"{"procStart":"123","sessionId":""}"#] {
            write(bad);
            assert_eq!(read_session(files, dir.path(), &anchor("123@boot")), None, "{bad}");
        }
    }
}
