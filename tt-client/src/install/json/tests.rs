use std::cell::Cell;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

thread_local! {
    /// How much text this thread has parsed.
    pub(in crate::install) static PARSED_BYTES: Cell<usize> = const { Cell::new(0) };
}

fn set(text: &str, path: &[&str], value: &str) -> Result<String, Malformed> {
    Document::parse(text)?.set(path, value)
}

fn get(text: &str, path: &[&str]) -> Result<Option<Value>, Malformed> {
    Document::parse(text)?.get(path)
}

fn has(text: &str, key: &str) -> bool {
    Document::parse(text).unwrap().has(key)
}

fn unset(text: &str, path: &[&str], keep: usize) -> Result<String, Malformed> {
    Document::parse(text)?.unset(path, keep)
}

fn append(text: &str, path: &[&str], element: &str) -> Result<String, Malformed> {
    Document::parse(text)?.append(path, element)
}

fn remove_elements(
    text: &str,
    path: &[&str],
    keep: usize,
    is_ours: impl Fn(&Value) -> bool,
) -> Result<String, Malformed> {
    let document = Document::parse(text)?;
    let Some(mut section) = document.section(path[0])? else { return Ok(text.to_owned()) };
    section.remove_elements(path[1], keep > 1, is_ours)?;
    section.finish(keep > 0)
}

/// What a program reads in a file.
fn read(text: &str) -> Value {
    Document::parse(text).unwrap().tree.unwrap().into()
}

const PATH: &[&str] = &["mcpServers", "talking-stick"];
const VALUE: &str = r#"{ "command": "tt", "args": ["mcp"] }"#;

fn without_comments(text: &str) -> Value {
    // Good enough for the texts below, none of which has these marks in a string.
    let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or(line).trim_end()).collect();
    let text = lines.join("\n").replace("/* c */", "");
    let mut plain = text.clone();
    for gap in ["", " ", "\n", "\n  ", "\n    "] {
        plain =
            plain.replace(&format!(",{gap}}}"), &format!("{gap}}}")).replace(&format!(",{gap}]"), &format!("{gap}]"));
    }
    serde_json::from_str(&plain).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn everything_else_stays_where_it_was() {
    for text in [
        "{}",
        "{ }\n",
        "{\n}\n",
        "{\"a\":1}",
        "{\n  \"a\": 1\n}\n",
        "{\n\t\"a\": 1, // why\n\t\"b\": [1, 2,],\n}\n",
        "{\n  \"a\": 1 // last\n}",
        "{ /* c */ }",
        "// top\n{\n  \"mcpServers\": {},\n  \"z\": null\n}\n",
        "{\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n",
        "{\"mcpServers\": {\"other\": {}}, \"b\": -1.5e3}",
        "{\n  \"mcpServers\": {\n    \"other\": {}, // keep\n  },\n}\n",
    ] {
        let with = set(text, PATH, VALUE).unwrap();
        assert!(with.contains(VALUE), "{with}");
        assert_eq!(get(&with, PATH).unwrap(), serde_json::from_str(VALUE).unwrap(), "{with}");
        let mut expected = without_comments(text);
        expected["mcpServers"]["talking-stick"] = serde_json::from_str(VALUE).unwrap();
        assert_eq!(without_comments(&with), expected, "{with}");
        // What was there is still there, in its order.
        let mut rest = with.chars();
        assert!(text.chars().filter(|c| !c.is_whitespace()).all(|c| rest.any(|w| w == c)), "{with}");
        assert_eq!(set(&with, PATH, VALUE).unwrap(), with, "a second time changes nothing");
        let without = unset(&with, PATH, 1).unwrap();
        let mut emptied = without_comments(text);
        if emptied.get("mcpServers").is_none() {
            emptied["mcpServers"] = json!({});
        }
        assert_eq!(without_comments(&without), emptied, "{without}");
        let section = has(text, PATH[0]);
        let without = unset(&with, PATH, section.into()).unwrap();
        assert_eq!(without_comments(&without), without_comments(text), "{without}");
        // An empty object that was on one line has been opened; every other file is as it was, to the byte.
        if !["{}", "{ }\n"].contains(&text) && !text.contains("\"mcpServers\": {},") {
            assert_eq!(without, text);
        }
    }
}

