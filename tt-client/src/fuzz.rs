//! Doors for `fuzz/`: parsers and editors that are private to this crate, each as one function of its input. Nothing else uses
//! them, and nothing here decides anything.

use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tt_harness::Harness;
use tt_proto::event::Event;
use tt_proto::handoff::{Artifact, RawJson};
use tt_proto::paths::Environment;
use tt_proto::{Error, ErrorCode};

use crate::connect::Settings;
use crate::install::{ConfigFile, Content, Places, Wanted};
use crate::text::{Style, names::Names, render};

/// A configuration file with our entries in it.
pub fn add_entry(harness: &'static Harness, text: &str) -> Result<String, Error> {
    in_config(harness, |file| file.with(&Content::of(text), Some(&Content::of(text))))?
}

/// A configuration file without our entries, given its content before the install. None if there was no file.
pub fn remove_entry(harness: &'static Harness, now: &str, was: Option<String>) -> Result<Option<String>, Error> {
    in_config(harness, |file| file.restored(&Content::of(now), was.as_deref().map(Content::of).as_ref()))?
}

/// Whether a configuration file has our entry.
pub fn has_entry(harness: &'static Harness, text: &str) -> Result<bool, Error> {
    in_config(harness, |file| file.is_set(&Content::of(text)))
}

fn in_config<T>(harness: &'static Harness, edit: impl FnOnce(&ConfigFile<'_>) -> T) -> Result<T, Error> {
    let env = home();
    let places = Places::of(&env, Wanted { hooks: true, trust: false })?;
    Ok(edit(&places.config_file(harness, &places.config(harness))))
}

fn home() -> Environment {
    Environment::of([("HOME", "/nonexistent")])
}

/// An event in text for a person, in a terminal of this width.
pub fn render_event(event: &Event, width: Option<usize>) -> String {
    let style = Style::plain(width);
    let mut names = Names::default();
    names.learn(event);
    style.lines(&render::event(event, &names, &style))
}

/// A handoff in text for a person.
pub fn render_handoff(handoff: &RawJson, width: Option<usize>) -> String {
    render::handoff(handoff, "  ", &Style::plain(width))
}

/// The last check of every text before it is printed.
pub fn make_harmless(text: &str) -> String {
    Style::plain(None).harmless(text)
}

/// The session that the input of a hook names.
pub fn hook_session(input: &[u8]) -> Result<String, Error> {
    crate::hook::read(input)
}

/// The session that the input of `tt hook` names.
pub fn reported_session(input: &[u8]) -> Result<String, Error> {
    crate::commands::hook::session_in(input)
}

/// The files that the input of `tt hook` says a tool of this harness is about to change.
pub fn reported_edits(harness: &'static Harness, input: &[u8]) -> Result<Vec<String>, Error> {
    crate::commands::hook::edits_in(harness, input)
}

/// An `--artifact` argument.
pub fn artifact(text: &str) -> Result<Artifact, String> {
    crate::handoff::artifact(text)
}

/// The arguments of an MCP tool, checked.
pub fn tool_arguments(tool: &str, arguments: Map<String, Value>) -> Result<Map<String, Value>, Error> {
    match crate::mcp::tool(tool) {
        Some(tool) => tool.arguments(tool.named_arguments(arguments)?),
        None => Err(Error::new(ErrorCode::InvalidInput, format!("there is no tool {tool:?}"))),
    }
}

/// The names of all MCP tools.
pub fn tool_names() -> Vec<&'static str> {
    crate::mcp::tool_names()
}

/// Serves MCP on this input and output until the input ends. Must run in a `LocalSet`.
pub async fn serve_mcp<R, W>(settings: Settings, input: R, output: W) -> Result<(), String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    crate::mcp::serve_on(settings, input, output).await.map_err(|e| e.to_string())
}
