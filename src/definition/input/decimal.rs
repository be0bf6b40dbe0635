//! Numbers of any size, exact to the last digit.
//!
//! Owns: reading a number of JSON or of YAML, its one spelling, comparing and dividing. Never: rounds; a
//! binary fraction would take 9007199254740993 for 9007199254740992, and would deny that 0.3 is a
//! multiple of 0.1.

use std::cmp::Ordering;
use std::fmt;

/// The most digits of a divisor: as many as 64-bit arithmetic holds.
const DIVISOR_DIGITS: usize = 18;

/// The largest exponent that is distinguished from larger ones: no number that anybody writes comes near
/// it.
const EXPONENT_MAX: i64 = 1 << 60;

/// The most zeros that are written out before or after the digits; more become an exponent.
const ZEROS: i64 = 20;

/// A number: its digits, times ten to the power of its exponent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    /// Without a zero at either end; empty for zero.
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads a number as JSON or YAML writes it; YAML allows a `+`, a point at either end, `0x` and `0o`.
    /// `None` for a text that is no number of JSON.
    pub fn read(text: &str) -> Option<Self> {
        for (prefix, radix) in [("0x", 16), ("0o", 8)] {
            if let Some(start) = text.get(..2)
                && start.eq_ignore_ascii_case(prefix)
            {
                let number = u128::from_str_radix(&text[2..], radix).ok()?;
                return Self::read(&number.to_string());
            }
        }
        let is_negative = text.starts_with('-');
        let text = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let are_digits = !all.is_empty() && all.bytes().all(|it| it.is_ascii_digit());
        let exponent = saturated(exponent)?;
        if !are_digits {
            return None;
        }
        let kept = all.trim_end_matches('0');
        let dropped = all.len() - kept.len();
        let digits = kept.trim_start_matches('0').to_owned();
        if digits.is_empty() {
            return Some(Self::zero());
        }
        let shift = dropped as i64 - fraction.len() as i64;
        Some(Self {
            is_negative,
            digits,
            exponent: (exponent + shift).clamp(-EXPONENT_MAX, EXPONENT_MAX),
        })
    }

    fn zero() -> Self {
        Self {
            is_negative: false,
            digits: String::new(),
            exponent: 0,
        }
    }

    /// True if it has no fraction: 1.0 and 1e3 are whole as well.
    pub fn is_whole(&self) -> bool {
        self.exponent >= 0
    }

    /// True if it is more than zero.
    fn is_positive(&self) -> bool {
        !self.is_negative && !self.digits.is_empty()
    }

    /// The number as a count of something.
    pub fn as_count(&self) -> Option<u64> {
        let text = self.to_string();
        text.parse().ok()
    }

    /// True if it can be the divisor of [`Self::is_multiple_of`].
    pub fn is_divisor(&self) -> bool {
        self.is_positive() && self.digits.len() <= DIVISOR_DIGITS
    }

    /// True if it is a whole multiple of the divisor, for which [`Self::is_divisor`] is true.
    pub fn is_multiple_of(&self, divisor: &Self) -> bool {
        let Ok(by) = divisor.digits.parse::<u64>() else {
            return false;
        };
        let by = u128::from(by);
        if self.digits.is_empty() {
            return true;
        }
        let Ok(power) = u64::try_from(self.exponent - divisor.exponent) else {
            // The digits do not end with a zero, so no power of ten divides them.
            return false;
        };
        let digit = |rest: u128, digit: u8| (rest * 10 + u128::from(digit - b'0')) % by;
        let rest = self.digits.bytes().fold(0, digit);
        (rest * power_of_ten(power, by)).is_multiple_of(by)
    }

    /// Compares two numbers that are not negative.
    fn magnitude(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        let places = |it: &Self| it.digits.len() as i64 + it.exponent;
        // With the same number of places before the point, the digits compare as text does.
        places(self)
            .cmp(&places(other))
            .then_with(|| self.digits.cmp(&other.digits))
    }
}

/// 10 to this power, modulo `by`.
fn power_of_ten(mut power: u64, by: u128) -> u128 {
    let (mut result, mut base) = (1 % by, 10 % by);
    while power > 0 {
        if power & 1 == 1 {
            result = result * base % by;
        }
        base = base * base % by;
        power >>= 1;
    }
    result
}

