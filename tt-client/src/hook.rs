//! What a harness tells a hook about itself: a JSON object on standard input. Its environment need not name the session.

use std::io::{IsTerminal, Read};

use serde::Deserialize;
use tt_proto::{Error, ErrorCode};

/// A harness sends along what its tools wrote; more than this is none of ours.
const MOST: u64 = 64 * 1024 * 1024;

#[derive(Debug, Deserialize)]
struct Input {
    session_id: String,
}

/// The session that the hook belongs to.
pub(crate) fn read_session() -> Result<String, Error> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(wrong("there is only a terminal"));
    }
    read(stdin.lock())
}

/// Reads one object and nothing after it: the harness may keep its end open.
fn read(input: impl Read) -> Result<String, Error> {
    let mut objects = serde_json::Deserializer::from_reader(input.take(MOST)).into_iter::<Input>();
    match objects.next() {
        Some(Ok(input)) if !input.session_id.is_empty() => Ok(input.session_id),
        Some(Ok(_)) => Err(wrong("session_id is empty")),
        Some(Err(e)) => Err(wrong(&e.to_string())),
        None => Err(wrong("nothing came")),
    }
}

fn wrong(what: &str) -> Error {
    Error::new(
        ErrorCode::InvalidInput,
        format!("--hook reads what a harness tells its hooks on standard input: {what}"),
    )
    .hint("leave --hook out, unless a harness runs this as a hook")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_read_and_what_follows_it_is_left() {
        let mut input: &[u8] =
            b"{\"hook_event_name\":\"Stop\",\"tool_response\":{\"a\":[\"}\"]},\"session_id\":\"s-1\"}\nrest";
        assert_eq!(read(&mut input).unwrap(), "s-1");
        assert_eq!(input, b"\nrest");
    }

    #[test]
    fn what_names_no_session_is_refused() {
        for bad in ["", " ", "{}", "[]", "{\"session_id\":\"\"}", "{\"session_id\":7}", "{\"session_id\":\"s", "x"] {
            assert_eq!(read(bad.as_bytes()).unwrap_err().code, ErrorCode::InvalidInput, "{bad}");
        }
    }
}
