//! The body of a request that asks for a deed.
//!
//! Owns: the check that the body is one JSON object, and that the objects in it are JSON objects too; that the error
//! of a value names its field. Never: knows a deed.
//!
//! By default, serde also reads a structure from an array, field by field: `[5]` would be the body `{"input":
//! 5}`, which the description does not allow.

use std::fmt;
use std::marker::PhantomData;

use axum::http::StatusCode;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error, IntoDeserializer as _, MapAccess,
    Visitor,
};

use crate::duration;
use crate::web::refusal::Refusal;

/// Reads the body; no body counts as an empty object.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let body = match body.trim_ascii() {
        b"" => b"{}",
        body => body,
    };
    let read: serde_json::Result<Object<T>> = serde_json::from_slice(body);
    read.map(|it| it.0).map_err(|error| {
        let detail = match body {
            b"{}" => format!("the body is empty, or an empty object: {error}"),
            _ => format!("the body is not as expected: {error}"),
        };
        Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
            .remedy("`/api/v1/openapi.json` says what it may be")
    })
}

/// Reads a field that may be null or missing, for `#[serde(deserialize_with)]`.
pub fn optional<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::<Object<T>>::deserialize(from)?.map(|it| it.0))
}

/// Reads a word, for `#[serde(deserialize_with)]`: by default, serde also reads it from `{"revive": null}`.
pub fn word<'de, T, D>(from: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let word = String::deserialize(from)?;
    T::deserialize(word.into_deserializer())
}

/// Reads the text of a duration that may be null or missing, for `#[serde(deserialize_with)]`.
pub fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    struct Words;

    impl Visitor<'_> for Words {
        type Value = Span;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(to, "a string; {}", duration::NOTATION)
        }

        fn visit_str<E>(self, text: &str) -> Result<Span, E> {
            Ok(Span(text.to_owned()))
        }
    }

    struct Span(String);

    impl<'de> Deserialize<'de> for Span {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_str(Words)
        }
    }

    Ok(Option::<Span>::deserialize(from)?.map(|it| it.0))
}

/// The fields of an object, with the name of the last one that was read.
struct Named<A>(A, String);

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Named<A> {
    type Error = A::Error;

    fn next_key_seed<K>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error>
    where
        K: DeserializeSeed<'de>,
    {
        let Some(name) = self.0.next_key::<String>()? else {
            return Ok(None);
        };
        self.1.clone_from(&name);
        seed.deserialize(name.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let Self(fields, name) = self;
        let named = |error| A::Error::custom(format!("`{name}`: {error}"));
        fields.next_value_seed(seed).map_err(named)
    }
}

/// A value that is read from an object alone.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(Named(fields, String::new())))
            }
        }

        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Outer {
        input: Box<RawValue>,
        #[serde(default, deserialize_with = "optional")]
        inner: Option<Inner>,
        #[serde(default, deserialize_with = "word")]
        colour: Colour,
        #[serde(default, deserialize_with = "span")]
        delay: Option<String>,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "snake_case")]
    enum Colour {
        #[default]
        Red,
        Blue,
    }

    #[derive(Debug, Deserialize)]
    struct Inner {
        number: u8,
    }

    fn outer(text: &str) -> Result<Outer, String> {
        read(text.as_bytes()).map_err(Refusal::into_detail)
    }

    #[test]
    fn an_object_is_read_and_its_values_are_kept_to_the_letter() {
        let read = outer(r#" {"input": [1.0, {"a" :2}], "inner": {"number": 3}} "#).unwrap();
        assert_eq!(read.input.get(), r#"[1.0, {"a" :2}]"#);
        assert_eq!(read.inner.unwrap().number, 3);
        for text in [r#"{"input": 1}"#, r#"{"input": 1, "inner": null}"#] {
            assert!(outer(text).unwrap().inner.is_none(), "{text}");
        }
    }

    #[test]
    fn a_word_is_read_from_a_string_alone() {
        let read = outer(r#"{"input": 1, "colour": "blue"}"#);
        assert_eq!(read.unwrap().colour, Colour::Blue);
        for text in [r#"{"blue": null}"#, "null", "1", r#""green""#] {
            let read = outer(&format!(r#"{{"input": 1, "colour": {text}}}"#));
            assert!(read.is_err(), "{text}: {read:?}");
        }
    }

    #[test]
    fn the_error_of_a_value_names_its_field() {
        for (field, error) in [
            (
                r#""delay": 5"#,
                "`delay`: invalid type: integer `5`, expected a string; a duration is a number of seconds, or a number \
                 with a unit: `250ms`, `10s`, `5m`, `2h`, `30d` at line 1 column 23",
            ),
            (
                r#""inner": {"number": "x"}"#,
                "`inner`: `number`: invalid type: string \"x\", expected u8 at line 1 column 36",
            ),
            (
                r#""colour": "green""#,
                "`colour`: unknown variant `green`, expected `red` or `blue` at line 1 column 31",
            ),
        ] {
            let said = outer(&format!(r#"{{"input": 1, {field}}}"#)).unwrap_err();
            assert_eq!(said, format!("the body is not as expected: {error}"));
        }
        for (delay, expected) in [("null", None), (r#""\u0035m""#, Some("5m"))] {
            let read = outer(&format!(r#"{{"input": 1, "delay": {delay}}}"#)).unwrap();
            assert_eq!(read.delay.as_deref(), expected);
        }
    }

    #[test]
    fn an_array_is_no_object_at_the_top_and_below() {
        for text in [
            "[1, null]",
            "1",
            "null",
            "\"{}\"",
            r#"{"input": 1, "inner": [3]}"#,
        ] {
            let said = outer(text).unwrap_err();
            assert!(said.contains("expected an object"), "{text}: {said}");
        }
        assert!(outer("").unwrap_err().contains("missing field `input`"));
    }
}
