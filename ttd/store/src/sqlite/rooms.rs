//! Rooms and members as rows: loaded whole for a decision, and saved where the decision changed them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};
use tt_proto::event::Event;
use tt_proto::handoff::RawJson;
use tt_proto::hello::Anchor;
use tt_proto::policy::{Policy, PolicyOverrides};
use tt_proto::room::{Liveness, MemberStatus, RoomSummary, StickState};
use tt_proto::{AgentId, Error, ErrorCode, RoomId, WallTime};
use tt_rules::{DeadlineTime, Decision, HandoffAt, HeldHandoff, LeaseTime, Member, Overview, Removal, Room, Waiting};

use super::contents::HAS_CONTENTS;
use super::{deliveries, edits, events, query_failed, search, terminals};
use crate::{Page, RoomPage};

/// Loads a room with its members as they are stored.
pub(super) fn load(connection: &Connection, room_id: &RoomId, policy: &Policy) -> Result<Option<Room>, Error> {
    let found = connection
        .prepare_cached(
            "SELECT room_id, canonical_path, state, turn_id, owner, lease_id, lease_expires_at, reserved_for, claim_expires_at,
               reservation_expired, released_by, released_at, sequence_index, policy_json, pending_handoff_event_seq,
               current_handoff_event_seq, edits_json
             FROM path_rooms WHERE room_id = ?1",
        )
        .and_then(|mut statement| statement.query_row([room_id.as_str()], |row| room_row(row, policy)).optional())
        .map_err(query_failed)?;
    let Some((mut room, (pending, current))) = found else { return Ok(None) };
    room.pending_handoff = handoff(connection, pending)?;
    room.current_handoff = handoff(connection, current)?;
    let mut statement = connection
        .prepare_cached(
            "SELECT agent_id, ordinal, status, display_name, harness, session_id, found_by, host_id, pid, process_started_at,
               joined_at, last_seen_at, last_wait_at, last_held_turn, removed_by, removed_reason, quiet_until
             FROM room_members WHERE room_id = ?1 ORDER BY ordinal",
        )
        .map_err(query_failed)?;
    let mut terminals = terminals::of_room(connection, room_id)?;
    let members = statement.query_map([room_id.as_str()], member_row).map_err(query_failed)?;
    for member in members {
        let member = member.map_err(query_failed)?;
        let terminals = terminals.remove(&member.agent_id).unwrap_or_default();
        room.members.push(Arc::new(Member { terminals, ..member }));
    }
    Ok(Some(room))
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
        lease_expires_at: lease_time(row, 6)?,
        reserved_for: agent(row, 7)?,
        claim_expires_at: lease_time(row, 8)?,
        reservation_expired: row.get(9)?,
        pending_handoff: None,
        current_handoff: None,
        released_by: agent(row, 10)?,
        released_at: lease_time(row, 11)?,
        sequence_index: row.get(12)?,
        members: Vec::new(),
        edits: edits::parse(row.get(16)?),
        policy: overrides(row.get(13)?).over(policy),
        events: Vec::new(),
        deleted: false,
    };
    Ok((room, (row.get(14)?, row.get(15)?)))
}