#[test]
fn comments_and_blank_lines_beside_an_entry_stay() {
    for (text, without) in [
        (
            "{\n\n  \"a\": 1,\n\n  // ours?\n  \"OURS\": 1 // yes\n\n}\n",
            "{\n\n  \"a\": 1\n\n  // ours?\n  // yes\n\n}\n",
        ),
        (
            "{ \"a\": 1, /* b */ \"OURS\": 1 /* c */, /* d */ \"e\": 2 }",
            "{ \"a\": 1, /* b */ /* c */ /* d */ \"e\": 2 }",
        ),
        ("{ // a\n  \"OURS\": 1, \"b\": 2 }", "{ // a\n  \"b\": 2 }"),
        ("{\n  \"a\": 1, // why\n  \"OURS\": 1,\n}", "{\n  \"a\": 1, // why\n}"),
        ("{\n  \"a\": 1, // why\n  \"OURS\": 1}", "{\n  \"a\": 1 // why\n  }"),
        ("\u{feff}{\"OURS\": 1}", "\u{feff}{}"),
        (
            "{\n  \"a\": 1, // why\n  \"OURS\": {} /* x\n y */,\n  \"b\": 2\n}\n",
            "{\n  \"a\": 1, // why\n   /* x\n y */\n  \"b\": 2\n}\n",
        ),
    ] {
        assert_eq!(unset(text, &["OURS"], 0).unwrap(), without);
    }
    let blank = "{\n\n  \"a\": 1\n\n}\n";
    assert_eq!(unset(&set(blank, &["x"], "1").unwrap(), &["x"], 0).unwrap(), blank);
}

#[test]
fn an_empty_file_is_filled_as_people_write_it() {
    for (mark, text) in [("", ""), ("", " \n"), ("\u{feff}", "\u{feff}")] {
        let with = set(text, PATH, VALUE).unwrap();
        assert_eq!(with, format!("{mark}{{\n  \"mcpServers\": {{\n    \"talking-stick\": {VALUE}\n  }}\n}}\n"));
        let with = append(text, &["hooks", "Stop"], "1").unwrap();
        assert_eq!(with, format!("{mark}{{\n  \"hooks\": {{\n    \"Stop\": [\n      1\n    ]\n  }}\n}}\n"));
    }
}

const HOOKS: &[&str] = &["hooks", "Stop"];

