//! `tt install` and `tt uninstall`: add and remove the skill, the MCP server and the hooks of each harness.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::Serialize;
use tt_harness::Harness;
use tt_proto::escape::escape_text;

use crate::Context;
use crate::error::CommandError;
use crate::install::{Action, Change, Places, Wanted};
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

// The arguments of `tt install`. A doc comment here would replace its description.
#[derive(Debug, clap::Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    args: Args,
    /// Do not install hooks, and remove those that are installed
    #[arg(long)]
    no_hooks: bool,
    /// Tell the harness that you trust our hooks, so that it does not ask you (Codex asks about each)
    #[arg(long, conflicts_with = "no_hooks")]
    trust_hooks: bool,
}

#[derive(Debug, Serialize)]
struct Changes {
    /// Whether the changes were made or only shown.
    applied: bool,
    changes: Vec<Change>,
    /// The harnesses whose files changed. Those that run read them when they start again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    restart: Vec<&'static str>,
    /// The harnesses that run no hook of ours before their user tells them to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    untrusted: Vec<Untrusted>,
}

/// A harness that was not told yet to trust our hooks.
#[derive(Debug, Serialize)]
struct Untrusted {
    harness: &'static str,
    /// What its user has to choose when it asks.
    choose: &'static str,
}

/// The short help of `tt install`.
pub(crate) fn about() -> String {
    let titles: Vec<&str> = tt_harness::ALL.iter().map(|harness| harness.title).collect();
    let (last, others) = titles.split_last().unwrap_or((&"", &[]));
    format!("Install the skill, the MCP server and the hooks for {} and {last}", others.join(", "))
}

/// Accepts the name of a harness.
fn harness_parser() -> impl TypedValueParser<Value = &'static Harness> {
    let names = PossibleValuesParser::new(tt_harness::ALL.iter().map(|harness| harness.name));
    names.try_map(|name| tt_harness::by_name(&name).ok_or("unknown harness"))
}

pub(crate) fn run_install(context: &Context, args: InstallArgs) -> Result<(), CommandError> {
    let wanted = Wanted { hooks: !args.no_hooks, trust: args.trust_hooks };
    run(context, &args.args, wanted, |places, harnesses| places.install(harnesses))
}

pub(crate) fn run_uninstall(context: &Context, args: Args) -> Result<(), CommandError> {
    run(context, &args, Wanted::ALL, |places, harnesses| places.uninstall(harnesses))
}

fn run(
    context: &Context,
    args: &Args,
    wanted: Wanted,
    plan: impl Fn(&Places<'_>, &[&'static Harness]) -> Result<Vec<Change>, tt_proto::Error>,
) -> Result<(), CommandError> {
    let places = Places::of(&context.settings.env, wanted)?;
    let named = |harness: &&Harness| args.all || args.harness.contains(harness);
    let harnesses: Vec<&Harness> = tt_harness::ALL.iter().copied().filter(named).collect();
    // All changes are planned first, so that a file that cannot be read stops the command before anything has changed.
    let mut changes = plan(&places, &harnesses)?;
    if !args.print {
        places.apply(&mut changes)?;
    }
    let is_changed = |harness: &&Harness| {
        let changed = |change: &Change| matches!(change.action, Action::Create | Action::Change | Action::Remove);
        changes.iter().any(|change| change.harness == harness.name && changed(change))
    };
    let restart = harnesses.iter().copied().filter(is_changed).map(|harness| harness.name).collect();
    let untrusted = |harness: &&'static Harness| {
        let choose = places.choice_to_trust(harness).filter(|_| !args.print)?;
        Some(Untrusted { harness: harness.name, choose })
    };
    let untrusted = harnesses.iter().filter_map(untrusted).collect();
    let answer = Changes { applied: !args.print, changes, restart, untrusted };
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
        text.push_str(&format!("restart what is running, so that it uses this: {}\n", titles.join(", ")));
    }
    for Untrusted { harness, choose } in &answer.untrusted {
        let title = tt_harness::by_name(harness).map_or(*harness, |harness| harness.title);
        text.push_str(&format!(
            "{title} runs the hooks only after you trust them: start it and choose {choose}\n    \
             or run `tt install {harness} --trust-hooks`; `tt doctor` says whether it happened\n"
        ));
    }
    text
}
