//! The guard in the reference: who is given the stick by an edit or a commit, and who gets it back how.

use crate::history::Cause;
use crate::messages::notify;
use crate::reference::{NAMES, Outcome, PERSON, Reference, Room, Status, belongs, event, name};

/// What somebody is about to do.
#[derive(Debug, Clone)]
pub(crate) enum Action {
    Edit(String),
    Commit(Option<u32>),
    Push,
}

/// The turn of a holder: whether the guard gave it the stick, what it edited, and the commit for which it has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    pub(crate) by_guard: bool,
    pub(crate) files: Vec<String>,
    pub(crate) commit: Option<u32>,
}

impl Reference {
    /// What the guard says, in words.
    pub(crate) fn check_guard(
        &mut self,
        agent: usize,
        process: Option<u32>,
        action: &Action,
        overridden: bool,
    ) -> (Outcome, String) {
        let said = std::cell::RefCell::new("passes".to_owned());
        let outcome = self.by_member(agent, process, &|this, room, events| {
            if room.holder == Some(agent) {
                note(room, action);
                return Ok(());
            }
            if !this.is_guarded(room, agent) {
                return Ok(());
            }
            if let Some((why, who)) = this.blocked(room, agent) {
                let word = if overridden { "overridden" } else { "blocked" };
                *said.borrow_mut() = format!("{word} {why} {}", name(who));
                if overridden {
                    let what = match action {
                        Action::Edit(_) => "edit",
                        Action::Commit(_) => "commit",
                        Action::Push => "push",
                    };
                    events.push(event("guard_overridden", room.turn, NAMES[agent], name(who), what));
                    if let Some(who) = who.filter(|who| belongs(room, *who)) {
                        let says = format!("{} went on with a {what} although it was not its turn", NAMES[agent]);
                        notify(room, who, "guard_overridden", None, &says, 0, events);
                    }
                }
                return Ok(());
            }
            let takes = matches!(action, Action::Edit(_) | Action::Commit(Some(_)));
            let is_member = room.members.get(&agent).is_some_and(|m| m.status == Status::Active);
            if takes && is_member && !overridden {
                this.claim(room, agent, "guard", events);
                room.given.by_guard = true;
                note(room, action);
                if let Action::Commit(git) = action {
                    room.given.commit = *git;
                }
                *said.borrow_mut() = "taken".to_owned();
            }
            Ok(())
        });
        (outcome, said.into_inner())
    }

    /// Another agent is there; or a person who has the stick, or waits for it.
    fn is_guarded(&self, room: &Room, agent: usize) -> bool {
        room.members.iter().any(|(other, member)| {
            let has_it = room.holder == Some(*other) || room.kept_for == Some(*other);
            match *other {
                _ if *other == agent => false,
                PERSON => belongs(room, PERSON) && has_it || self.present(member) && self.waits(member),
                _ => self.present(member),
            }
        })
    }

    fn blocked(&self, room: &Room, agent: usize) -> Option<(&'static str, Option<usize>)> {
        if room.members.get(&agent).is_some_and(|m| m.status == Status::Kicked) {
            return Some(("removed", None));
        }
        match (room.holder, room.kept_for) {
            (Some(holder), _) => Some(("holder", Some(holder))),
            (None, Some(recipient)) => (recipient != agent).then_some(("reserved", Some(recipient))),
            (None, None) => {
                let in_grace = room.given_at.is_some_and(|at| self.now < at + self.times.grace);
                let between_waits = room.members.iter().filter(|(other, m)| {
                    **other != agent
                        && room.giver != Some(**other)
                        && self.present(m)
                        && m.waiting.is_none()
                        && self.waits(m)
                });
                let (fairest, member) =
                    between_waits.min_by_key(|(_, m)| Self::fairness(room, m)).filter(|_| in_grace)?;
                let mine = room.members.get(&agent).filter(|_| room.giver != Some(agent));
                let first = mine.is_none_or(|mine| Self::fairness(room, member) < Self::fairness(room, mine));
                first.then_some(("waiter", Some(*fairest)))
            }
        }
    }

