//! Edits to JSON and JSONC files that belong to someone else: a member of an object or an element of an array is added,
//! replaced or removed, and no other byte of the file changes.
//!
//! `jsonc-parser` reads a file into a tree of ranges of its text. The tree says where an edit goes; the edit itself is made in
//! the text, so that comments and white space stay. Such a file may be large, and reading it is most of the work: it is read
//! once, and once more after an edit, to verify that. Several edits to one object are made in a [`section::Section`].

mod layout;
mod section;
mod tree;

use std::collections::HashSet;
use std::fmt;

use jsonc_parser::ast::{Object, Value as Node};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value;

use layout::Surroundings;
use tree::{item_range, items, position};

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

/// A file, or one object of it, as text and as a tree. Positions are those of the text without its byte order mark.
#[derive(Debug)]
pub(super) struct Document<'a> {
    text: &'a str,
    byte_order_mark: &'static str,
    tree: Option<Node<'a>>,
    surroundings: Surroundings<'a>,
}

/// What an edit adds, given as JSON.
#[derive(Debug, Clone, Copy)]
enum Addition<'a> {
    Member { key: &'a str, value: &'a str },
    Element(&'a str),
}

/// Where a path of keys leads.
struct Found<'d, 'p> {
    /// The last value that is there.
    node: &'d Node<'d>,
    /// Its key. None for the file's object.
    key: Option<&'p str>,
    /// The containers on the way to it, each with the position of the next in it.
    way: Vec<(&'d Node<'d>, usize)>,
    /// The keys that are not there.
    missing: &'p [&'p str],
}

