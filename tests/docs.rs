//! The documents name things that exist, and everything that has to be documented is.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tt_proto::delivery::Surface;
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::time::parse_duration;

const PROTOCOL: &str = include_str!("../docs/protocol.md");
const MCP: &str = include_str!("../docs/mcp.md");
const README: &str = include_str!("../README.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// The documents, as (path from the root, text).
fn documents() -> Vec<(String, String)> {
    let mut names = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned(), "CHANGELOG.md".to_owned()];
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        names.push(format!("docs/{}", entry.unwrap().file_name().to_str().unwrap()));
    }
    assert!(names.len() > 8, "{names:?}");
    names.into_iter().map(|name| (name.clone(), std::fs::read_to_string(root().join(&name)).unwrap())).collect()
}

/// The directories of this project, as a path in a document begins.
const DIRECTORIES: &[&str] = &[
    "bench/",
    "docs/",
    "harness/",
    "launchd/",
    "migrations/",
    "proto/",
    "skills/",
    "systemd/",
    "tests/",
    "tt-client/",
    "ttd/",
    ".ci/",
];

#[test]
fn every_path_that_a_document_names_exists() {
    let mut missing = Vec::new();
    let mut named = 0;
    for (document, text) in documents() {
        let prose: String = text.split("```").step_by(2).collect();
        for quoted in prose.split('`').skip(1).step_by(2) {
            let is_path = DIRECTORIES.iter().any(|dir| quoted.starts_with(dir));
            if !is_path || quoted.contains(['<', '*', ' ', '=']) {
                continue;
            }
            named += 1;
            if !root().join(quoted).exists() {
                missing.push(format!("{document}: {quoted}"));
            }
        }
    }
    assert!(named > 50, "this test would not notice: {named}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

/// All source text below a directory.
fn source_below(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_below(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "sql") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_item_that_the_pages_for_contributors_name_exists() {
    let mut source = String::new();
    for dir in [
        "bench/src",
        "fuzz/src",
        "fuzz/tests",
        "harness/src",
        "migrations",
        "proto/src",
        "tests",
        "tt-client/src",
        "ttd",
    ] {
        source_below(&root().join(dir), &mut source);
    }
    let words: BTreeSet<&str> = source.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let mut named = 0;
    for page in ["docs/adding.md", "docs/architecture.md", "CONTRIBUTING.md"] {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        let prose: String = text.split("```").step_by(2).collect();
        for quoted in prose.split('`').skip(1).step_by(2) {
            let name = quoted.trim_end_matches('!').rsplit("::").next().unwrap();
            let is_item = name.chars().all(|c| c.is_alphanumeric() || c == '_')
                && name.contains(|c: char| c == '_' || c.is_uppercase());
            if is_item {
                named += 1;
                assert!(words.contains(name), "{page} names `{quoted}`, which is not in the source");
            }
        }
    }
    assert!(named > 50, "this test would not notice: {named}");
}

/// The name under which a heading can be linked to.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    for (document, text) in documents() {
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, section) = link.split_once('#').map_or((link, None), |(file, section)| (file, Some(section)));
            let target = root().join(&document).parent().unwrap().join(file);
            assert!(target.exists(), "{document} links to {link}");
            if let Some(section) = section {
                let text = std::fs::read_to_string(&target).unwrap();
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let mut anchors = headings.map(|line| anchor(line.trim_start_matches('#').trim()));
                assert!(anchors.any(|anchor| anchor == section), "{document} links to {link}");
            }
        }
    }
}

#[test]
fn every_policy_key_is_documented_with_its_default() {
    let section = PROTOCOL.split("### Policy").nth(1).unwrap().split("\n## ").next().unwrap();
    let cells: Vec<&str> =
        section.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('|')).collect();
    let cells: Vec<&str> = cells.into_iter().map(str::trim).collect();
    let defaults = serde_json::to_value(Policy::default()).unwrap();
    for key in PolicyOverrides::KEYS {
        let at =
            cells.iter().position(|cell| cell == key).unwrap_or_else(|| panic!("{key} is not in docs/protocol.md"));
        let plain = &defaults[*key];
        let word = match plain {
            serde_json::Value::Bool(is_on) => Some(if *is_on { "yes" } else { "no" }.to_owned()),
            plain => plain.as_str().map(str::to_owned).or(plain.as_u64().map(|n| n.to_string())),
        };
        if let Some(word) = word {
            assert_eq!(word, cells[at + 1], "{key}");
            continue;
        }
        let documented = match cells[at + 1] {
            "none" => Some(std::time::Duration::ZERO),
            documented => parse_duration(&documented.replace(" min", "m").replace(" days", "d").replace(' ', "")),
        };
        let millis = defaults[format!("{key}_ms")].as_u64().unwrap();
        assert_eq!(documented.unwrap().as_millis(), u128::from(millis), "{key}");
    }
}

#[test]
fn every_surface_is_documented() {
    let row = PROTOCOL.lines().find(|line| line.starts_with("| surface |")).unwrap();
    for surface in Surface::ALL {
        assert!(row.contains(&format!("`{}`", surface.as_str())), "{} is not in {row}", surface.as_str());
    }
}

#[test]
fn every_harness_is_documented() {
    for harness in tt_harness::ALL {
        let row = |line: &str| line.starts_with(&format!("| {} |", harness.title));
        assert!(MCP.lines().any(row), "{} is not in the table of docs/mcp.md", harness.title);
        assert!(README.contains(harness.title), "{} is not in README.md", harness.title);
        let tt_harness::Hooks::File(file) = &harness.hooks else { continue };
        for event in file.events {
            let row = |line: &&str| line.starts_with(&format!("| `{}` |", event.meaning));
            let row =
                MCP.lines().find(row).unwrap_or_else(|| panic!("{} is in no table of docs/mcp.md", event.meaning));
            assert!(row.contains(&format!("`{}`", event.name)), "{} of {}", event.name, harness.title);
        }
    }
}

#[test]
fn the_version_of_a_harness_is_the_one_that_is_tested() {
    let packages: serde_json::Value = serde_json::from_str(include_str!("harness/package.json")).unwrap();
    for harness in tt_harness::ALL {
        assert_eq!(packages["dependencies"][harness.package], harness.tested_version, "{}", harness.title);
    }
}
