//! What must hold, whatever happened. Each check returns what it found broken.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::evidence::{Delivery, Evidence, Output, Row, Stick};
use crate::journal::Fact;

/// A message that a dying process had taken can come late to the process that follows it: among its first lines.
const LATE_LINES: usize = 64;

/// A check and what it is about.
type Check = (&'static str, fn(&Evidence) -> Vec<String>);

pub(crate) const ALL: &[Check] = &[
    ("the database is sound", sound),
    ("the daemon never panics", |evidence| evidence.panics.clone()),
    ("at most one member holds the stick", one_holder),
    ("a turn is what its holder was told", told_turns),
    ("an edit is told of a turn that is in the log", told_edits),
    ("what the guard gave is given back", given_back),
    ("nobody edits in the turn of another", no_edit_in_anothers_turn),
    ("a turn that is over is not renewed", no_turn_renewed_after_its_end),
    ("nothing acknowledged is lost", nothing_lost),
    ("every message is shown to each recipient", everything_shown),
    ("the end of a question is told once", questions_end_once),
    ("nothing is shown again after its confirmation", nothing_shown_again),
    ("messages of one sender are sent once and keep their order", in_order),
    ("a stream of events has no gap", no_gap),
    ("no living process is declared dead", nobody_buried_alive),
    ("nothing happens to an actor that must not", broken_promises),
];

fn sound(evidence: &Evidence) -> Vec<String> {
    if evidence.integrity == "ok" { Vec::new() } else { vec![evidence.integrity.clone()] }
}

/// Replays the log. It must come to what is stored.
fn one_holder(evidence: &Evidence) -> Vec<String> {
    let mut broken = Vec::new();
    let mut stick = Stick { turn_id: 0, owner: None, reserved_for: None };
    for row in &evidence.rows {
        let holds = |agent: &Option<String>| agent.as_ref() == Some(&row.from);
        match row.event_type.as_str() {
            "claim" => {
                let free = stick.reserved_for.is_none() || holds(&stick.reserved_for);
                if row.turn_id != stick.turn_id + 1 || stick.owner.is_some() || !free {
                    broken.push(format!("{row:?} after {stick:?}"));
                }
                stick = Stick { turn_id: row.turn_id, owner: Some(row.from.clone()), reserved_for: None };
            }
            "takeover" => {
                let before = stick.owner.as_ref().or(stick.reserved_for.as_ref());
                if row.turn_id != stick.turn_id + 1 || row.to.as_ref() != before {
                    broken.push(format!("{row:?} after {stick:?}"));
                }
                stick = Stick { turn_id: row.turn_id, owner: Some(row.from.clone()), reserved_for: None };
            }
            "release" | "pass" => {
                if row.turn_id != stick.turn_id || !holds(&stick.owner) {
                    broken.push(format!("{row:?} after {stick:?}"));
                }
                stick.owner = None;
                stick.reserved_for = row.to.clone().filter(|_| row.event_type == "pass");
            }
            _ => {}
        }
    }
    if stick != evidence.stick {
        broken.push(format!("the log says {stick:?}, and stored is {:?}", evidence.stick));
    }
    broken
}

/// What actors were told of turns is in the log, and a lease belongs to one turn.
fn told_turns(evidence: &Evidence) -> Vec<String> {
    let mut broken = Vec::new();
    let granted = |row: &&Row| matches!(row.event_type.as_str(), "claim" | "takeover");
    let grants: HashMap<i64, &Row> = evidence.rows.iter().filter(granted).map(|row| (row.turn_id, row)).collect();
    let mut leases: HashMap<i64, &str> = HashMap::new();
    let mut turns: HashMap<&str, i64> = HashMap::new();
    for told in &evidence.told {
        for entry in &told.entries {
            let Fact::Turn { turn_id, lease_id, by_takeover } = &entry.fact else { continue };
            match grants.get(turn_id) {
                Some(row) if row.from == told.agent_id && (!by_takeover || row.event_type == "takeover") => {}
                other => broken.push(format!("{} was told {:?}, and the log has {other:?}", told.name, entry.fact)),
            }
            if *leases.entry(*turn_id).or_insert(lease_id) != lease_id {
                broken.push(format!("turn {turn_id} has two leases"));
            }
            if *turns.entry(lease_id).or_insert(*turn_id) != *turn_id {
                broken.push(format!("lease {lease_id} is of two turns"));
            }
        }
    }
    broken
}

/// A session that was told that the guard gave it the stick has that turn in the log, and nobody else has.
fn told_edits(evidence: &Evidence) -> Vec<String> {
    let is_given = |row: &&Row| row.event_type == "claim" && row.reason.as_deref() == Some("guard");
    let given: HashMap<i64, &Row> = evidence.rows.iter().filter(is_given).map(|row| (row.turn_id, row)).collect();
    let mut broken = Vec::new();
    for told in &evidence.told {
        for entry in &told.entries {
            let Fact::Given { turn_id } = &entry.fact else { continue };
            if given.get(turn_id).is_none_or(|row| row.from != told.agent_id) {
                broken.push(format!("{} edits in turn {turn_id}, and the log has {:?}", told.name, given.get(turn_id)));
            }
        }
    }
    broken
}

/// When everybody has left, nobody holds a stick that the guard gave.
fn given_back(evidence: &Evidence) -> Vec<String> {
    if evidence.is_given { vec![format!("{:?} is left over", evidence.stick)] } else { Vec::new() }
}

/// An edit that the daemon let through was decided at no time at which another actor had the stick for certain: from when it was told of
/// its turn until it asked for something that only the holder is granted.
fn no_edit_in_anothers_turn(evidence: &Evidence) -> Vec<String> {
    let turn_of: HashMap<i64, i64> = evidence.rows.iter().map(|row| (row.event_seq, row.turn_id)).collect();
    let actor = |name: &str| name.split('.').next().map(str::to_owned);
    let entries = || evidence.told.iter().flat_map(|told| told.entries.iter().map(move |entry| (told, entry)));
    // The actor that has a turn, and the times between which it has it.
    let mut turns: BTreeMap<i64, (Option<String>, u64, u64)> = BTreeMap::new();
    for (told, entry) in entries() {
        if let Fact::Turn { turn_id, .. } = entry.fact {
            let (_, from, _) = turns.entry(turn_id).or_insert((actor(&told.name), entry.at, 0));
            *from = entry.at.min(*from);
        }
    }
    for (told, entry) in entries() {
        let (turn_id, asked_at) = match entry.fact {
            Fact::Renewed { turn_id, asked_at } => (Some(turn_id), asked_at),
            Fact::Gave { event_seq, asked_at, .. } => (turn_of.get(&event_seq).copied(), asked_at),
            _ => continue,
        };
        let turn = turn_id.and_then(|turn_id| turns.get_mut(&turn_id)).filter(|turn| turn.0 == actor(&told.name));
        if let Some((_, _, until)) = turn {
            *until = asked_at.max(*until);
        }
    }
    let mut broken = Vec::new();
    for (told, entry) in entries() {
        let Fact::Edited { asked_at, answered_at } = entry.fact else { continue };
        let is_inside = |(holder, from, until): &(Option<String>, u64, u64)| {
            *holder != actor(&told.name) && *from < asked_at && answered_at < *until
        };
        let of_others = turns.iter().filter(|(_, turn)| is_inside(turn));
        broken
            .extend(of_others.map(|turn| format!("{} edited from {asked_at} to {answered_at} in {turn:?}", told.name)));
    }
    broken
}

/// Once a member was told that it has a later turn, a heartbeat for an earlier one is refused.
fn no_turn_renewed_after_its_end(evidence: &Evidence) -> Vec<String> {
    let entries = || evidence.told.iter().flat_map(|told| told.entries.iter().map(move |entry| (told, entry)));
    let mut told_at: BTreeMap<i64, u64> = BTreeMap::new();
    for (_, entry) in entries() {
        if let Fact::Turn { turn_id, .. } = entry.fact {
            let first = told_at.entry(turn_id).or_insert(entry.at);
            *first = entry.at.min(*first);
        }
    }
    let mut broken = Vec::new();
    for (told, entry) in entries() {
        if let Fact::Renewed { turn_id, asked_at } = entry.fact
            && let Some((later, at)) = told_at.range(turn_id + 1..).find(|(_, at)| **at < asked_at)
        {
            broken
                .push(format!("{} renewed turn {turn_id} at {asked_at}, and turn {later} was told at {at}", told.name));
        }
    }
    broken
}

fn nothing_lost(evidence: &Evidence) -> Vec<String> {
    let rows: HashMap<i64, &Row> = evidence.rows.iter().map(|row| (row.event_seq, row)).collect();
    let mut broken = Vec::new();
    for told in &evidence.told {
        for entry in &told.entries {
            let is_kept = match &entry.fact {
                Fact::Sent { event_seq, event_id, body } => rows.get(event_seq).is_some_and(|row| {
                    row.event_id == *event_id && row.from == told.agent_id && row.body.as_ref() == Some(body)
                }),
                Fact::Gave { turn_id, event_seq, .. } => rows.get(event_seq).is_some_and(|row| {
                    matches!(row.event_type.as_str(), "release" | "pass")
                        && row.from == told.agent_id
                        && (*turn_id < 0 || row.turn_id == *turn_id)
                }),
                Fact::Noted { note_id } => evidence.notes.contains(note_id),
                _ => true,
            };
            if !is_kept {
                broken.push(format!("{} was told {:?}", told.name, entry.fact));
            }
        }
    }
    broken
}

/// The messages that each member was shown by anything.
fn shown(evidence: &Evidence) -> HashMap<&str, BTreeSet<i64>> {
    let mut shown: HashMap<&str, BTreeSet<i64>> = HashMap::new();
    for told in &evidence.told {
        let seqs = told.entries.iter().filter_map(|entry| match entry.fact {
            Fact::Shown { event_seq } => Some(event_seq),
            _ => None,
        });
        shown.entry(&told.agent_id).or_default().extend(seqs);
    }
    for output in evidence.outputs.iter().filter(|output| output.kind != "events") {
        shown.entry(&output.agent_id).or_default().extend(&output.event_seqs);
    }
    shown
}

fn everything_shown(evidence: &Evidence) -> Vec<String> {
    let shown = shown(evidence);
    let mut broken = Vec::new();
    for delivery in &evidence.deliveries {
        let was_shown = shown.get(delivery.recipient.as_str()).is_some_and(|seqs| seqs.contains(&delivery.event_seq));
        let is_well = match delivery.state.as_str() {
            "delivered" | "answered" => was_shown,
            // Somebody may have been about to confirm it.
            "expired" => delivery.has_deadline,
            _ => false,
        };
        if !is_well {
            broken.push(format!("{delivery:?}, shown: {was_shown}"));
        }
    }
    broken
}

/// Who asked and is not there is told nothing. Who wanted to hear of the message too is also told that it expired after the question
/// was over.
fn questions_end_once(evidence: &Evidence) -> Vec<String> {
    let most = |delivery: &Delivery| 1 + i64::from(delivery.has_notices);
    let told_again =
        evidence.deliveries.iter().filter(|delivery| delivery.told.is_some_and(|count| count > most(delivery)));
    told_again.map(|delivery| format!("{delivery:?}")).collect()
}

fn nothing_shown_again(evidence: &Evidence) -> Vec<String> {
    let mut broken = Vec::new();
    let mut confirmed: HashMap<(&str, i64), u64> = HashMap::new();
    for told in &evidence.told {
        for entry in &told.entries {
            if let Fact::Confirmed { event_seqs } = &entry.fact {
                for event_seq in event_seqs {
                    let first = confirmed.entry((&told.agent_id, *event_seq)).or_insert(entry.at);
                    *first = entry.at.min(*first);
                }
            }
        }
    }
    for told in &evidence.told {
        for entry in &told.entries {
            if let Fact::Shown { event_seq } = entry.fact
                && let Some(at) = confirmed.get(&(told.agent_id.as_str(), event_seq))
                && entry.at > *at
            {
                broken.push(format!("{} was shown {event_seq} at {}, confirmed at {at}", told.name, entry.at));
            }
        }
    }
    for output in evidence.outputs.iter().filter(|output| output.kind != "events") {
        let mut seen = BTreeSet::new();
        for event_seq in &output.event_seqs {
            if !seen.insert(event_seq) {
                broken.push(format!("{}.{} shows {event_seq} twice", output.name, output.kind));
            }
            // What is read in the end comes after every confirmation.
            if output.name.contains(".rest.") && confirmed.contains_key(&(output.agent_id.as_str(), *event_seq)) {
                broken.push(format!("{} shows {event_seq}, which was confirmed", output.name));
            }
        }
    }
    broken
}

fn in_order(evidence: &Evidence) -> Vec<String> {
    let mut broken = Vec::new();
    for told in &evidence.told {
        // A message whose sender got no answer may arrive later than the next one, or never.
        let mut newest = 0;
        for entry in &told.entries {
            if let Fact::Sent { event_seq, .. } = entry.fact {
                if event_seq <= newest {
                    broken.push(format!("{}: {event_seq} was sent after {newest}", told.name));
                }
                newest = event_seq;
            }
        }
    }
    let mut bodies = BTreeSet::new();
    for body in evidence.rows.iter().filter_map(|row| row.body.as_ref()).filter(|body| body.contains('#')) {
        if !bodies.insert(body) {
            broken.push(format!("sent twice: {body}"));
        }
    }
    for output in evidence.outputs.iter().filter(|output| output.kind == "follow") {
        let late = output.event_seqs.windows(2).enumerate().skip(LATE_LINES).filter(|(_, pair)| pair[0] >= pair[1]);
        broken.extend(late.map(|(line, pair)| format!("{}, line {line}: {pair:?}", output.name)));
    }
    broken
}

/// A stream shows every event between its first and its last.
fn no_gap(evidence: &Evidence) -> Vec<String> {
    let mut broken = Vec::new();
    let streams = evidence.outputs.iter().filter(|output| output.kind == "events");
    for Output { name, event_seqs, .. } in streams {
        let (Some(first), Some(last)) = (event_seqs.first(), event_seqs.last()) else { continue };
        let expected = evidence.rows.iter().map(|row| row.event_seq).filter(|seq| (*first..=*last).contains(seq));
        if let Some((there, expected)) = event_seqs.iter().zip(expected).find(|(there, expected)| **there != *expected)
        {
            broken.push(format!("{name} shows {there} where the log has {expected}"));
        }
    }
    broken
}

/// A member does not count as ended between two messages of one of its processes. (It can count as ended twice for one death:
/// a request that waited in the daemon's socket while its sender was killed brings the sender back for a moment.)
fn nobody_buried_alive(evidence: &Evidence) -> Vec<String> {
    let is_death = |row: &&Row| row.event_type == "member_left" && row.reason.as_deref() == Some("process_exited");
    let deaths: Vec<&Row> = evidence.rows.iter().filter(is_death).collect();
    let mut broken = Vec::new();
    // The last part of a name is the number of a process of an actor, or what this program did in the actor's name.
    let processes = evidence.told.iter().filter(|told| told.name.ends_with(|c: char| c.is_ascii_digit()));
    for told in processes {
        let sent = || {
            told.entries.iter().filter_map(|entry| match entry.fact {
                Fact::Sent { event_seq, .. } => Some(event_seq),
                _ => None,
            })
        };
        let (Some(first), Some(last)) = (sent().min(), sent().max()) else { continue };
        let wrong = deaths.iter().filter(|row| row.from == told.agent_id && (first..last).contains(&row.event_seq));
        broken.extend(wrong.map(|row| format!("{}, which sent {first} to {last}: {row:?}", told.name)));
    }
    broken
}

fn broken_promises(evidence: &Evidence) -> Vec<String> {
    let mut broken = Vec::new();
    for told in &evidence.told {
        for entry in &told.entries {
            if let Fact::Broken { what } = &entry.fact {
                broken.push(format!("{}: {what}", told.name));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{Delivery, Told};
    use crate::journal::Entry;

    fn row(event_seq: i64, event_type: &str, from: &str, turn_id: i64) -> Row {
        let (event_type, from) = (event_type.to_owned(), from.to_owned());
        Row {
            event_seq,
            event_id: format!("e{event_seq}"),
            event_type,
            turn_id,
            from,
            to: None,
            reason: None,
            body: None,
        }
    }

    fn message(event_seq: i64, from: &str, body: &str) -> Row {
        Row { body: Some(body.into()), ..row(event_seq, "message_sent", from, 0) }
    }

    fn sent(event_seq: i64, body: &str) -> Fact {
        Fact::Sent { event_seq, event_id: format!("e{event_seq}"), body: body.into() }
    }

    fn turn(turn_id: i64, lease: &str) -> Fact {
        Fact::Turn { turn_id, lease_id: lease.into(), by_takeover: false }
    }

    fn told(name: &str, agent: &str, facts: Vec<Fact>) -> Told {
        let entries = facts.into_iter().zip(1..).map(|(fact, at)| Entry { at, fact }).collect();
        Told { name: name.into(), agent_id: agent.into(), entries }
    }

    fn output(name: &str, agent: &str, kind: &str, event_seqs: &[i64]) -> Output {
        Output { name: name.into(), agent_id: agent.into(), kind: kind.into(), event_seqs: event_seqs.to_vec() }
    }

    /// A small world in which everything is well: `a` sends and has a turn, `b` reads and has the next one.
    fn well() -> Evidence {
        let delivered = |event_seq| {
            let (recipient, state) = ("b".into(), "delivered".into());
            Delivery { event_seq, recipient, state, has_deadline: false, told: Some(1), has_notices: false }
        };
        let gave = Fact::Gave { turn_id: 1, event_seq: 4, asked_at: 4 };
        let a = vec![sent(1, "a.1 #1"), sent(2, "a.1 #2"), turn(1, "l1"), gave, Fact::Noted { note_id: "n".into() }];
        let b = vec![Fact::Shown { event_seq: 1 }, Fact::Confirmed { event_seqs: vec![1] }, turn(2, "l2")];
        Evidence {
            rows: vec![
                message(1, "a", "a.1 #1"),
                message(2, "a", "a.1 #2"),
                row(3, "claim", "a", 1),
                row(4, "release", "a", 1),
                row(5, "claim", "b", 2),
            ],
            stick: Stick { turn_id: 2, owner: Some("b".into()), reserved_for: None },
            is_given: false,
            deliveries: vec![delivered(1), delivered(2)],
            notes: ["n".to_owned()].into(),
            told: vec![told("a-0.1", "a", a), told("b-0.1", "b", b)],
            outputs: vec![output("b-0.rest.1", "b", "recv", &[2]), output("b-0.1.1", "b", "events", &[3, 4, 5])],
            integrity: "ok".into(),
            panics: Vec::new(),
        }
    }

    fn broken(evidence: &Evidence) -> Vec<&'static str> {
        ALL.iter().filter(|(_, check)| !check(evidence).is_empty()).map(|(what, _)| *what).collect()
    }

    #[test]
    fn nothing_is_found_where_nothing_is_wrong() {
        assert_eq!(broken(&well()), Vec::<&str>::new());
    }

    #[test]
    fn an_edit_that_was_perhaps_decided_before_or_after_the_turn_of_another_is_none_in_it() {
        for (who, asked_at, answered_at) in [(1, 3, 7), (1, 4, 8), (1, 2, 9), (0, 4, 7)] {
            let mut evidence = well();
            let gave = Fact::Gave { turn_id: 1, event_seq: 4, asked_at: 8 };
            evidence.told[0].entries.push(Entry { at: 9, fact: gave });
            evidence.told[who].entries.push(Entry { at: 9, fact: Fact::Edited { asked_at, answered_at } });
            assert_eq!(broken(&evidence), Vec::<&str>::new(), "{who} {asked_at} {answered_at}");
        }
    }

    #[test]
    fn each_check_finds_what_it_is_for() {
        type Damage = fn(&mut Evidence);
        let cases: &[(&str, Damage)] = &[
            ("the database is sound", |e| e.integrity = "row 7 missing from index".into()),
            ("the daemon never panics", |e| e.panics.push("thread 'writer' panicked".into())),
            ("at most one member holds the stick", |e| e.rows[4].turn_id = 1),
            ("at most one member holds the stick", |e| e.rows[3].event_type = "note_added".into()),
            ("at most one member holds the stick", |e| e.stick.owner = Some("a".into())),
            ("a turn is what its holder was told", |e| e.told[0].entries[2].fact = turn(2, "l1")),
            ("a turn is what its holder was told", |e| e.told[1].entries[2].fact = turn(2, "l1")),
            ("an edit is told of a turn that is in the log", |e| {
                e.told[0].entries.push(Entry { at: 10, fact: Fact::Given { turn_id: 1 } });
            }),
            ("what the guard gave is given back", |e| e.is_given = true),
            ("nobody edits in the turn of another", |e| {
                // `a` has turn 1 from 3 to 8 at least.
                let gave = Fact::Gave { turn_id: 1, event_seq: 4, asked_at: 8 };
                e.told[0].entries.push(Entry { at: 9, fact: gave });
                let fact = Fact::Edited { asked_at: 4, answered_at: 7 };
                e.told[1].entries.push(Entry { at: 7, fact });
            }),
            ("a turn that is over is not renewed", |e| {
                let fact = Fact::Renewed { turn_id: 1, asked_at: 9 };
                e.told[0].entries.push(Entry { at: 10, fact });
            }),
            ("nothing acknowledged is lost", |e| e.rows[0].event_id = "another".into()),
            ("nothing acknowledged is lost", |e| e.notes.clear()),
            ("nothing acknowledged is lost", |e| e.rows[3].from = "b".into()),
            ("every message is shown to each recipient", |e| e.deliveries[0].state = "pending".into()),
            ("every message is shown to each recipient", |e| e.deliveries[0].state = "expired".into()),
            ("every message is shown to each recipient", |e| e.outputs[0].event_seqs.clear()),
            ("the end of a question is told once", |e| e.deliveries[0].told = Some(2)),
            ("nothing is shown again after its confirmation", |e| e.outputs[0].event_seqs.push(1)),
            ("nothing is shown again after its confirmation", |e| e.outputs[0].event_seqs.push(2)),
            ("nothing is shown again after its confirmation", |e| {
                e.outputs.push(output("b-0.2.1", "b", "mcp", &[2, 2]));
            }),
            ("nothing is shown again after its confirmation", |e| {
                e.told.push(told("b-0.2", "b", vec![turn(2, "l2"), turn(2, "l2"), Fact::Shown { event_seq: 1 }]));
            }),
            ("messages of one sender are sent once and keep their order", |e| e.rows[1].body = Some("a.1 #1".into())),
            ("messages of one sender are sent once and keep their order", |e| e.told[0].entries.swap(0, 1)),
            ("a stream of events has no gap", |e| e.outputs[1].event_seqs = vec![3, 5]),
            ("no living process is declared dead", |e| {
                let death = row(2, "member_left", "a", 0);
                e.rows.push(Row { reason: Some("process_exited".into()), ..death });
                e.told[0].entries.push(Entry { at: 9, fact: sent(3, "") });
            }),
            ("nothing happens to an actor that must not", |e| {
                e.told[1].entries.push(Entry { at: 9, fact: Fact::Broken { what: "it hangs".into() } });
            }),
        ];
        for (what, damage) in cases {
            let mut evidence = well();
            damage(&mut evidence);
            assert!(broken(&evidence).contains(what), "{what} is not found: {:?}", broken(&evidence));
        }
        let checked: BTreeSet<&str> = cases.iter().map(|(what, _)| *what).collect();
        assert_eq!(checked, ALL.iter().map(|(what, _)| *what).collect(), "a check without a case");
    }
}
