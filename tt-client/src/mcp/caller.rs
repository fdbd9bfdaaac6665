//! Who makes a tool call: the environment the harness gave us, what it said of itself when it connected, and what came
//! with the call. Each call has a connection of its own, so that one process can serve several sessions and a call that
//! is given up leaves nothing behind.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use tt_proto::Error;
use tt_proto::hello::{Anchor, FoundBy};

use crate::connect::{Client, Settings};

/// Connects on behalf of whoever calls.
pub(super) struct Callers {
    settings: Settings,
    /// The Claude Code process above us, once the daemon has found it.
    claude: RefCell<Option<Anchor>>,
}

impl Callers {
    pub(super) fn new(settings: Settings) -> Self {
        Self { settings, claude: RefCell::default() }
    }

    /// A connection bound to the session this call belongs to.
    pub(super) async fn connect(&self, client_info: Option<String>, meta: &Value) -> Result<Client, Error> {
        let mut settings = self.settings.clone();
        settings.signals.session_id = session_of(client_info.as_deref(), meta);
        settings.signals.client_info = client_info;
        if settings.signals.session_id.is_none() {
            settings.signals.session_id = self.claude.borrow().as_ref().and_then(|claude| self.claude_session(claude));
        }
        let client = Client::connect(settings.clone()).await?;
        let identity = &client.welcome().identity;
        let is_claude = identity.harness.as_deref() == Some("claude") && identity.found_by != FoundBy::Override;
        let Some(anchor) = identity.anchor.clone().filter(|_| is_claude) else { return Ok(client) };
        let current = self.claude_session(&anchor);
        *self.claude.borrow_mut() = Some(anchor);
        match current {
            // What Claude Code put into our environment was true when it started us; it may have resumed another since.
            Some(session) if Some(&session) != identity.session_id.as_ref() => {
                settings.signals.session_id = Some(session);
                Client::connect(settings).await
            }
            _ => Ok(client),
        }
    }

    fn claude_session(&self, claude: &Anchor) -> Option<String> {
        let env = &self.settings.env;
        let dir = match env.get("CLAUDE_CONFIG_DIR") {
            Some(dir) => PathBuf::from(dir),
            None => Path::new(env.get("HOME")?).join(".claude"),
        };
        current_session(&dir.join("sessions"), claude)
    }
}

/// The session a call itself names.
fn session_of(client_info: Option<&str>, meta: &Value) -> Option<String> {
    // Codex clears the environment of its servers and names the thread with each call.
    let codex = client_info.is_some_and(|name| name.to_ascii_lowercase().starts_with("codex"));
    let thread = meta.get("threadId").and_then(Value::as_str).filter(|id| codex && !id.is_empty());
    thread.map(str::to_owned)
}

/// What Claude Code writes about each live process, as far as we need it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LiveSession {
    session_id: String,
    /// Ticks since boot, as a number or as text.
    proc_start: Value,
}

/// The session a Claude Code process is in now. None where it does not say, or where the file is a former process's.
fn current_session(dir: &Path, claude: &Anchor) -> Option<String> {
    let text = std::fs::read_to_string(dir.join(format!("{}.json", claude.pid))).ok()?;
    let live: LiveSession = serde_json::from_str(&text).ok()?;
    let started = match live.proc_start {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    // The daemon adds the boot to the ticks.
    let same = claude.process_started_at.split('@').next() == Some(started.as_str());
    Some(live.session_id).filter(|id| same && !id.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_codex_names_its_thread_with_a_call() {
        let meta = json!({"threadId": "t-1"});
        assert_eq!(session_of(Some("codex-mcp-client"), &meta).as_deref(), Some("t-1"));
        assert_eq!(session_of(Some("inspector"), &meta), None);
        assert_eq!(session_of(Some("codex-mcp-client"), &json!({"threadId": ""})), None);
        assert_eq!(session_of(None, &Value::Null), None);
    }

    #[test]
    fn a_former_processes_session_is_not_taken_for_the_present_ones() {
        let dir = tempfile::tempdir().unwrap();
        let anchor = |started: &str| Anchor { host_id: "h".into(), pid: 42, process_started_at: started.into() };
        assert_eq!(current_session(dir.path(), &anchor("123@boot")), None, "no file");
        let write = |text: &str| std::fs::write(dir.path().join("42.json"), text).unwrap();
        for good in [r#"{"pid":42,"procStart":"123","sessionId":"s-2"}"#, r#"{"procStart":123,"sessionId":"s-2"}"#] {
            write(good);
            assert_eq!(current_session(dir.path(), &anchor("123@boot")).as_deref(), Some("s-2"));
            assert_eq!(current_session(dir.path(), &anchor("124@boot")), None);
        }
        for bad in ["", "{", "{}", r#"{"procStart":"123"}"#, r#"{"procStart":"123","sessionId":""}"#] {
            write(bad);
            assert_eq!(current_session(dir.path(), &anchor("123@boot")), None, "{bad}");
        }
    }
}
