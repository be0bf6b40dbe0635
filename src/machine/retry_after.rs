//! The header `Retry-After`, by which a server asks to be left alone for a while.
//!
//! Owns: its notation, and the bound on such a wait. Never: decides whether there is another attempt (`export` and
//! `webhook` do).

use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;

use crate::time;

/// The longest wait, however long a server wants to be left alone.
pub const WAIT_MAX: Duration = Duration::from_secs(60 * 60);

/// The time that a header `Retry-After` asks for: in seconds, or until a date.
pub fn asked_for(header: &str, now_us: i64) -> Option<Duration> {
    let header = header.trim();
    if !header.is_empty() && header.bytes().all(|it| it.is_ascii_digit()) {
        let seconds = header.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(WAIT_MAX));
    }
    let at = DateTimeParser::new().parse_timestamp(header).ok()?;
    Some(time::between(now_us, at.as_microsecond()).min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_asked_for_in_seconds_or_until_a_date() {
        let now = 784_111_777_000_000;
        let asked = |header| asked_for(header, now).map(|it| it.as_secs());
        assert_eq!(asked(" 120 "), Some(120));
        assert_eq!(asked("99999999999999999999"), Some(3_600));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:47 GMT"), Some(10));
        assert_eq!(asked("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        for none in ["", "-1", "soon", "1.5"] {
            assert_eq!(asked(none), None, "{none}");
        }
    }
}
