//! `input:` as its author has written it, and everything that is wrong with it.
//!
//! Owns: the keywords' own types, contradictions, and the bounds. Never: reads a file: the tree may come from
//! YAML, with places, or from Rust. Tested in `tests.rs`, and in `yaml` with the place of every mistake.

use std::collections::HashMap;

use super::decimal::Decimal;
use super::format::Format;
use super::judge::{judge, pointer_token};
use super::pattern::Pattern;
use super::schema::{KEYWORDS, Kind, Kinds, Literal, Properties, Schema};
use super::text::{Json, quote};
use crate::definition::check::{Finding, shown, unknown_key};
use crate::definition::tree::{Tree, Value};
use crate::problem::{meant, nearest};
use crate::yaml::Mark;

/// The deepest nesting of schemas.
const DEPTH_MAX: usize = 16;

/// The most schemas in one input.
const SCHEMAS_MAX: usize = 500;

/// The most bytes of a schema as JSON: a process keeps it, and a page shows it.
const BYTES_MAX: usize = 64 << 10;

/// Words of other languages for kinds of values.
const SYNONYMS: [(&str, Kind); 14] = [
    ("str", Kind::String),
    ("text", Kind::String),
    ("int", Kind::Integer),
    ("long", Kind::Integer),
    ("float", Kind::Number),
    ("double", Kind::Number),
    ("decimal", Kind::Number),
    ("bool", Kind::Boolean),
    ("dict", Kind::Object),
    ("map", Kind::Object),
    ("hash", Kind::Object),
    ("list", Kind::Array),
    ("nil", Kind::Null),
    ("none", Kind::Null),
];

/// The schema, as far as it can be understood, and everything that is wrong with it.
pub fn read(tree: &Tree) -> (Schema, Vec<Finding>) {
    let mut reading = Reading::default();
    let schema = reading.schema(tree, "input", 1).unwrap_or_default();
    if reading.findings.is_empty() && schema.pretty().len() > BYTES_MAX {
        let message = format!("`input` is longer than {} KiB", BYTES_MAX >> 10);
        let help =
            "describe the parts that people get wrong, and let the first step look at the rest";
        reading.report(tree.place, message, help);
    }
    (schema, reading.findings)
}

#[derive(Default)]
struct Reading {
    findings: Vec<Finding>,
    schemas: usize,
}

/// A keyword of the schema that is being read.
struct Field<'t> {
    key: &'t str,
    value: &'t Tree,
    /// The path of the schema.
    path: &'t str,
}

impl Field<'_> {
    fn words(&self) -> String {
        format!("`{}` in {}", self.key, shown(self.path))
    }
}

