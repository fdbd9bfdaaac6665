//! The terminal in which a session runs, if that is a pane of tmux: the block is typed into the composer, as a person would. Which
//! pane that is, is looked up each time; what a person types there is never touched (`delivery/terminal`). A block has arrived once
//! the transcript shows its tag, or the session did something after it was entered.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tt_harness::ScreenFacts;
use tt_proto::AgentId;
use tt_proto::delivery::{WaitReason, WayName};
use tt_proto::session::SessionStatus;
use tt_rules::LeaseTime;

use super::{Arrived, Begun, Block, Handed, InItsTime, Target, Way};
use crate::delivery::plan::{Abilities, Reach};
use crate::delivery::terminal::pane::{NoPane, Seat};
use crate::delivery::terminal::typing::{Because, Outcome};
use crate::delivery::terminal::{not_now, type_block};
use crate::sessions::Sessions;

/// How soon a composer is looked at again in which somebody types, or that is not on the screen.
const DRAFT_POLL: Duration = Duration::from_secs(5);

/// How many blocks are remembered as entered. Past that all are forgotten, and their transcripts tell.
const MAX_ENTERED: usize = 1024;

#[derive(Debug)]
pub(super) struct Terminal {
    sessions: Sessions,
    /// The blocks that were entered, by their tags.
    entered: Mutex<HashMap<String, Entered>>,
}

/// When a block was typed.
#[derive(Debug, Clone, Copy)]
struct Entered {
    began: LeaseTime,
    ended: LeaseTime,
}

impl Terminal {
    pub(super) fn new(sessions: &Sessions) -> Self {
        Self { sessions: sessions.clone(), entered: Mutex::default() }
    }

    fn screen_of(&self, agent_id: &AgentId) -> Option<&'static ScreenFacts> {
        self.sessions.seated(agent_id)?.harness.screen.as_ref().filter(|screen| screen.keys.takes_bursts)
    }

    /// The pane in which the session of an agent takes what is typed.
    async fn seat(&self, agent_id: &AgentId) -> Result<Seat, NoPane> {
        let Some(seated) = self.sessions.seated(agent_id) else { return Err(NoPane::Ended) };
        let mut found = Err(NoPane::Ended);
        for process in seated.processes.clone() {
            let (sessions, of_this, process_there) = (self.sessions.clone(), seated.clone(), process.clone());
            let is_in = move || sessions.is_in_conversation(&of_this, &process_there);
            if !matches!(tokio::task::spawn_blocking(is_in).await, Ok(Ok(true))) {
                continue;
            }
            found = Seat::find(self.sessions.looks(), &process).await;
            if found.is_ok() {
                break;
            }
        }
        found
    }
}

impl Way for Terminal {
    fn name(&self) -> WayName {
        WayName::Terminal
    }

    fn starts(&self) -> bool {
        true
    }

    fn reach(&self, target: &Target<'_>) -> Reach {
        match self.screen_of(target.agent_id) {
            Some(_) => Reach::Starts(Abilities { idle: true, busy: true, gone: false }),
            None => Reach::No,
        }
    }

    fn not_now<'a>(&'a self, agent_id: &'a AgentId) -> InItsTime<'a, Option<(WaitReason, Duration)>> {
        Box::pin(async move {
            let screen = self.screen_of(agent_id)?;
            let because = match self.seat(agent_id).await {
                Ok(seat) => not_now(&seat, screen, self.sessions.looks(), self.sessions.clock()).await?,
                // A person has put it aside and may take it up again.
                Err(NoPane::InBackground) => Because::NoComposer,
                // It fails, and is left out longer each time.
                Err(_) => return None,
            };
            Some((reason(because), DRAFT_POLL))
        })
    }

    fn hand_over<'a>(&'a self, block: &'a Block) -> InItsTime<'a, Handed> {
        Box::pin(async move {
            let agent_id = &block.attempt.agent_id;
            let Some(screen) = self.screen_of(agent_id) else { return Handed::Failed(NoPane::NotInTmux.to_string()) };
            let seat = match self.seat(agent_id).await {
                Ok(seat) => seat,
                Err(e) => return Handed::Failed(e.to_string()),
            };
            let tag = &block.attempt.tag;
            let (looks, clock) = (self.sessions.looks(), self.sessions.clock());
            let text = (format!("tt-{tag}"), &block.text);
            let began = clock.now().lease;
            match type_block(&seat, screen, (&text.0, text.1), block.breaks_off, looks, clock).await {
                Outcome::Entered => {
                    let mut entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner);
                    if entered.len() >= MAX_ENTERED {
                        entered.clear();
                    }
                    entered.insert(tag.clone(), Entered { began, ended: clock.now().lease });
                    Handed::Over
                }
                Outcome::NotNow(because) => Handed::NotNow { because: reason(because), retry: DRAFT_POLL },
                Outcome::Failed(why) => Handed::Failed(why),
                Outcome::Unclear(why) => Handed::Unknown(why),
            }
        })
    }

    fn look<'a>(&'a self, attempt: &'a Begun) -> InItsTime<'a, Arrived> {
        Box::pin(async move {
            if self.sessions.shows_block(&attempt.agent_id, &attempt.tag).await {
                return Arrived::Yes;
            }
            // The composer was emptied by Enter, and the session has begun something since, or has even ended it.
            let entered = self.entered.lock().unwrap_or_else(PoisonError::into_inner).get(&attempt.tag).copied();
            let status = self.sessions.status_of(&attempt.agent_id);
            let reacted = entered.zip(status).is_some_and(|(entered, status)| {
                let since = match status.status {
                    SessionStatus::Busy | SessionStatus::Asking => entered.began,
                    _ => entered.ended,
                };
                status.since.is_some_and(|at| at > since)
            });
            if reacted { Arrived::Yes } else { Arrived::Unknown }
        })
    }
}

fn reason(because: Because) -> WaitReason {
    match because {
        Because::Draft => WaitReason::Draft,
        Because::Asking => WaitReason::Asking,
        Because::NoComposer => WaitReason::NoWay,
    }
}
