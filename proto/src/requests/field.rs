//! What is known of a request's fields, and the macro that makes a request of them.

use crate::filter::OneOrMany;
use crate::handoff::RawJson;
use crate::hello::Greeting;
use crate::policy::PolicyOverrides;
use crate::requests::Skipped;
use crate::{AgentId, LeaseId, NoteId, RoomId, WallTime};

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
    String: String, RoomId, AgentId, LeaseId, NoteId, WallTime;
    Boolean: bool;
    Integer: i64, u64, usize;
    Integers: Vec<i64>;
    Strings: OneOrMany;
    Object: PolicyOverrides, Skipped, Greeting;
    Handoff: RawJson;
}

impl<T: FieldType> FieldType for Option<T> {
    const JSON_TYPE: JsonType = T::JSON_TYPE;
    const REQUIRED: bool = false;

    fn is_absent(&self) -> bool {
        self.is_none()
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
        }
    };
}

pub(super) use {methods, request};