fn member_row(row: &Row<'_>) -> rusqlite::Result<Member> {
    let agent_id = AgentId::trusted(row.get::<_, String>(0)?);
    let (host, pid, started): (Option<String>, Option<u32>, Option<String>) = (row.get(7)?, row.get(8)?, row.get(9)?);
    let anchor = pid.map(|pid| Anchor {
        host_id: host.unwrap_or_default(),
        pid,
        process_started_at: started.unwrap_or_default(),
    });
    let name: Option<String> = row.get(3)?;
    Ok(Member {
        ordinal: row.get(1)?,
        status: MemberStatus::parse(&row.get::<_, String>(2)?),
        display_name: name.unwrap_or_else(|| agent_id.as_str().split(':').next().unwrap_or_default().to_owned()),
        harness: row.get(4)?,
        session_id: row.get(5)?,
        found_by: row.get(6)?,
        liveness: Liveness::Unknown,
        terminals: Vec::new(),
        anchor,
        joined_at: lease_time(row, 10)?.unwrap_or(LeaseTime::from_millis(0)),
        last_seen_at: lease_time(row, 11)?.unwrap_or(LeaseTime::from_millis(0)),
        last_wait_at: lease_time(row, 12)?,
        last_held_turn: row.get(13)?,
        removal: match agent(row, 14)? {
            Some(by) => Some(Removal { by, reason: row.get(15)? }),
            None => None,
        },
        quiet_until: row.get::<_, Option<i64>>(16)?.map(DeadlineTime::from_millis),
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

/// A lease time is stored in the form of a time of day.
pub(super) fn lease_time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<LeaseTime>> {
    Ok(time(row, column)?.map(|at| LeaseTime::from_millis(at.as_millis())))
}

pub(super) fn lease_text(at: LeaseTime) -> String {
    WallTime::from_millis(at.as_millis()).to_string()
}

pub(super) fn time(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<WallTime>> {
    Ok(row.get::<_, Option<String>>(column)?.and_then(|text| WallTime::parse(&text)))
}

/// Whether a decision changes any row.
pub(super) fn has_changes(before: &Room, decision: &Decision) -> bool {
    let after = &decision.room;
    after.deleted
        || !after.events.is_empty()
        || !decision.changed.is_empty()
        || decision.note.is_some()
        || decision.reminder.is_some()
        || decision.policy_overrides.is_some()
        || !same_row(before, after)
        || changed_members(before, after).next().is_some()
}

/// Saves the room and its members where they changed.
pub(super) fn save(
    connection: &Connection,
    before: &Room,
    after: &Room,
    appended: &[Arc<Event>],
    wall: WallTime,
) -> Result<(), Error> {
    save_room(connection, before, after, appended, wall)?;
    for (known, member) in changed_members(before, after) {
        // A time that was only assumed in the member's favour must not be stored as if it were known.
        let seen = known.is_none_or(|known| known.last_seen_at != member.last_seen_at);
        save_member(connection, &after.room_id, member, seen).map_err(query_failed)?;
        if known.map_or(&[][..], |known| &known.terminals) != member.terminals {
            terminals::save(connection, &after.room_id, member).map_err(query_failed)?;
        }
    }
    Ok(())
}

/// The members whose row changes, each with what it was. Times of presence alone are not worth a write.
fn changed_members<'a>(before: &'a Room, after: &'a Room) -> impl Iterator<Item = (Option<&'a Member>, &'a Member)> {
    after.members.iter().enumerate().filter_map(|(index, member)| {
        // Members are only ever added, at the end, and mostly nobody changed.
        let known = before.members.get(index);
        if known.is_some_and(|known| Arc::ptr_eq(known, member) || !worth_writing(known, member)) {
            return None;
        }
        Some((known.map(|known| &**known), &**member))
    })
}

fn worth_writing(before: &Member, after: &Member) -> bool {
    let lasting = |m: &Member| Member {
        last_seen_at: LeaseTime::from_millis(0),
        last_wait_at: None,
        waiting: Waiting::No,
        liveness: Liveness::Unknown,
        ..m.clone()
    };
    lasting(before) != lasting(after)
}

/// Whether the room's own row stays as it is. Every field is named, so that a new one has to be decided on.
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
        edits,
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
        && edits::same(&before.edits, edits)
        && before.policy == *policy
}

fn save_room(
    connection: &Connection,
    before: &Room,
    after: &Room,
    appended: &[Arc<Event>],
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
    let text = |at: Option<LeaseTime>| at.map(lease_text);
    let name = |agent: &Option<AgentId>| agent.as_ref().map(|a| a.as_str().to_owned());
    let changed = connection
        .prepare_cached(
            "UPDATE path_rooms SET state = ?3, turn_id = ?4, owner = ?5, lease_id = ?6, lease_expires_at = ?7, reserved_for = ?8,
               claim_expires_at = ?9, reservation_expired = ?10, released_by = ?11, released_at = ?12, sequence_index = ?13,
               pending_handoff_event_seq = ?14, current_handoff_event_seq = ?15, updated_at = ?16, edits_json = ?18
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
                edits::text(&after.edits),
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
               pid, process_started_at, joined_at, last_seen_at, last_wait_at, last_held_turn, removed_by, removed_reason,
               quiet_until)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?17, ?18, ?19)
             ON CONFLICT (room_id, agent_id) DO UPDATE SET ordinal = ?3, status = ?4, display_name = ?5, harness = ?6,
               session_id = ?7, found_by = ?8, host_id = ?9, pid = ?10, process_started_at = ?11, joined_at = ?12,
               last_seen_at = iif(?16, ?13, last_seen_at), last_wait_at = ?14, last_held_turn = ?15, removed_by = ?17,
               removed_reason = ?18, quiet_until = ?19",
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
            lease_text(member.joined_at),
            lease_text(member.last_seen_at),
            member.last_wait_at.map(lease_text),
            member.last_held_turn,
            seen,
            member.removal.as_ref().map(|removal| removal.by.as_str()),
            member.removal.as_ref().and_then(|removal| removal.reason.as_deref()),
            member.quiet_until.map(DeadlineTime::as_millis),
        ])?;
    Ok(())
}

