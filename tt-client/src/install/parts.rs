//! What we add to a configuration file of a harness: the MCP server, hooks, and the record that the user trusts them. Some
//! harnesses keep these in one file, others in several.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tt_harness::{Format, Harness, HookFile, Hooks};
use tt_proto::{Error, ErrorCode};

use super::content::Content;
use super::json::Malformed;
use super::{NAME, entry, file, hooks, toml, trust};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    McpServer,
    Hooks,
    /// The record that the user trusts the hooks.
    Trust,
}

/// Which parts an install is to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) hooks: bool,
    /// Answer the question of the harness whether its user trusts our hooks, because the user said so.
    pub(crate) trust: bool,
}

impl Wanted {
    pub(crate) const ALL: Self = Self { hooks: true, trust: true };
}

/// One configuration file, with the parts of ours that belong into it.
#[derive(Debug)]
pub(crate) struct ConfigFile<'a> {
    pub(super) harness: &'static Harness,
    /// The program that the harness is told to start.
    pub(super) program: &'a str,
    pub(super) wanted: Wanted,
    pub(super) path: &'a Path,
    pub(super) parts: Vec<Part>,
    /// The file with the hooks that [`Part::Trust`] is about.
    pub(super) hook_file: Option<PathBuf>,
}

impl Part {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::McpServer => "the MCP server",
            Self::Hooks => "the hooks",
            Self::Trust => "the trust in the hooks",
        }
    }
}

