//! `tt release` and `tt pass`: give the stick away, with a handoff.

use tt_proto::requests::{PassStick, ReleaseStick, Relinquished, RoomState};
use tt_proto::{Error, ErrorCode, LeaseId};

use crate::handoff::HandoffArgs;
use crate::workspace::{PathArg, Workspace, key};
use crate::{Context, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt release --status \"parser done\" --next-action \"review src/parse.rs\" \
                        --artifact src/parse.rs=review")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
    #[command(flatten)]
    handoff: HandoffArgs,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt pass codex --status \"parser done\" --next-action \"write the tests\"")]
pub(crate) struct PassArgs {
    /// The member: name, agent id, or the beginning of one
    who: String,
    #[command(flatten)]
    path: PathArg,
    #[command(flatten)]
    handoff: HandoffArgs,
}

pub(crate) async fn run(context: &Context, args: Args) -> Result<(), Failure> {
    let handoff = args.handoff.handoff()?;
    let (mut workspace, state) = Workspace::find_state(context, args.path).await?;
    let (lease, turn) = held(state)?;
    let key = key();
    let released = workspace
        .call(|room_id| ReleaseStick {
            room_id,
            lease_id: lease.clone(),
            expected_turn_id: turn,
            handoff: handoff.clone(),
            idempotency_key: key.clone(),
        })
        .await?;
    show(&mut workspace, &released, turn).await
}

pub(crate) async fn run_pass(context: &Context, args: PassArgs) -> Result<(), Failure> {
    let handoff = args.handoff.handoff()?;
    let (mut workspace, state) = Workspace::find_state(context, args.path).await?;
    let to = workspace.member(&args.who).await?;
    let (lease, turn) = held(state)?;
    let key = key();
    let passed = workspace
        .call(|room_id| PassStick {
            room_id,
            lease_id: lease.clone(),
            expected_turn_id: turn,
            to_agent_id: to.clone(),
            handoff: handoff.clone(),
            idempotency_key: key.clone(),
        })
        .await?;
    show(&mut workspace, &passed, turn).await
}

/// The caller's turn, as the daemon keeps it for the holder.
pub(crate) fn held(state: RoomState) -> Result<(LeaseId, i64), Failure> {
    let turn = state.room.turn_id;
    match state.room.lease_id {
        Some(lease) => Ok((lease, turn)),
        None => {
            let (message, hint) = match &state.room.owner {
                Some(holder) => (format!("you do not hold the stick; {holder} does"), "wait for your turn: tt wait"),
                None => ("you do not hold the stick; nobody does".into(), "take it first: tt try"),
            };
            let error = Error::new(ErrorCode::StaleLease, message)
                .hint(hint)
                .detail("turn_id", turn)
                .detail("owner", state.room.owner.map(|o| o.to_string()));
            Err(Failure::Refused(error))
        }
    }
}

async fn show(workspace: &mut Workspace, answer: &Relinquished, turn: i64) -> Result<(), Failure> {
    let names = workspace.names().await.unwrap_or_default();
    Ok(workspace.output.answer(answer, |answer, _| match &answer.reserved_for {
        Some(agent) => format!("turn {turn} is over; {} has the stick next", names.get(agent)),
        None => format!("turn {turn} is over; the handoff waits for whoever comes next"),
    })?)
}
