//! The text of a message, a question, an answer or a note: on the command line, as a flag, or from standard input.

use std::io::Read;

use tt_proto::{Error, ErrorCode};

use crate::error::CommandError;

// The text of a command. A doc comment here would replace the description of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct BodyArgs {
    /// The text
    #[arg(required_unless_present_any = ["stdin", "message"], conflicts_with_all = ["stdin", "message"])]
    body: Vec<String>,
    /// The text, as a flag
    #[arg(short, long, value_name = "T", conflicts_with = "stdin")]
    message: Option<String>,
    /// Read the text from standard input, unchanged
    #[arg(long)]
    stdin: bool,
}

impl BodyArgs {
    pub(crate) fn text(self) -> Result<String, CommandError> {
        if self.stdin { read_stdin() } else { Ok(self.message.unwrap_or_else(|| self.body.join(" "))) }
    }
}

/// All of standard input, unchanged.
pub(crate) fn read_stdin() -> Result<String, CommandError> {
    let mut bytes = Vec::new();
    let bad = |what: String| CommandError::Refused(Error::new(ErrorCode::InvalidBody, what));
    std::io::stdin().read_to_end(&mut bytes).map_err(|e| bad(format!("standard input: {e}")))?;
    String::from_utf8(bytes).map_err(|_| bad("standard input is not UTF-8".into()))
}
