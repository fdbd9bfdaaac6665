//! What the screen of a harness shows: whether its composer, the place where its user types, is empty. Pure; a screen is what
//! `tmux capture-pane -p -e` prints, and the place of the cursor.
//!
//! Nothing is ever typed unless the composer is empty, so a look errs to one side: what is not recognised is `Unknown`, which
//! means hands off. The cursor tells which of several places that look like a composer is the real one. What a model or a tool
//! prints cannot move it there.

use std::ops::Range;

/// How a harness draws its composer, and what else tells about its state.
#[derive(Debug, PartialEq, Eq)]
pub struct ScreenFacts {
    /// What begins the first line of an empty composer or a draft.
    pub prompt: &'static str,
    /// The columns that every line of the composer has before its text.
    pub text_column: usize,
    pub frame: Frame,
    pub hint: Hint,
    /// It shows the cursor of the terminal in its composer and nowhere else. Others draw one.
    pub shows_cursor: bool,
    /// How a text begins that stands for a longer one which was pasted.
    pub paste_tokens: &'static [&'static str],
    /// What stands for a text that was pasted: `{number}` for a number of the harness's own, `{lines}`, `{newlines}` and `{chars}`
    /// for how much it is.
    pub pasted: &'static [&'static str],
    pub token_from: TokenFrom,
    /// Any of these, where no composer is on the screen, shows that the harness asks its user something.
    pub questions: &'static [&'static str],
    pub keys: Keys,
}

/// How much has to be pasted for a token to stand for it. Either is enough.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenFrom {
    /// So many ends of lines; none if these do not count.
    pub newlines: Option<usize>,
    pub chars: usize,
}

/// What is typed into a harness besides text, in the words of tmux. A key that means something else there is none of them.
#[derive(Debug, PartialEq, Eq)]
pub struct Keys {
    /// Takes the last piece out of a draft, and does nothing where there is none.
    pub erase: &'static [&'static str],
    /// Breaks off a turn.
    pub break_turn: &'static str,
    /// It is shown that it handles many keys that come at once, each of them and in order. Where not, nothing is typed into it: what was
    /// pasted could not be taken out again for certain.
    pub takes_bursts: bool,
}

/// What separates the composer from the rest of the screen.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A line of this character above and one of this below.
    Rules(char, char),
    /// A blank line above and below. Drafts may have blank lines too.
    BlankLines,
    /// This character begins each of its lines.
    LeftBar(char),
}

/// What an empty composer says to its user.
#[derive(Debug, PartialEq, Eq)]
pub enum Hint {
    /// Nothing, or something that is dim.
    Dim,
    /// Always something that is dim.
    AlwaysDim,
    /// Always a text that begins like this, behind the cursor.
    Text(&'static str),
}

/// A screen in a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Screen<'a> {
    /// Its lines, with the escape sequences of their colours.
    pub text: &'a str,
    /// Column and line of the cursor, from 0.
    pub cursor: (usize, usize),
    pub cursor_shown: bool,
    pub rows: usize,
}

/// The composer of a harness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Composer {
    Empty,
    Draft(Draft),
    /// The harness asks its user something. Nobody else may answer.
    Question,
    Unknown,
}

/// What a user has typed and not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Its lines as they are shown, wrapped and without the spaces at their ends. A draft that is longer than the composer is not
    /// shown from its beginning.
    pub lines: Vec<String>,
    /// A part of it is shown as a token that stands for a longer text.
    pub has_token: bool,
}

/// On a lower terminal a draft of several lines may be shown as one that is blank.
const MIN_ROWS: usize = 12;

/// The most of a screen that is read.
const MAX_BYTES: usize = 1024 * 1024;

impl Draft {
    /// Whether it is this text and nothing else, however it is wrapped.
    pub fn is_exactly(&self, text: &str) -> bool {
        let shown = self.lines.iter().flat_map(|line| line.chars());
        !self.has_token && visible(shown).eq(visible(text.chars()))
    }
}

pub(crate) fn visible(text: impl Iterator<Item = char>) -> impl Iterator<Item = char> {
    text.filter(|c| !c.is_whitespace())
}

