//! Values and schemas, and the sentences about them.

use std::fmt::Write as _;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::definition::{Definition, Pipeline, yaml};

/// The schema of a pipeline that is written in YAML with this `input`.
fn schema(input: &str) -> Schema {
    let text = format!(
        "pipeline: P\nsteps: {{ A: {{ command: [a] }} }}\nflow: [{{ start: A }}]\ninput: {input}\n"
    );
    match yaml::parse(&text, Path::new("p.yml")) {
        Ok(definition) => *definition.input.expect("it has one"),
        Err(problems) => panic!("{text}\n{problems}"),
    }
}

fn told(input: &str, value: &str) -> Vec<String> {
    let violations = judge(&schema(input), value);
    violations.iter().map(ToString::to_string).collect()
}

#[test]
fn every_rule_lets_through_what_is_so_and_says_what_is_not() {
    type Rows = Vec<(
        &'static str,
        Vec<&'static str>,
        Vec<(&'static str, &'static str)>,
    )>;
    let table: Rows = vec![
        ("{}", vec!["null", "1", "[{}]"], vec![]),
        (
            "{ type: string }",
            vec![r#""""#, r#""\ud800""#],
            vec![
                ("1", "the input is the number `1`; a string is expected"),
                ("null", "is null"),
            ],
        ),
        (
            "{ type: [object, null] }",
            vec!["{}", "null"],
            vec![
                ("[]", "is an array; an object or null is expected"),
                ("true", "is a boolean"),
            ],
        ),
        (
            "{ type: integer }",
            vec!["1", "-0", "1.0", "1e3", "9007199254740993", "1e400"],
            vec![
                ("1.5", "is the number `1.5`; an integer is expected"),
                ("1e-400", "expected"),
                ("\"1\"", "is a string"),
            ],
        ),
        (
            "{ type: number }",
            vec!["1", "1.5", "-1e-400"],
            vec![("\"1\"", "a number is expected")],
        ),
        (
            "{ type: boolean }",
            vec!["true", "false"],
            vec![("0", "a boolean"), ("\"true\"", "a boolean")],
        ),
        (
            "{ minimum: 9007199254740993, maximum: 1e20 }",
            vec!["9007199254740993", "1e20", "\"x\""],
            vec![
                ("9007199254740992", "is less than 9007199254740993"),
                (
                    "100000000000000000001",
                    "is greater than 100000000000000000000",
                ),
            ],
        ),
        (
            "{ exclusiveMinimum: 0, exclusiveMaximum: 1 }",
            vec!["0.5", "1e-400"],
            vec![
                ("0", "is not greater than 0"),
                ("1.0", "is not less than 1"),
            ],
        ),
        (
            "{ multipleOf: 0.01 }",
            vec!["0.29", "19.99", "1e400", "0"],
            vec![("0.295", "is not a multiple of 0.01")],
        ),
        (
            "{ minLength: 2, maxLength: 3 }",
            vec![r#""ab""#, r#""漢😀x""#, r#""\u6f22\ud83d\ude00""#, "1"],
            vec![
                (r#""a""#, "has 1 character; the minimum is 2"),
                (r#""abcd""#, "has 4 characters; the maximum is 3"),
                (
                    r#""\ud800x""#,
                    "is not a text: it has one half of a surrogate pair",
                ),
            ],
        ),
        (
            "{ pattern: '^[A-Z]+-\\d+$' }",
            vec![r#""AB-1""#, r#""A\u0042-1""#],
            vec![(r#""ab-1""#, "does not match the pattern `^[A-Z]+-\\d+$`")],
        ),
        (
            "{ format: date }",
            vec![r#""2026-01-31""#],
            vec![(r#""31.1.2026""#, "is not a date such as 2026-01-31")],
        ),
        (
            "{ enum: [small, 1, null, { a: [1] }] }",
            vec![r#""small""#, "1.0", "null", r#"{ "a" : [ 10e-1 ] }"#],
            vec![
                (
                    r#""large""#,
                    "is none of `\"small\"`, `1`, `null`, `{\"a\":[1]}`",
                ),
                (r#""1""#, "is none of"),
            ],
        ),
        (
            "{ const: 9007199254740993 }",
            vec!["9007199254740993"],
            vec![("9007199254740992", "must be `9007199254740993`")],
        ),
        (
            "{ items: { type: string }, minItems: 1, maxItems: 2 }",
            vec![r#"["a"]"#, "{}"],
            vec![
                ("[]", "has 0 elements; the minimum is 1"),
                (r#"["a","b","c"]"#, "has 3 elements; the maximum is 2"),
                (r#"["a",1]"#, "`/1` is the number `1`; a string"),
            ],
        ),
        (
            "{ uniqueItems: true }",
            vec!["[]", r#"[1,"1",[1],{"a":1}]"#],
            vec![
                ("[1, 1.0]", "`/1` repeats an earlier element"),
                (
                    r#"[{"a":1,"b":2},0,{"b":2,"a":1}]"#,
                    "`/2` repeats an earlier element",
                ),
            ],
        ),
        ("{ uniqueItems: false }", vec!["[1,1]"], vec![]),
        (
            "{ properties: { amount: { type: number }, 'a/b~c': { const: 1 } }, required: [amount], additionalProperties: false }",
            vec![r#"{"amount":1}"#, r#"{"\u0061mount":1,"a/b~c":1}"#, "1"],
            vec![
                ("{}", "`/amount` is missing"),
                (
                    r#"{"amount":"1"}"#,
                    "`/amount` is a string; a number is expected",
                ),
                (
                    r#"{"amount":1,"amuont":2}"#,
                    "`/amuont` is not expected; did you mean `amount`?",
                ),
                (r#"{"amount":1,"x":2}"#, "`/x` is not expected"),
                (r#"{"amount":1,"a/b~c":2}"#, "`/a~1b~0c` must be `1`"),
                (r#"{"amount":1,"amount":"x"}"#, "`/amount` is a string"),
                (r#"{"amount":1,"\u202e":0}"#, "`/\\u{202e}` is not expected"),
            ],
        ),
        (
            "{ properties: { a: {} }, additionalProperties: true }",
            vec![r#"{"b":1}"#],
            vec![],
        ),
        (
            "{ properties: { a: { items: { properties: { b: { minimum: 1 } } } } } }",
            vec![r#"{"a":[{"b":1},{}]}"#, r#"{"a":{"b":0}}"#],
            vec![(r#"{"a":[{"b":1},{"b":0}]}"#, "`/a/1/b` is less than 1")],
        ),
    ];
    for (input, good, bad) in table {
        for value in good {
            assert_eq!(told(input, value), [""; 0], "{input} {value}");
        }
        for (value, says) in bad {
            let told = told(input, value);
            assert_eq!(told.len(), 1, "{input} {value}: {told:?}");
            assert!(told[0].contains(says), "{input} {value}: {told:?}");
        }
    }
}

#[test]
fn all_violations_are_told_up_to_a_number_and_in_order() {
    let rules = "{ required: [a, b, c], properties: { a: {}, b: { type: string, minLength: 2, pattern: x }, c: {} } }";
    let found = told(rules, r#"{"b":"a"}"#);
    let expected = [
        "`/b` has 1 character; the minimum is 2",
        "`/b` does not match the pattern `x`",
        "`/a` is missing",
        "`/c` is missing",
    ];
    assert_eq!(found, expected);
    let many = format!("[{}]", vec!["0"; 1_000].join(","));
    assert_eq!(
        told("{ items: { type: string } }", &many).len(),
        VIOLATIONS_MAX
    );
}

#[test]
fn a_deep_and_a_wide_value_are_judged_in_a_moment() {
    let began = std::time::Instant::now();
    let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
    assert_eq!(
        told("{ uniqueItems: true, items: { items: {} } }", &deep),
        [""; 0]
    );
    let mut wide = String::from("{");
    for at in 0..200_000 {
        let _ = write!(wide, "\"k{at}\":[{at}],");
    }
    wide.push_str("\"last\":1}");
    let names: Vec<String> = (0..400)
        .map(|at| format!("p{at}: {{ type: string }}"))
        .collect();
    let rules = format!(
        "{{ properties: {{ {}, last: {{ type: string }} }} }}",
        names.join(", ")
    );
    assert_eq!(
        told(&rules, &wide),
        ["`/last` is the number `1`; a string is expected"]
    );
    let digits = format!("[{}]", "9".repeat(2_000_000));
    assert_eq!(
        told("{ items: { multipleOf: 7, minimum: 1 } }", &digits).len(),
        1
    );
    let long_key = format!("{{\"{}\":1}}", "k".repeat(1_000_000));
    let found = told(
        "{ properties: { a: {} }, additionalProperties: false }",
        &long_key,
    );
    assert!(found[0].len() < 200, "{}", found[0].len());
    assert!(
        began.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn a_schema_is_stored_as_it_was_written_and_read_back() {
    let written = "{ type: object, title: T, required: [b], additionalProperties: false, properties: { b: { type: [integer, 'null'], minimum: 0x10, multipleOf: 1.50, \
         default: 9007199254740993.0, examples: [18, null] }, a: { enum: [1.0, x, { z: 1, y: .5 }], default: x } } }";
    let schema = schema(written);
    let stored = serde_json::to_string(&schema).expect("it can be stored");
    assert_eq!(
        stored,
        concat!(
            r#"{"type":"object","title":"T","properties":{"b":{"type":["integer","null"],"minimum":16,"multipleOf":1.5,"#,
            r#""default":9007199254740993,"examples":[18,null]},"a":{"enum":[1,"x",{"y":0.5,"z":1}],"default":"x"}},"#,
            r#""required":["b"],"additionalProperties":false}"#
        )
    );
    let back: Schema = serde_json::from_str(&stored).expect("it can be read");
    assert_eq!(back, schema);
    for text in [
        r#"{"type":"text"}"#,
        r#"{"minimum":"1"}"#,
        r#"{"properties":[]}"#,
        r#"{"type":1}"#,
        r#"{"format":"x"}"#,
    ] {
        assert!(serde_json::from_str::<Schema>(text).is_err(), "{text}");
    }
}

fn pipeline() -> Pipeline {
    Pipeline::named("P").start("A")
}

#[test]
fn a_definition_without_an_input_is_what_it_was_and_one_with_it_is_read_whole_or_not_at_all() {
    let plain = pipeline().build().expect("it is sound");
    assert_eq!(
        plain.canonical(),
        r#"{"pipeline":"P","nodes":[{"name":"A","step":"A","next":"end"}],"steps":{"A":{"native":null}}}"#
    );
    let with =
        pipeline().input(json!({ "properties": { "a": { "maximum": 1.5, "default": null } } }));
    let with = with.build().expect("it is sound");
    assert_ne!(with.digest(), plain.digest());
    let text = with.canonical();
    assert_eq!(
        Definition::from_canonical(&text).expect("it is sound"),
        with
    );
    let newer = text.replace(r#""maximum":1.5"#, r#""maximum":1.5,"contains":{}"#);
    let refused = Definition::from_canonical(&newer).expect_err("nobody knows `contains`");
    assert_eq!(
        refused.to_string(),
        "it has an unknown field `input.properties.a.contains`"
    );
}

#[test]
fn rust_and_yaml_say_the_same() {
    let rust = pipeline()
        .input(json!({ "type": "object", "properties": { "né\u{1}": { "const": u64::MAX } } }));
    let rust = rust
        .build()
        .expect("it is sound")
        .input
        .expect("it has one");
    let yaml =
        schema(r#"{ type: object, properties: { "né\x01": { const: 18446744073709551615 } } }"#);
    assert_eq!(*rust, yaml);
    let wrong = pipeline()
        .input(json!({ "type": "strng" }))
        .build()
        .expect_err("a slip");
    assert!(
        wrong.to_string().contains("did you mean `string`?"),
        "{wrong}"
    );
    let wrong = pipeline().input(json!("x")).build().expect_err("no map");
    assert!(
        wrong
            .to_string()
            .contains("`input` must be a map, not a text"),
        "{wrong}"
    );
    struct Unwilling;
    impl serde::Serialize for Unwilling {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no"))
        }
    }
    let wrong = pipeline().input(Unwilling).build().expect_err("nothing");
    assert!(
        wrong
            .to_string()
            .contains("`input` must be a map, not nothing"),
        "{wrong}"
    );
}

/// The same rules, written independently, for values whose numbers fit.
fn plainly(schema: &Value, value: &Value) -> bool {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let names = |it: &Value| it == kind || (it == "number" && kind == "integer");
    let of_type = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(names),
        one => names(one),
    };
    let count = |key: &str| schema[key].as_u64();
    let within = |size: u64, least: &str, most: &str| {
        count(least).is_none_or(|it| size >= it) && count(most).is_none_or(|it| size <= it)
    };
    of_type
        && (schema["enum"].is_null()
            || schema["enum"]
                .as_array()
                .is_some_and(|it| it.contains(value)))
        && match value {
            Value::Number(number) => {
                let bound = |key: &str| schema[key].as_f64();
                let number = number.as_f64().unwrap_or_default();
                bound("minimum").is_none_or(|it| number >= it)
                    && bound("exclusiveMaximum").is_none_or(|it| number < it)
            }
            Value::String(text) => within(text.chars().count() as u64, "minLength", "maxLength"),
            Value::Array(items) => {
                let is_unique = (0..items.len()).all(|at| !items[..at].contains(&items[at]));
                within(items.len() as u64, "minItems", "maxItems")
                    && (schema["uniqueItems"] != true || is_unique)
                    && (schema["items"].is_null()
                        || items.iter().all(|it| plainly(&schema["items"], it)))
            }
            Value::Object(members) => {
                let required = schema["required"].as_array();
                required.is_none_or(|it| {
                    it.iter()
                        .all(|it| members.contains_key(it.as_str().unwrap_or_default()))
                }) && members
                    .iter()
                    .all(|(name, value)| match schema["properties"].get(name) {
                        Some(schema) => plainly(schema, value),
                        None => schema["additionalProperties"] != false,
                    })
            }
            _ => true,
        }
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..4_i64).prop_map(Value::from),
        (-3..4_i32).prop_map(|it| Value::from(f64::from(it) + 0.5)),
        "[ab漢]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Rules that may have no effect: these are reported to a person, and the judge accepts them.
fn any_schema() -> impl Strategy<Value = Value> {
    let kinds = prop::sample::subsequence(Kind::ALL.map(Kind::name).to_vec(), 1..7);
    let leaf = (
        prop::option::weighted(0.7, kinds),
        prop::option::weighted(0.2, prop::collection::vec(any_value(), 1..3)),
        prop::option::of(-2..3_i64),
        prop::option::of(0..3_u64),
        prop::option::of(1..3_u64),
        any::<bool>(),
    );
    let leaf = leaf.prop_map(|(kinds, values, bound, least, most, flag)| {
        let mut schema = serde_json::Map::new();
        let mut set =
            |key: &str, value: Option<Value>| value.map(|it| schema.insert(key.to_owned(), it));
        set("type", kinds.map(Value::from));
        set("enum", values.map(Value::from));
        set("minimum", bound.map(Value::from));
        set("exclusiveMaximum", bound.map(|it| Value::from(it + 3)));
        set("minLength", least.map(Value::from));
        set("maxLength", most.map(Value::from));
        set("minItems", least.map(Value::from));
        set("maxItems", most.map(Value::from));
        set("uniqueItems", Some(Value::from(flag)));
        Value::Object(schema)
    });
    leaf.prop_recursive(3, 12, 3, |inner| {
        let properties = prop::collection::btree_map("[ab]", inner.clone(), 0..3);
        (properties, inner, any::<bool>()).prop_map(|(properties, items, is_open)| {
            json!({
                "required": properties.keys().take(1).collect::<Vec<_>>(),
                "properties": properties,
                "items": items,
                "additionalProperties": is_open,
            })
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_judge_agrees_with_a_plainer_one(rules in any_schema(), value in any_value()) {
        let schema: Schema = serde_json::from_value(rules.clone()).expect("it is one");
        for text in [value.to_string(), serde_json::to_string_pretty(&value).expect("it is JSON")] {
            let found = judge(&schema, &text);
            prop_assert_eq!(found.is_empty(), plainly(&rules, &value), "{} {} {:?}", rules, text, found);
        }
    }
}
