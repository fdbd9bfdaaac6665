//! What is known of a turn under way, as one column of its room.

use serde_json::{Map, Value, json};
use tt_rules::TurnEdits;

/// The column `edits_json`, read. What cannot be read is not known.
pub(super) fn parse(json: Option<String>) -> TurnEdits {
    let Some(Ok(mut stored)) = json.map(|json| serde_json::from_str::<Value>(&json)) else {
        return TurnEdits::default();
    };
    let is = |key: &str| stored[key] == true;
    let (by_guard, more) = (is("by_guard"), is("more"));
    let files = serde_json::from_value(stored["files"].take()).unwrap_or_default();
    let commit = serde_json::from_value(stored["commit"].take()).ok();
    TurnEdits { by_guard, files, more, commit, commit_ended: false }
}

/// The column `edits_json`, without what is not known.
pub(super) fn text(edits: &TurnEdits) -> Option<String> {
    let TurnEdits { by_guard, files, more, commit, commit_ended: _ } = edits;
    let mut stored = Map::new();
    for (key, is) in [("by_guard", by_guard), ("more", more)] {
        if *is {
            stored.insert(key.into(), Value::Bool(true));
        }
    }
    if !files.is_empty() {
        stored.insert("files".into(), json!(files));
    }
    if let Some(commit) = commit {
        stored.insert("commit".into(), json!(commit));
    }
    (!stored.is_empty()).then(|| Value::Object(stored).to_string())
}

/// Whether the column stays as it is.
pub(super) fn same(before: &TurnEdits, after: &TurnEdits) -> bool {
    let TurnEdits { by_guard, files, more, commit, commit_ended: _ } = after;
    before.by_guard == *by_guard && before.files == *files && before.more == *more && before.commit == *commit
}
