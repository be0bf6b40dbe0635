//! The fields of a form that asks for a run's input, from the schema of its pipeline.
//!
//! Owns: which parts of an input have a field of their own, three objects deep; the initial texts of the fields;
//! and the input that they make. Pure. Never: judges the input (`definition::input` does). A field that is left
//! empty is left out of the input: a visitor who means an empty text writes the input as JSON.

use std::collections::BTreeMap;

use crate::definition::input::{Json, Kind, Literal, Schema, Violation, pointer_token, quote};
use crate::step::output::parse_json;

/// The number of nested objects whose members have fields of their own.
const DEPTH: usize = 3;

/// A field's name consists of this prefix and its JSON pointer.
const PREFIX: &str = "at:";

/// The texts in fields, by their pointers.
pub type Values = BTreeMap<String, String>;

/// A part of an input.
#[derive(Debug)]
pub struct Part<'s> {
    /// Its JSON pointer.
    pub pointer: String,
    /// Its name among its siblings.
    pub name: &'s str,
    /// Its rules.
    pub schema: &'s Schema,
    /// It must be present, and so must everything around it.
    pub is_required: bool,
    /// The kind of its field.
    pub shape: Shape<'s>,
}

/// The kind of field that asks for a part.
#[derive(Debug)]
pub enum Shape<'s> {
    /// Its members, each with its own field or fields.
    Group(Vec<Part<'s>>),
    /// A text.
    Text,
    /// A number.
    Number,
    /// Yes or no.
    Check,
    /// A choice of one of these, each as it is written; or of none.
    Select(Vec<&'s str>),
    /// As JSON.
    Json,
}

impl<'s> Part<'s> {
    /// The whole input; `None` if a form should ask for it as JSON.
    pub fn of(schema: &'s Schema) -> Option<Self> {
        let whole = Self::at(String::new(), "", schema, true, 0);
        (!matches!(whole.shape, Shape::Json)).then_some(whole)
    }

    fn at(
        pointer: String,
        name: &'s str,
        schema: &'s Schema,
        is_required: bool,
        depth: usize,
    ) -> Self {
        let kinds = schema.kinds.0.iter().filter(|kind| **kind != Kind::Null);
        let kinds: Vec<Kind> = kinds.copied().collect();
        let values: Vec<&str> = match &schema.constant {
            Some(constant) => vec![constant.text()],
            None => schema.values.iter().map(Literal::text).collect(),
        };
        let numbers = |kind: &Kind| matches!(kind, Kind::Number | Kind::Integer);
        let shape = match (kinds.as_slice(), &schema.properties) {
            _ if !values.is_empty() => Shape::Select(values),
            ([Kind::Object], Some(properties)) if depth < DEPTH && !properties.0.is_empty() => {
                let member = |(name, member): &'s (String, Schema)| {
                    let pointer = format!("{pointer}/{}", pointer_token(name));
                    let is_required = is_required && schema.required.contains(name);
                    Self::at(pointer, name, member, is_required, depth + 1)
                };
                Shape::Group(properties.0.iter().map(member).collect())
            }
            ([Kind::String], _) => Shape::Text,
            ([Kind::Boolean], _) if is_required => Shape::Check,
            // An optional value may be neither.
            ([Kind::Boolean], _) => Shape::Select(vec!["true", "false"]),
            ([_, ..], _) if kinds.iter().all(numbers) => Shape::Number,
            _ => Shape::Json,
        };
        Self {
            pointer,
            name,
            schema,
            is_required,
            shape,
        }
    }

    /// The name of its field.
    pub fn field(&self) -> String {
        format!("{PREFIX}{}", self.pointer)
    }

    /// Every part that has a field, in order.
    pub fn leaves(&self) -> Vec<&Self> {
        match &self.shape {
            Shape::Group(parts) => parts.iter().flat_map(Self::leaves).collect(),
            _ => vec![self],
        }
    }

    /// The pointer of the field with this name.
    pub fn pointer_of(name: &str) -> Option<&str> {
        name.strip_prefix(PREFIX)
    }

    /// The part whose field a violation belongs to: the part itself, or one around it.
    pub fn blamed(&self, violation: &Violation) -> Option<String> {
        let is_in = |leaf: &&Self| match violation.pointer.strip_prefix(&leaf.pointer) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        let leaves = self.leaves().into_iter();
        leaves.filter(is_in).map(|leaf| leaf.pointer.clone()).next()
    }

    /// The initial texts of the fields.
    pub fn defaults(&self) -> Values {
        let mut values = Values::new();
        self.fill_defaults(&mut values);
        values
    }

    fn fill_defaults(&self, values: &mut Values) {
        if let Shape::Group(parts) = &self.shape {
            for part in parts {
                part.fill_defaults(values);
            }
        }
        if let Some(initial) = &self.schema.initial {
            // A default that does not fit the fields is the author's choice, and remains available as JSON.
            let mut of_default = Values::new();
            if self.fill(initial.json(), &mut of_default).is_some() {
                values.extend(of_default);
            }
        }
    }

    /// The fields of an input; `None` if they cannot express all of it.
    pub fn values(&self, input: Json<'_>) -> Option<Values> {
        let mut values = Values::new();
        self.fill(input, &mut values)?;
        Some(values)
    }

    fn fill(&self, value: Json<'_>, values: &mut Values) -> Option<()> {
        let text = match &self.shape {
            Shape::Group(parts) => {
                if value.kind() != Kind::Object {
                    return None;
                }
                // The fields of a group make no object unless one of them has a value.
                if value.members().next().is_none() && !self.is_required {
                    return None;
                }
                for (key, member) in value.members() {
                    let key = key.string()?;
                    let part = parts.iter().find(|part| part.name == key)?;
                    part.fill(member, values)?;
                }
                return Some(());
            }
            Shape::Text => {
                let text = value.string()?;
                // A form sends every end of a line as two characters, and leaves out an empty text. A page cannot
                // hold a NUL.
                if text.is_empty() || text.contains(['\r', '\0']) {
                    return None;
                }
                text.into_owned()
            }
            Shape::Number if value.kind() == Kind::Number => value.text().to_owned(),
            Shape::Check if value.kind() == Kind::Boolean => value.text().to_owned(),
            Shape::Select(choices) => {
                let text = value.canonical();
                choices.contains(&text.as_str()).then_some(text)?
            }
            Shape::Json => value.text().to_owned(),
            Shape::Number | Shape::Check => return None,
        };
        values.insert(self.pointer.clone(), text);
        Some(())
    }

    /// The input that the fields make, or the faults of the fields, by their pointers.
    pub fn input(&self, values: &Values) -> Result<String, Vec<Violation>> {
        let mut wrong = Vec::new();
        let input = self.made(values, &mut wrong);
        match wrong.is_empty() {
            true => Ok(input.unwrap_or_else(|| "null".to_owned())),
            false => Err(wrong),
        }
    }

    /// The input that the fields make, without those that are wrong.
    pub fn rest(&self, values: &Values) -> String {
        let input = self.made(values, &mut Vec::new());
        input.unwrap_or_else(|| "null".to_owned())
    }

    /// True if a violation of the rest may exist only because a wrong field was left out.
    pub fn is_due_to(violation: &Violation, wrong: &[Violation]) -> bool {
        let is_around = |it: &Violation| match it.pointer.strip_prefix(&violation.pointer) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        wrong.iter().any(is_around)
    }

    fn made(&self, values: &Values, wrong: &mut Vec<Violation>) -> Option<String> {
        let given = values.get(&self.pointer).map(String::as_str);
        let mut refuse = |detail: String| {
            wrong.push(Violation {
                pointer: self.pointer.clone(),
                detail,
            });
            None
        };
        let trimmed = given.map(str::trim).filter(|text| !text.is_empty());
        match &self.shape {
            Shape::Group(parts) => {
                let mut members = Vec::new();
                for part in parts {
                    if let Some(value) = part.made(values, wrong) {
                        members.push(format!("{}:{value}", quote(part.name)));
                    }
                }
                let is_there = self.is_required || !members.is_empty();
                is_there.then(|| format!("{{{}}}", members.join(",")))
            }
            Shape::Text => {
                let text = given?.replace("\r\n", "\n");
                (!text.is_empty()).then(|| quote(&text))
            }
            // A box that is not ticked is not sent.
            Shape::Check => Some(trimmed.map_or("false", |_| "true").to_owned()),
            Shape::Number => {
                let text = trimmed?;
                match parse_json(text.as_bytes(), text.len()) {
                    Ok(raw) if Json::of(raw.get()).kind() == Kind::Number => Some(text.to_owned()),
                    _ => refuse("is not a number such as 12 or 0.5".to_owned()),
                }
            }
            Shape::Select(choices) => match trimmed? {
                text if choices.contains(&text) => Some(text.to_owned()),
                _ => refuse("is none of the choices".to_owned()),
            },
            Shape::Json => {
                let text = trimmed?;
                match parse_json(text.as_bytes(), text.len()) {
                    Ok(raw) => Some(raw.get().to_owned()),
                    Err(problem) => refuse(format!("is not one JSON value: {problem}")),
                }
            }
        }
    }

    /// Its label.
    pub fn label(&self) -> &'s str {
        let title = self.schema.title.as_deref();
        match title.filter(|title| !title.trim().is_empty()) {
            Some(title) => title,
            None if self.pointer.is_empty() => "Input",
            None => self.name,
        }
    }

    /// Its rules, in a few words.
    pub fn hint(&self) -> String {
        let schema = self.schema;
        let mut words = Vec::new();
        match &self.shape {
            Shape::Json => {
                let kinds: Vec<&str> = schema.kinds.0.iter().map(|kind| kind.words()).collect();
                words.push(match kinds.is_empty() {
                    true => "JSON".to_owned(),
                    false => format!("{}, as JSON", kinds.join(" or ")),
                });
            }
            Shape::Number if !schema.admits(Kind::Number) => {
                words.push("a whole number".to_owned())
            }
            _ => {}
        }
        words.extend(schema.format.map(|format| format.words().to_owned()));
        let bounds = [
            ("at least", &schema.minimum),
            ("at most", &schema.maximum),
            ("more than", &schema.exclusive_minimum),
            ("less than", &schema.exclusive_maximum),
            ("a multiple of", &schema.multiple_of),
        ];
        for (says, bound) in bounds {
            words.extend(bound.as_ref().map(|bound| format!("{says} {bound}")));
        }
        let counts = [
            ("at least", schema.min_length, "characters"),
            ("at most", schema.max_length, "characters"),
            ("at least", schema.min_items, "elements"),
            ("at most", schema.max_items, "elements"),
        ];
        for (says, count, of) in counts {
            words.extend(count.map(|count| format!("{says} {count} {of}")));
        }
        words.extend(schema.pattern.as_ref().map(|it| format!("matches {it}")));
        if let Some(example) = schema.examples.first() {
            words.push(format!("such as {}", choice(example.text())));
        }
        words.join(", ")
    }
}

