//! The daemon's only source of time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tt_proto::Timestamp;

/// The time of day, for what people read.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn wall() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
}
