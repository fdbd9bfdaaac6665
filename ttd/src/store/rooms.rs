//! Rooms and members as rows: loaded whole for a rule, and written back where the rule changed them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tt_proto::event::Event;
use tt_proto::handoff::RawJson;
use tt_proto::hello::Anchor;
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::room::{Liveness, MemberStatus, RoomSummary, StickState};
use tt_proto::{AgentId, Error, ErrorCode, RoomId, WallTime};

use super::events;
use super::query_failed;
use crate::stick::{HandoffAt, HeldHandoff, Member, Room, Waiting};

/// What is known of members but not stored: it changes too often, or only while the daemon runs.
pub trait Live: Send + Sync {
    fn waiting(&self, room_id: &RoomId, agent_id: &AgentId) -> Waiting;
    /// The latest activity since the daemon started.
    fn last_seen(&self, agent_id: &AgentId) -> Option<WallTime>;
    fn last_wait(&self, room_id: &RoomId, agent_id: &AgentId) -> Option<WallTime>;
    fn liveness(&self, anchor: &Anchor) -> Liveness;
    /// How much later than stored a member may really have been seen.
    fn doubt(&self) -> std::time::Duration;
    /// When this daemon began: an earlier one saw nobody later than that.
    fn began(&self) -> WallTime;
    fn policy(&self) -> &Policy;
}

pub fn not_found(room_id: &RoomId) -> Error {
    Error::new(ErrorCode::RoomNotFound, "there is no such room").detail("room_id", room_id.as_str())
}

/// Brings what is not stored up to this moment.
pub fn enliven(room: &mut Room, live: &dyn Live) {
    for member in &mut room.members {
        let waiting = live.waiting(&room.room_id, &member.agent_id);
        let liveness = member.anchor.as_ref().map_or(Liveness::Unknown, |anchor| live.liveness(anchor));
        let seen = live.last_seen(&member.agent_id).map_or(member.last_seen_at, |at| at.max(member.last_seen_at));
        let waited = live.last_wait(&room.room_id, &member.agent_id).or(member.last_wait_at);
        let new = (waiting, liveness, seen, waited);
        if new != (member.waiting, member.liveness, member.last_seen_at, member.last_wait_at) {
            let member = Arc::make_mut(member);
            (member.waiting, member.liveness, member.last_seen_at, member.last_wait_at) = new;
        }
    }
}

/// Loads a room with its members.
pub fn load(connection: &Connection, room_id: &RoomId, live: &dyn Live) -> Result<Room, Error> {
    let mut room = connection
        .prepare_cached(
            "SELECT room_id, canonical_path, state, turn_id, owner, lease_id, lease_expires_at, reserved_for, claim_expires_at,
               reservation_expired, released_by, released_at, sequence_index, policy_json, pending_handoff_event_seq,
               current_handoff_event_seq
             FROM path_rooms WHERE room_id = ?1",
        )
        .and_then(|mut statement| statement.query_row([room_id.as_str()], |row| room_row(row, live.policy())).optional())
        .map_err(query_failed)?
        .ok_or_else(|| not_found(room_id))?;
    let (pending, current) = room.1;
    room.0.pending_handoff = handoff(connection, pending)?;
    room.0.current_handoff = handoff(connection, current)?;
    let mut statement = connection
        .prepare_cached(
            "SELECT agent_id, ordinal, status, display_name, harness, session_id, found_by, host_id, pid, process_started_at,
               joined_at, last_seen_at, last_wait_at, last_held_turn
             FROM room_members WHERE room_id = ?1 ORDER BY ordinal",
        )
        .map_err(query_failed)?;
    let members =
        statement.query_map([room_id.as_str()], |row| member_row(row, live).map(Arc::new)).map_err(query_failed)?;
    room.0.members = members.collect::<Result<_, _>>().map_err(query_failed)?;
    enliven(&mut room.0, live);
    Ok(room.0)
}

type HandoffSeqs = (Option<i64>, Option<i64>);

