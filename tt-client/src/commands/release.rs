//! `tt release` and `tt pass`: end the turn, with a handoff.

use tt_proto::requests::{Heartbeat, PassStick, ReleaseStick, Relinquished, RoomState};
use tt_proto::{Error, ErrorCode, LeaseId};

use crate::Context;
use crate::editor::{self, Draft, KEEP_ALIVE_INTERVAL};
use crate::error::CommandError;
use crate::handoff::HandoffArgs;
use crate::session::{PathArg, Session, fresh_key};
use crate::text::names::name;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a handoff, a person is asked for it in $EDITOR.\n\nExample:\n  tt release --status \"parser done\" --next-action \"review src/parse.rs\" \
                        --artifact src/parse.rs=review"
)]
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

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    // A person who says nothing is asked, in an editor and with the stick in hand.
    let ask = args.handoff.is_empty() && editor::is_possible();
    let given = if ask { None } else { Some(args.handoff.handoff()?) };
    let (mut session, state) = Session::find_state(context, args.path)?;
    let (lease, turn) = held(&session, state)?;
    let (handoff, draft) = match given {
        Some(handoff) => (handoff, None),
        None => {
            let beat = |room_id| Heartbeat { room_id, lease_id: lease.clone(), expected_turn_id: turn };
            // If it fails, the release says why.
            let keep_alive = || drop(session.client.call(&beat(session.room_id.clone())));
            let draft = Draft::ask(&context.settings.env, KEEP_ALIVE_INTERVAL, keep_alive)?;
            (draft.handoff.clone(), Some(draft))
        }
    };
    let key = fresh_key();
    let released = session.call(|room_id| ReleaseStick {
        room_id,
        lease_id: lease.clone(),
        expected_turn_id: turn,
        handoff: handoff.clone(),
        idempotency_key: key.clone(),
    });
    let released = match draft {
        Some(draft) => draft.finish(released)?,
        None => released?,
    };
    show(&mut session, &released, turn)
}

pub(crate) fn run_pass(context: &Context, args: PassArgs) -> Result<(), CommandError> {
    let handoff = args.handoff.handoff()?;
    let (mut session, state) = Session::find_state(context, args.path)?;
    let to = session.member(&args.who)?;
    let (lease, turn) = held(&session, state)?;
    let key = fresh_key();
    let passed = session.call(|room_id| PassStick {
        room_id,
        lease_id: lease.clone(),
        expected_turn_id: turn,
        to_agent_id: to.clone(),
        handoff: handoff.clone(),
        idempotency_key: key.clone(),
    })?;
    show(&mut session, &passed, turn)
}

/// The lease and number of the caller's turn. Fails if the caller does not hold the stick.
pub(crate) fn held(session: &Session, state: RoomState) -> Result<(LeaseId, i64), CommandError> {
    let RoomState { room, members, .. } = state;
    let turn = room.turn_id;
    if let Some(lease) = room.lease_id {
        return Ok((lease, turn));
    }
    let wait = "wait for your turn: tt wait";
    let (who, hint) = match (&room.owner, &room.reserved_for) {
        (Some(holder), _) => (format!("{} does", name(holder, &members)), wait),
        (None, Some(agent)) if *agent == session.client.welcome().identity.agent_id => {
            ("it is reserved for you".to_owned(), "take it first: tt try")
        }
        (None, Some(agent)) => (format!("it is reserved for {}", name(agent, &members)), wait),
        (None, None) => ("nobody does".to_owned(), "take it first: tt try"),
    };
    let error = Error::new(ErrorCode::StaleLease, format!("you do not hold the stick; {who}"))
        .hint(hint)
        .detail("turn_id", turn)
        .detail("owner", room.owner.map(|owner| owner.to_string()))
        .detail("reserved_for", room.reserved_for.map(|agent| agent.to_string()));
    Err(CommandError::Refused(error))
}

fn show(session: &mut Session, answer: &Relinquished, turn: i64) -> Result<(), CommandError> {
    let names = session.names().unwrap_or_default();
    Ok(session.output.answer(answer, |answer, _| match &answer.reserved_for {
        Some(agent) => format!("turn {turn} is over; {} has the stick next", names.get(agent)),
        None => format!("turn {turn} is over; the handoff waits for the next holder"),
    })?)
}
