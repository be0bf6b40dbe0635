//! Numbers as people read and write them.
//!
//! Owns: the grouping of digits; the numbers of the command line. Never: rounds.

use std::ops::RangeInclusive;

/// A number with a comma between groups of three digits: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Reads a whole number of this range; the error says which.
pub fn whole(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<u32, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| match *range.end() {
            u32::MAX => format!("give a whole number from {}", range.start()),
            end => format!("give a whole number from {} to {end}", range.start()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_none_or_out_of_its_range_is_refused_with_the_range() {
        assert_eq!(whole(1..=500)("500"), Ok(500));
        for text in ["", "x", "0", "501", "-1", "1.5", "99999999999"] {
            let told = "give a whole number from 1 to 500";
            assert_eq!(whole(1..=500)(text), Err(told.to_owned()), "{text}");
        }
        let told = Err("give a whole number from 1".to_owned());
        assert_eq!(whole(1..=u32::MAX)("0"), told);
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
