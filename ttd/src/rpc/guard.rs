//! `check_guard`, and what the guard says to the hooks of an edit. The rule is `tt_rules::guard`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jsonrpsee::Extensions;
use serde::{Deserialize, Serialize};
use tt_proto::block::frame_facts;
use tt_proto::hello::Anchor;
use tt_proto::policy::Guard;
use tt_proto::requests::{CheckGuard, GuardAction, GuardAnswer, GuardVerdict};
use tt_proto::session::SessionStatus;
use tt_proto::{AgentId, Error, RoomId};
use tt_rules::{Blocker, Command, GiveBackCause, GuardedAction, Reply, Room, Verdict};

use super::register::{Module, register};
use super::{Call, Shared, blocking};
use crate::background;
use crate::delivery::blocked::{self, Holder};
use crate::delivery::facts;
use crate::engine::{CommandContext, Outcome};
use crate::liveness::Processes;
use crate::workspace::{self, Directory};

/// Adds the methods of this group.
pub(super) fn register_all(module: &mut Module) -> Result<(), Error> {
    register::<CheckGuard, _>(module, check_guard)
}

/// What the guard says to an edit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The edit is not to be made, for this reason.
    pub refusal: Option<String>,
    /// What the model is told.
    pub lines: Vec<String>,
    /// The session was given the stick.
    pub is_given: bool,
}

/// Looks at the files that the session of a hook is about to change.
pub(super) async fn check_edits(shared: &Shared, call: &Call, paths: Vec<String>) -> Result<Said, Error> {
    let mut said = Said::default();
    for (room_id, files) in rooms_of(shared, call, paths).await? {
        let checked = check(shared, call, &room_id, GuardedAction::Edit { files }, false).await?;
        match checked.verdict {
            GuardVerdict::Passes | GuardVerdict::Overridden => {}
            GuardVerdict::Refused => {
                said.refusal = Some(blocked::refusal(&checked.lines));
                return Ok(said);
            }
            GuardVerdict::Taken | GuardVerdict::Warned => {
                said.is_given |= checked.verdict == GuardVerdict::Taken;
                said.lines.extend(checked.lines);
            }
        }
    }
    Ok(said)
}

/// One line for a session that runs a command while somebody else has the stick.
pub(super) async fn shell_advice(shared: &Shared, me: &AgentId, cwd: Option<&str>) -> Result<Option<String>, Error> {
    let store = shared.engine.store();
    let directories = Path::new(cwd.unwrap_or_default()).ancestors();
    let rooms: Vec<RoomId> =
        directories.filter_map(|directory| store.known_room_at(&mut std::iter::once(directory))).collect();
    for room_id in rooms {
        let me = me.clone();
        let found = shared.engine.look(&room_id, move |room, _| {
            let Some(_) = room.member(&me).filter(|member| member.status.is_member()) else { return Ok(None) };
            let other = room.owner.as_ref().filter(|owner| **owner != me && room.policy.guard != Guard::Off);
            Ok(Some(other.map(|owner| {
                let name = facts::name(room, owner);
                format!(
                    "{name} holds the stick (turn {}). A command that changes files waits for it: tt wait.",
                    room.turn_id
                )
            })))
        });
        if let Some(advice) = found.await? {
            return Ok(advice);
        }
    }
    Ok(None)
}

/// Why the stick of a session would be given back now, from what is known of it. For those who want it.
pub(super) fn done_with_it(shared: &Shared, holder: &AgentId) -> Option<GiveBackCause> {
    match shared.sessions.status_of(holder)?.status {
        SessionStatus::Idle => Some(GiveBackCause::TurnEnded),
        SessionStatus::Asking => {
            Some(GiveBackCause::Asking).filter(|_| !shared.recipients.told().may_ask_to_edit(holder))
        }
        SessionStatus::Gone => Some(GiveBackCause::SessionEnded),
        SessionStatus::Busy | SessionStatus::Unknown => None,
    }
}

