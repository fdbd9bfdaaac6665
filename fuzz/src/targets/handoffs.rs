//! Handoffs: kept to the letter or refused with a reason, and harmless when shown.

use tt_proto::ErrorCode;
use tt_proto::escape::is_harmless;
use tt_proto::handoff::{Handoff, RawJson};

use crate::generate::{json, json_string, object, text};
use crate::{Random, Target, Verdict, ensure};

pub(super) struct Handoffs;

impl Target for Handoffs {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let artifact = [
            ("path", json_string(&text(random))),
            ("lines", (random.pick(&["[1,2]", "[0,1]", "[9,1]", "[1]", "[1,18446744073709551615]"])).to_owned()),
            ("role", (random.pick(&["\"edit\"", "\"review\"", "\"paint\"", "null"])).to_owned()),
            ("note", json_string(&text(random))),
        ];
        let artifacts: Vec<String> = (0..random.length(3)).map(|_| object(random, &artifact)).collect();
        let fields = [
            ("status", json_string(&text(random))),
            ("next_action", json_string(&text(random))),
            ("artifacts", format!("[{}]", artifacts.join(","))),
            ("open_questions", format!("[{}]", json_string(&text(random)))),
            ("do_not", format!("[{}]", json(random, 1))),
        ];
        object(random, &fields).into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let Ok(text) = String::from_utf8(input.to_vec()) else { return Ok(Verdict::Refused) };
        let Ok(raw) = RawJson::parse(text.clone()) else { return Ok(Verdict::Refused) };
        ensure!(raw.as_str() == text.trim_matches([' ', '\t', '\n', '\r']), "{:?} is kept as {:?}", text, raw.as_str());
        for width in [None, Some(1), Some(60)] {
            let shown = tt_client::fuzz::render_handoff(&raw, width);
            ensure!(shown.split('\n').all(is_harmless), "it is shown as {shown:?}");
        }
        match Handoff::check(&raw) {
            Ok(handoff) => {
                ensure!(!handoff.status.trim().is_empty() && !handoff.next_action.trim().is_empty(), "{handoff:?}");
                Ok(Verdict::Accepted)
            }
            Err(e) => {
                ensure!(e.code == ErrorCode::InvalidHandoff && !e.message.is_empty() && !e.hint.is_empty(), "{e:?}");
                Ok(Verdict::Refused)
            }
        }
    }
}
