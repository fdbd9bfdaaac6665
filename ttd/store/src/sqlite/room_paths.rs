//! The rooms by path, in memory, as the last commit of this process left them. For callers that must not wait.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use tt_proto::{Error, RoomId};

/// None while the rooms could not be read: knowing only some of them would be worse than knowing none.
#[derive(Debug, Default)]
pub(super) struct RoomPaths(RwLock<Option<HashMap<PathBuf, RoomId>>>);

impl RoomPaths {
    /// Replaces everything by what was just read.
    pub(super) fn reload(&self, rooms: Result<Vec<(PathBuf, RoomId)>, Error>) {
        let rooms = rooms.inspect_err(|e| tracing::error!("the rooms are not known by path: {e}")).ok();
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = rooms.map(|rooms| rooms.into_iter().collect());
    }

    pub(super) fn add(&self, path: PathBuf, room_id: RoomId) {
        if let Some(rooms) = self.0.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            rooms.insert(path, room_id);
        }
    }

    pub(super) fn remove(&self, room_id: &RoomId) {
        if let Some(rooms) = self.0.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
            rooms.retain(|_, id| id != room_id);
        }
    }

    /// The room at the first of these paths that has one.
    pub(super) fn first(&self, paths: &mut dyn Iterator<Item = &Path>) -> Option<RoomId> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let rooms = known.as_ref()?;
        for path in paths {
            if let Some(room_id) = rooms.get(path) {
                return Some(room_id.clone());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use tt_proto::ErrorCode;

    use super::*;

    #[test]
    fn the_first_path_that_has_a_room_is_found() {
        let paths = RoomPaths::default();
        let at = |list: &[&str]| paths.first(&mut list.iter().map(Path::new)).map(|id| id.to_string());
        assert_eq!(at(&["/h"]), None, "nothing was read yet");
        paths.reload(Ok(vec![("/h".into(), "home".into())]));
        paths.add("/h/p".into(), "p".into());
        assert_eq!(at(&["/h/p/src", "/h/p", "/h"]).as_deref(), Some("p"));
        paths.remove(&"p".into());
        assert_eq!(at(&["/h/p/src", "/h/p", "/h"]).as_deref(), Some("home"));
        paths.reload(Err(Error::new(ErrorCode::StorageUnavailable, "no")));
        paths.add("/h/q".into(), "q".into());
        assert_eq!(at(&["/h/q"]), None, "one of the rooms that could not be read may be nearer");
    }
}