/// What a check came to, with what is said about it.
struct Checked {
    verdict: GuardVerdict,
    turn_id: i64,
    lines: Vec<String>,
}

/// What the command came to.
#[derive(Serialize, Deserialize)]
struct Answer {
    verdict: GuardVerdict,
    turn_id: i64,
    taken: Vec<String>,
    /// The holder was given the stick by the guard.
    holder_by_guard: Option<AgentId>,
}

async fn check(
    shared: &Shared,
    call: &Call,
    room_id: &RoomId,
    action: GuardedAction,
    is_overridden: bool,
) -> Result<Checked, Error> {
    let mut answer = ask(shared, call, room_id, action.clone(), is_overridden).await?;
    if let (GuardVerdict::Refused, Some(holder)) = (answer.verdict, &answer.holder_by_guard)
        && let Some(cause) = done_with_it(shared, holder).filter(|cause| *cause != GiveBackCause::Asking)
    {
        // Its session is done, and only the word of that did not come.
        background::give_back(&shared.engine, holder, &[(room_id.clone(), answer.turn_id)], cause).await?;
        answer = ask(shared, call, room_id, action, is_overridden).await?;
    }
    let lines = match answer.verdict {
        GuardVerdict::Passes => Vec::new(),
        GuardVerdict::Taken => answer.taken,
        GuardVerdict::Refused | GuardVerdict::Warned | GuardVerdict::Overridden => {
            why_not(shared, call.identity()?.agent_id.clone(), room_id).await?
        }
    };
    Ok(Checked { verdict: answer.verdict, turn_id: answer.turn_id, lines })
}

async fn ask(
    shared: &Shared,
    call: &Call,
    room_id: &RoomId,
    action: GuardedAction,
    is_overridden: bool,
) -> Result<Answer, Error> {
    let CommandContext { mut caller, key } = shared.context(call).await?;
    let is_person = caller.identity.is_person();
    caller.joins = !is_person;
    let me = caller.agent_id().clone();
    let answer = move |outcome: &Outcome<'_>| {
        let verdict = match outcome.reply {
            Reply::Guard(Verdict::Taken) => GuardVerdict::Taken,
            Reply::Guard(Verdict::Blocked { is_enforced: true, .. }) if !is_person => GuardVerdict::Refused,
            Reply::Guard(Verdict::Blocked { .. }) => GuardVerdict::Warned,
            Reply::Guard(Verdict::Overridden { .. }) => GuardVerdict::Overridden,
            _ => GuardVerdict::Passes,
        };
        let room = outcome.room;
        let taken = if verdict == GuardVerdict::Taken { taken_lines(room, &me) } else { Vec::new() };
        let holder_by_guard = room.owner.clone().filter(|_| room.edits.by_guard);
        Answer { verdict, turn_id: room.turn_id, taken, holder_by_guard }
    };
    let command = Command::CheckGuard { action, is_overridden };
    shared.engine.run(room_id, CommandContext { caller, key }, command, answer).await
}

/// What a session is told that was just given the stick.
fn taken_lines(room: &Room, me: &AgentId) -> Vec<String> {
    let turn = room.turn_id;
    let until = if room.edits.commit.is_some() { "your commit is done" } else { "your turn ends" };
    let said =
        format!("Nobody had the stick: it is yours now (turn {turn}) until {until}. To keep it for longer: tt try.");
    std::iter::once(said).chain(facts::handoff(room, me)).collect()
}

