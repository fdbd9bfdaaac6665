//! `tt whoami`: who the daemon takes the caller for, and why.

use tt_proto::api::DaemonApiClient;
use tt_proto::hello::Whoami;

use crate::output::harmless;
use crate::text::Style;
use crate::{Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt whoami --explain")]
pub(crate) struct Args {
    /// Show every rule that was tried, and what it found
    #[arg(long)]
    explain: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let (mut client, output) = context.connect().await?;
    let whoami = client.call(async |rpc| rpc.whoami(Some(args.explain)).await).await?;
    Ok(output.answer(&whoami, text)?)
}

fn text(whoami: &Whoami, style: &Style) -> String {
    let identity = &whoami.identity;
    let mut text = style.bold(&harmless(identity.agent_id.as_str()));
    if let Some(session) = &identity.session_id {
        text.push_str(&style.dim(&format!("  session {}", harmless(session))));
    }
    text.push('\n');
    let width = whoami.explanation.iter().map(|step| step.rule.len()).max().unwrap_or(0);
    for step in &whoami.explanation {
        text.push_str(&format!("  {:width$}  {}\n", harmless(&step.rule), harmless(&step.finding)));
    }
    text
}
