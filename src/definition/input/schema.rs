//! A schema, in the form that is frozen into a definition.
//!
//! Owns: its data types and their JSON form, which says nothing that the author has not said. Never: judges a
//! schema (`read`) or a value (`judge`).

use std::fmt;

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::decimal::Decimal;
use super::format::Format;
use super::text::Json;

/// The keywords of a schema.
pub const KEYWORDS: [&str; 23] = [
    "type",
    "title",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "enum",
    "const",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "default",
    "examples",
];

/// A kind of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
    /// `"…"`
    String,
    /// Any number.
    Number,
    /// A number without a fraction: 1, and 1.0 as well.
    Integer,
    /// `true` or `false`
    Boolean,
    /// `null`
    Null,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Object,
        Self::Array,
        Self::String,
        Self::Number,
        Self::Integer,
        Self::Boolean,
        Self::Null,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
            Self::Null => "null",
        }
    }

    /// The same with its article.
    pub fn words(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "an array",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Integer => "an integer",
            Self::Boolean => "a boolean",
            Self::Null => "null",
        }
    }
}

/// A value in a schema, as the text that all equal values share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal(String);

impl Literal {
    /// The literal of a value.
    pub fn of(value: Json<'_>) -> Self {
        Self(value.canonical())
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The value.
    pub fn json(&self) -> Json<'_> {
        Json::of(&self.0)
    }
}

/// The properties of an object, in the author's order, which a form follows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Properties(pub Vec<(String, Schema)>);

impl Properties {
    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(|(name, _)| name.as_str())
    }
}

/// The rules for a value. Without any rule, it may be anything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Schema {
    /// The kinds of value that are allowed; empty for any.
    #[serde(rename = "type", skip_serializing_if = "Kinds::is_empty")]
    pub kinds: Kinds,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its meaning, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The members of an object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub properties: Option<Properties>,
    /// The members that must be present.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required: Vec<String>,
    /// Whether other members are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub additional_properties: Option<bool>,
    /// The elements of an array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<Box<Schema>>,
    /// The fewest elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_items: Option<u64>,
    /// The most elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u64>,
    /// Whether all elements must be different.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_items: Option<bool>,
    /// The allowed values.
    #[serde(rename = "enum", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<Literal>,
    /// The only allowed value.
    #[serde(
        rename = "const",
        deserialize_with = "there",
        skip_serializing_if = "Option::is_none"
    )]
    pub constant: Option<Literal>,
    /// The least number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum: Option<Decimal>,
    /// The greatest number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maximum: Option<Decimal>,
    /// The number must be greater than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_minimum: Option<Decimal>,
    /// The number must be less than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_maximum: Option<Decimal>,
    /// The number must be a whole multiple of this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multiple_of: Option<Decimal>,
    /// The fewest characters of a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_length: Option<u64>,
    /// The most characters of a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_length: Option<u64>,
    /// A regular expression that must match a part of the string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The format of a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// The value that a form begins with.
    #[serde(
        rename = "default",
        deserialize_with = "there",
        skip_serializing_if = "Option::is_none"
    )]
    pub initial: Option<Literal>,
    /// Possible values, as examples for people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<Literal>,
}

impl Schema {
    /// The schema as people read it.
    pub fn pretty(&self) -> String {
        serde_json::to_string_pretty(self).expect("a schema has only text keys and numbers")
    }

    /// Whether a value of this kind is allowed.
    pub fn admits(&self, kind: Kind) -> bool {
        let Kinds(kinds) = &self.kinds;
        let is_number = kind == Kind::Integer && kinds.contains(&Kind::Number);
        kinds.is_empty() || kinds.contains(&kind) || is_number
    }
}

/// Kinds: a single one is written as a word, several are written as a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kinds(pub Vec<Kind>);

impl Kinds {
    /// True if there is no rule about them.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Kinds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [kind] => kind.serialize(to),
            kinds => {
                let mut list = to.serialize_seq(Some(kinds.len()))?;
                for kind in kinds {
                    list.serialize_element(kind)?;
                }
                list.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Kinds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Kinds;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a kind of value, or a list of them")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Kinds, E> {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
                let unknown = || E::invalid_value(de::Unexpected::Str(name), &self);
                Ok(Kinds(vec![kind.ok_or_else(unknown)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Kinds, A::Error> {
                let mut kinds = Vec::new();
                while let Some(kind) = list.next_element()? {
                    kinds.push(kind);
                }
                Ok(Kinds(kinds))
            }
        }
        from.deserialize_any(Either)
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for (name, schema) in &self.0 {
            map.serialize_entry(name, schema)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Properties;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("a map of schemas")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties, A::Error> {
                let mut properties = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    properties.push(entry);
                }
                Ok(Properties(properties))
            }
        }
        from.deserialize_map(Ordered)
    }
}

/// Written as the text of a number, whatever its size.
impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        raw(self.to_string(), to)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        let number = Self::read(raw.get());
        number.ok_or_else(|| de::Error::custom("a number is expected"))
    }
}

impl Serialize for Literal {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        raw(self.0.clone(), to)
    }
}

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        Ok(Self::of(Json::of(raw.get())))
    }
}

/// A value that is written counts as present, even if it is null.
fn there<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Literal>, D::Error> {
    Literal::deserialize(from).map(Some)
}

fn raw<S: Serializer>(text: String, to: S) -> Result<S::Ok, S::Error> {
    let raw = RawValue::from_string(text).map_err(serde::ser::Error::custom)?;
    raw.serialize(to)
}
