//! Where a harness keeps its configuration, and how it writes down an MCP server.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A directory below the home directory, unless a variable names another place for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Directory {
    /// The variable that replaces [`Self::in_home`].
    pub variable: Option<&'static str>,
    /// The place relative to the home directory; empty for the home directory itself.
    pub in_home: &'static str,
    /// What follows either of them; may be empty.
    pub subdirectory: &'static str,
}

/// The file that lists the MCP servers of a harness.
#[derive(Debug, PartialEq, Eq)]
pub struct McpConfig {
    pub dir: Directory,
    /// The file's possible names. The first that exists is used; if none does, the last is created.
    pub files: &'static [&'static str],
    pub format: Format,
    /// The key of the table or object that has one entry for each server.
    pub section: &'static str,
    /// The keys and values of a server's entry, in the order in which they are written.
    pub entry: &'static [(&'static str, EntryValue)],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON, in which comments and trailing commas are accepted.
    Json,
    Toml,
}

/// A value in the entry of an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryValue {
    Text(&'static str),
    Bool(bool),
    /// The path of the program that serves.
    Program,
    /// The list of the program's arguments.
    Arguments,
    /// The program and its arguments in one list.
    CommandLine,
    /// The list of the variables that the harness passes on to the server; it passes on no others.
    ForwardedVariables,
}

impl Directory {
    /// The directory, given a way to look up variables.
    pub fn resolve<'a>(&self, home: &Path, lookup: impl Fn(&str) -> Option<&'a OsStr>) -> PathBuf {
        self.from_variable(lookup).unwrap_or_else(|| self.below_home(home))
    }

    /// The directory that the variable names, if it is set.
    pub fn from_variable<'a>(&self, lookup: impl Fn(&str) -> Option<&'a OsStr>) -> Option<PathBuf> {
        self.variable.and_then(lookup).map(|dir| join(Path::new(dir), self.subdirectory))
    }

    /// The directory where the variable is not set.
    pub fn below_home(&self, home: &Path) -> PathBuf {
        join(&join(home, self.in_home), self.subdirectory)
    }
}

/// Joins paths without leaving a slash at the end where nothing follows.
fn join(dir: &Path, below: &str) -> PathBuf {
    if below.is_empty() { dir.to_owned() } else { dir.join(below) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_replaces_the_place_in_the_home_directory_but_not_what_follows() {
        let dir = Directory { variable: Some("CONFIG"), in_home: ".config", subdirectory: "tool" };
        let home = Path::new("/home/u");
        assert_eq!(dir.resolve(home, |_| None).to_str(), Some("/home/u/.config/tool"));
        let lookup = |name: &str| (name == "CONFIG").then_some(OsStr::new("/etc/x"));
        assert_eq!(dir.resolve(home, lookup).to_str(), Some("/etc/x/tool"));
        let fixed = Directory { variable: None, ..dir };
        assert_eq!(fixed.resolve(home, lookup).to_str(), Some("/home/u/.config/tool"));
        let bare = Directory { variable: Some("CONFIG"), in_home: "", subdirectory: "" };
        assert_eq!(bare.resolve(home, |_| None).to_str(), Some("/home/u"), "no slash at the end");
        assert_eq!(bare.resolve(home, lookup).to_str(), Some("/etc/x"));
    }
}
