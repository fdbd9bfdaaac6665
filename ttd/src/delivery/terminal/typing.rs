//! How a block is typed into the composer of a harness, step by step. Pure: what a look at the screen shows goes in, and what to do
//! next comes out.
//!
//! It begins only where the composer is empty and no key was pressed for a while. The block is pasted and entered by calls that do
//! nothing if a key was pressed since that look ([`Guard::Untouched`]), so it is pasted into an empty composer, and entered only
//! while it is all that is in there. Somebody who types meanwhile finds the block in front of what they typed; it is taken out
//! again, and nothing is sent. What cannot be told for certain is left alone.

use std::time::Duration;

use tt_harness::{Composer, Draft, ScreenFacts, lines_of_paste};

use super::tmux::{Act, Guard, Mark, Mode};

/// How long no key must have been pressed before anything is typed.
const QUIET_SECONDS: u64 = 3;

/// How long a program has to draw what was pasted, before Enter.
const PASTE_DELAY: Duration = Duration::from_millis(500);

/// How soon something is looked at again that is not as expected.
const LOOK_DELAY: Duration = Duration::from_millis(300);

/// How long a harness has to break off its turn.
const BREAK_DELAY: Duration = Duration::from_millis(700);

/// How many rows of a screen a composer leaves to others.
const OTHER_ROWS: usize = 10;

/// How often the screen is looked at once more before anything is typed, if it shows no composer.
const MAX_FIRST_LOOKS: u32 = 2;

/// How often the screen is looked at until it shows what was pasted or entered.
const MAX_LOOKS: u32 = 10;

/// How often it is looked at until the block was taken out. A program may take seconds for hundreds of keys.
const MAX_REMOVAL_LOOKS: u32 = 30;

/// How often it is looked at in all.
const MAX_LOOKS_IN_ALL: u32 = 60;

/// How often Enter is pressed.
const MAX_ENTERS: u32 = 2;

/// How often keys are typed that empty a composer.
const MAX_ERASURES: u32 = 3;

/// How many keys more than there are characters: at the beginning and at the end of a draft they do nothing.
const MORE_KEYS: usize = 20;

/// A pane at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub composer: Composer,
    pub mark: Mark,
    pub mode: Mode,
    /// The second in which it was looked at, by the clock that people read.
    pub at: u64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Seen(Seen),
    /// What was to be typed was typed. If not, the guard did not let it.
    Typed(bool),
    /// The pane cannot be looked at or typed into any more.
    Lost(String),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Look at the pane after this time.
    Look(Duration),
    Type(Act, Guard),
    End(Outcome),
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was entered, and the composer is empty again.
    Entered,
    /// Nothing of it was entered or is left, because this is not the moment.
    NotNow(Because),
    /// Nothing of it was entered or is left, because it does not work.
    Failed(String),
    /// It may have been entered, or be in the composer.
    Unclear(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// Somebody types.
    Draft,
    /// A question to the user is open.
    Asking,
    /// The screen shows no composer.
    NoComposer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Begun,
    LeavingMode,
    Breaking,
    BrokenOff,
    Pasting,
    Pasted {
        looks: u32,
    },
    Entering,
    Entered {
        looks: u32,
    },
    /// The block is being taken out: all of the draft, or what was pasted of it.
    Removing {
        all: bool,
    },
    Removed {
        all: bool,
        looks: u32,
    },
}

/// One block on its way into a composer.
#[derive(Debug)]
pub struct Typing<'a> {
    facts: &'static ScreenFacts,
    text: &'a str,
    breaks_off: bool,
    state: State,
    /// The pane when it was found empty.
    start: Option<Mark>,
    /// How often the pane was looked at, Enter was pressed, and the composer emptied.
    looks: u32,
    enters: u32,
    erasures: u32,
    has_left_mode: bool,
}

impl<'a> Typing<'a> {
    /// `breaks_off`: a turn of the session is broken off first.
    pub fn new(facts: &'static ScreenFacts, text: &'a str, breaks_off: bool) -> Self {
        let (state, start) = (State::Begun, None);
        Self { facts, text, breaks_off, state, start, looks: 0, enters: 0, erasures: 0, has_left_mode: false }
    }

    /// What to do first.
    pub fn begin() -> Step {
        Step::Look(Duration::ZERO)
    }

    /// What to do after this.
    pub fn next(&mut self, event: Event) -> Step {
        match event {
            Event::Seen(seen) => self.seen(&seen),
            Event::Typed(typed) => self.typed(typed),
            Event::Lost(why) => Step::End(match self.state {
                State::Begun | State::LeavingMode => Outcome::Failed(why),
                _ => Outcome::Unclear(why),
            }),
        }
    }

