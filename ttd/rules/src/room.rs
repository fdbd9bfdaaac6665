//! A room with its members: everything a rule may look at, and change.

use std::path::Path;
use std::sync::Arc;

use tt_proto::event::EventType;
use tt_proto::handoff::RawJson;
use tt_proto::hello::Anchor;
use tt_proto::policy::Policy;
use tt_proto::room::{DerivedState, Liveness, MemberStatus, StickState};
use tt_proto::turn::ClaimReason;
use tt_proto::{AgentId, Error, ErrorCode, LeaseId, RoomId};

use crate::takeover;
use crate::time::{DeadlineTime, LeaseTime};

/// A room, its stick and its members.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    pub room_id: RoomId,
    pub canonical_path: String,
    pub state: StickState,
    pub turn_id: i64,
    pub owner: Option<AgentId>,
    pub lease_id: Option<LeaseId>,
    /// As granted. Any later activity of the holder extends it; see [`Room::lease_end`].
    pub lease_expires_at: Option<LeaseTime>,
    pub reserved_for: Option<AgentId>,
    pub claim_expires_at: Option<LeaseTime>,
    /// Whether the log already says that the reservation ran out.
    pub reservation_expired: bool,
    pub pending_handoff: Option<HeldHandoff>,
    pub current_handoff: Option<HeldHandoff>,
    /// Who gave the stick away last, and when. The grace window begins then.
    pub released_by: Option<AgentId>,
    pub released_at: Option<LeaseTime>,
    /// The ordinal of the last holder, from which the sequence goes on.
    pub sequence_index: i64,
    /// Members are shared with the room as it was before, until a rule changes one.
    pub members: Vec<Arc<Member>>,
    /// What is known of the turn under way. Empty while nobody has the stick.
    pub edits: TurnEdits,
    pub policy: Policy,
    /// What this command adds to the log.
    pub events: Vec<EventDraft>,
    /// The room is deleted with everything in it.
    pub deleted: bool,
}

/// What the holder of the stick changed in its turn, as far as its hooks told, and whether it asked for the turn.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnEdits {
    /// The guard gave the stick to its holder, and gives it back.
    pub by_guard: bool,
    /// The files that were edited, below the room's path where they are in it, in the order of the first edit.
    pub files: Vec<String>,
    /// More files than these were edited.
    pub more: bool,
    /// The process of git for whose commit alone the stick was taken.
    pub commit: Option<Anchor>,
    /// That process has ended. Never stored.
    pub commit_ended: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    pub agent_id: AgentId,
    pub ordinal: i64,
    pub status: MemberStatus,
    pub display_name: String,
    pub harness: Option<String>,
    pub session_id: Option<String>,
    pub found_by: Option<String>,
    /// The process it lives in; of a person, the terminal it opened last.
    pub anchor: Option<Anchor>,
    /// The terminals of a person, by the processes that lead their sessions. It is there while any of them is.
    pub terminals: Vec<Anchor>,
    pub liveness: Liveness,
    pub joined_at: LeaseTime,
    pub last_seen_at: LeaseTime,
    pub last_wait_at: Option<LeaseTime>,
    /// The newest turn it held, if it ever held one.
    pub last_held_turn: Option<i64>,
    /// Who kicked it, and why. It stays out until it joins by itself.
    pub removal: Option<Removal>,
    /// Nothing wakes it until then.
    pub quiet_until: Option<DeadlineTime>,
    pub waiting: Waiting,
}

/// Who removed a member, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    pub by: AgentId,
    pub reason: Option<String>,
}

/// Whether a member is in a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    No,
    /// Waits for messages and takeovers, and is granted nothing.
    Parked,
    /// Takes the stick when it may. `alone`: even when no other member is present.
    Listening {
        alone: bool,
    },
}

/// A handoff and the event that holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldHandoff {
    pub at: HandoffAt,
    pub from: AgentId,
    /// How it was given: by a pass, or by a release.
    pub passed: bool,
    pub handoff: RawJson,
}

/// The event that holds a handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandoffAt {
    Stored(i64),
    /// An event this command adds, by its index.
    Draft(usize),
}