/// Looks for the composer of a harness on a screen.
pub fn composer(facts: &ScreenFacts, screen: Screen<'_>) -> Composer {
    if screen.text.len() > MAX_BYTES || screen.rows < MIN_ROWS {
        return Composer::Unknown;
    }
    let lines: Vec<Vec<Cell>> = cells(screen.text);
    match composer_lines(facts, &lines, screen) {
        Some(range) => read_composer(facts, &lines[range.clone()], range.start, screen.cursor),
        None => {
            let asks = |line: &Vec<Cell>| facts.questions.iter().any(|question| text_of(line).contains(question));
            if lines.iter().any(asks) { Composer::Question } else { Composer::Unknown }
        }
    }
}

/// The lines of the composer that the cursor is in.
fn composer_lines(facts: &ScreenFacts, lines: &[Vec<Cell>], screen: Screen<'_>) -> Option<Range<usize>> {
    let cursor_line = screen.cursor.1;
    if cursor_line >= lines.len() || (facts.shows_cursor && !screen.cursor_shown) {
        return None;
    }
    // Blanks at the end of a line are not always on the screen.
    let begins = |line: &Vec<Cell>| {
        let line = text_of(line);
        line.starts_with(facts.prompt) || line == facts.prompt.trim_end()
    };
    match facts.frame {
        Frame::Rules(above, below) => {
            let is_rule = |line: &Vec<Cell>, rule: char| is_rule(&text_of(line), rule);
            let start =
                (0..=cursor_line).rev().find(|at| is_rule(&lines[*at], above) || is_rule(&lines[*at], below))? + 1;
            let end = (cursor_line..lines.len()).find(|at| is_rule(&lines[*at], below))?;
            let is_whole = start < end && is_rule(&lines[start - 1], above) && begins(&lines[start]);
            is_whole.then_some(start..end)
        }
        Frame::BlankLines => {
            let is_text = |at: &usize| is_indented(&lines[*at], facts.text_column);
            let start = (0..=cursor_line).rev().find(|at| begins(&lines[*at]))?;
            // What is between is text of the draft.
            let is_whole = start > 0
                && text_of(&lines[start - 1]).trim().is_empty()
                && (start + 1..=cursor_line).all(|at| is_text(&at));
            let end = (cursor_line + 1..lines.len()).find(|at| text_of(&lines[*at]).trim().is_empty())?;
            is_whole.then_some(start..end)
        }
        Frame::LeftBar(bar) => {
            let has_bar = |at: &usize| text_of(&lines[*at]).trim_start().starts_with(bar);
            has_bar(&cursor_line).then_some(())?;
            let start = (0..=cursor_line).rev().take_while(has_bar).last()?;
            let end = (cursor_line..lines.len()).take_while(has_bar).last()? + 1;
            Some(start..end)
        }
    }
}

/// Whether a line is drawn from one character. A title may stand in it.
fn is_rule(line: &str, rule: char) -> bool {
    let line = line.trim();
    let count = line.chars().filter(|c| *c == rule).count();
    count >= 8 && line.starts_with(rule) && line.ends_with(rule)
}

fn is_indented(line: &[Cell], columns: usize) -> bool {
    line.iter().take(columns).all(|cell| cell.char == ' ')
}

fn read_composer(facts: &ScreenFacts, lines: &[Vec<Cell>], first: usize, cursor: (usize, usize)) -> Composer {
    let body = |line: &[Cell]| line.iter().skip(facts.text_column).copied().collect::<Vec<Cell>>();
    let bodies: Vec<Vec<Cell>> = lines.iter().map(|line| body(line)).collect();
    let at_start = cursor == (facts.text_column, first);
    let rest_is_blank = bodies.iter().skip(1).all(|line| text_of(line).trim().is_empty());
    if at_start && rest_is_blank && is_hint(facts, &bodies[0]) {
        return Composer::Empty;
    }
    if cursor.0 < facts.text_column {
        return Composer::Unknown;
    }
    let lines: Vec<String> = bodies.iter().map(|line| text_of(line).trim_end().to_owned()).collect();
    let has_token = lines.iter().any(|line| facts.paste_tokens.iter().any(|token| line.contains(token)));
    Composer::Draft(Draft { lines, has_token })
}

/// Whether the hint of an empty composer is its only content. The first cell may be drawn as the cursor.
fn is_hint(facts: &ScreenFacts, body: &[Cell]) -> bool {
    let text = text_of(body);
    let text = text.trim();
    let is_dim = || {
        let after_cursor = body.iter().skip_while(|cell| cell.reverse);
        let mut shown = after_cursor.filter(|cell| cell.char != ' ').peekable();
        shown.peek().is_some() && shown.all(|cell| cell.dim)
    };
    match facts.hint {
        Hint::Dim => text.is_empty() || is_dim(),
        Hint::AlwaysDim => is_dim(),
        // In its place a draft would have the cursor on its first letter.
        Hint::Text(hint) => body.first().is_some_and(|cell| cell.char == ' ') && text.starts_with(hint),
    }
}

