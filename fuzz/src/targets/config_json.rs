//! The JSON and JSONC files of harnesses: an install and an uninstall give the file back to the byte, or the file is refused.

use tt_client::fuzz;
use tt_harness::{Format, Harness};

use crate::generate::{json, json_string, text};
use crate::{Random, Target, Verdict, ensure};

pub(super) struct ConfigJson;

/// White space and comments between two tokens.
const GAPS: &[&str] =
    &["", "", "", " ", "\n", "\n  ", "\n\t", "\r\n  ", " // why\n", "// l\n    ", "/* c */", " /* x\n y */ ", "\n\n"];

impl Target for ConfigJson {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let mut file = (random.pick(&["", "", "", "\u{feff}", "// top\n"])).to_owned();
        let section = random.pick(&["mcpServers", "mcp"]);
        let servers = match random.below(4) {
            0 => json(random, 1),
            1 => "{}".into(),
            _ => container(random, &["other", "talking-stick", "x"]),
        };
        let members: Vec<String> = (0..random.length(5))
            .map(|n| if n == 1 { format!("{}:{servers}", json_string(section)) } else { member(random, "key") })
            .collect();
        file.push_str(&joined(random, &members));
        file.push_str(random.pick(GAPS));
        file.into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        check_format(input, Format::Json)
    }
}

fn member(random: &mut Random, key: &str) -> String {
    let key = match random.below(6) {
        0 => text(random),
        1 => key.to_owned(),
        _ => format!("{key}{}", random.below(50)),
    };
    format!("{}{}:{}{}", json_string(&key), random.pick(GAPS), random.pick(GAPS), json(random, 2))
}

fn container(random: &mut Random, keys: &[&str]) -> String {
    let members: Vec<String> = (0..random.length(4))
        .map(|_| {
            let key = random.pick(keys);
            format!("{}: {}", json_string(key), json(random, 2))
        })
        .collect();
    joined(random, &members)
}

/// An object of these members, with anything that is allowed in between.
fn joined(random: &mut Random, members: &[String]) -> String {
    let mut object = "{".to_owned();
    for (number, member) in members.iter().enumerate() {
        object.push_str(random.pick(GAPS));
        object.push_str(member);
        object.push_str(random.pick(GAPS));
        if number + 1 < members.len() || random.one_in(5) {
            object.push(',');
        }
    }
    object.push_str(random.pick(GAPS));
    object + "}"
}

/// Installs and uninstalls in a file of this format, for every harness that has one.
pub(super) fn check_format(input: &[u8], format: Format) -> Result<Verdict, String> {
    let Ok(text) = std::str::from_utf8(input) else { return Ok(Verdict::Refused) };
    let mut verdict = Verdict::Refused;
    for harness in tt_harness::ALL.iter().copied().filter(|harness| harness.mcp.format == format) {
        if install_and_uninstall(harness, text)? == Verdict::Accepted {
            verdict = Verdict::Accepted;
        }
    }
    Ok(verdict)
}

fn install_and_uninstall(harness: &'static Harness, text: &str) -> Result<Verdict, String> {
    let name = harness.name;
    let with = match fuzz::add_entry(harness, text) {
        Ok(with) => with,
        Err(e) => {
            ensure!(!e.message.is_empty() && !e.hint.is_empty(), "{name}: {e:?}");
            // What cannot be added to may still be uninstalled from, or refused, but nothing else.
            let _ = fuzz::remove_entry(harness, text, None);
            return Ok(Verdict::Refused);
        }
    };
    let is_set = |text: &str| fuzz::has_entry(harness, text).map_err(|e| e.to_string());
    ensure!(is_set(&with)?, "{name}: the entry is not in {with:?}");
    let again = fuzz::add_entry(harness, &with).map_err(|e| format!("{name}: {with:?}: {e}"))?;
    ensure!(again == with, "{name}: a second install makes {again:?} of {with:?}");
    let restored = fuzz::remove_entry(harness, &with, Some(text.to_owned()));
    let restored = restored.map_err(|e| format!("{name}: {with:?} cannot be uninstalled: {e}"))?;
    ensure!(restored.as_deref() == Some(text), "{name}: {text:?} comes back as {restored:?}");
    // Without the copy from before, the file loses our entry and stays readable.
    match fuzz::remove_entry(harness, &with, None) {
        Ok(Some(rest)) => {
            ensure!(!is_set(&rest)?, "{name}: the entry is still in {rest:?}");
            ensure!(fuzz::add_entry(harness, &rest).is_ok(), "{name}: {rest:?} is damaged");
        }
        // Only our entry was in it.
        Ok(None) => {}
        Err(e) => ensure!(!e.hint.is_empty(), "{name}: {e:?}"),
    }
    Ok(Verdict::Accepted)
}
