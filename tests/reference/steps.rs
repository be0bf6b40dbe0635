//! The steps of every flow here: pure functions by name, once for the reference and, behind
//! a registry, for the engine.

use ductwork::step::StepError;
use ductwork::step::context::StepContext;
use ductwork::step::registry::Registry;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::json::Json;

type Function = fn(Json) -> Json;

/// A step that always fails.
pub const FAIL: &str = "Fail";

/// Steps that make arrays and objects, for an expand after them.
pub const MAKERS: &[&str] = &[
    "Pair",
    "Three",
    "UpToThree",
    "Empty",
    "Nothing",
    "Entries",
    "Nested",
];

/// Steps that make a key, for a divert after them.
pub const KEYERS: &[&str] = &["Word", "Route", "Even", "Size", "Odd"];

/// Steps of any kind.
pub const SHAPERS: &[&str] = &["Same", "Wrap", "Count", "Sum", "First", "Reverse"];

/// Every step but [`FAIL`].
pub const ALL: &[(&str, Function)] = &[
    ("Same", |input| input),
    ("Wrap", |input| {
        Json::Object(vec![(r#""got""#.into(), input)])
    }),
    ("Count", |input| match &input {
        Json::Scalar(_) => number(1),
        Json::Array(items) => number(items.len()),
        Json::Object(entries) => number(entries.len()),
    }),
    ("Sum", |input| number(sum(&input) as usize)),
    ("First", |input| match input {
        Json::Array(items) => items.into_iter().next().unwrap_or(Json::parse("null")),
        other => other,
    }),
    ("Reverse", |input| match input {
        Json::Array(items) => Json::Array(items.into_iter().rev().collect()),
        Json::Object(entries) => Json::Object(entries.into_iter().rev().collect()),
        other => other,
    }),
    ("Pair", |input| Json::Array(vec![input.clone(), input])),
    ("Three", |input| {
        let odd = Json::parse(r#"{"\u0000":1e400}"#);
        Json::Array(vec![odd, input, Json::parse(r#""\ud83d\ude00 é""#)])
    }),
    ("UpToThree", |input| {
        let length = size(&input) % 4;
        Json::Array((0..length).map(number).collect())
    }),
    ("Empty", |_| Json::Array(Vec::new())),
    ("Nothing", |_| Json::Object(Vec::new())),
    ("Entries", |input| {
        let one = Json::parse("9007199254740993");
        Json::Object(vec![
            (r#""b""#.into(), input),
            (r#""\u0061\u0000""#.into(), one.clone()),
            (r#""b""#.into(), one),
        ])
    }),
    ("Nested", |input| {
        let empty = Json::Array(Vec::new());
        let pair = Json::Array(vec![input.clone(), input]);
        Json::Array(vec![pair, empty])
    }),
    ("Word", |input| {
        let words = [r#""ok""#, r#""thin""#, r#""other""#];
        Json::parse(words[size(&input) % words.len()])
    }),
    ("Route", |input| {
        let words = [r#""ok""#, r#""th\u0069n""#, "true", "2", "null", "[]"];
        let word = Json::parse(words[size(&input) % words.len()]);
        let entries = vec![
            (r#""payload""#.into(), input),
            (r#""d\u0069vert""#.into(), word),
        ];
        Json::Object(entries)
    }),
    ("Even", |input| {
        Json::parse(if size(&input).is_multiple_of(2) {
            "true"
        } else {
            "false"
        })
    }),
    ("Size", |input| number(size(&input) % 4)),
    ("Odd", |input| {
        let odds = [
            "1e400",
            "null",
            "2.0",
            r#""\u0000""#,
            r#"{"divert":1,"divert":2}"#,
        ];
        Json::parse(odds[size(&input) % odds.len()])
    }),
    ("Range", |input| {
        let end = input.to_string().parse().unwrap_or(0);
        Json::Array((0..end).map(number).collect())
    }),
];

/// A step's output; none if it fails.
pub fn apply(step: &str, input: Json) -> Option<Json> {
    if step == FAIL {
        return None;
    }
    let (_, function) = ALL.iter().find(|(name, _)| *name == step).expect("a step");
    Some(function(input))
}

/// The same for the engine. If `flaky`, every third step fails at its first attempt.
pub fn registry(flaky: bool) -> Registry {
    let names = ALL.iter().map(|(name, _)| *name).chain([FAIL]);
    names.fold(Registry::new(), |registry, name| {
        registry.step(
            name,
            move |context: StepContext, input: Box<RawValue>| async move {
                if flaky && context.attempt() == 1 && of_three(context.idempotency_key()) {
                    return Err(StepError::new("flaky", "not at the first attempt"));
                }
                match apply(name, Json::parse(input.get())) {
                    Some(output) => RawValue::from_string(output.to_string())
                        .map_err(|error| StepError::caused_by("reference", error)),
                    None => Err(StepError::new("no", "always").no_retry()),
                }
            },
        )
    })
}

/// True for every third step.
fn of_three(key: Uuid) -> bool {
    key.as_u128().is_multiple_of(3)
}

fn number(value: usize) -> Json {
    Json::Scalar(value.to_string())
}

fn size(value: &Json) -> usize {
    value.to_string().len()
}

fn sum(value: &Json) -> u32 {
    match value {
        Json::Scalar(text) => u32::from(text.parse::<u16>().unwrap_or(0)),
        Json::Array(items) => items.iter().map(sum).sum(),
        Json::Object(entries) => entries.iter().map(|(_, value)| sum(value)).sum(),
    }
}
