use std::collections::VecDeque;

use super::*;

const BLOCK: &str = "[inbox 1a2b: 1 new, from somebody]\n{\"event_seq\":7,\"body\":\"one two\"}\n[inbox 1a2b ends]";

fn facts() -> &'static ScreenFacts {
    tt_harness::by_name("claude").unwrap().screen.as_ref().unwrap()
}

/// What a composer has in it: a character, or a token for a text that was pasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Char(char),
    Token,
}

/// What a program reads, in order.
#[derive(Debug, Clone, Copy)]
enum Input {
    Typed(char),
    Pasted,
    Key(&'static str),
}

/// A harness in a pane, and a person who types there. Milliseconds.
struct Pane {
    now: u64,
    /// The program is busy with what it read before until then.
    reads_at: u64,
    /// How long a key takes.
    key_time: u64,
    shows_token: bool,
    input: VecDeque<Input>,
    composer: Vec<Piece>,
    cursor: usize,
    sent: Vec<String>,
    last_key: u64,
    person: VecDeque<(u64, char)>,
    ignores_enter: u32,
    ignores_paste: bool,
    other: Option<Composer>,
    mode: Mode,
    acts: Vec<Act>,
}

impl Pane {
    fn new() -> Self {
        Self {
            now: 100_000,
            reads_at: 0,
            key_time: 2,
            shows_token: false,
            input: VecDeque::new(),
            composer: Vec::new(),
            cursor: 0,
            sent: Vec::new(),
            last_key: 50,
            person: VecDeque::new(),
            ignores_enter: 0,
            ignores_paste: false,
            other: None,
            mode: Mode::Off,
            acts: Vec::new(),
        }
    }

    fn with_draft(text: &str) -> Self {
        let composer: Vec<Piece> = text.chars().map(Piece::Char).collect();
        Self { cursor: composer.len(), composer, ..Self::new() }
    }

