//! `tt heartbeat`: renews the lease of the holder. Every other command of the holder does so too.

use tt_proto::ErrorCode;
use tt_proto::requests::Heartbeat;

use super::release::held;
use crate::Context;
use crate::error::CommandError;
use crate::session::{PathArg, Session};
use crate::text::render;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tt heartbeat")]
pub(crate) struct Args {
    #[command(flatten)]
    path: PathArg,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), CommandError> {
    // A hook runs after every tool call, mostly without the stick. That is not an error.
    let nothing_held = |e: &tt_proto::Error| {
        matches!(e.code, ErrorCode::RoomNotFound | ErrorCode::StaleLease | ErrorCode::TurnMismatch)
    };
    match renew(context, args) {
        Err(CommandError::Refused(e)) if context.hook && nothing_held(&e) => Ok(()),
        done => done,
    }
}

fn renew(context: &Context, args: Args) -> Result<(), CommandError> {
    let (mut session, state) = Session::find_state(context, args.path)?;
    let (lease, turn) = held(&session, state)?;
    let beat = session.call(|room_id| Heartbeat { room_id, lease_id: lease.clone(), expected_turn_id: turn })?;
    if context.hook {
        // The harness would read the answer as the response of a hook.
        return Ok(());
    }
    Ok(session.output.answer(&beat, |beat, _| {
        format!("turn {turn} is yours for {} more", render::span(beat.lease_expires_at.since(render::now())))
    })?)
}
