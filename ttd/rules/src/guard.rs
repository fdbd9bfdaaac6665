//! The guard: the stick is kept where files are changed. An agent that edits while nobody has the stick is given it, and gives it
//! back when it is done; while another member has it, the edit is blocked. Whether a path belongs to the room, and what a harness
//! does with an answer, is decided elsewhere.

use tt_proto::event::EventType;
use tt_proto::handoff::{Artifact, AutomaticHandoff, Continued, Handoff, RawJson, Role};
use tt_proto::hello::Anchor;
use tt_proto::message::Notice;
use tt_proto::policy::Guard;
use tt_proto::room::{MemberStatus, StickState};
use tt_proto::turn::ClaimReason;
use tt_proto::{AgentId, Error};

use crate::command::Caller;
use crate::delivery::NewDelivery;
use crate::room::{EventDraft, Grant, Member, Moment, Removal, Room, Waiting};
use crate::time::LeaseTime;
use crate::{fairness, names, notices, turn};

/// How many edited files are remembered of a turn, and how many bytes of each name.
pub const MAX_EDITED_FILES: usize = 16;
const MAX_FILE_BYTES: usize = 256;

/// How many bytes of what a member wrote an automatic handoff repeats.
const MAX_CONTINUED_BYTES: usize = 500;

/// How many files the status of an automatic handoff names.
const MAX_NAMED_FILES: usize = 3;

/// What an agent is about to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuardedAction {
    /// Change these files.
    Edit {
        files: Vec<String>,
    },
    /// Commit. The stick is given back when this process of git has ended.
    Commit {
        process: Option<Anchor>,
    },
    Push,
}

/// What the guard says to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is nothing to say.
    Passes,
    /// Nobody had the stick, and now the caller has it.
    Taken,
    /// It is the turn of somebody else. `is_enforced`: it must not go on.
    Blocked { by: Blocker, is_enforced: bool },
    /// It is the turn of somebody else, and the caller goes on by its own decision.
    Overridden { by: Blocker },
}

/// Why it is not the caller's turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    Holder(AgentId),
    /// The stick is reserved for another member.
    Reserved(AgentId),
    /// The stick is free, and this member, which is between two waits, comes first.
    Waiter(AgentId),
    /// The caller was removed from the room.
    Removal(Option<Removal>),
}

/// Why a stick is given back without a word of its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveBackCause {
    /// The turn of its session ended.
    TurnEnded,
    /// The turn was broken off.
    BrokenOff,
    /// A question to the user of its session is open. Only given back while another member waits for it.
    Asking,
    /// Its session ended.
    SessionEnded,
    /// The commit for which it was taken is done.
    Committed,
    /// Its session went on to another conversation, which was not told of it. The only cause that ends a turn that its holder
    /// asked for.
    Forgotten,
}

impl GiveBackCause {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TurnEnded => "turn_ended",
            Self::BrokenOff => "broken_off",
            Self::Asking => "asking",
            Self::SessionEnded => "session_ended",
            Self::Committed => "committed",
            Self::Forgotten => "forgotten",
        }
    }

    const fn in_words(self) -> &'static str {
        match self {
            Self::TurnEnded => "its turn ended",
            Self::BrokenOff => "its turn was broken off",
            Self::Asking => "it waits for an answer of its user",
            Self::SessionEnded => "its session ended",
            Self::Committed => "its commit is done",
            Self::Forgotten => "its session went on to another conversation, which does not know of it",
        }
    }
}

/// A verdict, with what else it comes to.
pub(crate) struct Checked {
    pub(crate) verdict: Verdict,
    pub(crate) grant: Option<Grant>,
    /// Tells the holder that it was overridden.
    pub(crate) notice: Option<NewDelivery>,
    /// The process with which the turn ends.
    pub(crate) watch: Option<Anchor>,
}

