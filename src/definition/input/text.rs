//! A JSON value in its own text, of which only the requested parts are read.
//!
//! Owns: walking through a text that is known to be JSON, and the one text of equal values. Never: decides whether
//! it is JSON (`step::output` does, and the reader of stored definitions), or copies parts that nobody looks at: a
//! value may have many megabytes.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::decimal::Decimal;
use super::schema::Kind;

/// A value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// The value of a text that is JSON.
    pub fn of(text: &'a str) -> Self {
        Self(text.trim_matches(is_space))
    }

    /// Its text.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// Its kind.
    pub fn kind(self) -> Kind {
        match self.0.as_bytes().first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Boolean,
            Some(b'n') => Kind::Null,
            _ => Kind::Number,
        }
    }

    /// The characters of a string; `None` if it contains half of a surrogate pair, which no text has.
    pub fn string(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        match inner.contains('\\') {
            false => Some(Cow::Borrowed(inner)),
            true => serde_json::from_str(self.0).ok().map(Cow::Owned),
        }
    }

    /// The elements of an array, in order; none for another kind of value.
    pub fn elements(self) -> impl Iterator<Item = Json<'a>> {
        let mut parts = Parts::of(self.0, '[');
        std::iter::from_fn(move || parts.next())
    }

    /// The members of an object, in order, each key as a string; none for another kind of value.
    pub fn members(self) -> impl Iterator<Item = (Json<'a>, Json<'a>)> {
        let mut parts = Parts::of(self.0, '{');
        std::iter::from_fn(move || Some((parts.next()?, parts.next()?)))
    }

    /// The text that all equal values share: numbers in one spelling, the members of objects sorted, no
    /// white space.
    pub fn canonical(self) -> String {
        let mut text = String::new();
        self.write(&mut text, true);
        text
    }

    /// The same, but with each number as it was written.
    pub fn spelled(self) -> String {
        let mut text = String::new();
        self.write(&mut text, false);
        text
    }

    /// The same, but without a copy if the value is already written this way.
    pub fn same(self) -> Cow<'a, str> {
        match self.kind() {
            Kind::Null | Kind::Boolean => Cow::Borrowed(self.0),
            Kind::Number | Kind::Integer if is_plain(self.0) => Cow::Borrowed(self.0),
            Kind::String => quoted(self),
            Kind::Number | Kind::Integer | Kind::Array | Kind::Object => {
                Cow::Owned(self.canonical())
            }
        }
    }

    fn write(self, to: &mut String, reads_numbers: bool) {
        match self.kind() {
            Kind::Null | Kind::Boolean => to.push_str(self.0),
            Kind::Number | Kind::Integer if !reads_numbers || is_plain(self.0) => {
                to.push_str(self.0);
            }
            Kind::Number | Kind::Integer => match Decimal::read(self.0) {
                Some(number) => {
                    // Writing to a string cannot fail.
                    let _ = write!(to, "{number}");
                }
                None => to.push_str(self.0),
            },
            Kind::String => to.push_str(&quoted(self)),
            Kind::Array => {
                to.push('[');
                for (at, element) in self.elements().enumerate() {
                    if at > 0 {
                        to.push(',');
                    }
                    element.write(to, reads_numbers);
                }
                to.push(']');
            }
            Kind::Object => {
                let member = |(key, value): (Json<'a>, Json<'a>)| (quoted(key), value);
                let mut members: Vec<_> = self.members().map(member).collect();
                members.sort_by(|(one, _), (two, _)| one.cmp(two));
                to.push('{');
                for (at, (key, value)) in members.into_iter().enumerate() {
                    if at > 0 {
                        to.push(',');
                    }
                    to.push_str(&key);
                    to.push(':');
                    value.write(to, reads_numbers);
                }
                to.push('}');
            }
        }
    }
}

/// True for a short whole number that is written as all equal numbers are.
fn is_plain(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number).as_bytes();
    let is_zero = digits.first() == Some(&b'0');
    (1..=18).contains(&digits.len())
        && digits.iter().all(u8::is_ascii_digit)
        && (!is_zero || number == "0")
}

/// A string with as few escapes as possible; a string that is no text keeps its own.
fn quoted(string: Json<'_>) -> Cow<'_, str> {
    match string.string() {
        Some(Cow::Owned(text)) => Cow::Owned(quote(&text)),
        Some(Cow::Borrowed(_)) | None => Cow::Borrowed(string.0),
    }
}

/// A text as JSON.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r')
}

