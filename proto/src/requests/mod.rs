//! Every call of the protocol. Each method is one struct whose fields are its parameters by name, with its answer beside
//! it; [`METHODS`] and [`STREAMS`] list them all. The server, the client and the MCP tools are made from these.
//!
//! To add a method: write its struct in the file of its group, name it in `table!` below, and register a handler for it in
//! the daemon. A test there fails until the two agree.

mod daemon;
mod deliveries;
mod events;
mod field;
mod guard;
mod messages;
mod notes;
mod reminders;
mod rooms;
mod sessions;
mod turns;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

pub use daemon::*;
pub use deliveries::*;
pub use events::*;
pub use field::{Field, FieldType, JsonType};
pub use guard::*;
pub use messages::*;
pub use notes::*;
pub use reminders::*;
pub use rooms::*;
pub use sessions::*;
pub use turns::*;

/// Named parameters. On the wire absent and null `params` mean `{}`, and so do absent and null fields mean `None`.
pub trait Request: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The parameters in order, for callers that send them by position and for tools that describe them.
    const FIELDS: &'static [Field];

    /// Refuses a request with a text that is too long.
    fn check_sizes(&self) -> Result<(), Error>;
}

/// A call with one answer.
pub trait Method: Request {
    const NAME: &'static str;
    type Answer: Serialize + DeserializeOwned + Clone + Send + 'static;
}

/// A subscription: one call that starts it, any number of notifications, one call that ends it.
pub trait Stream: Request {
    const SUBSCRIBE: &'static str;
    const NOTIFICATION: &'static str;
    const UNSUBSCRIBE: &'static str;
    type Item: Serialize + DeserializeOwned + Send + 'static;
}

/// A method as the table lists it.
#[derive(Debug, Clone, Copy)]
pub struct MethodInfo {
    pub name: &'static str,
    pub fields: &'static [Field],
}

/// A stream as the table lists it.
#[derive(Debug, Clone, Copy)]
pub struct StreamInfo {
    pub subscribe: &'static str,
    pub notification: &'static str,
    pub unsubscribe: &'static str,
    pub fields: &'static [Field],
}

macro_rules! table {
    (methods { $($method:ident,)+ } streams { $($stream:ident,)+ }) => {
        /// All methods.
        pub const METHODS: &[MethodInfo] =
            &[$(MethodInfo { name: <$method as Method>::NAME, fields: <$method as Request>::FIELDS },)+];

        /// All streams.
        pub const STREAMS: &[StreamInfo] = &[$(StreamInfo {
            subscribe: <$stream as Stream>::SUBSCRIBE,
            notification: <$stream as Stream>::NOTIFICATION,
            unsubscribe: <$stream as Stream>::UNSUBSCRIBE,
            fields: <$stream as Request>::FIELDS,
        },)+];
    };
}

table! {
    methods {
        Hello,
        Whoami,
        DaemonStatus,
        DaemonStop,
        JoinPath,
        LeaveRoom,
        KickMember,
        DeleteRoom,
        ListRooms,
        GetRoomState,
        ResolveMember,
        SetRoomPolicy,
        WaitForTurn,
        Heartbeat,
        ReleaseStick,
        PassStick,
        TakeoverStick,
        SendMessage,
        Reply,
        WithdrawMessage,
        ListInbox,
        TakeMessages,
        ReturnMessages,
        ConfirmMessages,
        GetMessageStatus,
        ListWaiting,
        ListSent,
        SetQuiet,
        AddReminder,
        ListReminders,
        CancelReminder,
        GetRoomEvents,
        WaitForEvents,
        AddNote,
        ListNotes,
        ResolveNote,
        ReportSession,
        ListSessions,
        PeekSession,
        CheckGuard,
    }
    streams {
        SubscribeEvents,
        SubscribeDeliveries,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_used_once() {
        let streams = STREAMS.iter().flat_map(|stream| [stream.subscribe, stream.unsubscribe]);
        let names: Vec<&str> = METHODS.iter().map(|method| method.name).chain(streams).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn absent_fields_are_not_sent_and_null_means_absent() {
        let request = SendMessage { room_id: "r".into(), body: "b".into(), ..Default::default() };
        assert_eq!(serde_json::to_string(&request).unwrap(), r#"{"room_id":"r","body":"b"}"#);
        let with_null = r#"{"room_id":"r","body":"b","to":null,"a_field_of_a_newer_client":1}"#;
        assert_eq!(serde_json::from_str::<SendMessage>(with_null).unwrap(), request);
        assert!(serde_json::from_str::<SendMessage>(r#"{"room_id":"r"}"#).is_err(), "a required field is missing");
        assert_eq!(serde_json::to_string(&DaemonStatus {}).unwrap(), "{}");
    }

    #[test]
    fn the_field_list_tells_types_and_what_is_required() {
        let fields: Vec<(&str, JsonType, bool)> =
            SendMessage::FIELDS.iter().map(|field| (field.name, field.json_type, field.required)).collect();
        assert_eq!(
            fields[..3],
            [
                ("room_id", JsonType::String, true),
                ("body", JsonType::String, true),
                ("to_agent_id", JsonType::String, false),
            ]
        );
        let handoff = ReleaseStick::FIELDS.iter().find(|field| field.name == "handoff").unwrap();
        assert_eq!((handoff.json_type, handoff.required), (JsonType::Handoff, true));
    }
}
