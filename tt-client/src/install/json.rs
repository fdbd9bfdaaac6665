//! Edits to JSON and JSONC files that belong to someone else: a member of an object or an element of an array is added,
//! replaced or removed, and no other byte of the file changes.
//!
//! `jsonc-parser` reads a file into a tree that keeps comments and white space. The tree says where an edit goes; the edit
//! itself is made in the text, because the tree's own operations also remove blank lines and comments beside the edit.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstContainerNode, CstNewlineKind, CstNode, CstObject, CstRootNode};
use serde_json::{Map, Value};

/// The indentation of a file that shows none of its own.
const DEFAULT_INDENT: &str = "  ";

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Why a file cannot be edited, and the line on which that shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    pub line: usize,
    pub reason: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Sets the member at `path`, a list of keys from the file's object inwards, to a value given as JSON. Objects that are
/// missing on the way are created.
pub(super) fn set(text: &str, path: &[&str], value: &str) -> Result<String, Malformed> {
    let Some((key, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let file = File::parse(text)?;
    let edited = file.edit(parents, &format!("{key:?}: {value}"), |file, parent| {
        let object = file.object(parent, parents.last().copied())?;
        Ok(match object.get(key).and_then(|member| member.value()) {
            Some(old) => file.replace(file.range(&old), value),
            None => file.append(&object.into(), &format!("{key:?}: {value}")),
        })
    })?;
    file.verify(edited, |file| {
        let parent = create(file, parents)?;
        parent.as_object_mut()?.insert((*key).to_owned(), serde_json::from_str(value).ok()?);
        Some(())
    })
}

/// The value of the member at `path`.
pub(super) fn get(text: &str, path: &[&str]) -> Result<Option<Value>, Malformed> {
    let Some((key, parents)) = path.split_last() else { return Ok(None) };
    let file = File::parse(text)?;
    let Some(root) = file.root()? else { return Ok(None) };
    let (parent, missing) = file.descend(root, parents)?;
    if !missing.is_empty() {
        return Ok(None);
    }
    let object = file.object(&parent, parents.last().copied())?;
    Ok(object.get(key).and_then(|member| member.value()).and_then(|value| value.to_serde_value()))
}

/// Whether the file's object has this key.
pub(super) fn has(text: &str, key: &str) -> bool {
    get(text, &[key]).is_ok_and(|value| value.is_some())
}

/// Removes the member at `path`, and then the objects it was in where they are empty now, except for the first `keep` of
/// them counted from the file's object inwards (which itself always stays).
pub(super) fn unset(text: &str, path: &[&str], keep: usize) -> Result<String, Malformed> {
    let Some((key, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let file = File::parse(text)?;
    let Some(root) = file.root()? else { return Ok(text.to_owned()) };
    let (parent, missing) = file.descend(root, parents)?;
    if !missing.is_empty() {
        return Ok(text.to_owned());
    }
    let Some(member) = file.object(&parent, parents.last().copied())?.get(key) else { return Ok(text.to_owned()) };
    let removed = file.verify(file.remove(&member.into()), |file| remove_member(file, path))?;
    remove_empty_parents(removed, parents, keep)
}

/// Appends an element, given as JSON, to the array at `path`. The array, and objects that are missing on the way, are
/// created.
#[cfg_attr(not(test), expect(dead_code, reason = "hooks are elements of arrays; the MCP entries are not"))]
pub(super) fn append(text: &str, path: &[&str], element: &str) -> Result<String, Malformed> {
    let file = File::parse(text)?;
    let edited = file.edit(path, &format!("[{element}]"), |file, array| {
        let array = array.as_array().ok_or_else(|| file.unexpected(array, "an array", path.last().copied()))?;
        Ok(file.append(&array.into(), element))
    })?;
    file.verify(edited, |file| {
        let array = create(file, path)?;
        if array.as_object().is_some_and(Map::is_empty) {
            *array = Value::Array(Vec::new());
        }
        array.as_array_mut()?.push(serde_json::from_str(element).ok()?);
        Some(())
    })
}

/// Removes those elements of the array at `path` for which `is_ours` holds, and then the array and the objects it was in
/// where they are empty now, except for the first `keep` of them.
#[cfg_attr(not(test), expect(dead_code, reason = "hooks are elements of arrays; the MCP entries are not"))]
pub(super) fn remove_elements(
    text: &str,
    path: &[&str],
    keep: usize,
    is_ours: impl Fn(&Value) -> bool,
) -> Result<String, Malformed> {
    let mut text = text.to_owned();
    let mut found = false;
    loop {
        let file = File::parse(&text)?;
        let Some(root) = file.root()? else { return Ok(text) };
        let (array, missing) = file.descend(root, path)?;
        if !missing.is_empty() {
            return Ok(text);
        }
        let elements = array.as_array().ok_or_else(|| file.unexpected(&array, "an array", path.last().copied()))?;
        let ours = |element: &CstNode| element.to_serde_value().is_some_and(|value| is_ours(&value));
        let elements = elements.elements();
        let Some(at) = elements.iter().position(ours) else { break };
        let without = file.verify(file.remove(&elements[at]), |file| {
            path.iter().try_fold(file, |node, key| node.get_mut(key))?.as_array_mut()?.remove(at);
            Some(())
        })?;
        (text, found) = (without, true);
    }
    if found { remove_empty_parents(text, path, keep) } else { Ok(text) }
}

/// A file in which the object or array at `path` is there and empty, each key on a line of its own.
fn empty_file(path: &[&str], is_array: bool) -> String {
    let (mut head, mut tail) = ("{\n".to_owned(), "}\n".to_owned());
    for (depth, key) in path.iter().enumerate() {
        let (open, close) = if is_array && depth + 1 == path.len() { ('[', ']') } else { ('{', '}') };
        let indent = DEFAULT_INDENT.repeat(depth + 1);
        head.push_str(&format!("{indent}{key:?}: {open}\n"));
        tail.insert_str(0, &format!("{indent}{close}\n"));
    }
    head + &tail
}

/// Removes the members along `path` that are empty objects or arrays, from the innermost outwards.
fn remove_empty_parents(mut text: String, path: &[&str], keep: usize) -> Result<String, Malformed> {
    for depth in (keep + 1..=path.len()).rev() {
        let file = File::parse(&text)?;
        let Some(root) = file.root()? else { break };
        let (parent, missing) = file.descend(root, &path[..depth - 1])?;
        let member = parent.as_object().filter(|_| missing.is_empty()).and_then(|object| object.get(path[depth - 1]));
        let Some((member, value)) = member.and_then(|member| Some((member.clone(), member.value()?))) else { break };
        // A comment inside is somebody's, so the container stays.
        let children = value.children();
        if children.len() < 2 || !children[1..children.len() - 1].iter().all(is_space) {
            break;
        }
        text = file.verify(file.remove(&member.into()), |file| remove_member(file, &path[..depth]))?;
    }
    Ok(text)
}

/// The value at `path`. Objects that are missing on the way, and at its end, are created.
fn create<'v>(file: &'v mut Value, path: &[&str]) -> Option<&'v mut Value> {
    path.iter().try_fold(file, |node, key| {
        Some(node.as_object_mut()?.entry(*key).or_insert_with(|| Value::Object(Map::new())))
    })
}

fn remove_member(file: &mut Value, path: &[&str]) -> Option<()> {
    let (key, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(file, |node, key| node.get_mut(key))?;
    parent.as_object_mut()?.remove(*key).map(|_| ())
}

/// A file as text and as a tree. Positions are those of the text without its byte order mark.
struct File<'a> {
    text: &'a str,
    byte_order_mark: &'static str,
    tree: CstRootNode,
}

impl<'a> File<'a> {
    fn parse(text: &'a str) -> Result<Self, Malformed> {
        let (byte_order_mark, text) = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(text) => (BYTE_ORDER_MARK, text),
            None => ("", text),
        };
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
        };
        let tree = CstRootNode::parse(text, &options)
            .map_err(|e| Malformed { line: e.line_display(), reason: e.kind().to_string() })?;
        // Positions are counted in the tree and used in the text.
        if tree.to_string() != text {
            return Err(Malformed { line: 1, reason: "it cannot be written back as it is".into() });
        }
        Ok(Self { text, byte_order_mark, tree })
    }

    /// Calls `change` with the node at `path`. Where there is none, `content` is put there instead, as the array at `path` or
    /// as the only member of the object at `path`.
    fn edit(
        &self,
        path: &[&str],
        content: &str,
        change: impl FnOnce(&File, &CstNode) -> Result<String, Malformed>,
    ) -> Result<String, Malformed> {
        let is_array = content.starts_with('[');
        let Some(root) = self.root()? else {
            let empty = empty_file(path, is_array);
            return Ok(format!("{}{}", self.byte_order_mark, File::parse(&empty)?.edit(path, content, change)?));
        };
        let (node, missing) = self.descend(root, path)?;
        let Some((key, inner)) = missing.split_first() else { return change(self, &node) };
        let object = self.object(&node, path[..path.len() - missing.len()].last().copied())?;
        let container = if is_array { content.to_owned() } else { format!("{{ {content} }}") };
        let value = inner.iter().rev().fold(container, |inner, key| format!("{{ {key:?}: {inner} }}"));
        Ok(self.append(&object.into(), &format!("{key:?}: {value}")))
    }

    /// The edited text, if it has the value that `change` makes of this file's own. An edit that would change anything else
    /// is refused, because the file belongs to someone else.
    fn verify(&self, edited: String, change: impl FnOnce(&mut Value) -> Option<()>) -> Result<String, Malformed> {
        let mut expected = self.value();
        let changed = change(&mut expected).is_some();
        match File::parse(&edited) {
            Ok(file) if changed && file.value() == expected => Ok(edited),
            _ => Err(Malformed { line: 1, reason: "it cannot be edited without a change to the rest of it".into() }),
        }
    }

    /// What a program reads in the file: an empty object if there is nothing in it.
    fn value(&self) -> Value {
        self.tree.to_serde_value().unwrap_or_else(|| Value::Object(Map::new()))
    }

    /// The file's object. None for a file with nothing in it.
    fn root(&self) -> Result<Option<CstNode>, Malformed> {
        if self.text.trim().is_empty() {
            return Ok(None);
        }
        let root = self.tree.value().ok_or_else(|| Malformed { line: 1, reason: "there is no object in it".into() })?;
        self.object(&root, None).map(|object| Some(object.into()))
    }

    /// The node that `path` leads to, as far as it is there, and the keys that are not.
    fn descend<'p>(&self, root: CstNode, path: &'p [&'p str]) -> Result<(CstNode, &'p [&'p str]), Malformed> {
        let mut node = root;
        for (depth, key) in path.iter().enumerate() {
            let object = self.object(&node, path[..depth].last().copied())?;
            match object.get(key).and_then(|member| member.value()) {
                Some(value) => node = value,
                None => return Ok((node, &path[depth..])),
            }
        }
        Ok((node, &[]))
    }

    /// The node as an object whose keys are all different: of two members with one key, a harness may read either.
    fn object(&self, node: &CstNode, key: Option<&str>) -> Result<CstObject, Malformed> {
        let object = node.as_object().ok_or_else(|| self.unexpected(node, "an object", key))?;
        let mut keys = HashSet::new();
        for member in object.properties() {
            let name = member.name().and_then(|name| name.decoded_value().ok()).unwrap_or_default();
            if !keys.insert(name.clone()) {
                return Err(Malformed {
                    line: self.line(&member.into()),
                    reason: format!("the key {name:?} is there twice"),
                });
            }
        }
        Ok(object)
    }

    fn unexpected(&self, node: &CstNode, expected: &str, key: Option<&str>) -> Malformed {
        let place = key.map_or_else(|| "as the whole file".to_owned(), |key| format!("as the value of {key:?}"));
        Malformed { line: self.line(node), reason: format!("{expected} was expected {place}") }
    }

    fn line(&self, node: &CstNode) -> usize {
        1 + self.text[..start(node)].matches('\n').count()
    }

    fn range(&self, node: &CstNode) -> Range<usize> {
        let start = start(node);
        start..start + node.to_string().len()
    }

    fn replace(&self, range: Range<usize>, with: &str) -> String {
        format!("{}{}{with}{}", self.byte_order_mark, &self.text[..range.start], &self.text[range.end..])
    }

    fn newline(&self) -> &'static str {
        match self.tree.newline_kind() {
            CstNewlineKind::LineFeed => "\n",
            CstNewlineKind::CarriageReturnLineFeed => "\r\n",
        }
    }

    /// The file with one more member or element at the end of this object or array.
    fn append(&self, container: &CstContainerNode, item: &str) -> String {
        let range = self.range(&container.clone().into());
        let inside = range.start + 1..range.end - 1;
        let content = &self.text[inside.clone()];
        let end = inside.start + content.trim_end().len();
        let children = container.children();
        let items = container.children_exclude_trivia_and_tokens();
        let newline = self.newline();
        let outer = self.line_indent(range.start);
        let inner = || format!("{outer}{}", self.tree.single_indent_text().unwrap_or_else(|| DEFAULT_INDENT.into()));
        let Some(last) = items.last() else {
            return match (content.trim().is_empty(), content.contains('\n')) {
                (true, false) => self.replace(inside, &format!("{newline}{}{item}{newline}{outer}", inner())),
                (true, true) => self.replace(inside.start..inside.start, &format!("{newline}{}{item}", inner())),
                (false, true) => self.replace(end..end, &format!("{newline}{}{item}", inner())),
                (false, false) => self.replace(end..end, &format!(" {item}")),
            };
        };
        let after_line_comment = children
            .iter()
            .rev()
            .skip(1)
            .find(|child| !is_space(child))
            .is_some_and(|child| child.as_comment().is_some_and(|comment| comment.is_line_comment()));
        let own_line = last.previous_siblings().take_while(CstNode::is_trivia).any(|node| node.is_newline());
        let gap = match own_line || after_line_comment {
            true => format!("{newline}{}", self.line_indent(start(last))),
            false => " ".to_owned(),
        };
        // A file that ends its lists with a comma goes on doing so.
        let comma_after = if last.trailing_comma().is_some() { "," } else { "" };
        let comma_before = if comma_after.is_empty() { "," } else { "" };
        let last_end = self.range(last).end;
        self.replace(last_end..end, &format!("{comma_before}{}{gap}{item}{comma_after}", &self.text[last_end..end]))
    }

    /// The file without this member or element. Comments beside it stay.
    fn remove(&self, node: &CstNode) -> String {
        let own = self.range(node);
        let comma = node.trailing_comma().map(|comma| start(&comma.into()));
        let end = comma.map_or(own.end, |comma| comma + 1);
        let before: Vec<CstNode> = node.previous_siblings().take_while(is_space).collect();
        let (spaces, newline): (usize, Option<&CstNode>) = match before.iter().position(CstNode::is_newline) {
            Some(at) => (before[..at].iter().map(length).sum(), Some(&before[at])),
            None => (before.iter().map(length).sum(), None),
        };
        let rest_of_line = self.text[end..].split('\n').next().unwrap_or_default();
        let comment_before_comma = !self.text[own.end..end].trim_end_matches(',').trim().is_empty();
        let alone = rest_of_line.trim().is_empty() && self.text[end..].contains('\n') && !comment_before_comma;
        let space_after = rest_of_line.len() - rest_of_line.trim_start().len();
        let item = match newline {
            // The whole line is removed.
            Some(newline) if alone => own.start - spaces - length(newline)..own.end,
            // What follows on the line takes its place.
            Some(_) if comma.is_none() => own.start..own.end + space_after,
            Some(_) => own,
            None => own.start - spaces..own.end,
        };
        let mut text = self.text.to_owned();
        match comma {
            Some(comma) => {
                text.replace_range(comma..if newline.is_some() && !alone { end + space_after } else { end }, "");
                text.replace_range(item, "");
            }
            None => {
                text.replace_range(item, "");
                let previous = node.previous_siblings().find(|sibling| !sibling.is_trivia());
                if let Some(comma) = previous.filter(CstNode::is_comma) {
                    text.replace_range(self.range(&comma), "");
                }
            }
        }
        format!("{}{text}", self.byte_order_mark)
    }

    /// The white space at the beginning of the line that has this position in it.
    fn line_indent(&self, at: usize) -> &str {
        let line = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let indented = &self.text[line..at];
        &indented[..indented.len() - indented.trim_start_matches([' ', '\t']).len()]
    }
}

fn is_space(node: &CstNode) -> bool {
    node.is_whitespace() || node.is_newline()
}

fn length(node: &CstNode) -> usize {
    node.to_string().len()
}

/// Where a node begins in its file.
fn start(node: &CstNode) -> usize {
    let before: usize = node.previous_siblings().map(|sibling| length(&sibling)).sum();
    before + node.parent().map_or(0, |parent| start(&parent.into()))
}

#[cfg(test)]
mod tests;
