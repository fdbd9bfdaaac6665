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
    let answer = Changes { applied: !args.print, changes };
    Ok(context.output().answer(&answer, text)?)
}

fn text(answer: &Changes, style: &Style) -> String {
    let line = |change: &Change| {
        let what = match change.action {
            Action::Create => "create",
            Action::Change => "change",
            Action::Remove => "remove",
            Action::Unchanged => "up to date",
            Action::Kept => "not what this version installed, kept",
            Action::Skipped => "not installed, skipped",
        };
        // Shown only with --print: a diff of a new file fills a screen.
        let diff: String = if answer.applied {
            String::new()
        } else {
            change.diff.lines().map(|l| format!("    {}\n", escape_text(l))).collect()
        };
        format!("{}: {what}\n{}", style.bold(&escape_text(&change.path)), style.dim(&diff))
    };
    answer.changes.iter().map(line).collect()
}
