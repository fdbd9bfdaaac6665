//! One member of a JSON file that belongs to someone else: put in, replaced or taken out by touching only its own bytes.
//! Comments and trailing commas are understood, since some harnesses allow them.

use std::ops::Range;

/// Why a text could not be read, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    pub line: usize,
    pub what: &'static str,
}

#[derive(Debug)]
struct Member {
    key: String,
    start: usize,
    value: Range<usize>,
    /// Where the comma after it is.
    comma: Option<usize>,
}

#[derive(Debug)]
struct Object {
    open: usize,
    close: usize,
    members: Vec<Member>,
}

impl Object {
    fn member(&self, key: &str) -> Option<(usize, &Member)> {
        self.members.iter().enumerate().find(|(_, member)| member.key == key)
    }
}

/// The text with `path` (a key of the file's object, then a key of that one) set to this JSON.
pub(super) fn set(text: &str, path: [&str; 2], value: &str) -> Result<String, Malformed> {
    if text.trim().is_empty() {
        return Ok(format!("{{\n  {:?}: {{\n    {:?}: {value}\n  }}\n}}\n", path[0], path[1]));
    }
    let outer = read(text)?;
    let Some((_, section)) = outer.member(path[0]) else {
        return Ok(insert(text, &outer, path[0], &format!("{{ {:?}: {value} }}", path[1])));
    };
    let inner = section_of(text, section)?;
    Ok(match inner.member(path[1]) {
        Some((_, member)) => replace(text, member.value.clone(), value),
        None => insert(text, &inner, path[1], value),
    })
}

/// The JSON that stands at `path`.
pub(super) fn get<'a>(text: &'a str, path: [&str; 2]) -> Result<Option<&'a str>, Malformed> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let outer = read(text)?;
    let Some((_, section)) = outer.member(path[0]) else { return Ok(None) };
    let inner = section_of(text, section)?;
    Ok(inner.member(path[1]).map(|(_, member)| &text[member.value.clone()]))
}

/// Whether the file's object has this key.
pub(super) fn has(text: &str, key: &str) -> bool {
    read(text).is_ok_and(|object| object.member(key).is_some())
}

/// The text without the member at `path`, and without the object it was in where that is empty now and not to be kept.
pub(super) fn unset(text: &str, path: [&str; 2], keep_section: bool) -> Result<String, Malformed> {
    if get(text, path)?.is_none() {
        return Ok(text.to_owned());
    }
    let outer = read(text)?;
    let Some((_, section)) = outer.member(path[0]) else { return Ok(text.to_owned()) };
    let inner = section_of(text, section)?;
    let Some((index, _)) = inner.member(path[1]) else { return Ok(text.to_owned()) };
    let without = remove(text, &inner, index);
    let outer = read(&without)?;
    match outer.member(path[0]) {
        Some((index, section)) if !keep_section && is_bare(&without[section.value.clone()]) => {
            Ok(remove(&without, &outer, index))
        }
        _ => Ok(without),
    }
}

/// An object with nothing in it, no comment either.
fn is_bare(object: &str) -> bool {
    object.chars().filter(|c| !c.is_whitespace()).eq(['{', '}'])
}

fn remove(text: &str, object: &Object, index: usize) -> String {
    let member = &object.members[index];
    let before = text[..member.start].trim_end_matches([' ', '\t']);
    // The line break before it goes too, unless a comment ends there that needs it.
    let start = before.trim_end_matches(['\n', '\r']).len().max(object.open + 1);
    let start = if comment_ends_at(&text[object.open..start]) { before.len() } else { start };
    let end = member.comma.map_or(member.value.end, |comma| comma + 1);
    let mut without = replace(text, start..end, "");
    let last = member.comma.is_none();
    if last && let Some(comma) = index.checked_sub(1).and_then(|before| object.members[before].comma) {
        without.remove(comma);
    }
    without
}

