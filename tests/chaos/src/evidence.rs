//! What is left of a run: the log, what the actors wrote down, and what the programs wrote for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use crate::Fallible;
use crate::actors;
use crate::journal::{self, Entry, Fact};
use crate::world::Places;

/// An event of the log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub event_seq: i64,
    pub event_id: String,
    pub event_type: String,
    pub turn_id: i64,
    pub from: String,
    pub to: Option<String>,
    pub reason: Option<String>,
    /// Of a message.
    pub body: Option<String>,
}

/// The state of the stick.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stick {
    pub turn_id: i64,
    pub owner: Option<String>,
    pub reserved_for: Option<String>,
}

/// One message and one recipient.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub event_seq: i64,
    pub recipient: String,
    pub state: String,
    pub has_deadline: bool,
    /// Of a question that its sender asked one member and that ended without an answer in time: how often it was told so.
    pub told: Option<i64>,
    /// Its sender asked for notices about this message, besides those about the question.
    pub has_notices: bool,
}

/// What one process was told.
#[derive(Debug)]
pub(crate) struct Told {
    pub name: String,
    pub agent_id: String,
    pub entries: Vec<Entry>,
}

/// The events that one process has written, in order.
#[derive(Debug)]
pub(crate) struct Output {
    pub name: String,
    pub agent_id: String,
    /// `recv`, `follow`, `wait`, `mcp`, `hook` or `events`.
    pub kind: String,
    pub event_seqs: Vec<i64>,
}

/// Begins the name of what is done for a member that no actor is any more; its agent id follows.
pub(crate) const MEMBER: &str = "member-";

#[derive(Debug)]
pub(crate) struct Evidence {
    pub rows: Vec<Row>,
    pub stick: Stick,
    /// The holder was given the stick by the guard.
    pub is_given: bool,
    pub deliveries: Vec<Delivery>,
    pub notes: BTreeSet<String>,
    pub told: Vec<Told>,
    pub outputs: Vec<Output>,
    /// SQLite's own opinion of the database.
    pub integrity: String,
    /// Lines of the daemon's log that must not be there.
    pub panics: Vec<String>,
}

