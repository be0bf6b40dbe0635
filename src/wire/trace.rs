//! A trace as OTLP writes it in JSON: the body of `POST /v1/traces` of a collector.

use schemars::JsonSchema;
use serde::Serialize;

use crate::machine::trace::{End, Facts, Span, Value, spans};
use crate::store::definition::VERSION;

/// A run as a trace, in the JSON of OTLP: a collector takes it as it is.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Trace")]
pub struct TraceJson {
    /// One: Ductwork.
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TraceResource")]
struct ResourceSpans {
    resource: Resource,
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceResourceAttributes")]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceScope")]
struct ScopeSpans {
    scope: Scope,
    /// The run, and each attempt.
    spans: Vec<SpanJson>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceScopeName")]
struct Scope {
    name: &'static str,
    version: &'static str,
}

/// A span.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TraceSpan")]
struct SpanJson {
    /// The run's id without its hyphens.
    trace_id: String,
    /// The second half of the id of the run, or of the execution.
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: String,
    /// 1: of the engine's own; 5: taken off a queue.
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    /// To the attempt before.
    links: Vec<Link>,
    status: Status,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TraceLink")]
struct Link {
    trace_id: String,
    span_id: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceStatus")]
struct Status {
    /// 0: nothing is said; 1: well; 2: with an error.
    code: u8,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceAttribute")]
struct Attribute {
    key: &'static str,
    value: AttributeValue,
}

/// A value: its kind is its name.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceValue")]
enum AttributeValue {
    #[serde(rename = "stringValue")]
    Text(String),
    /// A whole number, as JSON of protobuf writes one of 64 bits.
    #[serde(rename = "intValue")]
    Number(String),
    #[serde(rename = "boolValue")]
    Flag(bool),
}

fn nanos(micros: i64) -> String {
    (i128::from(micros.max(0)) * 1_000).to_string()
}

fn attribute((key, value): (&'static str, Value)) -> Attribute {
    let value = match value {
        Value::Text(text) => AttributeValue::Text(text),
        Value::Number(number) => AttributeValue::Number(number.to_string()),
        Value::Flag(flag) => AttributeValue::Flag(flag),
    };
    Attribute { key, value }
}

impl TraceJson {
    /// Of a run.
    pub fn of(facts: &Facts) -> Self {
        let trace_id = facts.run.0.simple().to_string();
        let spans = spans(facts);
        let spans = spans.into_iter().map(|it| SpanJson::of(it, &trace_id));
        let service = ("service.name", Value::Text("ductwork".to_owned()));
        Self {
            resource_spans: vec![ResourceSpans {
                resource: Resource {
                    attributes: vec![attribute(service)],
                },
                scope_spans: vec![ScopeSpans {
                    scope: Scope {
                        name: "ductwork",
                        version: VERSION,
                    },
                    spans: spans.collect(),
                }],
            }],
        }
    }
}

impl SpanJson {
    fn of(span: Span, trace_id: &str) -> Self {
        let id = |id: u64| format!("{id:016x}");
        Self {
            trace_id: trace_id.to_owned(),
            span_id: id(span.id),
            parent_span_id: span.parent.map(id),
            name: span.name,
            kind: if span.is_consumer { 5 } else { 1 },
            start_time_unix_nano: nanos(span.start),
            end_time_unix_nano: nanos(span.end),
            attributes: span.attributes.into_iter().map(attribute).collect(),
            links: span
                .link
                .map(|before| Link {
                    trace_id: trace_id.to_owned(),
                    span_id: id(before),
                })
                .into_iter()
                .collect(),
            status: Status {
                code: match span.status {
                    End::Unset => 0,
                    End::Ok => 1,
                    End::Error => 2,
                },
                message: span.message,
            },
        }
    }
}
