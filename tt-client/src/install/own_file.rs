//! A file that is ours as a whole: the skill, or a plugin.
//!
//! Its last line has a checksum of the lines above it. That distinguishes a file that some version of `tt` installed, which may
//! be replaced and removed, from one that a user edited.

use tt_harness::{PROGRAM_PLACEHOLDER, PluginFile};
use tt_proto::escape::escape_text;

const SKILL: &str = include_str!("../../skills/talking-stick/SKILL.md");

const MARK: &str = "installed by tt, unedited: ";

/// A file as this version installs it.
#[derive(Debug)]
pub(super) struct OwnFile {
    text: String,
    comment: Comment,
    /// The beginning of the file in every version.
    head: &'static str,
}

/// How a comment of one line begins and ends in the language of the file.
#[derive(Debug, Clone, Copy)]
struct Comment(&'static str, &'static str);

impl OwnFile {
    pub(super) fn skill(program: &str) -> Self {
        let comment = Comment("<!-- ", " -->");
        let text = SKILL.replace(PROGRAM_PLACEHOLDER, &escape_text(program));
        Self { text: comment.marked(&text), comment, head: "---\nname: talking-stick\n" }
    }

    pub(super) fn plugin(file: &PluginFile, program: &str) -> Self {
        // The text of a string in the plugin's language, which has the same escapes as JSON.
        let quoted = serde_json::Value::from(program).to_string();
        let text = file.text.replace(&format!("\"{PROGRAM_PLACEHOLDER}\""), &quoted);
        let comment = Comment("// ", "");
        Self { text: comment.marked(&text), comment, head: "// Talking Stick" }
    }

    /// A skill that an older version installed.
    #[cfg(test)]
    pub(super) fn older_skill(below_head: &str) -> String {
        let skill = Self::skill("/tt");
        skill.comment.marked(&format!("{}{below_head}", skill.head))
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a text is exactly what some version of `tt` installed.
    pub(super) fn is_unedited(&self, text: &str) -> bool {
        let line = format!("\n{}{MARK}", self.comment.0);
        text.rsplit_once(&line).is_some_and(|(above, _)| self.comment.marked(above) == text)
    }

    /// Whether a text began as one of ours.
    pub(super) fn is_edited_copy(&self, text: &str) -> bool {
        text.starts_with(self.head)
    }
}

impl Comment {
    /// The text with its checksum in the last line.
    fn marked(self, text: &str) -> String {
        format!("{text}\n{}{MARK}{:016x}{}\n", self.0, checksum(text), self.1)
    }
}

/// FNV-1a, which is the same in every version and on every machine; the standard library's hash need not be.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_shows_and_an_older_version_is_still_ours() {
        let skill = OwnFile::skill("/tt");
        assert!(skill.text().contains("installed as `/tt`") && skill.is_unedited(OwnFile::skill("/bin/tt").text()));
        assert!(skill.is_unedited(skill.text()) && skill.is_edited_copy(skill.text()));
        let older = OwnFile::older_skill("older\n");
        assert!(skill.is_unedited(&older));
        let edited = older.replace("older", "mine");
        assert!(!skill.is_unedited(&edited) && skill.is_edited_copy(&edited));
        assert!(!skill.is_unedited("") && !skill.is_edited_copy("# other"));
    }

    #[test]
    fn the_program_is_quoted_in_the_plugin() {
        let tt_harness::Hooks::Plugin(file) = &tt_harness::by_name("opencode").unwrap().hooks else { panic!() };
        let plugin = OwnFile::plugin(file, "/a \"b\"\\c/tt");
        assert!(plugin.text().contains(r#"const TT = "/a \"b\"\\c/tt""#), "{}", plugin.text());
        assert!(!plugin.text().contains(PROGRAM_PLACEHOLDER) && plugin.is_unedited(plugin.text()));
    }
}
