//! The end of a transcript, which a harness wrote with what its model and its tools said.

use ttd::sessions::transcript;

use crate::generate::{json, json_string, object, text};
use crate::{Random, Target, Verdict, ensure};

/// How many lines are asked for, and how long one may be: 400 characters and a mark that it was cut.
const LINES: usize = 5;
const MAX_CHARS: usize = 401;

pub(super) struct Transcripts;

impl Target for Transcripts {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let mut lines = Vec::new();
        for _ in 0..=random.length(12) {
            let kind = random.pick(&["text", "tool_use", "tool_result", "thinking", "output_text"]);
            let (said, input) = (json_string(&text(random)), json(random, 2));
            let fields = [("type", json_string(kind)), ("text", said), ("name", json_string("Bash")), ("input", input)];
            let block = object(random, &fields);
            let content = if random.one_in(3) { json_string(&text(random)) } else { format!("[{block},{block}]") };
            let role = random.pick(&["user", "assistant", "gemini", "developer"]);
            let message =
                object(random, &[("role", json_string(role)), ("type", json_string(role)), ("content", content)]);
            let line = match random.below(3) {
                0 => message,
                1 => object(random, &[("type", json_string(role)), ("message", message)]),
                _ => object(random, &[("type", json_string("response_item")), ("payload", message)]),
            };
            lines.push(line);
        }
        lines.join("\n").into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let lines = transcript::lines_of(&String::from_utf8_lossy(input), LINES);
        ensure!(lines.len() <= LINES, "{} lines", lines.len());
        for line in &lines {
            ensure!(matches!(line.role.as_str(), "user" | "assistant" | "tool"), "{line:?}");
            ensure!(line.text.chars().count() <= MAX_CHARS, "a line of {} characters", line.text.chars().count());
        }
        Ok(if lines.is_empty() { Verdict::Refused } else { Verdict::Accepted })
    }
}
