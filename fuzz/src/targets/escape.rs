//! Text of others on its way to a terminal or a model: nothing hides in it, nothing leaves its line or the framed block, and
//! JSON still means the same.

use tt_proto::escape::{escape_json, escape_lines, escape_text, escape_value, is_harmless};
use tt_proto::event::{Event, EventType};
use tt_proto::handoff::RawJson;
use tt_proto::message::MessageSent;
use tt_proto::{AgentId, EventId, WallTime, block};

use crate::{Random, Target, Verdict, ensure, generate};

pub(super) struct Escape;

impl Target for Escape {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        generate::text(random).into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let text = String::from_utf8_lossy(input).into_owned();
        let escaped = escape_text(&text);
        ensure!(is_harmless(&escaped), "something hides in {escaped:?}");
        ensure!(!escaped.chars().any(is_known_to_hide), "something well known hides in {escaped:?}");
        ensure!(escape_text(&escaped) == escaped, "escaping it again changes {escaped:?}");
        ensure!((escaped == text) == is_harmless(&text), "harmless text is changed, or harmful text is not");
        let lines = escape_lines(&text);
        ensure!(lines.split(['\n', '\t']).all(is_harmless), "something hides in {lines:?}");
        let printed = tt_client::fuzz::make_harmless(&text);
        ensure!(printed.split(['\n', '\t']).all(is_harmless), "it would be printed as {printed:?}");

        let json = escape_json(&serde_json::Value::from(text.as_str()).to_string());
        ensure!(is_harmless(&json), "something hides in {json:?}");
        ensure!(serde_json::from_str::<String>(&json).ok() == Some(text.clone()), "{json} means something else");
        let mut value = serde_json::json!({ text.as_str(): [{ "deep": text.as_str() }] });
        escape_value(&mut value);
        let decoded = |text: &str| text.split(['\n', '\t']).all(is_harmless);
        ensure!(
            value.as_object().is_some_and(|fields| fields.keys().all(|key| decoded(key))),
            "a key hides in {value}"
        );
        ensure!(value.to_string().split(['\n', '\t']).all(is_harmless), "something hides in {value}");

        in_block(&text)?;
        Ok(if escaped == text { Verdict::Accepted } else { Verdict::Refused })
    }
}

/// The characters of known attacks, written down apart from the list under test: escapes of terminals, text that runs backwards,
/// spaces without width, tags. The joiner of emoji and their selectors may stay.
fn is_known_to_hide(c: char) -> bool {
    let reorders = matches!(u32::from(c), 0x61c | 0x200e | 0x200f | 0x202a..=0x202e | 0x2066..=0x2069);
    let has_no_width = matches!(u32::from(c), 0xad | 0x200b | 0x200c | 0x2060..=0x2064 | 0xfeff | 0xe0000..=0xe01ef);
    let breaks_lines = matches!(u32::from(c), 0xa..=0xd | 0x85 | 0x2028 | 0x2029);
    let drives = matches!(u32::from(c), 0..=0x8 | 0xe..=0x1f | 0x7f..=0x9f);
    reorders || has_no_width || breaks_lines || drives
}

/// As the body of a message in the block that a model reads.
fn in_block(body: &str) -> Result<(), String> {
    // Marked as a person's or not, so that both heads of the block are tried.
    let from_person = body.len() % 2 == 1;
    let sent = MessageSent { body: body.to_owned(), from_person, ..MessageSent::default() };
    let event = Event {
        event_seq: 1,
        event_id: EventId::from("e"),
        room_id: "room".into(),
        turn_id: None,
        event_type: EventType::MessageSent,
        from_agent_id: Some(AgentId::trusted(body)),
        to_agent_id: None,
        handoff: None,
        reason: None,
        created_at: WallTime::from_millis(0),
        payload: RawJson::of(&sent).ok(),
    };
    let line = block::message_line(&event).ok_or("a message has no line")?;
    let framed = block::frame(&[line.clone(), line], 1);
    let lines: Vec<&str> = framed.split('\n').collect();
    ensure!(lines.len() == 4 && lines.iter().all(|line| is_harmless(line)), "it leaves its line: {framed:?}");
    let tag = lines[0].strip_prefix("[inbox ").and_then(|rest| rest.split(':').next()).unwrap_or_default();
    ensure!(lines[3].starts_with(&format!("[inbox {tag} ends")), "the block has another end: {framed:?}");
    ensure!(!lines[1].contains(tag) && !body.contains(tag), "the tag was known");
    let shown: serde_json::Value = serde_json::from_str(lines[1]).map_err(|e| format!("{e}: {framed:?}"))?;
    ensure!(shown["body"] == body && shown["from_agent_id"] == body, "{shown} is not what was sent");
    Ok(())
}
