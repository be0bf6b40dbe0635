//! Texts as parts of an address: percent-encoding.
//!
//! Owns: the encoding of a text as one part of a URL, and the decoding. Never: knows which part it is.

use std::fmt::Write as _;

/// A text as a part of a URL: every byte but letters, digits and `-`, `_`, `.`, `~` is encoded.
pub fn encoded(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                safe.push(byte.into());
            }
            byte => {
                let _ = write!(safe, "%{byte:02X}");
            }
        }
    }
    safe
}

/// A decoded part of a URL; `None` where a `%` is not followed by two hexadecimal digits, or the
/// decoded bytes are no text.
pub fn decoded(text: &str) -> Option<String> {
    String::from_utf8(bytes(text, true)?).ok()
}

/// The same for a name or a value as a form sends it: there a `+` is a space.
pub fn form_decoded(text: &str) -> Option<String> {
    decoded(&text.replace('+', " "))
}

/// True for a part of a URL whose decoded bytes are UTF-8, where a `%` without two digits stands for itself.
pub fn is_text(part: &str) -> bool {
    bytes(part, false).is_some_and(|bytes| std::str::from_utf8(&bytes).is_ok())
}

/// The decoded bytes. A `%` without two digits stands for itself; where it `is_strict`, there are none then.
fn bytes(part: &str, is_strict: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, after @ ..] = rest {
        let digit = |at: usize| after.get(at).and_then(|it| char::from(*it).to_digit(16));
        let byte = digit(0).zip(digit(1)).filter(|_| *first == b'%');
        let byte = byte.and_then(|(high, low)| u8::try_from(high * 16 + low).ok());
        if is_strict && *first == b'%' && byte.is_none() {
            return None;
        }
        bytes.push(byte.unwrap_or(*first));
        rest = after.get(2..).filter(|_| byte.is_some()).unwrap_or(after);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_survives_its_way_through_an_address() {
        for text in ["a b", "漢/%+&=\u{202e}", ""] {
            assert_eq!(decoded(&encoded(text)).as_deref(), Some(text));
            assert_eq!(form_decoded(&encoded(text)).as_deref(), Some(text));
        }
        assert_eq!(encoded("a b/ü"), "a%20b%2F%C3%BC");
    }

    #[test]
    fn a_plus_is_a_space_only_in_a_form() {
        assert_eq!(decoded("x+y%2fz").as_deref(), Some("x+y/z"));
        assert_eq!(form_decoded("x+y%2Bz").as_deref(), Some("x y+z"));
    }

    #[test]
    fn two_digits_follow_a_percent_sign_and_the_bytes_are_a_text() {
        for text in ["%", "%f", "%zz", "%+1", "%ff"] {
            assert_eq!((decoded(text), form_decoded(text)), (None, None), "{text}");
        }
        let lenient = ["%", "%f", "%zz", "%+1", "%c3%bc", "%ff"].map(is_text);
        assert_eq!(lenient, [true, true, true, true, true, false]);
    }
}
