//! The times the rules go by. Per daemon, with overrides per room.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorCode};

macro_rules! policy {
    ($($(#[$doc:meta])* $field:ident / $key:literal = $default:expr;)+) => {
        /// Every time the rules go by.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Policy { $($(#[$doc])* #[serde(rename = $key, with = "millis")] pub $field: Duration,)+ }

        impl Default for Policy {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        /// The times one room or one configuration sets; the others stay as they are.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct PolicyOverrides {
            $(#[serde(rename = $key, default, with = "optional_millis", skip_serializing_if = "Option::is_none")]
            pub $field: Option<Duration>,)+
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

            /// Sets one time by its name, as in `config.toml` and the environment.
            pub fn set(&mut self, key: &str, value: Duration) -> Result<(), Error> {
                match key {
                    $(stringify!($field) => self.$field = Some(value),)+
                    _ => return Err(Error::new(ErrorCode::InvalidInput, format!("there is no policy called {key}"))
                        .hint(format!("the policies are {}", Self::KEYS.join(", ")))),
                }
                Ok(())
            }
        }
    };
}

const fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

policy! {
    /// How long a turn lasts without a sign of life from its holder.
    owner_lease_ttl / "owner_lease_ttl_ms" = minutes(45);
    /// How long a holder may do nothing while someone waits.
    owner_activity_ttl / "owner_activity_ttl_ms" = minutes(45);
    heartbeat_interval / "heartbeat_interval_ms" = minutes(5);
    /// How long a reservation is kept for the member it was made for.
    claim_ttl / "claim_ttl_ms" = minutes(20);
    /// How long a member counts as present without a sign of life.
    presence_ttl / "presence_ttl_ms" = minutes(240);
    /// How long after a release a fairer member between two waits goes first.
    waiter_grace / "waiter_grace_ms" = Duration::from_secs(10);
    /// How long a room nobody is in is kept.
    idle_room_ttl / "idle_room_ttl_ms" = minutes(7 * 24 * 60);
    /// The longest a single wait lasts.
    wait_max / "wait_max_ms" = Duration::from_secs(110);
    /// How long a question may wait for its answer if the asker does not say.
    ask_expiry / "ask_expiry_ms" = minutes(5);
    /// How long a message may wait to be handed over if the sender does not say. Zero: for ever.
    message_timeout / "message_timeout_ms" = Duration::ZERO;
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
        overrides.set("claim_ttl", Duration::from_secs(1)).unwrap();
        let policy = overrides.over(&Policy::default());
        assert_eq!(policy.claim_ttl, Duration::from_secs(1));
        assert_eq!(policy.waiter_grace, Policy::default().waiter_grace);
        assert_eq!(overrides.set("claim_tll", Duration::ZERO).unwrap_err().code, ErrorCode::InvalidInput);
        let json = serde_json::to_string(&overrides).unwrap();
        assert_eq!(json, r#"{"claim_ttl_ms":1000}"#);
        assert_eq!(serde_json::from_str::<PolicyOverrides>(&json).unwrap(), overrides);
        assert!(serde_json::from_str::<PolicyOverrides>(r#"{"claim_tll_ms":1}"#).is_err());
    }
}
