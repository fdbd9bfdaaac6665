//! Adds and removes the entry of an MCP server in a TOML file.

use toml_edit::{DocumentMut, Item, Table, TableLike};
use tt_harness::McpConfig;

use super::entry;

pub(super) fn set(text: &str, mcp: &McpConfig, name: &str, program: &str) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(reason)?;
    let section_key = mcp.section;
    let entry = entry::toml(mcp, program);
    if same(&document, mcp, name, &entry) {
        return Ok(text.to_owned());
    }
    if servers(&document, mcp).and_then(|servers| servers.get(name)).is_none() {
        // Append it, so that no byte before it changes.
        let end_of_line =
            if text.split_once('\n').is_some_and(|(line, _)| line.ends_with('\r')) { "\r\n" } else { "\n" };
        let gap = if text.is_empty() {
            String::new()
        } else if text.ends_with('\n') {
            end_of_line.to_owned()
        } else {
            end_of_line.repeat(2)
        };
        let added = format!("[{section_key}.{name}]\n{entry}").replace('\n', end_of_line);
        let with = format!("{text}{gap}{added}");
        if with.parse::<DocumentMut>().is_ok_and(|document| same(&document, mcp, name, &entry)) {
            return Ok(with);
        }
    }
    let section = document.entry(section_key).or_insert_with(|| {
        let mut section = Table::new();
        section.set_implicit(true);
        Item::Table(section)
    });
    let section = section.as_table_like_mut().ok_or_else(|| not_a_table(section_key))?;
    match section.get_mut(name) {
        Some(old) => {
            let old = old.as_table_like_mut().ok_or_else(|| not_a_table(name))?;
            entry.iter().for_each(|(key, value)| {
                old.insert(key, value.clone());
            });
        }
        None => {
            section.insert(name, Item::Value(entry.into_inline_table().into()));
        }
    }
    Ok(document.to_string())
}

fn not_a_table(key: &str) -> String {
    format!("a table was expected as the value of {key:?}")
}

pub(super) fn is_set(text: &str, mcp: &McpConfig, name: &str) -> Result<bool, String> {
    let document: DocumentMut = text.parse().map_err(reason)?;
    Ok(servers(&document, mcp).is_some_and(|servers| servers.contains_key(name)))
}

/// Whether the entry is one that we write, for any program, with no key of the user's in it.
pub(super) fn is_ours(text: &str, mcp: &McpConfig, name: &str) -> bool {
    let Ok(document) = text.parse::<DocumentMut>() else { return false };
    let found = servers(&document, mcp).and_then(|servers| servers.get(name)).and_then(Item::as_table_like);
    found.is_some_and(|found| {
        let ours = entry::toml(mcp, program_of(found, mcp));
        // The list of variables grows from one version to the next.
        let like_ours = |key: &str, value: &Item| {
            ours.get(key).is_some_and(|ours| entry::varies_by_version(mcp, key) || text_of(ours) == text_of(value))
        };
        found.iter().all(|(key, value)| like_ours(key, value))
    })
}

pub(super) fn unset(text: &str, mcp: &McpConfig, name: &str) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(reason)?;
    let Some(section) = document.get_mut(mcp.section) else { return Ok(text.to_owned()) };
    let section = section.as_table_like_mut().ok_or_else(|| not_a_table(mcp.section))?;
    if section.get(name).is_some_and(|entry| !entry.is_table_like()) {
        return Err(not_a_table(name));
    }
    let Some(removed) = section.remove(name) else { return Ok(text.to_owned()) };
    if let Item::Table(removed) = removed {
        keep_comments(&mut document, &removed);
    }
    Ok(document.to_string())
}

/// Keeps the comments above our table. The parser attaches them to the table, but they were the end of the user's file
/// before we appended it; they stay, before the table that follows.
pub(super) fn keep_comments(document: &mut DocumentMut, removed: &Table) {
    let above = removed.decor().prefix().and_then(|above| above.as_str()).unwrap_or_default();
    if above.trim().is_empty() {
        return;
    }
    // The blank line that was added with the table is removed with it.
    let above = above.strip_suffix('\n').map_or(above, |above| above.strip_suffix('\r').unwrap_or(above));
    let mut next = None;
    each_table(document.as_table_mut(), &mut |table| {
        let follows = table.position().filter(|position| Some(*position) > removed.position());
        next = [next, follows].into_iter().flatten().min();
    });
    if next.is_none() {
        let trailing = format!("{above}{}", document.trailing().as_str().unwrap_or_default());
        document.set_trailing(trailing);
    }
    each_table(document.as_table_mut(), &mut |table| {
        if next.is_some() && table.position() == next {
            let own = table.decor().prefix().and_then(|own| own.as_str()).unwrap_or_default();
            let both = format!("{above}{own}");
            table.decor_mut().set_prefix(both);
        }
    });
}

/// Visits every table that has a header.
fn each_table(within: &mut Table, visit: &mut dyn FnMut(&mut Table)) {
    let tables = within.iter_mut().flat_map(|(_, item)| match item {
        Item::Table(table) => vec![table],
        Item::ArrayOfTables(tables) => tables.iter_mut().collect(),
        _ => Vec::new(),
    });
    for table in tables {
        if !table.is_implicit() && !table.is_dotted() {
            visit(table);
        }
        each_table(table, visit);
    }
}

fn reason(e: toml_edit::TomlError) -> String {
    e.message().to_owned()
}

/// The program that an entry names, or nothing.
fn program_of<'a>(entry: &'a dyn TableLike, mcp: &McpConfig) -> &'a str {
    let value = entry.get(entry::program_key(mcp));
    let first = value.and_then(Item::as_array).and_then(|list| list.get(0)).and_then(|first| first.as_str());
    value.and_then(Item::as_str).or(first).unwrap_or_default()
}