/// The room at exactly this path.
pub(super) fn at_path(connection: &Connection, path: &Path) -> Result<Option<RoomId>, Error> {
    let Some(path) = path.to_str() else { return Ok(None) };
    connection
        .prepare_cached("SELECT room_id FROM path_rooms WHERE canonical_path = ?1")
        .and_then(|mut s| s.query_row([path], |row| row.get::<_, String>(0)).optional())
        .map(|id| id.map(Into::into))
        .map_err(query_failed)
}

/// Every room by its path.
pub(super) fn paths(connection: &Connection) -> Result<Vec<(PathBuf, RoomId)>, Error> {
    let mut statement = connection.prepare("SELECT canonical_path, room_id FROM path_rooms").map_err(query_failed)?;
    let room = |row: &Row<'_>| Ok((row.get::<_, String>(0)?.into(), row.get::<_, String>(1)?.into()));
    statement.query_map([], room).and_then(Iterator::collect).map_err(query_failed)
}

pub(super) fn exists(connection: &Connection, room_id: &RoomId) -> Result<bool, Error> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM path_rooms WHERE room_id = ?1)")
        .and_then(|mut s| s.query_row([room_id.as_str()], |row| row.get(0)))
        .map_err(query_failed)
}

/// Adds the row of a new room.
pub(super) fn create(connection: &Connection, room: &Room, wall: WallTime) -> Result<(), Error> {
    connection
        .execute(
            "INSERT INTO path_rooms (room_id, canonical_path, state, updated_at) VALUES (?1, ?2, 'idle', ?3)",
            params![room.room_id.as_str(), room.canonical_path, wall.to_string()],
        )
        .map(|_| ())
        .map_err(query_failed)
}

/// Deletes a room with everything that belongs to it, whether or not the schema it came with cascades.
pub(super) fn delete(connection: &Connection, room_id: &RoomId) -> Result<(), Error> {
    search::remove_room(connection, room_id)?;
    // Deliveries are found by their event; there may be very many of other rooms.
    connection
        .execute(
            "DELETE FROM deliveries WHERE event_seq IN (SELECT event_seq FROM room_events WHERE room_id = ?1)",
            [room_id.as_str()],
        )
        .map_err(query_failed)?;
    for table in ["notes", "reminders", "room_events", "member_terminals", "room_members", "path_rooms"] {
        connection
            .execute(&format!("DELETE FROM {table} WHERE room_id = ?1"), [room_id.as_str()])
            .map_err(query_failed)?;
    }
    Ok(())
}