fn room_row(row: &Row<'_>, policy: &Policy) -> rusqlite::Result<(Room, HandoffSeqs)> {
    let room = Room {
        room_id: row.get::<_, String>(0)?.into(),
        canonical_path: row.get(1)?,
        state: StickState::parse(&row.get::<_, String>(2)?).unwrap_or(StickState::Closed),
        turn_id: row.get(3)?,
        owner: agent(row, 4)?,
        lease_id: row.get::<_, Option<String>>(5)?.map(Into::into),
        lease_expires_at: time(row, 6)?,
        reserved_for: agent(row, 7)?,
        claim_expires_at: time(row, 8)?,
        reservation_expired: row.get(9)?,
        pending_handoff: None,
        current_handoff: None,
        released_by: agent(row, 10)?,
        released_at: time(row, 11)?,
        sequence_index: row.get(12)?,
        members: Vec::new(),
        policy: overrides(row.get(13)?).over(policy),
        events: Vec::new(),
        deleted: false,
    };
    Ok((room, (row.get(14)?, row.get(15)?)))
}

fn member_row(row: &Row<'_>, live: &dyn Live) -> rusqlite::Result<Member> {
    let agent_id = AgentId::trusted(row.get::<_, String>(0)?);
    let (host, pid, started): (Option<String>, Option<u32>, Option<String>) = (row.get(7)?, row.get(8)?, row.get(9)?);
    let anchor = pid.map(|pid| Anchor {
        host_id: host.unwrap_or_default(),
        pid,
        process_started_at: started.unwrap_or_default(),
    });
    let stored_seen = time(row, 11)?.unwrap_or(WallTime::from_millis(0));
    let name: Option<String> = row.get(3)?;
    Ok(Member {
        ordinal: row.get(1)?,
        status: MemberStatus::parse(&row.get::<_, String>(2)?),
        display_name: name.unwrap_or_else(|| agent_id.as_str().split(':').next().unwrap_or_default().to_owned()),
        harness: row.get(4)?,
        session_id: row.get(5)?,
        found_by: row.get(6)?,
        liveness: Liveness::Unknown,
        anchor,
        joined_at: time(row, 10)?.unwrap_or(WallTime::from_millis(0)),
        // What was not written behind when the daemon was killed counts in the member's favour.
        last_seen_at: (stored_seen + live.doubt()).min(live.began()).max(stored_seen),
        last_wait_at: time(row, 12)?,
        last_held_turn: row.get(13)?,
        waiting: Waiting::No,
        agent_id,
    })
}

fn handoff(connection: &Connection, event_seq: Option<i64>) -> Result<Option<HeldHandoff>, Error> {
    let Some(event_seq) = event_seq else { return Ok(None) };
    let event = events::get(connection, event_seq)?;
    Ok(event.and_then(|event| {
        Some(HeldHandoff {
            at: HandoffAt::Stored(event_seq),
            from: event.from_agent_id?,
            passed: event.event_type == tt_proto::event::EventType::Pass,
            handoff: event.handoff?,
        })
    }))
}

