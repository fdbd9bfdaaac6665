//! `tt kick`: remove a member that is gone.

use tt_proto::requests::KickMember;
use tt_proto::{Error, ErrorCode};

use crate::text::names;
use crate::workspace::{PathArg, Workspace, key};
use crate::{Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt kick codex --reason \"its terminal was closed\"")]
pub(crate) struct Args {
    /// The member: name, agent id, or the beginning of one
    who: String,
    #[command(flatten)]
    path: PathArg,
    /// Why, for the log
    #[arg(long)]
    reason: Option<String>,
    /// Even if it is still there
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let mut workspace = Workspace::find(context, args.path).await?;
    // A kick has a target, not a recipient.
    let target = workspace.resolve(&args.who).await.map_err(|failure| match failure {
        Failure::Refused(e) if e.code == ErrorCode::UnknownRecipient => {
            Failure::Refused(Error { code: ErrorCode::UnknownTarget, ..e })
        }
        other => other,
    })?;
    let key = key();
    let kicked = workspace
        .call(|room_id| KickMember {
            room_id,
            target_agent_id: target.agent_id.clone(),
            force: Some(args.force),
            reason: args.reason.clone(),
            idempotency_key: key.clone(),
        })
        .await?;
    Ok(workspace.output.answer(&kicked, |kicked, _| {
        let held = match (kicked.target_was_owner, kicked.target_was_reserved_for) {
            (true, _) => ", which held the stick",
            (_, true) => ", for which the stick was reserved",
            _ => "",
        };
        format!("kicked {} ({}){held}", names::quoted(&target.display_name), names::id(&kicked.kicked_agent_id))
    })?)
}
