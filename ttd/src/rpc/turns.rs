//! `wait_for_turn`, `heartbeat`, `release_stick`, `pass_stick`, `takeover_stick`.

use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::Extensions;
use tt_proto::event::{Event, EventType};
use tt_proto::requests::{
    Heartbeat, HeartbeatAnswer, HeartbeatStatus, PassStick, ReleaseStick, Relinquished, RelinquishedStatus, TakenOver,
    TakeoverStick, Wait, WaitForTurn,
};
use tt_proto::turn::{TakeoverReason, WaitStatus};
use tt_proto::{Error, ErrorCode, LeaseId};
use tt_rules::{Command, Reply, WaitEnd, Waiting};

use super::register::{Module, register};
use super::wait_updates::WaitUpdates;
use super::{Call, Shared, guard, stopping, stopping_error};
use crate::background;
use crate::engine::Outcome;
use crate::views;

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<WaitForTurn, _>(module, wait_for_turn)?;
    register::<Heartbeat, _>(module, heartbeat)?;
    register::<ReleaseStick, _>(module, release_stick)?;
    register::<PassStick, _>(module, pass_stick)?;
    register::<TakeoverStick, _>(module, takeover_stick)
}

async fn wait_for_turn(shared: Arc<Shared>, extensions: Extensions, request: WaitForTurn) -> Result<Wait, Error> {
    let WaitForTurn { room_id, max_wait_ms, park, claim, include_events, joins } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let engine = &shared.engine;
    // The answer tells it which turn it has.
    shared.knows_its_turn(&call).await?;
    let context = shared.context(&call).await?;
    let agent = context.agent_id().clone();
    let waiting = match (park.unwrap_or(false), claim.unwrap_or(false)) {
        (true, true) => {
            return Err(Error::new(ErrorCode::InvalidInput, "a wait either parks or claims, not both"));
        }
        (true, false) => Waiting::Parked,
        (false, alone) => Waiting::Listening { alone },
    };
    let mut stop = shared.stop.subscribe();
    let joins = joins.unwrap_or(false);
    let with_events = include_events.unwrap_or(false) && !shared.is_subagents(&call);
    let mut updates = with_events.then(|| WaitUpdates::listen(&shared, &room_id, &agent, joins));
    // The place comes first: from then on the wait is ended here, also by its own command.
    let ended = match engine.waiters().process_at(&room_id, &agent) {
        Some(pid) => shared.looks.is_gone(pid).await.then_some(pid),
        None => None,
    };
    let mut place = engine.waiters().enter(&room_id, &agent, waiting, call.connection.pid, ended)?;
    // Noted with the command, so that nothing is noted of a room that the next command deletes.
    let waits = {
        let (engine, room_id, agent) = (engine.clone(), room_id.clone(), agent.clone());
        move |outcome: &Outcome<'_>| {
            let room = outcome.room;
            if room.owner.as_ref() != Some(&agent) {
                engine.presence().waited(&room_id, &agent, outcome.now.lease);
            }
            let given = room.owner.clone().filter(|owner| room.edits.by_guard && *owner != agent);
            (room.policy.wait_max, given.map(|holder| (holder, room.turn_id)))
        }
    };
    let (wait_max, given) = engine.run(&room_id, context.clone(), Command::Wait { waiting }, waits).await?;
    if let Some((holder, turn_id)) = given
        && let Some(cause) = guard::done_with_it(&shared, &holder)
    {
        background::give_back(engine, &holder, &[(room_id.clone(), turn_id)], cause).await?;
    }
    let patience = max_wait_ms.map_or(wait_max, |ms| wait_max.min(Duration::from_millis(ms)));
    let end = tokio::select! {
        biased;
        end = &mut place.ended => end.ok(),
        () = stopping(&mut stop) => return Err(stopping_error()),
        left = shared.conversation_left(&call) => return Err(left),
        // Nobody reads the answer any more, and the next wait of this member must find its place free.
        () = call.closed() => return Err(stopping_error()),
        // Before the time-out, so that a wait of no time looks at the inbox too.
        arrived = WaitUpdates::arrived(&mut updates, &shared), if updates.is_some() => { arrived?; None }
        () = tokio::time::sleep(patience) => None,
    };
    drop(place);
    // It may wait again. Nothing is kept of a room that was deleted, nor of a member that was removed or has its turn.
    if matches!(end, None | Some(WaitEnd::TakeoverAvailable { .. })) {
        engine.presence().waited(&room_id, &agent, engine.clock().now().lease);
    }
    let mut answer = match end {
        Some(end) => views::wait(Some(end), 0, engine.clock().now()),
        // A turn may have been granted just as the time ran out: the last word is the engine's.
        None => {
            let (noted, room, me) = (engine.clone(), room_id.clone(), agent.clone());
            let answer = move |outcome: &Outcome<'_>| {
                if outcome.room.owner.as_ref() == Some(&me) {
                    noted.presence().has_its_turn(&room, &me);
                }
                match outcome.reply {
                    Reply::Waiting(Some(end)) => views::wait(Some(end.clone()), outcome.room.turn_id, outcome.now),
                    _ => views::not_yet(outcome.room, &me, waiting, outcome.now.lease),
                }
            };
            engine.run(&room_id, context, Command::EndWait, answer).await?
        }
    };
    if answer.holder.is_some() {
        let turn_id = answer.turn_id;
        answer.since = engine.read(move |reader| reader.turn_started_at(&room_id, turn_id)).await?;
    }
    if let Some(updates) = updates {
        let brought = updates.hand_over(&shared, &call).await?;
        answer.events = Some(brought.events);
        answer.cursor_event_seq = Some(brought.cursor);
        answer.more = brought.more;
    }
    Ok(answer)
}

