//! Telling a harness about us: the skill and the MCP entry, where each harness reads them.
//!
//! These files are their users'. A file that cannot be read is left alone; of one that can, only our own entry changes;
//! and taking it out again restores what was there to the byte, unless the user changed the file meanwhile.

mod file;
mod json;
mod toml;

use std::path::{Path, PathBuf};

use serde::Serialize;
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode};

const SKILL: &str = include_str!("../../../skills/talking-stick/SKILL.md");

/// The name of the MCP server, and of the skill.
const NAME: &str = "talking-stick";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "lower")]
pub(crate) enum Harness {
    Claude,
    Codex,
    Gemini,
    OpenCode,
}

impl Harness {
    pub(crate) const ALL: [Harness; 4] = [Harness::Claude, Harness::Codex, Harness::Gemini, Harness::OpenCode];

    /// As it is typed, and as its program is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Harness::Claude => "claude",
            Harness::Codex => "codex",
            Harness::Gemini => "gemini",
            Harness::OpenCode => "opencode",
        }
    }
}

/// How a harness is set up, beside how we would do it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Setup {
    /// The harness is not there.
    Absent,
    Ready,
    /// It lacks these, or has them otherwise.
    Unlike {
        missing: Vec<&'static str>,
        drifted: Vec<&'static str>,
    },
}

/// What happens to one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    pub harness: Harness,
    pub path: String,
    pub action: Action,
    /// The lines that go and come.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub diff: String,
    #[serde(skip)]
    from: Option<String>,
    #[serde(skip)]
    to: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Create,
    Change,
    Remove,
    Unchanged,
    /// The harness is not there.
    Skipped,
}

