//! Times as the database stores them, and as people and programs read them.
//!
//! Owns: the two notations of a time or a span. Never: reads a clock; "now" is the
//! database's time, which the caller passes in.

use std::time::Duration;

use jiff::Timestamp;

/// RFC 3339 in UTC, to the microsecond.
pub fn rfc3339(at_us: i64) -> String {
    match Timestamp::from_microsecond(at_us) {
        Ok(at) => format!("{at:.6}"),
        // Beyond the years with four digits: only a broken row has such a time.
        Err(_) => format!("{at_us} µs"),
    }
}

/// Whole microseconds, as stored.
pub fn micros(span: Duration) -> i64 {
    // Capped where adding it to a time could overflow: longer than any history.
    const LONGEST: u128 = (i64::MAX / 4) as u128;
    span.as_micros().min(LONGEST) as i64
}

/// A span between two times; zero if it would be negative.
pub fn between(from_us: i64, to_us: i64) -> Duration {
    Duration::from_micros(u64::try_from(to_us.saturating_sub(from_us)).unwrap_or(0))
}

/// A span with the two units that matter: `340ms`, `3.2s`, `5m 10s`, `3d 4h`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span.as_millis() == 0 => format!("{}µs", span.as_micros()),
        0 => format!("{}ms", span.as_millis()),
        1..60 => format!("{}.{}s", seconds, span.subsec_millis() / 100),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// A time as seen from `now`: `3s ago`, `in 5m 10s`.
pub fn relative(at_us: i64, now_us: i64) -> String {
    match at_us > now_us {
        true => format!("in {}", whole(between(now_us, at_us))),
        false => format!("{} ago", whole(between(at_us, now_us))),
    }
}

/// A span to the second, which is enough for an age.
pub fn whole(of: Duration) -> String {
    match of.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        _ => span(of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(
            rfc3339(1_700_000_000_123_456),
            "2023-11-14T22:13:20.123456Z"
        );
        assert_eq!(rfc3339(i64::MAX), format!("{} µs", i64::MAX));
    }

    #[test]
    fn spans_have_the_two_units_that_matter() {
        let cases = [
            (12, "12µs"),
            (340_000, "340ms"),
            (3_250_000, "3.2s"),
            (310_000_000, "5m 10s"),
            (7_380_000_000, "2h 3m"),
            (273_600_000_000, "3d 4h"),
        ];
        for (us, text) in cases {
            assert_eq!(span(Duration::from_micros(us)), text);
        }
    }

    #[test]
    fn ages_are_told_from_now() {
        assert_eq!(relative(7_000_000, 10_000_000), "3s ago");
        assert_eq!(relative(320_000_000, 10_000_000), "in 5m 10s");
    }
}
