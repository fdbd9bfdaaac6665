//! `tt heartbeat`: say that the holder is still at work. Any other command says so too.

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
    // After every tool call there is, most of them without the stick: that is no failure of a hook's.
    let nothing_held = |e: &tt_proto::Error| {
        matches!(e.code, ErrorCode::RoomNotFound | ErrorCode::StaleLease | ErrorCode::TurnMismatch)
    };
    match beat(context, args) {
        Err(CommandError::Refused(e)) if context.hook && nothing_held(&e) => Ok(()),
        done => done,
    }
}

fn beat(context: &Context, args: Args) -> Result<(), CommandError> {
    let (mut session, state) = Session::find_state(context, args.path)?;
    let (lease, turn) = held(state)?;
    let beat = session.call(|room_id| Heartbeat { room_id, lease_id: lease.clone(), expected_turn_id: turn })?;
    if context.hook {
        // The harness would read our answer as its own kind of JSON.
        return Ok(());
    }
    Ok(session.output.answer(&beat, |beat, _| {
        format!("turn {turn} is yours for {} more", render::span(beat.lease_expires_at.since(render::now())))
    })?)
}
