//! The place of work in a trace, as the W3C's trace context writes it.
//!
//! Owns: the header `traceparent`, read as leniently as the specification asks and written in one form. Never:
//! knows what a span is of.

use std::fmt;

/// The bytes of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// A span, and the trace that it is in: what a caller hands to what it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; never zero.
    pub trace: u128,
    /// The span; never zero.
    pub span: u64,
    /// Whether it is recorded, and so on.
    pub flags: u8,
}

/// The flag of a span that is recorded.
pub const SAMPLED: u8 = 1;

impl TraceParent {
    /// Reads a `traceparent`. One that is malformed is none: the specification lets nobody refuse a request for
    /// it. Of a version that is not known yet the parts that version 00 has are read.
    pub fn read(text: &str) -> Option<Self> {
        let text = text.trim_matches([' ', '\t']);
        let is_longer = text.len() > LENGTH;
        let (known, rest) = text.split_at_checked(LENGTH)?;
        let mut parts = known.split('-');
        let mut part = |digits: usize| {
            let part = parts.next().filter(|it| it.len() == digits)?;
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            part.bytes().all(is_digit).then_some(part)
        };
        let (version, trace, span, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        if version == "ff" || is_longer && (version == "00" || !rest.starts_with('-')) {
            return None;
        }
        let read = Self {
            trace: u128::from_str_radix(trace, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
            flags: u8::from_str_radix(flags, 16).ok()?,
        };
        (read.trace != 0 && read.span != 0).then_some(read)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trace, span, flags } = self;
        write!(to, "00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_read_and_written_as_it_was() {
        let read = TraceParent::read(GIVEN).unwrap();
        assert_eq!(read.trace, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((read.span, read.flags), (0x00f0_67aa_0ba9_02b7, SAMPLED));
        assert_eq!(read.to_string(), GIVEN);
        assert_eq!(TraceParent::read(&format!(" {GIVEN}\t")), Some(read));
    }

    #[test]
    fn of_a_later_version_the_parts_that_are_known_are_read() {
        let expected = TraceParent::read(GIVEN);
        let later = GIVEN.replacen("00", "cc", 1);
        assert_eq!(TraceParent::read(&later), expected);
        assert_eq!(TraceParent::read(&format!("{later}-what-ever")), expected);
        assert_eq!(TraceParent::read(&format!("{later}what-ever")), None);
    }

    #[test]
    fn a_malformed_traceparent_is_none() {
        let trace = &GIVEN[3..35];
        for wrong in [
            String::new(),
            "00".to_owned(),
            GIVEN[..54].to_owned(),
            format!("{GIVEN}-"),
            format!("{GIVEN}0"),
            GIVEN.to_uppercase(),
            GIVEN.replacen("00", "ff", 1),
            GIVEN.replacen("00", "0g", 1),
            GIVEN.replace(trace, &"0".repeat(32)),
            GIVEN.replace("00f067aa0ba902b7", &"0".repeat(16)),
            GIVEN.replace('-', "_"),
            GIVEN.replacen('-', "+", 1),
            GIVEN.replace("-01", "-é"),
            GIVEN.replace("4bf92f", "+bf92f"),
            format!("{GIVEN},{GIVEN}"),
        ] {
            assert_eq!(TraceParent::read(&wrong), None, "{wrong}");
        }
    }
}