async fn heartbeat(shared: Arc<Shared>, extensions: Extensions, request: Heartbeat) -> Result<HeartbeatAnswer, Error> {
    let Heartbeat { room_id, lease_id, expected_turn_id } = request;
    let (call, room_id) = Call::for_room(&extensions, room_id)?;
    let answer = |outcome: &Outcome<'_>| {
        let lease_expires_at = match outcome.reply {
            Reply::Heartbeat { lease_expires_at } => *lease_expires_at,
            _ => outcome.now.lease,
        };
        let lease_expires_at = outcome.now.to_wall(lease_expires_at);
        HeartbeatAnswer { status: HeartbeatStatus::Ok, lease_expires_at }
    };
    let command = Command::Heartbeat { lease_id, expected_turn_id };
    shared.engine.run(&room_id, shared.context(&call).await?, command, answer).await
}

async fn release_stick(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ReleaseStick,
) -> Result<Relinquished, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let ReleaseStick { lease_id, expected_turn_id, handoff, .. } = request;
    let command = Command::Release { lease_id, expected_turn_id, handoff };
    let answer = |outcome: &Outcome<'_>| relinquished(RelinquishedStatus::Released, EventType::Release, outcome.events);
    shared.engine.run(&room_id, context, command, answer).await
}

async fn pass_stick(shared: Arc<Shared>, extensions: Extensions, request: PassStick) -> Result<Relinquished, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    let PassStick { lease_id, expected_turn_id, to_agent_id, handoff, .. } = request;
    let command = Command::Pass { lease_id, expected_turn_id, to: to_agent_id, handoff };
    let answer = |outcome: &Outcome<'_>| relinquished(RelinquishedStatus::Passed, EventType::Pass, outcome.events);
    shared.engine.run(&room_id, context, command, answer).await
}

async fn takeover_stick(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: TakeoverStick,
) -> Result<TakenOver, Error> {
    let (call, room_id) = Call::for_room(&extensions, request.room_id.clone())?;
    let context = shared.keyed_context(&call, &request, Some(&room_id)).await?;
    // The answer tells it which turn it has.
    shared.knows_its_turn(&call).await?;
    let TakeoverStick { expected_turn_id, reason, operator_override, .. } = request;
    let operator_override = operator_override.unwrap_or(false);
    let command = Command::TakeOver { expected_turn_id, reason, operator_override };
    let answer = |outcome: &Outcome<'_>| {
        let (turn, revoked_agent_id, reason) = match outcome.reply {
            Reply::TakenOver { turn, revoked, reason } => (Some(turn), revoked.clone(), *reason),
            _ => (None, None, TakeoverReason::OperatorOverride),
        };
        let lease_expires_at = turn.and_then(|turn| turn.lease_expires_at).unwrap_or(outcome.now.lease);
        let (handoff, from_agent_id) = turn.map_or((None, None), |turn| (turn.handoff.clone(), turn.from.clone()));
        TakenOver {
            status: WaitStatus::YourTurn,
            turn_id: outcome.room.turn_id,
            lease_id: outcome.room.lease_id.clone().unwrap_or_else(LeaseId::fresh),
            lease_expires_at: outcome.now.to_wall(lease_expires_at),
            revoked_agent_id,
            reason,
            handoff,
            from_agent_id,
        }
    };
    shared.engine.run(&room_id, context, command, answer).await
}

/// What became of a stick that was given away, from the event that records it.
fn relinquished(status: RelinquishedStatus, event_type: EventType, events: &[Arc<Event>]) -> Relinquished {
    let event = events.iter().find(|event| event.event_type == event_type);
    Relinquished {
        status,
        reserved_for: event.and_then(|event| event.to_agent_id.clone()),
        event_seq: event.map_or(0, |event| event.event_seq),
    }
}
