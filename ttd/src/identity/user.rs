//! The name of the user whose daemon this is. A person's agent id is made of it.

use nix::unistd::{User, getuid};
use tt_proto::{Error, ErrorCode};

/// The name of the user, or the number of one who has no name.
pub fn user_name() -> Result<String, Error> {
    name_of(User::from_uid(getuid()), &getuid().to_string())
}

/// A lookup that failed says nothing about the name: with a name that was made up, a person would be another member than before.
fn name_of(found: nix::Result<Option<User>>, number: &str) -> Result<String, Error> {
    match found {
        Ok(found) => Ok(found.map_or_else(|| number.to_owned(), |user| user.name)),
        Err(e) => {
            let message = format!("the name of user {number} cannot be looked up: {e}");
            Err(Error::new(ErrorCode::StorageUnavailable, message).hint("try again; `id` has to show the name"))
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_lookup_that_fails_makes_nobody_another_person() {
        assert_eq!(name_of(Err(Errno::EMFILE), "1000").unwrap_err().code, ErrorCode::StorageUnavailable);
        assert_eq!(name_of(Ok(None), "1000").unwrap(), "1000");
        let known = User::from_uid(getuid()).unwrap();
        assert_eq!(name_of(Ok(known.clone()), "1000").unwrap(), known.map_or_else(|| "1000".into(), |user| user.name));
    }
}
