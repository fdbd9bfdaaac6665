//! Lays text out for a terminal of a given width, measured in the columns a terminal gives each character.
//!
//! Lines are broken here and not by the terminal, and continuation lines are indented: a long text that another member wrote
//! can then never begin a line at the margin, where only our own words are. `textwrap` fills the lines; measuring and
//! breaking words are done here, because words may contain our colours and characters whose width terminals disagree on.

use textwrap::wrap_algorithms::wrap_first_fit;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The columns a text takes, not counting our own colours. Where terminals disagree (an emoji and its modifier), the larger
/// number.
pub fn columns(text: &str) -> usize {
    let plain = without_colours(text);
    plain.width().max(plain.chars().map(|c| c.width().unwrap_or(0)).sum())
}

/// Pads a text with spaces to this many columns.
pub fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(columns(text))))
}

/// Breaks the lines of a text that are longer than `width`, between words where that is possible. Continuation lines are
/// indented by `hang` columns, but by no more than half the width.
pub fn wrapped(text: &str, width: usize, hang: usize) -> String {
    let width = width.max(2);
    let hang = hang.min(width / 2);
    let mut page = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        let line = &*without_tabs(line);
        let fragments = fragments(line, width, width - hang);
        let lines = wrap_first_fit(&fragments, &[as_width(width), as_width(width - hang)]);
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                page.push('\n');
                page.push_str(&" ".repeat(hang));
            }
            for (at, fragment) in line.iter().enumerate() {
                page.push_str(fragment.text);
                if at + 1 < line.len() {
                    page.push_str(&" ".repeat(fragment.gap));
                }
            }
        }
        page.push_str(end);
    }
    page
}

/// How far apart the stops are that a tab goes to.
const TAB_STOP: usize = 8;

/// A line with spaces in the place of tabs, so that its width is known.
fn without_tabs(line: &str) -> std::borrow::Cow<'_, str> {
    if !line.contains('\t') {
        return line.into();
    }
    let mut plain = String::with_capacity(line.len() + TAB_STOP);
    for (number, part) in line.split('\t').enumerate() {
        if number > 0 {
            plain.push_str(&" ".repeat(TAB_STOP - columns(&plain) % TAB_STOP));
        }
        plain.push_str(part);
    }
    plain.into()
}

/// The number of spaces at the beginning of a line.
pub fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// The visible indentation of a line, whether its colour begins before or after the spaces.
pub fn margin(line: &str) -> usize {
    indentation(&without_colours(line))
}

/// A part of a line that is not broken, and the spaces that follow it.
#[derive(Debug)]
struct Fragment<'a> {
    text: &'a str,
    columns: usize,
    gap: usize,
}

impl textwrap::core::Fragment for Fragment<'_> {
    fn width(&self) -> f64 {
        as_width(self.columns)
    }

    fn whitespace_width(&self) -> f64 {
        as_width(self.gap)
    }

    fn penalty_width(&self) -> f64 {
        0.0
    }
}

fn as_width(columns: usize) -> f64 {
    columns as f64
}

/// The words of a line. A word longer than `room` is split into pieces, so that it begins on the current line and is broken
/// between characters; so is the first word, if the indentation leaves too little room for it.
fn fragments(line: &str, width: usize, room: usize) -> Vec<Fragment<'_>> {
    let indent = indentation(line);
    let shown = indent.min(width - 1);
    let mut fragments = vec![Fragment { text: &line[..shown], columns: shown, gap: 0 }];
    let mut rest = &line[indent..];
    let mut first_room = Some(width - shown);
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
        let gap = indentation(after);
        if columns(word) <= first_room.take().unwrap_or(room) {
            fragments.push(Fragment { text: word, columns: columns(word), gap: 0 });
        } else {
            fragments.extend(pieces(word).map(|text| Fragment { text, columns: columns(text), gap: 0 }));
        }
        if let Some(last) = fragments.last_mut() {
            last.gap = gap;
        }
        rest = &after[gap..];
    }
    fragments
}

/// Splits a word between characters. Combining marks stay with their character, and a colour with what it colours.
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

/// The length of the colour this text begins with: `ESC [ digits m`, which only our own code writes.
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
    fn lines_break_between_words_and_continue_indented() {
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
    fn a_tab_takes_the_room_that_a_terminal_gives_it() {
        assert_eq!(wrapped("a\tb\tc", 80, 0), "a       b       c");
        assert_eq!(wrapped("1234567\tx", 80, 0), "1234567 x");
        assert_eq!(wrapped("a\tbcd", 10, 2), "a\n  bcd", "and counts where lines break");
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
