//! Sessions and the reports of hooks.

use serde_json::json;

use super::Script;

impl Script {
    pub(super) fn sessions(&mut self) {
        let (mut a, room) = self.member("claude:a", "sessions");
        let (mut b, _) = self.member("claude:b", "sessions");
        let (mut hooked, _) = self.member("claude:h", "sessions");
        let mut stranger = self.agent("claude:s");
        let rec = &mut self.recorder;
        let report = |event: &str| json!({"harness": "claude", "session_id": "s-1", "event": event});
        let least = report("session_started");
        rec.succeeds(&mut a, "least fields", "report_session", least);
        let mut full = report("tool_started");
        full.as_object_mut().unwrap().extend(
            json!({
                "reason": null, "at": "2026-01-02T03:04:05.678Z", "began_ms": null, "subagent_id": "agent-7", "tool_use_id": "toolu_1",
                "tool_name": "Bash", "cwd": "/work", "transcript_path": "/nowhere/s-1.jsonl",
                "previous_session_id": null, "can_speak": false
            })
            .as_object()
            .cloned()
            .unwrap(),
        );
        rec.succeeds(&mut a, "all fields", "report_session", full);
        rec.succeeds(&mut a, "a question is open", "report_session", report("permission_asked"));
        let message = json!({"room_id": room, "to": "claude:h", "body": "look"});
        rec.succeeds(&mut b, "to a session with hooks", "send_message", message);
        let speaks = json!({"harness": "claude", "session_id": "s-3", "event": "tool_ended", "can_speak": true, "at": "2026-01-02T03:04:05.678Z"});
        rec.succeeds(&mut hooked, "a message waits", "report_session", speaks);
        rec.fails(&mut a, "invalid_input", "an unknown event", "report_session", report("dance"));
        let other = json!({"harness": "codex", "session_id": "s-1", "event": "prompt"});
        rec.fails(&mut a, "invalid_input", "another harness", "report_session", other);
        let empty = json!({"harness": "claude", "session_id": "", "event": "prompt"});
        rec.fails(&mut a, "invalid_input", "no session", "report_session", empty);
        rec.succeeds(&mut b, "one", "list_sessions", json!({}));
        let peek = json!({"agent_id": "claude:a", "lines": 3});
        rec.succeeds(&mut b, "a transcript that is not there", "peek_session", peek);
        rec.fails(&mut b, "unknown_target", "no session", "peek_session", json!({"agent_id": "claude:b"}));
        // Of no member, and long ago, so that nothing of it depends on when this runs.
        let mut past = |event: &str, at: &str| {
            let report = json!({"harness": "claude", "session_id": "s-2", "event": event, "at": at});
            rec.succeeds(&mut stranger, "long ago", "report_session", report);
        };
        past("session_started", "2026-01-02T03:04:05.678Z");
        past("session_ended", "2026-01-02T03:05:05.678Z");
        rec.succeeds(&mut b, "with those that are gone", "list_sessions", json!({"include_gone": true}));
    }
}
