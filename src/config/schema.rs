//! The JSON schema of a configuration file, for editors.
//!
//! Owns: its form. Never: a list of keys of its own; it is made from [`keys::KEYS`].

use serde_json::{Map, Value, json};

use super::keys::{self, Key, Kind, Scope};
use super::value::BACKOFF;

/// The schema that `ductworkd schema config` prints.
pub fn json_schema() -> Value {
    let mut top = match group("") {
        Value::Object(group) => group,
        _ => Map::new(),
    };
    let settings = json!({"$ref": "#/$defs/settings"});
    // A file is either sections or, without any, the settings themselves.
    if let Some(Value::Object(properties)) = top.get_mut("properties") {
        for section in ["default", "development", "test", "production"] {
            properties.insert(section.into(), settings.clone());
        }
    }
    top.insert("additionalProperties".into(), settings);
    let mut schema = Map::new();
    schema.insert(
        "$schema".into(),
        "https://json-schema.org/draft/2020-12/schema".into(),
    );
    schema.insert("title".into(), "Ductwork configuration".into());
    schema.extend(top);
    schema.insert("$defs".into(), json!({"settings": group("")}));
    Value::Object(schema)
}

fn group(path: &str) -> Value {
    let mut properties = Map::new();
    for name in keys::children(path) {
        let below = keys::join(path, name);
        let schema = match keys::find(&below) {
            Some(key) => of_key(key),
            None => group(&below),
        };
        properties.insert(name.into(), schema);
    }
    closed(properties)
}

/// An object with these properties. Merge keys are resolved before a validator's rules mean anything,
/// but not every validator resolves them, so they are allowed by name.
fn closed(mut properties: Map<String, Value>) -> Value {
    properties.insert("<<".into(), json!({}));
    json!({
        "type": ["object", "null"],
        "properties": properties,
        "patternProperties": {"^x-": {}},
        "additionalProperties": false,
    })
}

fn of_key(key: &Key) -> Value {
    let one = leaf(key);
    let by_name = |one: &Value| json!({"type": "object", "additionalProperties": one});
    let forms = match key.scope {
        Scope::One => vec![one],
        Scope::Pipeline => vec![one.clone(), by_name(&one)],
        Scope::Step => {
            let steps = json!({"anyOf": [one, by_name(&one)]});
            vec![one, by_name(&steps)]
        }
    };
    let mut schema = Map::new();
    schema.insert("description".into(), key.doc.into());
    if key.kind != Kind::Backoff {
        let default = serde_json::from_str(key.default).unwrap_or_else(|_| key.default.into());
        schema.insert("default".into(), default);
    }
    schema.insert("anyOf".into(), Value::Array(forms));
    Value::Object(schema)
}

fn leaf(key: &Key) -> Value {
    // Any value may come from a variable instead.
    let variable = json!({"type": "string", "pattern": "\\$\\{"});
    let or_variable = |form: Value| json!({"anyOf": [form, variable, {"type": "null"}]});
    match key.kind {
        Kind::Url | Kind::Path => json!({"type": ["string", "null"], "minLength": 1}),
        Kind::Names => json!({"anyOf": [
            {"type": ["string", "null"]},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ]}),
        Kind::Variables => json!({"anyOf": [
            {"type": ["string", "null"], "minLength": 1},
            {"type": "array", "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*[*]?$"}},
        ]}),
        Kind::Listen | Kind::File | Kind::Header => {
            json!({"type": ["string", "null"], "minLength": 1})
        }
        Kind::Collector => {
            json!({"type": ["string", "null"], "pattern": "^https?://|^none$|\\$\\{"})
        }
        Kind::Headers => json!({
            "type": ["object", "null"],
            "additionalProperties": {"type": "string", "minLength": 1},
            "maxProperties": 16,
        }),
        Kind::Hosts | Kind::Networks | Kind::Groups => json!({"anyOf": [
            {"type": ["string", "null"]},
            {"type": "array", "items": {"type": "string", "minLength": 1}},
        ]}),
        Kind::Webhooks => {
            let texts = json!({"anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]});
            let secret = json!({"type": "string", "pattern": "^whsec_|\\$\\{"});
            let properties = [
                (
                    "name",
                    json!({"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
                ),
                (
                    "url",
                    json!({"type": "string", "pattern": "^https?://|\\$\\{"}),
                ),
                (
                    "secret",
                    json!({"anyOf": [
                        secret,
                        {"type": "array", "items": secret, "minItems": 1, "maxItems": 3},
                    ]}),
                ),
                ("events", texts.clone()),
                ("pipelines", texts),
                ("ca", json!({"type": "string", "minLength": 1})),
            ];
            let properties = properties.map(|(name, form)| (name.to_owned(), form));
            let mut endpoint = closed(properties.into_iter().collect());
            endpoint["required"] = json!(["name", "url", "secret"]);
            json!({"type": ["array", "null"], "items": endpoint, "maxItems": 16})
        }
        Kind::Choice(words) => or_variable(json!({"enum": words})),
        Kind::Integer { min, max } => {
            or_variable(json!({"type": "integer", "minimum": min, "maximum": max}))
        }
        Kind::Limit { max } => or_variable(json!({"anyOf": [
            {"const": -1},
            {"type": "integer", "minimum": 1, "maximum": max},
        ]})),
        Kind::Float { min, max } => {
            or_variable(json!({"type": "number", "minimum": min, "maximum": max}))
        }
        Kind::Duration { min_ms, max_ms, or } => {
            let seconds = |ms: u64| ms as f64 / 1_000.0;
            let mut forms = vec![
                json!({"type": "number", "minimum": seconds(min_ms), "maximum": seconds(max_ms)}),
                json!({"type": "string", "pattern": "^[0-9]*\\.?[0-9]+ *(ms|s|m|h|d)?$"}),
            ];
            forms.extend(or.map(|word| json!({"const": word})));
            or_variable(json!({"anyOf": forms}))
        }
        Kind::Size { min, max } => or_variable(json!({"anyOf": [
            {"type": "integer", "minimum": min, "maximum": max},
            {"type": "string", "pattern": "^[0-9]+ *([kKmMgG][iI]?)?[bB]?$"},
        ]})),
        Kind::Backoff => {
            let parts = BACKOFF.iter().filter_map(|name| {
                let part = keys::find(&keys::join(key.path, name))?;
                Some(((*name).to_owned(), of_key(part)))
            });
            closed(parts.collect())
        }
        Kind::Commands => {
            let argv = json!({"type": "array", "items": {"type": ["string", "number", "boolean"]}});
            json!({"anyOf": [argv, {"type": "array", "items": argv}, {"type": "null"}]})
        }
    }
}