fn agent(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<AgentId>> {
    Ok(row.get::<_, Option<String>>(column)?.map(AgentId::trusted))
}

pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<WallTime>> {
    Ok(row.get::<_, Option<String>>(column)?.and_then(|text| WallTime::parse(&text)))
}

/// Writes what a rule changed: its events, the room, the members. Times of presence alone are not worth a write.
pub fn save(connection: &Connection, before: &Room, after: &Room, wall: WallTime) -> Result<Vec<Event>, Error> {
    if after.deleted {
        delete(connection, &after.room_id)?;
        return Ok(Vec::new());
    }
    let mut appended = Vec::with_capacity(after.events.len());
    for draft in &after.events {
        appended.push(events::append(connection, &after.room_id, draft, wall)?);
    }
    save_room(connection, before, after, &appended, wall)?;
    for (index, member) in after.members.iter().enumerate() {
        // Members only ever come, at the end; and mostly nobody changed.
        let known = before.members.get(index);
        if known.is_some_and(|known| Arc::ptr_eq(known, member)) {
            continue;
        }
        if known.is_none_or(|known| worth_writing(known, member)) {
            // A time that was only assumed in the member's favour must not be written down as if it were known.
            let seen = known.is_none_or(|known| known.last_seen_at != member.last_seen_at);
            save_member(connection, &after.room_id, member, seen).map_err(query_failed)?;
        }
    }
    Ok(appended)
}

fn worth_writing(before: &Member, after: &Member) -> bool {
    let lasting = |m: &Member| Member {
        last_seen_at: WallTime::from_millis(0),
        last_wait_at: None,
        waiting: Waiting::No,
        liveness: Liveness::Unknown,
        ..m.clone()
    };
    lasting(before) != lasting(after)
}

/// Whether the room's own row stays as it is. Named field by field, so that a new one has to be decided on.
fn same_row(before: &Room, after: &Room) -> bool {
    let Room {
        room_id,
        canonical_path,
        state,
        turn_id,
        owner,
        lease_id,
        lease_expires_at,
        reserved_for,
        claim_expires_at,
        reservation_expired,
        pending_handoff,
        current_handoff,
        released_by,
        released_at,
        sequence_index,
        members: _,
        policy,
        events: _,
        deleted: _,
    } = after;
    before.turn_id == *turn_id
        && before.state == *state
        && before.room_id == *room_id
        && before.canonical_path == *canonical_path
        && before.owner == *owner
        && before.lease_id == *lease_id
        && before.lease_expires_at == *lease_expires_at
        && before.reserved_for == *reserved_for
        && before.claim_expires_at == *claim_expires_at
        && before.reservation_expired == *reservation_expired
        && before.pending_handoff == *pending_handoff
        && before.current_handoff == *current_handoff
        && before.released_by == *released_by
        && before.released_at == *released_at
        && before.sequence_index == *sequence_index
        && before.policy == *policy
}

fn save_room(
    connection: &Connection,
    before: &Room,
    after: &Room,
    appended: &[Event],
    wall: WallTime,
) -> Result<(), Error> {
    if same_row(before, after) {
        return Ok(());
    }
    let seq = |held: &Option<HeldHandoff>| {
        held.as_ref().map(|held| match held.at {
            HandoffAt::Stored(seq) => seq,
            HandoffAt::Draft(index) => appended[index].event_seq,
        })
    };
    let text = |at: Option<WallTime>| at.map(|at| at.to_string());
    let name = |agent: &Option<AgentId>| agent.as_ref().map(|a| a.as_str().to_owned());
    let changed = connection
        .prepare_cached(
            "UPDATE path_rooms SET state = ?3, turn_id = ?4, owner = ?5, lease_id = ?6, lease_expires_at = ?7, reserved_for = ?8,
               claim_expires_at = ?9, reservation_expired = ?10, released_by = ?11, released_at = ?12, sequence_index = ?13,
               pending_handoff_event_seq = ?14, current_handoff_event_seq = ?15, updated_at = ?16
             WHERE room_id = ?1 AND turn_id = ?2 AND lease_id IS ?17",
        )
        .and_then(|mut statement| {
            statement.execute(params![
                after.room_id.as_str(),
                before.turn_id,
                after.state.as_str(),
                after.turn_id,
                name(&after.owner),
                after.lease_id.as_ref().map(|l| l.as_str()),
                text(after.lease_expires_at),
                name(&after.reserved_for),
                text(after.claim_expires_at),
                after.reservation_expired,
                name(&after.released_by),
                text(after.released_at),
                after.sequence_index,
                seq(&after.pending_handoff),
                seq(&after.current_handoff),
                wall.to_string(),
                before.lease_id.as_ref().map(|l| l.as_str()),
            ])
        })
        .map_err(query_failed)?;
    if changed != 1 {
        return Err(Error::new(ErrorCode::StorageUnavailable, "the room was changed by another program meanwhile")
            .hint("try again"));
    }
    Ok(())
}

fn save_member(connection: &Connection, room_id: &RoomId, member: &Member, seen: bool) -> rusqlite::Result<()> {
    let anchor = member.anchor.as_ref();
    connection
        .prepare_cached(
            "INSERT INTO room_members (room_id, agent_id, ordinal, status, display_name, harness, session_id, found_by, host_id,
               pid, process_started_at, joined_at, last_seen_at, last_wait_at, last_held_turn)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
             ON CONFLICT (room_id, agent_id) DO UPDATE SET ordinal = ?3, status = ?4, display_name = ?5, harness = ?6,
               session_id = ?7, found_by = ?8, host_id = ?9, pid = ?10, process_started_at = ?11, joined_at = ?12,
               last_seen_at = iif(?16, ?13, last_seen_at), last_wait_at = ?14, last_held_turn = ?15",
        )?
        .execute(params![
            room_id.as_str(),
            member.agent_id.as_str(),
            member.ordinal,
            member.status.as_str(),
            member.display_name,
            member.harness,
            member.session_id,
            member.found_by,
            anchor.map(|a| a.host_id.as_str()),
            anchor.map(|a| a.pid),
            anchor.map(|a| a.process_started_at.as_str()),
            member.joined_at.to_string(),
            member.last_seen_at.to_string(),
            member.last_wait_at.map(|at| at.to_string()),
            member.last_held_turn,
            seen,
        ])?;
    Ok(())
}

