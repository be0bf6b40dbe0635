//! The format of a pipeline file: its keys, and their description for editors.
//!
//! Owns: the lists of keys that the YAML front end accepts, and the JSON Schema that is made
//! from them. Never: reads anything.

use serde_json::{Value, json};

use super::check::{MAX_BUDGET, MAX_FACTOR, MAX_NAME};
use super::input::{Format, Kind};

/// The keys of a pipeline; keys that begin with `x-` are the author's own.
pub const PIPELINE_KEYS: [&str; 8] = [
    "pipeline",
    "on_halt",
    "on_complete",
    "on_wait",
    "input",
    "trace",
    "steps",
    "flow",
];
/// The keys of a step.
pub const STEP_KEYS: [&str; 9] = [
    "command",
    "native",
    "timeout",
    "delay",
    "max_retry",
    "max_crash",
    "backoff",
    "env",
    "cwd",
];
/// Kinds of steps that the design has and this version lacks, and how to do without them.
pub const PLANNED_RUNNERS: [(&str, &str); 3] = [
    (
        "worker",
        "until then use `command`, which starts the program for each execution",
    ),
    (
        "http",
        "until then use `command: [curl, --fail-with-body, …]`, or a program that asks",
    ),
    (
        "sql",
        "until then use `command: [psql, …]`, or a program that asks the database",
    ),
];
/// Keys of a pipeline that the design has and this version lacks, and how to do without them.
pub const PLANNED_KEYS: [(&str, &str); 3] = [
    ("schedule", TIMER),
    ("cron", TIMER),
    (
        "concurrency",
        "until then `job_worker.count` in the configuration bounds the steps that run at once",
    ),
];
/// In UTC: by a local clock, one hour of the year comes twice. In a crontab, `%` ends the command.
const TIMER: &str = "until then let cron or a systemd timer call `ductworkd trigger NAME`; with a key for each period, such as \
     `--key \"$(date -u +%F)\"` daily or `--key \"$(date -u +%FT%H)\"` hourly, a call that is repeated starts no second \
     run; a crontab needs `\\%` for each `%`";
/// The keys of a step's backoff.
pub const BACKOFF_KEYS: [&str; 4] = ["initial", "factor", "max", "jitter"];
/// The keys of a variable of a step's `env` that is more than a text.
pub const SECRET_KEYS: [&str; 1] = ["secret"];
/// The keys of a transition's target that is more than a name.
pub const TARGET_KEYS: [&str; 2] = ["to", "delay"];
/// The keys of a dampen that is more than a text.
pub const QUESTION_KEYS: [&str; 3] = ["prompt", "timeout", "then"];
/// The moves of a branch whose question nobody has answered in time.
pub const UNANSWERED: [&str; 2] = ["halt", "approve"];
/// The traces that a run may be in.
const TRACES: [&str; 2] = ["own", "parent"];
/// The transitions.
pub const VERBS: [&str; 9] = [
    "start", "chain", "divide", "combine", "expand", "collapse", "divert", "converge", "dampen",
];