impl Checked {
    fn of(verdict: Verdict) -> Self {
        Self { verdict, grant: None, notice: None, watch: None }
    }
}

/// Decides whether a caller may do something. It has become a member before, if it may be one.
pub(crate) fn check(
    room: &mut Room,
    caller: &Caller,
    action: &GuardedAction,
    is_overridden: bool,
    moment: &Moment,
) -> Checked {
    let me = caller.agent_id();
    if room.owner.as_ref() == Some(me) {
        note_edit(room, action);
        return Checked::of(Verdict::Passes);
    }
    let guard = room.policy.guard;
    if guard == Guard::Off
        || room.state == StickState::Closed
        || !acts_on(room, me, caller.identity.is_person(), moment.now)
    {
        return Checked::of(Verdict::Passes);
    }
    if let Some(by) = blocker(room, me, moment.now) {
        if !is_overridden {
            return Checked::of(Verdict::Blocked { by, is_enforced: guard == Guard::Enforce });
        }
        let notice = record_override(room, me, &by, action);
        return Checked { notice, ..Checked::of(Verdict::Overridden { by }) };
    }
    let commit = match action {
        GuardedAction::Edit { .. } => None,
        GuardedAction::Commit { process: Some(process) } => Some(process.clone()),
        // Nothing would give it back.
        GuardedAction::Commit { process: None } | GuardedAction::Push => return Checked::of(Verdict::Passes),
    };
    let is_member = room.member(me).is_some_and(|member| member.status == MemberStatus::Active);
    if guard != Guard::Enforce || is_overridden || !is_member {
        return Checked::of(Verdict::Passes);
    }
    let grant = Some(turn::grant(room, me, ClaimReason::Guard, moment));
    room.edits.by_guard = true;
    note_edit(room, action);
    room.edits.commit.clone_from(&commit);
    Checked { grant, watch: commit, ..Checked::of(Verdict::Taken) }
}

/// Whether the guard has anything to do with this member: another agent is there, or a person who holds the stick or waits for it.
fn acts_on(room: &Room, me: &AgentId, is_person: bool, now: LeaseTime) -> bool {
    let has_it =
        |m: &Member| room.owner.as_ref() == Some(&m.agent_id) || room.reserved_for.as_ref() == Some(&m.agent_id);
    let counts = |m: &Member| match m.is_person() {
        false => m.is_present(),
        // One that closed its terminals keeps what it holds.
        true => !is_person && (m.status.is_member() && has_it(m) || m.is_present() && m.waits_again(&room.policy, now)),
    };
    room.members().any(|m| m.agent_id != *me && counts(m))
}

/// Why this member may not have the stick now.
fn blocker(room: &Room, me: &AgentId, now: LeaseTime) -> Option<Blocker> {
    let known = room.member(me).filter(|member| member.status == MemberStatus::Kicked);
    if let Some(kicked) = known {
        return Some(Blocker::Removal(kicked.removal.clone()));
    }
    match (&room.owner, &room.reserved_for) {
        (Some(owner), _) => Some(Blocker::Holder(owner.clone())),
        (None, Some(agent)) if agent == me => None,
        (None, Some(agent)) => Some(Blocker::Reserved(agent.clone())),
        (None, None) => fairness::goes_before(room, me, now).map(|m| Blocker::Waiter(m.agent_id.clone())),
    }
}

/// Remembers what the holder changes. It does more than a commit now, if the turn was for one.
fn note_edit(room: &mut Room, action: &GuardedAction) {
    let GuardedAction::Edit { files } = action else { return };
    room.edits.commit = None;
    for file in files {
        let file = shortened(file, MAX_FILE_BYTES);
        if room.edits.files.contains(&file) {
            continue;
        }
        if room.edits.files.len() >= MAX_EDITED_FILES {
            room.edits.more = true;
            return;
        }
        room.edits.files.push(file);
    }
}

