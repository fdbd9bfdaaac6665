//! What a session is doing and whether it lives, decided from dated evidence. Pure.
//!
//! Of several signs the newest counts, by the time at which it was so and not by the time at which it arrived: hooks run
//! beside each other and overtake each other. It is dated on the clock that never jumps. What nothing shows is `unknown`.

use std::time::Duration;

use tt_proto::room::Liveness;
use tt_proto::session::{Evidence, EvidenceSource, SessionEvent, SessionStatus};
use tt_rules::{LeaseTime, Now};

/// A session that was busy for this long without a newer sign is doubted.
pub const BUSY_DOUBT: Duration = Duration::from_secs(10 * 60);

/// How long after the end of a conversation its process may still open the next one. Nothing is freed before that.
pub const SWITCH_GRACE: Duration = Duration::from_secs(2);

/// One sign of what a session does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sign {
    pub source: EvidenceSource,
    pub status: SessionStatus,
    pub says: String,
    pub at: LeaseTime,
}

impl Sign {
    pub fn evidence(&self, now: &Now) -> Evidence {
        Evidence { source: self.source, says: self.says.clone(), at: now.to_wall(self.at) }
    }
}

/// What an event that a hook reported says of its session. None if it says nothing of what the session does.
pub fn status_after(event: SessionEvent) -> Option<SessionStatus> {
    match event {
        SessionEvent::Prompt
        | SessionEvent::ToolStarted
        | SessionEvent::ToolEnded
        | SessionEvent::PermissionAnswered
        | SessionEvent::Busy => Some(SessionStatus::Busy),
        SessionEvent::SessionStarted | SessionEvent::TurnEnded | SessionEvent::Interrupted | SessionEvent::Idle => {
            Some(SessionStatus::Idle)
        }
        SessionEvent::PermissionAsked => Some(SessionStatus::Asking),
        // Its session works on, or has been idle for a while: a subagent may run in the background.
        SessionEvent::SubagentStarted | SessionEvent::SubagentEnded | SessionEvent::SessionEnded => None,
    }
}

/// What a session does now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub status: SessionStatus,
    /// Since when; none if nothing is known.
    pub since: Option<LeaseTime>,
    pub doubted: bool,
}

/// Decides what a session is doing from the newest sign of each source.
pub fn status<'a>(signs: impl IntoIterator<Item = &'a Sign>, liveness: Liveness, now: LeaseTime) -> Status {
    if liveness == Liveness::Gone {
        return Status { status: SessionStatus::Gone, since: None, doubted: false };
    }
    // Of two signs of the same moment the later one in the list counts.
    let newest = signs.into_iter().max_by_key(|sign| sign.at);
    match newest {
        None => Status { status: SessionStatus::Unknown, since: None, doubted: false },
        Some(sign) => {
            let doubted = sign.status == SessionStatus::Busy && now.since(sign.at) >= BUSY_DOUBT;
            Status { status: sign.status, since: Some(sign.at), doubted }
        }
    }
}

/// What the daemon of a harness that runs several sessions in one process says of one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerSays {
    #[default]
    Nothing,
    Open,
    Closed,
}

/// Everything that speaks for or against the life of a session.
#[derive(Debug, Clone, Default)]
pub struct LifeFacts {
    /// The best that is known of the processes that run this session and no other; none if there is no such process.
    pub process: Option<(u32, Liveness)>,
    /// Its terminal was closed, and it has none any more.
    pub orphaned: bool,
    /// Its process is in another conversation now.
    pub left: bool,
    /// A hook said that it ended, and nothing was heard of it since.
    pub ended_at: Option<LeaseTime>,
    /// It runs in a process that it shares with other sessions.
    pub shared: bool,
    pub server: ServerSays,
}

/// Whether a session lives, and what decided that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub liveness: Liveness,
    pub because: String,
}