    /// Lets time pass, in which the person types and the program reads.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now += 1;
            while self.person.front().is_some_and(|(at, _)| *at <= self.now) {
                self.last_key = self.now / 1000;
                self.input.extend(self.person.pop_front().map(|(_, c)| Input::Typed(c)));
            }
            while self.reads_at <= self.now {
                let Some(input) = self.input.pop_front() else { break };
                self.reads_at = self.now + self.key_time;
                self.read(input);
            }
        }
    }

    fn insert(&mut self, piece: Piece) {
        self.composer.insert(self.cursor, piece);
        self.cursor += 1;
    }

    fn read(&mut self, input: Input) {
        match input {
            Input::Typed('\r') | Input::Key("Enter") if self.ignores_enter > 0 => self.ignores_enter -= 1,
            Input::Typed('\r') | Input::Key("Enter") => {
                let text = self.text();
                self.sent.push(text);
                (self.composer, self.cursor) = (Vec::new(), 0);
            }
            Input::Typed('\u{7f}') | Input::Key("BSpace") => {
                if self.cursor > 0 {
                    self.cursor -= 1;
                    self.composer.remove(self.cursor);
                }
            }
            Input::Typed(c) => self.insert(Piece::Char(c)),
            Input::Pasted if self.ignores_paste => {}
            Input::Pasted if self.shows_token => self.insert(Piece::Token),
            Input::Pasted => BLOCK.chars().for_each(|c| self.insert(Piece::Char(c))),
            Input::Key("Left") => {
                assert!(!self.composer.is_empty(), "in an empty composer that means something else");
                self.cursor = self.cursor.saturating_sub(1);
            }
            Input::Key("Right") => {
                assert!(!self.composer.is_empty(), "in an empty composer that means something else");
                self.cursor = (self.cursor + 1).min(self.composer.len());
            }
            Input::Key("DC") => {
                if self.cursor < self.composer.len() {
                    self.composer.remove(self.cursor);
                }
            }
            Input::Key("C-u") => {
                let is_newline = |piece: &Piece| *piece == Piece::Char('\n');
                let start = self.composer[..self.cursor].iter().rposition(is_newline).map_or(0, |at| at + 1);
                self.composer.drain(start..self.cursor);
                self.cursor = start;
            }
            Input::Key(key) => panic!("what does {key} do?"),
        }
    }

    /// What is in the composer, with what tokens stand for.
    fn text(&self) -> String {
        let text = |piece: &Piece| match piece {
            Piece::Char(c) => c.to_string(),
            Piece::Token => BLOCK.to_owned(),
        };
        self.composer.iter().map(text).collect()
    }

    fn seen(&self) -> Seen {
        let shown: String = self
            .composer
            .iter()
            .map(|piece| match piece {
                Piece::Char(c) => c.to_string(),
                Piece::Token => "[Pasted text #4 +2 lines]".to_owned(),
            })
            .collect();
        let has_token = self.composer.contains(&Piece::Token);
        // Without the blanks at the ends of lines, as a screen shows it.
        let lines = shown.split('\n').map(|line| line.trim_end().to_owned()).collect();
        let composer = match (&self.other, self.composer.is_empty()) {
            (Some(other), _) => other.clone(),
            (None, true) => Composer::Empty,
            (None, false) => Composer::Draft(Draft { lines, has_token }),
        };
        Seen { composer, mark: Mark::with_last_key(self.last_key), mode: self.mode, at: self.now / 1000 }
    }

    fn act(&mut self, act: Act, guard: &Guard) -> bool {
        let holds = match guard {
            Guard::Untouched(mark) => mark.last_key() == Some(self.last_key),
            Guard::SamePane(_) => true,
        };
        if !holds {
            return false;
        }
        self.acts.push(act.clone());
        match act {
            Act::LeaveCopyMode => self.mode = Mode::Off,
            Act::Paste => self.input.push_back(Input::Pasted),
            Act::Keys(keys) => {
                let each = keys.iter().flat_map(|(key, times)| std::iter::repeat_n(Input::Key(key), *times));
                self.input.extend(each);
            }
        }
        true
    }

    fn run(&mut self, breaks_off: bool) -> Outcome {
        let mut typing = Typing::new(facts(), BLOCK, breaks_off);
        let mut step = Typing::begin();
        for _ in 0..200 {
            let event = match step {
                Step::End(outcome) => return outcome,
                Step::Look(after) => {
                    self.pass(u64::try_from(after.as_millis()).unwrap() + 15);
                    Event::Seen(self.seen())
                }
                Step::Type(act, guard) => {
                    self.pass(15);
                    Event::Typed(self.act(act, &guard))
                }
            };
            step = typing.next(event);
        }
        panic!("it comes to no end")
    }

    /// The person types this, from now on after so many milliseconds.
    fn types(&mut self, after: u64, text: &str, mut gap: impl FnMut() -> u64) {
        let mut at = self.now + after;
        for c in text.chars() {
            self.person.push_back((at, c));
            at += gap();
        }
    }
}

#[test]
fn into_an_empty_composer_the_block_is_pasted_and_entered() {
    for shows_token in [false, true] {
        let mut pane = Pane { shows_token, ..Pane::new() };
        assert_eq!(pane.run(false), Outcome::Entered);
        assert_eq!(pane.sent, [BLOCK]);
        assert_eq!(pane.acts, [Act::Paste, Act::Keys(vec![("Enter", 1)])]);
    }
}

