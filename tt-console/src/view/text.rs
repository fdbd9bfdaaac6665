//! Text in columns: broken into lines here and not by the terminal, and cut where it must fit one line.

use tt_client::text::layout;
use tt_proto::escape::{escape_text, is_unsafe};
use unicode_width::UnicodeWidthChar;

/// Text that others wrote, harmless, in lines of at most this width. Lines after the first of each paragraph are indented.
pub(super) fn lines_of(text: &str, width: usize, hang: usize) -> Vec<String> {
    text.split('\n').flat_map(|line| wrapped(&escape_text(line), width, hang)).collect()
}

/// Text of ours in lines of at most this width.
pub(super) fn wrapped(text: &str, width: usize, hang: usize) -> Vec<String> {
    layout::wrapped(text, width, hang).split('\n').map(str::to_owned).collect()
}

/// A text cut to this many columns, with a mark where something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    let text = text.replace('\t', " ");
    if layout::columns(&text) <= width {
        return text;
    }
    let mut short = String::new();
    for c in text.chars() {
        if layout::columns(&short) + c.width().unwrap_or(0) + 1 > width {
            break;
        }
        short.push(c);
    }
    if width > 0 {
        short.push('…');
    }
    short
}

/// The end of a text that fits this many columns, for a path.
pub(super) fn cut_start(text: &str, width: usize) -> String {
    let mut short: Vec<char> = text.chars().collect();
    if layout::columns(text) <= width {
        return text.to_owned();
    }
    while !short.is_empty() && layout::columns(&short.iter().collect::<String>()) + 1 > width {
        short.remove(0);
    }
    format!("…{}", short.into_iter().collect::<String>())
}

/// A text that is being typed, in lines of at most this width, and the column and line of the cursor.
pub(super) fn flow(before: &str, after: &str, width: usize) -> (Vec<String>, (usize, usize)) {
    let width = width.max(2);
    let (mut lines, mut line, mut used) = (Vec::new(), String::new(), 0);
    let mut cursor = (0, 0);
    for (at, c) in before.chars().chain(after.chars()).chain(['\n']).enumerate() {
        let is_cursor = at == before.chars().count();
        let shown = match c {
            '\t' => ' ',
            c if is_unsafe(c) && c != '\n' => '·',
            c => c,
        };
        let columns = shown.width().unwrap_or(0);
        if c != '\n' && used + columns > width {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if is_cursor {
            cursor = if used >= width { (0, lines.len() + 1) } else { (used, lines.len()) };
        }
        if c == '\n' {
            lines.push(std::mem::take(&mut line));
            used = 0;
        } else {
            line.push(shown);
            used += columns;
        }
    }
    if cursor.1 >= lines.len() {
        lines.push(String::new());
    }
    (lines, cursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_at_a_whole_character() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("too long", 5), "too …");
        assert_eq!(cut("漢字漢字", 5), "漢字…");
        assert_eq!(cut("漢字", 0), "");
        assert_eq!(cut_start("/a/long/path", 6), "…/path");
    }

    #[test]
    fn the_cursor_is_where_the_next_character_goes() {
        assert_eq!(flow("ab", "cd", 10), (vec!["abcd".to_owned()], (2, 0)));
        assert_eq!(flow("ab\nc", "", 10), (vec!["ab".to_owned(), "c".to_owned()], (1, 1)));
        assert_eq!(flow("abcd", "", 4), (vec!["abcd".to_owned(), String::new()], (0, 1)));
        assert_eq!(flow("漢字", "漢", 5), (vec!["漢字".to_owned(), "漢".to_owned()], (0, 1)));
        assert_eq!(flow("", "\u{1b}[2J", 9), (vec!["·[2J".to_owned()], (0, 0)));
    }
}
