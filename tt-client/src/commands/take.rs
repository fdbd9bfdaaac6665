//! `tt take`: takes the stick over from a member that no longer responds.

use tt_proto::ErrorCode;
use tt_proto::requests::TakeoverStick;

use crate::Context;
use crate::error::CommandError;
use crate::session::{PathArg, Session, fresh_key};
use crate::text::render;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt take --reason \"codex crashed in the middle of the migration\"")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    /// Why, for the log
    #[arg(long, value_name = "T")]
    reason: String,
    /// Take it although its holder responds; recorded as a decision of a person
    #[arg(long)]
    operator: bool,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let (mut session, state) = Session::find_state(context, args.path)?;
    let (turn, key) = (state.room.turn_id, fresh_key());
    let is_person = session.client.welcome().identity.is_person();
    let taken = session.call(|room_id| TakeoverStick {
        room_id,
        expected_turn_id: turn,
        reason: args.reason.clone(),
        operator_override: Some(args.operator),
        idempotency_key: key.clone(),
    });
    let taken = taken.map_err(|failure| match failure {
        CommandError::Refused(e) if e.code == ErrorCode::TakeoverNotAvailable && is_person && !args.operator => {
            let hint =
                format!("{}; to take it anyway, by your own decision: tt take --operator --reason \"…\"", e.hint);
            CommandError::Refused(e.hint(hint))
        }
        other => other,
    })?;
    let names = session.names().unwrap_or_default();
    Ok(session.output.answer(&taken, |taken, style| {
        let from = taken.revoked_agent_id.as_ref().map_or_else(|| "nobody".to_owned(), |agent| names.get(agent));
        let mut text = format!(
            "{}, taken over from {from} ({})\nsee what it was doing: tt events\n",
            style.bold(&format!("your turn: {}", taken.turn_id)),
            taken.reason.as_str().replace('_', " ")
        );
        if let Some(handoff) = &taken.handoff {
            let author = taken.from_agent_id.as_ref().map(|agent| names.get(agent)).unwrap_or_default();
            text.push_str(&style.dim(&format!("handoff from {author}, which nobody had picked up\n")));
            text.push_str(&render::handoff(handoff, "  ", style));
        }
        text
    })?)
}