impl ConfigFile<'_> {
    /// The text with our parts as they are wanted, and without those that are not. `was` is the text from before the first
    /// install.
    pub(crate) fn with(&self, text: &Content, was: Option<&Content>) -> Result<String, Error> {
        self.with_parts(text, self.wanted, was)
    }

    fn with_parts(&self, text: &Content, wanted: Wanted, was: Option<&Content>) -> Result<String, Error> {
        self.edit_each(text, |part, text| self.with_part(part, text, wanted, was))
    }

    /// Edits the parts one after the other. A part that needs no edit does not cause the text to be parsed again for the next.
    fn edit_each(
        &self,
        text: &Content,
        edit: impl Fn(Part, &Content) -> Result<String, Error>,
    ) -> Result<String, Error> {
        let mut edited: Option<String> = None;
        for part in self.parts.iter().copied() {
            let next = match &edited {
                Some(edited) => edit(part, &Content::of(edited))?,
                None => edit(part, text)?,
            };
            if edited.is_some() || next != text.text {
                edited = Some(next);
            }
        }
        Ok(edited.unwrap_or_else(|| text.text.to_owned()))
    }

    /// Whether nothing of ours is wanted in the file.
    pub(super) fn is_unwanted(&self) -> bool {
        !self.wanted.hooks && !self.parts.contains(&Part::McpServer)
    }

    /// Whether a part that is in the text is as this version writes it.
    pub(super) fn is_current(&self, part: Part, text: &Content) -> Result<bool, Error> {
        Ok(self.with_part(part, text, self.wanted, None)? == text.text)
    }

    /// The text without our parts. Sections that are empty then are removed as well, unless `was`, the text from before the
    /// first install, has them.
    pub(super) fn without(&self, text: &Content, was: Option<&Content>) -> Result<String, Error> {
        self.edit_each(text, |part, text| self.without_part(part, text, was))
    }

    /// The content of the file from before the install if only our parts differ from it, else the current text less our parts.
    pub(crate) fn restored(&self, now: &Content, was: Option<&Content>) -> Result<Option<String>, Error> {
        let wanted = Wanted { hooks: self.has_part(Part::Hooks, now), trust: self.has_part(Part::Trust, now) };
        let again = self.with_parts(was.unwrap_or(&Content::of("")), wanted, was);
        let before = || was.map(|was| was.text.to_owned());
        // Most files have not changed since the install, and need no more edits to find that out.
        if self.is_set(now) && again.as_ref().is_ok_and(|again| again == now.text) {
            return Ok(before());
        }
        let rest = self.without(now, was)?;
        let again = again.and_then(|again| self.without(&Content::of(&again), was));
        let only_we = self.is_set(now) && again.is_ok_and(|again| again == rest);
        Ok(if only_we { before() } else { Some(rest) })
    }

    /// Whether any of our parts is in the text.
    pub(crate) fn is_set(&self, text: &Content) -> bool {
        self.parts.iter().any(|part| self.has_part(*part, text))
    }

    /// Whether our parts are as we write them, for this program or for another. Everything else in the file was added later or
    /// is in the copy.
    pub(super) fn is_ours(&self, text: &Content) -> bool {
        let entry_is_ours = || !self.has_part(Part::McpServer, text) || self.is_our_entry(text);
        self.is_set(text) && (!self.parts.contains(&Part::McpServer) || entry_is_ours())
    }

    pub(super) fn has_part(&self, part: Part, text: &Content) -> bool {
        let mcp = &self.harness.mcp;
        match part {
            Part::McpServer if mcp.format == Format::Toml => toml::is_set(text.text, mcp, NAME).unwrap_or(false),
            Part::McpServer => get_entry(text, &[mcp.section, NAME]).is_ok_and(|entry| entry.is_some()),
            Part::Hooks => text.json().is_ok_and(|text| hooks::is_set(text, self.harness)),
            Part::Trust => {
                self.needed_trust().is_ok_and(|needed| !needed.is_empty() && trust::is_given(text.text, &needed))
            }
        }
    }

    fn with_part(&self, part: Part, text: &Content, wanted: Wanted, was: Option<&Content>) -> Result<String, Error> {
        let malformed = |e: Malformed| self.malformed(&e.to_string());
        match (part, self.hooks()) {
            (Part::McpServer, _) => self.with_entry(text),
            (Part::Hooks | Part::Trust, _) if !wanted.hooks => self.without_part(part, text, was),
            (Part::Hooks, Some(hooks)) => {
                let text = text.json().map_err(malformed)?;
                hooks::set(text, self.harness, hooks, self.program).map_err(malformed)
            }
            (Part::Trust, Some(_)) if wanted.trust => {
                trust::set(text.text, &self.needed_trust()?).map_err(|e| self.malformed(&e))
            }
            _ => Ok(text.text.to_owned()),
        }
    }

    fn without_part(&self, part: Part, text: &Content, was: Option<&Content>) -> Result<String, Error> {
        match part {
            Part::McpServer => self.without_entry(text, was),
            Part::Hooks => {
                let was = was.and_then(|was| was.json().ok());
                let without = text.json().and_then(|text| hooks::unset(text, self.harness, was));
                without.map_err(|e| self.malformed(&e.to_string()))
            }
            Part::Trust => trust::unset(text.text, &self.trust_in_present_hooks()?).map_err(|e| self.malformed(&e)),
        }
    }

    fn hooks(&self) -> Option<&'static HookFile> {
        match &self.harness.hooks {
            Hooks::File(file) => Some(file),
            Hooks::Plugin(_) => None,
        }
    }

    /// The trust that the hooks need once they are installed.
    fn needed_trust(&self) -> Result<Vec<trust::Trust>, Error> {
        let (Some(path), Some(hooks)) = (&self.hook_file, self.hooks()) else { return Ok(Vec::new()) };
        let text = file::read(path)?.unwrap_or_default();
        let text = Content::of(&text).json().and_then(|text| hooks::set(text, self.harness, hooks, self.program));
        let text = text.map_err(|e| malformed(path, &e.to_string()))?;
        Ok(trust::needed(self.harness, hooks, self.program, (path, &text)))
    }

    /// The trust in the hooks that are installed now.
    fn trust_in_present_hooks(&self) -> Result<Vec<trust::Trust>, Error> {
        let (Some(path), Some(hooks)) = (&self.hook_file, self.hooks()) else { return Ok(Vec::new()) };
        let text = file::read(path)?.unwrap_or_default();
        Ok(trust::needed(self.harness, hooks, self.program, (path, &text)))
    }

    fn is_our_entry(&self, text: &Content) -> bool {
        let mcp = &self.harness.mcp;
        if mcp.format == Format::Toml {
            return toml::is_ours(text.text, mcp, NAME);
        }
        let Ok(Some(entry)) = get_entry(text, &[mcp.section, NAME]) else { return false };
        let command = entry.get(entry::program_key(mcp));
        let program = command.and_then(|command| command.as_str().or_else(|| command.get(0)?.as_str()));
        program.is_some_and(|program| is_equal(&entry, &entry::json(mcp, program)))
    }

    fn with_entry(&self, text: &Content) -> Result<String, Error> {
        let mcp = &self.harness.mcp;
        if mcp.format == Format::Toml {
            return toml::set(text.text, mcp, NAME, self.program).map_err(|what| self.malformed(&what));
        }
        let entry = entry::json(mcp, self.program);
        let at = [mcp.section, NAME];
        let malformed = |e: Malformed| self.malformed(&e.to_string());
        match get_entry(text, &at).map_err(malformed)? {
            Some(old) if is_equal(&old, &entry) => Ok(text.text.to_owned()),
            Some(old) if !old.is_object() => Err(self.not_an_object()),
            _ => text.json().and_then(|text| text.set(&at, &entry)).map_err(malformed),
        }
    }

    fn without_entry(&self, text: &Content, was: Option<&Content>) -> Result<String, Error> {
        let mcp = &self.harness.mcp;
        if mcp.format == Format::Toml {
            return toml::unset(text.text, mcp, NAME).map_err(|reason| self.malformed(&reason));
        }
        let at = [mcp.section, NAME];
        let keep_section = was.is_some_and(|was| was.json().is_ok_and(|was| was.has(mcp.section)));
        let malformed = |e: Malformed| self.malformed(&e.to_string());
        match get_entry(text, &at).map_err(malformed)? {
            Some(entry) if !entry.is_object() => Err(self.not_an_object()),
            _ => text.json().and_then(|text| text.unset(&at, keep_section.into())).map_err(malformed),
        }
    }

    fn malformed(&self, what: &str) -> Error {
        malformed(self.path, what)
    }

    fn not_an_object(&self) -> Error {
        self.malformed(&format!("an object was expected as the value of {NAME:?}"))
    }
}

fn get_entry(text: &Content, path: &[&str]) -> Result<Option<Value>, Malformed> {
    text.json()?.get(path)
}

/// Whether an entry has the value we would write, in whatever form.
fn is_equal(entry: &Value, ours: &str) -> bool {
    serde_json::from_str::<Value>(ours).is_ok_and(|ours| *entry == ours)
}

fn malformed(path: &Path, what: &str) -> Error {
    Error::new(ErrorCode::InvalidInput, format!("{} cannot be read: {what}", path.display()))
        .hint("fix the file first; it was not changed")
        .detail("path", path.display().to_string())
}
