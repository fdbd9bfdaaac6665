//! What a draft shows of a text that was pasted into the composer: the text itself, or something that stands for it. Pure.
//!
//! Nothing is sent unless it is certain that the draft is the text and nothing else, and nothing is deleted that may be something
//! else.

use crate::screen::visible;
use crate::{Draft, ScreenFacts, TokenFrom};

/// A text as it is pasted: with as many empty lines before it as make the harness show a token for it, where that depends on lines. A
/// token has one line, and one key takes it out.
pub fn padded_for_paste(facts: &ScreenFacts, text: &str) -> String {
    let missing = match facts.token_from {
        TokenFrom { newlines: Some(newlines), chars } if text.chars().count() < chars => {
            newlines.saturating_sub(text.matches('\n').count())
        }
        _ => 0,
    };
    "\n".repeat(missing) + text
}

/// How many lines a text takes in a composer whose lines have so many columns, at most.
pub fn lines_of_paste(facts: &ScreenFacts, text: &str, columns: usize) -> usize {
    let newlines = text.matches('\n').count();
    let TokenFrom { newlines: from, chars } = facts.token_from;
    if from.is_some_and(|from| newlines >= from) || text.chars().count() >= chars {
        return 1;
    }
    // A character takes two columns at most, and a word that does not fit leaves a part of its line empty.
    let lines =
        |line: &str| 1 + 2 * line.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum::<usize>() / columns.max(1);
    text.split('\n').map(lines).sum()
}

/// The beginning of a draft that is the rest of a text that was pasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PastedPart {
    /// How often the key that deletes forward is pressed at its beginning to delete it and nothing else. None if that is not certain.
    pub deletions: Option<usize>,
    /// How many are shown behind it.
    pub behind: usize,
}

impl Draft {
    /// Whether it is what the harness shows of this text, and nothing else: the text, or what stands for one of as many lines and
    /// characters.
    pub fn is_paste_of(&self, facts: &ScreenFacts, text: &str) -> bool {
        let shown = self.shown();
        // A text may itself have words like those of a token.
        if visible(text.chars()).eq(shown.chars()) {
            return true;
        }
        facts.pasted.iter().any(|form| token_at_start(form, text, &shown) == Some(shown.len()))
    }

    /// The part of it, at its beginning, that is this text or the rest of it. Its last line must be one that nobody else writes.
    pub fn pasted_part(&self, facts: &ScreenFacts, text: &str) -> Option<PastedPart> {
        let shown = self.shown();
        let last_line: String = visible(text.lines().last()?.chars()).collect();
        let behind = |end: usize| shown[end..].chars().count();
        if let Some(at) = shown.find(&last_line) {
            let end = at + last_line.len();
            let is_whole = visible(text.chars()).eq(shown[..end].chars());
            let rest = if is_whole { text } else { suffix_that_shows(text, &shown[..end])? };
            let deletions = rest.chars().all(is_plain).then(|| rest.chars().count());
            return Some(PastedPart { deletions, behind: behind(end) });
        }
        let end = facts.pasted.iter().find_map(|form| token_at_start(form, text, &shown))?;
        // The harness deletes what stands for a text as one character.
        Some(PastedPart { deletions: Some(1), behind: behind(end) })
    }

    /// Whether something of this text may be in it. Its last line must be one that nobody else writes.
    pub fn may_hold(&self, text: &str) -> bool {
        let last_line: String = visible(text.lines().last().unwrap_or_default().chars()).collect();
        self.has_token || self.shown().contains(&last_line)
    }

    fn shown(&self) -> String {
        visible(self.lines.iter().flat_map(|line| line.chars())).collect()
    }
}

/// Where what stands for this text ends, if what is shown begins with it.
fn token_at_start(form: &str, text: &str, shown: &str) -> Option<usize> {
    let newlines = text.matches('\n').count();
    let form = form.replace("{newlines}", &newlines.to_string()).replace("{lines}", &(newlines + 1).to_string());
    let form: String = visible(form.replace("{chars}", &text.chars().count().to_string()).chars()).collect();
    let Some((before, after)) = form.split_once("{number}") else {
        return shown.starts_with(&form).then_some(form.len());
    };
    let rest = shown.strip_prefix(before)?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let fits = digits > 0 && rest[digits..].starts_with(after);
    fits.then_some(before.len() + digits + after.len())
}

/// The shortest end of a text that shows this.
fn suffix_that_shows<'a>(text: &'a str, shown: &str) -> Option<&'a str> {
    let mut wanted = shown.chars().rev().peekable();
    for (at, c) in text.char_indices().rev() {
        if c.is_whitespace() {
            continue;
        }
        if wanted.next() != Some(c) {
            return None;
        }
        if wanted.peek().is_none() {
            return Some(&text[at..]);
        }
    }
    None
}

