//! Where on the disk a caller stands, and what lies around: looked at before a rule is asked, where blocking is allowed.
//! Which room that means is decided in `stick::resolution`.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tt_proto::{Error, ErrorCode, RoomId};

use crate::stick::resolution::{MARKERS, Resolution, World, in_reach, resolve};
use crate::store::rooms;

/// No path people use is longer.
const MAX_PATH_BYTES: usize = 4096;

/// A directory under its one true name.
#[derive(Debug, Clone)]
pub struct Place {
    dir: PathBuf,
    home: Option<PathBuf>,
}

/// A place, and what makes directories there the root of a workspace.
#[derive(Debug, Clone)]
pub struct Surroundings {
    place: Place,
    git_tops: Vec<PathBuf>,
    marked: Vec<PathBuf>,
}

/// The path a caller means, from where it stands.
pub fn asked(path: &str, cwd: Option<&Path>) -> Result<PathBuf, Error> {
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

impl Place {
    /// Looks at the disk: a file means its directory, and symlinks are resolved.
    pub fn find(asked: &Path, home: Option<&Path>) -> Result<Self, Error> {
        let found =
            asked.canonicalize().map_err(|e| unusable(asked, format!("{} cannot be used: {e}", asked.display())))?;
        let dir = if found.is_dir() { found } else { found.parent().unwrap_or(Path::new("/")).to_owned() };
        if dir.to_str().is_none() {
            return Err(unusable(asked, format!("{} is not UTF-8", dir.display())));
        }
        Ok(Self { home: home.and_then(|home| home.canonicalize().ok()), dir })
    }

    /// The room this place is in, if there is one. What else lies around does not matter to that.
    pub fn room(&self, connection: &Connection) -> Result<Option<RoomId>, Error> {
        rooms::deepest(connection, self.dir.ancestors().take_while(|d| in_reach(d, &self.dir, self.home.as_deref())))
    }
}

impl Surroundings {
    /// Looks around, all the way up.
    pub fn of(place: Place) -> Self {
        let keep =
            |test: &dyn Fn(&Path) -> bool| place.dir.ancestors().filter(|d| test(d)).map(Path::to_owned).collect();
        Self {
            git_tops: keep(&|d| d.join(".git").exists()),
            marked: keep(&|d| MARKERS.iter().any(|marker| d.join(marker).exists())),
            place,
        }
    }

    /// The room this place is in, or is to have, given the rooms there are.
    pub fn resolve(&self, connection: &Connection, force_new: bool) -> Resolution {
        resolve(&self.place.dir, force_new, &KnownWorld { around: self, connection })
    }
}

struct KnownWorld<'a> {
    around: &'a Surroundings,
    connection: &'a Connection,
}

impl World for KnownWorld<'_> {
    fn home(&self) -> Option<&Path> {
        self.around.place.home.as_deref()
    }

    fn is_git_top(&self, dir: &Path) -> bool {
        self.around.git_tops.iter().any(|d| d == dir)
    }

    fn has_marker(&self, dir: &Path) -> bool {
        self.around.marked.iter().any(|d| d == dir)
    }

    fn room_exists(&self, dir: &Path) -> bool {
        rooms::at_path(self.connection, dir).is_ok_and(|room| room.is_some())
    }
}
