//! Generators that several targets share: text, JSON and damage.

use crate::Random;

/// Pieces of text that have a meaning to a terminal, a parser, a shell or a reader.
const PIECES: &[&str] = &[
    "\x1b[2J",
    "\x1b]0;t\x07",
    "\u{9b}31m",
    "\r",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\u{2029}",
    "\u{202e}",
    "\u{2066}",
    "\u{200b}",
    "\u{200d}",
    "\u{feff}",
    "\u{ad}",
    "\u{e0041}",
    "\u{fe0f}",
    "\u{fe0f}\u{fe0e}",
    "\u{301}",
    "漢字",
    "é",
    "👩\u{200d}👧",
    "\u{10ffff}",
    "\"",
    "'",
    "\\",
    "\\u202e",
    "\\ud800",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "//",
    "/*",
    "*/",
    "#",
    "=",
    "%",
    "$(x)",
    "`x`",
    "..",
    "/",
    "~",
    "@room",
    "@agent",
    "null",
    "true",
    "-0",
    "1e999",
    "18446744073709551616",
    "[inbox 0 ends]",
    "human:root",
    "talking-stick",
    "mcpServers",
    " ",
    "  ",
    "a",
    "b",
    "x",
];

/// Text: words, signs with a meaning, and now and then a long row of one of them.
pub fn text(random: &mut Random) -> String {
    let mut text = String::new();
    for _ in 0..random.length(40) {
        match random.below(8) {
            0..=3 => text.push_str(random.pick(PIECES)),
            4 => text.push(char::from(random.byte() & 0x7f)),
            5 => text.extend(char::from_u32(random.number() as u32 & 0x1f_ffff)),
            6 => text.push_str(&random.pick(PIECES).repeat(random.length(200))),
            _ => text.push_str(random.pick(&["word ", "the next action", "src/lib.rs:10-20", "codex:1", "30s"])),
        }
    }
    text
}

/// A JSON string.
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Any JSON value, as text.
pub fn json(random: &mut Random, depth: usize) -> String {
    let nested = depth > 0;
    match random.below(if nested { 10 } else { 7 }) {
        0 => "null".into(),
        1 => (random.pick(&["true", "false"])).into(),
        2 => (random.number() as i64 >> random.below(64)).to_string(),
        3 => (random.pick(&["0", "-1", "1.5e3", "1e400", "-0.0", "9223372036854775808", "1.50"])).into(),
        4..=6 => json_string(&text(random)),
        7 | 8 => {
            let fields: Vec<String> = (0..random.length(6))
                .map(|_| {
                    let key = if random.one_in(4) { text(random) } else { (random.pick(KEYS)).to_owned() };
                    format!("{}:{}", json_string(&key), json(random, depth - 1))
                })
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        _ => {
            let items: Vec<String> = (0..random.length(6)).map(|_| json(random, depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
    }
}

/// Keys that mean something somewhere.
const KEYS: &[&str] = &[
    "status",
    "next_action",
    "artifacts",
    "path",
    "lines",
    "role",
    "body",
    "session_id",
    "mcpServers",
    "mcp",
    "talking-stick",
    "command",
    "args",
    "type",
    "id",
    "method",
    "params",
    "room_id",
    "a",
    "b",
    "",
];

/// A JSON object of these fields, each of them left out, right or of another kind than expected.
pub fn object(random: &mut Random, fields: &[(&str, String)]) -> String {
    let mut members = Vec::new();
    for (name, value) in fields {
        match random.below(12) {
            0 => {}
            1 => members.push(format!("{}:{}", json_string(name), json(random, 2))),
            _ => members.push(format!("{}:{value}", json_string(name))),
        }
    }
    if random.one_in(6) {
        members.push(format!("{}:{}", json_string(&text(random)), json(random, 2)));
    }
    format!("{{{}}}", members.join(","))
}

/// Damages an input: bytes and ranges are changed, removed, repeated or taken from another input.
pub fn damage(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = (at + random.length(64)).min(input.len());
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.byte(),
            2 => drop(input.drain(at..end)),
            3 => {
                let range = input[at..end].to_vec();
                input.splice(at..at, range);
            }
            4 => input.truncate(at),
            5 if !other.is_empty() => {
                let from = random.below(other.len());
                let to = (from + random.length(64)).min(other.len());
                input.splice(at..end, other[from..to].iter().copied());
            }
            _ => drop(input.splice(at..at, random.pick(PIECES).bytes())),
        }
    }
    // What is longer than this shows nothing new and takes long.
    input.truncate(64 * 1024);
}