/// The room at exactly this path.
pub fn at_path(connection: &Connection, path: &Path) -> Result<Option<RoomId>, Error> {
    let Some(path) = path.to_str() else { return Ok(None) };
    connection
        .prepare_cached("SELECT room_id FROM path_rooms WHERE canonical_path = ?1")
        .and_then(|mut s| s.query_row([path], |row| row.get::<_, String>(0)).optional())
        .map(|id| id.map(Into::into))
        .map_err(query_failed)
}

/// The first of these paths, deepest first, that has a room.
pub fn deepest<'a>(connection: &Connection, paths: impl Iterator<Item = &'a Path>) -> Result<Option<RoomId>, Error> {
    // One look at the database for all of them.
    let looking = connection.unchecked_transaction().map_err(query_failed)?;
    for path in paths {
        if let Some(room_id) = at_path(&looking, path)? {
            return Ok(Some(room_id));
        }
    }
    Ok(None)
}

/// Every room by its path.
pub fn paths(connection: &Connection) -> Result<Vec<(PathBuf, RoomId)>, Error> {
    let mut statement = connection.prepare("SELECT canonical_path, room_id FROM path_rooms").map_err(query_failed)?;
    let room = |row: &Row<'_>| Ok((row.get::<_, String>(0)?.into(), row.get::<_, String>(1)?.into()));
    statement.query_map([], room).and_then(Iterator::collect).map_err(query_failed)
}

pub fn exists(connection: &Connection, room_id: &RoomId) -> Result<bool, Error> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM path_rooms WHERE room_id = ?1)")
        .and_then(|mut s| s.query_row([room_id.as_str()], |row| row.get(0)))
        .map_err(query_failed)
}

/// A new, idle room.
pub fn create(connection: &Connection, path: &str, wall: WallTime) -> Result<RoomId, Error> {
    let room_id = RoomId::fresh();
    connection
        .execute(
            "INSERT INTO path_rooms (room_id, canonical_path, state, updated_at) VALUES (?1, ?2, 'idle', ?3)",
            params![room_id.as_str(), path, wall.to_string()],
        )
        .map_err(query_failed)?;
    Ok(room_id)
}

/// Takes a room away with all that belongs to it, whether or not the schema it came with cascades.
pub fn delete(connection: &Connection, room_id: &RoomId) -> Result<(), Error> {
    // A delivery is found by its event; there may be a great many of other rooms.
    connection
        .execute(
            "DELETE FROM deliveries WHERE event_seq IN (SELECT event_seq FROM room_events WHERE room_id = ?1)",
            [room_id.as_str()],
        )
        .map_err(query_failed)?;
    for table in ["inbox", "notes", "room_events", "room_members", "path_rooms"] {
        connection
            .execute(&format!("DELETE FROM {table} WHERE room_id = ?1"), [room_id.as_str()])
            .map_err(query_failed)?;
    }
    Ok(())
}

