//! The terminals of people as rows.

use std::collections::HashMap;

use rusqlite::{Connection, Row, params};
use tt_proto::hello::Anchor;
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::Member;

use super::query_failed;

/// The terminals of every person in a room.
pub(super) fn of_room(connection: &Connection, room_id: &RoomId) -> Result<HashMap<AgentId, Vec<Anchor>>, Error> {
    let mut statement = connection
        .prepare_cached(
            "SELECT agent_id, host_id, pid, process_started_at FROM member_terminals WHERE room_id = ?1
             ORDER BY agent_id, pid, process_started_at",
        )
        .map_err(query_failed)?;
    let terminal = |row: &Row<'_>| {
        let anchor = Anchor { host_id: row.get(1)?, pid: row.get(2)?, process_started_at: row.get(3)? };
        Ok((AgentId::trusted(row.get::<_, String>(0)?), anchor))
    };
    let mut terminals: HashMap<AgentId, Vec<Anchor>> = HashMap::new();
    for row in statement.query_map([room_id.as_str()], terminal).map_err(query_failed)? {
        let (agent_id, anchor) = row.map_err(query_failed)?;
        terminals.entry(agent_id).or_default().push(anchor);
    }
    Ok(terminals)
}

/// Replaces the terminals of a member. Those that were closed since it last opened one go with this.
pub(super) fn save(connection: &Connection, room_id: &RoomId, member: &Member) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM member_terminals WHERE room_id = ?1 AND agent_id = ?2")?
        .execute([room_id.as_str(), member.agent_id.as_str()])?;
    for Anchor { host_id, pid, process_started_at } in &member.terminals {
        connection
            .prepare_cached(
                "INSERT OR IGNORE INTO member_terminals (room_id, agent_id, host_id, pid, process_started_at)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![room_id.as_str(), member.agent_id.as_str(), host_id, pid, process_started_at])?;
    }
    Ok(())
}
