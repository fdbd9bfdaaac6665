//! `tt whoami`: shows which agent the daemon recognises the caller as, and why.

use tt_proto::escape::escape_text;
use tt_proto::requests::{Whoami, WhoamiAnswer};

use crate::Context;
use crate::error::CommandError;
use crate::text::Style;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt whoami --explain")]
pub(crate) struct Args {
    /// Show every rule that was tried, and what it found
    #[arg(long)]
    explain: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let (mut client, output) = context.connect()?;
    let whoami = client.call(&Whoami { explain: Some(args.explain) })?;
    Ok(output.answer(&whoami, text)?)
}

fn text(whoami: &WhoamiAnswer, style: &Style) -> String {
    let identity = &whoami.identity;
    let mut text = style.bold(&escape_text(identity.agent_id.as_str()));
    if let Some(session) = &identity.session_id {
        text.push_str(&style.dim(&format!("  session {}", escape_text(session))));
    }
    text.push('\n');
    let width = whoami.explanation.iter().map(|step| step.rule.len()).max().unwrap_or(0);
    for step in &whoami.explanation {
        text.push_str(&format!("  {:width$}  {}\n", escape_text(&step.rule), escape_text(&step.finding)));
    }
    text
}