/// A page of the rooms, by their paths.
pub(super) fn list(connection: &Connection, page: &RoomPage) -> Result<Page<RoomSummary>, Error> {
    let which = "WHERE (?1 IS NULL OR room_id = ?1) AND canonical_path > coalesce(?2, '')";
    let mut statement = connection
        .prepare_cached(&format!(
            "SELECT room_id, canonical_path, state, owner, reserved_for, turn_id, {TOUCHED_AT},
               (SELECT count(*) FROM room_members m WHERE m.room_id = r.room_id AND m.status = 'active'),
               (SELECT display_name FROM room_members m WHERE m.room_id = r.room_id AND m.agent_id = coalesce(owner, reserved_for)
                AND NOT EXISTS (SELECT 1 FROM room_members o WHERE o.room_id = m.room_id AND o.agent_id <> m.agent_id
                                AND (o.agent_id = m.display_name COLLATE NOCASE
                                     OR o.status IN ('active', 'away') AND o.display_name = m.display_name COLLATE NOCASE)))
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
            size: None,
            inbox: Default::default(),
        })
    };
    let only = page.only.as_ref().map(RoomId::as_str);
    let rows = statement.query_map([only, page.after_path.as_deref()], summary).map_err(query_failed)?;
    Page::of(rows, page.limit).map_err(query_failed)
}

/// When something last happened in a room `r`. Its own row is written only when that changes, which a message does not.
const TOUCHED_AT: &str = "max(updated_at, coalesce((SELECT created_at FROM room_events e WHERE e.room_id = r.room_id
                            ORDER BY event_seq DESC LIMIT 1), ''))";

pub(super) fn overview(connection: &Connection, room_id: &RoomId) -> Result<Overview, Error> {
    let at = connection
        .prepare_cached(&format!("SELECT {TOUCHED_AT} FROM path_rooms r WHERE room_id = ?1"))
        .and_then(|mut statement| statement.query_row([room_id.as_str()], |row| time(row, 0)).optional());
    Ok(Overview {
        unread: deliveries::unread(connection, room_id)?,
        newest_event_seq: events::newest(connection, Some(room_id))?,
        updated_at: at.map_err(query_failed)?.flatten().unwrap_or(WallTime::from_millis(0)),
    })
}

/// The latest moment on the clock of leases that any row tells of.
pub(super) fn latest_time(connection: &Connection) -> Result<Option<LeaseTime>, Error> {
    let seen = "SELECT max(at) FROM (
        SELECT max(last_seen_at) AS at FROM room_members UNION ALL SELECT max(joined_at) FROM room_members
        UNION ALL SELECT max(last_wait_at) FROM room_members UNION ALL SELECT max(released_at) FROM path_rooms
        UNION ALL SELECT max(opened_at) FROM sessions)";
    let seen = connection.query_row(seen, [], |row| lease_time(row, 0)).map_err(query_failed)?;
    let kept = "SELECT max(kept_at) FROM idempotency_keys";
    let kept: Option<i64> = connection.query_row(kept, [], |row| row.get(0)).map_err(query_failed)?;
    Ok(seen.max(kept.map(LeaseTime::from_millis)))
}

/// The rooms with an active member, a holder or a reservation.
pub(super) fn with_timers(connection: &Connection) -> Result<Vec<RoomId>, Error> {
    let sql = "SELECT room_id FROM room_members WHERE status = 'active'
               UNION SELECT room_id FROM path_rooms WHERE state IN ('owned', 'reserved')";
    ids(connection, sql, [])
}

