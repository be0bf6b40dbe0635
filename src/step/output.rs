//! The one strict reader of payloads: of the values that steps return, and of those that trigger runs.
//!
//! Owns: what counts as one JSON value. Never: changes it. An accepted value is kept to the letter
//! (numbers of any size, escapes, duplicate keys), because its author may mean it; so nothing here
//! decodes a number or a string.

use serde_json::value::RawValue;

use crate::definition::input::halves;

/// Deepest nesting of arrays and objects in values that are handed to us: outputs, and the inputs of
/// runs. An array that a fan-in makes of outputs is deeper by one level, and is handed on
/// whole: the work is done, and nobody could make it less deep.
pub const DEPTH_MAX: usize = 128;

/// The mistake in a payload, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonProblem {
    /// Nothing, or white space.
    #[error("it is empty")]
    Empty,
    /// Longer than allowed.
    #[error("it is larger than max_payload ({max} bytes)")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// Bytes that are not UTF-8.
    #[error("it is not UTF-8 at byte {offset} (line {line})")]
    NotUtf8 {
        /// Bytes before the first bad one.
        offset: usize,
        /// One-based.
        line: usize,
    },
    /// Arrays and objects inside each other, too many times.
    #[error("it nests deeper than {DEPTH_MAX} levels at line {line}, column {column}")]
    TooDeep {
        /// One-based.
        line: usize,
        /// One-based, in characters.
        column: usize,
    },
    /// Anything else.
    #[error("{message} at line {line}, column {column}")]
    Syntax {
        /// The value that was found, or expected.
        message: String,
        /// One-based.
        line: usize,
        /// One-based, in characters.
        column: usize,
    },
}

/// How many bytes to read for a value of at most `max`: a line ending may follow it, because a step's
/// `print` ends a line, and so do we after each input. Anything beyond that is too much, whatever it is.
pub const fn room(max: usize) -> usize {
    max.saturating_add(2)
}

/// Reads exactly one JSON value of at most `max` bytes, from all bytes that there are or from more
/// than [`room`] of them.
pub fn parse_json(bytes: &[u8], max: usize) -> Result<Box<RawValue>, JsonProblem> {
    if bytes.len() > room(max) || bytes.trim_ascii().len() > max {
        return Err(JsonProblem::TooLarge { max });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| JsonProblem::NotUtf8 {
        offset: error.valid_up_to(),
        line: 1 + newlines(&bytes[..error.valid_up_to()]),
    })?;
    if text.trim_matches(is_json_space).is_empty() {
        return Err(JsonProblem::Empty);
    }
    if text.starts_with('\u{feff}') {
        return Err(JsonProblem::Syntax {
            message: "it starts with a byte order mark".into(),
            line: 1,
            column: 1,
        });
    }
    check_depth(text)?;
    RawValue::from_string(text.to_owned()).map_err(|error| syntax(text, &error))
}

/// Refuses values that nest too deeply. This is not left to the parser: it does not count when it
/// skips over a value, and later readers of the payload may count by recursion.
fn check_depth(text: &str) -> Result<(), JsonProblem> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut bytes = text.bytes().enumerate();
    while let Some((offset, byte)) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                bytes.next();
            }
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    let (line, column) = position(text, offset);
                    return Err(JsonProblem::TooDeep { line, column });
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

/// Half of a surrogate pair in an output, in words, if there is one. An input with one is refused too: many programs
/// cannot read anything that they are sent together with it.
pub fn half(output: &str) -> Option<String> {
    let first = halves(output).into_iter().next()?;
    Some(first.detail)
}

/// The reason why a JSON value cannot be kept, in words: it nests too deeply, or has half of a surrogate pair.
pub(crate) fn unkept(value: &str) -> Option<String> {
    match check_depth(value) {
        Ok(()) => half(value).map(|half| format!("it {half}")),
        Err(problem) => Some(problem.to_string()),
    }
}

fn syntax(text: &str, error: &serde_json::Error) -> JsonProblem {
    // The parser reports the line and the byte in it; a person counts characters.
    let line_start = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum::<usize>();
    let offset = line_start + error.column().saturating_sub(1);
    let offset = text.floor_char_boundary(offset.min(text.len()));
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or(&said);
    let is_letter = |char: char| char.is_ascii_alphabetic();
    // The parser notices a wrong word at one of its letters.
    let offset = match said {
        "expected ident" => text[..offset].trim_end_matches(is_letter).len(),
        _ => offset,
    };
    let (line, column) = position(text, offset);
    let found = &text[offset..];
    let word = &found[..found.len() - found.trim_start_matches(is_letter).len()];
    let is_not_finite = ["nan", "inf", "infinity"]
        .iter()
        .any(|it| it.eq_ignore_ascii_case(word));
    // No other word is shown: a step may have printed a secret.
    let message = match said {
        _ if is_not_finite => format!("`{word}` is not JSON"),
        "expected ident" | "expected value" if !word.is_empty() => {
            "expected a value, or a text in double quotes".into()
        }
        "trailing characters" => "more text follows the value".into(),
        said if error.is_eof() => format!("it breaks off ({said})"),
        said => said.to_owned(),
    };
    JsonProblem::Syntax {
        message,
        line,
        column,
    }
}

/// One-based line, and column in characters.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        1 + newlines(before.as_bytes()),
        1 + before[line_start..].chars().count(),
    )
}

