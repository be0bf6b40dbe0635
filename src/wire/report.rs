//! Reports of audits and drills.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::store::report::Report;

use super::Time;

/// A report of an audit or of drills.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Report")]
pub struct ReportJson<'a> {
    /// Its id.
    id: Uuid,
    /// `audit` or `drill`.
    kind: &'a str,
    /// When it was written.
    at: Time,
    /// True if nothing was wrong.
    ok: bool,
    /// The findings. For an audit, `invariants` has the number of rows that break each invariant; for drills,
    /// `drills` has the result of each. Both have the `version` of the program and `took_ms`. Null if the findings
    /// cannot be read.
    figures: Option<&'a RawValue>,
}

impl<'a> ReportJson<'a> {
    /// The form of a report.
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
