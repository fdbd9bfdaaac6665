//! How a harness runs hooks: commands that it starts at certain moments of a session, with a JSON object on standard input.

use crate::Directory;

/// How a harness learns of our hooks.
#[derive(Debug, PartialEq, Eq)]
pub enum Hooks {
    /// A JSON file with a list of commands for each event.
    File(HookFile),
    /// A program that the harness loads and that runs our command.
    Plugin(PluginFile),
}

/// A JSON file in which `hooks` has, for each event, a list of groups, each with a list of commands.
#[derive(Debug, PartialEq, Eq)]
pub struct HookFile {
    pub dir: Directory,
    pub name: &'static str,
    /// How long a hook may take before the harness ends it, in the unit of the file.
    pub timeout: u32,
    /// Whether the file gives every command a name.
    pub names_commands: bool,
    /// Where the harness records that its user trusts a hook, if it runs only those.
    pub trust: Option<HookTrust>,
    pub events: &'static [HookEvent],
}

/// An event for which a hook is installed.
#[derive(Debug, PartialEq, Eq)]
pub struct HookEvent {
    /// The harness's own name for it.
    pub name: &'static str,
    /// What it says about the session, in the words of the protocol. The argument of `tt hook`.
    pub meaning: &'static str,
    /// The time limit for this event, where the harness allows less than [`HookFile::timeout`].
    pub timeout: Option<u32>,
    /// What reaches the model of what the hook prints.
    pub speaks: Speaks,
}

/// What reaches the model of what a hook prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Nothing,
    /// `hookSpecificOutput.additionalContext`: text for the next request.
    Context,
    /// The reason for which it keeps the turn from ending.
    Hold,
}

/// How a harness hands what hooks print to its model.
#[derive(Debug, PartialEq, Eq)]
pub struct Speech {
    /// Text that has more characters does not reach the model whole.
    pub max_chars: usize,
    pub hold: Hold,
    pub refuse: Refuse,
}

/// How the hook before a tool keeps it from running, with a reason for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuse {
    /// By `hookSpecificOutput.permissionDecision`.
    Permission,
    /// By this word as `decision`, with the `reason`.
    Decision(&'static str),
    /// Our plugin throws an error.
    Plugin,
}

/// How a hook keeps a turn from ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// By this word as `decision`, with the `reason`.
    Decision(&'static str),
    /// By any `additionalContext`.
    Context,
}

/// The TOML file in which a harness keeps the hash of every hook that its user trusts.
#[derive(Debug, PartialEq, Eq)]
pub struct HookTrust {
    pub dir: Directory,
    pub name: &'static str,
    /// What its user has to choose when it asks.
    pub choice: &'static str,
}

/// A plugin file of a harness. The text is ours.
#[derive(Debug, PartialEq, Eq)]
pub struct PluginFile {
    pub dir: Directory,
    pub name: &'static str,
    /// The program, with [`PROGRAM_PLACEHOLDER`] inside a string where the path of `tt` belongs.
    pub text: &'static str,
}

/// Stands for the path of `tt` in [`PluginFile::text`] and in the skill.
pub const PROGRAM_PLACEHOLDER: &str = "@TT@";

impl HookEvent {
    pub(crate) const fn new(name: &'static str, meaning: &'static str) -> Self {
        Self { name, meaning, timeout: None, speaks: Speaks::Nothing }
    }

    pub(crate) const fn within(name: &'static str, meaning: &'static str, timeout: u32) -> Self {
        Self { timeout: Some(timeout), ..Self::new(name, meaning) }
    }

    pub(crate) const fn with_context(name: &'static str, meaning: &'static str) -> Self {
        Self { speaks: Speaks::Context, ..Self::new(name, meaning) }
    }

    pub(crate) const fn that_holds(name: &'static str, meaning: &'static str) -> Self {
        Self { speaks: Speaks::Hold, ..Self::new(name, meaning) }
    }
}
