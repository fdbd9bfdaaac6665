//! The targets. A new one is a file here with a type that implements [`Target`], a line in [`ALL`], and a directory with at
//! least one example in `corpus/`.

mod codex_messages;
mod config_json;
mod config_toml;
mod escape;
mod events;
mod frames;
mod handoffs;
mod hook_edits;
mod hook_input;
mod mcp;
mod requests;
mod screens;
mod session_files;
mod tool_arguments;
mod transcripts;
mod words;

use crate::Target;

/// A target as the command line knows it.
pub struct TargetInfo {
    /// The name on the command line, and of the directory in `corpus/`.
    pub name: &'static str,
    /// Its share of the inputs of a run, in thousandths. What is quick to try gets many.
    pub share: u64,
    pub make: fn() -> Box<dyn Target>,
}

/// All targets. The shares are thousandths and make a thousand together.
pub const ALL: &[TargetInfo] = &[
    TargetInfo { name: "words", share: 220, make: || Box::new(words::Words) },
    TargetInfo { name: "escape", share: 200, make: || Box::new(escape::Escape) },
    TargetInfo { name: "hook_input", share: 130, make: || Box::new(hook_input::HookInput) },
    TargetInfo { name: "hook_edits", share: 20, make: || Box::new(hook_edits::HookEdits) },
    TargetInfo { name: "session_files", share: 20, make: || Box::new(session_files::SessionFiles) },
    TargetInfo { name: "codex_messages", share: 20, make: || Box::new(codex_messages::CodexMessages) },
    TargetInfo { name: "screens", share: 20, make: || Box::new(screens::Screens) },
    TargetInfo { name: "transcripts", share: 20, make: || Box::new(transcripts::Transcripts) },
    TargetInfo { name: "handoffs", share: 110, make: || Box::new(handoffs::Handoffs) },
    TargetInfo { name: "events", share: 80, make: || Box::new(events::Events) },
    TargetInfo { name: "tool_arguments", share: 80, make: || Box::new(tool_arguments::ToolArguments) },
    TargetInfo { name: "config_toml", share: 30, make: || Box::new(config_toml::ConfigToml) },
    TargetInfo { name: "config_json", share: 30, make: || Box::new(config_json::ConfigJson) },
    TargetInfo { name: "requests", share: 14, make: || Box::<requests::Requests>::default() },
    TargetInfo { name: "frames", share: 5, make: || Box::<frames::Frames>::default() },
    TargetInfo { name: "mcp", share: 1, make: || Box::<mcp::Mcp>::default() },
];

/// The target of this name.
pub fn named(name: &str) -> Option<&'static TargetInfo> {
    ALL.iter().find(|target| target.name == name)
}
