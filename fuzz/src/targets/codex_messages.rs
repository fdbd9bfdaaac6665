//! What the daemon of Codex, or something else at its socket, reports. Only the words that mean it close a session.

use serde_json::Value;
use ttd::sessions::codex;
use ttd::sessions::evidence::ServerSays;

use crate::generate::{json, json_string, object, text};
use crate::{Random, Target, Verdict, ensure};

pub(super) struct CodexMessages;

impl Target for CodexMessages {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let kind = random.pick(&["idle", "active", "notLoaded", "systemError", "levitating"]);
        let flags = random.pick(&["[]", "[\"waitingOnApproval\"]", "[\"waitingOnUserInput\",7]", "null"]);
        let status = object(random, &[("type", json_string(kind)), ("activeFlags", flags.to_owned())]);
        let (id, thread_id, at) = (json_string(&text(random)), json_string(&text(random)), json(random, 0));
        let thread = object(random, &[("id", id), ("status", status.clone())]);
        let params = object(random, &[("threadId", thread_id), ("status", status), ("thread", thread)]);
        let method = random.pick(&["thread/status/changed", "thread/closed", "thread/started", "turn/started"]);
        let fields = [("method", json_string(method)), ("params", params), ("emittedAtMs", at)];
        object(random, &fields).into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let Ok(message) = serde_json::from_slice::<Value>(input) else { return Ok(Verdict::Refused) };
        let Some(news) = codex::read_notification(&message) else { return Ok(Verdict::Refused) };
        let is_status = |at: &str| message.pointer(at).is_some_and(|kind| kind == "notLoaded");
        let closes = message["method"] == "thread/closed"
            || is_status("/params/status/type")
            || is_status("/params/thread/status/type");
        ensure!(news.says != ServerSays::Closed || closes, "{message} closes a session");
        ensure!(news.says != ServerSays::Open || news.status.is_some(), "{message} opens one that does nothing");
        Ok(Verdict::Accepted)
    }
}
