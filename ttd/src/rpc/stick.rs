//! `wait_for_turn`, `heartbeat`, `release_stick`, `pass_stick`, `takeover_stick`.

use std::sync::Arc;
use std::time::Duration;

use jsonrpsee::Extensions;
use tt_proto::event::{Event, EventType};
use tt_proto::requests::{
    Heartbeat, HeartbeatAnswer, HeartbeatStatus, PassStick, ReleaseStick, Relinquished, RelinquishedStatus, TakenOver,
    TakeoverStick, Wait, WaitForTurn,
};
use tt_proto::turn::WaitStatus;
use tt_proto::{Error, ErrorCode, LeaseId};

use super::news::News;
use super::register::{Module, register};
use super::{Call, Shared, leaving, told_to_stop};
use crate::rooms::for_people;
use crate::stick::{Room, Waiting, membership, takeover, turn};

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<WaitForTurn, _>(module, wait_for_turn)?;
    register::<Heartbeat, _>(module, heartbeat)?;
    register::<ReleaseStick, _>(module, release_stick)?;
    register::<PassStick, _>(module, pass_stick)?;
    register::<TakeoverStick, _>(module, takeover_stick)
}

async fn wait_for_turn(shared: Arc<Shared>, extensions: Extensions, request: WaitForTurn) -> Result<Wait, Error> {
    let WaitForTurn { room_id, max_wait_ms, park, claim, include_events } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let (rooms, hub) = (&shared.rooms, shared.rooms.hub());
    let by = shared.commander(&call, None)?;
    let agent = by.identity.agent_id.clone();
    let waiting = match (park.unwrap_or(false), claim.unwrap_or(false)) {
        (true, true) => {
            return Err(Error::new(ErrorCode::InvalidInput, "a wait either parks or claims, not both"));
        }
        (true, false) => Waiting::Parked,
        (false, alone) => Waiting::Listening { alone },
    };
    let mut stop = shared.stop.subscribe();
    let mut news = include_events.unwrap_or(false).then(|| News::of(&shared, &room_id, &agent));
    // The place comes first: from then on whatever happens in the room is told here, this wait's own claim included.
    let lives = |pid| shared.options.processes.started_at(pid).is_some();
    let mut place = hub.waiters.enter(&room_id, &agent, waiting, call.connection.pid, lives)?;
    let rule = {
        let agent = agent.clone();
        move |room: &mut Room, moment: &_, _: &_| Ok((room.policy.wait_max, turn::wait(room, &agent, waiting, moment)?))
    };
    let longest = rooms.command(&room_id, by.clone(), rule, |longest, _, _| longest).await?;
    hub.presence.waited(&room_id, &agent, rooms.clock().now());
    let patience = max_wait_ms.map_or(longest, |ms| longest.min(Duration::from_millis(ms)));
    let told = tokio::select! {
        biased;
        told = &mut place.told => told.ok(),
        () = told_to_stop(&mut stop) => return Err(leaving()),
        // Nobody listens any more: whoever waits next for this member must find its place free.
        () = call.hung_up() => return Err(leaving()),
        // A look at the inbox comes before the first sleep, so that a wait with no patience has it too.
        there = News::there(&mut news, &shared), if news.is_some() => { there?; None }
        () = tokio::time::sleep(patience) => None,
    };
    drop(place);
    hub.presence.waited(&room_id, &agent, rooms.clock().now());
    let mut answer = match told {
        Some(told) => told,
        // A grant may have been on its way when the patience ran out: whoever asks last asks the writer.
        None => {
            let clock = rooms.clock().clone();
            let answer = move |(), room: &Room, _: &_| {
                let standing = turn::standing(room, &agent, clock.now());
                for_people(standing.unwrap_or_else(|| Wait::ended(WaitStatus::NotYet, room.turn_id)), &clock)
            };
            rooms.command(&room_id, by, |_, _, _| Ok(((), None)), answer).await?
        }
    };
    if let Some(news) = news {
        let (events, cursor) = news.hand_over(&shared, &call).await?;
        answer.events = Some(events);
        answer.cursor_event_seq = Some(cursor);
    }
    Ok(answer)
}