fn ids(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<RoomId>, Error> {
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    let id = |row: &Row<'_>| row.get::<_, String>(0).map(RoomId::from);
    statement.query_map(params, id).and_then(Iterator::collect).map_err(query_failed)
}

/// The rooms in which a process is a member. One that counts as gone by its silence may still hold the stick.
pub(super) fn of_process(connection: &Connection, anchor: &Anchor) -> Result<Vec<RoomId>, Error> {
    let sql = "SELECT room_id FROM room_members
               WHERE status IN ('active', 'gone') AND pid = ?1 AND process_started_at IS ?2
               UNION SELECT room_id FROM member_terminals WHERE pid = ?1 AND process_started_at = ?3
               UNION SELECT room_id FROM path_rooms
               WHERE state = 'owned' AND edits_json IS NOT NULL AND json_extract(edits_json, '$.commit.pid') = ?1";
    let started = Some(anchor.process_started_at.as_str()).filter(|s| !s.is_empty());
    ids(connection, sql, params![anchor.pid, started, anchor.process_started_at])
}

/// The rooms of which an agent is a member that has not left.
pub(super) fn of_agent(connection: &Connection, agent_id: &AgentId) -> Result<Vec<RoomId>, Error> {
    let sql = "SELECT DISTINCT room_id FROM room_members WHERE status IN ('active', 'gone') AND agent_id = ?1";
    ids(connection, sql, params![agent_id.as_str()])
}

/// The rooms in which an agent holds the stick, and its turn in each.
pub(super) fn held_by(connection: &Connection, agent_id: &AgentId) -> Result<Vec<(RoomId, i64)>, Error> {
    let sql = "SELECT room_id, turn_id FROM path_rooms WHERE state = 'owned' AND owner = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(query_failed)?;
    let turn = |row: &Row<'_>| Ok((RoomId::from(row.get::<_, String>(0)?), row.get(1)?));
    statement.query_map([agent_id.as_str()], turn).and_then(Iterator::collect).map_err(query_failed)
}

/// The rooms in which the stick is held or reserved.
pub(super) fn in_use(connection: &Connection) -> Result<Vec<RoomId>, Error> {
    ids(connection, "SELECT room_id FROM path_rooms WHERE state IN ('owned', 'reserved')", [])
}

/// The rooms in which nothing was ever written and nothing has happened for their `idle_room_ttl`. Rooms of 0.1.x count from
/// their migration.
pub(super) fn untouched(connection: &Connection, policy: &Policy, now: WallTime) -> Result<Vec<RoomId>, Error> {
    let mut statement = connection
        .prepare_cached(&format!(
            "SELECT room_id, policy_json, max({TOUCHED_AT}, (SELECT applied_at FROM schema_migrations WHERE id = 101))
             FROM path_rooms r WHERE NOT {HAS_CONTENTS}"
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

/// Stores the policy overrides of a room.
pub(super) fn set_policy(connection: &Connection, room_id: &RoomId, overrides: &PolicyOverrides) -> Result<(), Error> {
    let json = RawJson::of(overrides).map_err(|e| Error::new(ErrorCode::InvalidInput, e.to_string()))?;
    connection
        .execute("UPDATE path_rooms SET policy_json = ?2 WHERE room_id = ?1", [room_id.as_str(), json.as_str()])
        .map(|_| ())
        .map_err(query_failed)
}

/// The policy overrides of a room.
pub(super) fn policy_overrides(connection: &Connection, room_id: &RoomId) -> Result<PolicyOverrides, Error> {
    let json: Option<Option<String>> = connection
        .query_row("SELECT policy_json FROM path_rooms WHERE room_id = ?1", [room_id.as_str()], |row| row.get(0))
        .optional()
        .map_err(query_failed)?;
    Ok(overrides(json.flatten()))
}

/// Stores when agents were last seen, and when they last waited in a room.
pub(super) fn save_presence(
    connection: &Connection,
    seen: &[(AgentId, LeaseTime)],
    waited: &[(RoomId, AgentId, LeaseTime)],
) -> Result<(), Error> {
    for (agent, at) in seen {
        connection
            .prepare_cached("UPDATE room_members SET last_seen_at = ?2 WHERE agent_id = ?1 AND last_seen_at < ?2")
            .and_then(|mut s| s.execute([agent.as_str(), &lease_text(*at)]))
            .map_err(query_failed)?;
    }
    for (room_id, agent, at) in waited {
        connection
            .prepare_cached("UPDATE room_members SET last_wait_at = ?3 WHERE room_id = ?1 AND agent_id = ?2")
            .and_then(|mut s| s.execute([room_id.as_str(), agent.as_str(), &lease_text(*at)]))
            .map_err(query_failed)?;
    }
    Ok(())
}