/// A value as a choice shows it: a text without its quotes.
pub fn choice(text: &str) -> String {
    match Json::of(text).string() {
        Some(text) if !text.trim().is_empty() => text.into_owned(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::input::judge;

    fn schema() -> Schema {
        let schema = json!({
            "type": "object",
            "required": ["name", "paid", "to"],
            "properties": {
                "name": { "type": "string", "default": "Ada" },
                "count": { "type": ["integer", "null"] },
                "paid": { "type": "boolean" },
                "gift": { "type": "boolean" },
                "size": { "enum": ["small", "1", 1, null] },
                "tags": { "type": "array", "items": { "type": "string" } },
                "to": { "type": "object", "required": ["street"], "properties": {
                    "street": { "type": "string" },
                    "a/b": { "type": "object", "properties": { "x": { "type": "object", "properties": { "y": {} } } } },
                } },
                "note": { "type": "object", "required": ["text", "loud"], "properties": {
                    "text": { "type": "string" }, "loud": { "type": "boolean" },
                } },
            },
        });
        serde_json::from_value(schema).expect("it is a schema")
    }

    fn given(values: &[(&str, &str)]) -> Values {
        let owned = |(pointer, text): &(&str, &str)| ((*pointer).to_owned(), (*text).to_owned());
        values.iter().map(owned).collect()
    }

    #[test]
    fn fields_are_three_objects_deep_and_what_is_deeper_is_json() {
        let schema = schema();
        let whole = Part::of(&schema).expect("it has fields");
        let leaves = whole.leaves();
        let fields: Vec<String> = leaves.iter().map(|leaf| leaf.field()).collect();
        assert_eq!(
            fields,
            [
                "at:/name",
                "at:/count",
                "at:/paid",
                "at:/gift",
                "at:/size",
                "at:/tags",
                "at:/to/street",
                "at:/to/a~1b/x",
                "at:/note/text",
                "at:/note/loud",
            ]
        );
        let required: Vec<&str> = leaves
            .iter()
            .filter(|leaf| leaf.is_required)
            .map(|leaf| leaf.name)
            .collect();
        assert_eq!(required, ["name", "paid", "street"]);
        assert!(matches!(leaves[7].shape, Shape::Json));
        for json in [
            json!({}),
            json!({ "type": "array" }),
            json!({ "type": "object" }),
            json!({ "type": ["string", "object"] }),
        ] {
            let schema: Schema = serde_json::from_value(json).expect("it is a schema");
            assert!(Part::of(&schema).is_none());
        }
    }

    #[test]
    fn what_is_left_empty_is_left_out_and_the_rest_is_as_it_was_typed() {
        let schema = schema();
        let whole = Part::of(&schema).expect("it has fields");
        let none = whole.input(&Values::new()).expect("it is JSON");
        assert_eq!(none, r#"{"paid":false,"to":{}}"#);
        assert_eq!(judge(&schema, &none).len(), 2);
        let some = whole.input(&given(&[
            ("/name", " a \r\n\"b\" "),
            ("/count", " 9007199254740993 "),
            ("/paid", "true"),
            ("/gift", "false"),
            ("/size", "1"),
            ("/tags", "[\"x\", 1e400]"),
            ("/to/street", "S"),
            ("/to/a~1b/x", ""),
            ("/note/loud", "true"),
        ]));
        assert_eq!(
            some.expect("it is JSON"),
            r#"{"name":" a \n\"b\" ","count":9007199254740993,"paid":true,"gift":false,"size":1,"tags":["x", 1e400],"to":{"street":"S"},"note":{"loud":true}}"#
        );
        let wrong = whole.input(&given(&[
            ("/count", "1,5"),
            ("/size", "large"),
            ("/tags", "[1"),
            ("/gift", "on"),
        ]));
        let wrong: Vec<_> = wrong
            .expect_err("four are wrong")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert!(
            wrong[0].starts_with("`/count` is not a number"),
            "{wrong:?}"
        );
        assert!(
            wrong[3].starts_with("`/tags` is not one JSON value: it breaks off"),
            "{wrong:?}"
        );
        let values = given(&[("/count", "1,5"), ("/tags", "[1"), ("/note/text", "x")]);
        let rest = whole.rest(&values);
        assert_eq!(rest, r#"{"paid":false,"to":{},"note":{"text":"x"}}"#);
        let wrong = whole.input(&values).expect_err("two are wrong");
        let is_due = |pointer: &str| {
            let pointer = pointer.to_owned();
            let detail = String::new();
            Part::is_due_to(&Violation { pointer, detail }, &wrong)
        };
        assert!(is_due("/count") && is_due(""));
        assert!(!is_due("/name") && !is_due("/coun") && !is_due("/tags/3"));
        for text in ["+1", "0x1", "1 2", "\"1\"", ".5"] {
            assert!(whole.input(&given(&[("/count", text)])).is_err(), "{text}");
        }
    }

    #[test]
    fn an_input_fills_the_fields_that_make_it_again_or_none_of_them() {
        let schema = schema();
        let whole = Part::of(&schema).expect("it has fields");
        assert_eq!(whole.defaults(), given(&[("/name", "Ada")]));
        let input = r#"{"name":"x","count":1.50,"paid":true,"size":null,"tags":[1],"to":{"a/b":{"x":{"y":[]}}}}"#;
        let values = whole.values(Json::of(input)).expect("fields can say it");
        assert_eq!(whole.input(&values).expect("it is JSON"), input);
        for beyond in [
            "null",
            "[]",
            r#"{"other":1}"#,
            r#"{"name":""}"#,
            r#"{"name":"a\rb"}"#,
            r#"{"name":"a\u0000b"}"#,
            r#"{"name":"x","note":{}}"#,
            r#"{"name":1}"#,
            r#"{"count":null}"#,
            r#"{"paid":"true"}"#,
            r#"{"size":"large"}"#,
            r#"{"to":[]}"#,
        ] {
            assert_eq!(whole.values(Json::of(beyond)), None, "{beyond}");
        }
    }

    #[test]
    fn a_violation_is_told_at_the_field_around_it() {
        let schema = schema();
        let whole = Part::of(&schema).expect("it has fields");
        let at = |pointer: &str| {
            whole.blamed(&Violation {
                pointer: pointer.to_owned(),
                detail: String::new(),
            })
        };
        assert_eq!(at("/tags/3").as_deref(), Some("/tags"));
        assert_eq!(at("/to/a~1b/x/y").as_deref(), Some("/to/a~1b/x"));
        assert_eq!(at("/name").as_deref(), Some("/name"));
        assert_eq!(at("/to"), None);
        assert_eq!(at("/names"), None);
        let text: Schema =
            serde_json::from_value(json!({ "type": "string" })).expect("it is a schema");
        let whole = Part::of(&text).expect("it has a field");
        assert_eq!(whole.leaves()[0].field(), "at:");
        assert_eq!(whole.input(&given(&[("", "x")])).as_deref(), Ok("\"x\""));
        assert_eq!(whole.input(&Values::new()).as_deref(), Ok("null"));
    }
}