    fn seen(&mut self, seen: &Seen) -> Step {
        let state = self.state.clone();
        if let State::Begun | State::LeavingMode | State::Breaking | State::BrokenOff = state {
            return self.start(seen);
        }
        self.looks += 1;
        if self.looks > MAX_LOOKS_IN_ALL {
            return unclear("it comes to no end");
        }
        if !self.start.as_ref().is_some_and(|start| start.names_same_process(&seen.mark)) {
            return unclear("the pane has another program");
        }
        match state {
            State::Pasted { looks } => self.pasted(seen, looks),
            State::Entered { looks } => self.entered(seen, looks),
            State::Removed { all, looks } => self.removed(seen, all, looks),
            _ => unclear("it was looked at while something was typed"),
        }
    }

    fn typed(&mut self, typed: bool) -> Step {
        match (self.state.clone(), typed) {
            (State::LeavingMode, true) => {
                self.has_left_mode = true;
                self.state = State::Begun;
                Step::Look(LOOK_DELAY)
            }
            (State::Breaking, true) => {
                self.state = State::BrokenOff;
                Step::Look(BREAK_DELAY)
            }
            (State::Begun | State::LeavingMode | State::Breaking | State::BrokenOff | State::Pasting, false) => {
                not_now(Because::Draft)
            }
            (State::Pasting, true) => self.look_at(State::Pasted { looks: 0 }, PASTE_DELAY),
            // Somebody pressed a key since that look.
            (State::Entering, false) => self.look_at(State::Pasted { looks: 0 }, LOOK_DELAY),
            (State::Entering, true) => self.look_at(State::Entered { looks: 0 }, LOOK_DELAY),
            (State::Removing { .. }, false) => self.look_at(State::Pasted { looks: 0 }, LOOK_DELAY),
            (State::Removing { all }, true) => self.look_at(State::Removed { all, looks: 0 }, LOOK_DELAY),
            (_, _) => unclear("keys were typed that were not asked for"),
        }
    }

    fn look_at(&mut self, state: State, after: Duration) -> Step {
        self.state = state;
        Step::Look(after)
    }

    fn type_keys(&mut self, state: State, act: Act, guard: Guard) -> Step {
        self.state = state;
        Step::Type(act, guard)
    }

    /// Whether somebody pressed a key in the pane since it was found empty.
    fn is_touched(&self, seen: &Seen) -> bool {
        seen.mode != Mode::Off || self.start.as_ref().is_none_or(|start| start.last_key() != seen.mark.last_key())
    }

    /// Whether the composer will show all of the block. What is not shown cannot be taken out again for certain.
    fn fits(&self, seen: &Seen) -> bool {
        let Some((columns, rows)) = seen.mark.size() else { return false };
        let columns = columns.saturating_sub(2 * self.facts.text_column);
        lines_of_paste(self.facts, self.text, columns) + OTHER_ROWS <= rows
    }

    /// Before anything was pasted.
    fn start(&mut self, seen: &Seen) -> Step {
        if !seen.mark.takes_keys() || !self.fits(seen) {
            return not_now(Because::NoComposer);
        }
        match seen.composer {
            Composer::Empty => {}
            Composer::Question => return not_now(Because::Asking),
            // The screen may be half drawn.
            Composer::Unknown if self.looks < MAX_FIRST_LOOKS => {
                self.looks += 1;
                return Step::Look(LOOK_DELAY);
            }
            Composer::Unknown => return not_now(Because::NoComposer),
            Composer::Draft(_) => return not_now(Because::Draft),
        }
        if !is_quiet(seen) {
            return not_now(Because::Draft);
        }
        let untouched = Guard::Untouched(seen.mark.clone());
        match seen.mode {
            Mode::Off => {}
            Mode::Copy if !self.has_left_mode => {
                return self.type_keys(State::LeavingMode, Act::LeaveCopyMode, untouched);
            }
            // Somebody has opened a list or a menu of tmux.
            Mode::Copy | Mode::Other => return not_now(Because::Draft),
        }
        if self.breaks_off && self.state != State::BrokenOff {
            let key = Act::Keys(vec![(self.facts.keys.break_turn, 1)]);
            return self.type_keys(State::Breaking, key, untouched);
        }
        self.start = Some(seen.mark.clone());
        self.type_keys(State::Pasting, Act::Paste, untouched)
    }

    /// The block was pasted.
    fn pasted(&mut self, seen: &Seen, looks: u32) -> Step {
        let touched = self.is_touched(seen);
        let may_look = looks < MAX_LOOKS;
        match &seen.composer {
            Composer::Draft(draft) if !touched && draft.is_paste_of(self.facts, self.text) => self.enter(seen, draft),
            // It may not be drawn whole yet.
            Composer::Draft(draft) if touched || !may_look => match self.removal(seen, draft) {
                Some(removal) => removal,
                None if may_look => self.look_at(State::Pasted { looks: looks + 1 }, LOOK_DELAY),
                None => unclear("what is in its composer cannot be told apart"),
            },
            Composer::Empty if touched => unclear("somebody took it out, or sent it"),
            _ if may_look => self.look_at(State::Pasted { looks: looks + 1 }, LOOK_DELAY),
            Composer::Empty => failed("its composer takes no paste"),
            _ => unclear("its composer is not on the screen any more"),
        }
    }

