//! Text of others on its way to a terminal or a model: nothing hides in it, nothing leaves its line or the framed block, and
//! JSON still means the same.

use tt_proto::escape::{escape_json, escape_lines, escape_text, escape_value, is_harmless};
use tt_proto::event::{Event, EventType};
use tt_proto::handoff::RawJson;
use tt_proto::message::{DeliveryHint, MessageSent};
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

/// As the body of a message in the block that a model reads.
fn in_block(body: &str) -> Result<(), String> {
    let sent = MessageSent { body: body.to_owned(), delivery_hint: DeliveryHint::Normal };
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
