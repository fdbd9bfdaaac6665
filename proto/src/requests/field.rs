//! What is known of a request's fields, and the macro that makes a request of them.

use crate::filter::OneOrMany;
use crate::handoff::RawJson;
use crate::hello::Greeting;
use crate::page::{MAX_ID_BYTES, MAX_TEXT_BYTES, check_length};
use crate::policy::PolicyOverrides;
use crate::{AgentId, Error, ErrorCode, LeaseId, NoteId, ReminderId, RoomId, WallTime};

/// One parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub json_type: JsonType,
    pub required: bool,
}

/// A parameter's type, as JSON has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    String,
    Boolean,
    Integer,
    Integers,
    /// A list of strings. A single string is accepted as a list of one.
    Strings,
    Object,
    /// An object that has at least `status` and `next_action`.
    Handoff,
}

/// A Rust type that may be a parameter.
pub trait FieldType {
    const JSON_TYPE: JsonType;
    const REQUIRED: bool = true;

    /// Whether the field is left out of the request.
    fn is_absent(&self) -> bool {
        false
    }

    /// Refuses a value that is too long. `field` is its name.
    fn check_size(&self, _field: &str) -> Result<(), Error> {
        Ok(())
    }
}

impl Field {
    /// A parameter of this name and type.
    pub const fn new<T: FieldType>(name: &'static str) -> Self {
        Self { name, json_type: T::JSON_TYPE, required: T::REQUIRED }
    }
}

macro_rules! field_types {
    ($($json_type:ident: $($type:ty),+;)+) => {$($(
        impl FieldType for $type {
            const JSON_TYPE: JsonType = JsonType::$json_type;
        }
    )+)+};
}

field_types! {
    String: WallTime;
    Boolean: bool;
    Integer: i64, u64, u32, usize;
    // The rules say how many, and how long a handoff may be.
    Integers: Vec<i64>;
    Handoff: RawJson;
    Object: PolicyOverrides;
}

macro_rules! text_fields {
    ($($type:ty: $max:ident;)+) => {$(
        impl FieldType for $type {
            const JSON_TYPE: JsonType = JsonType::String;

            fn check_size(&self, field: &str) -> Result<(), Error> {
                check_length(field, self.as_str(), $max)
            }
        }
    )+};
}

text_fields! {
    RoomId: MAX_ID_BYTES;
    AgentId: MAX_ID_BYTES;
    LeaseId: MAX_ID_BYTES;
    NoteId: MAX_ID_BYTES;
    ReminderId: MAX_ID_BYTES;
}

impl FieldType for String {
    const JSON_TYPE: JsonType = JsonType::String;

    fn check_size(&self, field: &str) -> Result<(), Error> {
        // The rules say how long a body may be, each with an error of its own.
        if field == "body" { Ok(()) } else { check_length(field, self, MAX_TEXT_BYTES) }
    }
}

impl FieldType for OneOrMany {
    const JSON_TYPE: JsonType = JsonType::Strings;

    fn check_size(&self, field: &str) -> Result<(), Error> {
        // Paths are longer than names.
        let max = if field == "edits" { MAX_TEXT_BYTES } else { MAX_ID_BYTES };
        check_count(field, self.names().len())?;
        self.names().iter().try_for_each(|name| check_length(field, name, max))
    }
}

impl FieldType for Greeting {
    const JSON_TYPE: JsonType = JsonType::Object;

    fn check_size(&self, _: &str) -> Result<(), Error> {
        let Greeting { protocol: _, version, capabilities, signals, cwd, context_path, joins: _ } = self;
        let texts = [("version", Some(version)), ("cwd", cwd.as_ref()), ("context_path", context_path.as_ref())];
        for (field, text) in texts.into_iter().filter_map(|(field, text)| Some((field, text?))) {
            check_length(field, text, MAX_TEXT_BYTES)?;
        }
        let ids = [
            ("client_info", &signals.client_info),
            ("session_id", &signals.session_id),
            ("tool_use_id", &signals.tool_use_id),
        ];
        for (field, id) in ids {
            check_length(field, id.as_deref().unwrap_or_default(), MAX_ID_BYTES)?;
        }
        check_list("capabilities", capabilities.iter().map(String::as_str))?;
        check_list("signals.env", signals.env.keys().map(String::as_str))?;
        signals.env.values().try_for_each(|value| check_length("signals.env", value, MAX_TEXT_BYTES))
    }
}

/// The most names in a list.
const MAX_NAMES: usize = 128;

fn check_count(field: &str, count: usize) -> Result<(), Error> {
    if count > MAX_NAMES {
        let message = format!("{field} has {count} entries; at most {MAX_NAMES} are allowed");
        return Err(Error::new(ErrorCode::InvalidInput, message).detail("field", field));
    }
    Ok(())
}

fn check_list<'a>(field: &str, names: impl ExactSizeIterator<Item = &'a str>) -> Result<(), Error> {
    check_count(field, names.len())?;
    names.into_iter().try_for_each(|name| check_length(field, name, MAX_ID_BYTES))
}

impl<T: FieldType> FieldType for Option<T> {
    const JSON_TYPE: JsonType = T::JSON_TYPE;
    const REQUIRED: bool = false;

    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn check_size(&self, field: &str) -> Result<(), Error> {
        self.as_ref().map_or(Ok(()), |value| value.check_size(field))
    }
}

/// Makes the structs of requests: `Name = "name_on_the_wire" -> Answer { field: Type, ... }`.
macro_rules! methods {
    ($($(#[$doc:meta])* $request:ident = $name:literal -> $answer:ty { $($fields:tt)* })+) => {$(
        $crate::requests::field::request! { $(#[$doc])* $request { $($fields)* } }

        impl $crate::requests::Method for $request {
            const NAME: &'static str = $name;
            type Answer = $answer;
        }
    )+};
}

macro_rules! request {
    ($(#[$doc:meta])* $request:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $request {
            $(
                $(#[$field_doc])*
                #[serde(skip_serializing_if = "crate::requests::FieldType::is_absent")]
                pub $field: $type,
            )*
        }

        impl $crate::requests::Request for $request {
            const FIELDS: &'static [$crate::requests::Field] =
                &[$($crate::requests::Field::new::<$type>(stringify!($field)),)*];

            fn check_sizes(&self) -> Result<(), $crate::Error> {
                $($crate::requests::FieldType::check_size(&self.$field, stringify!($field))?;)*
                Ok(())
            }
        }
    };
}

pub(super) use {methods, request};