impl<'a> Document<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, Malformed> {
        let (byte_order_mark, text) = match text.strip_prefix(BYTE_ORDER_MARK) {
            Some(text) => (BYTE_ORDER_MARK, text),
            None => ("", text),
        };
        let tree = parse_tree(text)?;
        let surroundings = Surroundings::of_file(text, tree.as_ref());
        Ok(Self { text, byte_order_mark, tree, surroundings })
    }

    /// The value of the member at `path`, a list of keys from the file's object inwards.
    pub(super) fn get(&self, path: &[&str]) -> Result<Option<Value>, Malformed> {
        let Some((key, parents)) = path.split_last() else { return Ok(None) };
        let Some(found) = self.find(parents)?.filter(|found| found.missing.is_empty()) else { return Ok(None) };
        let object = self.object(found.node, found.key)?;
        Ok(object.get(key).map(|member| member.value.clone().into()))
    }

    /// Whether the file's object has this key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.tree.as_ref().and_then(Node::as_object).is_some_and(|object| object.get(key).is_some())
    }

    /// Sets the member at `path` to a value given as JSON. Objects that are missing on the way are created.
    pub(super) fn set(&self, path: &[&str], value: &str) -> Result<String, Malformed> {
        match path.split_last() {
            Some((key, parents)) => self.add(parents, Addition::Member { key, value }),
            None => Ok(self.unchanged()),
        }
    }

    /// Removes the member at `path`, and then the objects it was in where they are empty now, except for the first `keep` of
    /// them counted from the file's object inwards (which itself always stays).
    pub(super) fn unset(&self, path: &[&str], keep: usize) -> Result<String, Malformed> {
        let Some((key, parents)) = path.split_last() else { return Ok(self.unchanged()) };
        let Some(found) = self.find(parents)?.filter(|found| found.missing.is_empty()) else {
            return Ok(self.unchanged());
        };
        match position(self.object(found.node, found.key)?, key) {
            Some(at) => self.take_out(&found, at, keep),
            None => Ok(self.unchanged()),
        }
    }

    /// Appends an element, given as JSON, to the array at `path`. The array, and objects that are missing on the way, are
    /// created.
    fn append(&self, path: &[&str], element: &str) -> Result<String, Malformed> {
        self.add(path, Addition::Element(element))
    }

    /// Removes the first element of the array at `path` for which `is_ours` holds, and then the array and the objects it was in
    /// where they are empty now, except for the first `keep` of them. None if there is no such element.
    fn remove_element(
        &self,
        path: &[&str],
        keep: usize,
        is_ours: impl Fn(&Value) -> bool,
    ) -> Result<Option<String>, Malformed> {
        let Some(found) = self.find(path)?.filter(|found| found.missing.is_empty()) else { return Ok(None) };
        let array = found.node.as_array().ok_or_else(|| self.unexpected(found.node, "an array", found.key))?;
        let at = array.elements.iter().position(|element| is_ours(&element.clone().into()));
        at.map(|at| self.take_out(&found, at, keep)).transpose()
    }

    /// The text as it is.
    pub(super) fn unchanged(&self) -> String {
        format!("{}{}", self.byte_order_mark, self.text)
    }

    /// The file with this in the container at `path`, verified.
    fn add(&self, path: &[&str], addition: Addition) -> Result<String, Malformed> {
        let Some(found) = self.find(path)? else {
            let empty = empty_file(path, matches!(addition, Addition::Element(_)));
            return Ok(format!("{}{}", self.byte_order_mark, Document::parse(&empty)?.add(path, addition)?));
        };
        let way: Vec<usize> = found.way.iter().map(|(_, at)| *at).collect();
        if let Some((key, inner)) = found.missing.split_first() {
            self.object(found.node, found.key)?;
            let value =
                inner.iter().rev().fold(addition.in_container(), |inner, key| format!("{{ {key:?}: {inner} }}"));
            let member = Addition::Member { key, value: &value };
            return self.verify(self.append_item(found.node, &member.text()), &way, |before, after| {
                tree::is_added(before, after, &member)
            });
        }
        let (edited, at) = match addition {
            Addition::Member { key, value } => match position(self.object(found.node, found.key)?, key) {
                Some(at) => {
                    let old = items(found.node)[at].1.range();
                    (self.replace(old.start..old.end, value), Some(at))
                }
                None => (self.append_item(found.node, &addition.text()), None),
            },
            Addition::Element(element) if found.node.as_array().is_some() => {
                (self.append_item(found.node, element), None)
            }
            Addition::Element(_) => return Err(self.unexpected(found.node, "an array", found.key)),
        };
        self.verify(edited, &way, |before, after| match at {
            Some(at) => tree::is_replaced(before, after, at, &addition),
            None => tree::is_added(before, after, &addition),
        })
    }

    /// The file without an item of the container that was found, and without the containers around it that hold nothing else,
    /// except for the first `keep` of them. Verified.
    fn take_out(&self, found: &Found, at: usize, keep: usize) -> Result<String, Malformed> {
        let (mut way, mut node, mut at) = (found.way.as_slice(), found.node, at);
        // A comment inside is somebody's, so the container stays.
        while let Some(((parent, own), outer)) = way.split_last() {
            if way.len() <= keep || !self.holds_only(node, at) {
                break;
            }
            (way, node, at) = (outer, parent, *own);
        }
        let way: Vec<usize> = way.iter().map(|(_, at)| *at).collect();
        self.verify(self.remove_item(node, at), &way, |before, after| tree::is_removed(before, after, at))
    }

    /// The edited text, if the container at the end of `way` has changed as `is_expected` says and nothing else has. Any other
    /// edit is refused, because the file belongs to someone else.
    fn verify(
        &self,
        edited: String,
        way: &[usize],
        is_expected: impl FnOnce(&[tree::Item], &[tree::Item]) -> bool,
    ) -> Result<String, Malformed> {
        let after = parse_tree(edited.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&edited));
        let is_right = match (&self.tree, &after) {
            (Some(before), Ok(Some(after))) => tree::differs_only_in(before, after, way, is_expected),
            _ => false,
        };
        match is_right {
            true => Ok(edited),
            false => Err(Malformed {
                line: self.surroundings.line,
                reason: "it cannot be edited without a change to the rest of it".into(),
            }),
        }
    }

    /// Follows a path from the file's object. None for a file with nothing in it.
    fn find<'p>(&self, path: &'p [&'p str]) -> Result<Option<Found<'_, 'p>>, Malformed> {
        let Some(mut node) = self.tree.as_ref() else {
            return match self.text.trim().is_empty() {
                true => Ok(None),
                false => Err(Malformed { line: 1, reason: "there is no object in it".into() }),
            };
        };
        self.object(node, None)?;
        let (mut way, mut last) = (Vec::new(), None);
        for (depth, key) in path.iter().enumerate() {
            let object = self.object(node, last)?;
            let Some(at) = position(object, key) else {
                return Ok(Some(Found { node, key: last, way, missing: &path[depth..] }));
            };
            way.push((node, at));
            (node, last) = (&object.properties[at].value, Some(*key));
        }
        Ok(Some(Found { node, key: last, way, missing: &[] }))
    }

    /// The node as an object whose keys are all different: of two members with one key, a harness may read either.
    fn object<'n>(&self, node: &'n Node<'n>, key: Option<&str>) -> Result<&'n Object<'n>, Malformed> {
        let object = node.as_object().ok_or_else(|| self.unexpected(node, "an object", key))?;
        let mut keys = HashSet::with_capacity(object.properties.len());
        for member in &object.properties {
            let name = member.name.as_str();
            if !keys.insert(name) {
                return Err(Malformed {
                    line: self.line(member.start()),
                    reason: format!("the key {name:?} is there twice"),
                });
            }
        }
        Ok(object)
    }

    fn unexpected(&self, node: &Node, expected: &str, key: Option<&str>) -> Malformed {
        let place = key.map_or_else(|| "as the whole file".to_owned(), |key| format!("as the value of {key:?}"));
        Malformed { line: self.line(node.start()), reason: format!("{expected} was expected {place}") }
    }

    fn line(&self, at: usize) -> usize {
        self.surroundings.line + self.text[..at].matches('\n').count()
    }

    /// Whether a container has nothing in it but this item, not even a comment.
    fn holds_only(&self, container: &Node, at: usize) -> bool {
        let (before, after) = self.gaps(container, at);
        item_range(container, 1).is_none()
            && self.tokens(before).is_empty()
            && self.tokens(after).iter().all(layout::is_comma)
    }
}

impl Addition<'_> {
    /// As it is written into its container.
    fn text(&self) -> String {
        match self {
            Self::Member { key, value } => format!("{key:?}: {value}"),
            Self::Element(element) => (*element).to_owned(),
        }
    }

    /// A container with nothing else in it.
    fn in_container(&self) -> String {
        match self {
            Self::Member { .. } => format!("{{ {} }}", self.text()),
            Self::Element(element) => format!("[{element}]"),
        }
    }
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

fn parse_tree(text: &str) -> Result<Option<Node<'_>>, Malformed> {
    #[cfg(test)]
    tests::PARSED_BYTES.with(|bytes| bytes.set(bytes.get() + text.len()));
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
    };
    parse_to_ast(text, &CollectOptions::default(), &options)
        .map(|parsed| parsed.value)
        .map_err(|e| Malformed { line: e.line_display(), reason: e.kind().to_string() })
}

#[cfg(test)]
pub(super) mod tests;