#[test]
fn an_element_is_added_to_an_array_and_only_ours_is_removed() {
    let (ours, element) = (json!({ "run": "tt" }), r#"{ "run": "tt" }"#);
    for text in [
        "{\n}\n",
        "{\"a\":1}",
        "{\n  \"hooks\": { \"Start\": [] }\n}\n",
        "{\n  \"hooks\": {\n    \"Stop\": [\n      { \"run\": \"x\" } // theirs\n    ]\n  }\n}\n",
        "{\r\n\t\"hooks\": {\r\n\t\t\"Stop\": [\r\n\t\t\t1,\r\n\t\t\t[2],\r\n\t\t],\r\n\t},\r\n}\r\n",
        "{\"hooks\": {\"Stop\": [\"x\", null]}, \"z\": 1}",
        "{\n  \"hooks\": {\n    \"Stop\": [\n      // none yet\n    ]\n  }\n}\n",
    ] {
        let with = append(text, HOOKS, element).unwrap();
        let mut expected = get(text, HOOKS).unwrap().unwrap_or_else(|| json!([]));
        expected.as_array_mut().unwrap().push(ours.clone());
        assert_eq!(get(&with, HOOKS).unwrap(), Some(expected), "{with}");
        let keep = if get(text, HOOKS).unwrap().is_some() { 2 } else { has(text, "hooks").into() };
        assert_eq!(remove_elements(&with, HOOKS, keep, |value| *value == ours).unwrap(), text, "{with}");
        assert_eq!(remove_elements(&with, HOOKS, 0, |_| false).unwrap(), with);
        let twice = append(&with, HOOKS, element).unwrap();
        assert_eq!(remove_elements(&twice, HOOKS, keep, |value| *value == ours).unwrap(), text, "{twice}");
    }
    let mixed = r#"{"hooks": {"Stop": [{ "run": "tt" }, 1, { "run": "tt" }, { "run": "tt", "mine": 1 }]}}"#;
    let rest = remove_elements(mixed, HOOKS, 0, |value| *value == ours).unwrap();
    assert_eq!(rest, r#"{"hooks": {"Stop": [ 1, { "run": "tt", "mine": 1 }]}}"#);
}

#[test]
fn a_value_of_another_kind_than_expected_is_refused() {
    for other in ["null", "true", "1", "\"x\"", "[]", "[{}]"] {
        let whole = format!("\n{other}");
        let section = format!("{{\n\"mcpServers\": {other}}}");
        for (text, place) in [(&whole, "the whole file"), (&section, "\"mcpServers\"")] {
            for error in
                [set(text, PATH, VALUE).unwrap_err(), get(text, PATH).unwrap_err(), unset(text, PATH, 0).unwrap_err()]
            {
                assert_eq!(error.line, 2, "{text}");
                assert!(error.reason.contains("an object was expected") && error.reason.contains(place), "{error}");
            }
        }
    }
    for other in ["null", "1", "\"x\"", "{}"] {
        let text = format!("{{\"hooks\": {{\"Stop\": {other}}}}}");
        for error in [append(&text, HOOKS, "1").unwrap_err(), remove_elements(&text, HOOKS, 0, |_| true).unwrap_err()] {
            assert!(error.reason.contains("an array was expected as the value of \"Stop\""), "{error}");
        }
    }
}

#[test]
fn an_edit_that_changes_anything_else_is_refused() {
    let file = Document::parse(r#"{"a": 1, "b": {"c": [2, 3]}}"#).unwrap();
    let new = Addition::Member { key: "d", value: "4" };
    type Edit<'a> = (&'a str, &'a [usize], &'a dyn Fn(&[tree::Item], &[tree::Item]) -> bool);
    let edits: [Edit; 4] = [
        (r#"{"a": 1}"#, &[], &|before, after| tree::is_removed(before, after, 1)),
        (r#"{"a": 1, "b": {"c": [3]}}"#, &[1, 0], &|before, after| tree::is_removed(before, after, 0)),
        (r#"{"a": 1, "b": {"c": [2, 3], "d": 4}}"#, &[1], &|before, after| tree::is_added(before, after, &new)),
        (r#"{"a": 1, "d": 4}"#, &[], &|before, after| tree::is_replaced(before, after, 1, &new)),
    ];
    let damaged = [
        "{\"a\": 1, /* b }",
        "{\"a\": 2}",
        "{}",
        "[1]",
        "",
        "{\"a\": 1 // }",
        r#"{"b": {"c": [2, 3]}}"#,
        r#"{"a": 1, "b": {"c": [2, 3]}}"#,
        r#"{"a": 1, "b": {"c": [2]}}"#,
        r#"{"a": 2, "b": {"c": [3]}}"#,
        r#"{"a": 1, "e": {"c": [3]}}"#,
        r#"{"a": 1, "b": {"c": [2, 3], "d": 5}}"#,
        r#"{"a": 1, "b": {"c": [2, "3"], "d": 4}}"#,
        r#"{"a": 1, "b": {"d": 4, "c": [2, 3]}}"#,
        r#"{"a": 1, "b": {"c": {"2": 3}, "d": 4}}"#,
        r#"{"a": 1, "d": 4, "b": {"c": [2, 3]}}"#,
        r#"{"a": true, "d": 4}"#,
    ];
    for (right, way, is_expected) in edits {
        assert_eq!(file.verify(right.into(), way, is_expected).unwrap(), right);
        let others = edits.iter().map(|(other, ..)| *other).filter(|other| *other != right);
        for damaged in damaged.iter().copied().chain(others) {
            let refused = file.verify(damaged.into(), way, is_expected).unwrap_err();
            assert!(refused.reason.contains("without a change to the rest"), "{damaged}: {refused}");
        }
    }
}

/// With 50,000 keys an edit that looks at every key for each key takes minutes, one that does not a moment.
#[test]
fn the_time_an_edit_takes_grows_with_the_file_and_no_faster() {
    const LIMIT: Duration = Duration::from_secs(30);
    let members: Vec<String> = (0..50_000).map(|n| format!("\n    \"key {n}\": {n}")).collect();
    let text = format!("{{\n  \"mcpServers\": {{{}\n  }}\n}}\n", members.join(","));
    let (sender, done) = mpsc::channel();
    thread::spawn(move || {
        let with = set(&text, PATH, VALUE).unwrap();
        let _ = sender.send(unset(&with, PATH, 1).unwrap() == text);
    });
    assert_eq!(done.recv_timeout(LIMIT), Ok(true), "it takes minutes, or does not give the file back");
}

#[test]
fn lines_end_as_they_do_in_the_file() {
    for text in ["{\r\n  \"a\": 1\r\n}\r\n", "{\r\n}", "{\r\n\t\"mcpServers\": {\r\n\t}\r\n}\r\n"] {
        let with = set(text, PATH, VALUE).unwrap();
        assert_eq!(with.matches('\n').count(), with.matches("\r\n").count(), "{with:?}");
    }
}

#[test]
fn what_cannot_be_read_is_not_touched() {
    for bad in [
        "{",
        "[]",
        "{\"a\"}",
        "{\"a\": }",
        "{\"a\": 1 \"b\": 2}",
        "{} x",
        "{\"a\": tru}",
        "{\"a\": \"x}",
        "{/* }",
        "nonsense",
        "{\"mcpServers\": []}",
        "{\"mcpServers\": 1}",
        "{\"a\": 1, \"a\": 2}",
        "{\"a\":: 1}",
        "{,}",
    ] {
        assert!(set(bad, PATH, VALUE).is_err(), "{bad}");
    }
    assert_eq!(set("{\n\n \"a\" 1}", PATH, VALUE).unwrap_err().line, 3);
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[ -~é漢\n\"\\\\]{0,8}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z]{1,4}", inner), 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// What may stand between two tokens.
fn gap() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "\n  ", " // l\n", "// l\n  ", "/* c */", " /* x\n y */", "\r\n\t"])
}

proptest! {
    #[test]
    fn any_file_takes_the_entry_and_gives_it_back(
        fields in prop::collection::vec(("[a-z]{1,4}", value()), 0..4),
        servers in prop::option::of(prop::collection::vec(("[a-z]{1,4}", value()), 0..3)),
        pretty in any::<bool>(),
    ) {
        let mut file: serde_json::Map<String, Value> = fields.into_iter().collect();
        if let Some(servers) = servers {
            file.insert("mcpServers".into(), Value::Object(servers.into_iter().collect()));
        }
        let before = Value::Object(file);
        let text = if pretty { serde_json::to_string_pretty(&before) } else { serde_json::to_string(&before) }.unwrap();
        let with = set(&text, PATH, VALUE).unwrap();
        let mut expected = before.clone();
        expected["mcpServers"]["talking-stick"] = serde_json::from_str(VALUE).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&with).unwrap(), expected);
        prop_assert_eq!(serde_json::from_str::<Value>(&unset(&with, PATH, has(&text, PATH[0]).into()).unwrap()).unwrap(), before.clone());
        let without = unset(&with, PATH, 1).unwrap();
        let mut emptied = before;
        if emptied.get("mcpServers").is_none() { emptied["mcpServers"] = json!({}); }
        prop_assert_eq!(serde_json::from_str::<Value>(&without).unwrap(), emptied);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[{}\\[\\]\",:/*\\\\ \na-z0-9é]{0,40}") {
        let edits = [
            set(&text, PATH, VALUE),
            unset(&text, PATH, 0),
            append(&text, HOOKS, VALUE),
            remove_elements(&text, HOOKS, 0, |_| true),
        ];
        for edited in edits.into_iter().flatten() {
            prop_assert!(Document::parse(&edited).is_ok(), "{:?} became {:?}", text, edited);
        }
    }

    #[test]
    fn an_entry_among_comments_is_taken_out_and_the_rest_reads_as_before(gaps in prop::collection::vec(gap(), 9)) {
        let [a, b, c, d, e, f, g, h, i] = [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|at| gaps[at]);
        let text = format!("{{{a}\"a\":{b}1{c},{d}\"OURS\":{e}{{}}{f},{g}\"b\"{h}:2{i}}}");
        let without = unset(&text, &["OURS"], 0).unwrap();
        prop_assert_eq!(read(&without), json!({"a": 1, "b": 2}), "{:?}", without);
        let with = set(&text, &["new"], "3").unwrap();
        prop_assert_eq!(read(&with), json!({"a": 1, "OURS": {}, "b": 2, "new": 3}), "{:?}", with);
        let last = format!("{{{a}\"a\":{b}1{c},{d}\"OURS\":{e}{{}}{f}}}");
        let without = unset(&last, &["OURS"], 0).unwrap();
        prop_assert_eq!(read(&without), json!({"a": 1}), "{:?}", without);
    }
}
