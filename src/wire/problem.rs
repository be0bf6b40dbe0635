//! A request that is refused, as RFC 9457 writes it.

use schemars::JsonSchema;
use serde::Serialize;

/// A problem.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemJson<'a> {
    /// The kind of problem: the same for the same kind, always.
    #[serde(rename = "type")]
    #[schemars(extend("format" = "uri-reference"))]
    pub kind: &'a str,
    /// The kind of problem, for people.
    pub title: &'a str,
    /// The response's status.
    pub status: u16,
    /// This problem.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: &'a str,
    /// The way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'a str>,
    /// Each parameter that cannot be as it is.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub errors: &'a [FaultJson],
}

/// A parameter that cannot be as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Fault")]
pub struct FaultJson {
    /// Its name; `input` for a part of a run's input.
    pub parameter: String,
    /// The part of the input, as a JSON pointer (RFC 6901) into it; empty for the whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// The values that are expected.
    pub detail: String,
}