#[test]
fn nothing_is_typed_unless_the_composer_is_empty_and_nobody_types() {
    use Because::{Asking, Draft as Typing, NoComposer};
    let other = |composer| Pane { other: Some(composer), ..Pane::new() };
    for (mut pane, because) in [
        (Pane::with_draft("fix"), Typing),
        (other(Composer::Question), Asking),
        (other(Composer::Unknown), NoComposer),
        (Pane { last_key: 97, ..Pane::new() }, Typing),
        (Pane { last_key: 100, ..Pane::new() }, Typing),
        (Pane { last_key: 103, ..Pane::new() }, Typing),
        (Pane { mode: Mode::Other, ..Pane::new() }, Typing),
    ] {
        assert_eq!(pane.run(true), Outcome::NotNow(because));
        assert!(pane.acts.is_empty() && pane.sent.is_empty());
    }
    // Since then the clock was set back.
    assert_eq!(Pane { last_key: 5000, ..Pane::new() }.run(false), Outcome::Entered);
    assert_eq!(Pane { last_key: 96, ..Pane::new() }.run(false), Outcome::Entered);
}

#[test]
fn nothing_is_typed_where_the_screen_will_not_show_all_of_it() {
    let seen = |size: &str| Seen { mark: Mark::with_size(size), ..Pane::new().seen() };
    let first = |size| Typing::new(facts(), BLOCK, false).next(Event::Seen(seen(size)));
    assert!(matches!(first("80 40"), Step::Type(Act::Paste, _)));
    for small in ["80 12", "20 20"] {
        assert_eq!(first(small), not_now(Because::NoComposer), "{small}");
    }
}

#[test]
fn copy_mode_is_left_and_a_turn_broken_off_first() {
    let mut pane = Pane { mode: Mode::Copy, ..Pane::new() };
    assert_eq!(pane.run(false), Outcome::Entered);
    assert_eq!(pane.acts[0], Act::LeaveCopyMode);
    let mut typing = Typing::new(facts(), BLOCK, true);
    let pane = Pane::new();
    let Step::Type(act, Guard::Untouched(_)) = typing.next(Event::Seen(pane.seen())) else { panic!() };
    assert_eq!(act, Act::Keys(vec![("Escape", 1)]));
    assert_eq!(typing.next(Event::Typed(true)), Step::Look(BREAK_DELAY));
    let Step::Type(act, _) = typing.next(Event::Seen(pane.seen())) else { panic!() };
    assert_eq!(act, Act::Paste);
    // What was broken off is in the composer again.
    let mut typing = Typing::new(facts(), BLOCK, true);
    typing.next(Event::Seen(pane.seen()));
    typing.next(Event::Typed(true));
    assert_eq!(typing.next(Event::Seen(Pane::with_draft("think").seen())), not_now(Because::Draft));
}

#[test]
fn enter_that_was_lost_is_pressed_once_more_and_then_the_block_is_taken_out() {
    let mut pane = Pane { ignores_enter: 1, ..Pane::new() };
    assert_eq!(pane.run(false), Outcome::Entered);
    assert_eq!(pane.sent, [BLOCK]);
    for shows_token in [false, true] {
        let mut pane = Pane { ignores_enter: 9, shows_token, ..Pane::new() };
        assert!(matches!(pane.run(false), Outcome::Failed(_)));
        assert_eq!((pane.text().as_str(), pane.sent.len(), pane.ignores_enter), ("", 0, 7));
    }
    let mut pane = Pane { ignores_paste: true, ..Pane::new() };
    assert!(matches!(pane.run(false), Outcome::Failed(_)));
}

#[test]
fn a_screen_that_is_half_drawn_is_looked_at_again() {
    let (mut typing, pane) = (Typing::new(facts(), BLOCK, false), Pane::new());
    let half = Pane { other: Some(Composer::Unknown), ..Pane::new() };
    assert_eq!(typing.next(Event::Seen(half.seen())), Step::Look(LOOK_DELAY));
    assert!(matches!(typing.next(Event::Seen(pane.seen())), Step::Type(Act::Paste, _)));
}

