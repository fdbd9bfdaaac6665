//! Events as a daemon of any version, or a hostile one, sends them: they are read or refused, and what is shown of them is
//! harmless and keeps to its width.

use tt_proto::block;
use tt_proto::escape::is_harmless;
use tt_proto::event::{Event, EventType};
use tt_proto::filter::EventFilter;

use crate::generate::{json, json_string, object, text};
use crate::{Random, Target, Verdict, ensure};

pub(super) struct Events;

impl Target for Events {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let event_type = random.pick(EventType::ALL).as_str();
        let payload = match random.below(4) {
            0 => json(random, 3),
            1 => format!(r#"{{"display_name":{},"harness":null}}"#, json_string(&text(random))),
            2 => format!(r#"{{"note_id":{}}}"#, json_string(&text(random))),
            _ => {
                let hint = random.pick(&["normal", "important", "interrupt", "loud"]);
                format!(r#"{{"body":{},"delivery_hint":"{hint}"}}"#, json_string(&text(random)))
            }
        };
        let handoff = match random.below(3) {
            0 => "null".into(),
            1 => json(random, 3),
            _ => format!(r#"{{"status":{},"next_action":{}}}"#, json_string(&text(random)), json_string(&text(random))),
        };
        let time =
            random.pick(&["2026-11-16T01:02:03.456Z", "1970-01-01T00:00:00.000Z", "9999-12-31T23:59:59Z", "now"]);
        let fields = [
            ("event_seq", (random.number() as i64 >> random.below(64)).to_string()),
            ("event_id", json_string(&text(random))),
            ("room_id", json_string(&text(random))),
            ("turn_id", (random.pick(&["null", "1", "-1", "9223372036854775807"])).to_owned()),
            ("event_type", json_string(event_type)),
            ("from_agent_id", json_string(&text(random))),
            ("to_agent_id", if random.one_in(2) { "null".into() } else { json_string(&text(random)) }),
            ("handoff", handoff),
            ("reason", if random.one_in(2) { "null".into() } else { json_string(&text(random)) }),
            ("created_at", json_string(time)),
            ("payload", payload),
        ];
        object(random, &fields).into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        // A filter comes from the same places.
        if let Ok(filter) = serde_json::from_slice::<EventFilter>(input) {
            let _ = filter.understand(None, "any");
        }
        let Ok(event) = serde_json::from_slice::<Event>(input) else { return Ok(Verdict::Refused) };
        let written = serde_json::to_string(&event).map_err(|e| e.to_string())?;
        let again: Event = serde_json::from_str(&written).map_err(|e| format!("{e}: {written}"))?;
        ensure!(again == event, "{written} is read as another event");
        for width in [None, Some(1), Some(20), Some(80)] {
            let shown = tt_client::fuzz::render_event(&event, width);
            ensure!(shown.split('\n').all(is_harmless), "it is shown as {shown:?}");
        }
        if let Some(line) = block::message_line(&event) {
            ensure!(is_harmless(&line), "a model reads {line:?}");
        }
        Ok(Verdict::Accepted)
    }
}
