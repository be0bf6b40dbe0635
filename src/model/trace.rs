//! The position of work in a trace, as the W3C's trace context writes it.
//!
//! Owns: the header `traceparent`, read as leniently as the specification asks and written in one form, and the
//! values that a caller passes on with it: `tracestate` and `baggage`. Never: knows what a span stands for.

use std::fmt;

/// The bytes of a `traceparent` of version 00.
const LENGTH: usize = 55;

/// A span, and the trace that it is in: a caller passes them to the work that it calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace; never zero.
    pub trace: u128,
    /// The span; never zero.
    pub span: u64,
    /// The flags, such as whether it is recorded.
    pub flags: u8,
}

/// The flag of a span that is recorded.
pub const SAMPLED: u8 = 1;

impl TraceParent {
    /// Reads a `traceparent`. A malformed one counts as none: the specification allows nobody to refuse a
    /// request because of it. If the version is not known yet, only the parts of version 00 are read.
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

/// The most bytes of a `tracestate` that are passed on: as many as the specification asks for.
const STATE_MAX: usize = 512;

/// The most vendors of a `tracestate`.
const STATE_MEMBERS: usize = 32;

/// A vendor's part of a `tracestate` that is longer than this is left out before all others.
const STATE_LONG: usize = 128;

/// The most bytes of a `baggage` that are passed on: as many as the specification asks for.
const BAGGAGE_MAX: usize = 8_192;

/// A caller: its position in its trace, and the values that it passes on with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Its span.
    pub span: Option<TraceParent>,
    /// Its `tracestate`: messages of the vendors along its trace to each other.
    pub state: Option<String>,
    /// Its `baggage`: values that the application passes along the way.
    pub baggage: Option<String>,
}

impl Caller {
    /// Reads the values that a caller passes on. A malformed part counts as none: the specifications allow
    /// nobody to refuse a request because of it. Without a span there is no trace that the state could belong
    /// to.
    pub fn read(span: Option<&str>, state: Option<&str>, baggage: Option<&str>) -> Self {
        let span = span.and_then(TraceParent::read);
        Self {
            span,
            state: state.filter(|_| span.is_some()).and_then(trace_state),
            baggage: baggage.and_then(self::baggage),
        }
    }
}

/// The members of a list, without empty ones and without spaces around them.
fn members(text: &str) -> Vec<&str> {
    let members = text.split(',').map(|it| it.trim_matches([' ', '\t']));
    members.filter(|it| !it.is_empty()).collect()
}

/// As many of these members as fit, starting with the first.
fn fitting(mut members: Vec<&str>, max: usize) -> Option<String> {
    let size = |members: &[&str]| members.iter().map(|it| it.len() + 1).sum::<usize>();
    while size(&members) > max + 1 {
        members.pop();
    }
    (!members.is_empty()).then(|| members.join(","))
}

/// A `tracestate`. If it is too long, the longest parts are left out first, and then the last ones, as the
/// specification says.
fn trace_state(text: &str) -> Option<String> {
    let mut members = members(text);
    let is_sound = |member: &&str| {
        let of_key =
            |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
        let of_value = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=';
        member.split_once('=').is_some_and(|(key, value)| {
            (1..=256).contains(&key.len())
                && key.starts_with(|it: char| it.is_ascii_lowercase() || it.is_ascii_digit())
                && key.bytes().all(of_key)
                && (1..=256).contains(&value.len())
                && value.bytes().all(of_value)
        })
    };
    if members.len() > STATE_MEMBERS || !members.iter().all(is_sound) {
        return None;
    }
    if members.join(",").len() > STATE_MAX {
        members.retain(|it| it.len() <= STATE_LONG);
    }
    fitting(members, STATE_MAX)
}

/// A `baggage`. If it is too long, the last members are left out.
fn baggage(text: &str) -> Option<String> {
    let members = members(text);
    let is_sound = |member: &&str| {
        let of_text =
            |byte: u8| matches!(byte, b'\t' | b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        let of_key = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        member.split_once('=').is_some_and(|(key, value)| {
            let key = key.trim_end_matches([' ', '\t']);
            !key.is_empty() && key.bytes().all(of_key) && value.bytes().all(of_text)
        })
    };
    match members.iter().all(is_sound) {
        true => fitting(members, BAGGAGE_MAX),
        false => None,
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

    #[test]
    fn what_a_caller_hands_on_is_read_and_what_is_malformed_is_dropped_alone() {
        let state = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE";
        let bag = "userId=alice;isProduction=false,serverNode=DF%2028";
        let caller = Caller::read(Some(GIVEN), Some(state), Some(bag));
        assert_eq!(caller.span, TraceParent::read(GIVEN));
        assert_eq!(
            (caller.state.as_deref(), caller.baggage.as_deref()),
            (Some(state), Some(bag))
        );
        // The state belongs to a trace.
        let caller = Caller::read(None, Some(state), Some(bag));
        assert_eq!(
            (caller.span, caller.state, caller.baggage.as_deref()),
            (None, None, Some(bag))
        );
        let caller = Caller::read(Some("x"), Some(state), Some("no"));
        assert_eq!(caller, Caller::default());
        let caller = Caller::read(Some(GIVEN), Some("A=1"), Some(bag));
        assert_eq!((caller.state, caller.baggage.as_deref()), (None, Some(bag)));
        let spaced = Caller::read(Some(GIVEN), Some(" a=1 ,, \tb=2 "), Some("a = 1 , b=2"));
        assert_eq!(spaced.state.as_deref(), Some("a=1,b=2"));
        assert_eq!(spaced.baggage.as_deref(), Some("a = 1,b=2"));
        for wrong in [
            "", ",", "a", "=1", "a=", "a=b=c", "a=\u{e9}", "a=1,B=2", "a=1\n",
        ] {
            assert_eq!(trace_state(wrong), None, "{wrong:?}");
        }
        for wrong in [
            "", "a", "=1", "a b=1", "a=\u{e9}", "a=1,b", "a=\"x\"", "a=1\0",
        ] {
            assert_eq!(baggage(wrong), None, "{wrong:?}");
        }
        assert_eq!(trace_state(&vec!["a=1"; STATE_MEMBERS + 1].join(",")), None);
    }

    #[test]
    fn of_what_is_too_long_members_are_left_out_and_the_rest_is_handed_on() {
        let member =
            |key: &str, length: usize| format!("{key}={}", "x".repeat(length - key.len() - 1));
        // The long one is left out first, although it is not the last.
        let long = [
            member("a", 100),
            member("b", 200),
            member("c", 100),
            member("d", 100),
            member("e", 100),
        ];
        let expected = [&long[0], &long[2], &long[3], &long[4]]
            .map(String::as_str)
            .join(",");
        assert_eq!(trace_state(&long.join(",")), Some(expected));
        let many: Vec<String> = (0..6).map(|it| member(&format!("k{it}"), 100)).collect();
        assert_eq!(trace_state(&many.join(",")), Some(many[..5].join(",")));
        let exact: Vec<String> = [127, 127, 127, 128].map(|it| member("k", it)).to_vec();
        assert_eq!(exact.join(",").len(), STATE_MAX);
        assert_eq!(trace_state(&exact.join(",")), Some(exact.join(",")));
        let large: Vec<String> = (0..4).map(|it| member(&format!("k{it}"), 3_000)).collect();
        assert_eq!(baggage(&large.join(",")), Some(large[..2].join(",")));
        assert_eq!(
            baggage(&member("k", BAGGAGE_MAX)),
            Some(member("k", BAGGAGE_MAX))
        );
        assert_eq!(baggage(&member("k", BAGGAGE_MAX + 1)), None);
    }
}