/// Decides whether a session lives. A process that several sessions share never decides.
pub fn liveness(facts: &LifeFacts, now: LeaseTime) -> Verdict {
    let verdict = |liveness, because: &str| Verdict { liveness, because: because.to_owned() };
    if let Some((pid, Liveness::Gone)) = facts.process {
        return verdict(Liveness::Gone, &format!("its process {pid} ended"));
    }
    if facts.left {
        return verdict(Liveness::Gone, "its process went on to another conversation");
    }
    let own = matches!(facts.process, Some((_, Liveness::Alive)));
    if let Some(ended_at) = facts.ended_at {
        // A process that lives on may be about to open the next conversation as the same member.
        return if own && now.since(ended_at) < SWITCH_GRACE {
            verdict(Liveness::Alive, "a hook said that it ended, a moment ago")
        } else {
            verdict(Liveness::Gone, "a hook said that it ended")
        };
    }
    match (facts.process, facts.server) {
        (Some((pid, Liveness::Alive)), _) if facts.orphaned => {
            verdict(Liveness::Unknown, &format!("its process {pid} runs, but its terminal was closed"))
        }
        (Some((pid, Liveness::Alive)), _) => verdict(Liveness::Alive, &format!("its process {pid} runs")),
        (_, ServerSays::Open) => verdict(Liveness::Alive, "its harness's daemon has it open"),
        (_, ServerSays::Closed) => verdict(Liveness::Gone, "its harness's daemon closed it"),
        (Some((pid, _)), ServerSays::Nothing) => {
            verdict(Liveness::Unknown, &format!("its process {pid} cannot be looked at"))
        }
        (None, ServerSays::Nothing) if facts.shared => {
            verdict(Liveness::Unknown, "it shares its process, and its harness's daemon says nothing of it")
        }
        (None, ServerSays::Nothing) => verdict(Liveness::Unknown, "no process and no daemon shows it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1000;

    fn at(seconds: i64) -> LeaseTime {
        LeaseTime::from_millis(seconds * SECOND)
    }

    fn sign(source: EvidenceSource, status: SessionStatus, seconds: i64) -> Sign {
        Sign { source, status, says: status.as_str().to_owned(), at: at(seconds) }
    }

    #[test]
    fn the_newest_sign_counts_and_not_the_last_to_arrive() {
        use EvidenceSource::{Hook, SessionFile};
        use SessionStatus::{Asking, Busy, Idle, Unknown};
        type Case<'a> = (&'a [(EvidenceSource, SessionStatus, i64)], SessionStatus, Option<i64>);
        let table: &[Case<'_>] = &[
            (&[], Unknown, None),
            (&[(Hook, Busy, 5)], Busy, Some(5)),
            // Escape: no hook fires, the file says idle.
            (&[(Hook, Busy, 5), (SessionFile, Idle, 7)], Idle, Some(7)),
            // The turn's end arrived before a tool of that turn.
            (&[(Hook, Idle, 9), (SessionFile, Busy, 8)], Idle, Some(9)),
            (&[(SessionFile, Asking, 9), (Hook, Busy, 8)], Asking, Some(9)),
        ];
        for (signs, expected, since) in table {
            let signs: Vec<Sign> = signs.iter().map(|(source, status, at)| sign(*source, *status, *at)).collect();
            let found = status(&signs, Liveness::Alive, at(10));
            assert_eq!((found.status, found.since), (*expected, since.map(at)), "{signs:?}");
            assert_eq!(status(&signs, Liveness::Gone, at(10)).status, SessionStatus::Gone);
        }
    }

    #[test]
    fn a_session_that_is_busy_for_long_is_doubted_and_never_taken_for_idle() {
        let busy = [sign(EvidenceSource::Hook, SessionStatus::Busy, 0)];
        let found = |now| status(&busy, Liveness::Alive, at(now));
        assert_eq!((found(599).doubted, found(600).doubted), (false, true));
        assert_eq!(found(100_000).status, SessionStatus::Busy);
    }

    #[test]
    fn life_is_decided_by_the_best_evidence_there_is() {
        use Liveness::{Alive, Gone, Unknown};
        let alone = |liveness| LifeFacts { process: Some((7, liveness)), ..LifeFacts::default() };
        let shared = |server| LifeFacts { shared: true, server, ..LifeFacts::default() };
        let ended = |facts: LifeFacts| LifeFacts { ended_at: Some(at(10)), ..facts };
        let table: &[(&str, LifeFacts, i64, Liveness)] = &[
            ("nothing is known", LifeFacts::default(), 10, Unknown),
            ("its process runs", alone(Alive), 10, Alive),
            ("its process ended", alone(Gone), 10, Gone),
            ("another machine's process", alone(Unknown), 10, Unknown),
            ("its terminal was closed", LifeFacts { orphaned: true, ..alone(Alive) }, 10, Unknown),
            ("its process is elsewhere", LifeFacts { left: true, ..alone(Alive) }, 10, Gone),
            ("it just ended, the process runs", ended(alone(Alive)), 11, Alive),
            ("it ended a while ago", ended(alone(Alive)), 12, Gone),
            ("it ended, and so did its process", ended(alone(Gone)), 10, Gone),
            ("the shared process says nothing", shared(ServerSays::Nothing), 10, Unknown),
            ("the shared process has it", shared(ServerSays::Open), 10, Alive),
            ("the shared process closed it", shared(ServerSays::Closed), 10, Gone),
            ("a hook said so first", ended(shared(ServerSays::Open)), 10, Gone),
        ];
        for (case, facts, now, expected) in table {
            assert_eq!(liveness(facts, at(*now)).liveness, *expected, "{case}");
        }
    }

    #[test]
    fn every_event_is_read_as_what_the_session_does_after_it() {
        use SessionStatus::{Asking, Busy, Idle};
        let says = |event| status_after(event);
        assert_eq!(says(SessionEvent::Prompt), Some(Busy));
        assert_eq!(says(SessionEvent::ToolEnded), Some(Busy), "the model goes on");
        assert_eq!(says(SessionEvent::TurnEnded), Some(Idle));
        assert_eq!(says(SessionEvent::PermissionAsked), Some(Asking));
        assert_eq!(says(SessionEvent::Interrupted), Some(Idle));
        assert_eq!(says(SessionEvent::SubagentEnded), None);
    }
}
