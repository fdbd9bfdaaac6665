//! The errors of the protocol: one enum of codes, one JSON form on every surface.

use jsonrpsee_types::ErrorObjectOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The JSON-RPC code under which every typed error travels; `data` holds the typed form.
pub const RPC_CODE: i32 = -32000;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $hint:literal;)+) => {
        /// Why a call was refused. The text form never changes once shipped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[$doc])* #[serde(rename = $text)] $variant,)+ }

        impl ErrorCode {
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$variant,)+];

            pub const fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $text,)+ }
            }

            /// What to do next when the place that raised the error has nothing better to say.
            pub const fn default_hint(self) -> &'static str {
                match self { $(ErrorCode::$variant => $hint,)+ }
            }
        }
    };
}

codes! {
    RoomNotFound = "room_not_found", "join the workspace first: tt join";
    RoomClosed = "room_closed", "the room is closed; join another workspace";
    UnknownMember = "unknown_member", "join the workspace first: tt join";
    Kicked = "kicked", "join again only if you should be here: tt join";
    RoomInUse = "room_in_use", "ask the others to leave, or remove them: tt kick --force";
    UnknownTarget = "unknown_target", "see who is there with `tt state`";
    UnknownRecipient = "unknown_recipient", "see who is there with `tt state`";
    AmbiguousRecipient = "ambiguous_recipient", "use the full agent id";
    TargetActive = "target_active", "ask it to leave, or use --force if it is truly gone";
    CannotKickSelf = "cannot_kick_self", "use `tt leave`";
    InvalidHandoff = "invalid_handoff", "a handoff needs a non-empty status and next_action";
    StaleLease = "stale_lease", "you no longer hold the stick; wait for your turn: tt wait";
    TurnMismatch = "turn_mismatch", "look again with `tt state`, then use the current turn_id";
    TakeoverNotAvailable = "takeover_not_available", "wait for your turn: tt wait";
    TakeoverIneligible = "takeover_ineligible", "let another member take it, or wait for your turn: tt wait";
    ParkRequiresRelease = "park_requires_release", "release the stick first: tt release";
    DuplicateListener = "duplicate_listener", "use the wait that is already there, or end it first";
    ConversationLeft = "conversation_left", "start it again in the conversation that is open now";
    InvalidTurnId = "invalid_turn_id", "use a turn_id the room has had";
    InvalidCursor = "invalid_cursor", "use a cursor_event_seq the daemon gave out";
    InvalidBody = "invalid_body", "write at least one character";
    MessageTooLarge = "message_too_large", "keep a message within 4096 bytes; put the rest into a file or a note";
    MessageHeld = "message_held", "another surface of yours has taken it; that one shows and confirms it";
    UnknownMessage = "unknown_message", "list the messages with their numbers: tt events --event message_sent";
    NotARecipient = "not_a_recipient", "reply only to messages that were sent to you; write a message of your own instead";
    AlreadyDelivered = "already_delivered", "write another message to correct it";
    UnknownReminder = "unknown_reminder", "use the id that the reminder was set with, or the beginning of it";
    InvalidDeliveryHint = "invalid_delivery_hint", "use idle, normal, important or interrupt";
    InvalidEventTypeFilter = "invalid_event_type_filter", "use the names of event types";
    BodyTooLarge = "body_too_large", "keep a note within 16 KiB";
    InvalidInput = "invalid_input", "check the arguments against --help";
    AgentIdRequired = "agent_id_required", "say hello first, so that the daemon knows who is calling";
    StorageUnavailable = "storage_unavailable", "check the data directory: its disk, its permissions, and `tt daemon logs`";
    OutcomeUnknown = "outcome_unknown", "repeat the call with the same idempotency_key, and it is done once; without a key, look first whether it was done";
    SchemaTooNew = "schema_too_new", "a newer talking-stick wrote this database; install that version or a newer one";
    ProtocolMismatch = "protocol_mismatch", "install the same version of tt and ttd, then run `tt daemon restart`";
    Overloaded = "overloaded", "end commands that follow (--follow) and that nobody needs, then try again";
    DaemonUnreachable = "daemon_unreachable", "run `tt daemon status`, then `tt daemon restart`";
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `{"error": code, "message": what happened, "hint": what to do next, ...details}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    #[serde(rename = "error")]
    pub code: ErrorCode,
    pub message: String,
    pub hint: String,
    #[serde(flatten)]
    pub details: Box<Map<String, Value>>,
}

impl Error {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: code.default_hint().to_owned(), details: Box::default() }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

impl From<Error> for ErrorObjectOwned {
    fn from(e: Error) -> Self {
        ErrorObjectOwned::owned(RPC_CODE, e.message.clone(), Some(e))
    }
}

/// Reads the typed error back out of a JSON-RPC error; what is not ours becomes the nearest code.
impl From<&ErrorObjectOwned> for Error {
    fn from(e: &ErrorObjectOwned) -> Self {
        if let Some(typed) = e.data().and_then(|d| serde_json::from_str::<Error>(d.get()).ok()) {
            return typed;
        }
        let detail = e.data().map(|d| d.get().to_owned());
        let mut error = match e.code() {
            -32602 => {
                Error::new(ErrorCode::InvalidInput, format!("the daemon could not read the arguments: {}", e.message()))
            }
            -32601 => Error::new(ErrorCode::ProtocolMismatch, "the daemon does not know this call"),
            _ => Error::new(ErrorCode::InvalidInput, e.message()),
        };
        if let Some(detail) = detail {
            error = error.detail("detail", detail);
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_is_flat_and_survives_the_wire() {
        let error = Error::new(ErrorCode::SchemaTooNew, "migration 900 is unknown").detail("migration", 900);
        let json = serde_json::to_value(&error).unwrap();
        assert_eq!(json["error"], "schema_too_new");
        assert_eq!(json["migration"], 900);
        assert!(json["hint"].as_str().is_some_and(|h| !h.is_empty()));
        let wire: ErrorObjectOwned = error.clone().into();
        assert_eq!(Error::from(&wire), error);
    }

    #[test]
    fn every_code_has_its_own_text_and_a_hint() {
        let texts: std::collections::BTreeSet<_> = ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!(!code.default_hint().is_empty());
        }
    }
}