/// How the file ends its lines.
fn line_end(text: &str) -> &'static str {
    if text.split_once('\n').is_some_and(|(line, _)| line.ends_with('\r')) { "\r\n" } else { "\n" }
}

fn comment_ends_at(text: &str) -> bool {
    text.rsplit('\n').next().is_some_and(|line| line.contains("//"))
}

fn replace(text: &str, range: Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}

fn insert(text: &str, object: &Object, key: &str, value: &str) -> String {
    let (member, end_of_line) = (format!("{key:?}: {value}"), line_end(text));
    let Some(last) = object.members.last() else {
        let inside = &text[object.open + 1..object.close];
        let outer = indent(text, object.open).unwrap_or("");
        let (before, after) = if inside.trim().is_empty() {
            (format!("{end_of_line}{outer}  "), format!("{end_of_line}{outer}"))
        } else {
            (" ".into(), String::new())
        };
        let end = if inside.trim().is_empty() { object.close } else { object.open + 1 };
        return replace(text, object.open + 1..end, &format!("{before}{member}{after}"));
    };
    let at = object.open + 1 + text[object.open + 1..object.close].trim_end().len();
    let space = match indent(text, last.start) {
        Some(indent) if text[object.open..last.start].contains('\n') => format!("{end_of_line}{indent}"),
        _ if comment_ends_at(&text[..at]) => end_of_line.into(),
        _ => " ".into(),
    };
    let mut with = replace(text, at..at, &format!("{space}{member}"));
    if last.comma.is_none() {
        with.insert(last.value.end, ',');
    }
    with
}

/// The white space a line begins with, up to `at`, where that is all there is before it.
fn indent(text: &str, at: usize) -> Option<&str> {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let before = &text[line..at];
    let end = before.find(|c: char| c != ' ' && c != '\t').unwrap_or(before.len());
    Some(&before[..end])
}

fn read(text: &str) -> Result<Object, Malformed> {
    let mut reader = Reader { text, at: if text.starts_with('\u{feff}') { 3 } else { 0 } };
    reader.space()?;
    let object = reader.object(0)?;
    reader.space()?;
    if reader.at < text.len() { Err(reader.malformed("there is more after the end")) } else { Ok(object) }
}

