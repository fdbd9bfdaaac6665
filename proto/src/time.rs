//! The one form of a point in time on every surface: UTC with milliseconds, `2026-11-16T01:02:03.456Z`.

use std::fmt;
use std::time::Duration;

use jiff::fmt::friendly::SpanParser;
use jiff::{SignedDuration, SpanRelativeTo};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WallTime(i64);

impl WallTime {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Reads any RFC 3339 instant; what is finer than a millisecond is dropped.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: WallTime) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for WallTime {
    type Output = WallTime;

    fn add(self, rhs: Duration) -> WallTime {
        WallTime(self.0.saturating_add(i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl std::ops::Sub<Duration> for WallTime {
    type Output = WallTime;

    fn sub(self, rhs: Duration) -> WallTime {
        WallTime(self.0.saturating_sub(i64::try_from(rhs.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A time no calendar has, such as "never" added to now, is shown as the nearest one it has.
        let furthest = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let at = jiff::Timestamp::from_millisecond(self.0).unwrap_or(furthest);
        write!(f, "{at:.3}")
    }
}

impl Serialize for WallTime {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WallTime {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        // No longer than the longest time, so that a refusal does not repeat a long text.
        let shown: String = text.chars().take(40).collect();
        Self::parse(&text).ok_or_else(|| de::Error::custom(format!("not a UTC timestamp: {shown:?}")))
    }
}

/// Reads a duration as people type it: `500ms`, `30s`, `5m`, `1h30m`, `7d`. A day is 24 hours. Refuses a number without a
/// unit, a negative duration, anything finer than a millisecond, and weeks, months and years.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let parser = SpanParser::new();
    let duration = parser.parse_duration(text).or_else(|_| {
        let span = parser.parse_span(text)?;
        // Weeks would count as seven of these days; months and years are refused here.
        span.to_duration(SpanRelativeTo::days_are_24_hours()).map(|duration| match span.get_weeks() {
            0 => duration,
            _ => SignedDuration::MIN,
        })
    });
    let duration = duration.ok().filter(|duration| duration.subsec_nanos() % 1_000_000 == 0)?;
    u64::try_from(duration.as_millis()).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_type_them() {
        let millis = |text| parse_duration(text).map(|d| d.as_millis());
        for (text, expected) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("7d", 604_800_000),
            ("0s", 0),
            ("18446744073709551ms", 18_446_744_073_709_551),
        ] {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        // Several units, fractions, spaces and long names: forms that the parser knows and people use.
        for (text, expected) in [("1h30m", 5_400_000), ("1d12h", 129_600_000), ("1.5s", 1_500), ("5 minutes", 300_000)]
        {
            assert_eq!(millis(text), Some(expected), "{text}");
        }
        for bad in ["", "5", "s", "-1s", "-1d", "1s ago", "1.0005s", "1us", "1w", "1mo", "1y", "PT5S", "5s and more"] {
            assert_eq!(millis(bad), None, "{bad}");
        }
        for too_long in ["99999999999999999999h", "9999999999999999d", "18446744073709552s"] {
            assert_eq!(millis(too_long), None, "{too_long}");
        }
    }

    #[test]
    fn always_three_digits_of_milliseconds() {
        for (millis, text) in [(0, "1970-01-01T00:00:00.000Z"), (1_794_790_923_400, "2026-11-16T01:02:03.400Z")] {
            let at = WallTime::from_millis(millis);
            assert_eq!(at.to_string(), text);
            assert_eq!(WallTime::parse(text), Some(at));
        }
        assert_eq!(WallTime::parse("2026-11-16T02:02:03.4567+01:00").unwrap().to_string(), "2026-11-16T01:02:03.456Z");
        assert_eq!(WallTime::parse("yesterday"), None);
        for never in [i64::MAX, i64::MIN] {
            let shown = WallTime::from_millis(never).to_string();
            assert!(WallTime::parse(&shown).is_some(), "{shown}");
        }
    }
}
