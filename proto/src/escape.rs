//! The one list of characters that are made visible wherever text of other members is shown, on a terminal or to a model.

/// Whether a character could drive a terminal, break a line, or reorder, join or hide the text around it. Marks that combine
/// with a letter, and the selectors that turn a sign into an emoji, are harmless.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Plain text in which unsafe characters are written as escapes such as `\n` and `\u{1b}`. A tab moves to the right only, and
/// a joiner between two emoji makes one of them; both stay as they are.
pub fn escape_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut after_emoji = false;
    while let Some(c) = chars.next() {
        let joins = c == JOINER && after_emoji && chars.peek().is_some_and(|next| is_emoji(*next));
        if is_unsafe(c) && c != '\t' && !joins {
            safe.extend(c.escape_default())
        } else {
            safe.push(c)
        }
        after_emoji = is_emoji(c) || (after_emoji && is_emoji_modifier(c));
    }
    safe
}

/// Joins the emoji before and after it to one.
const JOINER: char = '\u{200d}';

fn is_emoji(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
}

/// A colour of skin is an emoji of its own; this selector shows a sign as one.
fn is_emoji_modifier(c: char) -> bool {
    c == '\u{fe0f}'
}

/// JSON in which unsafe characters are written as `\uXXXX`, so that it still means the same, on one line.
pub fn escape_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            // Inside a string these are escaped already: here they can only be white space between tokens.
            '\t' | '\n' | '\r' => safe.push(' '),
            c if is_unsafe(c) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| safe.push_str(&format!("\\u{unit:04x}")));
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_drive_a_terminal() {
        assert_eq!(escape_text("plain, ünïcode, 漢字"), "plain, ünïcode, 漢字");
        assert_eq!(escape_text("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(escape_text("a\r\nb\u{202e}c\u{9b}d"), "a\\r\\nb\\u{202e}c\\u{9b}d");
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
        let text = "a\u{9b}2J\u{202e}b\u{e0041}c\u{7f}\u{34f}\u{180e}\u{fff9}\u{85}\u{2028}";
        let escaped = escape_json(&serde_json::to_string(text).unwrap());
        assert!(escaped.is_ascii(), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        assert_eq!(escape_json("{\t\"a\":\n\"b\\tc\"}"), "{ \"a\": \"b\\tc\"}", "white space between tokens");
    }
}
