//! Installs the skill and the MCP entry in the configuration of each harness, and uninstalls them.
//!
//! These files belong to their users. A file that cannot be parsed is left alone. In any other file only our own entry
//! changes, and uninstalling restores the file byte for byte, unless the user changed it in between. A harness may write to its
//! files at any moment, and another `tt install` may run: neither loses anything.

mod entry;
mod file;
mod json;
mod toml;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tt_harness::{Directory, Format, Harness};
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode};

/// How often a change is planned again because its harness wrote to the file in between, and how long to wait before.
const MAX_ATTEMPTS: usize = 50;
const RETRY_DELAY: Duration = Duration::from_millis(10);

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
    /// What it was planned for. None if nothing is to be done.
    #[serde(skip)]
    step: Option<Step>,
}

/// What is to be done to one file. The change that does it depends on the file's content, and is planned again when another
/// program changed the file in between.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    harness: &'static Harness,
    kind: StepKind,
    path: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepKind {
    AddEntry,
    AddSkill,
    RemoveEntry,
    RemoveSkill,
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
            changes.push(self.plan(Step { harness, kind: StepKind::AddEntry, path: self.config(harness) })?);
            let skill = Step { harness, kind: StepKind::AddSkill, path: self.skill(harness) };
            if is_planned(&changes, &skill.path) {
                // Another harness reads the skill from the same file, and its change comes first.
                changes.push(change(skill, Some(marked(SKILL)), Some(marked(SKILL)), Backup::Keep));
            } else {
                changes.push(self.plan(skill)?);
            }
        }
        Ok(changes)
    }

    /// Plans an uninstall.
    pub(crate) fn uninstall(&self, harnesses: &[&'static Harness]) -> Result<Vec<Change>, Error> {
        let mut changes: Vec<Change> = Vec::new();
        for harness in harnesses.iter().copied() {
            let before = changes.len();
            for path in self.configs(harness) {
                if file::read(&path)?.is_some() {
                    changes.push(self.plan(Step { harness, kind: StepKind::RemoveEntry, path })?);
                }
            }
            let skill = self.skill(harness);
            let others = tt_harness::ALL.iter().filter(|other| !harnesses.contains(other));
            let shared = others.filter(|other| self.skill(other) == skill).any(|other| self.has_entry(other));
            if !shared && !is_planned(&changes, &skill) && file::read(&skill)?.is_some() {
                changes.push(self.plan(Step { harness, kind: StepKind::RemoveSkill, path: skill })?);
            }
            if changes.len() == before {
                changes.push(self.skipped(harness));
            }
        }
        Ok(changes)
    }

    /// The change that a step makes to its file as it is now.
    fn plan(&self, step: Step) -> Result<Change, Error> {
        let (harness, path) = (step.harness, step.path.as_path());
        let now = file::read(path)?;
        Ok(match (step.kind, now) {
            (StepKind::AddEntry, now) => {
                let after = self.with_entry(harness, path, now.as_deref().unwrap_or(""))?;
                let backup = match now.as_deref() {
                    Some(text) if self.is_ours(harness, text) => Backup::Keep,
                    Some(text) if self.is_set(harness, text) && file::backup_of(path)?.is_some() => Backup::Keep,
                    _ => Backup::Make,
                };
                change(step, now, Some(after), backup)
            }
            (StepKind::AddSkill, now) => {
                let backup = match now.as_deref() {
                    Some(text) if is_unedited(text) => Backup::Keep,
                    // The copy of the user's own file is worth more than one of their edits to ours.
                    Some(text) if text.starts_with(SKILL_HEAD) && file::backup_of(path)?.is_some() => Backup::Keep,
                    _ => Backup::Make,
                };
                change(step, now, Some(marked(SKILL)), backup)
            }
            // It is gone already.
            (StepKind::RemoveEntry | StepKind::RemoveSkill, None) => change(step, None, None, Backup::Drop),
            (StepKind::RemoveEntry, Some(now)) => {
                let without = self.restored(harness, path, &now, file::backup_of(path)?)?;
                change(step, Some(now), without, Backup::Drop)
            }
            (StepKind::RemoveSkill, Some(now)) => {
                let to = if is_unedited(&now) { file::backup_of(path)? } else { Some(now.clone()) };
                let mut removed = change(step, Some(now), to, Backup::Drop);
                if removed.action == Action::Unchanged {
                    removed.action = Action::Kept;
                }
                removed
            }
        })
    }

    /// Makes the planned changes. What another program wrote to a file since it was planned is kept.
    pub(crate) fn apply(&self, changes: &mut [Change]) -> Result<(), Error> {
        changes.iter_mut().try_for_each(|change| self.apply_one(change, || {}))
    }

    /// Makes one change: planned again from the file as it is now, with no other `tt` at work on the file, and again for as
    /// long as its harness writes to it in between. `before_write` is called after each plan.
    fn apply_one(&self, change: &mut Change, mut before_write: impl FnMut()) -> Result<(), Error> {
        let Some(step) = change.step.clone() else { return Ok(()) };
        let _lock = file::lock(&step.path)?;
        for attempt in 0..MAX_ATTEMPTS {
            let planned = self.plan(step.clone());
            before_write();
            match planned {
                Ok(planned) => *change = planned,
                // A program that does not replace the file in one step was in the middle of writing it.
                Err(_) if attempt > 0 && attempt + 1 < MAX_ATTEMPTS => {
                    std::thread::sleep(RETRY_DELAY);
                    continue;
                }
                Err(e) => return Err(e),
            }
            if change.write(&step.path)? == file::Outcome::Written {
                return Ok(());
            }
            std::thread::sleep(RETRY_DELAY);
        }
        Err(file::keeps_changing(&step.path))
    }

    /// The file without our entry: the copy from before the install if only our entry differs from it, else the current file
    /// less our entry.
    pub(crate) fn restored(
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

    pub(crate) fn is_set(&self, harness: &Harness, text: &str) -> bool {
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

    pub(crate) fn with_entry(&self, harness: &Harness, path: &Path, text: &str) -> Result<String, Error> {
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
        Change {
            harness: harness.name,
            path: self.config_dir(harness).display().to_string(),
            action: Action::Skipped,
            diff: String::new(),
            from: None,
            to: None,
            backup: Backup::Keep,
            step: None,
        }
    }
}

impl Change {
    /// Writes the new content, unless the file is no longer what the change was planned from.
    fn write(&self, path: &Path) -> Result<file::Outcome, Error> {
        let from = self.from.as_deref();
        match (self.action, self.backup) {
            // The user removed our entry, so the copy is no longer needed.
            (Action::Unchanged, Backup::Drop) => return file::drop_backup(path).map(|()| file::Outcome::Written),
            (Action::Unchanged | Action::Kept | Action::Skipped, _) => return Ok(file::Outcome::Written),
            _ => {}
        }
        if file::check(path, from)? == file::Outcome::ChangedMeanwhile {
            return Ok(file::Outcome::ChangedMeanwhile);
        }
        // First, so that the old content is always on disk.
        if self.backup == Backup::Make {
            file::keep_backup(path, from)?;
        }
        let done = match self.to.as_deref() {
            Some(to) => file::replace(path, from, to),
            None => file::remove(path, from),
        };
        if !matches!(done, Ok(file::Outcome::Written)) {
            if self.backup == Backup::Make {
                // The file was not changed, so no copy is needed.
                let _ = file::drop_backup(path);
            }
            return done;
        }
        if self.backup == Backup::Drop {
            file::drop_backup(path)?;
        }
        if self.to.is_none() && path.ends_with("SKILL.md") {
            file::remove_empty_dirs(path);
        }
        Ok(file::Outcome::Written)
    }
}

fn is_planned(changes: &[Change], path: &Path) -> bool {
    changes.iter().any(|change| change.step.as_ref().is_some_and(|step| step.path == path))
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

fn change(step: Step, from: Option<String>, to: Option<String>, backup: Backup) -> Change {
    let action = match (&from, &to) {
        (from, to) if from == to => Action::Unchanged,
        (None, _) => Action::Create,
        (_, None) => Action::Remove,
        _ => Action::Change,
    };
    let diff = file::diff(from.as_deref().unwrap_or(""), to.as_deref().unwrap_or(""));
    let (harness, path) = (step.harness.name, step.path.display().to_string());
    Change { harness, path, action, diff, from, to, backup, step: Some(step) }
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
        let install = || places.apply(&mut places.install(&[codex()]).unwrap()).unwrap();
        let uninstall = || places.apply(&mut places.uninstall(&[codex()]).unwrap()).unwrap();
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
        let read = || std::fs::read_to_string(&config).unwrap();
        let beside = || std::fs::read_dir(home.path().join(".codex")).unwrap().count();
        for at_first in [Some("a = 0\n"), None] {
            match at_first {
                Some(text) => std::fs::write(&config, text).unwrap(),
                None => std::fs::remove_file(&config).unwrap(),
            }
            let mut planned = places.install(&[codex()]).unwrap();
            // It writes several times, once without finishing: between each plan and the write that was planned.
            let mut writes = ["a = 1\n", "a = ", "a = 2\n"].iter();
            let harness_writes = || writes.by_ref().take(1).for_each(|text| std::fs::write(&config, text).unwrap());
            places.apply_one(&mut planned[0], harness_writes).unwrap_or_else(|e| panic!("{e:?}"));
            assert!(read().starts_with("a = 2\n") && read().contains("talking-stick"), "{}", read());
            assert_eq!(file::backup_of(&config).unwrap().as_deref(), Some("a = 2\n"));
            let mut planned = places.uninstall(&[codex()]).unwrap();
            let mut writes = [read() + "# mine\n"].into_iter();
            let harness_writes = || writes.by_ref().for_each(|text| std::fs::write(&config, text).unwrap());
            places.apply_one(&mut planned[0], harness_writes).unwrap();
            assert_eq!(read().replace("# mine\n", "").trim_end(), "a = 2");
            assert!(read().contains("# mine"), "{}", read());
            assert_eq!(beside(), 1, "nothing of ours is left beside it");
        }
    }

    #[test]
    fn a_file_that_never_stays_the_same_is_left_alone() {
        let home = tempfile::tempdir().unwrap();
        let env = Environment::of([("HOME", home.path().as_os_str())]);
        let places = Places::of(&env).unwrap();
        let config = home.path().join(".codex/config.toml");
        std::fs::create_dir(home.path().join(".codex")).unwrap();
        std::fs::write(&config, "a = 0\n").unwrap();
        let mut count = 0;
        let mut planned = places.install(&[codex()]).unwrap();
        let error = places.apply_one(&mut planned[0], || {
            count += 1;
            std::fs::write(&config, format!("a = {count}\n")).unwrap();
        });
        assert!(error.unwrap_err().hint.contains("again"));
        assert_eq!(std::fs::read_to_string(&config).unwrap(), format!("a = {MAX_ATTEMPTS}\n"));
        assert_eq!(std::fs::read_dir(home.path().join(".codex")).unwrap().count(), 1, "nothing is kept aside");
    }
}