fn shortened(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = (0..=max_bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

/// Writes down that somebody went on although it is not its turn, and tells the holder.
fn record_override(room: &mut Room, me: &AgentId, by: &Blocker, action: &GuardedAction) -> Option<NewDelivery> {
    let what = match action {
        GuardedAction::Edit { .. } => "edit",
        GuardedAction::Commit { .. } => "commit",
        GuardedAction::Push => "push",
    };
    let holder = match by {
        Blocker::Holder(agent) | Blocker::Reserved(agent) | Blocker::Waiter(agent) => Some(agent.clone()),
        Blocker::Removal(_) => None,
    };
    let mut event = EventDraft::new(EventType::GuardOverridden, room.turn_id, me);
    event.to.clone_from(&holder);
    event.reason = Some(what.to_owned());
    room.events.push(event);
    let holder = holder.filter(|agent| room.member(agent).is_some_and(|member| member.status.is_member()))?;
    let name = names::unique_name(room, me).unwrap_or(me.as_str());
    let text = format!("{name} went on with a {what} although it was not its turn");
    Some(notices::tell(room, &holder, Notice::GuardOverridden, text))
}

/// Another member that waits for the stick.
pub fn wanted_by(room: &Room, me: &AgentId, now: LeaseTime) -> Option<AgentId> {
    let wants = |m: &&Member| {
        let waits = m.waiting != Waiting::Parked && m.waits_again(&room.policy, now);
        m.agent_id != *me && m.is_present() && waits
    };
    room.members().find(wants).map(|m| m.agent_id.clone())
}

/// Gives a stick back for its holder, if the cause asks for that.
pub(crate) fn give_back(room: &mut Room, agent: &AgentId, cause: GiveBackCause, moment: &Moment) -> Option<Grant> {
    let is_due = match cause {
        GiveBackCause::Forgotten => true,
        GiveBackCause::Asking => room.edits.by_guard && wanted_by(room, agent, moment.now).is_some(),
        _ => room.edits.by_guard,
    };
    if room.owner.as_ref() != Some(agent) || !is_due {
        return None;
    }
    let handoff = automatic_handoff(room, cause);
    turn::release_to_next(room, agent, &handoff, Some(cause.as_str()), moment)
}

/// A process ended: that of a commit, or that of a holder that was given the stick.
pub(crate) fn process_exited(room: &mut Room, moment: &Moment) -> Option<Grant> {
    let holder = room.owner.clone()?;
    if room.edits.commit.is_some() && room.edits.commit_ended {
        return give_back(room, &holder, GiveBackCause::Committed, moment);
    }
    let is_there = |member: &Member| member.status == MemberStatus::Active;
    if room.member(&holder).is_some_and(is_there) {
        return None;
    }
    give_back(room, &holder, GiveBackCause::SessionEnded, moment)
}

/// What is known of the turn, for the next holder.
fn automatic_handoff(room: &Room, cause: GiveBackCause) -> RawJson {
    let files = &room.edits.files;
    let named: Vec<&str> = files.iter().take(MAX_NAMED_FILES).map(String::as_str).collect();
    let more = if files.len() > named.len() || room.edits.more { " and more" } else { "" };
    let what = match named.as_slice() {
        [] => "no file that was edited is known".to_owned(),
        named => format!("edited {}{more}", named.join(", ")),
    };
    let artifact = |path: &String| Artifact { path: path.clone(), lines: None, role: Role::Examine, note: None };
    let handoff = AutomaticHandoff {
        status: format!("{what}; given back because {}", cause.in_words()),
        next_action: "look at what was changed before you change it again".to_owned(),
        artifacts: files.iter().map(artifact).collect(),
        automatic: true,
        turn_id: room.turn_id,
        continues: continued(room),
    };
    RawJson::of(&handoff).unwrap_or_default()
}

/// The last handoff that a member wrote: the one that this turn came with, or the one that that one goes on with.
fn continued(room: &Room) -> Option<Continued> {
    let held = room.current_handoff.as_ref()?;
    if let Ok(automatic) = serde_json::from_str::<AutomaticHandoff>(held.handoff.as_str())
        && automatic.automatic
    {
        return automatic.continues;
    }
    let read: Result<Handoff, Error> = Handoff::check(&held.handoff);
    let handoff = read.ok()?;
    Some(Continued {
        from_agent_id: held.from.clone(),
        status: shortened(&handoff.status, MAX_CONTINUED_BYTES),
        next_action: shortened(&handoff.next_action, MAX_CONTINUED_BYTES),
    })
}

#[cfg(test)]
mod tests {
    use tt_proto::hello::FoundBy;
    use tt_proto::room::Liveness;

    use super::*;
    use crate::testing::{at, caller, id, moment, room};

    fn edit(files: &[&str]) -> GuardedAction {
        GuardedAction::Edit { files: files.iter().map(|file| (*file).to_owned()).collect() }
    }

    fn check_at(room: &mut Room, agent: &str, action: &GuardedAction, seconds: i64) -> Verdict {
        check(room, &caller(agent, 1), action, false, &moment(seconds)).verdict
    }

    fn edits(room: &mut Room, agent: &str) -> Verdict {
        check_at(room, agent, &edit(&["f"]), 0)
    }

    fn blocked(by: Blocker) -> Verdict {
        Verdict::Blocked { by, is_enforced: true }
    }

    fn waits(room: &mut Room, agent: &str, waiting: Waiting) {
        turn::wait(room, &id(agent), waiting, &moment(0)).unwrap();
        turn::settle(room, &moment(0));
    }

    fn person(room: &mut Room, agent: &str) {
        room.member_mut(&id(agent)).unwrap().found_by = Some("user".into());
    }

    fn handoff_of(room: &Room) -> AutomaticHandoff {
        serde_json::from_str(room.pending_handoff.as_ref().unwrap().handoff.as_str()).unwrap()
    }

    #[test]
    fn the_first_edit_takes_a_free_stick_and_the_others_are_blocked() {
        let mut room = room(&["a", "b"]);
        assert_eq!(edits(&mut room, "a"), Verdict::Taken);
        assert_eq!((room.owner.clone(), room.turn_id, room.edits.by_guard), (Some(id("a")), 1, true));
        assert!(room.lease_id.is_some(), "fenced as any other turn");
        assert_eq!(edits(&mut room, "a"), Verdict::Passes, "it has it");
        assert_eq!(edits(&mut room, "b"), blocked(Blocker::Holder(id("a"))));
        assert_eq!(room.turn_id, 1, "a refusal takes nothing");
    }

    #[test]
    fn it_acts_only_where_somebody_else_works() {
        type Change = fn(&mut Room);
        let table: [(&str, Change, Verdict); 7] = [
            ("another agent", |_| {}, Verdict::Taken),
            ("one that is gone", |room| room.member_mut(&id("b")).unwrap().liveness = Liveness::Gone, Verdict::Passes),
            ("one that left", |room| room.member_mut(&id("b")).unwrap().status = MemberStatus::Left, Verdict::Passes),
            ("a person", |room| person(room, "b"), Verdict::Passes),
            (
                "a person that waits",
                |room| {
                    person(room, "b");
                    room.member_mut(&id("b")).unwrap().last_wait_at = Some(at(0));
                },
                Verdict::Taken,
            ),
            (
                "a person that holds it and closed its terminal",
                |room| {
                    person(room, "b");
                    waits(room, "b", Waiting::Listening { alone: true });
                    let member = room.member_mut(&id("b")).unwrap();
                    (member.status, member.liveness) = (MemberStatus::Away, Liveness::Gone);
                },
                blocked(Blocker::Holder(id("b"))),
            ),
            ("nobody wants a guard", |room| room.policy.guard = Guard::Off, Verdict::Passes),
        ];
        for (who, change, expected) in table {
            let mut room = room(&["a", "b"]);
            change(&mut room);
            assert_eq!(edits(&mut room, "a"), expected, "{who}");
        }
        assert_eq!(edits(&mut room(&["a"]), "a"), Verdict::Passes, "alone");
    }

    #[test]
    fn advice_refuses_nothing_and_takes_nothing() {
        let mut room = room(&["a", "b"]);
        room.policy.guard = Guard::Advise;
        assert_eq!((edits(&mut room, "a"), room.owner.clone()), (Verdict::Passes, None));
        waits(&mut room, "b", Waiting::Listening { alone: false });
        let expected = Verdict::Blocked { by: Blocker::Holder(id("b")), is_enforced: false };
        assert_eq!(edits(&mut room, "a"), expected);
    }

    #[test]
    fn a_reservation_is_for_the_one_it_names() {
        let mut room = room(&["a", "b", "c"]);
        waits(&mut room, "a", Waiting::Listening { alone: false });
        let lease = room.lease_id.clone().unwrap();
        let handoff = RawJson::parse(r#"{"status":"s","next_action":"n"}"#.into()).unwrap();
        turn::pass(&mut room, &id("a"), &lease, 1, &id("b"), &handoff, &moment(0)).unwrap();
        assert_eq!(edits(&mut room, "c"), blocked(Blocker::Reserved(id("b"))));
        assert_eq!(edits(&mut room, "b"), Verdict::Taken);
        assert_eq!(room.current_handoff.as_ref().map(|held| held.from.clone()), Some(id("a")));
        give_back(&mut room, &id("b"), GiveBackCause::TurnEnded, &moment(1));
        let continues = handoff_of(&room).continues.unwrap();
        assert_eq!((continues.from_agent_id, continues.next_action.as_str()), (id("a"), "n"), "it is not lost");
        assert_eq!(check_at(&mut room, "c", &edit(&["g"]), 60), Verdict::Taken);
        give_back(&mut room, &id("c"), GiveBackCause::TurnEnded, &moment(61));
        assert_eq!(handoff_of(&room).continues.unwrap().from_agent_id, id("a"), "nor by a second one");
    }

    #[test]
    fn who_waited_goes_first_for_as_long_as_the_grace_lasts() {
        let mut room = room(&["a", "b"]);
        edits(&mut room, "a");
        room.member_mut(&id("b")).unwrap().last_wait_at = Some(at(9));
        give_back(&mut room, &id("a"), GiveBackCause::TurnEnded, &moment(10));
        assert_eq!(check_at(&mut room, "a", &edit(&["f"]), 11), blocked(Blocker::Waiter(id("b"))));
        assert_eq!(check_at(&mut room.clone(), "b", &edit(&["f"]), 11), Verdict::Taken);
        assert_eq!(check_at(&mut room, "a", &edit(&["f"]), 20), Verdict::Taken, "it did not come");
        give_back(&mut room, &id("a"), GiveBackCause::TurnEnded, &moment(200));
        assert_eq!(check_at(&mut room, "a", &edit(&["f"]), 201), Verdict::Taken, "nobody waits");
    }

    #[test]
    fn a_member_that_had_its_turn_waits_no_more() {
        let handoff = RawJson::parse(r#"{"status":"s","next_action":"n"}"#.into()).unwrap();
        let mut room = room(&["a", "b", "c"]);
        let has_a_turn = |room: &mut Room, agent: &str| {
            waits(room, agent, Waiting::Listening { alone: false });
            // It asks for what it has, which is no wait.
            waits(room, agent, Waiting::Listening { alone: false });
            let lease = room.lease_id.clone().unwrap();
            turn::release(room, &id(agent), &lease, room.turn_id, &handoff, &moment(0)).unwrap();
            room.member_mut(&id(agent)).unwrap().waiting = Waiting::No;
        };
        has_a_turn(&mut room, "b");
        has_a_turn(&mut room, "c");
        has_a_turn(&mut room, "a");
        assert_eq!(check_at(&mut room, "c", &edit(&["f"]), 1), Verdict::Taken, "b had its turn and left");
        assert_eq!(wanted_by(&room, &id("c"), at(1)), None);
        room.member_mut(&id("b")).unwrap().last_wait_at = Some(at(1));
        assert_eq!(wanted_by(&room, &id("c"), at(1)), Some(id("b")), "it waited since");
    }

    #[test]
    fn it_is_given_back_with_the_names_of_the_files_to_the_one_who_waits() {
        let mut room = room(&["a", "b"]);
        let long = "ü".repeat(400);
        check_at(&mut room, "a", &edit(&["src/a.rs", &long]), 0);
        check_at(&mut room, "a", &edit(&["src/a.rs", "src/b.rs"]), 1);
        assert_eq!(give_back(&mut room, &id("b"), GiveBackCause::TurnEnded, &moment(2)), None, "it is not b's");
        assert_eq!(give_back(&mut room, &id("a"), GiveBackCause::Asking, &moment(2)), None, "nobody wants it");
        waits(&mut room, "b", Waiting::Listening { alone: false });
        let grant = give_back(&mut room, &id("a"), GiveBackCause::Asking, &moment(2)).unwrap();
        assert_eq!((grant.agent_id, grant.reason), (id("b"), ClaimReason::Sequence));
        let handoff = room.current_handoff.clone().unwrap();
        assert_eq!(Handoff::check(&handoff.handoff).map(|handoff| handoff.artifacts.len()), Ok(3));
        assert!(handoff.handoff.as_str().contains("src/b.rs") && !handoff.handoff.as_str().contains(&long));
        let release = room.events.iter().find(|event| event.event_type == EventType::Release).unwrap();
        assert_eq!((release.reason.as_deref(), release.to.clone()), (Some("asking"), Some(id("b"))));
        assert_eq!(room.edits, crate::room::TurnEdits::default(), "another turn");
    }

    #[test]
    fn the_longest_automatic_handoff_is_one_that_may_be_given() {
        let mut room = room(&["a", "b"]);
        let files: Vec<String> = (0..40).map(|n| format!("{n}{}", "\u{1}".repeat(4000))).collect();
        check_at(&mut room, "a", &GuardedAction::Edit { files }, 0);
        let said = serde_json::json!({"status": "\u{1}".repeat(9000), "next_action": "\u{1}".repeat(1000)});
        let handoff = RawJson::parse(said.to_string()).unwrap();
        let at = crate::room::HandoffAt::Stored(1);
        room.current_handoff = Some(crate::room::HeldHandoff { at, from: id("b"), passed: true, handoff });
        give_back(&mut room, &id("a"), GiveBackCause::TurnEnded, &moment(1));
        let handoff = &room.pending_handoff.as_ref().unwrap().handoff;
        assert!(Handoff::check(handoff).is_ok(), "{}", handoff.as_str().len());
        assert!(room.edits.files.is_empty() && handoff_of(&room).artifacts.len() == MAX_EDITED_FILES);
    }

    #[test]
    fn a_turn_that_was_asked_for_is_its_holders_to_give_back() {
        let mut room = room(&["a", "b"]);
        edits(&mut room, "a");
        waits(&mut room, "a", Waiting::Listening { alone: false });
        assert_eq!(room.owner, Some(id("a")));
        give_back(&mut room, &id("a"), GiveBackCause::TurnEnded, &moment(1));
        assert_eq!(room.owner, Some(id("a")));
        give_back(&mut room, &id("a"), GiveBackCause::Forgotten, &moment(1));
        assert_eq!((room.owner.clone(), handoff_of(&room).artifacts.len()), (None, 1));
    }

    #[test]
    fn a_commit_has_the_stick_until_its_process_ends() {
        let mut room = room(&["a", "b"]);
        let git = Anchor { host_id: "h".into(), pid: 7, process_started_at: "t".into() };
        let commit = GuardedAction::Commit { process: Some(git.clone()) };
        assert_eq!(check_at(&mut room, "a", &GuardedAction::Commit { process: None }, 0), Verdict::Passes);
        assert_eq!(check_at(&mut room, "a", &GuardedAction::Push, 0), Verdict::Passes);
        assert_eq!(room.owner, None);
        let checked = check(&mut room, &caller("a", 1), &commit, false, &moment(0));
        assert_eq!((checked.verdict, checked.watch), (Verdict::Taken, Some(git)));
        assert_eq!(process_exited(&mut room, &moment(1)), None);
        assert_eq!(room.owner, Some(id("a")));
        room.edits.commit_ended = true;
        process_exited(&mut room, &moment(1));
        assert_eq!((room.owner.clone(), handoff_of(&room).automatic), (None, true));
        check_at(&mut room, "a", &commit, 60);
        check_at(&mut room, "a", &edit(&["f"]), 61);
        room.edits.commit_ended = true;
        process_exited(&mut room, &moment(62));
        assert_eq!(room.owner, Some(id("a")), "it edits now");
    }

    #[test]
    fn a_holder_that_died_gives_back_what_the_guard_gave_it_and_nothing_else() {
        for by_guard in [true, false] {
            let mut room = room(&["a", "b"]);
            edits(&mut room, "a");
            room.edits.by_guard = by_guard;
            room.member_mut(&id("a")).unwrap().liveness = Liveness::Gone;
            crate::membership::processes_exited(&mut room);
            process_exited(&mut room, &moment(1));
            assert_eq!(room.owner.is_none(), by_guard);
        }
    }

    #[test]
    fn an_override_is_written_down_and_its_holder_is_told() {
        let mut room = room(&["a", "b"]);
        let overridden = |room: &mut Room| check(room, &caller("b", 1), &GuardedAction::Push, true, &moment(0));
        assert_eq!(overridden(&mut room).verdict, Verdict::Passes, "there is nothing to override");
        assert!(room.events.is_empty());
        edits(&mut room, "a");
        room.events.clear();
        let checked = overridden(&mut room);
        assert_eq!(checked.verdict, Verdict::Overridden { by: Blocker::Holder(id("a")) });
        assert_eq!(checked.notice.map(|notice| notice.recipient), Some(id("a")));
        let event = &room.events[0];
        assert_eq!((event.event_type, event.to.clone()), (EventType::GuardOverridden, Some(id("a"))));
        assert_eq!((event.reason.as_deref(), room.owner.clone()), (Some("push"), Some(id("a"))));
    }

    #[test]
    fn a_person_is_no_reason_for_another_person() {
        let mut room = room(&["a", "b"]);
        person(&mut room, "a");
        person(&mut room, "b");
        waits(&mut room, "b", Waiting::Listening { alone: true });
        let mut me = caller("a", 1);
        me.identity.found_by = FoundBy::User;
        assert_eq!(check(&mut room, &me, &GuardedAction::Push, false, &moment(0)).verdict, Verdict::Passes);
        room.member_mut(&id("b")).unwrap().found_by = None;
        let verdict = check(&mut room, &me, &GuardedAction::Push, false, &moment(0)).verdict;
        assert_eq!(verdict, blocked(Blocker::Holder(id("b"))));
    }

    #[test]
    fn one_that_was_removed_is_told_so() {
        let mut room = room(&["a", "b", "c"]);
        let member = room.member_mut(&id("c")).unwrap();
        member.status = MemberStatus::Kicked;
        let removal = Some(Removal { by: id("a"), reason: Some("looped".into()) });
        member.removal.clone_from(&removal);
        assert_eq!(edits(&mut room, "c"), blocked(Blocker::Removal(removal)));
    }
}