/// How a person is found, as [`Member::found_by`] has it.
const PERSON: &str = "user";

/// An event before the store gave it a number.
#[derive(Debug, Clone, PartialEq)]
pub struct EventDraft {
    pub event_type: EventType,
    pub turn_id: Option<i64>,
    pub from: Option<AgentId>,
    pub to: Option<AgentId>,
    pub handoff: Option<RawJson>,
    pub reason: Option<String>,
    pub payload: Option<RawJson>,
}

impl EventDraft {
    pub fn new(event_type: EventType, turn_id: i64, from: &AgentId) -> Self {
        Self {
            event_type,
            turn_id: Some(turn_id),
            from: Some(from.clone()),
            to: None,
            handoff: None,
            reason: None,
            payload: None,
        }
    }
}

#[cfg(test)]
thread_local! {
    /// How many members were looked at, for tests of how the rules grow with a room.
    pub(crate) static LOOKED_AT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// When a command runs, and the lease of the one turn it can grant.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    pub(crate) now: LeaseTime,
    pub(crate) fresh_lease: LeaseId,
}

/// A turn that was granted, and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grant {
    pub(crate) agent_id: AgentId,
    pub(crate) reason: ClaimReason,
}

impl Room {
    /// A new, idle room.
    pub fn new(room_id: RoomId, path: &Path, policy: Policy) -> Self {
        Self {
            room_id,
            canonical_path: path.to_string_lossy().into_owned(),
            state: StickState::Idle,
            turn_id: 0,
            owner: None,
            lease_id: None,
            lease_expires_at: None,
            reserved_for: None,
            claim_expires_at: None,
            reservation_expired: false,
            pending_handoff: None,
            current_handoff: None,
            released_by: None,
            released_at: None,
            sequence_index: 0,
            members: Vec::new(),
            edits: TurnEdits::default(),
            policy,
            events: Vec::new(),
            deleted: false,
        }
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> + Clone {
        self.members.iter().map(|member| {
            #[cfg(test)]
            LOOKED_AT.set(LOOKED_AT.get() + 1);
            &**member
        })
    }

    pub fn member(&self, agent_id: &AgentId) -> Option<&Member> {
        self.members().find(|m| m.agent_id == *agent_id)
    }

    pub fn member_mut(&mut self, agent_id: &AgentId) -> Option<&mut Member> {
        self.members.iter_mut().find(|m| m.agent_id == *agent_id).map(Arc::make_mut)
    }

    /// The caller as an active member, or the refusal it gets.
    pub fn active_member(&self, agent_id: &AgentId) -> Result<&Member, Error> {
        self.member(agent_id).filter(|m| m.status == MemberStatus::Active).ok_or_else(|| self.not_a_member(agent_id))
    }

    /// The refusal for a caller that is not a member. One that was kicked is told why.
    pub(crate) fn not_a_member(&self, agent_id: &AgentId) -> Error {
        let kicked = self.member(agent_id).filter(|m| m.status == MemberStatus::Kicked);
        let error = match kicked.map(|m| m.removal.as_ref()) {
            None => Error::new(ErrorCode::UnknownMember, format!("{agent_id} is not a member of this room")),
            Some(None) => Error::new(ErrorCode::Kicked, format!("{agent_id} was kicked from this room")),
            Some(Some(Removal { by, reason })) => {
                let why = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
                Error::new(ErrorCode::Kicked, format!("{by} kicked {agent_id} from this room{why}"))
                    .detail("kicked_by", by.as_str())
                    .detail("reason", reason.clone())
            }
        };
        error.detail("room_id", self.room_id.as_str()).detail("agent_id", agent_id.as_str())
    }

    pub fn open(&self) -> Result<(), Error> {
        if self.state == StickState::Closed {
            return Err(
                Error::new(ErrorCode::RoomClosed, "this room is closed").detail("room_id", self.room_id.as_str())
            );
        }
        Ok(())
    }

    pub fn present(&self) -> impl Iterator<Item = &Member> {
        self.members().filter(|m| m.is_present())
    }

    /// Whether any member but these is present.
    pub fn anyone_but(&self, not: &[&AgentId]) -> bool {
        self.present().any(|m| !not.contains(&&m.agent_id))
    }

    /// When the current turn runs out: as granted, or later when its holder was active since.
    pub fn lease_end(&self) -> Option<LeaseTime> {
        let granted = self.lease_expires_at?;
        let owner = self.owner.as_ref().and_then(|owner| self.member(owner))?;
        Some(granted.max(owner.last_seen_at + self.policy.owner_lease_ttl))
    }

    /// The member that holds the stick or has it reserved.
    pub fn held_by(&self) -> Option<&Member> {
        self.owner.as_ref().or(self.reserved_for.as_ref()).and_then(|agent| self.member(agent))
    }

    /// Replaces the drafts of its events by their numbers in the log.
    pub fn saved(&mut self, event_seqs: impl Iterator<Item = i64> + Clone) {
        for held in [&mut self.pending_handoff, &mut self.current_handoff].into_iter().flatten() {
            if let HandoffAt::Draft(index) = held.at
                && let Some(seq) = event_seqs.clone().nth(index)
            {
                held.at = HandoffAt::Stored(seq);
            }
        }
        self.events.clear();
    }

    /// What a reader should know beyond the stored state.
    pub fn derived_state(&self, now: LeaseTime) -> Option<DerivedState> {
        use tt_proto::turn::TakeoverReason as R;
        match takeover::reason(self, now) {
            Some(R::OwnerGone) => Some(DerivedState::OwnerGone),
            Some(R::RecipientGone) => Some(DerivedState::RecipientGone),
            Some(R::OwnerTimeout) => Some(DerivedState::StaleOwner),
            Some(R::OwnerIdle) => Some(DerivedState::OwnerIdle),
            Some(R::ClaimTimeout | R::OperatorOverride) | None => {
                (self.state != StickState::Closed && self.present().next().is_none()).then_some(DerivedState::Dormant)
            }
        }
    }

    /// The next moment at which something changes by itself.
    pub fn next_deadline(&self, now: LeaseTime) -> Option<LeaseTime> {
        let waited_for = self.members().any(|m| m.waiting != Waiting::No);
        let grace = self.released_at.map(|at| at + self.policy.waiter_grace).filter(|_| self.state == StickState::Idle);
        // A member that did not wait again in time no longer holds up the others.
        let patience = self.members().filter_map(|m| m.last_wait_at).map(|at| at + self.policy.wait_max);
        let patience = patience.filter(|at| *at > now && grace.is_some_and(|grace| *at < grace)).min();
        let claim = self.claim_expires_at.filter(|_| !self.reservation_expired || waited_for);
        let idle =
            self.owner.as_ref().and_then(|o| self.member(o)).map(|o| o.last_seen_at + self.policy.owner_activity_ttl);
        let for_waiters = [grace, patience, self.lease_end(), idle].into_iter().flatten().filter(|_| waited_for);
        // Also for members in a wait: the end of a wait sets no timer.
        let expiry = self.members().filter(|m| m.status == MemberStatus::Active && !m.is_at_a_terminal());
        let expiry = expiry.map(|m| m.last_seen_at + self.policy.presence_ttl);
        for_waiters.chain(claim).chain(expiry).filter(|at| *at > now).min()
    }
}

impl Member {
    pub fn is_person(&self) -> bool {
        self.found_by.as_deref() == Some(PERSON)
    }

    /// A person with a terminal that is open.
    pub(crate) fn is_at_a_terminal(&self) -> bool {
        self.is_person() && self.liveness == Liveness::Alive
    }

    /// Active, and its process is not known to have ended.
    pub fn is_present(&self) -> bool {
        self.status == MemberStatus::Active && self.liveness != Liveness::Gone
    }

    pub fn is_listening(&self) -> bool {
        matches!(self.waiting, Waiting::Listening { .. })
    }

    /// In a wait, or between two of them.
    pub fn waits_again(&self, policy: &Policy, now: LeaseTime) -> bool {
        self.waiting != Waiting::No || self.last_wait_at.is_some_and(|at| at + policy.wait_max > now)
    }
}