/// Refuses someone who is no member of the room, or no longer one. A member that only counts as gone still is.
pub fn not_removed(connection: &Connection, room_id: &RoomId, agent: &AgentId) -> Result<(), Error> {
    let status: Option<String> = connection
        .prepare_cached("SELECT status FROM room_members WHERE room_id = ?1 AND agent_id = ?2")
        .and_then(|mut s| s.query_row([room_id.as_str(), agent.as_str()], |row| row.get(0)).optional())
        .map_err(query_failed)?;
    match status.as_deref().map(MemberStatus::parse) {
        Some(MemberStatus::Active | MemberStatus::Gone) => Ok(()),
        _ if !exists(connection, room_id)? => Err(not_found(room_id)),
        _ => Err(Error::new(ErrorCode::UnknownMember, format!("{agent} is no longer a member of this room"))),
    }
}

/// All rooms, or only this one.
pub fn list(connection: &Connection, only: Option<&RoomId>) -> Result<Vec<RoomSummary>, Error> {
    let which = if only.is_some() { "WHERE room_id = ?1" } else { "WHERE ?1 IS NULL" };
    let mut statement = connection
        .prepare_cached(&format!(
            "SELECT room_id, canonical_path, state, owner, reserved_for, turn_id, {TOUCHED_AT},
               (SELECT count(*) FROM room_members m WHERE m.room_id = r.room_id AND m.status = 'active'),
               (SELECT display_name FROM room_members m WHERE m.room_id = r.room_id AND m.agent_id = coalesce(owner, reserved_for)
                AND NOT EXISTS (SELECT 1 FROM room_members o WHERE o.room_id = m.room_id AND o.agent_id <> m.agent_id
                                AND (o.agent_id = m.display_name COLLATE NOCASE
                                     OR o.status = 'active' AND o.display_name = m.display_name COLLATE NOCASE)))
             FROM path_rooms r {which} ORDER BY canonical_path"
        ))
        .map_err(query_failed)?;
    let summary = |row: &Row<'_>| {
        Ok(RoomSummary {
            room_id: row.get::<_, String>(0)?.into(),
            canonical_path: row.get(1)?,
            state: StickState::parse(&row.get::<_, String>(2)?).unwrap_or(StickState::Closed),
            owner: agent(row, 3)?,
            reserved_for: agent(row, 4)?,
            turn_id: row.get(5)?,
            members: row.get(7)?,
            display_name: row.get(8)?,
            updated_at: time(row, 6)?.unwrap_or(WallTime::from_millis(0)),
        })
    };
    statement.query_map([only.map(RoomId::as_str)], summary).and_then(Iterator::collect).map_err(query_failed)
}

/// When something last happened in a room `r`. Its own row is written only when that changes, which a message does not.
const TOUCHED_AT: &str = "max(updated_at, coalesce((SELECT created_at FROM room_events e WHERE e.room_id = r.room_id
                            ORDER BY event_seq DESC LIMIT 1), ''))";

pub fn updated_at(connection: &Connection, room_id: &RoomId) -> Result<WallTime, Error> {
    let at = |row: &Row<'_>| time(row, 0);
    let at = connection
        .prepare_cached(&format!("SELECT {TOUCHED_AT} FROM path_rooms r WHERE room_id = ?1"))
        .and_then(|mut statement| statement.query_row([room_id.as_str()], at));
    Ok(at.map_err(query_failed)?.unwrap_or(WallTime::from_millis(0)))
}

/// The rooms that have an active member, whose process may have ended and whose time may run out.
pub fn inhabited(connection: &Connection) -> Result<Vec<RoomId>, Error> {
    let mut statement = connection
        .prepare("SELECT DISTINCT room_id FROM room_members WHERE status = 'active'")
        .map_err(query_failed)?;
    let id = |row: &Row<'_>| row.get::<_, String>(0).map(RoomId::from);
    statement.query_map([], id).and_then(Iterator::collect).map_err(query_failed)
}