    /// A session is done with its turn, or does not know of it. `late`: that was another turn than this.
    pub(crate) fn end_turn(&mut self, agent: usize, cause: Cause, late: bool) -> Outcome {
        self.command(None, &|this, room, events| {
            let wanted = || {
                let wants = |(other, m): (&usize, &crate::reference::Member)| {
                    *other != agent && this.present(m) && m.waiting != Some(crate::history::Kind::Park) && this.waits(m)
                };
                room.members.iter().any(wants)
            };
            let due = match cause {
                Cause::Forgotten => true,
                Cause::Asking => room.given.by_guard && wanted(),
                _ => room.given.by_guard,
            };
            if room.holder == Some(agent) && due && !late {
                this.hand_back(room, agent, cause, events);
            }
            Ok(())
        })
    }

    /// A process ended, or a member is not heard of any more: what the guard gave it is free again.
    pub(crate) fn free_what_was_given(&self, room: &mut Room, events: &mut Vec<String>) {
        let Some(holder) = room.holder.filter(|_| room.given.by_guard) else { return };
        let is_done = room.given.commit.is_some_and(|git| self.dead.contains(&git));
        if is_done {
            self.hand_back(room, holder, Cause::Committed, events);
        } else if room.members[&holder].status != Status::Active {
            self.hand_back(room, holder, Cause::SessionEnded, events);
        }
    }

    fn hand_back(&self, room: &mut Room, agent: usize, cause: Cause, events: &mut Vec<String>) {
        let words = automatic(room, cause);
        room.has_contents = true;
        room.holder = None;
        room.lease = None;
        room.received = None;
        room.given = Given::default();
        room.pending = Some((words, agent, false));
        room.giver = Some(agent);
        room.given_at = Some(self.now);
        let next = self.next(room);
        events.push(event("release", room.turn, NAMES[agent], name(next), cause.word()));
        if let Some(next) = next {
            self.claim(room, next, "sequence", events);
        }
    }
}

fn note(room: &mut Room, action: &Action) {
    let Action::Edit(file) = action else { return };
    room.given.commit = None;
    if !room.given.files.contains(file) {
        room.given.files.push(file.clone());
    }
}

/// The handoff that nobody wrote. In a history no turn edits more files than one names.
fn automatic(room: &Room, cause: Cause) -> String {
    let files = &room.given.files;
    let what = match files.len() {
        0 => "no file that was edited is known".to_owned(),
        1..=3 => format!("edited {}", files.join(", ")),
        _ => format!("edited {} and more", files[..3].join(", ")),
    };
    let artifacts: Vec<String> = files.iter().map(|file| format!(r#"{{"path":"{file}","role":"examine"}}"#)).collect();
    let artifacts = match artifacts.len() {
        0 => String::new(),
        _ => format!(r#","artifacts":[{}]"#, artifacts.join(",")),
    };
    let continues = room.received.as_ref().and_then(|(words, from)| {
        let written: serde_json::Value = serde_json::from_str(words).unwrap();
        if written["automatic"] == true {
            let before = &written["continues"];
            return before.is_object().then(|| {
                let (from, status) = (&before["from_agent_id"], &before["status"]);
                format!(r#"{{"from_agent_id":{from},"status":{status},"next_action":{}}}"#, before["next_action"])
            });
        }
        let (status, next) = (&written["status"], &written["next_action"]);
        Some(format!(r#"{{"from_agent_id":"{}","status":{status},"next_action":{next}}}"#, NAMES[*from]))
    });
    let continues = continues.map_or_else(String::new, |continues| format!(r#","continues":{continues}"#));
    format!(
        r#"{{"status":"{what}; given back because {}","next_action":"look at what was changed before you change it again"{artifacts},"automatic":true,"turn_id":{}{continues}}}"#,
        cause.in_words(),
        room.turn
    )
}
