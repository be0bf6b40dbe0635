//! Reports of audits and drills.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::store::report::Report;

use super::Time;

/// A report.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub struct ReportJson<'a> {
    /// Its id.
    id: Uuid,
    /// `audit` or `drill`.
    kind: &'a str,
    /// When it was written.
    at: Time,
    /// Nothing was wrong.
    ok: bool,
    /// The findings. Of an audit `invariants` has how many rows break each; of a drill `drills` has what each has
    /// shown. Both have the `version` of the program and `took_ms`. Null where it cannot be read.
    figures: Option<&'a RawValue>,
}

impl<'a> ReportJson<'a> {
    /// Of a report.
    pub fn of(report: &'a Report) -> Self {
        Self {
            id: report.id,
            kind: &report.kind,
            at: Time::of(report.at),
            ok: report.ok,
            figures: report.figures(),
        }
    }
}
