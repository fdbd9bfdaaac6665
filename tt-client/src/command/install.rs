//! `tt install` and `tt uninstall`: add and remove the skill and the MCP entry of each harness.

use serde::Serialize;

use crate::install::{Action, Change, Harness, Places};
use crate::output::harmless;
use crate::text::Style;
use crate::{Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  tt install --all --print\n  tt install claude codex")]
pub(crate) struct Args {
    /// The harnesses to change
    #[arg(value_enum, required_unless_present = "all")]
    harness: Vec<Harness>,
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

pub(crate) fn run(context: &Context, args: Args, installing: bool) -> Result<(), Failure> {
    let places = Places::of(&context.settings.env)?;
    let named = |harness: &Harness| args.all || args.harness.contains(harness);
    let harnesses: Vec<Harness> = Harness::ALL.into_iter().filter(named).collect();
    // All changes are planned first, so that a file that cannot be read stops the command before anything has changed.
    let changes = if installing { places.install(&harnesses) } else { places.uninstall(&harnesses) }?;
    if !args.print {
        changes.iter().try_for_each(Change::apply)?;
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
            change.diff.lines().map(|l| format!("    {}\n", harmless(l))).collect()
        };
        format!("{}: {what}\n{}", style.bold(&harmless(&change.path)), style.dim(&diff))
    };
    answer.changes.iter().map(line).collect()
}