/// One character of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    char: char,
    dim: bool,
    reverse: bool,
}

fn text_of(cells: &[Cell]) -> String {
    cells.iter().map(|cell| cell.char).collect()
}

/// The characters of each line. Attributes last over the ends of lines, as tmux writes them.
fn cells(text: &str) -> Vec<Vec<Cell>> {
    let (mut dim, mut reverse) = (false, false);
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut cells = Vec::new();
        let mut chars = line.chars();
        while let Some(char) = chars.next() {
            match char {
                '\x1b' => match chars.next() {
                    Some('[') => {
                        let mut parameters = String::new();
                        let end = chars.by_ref().find(|c| {
                            parameters.push(*c);
                            ('\x40'..='\x7e').contains(c)
                        });
                        if end == Some('m') {
                            parameters.pop();
                            apply(&parameters, &mut dim, &mut reverse);
                        }
                    }
                    // A link or a title, up to BEL or ESC \.
                    Some(']') => {
                        let mut last = ' ';
                        chars.by_ref().find(|c| {
                            let is_end = *c == '\x07' || (last == '\x1b' && *c == '\\');
                            last = *c;
                            is_end
                        });
                    }
                    _ => {}
                },
                '\u{a0}' => cells.push(Cell { char: ' ', dim, reverse }),
                c if c.is_control() => {}
                c => cells.push(Cell { char: c, dim, reverse }),
            }
        }
        lines.push(cells);
    }
    lines
}