/// The rooms in which a process is a member. One that counts as gone by its silence may still hold the stick.
pub fn of_process(connection: &Connection, anchor: &Anchor) -> Result<Vec<RoomId>, Error> {
    let mut statement = connection
        .prepare_cached(
            "SELECT DISTINCT room_id FROM room_members
             WHERE status IN ('active', 'gone') AND pid = ?1 AND process_started_at IS ?2",
        )
        .map_err(query_failed)?;
    let id = |row: &Row<'_>| row.get::<_, String>(0).map(RoomId::from);
    let started = Some(anchor.process_started_at.as_str()).filter(|s| !s.is_empty());
    statement.query_map(params![anchor.pid, started], id).and_then(Iterator::collect).map_err(query_failed)
}

/// The rooms that hold the stick or a reservation: what keeps a daemon from leaving, and what has deadlines.
pub fn engaged(connection: &Connection) -> Result<Vec<RoomId>, Error> {
    let mut statement = connection
        .prepare("SELECT room_id FROM path_rooms WHERE state IN ('owned', 'reserved')")
        .map_err(query_failed)?;
    statement
        .query_map([], |row| row.get::<_, String>(0).map(RoomId::from))
        .and_then(Iterator::collect)
        .map_err(query_failed)
}

/// The rooms nothing has happened in for their `idle_room_ttl`. What 0.1.x left behind counts from when it was taken over.
pub fn untouched(connection: &Connection, policy: &Policy, now: WallTime) -> Result<Vec<RoomId>, Error> {
    let mut statement = connection
        .prepare_cached(&format!(
            "SELECT room_id, policy_json, max({TOUCHED_AT}, (SELECT applied_at FROM schema_migrations WHERE id = 101))
             FROM path_rooms r"
        ))
        .map_err(query_failed)?;
    let room = |row: &Row<'_>| {
        let ttl = overrides(row.get(1)?).over(policy).idle_room_ttl;
        let touched = time(row, 2)?.unwrap_or(now);
        Ok((touched + ttl <= now).then_some(row.get::<_, String>(0)?.into()))
    };
    let rooms: Vec<Option<RoomId>> = statement.query_map([], room).and_then(Iterator::collect).map_err(query_failed)?;
    Ok(rooms.into_iter().flatten().collect())
}

fn overrides(json: Option<String>) -> PolicyOverrides {
    json.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default()
}

/// Sets the times of one room.
pub fn set_policy(connection: &Connection, room_id: &RoomId, overrides: &PolicyOverrides) -> Result<(), Error> {
    let json = RawJson::of(overrides).map_err(|e| Error::new(ErrorCode::InvalidInput, e.to_string()))?;
    connection
        .execute("UPDATE path_rooms SET policy_json = ?2 WHERE room_id = ?1", [room_id.as_str(), json.as_str()])
        .map(|_| ())
        .map_err(query_failed)
}

/// The times one room sets for itself.
pub fn policy_overrides(connection: &Connection, room_id: &RoomId) -> Result<PolicyOverrides, Error> {
    let json: Option<String> = connection
        .query_row("SELECT policy_json FROM path_rooms WHERE room_id = ?1", [room_id.as_str()], |row| row.get(0))
        .map_err(query_failed)?;
    Ok(overrides(json))
}

/// Writes presence behind: when each was last seen, and last waited.
pub fn write_presence(
    connection: &Connection,
    seen: &[(AgentId, WallTime)],
    waited: &[(RoomId, AgentId, WallTime)],
) -> Result<(), Error> {
    for (agent, at) in seen {
        connection
            .prepare_cached("UPDATE room_members SET last_seen_at = ?2 WHERE agent_id = ?1 AND last_seen_at < ?2")
            .and_then(|mut s| s.execute([agent.as_str(), &at.to_string()]))
            .map_err(query_failed)?;
    }
    for (room_id, agent, at) in waited {
        connection
            .prepare_cached("UPDATE room_members SET last_wait_at = ?3 WHERE room_id = ?1 AND agent_id = ?2")
            .and_then(|mut s| s.execute([room_id.as_str(), agent.as_str(), &at.to_string()]))
            .map_err(query_failed)?;
    }
    Ok(())
}
