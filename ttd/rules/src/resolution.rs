//! Which room a path belongs to.
//!
//! Pure: the filesystem and the existing rooms are reached through a [`World`].

use std::path::{Path, PathBuf};

/// What resolution needs to know.
pub trait World {
    /// The user's home, canonical.
    fn home(&self) -> Option<&Path>;
    /// Whether the directory has a `.git`, directory or file.
    fn is_git_top(&self, dir: &Path) -> bool;
    /// Whether the directory holds one of the other [`MARKERS`].
    fn has_marker(&self, dir: &Path) -> bool;
    fn room_exists(&self, dir: &Path) -> bool;
}

/// Files that make a directory the root of a workspace if there is no repository.
pub const MARKERS: &[&str] =
    &[".talking-stick", "AGENTS.md", "CLAUDE.md", "Cargo.toml", "package.json", "pyproject.toml", "go.mod"];

/// The room a path belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The room's path.
    pub path: PathBuf,
    pub exists: bool,
    /// The root the workspace would have without any room.
    pub workspace_root: PathBuf,
    pub warning: Option<String>,
}

/// Resolves a canonical directory to a room: an existing one at the directory or above it, deepest first, but none above
/// the git repository it is in; else the root of the workspace. `force_new` insists on the exact directory.
pub fn resolve(dir: &Path, force_new: bool, world: &dyn World) -> Resolution {
    let workspace_root = workspace_root(dir, world);
    let above = dir.ancestors().take_while(|d| in_reach(d, dir, world.home())).find(|d| world.room_exists(d));
    let existing = if force_new { above } else { candidates(dir, world).find(|d| world.room_exists(d)) };
    let found = |path: &Path, exists, warning| Resolution {
        path: path.to_owned(),
        exists,
        workspace_root: workspace_root.clone(),
        warning,
    };
    match (existing, force_new) {
        (Some(room), true) if room == dir => {
            found(dir, true, Some("force_new had no effect: a room already exists at this exact path".into()))
        }
        (Some(room), true) => {
            let warning = format!("a room already exists above this one, at {}", room.display());
            found(dir, false, Some(warning))
        }
        (None, true) => found(dir, false, None),
        (Some(room), false) => {
            found(room, true, room_above(room, world).filter(|_| world.is_git_top(room)).map(outside))
        }
        (None, false) => found(&workspace_root, false, above.map(outside)),
    }
}

/// The directories whose room a directory can be in, deepest first: up to the top of its git repository.
fn candidates<'a>(dir: &'a Path, world: &dyn World) -> impl Iterator<Item = &'a Path> {
    let top = dir.ancestors().find(|d| world.is_git_top(d));
    let in_repository = move |d: &&Path| top.is_none_or(|top| d.starts_with(top));
    dir.ancestors().take_while(move |d| in_reach(d, dir, world.home())).take_while(in_repository)
}

/// The nearest room above a directory.
fn room_above<'a>(dir: &'a Path, world: &dyn World) -> Option<&'a Path> {
    let above = dir.ancestors().skip(1).take_while(|d| in_reach(d, dir, world.home()));
    above.into_iter().find(|d| world.room_exists(d))
}

fn outside(room: &Path) -> String {
    format!("there is also a room above this repository, at {}; it is separate", room.display())
}

/// Whether a directory counts in the search for a room. The search stops below home; home and the directories above it count
/// only if they are the directory asked for.
pub fn in_reach(candidate: &Path, asked: &Path, home: Option<&Path>) -> bool {
    candidate == asked || home.is_none_or(|home| !home.starts_with(candidate))
}