/// Whether a character never joins with another one of these. A letter and its accent may be one character for a harness, and so may
/// what makes up a flag.
fn is_plain(c: char) -> bool {
    match c {
        '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{24f}' | '\u{400}'..='\u{482}' | '\u{2010}'..='\u{2027}' => true,
        '\u{3041}'..='\u{3096}' | '\u{309b}'..='\u{30ff}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' => true,
        '\u{1f300}'..='\u{1f3fa}' | '\u{1f400}'..='\u{1faff}' => true,
        c => c.is_ascii(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[inbox 1a2b: 1 new]\n{\"body\":\"one two\"}\n[inbox 1a2b ends]";

    fn facts(harness: &str) -> &'static ScreenFacts {
        crate::by_name(harness).unwrap().screen.as_ref().unwrap()
    }

    fn draft(line: &str) -> Draft {
        let lines: Vec<String> = line.split('|').map(str::to_owned).collect();
        let has_token = line.contains("[Pasted");
        Draft { lines, has_token }
    }

    fn part(harness: &str, line: &str) -> Option<(usize, usize)> {
        draft(line).pasted_part(facts(harness), TEXT).map(|part| (part.deletions.unwrap(), part.behind))
    }

    #[test]
    fn what_stands_for_a_text_is_that_of_as_many_lines_or_characters() {
        let chars = TEXT.chars().count();
        for (harness, token) in [
            ("claude", "[Pasted text #12 +2 lines]".to_owned()),
            ("codex", format!("[Pasted Content {chars} chars]")),
            ("gemini", "[Pasted Text: 3 lines]".to_owned()),
            ("gemini", format!("[Pasted Text: {chars} chars]")),
        ] {
            let is_ours = |line: &str| draft(line).is_paste_of(facts(harness), TEXT);
            assert!(is_ours(&token), "{token}");
            assert!(is_ours(&token.replace(' ', "|")), "{token}, wrapped");
            for other in [format!("{token}x"), format!("x{token}"), format!("{token}{token}"), token.replace('2', "9")]
            {
                assert!(other == token || !is_ours(&other), "{other}");
            }
        }
        assert!(!draft("[Pasted text # +2 lines]").is_paste_of(facts("claude"), TEXT));
        assert!(
            draft("[inbox 1a2b: 1 new]|{\"body\":\"one|two\"}|[inbox 1a2b ends]").is_paste_of(facts("claude"), TEXT)
        );
    }

    #[test]
    fn the_part_of_a_draft_that_was_pasted_is_found_and_no_more_of_it_deleted() {
        let shown = TEXT.replace('\n', "|");
        assert_eq!(part("claude", &shown), Some((TEXT.len(), 0)));
        assert_eq!(part("claude", &format!("{shown}yes  please")), Some((TEXT.len(), 9)));
        // Only its end is shown, or left.
        assert_eq!(part("claude", "two\"}|[inbox 1a2b ends]ok"), Some(("two\"}\n[inbox 1a2b ends]".len(), 2)));
        assert_eq!(part("claude", "[inbox 1a2b ends]|ok"), Some(("[inbox 1a2b ends]".len(), 2)));
        assert_eq!(part("claude", "[Pasted text #3 +2 lines]ok"), Some((1, 2)));
        assert_eq!(part("claude", &format!("{shown}[Pasted text #3 +9 lines]")), Some((TEXT.len(), 21)));
        // Somebody typed in front of it or into it, or it is another text.
        for line in ["ok", "", "nox 1a2b ends]", "[Pasted text #3 +3 lines]ok", "ok[Pasted text #3 +2 lines]"] {
            assert_eq!(part("claude", line), None, "{line}");
        }
        assert_eq!(part("claude", &format!("x{shown}")), None);
        assert_eq!(part("claude", &shown.replace("one", "ones")), None);
    }

    #[test]
    fn a_text_is_made_long_enough_for_a_token_where_that_depends_on_lines() {
        for (harness, before) in [("claude", "\n"), ("codex", ""), ("gemini", "\n\n\n")] {
            let padded = padded_for_paste(facts(harness), TEXT);
            assert_eq!(padded, format!("{before}{TEXT}"), "{harness}");
            assert_eq!(lines_of_paste(facts(harness), &padded, 80), if before.is_empty() { 3 } else { 1 }, "{harness}");
            let long = format!("{TEXT}{}", "x".repeat(1001));
            assert_eq!((padded_for_paste(facts(harness), &long), lines_of_paste(facts(harness), &long, 80)), (long, 1));
        }
        assert_eq!(lines_of_paste(facts("codex"), "日本語", 6), 3);
        // If it is shown all the same, the lines before it are taken out too.
        let padded = padded_for_paste(facts("claude"), TEXT);
        let shown = draft(&format!("|{}", TEXT.replace('\n', "|")));
        assert_eq!(shown.pasted_part(facts("claude"), &padded).unwrap().deletions, Some(TEXT.len() + 1));
    }

    #[test]
    fn what_may_be_one_character_or_two_is_not_deleted_by_count() {
        for (body, is_certain) in [
            ("abc", true),
            ("日本語 é 👍", true),
            ("e\u{301}", false),
            ("👍🏽", false),
            ("🇩🇪", false),
            ("か\u{3099}", false),
        ] {
            let text = TEXT.replace("one", body);
            let part = draft(&text.replace('\n', "|")).pasted_part(facts("codex"), &text).unwrap();
            assert_eq!(part.deletions, is_certain.then(|| text.chars().count()), "{body}");
        }
    }

    #[test]
    fn a_draft_that_may_hold_something_of_the_text_is_known() {
        for (line, may) in
            [("ok", false), ("xx[inbox 1a2b ends]", true), ("[Pasted text #3 +9 lines]", true), ("", false)]
        {
            assert_eq!(draft(line).may_hold(TEXT), may, "{line}");
        }
    }
}