/// Why it is not the turn of a member, as it is now.
async fn why_not(shared: &Shared, me: AgentId, room_id: &RoomId) -> Result<Vec<String>, Error> {
    let (now, sessions) = (shared.engine.clock().now(), shared.sessions.clone());
    let look = move |room: &Room, reader: &dyn tt_store::Reader| {
        let removed = room.member(&me).filter(|member| member.status == tt_proto::room::MemberStatus::Kicked);
        let by = match (removed, &room.owner, &room.reserved_for) {
            (Some(member), ..) => Blocker::Removal(member.removal.clone()),
            (None, Some(owner), _) => Blocker::Holder(owner.clone()),
            (None, None, Some(agent)) => Blocker::Reserved(agent.clone()),
            (None, None, None) => match tt_rules::goes_before(room, &me, now.lease) {
                Some(member) => Blocker::Waiter(member.agent_id.clone()),
                None => return Ok(vec!["The stick is free by now.".to_owned()]),
            },
        };
        let since = match by {
            Blocker::Holder(_) => reader.turn_started_at(&room.room_id, room.turn_id)?,
            _ => None,
        };
        let status = room.owner.as_ref().and_then(|owner| sessions.status_of(owner)).map(|status| status.status);
        let holder = Holder { held_for: since.map(|since| now.lease.since(now.to_lease(since))), status };
        Ok(blocked::lines(room, &me, &by, holder, now))
    };
    shared.engine.look(room_id, look).await
}

/// The rooms to which paths belong, each with the names of its files: below the path of the room where they are in it.
async fn rooms_of(shared: &Shared, call: &Call, paths: Vec<String>) -> Result<BTreeMap<RoomId, Vec<String>>, Error> {
    let cwd = call.session()?.cwd.clone();
    let (home, store) = (shared.home.clone(), shared.engine.store().clone());
    let permit = shared.lookup_permit(|| paths.first().cloned().unwrap_or_default()).await?;
    blocking(move || {
        let _permit = permit;
        let mut rooms: BTreeMap<RoomId, Vec<String>> = BTreeMap::new();
        for path in paths {
            let Ok(asked) = workspace::absolute(&path, cwd.as_deref()) else { continue };
            let Some((directory, file)) = Directory::of_file(&asked, home.as_deref()) else { continue };
            let found = directory.candidates().into_iter().find_map(|candidate| {
                let room_id = store.known_room_at(&mut std::iter::once(candidate.as_path()))?;
                Some((room_id, candidate))
            });
            let Some((room_id, top)) = found else { continue };
            let name = file.strip_prefix(&top).unwrap_or(&file).to_string_lossy().into_owned();
            rooms.entry(room_id).or_default().push(name);
        }
        Ok(rooms)
    })
    .await
}

async fn check_guard(shared: Arc<Shared>, extensions: Extensions, request: CheckGuard) -> Result<GuardAnswer, Error> {
    let call = Call::of(&extensions)?;
    let CheckGuard { context_path, action, process, is_overridden } = request;
    let action = GuardAction::required(&action)?;
    let passes = GuardAnswer { verdict: GuardVerdict::Passes, room_id: None, turn_id: None, text: None };
    let cwd = call.session()?.cwd.clone();
    let candidates =
        blocking(shared.lookup(cwd.as_deref(), &context_path, |directory| directory.candidates()).await?).await?;
    let store = shared.engine.store();
    let Some(room_id) = store.known_room_at(&mut candidates.iter().map(PathBuf::as_path)) else { return Ok(passes) };
    let guarded = match action {
        GuardAction::Commit => GuardedAction::Commit { process: git_process(&shared, &call, process).await },
        GuardAction::Push => GuardedAction::Push,
    };
    let checked = check(&shared, &call, &room_id, guarded, is_overridden.unwrap_or(false)).await?;
    let text = (!checked.lines.is_empty()).then(|| frame_facts(&checked.lines));
    Ok(GuardAnswer { verdict: checked.verdict, room_id: Some(room_id), turn_id: Some(checked.turn_id), text })
}

/// The process of git, whose end gives the stick back.
async fn git_process(shared: &Shared, call: &Call, pid: Option<u32>) -> Option<Anchor> {
    let (pid, peer) = (pid?, call.connection.pid?);
    let above = move |processes: &dyn Processes| {
        let found = processes.lineage(peer).find(|process| process.pid == pid);
        found.map(|process| processes.anchor(&process))
    };
    shared.looks.run(above).await.ok().flatten()
}