/// Where things are.
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

    fn dir(&self, variable: &str, otherwise: &str) -> PathBuf {
        self.env.get(variable).map_or_else(|| self.home.join(otherwise), PathBuf::from)
    }

    fn config_dir(&self, harness: Harness) -> PathBuf {
        match harness {
            Harness::Claude => self.dir("CLAUDE_CONFIG_DIR", ".claude"),
            Harness::Codex => self.dir("CODEX_HOME", ".codex"),
            Harness::Gemini => self.home.join(".gemini"),
            Harness::OpenCode => self.dir("XDG_CONFIG_HOME", ".config").join("opencode"),
        }
    }

    /// The file that lists the harness's MCP servers.
    fn config(&self, harness: Harness) -> PathBuf {
        let dir = self.config_dir(harness);
        match harness {
            Harness::Claude if self.env.get("CLAUDE_CONFIG_DIR").is_some() => dir.join(".claude.json"),
            Harness::Claude => self.home.join(".claude.json"),
            Harness::Codex => dir.join("config.toml"),
            Harness::Gemini => dir.join("settings.json"),
            Harness::OpenCode if dir.join("opencode.jsonc").exists() => dir.join("opencode.jsonc"),
            Harness::OpenCode => dir.join("opencode.json"),
        }
    }

    fn skill(&self, harness: Harness) -> PathBuf {
        let skills = match harness {
            Harness::Claude => self.config_dir(harness).join("skills"),
            _ => self.home.join(".agents/skills"),
        };
        skills.join(NAME).join("SKILL.md")
    }

    fn is_there(&self, harness: Harness) -> bool {
        let paths =
            self.env.get("PATH").map(|path| std::env::split_paths(path).collect::<Vec<_>>()).unwrap_or_default();
        self.config_dir(harness).is_dir() || paths.iter().any(|dir| dir.join(harness.name()).is_file())
    }

    /// What is there, beside what installing would make of it.
    pub(crate) fn setup(&self, harness: Harness) -> Result<Setup, Error> {
        let (mut missing, mut drifted) = (Vec::new(), Vec::new());
        for (number, change) in self.install(harness)?.iter().enumerate() {
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
        Ok(if missing.is_empty() && drifted.is_empty() { Setup::Ready } else { Setup::Unlike { missing, drifted } })
    }

    /// What installing would do.
    pub(crate) fn install(&self, harness: Harness) -> Result<Vec<Change>, Error> {
        if !self.is_there(harness) {
            return Ok(vec![self.skipped(harness)]);
        }
        let config = self.config(harness);
        let before = file::read(&config)?;
        let after = self.with_entry(harness, &config, before.as_deref().unwrap_or(""))?;
        let skill = self.skill(harness);
        let old_skill = file::read(&skill)?;
        Ok(vec![
            change(harness, &config, before, Some(after)),
            change(harness, &skill, old_skill, Some(SKILL.to_owned())),
        ])
    }

    /// What uninstalling would do.
    pub(crate) fn uninstall(&self, harness: Harness) -> Result<Vec<Change>, Error> {
        let config = self.config(harness);
        let mut changes = Vec::new();
        if let Some(now) = file::read(&config)? {
            let without = match self.original(harness, &config, &now)? {
                Some(original) => original,
                None => Some(self.without_entry(harness, &config, &now)?),
            };
            changes.push(change(harness, &config, Some(now), without));
        }
        let skill = self.skill(harness);
        let others = [Harness::Codex, Harness::Gemini, Harness::OpenCode];
        let shared = |other: &&Harness| **other != harness && self.skill(**other) == skill && self.has_entry(**other);
        let text = file::read(&skill)?;
        if let Some(now) = text.filter(|text| text == SKILL && !others.iter().any(|other| shared(&other))) {
            changes.push(change(harness, &skill, Some(now), file::backup_of(&skill)?));
        }
        if changes.is_empty() {
            changes.push(self.skipped(harness));
        }
        Ok(changes)
    }

    /// The file as it was before we came, if nothing else has changed in it since. The inner None: there was none.
    fn original(&self, harness: Harness, config: &Path, now: &str) -> Result<Option<Option<String>>, Error> {
        let backup = file::backup_of(config)?;
        let again = self.with_entry(harness, config, backup.as_deref().unwrap_or(""))?;
        Ok((again == now).then_some(backup))
    }

    fn has_entry(&self, harness: Harness) -> bool {
        let text = file::read(&self.config(harness)).ok().flatten().unwrap_or_default();
        match harness {
            Harness::Codex => toml::is_set(&text, NAME).unwrap_or(false),
            _ => json::get(&text, [section(harness), NAME]).is_ok_and(|entry| entry.is_some()),
        }
    }

    fn with_entry(&self, harness: Harness, path: &Path, text: &str) -> Result<String, Error> {
        let program = serde_json::Value::from(self.program.as_str());
        let entry = match harness {
            Harness::Codex => return toml::set(text, NAME, &self.program).map_err(|what| malformed(path, &what)),
            Harness::Claude => format!(r#"{{ "type": "stdio", "command": {program}, "args": ["mcp"] }}"#),
            Harness::Gemini => format!(r#"{{ "command": {program}, "args": ["mcp"] }}"#),
            Harness::OpenCode => format!(r#"{{ "type": "local", "command": [{program}, "mcp"], "enabled": true }}"#),
        };
        let at = [section(harness), NAME];
        // An entry that says the same in another form is as good as ours.
        let same = |old: &str| {
            let parsed = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
            parsed(old).is_some_and(|old| Some(old) == parsed(&entry))
        };
        match json::get(text, at) {
            Ok(Some(old)) if same(old) => Ok(text.to_owned()),
            Ok(_) => json::set(text, at, &entry).map_err(|e| malformed(path, &format!("line {}: {}", e.line, e.what))),
            Err(e) => Err(malformed(path, &format!("line {}: {}", e.line, e.what))),
        }
    }

    fn without_entry(&self, harness: Harness, path: &Path, text: &str) -> Result<String, Error> {
        match harness {
            Harness::Codex => toml::unset(text, NAME).map_err(|what| malformed(path, &what)),
            _ => json::unset(text, [section(harness), NAME])
                .map_err(|e| malformed(path, &format!("line {}: {}", e.line, e.what))),
        }
    }

    fn skipped(&self, harness: Harness) -> Change {
        let path = self.config_dir(harness).display().to_string();
        Change { harness, path, action: Action::Skipped, diff: String::new(), from: None, to: None }
    }
}

impl Change {
    /// Carries it out.
    pub(crate) fn apply(&self, installing: bool) -> Result<(), Error> {
        let path = Path::new(&self.path);
        match self.action {
            Action::Unchanged | Action::Skipped => return Ok(()),
            Action::Remove => file::remove(path)?,
            Action::Create | Action::Change => file::write(path, self.to.as_deref().unwrap_or(""))?,
        }
        match installing {
            // What an older install of ours left behind is not what was there before.
            true if self.from.as_deref().is_some_and(|from| from.contains(NAME))
                && file::backup_of(path)?.is_some() =>
            {
                Ok(())
            }
            true => file::keep_backup(path, self.from.as_deref()),
            false => file::drop_backup(path),
        }
    }
}

fn section(harness: Harness) -> &'static str {
    if harness == Harness::OpenCode { "mcp" } else { "mcpServers" }
}

fn malformed(path: &Path, what: &str) -> Error {
    Error::new(ErrorCode::InvalidInput, format!("{} cannot be read: {what}", path.display()))
        .hint("repair the file first; it was left as it is")
        .detail("path", path.display().to_string())
}

fn change(harness: Harness, path: &Path, from: Option<String>, to: Option<String>) -> Change {
    let action = match (&from, &to) {
        (from, to) if from == to => Action::Unchanged,
        (None, _) => Action::Create,
        (_, None) => Action::Remove,
        _ => Action::Change,
    };
    let diff = file::diff(from.as_deref().unwrap_or(""), to.as_deref().unwrap_or(""));
    Change { harness, path: path.display().to_string(), action, diff, from, to }
}
