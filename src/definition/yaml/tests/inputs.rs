//! Faulty schemas of inputs: the messages about them, and the places.

use super::mistakes::{assert_found, problems};
use super::*;

fn with_input(input: &str) -> String {
    format!(
        "pipeline: P\nsteps: {{ A: {{ command: [a] }} }}\nflow: [{{ start: A }}]\ninput:\n{input}"
    )
}

#[test]
fn every_mistake_in_an_input_is_found_where_it_is() {
    for (input, expected) in [
        (
            "  minimun: 1\n",
            vec![(
                5,
                3,
                "unknown key `minimun` in `input` = did you mean `minimum`?",
            )],
        ),
        (
            "  oneOf: []\n",
            vec![(
                5,
                3,
                "unknown key `oneOf` in `input` = valid keys: type, title",
            )],
        ),
        (
            "  type: strng\n",
            vec![(5, 9, "not `strng` = did you mean `string`?")],
        ),
        ("  type: int\n", vec![(5, 9, "did you mean `integer`?")]),
        (
            "  type: [string, 1]\n",
            vec![(5, 18, "a type, or a list of them, not `1`")],
        ),
        (
            "  type: [string, string]\n",
            vec![(5, 18, "`type` in `input` has `string` twice")],
        ),
        (
            "  type: []\n",
            vec![(5, 9, "not a list = the types are object, array")],
        ),
        (
            "  title: 1\n",
            vec![(5, 10, "`title` in `input` must be a text, not `1`")],
        ),
        (
            "  minimum: '1'\n",
            vec![(5, 12, "`minimum` in `input` must be a number, not `1`")],
        ),
        (
            "  minimum: .inf\n",
            vec![(5, 12, "must be a number, not `.inf`")],
        ),
        (
            "  minLength: -1\n",
            vec![(5, 14, "must be a whole number, not `-1`")],
        ),
        (
            "  maxItems: 1.5\n",
            vec![(5, 13, "must be a whole number, not `1.5`")],
        ),
        (
            "  multipleOf: 0\n",
            vec![(5, 15, "a number above 0 of at most 18 digits")],
        ),
        (
            "  uniqueItems: 1\n",
            vec![(5, 16, "must be a boolean, not `1`")],
        ),
        (
            "  additionalProperties: { type: string }\n",
            vec![(5, 25, "must be a boolean, not a map")],
        ),
        (
            "  pattern: '('\n",
            vec![(5, 12, "`pattern` in `input` cannot be used: unclosed group")],
        ),
        ("  format: mail\n", vec![(5, 11, "= did you mean `email`?")]),
        (
            "  format: ipv4\n",
            vec![(5, 11, "the formats that are checked are date, date-time")],
        ),
        ("  enum: []\n", vec![(5, 9, "a list of values, not a list")]),
        (
            "  enum: [1, 1.0]\n",
            vec![(5, 13, "`enum` in `input` has `1` twice")],
        ),
        (
            "  enum: [.nan]\n",
            vec![(
                5,
                10,
                "`enum` in `input` has `.nan`, which JSON does not have",
            )],
        ),
        (
            "  required: name\n",
            vec![(5, 13, "must be a list of names, not `name`")],
        ),
        (
            "  items: [a]\n",
            vec![(5, 10, "`input/items` must be a map, not a list")],
        ),
        (
            "  properties: [a]\n",
            vec![(5, 15, "must be a map of names, not a list")],
        ),
        (
            "  properties:\n    a/b: { items: { typ: string } }\n",
            vec![(
                6,
                21,
                "unknown key `typ` in `input/properties/a~1b/items` = did you mean `type`?",
            )],
        ),
        (
            "  required: [amuont, x]\n  properties: { amount: {} }\n",
            vec![
                (
                    5,
                    13,
                    "which is not in its `properties` = did you mean `amount`?",
                ),
                (5, 13, "`required` in `input` has `x`"),
            ],
        ),
        (
            "  minimum: 2\n  maximum: 1\n",
            vec![(
                5,
                12,
                "`minimum` 2 and `maximum` 1 in `input` leave no value",
            )],
        ),
        (
            "  exclusiveMinimum: 1\n  maximum: 1.0\n",
            vec![(5, 21, "leave no value")],
        ),
        (
            "  minLength: 3\n  maxLength: 2\n",
            vec![(5, 14, "`minLength` 3 and `maxLength` 2")],
        ),
        (
            "  minItems: 3\n  maxItems: 2\n",
            vec![(5, 13, "leave no value")],
        ),
        (
            "  type: string\n  minimum: 1\n",
            vec![(
                6,
                12,
                "`minimum` in `input` has no effect on a string = remove it",
            )],
        ),
        (
            "  type: integer\n  default: 1.5\n",
            vec![(
                6,
                12,
                "`default` in `input` contradicts the rest of the schema: `1.5` is the number",
            )],
        ),
        (
            "  type: string\n  examples: [a, 1]\n",
            vec![(
                6,
                17,
                "`examples` in `input` contradicts the rest of the schema: `1`",
            )],
        ),
        (
            "  type: string\n  enum: [a, null]\n",
            vec![(6, 13, "`enum` in `input` contradicts")],
        ),
        (
            "  enum: [a]\n  const: b\n",
            vec![(
                6,
                10,
                "`const` in `input` contradicts the rest of the schema: `\"b\"` is none of",
            )],
        ),
        (
            "  properties: { a: { type: string } }\n  default: { a: 1 }\n",
            vec![(6, 12, "`{\"a\":1}` at `/a` is the number")],
        ),
        // One mistake is enough: a schema that is not understood judges no value.
        (
            "  typ: string\n  default: 1\n",
            vec![(5, 3, "unknown key `typ`")],
        ),
    ] {
        assert_found(&with_input(input), &expected);
    }
    assert_found(
        "pipeline: P\nsteps: { A: { command: [a] } }\nflow: [{ start: A }]\ninput: text\n",
        &[(4, 8, "`input` must be a map, not a text")],
    );
}

#[test]
fn an_input_is_bounded_in_depth_and_size() {
    let nested = |depth: usize| {
        with_input(&format!(
            "  {}{{}}{}\n",
            "{ items: ".repeat(depth),
            " }".repeat(depth)
        ))
    };
    assert!(parse(&nested(15), file()).is_ok());
    let found = problems(&nested(16));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].message.ends_with("is nested more than 16 deep"),
        "{}",
        found[0].message
    );
    let wide = |schemas: usize| {
        let names: Vec<String> = (1..schemas)
            .map(|at| format!("    p{at}: {{}}\n"))
            .collect();
        with_input(&format!("  properties:\n{}", names.concat()))
    };
    assert!(parse(&wide(500), file()).is_ok());
    let found = problems(&wide(510));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].message, "`input` has more than 500 schemas");
    let long = with_input(&format!("  description: {}\n", "x".repeat(70_000)));
    let found = problems(&long);
    assert_eq!(found[0].message, "`input` is longer than 64 KiB");
}
