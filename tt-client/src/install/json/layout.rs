//! Where an item goes in the text of a file, and what is removed with one, so that the file looks as if its author had done
//! it.

use std::ops::Range;

use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::Ranged;
use jsonc_parser::tokens::Token;
use jsonc_parser::{Scanner, ScannerOptions};

use super::tree::{count, item_range};
use super::{DEFAULT_INDENT, Document};

/// What the text of a document does not show when it is only a part of its file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    /// The line on which the text begins.
    pub line: usize,
    /// What is before it on that line.
    pub before: &'a str,
    /// How lines end in the file.
    newline: &'static str,
    /// One step of the file's indentation.
    indent: &'a str,
}

impl<'a> Surroundings<'a> {
    /// Nothing is around a whole file, which shows its own layout.
    pub(super) fn of_file(text: &'a str, tree: Option<&Node>) -> Self {
        let first_line = text.split_inclusive('\n').next().unwrap_or_default();
        let newline = if first_line.ends_with("\r\n") { "\r\n" } else { "\n" };
        let gap = tree.and_then(|tree| Some(tree.start() + 1..item_range(tree, 0)?.start));
        let indent = gap.and_then(|gap| Some(indentation(&text[last_line_break(text, gap.clone())?..gap.end])));
        let indent = indent.filter(|indent| !indent.is_empty());
        Self { line: 1, before: "", newline, indent: indent.unwrap_or(DEFAULT_INDENT) }
    }
}

