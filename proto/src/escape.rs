//! The one list of hidden and reordering characters. They are made visible wherever text of other members is shown: on a
//! terminal, in the text a model reads, and in the structured content it is given.

use serde_json::Value;

/// Whether a character could drive a terminal, break a line, or reorder, join or hide the text around it: control characters,
/// line separators, and everything that Unicode calls ignorable by default. Marks that combine with a letter are harmless,
/// and so are single selectors that choose between a sign and an emoji.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A selector between a sign and an emoji. One after a sign is common; a row of them is an invisible message.
fn is_emoji_selector(c: char) -> bool {
    matches!(c, '\u{fe0e}' | '\u{fe0f}')
}

/// Whether no character of the text has to be made visible.
pub fn is_harmless(text: &str) -> bool {
    !marked(text).any(|(_, is_unsafe)| is_unsafe)
}

/// Whether each line of a wrapped text is harmless. A joined emoji that did not fit its line leaves the joiner at the end,
/// where it joins nothing.
pub fn is_harmless_when_wrapped(text: &str) -> bool {
    text.split('\n').all(|line| is_harmless(line.strip_suffix(JOINER).unwrap_or(line)))
}

/// The characters of a text, and whether each has to be made visible. A tab moves to the right only, and a joiner between two
/// emoji makes one of them: both stay as they are.
fn marked(text: &str) -> impl Iterator<Item = (char, bool)> {
    let mut chars = text.chars().peekable();
    let (mut after_sign, mut after_emoji) = (false, false);
    std::iter::from_fn(move || {
        let c = chars.next()?;
        let is_selector = is_emoji_selector(c);
        let joins = c == JOINER && after_emoji && chars.peek().is_some_and(|next| is_emoji(*next));
        let unsafe_here = (is_unsafe(c) && c != '\t' && !joins) || (is_selector && !after_sign);
        after_emoji = is_emoji(c) || (after_emoji && after_sign && is_selector);
        after_sign = !is_selector && !unsafe_here && !c.is_whitespace();
        Some((c, unsafe_here))
    })
}

/// Plain text on one line, in which unsafe characters are written as escapes such as `\n` and `\u{1b}`.
pub fn escape_text(text: &str) -> String {
    escape_except(text, |_| false)
}

/// Text of any number of lines, in which all unsafe characters but line breaks are written as escapes.
pub fn escape_lines(text: &str) -> String {
    escape_except(text, |c| c == '\n')
}

fn escape_except(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for (c, is_unsafe) in marked(text) {
        match is_unsafe && !keep(c) {
            true if is_emoji_selector(c) => safe.extend(c.escape_unicode()),
            true => safe.extend(c.escape_default()),
            false => safe.push(c),
        }
    }
    safe
}

/// Joins the emoji before and after it to one.
const JOINER: char = '\u{200d}';

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// JSON in which unsafe characters are written as `\uXXXX`, so that it still means the same, on one line.
pub fn escape_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for (c, is_unsafe) in marked(json) {
        match c {
            // Inside a string these are escaped already: here they can only be white space between tokens.
            '\t' | '\n' | '\r' => safe.push(' '),
            c if is_unsafe => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")));
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Makes every text in a value visible, keys included. A program decodes `\uXXXX` before it shows a value to a model, so here
/// the escape is part of the text. Line breaks and tabs stay.
pub fn escape_value(value: &mut Value) {
    match value {
        Value::String(text) => {
            if !is_harmless(text) {
                *text = escape_lines(text);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(escape_value),
        Value::Object(fields) => {
            if fields.keys().any(|key| !is_harmless(key)) {
                *fields = std::mem::take(fields).into_iter().map(|(key, value)| (escape_lines(&key), value)).collect();
            }
            fields.values_mut().for_each(escape_value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_cannot_drive_a_terminal() {
        assert_eq!(escape_text("plain, ünïcode, 漢字"), "plain, ünïcode, 漢字");
        assert_eq!(escape_text("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(escape_text("a\r\nb\u{202e}c\u{9b}d"), "a\\r\\nb\\u{202e}c\\u{9b}d");
        assert_eq!(escape_lines("a\r\n\tb\u{202e}"), "a\\r\n\tb\\u{202e}");
    }

    /// What Unicode 16 lists as `Default_Ignorable_Code_Point`, written down independently of the function.
    #[test]
    fn everything_that_unicode_calls_ignorable_is_made_visible() {
        for range in [
            0xad..=0xad,
            0x34f..=0x34f,
            0x61c..=0x61c,
            0x115f..=0x1160,
            0x17b4..=0x17b5,
            0x180b..=0x180f,
            0x200b..=0x200f,
            0x202a..=0x202e,
            0x2060..=0x206f,
            0x3164..=0x3164,
            0xfe00..=0xfe0f,
            0xfeff..=0xfeff,
            0xffa0..=0xffa0,
            0xfff0..=0xfff8,
            0x1bca0..=0x1bca3,
            0x1d173..=0x1d17a,
            0xe0000..=0xe0fff_u32,
        ] {
            for c in range.filter_map(char::from_u32) {
                assert!(escape_text(&c.to_string()).is_ascii(), "U+{:04X}", u32::from(c));
                assert!(escape_text(&format!("x{c}{c}")).contains("\\u{"), "U+{:04X} hides in a row", u32::from(c));
            }
        }
        for kept in ["❤\u{fe0f} and ☎\u{fe0e}", "e\u{301}", "नमस्ते", "שלום", "a\u{a0}b"] {
            assert_eq!(escape_text(kept), kept);
        }
    }

    #[test]
    fn tabs_and_joined_emoji_stay_and_a_joiner_between_letters_does_not() {
        for kept in ["a\tb", "👩🏽\u{200d}💻", "🏳\u{fe0f}\u{200d}🌈", "👩\u{200d}👩\u{200d}👧"] {
            assert_eq!(escape_text(kept), kept);
        }
        for (joined, shown) in
            [("a\u{200d}b", "a\\u{200d}b"), ("👩\u{200d}b", "👩\\u{200d}b"), ("a\u{200d}👩", "a\\u{200d}👩")]
        {
            assert_eq!(escape_text(joined), shown);
        }
    }

    #[test]
    fn escaped_json_is_one_line_of_ascii_here_and_means_the_same() {
        let text = "a\u{9b}2J\u{202e}b\u{e0041}c\u{7f}\u{34f}\u{180e}\u{fff9}\u{85}\u{2028}\u{fe0f}";
        let escaped = escape_json(&serde_json::to_string(text).unwrap());
        assert!(escaped.replace('\u{fe0f}', "").is_ascii(), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        assert_eq!(escape_json("{\t\"a\":\n\"b\\tc\"}"), "{ \"a\": \"b\\tc\"}", "white space between tokens");
    }

    #[test]
    fn nothing_hides_in_a_structured_value() {
        let mut value = json!({
            "status": "a\u{202e}b\nc", "list": [1, null, {"deep": "\u{e0041}\u{200b}"}], "k\u{200b}": true, "plain": "ü\t"
        });
        escape_value(&mut value);
        let shown = json!({
            "status": "a\\u{202e}b\nc", "list": [1, null, {"deep": "\\u{e0041}\\u{200b}"}], "k\\u{200b}": true,
            "plain": "ü\t"
        });
        assert_eq!(value, shown);
    }
}