impl Evidence {
    pub(crate) fn collect(places: &Places, data: &Path) -> Fallible<Self> {
        let database = Connection::open_with_flags(data.join("rooms.sqlite"), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let agent_ids: BTreeMap<String, String> = actors::cast()
            .map(|(actor, number)| (format!("{}-{number}", actor.kind()), actor.agent_id(number)))
            .collect();
        let agent_of = |name: &str| {
            let actor = name.split('.').next().unwrap_or_default();
            let member = || actor.strip_prefix(MEMBER).map(str::to_owned);
            agent_ids.get(actor).cloned().or_else(member).ok_or_else(|| format!("{name} is nobody's"))
        };
        let mut told = Vec::new();
        for path in files(&places.journals())? {
            let name = file_name(&path).trim_end_matches(".jsonl").to_owned();
            let agent_id = agent_of(&name)?;
            told.extend(lives(Told { agent_id, entries: journal::read(&path)?, name }));
        }
        let mut outputs = Vec::new();
        for path in files(&places.outputs())? {
            let file = file_name(&path);
            let Some((name, kind)) = file.rsplit_once('.') else { continue };
            if !matches!(kind, "recv" | "follow" | "wait" | "mcp" | "hook" | "events") {
                continue;
            }
            let event_seqs = events_in(kind, &std::fs::read_to_string(&path)?);
            let agent_ids = if kind == "hook" { members_of(name, &told) } else { [agent_of(name)?].into() };
            let output = |agent_id| Output {
                agent_id,
                name: name.to_owned(),
                kind: kind.to_owned(),
                event_seqs: event_seqs.clone(),
            };
            outputs.extend(agent_ids.into_iter().map(output));
        }
        Ok(Self {
            rows: rows(&database)?,
            stick: database.query_row("SELECT turn_id, owner, reserved_for FROM path_rooms", [], |row| {
                Ok(Stick { turn_id: row.get(0)?, owner: row.get(1)?, reserved_for: row.get(2)? })
            })?,
            is_given: database.query_row(
                "SELECT coalesce(json_extract(edits_json, '$.by_guard'), 0) FROM path_rooms",
                [],
                |row| row.get(0),
            )?,
            deliveries: deliveries(&database)?,
            notes: notes(&database)?,
            told,
            outputs,
            integrity: database.query_row("PRAGMA integrity_check", [], |row| row.get(0))?,
            panics: panics(data)?,
        })
    }
}

/// The members that an actor was in turn, or was taken for. What a hook says is for the conversation that it is about, and which of
/// them that was then is not written down.
fn members_of(name: &str, told: &[Told]) -> BTreeSet<String> {
    let actor = |name: &str| name.split('.').next().map(str::to_owned);
    let of_it = || told.iter().filter(|told| actor(&told.name) == actor(name));
    let joined = of_it().flat_map(|told| &told.entries).filter_map(|entry| match &entry.fact {
        Fact::Joined { agent_id } => Some(agent_id),
        _ => None,
    });
    of_it().map(|told| &told.agent_id).chain(joined).cloned().collect()
}

/// What a process was told, apart for each of the members that it was in turn.
fn lives(told: Told) -> Vec<Told> {
    let Told { name, mut agent_id, entries } = told;
    let (mut lives, mut life) = (Vec::new(), Vec::new());
    for entry in entries {
        if let Fact::Lives { agent_id: next } = &entry.fact {
            let agent_id = std::mem::replace(&mut agent_id, next.clone());
            lives.push(Told { name: name.clone(), agent_id, entries: std::mem::take(&mut life) });
        }
        life.push(entry);
    }
    lives.push(Told { name, agent_id, entries: life });
    lives
}

fn rows(database: &Connection) -> Fallible<Vec<Row>> {
    let sql = "SELECT event_seq, event_id, event_type, coalesce(turn_id, 0), coalesce(from_agent_id, ''), to_agent_id, reason,
                 json_extract(payload_json, '$.body') FROM room_events ORDER BY event_seq";
    let mut statement = database.prepare(sql)?;
    let row = |row: &rusqlite::Row<'_>| {
        Ok(Row {
            event_seq: row.get(0)?,
            event_id: row.get(1)?,
            event_type: row.get(2)?,
            turn_id: row.get(3)?,
            from: row.get(4)?,
            to: row.get(5)?,
            reason: row.get(6)?,
            body: row.get(7)?,
        })
    };
    Ok(statement.query_map([], row)?.collect::<Result<_, _>>()?)
}

fn deliveries(database: &Connection) -> Fallible<Vec<Delivery>> {
    let sql = "SELECT d.event_seq, d.recipient_agent_id, d.state, d.expires_at IS NOT NULL,
                 iif(d.is_over AND e.to_agent_id IS NOT NULL,
                     (SELECT count(*) FROM deliveries n JOIN room_events m ON m.event_seq = n.event_seq
                      WHERE n.reply_to = d.event_seq AND m.from_agent_id IS NULL
                      AND json_extract(m.payload_json, '$.notice') IN ('expired', 'not_answered', 'recipient_gone')), NULL),
                 d.notify_on_delivery OR d.notify_after_ms IS NOT NULL
               FROM deliveries d JOIN room_events e ON e.event_seq = d.event_seq";
    let mut statement = database.prepare(sql)?;
    let delivery = |row: &rusqlite::Row<'_>| {
        Ok(Delivery {
            event_seq: row.get(0)?,
            recipient: row.get(1)?,
            state: row.get(2)?,
            has_deadline: row.get(3)?,
            told: row.get(4)?,
            has_notices: row.get(5)?,
        })
    };
    Ok(statement.query_map([], delivery)?.collect::<Result<_, _>>()?)
}