fn workspace_root(dir: &Path, world: &dyn World) -> PathBuf {
    let candidates = || dir.ancestors().take_while(|d| in_reach(d, dir, world.home()));
    let root = candidates().find(|d| world.is_git_top(d)).or_else(|| candidates().find(|d| world.has_marker(d)));
    root.unwrap_or(dir).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Disk {
        git: Vec<&'static str>,
        markers: Vec<&'static str>,
        rooms: Vec<&'static str>,
    }

    impl World for Disk {
        fn home(&self) -> Option<&Path> {
            Some(Path::new("/home/u"))
        }

        fn is_git_top(&self, dir: &Path) -> bool {
            self.git.iter().any(|d| Path::new(d) == dir)
        }

        fn has_marker(&self, dir: &Path) -> bool {
            self.markers.iter().any(|d| Path::new(d) == dir)
        }

        fn room_exists(&self, dir: &Path) -> bool {
            self.rooms.iter().any(|d| Path::new(d) == dir)
        }
    }

    fn path(disk: &Disk, dir: &str) -> String {
        resolve(Path::new(dir), false, disk).path.display().to_string()
    }

    #[test]
    fn the_repository_comes_before_markers_and_markers_before_the_path_itself() {
        let disk = Disk { git: vec!["/home/u/p"], markers: vec!["/home/u/p/sub", "/home/u/q"], ..Disk::default() };
        assert_eq!(path(&disk, "/home/u/p/sub/deep"), "/home/u/p");
        assert_eq!(path(&disk, "/home/u/q/x/y"), "/home/u/q");
        assert_eq!(path(&disk, "/home/u/r/x"), "/home/u/r/x");
        assert_eq!(path(&disk, "/srv/x"), "/srv/x");
    }

    #[test]
    fn an_existing_room_above_wins_deepest_first() {
        let disk = Disk {
            git: vec!["/home/u/p"],
            markers: vec!["/home/u/p/sub"],
            rooms: vec!["/home/u/p", "/home/u/p/sub/inner"],
        };
        assert_eq!(path(&disk, "/home/u/p/sub/x"), "/home/u/p");
        assert_eq!(path(&disk, "/home/u/p/sub/inner/x"), "/home/u/p/sub/inner");
    }

    #[test]
    fn a_room_above_a_repository_does_not_capture_it() {
        let disk = Disk {
            git: vec!["/home/u/src/p", "/home/u/src/p/vendor/lib"],
            rooms: vec!["/home/u/src", "/home/u/src/p/docs"],
            ..Disk::default()
        };
        let found = resolve(Path::new("/home/u/src/p/x"), false, &disk);
        assert_eq!((found.path.to_str(), found.exists), (Some("/home/u/src/p"), false));
        assert!(found.warning.unwrap().contains("/home/u/src;"), "and it says what is above");
        assert_eq!(path(&disk, "/home/u/src/p/docs/x"), "/home/u/src/p/docs", "inside the repository");
        assert_eq!(path(&disk, "/home/u/src/p/vendor/lib/x"), "/home/u/src/p/vendor/lib", "a submodule is its own");
        assert_eq!(path(&disk, "/home/u/src/other"), "/home/u/src", "not a repository");
        let there = Disk { rooms: vec!["/home/u/src", "/home/u/src/p"], ..disk };
        let found = resolve(Path::new("/home/u/src/p/x"), false, &there);
        assert_eq!((found.path.to_str(), found.exists), (Some("/home/u/src/p"), true));
        assert!(found.warning.unwrap().contains("/home/u/src;"));
        assert_eq!(resolve(Path::new("/home/u/src/y"), false, &there).warning, None);
    }

    #[test]
    fn home_counts_only_when_home_was_asked_for() {
        let disk = Disk { git: vec!["/home/u"], markers: vec!["/home/u"], rooms: vec!["/home/u", "/"] };
        assert_eq!(path(&disk, "/home/u/notes"), "/home/u/notes");
        assert_eq!(path(&disk, "/home/u"), "/home/u");
        let disk = Disk { rooms: vec!["/srv", "/home", "/"], ..Disk::default() };
        assert_eq!(path(&disk, "/srv/deep/er"), "/srv");
        assert_eq!(path(&disk, "/home/u"), "/home/u", "nothing above home is ours");
    }

    #[test]
    fn force_new_has_three_shapes() {
        let disk = Disk { rooms: vec!["/w", "/w/a"], ..Disk::default() };
        let nested = resolve(Path::new("/w/b"), true, &disk);
        assert_eq!((nested.path.as_path(), nested.exists), (Path::new("/w/b"), false));
        assert!(nested.warning.unwrap().contains("/w"));
        let same = resolve(Path::new("/w/a"), true, &disk);
        assert!(same.exists && same.warning.unwrap().contains("no effect"));
        let fresh = resolve(Path::new("/v/c"), true, &disk);
        assert_eq!((fresh.exists, fresh.warning), (false, None));
        let above_home = Disk { rooms: vec!["/home"], ..Disk::default() };
        let same = resolve(Path::new("/home"), true, &above_home);
        assert!(same.exists && same.warning.is_some());
    }
}
