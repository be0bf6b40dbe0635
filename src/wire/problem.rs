//! A request that is refused, as RFC 9457 writes it.

use schemars::JsonSchema;
use serde::Serialize;

/// A problem, as RFC 9457 defines it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemJson<'a> {
    /// The kind of problem: always the same value for the same kind.
    #[serde(rename = "type")]
    #[schemars(extend("format" = "uri-reference"))]
    pub kind: &'a str,
    /// The kind of problem, for people.
    pub title: &'a str,
    /// The status of the response.
    pub status: u16,
    /// An explanation of this particular problem.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub detail: &'a str,
    /// A way to solve the problem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'a str>,
    /// Each invalid parameter.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub errors: &'a [FaultJson],
}

/// An invalid parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Fault")]
pub struct FaultJson {
    /// The name of the parameter; `input` for a part of a run's input.
    pub parameter: String,
    /// The invalid part of the input, as a JSON pointer (RFC 6901) into it; empty for the whole input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// A description of the expected values.
    pub detail: String,
}
