//! Checks whether a value matches its JSON Schema: as much of the standard as the project's schemas use,
//! and stricter, in that a field that no schema names is a mistake.

use serde_json::Value;

/// Everything in `value` that does not match `schema`; its references are resolved in `document`.
pub fn faults(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    check(document, schema, value, "$", &mut faults);
    faults
}

/// The keywords that are understood here, or that do not restrict a value.
const KEYWORDS: [&str; 15] = [
    "$ref",
    "additionalProperties",
    "anyOf",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maximum",
    "minimum",
    "properties",
    "required",
    "title",
    "type",
    "oneOf",
];

fn check(document: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    let Some(keywords) = schema.as_object() else {
        if schema == &Value::Bool(false) {
            faults.push(format!("{at}: nothing may stand here"));
        }
        return;
    };
    for keyword in keywords.keys() {
        assert!(KEYWORDS.contains(&keyword.as_str()), "{at}: {keyword}");
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.strip_prefix('#').unwrap();
        let to = document.pointer(pointer);
        let to = to.unwrap_or_else(|| panic!("{reference} leads nowhere"));
        check(document, to, value, at, faults);
    }
    let ways = schema["anyOf"].as_array().or(schema["oneOf"].as_array());
    if let Some(ways) = ways {
        let fits = |way: &&Value| self::faults(document, way, value).is_empty();
        if !ways.iter().any(|way| fits(&way)) {
            faults.push(format!("{at}: {value} fits none of {}", schema["anyOf"]));
        }
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is = |name: &Value| name == kind || name == "number" && kind == "integer";
    let may = match &schema["type"] {
        Value::Null => true,
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    };
    if !may {
        faults.push(format!("{at}: {kind}, not {}", schema["type"]));
        return;
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        faults.push(format!("{at}: {value} is not one of {words:?}"));
    }
    if let (Some(number), Some(least)) = (value.as_f64(), schema["minimum"].as_f64())
        && number < least
    {
        faults.push(format!("{at}: {number} is less than {least}"));
    }
    let formed = match (schema["format"].as_str(), value.as_str()) {
        (Some("uuid"), Some(text)) => uuid::Uuid::try_parse(text).is_ok(),
        (Some("date-time"), Some(text)) => text.len() >= 20 && text.ends_with('Z'),
        _ => true,
    };
    if !formed {
        faults.push(format!("{at}: {value} is no {}", schema["format"]));
    }
    if let (Some(items), Some(schema)) = (value.as_array(), schema.get("items")) {
        for (n, item) in items.iter().enumerate() {
            check(document, schema, item, &format!("{at}[{n}]"), faults);
        }
    }
    let Some(fields) = value.as_object() else {
        return;
    };
    let required = schema["required"].as_array();
    for name in required.into_iter().flatten() {
        if !fields.contains_key(name.as_str().unwrap()) {
            faults.push(format!("{at}: {name} is missing"));
        }
    }
    let known = schema["properties"].as_object();
    for (name, field) in fields {
        let schema = known.and_then(|known| known.get(name));
        match schema.or(schema_of_others(keywords)) {
            Some(schema) => check(document, schema, field, &format!("{at}.{name}"), faults),
            None if known.is_some() => faults.push(format!("{at}: {name} is not told of")),
            None => {}
        }
    }
}

fn schema_of_others(keywords: &serde_json::Map<String, Value>) -> Option<&Value> {
    keywords.get("additionalProperties")
}
