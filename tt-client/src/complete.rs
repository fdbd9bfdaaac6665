//! Completes what is known only to the daemon: members, rooms, notes and reminders; and the types of events. The completion scripts ask
//! for it with a hidden command, and complete everything else themselves.

use std::time::Duration;

use tt_proto::RoomId;
use tt_proto::event::EventType;
use tt_proto::reminder::Reminder;
use tt_proto::requests::{GetRoomState, ListNotes, ListReminders, ListRooms, RoomState};
use tt_proto::room::MemberStatus;

use crate::Context;
use crate::commands::notes::short_id;
use crate::connect::{HttpClient, Settings};
use crate::text::names;

/// How long the daemon may take. A shell waits for it at every press of the key.
const COMPLETION_DEADLINE: Duration = Duration::from_millis(300);

/// One position of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Members,
    /// A member, also one that is away or gone.
    AnyMember,
    /// A member, or everyone.
    Recipients,
    /// A member, or one of the words for oneself and for everything.
    Targets,
    EventTypes,
    Notes,
    Reminders,
    Rooms,
}

/// The candidates for the last of these words, each with a description after a tab.
pub(crate) fn candidates(context: &Context, words: &[String]) -> Vec<String> {
    let Some(kind) = kind(words) else { return Vec::new() };
    let typed = words.last().map_or("", String::as_str);
    let (done, typed) = match kind {
        // A list, of which the last is being typed.
        Kind::EventTypes => typed.rsplit_once(',').map_or(("", typed), |(done, last)| (&typed[..=done.len()], last)),
        _ => ("", typed),
    };
    let mut found = match kind {
        Kind::EventTypes => EventType::ALL.iter().map(|kind| (kind.as_str().to_owned(), String::new())).collect(),
        Kind::Rooms => rooms(context),
        Kind::Notes => notes(context),
        Kind::Reminders => reminders(context),
        Kind::Members | Kind::AnyMember | Kind::Recipients | Kind::Targets => members(context, kind),
    };
    let ours: &[&str] = match kind {
        Kind::Recipients => &["room"],
        Kind::Targets => &["self", "any"],
        _ => &[],
    };
    found.extend(ours.iter().map(|word| ((*word).to_owned(), String::new())));
    found.retain(|(value, _)| value.starts_with(typed));
    let line = |(value, about): (String, String)| {
        if about.is_empty() { format!("{done}{value}") } else { format!("{done}{value}\t{about}") }
    };
    found.into_iter().map(line).collect()
}

/// What is asked for at the end of these words; none where the script knows better.
fn kind(words: &[String]) -> Option<Kind> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (typed, before) = words.split_last()?;
    if typed.starts_with('-') {
        return None;
    }
    match before.last().copied()? {
        "--from" => return Some(Kind::AnyMember),
        "--to" => return Some(Kind::Members),
        "--target" => return Some(Kind::Targets),
        "--event" => return Some(Kind::EventTypes),
        "--path" => return Some(Kind::Rooms),
        _ => {}
    }
    let plain: Vec<&str> = before.iter().copied().filter(|word| !word.starts_with('-')).collect();
    match plain.as_slice() {
        ["kick" | "peek" | "inbox"] => Some(Kind::AnyMember),
        ["pass" | "assign"] => Some(Kind::Members),
        ["send" | "ask"] | ["msg", "send"] => Some(Kind::Recipients),
        ["notes", "resolve"] => Some(Kind::Notes),
        ["remind" | "wake", "cancel"] => Some(Kind::Reminders),
        [
            "state" | "wait" | "try" | "release" | "take" | "leave" | "events" | "log" | "status" | "list"
            | "heartbeat",
        ] => Some(Kind::Rooms),
        _ => None,
    }
}

/// A connection that starts no daemon and waits for none.
fn connect(context: &Context) -> Option<HttpClient> {
    let settings =
        Settings { autostart: false, deadline: COMPLETION_DEADLINE, ..context.settings_at(Some(".".into())) };
    HttpClient::connect(settings).ok()
}

