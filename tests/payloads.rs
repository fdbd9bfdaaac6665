//! `docs/event-payloads.md` against the types and against what a daemon truly writes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tt_proto::event::{Event, EventType, MemberJoined, MemberRenamed, NoteRef};
use tt_proto::filter::OneOrMany;
use tt_proto::handoff::{Handoff, RawJson};
use tt_proto::message::MessageSent;
use tt_proto::requests::{
    AddNote, CheckGuard, JoinPath, KickMember, PassStick, ReleaseStick, ResolveNote, TakeoverStick, WaitForEvents,
    WaitForTurn,
};
use tt_tests::{InProcess, Member, block_on, home};

const PAGE: &str = include_str!("../docs/event-payloads.md");

/// The columns that differ from type to type.
const COLUMNS: [&str; 6] = ["turn_id", "from_agent_id", "to_agent_id", "handoff", "reason", "payload"];

/// What the page says of one type.
struct Section {
    columns: BTreeSet<String>,
    example: Event,
    json: Value,
}

fn sections() -> BTreeMap<String, Section> {
    let section = |text: &str| {
        let (name, rest) = text.split_once("`\n").unwrap();
        let column = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
        let json = rest.split_once("```json\n").unwrap().1.split_once("```").unwrap().0;
        let section = Section {
            columns: rest.lines().filter_map(column).collect(),
            example: serde_json::from_str(json).unwrap_or_else(|e| panic!("{name}: {e}")),
            json: serde_json::from_str(json).unwrap(),
        };
        (name.to_owned(), section)
    };
    PAGE.split("\n## `").skip(1).map(section).collect()
}

fn columns_of(event: &Event) -> BTreeSet<String> {
    let json = serde_json::to_value(event).unwrap();
    COLUMNS.iter().filter(|column| !json[**column].is_null()).map(|column| (*column).to_owned()).collect()
}

/// Whether JSON is exactly what the type makes of it.
fn is_exactly<T: Serialize + DeserializeOwned>(json: &RawJson) -> bool {
    let value: Value = serde_json::from_str(json.as_str()).unwrap();
    serde_json::from_str::<T>(json.as_str()).is_ok_and(|typed| serde_json::to_value(typed).unwrap() == value)
}

fn payload_fits(event: &Event) -> bool {
    match (event.event_type, &event.payload) {
        (EventType::MessageSent, Some(payload)) => is_exactly::<MessageSent>(payload),
        (EventType::MemberJoined, Some(payload)) => is_exactly::<MemberJoined>(payload),
        (EventType::MemberRenamed, Some(payload)) => is_exactly::<MemberRenamed>(payload),
        (EventType::NoteAdded | EventType::NoteResolved, Some(payload)) => is_exactly::<NoteRef>(payload),
        (EventType::MessageSent | EventType::MemberJoined | EventType::NoteAdded | EventType::NoteResolved, None) => {
            false
        }
        (_, payload) => payload.is_none(),
    }
}

#[test]
fn every_type_is_documented_with_an_example_that_its_type_reads() {
    let sections = sections();
    let names: Vec<&str> = sections.keys().map(String::as_str).collect();
    let mut all: Vec<&str> = EventType::ALL.iter().map(|t| t.as_str()).collect();
    all.sort_unstable();
    assert_eq!(names, all);
    for (name, section) in &sections {
        let example = &section.example;
        assert_eq!(example.event_type.as_str(), name);
        assert_eq!(serde_json::to_value(example).unwrap(), section.json, "{name}: fields nobody has, or missing ones");
        assert!(payload_fits(example), "{name}");
        assert!(example.handoff.as_ref().is_none_or(is_exactly::<Handoff>), "{name}");
        let used = columns_of(example);
        let listed = section.columns.iter().cloned().chain(["turn_id".to_owned()]).collect();
        assert!(used.is_subset(&listed), "{name} uses {used:?} and lists {listed:?}");
        assert!(section.columns.iter().all(|column| COLUMNS.contains(&column.as_str())), "{name}");
    }
}

