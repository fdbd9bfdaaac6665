//! Installs the skill, the MCP server and the hooks in the configuration of each harness, and uninstalls them.
//!
//! These files belong to their users. A file that cannot be parsed is left alone. In any other file only our own entries
//! change, and uninstalling restores the file byte for byte, unless the user changed it in between. A harness may write to its
//! files at any moment, and another `tt install` may run: neither loses anything.

mod content;
mod entry;
mod file;
mod hooks;
mod json;
mod own_file;
mod parts;
mod toml;
mod trust;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use tt_harness::{Directory, Harness, Hooks};
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode};

pub(crate) use content::Content;
use own_file::OwnFile;
use parts::Part;
pub(crate) use parts::{ConfigFile, Wanted};

/// How often a change is planned again because its harness wrote to the file in between, and how long to wait before.
const MAX_ATTEMPTS: usize = 50;
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// The name of the MCP server, and of the skill.
const NAME: &str = "talking-stick";

/// How a harness is set up, compared with what this version would install.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Setup {
    /// The harness is not installed.
    Absent,
    Ready,
    /// Parts are missing or differ, or the harness asks its user whether it may run our hooks.
    Different {
        missing: Vec<&'static str>,
        drifted: Vec<&'static str>,
        untrusted: bool,
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
    AddParts,
    AddOwnFile,
    RemoveParts,
    RemoveOwnFile,
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
    wanted: Wanted,
}