/// Applies the parameters of `ESC [ … m`.
fn apply(parameters: &str, dim: &mut bool, reverse: &mut bool) {
    // With colons, one attribute and its parts: a kind of underline or a colour.
    let plain = parameters.split(';').filter(|parameter| !parameter.contains(':'));
    let mut numbers = plain.map(|number| number.parse::<u16>().unwrap_or(0));
    while let Some(number) = numbers.next() {
        match number {
            0 => (*dim, *reverse) = (false, false),
            2 => *dim = true,
            22 => *dim = false,
            7 => *reverse = true,
            27 => *reverse = false,
            // A colour: an index, or three parts.
            38 | 48 | 58 => {
                let parts = match numbers.next() {
                    Some(5) => 1,
                    Some(2) => 3,
                    _ => 0,
                };
                numbers.by_ref().take(parts).for_each(drop);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A screen of a real program, recorded by `tests/harness/record_screens.py`.
    struct Recording {
        name: String,
        text: String,
        cursor: (usize, usize),
        cursor_shown: bool,
        rows: usize,
    }

    impl Recording {
        fn screen(&self) -> Screen<'_> {
            Screen { text: &self.text, cursor: self.cursor, cursor_shown: self.cursor_shown, rows: self.rows }
        }
    }

    fn recordings(harness: &str) -> Vec<Recording> {
        let dir = format!("{}/tests/screens/{harness}", env!("CARGO_MANIFEST_DIR"));
        let pair = |head: &str, word: &str| -> (usize, usize) {
            let value = head.split_whitespace().skip_while(|w| *w != word).nth(1).unwrap();
            let (a, b) = value.split_once(',').unwrap();
            (a.parse().unwrap(), b.parse().unwrap())
        };
        let read = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.unwrap().path();
            let whole = std::fs::read_to_string(&path).unwrap();
            let (head, text) = whole.split_once('\n').unwrap();
            Recording {
                name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
                text: text.to_owned(),
                cursor: pair(head, "cursor"),
                cursor_shown: head.contains(" shown 1 "),
                rows: pair(head, "size").1,
            }
        };
        std::fs::read_dir(dir).unwrap().map(read).collect()
    }

    fn facts(harness: &str) -> &'static ScreenFacts {
        crate::by_name(harness).unwrap().screen.as_ref().unwrap()
    }

    /// What the recordings of a harness are taken for: `empty`, `question`, `unknown`, `token`, or the draft.
    fn looks(harness: &str) -> BTreeMap<String, String> {
        let look = |recording: Recording| {
            let word = match composer(facts(harness), recording.screen()) {
                Composer::Empty => "empty".to_owned(),
                Composer::Question => "question".to_owned(),
                Composer::Unknown => "unknown".to_owned(),
                Composer::Draft(draft) if draft.has_token => "token".to_owned(),
                Composer::Draft(draft) => format!("draft: {}", draft.lines.join("|")),
            };
            (recording.name, word)
        };
        recordings(harness).into_iter().map(look).collect()
    }

    #[track_caller]
    fn assert_looks(harness: &str, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(name, word)| ((*name).to_owned(), (*word).to_owned())).collect();
        assert_eq!(looks(harness), expected);
    }

    const LONG: &str = "one line that is so long that no composer shows it without wrapping it,";

    #[test]
    fn every_screen_of_claude_code_is_taken_for_what_it_is() {
        let wrapped = format!(
            "draft: {LONG} one line that is so long that no|composer shows it without wrapping it, one line that is so long that no composer shows it without wrapping|it, {LONG}"
        );
        let scrolled = "draft: without wrapping it, one line that is so long that no|composer shows it without wrapping it, one line that is|so long that no composer shows it without wrapping it,|one line that is so long that no composer shows it|without wrapping it,";
        assert_looks(
            "claude",
            &[
                ("empty", "empty"),
                ("empty_after_clearing", "empty"),
                ("after_a_turn", "empty"),
                ("after_escape_cleared", "empty"),
                ("narrow_empty", "empty"),
                ("working", "empty"),
                // tmux shows the program's own screen, whatever a person looks at.
                ("copy_mode", "empty"),
                ("draft_one_line", "draft: fix the \"parser\" first"),
                ("draft_cursor_at_start", "draft: fix the \"parser\" first"),
                ("working_with_draft", "draft: fix the \"parser\" first"),
                // The prompt that was broken off is back.
                ("after_escape", "draft: #hold think"),
                ("draft_backslash", "draft: ends with \\"),
                ("draft_wide", "draft: 日本語 ünï 👍 é wide \\"),
                ("draft_wrapped", &wrapped),
                ("narrow_draft", scrolled),
                ("draft_one_space", "draft: "),
                ("draft_at", "draft: @"),
                ("menu", "draft: /"),
                ("draft_many_lines", "token"),
                ("draft_pasted_token", "token"),
                ("shell_mode", "unknown"),
                ("shell_mode_draft", "unknown"),
                ("dialog_model", "unknown"),
                ("transcript_view", "unknown"),
                ("history_search", "unknown"),
                ("question", "question"),
            ],
        );
    }

    #[test]
    fn every_screen_of_codex_is_taken_for_what_it_is() {
        let wrapped = format!(
            "draft: {LONG} one line that is so long that no|composer shows it without wrapping it, one line that is so long that no composer shows it without wrapping|it, {LONG}"
        );
        let narrow = "draft: one line that is so long that no composer shows it|without wrapping it, one line that is so long that no|composer shows it without wrapping it, one line that is|so long that no composer shows it without wrapping it,|one line that is so long that no composer shows it|without wrapping it,";
        assert_looks(
            "codex",
            &[
                ("empty", "empty"),
                ("empty_after_clearing", "empty"),
                ("after_a_turn", "empty"),
                ("after_escape", "empty"),
                ("after_escape_cleared", "empty"),
                ("narrow_empty", "empty"),
                ("working", "empty"),
                ("copy_mode", "empty"),
                ("draft_one_line", "draft: fix the \"parser\" first"),
                ("draft_cursor_at_start", "draft: fix the \"parser\" first"),
                ("working_with_draft", "draft: fix the \"parser\" first"),
                ("draft_many_lines", "draft: first line|  second \"line\"||the fourth ends with \\"),
                ("draft_backslash", "draft: ends with \\"),
                ("draft_wide", "draft: 日本語 ünï 👍 e\u{301} wide \\"),
                ("draft_wrapped", &wrapped),
                ("narrow_draft", narrow),
                ("draft_one_space", "draft: "),
                ("draft_at", "draft: @"),
                ("menu", "draft: /"),
                ("draft_pasted_token", "token"),
                ("shell_mode", "unknown"),
                ("shell_mode_draft", "unknown"),
                ("dialog_model", "unknown"),
                ("question", "question"),
            ],
        );
    }

    #[test]
    fn every_screen_of_gemini_cli_is_taken_for_what_it_is() {
        let wrapped = format!(
            "draft: {LONG} one line that is so long that|no composer shows it without wrapping it, one line that is so long that no composer shows it without|wrapping it, {LONG}"
        );
        let narrow = "draft: one line that is so long that no composer shows it|without wrapping it, one line that is so long that no|composer shows it without wrapping it, one line that|is so long that no composer shows it without wrapping|it, one line that is so long that no composer shows|it without wrapping it,";
        assert_looks(
            "gemini",
            &[
                ("empty", "empty"),
                ("empty_after_clearing", "empty"),
                ("after_a_turn", "empty"),
                ("after_escape", "empty"),
                ("after_escape_cleared", "empty"),
                ("narrow_empty", "empty"),
                ("working", "empty"),
                ("copy_mode", "empty"),
                ("draft_one_line", "draft: fix the \"parser\" first"),
                ("draft_cursor_at_start", "draft: fix the \"parser\" first"),
                ("working_with_draft", "draft: fix the \"parser\" first"),
                ("draft_many_lines", "draft: first line|  second \"line\"||the fourth ends with \\"),
                ("draft_backslash", "draft: ends with \\"),
                ("draft_wide", "draft: 日本語 ünï 👍 e\u{301} wide \\"),
                ("draft_wrapped", &wrapped),
                ("narrow_draft", narrow),
                ("draft_one_space", "draft: "),
                ("draft_at", "draft: @"),
                ("menu", "draft: /"),
                ("draft_pasted_token", "token"),
                ("shell_mode", "unknown"),
                ("shell_mode_draft", "unknown"),
                ("question", "question"),
            ],
        );
    }

    #[test]
    fn a_draft_is_compared_without_regard_to_where_it_is_wrapped() {
        let draft =
            |lines: &[&str], has_token| Draft { lines: lines.iter().map(|l| (*l).to_owned()).collect(), has_token };
        let text = "[tag 1]\n{\"body\":\"one two\"}\n[tag 1 ends]";
        assert!(draft(&["[tag 1]", "{\"body\":\"one", "two\"}", "[tag 1 ends]"], false).is_exactly(text));
        assert!(!draft(&["x[tag 1]", "{\"body\":\"one", "two\"}", "[tag 1 ends]"], false).is_exactly(text));
        assert!(
            !draft(&["{\"body\":\"one", "two\"}", "[tag 1 ends]"], false).is_exactly(text),
            "its beginning is not shown"
        );
        assert!(!draft(&["[tag 1]", "{\"body\":\"one", "two\"}", "[tag 1 ends]"], true).is_exactly(text));
    }

    #[test]
    fn a_screen_that_only_resembles_a_composer_is_left_alone() {
        let codex = facts("codex");
        let look =
            |text: &str, cursor: (usize, usize)| composer(codex, Screen { text, cursor, cursor_shown: true, rows: 40 });
        let empty = "text\n\n\u{1b}[1m›\u{1b}[0m \u{1b}[2mAsk\u{1b}[0m\n\n  model\n";
        assert_eq!(look(empty, (2, 2)), Composer::Empty);
        assert_eq!(look(empty, (2, 40)), Composer::Unknown, "the cursor is outside");
        assert_eq!(look(empty, (2, 0)), Composer::Unknown, "the cursor is in the conversation");
        let hidden = Screen { text: empty, cursor: (2, 2), cursor_shown: false, rows: 40 };
        assert_eq!(composer(codex, hidden), Composer::Unknown);
        assert_eq!(composer(codex, Screen { rows: 11, cursor_shown: true, ..hidden }), Composer::Unknown, "too low");
        // The 2 of a colour is not the 2 of a dim text.
        let red = "text\n\n› \u{1b}[38;2;2;2;2mAsk\u{1b}[0m\n\n  model\n";
        assert!(matches!(look(red, (2, 2)), Composer::Draft(_)));
        let indexed = "text\n\n› \u{1b}[38;5;2mAsk\u{1b}[0m\n\n  model\n";
        assert!(matches!(look(indexed, (2, 2)), Composer::Draft(_)));
        let blank = "text\n\n› \n  second\n\n  model\n";
        assert!(matches!(look(blank, (2, 2)), Composer::Draft(_)), "a draft that begins with a blank line");
        for text in ["", "\u{1b}", "\u{1b}[", "\u{1b}]8;;x", "\u{1b}[2;9999999999m", "›", "\n\n› "] {
            for cursor in [(0, 0), (2, 2), (usize::MAX, usize::MAX)] {
                assert!(!matches!(look(text, cursor), Composer::Empty), "{text:?}");
            }
        }
    }
}
