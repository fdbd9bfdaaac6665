//! The record that the user of a harness trusts our hooks, in the harness's own TOML settings.
//!
//! Codex asks its user about every new hook and runs none that was not accepted. `tt install --trust-hooks` writes the
//! answer for a user who asked for that; nothing else does.

use std::path::Path;

use sha2::{Digest, Sha256};
use toml_edit::{DocumentMut, Item, Key, TableLike};
use tt_harness::{Harness, HookFile};

use super::hooks;
use super::json::Document;
use super::toml::keep_comments;

/// The tables that hold one entry for each hook.
const SECTION: [&str; 2] = ["hooks", "state"];

const HASH_KEY: &str = "trusted_hash";

/// The trust in one hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trust {
    /// The hook file, the event, and the position of the hook in that event's list.
    key: String,
    hash: String,
}

/// The trust that our hooks need, as they are in the text of the hook file.
pub(super) fn needed(
    harness: &Harness,
    file: &'static HookFile,
    program: &str,
    (path, text): (&Path, &str),
) -> Vec<Trust> {
    let trust = |(event, group): (&tt_harness::HookEvent, usize)| {
        let form = hooks::trusted_form(harness, file, event, program);
        let key = format!("{}:{}:{group}:0", path.display(), hooks::snake_case(event.name));
        let hash: String = Sha256::digest(form.to_string()).iter().map(|byte| format!("{byte:02x}")).collect();
        Trust { key, hash: format!("sha256:{hash}") }
    };
    let Ok(text) = Document::parse(text) else { return Vec::new() };
    hooks::positions(&text, harness, file).into_iter().map(trust).collect()
}

/// Whether the user trusts all of these hooks.
pub(super) fn is_given(text: &str, needed: &[Trust]) -> bool {
    let Ok(document) = text.parse::<DocumentMut>() else { return false };
    needed.iter().all(|trust| recorded(&document, &trust.key) == Some(trust.hash.as_str()))
}

/// Records the trust in these hooks.
pub(super) fn set(text: &str, needed: &[Trust]) -> Result<String, String> {
    let mut text = text.to_owned();
    for trust in needed {
        let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.message().to_owned())?;
        if recorded(&document, &trust.key) == Some(trust.hash.as_str()) {
            continue;
        }
        let entry = section_mut(&mut document).and_then(|section| section.get_mut(&trust.key)?.as_table_like_mut());
        text = match entry {
            Some(entry) => {
                entry.insert(HASH_KEY, toml_edit::value(&trust.hash));
                document.to_string()
            }
            None => appended(&text, trust)?,
        };
    }
    Ok(text)
}

/// Removes the trust in these hooks. They are removed too, so it does not matter who recorded it and for which version.
pub(super) fn unset(text: &str, given: &[Trust]) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.message().to_owned())?;
    let mut changed = false;
    for trust in given {
        let removed = section_mut(&mut document).and_then(|section| section.remove(&trust.key));
        if let Some(Item::Table(removed)) = &removed {
            keep_comments(&mut document, removed);
        }
        changed |= removed.is_some();
    }
    Ok(if changed { document.to_string() } else { text.to_owned() })
}

/// The text with one more table at its end, so that no byte before it changes.
fn appended(text: &str, trust: &Trust) -> Result<String, String> {
    let end_of_line = if text.split_once('\n').is_some_and(|(line, _)| line.ends_with('\r')) { "\r\n" } else { "\n" };
    let gap = match text {
        "" => String::new(),
        text if text.ends_with('\n') => end_of_line.to_owned(),
        _ => end_of_line.repeat(2),
    };
    let [outer, inner] = SECTION;
    let (key, hash) = (Key::new(&trust.key), toml_edit::Value::from(&trust.hash));
    let table = format!("[{outer}.{inner}.{}]{end_of_line}{HASH_KEY} = {hash}{end_of_line}", key.display_repr());
    let with = format!("{text}{gap}{table}");
    let document: DocumentMut = with.parse().map_err(|e: toml_edit::TomlError| e.message().to_owned())?;
    match recorded(&document, &trust.key) {
        Some(hash) if *hash == trust.hash => Ok(with),
        _ => Err(format!("{outer}.{inner} cannot be added to")),
    }
}

fn recorded<'a>(document: &'a DocumentMut, key: &str) -> Option<&'a str> {
    let [outer, inner] = SECTION;
    document.get(outer)?.get(inner)?.get(key)?.get(HASH_KEY)?.as_str()
}

fn section_mut(document: &mut DocumentMut) -> Option<&mut dyn TableLike> {
    let [outer, inner] = SECTION;
    document.get_mut(outer)?.get_mut(inner)?.as_table_like_mut()
}

#[cfg(test)]
mod tests {
    use tt_harness::Hooks;

    use super::*;

    fn trust(key: &str) -> Trust {
        Trust { key: key.into(), hash: format!("sha256:{key}") }
    }

    #[test]
    fn trust_comes_and_goes_and_the_rest_stays() {
        let (one, two) = (trust("/h/hooks.json:stop:0:0"), trust("/h/hooks.json:pre_tool_use:1:0"));
        let both = [one.clone(), two.clone()];
        let theirs = "[hooks.state.\"/h/hooks.json:stop:9:0\"]\ntrusted_hash = \"sha256:theirs\"\n";
        for text in ["", "a = 1", "a = 1\r\n", "# end\n", theirs, "[hooks.state]\n", "[z]\nb = 2\n# notes\n"] {
            let with = set(text, &both).unwrap();
            assert!(with.starts_with(text) && is_given(&with, &both), "{with}");
            assert_eq!(set(&with, &both).unwrap(), with);
            let without = unset(&with, &both).unwrap();
            assert!(
                !is_given(&without, std::slice::from_ref(&one)) && !is_given(&without, std::slice::from_ref(&two)),
                "{without}"
            );
            assert_eq!(without.trim_end(), text.trim_end());
        }
    }

    #[test]
    fn an_outdated_hash_is_replaced_where_it_is() {
        let one = trust("k");
        let text = "[hooks.state.k]\nenabled = true # mine\ntrusted_hash = \"sha256:old\"\n\n[z]\n";
        assert!(!is_given(text, std::slice::from_ref(&one)));
        let with = set(text, std::slice::from_ref(&one)).unwrap();
        assert_eq!(with, text.replace("sha256:old", "sha256:k"));
        assert_eq!(unset(text, &[one]).unwrap(), "\n[z]\n", "also the trust in another version of the hook");
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_refused() {
        assert!(set("a = ", &[trust("k")]).is_err() && unset("a = ", &[trust("k")]).is_err());
        assert!(set("hooks = 1\n", &[trust("k")]).is_err());
    }

    #[test]
    fn the_form_that_is_hashed_is_compact_with_sorted_keys() {
        let harness = tt_harness::by_name("codex").unwrap();
        let Hooks::File(file) = &harness.hooks else { panic!() };
        let form = hooks::trusted_form(harness, file, &file.events[0], "/tt").to_string();
        assert_eq!(
            form,
            r#"{"event_name":"session_start","hooks":[{"async":false,"command":"test -x '/tt' && '/tt' hook --harness codex session_started || true","timeout":5,"type":"command"}]}"#
        );
    }
}