impl<'a> Places<'a> {
    /// The paths for an install of these parts. An uninstall removes all of them.
    pub(crate) fn of(env: &'a Environment, wanted: Wanted) -> Result<Self, Error> {
        let wrong = |what: &str| Error::new(ErrorCode::InvalidInput, what.to_owned()).hint("set HOME and try again");
        let home = env.get("HOME").map(PathBuf::from).ok_or_else(|| wrong("there is no home directory"))?;
        let program = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
        let program = program.ok_or_else(|| wrong("the path of tt itself cannot be found or is not UTF-8"))?;
        Ok(Self { env, home, program, wanted })
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
    pub(crate) fn config(&self, harness: &Harness) -> PathBuf {
        let mut configs = self.configs(harness);
        let last = configs.pop().unwrap_or_default();
        configs.into_iter().find(|config| config.exists()).unwrap_or(last)
    }

    /// The file with the harness's hooks, for a harness that has one.
    fn hook_file(&self, harness: &Harness) -> Option<PathBuf> {
        match &harness.hooks {
            Hooks::File(file) => Some(self.resolve(&file.dir).join(file.name)),
            Hooks::Plugin(_) => None,
        }
    }

    /// The file in which the harness records that its user trusts a hook.
    fn trust_file(&self, harness: &Harness) -> Option<PathBuf> {
        match &harness.hooks {
            Hooks::File(file) => file.trust.as_ref().map(|trust| self.resolve(&trust.dir).join(trust.name)),
            Hooks::Plugin(_) => None,
        }
    }

    fn plugin(&self, harness: &Harness) -> Option<PathBuf> {
        match &harness.hooks {
            Hooks::File(_) => None,
            Hooks::Plugin(file) => Some(self.resolve(&file.dir).join(file.name)),
        }
    }

    fn skill(&self, harness: &Harness) -> PathBuf {
        self.resolve(&harness.skill_dir).join(NAME).join("SKILL.md")
    }

    /// The configuration files that an install changes, each once. The one that records trust in hooks comes before the one that
    /// has them, because removing it needs to know them.
    fn config_files(&self, harness: &Harness) -> Vec<PathBuf> {
        let config = self.config(harness);
        let hooks = self.hook_file(harness).filter(|hooks| *hooks != config);
        std::iter::once(config).chain(hooks).collect()
    }

    pub(crate) fn config_file<'p>(&'p self, harness: &'static Harness, path: &'p Path) -> ConfigFile<'p> {
        let has = |part: &Part| match part {
            Part::McpServer => self.configs(harness).iter().any(|config| config == path),
            Part::Hooks => self.hook_file(harness).is_some_and(|file| file == path),
            Part::Trust => self.trust_file(harness).is_some_and(|file| file == path),
        };
        ConfigFile {
            harness,
            program: &self.program,
            wanted: self.wanted,
            path,
            parts: [Part::McpServer, Part::Hooks, Part::Trust].into_iter().filter(has).collect(),
            hook_file: self.hook_file(harness),
        }
    }

    fn own_file(&self, harness: &Harness, path: &Path) -> OwnFile {
        match &harness.hooks {
            Hooks::Plugin(file) if self.plugin(harness).is_some_and(|plugin| plugin == path) => {
                OwnFile::plugin(file, &self.program)
            }
            _ => OwnFile::skill(&self.program),
        }
    }

    /// What the user of a harness has to choose before it runs our hooks, if that has not happened yet.
    pub(crate) fn choice_to_trust(&self, harness: &'static Harness) -> Option<&'static str> {
        let Hooks::File(file) = &harness.hooks else { return None };
        let untrusted = matches!(self.setup(harness), Ok(Setup::Different { untrusted: true, .. }));
        file.trust.as_ref().filter(|_| untrusted).map(|trust| trust.choice)
    }

    /// The executable of a harness, if it is on the PATH.
    pub(crate) fn program(&self, harness: &Harness) -> Option<PathBuf> {
        let mut dirs = std::env::split_paths(self.env.get("PATH")?);
        dirs.find_map(|dir| Some(dir.join(harness.program)).filter(|program| program.is_file()))
    }

    fn is_installed(&self, harness: &Harness) -> bool {
        self.config_dir(harness).is_dir() || self.program(harness).is_some()
    }

    /// Compares the files of a harness with what installing would make of them.
    pub(crate) fn setup(&self, harness: &'static Harness) -> Result<Setup, Error> {
        if !self.is_installed(harness) {
            return Ok(Setup::Absent);
        }
        let (mut missing, mut drifted, mut untrusted) = (Vec::new(), Vec::new(), false);
        for path in self.config_files(harness) {
            let (file, text) = (self.config_file(harness, &path), file::read(&path)?.unwrap_or_default());
            let text = Content::of(&text);
            // A file that cannot be parsed has none of them, and is no reason to install them.
            file.with(&text, None)?;
            for part in file.parts.iter().copied() {
                match (part, file.has_part(part, &text)) {
                    (Part::Trust, given) => untrusted = !given,
                    (_, false) => missing.push(part.title()),
                    (_, true) if !file.is_current(part, &text)? => drifted.push(part.title()),
                    (_, true) => {}
                }
            }
        }
        let plugin = self.plugin(harness).map(|path| (path, "the plugin"));
        for (path, title) in plugin.into_iter().chain([(self.skill(harness), "the skill")]) {
            match file::read(&path)? {
                None => missing.push(title),
                Some(text) if text != self.own_file(harness, &path).text() => drifted.push(title),
                Some(_) => {}
            }
        }
        // Hooks that are not there need no trust.
        let untrusted = untrusted && !missing.contains(&Part::Hooks.title());
        let ready = missing.is_empty() && drifted.is_empty() && !untrusted;
        Ok(if ready { Setup::Ready } else { Setup::Different { missing, drifted, untrusted } })
    }

    /// Plans an install.
    pub(crate) fn install(&self, harnesses: &[&'static Harness]) -> Result<Vec<Change>, Error> {
        let mut changes: Vec<Change> = Vec::new();
        for harness in harnesses.iter().copied() {
            if !self.is_installed(harness) {
                changes.push(self.skipped(harness));
                continue;
            }
            for path in self.config_files(harness) {
                changes.push(self.plan(Step { harness, kind: StepKind::AddParts, path })?);
            }
            if let Some(path) = self.plugin(harness) {
                let kind = if self.wanted.hooks { StepKind::AddOwnFile } else { StepKind::RemoveOwnFile };
                changes.push(self.plan(Step { harness, kind, path })?);
            }
            let skill = Step { harness, kind: StepKind::AddOwnFile, path: self.skill(harness) };
            if is_planned(&changes, &skill.path) {
                // Another harness reads the skill from the same file, and its change comes first.
                let text = Some(OwnFile::skill(&self.program).text().to_owned());
                changes.push(change(skill, text.clone(), text, Backup::Keep));
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
            let mut paths = self.configs(harness);
            paths.extend(self.hook_file(harness).filter(|hooks| !paths.contains(hooks)));
            for path in paths {
                if file::read(&path)?.is_some() {
                    changes.push(self.plan(Step { harness, kind: StepKind::RemoveParts, path })?);
                }
            }
            let skill = self.skill(harness);
            let others = tt_harness::ALL.iter().filter(|other| !harnesses.contains(other));
            let shared = others.filter(|other| self.skill(other) == skill).any(|other| self.has_entry(other));
            let skill = Some(skill).filter(|skill| !shared && !is_planned(&changes, skill));
            for path in self.plugin(harness).into_iter().chain(skill) {
                if file::read(&path)?.is_some() {
                    changes.push(self.plan(Step { harness, kind: StepKind::RemoveOwnFile, path })?);
                }
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
            (StepKind::AddParts, now) => {
                let file = self.config_file(harness, path);
                let was = file::backup_of(path)?;
                let was = was.as_deref().map(Content::of);
                let text = Content::of(now.as_deref().unwrap_or(""));
                if now.is_some() && file.is_unwanted() && file.is_set(&text) {
                    let restored = file.restored(&text, was.as_ref())?;
                    return Ok(change(step, now, restored, Backup::Drop));
                }
                let after = file.with(&text, was.as_ref())?;
                let backup = match now {
                    Some(_) if file.is_ours(&text) => Backup::Keep,
                    Some(_) if file.is_set(&text) && was.is_some() => Backup::Keep,
                    _ => Backup::Make,
                };
                // A file is not created for nothing.
                let after = Some(after).filter(|after| now.is_some() || !after.is_empty());
                change(step, now, after, backup)
            }
            (StepKind::AddOwnFile, now) => {
                let own = self.own_file(harness, path);
                let backup = match now.as_deref() {
                    Some(text) if own.is_unedited(text) => Backup::Keep,
                    // The copy of the user's own file is worth more than one of their edits to ours.
                    Some(text) if own.is_edited_copy(text) && file::backup_of(path)?.is_some() => Backup::Keep,
                    _ => Backup::Make,
                };
                change(step, now, Some(own.text().to_owned()), backup)
            }
            // It is gone already.
            (StepKind::RemoveParts | StepKind::RemoveOwnFile, None) => change(step, None, None, Backup::Drop),
            (StepKind::RemoveParts, Some(now)) => {
                let was = file::backup_of(path)?;
                let was = was.as_deref().map(Content::of);
                let restored = self.config_file(harness, path).restored(&Content::of(&now), was.as_ref())?;
                change(step, Some(now), restored, Backup::Drop)
            }
            (StepKind::RemoveOwnFile, Some(now)) => {
                let unedited = self.own_file(harness, path).is_unedited(&now);
                let to = if unedited { file::backup_of(path)? } else { Some(now.clone()) };
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

    fn has_entry(&self, harness: &'static Harness) -> bool {
        self.configs(harness).iter().any(|path| {
            let text = file::read(path).ok().flatten();
            text.is_some_and(|text| self.config_file(harness, path).has_part(Part::McpServer, &Content::of(&text)))
        })
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
        if self.to.is_none() {
            file::remove_empty_dirs(path);
        }
        Ok(file::Outcome::Written)
    }
}

fn is_planned(changes: &[Change], path: &Path) -> bool {
    changes.iter().any(|change| change.step.as_ref().is_some_and(|step| step.path == path))
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
mod tests;
