//! JSON as it is written: scalars and keys keep their characters, so that a payload that was
//! only nearly preserved is noticed.

use std::fmt;

/// A JSON value without its white space.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Json {
    /// Strings with their quotes and escapes, numbers, words.
    Scalar(String),
    Array(Vec<Json>),
    /// Keys with their quotes; the same key may occur twice.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads text that is known to be JSON.
    pub fn parse(text: &str) -> Self {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value();
        reader.space();
        assert_eq!(reader.at, text.len(), "more than one value in {text}");
        value
    }

    /// The text of a string, of a number or of a boolean.
    pub fn scalar(&self) -> Option<String> {
        match self {
            Self::Scalar(text) if text == "null" => None,
            Self::Scalar(text) if text.starts_with('"') => unquoted(text),
            Self::Scalar(text) => Some(text.clone()),
            Self::Array(_) | Self::Object(_) => None,
        }
    }

    /// The values of a key.
    pub fn fields(&self, name: &str) -> Vec<&Json> {
        let Self::Object(entries) = self else {
            return Vec::new();
        };
        let named = |key: &str| unquoted(key).as_deref() == Some(name);
        let entries = entries.iter().filter(|(key, _)| named(key));
        entries.map(|(_, value)| value).collect()
    }
}

/// The text of a string literal; none if it contains half of a surrogate pair.
fn unquoted(text: &str) -> Option<String> {
    serde_json::from_str(text).ok()
}

impl fmt::Display for Json {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(text) => to.write_str(text),
            Self::Array(items) => {
                to.write_str("[")?;
                for (index, item) in items.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(to, "{comma}{item}")?;
                }
                to.write_str("]")
            }
            Self::Object(entries) => {
                to.write_str("{")?;
                for (index, (key, value)) in entries.iter().enumerate() {
                    let comma = if index > 0 { "," } else { "" };
                    write!(to, "{comma}{key}:{value}")?;
                }
                to.write_str("}")
            }
        }
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{self}")
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        let byte = self.text.as_bytes().get(self.at);
        *byte.unwrap_or_else(|| panic!("it breaks off: {}", self.text))
    }

    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_ascii_start().len();
    }

    fn expect(&mut self, byte: u8) {
        self.space();
        assert_eq!(self.peek(), byte, "at {} of {}", self.at, self.text);
        self.at += 1;
    }

    /// After an element: true when another follows.
    fn another(&mut self, end: u8) -> bool {
        self.space();
        let found = self.peek();
        assert!(
            found == b',' || found == end,
            "at {} of {}",
            self.at,
            self.text
        );
        self.at += 1;
        found == b','
    }

    fn value(&mut self) -> Json {
        self.space();
        match self.peek() {
            b'[' => {
                self.at += 1;
                self.space();
                if self.peek() == b']' {
                    self.at += 1;
                    return Json::Array(Vec::new());
                }
                let mut items = vec![self.value()];
                while self.another(b']') {
                    items.push(self.value());
                }
                Json::Array(items)
            }
            b'{' => {
                self.at += 1;
                self.space();
                if self.peek() == b'}' {
                    self.at += 1;
                    return Json::Object(Vec::new());
                }
                let mut entries = vec![self.entry()];
                while self.another(b'}') {
                    entries.push(self.entry());
                }
                Json::Object(entries)
            }
            b'"' => Json::Scalar(self.string()),
            _ => {
                let rest = &self.text[self.at..];
                let ends = |c: char| ",]}".contains(c) || c.is_ascii_whitespace();
                let word = &rest[..rest.find(ends).unwrap_or(rest.len())];
                self.at += word.len();
                Json::Scalar(word.to_owned())
            }
        }
    }

    fn entry(&mut self) -> (String, Json) {
        self.space();
        let key = self.string();
        self.expect(b':');
        (key, self.value())
    }

    fn string(&mut self) -> String {
        let start = self.at;
        self.expect(b'"');
        while self.peek() != b'"' {
            self.at += if self.peek() == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        self.text[start..self.at].to_owned()
    }
}

#[test]
fn a_value_is_read_and_written_to_the_letter() {
    for text in [
        "null",
        r#""""#,
        r#""a\"\\\u0000é""#,
        "[]",
        "{}",
        "[1e400,-0,[2]]",
        r#"{"b":{},"a":[true],"b":"]}"}"#,
    ] {
        assert_eq!(Json::parse(text).to_string(), text);
    }
    let spaced = " { \"a\" : [ 1 , 2 ] , \"b\" : [ ] } ";
    assert_eq!(Json::parse(spaced).to_string(), r#"{"a":[1,2],"b":[]}"#);
}
