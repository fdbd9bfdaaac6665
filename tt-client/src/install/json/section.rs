//! Several edits to one object of a file.

use std::ops::Range;

use serde_json::Value;

use super::{Document, Malformed, parse_tree, tree};

/// An object of a file that is edited in several steps. For each of them only the object is read again, and the file once at
/// the end.
#[derive(Debug)]
pub(in crate::install) struct Section<'a> {
    file: &'a Document<'a>,
    key: &'a str,
    /// Its place among the members of the file's object.
    at: usize,
    /// Where its object was in the file.
    range: Range<usize>,
    /// The object as it is now.
    text: String,
}

impl<'a> Document<'a> {
    /// The object under a key of the file's object.
    pub(in crate::install) fn section(&'a self, key: &'a str) -> Result<Option<Section<'a>>, Malformed> {
        let path = [key];
        let Some(found) = self.find(&path)?.filter(|found| found.missing.is_empty()) else { return Ok(None) };
        let object = found.node.as_object().ok_or_else(|| self.unexpected(found.node, "an object", Some(key)))?;
        let at = found.way.last().map_or(0, |(_, at)| *at);
        let range = object.range.start..object.range.end;
        Ok(Some(Section { file: self, key, at, text: self.text[range.clone()].to_owned(), range }))
    }
}

impl Section<'_> {
    /// Appends an element, given as JSON, to the array under a key of the object. An array that is missing is created.
    pub(in crate::install) fn append(&mut self, key: &str, element: &str) -> Result<(), Malformed> {
        self.text = self.document()?.append(&[key], element)?;
        Ok(())
    }

    /// Removes the elements of the array under a key for which `is_ours` holds, and then the array if it is empty and not to be
    /// kept.
    pub(in crate::install) fn remove_elements(
        &mut self,
        key: &str,
        keep_array: bool,
        is_ours: impl Fn(&Value) -> bool,
    ) -> Result<(), Malformed> {
        while let Some(text) = self.document()?.remove_element(&[key], keep_array.into(), &is_ours)? {
            self.text = text;
        }
        Ok(())
    }

    /// The file with the object as it is now, or without it if it is empty and not to be kept.
    pub(in crate::install) fn finish(self, keep: bool) -> Result<String, Malformed> {
        let Self { file, key, at, range, text } = self;
        if text == file.text[range.clone()] {
            return Ok(file.unchanged());
        }
        if !keep && text[1..text.len() - 1].trim().is_empty() {
            return file.unset(&[key], 0);
        }
        let now = parse_tree(&text)?;
        file.verify(file.replace(range, &text), &[], |before, after| {
            let is_now = |(_, value): &tree::Item| now.as_ref().is_some_and(|now| tree::is_same(now, value));
            tree::is_same_but(before, after, at)
                && before.get(at).map(|(key, _)| key) == after.get(at).map(|(key, _)| key)
                && after.get(at).is_some_and(is_now)
        })
    }

    fn document(&self) -> Result<Document<'_>, Malformed> {
        let surroundings = self.file.surroundings_at(self.range.start);
        Ok(Document { text: &self.text, byte_order_mark: "", tree: parse_tree(&self.text)?, surroundings })
    }
}
