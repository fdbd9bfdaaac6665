//! `tt install` and `tt uninstall`: add and remove the skill and the MCP entry of each harness.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use tt_harness::Harness;
use tt_proto::escape::escape_text;

use crate::Context;
use crate::error::CommandError;
use crate::install::{Action, Change, Places};
use crate::text::Style;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The harnesses to change
    #[arg(value_parser = harness_parser(), required_unless_present = "all")]
    harness: Vec<&'static Harness>,
    /// Every harness on this machine
    #[arg(long, conflicts_with = "harness")]
    all: bool,
    /// Show the exact changes without making them
    #[arg(long)]
    print: bool,
}

#[derive(Debug, Serialize)]
struct Changes {
    /// Whether the changes were made or only shown.
    applied: bool,
    changes: Vec<Change>,
    /// The harnesses whose files changed. Those that run read them when they start again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    restart: Vec<&'static str>,
}

/// The short help of `tt install`.
pub(crate) fn about() -> String {
    let titles: Vec<&str> = tt_harness::ALL.iter().map(|harness| harness.title).collect();
    let (last, others) = titles.split_last().unwrap_or((&"", &[]));
    format!("Install the skill and the MCP server for {} and {last}", others.join(", "))
}

/// Accepts the name of a harness.
fn harness_parser() -> impl TypedValueParser<Value = &'static Harness> {
    let names = PossibleValuesParser::new(tt_harness::ALL.iter().map(|harness| harness.name));
    names.try_map(|name| tt_harness::by_name(&name).ok_or("unknown harness"))
}

pub(crate) fn run(context: &Context, args: Args, installing: bool) -> Result<(), CommandError> {
    let places = Places::of(&context.settings.env)?;
    let named = |harness: &&Harness| args.all || args.harness.contains(harness);
    let harnesses: Vec<&Harness> = tt_harness::ALL.iter().copied().filter(named).collect();
    // All changes are planned first, so that a file that cannot be read stops the command before anything has changed.
    let mut changes = if installing { places.install(&harnesses) } else { places.uninstall(&harnesses) }?;
    if !args.print {
        places.apply(&mut changes)?;
    }
    let is_changed = |harness: &&Harness| {
        let changed = |change: &Change| matches!(change.action, Action::Create | Action::Change | Action::Remove);
        changes.iter().any(|change| change.harness == harness.name && changed(change))
    };
    let restart = harnesses.iter().copied().filter(is_changed).map(|harness| harness.name).collect();
    let answer = Changes { applied: !args.print, changes, restart };
    Ok(context.output().answer(&answer, text)?)
}

fn text(answer: &Changes, style: &Style) -> String {
    let mut shown: Vec<&str> = Vec::new();
    let mut text = String::new();
    for change in &answer.changes {
        let what = match (change.action, answer.applied) {
            (Action::Create, true) => "created",
            (Action::Create, false) => "would be created",
            (Action::Change, true) => "changed",
            (Action::Change, false) => "would be changed",
            (Action::Remove, true) => "removed",
            (Action::Remove, false) => "would be removed",
            (Action::Unchanged, _) => "up to date",
            (Action::Kept, _) => "not what this version installed, kept",
            (Action::Skipped, _) => "not installed, skipped",
        };
        let path = escape_text(&change.path);
        text.push_str(&format!("{}: {what}\n", style.bold(&path)));
        // Shown only with --print: a diff of a new file fills a screen. The skill is the same for every harness.
        if answer.applied || change.diff.is_empty() {
            continue;
        }
        if shown.contains(&change.diff.as_str()) {
            text.push_str(&style.dim("    as above\n"));
            continue;
        }
        shown.push(&change.diff);
        let (before, after) = match change.action {
            Action::Create => ("/dev/null", path.as_str()),
            Action::Remove => (path.as_str(), "/dev/null"),
            _ => (path.as_str(), path.as_str()),
        };
        let diff: String = change.diff.lines().map(|line| format!("{}\n", escape_text(line))).collect();
        text.push_str(&style.dim(&format!("--- {before}\n+++ {after}\n{diff}")));
    }
    if answer.applied && !answer.restart.is_empty() {
        let titles: Vec<&str> =
            answer.restart.iter().filter_map(|name| tt_harness::by_name(name)).map(|harness| harness.title).collect();
        text.push_str(&format!("if it is running, restart it to use this: {}\n", titles.join(", ")));
    }
    text
}
