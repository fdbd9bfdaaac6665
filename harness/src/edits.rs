//! The tools with which a harness changes files, and where their inputs name those. A tool that is not listed is not looked at.

/// The tools of a harness that the guard looks at.
#[derive(Debug, PartialEq, Eq)]
pub struct GuardedTools {
    pub edits: &'static [EditTool],
    /// The tool that runs a shell command, and the key of the command in its input.
    pub shell: (&'static str, &'static str),
}

/// A tool that changes files.
#[derive(Debug, PartialEq, Eq)]
pub struct EditTool {
    pub name: &'static str,
    pub paths: EditedPaths,
}

/// Where the input of a tool names the files that it changes.
#[derive(Debug, PartialEq, Eq)]
pub enum EditedPaths {
    /// Under this key.
    Key(&'static str),
    /// In the lines of a patch, which is under the first of these keys that there is, or is the whole input.
    Patch(&'static [&'static str]),
}