/// The JSON Schema (draft 2020-12) of a pipeline file.
pub fn json_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Ductwork pipeline",
        "description": "A pipeline: how its steps run, and the transitions that join them.",
        "type": "object",
        "required": ["pipeline", "steps", "flow"],
        "additionalProperties": false,
        "patternProperties": {
            "^x-": { "description": "Your own, for example to hold anchors." }
        },
        "properties": {
            "pipeline": described("name", "The pipeline's name."),
            "on_halt": described("name", "A step that runs once for each run that halts."),
            "on_complete": described("name", "A step that runs once for each run that completes."),
            "on_wait": described("name", "A step that runs once for each wait for a person."),
            "input": described("input", "The input that a run takes; without it, any."),
            "trace": {
                "description": "The trace of a run: its own, which has a link to the caller's span, or that of its caller, the `parent`.",
                "enum": TRACES
            },
            "steps": {
                "description": "How each step runs, by its name.",
                "type": "object",
                "propertyNames": { "$ref": "#/$defs/name" },
                "additionalProperties": { "$ref": "#/$defs/step" }
            },
            "flow": {
                "description": "The transitions, in order; `start` is the first.",
                "type": "array",
                "minItems": 1,
                "items": { "$ref": "#/$defs/transition" }
            }
        },
        "$defs": {
            "name": {
                "type": "string",
                "pattern": "^[A-Za-z_][A-Za-z0-9_-]*$",
                "maxLength": MAX_NAME
            },
            "duration": {
                "description": "Seconds, or a number with a unit: 250ms, 10s, 5m, 2h, 30d.",
                "anyOf": [
                    { "type": "number", "minimum": 0 },
                    { "type": "string", "pattern": "^ *[0-9.]+ *(ms|s|m|h|d)? *$" }
                ]
            },
            "input": input(),
            "scalar": { "type": ["string", "number", "boolean"] },
            "variable": {
                "anyOf": [
                    { "$ref": "#/$defs/scalar" },
                    {
                        "description": "A secret, by its name: a variable of the daemon, or the file that \
                                        NAME_FILE names.",
                        "type": "object",
                        "required": ["secret"],
                        "additionalProperties": false,
                        "properties": {
                            "secret": { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" }
                        }
                    }
                ]
            },
            "step": step(),
            "backoff": backoff(),
            "target": {
                "anyOf": [
                    { "$ref": "#/$defs/name" },
                    {
                        "type": "object",
                        "required": ["to"],
                        "additionalProperties": false,
                        "properties": {
                            "to": described("name", "The step."),
                            "delay": described("duration", "Wait before it, whatever its own says.")
                        }
                    }
                ]
            },
            "path": {
                "description": "A step, or a list that begins with one and goes on like a flow.",
                "anyOf": [
                    { "$ref": "#/$defs/target" },
                    {
                        "type": "array",
                        "minItems": 1,
                        "prefixItems": [{ "$ref": "#/$defs/target" }],
                        "items": { "$ref": "#/$defs/transition" }
                    }
                ]
            },
            "transition": {
                "anyOf": [
                    { "const": "dampen", "description": "The branch waits for a person." },
                    {
                        "type": "object",
                        "minProperties": 1,
                        "maxProperties": 1,
                        "additionalProperties": false,
                        "properties": transitions()
                    }
                ]
            }
        }
    })
}

/// A reference with a description of its own.
fn described(name: &str, description: &str) -> Value {
    json!({ "description": description, "$ref": format!("#/$defs/{name}") })
}

fn step() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "oneOf": [{ "required": ["command"] }, { "required": ["native"] }],
        "properties": {
            "command": {
                "description": "The program and its arguments, run without a shell.",
                "anyOf": [
                    { "type": "string", "pattern": "^\\S+$" },
                    { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/scalar" } }
                ]
            },
            "native": {
                "description": "A step of the program that embeds the library.",
                "anyOf": [{ "const": true }, { "type": "object", "maxProperties": 0 }]
            },
            "timeout": described("duration", "The longest time that an attempt may take."),
            "delay": described("duration", "Wait before the step may be claimed."),
            "max_retry": {
                "description": "How many retries (attempts after the first) errors may use.",
                "type": "integer", "minimum": 0, "maximum": MAX_BUDGET
            },
            "max_crash": {
                "description": "The number of crashes at which the step fails.",
                "type": "integer", "minimum": 0, "maximum": MAX_BUDGET
            },
            "backoff": described("backoff", "Wait between attempts."),
            "env": {
                "description": "Added to the environment of the command. `${VAR}` and `${VAR:-default}` \
                                are put in when the step starts.",
                "type": "object",
                "additionalProperties": { "$ref": "#/$defs/variable" }
            },
            "cwd": {
                "description": "Working directory, relative to the configuration's.",
                "type": "string", "minLength": 1
            }
        }
    })
}

/// The subset of JSON Schema that describes an input.
fn input() -> Value {
    let text = json!({ "type": "string" });
    let count = json!({ "type": "integer", "minimum": 0 });
    let number = json!({ "type": "number" });
    let flag = json!({ "type": "boolean" });
    let kinds = json!({ "enum": Kind::ALL.map(Kind::name) });
    let values = json!({ "type": "array", "minItems": 1, "uniqueItems": true });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "type": { "anyOf": [kinds, { "type": "array", "minItems": 1, "uniqueItems": true, "items": kinds }] },
            "title": text,
            "description": text,
            "properties": { "type": "object", "additionalProperties": { "$ref": "#/$defs/input" } },
            "required": { "type": "array", "uniqueItems": true, "items": text },
            "additionalProperties": flag,
            "items": { "$ref": "#/$defs/input" },
            "minItems": count,
            "maxItems": count,
            "uniqueItems": flag,
            "enum": values,
            "const": {},
            "minimum": number,
            "maximum": number,
            "exclusiveMinimum": number,
            "exclusiveMaximum": number,
            "multipleOf": { "type": "number", "exclusiveMinimum": 0 },
            "minLength": count,
            "maxLength": count,
            "pattern": text,
            "format": { "enum": Format::ALL.map(Format::name) },
            "default": {},
            "examples": values
        }
    })
}

