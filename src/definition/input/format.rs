//! The formats that a schema may ask of a text.
//!
//! Owns: their names, and which texts have them. Never: is more lenient than the RFC that names a format,
//! except for mail addresses, of which it checks only the outline: whether an address exists only a letter can
//! tell.

use serde::{Deserialize, Serialize};

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// A day: `2026-01-31`.
    Date,
    /// A point in time, with its offset from UTC (RFC 3339).
    DateTime,
    /// A mail address.
    Email,
    /// An absolute URI (RFC 3986).
    Uri,
    /// A UUID.
    Uuid,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Date,
        Self::DateTime,
        Self::Email,
        Self::Uri,
        Self::Uuid,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Date => "date",
            Self::DateTime => "date-time",
            Self::Email => "email",
            Self::Uri => "uri",
            Self::Uuid => "uuid",
        }
    }

    /// Its words for people, with an example.
    pub fn words(self) -> &'static str {
        match self {
            Self::Date => "a date such as 2026-01-31",
            Self::DateTime => "a date and time with an offset, such as 2026-01-31T12:00:00Z",
            Self::Email => "a mail address",
            Self::Uri => "a URI such as https://example.com/x",
            Self::Uuid => "a UUID",
        }
    }

    /// Whether a text has this format.
    pub fn admits(self, text: &str) -> bool {
        match self {
            Self::Date => is_date(text),
            Self::DateTime => is_date_time(text),
            Self::Email => is_email(text),
            Self::Uri => is_uri(text),
            Self::Uuid => is_uuid(text),
        }
    }
}

/// The number in a text of exactly `digits` digits.
fn number(text: &str, digits: usize) -> Option<u32> {
    let is_plain = text.len() == digits && text.bytes().all(|it| it.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

fn is_date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let mut part = |digits| number(parts.next()?, digits);
    let (Some(year), Some(month), Some(day)) = (part(4), part(2), part(2)) else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else {
        return false;
    };
    let clock = |text: &str, parts: usize| {
        let fields: Vec<_> = text.split(':').map(|it| number(it, 2)).collect();
        let bounds = [23, 59, 60];
        let within = |(field, most): (&Option<u32>, &u32)| field.is_some_and(|it| it <= *most);
        fields.len() == parts && fields.iter().zip(&bounds).all(within)
    };
    let (time, is_zoned) = match time.strip_suffix(['Z', 'z']) {
        Some(time) => (time, true),
        None => match time.rfind(['+', '-']) {
            Some(at) => (&time[..at], clock(&time[at + 1..], 2)),
            None => (time, false),
        },
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|it| it.is_ascii_digit());
    // A leap second is the last second of an hour, in every zone.
    let leaps = time.ends_with(":60") && !time.ends_with(":59:60");
    is_zoned && is_fraction && !leaps && is_date(date) && clock(time, 3)
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let local_char = |char: char| {
        char.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(char) || !char.is_ascii()
    };
    let is_local = |part: &str| !part.is_empty() && part.chars().all(local_char);
    let label_char = |char: char| char.is_ascii_alphanumeric() || char == '-' || !char.is_ascii();
    let is_label = |part: &str| {
        let framed = part.starts_with('-') || part.ends_with('-');
        !part.is_empty() && part.len() <= 63 && !framed && part.chars().all(label_char)
    };
    let fits = local.len() <= 64 && domain.len() <= 255;
    let is_blank = |char: char| char.is_whitespace() || char.is_control();
    fits && !text.contains(is_blank)
        && local.split('.').all(is_local)
        && domain.split('.').all(is_label)
}

fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let is_scheme = scheme.starts_with(|it: char| it.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || b"+-.".contains(&it));
    let allowed =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte);
    let hex = |byte: Option<u8>| byte.is_some_and(|it| it.is_ascii_hexdigit());
    let escape = |part: &str| {
        let mut bytes = part.bytes();
        hex(bytes.next()) && hex(bytes.next())
    };
    let once = |what: char| rest.matches(what).count() <= 1;
    // Brackets contain an IPv6 address, and occur nowhere else.
    let authority = rest
        .strip_prefix("//")
        .map(|it| it.split(['/', '?', '#']).next());
    let authority = authority.flatten().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let is_boxed = host.starts_with('[') && host.contains(']');
    let brackets = rest.contains(['[', ']']);
    let is_plain = !brackets || (is_boxed && once('[') && once(']'));
    is_scheme
        && is_plain
        && once('#')
        && rest.bytes().all(allowed)
        && rest.split('%').skip(1).all(escape)
}