impl Document<'_> {
    /// What is around the object that begins at `at`.
    pub(super) fn surroundings_at(&self, at: usize) -> Surroundings<'_> {
        let line = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        Surroundings { line: self.line(at), before: &self.text[line..at], ..self.surroundings }
    }

    pub(super) fn replace(&self, range: Range<usize>, with: &str) -> String {
        format!("{}{}{with}{}", self.byte_order_mark, &self.text[..range.start], &self.text[range.end..])
    }

    /// The text from the item before this one, or from the beginning of their container, and to the next or the end.
    pub(super) fn gaps(&self, container: &Node, at: usize) -> (Range<usize>, Range<usize>) {
        let (begin, end) = (container.start() + 1, container.end() - 1);
        let own = item_range(container, at).unwrap_or(end..end);
        let previous = at.checked_sub(1).and_then(|at| item_range(container, at));
        let next = item_range(container, at + 1);
        (previous.map_or(begin, |item| item.end)..own.start, own.end..next.map_or(end, |item| item.start))
    }

    /// The comma and the comments in the text between two items.
    pub(super) fn tokens(&self, gap: Range<usize>) -> Vec<(Token<'_>, Range<usize>)> {
        tokens(self.text, gap)
    }

    /// The file with one more member or element at the end of this object or array. An item of several lines is laid out
    /// like the file: on lines of its own, or on one where the file is on one.
    pub(super) fn append_item(&self, container: &Node, item: &str) -> String {
        let range = container.range();
        let inside = range.start + 1..range.end - 1;
        let content = &self.text[inside.clone()];
        let item = &self.lay_out(item, range.start, content);
        let end = inside.start + content.trim_end().len();
        let newline = self.surroundings.newline;
        let outer = self.line_indent(range.start);
        let inner = format!("{outer}{}", self.surroundings.indent);
        let last = count(container).checked_sub(1);
        let Some((last, own)) = last.and_then(|last| Some((last, item_range(container, last)?))) else {
            return match (content.trim().is_empty(), content.contains('\n')) {
                (true, false) => self.replace(inside, &format!("{newline}{inner}{item}{newline}{outer}")),
                (true, true) => self.replace(inside.start..inside.start, &format!("{newline}{inner}{item}")),
                (false, true) => self.replace(end..end, &format!("{newline}{inner}{item}")),
                (false, false) => self.replace(end..end, &format!(" {item}")),
            };
        };
        let (before, after) = self.gaps(container, last);
        let after = self.tokens(after);
        let after_line_comment = matches!(after.last(), Some((Token::CommentLine(_), _)));
        let gap = match last_line_break(self.text, before).is_some() || after_line_comment {
            true => format!("{newline}{}", self.line_indent(own.start)),
            false => " ".to_owned(),
        };
        // A file that ends its lists with a comma goes on doing so.
        let comma_after = if after.iter().any(is_comma) { "," } else { "" };
        let comma_before = if comma_after.is_empty() { "," } else { "" };
        self.replace(own.end..end, &format!("{comma_before}{}{gap}{item}{comma_after}", &self.text[own.end..end]))
    }

    /// An item as it is written into a container that begins at `at`: its lines are indented with [`DEFAULT_INDENT`].
    fn lay_out(&self, item: &str, at: usize, content: &str) -> String {
        if !content.trim().is_empty() && !content.contains('\n') {
            return item.lines().map(str::trim).collect::<Vec<_>>().join(" ");
        }
        let Surroundings { newline, indent, .. } = self.surroundings;
        let inner = format!("{newline}{}{indent}", self.line_indent(at));
        let line = |line: &str| {
            let text = line.trim_start();
            indent.repeat((line.len() - text.len()) / DEFAULT_INDENT.len()) + text
        };
        item.lines().map(line).collect::<Vec<_>>().join(&inner)
    }

    /// The file without this member or element. Comments beside it stay.
    pub(super) fn remove_item(&self, container: &Node, at: usize) -> String {
        let (before, after) = self.gaps(container, at);
        let own = before.end..after.start;
        let comma = self.tokens(after).into_iter().find(is_comma).map(|(_, comma)| comma.start);
        let end = comma.map_or(own.end, |comma| comma + 1);
        let space = &self.text[before.clone()][self.text[before.clone()].trim_end().len()..];
        let newline = space.rfind('\n').map(|at| if space[..at].ends_with('\r') { at - 1 } else { at });
        let rest_of_line = self.text[end..].split('\n').next().unwrap_or_default();
        let comment_before_comma = !self.text[own.end..end].trim_end_matches(',').trim().is_empty();
        let alone = rest_of_line.trim().is_empty() && self.text[end..].contains('\n') && !comment_before_comma;
        let space_after = rest_of_line.len() - rest_of_line.trim_start().len();
        let item = match newline {
            // The whole line is removed.
            Some(newline) if alone => own.start - space.len() + newline..own.end,
            // What follows on the line takes its place.
            Some(_) if comma.is_none() => own.start..own.end + space_after,
            Some(_) => own,
            None => own.start - space.len()..own.end,
        };
        let mut text = self.text.to_owned();
        match comma {
            Some(comma) => {
                text.replace_range(comma..if newline.is_some() && !alone { end + space_after } else { end }, "");
                text.replace_range(item, "");
            }
            None => {
                text.replace_range(item, "");
                if let Some((_, comma)) = self.tokens(before).into_iter().rfind(is_comma) {
                    text.replace_range(comma, "");
                }
            }
        }
        format!("{}{text}", self.byte_order_mark)
    }

    /// The white space at the beginning of the line that has this position in it.
    fn line_indent(&self, at: usize) -> &str {
        indentation(match self.text[..at].rfind('\n') {
            Some(newline) => &self.text[newline + 1..at],
            None if self.surroundings.before.is_empty() => &self.text[..at],
            None => self.surroundings.before,
        })
    }
}

/// The white space at the beginning of a line.
fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn tokens(text: &str, gap: Range<usize>) -> Vec<(Token<'_>, Range<usize>)> {
    let mut scanner = Scanner::new(&text[gap.clone()], &ScannerOptions::default());
    let mut tokens = Vec::new();
    while let Ok(Some(token)) = scanner.scan() {
        tokens.push((token, gap.start + scanner.token_start()..gap.start + scanner.token_end()));
    }
    tokens
}

/// Where the last line begins between the comma in a gap, or its beginning, and its end. Lines within a comment do not count.
fn last_line_break(text: &str, gap: Range<usize>) -> Option<usize> {
    let mut from = gap.start;
    let mut found = None;
    for (token, range) in tokens(text, gap.clone()) {
        let line = text[from..range.start].rfind('\n').map(|newline| from + newline + 1);
        found = line.or(found).filter(|_| !matches!(token, Token::Comma));
        from = range.end;
    }
    text[from..gap.end].rfind('\n').map(|newline| from + newline + 1).or(found)
}

pub(super) fn is_comma((token, _): &(Token<'_>, Range<usize>)) -> bool {
    matches!(token, Token::Comma)
}