fn servers<'a>(document: &'a DocumentMut, mcp: &McpConfig) -> Option<&'a dyn TableLike> {
    document.get(mcp.section).and_then(Item::as_table_like)
}

fn text_of(item: &Item) -> String {
    item.to_string().split_whitespace().collect()
}

/// Whether the entry has everything that we would write, whatever else is in it.
fn same(document: &DocumentMut, mcp: &McpConfig, name: &str, entry: &Table) -> bool {
    let found = servers(document, mcp).and_then(|servers| servers.get(name)).and_then(Item::as_table_like);
    found.is_some_and(|found| {
        entry.iter().all(|(key, wanted)| found.get(key).is_some_and(|value| text_of(value) == text_of(wanted)))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAME: &str = "talking-stick";

    fn codex() -> &'static McpConfig {
        &tt_harness::by_name("codex").unwrap().mcp
    }

    #[test]
    fn the_rest_of_the_file_keeps_every_byte() {
        for text in [
            "",
            "# mine\nmodel = \"x\" # why\n",
            "model = 'x'",
            "[mcp_servers.other]\ncommand = \"o\"\n\n[profiles.a]\nx = 1\n",
            "[projects.\"/a b\"]\ntrust_level = \"trusted\"\r\n",
            "a = 1\r\n\r\n[b]\r\nc = 2\r\n",
        ] {
            let with = set(text, codex(), NAME, "/a b/tt").unwrap();
            assert!(with.starts_with(text), "{with}");
            assert!(is_set(&with, codex(), NAME).unwrap() && !is_set(text, codex(), NAME).unwrap());
            assert_eq!(set(&with, codex(), NAME, "/a b/tt").unwrap(), with);
            assert!(!is_set(&unset(&with, codex(), NAME).unwrap(), codex(), NAME).unwrap());
            let moved = set(&with, codex(), NAME, "/elsewhere/tt").unwrap();
            assert!(moved.contains("/elsewhere/tt") && !moved.contains("/a b/tt"), "{moved}");
        }
    }

    #[test]
    fn an_inline_section_is_added_to_and_a_wrong_one_is_left_alone() {
        let with = set("mcp_servers = { other = { command = \"o\" } }\n", codex(), NAME, "tt").unwrap();
        assert!(is_set(&with, codex(), NAME).unwrap() && is_set(&with, codex(), "other").unwrap(), "{with}");
        for bad in ["mcp_servers = 1\n", "a = \n", "[x\n", "a = 1\na = 2\n", "[[mcp_servers]]\n"] {
            assert!(set(bad, codex(), NAME, "tt").is_err() && unset(bad, codex(), NAME).is_err(), "{bad}");
        }
        for theirs in
            ["talking-stick = 1", "talking-stick = [{}]", "talking-stick = 'tt'", "[mcp_servers.talking-stick]"]
        {
            let bad = match theirs.starts_with('[') {
                true => format!("[{theirs}]\n"),
                false => format!("[mcp_servers]\n{theirs}\n"),
            };
            for refused in [set(&bad, codex(), NAME, "tt"), unset(&bad, codex(), NAME)] {
                assert!(refused.as_ref().is_err_and(|why| why.contains("a table was expected")), "{bad}: {refused:?}");
            }
        }
        let mine =
            set("[mcp_servers.talking-stick]\ncommand = \"old\"\ntool_timeout_sec = 9 # mine\n", codex(), NAME, "tt")
                .unwrap();
        assert!(mine.contains("tool_timeout_sec = 9 # mine") && !mine.contains("old"), "{mine}");
    }

    #[test]
    fn the_list_of_variables_may_be_an_older_versions() {
        let with = set("", codex(), NAME, "tt").unwrap();
        let (older, _) = with.split_once("env_vars").unwrap();
        assert!(is_ours(&with, codex(), NAME) && is_ours(older, codex(), NAME), "{with}");
        assert!(!is_ours(&format!("{with}tool_timeout_sec = 9\n"), codex(), NAME) && !is_ours("", codex(), NAME));
        assert!(!is_ours(&with.replace("\"mcp\"", "\"mcp\", \"-v\""), codex(), NAME));
        assert!(set(older, codex(), NAME, "tt").unwrap().contains("TALKING_STICK_CONFIG_DIR"));
    }

    #[test]
    fn comments_at_the_end_of_the_users_file_stay() {
        let later = "[projects.\"/p\"]\ntrust_level = \"trusted\"\n";
        for text in ["a = 1\n\n# mine\n# and this\n", "# only this\n", "[b]\nc = 1\n# last", "[[d]]\n# e\n\n# f\n"] {
            let with = set(text, codex(), NAME, "tt").unwrap();
            let ended = format!("{}\n", text.trim_end());
            assert_eq!(unset(&with, codex(), NAME).unwrap(), ended);
            for after in [later.to_owned(), format!("# theirs\n{later}"), format!("[[x]]\n\n{later}")] {
                let with = format!("{with}\n{after}");
                assert_eq!(unset(&with, codex(), NAME).unwrap(), format!("{ended}\n{after}"));
            }
        }
    }

    proptest! {
        #[test]
        fn taking_it_out_leaves_what_was_there(keys in prop::collection::btree_map("[a-z]{1,6}", 0..100i64, 0..5), newline in any::<bool>()) {
            let mut text: String = keys.iter().map(|(key, value)| format!("{key} = {value} # {key}\n")).collect();
            if !newline { text = text.trim_end().to_owned(); }
            let with = set(&text, codex(), NAME, "tt").unwrap();
            prop_assert!(with.starts_with(&text));
            let without = unset(&with, codex(), NAME).unwrap();
            prop_assert_eq!(without.trim_end(), text.trim_end());
        }
    }
}
