//! What a terminal shows of a harness, or of anything else. Only an empty composer with the cursor in it is taken for one. The first
//! line of an input is the place of the cursor and whether it is shown.

use tt_harness::{Composer, Screen, ScreenFacts, composer};

use crate::generate::text;
use crate::{Random, Target, Verdict, ensure};

/// As many lines as a terminal of an ordinary size has.
const ROWS: usize = 24;

/// What composers are made of.
const PARTS: &[&str] = &[
    "────────────────",
    "▄▄▄▄▄▄▄▄▄▄▄▄",
    "▀▀▀▀▀▀▀▀▀▀▀▀",
    "❯ ",
    "❯\u{a0}\u{1b}[7m \u{1b}[0m",
    "› ",
    "\u{1b}[1m›\u{1b}[0m \u{1b}[2mAsk Codex to do anything\u{1b}[0m",
    " > \u{1b}[7m \u{1b}[0m Type your message or @path/to/file",
    "  text",
    "\u{1b}[38;2;2;2;2m",
    "\u{1b}[2;7m",
    "\u{1b}]8;;",
    "\u{1b}\\",
    "Would you like to run",
    "[Pasted text #1 +3 lines]",
    "",
];

pub(super) struct Screens;

impl Target for Screens {
    fn generate(&self, random: &mut Random) -> Vec<u8> {
        let mut lines = vec![format!("{} {} {}", random.below(5), random.below(8), random.below(2))];
        for _ in 0..random.below(10) {
            let part = random.pick(PARTS);
            lines.push(if random.one_in(4) { format!("{part}{}", text(random)) } else { part.to_owned() });
        }
        lines.join("\n").into_bytes()
    }

    fn check(&mut self, input: &[u8]) -> Result<Verdict, String> {
        let input = String::from_utf8_lossy(input);
        let (head, text) = input.split_once('\n').unwrap_or((&input, ""));
        let mut numbers = head.split(' ').map(|number| number.parse::<usize>().unwrap_or(0));
        let mut number = || numbers.next().unwrap_or(0);
        let cursor = (number(), number());
        let screen = Screen { text, cursor, cursor_shown: number() == 1, rows: ROWS };
        let facts: Vec<&ScreenFacts> = tt_harness::ALL.iter().filter_map(|harness| harness.screen.as_ref()).collect();
        let mut verdict = Verdict::Refused;
        for facts in facts {
            let look = |screen| composer(facts, screen);
            match look(screen) {
                Composer::Empty => {
                    let (x, y) = cursor;
                    for cursor in [(x + 1, y), (x, y + 1), (x.wrapping_sub(1), y), (x, y.wrapping_sub(1))] {
                        ensure!(look(Screen { cursor, ..screen }) != Composer::Empty, "empty wherever the cursor is");
                    }
                    ensure!(look(Screen { rows: 1, ..screen }) == Composer::Unknown, "one line is no whole screen");
                }
                Composer::Draft(draft) => {
                    let clean = |line: &String| !line.contains(char::is_control);
                    ensure!(draft.lines.iter().all(clean), "{:?} has control characters", draft.lines);
                }
                Composer::Question => {}
                Composer::Unknown => continue,
            }
            verdict = Verdict::Accepted;
        }
        Ok(verdict)
    }
}
