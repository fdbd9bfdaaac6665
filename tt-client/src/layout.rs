//! Text laid out for a terminal of a given width, measured in the columns a terminal gives each character.
//!
//! Lines are broken here and not by the terminal, and what follows a break is set in: a long text from elsewhere can then
//! never begin a line at the margin, where only our own words stand.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns a text takes, our own colours aside. Where terminals disagree (an emoji and its modifier), the larger.
pub(crate) fn columns(text: &str) -> usize {
    let plain = without_colours(text);
    plain.width().max(plain.chars().map(|c| c.width().unwrap_or(0)).sum())
}

/// Pads a text with spaces to this many columns.
pub(crate) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Breaks the lines of a text that are longer than `width`, between words where it can. What comes after a break is set in
/// by `hang` columns, but by no more than half the width.
pub(crate) fn wrapped(text: &str, width: usize, hang: usize) -> String {
    let width = width.max(2);
    let mut page = Page { text: String::with_capacity(text.len()), column: 0, width, hang: hang.min(width / 2) };
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        page.column = 0;
        page.line(line);
        page.text.push_str(end);
    }
    page.text
}

/// The spaces a line begins with.
pub(crate) fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The spaces one sees before a line, whether its colour begins before or after them.
pub(crate) fn margin(line: &str) -> usize {
    indentation(&without_colours(line))
}

struct Page {
    text: String,
    column: usize,
    width: usize,
    hang: usize,
}

impl Page {
    fn line(&mut self, line: &str) {
        let mut rest = line;
        while !rest.is_empty() {
            let gap = indentation(rest);
            let word = &rest[gap..];
            let word = &word[..word.find(' ').unwrap_or(word.len())];
            rest = &rest[gap + word.len()..];
            self.word(gap, word);
        }
    }

    fn word(&mut self, gap: usize, word: &str) {
        let long = columns(word);
        if self.column + gap + long <= self.width {
            self.push(&" ".repeat(gap), gap);
            return self.push(word, long);
        }
        if self.hang + long <= self.width && self.column > 0 {
            self.break_line();
            return self.push(word, long);
        }
        // Longer than a line: it begins where it stands and is broken between characters.
        if self.column + gap < self.width {
            self.push(&" ".repeat(gap), gap);
        } else {
            self.break_line();
        }
        for piece in pieces(word) {
            let long = columns(piece);
            if self.column + long > self.width {
                self.break_line();
            }
            self.push(piece, long);
        }
    }

    fn push(&mut self, text: &str, columns: usize) {
        self.text.push_str(text);
        self.column += columns;
    }

    fn break_line(&mut self) {
        self.text.push('\n');
        self.column = 0;
        self.push(&" ".repeat(self.hang), self.hang);
    }
}

/// A word in pieces that stay together: a character with the marks that combine with it, a colour with what it colours.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let mut end = 0;
        let mut begun = false;
        while end < rest.len() {
            let colour = colour_at(&rest[end..]);
            let c = rest[end..].chars().next()?;
            if colour == 0 && begun && c.width().unwrap_or(0) > 0 {
                break;
            }
            begun |= colour == 0;
            end += colour.max(if colour == 0 { c.len_utf8() } else { 0 });
        }
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The length of the colour this text begins with: `ESC [ digits m`, which nobody but us writes.
fn colour_at(text: &str) -> usize {
    let Some(inner) = text.strip_prefix("\x1b[") else { return 0 };
    let digits = inner.len() - inner.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').len();
    if inner[digits..].starts_with('m') { 2 + digits + 1 } else { 0 }
}

fn without_colours(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains('\x1b') {
        return text.into();
    }
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let colour = colour_at(rest);
        if colour == 0 {
            plain.push(c);
        }
        rest = &rest[if colour == 0 { c.len_utf8() } else { colour }..];
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_break_between_words_and_go_on_set_in() {
        assert_eq!(wrapped("short\n", 20, 2), "short\n");
        assert_eq!(wrapped("one two three four", 9, 2), "one two\n  three\n  four");
        assert_eq!(wrapped("  next: a  b and more\n", 14, 8), "  next: a  b\n       and\n       more\n");
        assert_eq!(wrapped("code  keeps   its gaps", 80, 0), "code  keeps   its gaps");
    }

    #[test]
    fn a_word_longer_than_a_line_is_broken_between_characters() {
        assert_eq!(wrapped("see /a/very/long/path/indeed", 12, 2), "see /a/very/\n  long/path/\n  indeed");
        assert_eq!(wrapped("漢字漢字漢字", 7, 1), "漢字漢\n 字漢字", "a wide character is not cut in half");
        assert_eq!(
            wrapped("e\u{301}e\u{301}e\u{301}", 2, 0),
            "e\u{301}e\u{301}\ne\u{301}",
            "a mark stays with its letter"
        );
    }

    #[test]
    fn colours_take_no_room() {
        let bold = "\x1b[1mclaude\x1b[0m";
        assert_eq!(columns(bold), 6);
        assert_eq!(padded(bold, 8), format!("{bold}  "));
        assert_eq!(wrapped(&format!("{bold} holds"), 12, 0), format!("{bold} holds"));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_line_is_too_long(text in "(\\PC{0,30}[ \n]?){0,6}", width in 2_usize..40, hang in 0_usize..12) {
            let page = wrapped(&text, width, hang);
            let solid = |text: &str| text.chars().filter(|c| !matches!(c, ' ' | '\n')).collect::<String>();
            prop_assert_eq!(solid(&page), solid(&text));
            for line in page.lines() {
                // One character may be wider than what the indentation leaves of the narrowest terminals.
                let only = line.trim_start_matches(' ').chars().filter(|c| c.width().unwrap_or(0) > 0).count() <= 1;
                prop_assert!(only || columns(line) <= width, "{:?} in {} columns", line, width);
            }
        }
    }
}
