//! Installs the skill and the MCP entry in the configuration of each harness, and uninstalls them.
//!
//! These files belong to their users. A file that cannot be parsed is left alone. In any other file only our own entry
//! changes, and uninstalling restores the file byte for byte, unless the user changed it in between.

mod entry;
mod file;
mod json;
mod toml;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use tt_harness::{Directory, Format, Harness};
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode};

const SKILL: &str = include_str!("../../skills/talking-stick/SKILL.md");

/// The name of the MCP server, and of the skill.
const NAME: &str = "talking-stick";

/// The beginning of the skill in every version.
const SKILL_HEAD: &str = "---\nname: talking-stick\n";

/// The last line of an installed skill, before and after a checksum of the lines above it. It distinguishes a skill that
/// some version of tt installed, which may be replaced and removed, from one that a user edited.
const SKILL_MARK: (&str, &str) = ("<!-- installed by tt, unedited: ", " -->\n");

/// How a harness is set up, compared with what this version would install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Setup {
    /// The harness is not installed.
    Absent,
    Ready,
    /// Parts are missing or differ.
    Different {
        missing: Vec<&'static str>,
        drifted: Vec<&'static str>,
    },
}

/// A change to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    /// The name of the harness.
    pub harness: &'static str,
    pub path: String,
    pub action: Action,
    /// The change as a unified diff.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub diff: String,
    #[serde(skip)]
    from: Option<String>,
    #[serde(skip)]
    to: Option<String>,
    #[serde(skip)]
    backup: Backup,
}

/// What happens to the copy of the file from before the first install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Backup {
    /// Make it: the file is as it was before us.
    Make,
    /// Keep it: the file has our entry, so an earlier install made the copy if there was a file.
    Keep,
    /// Remove it: the file has been restored.
    Drop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Create,
    Change,
    Remove,
    Unchanged,
    /// It is not what was installed, so it is kept.
    Kept,
    /// The harness is not installed.
    Skipped,
}

/// The paths of the harnesses' files for one user.
pub(crate) struct Places<'a> {
    env: &'a Environment,
    home: PathBuf,
    /// The program the harness is told to start.
    program: String,
}

impl<'a> Places<'a> {
    pub(crate) fn of(env: &'a Environment) -> Result<Self, Error> {
        let wrong = |what: &str| Error::new(ErrorCode::InvalidInput, what.to_owned()).hint("set HOME and try again");
        let home = env.get("HOME").map(PathBuf::from).ok_or_else(|| wrong("there is no home directory"))?;
        let program = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
        let program = program.ok_or_else(|| wrong("the path of tt itself cannot be found or is not UTF-8"))?;
        Ok(Self { env, home, program })
    }

    fn resolve(&self, dir: &Directory) -> PathBuf {
        dir.resolve(&self.home, |variable| self.env.get(variable))
    }

    fn config_dir(&self, harness: &Harness) -> PathBuf {
        self.resolve(&harness.config_dir)
    }

    /// Every file that may list the harness's MCP servers.
    fn configs(&self, harness: &Harness) -> Vec<PathBuf> {
        let dir = self.resolve(&harness.mcp.dir);
        harness.mcp.files.iter().map(|name| dir.join(name)).collect()
    }

    /// The file that lists the harness's MCP servers: the first that exists, else the last.
    fn config(&self, harness: &Harness) -> PathBuf {
        let mut configs = self.configs(harness);
        let last = configs.pop().unwrap_or_default();
        configs.into_iter().find(|config| config.exists()).unwrap_or(last)
    }

    fn skill(&self, harness: &Harness) -> PathBuf {
        self.resolve(&harness.skill_dir).join(NAME).join("SKILL.md")
    }

    fn is_installed(&self, harness: &Harness) -> bool {
        let paths =
            self.env.get("PATH").map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
        self.config_dir(harness).is_dir() || paths.iter().any(|dir| dir.join(harness.program).is_file())
    }

    /// Compares the files of a harness with what installing would make of them.
    pub(crate) fn setup(&self, harness: &'static Harness) -> Result<Setup, Error> {
        let (mut missing, mut drifted) = (Vec::new(), Vec::new());
        for (number, change) in self.install(&[harness])?.iter().enumerate() {
            let (what, there) = match number {
                0 => ("the MCP server", self.has_entry(harness)),
                _ => ("the skill", change.from.is_some()),
            };
            match change.action {
                Action::Skipped => return Ok(Setup::Absent),
                Action::Unchanged => {}
                _ if there => drifted.push(what),
                _ => missing.push(what),
            }
        }
        Ok(if missing.is_empty() && drifted.is_empty() { Setup::Ready } else { Setup::Different { missing, drifted } })
    }