fn newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

fn is_json_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 4 * 1024 * 1024;

    fn kept(text: &str) -> String {
        match parse_json(text.as_bytes(), ROOM) {
            Ok(value) => value.get().to_owned(),
            Err(problem) => panic!("{text:?} was refused: {problem}"),
        }
    }

    fn refused(bytes: &[u8]) -> String {
        match parse_json(bytes, ROOM) {
            Ok(value) => panic!("accepted: {value}"),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn what_is_accepted_is_kept_to_the_letter() {
        for text in [
            "null",
            "true",
            "-0",
            "9007199254740993",
            "1e400",
            "-1E-400",
            "123456789012345678901234567890.0000",
            r#""""#,
            r#""\u0000""#,
            r#""\ud800""#,
            r#""\udc00\ud800""#,
            "\"\u{2028}\u{2029}\"",
            "\"😀𝕏\"",
            r#"{"":1}"#,
            r#"{"__proto__":{}}"#,
            r#"{"a":1,"a":2}"#,
            r#"{ "a" : [ 1 , 2 ] }"#,
            r#""[[[\"{{{""#,
            "{}",
            "[]",
        ] {
            assert_eq!(kept(text), text);
        }
    }

    #[test]
    fn white_space_around_the_value_is_dropped() {
        assert_eq!(kept(" \r\n\t[1]\n\n"), "[1]");
    }

    #[test]
    fn everything_else_is_refused_with_what_and_where() {
        for (bytes, expected) in [
            (&b""[..], "it is empty"),
            (b" \n\t\r ", "it is empty"),
            (b"NaN", "`NaN` is not JSON at line 1, column 1"),
            (b"[1, NaN]", "`NaN` is not JSON at line 1, column 5"),
            (b"[-Infinity]", "`Infinity` is not JSON at line 1, column 3"),
            (
                b"{\"a\": Infinity}",
                "`Infinity` is not JSON at line 1, column 7",
            ),
            (b"1 2", "more text follows the value at line 1, column 3"),
            (b"{}\n{}", "more text follows the value at line 2, column 1"),
            (
                b"null garbage",
                "more text follows the value at line 1, column 6",
            ),
            (b"nan", "`nan` is not JSON at line 1, column 1"),
            (b"[-inf]", "`inf` is not JSON at line 1, column 3"),
            (
                b"hello",
                "expected a value, or a text in double quotes at line 1, column 1",
            ),
            (
                b"[1, nope]",
                "expected a value, or a text in double quotes at line 1, column 5",
            ),
            (
                b"True",
                "expected a value, or a text in double quotes at line 1, column 1",
            ),
            (
                b"nullify",
                "more text follows the value at line 1, column 5",
            ),
            (
                "\"ééé\" x".as_bytes(),
                "more text follows the value at line 1, column 7",
            ),
            (
                b"[1,",
                "it breaks off (EOF while parsing a value) at line 1, column 3",
            ),
            (
                b"\"half",
                "it breaks off (EOF while parsing a string) at line 1, column 5",
            ),
            (b"[1,]", "expected value at line 1, column 4"),
            (b"{'a':1}", "key must be a string at line 1, column 2"),
            (b"01", "invalid number at line 1, column 2"),
            (b"+1", "expected value at line 1, column 1"),
            (b".5", "expected value at line 1, column 1"),
            (b"\"\\x41\"", "invalid escape at line 1, column 3"),
            (
                b"\"a\nb\"",
                "control character (\\u0000-\\u001F) found while parsing a string at line 1, column 2",
            ),
            (
                b"\xef\xbb\xbf{}",
                "it starts with a byte order mark at line 1, column 1",
            ),
            (b"\"a\n\xff\"", "it is not UTF-8 at byte 3 (line 2)"),
            // An overlong slash, and a surrogate encoded as if it were a character.
            (b"\"\xc0\xaf\"", "it is not UTF-8 at byte 1 (line 1)"),
            (b"\"\xed\xa0\x80\"", "it is not UTF-8 at byte 1 (line 1)"),
            (b"\xc2\xa01", "expected value at line 1, column 1"),
            (b"null\0", "more text follows the value at line 1, column 5"),
        ] {
            let shown = String::from_utf8_lossy(bytes);
            assert_eq!(refused(bytes), expected, "for {shown:?}");
        }
    }

    #[test]
    fn nesting_is_counted_to_128_and_never_by_recursion() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(kept(&nested(128)), nested(128));
        let problem = "it nests deeper than 128 levels at line 1, column 129";
        assert_eq!(refused(nested(129).as_bytes()), problem);
        assert_eq!(refused(nested(1_000_000).as_bytes()), problem);
        assert_eq!(refused("[".repeat(1_000_000).as_bytes()), problem);
        let objects = r#"{"a":"#.repeat(129) + "1" + &"}".repeat(129);
        assert!(refused(objects.as_bytes()).starts_with("it nests deeper"));
        let wide = format!("[{}]", vec!["[]"; 1000].join(","));
        assert_eq!(kept(&wide), wide);
    }

    #[test]
    fn size_is_bounded() {
        assert!(parse_json(b"1234", 4).is_ok());
        assert_eq!(
            parse_json(b"12345", 4).unwrap_err(),
            JsonProblem::TooLarge { max: 4 }
        );
    }
}