fn section_of(text: &str, member: &Member) -> Result<Object, Malformed> {
    Reader { text, at: member.value.start }.object(0)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn malformed(&self, what: &'static str) -> Malformed {
        let line = 1 + self.text.as_bytes()[..self.at.min(self.text.len())].iter().filter(|b| **b == b'\n').count();
        Malformed { line, what }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// White space and comments.
    fn space(&mut self) -> Result<(), Malformed> {
        loop {
            let rest = self.rest();
            if rest.starts_with([' ', '\t', '\n', '\r']) {
                self.at += 1;
            } else if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                self.at += rest.find("*/").ok_or_else(|| self.malformed("a comment does not end"))? + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn take(&mut self, byte: u8, what: &'static str) -> Result<usize, Malformed> {
        if self.peek() != Some(byte) {
            return Err(self.malformed(what));
        }
        self.at += 1;
        Ok(self.at - 1)
    }

    fn object(&mut self, depth: usize) -> Result<Object, Malformed> {
        let open = self.take(b'{', "an object was expected")?;
        let mut members: Vec<Member> = Vec::new();
        loop {
            self.space()?;
            if self.peek() == Some(b'}') {
                self.at += 1;
                return Ok(Object { open, close: self.at - 1, members });
            }
            if members.last().is_some_and(|member| member.comma.is_none()) {
                return Err(self.malformed("a comma or the end of the object was expected"));
            }
            let start = self.at;
            let key = self.string()?;
            if members.iter().any(|member| member.key == key) {
                return Err(self.malformed("a key is there twice"));
            }
            self.space()?;
            self.take(b':', "a colon was expected")?;
            self.space()?;
            let from = self.at;
            self.value(depth + 1)?;
            let value = from..self.at;
            let end = self.at;
            self.space()?;
            let comma = if self.peek() == Some(b',') { Some(self.take(b',', "")?) } else { None };
            if comma.is_none() {
                self.at = end;
            }
            members.push(Member { key, start, value, comma });
        }
    }

    fn string(&mut self) -> Result<String, Malformed> {
        let from = self.take(b'"', "a quoted name was expected")?;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.malformed("a text does not end")),
            }
        }
        self.at += 1;
        serde_json::from_str(&self.text[from..self.at]).map_err(|_| self.malformed("a text cannot be read"))
    }

    fn value(&mut self, depth: usize) -> Result<(), Malformed> {
        if depth > 100 {
            return Err(self.malformed("it is nested too deeply"));
        }
        match self.peek() {
            Some(b'{') => self.object(depth).map(|_| ()),
            Some(b'[') => {
                self.at += 1;
                let mut comma = true;
                loop {
                    self.space()?;
                    match self.peek() {
                        Some(b']') => break,
                        _ if !comma => return Err(self.malformed("a comma or the end of the list was expected")),
                        _ => self.value(depth + 1)?,
                    }
                    self.space()?;
                    comma = self.peek() == Some(b',');
                    self.at += usize::from(comma);
                }
                self.at += 1;
                Ok(())
            }
            Some(b'"') => self.string().map(|_| ()),
            _ => {
                let rest = self.rest();
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(rest.len());
                let scalar = serde_json::from_str::<serde_json::Value>(&rest[..end]);
                scalar.map_err(|_| self.malformed("a value was expected"))?;
                self.at += end;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const PATH: [&str; 2] = ["mcpServers", "talking-stick"];
    const VALUE: &str = r#"{ "command": "tt", "args": ["mcp"] }"#;

    fn without_comments(text: &str) -> Value {
        // Good enough for the texts below, none of which has these marks in a string.
        let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or(line).trim_end()).collect();
        let text = lines.join("\n").replace("/* c */", "");
        let mut plain = text.clone();
        for gap in ["", " ", "\n", "\n  ", "\n    "] {
            plain = plain
                .replace(&format!(",{gap}}}"), &format!("{gap}}}"))
                .replace(&format!(",{gap}]"), &format!("{gap}]"));
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
            assert_eq!(get(&with, PATH).unwrap(), Some(VALUE), "{with}");
            let mut expected = without_comments(text);
            expected["mcpServers"]["talking-stick"] = serde_json::from_str(VALUE).unwrap();
            assert_eq!(without_comments(&with), expected, "{with}");
            // What was there is still there, in its order.
            let mut rest = with.chars();
            assert!(text.chars().filter(|c| !c.is_whitespace()).all(|c| rest.any(|w| w == c)), "{with}");
            assert_eq!(set(&with, PATH, VALUE).unwrap(), with, "a second time changes nothing");
            let without = unset(&with, PATH, true).unwrap();
            let mut emptied = without_comments(text);
            if emptied.get("mcpServers").is_none() {
                emptied["mcpServers"] = json!({});
            }
            assert_eq!(without_comments(&without), emptied, "{without}");
            let section = has(text, PATH[0]);
            let without = unset(&with, PATH, section).unwrap();
            assert_eq!(without_comments(&without), without_comments(text), "{without}");
        }
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
            prop_assert_eq!(serde_json::from_str::<Value>(&unset(&with, PATH, has(&text, PATH[0])).unwrap()).unwrap(), before.clone());
            let without = unset(&with, PATH, true).unwrap();
            let mut emptied = before;
            if emptied.get("mcpServers").is_none() { emptied["mcpServers"] = json!({}); }
            prop_assert_eq!(serde_json::from_str::<Value>(&without).unwrap(), emptied);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[{}\\[\\]\",:/*\\\\ \na-z0-9é]{0,40}") {
            let _ = set(&text, PATH, VALUE);
            let _ = unset(&text, PATH, false);
        }
    }
}
