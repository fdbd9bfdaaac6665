//! The end of a transcript: the file in which a harness writes a conversation, one JSON object a line.

use std::fs::OpenOptions;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;
use tt_proto::session::PeekLine;

/// How much of the end of a transcript is read.
const MAX_TAIL_BYTES: u64 = 256 * 1024;

/// How much of the end of a transcript is searched for a block.
const MAX_SEARCHED_BYTES: u64 = 8 * 1024 * 1024;

/// How much of one message is shown.
const MAX_LINE_CHARS: usize = 400;

/// The last things that were said and done, oldest first.
pub fn last_lines(path: &Path, limit: usize) -> io::Result<Vec<PeekLine>> {
    Ok(lines_of(&read_tail(path, MAX_TAIL_BYTES)?, limit))
}

/// Whether a block with this tag has become part of a conversation. One that the harness has only put aside for later has not.
pub fn shows_block(path: &Path, tag: &str) -> io::Result<bool> {
    Ok(has_block(&read_tail(path, MAX_SEARCHED_BYTES)?, tag))
}

fn has_block(tail: &str, tag: &str) -> bool {
    let entries = tail.lines().filter(|line| line.contains(tag)).filter_map(|line| serde_json::from_str(line).ok());
    entries.into_iter().any(|entry: Value| match entry.get("type").and_then(Value::as_str) {
        // Claude Code notes what waits in its memory, and when it is taken from there.
        Some("queue-operation") => false,
        _ => entry.is_object(),
    })
}

fn read_tail(path: &Path, limit: u64) -> io::Result<String> {
    // A path that names a pipe or a device must not hold the reader.
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    file.seek(SeekFrom::Start(meta.len().saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of the end of a transcript. What cannot be read, such as a first line that was cut, is left out.
pub fn lines_of(tail: &str, limit: usize) -> Vec<PeekLine> {
    let parsed = tail.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut lines: Vec<PeekLine> = parsed.flat_map(|entry| read_entry(&entry).into_iter().rev()).take(limit).collect();
    lines.reverse();
    lines
}

/// What one entry of a transcript shows. The harnesses differ in where they put a message, and agree on its shape.
fn read_entry(entry: &Value) -> Vec<PeekLine> {
    let message = match entry.get("type").and_then(Value::as_str) {
        // Codex.
        Some("response_item") => entry.get("payload"),
        Some("event_msg" | "session_meta" | "turn_context" | "compacted") => None,
        // Claude Code; Gemini CLI has the message itself on the line.
        _ => entry.get("message").or(Some(entry)),
    };
    let Some(message) = message else { return Vec::new() };
    let text = |key: &str| message.get(key).and_then(Value::as_str);
    if let Some("function_call" | "custom_tool_call" | "local_shell_call") = text("type") {
        let input = text("arguments").or(text("input")).unwrap_or_default();
        return vec![line("tool", &format!("{} {input}", text("name").unwrap_or("tool")))];
    }
    let Some(role @ ("user" | "assistant")) = text("role").or(text("type")).map(|role| match role {
        "gemini" | "model" => "assistant",
        role => role,
    }) else {
        return Vec::new();
    };
    match message.get("content") {
        Some(Value::String(said)) => vec![line(role, said)],
        Some(Value::Array(blocks)) => blocks.iter().filter_map(|block| read_block(role, block)).collect(),
        _ => Vec::new(),
    }
}

fn read_block(role: &str, block: &Value) -> Option<PeekLine> {
    match block.get("type").and_then(Value::as_str) {
        Some("tool_use") => {
            let input = block.get("input").map(Value::to_string).unwrap_or_default();
            let name = block.get("name").and_then(Value::as_str).unwrap_or("tool");
            Some(line("tool", &format!("{name} {input}")))
        }
        Some("tool_result" | "thinking" | "reasoning") => None,
        _ => block.get("text").and_then(Value::as_str).map(|said| line(role, said)),
    }
}

fn line(role: &str, said: &str) -> PeekLine {
    let said = said.trim();
    let mut text: String = said.chars().take(MAX_LINE_CHARS).collect();
    if text.len() < said.len() {
        text.push('…');
    }
    PeekLine { role: role.to_owned(), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(tail: &str, limit: usize) -> Vec<String> {
        lines_of(tail, limit).into_iter().map(|line| format!("{}: {}", line.role, line.text)).collect()
    }

    #[test]
    fn the_transcripts_of_each_harness_are_read() {
        let claude = r#"{"type":"user","message":{"role":"user","content":"fix it"}}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"I will."},{"type":"tool_use","name":"Bash","input":{"command":"ls"}}]}}
{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"a b"}]}}
{"type":"summary","summary":"x"}"#;
        assert_eq!(shown(claude, 9), ["user: fix it", "assistant: I will.", r#"tool: Bash {"command":"ls"}"#]);
        let codex = r#"{"type":"session_meta","payload":{"id":"x"}}
{"type":"response_item","payload":{"type":"message","role":"developer","content":[{"type":"input_text","text":"rules"}]}}
{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]}}
{"type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":\"ls\"}"}}
{"type":"event_msg","payload":{"type":"agent_message","message":"done"}}
{"type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"done"}]}}"#;
        assert_eq!(shown(codex, 9), ["user: go", r#"tool: shell {"command":"ls"}"#, "assistant: done"]);
        assert_eq!(shown(codex, 1), ["assistant: done"]);
        assert_eq!(shown(r#"{"id":"1","type":"gemini","content":"hello"}"#, 9), ["assistant: hello"]);
    }

    #[test]
    fn a_block_is_found_once_it_is_part_of_the_conversation() {
        let queued = r#"{"type":"queue-operation","operation":"enqueue","content":"[talking-stick 1a2b]"}"#;
        assert!(!has_block(queued, "1a2b"));
        for entry in [
            r#"{"type":"user","message":{"role":"user","content":"Another session:\n[talking-stick 1a2b]"}}"#,
            r#"{"type":"attachment","attachment":{"type":"queued_command","prompt":"[talking-stick 1a2b]"}}"#,
            r#"{"type":"response_item","payload":{"role":"user","content":[{"type":"input_text","text":"[talking-stick 1a2b]"}]}}"#,
        ] {
            assert!(has_block(&format!("{queued}\n{entry}\n{queued}"), "1a2b"), "{entry}");
            assert!(!has_block(entry, "1a2c"));
            assert!(!has_block(&entry[..entry.len() - 1], "1a2b"), "a line that is half written");
        }
    }

    #[test]
    fn what_is_no_transcript_shows_nothing() {
        for text in ["", "{", "cut off\"}\n[1,2]\n7\nnull\n{}", r#"{"type":"user","message":7}"#] {
            assert_eq!(shown(text, 9), Vec::<String>::new(), "{text}");
        }
        let long = format!(r#"{{"role":"user","content":"{}"}}"#, "é".repeat(1000));
        assert_eq!(lines_of(&long, 1)[0].text.chars().count(), MAX_LINE_CHARS + 1);
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(last_lines(dir.path(), 5).is_err());
        assert!(last_lines(&dir.path().join("absent"), 5).is_err());
        assert!(last_lines(Path::new("/dev/zero"), 5).is_err());
        let file = dir.path().join("t.jsonl");
        let entry = |n: usize| format!("{{\"role\":\"user\",\"content\":\"{n} {}\"}}\n", "x".repeat(1000));
        std::fs::write(&file, (0..1000).map(entry).collect::<String>()).unwrap();
        let lines = last_lines(&file, 2).unwrap();
        assert!(lines[0].text.starts_with("998 ") && lines[1].text.starts_with("999 "), "{lines:?}");
    }
}