/// The values between two brackets, one after the other.
struct Parts<'a> {
    rest: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str, bracket: char) -> Self {
        let inner = text.strip_prefix(bracket);
        let inner = inner.and_then(|it| it.strip_suffix(['}', ']']));
        let rest = inner.unwrap_or_default();
        Self { rest }
    }

    /// The bytes to the end of the value that `text` begins with: its own end, or the end of its brackets.
    fn length(text: &str) -> usize {
        let (mut depth, mut in_string) = (0_usize, false);
        let mut bytes = text.bytes().enumerate();
        while let Some((at, byte)) = bytes.next() {
            match byte {
                b'\\' if in_string => {
                    bytes.next();
                }
                b'"' => {
                    in_string = !in_string;
                    if !in_string && depth == 0 {
                        return at + 1;
                    }
                }
                _ if in_string => {}
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return at + 1;
                    }
                }
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
                _ => {}
            }
        }
        text.len()
    }

    fn next(&mut self) -> Option<Json<'a>> {
        let between = |char: char| is_space(char) || matches!(char, ',' | ':');
        let text = self.rest.trim_start_matches(between);
        if text.is_empty() {
            return None;
        }
        let (value, rest) = text.split_at(Self::length(text));
        self.rest = rest;
        Some(Json(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn canonical(text: &str) -> String {
        Json::of(text).canonical()
    }

    #[test]
    fn equal_values_have_one_text() {
        for (text, others) in [
            (
                r#"{"a":1,"b":[1,"x"]}"#,
                vec![r#" { "b" : [ 1.0 , "\u0078" ] , "a" : 1e0 } "#],
            ),
            (r#""a\"\n漢""#, vec![r#""a\u0022\u000a\u6f22""#]),
            ("[]", vec![" [ ] "]),
            ("{}", vec!["{\n}"]),
            (
                "[[],{},\"\",null,true]",
                vec!["[ [ ],{ } , \"\",null ,true ]"],
            ),
            (r#"{"":{"{":"}"}}"#, vec![r#"{ "" : {"\u007b":"}"}}"#]),
            (r#"["\ud800"]"#, vec![r#"[ "\ud800" ]"#]),
        ] {
            assert_eq!(canonical(text), text);
            for other in others {
                assert_eq!(canonical(other), text, "{other}");
            }
        }
        assert_ne!(canonical("9007199254740993"), canonical("9007199254740992"));
        assert_ne!(canonical("1"), canonical("\"1\""));
        for (text, same) in [
            ("0", "0"),
            ("-0", "0"),
            ("100", "100"),
            ("100.0", "100"),
            ("-70", "-70"),
            ("999999999999999999", "999999999999999999"),
            ("10000000000000000000000000", "1e25"),
            ("1e2", "100"),
        ] {
            assert_eq!(Json::of(text).same(), same);
            assert_eq!(canonical(text), same);
        }
    }

    #[test]
    fn a_string_that_is_no_text_is_seen() {
        assert_eq!(Json::of(r#""\ud800""#).string(), None);
        assert_eq!(
            Json::of(r#""\ud83d\ude00""#).string().as_deref(),
            Some("😀")
        );
        assert_eq!(Json::of("1").string(), None);
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~\\n\\t漢\u{1f600}\u{0}]{0,6}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[a-c\"\\\\]{0,3}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_is_read_as_the_parser_reads_it(value in value()) {
            for text in [value.to_string(), serde_json::to_string_pretty(&value).expect("it is JSON")] {
                let json = Json::of(&text);
                prop_assert_eq!(json.same(), json.canonical());
                let read: Value = serde_json::from_str(&json.canonical()).expect("it is JSON");
                prop_assert_eq!(&read, &value);
                if let Value::Object(map) = &value {
                    let keys: Vec<_> = json.members().map(|(key, _)| key.string().map(Cow::into_owned)).collect();
                    let expected: Vec<_> = map.keys().cloned().map(Some).collect();
                    prop_assert_eq!(keys, expected);
                }
                if let Value::Array(items) = &value {
                    prop_assert_eq!(json.elements().count(), items.len());
                }
            }
        }
    }
}