fn is_uuid(text: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str| part.bytes().all(|it| it.is_ascii_hexdigit());
    let fits = |(part, length): (&&str, &usize)| part.len() == *length && hex(part);
    parts.len() == lengths.len() && parts.iter().zip(&lengths).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_a_format_or_not() {
        let table: [(Format, &[&str], &[&str]); 5] = [
            (
                Format::Date,
                &["2026-01-31", "2024-02-29", "2000-02-29", "0001-12-01"],
                &[
                    "2026-02-29",
                    "1900-02-29",
                    "2026-1-31",
                    "2026-13-01",
                    "2026-00-10",
                    "2026-01-00",
                    "2026-04-31",
                    "20260131",
                    "2026-01-31 ",
                    "+026-01-01",
                    "2026-01-31T00:00:00Z",
                    "",
                ],
            ),
            (
                Format::DateTime,
                &[
                    "2026-01-31T12:00:00Z",
                    "2026-01-31t12:00:00.123456789z",
                    "2026-01-31T23:59:60+01:00",
                    "2026-01-31T00:00:00-23:59",
                ],
                &[
                    "2026-01-31T12:00:00",
                    "2026-01-31 12:00:00Z",
                    "2026-01-31T24:00:00Z",
                    "2026-01-31T12:60:00Z",
                    "2026-01-31T12:00:60Z",
                    "2026-01-31T12:00Z",
                    "2026-01-31T12:00:00.Z",
                    "2026-01-31T12:00:00+1:00",
                    "2026-01-31T12:00:00+24:00",
                    "2026-02-30T12:00:00Z",
                    "T",
                    "",
                ],
            ),
            (
                Format::Email,
                &["a@b", "ada.lovelace+x@example.com", "ü@exämple.de"],
                &[
                    "a",
                    "@b",
                    "a@",
                    "a b@c.de",
                    "a@b@c",
                    ".a@b.de",
                    "a..b@c.de",
                    "a@-b.de",
                    "a@b..de",
                    "a@b.de\n",
                    "<a@b.de>",
                    "",
                ],
            ),
            (
                Format::Uri,
                &[
                    "https://example.com/x?y=%20#z",
                    "urn:isbn:0451450523",
                    "mailto:a@b.de",
                    "file:///etc",
                    "http://[::1]:80/",
                    "x:",
                ],
                &[
                    "/relative",
                    "example.com",
                    "https://a b",
                    "1http://x",
                    "http://x/%zz",
                    "http://x/%2",
                    "http://é",
                    "http://x/[a]",
                    "http://x#a#b",
                    ":x",
                    "",
                    "http://x/\u{0}",
                    "http://x<y>",
                ],
            ),
            (
                Format::Uuid,
                &[
                    "0192f3a1-7b2c-7def-8abc-0123456789ab",
                    "0192F3A1-7B2C-7DEF-8ABC-0123456789AB",
                ],
                &[
                    "0192f3a17b2c7def8abc0123456789ab",
                    "0192f3a1-7b2c-7def-8abc-0123456789a",
                    "0192f3a1-7b2c-7def-8abc",
                    "{0192f3a1-7b2c-7def-8abc-0123456789ab}",
                    "g192f3a1-7b2c-7def-8abc-0123456789ab",
                    "",
                ],
            ),
        ];
        for (format, good, bad) in table {
            for text in good {
                assert!(format.admits(text), "{text:?} is {}", format.words());
            }
            for text in bad {
                assert!(!format.admits(text), "{text:?} is not {}", format.words());
            }
        }
    }

    #[test]
    fn a_name_is_the_one_that_is_stored() {
        for format in Format::ALL {
            let stored = serde_json::to_value(format).expect("it is a word");
            assert_eq!(stored, format.name());
        }
    }
}
