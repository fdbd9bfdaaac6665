//! What the rules go by: times, and how strict they are. Per daemon, with overrides per room.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::WayName;
use crate::message::MAX_BATCH;
use crate::time::parse_duration;
use crate::{Error, ErrorCode};

/// What can be the value of a policy.
pub trait PolicyValue: Sized {
    /// What is written for it, for an error.
    const WHAT: &'static str;
    /// What may be written instead.
    const HINT: &'static str;

    /// Reads it as people write it.
    fn parse(text: &str) -> Option<Self>;
}

impl PolicyValue for Duration {
    const WHAT: &'static str = "a duration";
    const HINT: &'static str = "use a number with ms, s, m, h or d";

    fn parse(text: &str) -> Option<Self> {
        parse_duration(text)
    }
}

impl PolicyValue for usize {
    const WHAT: &'static str = "a number";
    const HINT: &'static str = "use a whole number, as 20";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// By which ways a model is handed messages beside those that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ways([bool; Self::SWITCHABLE.len()]);

impl Ways {
    /// The ways that can be switched off.
    pub const SWITCHABLE: &[WayName] = &[WayName::ToolResponse, WayName::Hook, WayName::NativeInbox, WayName::Terminal];

    pub const fn all() -> Self {
        Self([true; Self::SWITCHABLE.len()])
    }

    /// Those by which a session is handed messages with what it does itself. What starts a turn is switched on by who wants it.
    pub const fn usual() -> Self {
        Self([true, true, false, false])
    }

    pub fn allow(self, way: WayName) -> bool {
        Self::SWITCHABLE.iter().zip(self.0).all(|(name, is_on)| *name != way || is_on)
    }
}

impl PolicyValue for Ways {
    const WHAT: &'static str = "a list of ways";
    const HINT: &'static str = "use all, none, or some of tool_response, hook, native_inbox and terminal";

    fn parse(text: &str) -> Option<Self> {
        let mut ways = Self([false; Self::SWITCHABLE.len()]);
        match text.trim() {
            "all" => ways = Self::all(),
            "none" => {}
            list => {
                for name in list.split(',') {
                    let place = Self::SWITCHABLE.iter().position(|way| way.as_str() == name.trim())?;
                    ways.0[place] = true;
                }
            }
        }
        Some(ways)
    }
}

impl From<Ways> for String {
    fn from(ways: Ways) -> Self {
        if ways == Ways::all() {
            return "all".to_owned();
        }
        let names = Ways::SWITCHABLE.iter().filter(|way| ways.allow(**way)).map(|way| way.as_str());
        let names: Vec<&str> = names.collect();
        if names.is_empty() { "none".to_owned() } else { names.join(",") }
    }
}

impl TryFrom<String> for Ways {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("{text:?} is not {}: {}", Self::WHAT, Self::HINT))
    }
}

/// How strictly the stick is kept before an edit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Nothing is looked at.
    Off,
    /// An agent that edits without the stick is told so. Nobody is refused anything, or given it.
    Advise,
    /// The first edit takes a free stick; while another member has it, an edit is refused.
    #[default]
    Enforce,
}

impl Guard {
    pub const ALL: &[Guard] = &[Guard::Off, Guard::Advise, Guard::Enforce];

    pub const fn as_str(self) -> &'static str {
        match self {
            Guard::Off => "off",
            Guard::Advise => "advise",
            Guard::Enforce => "enforce",
        }
    }
}

impl PolicyValue for Guard {
    const WHAT: &'static str = "a mode of the guard";
    const HINT: &'static str = "use off, advise or enforce";

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|guard| guard.as_str() == text)
    }
}

