//! Spans of time as people write them: `0.5`, `250ms`, `10s`, `5m`, `2h`, `30d`.
//!
//! Owns: the one notation that configuration, pipelines and the command line share.
//! Never: reads a clock.

use std::time::Duration;

/// The longest span in the system: a hundred years of 365 days.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// The remedy that accompanies an error: how a duration is written.
pub const NOTATION: &str = "a duration is a number of seconds, or a number with a unit: \
                            `250ms`, `10s`, `5m`, `2h`, `30d`";

/// The same for programs: every text that matches this regular expression is a duration. A few others are as
/// well, such as those with spaces before the unit, and the longest ones.
pub const PATTERN: &str = "^([0-9]{1,9}(\\.[0-9]{1,3})?s?|[0-9]{1,12}ms|[0-9]{1,7}(\\.[0-9]{1,3})?m\
                           |[0-9]{1,5}(\\.[0-9]{1,3})?h|[0-9]{1,4}(\\.[0-9]{1,3})?d)$";

/// The milliseconds of each unit; without a unit, the number is seconds.
const UNITS: [(&str, f64); 6] = [
    ("", 1_000.0),
    ("ms", 1.0),
    ("s", 1_000.0),
    ("m", 60_000.0),
    ("h", 3_600_000.0),
    ("d", 86_400_000.0),
];

/// Reads a duration, to the millisecond. The error says on one line what is wrong.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    // One line, in which nothing moves a terminal's cursor.
    let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    let not_one = || format!("`{shown}` is not a duration");
    if text.is_empty() {
        return Err("a duration is missing".into());
    }
    if text.starts_with('-') {
        return Err(format!("`{shown}` is negative, which a duration cannot be"));
    }
    let unit_at = text
        .find(|char: char| !char.is_ascii_digit() && char != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    // Only digits and a point reach this place, so words such as `inf` and `nan` never do.
    let number: f64 = number.parse().map_err(|_| not_one())?;
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit.trim_start()) else {
        return Err(not_one());
    };
    let millis = number * factor;
    // Hundreds of digits yield infinity, which is too long as well; they cannot yield NaN.
    if millis > LONGEST.as_millis() as f64 {
        return Err(format!("`{shown}` is longer than 100 years"));
    }
    let rounded = millis.round();
    if rounded == 0.0 && number > 0.0 {
        return Err(format!("`{shown}` is shorter than a millisecond"));
    }
    Ok(Duration::from_millis(rounded as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_seconds_and_units_are_understood() {
        for (text, millis) in [
            ("0", 0),
            ("1", 1_000),
            ("0.5", 500),
            ("1.5", 1_500),
            (".25", 250),
            ("010", 10_000),
            ("250ms", 250),
            ("0.4s", 400),
            ("10s", 10_000),
            ("10 s", 10_000),
            (" 10s ", 10_000),
            ("5m", 300_000),
            ("1.5h", 5_400_000),
            ("2h", 7_200_000),
            ("30d", 2_592_000_000),
            ("0.0005", 1),
            ("36500d", 3_153_600_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn the_longest_that_programs_are_told_of_are_durations() {
        for text in [
            "999999999.999",
            "999999999.999s",
            "999999999999ms",
            "9999999.999m",
            "99999.999h",
            "9999.999d",
            "0.001",
            "0.000",
        ] {
            assert!(parse(text).is_ok(), "{text}: {:?}", parse(text));
        }
    }

    #[test]
    fn a_refusal_is_one_line_whatever_was_written() {
        for text in ["a\nb", "-1\r\n", "1 \u{1b}[2J", "x\u{202e}y", "9d\0"] {
            let said = parse(text).unwrap_err();
            assert!(!said.contains(char::is_control), "{said:?}");
            assert!(!said.contains('\u{202e}'), "{said:?}");
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused_with_the_reason() {
        let nines = "9".repeat(400);
        for (text, reason) in [
            ("", "missing"),
            ("  ", "missing"),
            ("-1", "negative"),
            ("-5s", "negative"),
            ("-0", "negative"),
            ("nan", "not a duration"),
            (".nan", "not a duration"),
            ("NaN", "not a duration"),
            ("inf", "not a duration"),
            ("1e309", "not a duration"),
            ("1e3", "not a duration"),
            ("+5", "not a duration"),
            (".", "not a duration"),
            ("1.2.3", "not a duration"),
            ("s", "not a duration"),
            ("ten", "not a duration"),
            ("10x", "not a duration"),
            ("10S", "not a duration"),
            ("1h30m", "not a duration"),
            ("10s5", "not a duration"),
            ("5 m m", "not a duration"),
            ("٣s", "not a duration"),
            ("5\0", "not a duration"),
            ("0.0001", "shorter than a millisecond"),
            ("36501d", "longer than 100 years"),
            ("99999999999999999999", "longer than 100 years"),
            (nines.as_str(), "longer than 100 years"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
            assert!(error.chars().count() < 100, "{error}");
        }
    }
}