/// What cannot be told for certain is left alone.
#[test]
fn a_draft_that_cannot_be_told_apart_is_left_alone() {
    let mut typing = Typing::new(facts(), BLOCK, false);
    let mut pane = Pane::new();
    typing.next(Event::Seen(pane.seen()));
    assert_eq!(typing.next(Event::Typed(true)), Step::Look(PASTE_DELAY));
    // Somebody has moved the cursor and typed in front of it.
    pane.act(Act::Paste, &Guard::Untouched(Mark::with_last_key(50)));
    pane.pass(50);
    pane.composer.insert(0, Piece::Char('x'));
    pane.last_key = 100;
    let mut step = typing.next(Event::Seen(pane.seen()));
    while let Step::Look(_) = step {
        step = typing.next(Event::Seen(pane.seen()));
    }
    assert!(matches!(step, Step::End(Outcome::Unclear(_))), "{step:?}");
}

#[test]
fn a_pane_that_is_lost_was_typed_into_or_not() {
    let mut typing = Typing::new(facts(), BLOCK, false);
    assert!(matches!(typing.next(Event::Lost("x".into())), Step::End(Outcome::Failed(_))));
    let mut typing = Typing::new(facts(), BLOCK, false);
    typing.next(Event::Seen(Pane::new().seen()));
    typing.next(Event::Typed(true));
    assert!(matches!(typing.next(Event::Lost("x".into())), Step::End(Outcome::Unclear(_))));
}

/// A generator of numbers that is the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn who_types_at_any_moment_loses_nothing_and_sends_nothing_of_it() {
    let word = "what I typed";
    let (mut sent, mut taken_out) = (0, 0);
    for seed in 0..400 {
        let mut numbers = Numbers(seed);
        let mut pane = Pane { shows_token: seed % 2 == 0, key_time: 1 + numbers.below(8), ..Pane::new() };
        let begins = numbers.below(2_500);
        pane.types(begins, word, || 20 + numbers.below(200));
        let outcome = pane.run(false);
        // The person and the program come to an end.
        pane.pass(20_000);
        match outcome {
            Outcome::Entered => {
                sent += 1;
                assert_eq!(
                    (pane.sent.as_slice(), pane.text().as_str()),
                    (&[BLOCK.to_owned()][..], word),
                    "seed {seed}"
                );
            }
            Outcome::NotNow(Because::Draft) => {
                taken_out += u32::from(pane.acts.contains(&Act::Paste));
                assert_eq!((pane.sent.len(), pane.text().as_str()), (0, word), "seed {seed}");
            }
            other => panic!("seed {seed}: {other:?}, {:?}", pane.text()),
        }
    }
    assert!(sent > 50 && taken_out > 50, "{sent} {taken_out}");
}

#[test]
fn a_letter_that_is_typed_and_taken_back_leaves_nothing_of_the_block() {
    for after in (0..1_200).step_by(50) {
        let mut pane = Pane::new();
        pane.types(after, "x\u{7f}", || 40);
        let outcome = pane.run(false);
        pane.pass(20_000);
        assert!(pane.sent.iter().all(|sent| sent == BLOCK), "{after}: {:?}", pane.sent);
        assert_eq!(pane.text(), "", "{after}: {outcome:?}");
    }
}

#[test]
fn who_presses_enter_meanwhile_is_not_told_that_the_block_was_not_sent() {
    for after in (0..1_500).step_by(50) {
        let mut pane = Pane::new();
        pane.types(after, "yes\r", || 5);
        let outcome = pane.run(false);
        pane.pass(20_000);
        let with_block = pane.sent.iter().filter(|sent| sent.contains(BLOCK)).count();
        assert!(with_block <= 1, "{after}: {:?}", pane.sent);
        match outcome {
            Outcome::Entered => assert_eq!(with_block, 1, "{after}"),
            Outcome::NotNow(_) | Outcome::Failed(_) => assert_eq!(with_block, 0, "{after}"),
            Outcome::Unclear(_) => {}
        }
        assert!(pane.sent.iter().any(|sent| sent.ends_with("yes")), "{after}: {:?}", pane.sent);
    }
}
