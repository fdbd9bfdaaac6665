//! `tt release` and `tt pass`: end the turn, with a handoff.

use tt_proto::handoff::RawJson;
use tt_proto::requests::{Heartbeat, Method, PassStick, ReleaseStick, Relinquished, RoomState};
use tt_proto::{Error, ErrorCode, LeaseId, RoomId};

use crate::Context;
use crate::editor::{Draft, KEEP_ALIVE_INTERVAL};
use crate::error::CommandError;
use crate::handoff::{Given, HandoffArgs};
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
#[command(
    after_help = "Without a handoff, a person is asked for it in $EDITOR.\n\nExample:\n  tt pass codex --status \"parser done\" --next-action \"write the tests\""
)]
pub(crate) struct PassArgs {
    /// The member: name, agent id, or the beginning of one
    who: String,
    #[command(flatten)]
    path: PathArg,
    #[command(flatten)]
    handoff: HandoffArgs,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    let (mut session, state) = Session::find_state(context, args.path)?;
    let given = args.handoff.given(&session.client.welcome().identity)?;
    let turn = held(&session, state)?;
    relinquish(context, &mut session, given, turn, |room_id, (lease_id, turn), handoff, idempotency_key| ReleaseStick {
        room_id,
        lease_id,
        expected_turn_id: turn,
        handoff,
        idempotency_key,
    })
}

pub(crate) fn run_pass(context: &Context, args: PassArgs) -> Result<(), CommandError> {
    let (mut session, state) = Session::find_state(context, args.path)?;
    let given = args.handoff.given(&session.client.welcome().identity)?;
    let to = session.member(&args.who)?;
    let turn = held(&session, state)?;
    relinquish(context, &mut session, given, turn, |room_id, (lease_id, turn), handoff, idempotency_key| PassStick {
        room_id,
        lease_id,
        expected_turn_id: turn,
        to_agent_id: to.clone(),
        handoff,
        idempotency_key,
    })
}

/// Ends the turn. A person who said nothing of the work is asked first, in an editor and with the stick in hand.
fn relinquish<M: Method<Answer = Relinquished>>(
    context: &Context,
    session: &mut Session,
    given: Given,
    turn: (LeaseId, i64),
    request: impl Fn(RoomId, (LeaseId, i64), RawJson, Option<String>) -> M,
) -> Result<(), CommandError> {
    let (handoff, draft) = match given {
        Given::Whole(handoff) => (handoff, None),
        Given::Part(given) => {
            let (lease_id, turn_id) = turn.clone();
            let beat = |room_id| Heartbeat { room_id, lease_id: lease_id.clone(), expected_turn_id: turn_id };
            // If it fails, the release says why.
            let keep_alive = || drop(session.client.call(&beat(session.room_id.clone())));
            let draft = Draft::ask(&context.settings.env, &given, KEEP_ALIVE_INTERVAL, keep_alive)?;
            (draft.handoff.clone(), Some(draft))
        }
    };
    let key = fresh_key();
    let answer = session.call(|room_id| request(room_id, turn.clone(), handoff.clone(), key.clone()));
    let answer = match draft {
        Some(draft) => draft.finish(answer)?,
        None => answer?,
    };
    show(session, &answer, turn.1)
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
