//! A person at a shell: one command of `tt` after the other. The first of them is known by the user's name alone.

use std::time::Duration;

use serde_json::Value;

use super::Actor;
use crate::Fallible;
use crate::journal::{self, Fact};
use crate::stage::Stage;

#[derive(Debug)]
pub(crate) struct Person;

impl Actor for Person {
    fn kind(&self) -> &'static str {
        "person"
    }

    fn count(&self) -> usize {
        2
    }

    fn agent_id(&self, number: usize) -> String {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
        match user.filter(|_| number == 0) {
            Some(user) => format!("human:{}", user.name),
            None => format!("chaos:person-{number}"),
        }
    }

    fn is_anonymous(&self, number: usize) -> bool {
        self.agent_id(number).starts_with("human:")
    }

    fn play(&self, stage: &mut Stage) -> Fallible<()> {
        while !stage.is_over() {
            if stage.run(&["join", "--json"], None)?.status.success() {
                break;
            }
        }
        while !stage.is_over() {
            match stage.dice.between(0, 12) {
                0..=3 => send(stage)?,
                4..=6 => drop(stage.run(&["msg", "recv", "--json", "--max-replay", "100000"], Some("recv"))?),
                7 => drop(stage.run(&["wait", "--timeout", "300ms", "--json"], Some("wait"))?),
                8..=9 => take_turn(stage)?,
                10 => note(stage)?,
                _ => drop(stage.run(&["state", "--json"], None)?),
            }
            std::thread::sleep(Duration::from_millis(stage.dice.between(0, 150)));
        }
        Ok(())
    }
}

/// Sends one message with `tt msg send`.
pub(super) fn send(stage: &mut Stage) -> Fallible<()> {
    let (body, to) = (stage.next_body(), stage.someone());
    let sent = stage.run(&["msg", "send", to.as_deref().unwrap_or("room"), &body, "--json"], None)?.json();
    if let Some(sent) = sent {
        let (event_seq, event_id) = (number(&sent, "event_seq"), text(&sent, "event_id"));
        stage.write(Fact::Sent { event_seq, event_id, body })?;
    }
    Ok(())
}

/// Takes the stick with `tt try`, if it is free, and gives it on.
pub(super) fn take_turn(stage: &mut Stage) -> Fallible<()> {
    let Some(turn) = stage.run(&["try", "--json"], None)?.json() else { return Ok(()) };
    if turn["status"] != "your_turn" {
        return Ok(());
    }
    let (turn_id, lease_id) = (number(&turn, "turn_id"), text(&turn, "lease_id"));
    stage.write(Fact::Turn { turn_id, lease_id, by_takeover: false })?;
    let release = ["release", "--status", "looked at it", "--next-action", "go on", "--json"];
    let asked_at = journal::now();
    if let Some(gave) = stage.run(&release, None)?.json() {
        // It releases the turn the caller has then, which is a later one if this was taken over in between.
        stage.write(Fact::Gave { turn_id: -1, event_seq: number(&gave, "event_seq"), asked_at })?;
    }
    Ok(())
}

fn note(stage: &mut Stage) -> Fallible<()> {
    let body = stage.next_body();
    if let Some(noted) = stage.run(&["notes", "add", &body, "--json"], None)?.json() {
        stage.write(Fact::Noted { note_id: text(&noted, "note_id") })?;
    }
    Ok(())
}

pub(super) fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or(-1)
}

pub(super) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}