fn backoff() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "initial": described("duration", "Wait after the first error."),
            "factor": {
                "description": "Multiplies the wait after each further error; 1 keeps it constant.",
                "type": "number", "minimum": 1, "maximum": MAX_FACTOR
            },
            "max": described("duration", "Longest wait."),
            "jitter": {
                "description": "Fraction of the wait by which it varies.",
                "type": "number", "minimum": 0, "maximum": 1
            }
        }
    })
}

fn transitions() -> Value {
    json!({
        "start": described("target", "The first step; its input is the trigger's argument."),
        "chain": described("target", "The next step, same branch."),
        "divide": {
            "description": "One new branch per path, the same input to each.",
            "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/path" }
        },
        "combine": described("target", "Waits for all branches of the divide before it."),
        "expand": described("target", "One new branch per element of the output."),
        "collapse": described("target", "Waits for all branches of the matching expand."),
        "divert": {
            "description": "The output chooses the path; what matches no key takes `otherwise`.",
            "type": "object",
            "minProperties": 2,
            "required": ["otherwise"],
            "additionalProperties": { "$ref": "#/$defs/path" }
        },
        "converge": described("target", "The paths of the divert before it meet."),
        "dampen": {
            "description": "The branch waits for a person, who is asked this.",
            "anyOf": [
                { "type": ["string", "null"] },
                {
                    "type": "object",
                    "additionalProperties": false,
                    "properties": {
                        "prompt": { "description": "The question.", "type": "string" },
                        "timeout": described("duration", "The time within which somebody has to answer."),
                        "then": {
                            "description": "The move without an answer: `halt` (the default), or `approve`, which goes on with the value that was asked about.",
                            "enum": UNANSWERED
                        }
                    }
                }
            ]
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::input::KEYWORDS;

    fn keys(schema: &Value, pointer: &str) -> Vec<String> {
        let map = schema.pointer(pointer).and_then(Value::as_object);
        let map = map.unwrap_or_else(|| panic!("no map at {pointer}"));
        map.keys().cloned().collect()
    }

    #[test]
    fn the_schema_has_exactly_the_keys_that_are_parsed() {
        let schema = json_schema();
        for (pointer, expected) in [
            ("/properties", PIPELINE_KEYS.as_slice()),
            ("/$defs/step/properties", STEP_KEYS.as_slice()),
            ("/$defs/input/properties", KEYWORDS.as_slice()),
            ("/$defs/backoff/properties", BACKOFF_KEYS.as_slice()),
            ("/$defs/target/anyOf/1/properties", TARGET_KEYS.as_slice()),
            ("/$defs/variable/anyOf/1/properties", SECRET_KEYS.as_slice()),
            ("/$defs/transition/anyOf/1/properties", VERBS.as_slice()),
            (
                "/$defs/transition/anyOf/1/properties/dampen/anyOf/1/properties",
                QUESTION_KEYS.as_slice(),
            ),
        ] {
            assert_eq!(keys(&schema, pointer), expected, "{pointer}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_map_is_closed() {
        fn walk(schema: &Value, at: &Value, references: &mut usize) {
            if let Some(reference) = at.get("$ref").and_then(Value::as_str) {
                *references += 1;
                let pointer = reference.trim_start_matches('#');
                assert!(schema.pointer(pointer).is_some(), "{reference}");
            }
            if at.get("properties").is_some_and(Value::is_object) && at["type"].is_string() {
                assert_eq!(at["additionalProperties"], false, "{at}");
            }
            match at {
                Value::Object(map) => map.values().for_each(|at| walk(schema, at, references)),
                Value::Array(items) => items.iter().for_each(|at| walk(schema, at, references)),
                _ => {}
            }
        }
        let schema = json_schema();
        let mut references = 0;
        walk(&schema, &schema, &mut references);
        assert!(references > 20);
    }
}
