//! A text that a person edits: what was typed, and where the cursor is.

/// A text with a cursor, which is always between two characters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Input {
    text: String,
    cursor: usize,
}

impl Input {
    /// A text with the cursor at its end.
    pub fn of(text: &str) -> Self {
        Self { text: text.to_owned(), cursor: text.len() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The parts before and after the cursor.
    pub fn parts(&self) -> (&str, &str) {
        self.text.split_at(self.cursor)
    }

    pub fn insert(&mut self, text: &str) {
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
    }

    pub fn delete_before(&mut self) {
        if let Some(c) = self.parts().0.chars().next_back() {
            self.cursor -= c.len_utf8();
            self.text.remove(self.cursor);
        }
    }

    pub fn delete_after(&mut self) {
        if self.cursor < self.text.len() {
            self.text.remove(self.cursor);
        }
    }

    /// Deletes the word before the cursor and the spaces behind it.
    pub fn delete_word(&mut self) {
        let before = self.parts().0.trim_end();
        let start = before
            .rfind(char::is_whitespace)
            .map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
        self.text.replace_range(start..self.cursor, "");
        self.cursor = start;
    }

    pub fn delete_to_start(&mut self) {
        self.text.replace_range(..self.cursor, "");
        self.cursor = 0;
    }

    pub fn left(&mut self) {
        self.cursor -= self.parts().0.chars().next_back().map_or(0, char::len_utf8);
    }

    pub fn right(&mut self) {
        self.cursor += self.parts().1.chars().next().map_or(0, char::len_utf8);
    }

    pub fn home(&mut self) {
        self.cursor = 0;
    }

    pub fn end(&mut self) {
        self.cursor = self.text.len();
    }

    /// Completes the last name of a list with commas with the next candidate that begins with what was typed. Again, it takes
    /// the candidate after that. Returns whether there is any.
    pub fn complete(&mut self, candidates: &[String]) -> bool {
        let start = self.text.rfind(',').map_or(0, |at| at + 1);
        let typed = self.text[start..].trim_start().to_owned();
        let next = match candidates.iter().position(|candidate| *candidate == typed) {
            Some(at) => candidates.iter().cycle().nth(at + 1),
            None => candidates.iter().find(|candidate| candidate.to_lowercase().starts_with(&typed.to_lowercase())),
        };
        let Some(next) = next else { return false };
        let space = if start > 0 { " " } else { "" };
        self.text.truncate(start);
        self.text.push_str(&format!("{space}{next}"));
        self.end();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_moves_by_whole_characters() {
        let mut input = Input::of("aß漢");
        input.left();
        input.insert("x");
        assert_eq!(input.parts(), ("aßx", "漢"));
        input.delete_before();
        input.delete_before();
        input.delete_after();
        assert_eq!(input.text(), "a");
        input.delete_after();
        input.right();
        input.home();
        input.delete_before();
        input.left();
        assert_eq!(input.parts(), ("", "a"));
    }

    #[test]
    fn a_word_is_deleted_with_the_spaces_behind_it() {
        let mut input = Input::of("keep the\u{3000}column  ");
        input.delete_word();
        assert_eq!(input.text(), "keep the\u{3000}");
        input.delete_word();
        input.delete_word();
        input.delete_word();
        assert_eq!(input.text(), "");
    }

    #[test]
    fn the_last_name_of_a_list_is_completed_in_turns() {
        let names = ["claude", "codex", "room"].map(str::to_owned);
        let mut input = Input::of("room,c");
        for completed in ["room, claude", "room, codex", "room, room", "room, claude"] {
            assert!(input.complete(&names));
            assert_eq!(input.text(), completed);
        }
        assert!(!Input::of("x").complete(&names));
    }
}
