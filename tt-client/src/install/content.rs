//! The text of a configuration file, read as JSON once.

use std::cell::OnceCell;

use super::json::{Document, Malformed};

/// The text of a configuration file. It is parsed when that is first asked for, and not again.
#[derive(Debug)]
pub(crate) struct Content<'a> {
    pub(super) text: &'a str,
    json: OnceCell<Result<Document<'a>, Malformed>>,
}

impl<'a> Content<'a> {
    pub(crate) const fn of(text: &'a str) -> Self {
        Self { text, json: OnceCell::new() }
    }

    pub(super) fn json(&self) -> Result<&Document<'a>, Malformed> {
        self.json.get_or_init(|| Document::parse(self.text)).as_ref().map_err(Clone::clone)
    }
}
