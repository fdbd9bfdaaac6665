//! Reads the input of a hook: a JSON object on standard input, with which a harness names its session. The environment of a
//! hook need not name it.

use std::io::{IsTerminal, Read};

use serde::Deserialize;
use tt_proto::{Error, ErrorCode};

/// How much input is read. A harness includes the output of its tools.
const MAX_HOOK_INPUT: u64 = 64 * 1024 * 1024;

#[derive(Debug, Deserialize)]
struct Input {
    session_id: String,
}

/// The session that the hook belongs to.
pub(crate) fn read_session() -> Result<String, Error> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err(bad_input("it is a terminal"));
    }
    read(stdin.lock())
}

/// Reads one object and nothing after it: the harness may keep its end open.
pub(crate) fn read(input: impl Read) -> Result<String, Error> {
    let mut objects = serde_json::Deserializer::from_reader(input.take(MAX_HOOK_INPUT)).into_iter::<Input>();
    match objects.next() {
        Some(Ok(input)) if !input.session_id.is_empty() => Ok(input.session_id),
        Some(Ok(_)) => Err(bad_input("session_id is empty")),
        Some(Err(e)) => Err(bad_input(&e.to_string())),
        None => Err(bad_input("it is empty")),
    }
}

fn bad_input(what: &str) -> Error {
    Error::new(ErrorCode::InvalidInput, format!("--hook needs the input of a hook on standard input: {what}"))
        .hint("use --hook only in a command that a harness runs as a hook")
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
