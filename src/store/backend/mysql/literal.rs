//! Values as literals of SQL.
//!
//! Owns: the only place where a value becomes text of a statement. Its alphabet is closed: `NULL`, digits with
//! an optional sign, and `x'…'` with hexadecimal digits. None of these can end a literal or begin anything
//! else, in any mode of the server; so there is nothing to escape, and nothing to inject. Never: copies a text
//! as it is.

use std::fmt::Write;

use uuid::Uuid;

use crate::store::statement::{Arg, Column, Rows};

/// Writes a value. Rows are written as the JSON that `rows` makes of them.
pub fn write(to: &mut String, value: &Arg<'_>) {
    match value {
        Arg::Id(value) => optional(to, value.as_ref(), |to, id| bytes(to, id.as_bytes())),
        Arg::Text(value) => optional(to, value.as_ref(), |to, value| text(to, value)),
        Arg::Int(value) => optional(to, value.as_ref(), |to, value| int(to, *value)),
        Arg::Rows(value) => text(to, &rows(value)),
    }
}

fn optional<T>(to: &mut String, value: Option<&T>, write: impl FnOnce(&mut String, &T)) {
    match value {
        Some(value) => write(to, value),
        None => to.push_str("NULL"),
    }
}

fn int(to: &mut String, value: i64) {
    write!(to, "{value}").expect("a string takes all");
}

fn text(to: &mut String, value: &str) {
    to.push_str("_utf8mb4 ");
    bytes(to, value.as_bytes());
}

fn bytes(to: &mut String, value: &[u8]) {
    to.reserve(value.len() * 2 + 3);
    to.push_str("x'");
    hexadecimal(to, value);
    to.push('\'');
}

fn hexadecimal(to: &mut String, value: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in value {
        to.push(char::from(DIGITS[usize::from(byte >> 4)]));
        to.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

/// One row of a staged batch: its values in brackets.
pub fn row(to: &mut String, batch: &Rows<'_>, at: usize) {
    to.push('(');
    for (index, (_, column)) in batch.columns.iter().enumerate() {
        if index > 0 {
            to.push(',');
        }
        match column {
            Column::Ids(values) => write(to, &Arg::Id(values[at])),
            Column::Texts(values) => write(to, &Arg::Text(values[at])),
            Column::Ints(values) => write(to, &Arg::Int(values[at])),
        }
    }
    to.push(')');
}

/// A batch as JSON: an array of arrays, with the values in the order of its columns. A key is
/// written as its digits.
pub fn rows(batch: &Rows<'_>) -> String {
    let mut to = String::from("[");
    for at in 0..batch.len() {
        to.push_str(if at == 0 { "[" } else { ",[" });
        for (index, (_, column)) in batch.columns.iter().enumerate() {
            if index > 0 {
                to.push(',');
            }
            match column {
                Column::Ids(values) => json(&mut to, values[at].as_ref(), key),
                Column::Texts(values) => json(&mut to, values[at].as_ref(), string),
                Column::Ints(values) => {
                    json(&mut to, values[at].as_ref(), |to, value| int(to, *value))
                }
            }
        }
        to.push(']');
    }
    to.push(']');
    to
}

fn json<T>(to: &mut String, value: Option<&T>, write: impl FnOnce(&mut String, &T)) {
    match value {
        Some(value) => write(to, value),
        None => to.push_str("null"),
    }
}

fn key(to: &mut String, id: &Uuid) {
    to.push('"');
    hexadecimal(to, id.as_bytes());
    to.push('"');
}

fn string(to: &mut String, value: &&str) {
    to.push_str(&serde_json::to_string(value).expect("a text is JSON"));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether a text is one literal of the closed alphabet.
    fn is_closed(literal: &str) -> bool {
        let digits =
            |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let hex = |text: &str| {
            let inner = text
                .strip_prefix("x'")
                .and_then(|text| text.strip_suffix('\''));
            inner.is_some_and(|inner| {
                inner.len() % 2 == 0
                    && inner
                        .bytes()
                        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            })
        };
        literal == "NULL"
            || digits(literal.strip_prefix('-').unwrap_or(literal))
            || hex(literal.strip_prefix("_utf8mb4 ").unwrap_or(literal))
    }

    /// The bytes of `x'…'`.
    fn back(literal: &str) -> Vec<u8> {
        let (_, digits) = literal.split_once("x'").expect("a literal of bytes");
        let digits = digits.strip_suffix('\'').expect("its end").as_bytes();
        let pairs = digits
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).expect("digits"));
        pairs
            .map(|pair| u8::from_str_radix(pair, 16).expect("a byte"))
            .collect()
    }

    proptest! {
        #[test]
        fn a_text_is_a_literal_of_the_closed_alphabet_and_comes_back(value in any::<String>()) {
            let mut literal = String::new();
            write(&mut literal, &Arg::Text(Some(&value)));
            prop_assert!(is_closed(&literal), "{literal}");
            prop_assert_eq!(back(&literal), value.as_bytes());
        }

        #[test]
        fn so_are_numbers_and_keys(number in any::<i64>(), id in any::<u128>()) {
            let mut literal = String::new();
            write(&mut literal, &Arg::Int(Some(number)));
            prop_assert!(is_closed(&literal), "{literal}");
            prop_assert_eq!(literal.parse::<i64>(), Ok(number));
            let mut literal = String::new();
            write(&mut literal, &Arg::Id(Some(Uuid::from_u128(id))));
            prop_assert!(is_closed(&literal), "{literal}");
            prop_assert_eq!(back(&literal), id.to_be_bytes());
        }

        #[test]
        fn a_batch_is_one_json_text_that_holds_its_values(
            texts in proptest::collection::vec(any::<Option<String>>(), 0..6), number in any::<i64>(), id in any::<u128>(),
        ) {
            let batch = Rows::new()
                .optional_texts("text", texts.iter().map(Option::as_deref))
                .ints("n", texts.iter().map(|_| number))
                .ids("id", texts.iter().map(|_| Uuid::from_u128(id)));
            let mut literal = String::new();
            write(&mut literal, &Arg::Rows(&batch));
            prop_assert!(is_closed(&literal), "{literal}");
            let read: Vec<(Option<String>, i64, String)> =
                serde_json::from_slice(&back(&literal)).expect("JSON");
            let id = Uuid::from_u128(id).simple().to_string();
            let expected: Vec<_> = texts.iter().map(|text| (text.clone(), number, id.clone())).collect();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn a_staged_row_is_literals_between_commas(text in any::<Option<String>>(), number in any::<Option<i64>>()) {
            let batch = Rows::new().optional_texts("a", [text.as_deref()]).optional_ints("b", [number]);
            let mut written = String::new();
            row(&mut written, &batch, 0);
            let inner = written.strip_prefix('(').and_then(|it| it.strip_suffix(')')).expect("brackets");
            prop_assert_eq!(inner.split(',').count(), 2);
            prop_assert!(inner.split(',').all(is_closed), "{written}");
        }
    }
}