async fn heartbeat(shared: Arc<Shared>, extensions: Extensions, request: Heartbeat) -> Result<HeartbeatAnswer, Error> {
    let Heartbeat { room_id, lease_id, expected_turn_id } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let rooms = &shared.rooms;
    let by = shared.commander(&call, None)?;
    let identity = by.identity.clone();
    let clock = rooms.clock().clone();
    let beat = move |room: &Room| {
        turn::check_authority(room, &identity.agent_id, &lease_id, expected_turn_id)?;
        let end = room.lease_end().unwrap_or_else(|| clock.now());
        Ok(HeartbeatAnswer { status: HeartbeatStatus::Ok, lease_expires_at: clock.to_wall(end) })
    };
    let (caller, look) = (by.identity.clone(), beat.clone());
    let look = rooms.look(
        &room_id,
        move |room, _| {
            if membership::arrives(room, &caller) { Ok(None) } else { look(room).map(Some) }
        },
    );
    match look.await? {
        Some(beat) => Ok(beat),
        // Only one that brings its sender back has something to write.
        None => {
            let rule = move |room: &mut Room, _: &_, _: &_| Ok((beat(room)?, None));
            rooms.command(&room_id, by, rule, |beat, _, _| beat).await
        }
    }
}

async fn release_stick(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: ReleaseStick,
) -> Result<Relinquished, Error> {
    let ReleaseStick { room_id, lease_id, expected_turn_id, handoff, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let agent = by.identity.agent_id.clone();
    let rule = move |room: &mut Room, moment: &_, _: &_| {
        Ok(((), turn::release(room, &agent, &lease_id, expected_turn_id, &handoff, moment)?))
    };
    let answer =
        |(), _: &Room, events: &[Event]| relinquished(RelinquishedStatus::Released, EventType::Release, events);
    shared.rooms.command(&room_id, by, rule, answer).await
}

async fn pass_stick(shared: Arc<Shared>, extensions: Extensions, request: PassStick) -> Result<Relinquished, Error> {
    let PassStick { room_id, lease_id, expected_turn_id, to_agent_id, handoff, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let agent = by.identity.agent_id.clone();
    let rule = move |room: &mut Room, moment: &_, _: &_| {
        Ok(((), turn::pass(room, &agent, &lease_id, expected_turn_id, &to_agent_id, &handoff, moment)?))
    };
    let answer = |(), _: &Room, events: &[Event]| relinquished(RelinquishedStatus::Passed, EventType::Pass, events);
    shared.rooms.command(&room_id, by, rule, answer).await
}

async fn takeover_stick(
    shared: Arc<Shared>,
    extensions: Extensions,
    request: TakeoverStick,
) -> Result<TakenOver, Error> {
    let TakeoverStick { room_id, expected_turn_id, reason, operator_override, idempotency_key } = request;
    let (call, room_id) = Call::about(&extensions, room_id)?;
    let by = shared.commander(&call, idempotency_key)?;
    let agent = by.identity.agent_id.clone();
    let operator = operator_override.unwrap_or(false);
    let clock = shared.rooms.clock().clone();
    let rule = move |room: &mut Room, moment: &_, _: &_| {
        Ok((takeover::take(room, &agent, expected_turn_id, &reason, operator, moment)?, None))
    };
    let answer = move |taken: takeover::Takeover, room: &Room, _: &_| {
        let mine = turn::your_turn(room, tt_proto::turn::ClaimReason::AlreadyOwner);
        TakenOver {
            status: WaitStatus::YourTurn,
            turn_id: room.turn_id,
            lease_id: mine.lease_id.unwrap_or_else(LeaseId::fresh),
            lease_expires_at: clock.to_wall(mine.lease_expires_at.unwrap_or_else(|| clock.now())),
            revoked_agent_id: taken.revoked,
            reason: taken.reason,
        }
    };
    shared.rooms.command(&room_id, by, rule, answer).await
}

/// What became of a stick that was given away, read off the event that says so.
fn relinquished(status: RelinquishedStatus, event_type: EventType, events: &[Event]) -> Relinquished {
    let event = events.iter().find(|event| event.event_type == event_type);
    Relinquished {
        status,
        reserved_for: event.and_then(|event| event.to_agent_id.clone()),
        event_seq: event.map_or(0, |event| event.event_seq),
    }
}
