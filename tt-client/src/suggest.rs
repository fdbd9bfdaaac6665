//! Suggests rooms when there is none at the path that was given.

use std::path::{Component, Path, PathBuf};

use tt_proto::requests::ListRooms;
use tt_proto::{Error, ErrorCode};

use crate::Context;
use crate::connect::{HttpClient, Settings};
use crate::text::shell::shell_word;

const MAX_SUGGESTIONS: usize = 3;

/// Adds the rooms that may have been meant to an error about a path. Any other error is returned unchanged, and so is this
/// one when the daemon cannot be asked.
pub(crate) fn with_suggestions(context: &Context, error: Error) -> Error {
    let typed = match (error.code, error.details.get("path").and_then(|path| path.as_str())) {
        (ErrorCode::RoomNotFound | ErrorCode::InvalidInput, Some(typed)) => PathBuf::from(typed),
        _ => return error,
    };
    let asked = absolute(&typed, context.settings.cwd.as_deref());
    let mut error = error;
    if error.code == ErrorCode::RoomNotFound {
        error.message = format!("nobody has joined {} yet", asked.display());
        let path = if typed == Path::new(".") {
            String::new()
        } else {
            format!(" {}", shell_word(&typed.display().to_string()))
        };
        error.hint = format!("join it: tt join{path}");
    }
    let near = near_matches(&asked, rooms(context));
    if near.is_empty() {
        return error;
    }
    error.hint = format!("{}; or did you mean {}?", error.hint, near.join(" or "));
    error.detail("near_matches", near)
}

fn rooms(context: &Context) -> Vec<PathBuf> {
    let settings = Settings { autostart: false, ..context.settings.clone() };
    let Ok(mut client) = HttpClient::connect(settings) else { return Vec::new() };
    let rooms = client.call(&ListRooms::default());
    rooms.map(|all| all.rooms.into_iter().map(|room| room.canonical_path.into()).collect()).unwrap_or_default()
}

/// The rooms closest to a path: its ancestors and descendants, rooms of the same name elsewhere, and rooms whose names differ
/// by a typing error.
fn near_matches(asked: &Path, rooms: Vec<PathBuf>) -> Vec<String> {
    let mut near: Vec<(usize, PathBuf)> =
        rooms.into_iter().filter_map(|room| distance(asked, &room).map(|far| (far, room))).collect();
    near.sort();
    near.into_iter().take(MAX_SUGGESTIONS).map(|(_, room)| room.display().to_string()).collect()
}

fn distance(asked: &Path, room: &Path) -> Option<usize> {
    if room.starts_with(asked) || asked.starts_with(room) {
        return Some(room.components().count().abs_diff(asked.components().count()));
    }
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().to_lowercase());
    let (typed, known) = (name(asked)?, name(room)?);
    let typos = strsim::damerau_levenshtein(&typed, &known);
    // A third of the letters may differ. In another directory the name must be the same, and ranks behind the neighbours.
    let elsewhere = if asked.parent() == room.parent() { 0 } else { 100 };
    (typos <= known.chars().count() / 3 && (elsewhere == 0 || typos == 0)).then_some(10 + typos + elsewhere)
}

/// The path as the daemon would see it, whether or not it exists.
fn absolute(typed: &Path, cwd: Option<&Path>) -> PathBuf {
    let joined = cwd.map_or_else(|| typed.to_owned(), |cwd| cwd.join(typed));
    if let Ok(found) = joined.canonicalize() {
        return found;
    }
    let mut plain = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_above_below_beside_and_of_the_same_name_are_near() {
        let rooms =
            ["/work/shop", "/work/shop/api", "/work/store", "/play/shop", "/play/zebra"].map(PathBuf::from).to_vec();
        let near = |asked: &str| near_matches(Path::new(asked), rooms.clone());
        assert_eq!(near("/work/shpo"), ["/work/shop"], "a typing error");
        assert_eq!(near("/work"), ["/work/shop", "/work/store", "/work/shop/api"], "below, the nearest first");
        assert_eq!(near("/work/shop/docs"), ["/work/shop"], "above");
        assert_eq!(near("/home/me/zebra"), ["/play/zebra"], "the same name elsewhere");
        assert_eq!(near("/etc"), Vec::<String>::new());
    }

    #[test]
    fn a_path_that_is_not_there_is_still_compared() {
        assert_eq!(absolute(Path::new("../b/./c"), Some(Path::new("/nowhere/a"))), Path::new("/nowhere/b/c"));
    }
}