/// Whether a member is offered: messages go to those who are away too, and one asks about those who are gone.
fn is_offered(kind: Kind, status: MemberStatus) -> bool {
    match kind {
        Kind::AnyMember => status.is_member(),
        Kind::Recipients => status.is_addressed(),
        _ => status == MemberStatus::Active,
    }
}

fn members(context: &Context, kind: Kind) -> Vec<(String, String)> {
    let Some(mut client) = connect(context) else { return Vec::new() };
    let state = client.call(&GetRoomState { room_id: RoomId::from(RoomId::HERE), ..Default::default() });
    let me = client.welcome().identity.agent_id.clone();
    let list = |state: RoomState| {
        let others = state.members.iter().filter(|m| m.agent_id != me && is_offered(kind, m.status));
        others
            .map(|member| {
                let name = names::name(&member.agent_id, &state.members);
                // A name that is shown in quotes is typed as its id.
                let name = if name.starts_with('"') { member.agent_id.to_string() } else { name };
                (name, member.activity.as_str().to_owned())
            })
            .collect()
    };
    state.map(list).unwrap_or_default()
}

fn rooms(context: &Context) -> Vec<(String, String)> {
    let rooms = connect(context).and_then(|mut client| client.call(&ListRooms::default()).ok());
    let room = |room: tt_proto::room::RoomSummary| (room.canonical_path, room.state.as_str().to_owned());
    rooms.map(|rooms| rooms.rooms.into_iter().map(room).collect()).unwrap_or_default()
}

fn notes(context: &Context) -> Vec<(String, String)> {
    let list = ListNotes { room_id: RoomId::from(RoomId::HERE), ..Default::default() };
    let notes =
        connect(context).and_then(|mut client| client.call(&list).ok()).map(|list| list.notes).unwrap_or_default();
    let ids: Vec<&str> = notes.iter().map(|note| note.note_id.as_str()).collect();
    notes.iter().map(|note| (short_id(note.note_id.as_str(), &ids).to_owned(), about(&note.body))).collect()
}

fn reminders(context: &Context) -> Vec<(String, String)> {
    let list = ListReminders { room_id: RoomId::from(RoomId::HERE) };
    let list = connect(context).and_then(|mut client| client.call(&list).ok());
    let list = list.map(|list| list.reminders).unwrap_or_default();
    let ids: Vec<&str> = list.iter().map(|reminder| reminder.reminder_id.as_str()).collect();
    let short = |reminder: &Reminder| short_id(reminder.reminder_id.as_str(), &ids).to_owned();
    list.iter().map(|reminder| (short(reminder), about(&reminder.body))).collect()
}

/// The beginning of a text, as the description of its id.
fn about(body: &str) -> String {
    let line = body.lines().next().unwrap_or_default();
    tt_proto::escape::escape_text(&line.replace('\t', " ")).chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_follows_from_the_words_before() {
        let kind = |line: &str| kind(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for (line, expected) in [
            ("kick ", Some(Kind::AnyMember)),
            ("pass co", Some(Kind::Members)),
            ("msg send ", Some(Kind::Recipients)),
            ("send --important ", Some(Kind::Recipients)),
            ("recv --from ", Some(Kind::AnyMember)),
            ("events --event claim,re", Some(Kind::EventTypes)),
            ("log --target ", Some(Kind::Targets)),
            ("notes resolve 6f", Some(Kind::Notes)),
            ("remind cancel ", Some(Kind::Reminders)),
            ("remind 20m look --to ", Some(Kind::Members)),
            ("ask ", Some(Kind::Recipients)),
            ("inbox co", Some(Kind::AnyMember)),
            ("peek ", Some(Kind::AnyMember)),
            ("state ", Some(Kind::Rooms)),
            ("msg send codex ", None),
            ("ki", None),
            ("kick --f", None),
        ] {
            assert_eq!(kind(line), expected, "{line:?}");
        }
    }
}
