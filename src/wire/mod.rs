//! The forms in which programs read the state of the system: the JSON of the command line and of the API.
//!
//! Owns: each form once, with its schema; its comments are the texts of the API's description. Never:
//! reads a row, or decides what is shown.
//!
//! A form only grows: an existing field stays, and a program must accept fields that it does not know.

pub mod action;
pub mod bulk;
pub mod event;
pub mod fan_out;
pub mod health;
pub mod pipeline;
pub mod problem;
pub mod process;
pub mod report;
pub mod run;
pub mod series;
pub mod step;
pub mod trace;
pub mod waiting;
pub mod webhook;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use crate::time;

/// A time, as RFC 3339 writes it, in UTC.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Time(String);

impl Time {
    /// The time at this many µs since 1970.
    pub fn of(at: i64) -> Self {
        Self(time::rfc3339(at))
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}