#[test]
fn what_a_daemon_writes_is_what_the_page_says() {
    let home = home!();
    let mut options = home.options();
    options.policy.claim_ttl = Duration::from_millis(20);
    let _daemon = InProcess::start(options);
    let log = block_on(async {
        let mut a = Member::join(&home, "a").await;
        let mut b = Member::join(&home, "b").await;
        a.say(None, "to everyone").await;
        a.say(Some("b"), "to one").await;
        let note = a.call(|room_id| AddNote { room_id, body: "remember".into(), ..Default::default() }).await;
        b.call(|room_id| ResolveNote { room_id, note_id: note.note_id.clone(), ..Default::default() }).await;
        let handoff = || RawJson::of(&Handoff::template()).unwrap();
        let wait = async |member: &mut Member| {
            member
                .call(|room_id| WaitForTurn { room_id, max_wait_ms: Some(0), claim: Some(true), ..Default::default() })
                .await
        };
        let turn = wait(&mut a).await;
        let lease = turn.lease_id.clone().unwrap();
        a.call(|room_id| ReleaseStick {
            room_id,
            lease_id: lease.clone(),
            expected_turn_id: turn.turn_id,
            handoff: handoff(),
            ..Default::default()
        })
        .await;
        let turn = wait(&mut b).await;
        let lease = turn.lease_id.clone().unwrap();
        let to = a.id.clone();
        b.call(|room_id| PassStick {
            room_id,
            lease_id: lease.clone(),
            expected_turn_id: turn.turn_id,
            to_agent_id: to.clone(),
            handoff: handoff(),
            ..Default::default()
        })
        .await;
        let expired = |room_id| {
            let types = Some(OneOrMany::One("reservation_expired".into()));
            WaitForEvents {
                room_id,
                after_event_seq: Some(0),
                event_type: types,
                target_agent_id: Some("any".into()),
                ..Default::default()
            }
        };
        let turn_id = turn.turn_id;
        b.call(|_| CheckGuard {
            context_path: home.workspace().to_str().unwrap().to_owned(),
            action: "push".into(),
            is_overridden: Some(true),
            ..Default::default()
        })
        .await;
        assert_eq!(b.call(expired).await.events.len(), 1);
        b.call(|room_id| TakeoverStick {
            room_id,
            expected_turn_id: turn_id,
            reason: "it does not answer".into(),
            operator_override: Some(true),
            ..Default::default()
        })
        .await;
        let target = a.id.clone();
        b.call(|room_id| KickMember {
            room_id,
            target_agent_id: target.clone(),
            force: Some(true),
            reason: Some("gone".into()),
            ..Default::default()
        })
        .await;
        let mut a = Member::join(&home, "a").await;
        a.call(|_| JoinPath {
            context_path: home.workspace().to_str().unwrap().to_owned(),
            display_name: Some("reviewer".into()),
            ..Default::default()
        })
        .await;
        b.log(0).await
    });
    let sections = sections();
    for event in &log {
        let name = event.event_type.as_str();
        assert!(payload_fits(event), "{name}: {event:?}");
        let mut used = columns_of(event);
        used.remove("turn_id");
        let listed = &sections[name].columns;
        assert!(used.is_subset(listed), "{name} uses {used:?} and the page lists {listed:?}");
        // What the example has, the daemon writes, but for the columns that may be null.
        let mut optional = vec!["to_agent_id", "reason", "harness"];
        if event.payload.as_ref().is_some_and(|payload| payload.as_str().contains("\"notice\":")) {
            // Nobody sent it.
            optional.push("from_agent_id");
        }
        let missing: Vec<String> =
            columns_of(&sections[name].example).difference(&columns_of(event)).cloned().collect();
        assert!(missing.iter().all(|column| optional.contains(&column.as_str())), "{name} has no {missing:?}");
    }
    let written: BTreeSet<&str> = log.iter().map(|event| event.event_type.as_str()).collect();
    let unwritten: Vec<&str> =
        EventType::ALL.iter().map(|t| t.as_str()).filter(|name| !written.contains(name)).collect();
    assert_eq!(unwritten, ["close"], "every type but the one only 0.1.x wrote");
}