/// The value of an exponent's digits; one beyond the largest counts as the largest.
fn saturated(text: &str) -> Option<i64> {
    let is_negative = text.starts_with('-');
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    let value = digits.parse().unwrap_or(EXPONENT_MAX).min(EXPONENT_MAX);
    Some(if is_negative { -value } else { value })
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.magnitude(other),
            (true, true) => other.magnitude(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

/// The one spelling of a number, as JSON.
impl fmt::Display for Decimal {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            is_negative,
            digits,
            exponent,
        } = self;
        if *is_negative {
            to.write_str("-")?;
        }
        let places = digits.len() as i64 + exponent;
        match digits.as_str() {
            "" => to.write_str("0"),
            digits if (0..=ZEROS).contains(exponent) => {
                write!(to, "{digits}{}", "0".repeat(*exponent as usize))
            }
            digits if *exponent < 0 && places > 0 => {
                let (whole, fraction) = digits.split_at(places as usize);
                write!(to, "{whole}.{fraction}")
            }
            digits if *exponent < 0 && -places <= ZEROS => {
                write!(to, "0.{}{digits}", "0".repeat(-places as usize))
            }
            digits => write!(to, "{digits}e{exponent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(text: &str) -> Decimal {
        Decimal::read(text).unwrap_or_else(|| panic!("{text} is a number"))
    }

    #[test]
    fn a_number_has_one_spelling() {
        for (spelling, others) in [
            ("0", vec!["-0", "0.000", "0e9", "-0e-9", "+0", "0x0"]),
            ("1", vec!["1.0", "10e-1", "0.1e1", "+1", "1.", "001", "0x1"]),
            ("-150", vec!["-1.5e2", "-150.0"]),
            ("0.015", vec!["1.5e-2", ".015", "15E-3"]),
            ("9007199254740993", vec!["9007199254740993.0"]),
            ("255", vec!["0xFF", "0o377"]),
            ("1e400", vec!["10e399", "0.1e401"]),
            ("1e-400", vec!["0.1e-399"]),
            ("123.456", vec!["123456e-3"]),
        ] {
            assert_eq!(number(spelling).to_string(), spelling);
            for other in others {
                assert_eq!(number(other).to_string(), spelling, "{other}");
            }
        }
        for text in [
            ".inf", "-.inf", ".nan", "", "-", ".", "1e", "e1", "1_0", "0x", "x",
        ] {
            assert_eq!(Decimal::read(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_that_a_binary_fraction_confuses_are_told_apart() {
        let rising = [
            "-1e400",
            "-9007199254740993",
            "-9007199254740992",
            "-0.1",
            "0",
            "1e-400",
            "0.1",
            "0.1000000000000000000000001",
            "1",
            "9007199254740992",
            "9007199254740993",
            "1e400",
            "1e99999999999999999998",
        ];
        for (one, a) in rising.iter().enumerate() {
            for (two, b) in rising.iter().enumerate() {
                assert_eq!(number(a).cmp(&number(b)), one.cmp(&two), "{a} {b}");
            }
        }
    }

    #[test]
    fn multiples_are_exact() {
        for (value, divisor, is_multiple) in [
            ("0.3", "0.1", true),
            ("0.35", "0.1", false),
            ("1.1", "0.01", true),
            ("9007199254740993", "2", false),
            ("9007199254740992", "2", true),
            ("1e400", "7", false),
            ("7e400", "7", true),
            ("-9", "3", true),
            ("0", "3", true),
            ("1", "3", false),
            ("10", "2.5", true),
            ("5", "10", false),
            ("1e1000000000000", "1e-5", true),
        ] {
            let said = number(value).is_multiple_of(&number(divisor));
            assert_eq!(said, is_multiple, "{value} {divisor}");
        }
        assert!(!number("0").is_divisor() && !number("-1").is_divisor());
        assert!(!number("1234567890123456789").is_divisor());
    }

    #[test]
    fn a_count_is_whole_and_not_negative() {
        assert_eq!(number("1e3").as_count(), Some(1_000));
        for text in ["-1", "0.5", "1e30"] {
            assert_eq!(number(text).as_count(), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_are_as_arithmetic_has_them(a in any::<i64>(), b in any::<i64>(), by in 1..1_000_000_i64) {
            let (one, two) = (number(&a.to_string()), number(&b.to_string()));
            prop_assert_eq!(one.cmp(&two), a.cmp(&b));
            prop_assert_eq!(one.to_string(), a.to_string());
            prop_assert_eq!(one.is_multiple_of(&number(&by.to_string())), a % by == 0);
        }

        #[test]
        fn fractions_are_as_whole_numbers_of_their_last_place(a in any::<i32>(), b in any::<i32>(), places in 0..9_usize) {
            let fraction = |it: i32| number(&format!("{it}e-{places}"));
            prop_assert_eq!(fraction(a).cmp(&fraction(b)), a.cmp(&b));
            prop_assert_eq!(&number(&fraction(a).to_string()), &fraction(a));
        }
    }
}
