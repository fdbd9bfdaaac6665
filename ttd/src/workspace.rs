//! Maps a caller's path to the room it belongs to. Touches the filesystem, so it runs on blocking threads. The rule that
//! decides is `tt_rules::resolution`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use tt_proto::{Error, ErrorCode, RoomId};
use tt_rules::resolution::{MARKERS, Resolution, World, in_reach, resolve};

/// The longest path that is accepted.
const MAX_PATH_BYTES: usize = 4096;

/// A canonical directory.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
    home: Option<PathBuf>,
}

/// A directory, and which of the directories above it can be the root of a workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    directory: Directory,
    git_tops: Vec<PathBuf>,
    marked: Vec<PathBuf>,
}

/// The absolute path a caller means.
pub fn absolute(path: &str, cwd: Option<&Path>) -> Result<PathBuf, Error> {
    let asked = Path::new(path);
    if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains('\0') {
        return Err(unusable(asked, "that is not a usable path".into()));
    }
    match cwd {
        _ if asked.is_absolute() => Ok(asked.to_owned()),
        Some(cwd) => Ok(cwd.join(asked)),
        None => Err(unusable(asked, "a relative path needs the caller's working directory".into())),
    }
}

fn unusable(asked: &Path, what: String) -> Error {
    Error::new(ErrorCode::InvalidInput, what)
        .hint("give the path of an existing directory or file")
        .detail("path", asked.display().to_string())
}

impl Directory {
    /// The directory of a path: a file means its directory, and symlinks are resolved. `home` must be canonical.
    pub fn find(asked: &Path, home: Option<&Path>) -> Result<Self, Error> {
        let found =
            asked.canonicalize().map_err(|e| unusable(asked, format!("{} cannot be used: {e}", asked.display())))?;
        let dir = if found.is_dir() { found } else { found.parent().unwrap_or(Path::new("/")).to_owned() };
        if dir.to_str().is_none() {
            return Err(unusable(asked, format!("{} is not UTF-8", dir.display())));
        }
        Ok(Self { home: home.map(Path::to_owned), path: dir })
    }

    /// The directory of a file that is there or is to be, with the file's own path. Symlinks are resolved as far as there is
    /// anything. None if that is no usable path.
    pub fn of_file(asked: &Path, home: Option<&Path>) -> Option<(Self, PathBuf)> {
        let there = asked.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
        let (above, found) = there?;
        let file = asked.strip_prefix(above).ok().map_or_else(|| found.clone(), |rest| found.join(rest));
        let dir = if found.is_dir() { found } else { found.parent()?.to_owned() };
        dir.to_str()?;
        Some((Self { home: home.map(Path::to_owned), path: dir }, file))
    }

    /// The working directory of a process, if the kernel names the one that was asked for. What the kernel says is
    /// canonical, so the filesystem need not be asked.
    pub fn of_process(asked: &Path, kernel: Option<PathBuf>, home: Option<&Path>) -> Option<Self> {
        // The kernel adds this to the name of a directory that was deleted.
        let there = |dir: &PathBuf| dir.to_str().is_some_and(|text| !text.ends_with(" (deleted)"));
        let dir = kernel.filter(|dir| dir == asked && there(dir))?;
        Some(Self { home: home.map(Path::to_owned), path: dir })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directories whose room this one can be in, deepest first: none is above the top of its git repository.
    pub fn candidates(&self) -> Vec<PathBuf> {
        let mut candidates = Vec::new();
        for dir in self.path.ancestors().take_while(|d| in_reach(d, &self.path, self.home.as_deref())) {
            candidates.push(dir.to_owned());
            if is_git_top(dir) {
                break;
            }
        }
        candidates
    }
}

impl Workspace {
    /// Looks for the marks of a workspace in a directory and all above it.
    pub fn of(directory: Directory) -> Self {
        let keep =
            |test: &dyn Fn(&Path) -> bool| directory.path.ancestors().filter(|d| test(d)).map(Path::to_owned).collect();
        Self {
            git_tops: keep(&is_git_top),
            marked: keep(&|d| MARKERS.iter().any(|marker| d.join(marker).exists())),
            directory,
        }
    }

    /// The paths whose rooms have to be known for [`Workspace::resolve`].
    pub fn candidates(&self) -> Vec<PathBuf> {
        self.directory.path.ancestors().map(Path::to_owned).collect()
    }

    /// The room this directory is in, or is to have, given the rooms that exist.
    pub fn resolve(&self, existing: &HashMap<PathBuf, RoomId>, force_new: bool) -> Resolution {
        resolve(&self.directory.path, force_new, &KnownWorld { workspace: self, existing })
    }
}

/// Whether a git repository, a worktree (where `.git` is a file) or a submodule begins in this directory.
fn is_git_top(dir: &Path) -> bool {
    dir.join(".git").exists()
}

struct KnownWorld<'a> {
    workspace: &'a Workspace,
    existing: &'a HashMap<PathBuf, RoomId>,
}

impl World for KnownWorld<'_> {
    fn home(&self) -> Option<&Path> {
        self.workspace.directory.home.as_deref()
    }

    fn is_git_top(&self, dir: &Path) -> bool {
        self.workspace.git_tops.iter().any(|d| d == dir)
    }

    fn has_marker(&self, dir: &Path) -> bool {
        self.workspace.marked.iter().any(|d| d == dir)
    }

    fn room_exists(&self, dir: &Path) -> bool {
        self.existing.contains_key(dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn working_directory(asked: &str, kernel: &str, home: Option<&str>) -> Option<Directory> {
        Directory::of_process(Path::new(asked), Some(kernel.into()), home.map(Path::new))
    }

    #[test]
    fn only_a_path_the_kernel_names_is_taken_without_a_look_at_the_disk() {
        for same in ["/a/b", "/a/b/", "/a/b/.", "/a/./b"] {
            assert!(working_directory(same, "/a/b", None).is_some(), "{same}");
        }
        for other in ["/a", "/a/b/c", "/a/b/../b", "/link/b", "b"] {
            assert!(working_directory(other, "/a/b", None).is_none(), "{other}");
        }
        assert!(working_directory("/a/b", "/a/b (deleted)", None).is_none());
        assert!(working_directory("/a/b (deleted)", "/a/b (deleted)", None).is_none());
        assert!(Directory::of_process(Path::new("/a"), None, None).is_none());
    }

    #[test]
    fn home_counts_only_for_home_itself() {
        let candidates = |dir: &str, home: Option<&str>| {
            let directory = working_directory(dir, dir, home).unwrap();
            directory.candidates().iter().map(|d| d.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(candidates("/h/p/src", None), ["/h/p/src", "/h/p", "/h", "/"]);
        assert_eq!(candidates("/h/p/src", Some("/h")), ["/h/p/src", "/h/p"]);
        assert_eq!(candidates("/h", Some("/h")), ["/h"]);
    }
}