/// The members for whom messages wait.
pub(crate) fn who_has_unread(data: &Path) -> Fallible<Vec<String>> {
    let database = Connection::open_with_flags(data.join("rooms.sqlite"), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut statement =
        database.prepare("SELECT DISTINCT recipient_agent_id FROM deliveries WHERE state = 'pending'")?;
    Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

fn notes(database: &Connection) -> Fallible<BTreeSet<String>> {
    let mut statement = database.prepare("SELECT note_id FROM notes")?;
    Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

fn files(dir: &Path) -> Fallible<Vec<std::path::PathBuf>> {
    let mut files: Vec<_> = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    files.sort();
    Ok(files)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The events in the output of a program. An incomplete last line was not shown.
fn events_in(kind: &str, text: &str) -> Vec<i64> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = complete.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let seqs = |events: &Value| -> Vec<i64> {
        events.as_array().into_iter().flatten().filter_map(|event| event["event_seq"].as_i64()).collect()
    };
    match kind {
        "mcp" => lines.flat_map(|line| seqs(&line["result"]["structuredContent"]["inbox"]["messages"])).collect(),
        "wait" => {
            let is_message = |event: &&Value| event["event_type"] == "message_sent";
            let events = |line: Value| line["events"].as_array().cloned().unwrap_or_default();
            lines.flat_map(events).filter(|event| is_message(&event)).filter_map(|e| e["event_seq"].as_i64()).collect()
        }
        "hook" => block_in(text),
        _ => lines.filter_map(|line| line["event_seq"].as_i64()).collect(),
    }
}

/// The messages in what a hook said: a line each, in the text for the model. Half an answer is none.
fn block_in(text: &str) -> Vec<i64> {
    let answer: Value = serde_json::from_str(text).unwrap_or_default();
    let context = answer["hookSpecificOutput"]["additionalContext"].as_str().unwrap_or_default();
    let lines = context.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| line["event_seq"].as_i64()).collect()
}

fn panics(data: &Path) -> Fallible<Vec<String>> {
    let mut found = Vec::new();
    for path in files(data)?.iter().filter(|path| file_name(path).starts_with("ttd.log")) {
        let text = String::from_utf8_lossy(&std::fs::read(path)?).into_owned();
        found.extend(text.lines().filter(|line| line.contains("panicked")).map(str::to_owned));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hook_says_was_shown_to_the_members_of_its_session() {
        let said =
            |context: &str| serde_json::json!({"hookSpecificOutput": {"additionalContext": context}}).to_string();
        let block = said("You hold the stick.\n{\"event_seq\":7,\"body\":\"x\"}\n{\"event_seq\":9}\n[end]");
        assert_eq!(events_in("hook", &block), [7, 9]);
        assert_eq!(events_in("hook", &block[..block.len() - 1]), [] as [i64; 0], "cut off");
        let told = |name: &str, agent_id: &str, joined: &[&str]| {
            let entry = |agent_id: &&str| Entry { at: 0, fact: Fact::Joined { agent_id: (*agent_id).into() } };
            Told { name: name.into(), agent_id: agent_id.into(), entries: joined.iter().map(entry).collect() }
        };
        let all = [told("session-0.1", "a", &["b"]), told("session-0.2", "c", &[]), told("session-1.1", "d", &["e"])];
        assert_eq!(members_of("session-0.2.17", &all), ["a", "b", "c"].map(str::to_owned).into());
    }

    #[test]
    fn what_a_session_was_told_belongs_to_the_member_that_it_was_then() {
        let note = |id: &str| Fact::Noted { note_id: id.into() };
        let is = |agent_id: &str| Fact::Lives { agent_id: agent_id.into() };
        let facts = [note("0"), is("a"), note("1"), note("2"), is("b"), is("a"), note("3")];
        let entries = facts.into_iter().map(|fact| Entry { at: 0, fact }).collect();
        let told = lives(Told { name: "session-0.1".into(), agent_id: "nobody".into(), entries });
        let counted: Vec<_> = told.iter().map(|told| (told.agent_id.as_str(), told.entries.len())).collect();
        assert_eq!(counted, [("nobody", 1), ("a", 3), ("b", 1), ("a", 2)]);
        assert!(told.iter().all(|told| told.name == "session-0.1"));
    }
}