impl Reading {
    fn report(&mut self, place: Mark, message: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Finding {
            place: Some(place),
            message: message.into(),
            help: Some(help.into()),
        });
    }

    /// Reports a keyword whose value has the wrong type.
    fn mistyped(&mut self, field: &Field<'_>, takes: &str, help: impl Into<String>) {
        let is = match &field.value.value {
            Value::Text(text) | Value::Number(text) | Value::Bool(text) => shown(text),
            _ => field.value.what().to_owned(),
        };
        let message = format!("{} must be {takes}, not {is}", field.words());
        self.report(field.value.place, message, help);
    }

    /// `path` is the place of this schema, from `input` on; `depth` counts it and the schemas around it.
    fn schema(&mut self, tree: &Tree, path: &str, depth: usize) -> Option<Schema> {
        self.schemas += 1;
        if depth > DEPTH_MAX || self.schemas > SCHEMAS_MAX {
            let (message, again) = match depth > DEPTH_MAX {
                true => (
                    format!("{} is nested more than {DEPTH_MAX} deep", shown(path)),
                    false,
                ),
                false => (
                    format!("`input` has more than {SCHEMAS_MAX} schemas"),
                    self.schemas > SCHEMAS_MAX + 1,
                ),
            };
            if !again {
                let help = "describe the parts that people get wrong, and leave the others open";
                self.report(tree.place, message, help);
            }
            return None;
        }
        let Value::Map(entries) = &tree.value else {
            let message = format!("{} must be a map, not {}", shown(path), tree.what());
            self.report(tree.place, message, "write a schema: `{ type: string }`");
            return None;
        };
        let before = self.findings.len();
        let mut schema = Schema::default();
        let mut places = HashMap::new();
        for (key, value) in entries {
            let known = key.scalar().filter(|key| KEYWORDS.contains(key));
            let Some(key) = known else {
                let (message, help) = unknown_key(key, &KEYWORDS, &shown(path));
                self.report(key.place, message, help);
                continue;
            };
            places.insert(key, value.place);
            self.keyword(&mut schema, &Field { key, value, path }, depth);
        }
        if self.findings.len() == before {
            self.contradictions(&schema, path, &places);
        }
        if self.findings.len() == before {
            self.literals(&schema, path, entries);
        }
        Some(schema)
    }

    fn keyword(&mut self, schema: &mut Schema, field: &Field<'_>, depth: usize) {
        match field.key {
            "type" => schema.kinds = self.kinds(field),
            "title" => schema.title = self.text(field),
            "description" => schema.description = self.text(field),
            "properties" => schema.properties = self.properties(field, depth),
            "required" => schema.required = self.required(field),
            "additionalProperties" => schema.additional_properties = self.flag(field),
            "items" => {
                let path = format!("{}/items", field.path);
                let items = self.schema(field.value, &path, depth + 1);
                schema.items = items.map(Box::new);
            }
            "minItems" => schema.min_items = self.count(field),
            "maxItems" => schema.max_items = self.count(field),
            "uniqueItems" => schema.unique_items = self.flag(field),
            "enum" => schema.values = self.list(field),
            "const" => schema.constant = self.literal(field.value, field),
            "minimum" => schema.minimum = self.number(field),
            "maximum" => schema.maximum = self.number(field),
            "exclusiveMinimum" => schema.exclusive_minimum = self.number(field),
            "exclusiveMaximum" => schema.exclusive_maximum = self.number(field),
            "multipleOf" => schema.multiple_of = self.divisor(field),
            "minLength" => schema.min_length = self.count(field),
            "maxLength" => schema.max_length = self.count(field),
            "pattern" => schema.pattern = self.pattern(field),
            "format" => schema.format = self.format(field),
            "default" => schema.initial = self.literal(field.value, field),
            _ => schema.examples = self.list(field),
        }
    }

    fn kinds(&mut self, field: &Field<'_>) -> Kinds {
        let named = match &field.value.value {
            Value::List(kinds) if !kinds.is_empty() => kinds.as_slice(),
            _ => std::slice::from_ref(field.value),
        };
        let names = Kind::ALL.map(Kind::name);
        let mut kinds = Vec::new();
        for tree in named {
            // YAML reads the word `null` as nothing.
            let name = match &tree.value {
                Value::Null => "null",
                Value::Text(name) => name,
                _ => "",
            };
            match Kind::ALL.into_iter().find(|kind| kind.name() == name) {
                Some(kind) if kinds.contains(&kind) => {
                    let message = format!("{} has `{name}` twice", field.words());
                    self.report(tree.place, message, "remove one of the two");
                }
                Some(kind) => kinds.push(kind),
                None => {
                    let synonym = SYNONYMS.iter().find(|(word, _)| *word == name);
                    let near = synonym.map(|(_, kind)| kind.name());
                    let help = match near.or_else(|| nearest(name, names)) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("the types are {}", names.join(", ")),
                    };
                    let value = tree;
                    self.mistyped(
                        &Field { value, ..*field },
                        "a type, or a list of them",
                        help,
                    );
                }
            }
        }
        Kinds(kinds)
    }

    fn text(&mut self, field: &Field<'_>) -> Option<String> {
        match &field.value.value {
            Value::Text(text) => Some(text.clone()),
            _ => {
                self.mistyped(field, "a text", "quote it");
                None
            }
        }
    }

    fn flag(&mut self, field: &Field<'_>) -> Option<bool> {
        match &field.value.value {
            Value::Bool(text) => Some(text.eq_ignore_ascii_case("true")),
            _ => {
                self.mistyped(field, "a boolean", "write `true` or `false`");
                None
            }
        }
    }

    fn number(&mut self, field: &Field<'_>) -> Option<Decimal> {
        let number = match &field.value.value {
            Value::Number(text) => Decimal::read(text),
            _ => None,
        };
        if number.is_none() {
            self.mistyped(field, "a number", "write a number, without quotes");
        }
        number
    }

    fn count(&mut self, field: &Field<'_>) -> Option<u64> {
        let number = match &field.value.value {
            Value::Number(text) => Decimal::read(text).and_then(|it| it.as_count()),
            _ => None,
        };
        if number.is_none() {
            self.mistyped(field, "a whole number", "write 0, 1, …, without quotes");
        }
        number
    }

    fn divisor(&mut self, field: &Field<'_>) -> Option<Decimal> {
        let number = self.number(field)?;
        if !number.is_divisor() {
            let takes = "a number above 0 of at most 18 digits";
            self.mistyped(field, takes, "write the step, such as `0.01`");
            return None;
        }
        Some(number)
    }

    fn pattern(&mut self, field: &Field<'_>) -> Option<String> {
        let text = self.text(field)?;
        if let Err(reason) = Pattern::of(&text) {
            let message = format!("{} cannot be used: {reason}", field.words());
            let help = "write a regular expression without lookaround, backreferences and `\\p`, such as `^[A-Z]{2}[0-9]+$`";
            self.report(field.value.place, message, help);
        }
        Some(text)
    }

    fn format(&mut self, field: &Field<'_>) -> Option<Format> {
        let name = field.value.scalar().unwrap_or_default();
        let format = Format::ALL.into_iter().find(|it| it.name() == name);
        if format.is_none() {
            let names = Format::ALL.map(Format::name);
            let help = match meant(name, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "the formats that are checked are {}; a `pattern` can say more",
                    names.join(", ")
                ),
            };
            self.mistyped(field, "a format", help);
        }
        format
    }

    fn properties(&mut self, field: &Field<'_>, depth: usize) -> Option<Properties> {
        let Value::Map(entries) = &field.value.value else {
            self.mistyped(
                field,
                "a map of names",
                "write `{ name: { type: string } }`",
            );
            return None;
        };
        let mut properties = Vec::new();
        for (key, value) in entries {
            let Some(name) = key.scalar() else {
                let message = format!("{} in {} is no name", key.what(), field.words());
                self.report(key.place, message, "quote it");
                continue;
            };
            let path = format!("{}/properties/{}", field.path, pointer_token(name));
            if let Some(schema) = self.schema(value, &path, depth + 1) {
                properties.push((name.to_owned(), schema));
            }
        }
        Some(Properties(properties))
    }

    fn required(&mut self, field: &Field<'_>) -> Vec<String> {
        let Value::List(items) = &field.value.value else {
            self.mistyped(field, "a list of names", "write `[name, other]`");
            return Vec::new();
        };
        let mut names: Vec<String> = Vec::new();
        for item in items {
            match item.scalar() {
                Some(name) if names.iter().any(|it| it == name) => {
                    let message = format!("{} has {} twice", field.words(), shown(name));
                    self.report(item.place, message, "remove one of the two");
                }
                Some(name) => names.push(name.to_owned()),
                None => {
                    let message = format!("{} in {} is no name", item.what(), field.words());
                    self.report(item.place, message, "quote it");
                }
            }
        }
        names
    }

    fn list(&mut self, field: &Field<'_>) -> Vec<Literal> {
        let items = match &field.value.value {
            Value::List(items) if !items.is_empty() => items,
            _ => {
                self.mistyped(
                    field,
                    "a list of values",
                    "write at least one: `[small, large]`",
                );
                return Vec::new();
            }
        };
        let mut values: Vec<Literal> = Vec::new();
        for item in items {
            let Some(value) = self.literal(item, field) else {
                continue;
            };
            if values.contains(&value) {
                let message = format!("{} has {} twice", field.words(), shown(value.text()));
                self.report(item.place, message, "remove one of the two");
            }
            values.push(value);
        }
        values
    }

    fn literal(&mut self, tree: &Tree, field: &Field<'_>) -> Option<Literal> {
        let mut text = String::new();
        match write(tree, &mut text) {
            Ok(()) => Some(Literal::of(Json::of(&text))),
            Err((place, what)) => {
                let message = format!("{} has {what}, which JSON does not have", field.words());
                self.report(place, message, "quote it, or write another value");
                None
            }
        }
    }

    /// Keywords that admit no value, or that never have an effect.
    fn contradictions(&mut self, schema: &Schema, path: &str, places: &HashMap<&str, Mark>) {
        let at = |key: &str| places.get(key).copied();
        let Kinds(kinds) = &schema.kinds;
        for keyword in KEYWORDS {
            let (Some(place), Some(of)) = (at(keyword), judged(keyword)) else {
                continue;
            };
            let admitted = |kind: &Kind| of.contains(kind);
            if !kinds.is_empty() && !kinds.iter().any(admitted) {
                let words: Vec<&str> = kinds.iter().map(|kind| kind.words()).collect();
                let message = format!(
                    "`{keyword}` in {} has no effect on {}",
                    shown(path),
                    words.join(" or ")
                );
                let help = format!("remove it, or write `type: {}`", of[0].name());
                self.report(place, message, help);
            }
        }
        let count = |count: Option<u64>| count.and_then(|it| Decimal::read(&it.to_string()));
        let (fewest, most) = (count(schema.min_length), count(schema.max_length));
        let (few, many) = (count(schema.min_items), count(schema.max_items));
        let (least, above) = (schema.minimum.as_ref(), schema.exclusive_minimum.as_ref());
        let (greatest, below) = (schema.maximum.as_ref(), schema.exclusive_maximum.as_ref());
        let bounds = [
            (("minimum", least), ("maximum", greatest)),
            (("minimum", least), ("exclusiveMaximum", below)),
            (("exclusiveMinimum", above), ("maximum", greatest)),
            (("exclusiveMinimum", above), ("exclusiveMaximum", below)),
            (("minLength", fewest.as_ref()), ("maxLength", most.as_ref())),
            (("minItems", few.as_ref()), ("maxItems", many.as_ref())),
        ];
        for ((low, least), (high, most)) in bounds {
            let (Some(least), Some(most), Some(place)) = (least, most, at(low)) else {
                continue;
            };
            let is_exclusive = [low, high].iter().any(|it| it.starts_with("exclusive"));
            if least > most || (least == most && is_exclusive) {
                let message = format!(
                    "`{low}` {least} and `{high}` {most} in {} leave no value",
                    shown(path)
                );
                self.report(place, message, format!("raise `{high}`, or lower `{low}`"));
            }
        }
        let names = || schema.properties.iter().flat_map(Properties::names);
        for name in &schema.required {
            if let Some(place) = at("required")
                && !names().any(|known| known == name)
            {
                let message = format!(
                    "`required` in {} has {}, which is not in its `properties`",
                    shown(path),
                    shown(name)
                );
                let help = match nearest(name, names()) {
                    Some(near) => format!("did you mean {}?", shown(near)),
                    None => format!("add it there: {}", shown(&format!("{name}: {{}}"))),
                };
                self.report(place, message, help);
            }
        }
    }

    /// Values in a schema that the schema itself refuses.
    fn literals(&mut self, schema: &Schema, path: &str, entries: &[(Tree, Tree)]) {
        let bare = Schema {
            values: Vec::new(),
            constant: None,
            ..schema.clone()
        };
        let listed = Schema {
            values: schema.values.clone(),
            ..bare.clone()
        };
        for (key, value) in entries {
            let Some(key) = key.scalar() else { continue };
            let (schema, values) = match key {
                "enum" => (&bare, schema.values.iter().collect()),
                "const" => (&listed, schema.constant.iter().collect()),
                "default" => (schema, schema.initial.iter().collect()),
                "examples" => (schema, schema.examples.iter().collect()),
                _ => continue,
            };
            let values: Vec<&Literal> = values;
            for (at, literal) in values.into_iter().enumerate() {
                let place = match &value.value {
                    Value::List(items) if matches!(key, "enum" | "examples") => {
                        items.get(at).map_or(value.place, |it| it.place)
                    }
                    _ => value.place,
                };
                if let Some(violation) = judge(schema, literal.text()).first() {
                    let what = match violation.pointer.as_str() {
                        "" => shown(literal.text()),
                        pointer => format!("{} at {}", shown(literal.text()), shown(pointer)),
                    };
                    let message = format!(
                        "`{key}` in {} contradicts the rest of the schema: {what} {}",
                        shown(path),
                        violation.detail
                    );
                    self.report(place, message, "change the value, or the rule");
                }
            }
        }
    }
}

