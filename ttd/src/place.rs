//! Where on the disk a caller stands, and what lies around: looked at before a rule is asked, where blocking is allowed. And the
//! rooms by path, for whoever stands in one and need not be looked at. Which room a path is to have is decided in
//! `stick::resolution`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

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

/// The rooms there are, by path, as this daemon's last commit left them: for whoever must not wait for the database.
#[derive(Debug, Default)]
pub struct RoomMap(RwLock<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The store's epoch in which this was read; none before the first write.
    epoch: Option<u64>,
    /// None where they could not be read: to know some of them would be worse than to know none.
    rooms: Option<HashMap<PathBuf, RoomId>>,
}

impl RoomMap {
    /// Reads the rooms anew where the tables may hold something else than what was written since: at the first write, after
    /// one that failed, and after another program's.
    pub fn follow(&self, epoch: u64, read: impl FnOnce() -> Result<Vec<(PathBuf, RoomId)>, Error>) {
        if self.0.read().unwrap_or_else(PoisonError::into_inner).epoch != Some(epoch) {
            let rooms = read().inspect_err(|e| tracing::error!("the rooms are not known by path: {e}")).ok();
            let rooms = rooms.map(|rooms| rooms.into_iter().collect());
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = Known { epoch: Some(epoch), rooms };
        }
    }

    pub fn add(&self, path: PathBuf, room_id: RoomId) {
        if let Some(rooms) = &mut self.0.write().unwrap_or_else(PoisonError::into_inner).rooms {
            rooms.insert(path, room_id);
        }
    }

    pub fn remove(&self, room_id: &RoomId) {
        if let Some(rooms) = &mut self.0.write().unwrap_or_else(PoisonError::into_inner).rooms {
            rooms.retain(|_, id| id != room_id);
        }
    }

    /// The room a place is in.
    pub fn room_of(&self, place: &Place) -> Option<RoomId> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let rooms = known.rooms.as_ref()?;
        place.candidates().find_map(|dir| rooms.get(dir).cloned())
    }
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
    /// Looks at the disk: a file means its directory, and symlinks are resolved. `home` is under its true name already.
    pub fn find(asked: &Path, home: Option<&Path>) -> Result<Self, Error> {
        let found =
            asked.canonicalize().map_err(|e| unusable(asked, format!("{} cannot be used: {e}", asked.display())))?;
        let dir = if found.is_dir() { found } else { found.parent().unwrap_or(Path::new("/")).to_owned() };
        if dir.to_str().is_none() {
            return Err(unusable(asked, format!("{} is not UTF-8", dir.display())));
        }
        Ok(Self { home: home.map(Path::to_owned), dir })
    }

    /// Where a process stands by its own account, if the kernel says the same of it: the kernel's name for a directory is the
    /// true one, and no disk has to be asked.
    pub fn of_process(asked: &Path, kernel: Option<PathBuf>, home: Option<&Path>) -> Option<Self> {
        // So it says of a directory that is gone; one of that name can be looked at.
        let there = |dir: &PathBuf| dir.to_str().is_some_and(|text| !text.ends_with(" (deleted)"));
        let dir = kernel.filter(|dir| dir == asked && there(dir))?;
        Some(Self { home: home.map(Path::to_owned), dir })
    }

    /// The room this place is in, if there is one. What else lies around does not matter to that.
    pub fn room(&self, connection: &Connection) -> Result<Option<RoomId>, Error> {
        rooms::deepest(connection, self.candidates())
    }

    /// The directories whose room this place would be in, deepest first.
    fn candidates(&self) -> impl Iterator<Item = &Path> {
        self.dir.ancestors().take_while(|d| in_reach(d, &self.dir, self.home.as_deref()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(asked: &str, kernel: &str, home: Option<&str>) -> Option<Place> {
        Place::of_process(Path::new(asked), Some(kernel.into()), home.map(Path::new))
    }

    #[test]
    fn only_the_kernels_own_word_spares_a_look_at_the_disk() {
        for same in ["/a/b", "/a/b/", "/a/b/.", "/a/./b"] {
            assert!(stands(same, "/a/b", None).is_some(), "{same}");
        }
        for other in ["/a", "/a/b/c", "/a/b/../b", "/link/b", "b"] {
            assert!(stands(other, "/a/b", None).is_none(), "{other}");
        }
        assert!(stands("/a/b", "/a/b (deleted)", None).is_none());
        assert!(stands("/a/b (deleted)", "/a/b (deleted)", None).is_none());
        assert!(Place::of_process(Path::new("/a"), None, None).is_none());
    }

    #[test]
    fn the_map_finds_the_deepest_room_in_reach() {
        let map = RoomMap::default();
        let of = |dir: &str, home: Option<&str>| map.room_of(&stands(dir, dir, home).unwrap());
        let room = |name: &str| Some(RoomId::from(name));
        assert_eq!(of("/h/p/src", None), None);
        map.follow(1, || Ok(vec![("/h".into(), "home".into())]));
        map.add("/h/p".into(), "p".into());
        map.follow(1, || panic!("nothing else was written"));
        assert_eq!(of("/h/p/src", None), room("p"));
        assert_eq!(of("/h/q", None), room("home"));
        assert_eq!(of("/h/q", Some("/h")), None, "home counts only for home itself");
        assert_eq!(of("/h", Some("/h")), room("home"));
        map.remove(&"p".into());
        assert_eq!(of("/h/p/src", None), room("home"));
        map.follow(2, || Ok(vec![("/h/q".into(), "q".into())]));
        assert_eq!((of("/h", None), of("/h/q", None)), (None, room("q")));
        map.follow(3, || Err(Error::new(ErrorCode::StorageUnavailable, "no")));
        map.add("/h".into(), "home".into());
        assert_eq!(of("/h/q", None), None, "a nearer one may be there");
    }
}