    /// The block, and nothing else, is in the composer, and nobody pressed a key.
    fn enter(&mut self, seen: &Seen, draft: &Draft) -> Step {
        if self.enters >= MAX_ENTERS {
            return self.erase(seen, draft);
        }
        self.enters += 1;
        let enter = Act::Keys(vec![("Enter", 1)]);
        self.type_keys(State::Entering, enter, Guard::Untouched(seen.mark.clone()))
    }

    /// Enter was pressed.
    fn entered(&mut self, seen: &Seen, looks: u32) -> Step {
        let touched = self.is_touched(seen);
        let may_look = looks < MAX_LOOKS;
        match &seen.composer {
            Composer::Empty => Step::End(Outcome::Entered),
            // Somebody has begun to type since, unless the screen is half drawn.
            Composer::Draft(draft) if looks > 1 && !draft.may_hold(self.text) => Step::End(Outcome::Entered),
            _ if may_look => self.look_at(State::Entered { looks: looks + 1 }, LOOK_DELAY),
            Composer::Draft(draft) if !touched && draft.is_paste_of(self.facts, self.text) => self.enter(seen, draft),
            Composer::Draft(draft) => match self.removal(seen, draft) {
                Some(removal) => removal,
                None => unclear("what is in its composer cannot be told apart"),
            },
            _ => unclear("its composer is not on the screen any more"),
        }
    }

    /// Takes the block out of a draft. None if that cannot be done now.
    fn removal(&mut self, seen: &Seen, draft: &Draft) -> Option<Step> {
        if !self.is_touched(seen) {
            return Some(self.erase(seen, draft));
        }
        let part = draft.pasted_part(self.facts, self.text)?;
        let mut keys = vec![("Left", self.length(draft) + MORE_KEYS), ("DC", part.deletions?)];
        let guard = match part.behind {
            // In an empty composer these keys may mean something else, so nothing may come between. A mark tells seconds apart,
            // and not what happens within one.
            0 if seen.mark.last_key().is_some_and(|last| seen.at <= last) => return None,
            0 => Guard::Untouched(seen.mark.clone()),
            // What is typed meanwhile comes to the end of the draft. That is longer than it looks if it has blanks.
            behind => {
                keys.push(("Right", 2 * behind + MORE_KEYS));
                Guard::SamePane(seen.mark.clone())
            }
        };
        (seen.mode == Mode::Off).then(|| self.type_keys(State::Removing { all: false }, Act::Keys(keys), guard))
    }

    /// Empties the composer. It was empty before the block was pasted, and nobody pressed a key.
    fn erase(&mut self, seen: &Seen, draft: &Draft) -> Step {
        if self.erasures >= MAX_ERASURES {
            return unclear("it cannot be taken out of its composer");
        }
        self.erasures += 1;
        let times = draft.lines.len() + self.text.lines().count() + 2;
        let keys = (0..times).flat_map(|_| self.facts.keys.erase.iter().map(|key| (*key, 1))).collect();
        self.type_keys(State::Removing { all: true }, Act::Keys(keys), Guard::Untouched(seen.mark.clone()))
    }

    /// How many characters a draft has at most. Of a long one not all is shown.
    fn length(&self, draft: &Draft) -> usize {
        let shown: usize = draft.lines.iter().map(|line| line.chars().count() + 1).sum();
        if draft.has_token { shown } else { shown + self.text.chars().count() }
    }

    /// Keys that take the block out were typed. Those that delete a part are not typed twice: the first may still be under way.
    fn removed(&mut self, seen: &Seen, all: bool, looks: u32) -> Step {
        let touched = self.is_touched(seen);
        match &seen.composer {
            Composer::Empty if touched => unclear("somebody took it out, or sent it"),
            Composer::Empty => failed("its composer does not send it"),
            Composer::Draft(draft) if touched && !draft.may_hold(self.text) => not_now(Because::Draft),
            Composer::Draft(draft) if all && !touched && looks >= MAX_LOOKS => self.erase(seen, draft),
            _ if looks < MAX_REMOVAL_LOOKS => self.look_at(State::Removed { all, looks: looks + 1 }, LOOK_DELAY),
            _ => unclear("it cannot be taken out of its composer"),
        }
    }
}

fn is_quiet(seen: &Seen) -> bool {
    // A key of the future was pressed before the clock was set back, nobody knows when; what it typed is on the screen.
    seen.mark.last_key().is_none_or(|last| seen.at.abs_diff(last) > QUIET_SECONDS)
}

fn not_now(because: Because) -> Step {
    Step::End(Outcome::NotNow(because))
}

fn failed(why: &str) -> Step {
    Step::End(Outcome::Failed(why.to_owned()))
}

fn unclear(why: &str) -> Step {
    Step::End(Outcome::Unclear(why.to_owned()))
}

#[cfg(test)]
mod tests;