    /// Plans an install.
    pub(crate) fn install(&self, harnesses: &[&'static Harness]) -> Result<Vec<Change>, Error> {
        let mut changes: Vec<Change> = Vec::new();
        for harness in harnesses.iter().copied() {
            if !self.is_installed(harness) {
                changes.push(self.skipped(harness));
                continue;
            }
            let config = self.config(harness);
            let before = file::read(&config)?;
            let after = self.with_entry(harness, &config, before.as_deref().unwrap_or(""))?;
            let backup = match before.as_deref() {
                Some(text) if self.is_ours(harness, text) => Backup::Keep,
                Some(text) if self.is_set(harness, text) && file::backup_of(&config)?.is_some() => Backup::Keep,
                _ => Backup::Make,
            };
            changes.push(change(harness, &config, before, Some(after), backup));
            let skill = self.skill(harness);
            let before = match changes.iter().any(|change| Path::new(&change.path) == skill) {
                // Another harness reads the skill from the same file, and its change comes first.
                true => Some(marked(SKILL)),
                false => file::read(&skill)?,
            };
            let backup = match before.as_deref() {
                Some(text) if is_unedited(text) => Backup::Keep,
                // The copy of the user's own file is worth more than one of their edits to ours.
                Some(text) if text.starts_with(SKILL_HEAD) && file::backup_of(&skill)?.is_some() => Backup::Keep,
                _ => Backup::Make,
            };
            changes.push(change(harness, &skill, before, Some(marked(SKILL)), backup));
        }
        Ok(changes)
    }

    /// Plans an uninstall.
    pub(crate) fn uninstall(&self, harnesses: &[&'static Harness]) -> Result<Vec<Change>, Error> {
        let mut changes: Vec<Change> = Vec::new();
        for harness in harnesses.iter().copied() {
            let before = changes.len();
            for config in self.configs(harness) {
                let Some(now) = file::read(&config)? else { continue };
                let was = file::backup_of(&config)?;
                let without = self.restored(harness, &config, &now, was)?;
                changes.push(change(harness, &config, Some(now), without, Backup::Drop));
            }
            let skill = self.skill(harness);
            let others = tt_harness::ALL.iter().filter(|other| !harnesses.contains(other));
            let shared = others.filter(|other| self.skill(other) == skill).any(|other| self.has_entry(other));
            let planned = changes.iter().any(|change| Path::new(&change.path) == skill);
            if let Some(now) = file::read(&skill)?.filter(|_| !shared && !planned) {
                let to = if is_unedited(&now) { file::backup_of(&skill)? } else { Some(now.clone()) };
                let mut removed = change(harness, &skill, Some(now), to, Backup::Drop);
                if removed.action == Action::Unchanged {
                    removed.action = Action::Kept;
                }
                changes.push(removed);
            }
            if changes.len() == before {
                changes.push(self.skipped(harness));
            }
        }
        Ok(changes)
    }

    /// The file without our entry: the copy from before the install if only our entry differs from it, else the current file
    /// less our entry.
    fn restored(
        &self,
        harness: &Harness,
        config: &Path,
        now: &str,
        was: Option<String>,
    ) -> Result<Option<String>, Error> {
        let again = self.with_entry(harness, config, was.as_deref().unwrap_or(""));
        let section_was_there = was.as_deref().is_some_and(|was| self.has_section(harness, was));
        let without = |text: &str| self.without_entry(harness, config, text, section_was_there);
        let rest = without(now)?;
        let only_we = self.is_set(harness, now) && again.and_then(|again| without(&again)).is_ok_and(|it| it == rest);
        Ok(if only_we { was } else { Some(rest) })
    }

    fn has_section(&self, harness: &Harness, text: &str) -> bool {
        match harness.mcp.format {
            Format::Toml => toml::has_section(text, &harness.mcp),
            Format::Json => json::has(text, harness.mcp.section),
        }
    }

    fn has_entry(&self, harness: &Harness) -> bool {
        let texts = self.configs(harness).into_iter().filter_map(|config| file::read(&config).ok().flatten());
        texts.into_iter().any(|text| self.is_set(harness, &text))
    }

    fn is_set(&self, harness: &Harness, text: &str) -> bool {
        match harness.mcp.format {
            Format::Toml => toml::is_set(text, &harness.mcp, NAME).unwrap_or(false),
            Format::Json => json::get(text, &[harness.mcp.section, NAME]).is_ok_and(|entry| entry.is_some()),
        }
    }

    /// Whether the entry is one that we write, for this program or for another. Everything else in the file was added later
    /// or is in the copy.
    fn is_ours(&self, harness: &Harness, text: &str) -> bool {
        if harness.mcp.format == Format::Toml {
            return toml::is_ours(text, &harness.mcp, NAME);
        }
        let Ok(Some(entry)) = json::get(text, &[harness.mcp.section, NAME]) else { return false };
        let command = entry.get(entry::program_key(&harness.mcp));
        let program = command.and_then(|command| command.as_str().or_else(|| command.get(0)?.as_str()));
        program.is_some_and(|program| is_equal(&entry, &entry::json(&harness.mcp, program)))
    }

    fn with_entry(&self, harness: &Harness, path: &Path, text: &str) -> Result<String, Error> {
        if harness.mcp.format == Format::Toml {
            return toml::set(text, &harness.mcp, NAME, &self.program).map_err(|what| malformed(path, &what));
        }
        let entry = entry::json(&harness.mcp, &self.program);
        let at = [harness.mcp.section, NAME];
        match json::get(text, &at).map_err(|e| malformed(path, &e.to_string()))? {
            Some(old) if is_equal(&old, &entry) => Ok(text.to_owned()),
            Some(old) if !old.is_object() => Err(not_an_object(path)),
            _ => json::set(text, &at, &entry).map_err(|e| malformed(path, &e.to_string())),
        }
    }

    /// The text without our entry. A section that is empty then is removed as well, unless it was there before us.
    fn without_entry(&self, harness: &Harness, path: &Path, text: &str, keep_section: bool) -> Result<String, Error> {
        if harness.mcp.format == Format::Toml {
            return toml::unset(text, &harness.mcp, NAME).map_err(|reason| malformed(path, &reason));
        }
        let at = [harness.mcp.section, NAME];
        match json::get(text, &at).map_err(|e| malformed(path, &e.to_string()))? {
            Some(entry) if !entry.is_object() => Err(not_an_object(path)),
            _ => json::unset(text, &at, keep_section.into()).map_err(|e| malformed(path, &e.to_string())),
        }
    }

    fn skipped(&self, harness: &Harness) -> Change {
        let path = self.config_dir(harness).display().to_string();
        let (diff, backup) = (String::new(), Backup::Keep);
        Change { harness: harness.name, path, action: Action::Skipped, diff, from: None, to: None, backup }
    }
}

impl Change {
    /// Applies the change.
    pub(crate) fn apply(&self) -> Result<(), Error> {
        let (path, from) = (Path::new(&self.path), self.from.as_deref());
        match (self.action, self.backup) {
            // The user removed our entry, so the copy is no longer needed.
            (Action::Unchanged, Backup::Drop) => return file::drop_backup(path),
            (Action::Unchanged | Action::Kept | Action::Skipped, _) => return Ok(()),
            _ => {}
        }
        file::may_change(path, from)?;
        // First, so that the old content is always on disk.
        if self.backup == Backup::Make {
            file::keep_backup(path, from)?;
        }
        let done = match self.to.as_deref() {
            Some(to) => file::replace(path, from, to),
            None => file::remove(path, from),
        };
        if done.is_err() && self.backup == Backup::Make {
            // The file was not changed, so no copy is needed.
            let _ = file::drop_backup(path);
        }
        done?;
        if self.backup == Backup::Drop {
            file::drop_backup(path)?;
        }
        if self.to.is_none() && path.ends_with("SKILL.md") {
            file::remove_empty_dirs(path);
        }
        Ok(())
    }
}

/// The skill as it is installed.
fn marked(skill: &str) -> String {
    format!("{skill}\n{}{:016x}{}", SKILL_MARK.0, checksum(skill), SKILL_MARK.1)
}

/// Whether a skill is exactly what some version of tt installed.
fn is_unedited(text: &str) -> bool {
    text.rsplit_once(&format!("\n{}", SKILL_MARK.0)).is_some_and(|(skill, _)| marked(skill) == text)
}

/// FNV-1a, which is the same in every version and on every machine; the standard library's hash need not be.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
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

fn not_an_object(path: &Path) -> Error {
    malformed(path, &format!("an object was expected as the value of {NAME:?}"))
}

fn change(harness: &Harness, path: &Path, from: Option<String>, to: Option<String>, backup: Backup) -> Change {
    let action = match (&from, &to) {
        (from, to) if from == to => Action::Unchanged,
        (None, _) => Action::Create,
        (_, None) => Action::Remove,
        _ => Action::Change,
    };
    let diff = file::diff(from.as_deref().unwrap_or(""), to.as_deref().unwrap_or(""));
    Change { harness: harness.name, path: path.display().to_string(), action, diff, from, to, backup }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codex() -> &'static Harness {
        tt_harness::by_name("codex").unwrap()
    }

    #[test]
    fn what_an_older_version_installed_is_neither_kept_aside_nor_kept() {
        let home = tempfile::tempdir().unwrap();
        let env = Environment::of([("HOME", home.path().as_os_str())]);
        let places = Places::of(&env).unwrap();
        std::fs::create_dir(home.path().join(".codex")).unwrap();
        let skill = places.skill(codex());
        std::fs::create_dir_all(skill.parent().unwrap()).unwrap();
        let older = marked(&format!("{SKILL_HEAD}description: an older version\n---\n"));
        let install = || places.install(&[codex()]).unwrap().iter().for_each(|change| change.apply().unwrap());
        let uninstall = || places.uninstall(&[codex()]).unwrap().iter().for_each(|change| change.apply().unwrap());
        std::fs::write(&skill, &older).unwrap();
        uninstall();
        assert!(!home.path().join(".agents").exists(), "without a newer version in between");
        std::fs::create_dir_all(skill.parent().unwrap()).unwrap();
        std::fs::write(&skill, &older).unwrap();
        install();
        assert_eq!(std::fs::read_to_string(&skill).unwrap(), marked(SKILL));
        uninstall();
        assert!(!home.path().join(".agents").exists(), "and with one");
        // A skill that the user edited is kept.
        let edited = older.replace("an older", "my own");
        std::fs::create_dir_all(skill.parent().unwrap()).unwrap();
        std::fs::write(&skill, &edited).unwrap();
        uninstall();
        assert_eq!(std::fs::read_to_string(&skill).unwrap(), edited);
        install();
        uninstall();
        assert_eq!(std::fs::read_to_string(&skill).unwrap(), edited);
    }

    /// A harness or a person may write to a file between our reading it and changing it.
    #[test]
    fn what_somebody_else_wrote_meanwhile_stays() {
        let home = tempfile::tempdir().unwrap();
        let env = Environment::of([("HOME", home.path().as_os_str())]);
        let places = Places::of(&env).unwrap();
        let config = home.path().join(".codex/config.toml");
        std::fs::create_dir(home.path().join(".codex")).unwrap();
        let read = || std::fs::read_to_string(&config).ok();
        let beside = || std::fs::read_dir(home.path().join(".codex")).unwrap().count();
        for (at_first, meanwhile) in [(Some("a = 1\n"), "a = 2\n"), (None, "a = 3\n")] {
            match at_first {
                Some(text) => std::fs::write(&config, text).unwrap(),
                None => std::fs::remove_file(&config).unwrap(),
            }
            let planned = places.install(&[codex()]).unwrap();
            std::fs::write(&config, meanwhile).unwrap();
            let error = planned[0].apply().unwrap_err();
            assert!(error.hint.contains("again"), "{error:?}");
            assert_eq!(read().as_deref(), Some(meanwhile));
            assert_eq!(beside(), 1, "nothing was changed, so nothing is kept aside");
            // The next attempt works and keeps the new content.
            places.install(&[codex()]).unwrap().iter().for_each(|change| change.apply().unwrap());
            let planned = places.uninstall(&[codex()]).unwrap();
            let with_us = read().unwrap();
            std::fs::write(&config, with_us.clone() + "# mine\n").unwrap();
            planned[0].apply().unwrap_err();
            assert_eq!(read().unwrap(), with_us + "# mine\n");
            places.uninstall(&[codex()]).unwrap().iter().for_each(|change| change.apply().unwrap());
            assert_eq!(read().unwrap().replace("# mine\n", "").trim_end(), meanwhile.trim_end());
            assert_eq!(beside(), 1, "nothing of ours is left beside it");
        }
    }
}
