//! Words of a command line that is shown, for somebody who types it again.

/// The text as one word for a shell, quoted where necessary.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@%,:=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_one_word_for_a_shell() {
        for (text, word) in
            [("../shop", "../shop"), ("my shop", "'my shop'"), ("it's", "'it'\\''s'"), ("$(id)", "'$(id)'"), ("", "''")]
        {
            assert_eq!(shell_word(text), word);
        }
    }
}
