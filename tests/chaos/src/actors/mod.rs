//! The kinds of actors, a file each. A new surface joins the world as a new kind: implement [`Actor`] and name it in [`ALL`].

mod agent;
mod follower;
mod mcp;
mod person;
mod sandboxed;
mod session;

use std::sync::OnceLock;

use crate::Fallible;
use crate::stage::Stage;

/// A kind of actor. Each actor is a process that plays until its standard input ends, or until it is killed; then it is
/// started again.
pub(crate) trait Actor: Sync {
    /// Its name in files and in the report.
    fn kind(&self) -> &'static str;

    /// How many of them there are.
    fn count(&self) -> usize;

    /// The agent id of one of them. The daemon is told it by a variable.
    fn agent_id(&self, number: usize) -> String {
        format!("chaos:{}-{number}", self.kind())
    }

    /// Whether the daemon finds out by itself who this is.
    fn is_anonymous(&self, _number: usize) -> bool {
        false
    }

    /// Whether it is one member from the beginning to the end, whose id others know.
    fn has_fixed_id(&self) -> bool {
        true
    }

    /// The command that the actor's process is started through, if it is not started straight away.
    fn launcher(&self) -> &'static [&'static str] {
        &[]
    }

    /// Plays. Everything the actor is told goes to the journal before it is used; everything that shows messages writes them
    /// to a file of [`Stage::output`].
    fn play(&self, stage: &mut Stage) -> Fallible<()>;
}

/// All kinds.
pub(crate) const ALL: &[&dyn Actor] =
    &[&agent::Agent, &person::Person, &follower::Follower, &mcp::Mcp, &sandboxed::Sandboxed, &session::Session];

/// The kinds that are left out of this run.
static LEFT_OUT: OnceLock<Vec<String>> = OnceLock::new();

/// Leaves kinds out of this run.
pub(crate) fn leave_out(kinds: &[String]) {
    LEFT_OUT.get_or_init(|| kinds.to_vec());
}

pub(crate) fn left_out() -> &'static [String] {
    LEFT_OUT.get().map_or(&[], Vec::as_slice)
}

/// Every actor of a world: its kind and its number.
pub(crate) fn cast() -> impl Iterator<Item = (&'static dyn Actor, usize)> {
    let is_there = |kind: &&&dyn Actor| left_out().iter().all(|name| name != kind.kind());
    ALL.iter().filter(is_there).flat_map(|kind| (0..kind.count()).map(move |number| (*kind, number)))
}

/// Every actor that is one member from the beginning to the end.
pub(crate) fn members() -> impl Iterator<Item = (&'static dyn Actor, usize)> {
    cast().filter(|(actor, _)| actor.has_fixed_id())
}

/// The agent ids of all actors but one.
pub(crate) fn others(kind: &str, number: usize) -> Vec<String> {
    let other = |(actor, n): &(&dyn Actor, usize)| (actor.kind(), *n) != (kind, number);
    members().filter(other).map(|(actor, n)| actor.agent_id(n)).collect()
}