macro_rules! policy {
    ($($(#[$doc:meta])* $field:ident / $key:literal: $type:ty as $with:literal, $optional:literal = $default:expr;)+) => {
        /// Everything the rules go by.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Policy { $($(#[$doc])* #[serde(rename = $key, with = $with)] pub $field: $type,)+ }

        impl Default for Policy {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        /// What one room or one configuration sets; the others stay as they are.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct PolicyOverrides {
            $(#[serde(rename = $key, default, with = $optional, skip_serializing_if = "Option::is_none")]
            pub $field: Option<$type>,)+
        }

        impl PolicyOverrides {
            pub const KEYS: &[&str] = &[$(stringify!($field),)+];

            pub fn over(&self, base: &Policy) -> Policy {
                Policy { $($field: self.$field.unwrap_or(base.$field),)+ }
            }

            /// These overrides, and where they say nothing, those.
            pub fn merged_over(&self, base: &PolicyOverrides) -> PolicyOverrides {
                PolicyOverrides { $($field: self.$field.or(base.$field),)+ }
            }

            /// Sets one policy by its name, with a value as people write it in `config.toml` and the environment.
            pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
                match key {
                    $(stringify!($field) => self.$field = Some(parse::<$type>(key, value)?),)+
                    _ => return Err(Error::new(ErrorCode::InvalidInput, format!("there is no policy called {key}"))
                        .hint(format!("the policies are {}", Self::KEYS.join(", ")))),
                }
                Ok(())
            }
        }
    };
}

fn parse<T: PolicyValue>(key: &str, value: &str) -> Result<T, Error> {
    T::parse(value).ok_or_else(|| {
        Error::new(ErrorCode::InvalidInput, format!("{key} = {value:?} is not {}", T::WHAT)).hint(T::HINT)
    })
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

policy! {
    /// How long a turn lasts without a sign of life from its holder.
    owner_lease_ttl / "owner_lease_ttl_ms": Duration as "millis", "optional_millis" = minutes(45);
    /// How long a holder may do nothing while someone waits.
    owner_activity_ttl / "owner_activity_ttl_ms": Duration as "millis", "optional_millis" = minutes(45);
    heartbeat_interval / "heartbeat_interval_ms": Duration as "millis", "optional_millis" = minutes(5);
    /// How long a reservation is kept for the member it was made for.
    claim_ttl / "claim_ttl_ms": Duration as "millis", "optional_millis" = minutes(20);
    /// How long a member counts as present without a sign of life.
    presence_ttl / "presence_ttl_ms": Duration as "millis", "optional_millis" = minutes(240);
    /// How long after a release a fairer member between two waits goes first.
    waiter_grace / "waiter_grace_ms": Duration as "millis", "optional_millis" = Duration::from_secs(10);
    /// How long a room nobody is in is kept.
    idle_room_ttl / "idle_room_ttl_ms": Duration as "millis", "optional_millis" = minutes(7 * 24 * 60);
    /// The longest a single wait lasts.
    wait_max / "wait_max_ms": Duration as "millis", "optional_millis" = Duration::from_secs(110);
    /// How long a question may wait for its answer if the asker does not say.
    ask_expiry / "ask_expiry_ms": Duration as "millis", "optional_millis" = minutes(5);
    /// How long a message may wait to be handed over if the sender does not say. Zero: for ever.
    message_timeout / "message_timeout_ms": Duration as "millis", "optional_millis" = Duration::ZERO;
    /// How long a session that is busy is believed to be so without a newer sign.
    busy_doubt / "busy_doubt_ms": Duration as "millis", "optional_millis" = minutes(10);
    /// How many messages a model is handed at once.
    max_batch / "max_batch": usize as "word", "word" = MAX_BATCH;
    /// How often an hour agents may wake a session, or keep it from becoming idle.
    max_wakes / "max_wakes": usize as "word", "word" = 20;
    /// By which ways a model is handed messages.
    ways / "ways": Ways as "word", "word" = Ways::usual();
    /// What happens before an edit without the stick.
    guard / "guard": Guard as "word", "word" = Guard::Enforce;
}

/// Values that are written as they are.
mod word {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(value: &T, s: S) -> Result<S::Ok, S::Error> {
        value.serialize(s)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(d: D) -> Result<T, D::Error> {
        T::deserialize(d)
    }
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        u64::deserialize(d).map(Duration::from_millis)
    }
}

mod optional_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::millis::serialize(duration, s),
            None => s.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_touch_only_what_they_name() {
        let mut overrides = PolicyOverrides::default();
        overrides.set("claim_ttl", "1s").unwrap();
        overrides.set("ways", " tool_response , tool_response").unwrap();
        overrides.set("max_wakes", "3").unwrap();
        overrides.set("guard", "advise").unwrap();
        let policy = overrides.over(&Policy::default());
        assert_eq!(policy.claim_ttl, Duration::from_secs(1));
        assert_eq!(policy.waiter_grace, Policy::default().waiter_grace);
        let allowed = |way| (policy.ways.allow(way), Policy::default().ways.allow(way));
        let ways = [WayName::Listening, WayName::ToolResponse, WayName::Hook, WayName::NativeInbox];
        assert_eq!(ways.map(allowed), [(true, true), (true, true), (false, true), (false, false)]);
        assert_eq!((policy.max_wakes, policy.max_batch), (3, 10));
        assert_eq!((policy.guard, Policy::default().guard), (Guard::Advise, Guard::Enforce));
        let wrong = [("claim_tll", "1s"), ("claim_ttl", "soon"), ("max_wakes", "1s"), ("max_wakes", "-1")];
        for (key, value) in wrong.into_iter().chain([
            ("ways", "telepathy"),
            ("ways", "listening"),
            ("ways", ""),
            ("guard", "perhaps"),
            ("guard", "1s"),
        ]) {
            assert_eq!(overrides.set(key, value).unwrap_err().code, ErrorCode::InvalidInput, "{key} {value}");
        }
        let json = serde_json::to_string(&overrides).unwrap();
        assert_eq!(json, r#"{"claim_ttl_ms":1000,"max_wakes":3,"ways":"tool_response","guard":"advise"}"#);
        assert_eq!(serde_json::from_str::<PolicyOverrides>(&json).unwrap(), overrides);
        assert!(serde_json::from_str::<PolicyOverrides>(r#"{"claim_tll_ms":1}"#).is_err());
    }
}
