//! `tt kick`: removes a member.

use tt_proto::requests::KickMember;
use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::error::CommandError;
use crate::session::{PathArg, Session, fresh_key};
use crate::text::names;

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
    /// Even if it still responds
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let mut session = Session::find(context, args.path)?;
    // A kick has a target, not a recipient.
    let target = session.resolve(&args.who).map_err(|failure| match failure {
        CommandError::Refused(e) if e.code == ErrorCode::UnknownRecipient => {
            CommandError::Refused(Error { code: ErrorCode::UnknownTarget, ..e })
        }
        other => other,
    })?;
    let key = fresh_key();
    let kicked = session.call(|room_id| KickMember {
        room_id,
        target_agent_id: target.agent_id.clone(),
        force: Some(args.force),
        reason: args.reason.clone(),
        idempotency_key: key.clone(),
    })?;
    Ok(session.output.answer(&kicked, |kicked, _| {
        let held = match (kicked.target_was_owner, kicked.target_was_reserved_for) {
            (true, _) => ", which held the stick",
            (_, true) => ", for which the stick was reserved",
            _ => "",
        };
        format!("kicked {} ({}){held}", names::quoted(&target.display_name), names::id(&kicked.kicked_agent_id))
    })?)
}
