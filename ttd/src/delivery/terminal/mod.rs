//! Types a block into the composer of a harness in a pane of tmux, as a person would, without touching what a person types.
//! `pane` finds the pane, `typing` decides each step, purely, and `tmux` carries it out.

pub mod pane;
pub mod tmux;
pub mod typing;

use std::time::Duration;

use tokio::time::Instant;
use tt_harness::{Screen, ScreenFacts, composer, padded_for_paste};

use crate::clock::Clock;
use crate::liveness::Looks;
use pane::Seat;
use tmux::{Act, Look, TmuxError};
use typing::{Because, Event, Outcome, Seen, Step, Typing};

/// How long it may take to type a block. It must end before whoever asked for it gives up, or something would be left half done.
const TYPING_LIMIT: Duration = Duration::from_secs(24);

/// Whether this is no moment to type anything, and why.
pub async fn not_now(seat: &Seat, facts: &'static ScreenFacts, looks: &Looks, clock: &Clock) -> Option<Because> {
    let mut typing = Typing::new(facts, "", false);
    loop {
        match typing.next(look(seat, facts, looks, clock).await) {
            Step::Look(after) => tokio::time::sleep(after).await,
            Step::End(Outcome::NotNow(because)) => return Some(because),
            Step::End(_) | Step::Type(..) => return None,
        }
    }
}

/// Types a block into the composer of a process and sends it. `name`: the name of the text while it is on its way. `breaks_off`: a
/// turn of the session is broken off first.
pub async fn type_block(
    seat: &Seat,
    facts: &'static ScreenFacts,
    block: (&str, &str),
    breaks_off: bool,
    looks: &Looks,
    clock: &Clock,
) -> Outcome {
    let (name, text) = (block.0, &padded_for_paste(facts, block.1));
    let deadline = Instant::now() + TYPING_LIMIT;
    let mut typing = Typing::new(facts, text, breaks_off);
    let mut step = Typing::begin();
    let mut is_loaded = false;
    let outcome = loop {
        let event = match step {
            Step::End(outcome) => break outcome,
            _ if Instant::now() > deadline => Event::Lost("it takes too long".into()),
            Step::Look(after) => {
                tokio::time::sleep(after).await;
                look(seat, facts, looks, clock).await
            }
            Step::Type(act, guard) => {
                let pastes = act == Act::Paste;
                if pastes {
                    is_loaded = true;
                    if let Err(e) = seat.tmux.load(name, text).await {
                        break Outcome::Failed(e.to_string());
                    }
                }
                let typed = match seat.is_taken(looks).await {
                    true => seat.tmux.act(&seat.pane, name, &guard, &act).await,
                    false => Ok(false),
                };
                is_loaded &= !(pastes && typed == Ok(true));
                match typed {
                    Ok(typed) => Event::Typed(typed),
                    // The pane is gone, and with it whatever was typed there.
                    Err(e @ (TmuxError::Refused(_) | TmuxError::NotInstalled)) if pastes => {
                        break Outcome::Failed(e.to_string());
                    }
                    Err(e) => Event::Lost(e.to_string()),
                }
            }
        };
        step = typing.next(event);
    };
    if is_loaded {
        seat.tmux.forget(name).await;
    }
    outcome
}

async fn look(seat: &Seat, facts: &'static ScreenFacts, looks: &Looks, clock: &Clock) -> Event {
    match seat.tmux.look(&seat.pane).await {
        Ok(_) if !seat.is_taken(looks).await => Event::Lost("its process does not read from the pane any more".into()),
        Ok(look) => Event::Seen(seen(facts, look, clock)),
        Err(e) => Event::Lost(e.to_string()),
    }
}

fn seen(facts: &'static ScreenFacts, look: Look, clock: &Clock) -> Seen {
    let screen = Screen { text: &look.text, cursor: look.cursor, cursor_shown: look.cursor_shown, rows: look.rows };
    let composer = composer(facts, screen);
    let at = u64::try_from(clock.now().wall.as_millis() / 1000).unwrap_or(0);
    Seen { composer, mark: look.mark, mode: look.mode, at }
}
