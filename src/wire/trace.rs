//! A trace as OTLP writes it in JSON: the body of `POST /v1/traces` of a collector, and the end of its answer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::machine::trace::{End, Facts, Span, TraceId, Value, spans};
use crate::store::definition::VERSION;

/// A run as a trace, in the JSON of OTLP: a collector accepts it as it is.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Trace")]
pub struct TraceJson {
    /// A single resource: Ductwork.
    resource_spans: Vec<ResourceSpans<SpanJson>>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TraceResource")]
struct ResourceSpans<S> {
    resource: Resource,
    scope_spans: Vec<ScopeSpans<S>>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceResourceAttributes")]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceScope")]
struct ScopeSpans<S> {
    scope: Scope,
    /// The spans of the run and of each attempt.
    spans: Vec<S>,
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
    /// The run's id without its hyphens, or the id of the caller's trace if the pipeline's `trace` is `parent`.
    trace_id: String,
    /// The second half of the id of the run or of the execution.
    span_id: String,
    /// The state of the caller's trace, in the format of `tracestate`, if the run is in that trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: String,
    /// 1: the engine's own work; 5: work taken off a queue.
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<Attribute>,
    /// A link to the previous attempt; for the run, to the caller's span.
    links: Vec<Link>,
    status: Status,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "TraceLink")]
struct Link {
    trace_id: String,
    span_id: String,
    /// The state of the caller's trace, in the format of `tracestate`, if the link leads to that trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_state: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceStatus")]
struct Status {
    /// 0: not set; 1: success; 2: error.
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

/// A value, in a member that is named after its kind.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TraceValue")]
enum AttributeValue {
    #[serde(rename = "stringValue")]
    Text(String),
    /// A whole number, written as protobuf's JSON writes a 64-bit number.
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
    /// The trace of a run.
    pub fn of(facts: &Facts) -> Self {
        Self {
            resource_spans: vec![ResourceSpans::of(of_run(facts).collect())],
        }
    }
}

fn of_run(facts: &Facts) -> impl Iterator<Item = SpanJson> {
    let trace = facts.trace_id();
    spans(facts)
        .into_iter()
        .map(move |it| SpanJson::of(it, trace))
}

/// The spans of a run, each as text.
pub fn written(facts: &Facts) -> Vec<Box<RawValue>> {
    let write = |span| serde_json::value::to_raw_value(&span);
    let written = of_run(facts).map(|span| write(span).expect("texts and numbers can be written"));
    written.collect()
}

/// A request that sends such spans, of any runs.
pub fn request(spans: &[Box<RawValue>]) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Request<'a> {
        resource_spans: [ResourceSpans<&'a RawValue>; 1],
    }
    let spans = spans.iter().map(|it| &**it).collect();
    let resource_spans = [ResourceSpans::of(spans)];
    serde_json::to_string(&Request { resource_spans }).expect("texts can be written")
}

/// How many spans of a request a collector took and did not keep, and why; none if it kept all of them.
pub fn rejected(answer: &str) -> Option<(u64, String)> {
    /// In the JSON of protobuf a number of 64 bits is a text; not everybody knows that.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Count {
        Text(String),
        Number(u64),
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Partial {
        rejected_spans: Option<Count>,
        #[serde(default)]
        error_message: String,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        partial_success: Option<Partial>,
    }
    let answer: Answer = serde_json::from_str(answer).ok()?;
    let partial = answer.partial_success?;
    let rejected = match partial.rejected_spans? {
        Count::Number(number) => number,
        Count::Text(text) => text.parse().ok()?,
    };
    (rejected > 0).then_some((rejected, partial.error_message))
}

impl<S> ResourceSpans<S> {
    fn of(spans: Vec<S>) -> Self {
        let service = ("service.name", Value::Text("ductwork".to_owned()));
        Self {
            resource: Resource {
                attributes: vec![attribute(service)],
            },
            scope_spans: vec![ScopeSpans {
                scope: Scope {
                    name: "ductwork",
                    version: VERSION,
                },
                spans,
            }],
        }
    }
}

impl SpanJson {
    fn of(span: Span, trace: TraceId) -> Self {
        let id = |id: u64| format!("{id:016x}");
        let trace_id = |id: u128| format!("{id:032x}");
        let (own, linked) = match span.link {
            Some(_) => (None, span.state),
            None => (span.state, None),
        };
        Self {
            trace_id: trace_id(trace),
            span_id: id(span.id),
            trace_state: own,
            parent_span_id: span.parent.map(id),
            name: span.name,
            kind: if span.is_consumer { 5 } else { 1 },
            start_time_unix_nano: nanos(span.start),
            end_time_unix_nano: nanos(span.end),
            attributes: span.attributes.into_iter().map(attribute).collect(),
            links: span
                .link
                .map(|(trace, span)| Link {
                    trace_id: trace_id(trace),
                    span_id: id(span),
                    trace_state: linked,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_what_was_not_kept() {
        let told = |answer: &str| rejected(answer).map(|(spans, why)| format!("{spans} {why}"));
        let partial = r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
        assert_eq!(told(partial).as_deref(), Some("3 too old"));
        let number = r#"{"partialSuccess":{"rejectedSpans":3}}"#;
        assert_eq!(told(number).as_deref(), Some("3 "));
        for whole in [
            "",
            "{}",
            "null",
            "<html>",
            r#"{"partialSuccess":{}}"#,
            r#"{"partialSuccess":{"rejectedSpans":"0","errorMessage":"mind the version"}}"#,
            r#"{"partialSuccess":{"rejectedSpans":"many"}}"#,
        ] {
            assert_eq!(told(whole), None, "{whole}");
        }
    }
}