/// The kinds of values that a keyword applies to; `None` for all.
fn judged(keyword: &str) -> Option<&'static [Kind]> {
    match keyword {
        "properties" | "required" | "additionalProperties" => Some(&[Kind::Object]),
        "items" | "minItems" | "maxItems" | "uniqueItems" => Some(&[Kind::Array]),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
            Some(&[Kind::Number, Kind::Integer])
        }
        "minLength" | "maxLength" | "pattern" | "format" => Some(&[Kind::String]),
        _ => None,
    }
}

/// A tree as JSON; the error is the place of a part that JSON cannot express, and a description of the part.
fn write(tree: &Tree, to: &mut String) -> Result<(), (Mark, String)> {
    match &tree.value {
        Value::Null => to.push_str("null"),
        Value::Bool(text) => to.push_str(&text.to_ascii_lowercase()),
        Value::Text(text) => to.push_str(&quote(text)),
        Value::Number(text) => match Decimal::read(text) {
            Some(number) => to.push_str(&number.to_string()),
            None => return Err((tree.place, shown(text))),
        },
        Value::List(items) => {
            to.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    to.push(',');
                }
                write(item, to)?;
            }
            to.push(']');
        }
        Value::Map(entries) => {
            to.push('{');
            for (at, (key, value)) in entries.iter().enumerate() {
                let Some(name) = key.scalar() else {
                    return Err((key.place, format!("{} as a name", key.what())));
                };
                if at > 0 {
                    to.push(',');
                }
                to.push_str(&quote(name));
                to.push(':');
                write(value, to)?;
            }
            to.push('}');
        }
    }
    Ok(())
}
